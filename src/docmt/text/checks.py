"""Checks that the kinds of tokenizer share: of text, sizes and files."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import tokenizers

from docmt.core.errors import DocmtError
from docmt.core.files import parse_json, read_bytes
from docmt.core.progress import progress
from docmt.text.tokenizer import Side, SideSentence, SpecialTokens


def make_directory(directory: Path) -> None:
    """Creates `directory` if it is missing. Raises DocmtError if that fails."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DocmtError(f"cannot create {directory}: {error.strerror or error}; choose another place") from error


def load_library(path: Path, expected: Any, kind: str) -> Any:
    """The `tokenizers.Tokenizer` in a file, which must do just what `expected` does but for its words and merges.

    A file of somebody else may cut sentences short, pad them, drop or change characters, or know words of its own
    besides; all that would go unnoticed until the translations are wrong. `kind` names what is expected.
    Raises DocmtError naming the setting that is another, and for a file that is missing or damaged.
    """
    data = read_bytes(path, "the tokenizer file", regular=True)
    try:
        library = parse_library(data)
    except ValueError as error:
        raise DocmtError(f"{path} is damaged ({error}); copy the tokenizer's files again") from error
    found = _settings(library)
    for name, value in _settings(expected).items():
        if found.get(name) != value:
            raise DocmtError(
                f"{path} is not a {kind} tokenizer of docmt (its {name} is another); copy the tokenizer's files again"
            )
    return library


def parse_library(data: bytes) -> Any:
    """The `tokenizers.Tokenizer` that a tokenizer.json describes. Raises ValueError if it is damaged."""
    try:
        _check_merges(parse_json(data))
        return tokenizers.Tokenizer.from_str(data.decode("utf-8"))
    except BaseException as error:  # the library raises bare Exception, and where it panics not even that
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise ValueError(str(error)) from error


def _check_merges(values: Any) -> None:
    """Raises ValueError for a merge of or into something that is no word: the library panics at some of these."""
    model = values.get("model") if isinstance(values, dict) else None
    words, merges = (model.get("vocab"), model.get("merges")) if isinstance(model, dict) else (None, None)
    if not isinstance(words, dict) or not isinstance(merges, list):
        return  # another model, or none: the library says so
    for merge in merges:
        parts = merge.split(" ") if isinstance(merge, str) else merge
        if not isinstance(parts, list) or len(parts) != 2 or not all(isinstance(part, str) for part in parts):
            raise ValueError(f"{merge!r} is no merge of two words")
        for word in (*parts, "".join(parts)):
            if word not in words:
                raise ValueError(f"it merges {parts[0]!r} and {parts[1]!r}, but {word!r} is no word of it")


def _settings(library: Any) -> dict[str, Any]:
    """All that a tokenizer of the library does with text, without its words; the same of one that is written anew."""
    settings: dict[str, Any] = json.loads(library.to_str())
    model = settings.pop("model")
    settings.pop("version", None)
    in_model = {f"model's {name}": value for name, value in model.items() if name not in ("vocab", "merges")}
    return {"model": model["type"], **settings, **in_model}


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
