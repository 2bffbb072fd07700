"""What parts a line: gaps between columns, and the tags of blocks of a template. Neither is in a sentence.

Gaps are tabs, wide spaces, bars, leaders, blanks to fill in and check boxes. Each text between gaps is a sentence of
its own, as in the cells of a table. Blocks of templates are {% if a %} ... {% else %} ... {% endif %}. What their tags
part is no sentence together.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, Literal, NamedTuple

from docmt.core.settings import read_package_yaml
from docmt.documents.words import Span, complement_spans, overlaps

_SPACE = "[ \u00a0\u2000-\u200a\u202f\u205f\u3000]"
_DOTS = r"(?:[.…][ ]?)"
_GAP = re.compile(
    rf"""
    (?P<tab> \s*\t\s* )
  | (?P<wide> (?<=[^\s.,;!?…]) {_SPACE}{{3,}} (?=\S) )  # spaces after punctuation are those of a typist
  | (?P<bar> (?<!\S) [|¦│┃║·•●▪■◆] (?!\S) | (?<=[a-z.!?])\|(?=[A-Z][a-z]+[ ]) )  # the last: of plural forms
  | (?P<blank> (?: (?<!\w)_{{2,}}(?:[ ]?[/.:-][ ]?_{{2,}})+
              | (?<!\w)_{{3,}} | (?<!_)_{{3,}}(?!\w) | (?<!\w)(?:_[ ]){{2,}}_ ) [.,;:]* )
  | (?P<leader> {_DOTS}{{4,}} (?:\d{{1,4}}|[ivxlcdm]{{1,7}})[ ]*$ | (?<=[:：]) [ ]? {_DOTS}{{4,}} | {_DOTS}{{10,}}
              | (?<!\S) (?:\.{{5,}}|…{{2,}}) (?=\s+\w) )
  | (?P<box> [☐☑☒□▢◻⬜] | (?<!\S) (?:\[[ xX]\]|\([ ]\)|[✓✔✗✘○◯◉]) (?=\s+\w) )
    """,
    re.VERBOSE,
)
_SIGNS_OF_GAPS = re.compile(r"[\t_|¦│┃║·•●▪■◆…☐☑☒□▢◻⬜✓✔✗✘○◯◉]|\s{3}|\.[ ]?\.|[\[(][ xX][\])]")
"""What each gap has, for a quick test."""
_DOUBLE_SPACE = re.compile(r"(?<=[^\s.!?:])  (?=\S)")
_STEP = re.compile(r"(?<=\S)[ \u00a0](?:[›»▸▶]|(?P<sign>[>→/]))[ \u00a0]")
"""Between the steps of a path such as Home › Products."""
_MAX_STEP = 40
_NO_STEP = re.compile(r"[.!?:;…‹«]")
_LAST_MARK = re.compile(r"[.!?:]\W{0,3}$")
_SIGNS_OF_CODE = re.compile(r"[_$(){}<>=]")
_NEAR = 60
_MARKS = re.compile(r"\s*[.,;:!?…]+(?!\S)")


def find_columns(line: str) -> list[Span]:
    """Return the texts of a line between its gaps, perhaps empty; the whole line if it has no gap."""
    gaps = [match.span() for match in _find_gaps(line)]
    if tags := list(find_template_tags(line)):
        blocks = [tags[index].span for block in match_blocks(tags) for index in block]
        gaps = [gap for gap in gaps if not overlaps(gap, blocks)]
        gaps = sorted([*gaps, *((start, pass_marks(line, end)) for start, end in blocks)])
    gaps = gaps or _find_steps(line)
    if line.startswith("|") and line.endswith("|"):  # a row of a table, perhaps without spaces
        gaps = [match.span() for match in re.finditer(r"\|", line)]
    return complement_spans(gaps, len(line))


def pass_marks(text: str, position: int) -> int:
    """Return the place after the marks of a sentence that end there, as after {% endif %}, welcome."""
    marks = _MARKS.match(text, position)
    return marks.end() if marks else position


def is_row(line: str) -> bool:
    """Return whether a line has columns, and so is no part of a paragraph."""
    return any(match.lastgroup in ("tab", "wide", "bar") for match in _find_gaps(line))


def _find_gaps(line: str) -> Iterator[re.Match[str]]:
    gaps = list(_GAP.finditer(line)) if _SIGNS_OF_GAPS.search(line) else []
    wide = sum(match.lastgroup == "wide" for match in gaps)
    is_justified = wide > 0 and len(_DOUBLE_SPACE.findall(line)) >= wide
    for match in gaps:
        if not (match["wide"] and is_justified) and (not match["bar"] or _stands_free(line, *match.span())):
            yield match


def _stands_free(line: str, start: int, end: int) -> bool:
    """Return whether a bar is not that of code (A_B | C), of a set in brackets, or of a sentence about bars."""
    before, after = line[max(0, start - _NEAR) : start], line[end : end + _NEAR]
    if after.lstrip()[:1].islower() and _LAST_MARK.search(line, max(0, len(line) - _NEAR)):
        return False
    words = [*before.split()[-1:], *after.split()[:1]]
    is_open = any(before.count(left) > before.count(right) for left, right in ("()", "[]", "{}"))
    return not is_open and not any(map(_SIGNS_OF_CODE.search, words))


def _find_steps(line: str) -> list[Span]:
    """Return the gaps of a line that is a path: short steps without punctuation, capitalised ones around a sign."""
    gaps = list(_STEP.finditer(line))
    if not gaps:
        return []
    steps = [step.strip() for step in _STEP.sub("\n", line).split("\n")]
    are_short = all(0 < len(step) <= _MAX_STEP and not _NO_STEP.search(step) for step in steps)
    needs_capitals = any(each["sign"] for each in gaps)
    is_path = are_short and (not needs_capitals or all(step[0].isupper() for step in steps))
    return [each.span() for each in gaps] if is_path else []


TAG_SIGN = re.compile(r"[{<\[]%|\{\{|<\?|\*\||\{[#/:]?[a-z]|</?#")
"""What each tag of a template begins with."""
_NEAR_TAGS = 50
"""Open tags before an end among which its beginning is searched."""


class TemplateTag(NamedTuple):
    """A tag of a template that shows nothing."""

    span: Span
    kind: Literal["open", "close", "single"]
    name: str
    """that both tags of a block share"""
    may_stand_alone: bool


@cache
def _load_tags() -> tuple[re.Pattern[str], list[dict[str, Any]]]:
    """Return the pattern of all tags, and that of each kind."""
    kinds = read_package_yaml(__package__, "template_tags.yaml", typed=True)
    return re.compile("|".join(each["pattern"] for each in kinds)), kinds


def find_template_tags(text: str) -> Iterator[TemplateTag]:
    """Yield the tags of blocks in a text."""
    pattern, kinds = _load_tags()
    for tag in pattern.finditer(text) if TAG_SIGN.search(text) else ():
        matches = ((each, re.fullmatch(each["pattern"], tag[0])) for each in kinds)
        kind, match = next((kind, match) for kind, match in matches if match)
        name = tag[0][:2] + "".join(filter(None, match.groups())).lower()
        yield TemplateTag(tag.span(), kind["kind"], name, "alone" in kind)


def find_blocks(contents: Sequence[str]) -> list[list[int]]:
    """Return the indices of the contents of codes that are the tags of each block, see `match_blocks`."""
    tagged = [(index, tag) for index, content in enumerate(contents) for tag in find_template_tags(content)]
    return [[tagged[place][0] for place in block] for block in match_blocks([tag for _, tag in tagged])]


def match_blocks(tags: Sequence[TemplateTag]) -> Iterator[list[int]]:
    """Yield the indices of the tags of each block: its first one, those that part its alternatives, its last one.

    Tags of blocks that the text does not have as a whole are yielded one by one.
    """
    opened: list[int] = []
    breaks: list[int] = []
    alone: list[int] = []
    for index, tag in enumerate(tags):
        if tag.kind == "open":
            opened.append(index)
        elif tag.kind == "single":
            breaks.append(index)
        elif any(tags[each].name == tag.name for each in opened[-_NEAR_TAGS:]):
            while tags[start := opened.pop()].name != tag.name:
                alone.append(start)
            count = bisect_left(breaks, start)
            yield [start, *breaks[count:], index]
            del breaks[count:]
        else:
            alone.append(index)
    yield from ([each] for each in (*alone, *opened, *breaks) if not tags[each].may_stand_alone)
