"""Tokenizers by kind: load one of any kind, train one of a named kind. Dictionary and pair tokenizers."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Self

from docmt.core.errors import DocmtError
from docmt.core.files import check_converted, checksum_error, file_checksum, parse_json, read_bytes, stored_checksums
from docmt.text.bpe import BpeTokenizer, MosesBpeTokenizer
from docmt.text.pretrained import PretrainedTokenizer
from docmt.text.sentencepiece_tokenizer import SentencePieceTokenizer
from docmt.text.tokenizer import CONFIG_FILE, SIDES, Languages, Sentences, Side, SpecialTokens, Tokenizer, check_side

SYMBOLS_FILE = "dictionary.txt"
SOURCE_SYMBOLS_FILE = "source_dictionary.txt"
CONTINUATION_MARK = "@@"  # ends a symbol that is joined to the next one (Sennrich et al. 2016)

_log = logging.getLogger(__name__)


class DictionaryTokenizer(Tokenizer):
    """Tokenizer of text that is already split into symbols by blanks (after Moses and BPE, for example).

    Decoding joins symbols at `@@`. Symbols outside the dictionary become <unk>, with a warning.
    """

    kind: ClassVar[str] = "dictionary"

    def __init__(self, symbols: Sequence[str], source_symbols: Sequence[str] | None = None) -> None:
        """Take the symbols in the order of their ids, without special tokens.

        source_symbols: the source dictionary, if it is separate. Then every call must name its side.
        """
        self.symbols = tuple(symbols)
        self.source_symbols = self.symbols if source_symbols is None else tuple(source_symbols)
        self.word_count = len(self.symbols)
        self.shares_vocabulary = self.sides_alike = self.symbols == self.source_symbols
        self._ids = {
            side: {symbol: number + SpecialTokens.first_word for number, symbol in enumerate(dictionary)}
            for side, dictionary in (("source", self.source_symbols), ("target", self.symbols))
        }

    @property
    def source_vocabulary_size(self) -> int:
        return len(self.source_symbols) + SpecialTokens.count

    def files(self) -> dict[str, bytes]:
        dictionaries = {SYMBOLS_FILE: self.symbols}
        if not self.sides_alike:
            dictionaries[SOURCE_SYMBOLS_FILE] = self.source_symbols
        return {name: "".join(f"{symbol}\n" for symbol in symbols).encode() for name, symbols in dictionaries.items()}

    def _encode(self, sentences: Sequence[str], side: Side) -> list[list[int]]:
        known = self._ids[side]
        batch = [[known.get(symbol, SpecialTokens.unk) for symbol in sentence.split()] for sentence in sentences]
        unknown = [symbol for sentence in sentences for symbol in sentence.split() if symbol not in known]
        if unknown:
            _log.warning(
                "%d symbols are not in the model's dictionary and become <unk> (the first: %r). Split the text in the "
                "same way as the model's training data",
                len(unknown),
                unknown[0],
            )
        return batch

    def _decode(self, batch: list[list[int]], side: Side) -> list[str]:
        symbols = self.source_symbols if side == "source" else self.symbols
        texts = [" ".join(symbols[word] for word in words) for words in batch]
        return [text.replace(f"{CONTINUATION_MARK} ", "").removesuffix(CONTINUATION_MARK) for text in texts]

    def has_same_vocabulary(self, other: Tokenizer) -> bool:
        return isinstance(other, DictionaryTokenizer) and self.files() == other.files()

    @classmethod
    def load(cls, directory: Path) -> Self:
        source = directory / SOURCE_SYMBOLS_FILE
        return cls(_read_symbols(directory / SYMBOLS_FILE), _read_symbols(source) if source.exists() else None)


def _read_symbols(path: Path) -> list[str]:
    """Return the symbols of a file that `save` wrote. Raises ValueError if it is damaged."""
    symbols = read_bytes(path, "the dictionary", regular=True).decode("utf-8").split("\n")
    if symbols.pop() or len(set(symbols)) < len(symbols):
        raise ValueError(f"{path.name} has a duplicate symbol or is truncated")
    return symbols


class PairTokenizer(Tokenizer):
    """Two tokenizers of any kinds as one: an encoder's for the source, another for the target."""

    kind: ClassVar[str] = "pair"
    shares_vocabulary = sides_alike = False

    def __init__(self, source: Tokenizer, target: Tokenizer) -> None:
        self._sides: dict[Side, Tokenizer] = {"source": source, "target": target}
        self.word_count = target.word_count
        self.languages = target.languages or source.languages

    def for_side(self, side: Side | None) -> Tokenizer:
        return self._sides[check_side(side)]

    @property
    def source_vocabulary_size(self) -> int:
        return self.for_side("source").source_vocabulary_size

    def files(self) -> dict[str, bytes]:
        return {}

    def _encode(self, sentences: Sequence[str], side: Side) -> list[list[int]]:
        return self.for_side(side)._encode(sentences, side)

    def _decode(self, batch: list[list[int]], side: Side) -> list[str]:
        return self.for_side(side)._decode(batch, side)

    def has_same_vocabulary(self, other: Tokenizer) -> bool:
        return isinstance(other, PairTokenizer) and all(
            self.for_side(side).has_same_vocabulary(other.for_side(side)) for side in SIDES
        )

    def save(self, directory: Path) -> None:
        for side, tokenizer in self._sides.items():
            tokenizer.save(directory / side)
        super().save(directory)

    @classmethod
    def load(cls, directory: Path) -> Self:
        return cls(*(load_tokenizer(directory / side) for side in SIDES))


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
    """Load the tokenizer of any kind from a directory. Raises DocmtError if files are missing or damaged."""
    path = directory / CONFIG_FILE
    check_converted(directory)
    try:
        values = dict(parse_json(read_bytes(path, regular=True)))
        kind = values["kind"]
    except DocmtError as error:
        if not isinstance(error.__cause__, FileNotFoundError):
            raise
        raise DocmtError(
            f"there is no tokenizer in {directory} ({CONFIG_FILE} is missing). Name a model, a run or a prepared store"
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        raise DocmtError(
            f'{path} does not describe a docmt tokenizer (no "kind" in it). Copy the tokenizer\'s files again'
        ) from error
    for name, checksum in stored_checksums(values, path).items():
        if Path(name).name == name and file_checksum(directory / name) != checksum:
            raise checksum_error(directory / name, path)
    try:
        return _find_class(kind, f" in {path}").load(directory)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise DocmtError(f"the tokenizer in {directory} is damaged ({error}). Copy its files again") from error


def train_tokenizer(
    kind: str, sentences: Sentences, vocabulary_size: int | None = None, languages: Languages | None = None
) -> Tokenizer:
    """Train a tokenizer of the named kind, by default of the kind's default size. See `Tokenizer.train`."""
    tokenizer_class = _find_class(kind)
    size = tokenizer_class.default_size if vocabulary_size is None else vocabulary_size
    return tokenizer_class.train(sentences, size, languages)


def _find_class(name: object, location: str = "") -> type[Tokenizer]:
    if not isinstance(name, str) or name not in KINDS:
        raise DocmtError(f"unknown tokenizer kind {name!r}{location}. The kinds are {', '.join(KINDS)}")
    return KINDS[name]
