"""The layout of a translated unit of subtitles: where its cues and its lines end."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import inf
from operator import itemgetter
from typing import Any

from docmt.documents.protected_text import find_protected
from docmt.formats.units import SPACE, Code, Unit, match_codes

CUE, LINE = "cue", "line"
"""Beginnings of the ids of borders of cues and of line breaks."""
MAX_WIDTH = 42
"""Widest line, in columns: that of most guidelines for subtitles."""
_BONUS = 8.0
"""Characters that a border may move to stand after punctuation."""
_WITHIN_WORD = 3.0
"""Characters that a border may move so as not to stand between two characters without a space."""
_ALIGNED_WEIGHT = 0.6
"""Weight of the aligned place of a border beside that of its share of the text."""

_WIDE = "\u3005-\u3007\u3041-\u3096\u30a1-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
# Between words, but not before punctuation that follows a space, after an opening one, or before a dash, which would
# look like that of a speaker. Between characters of scripts without spaces.
_PLACE = re.compile(
    rf"(?<![\s«(\[¿¡])[ \t\u3000]+(?![\s!?:;»…%)\]\-–—‐♪]|\.\.)"
    rf"|(?<=[{_WIDE}、。，．！？」』）】])(?=[{_WIDE}「『（【])(?![ーぁぃぅぇぉっゃゅょァィゥェォッャュョ々])"
)
_PUNCTUATION = re.compile(r"[.,;:!?…、。，！？；：»”)\]」』]$")
Break = tuple[int, int]
"""start and end of the white space, if any, that a break replaces"""
_Chain = tuple[float, tuple[Any, ...]]
"""cost of breaks, and their gaps, the last one outside: (((), 2), 5)"""


@dataclass(frozen=True)
class CueRegion:
    """Part of a file that one unit of subtitles replaces."""

    start: int
    end: int
    line_counts: Sequence[int]
    """lines of each cue"""
    widths: Sequence[int]
    """characters of the longest line of each cue"""


def lay_out_cues(old: Unit, new: Unit, region: CueRegion, newline: str, escape: Callable[[str], str]) -> str:
    """Return a translated unit as its file writes it, in as many cues as the source has.

    old: the unit as read, whose borders are written.
    """
    borders = [code for code in old.codes if code.id.startswith(CUE)]
    gaps = _place_borders(old, new, borders)
    breaks = [(place, border.content, True) for place, border in zip(gaps, borders, strict=True)]
    starts = [0, *(end for _, end in gaps)]
    stops = [*(start for start, _ in gaps), len(new.text)]
    for start, stop, count, width in zip(starts, stops, region.line_counts, region.widths, strict=True):
        breaks += [(place, newline, False) for place in _break_lines(new.text, start, stop, count, width)]
    return "".join(_write(new, sorted(breaks, key=lambda each: each[0]), escape))


def _place_borders(old: Unit, new: Unit, borders: Sequence[Code]) -> list[Break]:
    """Return the gaps between words for the borders of cues. Those without words left are at the end."""
    if not borders:
        return []
    scale = len(new.text) / max(1, len(old.text))
    aligned = {code.id: code.offset for code in new.codes}
    shares = [(border.id, border.offset * scale) for border in borders]
    wanted = [share + _ALIGNED_WEIGHT * (aligned.get(id, share) - share) for id, share in shares]
    return _choose(new.text, list(find_breaks(new.text, 0, len(new.text))), wanted)


def _break_lines(text: str, start: int, end: int, count: int, width: int) -> list[Break]:
    """Return the gaps between words for line breaks in a cue that had `count` lines, of `width` characters at most."""
    length = sum(2 if unicodedata.east_asian_width(each) in "WF" else 1 for each in text[start:end])  # columns
    if count == 1 and length > max(MAX_WIDTH, width):
        count = 2
    gaps = list(find_breaks(text, start, end))
    count = min(count, len(gaps) + 1)
    wanted = [start + (end - start) * number / count for number in range(1, count)]
    return _choose(text, gaps, wanted, bonus=min(_BONUS, max(0.0, MAX_WIDTH - length / count)))


def find_breaks(text: str, start: int, end: int) -> Iterator[Break]:
    """Yield the gaps between words, but none within a telephone number or another protected text."""
    kept = [each.span for each in find_protected(text) if not each.is_sign]
    for match in _PLACE.finditer(text, start, end):
        is_inside = any(first <= match.start() and match.end() <= last for first, last in kept)
        if start < match.start() and match.end() < end and not is_inside:
            yield match.span()


def _choose(text: str, gaps: Sequence[Break], wanted: Sequence[float], bonus: float = _BONUS) -> list[Break]:
    """Return a place for each wanted position, in order and all different: the nearest ones, best after punctuation.

    If there are too few gaps, the last borders are at the end of the text. Takes time in the product of both.
    """
    count = min(len(gaps), len(wanted))
    bonuses = [
        bonus if _PUNCTUATION.search(text, max(0, start - 1), start) else 0.0 if start < end else -_WITHIN_WORD
        for start, end in gaps
    ]
    scored = [((start + end) / 2, more) for (start, end), more in zip(gaps, bonuses, strict=True)]
    costs = [[abs(middle - place) - more for middle, more in scored] for place in wanted[:count]]
    return [gaps[index] for index in choose_gaps(costs)] + [(len(text), len(text))] * (len(wanted) - count)


def choose_gaps(costs: Sequence[Sequence[float]], penalty: float = inf) -> list[int]:
    """Return a gap for each break, in order, so that their costs have the least sum.

    costs: of each break in each gap. penalty: of a break in the gap of the one before it.
    """
    chains: list[_Chain] = [(0.0, ())] * len(costs[0]) if costs else [(0.0, ())]
    for number, row in enumerate(costs):
        longer: list[_Chain] = []
        best: _Chain = (inf, ())
        for gap, (chain, cost) in enumerate(zip(chains, row, strict=True)):
            total, path = min(best, (chain[0] + penalty, chain[1]), key=itemgetter(0)) if number else chain
            longer.append((total + cost, (path, gap)))
            best = min(best, chain, key=itemgetter(0))
        chains = longer
    path, chosen = min(chains, key=itemgetter(0))[1], list[int]()
    while path:
        path, gap = path
        chosen.insert(0, gap)
    return chosen


def _write(unit: Unit, breaks: Sequence[tuple[Break, str, bool]], escape: Callable[[str], str]) -> Iterator[str]:
    """Yield the parts of a unit with breaks (place, content, whether it is a border of cues, which no pair crosses)."""
    codes = [code for code in unit.codes if code.kind != "single" or not code.id.startswith((CUE, LINE))]
    ends = {index: codes[end] for index, end in match_codes(codes).items()}
    opened: list[int] = []
    position = index = 0
    end = len(unit.text)
    for (start, following), content, is_border in [*breaks, ((end, end), "", False)]:
        while index < len(codes) and _is_before(codes[index], start, following):
            code = codes[index]
            yield escape(unit.text[position : min(code.offset, start)])
            position = max(position, min(code.offset, start))
            yield code.content
            if code.is_space and position < start and unit.text[position] == SPACE:
                position += 1
            if code.kind == "open":
                opened.append(index)
            elif code.kind == "close":
                opened.pop()
            index += 1
        yield escape(unit.text[position:start])
        around = opened if is_border else []
        yield from (ends[each].content for each in reversed(around))
        yield content
        yield from (codes[each].content for each in around)
        position = following
    yield from (code.content for code in codes[index:])


def _is_before(code: Code, start: int, following: int) -> bool:
    """Return whether a code stands before a break: what ends a word does, what begins one does not."""
    if code.kind == "close":
        return code.offset <= following
    return code.offset < start or (code.kind == "single" and code.offset == start)
