"""The one exception a user is meant to see."""

import re

LONGEST = 2000
"""Characters of a sentence that somebody may still read; of more the middle is left out."""
_NOT_SHOWN = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


class DocmtError(Exception):
    """Something the user can mend: one sentence saying what is wrong, where, and what to do next.

    The command line prints the sentence without a traceback and exits with status 2.
    """

    def __str__(self) -> str:
        return printable(super().__str__())


def printable(text: str) -> str:
    """The text as a terminal may have it, in one line, whatever names of files and documents stand in it.

    Control characters, marks that turn the direction of writing, line separators and bytes that are no UTF-8 become
    escapes such as \\x1b. What is very long loses its middle.
    """
    text = _NOT_SHOWN.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)
    return text if len(text) <= LONGEST else f"{text[: LONGEST // 2]} ... {text[-LONGEST // 2 :]}"
