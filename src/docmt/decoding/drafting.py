"""First translations (drafts) for systems that read them, by the model that drafted what they were trained on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import torch

from docmt.checkpoint.model_directory import (
    DRAFTING_FILE,
    differ,
    find_drafter,
    load_languages,
    load_model_config,
    load_model_tokenizer,
    same_drafters,
)
from docmt.core.errors import DocmtError
from docmt.core.files import read_json
from docmt.core.settings import build
from docmt.data.instances import place_of
from docmt.decoding.models import Model, Precision, computing_in, load_checked, members_of
from docmt.decoding.rules import WordIds
from docmt.decoding.search_config import BATCH_TOKENS, USUAL_DRAFT_BEAM, SearchConfig
from docmt.decoding.stream import Stream, translate_documents
from docmt.decoding.translation import TranslatedSpan
from docmt.model import TranslationModel
from docmt.text import Tokenizer


@dataclass(frozen=True)
class Drafter:
    """A model that drafts, ready to do so."""

    model: TranslationModel
    tokenizer: Tokenizer
    search: SearchConfig
    precision: Precision
    batch_tokens: int = BATCH_TOKENS

    def drafts(
        self, documents: Sequence[WordIds], on_sentences: Callable[[int], object] = lambda count: None
    ) -> list[list[list[int]]]:
        """A draft of every sentence of documents of word ids; those of empty sentences are empty.

        Equal documents are drafted once: candidate translations that are compared have the same source.
        """
        keys = [tuple(map(tuple, document)) for document in documents]
        different = dict(zip(keys, documents, strict=True))
        on_sentences(sum(map(len, documents)) - sum(map(len, different)))
        specials, own = self.tokenizer.specials, list(different.values())
        with computing_in(self.model, self.precision):
            found = translate_documents(
                self.model, own, specials, self.search, batch_tokens=self.batch_tokens, on_sentences=on_sentences
            )
        drafted = {key: ranks[0].sentences for key, ranks in zip(different, found, strict=True)}
        return [drafted[key] for key in keys]

    def stream(self, documents: Sequence[WordIds], look_ahead: int) -> Callable[[int, int], list[list[int]]]:
        """Gives drafts as they are asked for: of the sentences first .. last - 1 of documents that have no empty ones,
        numbered through all documents, in rising order.

        look_ahead: how many tokens are worked on together, about. Raises DocmtError where one could not be drafted.
        """
        specials, offsets = self.tokenizer.specials, np.cumsum([0, *map(len, documents)])
        tokens = self.batch_tokens
        stream = Stream(
            self.model, documents, specials, self.search, batch_tokens=tokens, look_ahead=look_ahead, lenient=True
        )
        made: dict[int, list[int] | DocmtError] = {}
        stretches: Iterator[list[TranslatedSpan]] | None = None

        def drafts(first: int, last: int) -> list[list[int]]:
            nonlocal stretches
            stretches = stretches or stream.stretches(start=place_of(first, offsets))
            if last - 1 not in made:
                for number in [number for number in made if number < first]:
                    del made[number]
            with computing_in(self.model, self.precision):
                while last - 1 not in made:
                    for own in next(stretches):
                        drafted = own.ranks[0].sentences if own.error is None else [own.error] * (own.last - own.first)
                        made.update(enumerate(drafted, int(offsets[own.document]) + own.first))
            return [_no_error(made[number]) for number in range(first, last)]

        return drafts


def _no_error(drafted: list[int] | DocmtError) -> list[int]:
    if isinstance(drafted, DocmtError):
        raise drafted
    return drafted


def load_drafter(directory: Path, tokenizer: Tokenizer, device: torch.device | str, precision: Precision) -> Drafter:
    """The model of a directory as one that drafts.

    tokenizer: that of those who read the drafts. Raises DocmtError for a model that cannot draft for them.
    """
    check_drafter(directory, tokenizer)
    model = load_checked(directory, torch.device(device), precision, tokenizer)
    return Drafter(model, tokenizer, stored_search(directory), precision)


def check_drafter(directory: Path, tokenizer: Tokenizer) -> None:
    """Raises DocmtError unless the model translates without drafts, into the words of this tokenizer."""
    if load_model_config(directory).chosen.context_spec().drafts:
        raise DocmtError(f"{directory} reads drafts itself: draft with a model that does not, such as a sentence model")
    if not load_model_tokenizer(directory).same_words(tokenizer):
        raise DocmtError(
            f"the model {directory} has another tokenizer than what is to read its drafts: draft with a model that was "
            "trained on the same store, or prepare the data with its tokenizer (`docmt prepare --tokenizer "
            f"{directory}`)"
        )


def stored_search(directory: Path) -> SearchConfig:
    """Return how the model of this directory drafts: with beam 4, or as docmt 0.3.0 has stored it.

    Raises DocmtError for a damaged file.
    """
    path = directory / DRAFTING_FILE
    if not path.exists():
        return SearchConfig(beam=USUAL_DRAFT_BEAM)
    known = {field.name for field in fields(SearchConfig)}
    stored = read_json(path).get("search")
    if not isinstance(stored, dict):
        raise DocmtError(f"{path} is damaged: copy the directory again")
    if (implementation := stored.get("implementation", "none")) != "none":  # its name in 0.3.0
        stored["implementation"] = implementation
    return build(SearchConfig, {name: value for name, value in stored.items() if name in known}, str(path), "search.")


def drafter_of(paths: Sequence[Path], model: Model, tokenizer: Tokenizer, precision: Precision) -> Drafter | None:
    """The model whose drafts a model of these paths, or an ensemble, reads; None if it reads none.

    Raises DocmtError where it is missing or damaged, and for members that read drafts of different models.
    """
    reading = [path for path, own in zip(paths, members_of(model), strict=True) if own.system.context_spec().drafts]
    if not reading:
        return None
    for path in reading[1:]:
        if not same_drafters(reading[0], path):
            raise DocmtError(
                f"{reading[0]} and {path} cannot translate as one: they read drafts of different models; choose models "
                "trained on one store with the same drafts"
            )
    found = find_drafter(reading[0])
    if differ(ours := load_languages(reading[0]), theirs := load_languages(found)):
        raise DocmtError(
            f"{found} translates from {theirs[0]} to {theirs[1]}, but {reading[0]}, which is to read its drafts, from "
            f"{ours[0]} to {ours[1]}: copy the model directory again"
        )
    return load_drafter(found, tokenizer, model.device, precision)
