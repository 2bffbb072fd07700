"""Checks that the kinds of tokenizer share: of text, sizes and files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from docmt.errors import DocmtError
from docmt.progress import progress
from docmt.text.tokenizer import Side, SideSentence, SpecialTokens


def make_directory(directory: Path) -> None:
    """Creates `directory` if it is missing. Raises DocmtError if that fails."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DocmtError(f"cannot create {directory}: {error.strerror or error}; choose another place") from error


def read_file(path: Path, what: str) -> bytes:
    """The bytes of one of the tokenizer's files. Raises DocmtError if it cannot be read."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise DocmtError(f"cannot read the {what} {path}: {error.strerror or error}; check the path") from error


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


def checked(sentences: Iterable[str | SideSentence]) -> Iterator[str]:
    """Training sentences without their sides; see `checked_sides`."""
    return (sentence for _, sentence in checked_sides(sentences))


def checked_sides(sentences: Iterable[str | SideSentence]) -> Iterator[tuple[Side | None, str]]:
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


def check_vocabulary_size(vocabulary_size: int, smallest: int) -> None:
    """Raises DocmtError if a vocabulary cannot even hold the special tokens and the bytes."""
    if vocabulary_size < smallest:
        raise DocmtError(
            f"a vocabulary of {vocabulary_size} is too small; it must be at least {smallest} "
            f"({smallest - SpecialTokens.count} bytes and {SpecialTokens.count} special tokens)"
        )
