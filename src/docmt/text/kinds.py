"""The kinds of tokenizer by name: opening one whatever its kind, and learning one of a kind that is asked for."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Self

from docmt.core.errors import DocmtError
from docmt.core.files import changed, checksum_of_file, parse_json, read_bytes, recorded, refuse_unconverted, write_text
from docmt.text.bpe import BpeTokenizer
from docmt.text.moses import MosesBpeTokenizer
from docmt.text.pretrained import PretrainedTokenizer
from docmt.text.sentencepiece_tokenizer import SentencePieceTokenizer
from docmt.text.tokenizer import (
    CONFIG_FILE,
    SIDES,
    Languages,
    Sentences,
    Side,
    SpecialTokens,
    Tokenizer,
    check_text,
    make_directory,
    write_config,
)

SYMBOLS_FILE = "dictionary.txt"
SOURCE_SYMBOLS_FILE = "source_dictionary.txt"
CONTINUES = "@@"  # ends a symbol that goes on in the next one (Sennrich et al. 2016)

_log = logging.getLogger(__name__)


class DictionaryTokenizer(Tokenizer):
    """Symbols with blanks between them, as a model's own pipeline (Moses, BPE) writes them.

    Decoding joins symbols at `@@`. A symbol that is not in the dictionary becomes <unk>, and the log says so.
    """

    kind: ClassVar[str] = "dictionary"

    def __init__(self, symbols: Sequence[str], source_symbols: Sequence[str] | None = None) -> None:
        """`symbols`: the words in the order of their ids, without special tokens; `source_symbols`: those of the
        source, where that has a dictionary of its own (then a side must always be given)."""
        self.symbols = tuple(symbols)
        self.source_symbols = self.symbols if source_symbols is None else tuple(source_symbols)
        self._ids = {
            side: {symbol: number + SpecialTokens.first_word for number, symbol in enumerate(own)}
            for side, own in (("source", self.source_symbols), ("target", self.symbols))
        }

    @property
    def word_count(self) -> int:
        return len(self.symbols)

    @property
    def source_vocabulary_size(self) -> int:
        return len(self.source_symbols) + SpecialTokens.count

    @property
    def shares_vocabulary(self) -> bool:
        return self.symbols == self.source_symbols

    def encode_batch(self, sentences: Sequence[str], side: Side | None = None) -> list[list[int]]:
        check_text(sentences)
        known = self._ids[self._side(side)]
        batch = [[known.get(symbol, SpecialTokens.unk) for symbol in sentence.split()] for sentence in sentences]
        unknown = [symbol for sentence in sentences for symbol in sentence.split() if symbol not in known]
        if unknown:
            _log.warning(
                "%d symbols are not in the model's dictionary and become <unk> (the first: %r): split the text as the "
                "model's training data was",
                len(unknown),
                unknown[0],
            )
        return batch

    def decode_batch(self, batch: Sequence[Sequence[int]], side: Side | None = None) -> list[str]:
        symbols = self.source_symbols if self._side(side) == "source" else self.symbols
        texts = [" ".join(symbols[word] for word in self.words(ids, side)) for ids in batch]
        return [text.replace(f"{CONTINUES} ", "").removesuffix(CONTINUES) for text in texts]

    def same_words(self, other: Tokenizer) -> bool:
        return (
            isinstance(other, DictionaryTokenizer)
            and self.symbols == other.symbols
            and self.source_symbols == other.source_symbols
        )

    def _side(self, side: Side | None) -> Side:
        if side is None and self.symbols != self.source_symbols:
            raise ValueError("this tokenizer has a dictionary for each side: say which side the sentence is on")
        return side or "target"

    def save(self, directory: Path) -> None:
        make_directory(directory)
        files = {SYMBOLS_FILE: self.symbols}
        if self.source_symbols != self.symbols:
            files[SOURCE_SYMBOLS_FILE] = self.source_symbols
        for name, symbols in files.items():
            write_text(directory / name, "".join(f"{symbol}\n" for symbol in symbols))
        write_config(directory, self.kind, list(files))

    @classmethod
    def load(cls, directory: Path) -> Self:
        source = directory / SOURCE_SYMBOLS_FILE
        return cls(_read_symbols(directory / SYMBOLS_FILE), _read_symbols(source) if source.exists() else None)


def _read_symbols(path: Path) -> list[str]:
    """The symbols of a file that `save` wrote. Raises ValueError if it is damaged."""
    symbols = read_bytes(path, "the dictionary", regular=True).decode("utf-8").split("\n")
    if symbols.pop() or len(set(symbols)) < len(symbols):
        raise ValueError(f"a symbol in {path.name} is there twice or cut off")
    return symbols


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
    def languages(self) -> Languages | None:
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
    for name, wanted in recorded(values, path).items():
        if Path(name).name == name and checksum_of_file(directory / name) != wanted:
            raise changed(directory / name, path)
    try:
        return _kind(kind, f"in {path}").load(directory)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise DocmtError(f"the tokenizer in {directory} is damaged ({error}); copy its files again") from error


def train_tokenizer(
    kind: str, sentences: Sentences, vocabulary_size: int | None = None, languages: Languages | None = None
) -> Tokenizer:
    """Learns a tokenizer of the named kind, by default of the kind's usual size; see `Tokenizer.train`."""
    found = _kind(kind, "asked for")
    size = found.usual_size if vocabulary_size is None else vocabulary_size
    return found.train(sentences, size, languages)


def _kind(name: object, where: str) -> type[Tokenizer]:
    if not isinstance(name, str) or name not in KINDS:
        raise DocmtError(f"unknown tokenizer kind {name!r} {where}; the kinds are {', '.join(KINDS)}")
    return KINDS[name]
