"""The one exception a user is meant to see, how what strangers wrote is shown in it, and work that outlives it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

USAGE_ERROR = 2
"""Status of a process that ended with something that the user can mend."""
INTERRUPTED = 130
"""Status of a process that Ctrl-C or SIGTERM ended."""
LONGEST = 2000
"""Characters of a sentence that somebody may still read; of more the middle is left out."""
OUT_OF_MEMORY = "out of memory: split its long sentences, or use smaller batches (--batch-tokens)"
# Controls (C0, DEL, C1), line and paragraph separators, what turns the direction of text or takes no room (Unicode's
# bidi and zero-width characters), and bytes that are no UTF-8.
_NOT_SHOWN = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


class DocmtError(Exception):
    """Something the user can mend: one sentence saying what is wrong, where, and what to do next.

    The command line prints the sentence without a traceback and exits with status 2.
    """

    def __str__(self) -> str:
        text = printable(super().__str__())
        return text if len(text) <= LONGEST else f"{text[: LONGEST // 2]} ... {text[-LONGEST // 2 :]}"


def is_out_of_memory(error: Exception) -> bool:
    """Whether no memory was left, for Python or for torch (which says so in other words on a GPU than on the CPU)."""
    return (
        isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError" or "allocate memory" in str(error)
    )


def printable(text: str, kept: str = "") -> str:
    """Text for a terminal or a log, with control characters escaped (`\\x1b`, `\\n`) but for those to be `kept`.

    Names and messages hold what strangers wrote (document ids, names of tensors and files): it must not move the
    cursor, set the window's title, turn the text around, or make two lines of a sentence.
    """
    return _NOT_SHOWN.sub(lambda found: found[0] if found[0] in kept else _escaped(found[0]), text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def map_or_error(
    items: Sequence[Item], work: Callable[[Sequence[Item]], Sequence[Result]]
) -> list[Result | DocmtError]:
    """Return the result of `work` for every item, or its error.

    All items are processed together, which is fastest. After a failure they are halved until the failing item is
    isolated. A failure is a DocmtError or a lack of memory; other exceptions are raised.
    """
    results = _attempt(items, work) if items else []
    if not isinstance(results, str):
        return list(results)
    if len(items) == 1:
        return [DocmtError(results)]
    half = len(items) // 2
    return [*map_or_error(items[:half], work), *map_or_error(items[half:], work)]


def _attempt(items: Sequence[Item], work: Callable[[Sequence[Item]], Sequence[Result]]) -> Sequence[Result] | str:
    """Return the results, or the reason of a failure; a string, so that no traceback holds on to tensors."""
    try:
        return work(items)
    except DocmtError as error:
        return str(error)
    except (MemoryError, RuntimeError) as error:
        if is_out_of_memory(error):
            return OUT_OF_MEMORY
        raise
