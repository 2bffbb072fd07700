"""The tokenizer of a model as transformers reads it.

A tokenizer.json that puts the model's marks around sentences; for Marian models, whose two languages are split in two
ways, the files that its own class reads.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from docmt.core.errors import DocmtError
from docmt.core.files import parse_json, read_json
from docmt.text import BpeTokenizer, DictionaryTokenizer, PretrainedTokenizer, SentencePieceTokenizer, Tokenizer
from docmt.text.bpe import parse_library
from docmt.text.pieces import JsonPieces, SpmPieces
from docmt.text.sentencepiece_tokenizer import spm_to_json
from docmt.text.tokenizer import SIDES, Side, SpecialTokens

TOKENIZER_FILE, TOKENIZER_CONFIG = "tokenizer.json", "tokenizer_config.json"
_NAMES = {"bos_token": 0, "pad_token": 1, "eos_token": 2, "unk_token": 3}
_SPECIALS = ("<s>", "<pad>", "</s>", "<unk>", "<eod>", "<mask>")
_SAMPLE, _TOGETHER = 20_000, 25
"""Words with which a tokenizer is tried, and how many of them in a sentence."""


@dataclass(frozen=True)
class Framed:
    """A tokenizer, with what its model makes of its ids."""

    tokenizer: Tokenizer
    rows: Mapping[Side, Sequence[int]]
    """for each id of a side the one that is written for it; -1: none"""
    before: Sequence[int]
    """marks (ids that are written) before the words of a source sentence"""
    after: Sequence[int]
    """marks after them"""


def write_tokenizer(folder: Path, framed: Framed, most_tokens: int | None) -> None:
    """Writes the files of a tokenizer; most_tokens: of a sentence, if the model has a limit.

    Raises DocmtError for a tokenizer that transformers cannot have.
    """
    tokenizer = framed.tokenizer
    settings: dict[str, Any] = {"clean_up_tokenization_spaces": getattr(tokenizer, "clean_up", False)}
    if most_tokens is not None:
        settings["model_max_length"] = most_tokens
    if isinstance(tokenizer, PretrainedTokenizer) and not tokenizer.sides_alike:
        _write_marian(folder, framed, tokenizer, settings)
        return
    described = _described(tokenizer)
    texts, words = token_texts(tokenizer, "target"), _words(tokenizer)
    symbols = {row: texts[token] for token, row in enumerate(framed.rows["target"]) if row >= 0}
    placed = {texts[token]: framed.rows["target"][token] for token in words}
    values = _placed(described, symbols, placed, framed.rows["target"][SpecialTokens.unk])
    values["post_processor"] = _template(framed, symbols)
    data = json.dumps(values, ensure_ascii=False).encode()
    _try(framed, data, set(symbols.values()) - placed.keys())
    (folder / TOKENIZER_FILE).write_bytes(data)
    settings |= {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_input_names": ["input_ids", "attention_mask"],
        "split_special_tokens": True,  # text that looks like a mark is text
        **_special(framed, symbols),
    }
    _write_json(folder / TOKENIZER_CONFIG, settings)


def _special(framed: Framed, symbols: Mapping[int, str]) -> dict[str, str]:
    rows = framed.rows["target"]
    return {name: symbols[rows[token]] for name, token in _NAMES.items() if rows[token] >= 0}


def _write_marian(folder: Path, framed: Framed, tokenizer: PretrainedTokenizer, settings: Mapping[str, Any]) -> None:
    """The files of transformers' MarianTokenizer, which puts `</s>` behind sentences itself."""
    special = {name: framed.rows["source"][token] for name, token in _NAMES.items()}
    pieces = tokenizer.pieces
    if special["bos_token"] in framed.before or not all(isinstance(pieces[side], SpmPieces) for side in SIDES):
        raise DocmtError(
            "the model's tokenizer has pieces for each side, as in transformers only those of Marian models have"
        )
    for side in SIDES:
        (folder / f"{side}.spm").write_bytes(pieces[side].data)
        name = "target_vocab.json" if side == "target" and not tokenizer.shares_vocabulary else "vocab.json"
        pairs = zip(tokenizer.vocabularies[side].symbols, framed.rows[side], strict=True)
        _write_json(folder / name, {symbol: row for symbol, row in pairs if symbol is not None and row >= 0})
    symbols = dict(zip(framed.rows["source"], tokenizer.vocabularies["source"].symbols, strict=True))
    settings = {"tokenizer_class": "MarianTokenizer", **settings, "separate_vocabs": not tokenizer.shares_vocabulary}
    known = {name: symbols[row] for name, row in special.items() if row >= 0}
    _write_json(folder / TOKENIZER_CONFIG, {**settings, **known})


def _described(tokenizer: Tokenizer) -> dict[str, Any]:
    """What splits text into the words of a tokenizer, as a tokenizer.json."""
    if isinstance(tokenizer, BpeTokenizer):
        values: dict[str, Any] = parse_json(tokenizer.to_json().encode())
        values["normalizer"] = {"type": "Prepend", "prepend": " "}
        strip = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
        values["decoder"] = {"type": "Sequence", "decoders": [values["decoder"], strip]}
        return values
    try:
        if isinstance(tokenizer, SentencePieceTokenizer):
            return spm_to_json(tokenizer.model)
        if isinstance(tokenizer, PretrainedTokenizer) and tokenizer.sides_alike:
            pieces = tokenizer.pieces["target"]
            found = parse_json(pieces.data) if isinstance(pieces, JsonPieces) else spm_to_json(pieces.data, strip=True)
            return dict(found)
    except ValueError as error:
        raise DocmtError(f"the model's tokenizer has no form in transformers ({error})") from error
    raise DocmtError(
        f"the model's tokenizer of kind {tokenizer.kind} has no form in transformers: only models with one of the "
        "kinds bpe, sentencepiece and pretrained can be exported"
    )


def _words(tokenizer: Tokenizer) -> range | list[int]:
    """The ids that text can become."""
    if isinstance(tokenizer, PretrainedTokenizer):
        return list(tokenizer.vocabularies["target"].words().values())
    return range(SpecialTokens.first_word, tokenizer.specials.eod)


def token_texts(tokenizer: Tokenizer, side: Side) -> list[str]:
    """What is written for each id of a side, each another text."""
    tokenizer = tokenizer.of(side)
    if isinstance(tokenizer, PretrainedTokenizer):
        symbols = list(tokenizer.vocabularies[side].symbols)
    else:
        words = _word_texts(tokenizer, side)
        known = set(words)
        marks = [next(name for name in mark_names(mark) if name not in known) for mark in _SPECIALS]
        symbols = [*marks[:4], *words, *marks[4:]]
    # What nobody has a text for has one with a blank in it, as no piece has.
    return [f"<unused {token}>" if text is None else text for token, text in enumerate(symbols)]


def _word_texts(tokenizer: Tokenizer, side: Side) -> list[str]:
    """The text of every id that is a word."""
    if isinstance(tokenizer, SentencePieceTokenizer):
        return tokenizer.pieces()
    if isinstance(tokenizer, DictionaryTokenizer):
        return list(tokenizer.source_symbols if side == "source" else tokenizer.symbols)
    with TemporaryDirectory() as folder:  # bpe and moses-bpe, which are what their library writes of them
        tokenizer.save(Path(folder))
        vocabulary = read_json(Path(folder, TOKENIZER_FILE))["model"]["vocab"]
    return sorted(vocabulary, key=vocabulary.__getitem__)


def mark_names(mark: str) -> Iterator[str]:
    """Names for a mark, the usual one first: text of the training corpus may have become a word like it."""
    yield mark
    yield from (f"{mark[:-1]}_{number}>" for number in count(1))


def _placed(values: dict[str, Any], symbols: Mapping[int, str], words: Mapping[str, int], unk: int) -> dict[str, Any]:
    """A tokenizer.json in which every symbol has its row for an id; those that are no words are marks."""
    model = dict(values["model"])
    pieces = {piece for piece, _ in model["vocab"]} if model["type"] == "Unigram" else model["vocab"].keys()
    if more := pieces - words.keys() - {symbols.get(unk), ""}:
        raise DocmtError(
            f"the model's tokenizer splits text into pieces such as {min(more)!r}, which its vocabulary does not "
            "have: such a tokenizer has no form in transformers"
        )
    in_order = [symbols[row] for row in range(len(symbols))]
    ordinary = {token["content"]: token for token in values["added_tokens"] if token["content"] in words}
    if model["type"] == "Unigram":
        scores = {piece: score for piece, score in model["vocab"] if piece in words}
        if model["unk_id"] is not None:
            scores[symbols[unk]] = model["vocab"][model["unk_id"]][1]
        unknown = unk if unk >= 0 else None
        model |= {"vocab": [[text, scores.get(text, 0.0)] for text in in_order], "unk_id": unknown}
    else:
        model["vocab"] = {text: row for row, text in enumerate(in_order)}
        model["unk_token"] = symbols.get(unk)
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    added = [
        {**ordinary.get(text, {**flags, "special": True}), "id": row, "content": text}
        for row, text in enumerate(in_order)
        if text in ordinary or text not in words
    ]
    return {**values, "model": model, "added_tokens": added, "truncation": None, "padding": None}


def _template(framed: Framed, symbols: Mapping[int, str]) -> dict[str, Any]:
    """What puts marks around a sentence."""
    before, after = ([symbols[row] for row in marks] for marks in (framed.before, framed.after))

    def around(sequence: str) -> list[dict[str, Any]]:
        marks = [[{"SpecialToken": {"id": text, "type_id": 0}} for text in own] for own in (before, after)]
        return [*marks[0], {"Sequence": {"id": sequence, "type_id": 0}}, *marks[1]]

    ids = {symbols[row]: row for row in (*framed.before, *framed.after)}
    special = {text: {"id": text, "ids": [row], "tokens": [text]} for text, row in ids.items()}
    pair = [*around("A"), *around("B")]
    return {"type": "TemplateProcessing", "single": around("A"), "pair": pair, "special_tokens": special}


def _try(framed: Framed, data: bytes, marks: Collection[str]) -> None:
    """Raises DocmtError unless the library, with this tokenizer.json, gives sentences the ids of docmt's tokenizer."""
    tokenizer, rows = framed.tokenizer, framed.rows["target"]
    library = parse_library(data)
    library.encode_special_tokens = True
    words = list(_words(tokenizer))
    some = words[:: max(len(words) // _SAMPLE, 1)]
    parts = [some[first : first + _TOGETHER] for first in range(0, len(some), _TOGETHER)]
    sentences = [text for text in tokenizer.decode_batch(parts, "target") if not any(mark in text for mark in marks)]
    for sentence, ids in zip(sentences, tokenizer.encode_batch(sentences, "target"), strict=True):
        expected = [*framed.before, *(rows[token] for token in ids), *framed.after]
        found = library.encode(sentence).ids
        if found != expected:
            raise DocmtError(
                f"the model's tokenizer has no form in transformers: {sentence[:60]!r} would become other tokens there"
            )


def _write_json(path: Path, values: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(values, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
