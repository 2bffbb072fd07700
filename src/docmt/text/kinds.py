"""The kinds of tokenizer by name: opening one whatever its kind, and learning one of a kind that is asked for."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Self

from docmt.core.errors import DocmtError
from docmt.core.files import changed, checksum_of_file, parse_json, read_bytes, recorded, refuse_unconverted
from docmt.text.bpe import BpeTokenizer
from docmt.text.moses import MosesBpeTokenizer
from docmt.text.pretrained import PretrainedTokenizer
from docmt.text.sentencepiece_tokenizer import SentencePieceTokenizer
from docmt.text.tokenizer import CONFIG_FILE, SIDES, Languages, Sentences, Side, SpecialTokens, Tokenizer, known_side

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
        self.word_count = len(self.symbols)
        self.shares_vocabulary = self.sides_alike = self.symbols == self.source_symbols
        self._ids = {
            side: {symbol: number + SpecialTokens.first_word for number, symbol in enumerate(own)}
            for side, own in (("source", self.source_symbols), ("target", self.symbols))
        }

    @property
    def source_vocabulary_size(self) -> int:
        return len(self.source_symbols) + SpecialTokens.count

    def files(self) -> dict[str, bytes]:
        symbols = {SYMBOLS_FILE: self.symbols}
        if not self.sides_alike:
            symbols[SOURCE_SYMBOLS_FILE] = self.source_symbols
        return {name: "".join(f"{symbol}\n" for symbol in own).encode() for name, own in symbols.items()}

    def _encode(self, sentences: Sequence[str], side: Side) -> list[list[int]]:
        known = self._ids[side]
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

    def _decode(self, batch: list[list[int]], side: Side) -> list[str]:
        symbols = self.source_symbols if side == "source" else self.symbols
        texts = [" ".join(symbols[word] for word in words) for words in batch]
        return [text.replace(f"{CONTINUES} ", "").removesuffix(CONTINUES) for text in texts]

    def same_words(self, other: Tokenizer) -> bool:
        return isinstance(other, DictionaryTokenizer) and self.files() == other.files()

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
    shares_vocabulary = sides_alike = False

    def __init__(self, source: Tokenizer, target: Tokenizer) -> None:
        self._sides: dict[Side, Tokenizer] = {"source": source, "target": target}
        self.word_count = target.word_count
        self.languages = target.languages or source.languages

    def of(self, side: Side | None) -> Tokenizer:
        return self._sides[known_side(side)]

    @property
    def source_vocabulary_size(self) -> int:
        return self.of("source").source_vocabulary_size

    def files(self) -> dict[str, bytes]:
        return {}

    def _encode(self, sentences: Sequence[str], side: Side) -> list[list[int]]:
        return self.of(side)._encode(sentences, side)

    def _decode(self, batch: list[list[int]], side: Side) -> list[str]:
        return self.of(side)._decode(batch, side)

    def same_words(self, other: Tokenizer) -> bool:
        return isinstance(other, PairTokenizer) and all(self.of(side).same_words(other.of(side)) for side in SIDES)

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
    """Opens the tokenizer in a directory, whatever its kind.

    Raises DocmtError if there is none, or if its files are damaged.
    """
    path = directory / CONFIG_FILE
    refuse_unconverted(directory)
    try:
        values = dict(parse_json(read_bytes(path, regular=True)))
        kind = values["kind"]
    except DocmtError as error:
        if not isinstance(error.__cause__, FileNotFoundError):
            raise
        raise DocmtError(
            f"there is no tokenizer in {directory} ({CONFIG_FILE} is missing); give a model directory or the "
            "folder 'tokenizer' of a prepared store"
        ) from error
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
