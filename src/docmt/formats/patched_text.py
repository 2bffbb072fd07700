"""A text with regions that hold units: writing replaces the regions of changed units, and all else stays."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from docmt.formats.units import Code, Unit

Span = tuple[int, int]


@dataclass(frozen=True)
class Region:
    """Part of a text that one unit replaces."""

    start: int
    end: int
    unit: int
    """index of the unit"""
    escape: Callable[[str], str]
    """writes a piece of the unit's text in the format"""
    nested: Mapping[str, Span] = field(default_factory=dict)
    """spans of codes that hold units themselves (notes, tags with a title), by the id of the code; of a close code, by
    "/" and its id"""


class PatchedText:
    """A text with regions. Regions do not overlap, but may lie in a code of another one."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.regions: list[Region] = []

    def add(
        self, start: int, end: int, unit: int, escape: Callable[[str], str], nested: Mapping[str, Span] | None = None
    ) -> None:
        """Add a region."""
        self.regions.append(Region(start, end, unit, escape, nested or {}))

    def render(
        self, old: Sequence[Unit], new: Sequence[Unit], replacements: Iterable[tuple[int, int, str]] = ()
    ) -> str:
        """Return the text with other units.

        old: the units as read. replacements: further (start, end, text), outside of regions or within unchanged ones.
        """
        return _Renderer(self, old, new, replacements).render(0, len(self.text))


class _Renderer:
    def __init__(
        self, text: PatchedText, old: Sequence[Unit], new: Sequence[Unit], replacements: Iterable[tuple[int, int, str]]
    ) -> None:
        self._text, self._old, self._new = text.text, old, new
        spans: list[tuple[int, int, Region | str]] = [(each.start, -each.end, each) for each in text.regions]
        spans += [(start, -end, replacement) for start, end, replacement in replacements]
        self._spans = sorted(spans, key=lambda span: span[:2])
        self._starts = [start for start, *_ in self._spans]

    def render(self, start: int, end: int) -> str:
        """Return text[start:end] with the replacements in it."""
        return self._render(bisect_left(self._starts, start), start, end)

    def _render(self, index: int, start: int, end: int) -> str:
        """Return text[start:end] with the replacements from this index on."""
        parts, position = [], start
        for number in range(index, len(self._spans)):
            first, last, patch = self._spans[number][0], -self._spans[number][1], self._spans[number][2]
            if first > end:
                break
            if first < position or last > end:
                continue  # within the previous one, which rendered it, or around this part
            parts.append(self._text[position:first])
            parts.append(patch if isinstance(patch, str) else self._render_region(number, patch))
            position = last
        return "".join([*parts, self._text[position:end]])

    def _render_region(self, number: int, region: Region) -> str:
        unit = self._new[region.unit]
        if unit == self._old[region.unit]:
            return self._render(number + 1, region.start, region.end)
        return "".join(
            region.escape(part)
            if isinstance(part, str)
            else self._render_nested(number + 1, part, region.nested.get("/" * (part.kind == "close") + part.id))
            for part in unit.segments()
        )

    def _render_nested(self, first: int, code: Code, span: Span | None) -> str:
        """Return a code with the replacements in it. first: index of the one after the region of the code."""
        if span is None:
            return code.content
        start, end = span
        text = self._render(max(first, bisect_left(self._starts, start)), start, end)
        return text + code.content[end - start :]  # its content may have a space more
