"""First translations (drafts) for systems that read them, by the model that drafted their training data."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from docmt.checkpoint.model_directory import check_drafter, find_common_drafter, load_checked
from docmt.core.errors import DocmtError
from docmt.data.instances import locate_sentence
from docmt.decoding.document_stream import DocumentStream, translate_documents
from docmt.decoding.ensembles import Model, list_members
from docmt.decoding.search_config import BATCH_TOKENS, USUAL_DRAFT_BEAM, SearchConfig
from docmt.decoding.search_rules import WordIds
from docmt.decoding.translation_results import TranslatedSpan
from docmt.model import TranslationModel
from docmt.model.products import Precision, precision_context
from docmt.text import Tokenizer


@dataclass(frozen=True)
class Drafter:
    """Model that translates drafts, with its tokenizer and search settings."""

    model: TranslationModel
    tokenizer: Tokenizer
    search: SearchConfig
    precision: Precision
    batch_tokens: int = BATCH_TOKENS

    def draft_documents(
        self, documents: Sequence[WordIds], on_sentences: Callable[[int], object] = lambda count: None
    ) -> list[list[list[int]]]:
        """Translate a draft of every sentence of documents of word ids; drafts of empty sentences are empty.

        Equal documents are drafted once: contrastive candidates have the same source.
        """
        keys = [tuple(map(tuple, document)) for document in documents]
        unique = dict(zip(keys, documents, strict=True))
        on_sentences(sum(map(len, documents)) - sum(map(len, unique)))
        specials, sources = self.tokenizer.specials, list(unique.values())
        with precision_context(self.model, self.precision):
            translations = translate_documents(
                self.model, sources, specials, self.search, batch_tokens=self.batch_tokens, on_sentences=on_sentences
            )
        drafted = {key: hypotheses[0].sentences for key, hypotheses in zip(unique, translations, strict=True)}
        return [drafted[key] for key in keys]

    def stream_drafts(self, documents: Sequence[WordIds], look_ahead: int) -> Callable[[int, int], list[list[int]]]:
        """Return a function that drafts the sentences first .. last - 1 when it is called, in rising order.

        Sentences are numbered through all documents, which have no empty ones. look_ahead: about how many tokens are
        translated together. The function raises DocmtError where a sentence cannot be drafted.
        """
        specials, offsets = self.tokenizer.specials, np.cumsum([0, *map(len, documents)])
        settings: dict[str, Any] = {"batch_tokens": self.batch_tokens, "look_ahead": look_ahead}
        stream = DocumentStream(self.model, documents, specials, self.search, yield_errors=True, **settings)
        drafted: dict[int, list[int] | DocmtError] = {}
        spans: Iterator[list[TranslatedSpan]] = iter(())

        def next_drafts(first: int, last: int) -> list[list[int]]:
            nonlocal spans
            if first not in drafted and first - 1 not in drafted:  # the first call, or sentences were left out
                spans = stream.translate(start=locate_sentence(first, offsets))
            if last - 1 not in drafted:
                for number in [number for number in drafted if number < first]:
                    del drafted[number]
            with precision_context(self.model, self.precision):
                while last - 1 not in drafted:
                    for span in next(spans):
                        count = span.last - span.first
                        sentences = span.hypotheses[0].sentences if span.error is None else [span.error] * count
                        drafted.update(enumerate(sentences, int(offsets[span.document]) + span.first))
            return [_raise_error(drafted[number]) for number in range(first, last)]

        return next_drafts


def _raise_error(draft: list[int] | DocmtError) -> list[int]:
    """Return a draft, or raise its error."""
    if isinstance(draft, DocmtError):
        raise draft
    return draft


def load_drafter(directory: Path, tokenizer: Tokenizer, device: torch.device | str, precision: Precision) -> Drafter:
    """Load the model of a directory as a drafter.

    tokenizer: of the model that reads the drafts. Raises DocmtError for a model that cannot draft for it.
    """
    check_drafter(directory, tokenizer)
    model = load_checked(directory, torch.device(device), precision, tokenizer)
    return Drafter(model, tokenizer, SearchConfig(beam=USUAL_DRAFT_BEAM), precision)


def load_common_drafter(
    paths: Sequence[Path], model: Model, tokenizer: Tokenizer, precision: Precision
) -> Drafter | None:
    """Load the drafter of a model or ensemble, or return None if it reads no drafts (see `find_common_drafter`)."""
    members = zip(paths, list_members(model), strict=True)
    readers = [path for path, member in members if member.system.context_spec().drafts]
    return load_drafter(find_common_drafter(readers), tokenizer, model.device, precision) if readers else None
