"""Sentence models of docmt as directories of the library transformers, which compute the same."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from docmt.checkpoint.export_tokenizer import Framed, write_tokenizer
from docmt.checkpoint.export_weights import Form
from docmt.checkpoint.huggingface_files import CONFIG_FILE
from docmt.checkpoint.model_directory import load_model, load_model_tokenizer
from docmt.checkpoint.weights import WEIGHTS_FILE, save_tensors
from docmt.core.errors import DocmtError
from docmt.core.files import atomic_directory
from docmt.model import TranslationModel
from docmt.model.families import FAMILIES
from docmt.model.systems import Needs
from docmt.text import PretrainedTokenizer, SpecialTokens, Tokenizer
from docmt.text.tokenizer import SIDES, Side

GENERATION_FILE = "generation_config.json"
_LONGEST = 512
"""Tokens of a translation where `generate` is not told how many: its own limit would cut sentences."""


def export_huggingface(model_directory: Path | str, output: Path) -> dict[str, Any]:
    """Writes the sentence model in a model directory as a directory of transformers, and returns its config.json.

    A pretrained model that was converted becomes one of its own type again; the ids of tokens that were dropped are
    given to others. One of docmt's own takes the form of the type that computes the same. `generate` finds what docmt
    finds with `search.compatibility huggingface`. Raises DocmtError, naming the setting, for a model that no type of
    transformers is, and for a tokenizer that it cannot have. The directory is complete or not there.
    """
    model, tokenizer = load_sentence_model(model_directory, output, "transformers")
    config = model.config
    form = Form.of(config)
    rows = _rows(form, tokenizer)
    _check_marks(form, rows)
    starts = [rows["target"][mark] for mark in _opens(form)]
    first = {"decoder_start_token_id": starts[0]}
    values = form.entries(rows) | _ids(rows["source"]) | first  # of sides with other ids, those of the source
    most = None if form.about.any_length else config.max_positions
    generation = _ids(rows["target"]) | first | {"max_new_tokens": min(most or _LONGEST, _LONGEST)}
    if len(starts) > 1:
        generation["forced_bos_token_id"] = starts[1]
    frame = model.parts.frame
    before, after = ([rows["source"][mark] for mark in own] for own in (frame.source_opens, frame.source_closes))
    with atomic_directory(output) as folder:
        save_tensors(folder / WEIGHTS_FILE, form.weights(model.state_dict(), rows), {"format": "pt"})
        write_tokenizer(folder, Framed(tokenizer, rows, before, after), most)
        for name, content in ((CONFIG_FILE, values), (GENERATION_FILE, generation)):
            (folder / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    return values


def load_sentence_model(model_directory: Path | str, output: Path, toolkit: str) -> tuple[TranslationModel, Tokenizer]:
    """The model in a model directory, and its tokenizer, to be written to `output` for a toolkit.

    Raises DocmtError where the output is there already, and for a model that is no sentence model or does not fit its
    tokenizer.
    """
    if output.exists():
        raise DocmtError(f"{output} exists already: choose another directory, or remove it")
    model, tokenizer = load_model(model_directory), load_model_tokenizer(model_directory)
    config = model.config
    if config.chosen.needs() != Needs(sentences=1):
        raise DocmtError(
            f"{model_directory} is a model of system {config.system}: only a sentence model, which reads nothing but "
            f"one sentence, has a form in {toolkit}"
        )
    sizes = config.vocabulary_size, config.source_vocabulary_size or config.vocabulary_size
    if sizes != (tokenizer.vocabulary_size, tokenizer.source_vocabulary_size):
        raise DocmtError(
            "the model's tokenizer has another number of tokens than the model: copy the tokenizer's files again"
        )
    return model, tokenizer


def _rows(form: Form, tokenizer: Tokenizer) -> dict[Side, list[int]]:
    """For each id of a side the row that it gets, or -1: in the order of the directory that it came from, if any."""
    config = form.config
    family = FAMILIES[config.family]
    first, last = family.unpredicted
    found: dict[Side, list[int]] = {}
    for side, size in zip(SIDES, (tokenizer.source_vocabulary_size, tokenizer.vocabulary_size), strict=True):
        own = [*[-1] * first, *range(size - first - last), *[-1] * last]
        if isinstance(tokenizer, PretrainedTokenizer) and family.huggingface is not None:
            own = tokenizer.rows(side)
        if form.begins_with_pad:
            own[SpecialTokens.pad] = size  # behind all others
        place = {row: number for number, row in enumerate(sorted({row for row in own if row >= 0}))}
        found[side] = [place.get(row, -1) for row in own]
        if len(place) != sum(row >= 0 for row in own):
            raise DocmtError("the model's tokenizer has one row for several tokens: copy the tokenizer's files again")
    target = found["target"]
    if any(row >= 0 for row in (*target[:first], *target[len(target) - last :])):
        raise DocmtError(
            f"the model has rows for tokens that models of family {config.family} never say: it cannot be exported"
        )
    return found


def _check_marks(form: Form, rows: Mapping[Side, Sequence[int]]) -> None:
    """Raises DocmtError for tokens that sentences need and the tokenizer does not have, or not where it must."""
    frame = FAMILIES[form.config.family].frame(form.config)
    marks = {"source": (*frame.source_opens, *frame.source_closes), "target": _opens(form)}
    for side in SIDES:
        for token in (*marks[side], SpecialTokens.eos, SpecialTokens.pad):
            if rows[side][token] < 0:
                raise DocmtError(
                    f"the model's tokenizer has no row for the mark {token}, which sentences of its family have"
                )
    pads = [rows[side][SpecialTokens.pad] for side in SIDES]
    if form.about.pad not in (None, *pads) or pads[0] > max(rows["target"]):
        raise DocmtError(
            f"the model's <pad> has the id {pads[0]}, which {form.about.architecture} of transformers cannot "
            "have: such a model cannot be exported"
        )


def _ids(rows: Sequence[int]) -> dict[str, int]:
    """The entries that name special tokens."""
    ids = {"bos": SpecialTokens.bos, "pad": SpecialTokens.pad, "eos": SpecialTokens.eos}
    return {f"{name}_token_id": rows[token] for name, token in ids.items() if rows[token] >= 0}


def _opens(form: Form) -> Sequence[int]:
    """What every translation begins with: one token, or two."""
    if form.begins_with_pad:
        return (SpecialTokens.pad,)
    opens = FAMILIES[form.config.family].frame(form.config).target_opens
    if not 1 <= len(opens) <= 2:
        raise DocmtError(
            f"model.target_mark has {len(form.config.target_mark)} tokens, where a translation in transformers begins "
            "with one"
        )
    return opens
