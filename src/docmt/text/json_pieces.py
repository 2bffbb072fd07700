"""Pieces of a `tokenizer.json`: Unigram, BPE or WordPiece, in the format of the library tokenizers."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, ClassVar

from docmt.core.files import parse_json
from docmt.text.checks import parse_library
from docmt.text.pieces import BYTE, Pieces, merges_of
from docmt.text.tokenizer import SpecialTokens

_UNKNOWN = ""
"""The name that <unk> gets in a Unigram or WordPiece model: no text is ever split into it."""


class JsonPieces(Pieces):
    """Does with text what the file says: normalises, splits at blanks, and so on."""

    suffix: ClassVar[str] = ".json"

    def __init__(self, data: bytes, ids: Mapping[str, int]) -> None:
        super().__init__(data, ids)
        self._library = parse_library(data)
        vocabulary: dict[str, int] = self._library.get_vocab()
        if missing := ids.keys() - vocabulary.keys():
            raise ValueError(f"it lacks {min(missing)!r}")
        self._theirs = {ours: vocabulary[piece] for piece, ours in ids.items()}
        self._ours = [SpecialTokens.unk] * (max(vocabulary.values(), default=-1) + 1)
        for ours, theirs in self._theirs.items():
            self._ours[theirs] = ours

    def encode(self, sentences: Sequence[str]) -> list[list[int]]:
        ours = self._ours
        return [[ours[piece] for piece in pieces] for pieces in self._encode(sentences)]

    def decode(self, batch: Sequence[Sequence[int]]) -> list[str]:
        theirs = self._theirs
        texts: list[str] = self._library.decode_batch(
            [[theirs[token] for token in ids if token in theirs] for ids in batch], skip_special_tokens=False
        )
        return texts

    def used(self, sentences: Sequence[str]) -> set[str]:
        return {self._library.id_to_token(piece) for piece in set().union(*self._encode(sentences))}

    def needed(self, used: Collection[str]) -> set[str]:
        model = parse_json(self.data)["model"]
        if model["type"] == "Unigram":
            scores = {piece: score for piece, score in model["vocab"] if piece != _UNKNOWN}
            # The worst score says what an unknown character costs.
            extreme = {min(scores, key=scores.__getitem__)} if scores else set()
            return {*used, *extreme, *(piece for piece in scores if len(piece) == 1 or BYTE.fullmatch(piece))}
        if model["type"] == "WordPiece":
            inside = model["continuing_subword_prefix"]
            return {*used, *(piece for piece in model["vocab"] if len(piece.removeprefix(inside)) == 1)}
        ranks = {(left, right): rank for rank, (left, right) in enumerate(model["merges"])}
        merged = {left + right for left, right in ranks}
        never_merged = model["vocab"].keys() - merged
        return {*used, *never_merged, *merges_of(used, lambda left, right: ranks.get((left, right)))}

    def restricted(self, pieces: Collection[str]) -> bytes:
        return restrict(parse_json(self.data), pieces)

    def _encode(self, sentences: Sequence[str]) -> list[list[int]]:
        encodings = self._library.encode_batch_fast(list(sentences), add_special_tokens=False)
        return [encoding.ids for encoding in encodings]


def restrict(values: Mapping[str, Any], pieces: Collection[str]) -> bytes:
    """A tokenizer.json that has only these pieces: text that looks like another is split into smaller ones.

    values: as the library itself writes them. What it does besides splitting (marks around a sentence, cutting,
    padding) is left out. Raises ValueError for models of other types than these.
    """
    kept = frozenset(pieces)
    model = dict(values["model"])
    if model["type"] == "Unigram":
        _restrict_unigram(model, kept)
    elif model["type"] == "BPE":
        _restrict_bpe(model, kept)
    elif model["type"] == "WordPiece":
        _restrict_wordpiece(model, kept)
    else:
        raise ValueError(f"its model is of type {model['type']}, where docmt knows Unigram, BPE and WordPiece")
    vocabulary = {piece for piece, _ in model["vocab"]} if model["type"] == "Unigram" else model["vocab"]
    added = [dict(token) for token in values.get("added_tokens") or () if token["content"] in kept]
    for number, token in enumerate(token for token in added if token["content"] not in vocabulary):
        token["id"] = len(vocabulary) + number
    left_out = {"post_processor": None, "truncation": None, "padding": None}
    return json.dumps({**values, **left_out, "model": model, "added_tokens": added}, ensure_ascii=False).encode()


def _restrict_unigram(model: dict[str, Any], kept: frozenset[str]) -> None:
    entries: dict[str, float] = {}
    for number, (piece, score) in enumerate(model["vocab"]):
        if number == model["unk_id"]:
            entries[_UNKNOWN] = score
        elif piece in kept:
            entries[piece] = score
    model["vocab"] = [[piece, score] for piece, score in entries.items()]
    if model["unk_id"] is not None:
        model["unk_id"] = list(entries).index(_UNKNOWN)


def _restrict_bpe(model: dict[str, Any], kept: frozenset[str]) -> None:
    unknown = model.get("unk_token")
    in_order = sorted(model["vocab"], key=model["vocab"].__getitem__)
    model["vocab"] = _numbered(piece for piece in in_order if piece in kept or piece == unknown)
    model["merges"] = [parts for parts in model["merges"] if kept.issuperset((*parts, "".join(parts)))]
    model["dropout"] = None


def _restrict_wordpiece(model: dict[str, Any], kept: frozenset[str]) -> None:
    in_order = sorted(model["vocab"], key=model["vocab"].__getitem__)
    model["vocab"] = _numbered([_UNKNOWN, *(piece for piece in in_order if piece in kept and piece != _UNKNOWN)])
    model["unk_token"] = _UNKNOWN


def _numbered(pieces: Iterable[str]) -> dict[str, int]:
    return {piece: number for number, piece in enumerate(pieces)}
