"""The base class of tokenizers, the special tokens that all kinds share, and the characters of each token."""

from __future__ import annotations

import json
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import ClassVar, Literal, Self, TypeAlias, get_args

from docmt.core.errors import DocmtError
from docmt.core.files import CHECKSUMS_KEY, atomic_path, file_checksums, make_directory, write_text
from docmt.core.progress import progress
from docmt.documents.words import INVISIBLE, Span

CONFIG_FILE = "tokenizer_config.json"

Side: TypeAlias = Literal["source", "target"]
"""The side of a sentence: source or target language."""
SIDES: tuple[Side, ...] = get_args(Side)
SideSentence: TypeAlias = tuple[Side, str]
Sentences: TypeAlias = Iterable[str | SideSentence]
"""Sentences of a training corpus, with their sides for kinds that depend on the languages."""
Languages: TypeAlias = tuple[str, str]
"""Codes of the source and the target language."""
BYTES = 256
"""Units for single bytes in every vocabulary that docmt trains."""


@dataclass(frozen=True)
class SpecialTokens:
    """Ids of the special tokens: 0-3 are <s> <pad> </s> <unk>, the last two <eod> (end of document) and <mask>."""

    vocabulary_size: int
    """Number of ids, special tokens included."""

    bos: ClassVar[int] = 0
    pad: ClassVar[int] = 1
    eos: ClassVar[int] = 2
    unk: ClassVar[int] = 3
    first_word: ClassVar[int] = 4
    count: ClassVar[int] = 6
    """Number of special tokens."""

    @property
    def eod(self) -> int:
        """The end of a document. Words are the ids in [first_word, eod)."""
        return self.vocabulary_size - 2

    @property
    def mask(self) -> int:
        """The replacement of a word hidden by word dropout."""
        return self.vocabulary_size - 1


class Tokenizer(ABC):
    """Converts sentences to ids of words (or <unk>) and back, without special tokens.

    Text that looks like a special token ("<s>", "</s>", "<mask>") becomes ordinary words.
    A kind sets `word_count` and implements the abstract methods, and `train` if it can be trained.
    Callers name the side of each sentence. A kind with different sides raises ValueError without it.
    """

    kind: ClassVar[str]
    default_size: ClassVar[int] = 16_000
    """Default vocabulary size."""

    word_count: int
    """Number of ids that are words."""
    languages: Languages | None = None
    """Codes of the source and target language, for kinds that depend on them."""
    shares_vocabulary: bool = True
    """True if an id means the same on both sides."""
    sides_alike: bool = True
    """True if a sentence has the same ids on both sides, so that its side may be omitted."""

    @property
    def vocabulary_size(self) -> int:
        """Number of words and special tokens."""
        return self.word_count + SpecialTokens.count

    @property
    def source_vocabulary_size(self) -> int:
        """Vocabulary size of the source, which may differ from the target's."""
        return self.vocabulary_size

    @property
    def specials(self) -> SpecialTokens:
        return SpecialTokens(self.vocabulary_size)

    def for_side(self, side: Side | None) -> Tokenizer:
        """Return the tokenizer of one side. It differs from `self` in a pair of tokenizers."""
        return self

    def encode(self, sentence: str, side: Side | None = None) -> list[int]:
        """Return the word ids of one sentence. See `encode_batch`."""
        return self.encode_batch([sentence], side)[0]

    def encode_batch(self, sentences: Sequence[str], side: Side | None = None) -> list[list[int]]:
        """Return the word ids of every sentence, on all processor cores if the library supports it.

        Raises DocmtError for text that is not Unicode (lone surrogates).
        """
        check_text(sentences)
        return self._encode(sentences, check_side(side, self.sides_alike))

    def decode(self, ids: Sequence[int], side: Side | None = None) -> str:
        """Return the text of the words among `ids`, without special tokens. See `decode_batch`."""
        return self.decode_batch([ids], side)[0]

    def decode_batch(self, batch: Sequence[Sequence[int]], side: Side | None = None) -> list[str]:
        """Return the text of every sequence. Bytes that are not UTF-8 become U+FFFD.

        Raises ValueError for ids outside of the vocabulary.
        """
        side = check_side(side, self.sides_alike)
        return self._decode([self.word_numbers(ids, side) for ids in batch], side)

    @abstractmethod
    def _encode(self, sentences: Sequence[str], side: Side) -> list[list[int]]:
        """Return the word ids of every sentence. All sentences are valid Unicode."""

    @abstractmethod
    def _decode(self, batch: list[list[int]], side: Side) -> list[str]:
        """Return the text of word numbers, which count from 0."""

    @abstractmethod
    def files(self) -> Mapping[str, bytes]:
        """Return the contents of the tokenizer's files by file name."""

    def save(self, directory: Path) -> None:
        """Write the tokenizer's files into `directory`, which is created if missing.

        The configuration, which names the kind and the files, is written last.
        """
        make_directory(directory)
        files = self.files()
        for name, data in files.items():
            with atomic_path(directory / name) as temporary:
                temporary.write_bytes(data)
        values = {"kind": self.kind, CHECKSUMS_KEY: file_checksums(directory, files)}
        write_text(directory / CONFIG_FILE, json.dumps(values) + "\n")

    @classmethod
    @abstractmethod
    def load(cls, directory: Path) -> Self:
        """Load a tokenizer that `save` wrote. Raises DocmtError if a file is missing or damaged."""

    @classmethod
    def train(cls, sentences: Sentences, vocabulary_size: int, languages: Languages | None = None) -> Self:
        """Train a tokenizer of exactly `vocabulary_size` ids, special tokens included. Deterministic.

        Reads `sentences` once. A kind that depends on the languages needs their codes and the side of every sentence.
        Raises DocmtError if there is no text, if the size does not fit it, and for kinds that cannot be trained.
        """
        raise DocmtError(f"a tokenizer of kind {cls.kind} cannot be trained. Choose another kind")

    def has_same_vocabulary(self, other: Tokenizer) -> bool:
        """Return whether all ids have the same meaning in both, so that models trained with them are compatible."""
        if type(self) is not type(other) or self.vocabulary_size != other.vocabulary_size:
            return False
        ids = [[word] for word in range(SpecialTokens.first_word, self.specials.eod)]
        return self.decode_batch(ids) == other.decode_batch(ids)

    def word_numbers(self, ids: Iterable[int], side: Side | None = None) -> list[int]:
        """Return the words among `ids`, counted from 0. Raises ValueError for ids outside of the vocabulary."""
        size = self.source_vocabulary_size if side == "source" else self.vocabulary_size
        first, end = SpecialTokens.first_word, SpecialTokens(size).eod
        numbers = []
        for token in ids:
            if first <= token < end:
                numbers.append(int(token) - first)
            elif not 0 <= token < size:
                raise ValueError(f"token id {token} is outside of the vocabulary of {size}")
        return numbers


def check_side(side: Side | None, sides_alike: bool = False) -> Side:
    """Return the side of a sentence. Raises ValueError if it is no side and the sides differ."""
    if side not in SIDES and not sides_alike:
        raise ValueError(f"the tokenizer has two sides. The side of a sentence must be source or target, not {side!r}")
    return side or "target"


def too_large_error(vocabulary_size: int, largest: int) -> DocmtError:
    """Return the error for a vocabulary that the training text cannot fill."""
    return DocmtError(
        f"a vocabulary of {vocabulary_size} is too large for the training text. Set --vocabulary-size to at most "
        f"{largest}"
    )


def too_small_error(vocabulary_size: int, smallest: int) -> DocmtError:
    """Return the error for a vocabulary that cannot hold all characters."""
    return DocmtError(
        f"a vocabulary of {vocabulary_size} is too small for the characters of the training text. Set "
        f"--vocabulary-size to at least {smallest}"
    )


def check_text(sentences: Sequence[str]) -> None:
    """Raise DocmtError if a sentence holds lone surrogates, which have no UTF-8 form."""
    for sentence in sentences:
        try:
            sentence.encode("utf-8")
        except UnicodeEncodeError as error:
            raise DocmtError(
                f"the sentence {sentence[:60]!r} holds a lone surrogate ({sentence[error.start]!r}), which "
                "is not Unicode text. Remove it or read the file with its right encoding"
            ) from error


def check_sentences(sentences: Sentences) -> Iterator[str]:
    """Yield training sentences without their sides. See `check_sided_sentences`."""
    return (sentence for _, sentence in check_sided_sentences(sentences))


def check_sided_sentences(sentences: Sentences) -> Iterator[tuple[Side | None, str]]:
    """Yield the non-empty training sentences with their sides, and count them for the progress bar.

    Raises DocmtError for lone surrogates, and at the end if there was no text.
    """
    empty = True
    with progress("reading text for the tokenizer") as bar:
        for entry in sentences:
            side, sentence = (None, entry) if isinstance(entry, str) else entry
            check_text([sentence])
            bar.advance(1, "sentences")
            if sentence:
                empty = False
                yield side, sentence
    if empty:
        raise DocmtError("there is no text to train a tokenizer on. Use a corpus with sentences in it")


def check_vocabulary_size(vocabulary_size: int) -> None:
    """Raise DocmtError if a vocabulary cannot hold the special tokens and the bytes."""
    if vocabulary_size < BYTES + SpecialTokens.count:
        raise DocmtError(
            f"a vocabulary of {vocabulary_size} is too small. It needs at least {BYTES + SpecialTokens.count} ids "
            f"({BYTES} bytes and {SpecialTokens.count} special tokens)"
        )


_SLACK = 2
"""Characters that a tokenizer may drop before a token, besides those of tokens that are not in the text."""


def locate_tokens(
    tokenizer: Tokenizer, sentences: Sequence[str], encoded: Sequence[Sequence[int]], side: Side
) -> list[list[Span]]:
    """Return the characters of every token of sentences, which `encoded` has as word ids.

    Tokens are searched one after the other, without regard to case, compatibility forms and white space. Those that are
    not in the text (unknown words, single bytes, changes by the tokenizer) share the characters between their
    neighbours.
    """
    distinct = sorted({id for ids in encoded for id in ids})
    texts = dict(zip(distinct, tokenizer.decode_batch([[id] for id in distinct], side), strict=True))
    return [
        _locate([_fold_token(texts[id]) for id in ids], sentence)
        for sentence, ids in zip(sentences, encoded, strict=True)
    ]


@lru_cache(maxsize=1 << 16)
def _fold_token(text: str) -> str:
    """Return the characters of a token that count."""
    return _fold(text)[0]


def _fold(text: str) -> tuple[str, list[int]]:
    """Return the characters that count, and the position in the text of each of them."""
    pairs = [
        (folded, position)
        for position, character in enumerate(text)
        for folded in unicodedata.normalize("NFKD", character).casefold()
        if not folded.isspace() and folded not in INVISIBLE
    ]
    return "".join(folded for folded, _ in pairs), [position for _, position in pairs]


def _locate(tokens: Sequence[str], sentence: str) -> list[Span]:
    """Return the span of each folded token."""
    text, positions = _fold(sentence)
    starts: list[int | None] = []
    cursor, slack = 0, _SLACK
    for token in tokens:
        position = text.find(token, cursor, cursor + slack + len(token)) if token else -1
        starts.append(position if position >= 0 else None)
        cursor, slack = (position + len(token), _SLACK) if position >= 0 else (cursor, slack + max(len(token), 1))
    ranges: list[Span] = []
    for is_missing, group in groupby(range(len(tokens)), lambda number: starts[number] is None):
        numbers = list(group)
        if is_missing:
            end = next((start for start in starts[numbers[-1] :] if start is not None), len(text))
            ranges += _share(ranges[-1][1] if ranges else 0, end, len(numbers))
        else:
            ranges += [(start, start + len(tokens[n])) for n in numbers if (start := starts[n]) is not None]
    return [_unfold(start, end, positions, len(sentence)) for start, end in ranges]


def _share(start: int, end: int, count: int) -> list[Span]:
    """Cut start .. end - 1 into `count` parts of nearly equal size; some overlap if there are too few characters."""
    size = end - start
    cuts = [start + number * size // count for number in range(count)]
    return [(cut, min(max(start + (number + 1) * size // count, cut + 1), end)) for number, cut in enumerate(cuts)]


def _unfold(start: int, end: int, positions: Sequence[int], length: int) -> Span:
    """Return the span in the sentence of a range of folded characters, empty for an empty range."""
    if start < end:
        return positions[start], positions[end - 1] + 1
    position = positions[start] if start < len(positions) else length
    return position, position
