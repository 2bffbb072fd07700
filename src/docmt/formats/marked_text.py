"""Sentences with marks for their codes: a memory compares them, and puts the codes into another translation.

A pair has a mark where it begins and one where it ends, with its number in the sentence. A single code has one, with
its number and markup. Codes that people read as words ({name}) have the number 0: a memory has them as text.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict, deque
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from docmt.documents import unwrap_lines
from docmt.formats.placeholders import find_placeholders
from docmt.formats.projection import Link, Passage, project_codes
from docmt.formats.units import Code, Unit, match_codes

_SIGNS = {"open": "\ufdd0", "close": "\ufdd1", "single": "\ufdd2"}
_END = "\ufdd3"
"""These four are no characters of any text."""
_KINDS = {sign: kind for kind, sign in _SIGNS.items()}
_MARK = re.compile(f"([\ufdd0-\ufdd2])(\\d+):([^{_END}]*){_END}")
_SIGN = re.compile(f"[\ufdd0-{_END}]")
_SPACES = re.compile(r"[ \t]+")
VISIBLE = re.compile(r" ?[{$%@:+`]")
"""Beginning of the codes that other programs show as words: {name}, %s, `code`."""


class _Run(NamedTuple):
    """Text between two marks."""

    start: int
    end: int
    pairs: tuple[str, ...]
    """numbers of the pairs around it"""
    mark: str
    """before it"""


def has_signs(text: str) -> bool:
    """Return whether a text has marks, or characters of them."""
    return _SIGN.search(text) is not None


def mark_sentence(unit: Unit, start: int, end: int) -> str:
    """Return a sentence of a unit with marks."""
    return _write(_select_codes(unit, start, end), defaultdict(deque))


def mark_pair(source: tuple[Unit, int, int], target: tuple[Unit, int, int]) -> tuple[str, str] | None:
    """Return a sentence and its translation, parts of units, with the same numbers in their marks.

    None if they do not have the same codes, each equally often.
    """
    if not (source[0].codes or target[0].codes):
        texts = source[0].text[source[1] : source[2]], target[0].text[target[1] : target[2]]
        return None if any(map(has_signs, texts)) else texts
    parts = _select_codes(*source), _select_codes(*target)
    counts = [Counter((code.kind, code.content) for code in part.codes if code.kind != "close") for part in parts]
    contents = [text for part in parts for text in (part.text, *(code.content for code in part.codes))]
    if counts[0] != counts[1] or any(map(has_signs, contents)):
        return None
    numbers: dict[tuple[str, str], deque[str]] = defaultdict(deque)
    return show(_write(parts[0], numbers)), show(_write(parts[1], numbers))


def _select_codes(unit: Unit, start: int, end: int) -> Unit:
    """Return a part of a unit with the codes among its words.

    A pair that goes on beyond the part ends with it. Codes at its ends, and pairs around all of it or showing nothing,
    do not depend on its words. Breaks of lines are white space, which stands elsewhere in a translation.
    """
    if not unit.codes:
        return Unit(unit.text[start:end])
    singles = [index for index, code in enumerate(unit.codes) if code.kind == "single" and not code.is_break]
    kept = {index for index in singles if start < unit.codes[index].offset < end}
    for pair in match_codes(unit.codes).items():
        first, last = (unit.codes[index].offset for index in pair)
        is_inner = first < end and start < last and (first < last or start < first)
        if is_inner and (first > start or last < end) and not unit.codes[pair[0]].is_plain:
            kept.update(pair)
    codes = (unit.codes[index] for index in sorted(kept))
    moved = (replace(code, offset=min(max(code.offset, start), end) - start) for code in codes)
    return Unit(unit.text[start:end], tuple(moved))


def _write(unit: Unit, numbers: dict[tuple[str, str], deque[str]]) -> str:
    """Return a text with marks. numbers: of earlier codes by kind and markup, which are used up; new ones are added."""
    is_new, count, opened, parts, position = not numbers, 0, list[str](), list[str](), 0
    for code in unit.codes:
        parts.append(unit.text[position : code.offset])
        position = code.offset
        key, content = (code.kind, code.content), code.content if code.kind == "single" else ""
        if code.kind == "close":
            number = opened.pop()
        elif code.kind == "single" and VISIBLE.match(content):
            number = "0"
        elif is_new:
            count += 1
            number = str(count)
            numbers[key].append(number)
        else:
            number = numbers[key].popleft()
        opened += [number] * (code.kind == "open")
        parts.append(f"{_SIGNS[code.kind]}{number}:{content}{_END}")
    return "".join([*parts, unit.text[position:]])


def show(marked: str) -> str:
    """Return a text with marks as a memory has it: visible codes are text."""
    return _MARK.sub(lambda match: match[3] if match[2] == "0" else match[0], marked) if has_signs(marked) else marked


def remove_marks(marked: str) -> str:
    """Return a text with marks as a model reads it."""
    return " ".join(_MARK.sub(" ", show(marked)).split())


def join_spaces(marked: str) -> str:
    """Return a text with single spaces and without breaks of lines. Marks and no-break spaces stay."""
    parts = re.split(f"([\ufdd0-\ufdd2][^{_END}]*{_END})", marked)
    parts[::2] = [_SPACES.sub(" ", unwrap_lines(part)) for part in parts[::2]]
    return "".join(parts).strip()


def fill(source: str, target: str) -> tuple[str, list[Link] | None] | None:
    """Return a translation of a memory for a sentence with the same codes, and links that put them where it has them.

    source: the sentence with marks. target: the translation as `mark_pair` gives it. None where the codes would come to
    stand elsewhere, or placeholders would be lost.
    """
    placeholders = ([side[slice(*span)] for span in find_placeholders(side)] for side in (source, target))
    names = [Counter(filter(VISIBLE.match, each)) for each in placeholders]
    if names[0] != names[1]:
        return None
    if not has_signs(source):
        return None if has_signs(target) else (target, None)
    for content, count in Counter(match[3] for match in _MARK.finditer(source) if match[2] == "0").items():
        parts = re.split(r"\s+".join(map(re.escape, re.split(r"\s+", content))), target)
        if len(parts) != count + 1:
            return None
        target = f"{_SIGNS['single']}0:{content}{_END}".join(parts)
    sides = [_read(side) for side in (source, target)]
    links = [
        (*best[:2], *run[:2])
        for run in sides[1][1]
        if (best := max(sides[0][1], key=lambda each: (each.pairs == run.pairs, each.mark == run.mark), default=None))
        and best.pairs == run.pairs
    ]
    (unit, _), (wanted, _) = sides
    projected, missing = project_codes(unit, [Passage(0, len(unit.text), wanted.text, links)])
    return None if missing or _outline(projected) != _outline(wanted) else (wanted.text, links)


def _read(marked: str) -> tuple[Unit, list[_Run]]:
    """Return a text with its codes, and what is between these, white space alone left out."""
    codes, runs, text, opened, mark, position = list[Code](), list[_Run](), "", list[str](), "", 0
    for match in [*_MARK.finditer(marked), None]:
        start, piece = len(text), marked[position : match.start() if match else None]
        text += piece
        if piece.strip():
            runs.append(_Run(start, len(text), tuple(opened), mark))
        if match is None:
            break
        position, kind = match.end(), _KINDS[match[1]]
        name = " ".join([match[2], *match[3].split()])  # a memory has single spaces
        mark = match[1] + name
        codes.append(Code(len(text), kind, name, match[3]))  # type: ignore[arg-type]
        if kind == "open":
            opened.append(name)
        elif kind == "close":
            opened.pop()
    return Unit(text, tuple(codes)), runs


def _outline(unit: Unit) -> tuple[str, Sequence[tuple[str, str, str]]]:
    """Return the text, and the codes each with the characters before it, without white space."""
    return unit.text, [(code.kind, code.id, "".join(unit.text[: code.offset].split())) for code in unit.codes]
