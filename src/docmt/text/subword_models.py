"""Subword models of pretrained tokenizers: split sentences into pieces with the library of the model's file."""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, ClassVar

import sentencepiece

from docmt.core.errors import DocmtError
from docmt.core.files import parse_json
from docmt.text.bpe import is_panic, parse_tokenizer_json
from docmt.text.sentencepiece_tokenizer import SPACE, TEXT_KINDS, PieceKind, is_bpe, read_pieces, restrict_spm
from docmt.text.tokenizer import SpecialTokens

BYTE = re.compile(r"<0x[0-9A-F]{2}>")
"""Pattern of pieces for single bytes of characters without a piece."""


class SubwordModel(ABC):
    """A model that splits text into pieces, and the pieces' ids in the vocabulary. Other pieces become <unk>.

    A model contains no special tokens, so text that looks like a special token is split like any other.
    """

    suffix: ClassVar[str]
    """Suffix of model files"""

    def __init__(self, data: bytes, ids: Mapping[str, int]) -> None:
        """Load a model file. ids: by piece. Raises ValueError if the file is damaged or lacks a piece."""
        self.data = data
        self.ids = ids

    @abstractmethod
    def encode(self, sentences: Sequence[str]) -> list[list[int]]:
        """Return the ids of every sentence, on all processor cores."""

    @abstractmethod
    def decode(self, batch: Sequence[Sequence[int]]) -> list[str]:
        """Return the text of every sequence of ids. Ids that are no words are ignored."""

    @abstractmethod
    def find_pieces(self, sentences: Sequence[str]) -> set[str]:
        """Return the pieces of these sentences, and text that becomes <unk>."""

    @abstractmethod
    def add_required(self, used: Collection[str]) -> set[str]:
        """Return these pieces and all others that a restricted model needs to split the sentences equally."""

    @abstractmethod
    def restrict(self, pieces: Collection[str]) -> bytes:
        """Return the file of a model with only these pieces and the entries that every model needs."""


def find_merges(pieces: Iterable[str], rank: Callable[[str, str], float | None]) -> set[str]:
    """Return all merges that byte-pair encoding applies from characters to these pieces.

    rank: rank of a pair of neighbours, or None if it is never merged. The lowest rank is merged first, the leftmost
    of equal ones.
    """
    merges: set[str] = set()
    for piece in pieces:
        parts = list(piece)
        while True:
            ranks = [(rank(first, second), index) for index, (first, second) in enumerate(pairwise(parts))]
            best = min(((pair_rank, index) for pair_rank, index in ranks if pair_rank is not None), default=None)
            if best is None:
                break
            index = best[1]
            parts[index : index + 2] = [parts[index] + parts[index + 1]]
            merges.add(parts[index])
    return merges


_UNKNOWN = ""
"""The name of <unk> in a restricted Unigram or WordPiece model. No text is split into it."""


class JsonSubwordModel(SubwordModel):
    """A tokenizer.json with its normaliser and splitter."""

    suffix: ClassVar[str] = ".json"

    def __init__(self, data: bytes, ids: Mapping[str, int]) -> None:
        super().__init__(data, ids)
        self._library = parse_tokenizer_json(data)
        vocabulary: dict[str, int] = self._library.get_vocab()
        if missing := ids.keys() - vocabulary.keys():
            raise ValueError(f"it lacks {min(missing)!r}")
        self._library_ids = {token: vocabulary[piece] for piece, token in ids.items()}
        self._docmt_ids = [SpecialTokens.unk] * (max(vocabulary.values(), default=-1) + 1)
        for token, library_id in self._library_ids.items():
            self._docmt_ids[library_id] = token

    def encode(self, sentences: Sequence[str]) -> list[list[int]]:
        docmt_ids = self._docmt_ids
        return [[docmt_ids[piece] for piece in pieces] for pieces in self._encode(sentences)]

    def decode(self, batch: Sequence[Sequence[int]]) -> list[str]:
        library_ids = self._library_ids
        pieces = [[library_ids[token] for token in ids if token in library_ids] for ids in batch]
        return self._library.decode_batch(pieces, skip_special_tokens=False)

    def find_pieces(self, sentences: Sequence[str]) -> set[str]:
        return {self._library.id_to_token(piece) for piece in set().union(*self._encode(sentences))}

    def add_required(self, used: Collection[str]) -> set[str]:
        model = parse_json(self.data)["model"]
        if model["type"] == "Unigram":
            scores = {piece: score for piece, score in model["vocab"] if piece != _UNKNOWN}
            # The lowest score sets the cost of an unknown character.
            lowest = {min(scores, key=scores.__getitem__)} if scores else set()
            return {*used, *lowest, *(piece for piece in scores if len(piece) == 1 or BYTE.fullmatch(piece))}
        if model["type"] == "WordPiece":
            prefix = model["continuing_subword_prefix"]
            return {*used, *(piece for piece in model["vocab"] if len(piece.removeprefix(prefix)) == 1)}
        ranks = {(first, second): rank for rank, (first, second) in enumerate(model["merges"])}
        merged = {first + second for first, second in ranks}
        never_merged = model["vocab"].keys() - merged
        return {*used, *never_merged, *find_merges(used, lambda first, second: ranks.get((first, second)))}

    def restrict(self, pieces: Collection[str]) -> bytes:
        return restrict_tokenizer_json(parse_json(self.data), pieces)

    def _encode(self, sentences: Sequence[str]) -> list[list[int]]:
        """Split sentences. Raises DocmtError for one that the file's patterns cannot match in bounded time."""
        try:
            encodings = self._library.encode_batch_fast(list(sentences), add_special_tokens=False)
        except BaseException as error:
            if not is_panic(error):
                raise
            for sentence in sentences if len(sentences) > 1 else ():
                self._encode([sentence])
            raise DocmtError(
                f"the model's tokenizer cannot split the sentence {sentences[0][:60]!r} ({error}). Shorten or change "
                "this sentence"
            ) from error
        return [encoding.ids for encoding in encodings]


def restrict_tokenizer_json(values: Mapping[str, Any], pieces: Collection[str]) -> bytes:
    """Return a tokenizer.json with only these pieces. Text of other pieces is split into smaller ones.

    values: a tokenizer.json as the library writes it, of type Unigram, BPE or WordPiece. The result adds no special
    tokens and neither truncates nor pads.
    """
    allowed = frozenset(pieces)
    model = dict(values["model"])
    restrict = {"Unigram": _restrict_unigram, "BPE": _restrict_bpe, "WordPiece": _restrict_wordpiece}[model["type"]]
    restrict(model, allowed)
    vocabulary = {piece for piece, _ in model["vocab"]} if model["type"] == "Unigram" else model["vocab"]
    added = [dict(token) for token in values.get("added_tokens") or () if token["content"] in allowed]
    for number, token in enumerate(token for token in added if token["content"] not in vocabulary):
        token["id"] = len(vocabulary) + number
    disabled = {"post_processor": None, "truncation": None, "padding": None}
    return json.dumps({**values, **disabled, "model": model, "added_tokens": added}, ensure_ascii=False).encode()


def _restrict_unigram(model: dict[str, Any], allowed: frozenset[str]) -> None:
    entries: dict[str, float] = {}
    for number, (piece, score) in enumerate(model["vocab"]):
        if number == model["unk_id"]:
            entries[_UNKNOWN] = score
        elif piece in allowed:
            entries[piece] = score
    model["vocab"] = [[piece, score] for piece, score in entries.items()]
    if model["unk_id"] is not None:
        model["unk_id"] = list(entries).index(_UNKNOWN)


def _restrict_bpe(model: dict[str, Any], allowed: frozenset[str]) -> None:
    unknown = model.get("unk_token")
    in_order = sorted(model["vocab"], key=model["vocab"].__getitem__)
    model["vocab"] = _number_pieces(piece for piece in in_order if piece in allowed or piece == unknown)
    model["merges"] = [parts for parts in model["merges"] if allowed.issuperset((*parts, "".join(parts)))]
    model["dropout"] = None


def _restrict_wordpiece(model: dict[str, Any], allowed: frozenset[str]) -> None:
    in_order = sorted(model["vocab"], key=model["vocab"].__getitem__)
    words = [piece for piece in in_order if piece in allowed and piece != _UNKNOWN]
    model["vocab"] = _number_pieces([_UNKNOWN, *words])
    model["unk_token"] = _UNKNOWN


def _number_pieces(pieces: Iterable[str]) -> dict[str, int]:
    return {piece: number for number, piece in enumerate(pieces)}


class SpmSubwordModel(SubwordModel):
    """A SentencePiece model. Ids are found by the text of pieces, so two models can share a vocabulary (Marian)."""

    suffix: ClassVar[str] = ".model"

    def __init__(self, data: bytes, ids: Mapping[str, int]) -> None:
        super().__init__(data, ids)
        self._library: Any = sentencepiece.SentencePieceProcessor()
        read_pieces(data)
        try:
            self._library.LoadFromSerializedProto(data)
        except RuntimeError as error:
            raise ValueError("it is not a SentencePiece model") from error
        self._pieces = {token: piece for piece, token in ids.items()}

    def encode(self, sentences: Sequence[str]) -> list[list[int]]:
        ids = self.ids
        return [[ids.get(piece, SpecialTokens.unk) for piece in pieces] for pieces in self._encode(sentences)]

    def decode(self, batch: Sequence[Sequence[int]]) -> list[str]:
        if not batch:
            return []  # the library would read [] as one sequence
        known = self._pieces
        pieces = [[known[token] for token in ids if token in known] for ids in batch]
        texts: list[str] = self._library.decode(pieces, num_threads=-1)
        return [text.replace(SPACE, " ").strip() for text in texts]  # pieces of the other model are not decoded

    def find_pieces(self, sentences: Sequence[str]) -> set[str]:
        return set().union(*self._encode(sentences))

    def add_required(self, used: Collection[str]) -> set[str]:
        pieces = read_pieces(self.data)
        normal = [piece for piece in pieces if piece.kind == PieceKind.NORMAL]
        # The lowest score sets the cost of an unknown character, the highest the score of user-defined symbols.
        extremes = [find(normal, key=lambda piece: piece.score).text for find in (min, max) if normal]
        smallest = (piece.text for piece in pieces if len(piece.text) == 1 or piece.kind == PieceKind.BYTE)
        required = {*used, *extremes, *smallest}
        if is_bpe(self.data):
            ranks = {piece.text: -piece.score for piece in pieces if piece.kind in TEXT_KINDS}
            required |= find_merges(ranks.keys() & used, lambda first, second: ranks.get(first + second))
        return required

    def restrict(self, pieces: Collection[str]) -> bytes:
        allowed = frozenset(pieces)
        return restrict_spm(self.data, {piece.text for piece in read_pieces(self.data) if piece.text not in allowed})

    def _encode(self, sentences: Sequence[str]) -> list[list[str]]:
        return self._library.encode(list(sentences), out_type=str, num_threads=-1)
