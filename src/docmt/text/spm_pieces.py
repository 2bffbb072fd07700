"""Pieces of a SentencePiece model, unigram or BPE."""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, ClassVar

import sentencepiece

from docmt.text.pieces import Pieces, merges_of
from docmt.text.tokenizer import SpecialTokens

SPACE = "▁"
# Numbers of fields in the file: of the model, of a piece, of the trainer's settings.
_PIECE, _TRAINER, _NORMALIZER, _SELF_TEST, _DENORMALIZER = 1, 2, 3, 4, 5
_TEXT, _SCORE, _KIND = 1, 2, 3
_MODEL_TYPE, _SUFFIX, _BYTE_FALLBACK = 3, 24, 35
_CHARSMAP, _DUMMY_PREFIX, _REMOVE_EXTRA, _ESCAPE = 2, 3, 4, 5
_LONGEST = 10  # bytes of a number
_UNIGRAM, _BPE = b"\x01", b"\x02"
"""A trainer's types of model."""
_YES, _NO = b"\x01", b"\x00"


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
        if read_settings(self.data).is_bpe:
            ranks = {piece.text: -piece.score for piece in pieces if piece.kind in _OF_TEXT}
            needed |= merges_of(ranks.keys() & used, lambda left, right: ranks.get(left + right))
        return needed

    def restricted(self, pieces: Collection[str]) -> bytes:
        kept = frozenset(pieces)
        return restrict(self.data, {piece.text for piece in read_pieces(self.data) if piece.text not in kept})

    def _encode(self, sentences: Sequence[str]) -> list[list[str]]:
        pieces: list[list[str]] = self._library.encode(list(sentences), out_type=str, num_threads=-1)
        return pieces


# The rest reads a model's file: a message in the wire format of protocol buffers (sentencepiece_model.proto).


class Kind(IntEnum):
    """Kinds of pieces, by their numbers in the file."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


_OF_TEXT = (Kind.NORMAL, Kind.USER_DEFINED)


@dataclass(frozen=True)
class SpmPiece:
    """An entry of a model."""

    text: str
    score: float
    kind: Kind


@dataclass(frozen=True)
class SpmSettings:
    """What a model does with text besides splitting it."""

    is_bpe: bool
    byte_fallback: bool
    """what has no piece becomes its bytes"""
    charsmap: bytes
    """compiled rules that normalise characters; empty: none"""
    dummy_prefix: bool
    """a blank is put before every sentence"""
    remove_extra: bool
    """blanks at the ends are removed, and of several in a row all but one"""
    odd: bool
    """something else, which hardly any model has"""


def read_settings(data: bytes) -> SpmSettings:
    """What a model does with text. Raises ValueError if it is damaged or none."""
    messages = {field: value for field, value, _ in _fields(data) if field != _PIECE}
    trainer, normalizer, denormalizer = (
        {field: value for field, value, _ in _fields(messages.get(part, b""))}
        for part in (_TRAINER, _NORMALIZER, _DENORMALIZER)
    )
    return SpmSettings(
        is_bpe=trainer.get(_MODEL_TYPE) == _BPE,
        byte_fallback=trainer.get(_BYTE_FALLBACK) == _YES,
        charsmap=normalizer.get(_CHARSMAP, b""),
        dummy_prefix=normalizer.get(_DUMMY_PREFIX) != _NO,
        remove_extra=normalizer.get(_REMOVE_EXTRA) != _NO,
        odd=trainer.get(_MODEL_TYPE, _UNIGRAM) not in (_UNIGRAM, _BPE)
        or trainer.get(_SUFFIX) == _YES
        or normalizer.get(_ESCAPE) == _NO
        or bool(denormalizer.get(_CHARSMAP)),
    )


def read_pieces(data: bytes) -> list[SpmPiece]:
    """The pieces of a model in the order of their ids. Raises ValueError if it is damaged or none."""
    return [_piece(value) for field, value, _ in _fields(data) if field == _PIECE]


def restrict(data: bytes, dropped: Collection[str]) -> bytes:
    """A model without these pieces: text is split into others. Bytes and marks such as </s> stay."""
    kept = []
    for field, value, whole in _fields(data):
        if field == _PIECE:
            piece = _piece(value)
            drop = piece.kind in _OF_TEXT and piece.text in dropped
        else:
            drop = field == _SELF_TEST  # sentences that would be split in other ways now
        if not drop:
            kept.append(whole)
    return b"".join(kept)


def _piece(message: bytes) -> SpmPiece:
    fields = {field: value for field, value, _ in _fields(message)}
    (score,) = struct.unpack("<f", fields.get(_SCORE, bytes(4)))
    kind = Kind(_number(fields[_KIND], 0)[0]) if _KIND in fields else Kind.NORMAL
    return SpmPiece(fields.get(_TEXT, b"").decode(), score, kind)


def _fields(message: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Number, value and whole of every field of a message. Raises ValueError if it is none."""
    place = 0
    while place < len(message):
        begin = place
        tag, place = _number(message, place)
        kind, first = tag & 7, place
        if kind == 0:
            place = _number(message, place)[1]
        elif kind == 2:
            length, first = _number(message, place)
            place = first + length
        elif kind in (1, 5):
            place += 8 if kind == 1 else 4
        else:
            raise ValueError("it is no SentencePiece model")
        if place > len(message):
            raise ValueError("it is cut off")
        yield tag >> 3, message[first:place], message[begin:place]


def _number(message: bytes, place: int) -> tuple[int, int]:
    """The number that stands there, seven bits a byte, the lowest first; and where it ends."""
    number = 0
    for shift, byte in enumerate(message[place : place + _LONGEST]):
        number |= (byte & 127) << 7 * shift
        if byte < 128:
            return number, place + shift + 1
    raise ValueError("it is cut off")
