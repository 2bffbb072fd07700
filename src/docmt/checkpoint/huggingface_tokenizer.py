"""Tokenizers of pretrained models, as Hugging Face directories hold them.

Marian, mBART, mBART-50, M2M100, NLLB-200, BART, T5, mT5 and MADLAD, and the encoders BERT, RoBERTa and XLM-R: as a
tokenizer.json, or as the SentencePiece models and vocabularies that came before it. What a directory's files say
counts, also where a version of transformers does something else with them (MBartTokenizer of version 5 does not
normalise, although mBART was trained so).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from docmt.checkpoint.huggingface_names import Names, read_names
from docmt.checkpoint.huggingface_pieces import Found, find_pieces
from docmt.core.errors import DocmtError
from docmt.core.files import read_json
from docmt.text.pieces import Pieces
from docmt.text.pretrained import PretrainedTokenizer, Vocabulary
from docmt.text.tokenizer import SIDES, Side

_ADVICE = "copy the directory again, complete"
_SPECIALS = ("bos", "pad", "eos", "unk")  # in the order of our ids
_LANGUAGE_MARKS = {
    "marian": r">>(.+)<<",
    "m2m_100": r"__([a-z]{2,3})__|([a-z]{3}_[A-Z][a-z]{3})",  # M2M100, NLLB
    "mbart": r"([a-z]{2}_[A-Z]{2})",
    "t5": r"<2([\w-]+)>",  # MADLAD
}
_SENTINEL = re.compile("▁?<extra_id_[0-9]+>")  # of T5's training; in mT5 they are pieces like others


def read_tokenizer(directory: Path, config: Mapping[str, Any], rows: tuple[int, int]) -> PretrainedTokenizer:
    """The tokenizer of a Hugging Face directory.

    config: the parsed config.json; rows: how many embeddings the model has for the source and for the target.
    Raises DocmtError where files are missing or damaged, or are not those of such a model.
    """
    model_type = str(config.get("model_type"))
    names = read_names(directory, model_type)
    is_language = re.compile(_LANGUAGE_MARKS.get(model_type, "(?!)")).fullmatch
    found = find_pieces(directory, names)
    if found["source"].ids is found["target"].ids and rows[0] != rows[1]:
        raise DocmtError(
            f"the model has {rows[0]} embeddings for the source and {rows[1]} for the target, where {directory} has "
            f"one vocabulary: {_ADVICE}"
        )
    special_ids = _special_ids(directory, config)
    vocabularies: dict[Side, Vocabulary] = {}
    pieces: dict[Side, Pieces] = {}
    languages: dict[str, str] = {}
    for side, size in zip(SIDES, rows, strict=True):
        own = found[side]
        if side == "target" and own is found["source"]:
            vocabularies[side], pieces[side] = vocabularies["source"], pieces["source"]
            continue
        marks = {match[0]: code for text in own.ids if (match := is_language(text)) for code in match.groups() if code}
        sentinels = frozenset(filter(_SENTINEL.fullmatch, own.ids))
        # The configuration has one id for each, that of the source.
        given = special_ids if own.ids is found["source"].ids else {}
        try:
            vocabularies[side] = _vocabulary(own, own.marks | marks.keys() | sentinels, size, names, given)
            pieces[side] = own.open(vocabularies[side].words())
        except ValueError as error:
            raise DocmtError(f"{own.path} or a file beside it is damaged ({error}): {_ADVICE}") from error
        languages |= {code: mark for mark, code in marks.items() if own.ids[mark] < size}
    clean_up = names.settings.get("clean_up_tokenization_spaces") is True and not found["target"].is_bpe
    return PretrainedTokenizer(vocabularies, pieces, languages, clean_up)


def _special_ids(directory: Path, config: Mapping[str, Any]) -> dict[str, Any]:
    path = directory / "generation_config.json"
    given = [read_json(path) if path.is_file() else {}, config]
    return {key: value for values in given for key, value in values.items() if value is not None}


def _vocabulary(
    found: Found, marks: Iterable[str], size: int, names: Names, special_ids: Mapping[str, Any]
) -> Vocabulary:
    """The rows of a model in the order of our ids, with what the tokenizer knows about them."""
    marks = frozenset(marks)
    texts: dict[int, str] = {}
    for text, row in found.ids.items():
        if row >= size and text in marks:
            continue  # the model has no embedding for this mark: it was made without it
        if type(row) is not int or not 0 <= row < size or texts.setdefault(row, text) != text:
            raise DocmtError(
                f"{found.path.parent} has a tokenizer that gives {text!r} the id {row}, where the model has {size} "
                f"embeddings, or another token has that id: {_ADVICE}"
            )
    specials = _special_rows(found, size, names, special_ids)
    order = [specials[name] for name in _SPECIALS]
    order += [row for row in range(size) if row not in specials.values()]
    symbols = [texts.get(row) for row in order]
    marked = frozenset(token for token, text in enumerate(symbols) if token >= len(_SPECIALS) and text in marks)
    return Vocabulary((*symbols, None, None), marked, (*order, -1, -1))


def _special_rows(found: Found, size: int, names: Names, special_ids: Mapping[str, Any]) -> dict[str, int]:
    """The rows of <s>, <pad>, </s> and <unk>, each another one; -1 for what the model has none for."""
    rows: dict[str, int] = {}
    for name in ("eos", "unk", "pad", "bos"):  # where two are one row, it is that of the first
        row = special_ids.get(f"{name}_token_id", found.ids.get(names.special[name]))
        row = row[0] if isinstance(row, list) and row else row
        if row is None and name in ("eos", "unk"):
            raise DocmtError(
                f"the vocabulary of {found.path} has no {names.special[name]!r}, its {name} token: {_ADVICE}"
            )
        if row is not None and (type(row) is not int or not 0 <= row < size):
            raise DocmtError(
                f"the configuration in {found.path.parent} says {name}_token_id {row!r}, where the model has {size} "
                f"embeddings: {_ADVICE}"
            )
        rows[name] = -1 if row is None or row in rows.values() else row
    return rows
