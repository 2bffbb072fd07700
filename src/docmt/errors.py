"""The one exception a user is meant to see, and how what strangers wrote is shown in it."""

from __future__ import annotations

import re

# Controls (C0, DEL, C1), line and paragraph separators, and what turns the direction of text (Unicode's bidi classes).
_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


class DocmtError(Exception):
    """Something the user can mend: one sentence saying what is wrong, where, and what to do next.

    The command line prints the sentence without a traceback and exits with status 2.
    """


def printable(text: str, kept: str = "") -> str:
    """Text for a terminal or a log, with control characters escaped (`\\x1b`, `\\n`) but for those to be `kept`.

    Names and messages hold what strangers wrote (document ids, names of tensors and files): it must not move the
    cursor, set the window's title, turn the text around, or make two lines of a sentence.
    """
    return _CONTROLS.sub(lambda found: found[0] if found[0] in kept else _escaped(found[0]), text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
