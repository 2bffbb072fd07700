"""The vocabulary of somebody else's model: a list of symbols, for text that is already split into them."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import ClassVar, Self

from docmt.core.errors import DocmtError
from docmt.core.files import read_bytes, write_text
from docmt.text.checks import check_text, make_directory
from docmt.text.tokenizer import Side, SideSentence, SpecialTokens, Tokenizer, write_config

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
        unknown = [
            symbol
            for sentence, ids in zip(sentences, batch, strict=True)
            for symbol, token in zip(sentence.split(), ids, strict=True)
            if token == SpecialTokens.unk
        ]
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

    @classmethod
    def train(
        cls,
        sentences: Iterable[str | SideSentence],
        vocabulary_size: int,
        languages: tuple[str, str] | None = None,
    ) -> Self:
        raise DocmtError("a tokenizer of kind dictionary comes with a converted model: choose another kind to train")


def _read_symbols(path: Path) -> list[str]:
    """The symbols of a file that `save` wrote. Raises DocmtError if it is damaged."""
    data = read_bytes(path, "the dictionary", regular=True)
    try:
        symbols = data.decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise DocmtError(f"{path} is damaged ({error}); copy the tokenizer's files again") from error
    if symbols.pop() or len(set(symbols)) < len(symbols):
        raise DocmtError(f"{path} is damaged (a symbol is there twice or cut off); copy the tokenizer's files again")
    return symbols
