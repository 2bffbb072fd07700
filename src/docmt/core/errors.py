"""The exception for user errors, escaping of untrusted text, and batch work that survives errors."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

USAGE_ERROR = 2
"""Exit status after an error that the user can fix."""
INTERRUPTED = 130
"""Exit status after Ctrl-C or SIGTERM."""
MAX_MESSAGE = 2000
"""Maximum length of an error message in characters. The middle of a longer one is left out."""
OUT_OF_MEMORY = "out of memory: split its long sentences, or use smaller batches (--batch-tokens)"
_MIN_SIMILARITY = 0.66  # of 1: letters in common
# Control characters (C0, DEL, C1), line and paragraph separators, bidi and zero-width characters, lone surrogates.
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


class DocmtError(Exception):
    """An error that the user can fix. Its message says what is wrong, where, and what to do.

    The command line prints the message without a traceback and exits with status 2.
    """

    def __str__(self) -> str:
        text = printable(super().__str__())
        return text if len(text) <= MAX_MESSAGE else f"{text[: MAX_MESSAGE // 2]} ... {text[-MAX_MESSAGE // 2 :]}"


class Unavailable(DocmtError):  # noqa: N818 - a state, which may end
    """Something that all items need is away for some time: no item is to blame."""


def missing_package_error(subject: str, package: str, extra: str) -> DocmtError:
    """Return the error for a missing package of an extra. docmt is installed from a clone."""
    return DocmtError(f"{subject} needs {package}: run pip install '.[{extra}]' where docmt was unpacked")


def did_you_mean(name: str, known: Mapping[str, str], otherwise: str) -> str:
    """Return a question with the known name that is most like another one, or `otherwise` if none is near.

    known: known names, each with what the question says for it.
    """
    alike = [each for each in known if each[:1] == name[:1]]  # of others, a hint is as often wrong as right
    near = get_close_matches(name, alike, n=1, cutoff=_MIN_SIMILARITY)
    return f"did you mean {known[near[0]]}?" if near else otherwise


def is_out_of_memory(error: Exception) -> bool:
    """Return whether Python or torch ran out of memory. torch raises other errors on a GPU than on a CPU."""
    return (
        isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError" or "allocate memory" in str(error)
    )


def printable(text: str, allowed: str = "") -> str:
    """Return text for a terminal or a log. Control characters are escaped (`\\x1b`, `\\n`), except those `allowed`.

    Document ids, tensor names and file names are untrusted. They must not move the cursor, set the window title,
    reverse the text, or break a message into lines.
    """
    return _UNPRINTABLE.sub(lambda match: match[0] if match[0] in allowed else _escape(match[0]), text)


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def map_or_error(
    items: Sequence[Item], work: Callable[[Sequence[Item]], Sequence[Result]]
) -> list[Result | DocmtError]:
    """Return the result of `work` for every item, or its error.

    All items are processed together, which is fastest. After a failure they are halved until the failing item is
    isolated. A failure is a DocmtError, but not `Unavailable`, or a lack of memory; other exceptions are raised.
    """
    if not items:
        return []
    try:
        return list(work(items))
    except Unavailable:
        raise
    except DocmtError as error:
        message = str(error)  # a string keeps no tensors alive, unlike a traceback
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        message = OUT_OF_MEMORY
    if len(items) == 1:
        return [DocmtError(message)]
    half = len(items) // 2
    return [*map_or_error(items[:half], work), *map_or_error(items[half:], work)]
