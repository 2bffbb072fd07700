"""The one exception a user is meant to see, and how what strangers wrote is shown in it."""

from __future__ import annotations

import re

USAGE_ERROR = 2
"""Status of a process that ended with something that the user can mend."""
INTERRUPTED = 130
"""Status of a process that Ctrl-C or SIGTERM ended."""
LONGEST = 2000
"""Characters of a sentence that somebody may still read; of more the middle is left out."""
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
