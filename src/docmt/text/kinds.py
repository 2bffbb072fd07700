"""The kinds of tokenizer by name: opening one whatever its kind, and learning one of a kind that is asked for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import ClassVar, Self

from docmt.core.checksums import changed, matches, recorded
from docmt.core.errors import DocmtError
from docmt.core.files import parse_json, read_bytes, refuse_unconverted
from docmt.text.bpe import BpeTokenizer
from docmt.text.checks import make_directory
from docmt.text.dictionary import DictionaryTokenizer
from docmt.text.moses_bpe import MosesBpeTokenizer
from docmt.text.pretrained import PretrainedTokenizer
from docmt.text.sentencepiece_tokenizer import SentencePieceTokenizer
from docmt.text.tokenizer import CONFIG_FILE, SIDES, Side, SideSentence, Tokenizer, write_config


class PairTokenizer(Tokenizer):
    """Two tokenizers of any kinds as one: that of an encoder for the source, another for the target."""

    kind: ClassVar[str] = "pair"

    def __init__(self, source: Tokenizer, target: Tokenizer) -> None:
        self._sides: dict[Side, Tokenizer] = {"source": source, "target": target}

    def of(self, side: Side | None) -> Tokenizer:
        if side is None:
            raise ValueError("this is a tokenizer for each side: say which side the sentence is on")
        return self._sides[side]

    @property
    def word_count(self) -> int:
        return self.of("target").word_count

    @property
    def source_vocabulary_size(self) -> int:
        return self.of("source").source_vocabulary_size

    @property
    def shares_vocabulary(self) -> bool:
        return False

    @property
    def languages(self) -> tuple[str, str] | None:
        return self.of("target").languages or self.of("source").languages

    def encode_batch(self, sentences: Sequence[str], side: Side | None = None) -> list[list[int]]:
        return self.of(side).encode_batch(sentences, side)

    def decode_batch(self, batch: Sequence[Sequence[int]], side: Side | None = None) -> list[str]:
        return self.of(side).decode_batch(batch, side)

    def same_words(self, other: Tokenizer) -> bool:
        return isinstance(other, PairTokenizer) and all(self.of(side).same_words(other.of(side)) for side in SIDES)

    def save(self, directory: Path) -> None:
        make_directory(directory)
        for side, tokenizer in self._sides.items():
            tokenizer.save(directory / side)
        write_config(directory, self.kind, [])

    @classmethod
    def load(cls, directory: Path) -> Self:
        return cls(*(load_tokenizer(directory / side) for side in SIDES))

    @classmethod
    def train(
        cls,
        sentences: Iterable[str | SideSentence],
        vocabulary_size: int,
        languages: tuple[str, str] | None = None,
    ) -> Self:
        raise DocmtError("a pair of tokenizers is made of two, not trained: train one of another kind")


_CLASSES: tuple[type[Tokenizer], ...] = (
    BpeTokenizer,
    SentencePieceTokenizer,
    MosesBpeTokenizer,
    DictionaryTokenizer,
    PretrainedTokenizer,
    PairTokenizer,
)
KINDS: dict[str, type[Tokenizer]] = {kind.kind: kind for kind in _CLASSES}


def load_tokenizer(directory: Path) -> Tokenizer:
    """Opens the tokenizer in a directory, whatever its kind.

    Raises DocmtError if there is none, or if its files are damaged.
    """
    path = directory / CONFIG_FILE
    refuse_unconverted(directory)
    try:
        data = read_bytes(path, regular=True)
    except DocmtError as error:
        if not isinstance(error.__cause__, FileNotFoundError):
            raise
        raise DocmtError(
            f"there is no tokenizer in {directory} ({CONFIG_FILE} is missing); give a model directory or the "
            "folder 'tokenizer' of a prepared store"
        ) from error
    try:
        values = dict(parse_json(data))
        kind = values["kind"]
    except (ValueError, KeyError, TypeError) as error:
        raise DocmtError(
            f'{path} does not describe a docmt tokenizer (no "kind" in it); copy the tokenizer\'s files again'
        ) from error
    tokenizer = _kind(kind, f"in {path}").load(directory)
    for name, wanted in recorded(values, path).items():  # last, as what is wrong otherwise says more
        if Path(name).name == name and not matches(directory / name, wanted):
            raise changed(directory / name, path)
    return tokenizer


def train_tokenizer(
    kind: str,
    sentences: Iterable[str | SideSentence],
    vocabulary_size: int | None = None,
    languages: tuple[str, str] | None = None,
) -> Tokenizer:
    """Learns a tokenizer of the named kind, by default of the kind's usual size; see `Tokenizer.train`."""
    found = _kind(kind, "asked for")
    size = found.usual_size if vocabulary_size is None else vocabulary_size
    return found.train(sentences, size, languages)


def _kind(name: object, where: str) -> type[Tokenizer]:
    if not isinstance(name, str) or name not in KINDS:
        raise DocmtError(f"unknown tokenizer kind {name!r} {where}; the kinds are {', '.join(KINDS)}")
    return KINDS[name]
