"""What every tokenizer does, and the ids that are the same whatever its kind."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal, Self, TypeAlias, get_args

from docmt.core.errors import DocmtError
from docmt.core.files import ENTRY, atomic_path, cannot_write, checksums, write_text
from docmt.core.progress import progress

CONFIG_FILE = "tokenizer_config.json"

Side: TypeAlias = Literal["source", "target"]
"""Which of its two languages a tokenizer is given a sentence in."""
SIDES: tuple[Side, ...] = get_args(Side)
SideSentence: TypeAlias = tuple[Side, str]
Sentences: TypeAlias = Iterable[str | SideSentence]
"""Of a training corpus; a kind that depends on the languages needs their sides."""
Languages: TypeAlias = tuple[str, str]
"""Codes of the source and the target language."""
BYTES = 256
"""Units for bytes, which every kind that is trained here begins with."""


@dataclass(frozen=True)
class SpecialTokens:
    """Ids 0-3 are <s> <pad> </s> <unk>; words follow; the last two are <eod> (end of document) and <mask>."""

    vocabulary_size: int
    """Everything included."""

    bos: ClassVar[int] = 0
    pad: ClassVar[int] = 1
    eos: ClassVar[int] = 2
    unk: ClassVar[int] = 3
    first_word: ClassVar[int] = 4
    count: ClassVar[int] = 6
    """How many ids of a vocabulary are not words."""

    @property
    def eod(self) -> int:
        """End of the document; also the end of the words: words are the ids in [first_word, eod)."""
        return self.vocabulary_size - 2

    @property
    def mask(self) -> int:
        """Stands for a word hidden by word dropout."""
        return self.vocabulary_size - 1


class Tokenizer(ABC):
    """Turns sentences into ids of words (or <unk>) and back; whoever packs sentences adds marks such as <s>.

    Text that looks like a mark ("<s>", "</s>", "<mask>") is ordinary text and becomes ordinary words.
    A kind sets `word_count`, implements the abstract methods below, and `train` where it can be learned. Ids inside the
    libraries never leave their modules.
    Callers always say which side a sentence is on. Kinds that treat both sides alike ignore that; one that does not
    raises ValueError where it is left out.
    """

    kind: ClassVar[str]
    usual_size: ClassVar[int] = 16_000
    """The size of a vocabulary where nobody asks for another."""

    word_count: int
    """How many ids are words."""
    languages: Languages | None = None
    """Codes of the source and the target language, for a kind that depends on them."""
    shares_vocabulary: bool = True
    """Whether an id means the same on both sides."""
    sides_alike: bool = True
    """Whether a sentence has the same ids on both sides, so that its side may be left out."""

    @property
    def vocabulary_size(self) -> int:
        """Words and special tokens together."""
        return self.word_count + SpecialTokens.count

    @property
    def source_vocabulary_size(self) -> int:
        """The size of the source's vocabulary, where a kind has another one than for the target."""
        return self.vocabulary_size

    @property
    def specials(self) -> SpecialTokens:
        return SpecialTokens(self.vocabulary_size)

    def of(self, side: Side | None) -> Tokenizer:
        """The tokenizer of one side alone, where there are two in one."""
        return self

    def encode(self, sentence: str, side: Side | None = None) -> list[int]:
        """Ids of the words of one sentence; the empty sentence has none. See `encode_batch`."""
        return self.encode_batch([sentence], side)[0]

    def encode_batch(self, sentences: Sequence[str], side: Side | None = None) -> list[list[int]]:
        """Ids of the words of every sentence, using all processor cores where the kind's library can.

        Raises DocmtError for text that is not Unicode (lone surrogates).
        """
        check_text(sentences)
        return self._encode(sentences, known_side(side, self.sides_alike))

    def decode(self, ids: Sequence[int], side: Side | None = None) -> str:
        """The text of the words among `ids`; special tokens are left out. See `decode_batch`."""
        return self.decode_batch([ids], side)[0]

    def decode_batch(self, batch: Sequence[Sequence[int]], side: Side | None = None) -> list[str]:
        """The text of every sequence. Bytes that are not UTF-8 (a model may write such) become U+FFFD.

        Raises ValueError for ids outside of the vocabulary.
        """
        side = known_side(side, self.sides_alike)
        return self._decode([self.words(ids, side) for ids in batch], side)

    @abstractmethod
    def _encode(self, sentences: Sequence[str], side: Side) -> list[list[int]]:
        """Ids of the words of every sentence, all of which are Unicode."""

    @abstractmethod
    def _decode(self, batch: list[list[int]], side: Side) -> list[str]:
        """The text of words, counted from 0."""

    @abstractmethod
    def files(self) -> Mapping[str, bytes]:
        """The contents of the kind's files, by their names."""

    def save(self, directory: Path) -> None:
        """Write the tokenizer's files into `directory`, which may hold others; it is created if missing.

        The one that says which kind of tokenizer it is, in which files, is written last.
        """
        try:
            directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise cannot_write(directory, error) from error
        files = self.files()
        for name, data in files.items():
            with atomic_path(directory / name) as temporary:
                temporary.write_bytes(data)
        values = {"kind": self.kind, ENTRY: checksums(directory, files)}
        write_text(directory / CONFIG_FILE, json.dumps(values) + "\n")

    @classmethod
    @abstractmethod
    def load(cls, directory: Path) -> Self:
        """Reads what `save` wrote. Raises DocmtError if a file is missing or damaged."""

    @classmethod
    def train(cls, sentences: Sentences, vocabulary_size: int, languages: Languages | None = None) -> Self:
        """Learns a vocabulary of exactly `vocabulary_size` ids (specials included), reading `sentences` once.

        A kind that depends on the languages needs their codes, and every sentence with its side.
        The same sentences in the same order give the same tokenizer.
        Raises DocmtError if there is no text, or if the vocabulary is too large or too small for it, and for a kind
        that comes with a converted model.
        """
        raise DocmtError(f"a tokenizer of kind {cls.kind} comes with a converted model: choose another kind to train")

    def same_words(self, other: Tokenizer) -> bool:
        """Whether both give the same ids the same meaning, so that models trained with them fit each other."""
        if type(self) is not type(other) or self.vocabulary_size != other.vocabulary_size:
            return False
        ids = [[word] for word in range(SpecialTokens.first_word, self.specials.eod)]
        return self.decode_batch(ids) == other.decode_batch(ids)

    def words(self, ids: Iterable[int], side: Side | None = None) -> list[int]:
        """The ids that are words, counted from 0. Raises ValueError for ids outside of the vocabulary."""
        size = self.source_vocabulary_size if side == "source" else self.vocabulary_size
        first, end = SpecialTokens.first_word, SpecialTokens(size).eod
        kept = []
        for token in ids:
            if first <= token < end:
                kept.append(int(token) - first)
            elif not 0 <= token < size:
                raise ValueError(f"token id {token} is outside of the vocabulary of {size}")
        return kept


def known_side(side: Side | None, sides_alike: bool = False) -> Side:
    """Return the side of a sentence. Raises ValueError for what is none, unless the sides are alike."""
    if side not in SIDES and not sides_alike:
        raise ValueError(
            f"the tokenizer has two sides: say which side the sentence is on, source or target, not {side!r}"
        )
    return side or "target"


def too_large(vocabulary_size: int, largest: int) -> DocmtError:
    """Return the error for a vocabulary that the training text cannot fill."""
    return DocmtError(
        f"a vocabulary of {vocabulary_size} is larger than the training text allows; set "
        f"--vocabulary-size: the largest possible here is {largest}"
    )


def too_small(vocabulary_size: int, smallest: int) -> DocmtError:
    """Return the error for a vocabulary that does not hold all characters."""
    return DocmtError(
        f"a vocabulary of {vocabulary_size} is too small for the characters of the training text; "
        f"the smallest possible here is {smallest}"
    )


def check_text(sentences: Sequence[str]) -> None:
    """Raises DocmtError if a sentence holds lone surrogates: they have no UTF-8 form."""
    for sentence in sentences:
        if not sentence.isascii():
            try:
                sentence.encode("utf-8")
            except UnicodeEncodeError as error:
                raise DocmtError(
                    f"the sentence {sentence[:60]!r} holds a lone surrogate ({sentence[error.start]!r}), which "
                    "is not Unicode text; remove it or read the file with its right encoding"
                ) from error


def checked(sentences: Sentences) -> Iterator[str]:
    """Training sentences without their sides; see `checked_sides`."""
    return (sentence for _, sentence in checked_sides(sentences))


def checked_sides(sentences: Sentences) -> Iterator[tuple[Side | None, str]]:
    """Passes training sentences on with their sides, non-empty ones only, checked and counted.

    Raises DocmtError for lone surrogates, and at the end if there was no text at all.
    """
    empty = True
    with progress("reading text for the tokenizer") as bar:
        for item in sentences:
            side, sentence = (None, item) if isinstance(item, str) else item
            check_text([sentence])
            bar.advance(1, "sentences")
            if sentence:
                empty = False
                yield side, sentence
    if empty:
        raise DocmtError("there is no text to learn a tokenizer from; give a training corpus with sentences in it")


def check_vocabulary_size(vocabulary_size: int) -> None:
    """Raises DocmtError if a vocabulary cannot even hold the special tokens and the bytes."""
    if vocabulary_size < BYTES + SpecialTokens.count:
        raise DocmtError(
            f"a vocabulary of {vocabulary_size} is too small; it must be at least {BYTES + SpecialTokens.count} "
            f"({BYTES} bytes and {SpecialTokens.count} special tokens)"
        )
