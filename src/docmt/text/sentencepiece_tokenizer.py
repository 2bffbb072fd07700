"""SentencePiece models: training, loading, restricting, and conversion to tokenizer.json."""

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
    check_sentences,
    check_vocabulary_size,
    too_large_error,
    too_small_error,
)

MODEL_FILE = "tokenizer.model"
TRAINING_SENTENCES = 1_000_000
"""Most sentences, drawn at random, that a model is trained on, because the trainer holds all in memory."""
LONGEST_TRAINING_SENTENCE = 1 << 16
"""In bytes. The trainer ignores longer ones. Its default of 4192 would ignore real sentences."""


class SentencePieceTokenizer(Tokenizer):
    """A SentencePiece model (Kudo and Richardson 2018). docmt trains unigram models with byte fallback.

    Words are the model's normal, user-defined and byte pieces, in its order. Control, unused and unknown pieces have
    no ids, and the unknown piece becomes <unk>.

    With a model trained by docmt, `decode(encode(s)) == s`, except that "▁" (U+2581), the library's sign for a
    space, becomes a space. Other models may lose more: most normalise (NFKC) and merge spaces. Without byte pieces an
    unseen character becomes <unk>, which decodes to nothing.
    """

    kind: ClassVar[str] = "sentencepiece"

    def __init__(self, model: bytes) -> None:
        """Load the contents of a `.model` file. Raises RuntimeError or ValueError if they are invalid."""
        self.model = model
        self._library = library = sentencepiece.SentencePieceProcessor()
        library.LoadFromSerializedProto(model)
        size = library.get_piece_size()
        library.id_to_piece(list(range(size)))  # raises UnicodeDecodeError now instead of at some later sentence

        def has_id(piece: int) -> bool:
            return not (library.is_control(piece) or library.is_unknown(piece) or library.is_unused(piece))

        self._pieces = list(filter(has_id, range(size)))
        self.word_count = len(self._pieces)
        self._ids = [SpecialTokens.unk] * size
        for word, piece in enumerate(self._pieces):
            self._ids[piece] = word + SpecialTokens.first_word

    @classmethod
    def from_model(cls, path: Path) -> Self:
        """Load a SentencePiece `.model` file. Raises DocmtError if it is missing or damaged."""
        data = read_bytes(path, "the SentencePiece model", regular=True)
        try:
            return cls(data)
        except (RuntimeError, ValueError) as error:  # ValueError: a piece or a library message is not UTF-8
            raise DocmtError(f"{path} is damaged or not a SentencePiece model. Use another .model file") from error

    def pieces(self) -> list[str]:
        """Return the text of every word."""
        return [self._library.id_to_piece(piece) for piece in self._pieces]

    def files(self) -> dict[str, bytes]:
        return {MODEL_FILE: self.model}

    def _encode(self, sentences: Sequence[str], side: Side) -> list[list[int]]:
        ids = self._ids
        batch = self._library.encode(list(sentences), out_type=int, num_threads=-1)
        return [[ids[piece] for piece in pieces] for pieces in batch]

    def _decode(self, batch: list[list[int]], side: Side) -> list[str]:
        if not batch:
            return []  # the library would read [] as one sequence
        pieces = [[self._pieces[word] for word in words] for words in batch]
        return self._library.decode(pieces, num_threads=-1)

    @classmethod
    def load(cls, directory: Path) -> Self:
        return cls.from_model(directory / MODEL_FILE)

    @classmethod
    def train(cls, sentences: Sentences, vocabulary_size: int, languages: Languages | None = None) -> Self:
        check_vocabulary_size(vocabulary_size)
        unknown = 1  # the library requires an unknown piece, which has no docmt id
        failures: list[BaseException] = []
        model = io.BytesIO()
        sentencepiece.set_random_generator_seed(1)  # for the choice of TRAINING_SENTENCES
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=_record_failures(check_sentences(sentences), failures),
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


def _record_failures(sentences: Iterator[str], failures: list[BaseException]) -> Iterator[str]:
    """Yield sentences and record read errors, which the library turns into a RuntimeError without a cause."""
    try:
        yield from sentences
    except BaseException as error:
        failures.append(error)
        raise


def _training_error(message: str, vocabulary_size: int, more: int) -> DocmtError:
    """Convert an error message of the library. `more`: number of docmt ids outside the library's vocabulary."""
    if match := re.search(r"value <= (\d+)", message):
        return too_large_error(vocabulary_size, int(match[1]) + more)
    if match := re.search(r"required_chars\. \d+ vs (\d+)", message):
        return too_small_error(vocabulary_size, int(match[1]) + more)
    reason = " ".join(message.split()).rstrip(".")
    return DocmtError(f"SentencePiece cannot train a vocabulary of {vocabulary_size} ({reason}). Try another size")


SPACE = "▁"
# Protobuf field numbers: of the model, of a piece, of the trainer's settings, of the normaliser's settings.
_PIECE, _TRAINER, _NORMALIZER, _SELF_TEST, _DENORMALIZER = 1, 2, 3, 4, 5
_TEXT, _SCORE, _KIND = 1, 2, 3
_MODEL_TYPE, _SUFFIX, _BYTE_FALLBACK = 3, 24, 35
_CHARSMAP, _DUMMY_PREFIX, _REMOVE_EXTRA, _ESCAPE = 2, 3, 4, 5
_MAX_VARINT_BYTES = 10
_UNIGRAM, _BPE = b"\x01", b"\x02"
"""Model types in the trainer's settings."""
_YES, _NO = b"\x01", b"\x00"


class PieceKind(IntEnum):
    """Kinds of pieces by their numbers in the file."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


TEXT_KINDS = (PieceKind.NORMAL, PieceKind.USER_DEFINED)


class SpmPiece(NamedTuple):
    """One piece of a model."""

    text: str
    score: float
    kind: PieceKind


def _read_settings(data: bytes, part: int) -> dict[int, bytes]:
    """Return the stored fields of the settings of the trainer, normaliser or denormaliser (`part`)."""
    message = next((value for field, value, _ in _parse_fields(data) if field == part), b"")
    return {field: value for field, value, _ in _parse_fields(message)}


def is_bpe(data: bytes) -> bool:
    """Return whether a model is of type BPE. Raises ValueError if it is damaged or no model."""
    return _read_settings(data, _TRAINER).get(_MODEL_TYPE) == _BPE


def read_pieces(data: bytes) -> list[SpmPiece]:
    """Return the pieces of a model in the order of their ids. Raises ValueError if it is damaged or no model."""
    return [_parse_piece(value) for field, value, _ in _parse_fields(data) if field == _PIECE]


def restrict_spm(data: bytes, dropped: Collection[str]) -> bytes:
    """Return a model without these pieces. Byte pieces and special tokens such as </s> stay."""
    remaining = []
    for field, value, whole in _parse_fields(data):
        if field == _PIECE:
            piece = _parse_piece(value)
            drop = piece.kind in TEXT_KINDS and piece.text in dropped
        else:
            drop = field == _SELF_TEST  # its sentences would now be split differently
        if not drop:
            remaining.append(whole)
    return b"".join(remaining)


def _parse_piece(message: bytes) -> SpmPiece:
    fields = {field: value for field, value, _ in _parse_fields(message)}
    (score,) = struct.unpack("<f", fields.get(_SCORE, bytes(4)))
    kind = PieceKind(_parse_varint(fields[_KIND], 0)[0]) if _KIND in fields else PieceKind.NORMAL
    return SpmPiece(fields.get(_TEXT, b"").decode(), score, kind)


def _parse_fields(message: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Yield number, value and full encoding of every field of a protobuf message. Raises ValueError if invalid."""
    position = 0
    while position < len(message):
        begin = position
        tag, position = _parse_varint(message, position)
        kind, first = tag & 7, position
        if kind == 0:
            position = _parse_varint(message, position)[1]
        elif kind == 2:
            length, first = _parse_varint(message, position)
            position = first + length
        elif kind in (1, 5):
            position += 8 if kind == 1 else 4
        else:
            raise ValueError("it is not a SentencePiece model")
        if position > len(message):
            raise ValueError("it is truncated")
        yield tag >> 3, message[first:position], message[begin:position]


def _parse_varint(message: bytes, position: int) -> tuple[int, int]:
    """Return the varint at a position (seven bits a byte, lowest first) and the position after it."""
    number = 0
    for shift, byte in enumerate(message[position : position + _MAX_VARINT_BYTES]):
        number |= (byte & 127) << 7 * shift
        if byte < 128:
            return number, position + shift + 1
    raise ValueError("it is truncated")


def spm_to_json(data: bytes, *, strip: bool = False) -> dict[str, Any]:
    """Return a tokenizer.json that splits text and joins pieces as this model does, without special tokens.

    Like SentencePiece it splits the whole sentence, without splitting at blanks first. strip: remove blanks at the ends
    of decoded text. Raises ValueError for a model that the format cannot express.
    """
    trainer, normalizer, denormalizer = (_read_settings(data, part) for part in (_TRAINER, _NORMALIZER, _DENORMALIZER))
    pieces = read_pieces(data)
    is_unsupported = (
        any(piece.kind in (PieceKind.USER_DEFINED, PieceKind.UNUSED) for piece in pieces)
        or trainer.get(_MODEL_TYPE, _UNIGRAM) not in (_UNIGRAM, _BPE)
        or trainer.get(_SUFFIX) == _YES
        or normalizer.get(_ESCAPE) == _NO
        or denormalizer.get(_CHARSMAP)
    )
    if is_unsupported:
        raise ValueError("its SentencePiece model has user-defined symbols or unsupported settings")
    pieces = [piece for piece in pieces if piece.kind in (PieceKind.NORMAL, PieceKind.BYTE)]
    blank_before = normalizer.get(_DUMMY_PREFIX) != _NO
    single_blanks = normalizer.get(_REMOVE_EXTRA) != _NO  # and none at the ends
    blanks = r"\A +| +\z" if strip else r"\A +" if single_blanks else r"\A " if blank_before else ""
    steps = [replace_step(SPACE, " "), {"type": "ByteFallback"}, {"type": "Fuse"}]
    steps += [replace_step(blanks, "", regex=True)] if blanks else []
    normalizers: list[dict[str, Any]] = []
    if charsmap := normalizer.get(_CHARSMAP):
        normalizers.append({"type": "Precompiled", "precompiled_charsmap": base64.b64encode(charsmap).decode()})
    if single_blanks:
        normalizers += [replace_step(r"\A +| +\z", "", regex=True), replace_step(" {2,}", " ", regex=True)]
    if blank_before:
        normalizers.append({"type": "Prepend", "prepend": SPACE})
    unigram = {"type": "Unigram", "vocab": [[piece.text, piece.score] for piece in pieces], "unk_id": None}
    return {
        "version": "1.0",
        "normalizer": {"type": "Sequence", "normalizers": [*normalizers, replace_step(" ", SPACE)]},
        "pre_tokenizer": None,
        "decoder": {"type": "Sequence", "decoders": steps},
        "model": {
            **(_bpe_model(pieces) if trainer.get(_MODEL_TYPE) == _BPE else unigram),
            "byte_fallback": trainer.get(_BYTE_FALLBACK) == _YES,
        },
        "added_tokens": [],
    }


def replace_step(pattern: str, content: str, *, regex: bool = False) -> dict[str, Any]:
    """Return a step of a tokenizer.json that replaces text."""
    return {"type": "Replace", "pattern": {"Regex" if regex else "String": pattern}, "content": content}


def _bpe_model(pieces: list[SpmPiece]) -> dict[str, Any]:
    """Build a BPE model. SentencePiece merges any neighbours that form a piece, the highest score first."""
    known = {piece.text for piece in pieces}
    merges = [
        [piece.text[:split], piece.text[split:]]
        for piece in sorted(pieces, key=lambda piece: -piece.score)
        if piece.kind == PieceKind.NORMAL
        for split in range(1, len(piece.text))
        if piece.text[:split] in known and piece.text[split:] in known
    ]
    vocabulary = {piece.text: number for number, piece in enumerate(pieces)}
    return {"type": "BPE", "vocab": vocabulary, "merges": merges, "unk_token": None, "fuse_unk": True}
