"""What splits a sentence into the pieces of a pretrained model, whatever library its file is for."""

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
from docmt.text.bpe import is_panic, parse_library
from docmt.text.sentencepiece_tokenizer import OF_TEXT, SPACE, Kind, is_bpe, read_pieces, restrict_spm
from docmt.text.tokenizer import SpecialTokens

BYTE = re.compile(r"<0x[0-9A-F]{2}>")
"""A piece that stands for a byte of a character which has no piece."""


class Pieces(ABC):
    """A model of pieces, and the ids that pieces have in the vocabulary. What has no id becomes <unk>.

    A model holds pieces that text can become, and no marks: text that looks like a mark is split like any other.
    """

    suffix: ClassVar[str]
    """of the names of the files that hold such a model"""

    def __init__(self, data: bytes, ids: Mapping[str, int]) -> None:
        """`data`: the file; `ids`: those of the words. Raises ValueError if the file is damaged or lacks words."""
        self.data = data
        self.ids = ids

    @abstractmethod
    def encode(self, sentences: Sequence[str]) -> list[list[int]]:
        """Ids of every sentence, using all processor cores."""

    @abstractmethod
    def decode(self, batch: Sequence[Sequence[int]]) -> list[str]:
        """The text of every sequence of ids; ids of anything but words are left out."""

    @abstractmethod
    def used(self, sentences: Sequence[str]) -> set[str]:
        """The pieces that these sentences become, and text that becomes <unk>."""

    @abstractmethod
    def needed(self, used: Collection[str]) -> set[str]:
        """These pieces, and those without which sentences would become other ones: see `docmt.text.pretrained.kept`."""

    @abstractmethod
    def restricted(self, pieces: Collection[str]) -> bytes:
        """The file of a model that has only these pieces, and what it cannot do without."""


def merges_of(pieces: Iterable[str], rank: Callable[[str, str], float | None]) -> set[str]:
    """All that byte-pair encoding makes on its way from characters to these pieces.

    `rank` of two neighbours: the pair of lowest rank is merged first, the leftmost of equals; None: never.
    """
    made: set[str] = set()
    for piece in pieces:
        parts = list(piece)
        while True:
            ranks = [(rank(left, right), place) for place, (left, right) in enumerate(pairwise(parts))]
            best = min(((first, place) for first, place in ranks if first is not None), default=None)
            if best is None:
                break
            place = best[1]
            parts[place : place + 2] = [parts[place] + parts[place + 1]]
            made.add(parts[place])
    return made


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
        pieces = [[theirs[token] for token in ids if token in theirs] for ids in batch]
        return self._library.decode_batch(pieces, skip_special_tokens=False)

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
        return restrict_json(parse_json(self.data), pieces)

    def _encode(self, sentences: Sequence[str]) -> list[list[int]]:
        """Raises DocmtError for a sentence that the file's patterns cannot match in a bounded time."""
        try:
            encodings = self._library.encode_batch_fast(list(sentences), add_special_tokens=False)
        except BaseException as error:
            if not is_panic(error):
                raise
            for sentence in sentences if len(sentences) > 1 else ():
                self._encode([sentence])
            raise DocmtError(
                f"the model's tokenizer cannot split the sentence {sentences[0][:60]!r} ({error}): shorten or change "
                "this sentence"
            ) from error
        return [encoding.ids for encoding in encodings]


def restrict_json(values: Mapping[str, Any], pieces: Collection[str]) -> bytes:
    """A tokenizer.json that has only these pieces: text that looks like another is split into smaller ones.

    values: as the library itself writes them. What it does besides splitting (marks around a sentence, cutting,
    padding) is left out. Its model is of type Unigram, BPE or WordPiece.
    """
    kept = frozenset(pieces)
    model = dict(values["model"])
    {"Unigram": _restrict_unigram, "BPE": _restrict_bpe, "WordPiece": _restrict_wordpiece}[model["type"]](model, kept)
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


class SpmPieces(Pieces):
    """Finds ids by the text of pieces, so that two models can share one vocabulary, as Marian's do."""

    suffix: ClassVar[str] = ".model"

    def __init__(self, data: bytes, ids: Mapping[str, int]) -> None:
        super().__init__(data, ids)
        self._library: Any = sentencepiece.SentencePieceProcessor()
        read_pieces(data)
        try:
            self._library.LoadFromSerializedProto(data)
        except RuntimeError as error:
            raise ValueError("it is no SentencePiece model") from error
        self._pieces = {token: piece for piece, token in ids.items()}

    def encode(self, sentences: Sequence[str]) -> list[list[int]]:
        ids = self.ids
        return [[ids.get(piece, SpecialTokens.unk) for piece in pieces] for pieces in self._encode(sentences)]

    def decode(self, batch: Sequence[Sequence[int]]) -> list[str]:
        if not batch:
            return []  # the library takes [] for one sequence
        known = self._pieces
        pieces = [[known[token] for token in ids if token in known] for ids in batch]
        texts: list[str] = self._library.decode(pieces, num_threads=-1)
        return [text.replace(SPACE, " ").strip() for text in texts]  # pieces of the other model come as they are

    def used(self, sentences: Sequence[str]) -> set[str]:
        return set().union(*self._encode(sentences))

    def needed(self, used: Collection[str]) -> set[str]:
        pieces = read_pieces(self.data)
        normal = [piece for piece in pieces if piece.kind == Kind.NORMAL]
        # What an unknown character costs is said by the worst score, what a given symbol is worth by the best.
        extreme = [find(normal, key=lambda piece: piece.score).text for find in (min, max) if normal]
        smallest = (piece.text for piece in pieces if len(piece.text) == 1 or piece.kind == Kind.BYTE)
        needed = {*used, *extreme, *smallest}
        if is_bpe(self.data):
            ranks = {piece.text: -piece.score for piece in pieces if piece.kind in OF_TEXT}
            needed |= merges_of(ranks.keys() & used, lambda left, right: ranks.get(left + right))
        return needed

    def restricted(self, pieces: Collection[str]) -> bytes:
        kept = frozenset(pieces)
        return restrict_spm(self.data, {piece.text for piece in read_pieces(self.data) if piece.text not in kept})

    def _encode(self, sentences: Sequence[str]) -> list[list[str]]:
        return self._library.encode(list(sentences), out_type=str, num_threads=-1)
