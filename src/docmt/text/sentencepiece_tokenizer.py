"""SentencePiece models: trained here, or brought along."""

from __future__ import annotations

import base64
import io
import re
import struct
from collections.abc import Collection, Iterator, Sequence
from enum import IntEnum
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

import sentencepiece

from docmt.core.errors import DocmtError
from docmt.core.files import read_bytes
from docmt.text.tokenizer import (
    Languages,
    Sentences,
    Side,
    SpecialTokens,
    Tokenizer,
    check_vocabulary_size,
    checked,
    too_large,
    too_small,
)

MODEL_FILE = "tokenizer.model"
TRAINING_SENTENCES = 1_000_000
"""At most this many sentences, drawn evenly, are used to learn a model: the trainer holds all in memory."""
LONGEST_TRAINING_SENTENCE = 1 << 16
"""In bytes. The trainer leaves longer ones out (its own limit, 4192, would leave out real sentences)."""


class SentencePieceTokenizer(Tokenizer):
    """A SentencePiece model (Kudo and Richardson 2018); trained here: unigram, rare characters as bytes.

    Words are the model's normal, user-defined and byte pieces, in its order; its control, unused and unknown
    pieces have no ids of their own here (its unknown piece becomes <unk>).

    What is lost: with a model trained here, `decode(encode(s)) == s` except that "▁" (U+2581), the library's
    sign for a space, comes back as a space. A model brought along does what it was trained for: most
    normalise (NFKC) and squeeze spaces, and without byte pieces an unseen character becomes <unk>, which
    decodes to nothing.
    """

    kind: ClassVar[str] = "sentencepiece"

    def __init__(self, model: bytes) -> None:
        """`model`: the contents of a `.model` file. RuntimeError or ValueError if they are no such thing."""
        self.model = model
        self._library = library = sentencepiece.SentencePieceProcessor()
        library.LoadFromSerializedProto(model)
        size = library.get_piece_size()
        library.id_to_piece(list(range(size)))  # raises UnicodeDecodeError now, not for a sentence among thousands
        self._pieces = [
            piece
            for piece in range(size)
            if not (library.is_control(piece) or library.is_unknown(piece) or library.is_unused(piece))
        ]
        self.word_count = len(self._pieces)
        self._ids = [SpecialTokens.unk] * size
        for word, piece in enumerate(self._pieces):
            self._ids[piece] = word + SpecialTokens.first_word

    @classmethod
    def from_model(cls, path: Path) -> Self:
        """Takes an existing SentencePiece `.model` file. Raises DocmtError if it is missing or damaged."""
        data = read_bytes(path, "the SentencePiece model", regular=True)
        try:
            return cls(data)
        except (RuntimeError, ValueError) as error:  # ValueError: a piece, or what the library says, is no UTF-8
            raise DocmtError(f"{path} is damaged or not a SentencePiece model; give another .model file") from error

    def pieces(self) -> list[str]:
        """The text of every word."""
        return [self._library.id_to_piece(piece) for piece in self._pieces]

    def files(self) -> dict[str, bytes]:
        return {MODEL_FILE: self.model}

    def _encode(self, sentences: Sequence[str], side: Side) -> list[list[int]]:
        ids = self._ids
        batch = self._library.encode(list(sentences), out_type=int, num_threads=-1)
        return [[ids[piece] for piece in pieces] for pieces in batch]

    def _decode(self, batch: list[list[int]], side: Side) -> list[str]:
        if not batch:
            return []  # the library takes [] for one sequence
        pieces = [[self._pieces[word] for word in words] for words in batch]
        return self._library.decode(pieces, num_threads=-1)

    @classmethod
    def load(cls, directory: Path) -> Self:
        return cls.from_model(directory / MODEL_FILE)

    @classmethod
    def train(cls, sentences: Sentences, vocabulary_size: int, languages: Languages | None = None) -> Self:
        check_vocabulary_size(vocabulary_size)
        unknown = 1  # the library insists on a piece for it, which has no id of ours
        failures: list[BaseException] = []
        model = io.BytesIO()
        sentencepiece.set_random_generator_seed(1)  # of the draw of TRAINING_SENTENCES
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=_remembering(checked(sentences), failures),
                model_writer=model,
                model_type="unigram",
                vocab_size=vocabulary_size - SpecialTokens.count + unknown,
                byte_fallback=True,
                normalization_rule_name="identity",
                remove_extra_whitespaces=False,
                input_sentence_size=TRAINING_SENTENCES,
                max_sentence_length=LONGEST_TRAINING_SENTENCE,
                unk_id=0,
                bos_id=-1,
                eos_id=-1,
                pad_id=-1,
                minloglevel=3,
            )
        except RuntimeError as error:
            if failures:
                raise failures[0] from None
            raise _training_error(str(error), vocabulary_size, SpecialTokens.count - unknown) from error
        return cls(model.getvalue())


def _remembering(sentences: Iterator[str], failures: list[BaseException]) -> Iterator[str]:
    """Remember what went wrong while reading: the library makes of it a RuntimeError without a cause."""
    try:
        yield from sentences
    except BaseException as error:
        failures.append(error)
        raise


def _training_error(message: str, vocabulary_size: int, more: int) -> DocmtError:
    """The library's complaint in our words; `more`: how many ids ours has that its vocabulary has not."""
    if found := re.search(r"value <= (\d+)", message):
        return too_large(vocabulary_size, int(found[1]) + more)
    if found := re.search(r"required_chars\. \d+ vs (\d+)", message):
        return too_small(vocabulary_size, int(found[1]) + more)
    reason = " ".join(message.split()).rstrip(".")
    return DocmtError(f"SentencePiece could not learn a vocabulary of {vocabulary_size} ({reason}); try another size")


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


class Kind(IntEnum):
    """Kinds of pieces, by their numbers in the file."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


OF_TEXT = (Kind.NORMAL, Kind.USER_DEFINED)


class SpmPiece(NamedTuple):
    """An entry of a model."""

    text: str
    score: float
    kind: Kind


def _settings(data: bytes, part: int) -> dict[int, bytes]:
    """The fields of the model's settings of its trainer, normalizer or denormalizer, as far as they are written."""
    message = next((value for field, value, _ in _fields(data) if field == part), b"")
    return {field: value for field, value, _ in _fields(message)}


def is_bpe(data: bytes) -> bool:
    """Whether a model splits text by merges. Raises ValueError if it is damaged or none."""
    return _settings(data, _TRAINER).get(_MODEL_TYPE) == _BPE


def read_pieces(data: bytes) -> list[SpmPiece]:
    """The pieces of a model in the order of their ids. Raises ValueError if it is damaged or none."""
    return [_piece(value) for field, value, _ in _fields(data) if field == _PIECE]


def restrict_spm(data: bytes, dropped: Collection[str]) -> bytes:
    """A model without these pieces: text is split into others. Bytes and marks such as </s> stay."""
    kept = []
    for field, value, whole in _fields(data):
        if field == _PIECE:
            piece = _piece(value)
            drop = piece.kind in OF_TEXT and piece.text in dropped
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


def spm_to_json(data: bytes, *, strip: bool = False) -> dict[str, Any]:
    """A tokenizer.json that splits text as this model does, and joins pieces; its marks are left out.

    It does so on the whole sentence, as SentencePiece does, without splitting it at blanks before. strip: decoded text
    has no blanks at its ends. Raises ValueError for a model that does what that format cannot say.
    """
    trainer, normalizer, denormalizer = (_settings(data, part) for part in (_TRAINER, _NORMALIZER, _DENORMALIZER))
    pieces = read_pieces(data)
    unusual = (
        any(piece.kind in (Kind.USER_DEFINED, Kind.UNUSED) for piece in pieces)
        or trainer.get(_MODEL_TYPE, _UNIGRAM) not in (_UNIGRAM, _BPE)
        or trainer.get(_SUFFIX) == _YES
        or normalizer.get(_ESCAPE) == _NO
        or denormalizer.get(_CHARSMAP)
    )
    if unusual:
        raise ValueError("its SentencePiece model has symbols that its user defined, or settings that are rarely used")
    pieces = [piece for piece in pieces if piece.kind in (Kind.NORMAL, Kind.BYTE)]
    blank_before = normalizer.get(_DUMMY_PREFIX) != _NO
    single_blanks = normalizer.get(_REMOVE_EXTRA) != _NO  # and none at the ends
    blanks = r"\A +| +\z" if strip else r"\A +" if single_blanks else r"\A " if blank_before else ""
    steps = [_replace(SPACE, " "), {"type": "ByteFallback"}, {"type": "Fuse"}]
    steps += [_replace(blanks, "", regex=True)] if blanks else []
    normalizers: list[dict[str, Any]] = []
    if charsmap := normalizer.get(_CHARSMAP):
        normalizers.append({"type": "Precompiled", "precompiled_charsmap": base64.b64encode(charsmap).decode()})
    if single_blanks:
        normalizers += [_replace(r"\A +| +\z", "", regex=True), _replace(" {2,}", " ", regex=True)]
    if blank_before:
        normalizers.append({"type": "Prepend", "prepend": SPACE})
    return {
        "version": "1.0",
        "normalizer": {"type": "Sequence", "normalizers": [*normalizers, _replace(" ", SPACE)]},
        "pre_tokenizer": None,
        "decoder": {"type": "Sequence", "decoders": steps},
        "model": {
            **(_bpe(pieces) if trainer.get(_MODEL_TYPE) == _BPE else _unigram(pieces)),
            "byte_fallback": trainer.get(_BYTE_FALLBACK) == _YES,
        },
        "added_tokens": [],
    }


def _replace(pattern: str, content: str, *, regex: bool = False) -> dict[str, Any]:
    return {"type": "Replace", "pattern": {"Regex" if regex else "String": pattern}, "content": content}


def _unigram(pieces: list[SpmPiece]) -> dict[str, Any]:
    return {"type": "Unigram", "vocab": [[piece.text, piece.score] for piece in pieces], "unk_id": None}


def _bpe(pieces: list[SpmPiece]) -> dict[str, Any]:
    """SentencePiece merges any two neighbours that make a piece, those of the best piece first."""
    known = {piece.text for piece in pieces}
    merges = [
        [piece.text[:place], piece.text[place:]]
        for piece in sorted(pieces, key=lambda piece: -piece.score)
        if piece.kind == Kind.NORMAL
        for place in range(1, len(piece.text))
        if piece.text[:place] in known and piece.text[place:] in known
    ]
    vocabulary = {piece.text: number for number, piece in enumerate(pieces)}
    return {"type": "BPE", "vocab": vocabulary, "merges": merges, "unk_token": None, "fuse_unk": True}
