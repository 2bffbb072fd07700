"""Units as a model reads them: placeholders such as {name}, which stand for words, are text of the sentence.

Without them, "Page {a} of {b}" would be "Page of". They are protected in sentences as in plain text
(`docmt.documents.protected_text`). In the translation they become codes again, so files are written as ever.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate

from docmt.documents import sentence_spans
from docmt.documents.columns import find_blocks
from docmt.documents.words import Span, complement_spans, has_letters, is_symbol
from docmt.formats.placeholders import find_placeholders, is_readable, tidy_pieces
from docmt.formats.projection import Passage, find_enclosing_codes, project_codes
from docmt.formats.units import SPACE, Code, Unit, find_line_spans

_FORM, _NUMBER = re.compile(r"[ ]*\|"), re.compile(r"\{\d+\}")
"""What stands between plural forms, and before the first one."""


class _Cuts:
    """Characters that a text loses."""

    def __init__(self, spans: Sequence[Span]) -> None:
        self._spans = spans
        self._lengths = list(accumulate((end - start for start, end in spans), initial=0))

    def move(self, place: int) -> int:
        """Return where a place of the text is then."""
        count = bisect_left(self._spans, (place,))  # those that begin before it
        inside = max(0, self._spans[count - 1][1] - place) if count else 0
        return place - self._lengths[count] + inside


@dataclass(frozen=True)
class ReadableUnit:
    """A unit, and the same with its placeholders as text."""

    original: Unit
    unit: Unit
    indices: Sequence[int] = ()
    """of the placeholders in the codes of the original"""
    spans: Sequence[Span] = ()
    """characters of each placeholder in the text of `unit`, with the space that it carries"""

    @cached_property
    def _cuts(self) -> _Cuts:
        return _Cuts(self.spans)

    def find_sentences(self, language: str, protect: Sequence[str] = ()) -> Iterator[Span]:
        """Yield the characters of the sentences in `unit`.

        A line that is a symbol alone, and a sentence of placeholders alone, are none, and so they stay.
        """
        for first, last in find_line_spans(self.unit, self.spans):
            line = self.unit.text[first:last]
            for start, end in [] if is_symbol(line) else sentence_spans(line, language, protect=protect):
                rest = self.original.text[self.locate(first + start) : self.locate(first + end)]
                if end - start == len(rest) or has_letters(rest):
                    yield first + start, first + end

    def locate(self, place: int) -> int:
        """Return where a place of the text of `unit` is in the text of the original."""
        return self._cuts.move(place)

    def list_placeholders(self, span: Span) -> list[str]:
        """Return the ids of the codes of the original that are text there. span: characters of `unit`."""
        return [self.original.codes[self.indices[number]].id for number, _ in self._find_inside(*span)]

    def _find_inside(self, first: int, last: int) -> Iterator[tuple[int, Span]]:
        """Yield the number and the characters of each placeholder between two places of `unit`."""
        begin = bisect_left(self.spans, (first - 1,))  # with a space before
        for number in range(begin, bisect_left(self.spans, (last,))):
            start, end = _strip(self.unit.text, self.spans[number])
            if first <= start and end <= last:
                yield number, (start, end)

    def project(self, passages: Sequence[Passage]) -> tuple[Unit, list[Span], list[Code]]:
        """Return the translated unit with all codes, the characters of its sentences, and codes without a place.

        passages: translated sentences of `unit`, see `project_codes`. A placeholder that a translation lacks, as one by
        a person may, gets its place by word alignment.
        """
        if all(self.unit.text[each.start : each.end] == each.target for each in passages):
            return self.original, [(self.locate(each.start), self.locate(each.end)) for each in passages], []
        lost = {index for each in passages for index, span in self._find(each, 0) if span is None}
        if lost:
            rest = _read(self.original, [index for index in self.indices if index not in lost])
            spans = [span for index, span in zip(self.indices, self.spans, strict=True) if index in lost]
            cuts = _Cuts(spans)
            return rest.project([_move_passage(each, cuts) for each in passages])
        projected, missing = project_codes(self.unit, passages)
        position, length = 0, 0
        borders, places = list[Span](), list[tuple[int, Span, Span]]()
        for each in [*passages, Passage(len(self.unit.text), len(self.unit.text), "")]:
            gap = Passage(position, each.start, self.unit.text[position : each.start])
            for piece in (gap, each):
                limits = length, length + len(piece.target)
                places += [(index, span, limits) for index, span in self._find(piece, length) if span]
                length = limits[1]
            borders.append((length - len(each.target), length))
            position = each.end
        hidden, spans = self._hide(projected, places, True)
        if tidy_pieces(self.original, hidden).render() != projected.render():
            hidden, spans = self._hide(projected, places, False)
        cuts = _Cuts(spans)
        hidden, others = self._restore_breaks(hidden)
        borders = [(others.move(cuts.move(start)), others.move(cuts.move(end))) for start, end in borders[:-1]]
        return hidden, borders, missing

    def _find(self, passage: Passage, shift: int) -> Iterator[tuple[int, Span | None]]:
        """Yield each placeholder of a passage, and its characters in the target, moved; None: it is not there.

        Of equal ones, one with a space on the same sides comes first.
        """
        text, contents = self.unit.text, dict[str, dict[int, tuple[bool, bool]]]()
        for number, span in self._find_inside(passage.start, passage.end):
            contents.setdefault(text[slice(*span)], {})[self.indices[number]] = _find_spaces(text, *span)
        pattern = "|".join(map(re.escape, sorted(contents, key=len, reverse=True)))
        for match in re.finditer(pattern, passage.target) if contents else ():
            if equal := contents[match[0]]:
                spaces = _find_spaces(passage.target, *match.span())
                index = next((each for each in equal if equal[each] == spaces), next(iter(equal)))
                del equal[index]
                yield index, (match.start() + shift, match.end() + shift)
        yield from ((index, None) for equal in contents.values() for index in equal)

    def _hide(
        self, unit: Unit, places: Sequence[tuple[int, Span, Span]], takes_spaces: bool
    ) -> tuple[Unit, list[Span]]:
        """Return a translated unit with these placeholders as codes, and the characters that they have no more.

        places: index, characters, and those of its sentence. takes_spaces: whether the space that a code carries comes
        from the text of the sentence. Writers put it on the right side, or leave it out beside another one.
        """
        text, codes, spans, rest = unit.text, list[Code](), list[Span](), deque(unit.codes)
        left = gone = 0  # end of the last placeholder, and characters of all so far
        kept = {code.offset for code in unit.codes if code.is_space}
        for index, (start, end), (lowest, highest) in places:
            code = self.original.codes[index]
            first = start
            if takes_spaces and code.content != code.content.strip(SPACE):
                sides = [
                    lowest <= place < highest and text[place] == SPACE and place not in kept
                    for place in (end, max(start - 1, left))
                ]
                is_after = sides[0] and (code.content.endswith(SPACE) or not sides[1])
                start, end = start - (sides[1] and not is_after), end + is_after
            while rest and rest[0].offset <= first:
                other = rest.popleft()
                codes.append(replace(other, offset=min(max(other.offset, left), start) - gone))
            codes.append(replace(code, offset=start - gone))
            spans.append((start, end))
            left, gone = end, gone + end - start
        codes += (replace(each, offset=max(each.offset, left) - gone) for each in rest)
        return replace(unit, text=_cut(text, spans), codes=tuple(codes)), spans

    def _restore_breaks(self, unit: Unit) -> tuple[Unit, _Cuts]:
        """Return a unit whose breaks after placeholders are as in the original, and the spaces that it has no more."""
        names = {code.id for code in self.original.codes if code.follows_space}
        places = [each.offset for each in unit.codes if each.is_space and each.id in names]
        spans = [(place, place + 1) for place in places if unit.text[place : place + 1] == SPACE]
        cuts = _Cuts(spans)
        moved = (replace(each, offset=cuts.move(each.offset)) for each in unit.codes)
        codes = (replace(each, is_space=False, follows_space=True) if each.id in names else each for each in moved)
        return replace(unit, text=_cut(unit.text, spans), codes=tuple(codes)), cuts


def make_readable(unit: Unit, protect: Sequence[str] | None = ()) -> ReadableUnit:
    """Return a unit with its placeholders as text, as far as they are protected in sentences.

    protect: patterns; None: nothing is protected, so all placeholders stay codes.
    """
    codes = unit.codes if protect is not None else ()
    protect = protect or ()
    singles = [(index, code) for index, code in enumerate(codes) if code.kind == "single" and not code.is_break]
    if any(_FORM.match(code.content) for code in codes):
        singles = [each for each in singles if each[1].offset or not _NUMBER.fullmatch(each[1].content.strip(SPACE))]
    indices = [index for index, code in singles if is_readable(code.content, protect)]
    if indices:
        apart = {index for block in find_blocks([code.content for code in codes]) for index in block}
        enclosing = find_enclosing_codes(unit)
        indices = [index for index in indices if index not in apart and codes[index] not in enclosing]
    while indices:
        readable = _read(unit, indices)
        text = readable.unit.text
        known, pairs = set(find_placeholders(text, protect)), zip(indices, readable.spans, strict=True)
        rest = [index for index, span in pairs if _strip(text, span) in known]
        if len(rest) == len(indices):
            return readable
        indices = rest
    return ReadableUnit(unit, unit)


def _read(unit: Unit, indices: Sequence[int]) -> ReadableUnit:
    """Return a unit with these of its codes as text."""
    parts, codes, spans, position, growth = list[str](), list[Code](), list[Span](), 0, 0
    chosen = frozenset(indices)
    for index, code in enumerate(unit.codes):
        if index in chosen:
            parts += [unit.text[position : code.offset], code.content]
            spans.append((code.offset + growth, code.offset + growth + len(code.content)))
            position, growth = code.offset, growth + len(code.content)
            continue
        offset = code.offset + growth
        if code.follows_space and spans and spans[-1][1] == offset and not parts[-1].endswith(SPACE):
            code = replace(code, is_space=True, follows_space=False)  # the placeholder carries the space
            parts.append(SPACE)
            spans[-1] = spans[-1][0], offset + 1
            growth += 1
        codes.append(replace(code, offset=offset))
    text = "".join([*parts, unit.text[position:]])
    return ReadableUnit(unit, replace(unit, text=text, codes=tuple(codes)), indices, spans)


def _cut(text: str, spans: Sequence[Span]) -> str:
    """Return a text without these characters."""
    return "".join(text[start:end] for start, end in complement_spans(spans, len(text)))


def _find_spaces(text: str, start: int, end: int) -> tuple[bool, bool]:
    """Return whether a space, or the end of the text, is before and after a part of it."""
    return text[max(0, start - 1) : start] in ("", SPACE), text[end : end + 1] in ("", SPACE)


def _strip(text: str, span: Span) -> Span:
    """Return the characters of a placeholder without the space that it carries."""
    start, end = span
    return start + (text[start] == SPACE), end - (text[end - 1] == SPACE)


def _move_passage(passage: Passage, cuts: _Cuts) -> Passage:
    """Return a passage of a text that loses characters."""
    start, end = cuts.move(passage.start), cuts.move(passage.end)
    moved = (
        (cuts.move(passage.start + first) - start, cuts.move(passage.start + last) - start, *target)
        for first, last, *target in passage.links or ()
    )
    links = None if passage.links is None else [(one, other, a, b) for one, other, a, b in moved if one < other]
    return Passage(start, end, passage.target, links)
