"""Line breaks within a paragraph: which of them end a sentence."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

from docmt.formats.units import Unit

_MAX_LINE = 40
"""Characters of a line of an address, or of a heading."""
_GOES_ON = re.compile(r"[.!?…:;,。！？：；，、][\"'”’»)\]]*$")
_BREAK = re.compile(r"(?:</[\w:]+>)?\s*<(?:\w+:)?(?:br|cr|line-break)\b", re.IGNORECASE)
"""Markup of a line break (`w:br`, `a:br`, `text:line-break`, `<br>`), which a run of Word is closed for."""


def is_last_line(before: str, after: str) -> bool:
    """Return whether a line break between two lines ends a sentence, as that of an address or of a heading does.

    Both lines are short, and neither the punctuation of the first one nor a small letter goes on with the sentence.
    """
    is_short = 0 < len(before) <= _MAX_LINE and 0 < len(after) <= _MAX_LINE
    return is_short and not _GOES_ON.search(before) and not after[:1].islower()


def find_line_spans(unit: Unit) -> Iterator[tuple[int, int]]:
    """Yield the characters of the lines of a unit that end at its end, at an empty line, or by `is_last_line`."""
    breaks = [code.offset for code in unit.codes if code.kind == "alone" and _BREAK.match(code.content)]
    borders = [0, *breaks, len(unit.text)]
    lines = [unit.text[start:end].strip() for start, end in pairwise(borders)]
    start = 0
    for end, (before, after) in zip(breaks, pairwise(lines), strict=True):
        if not before or not after or is_last_line(before, after):
            yield start, end
            start = end
    yield start, len(unit.text)
