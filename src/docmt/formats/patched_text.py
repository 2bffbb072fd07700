"""Texts of files: decoded and encoded byte for byte, with regions that hold units.

Byte-order marks and line breaks are kept. Writing replaces the regions of changed units, and all else stays.
"""

from __future__ import annotations

import codecs
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from docmt.core.errors import DocmtError
from docmt.core.plain_text import decode_utf8
from docmt.documents.words import Span, has_letters
from docmt.formats.placeholders import hide_placeholders, is_icu_message, tidy_pieces
from docmt.formats.units import Skipped, Unit, UnitFile

_MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))


Replacement = tuple[int, int, str]
"""start, end and new text"""


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

    def render(self, old: Sequence[Unit], new: Sequence[Unit], replacements: Iterable[Replacement] = ()) -> str:
        """Return the text with other units.

        old: the units as read. replacements: further (start, end, text), outside of regions or within unchanged ones.
        """
        regions: list[tuple[int, int, Region | str]] = [(each.start, each.end, each) for each in self.regions]
        spans = sorted([*regions, *replacements], key=_order)
        starts = [start for start, *_ in spans]

        def render(index: int, start: int, end: int) -> Iterator[str]:
            """Yield text[start:end] with the spans from this index on."""
            position = start
            for number in range(index, len(spans)):
                first, last, patch = spans[number]
                if first > end:
                    break
                if first < position or last > end:
                    continue  # within the previous one, which rendered it, or around this part
                yield self.text[position:first]
                position = last
                if isinstance(patch, str):
                    yield patch
                elif new[patch.unit] == old[patch.unit]:
                    yield from render(number + 1, first, last)
                else:
                    yield from render_unit(number, patch)
            yield self.text[position:end]

        def render_unit(number: int, region: Region) -> Iterator[str]:
            for part in new[region.unit].segments():
                if isinstance(part, str):
                    yield region.escape(part)
                elif span := region.nested.get("/" * (part.kind == "close") + part.id):
                    yield from render(max(number + 1, bisect_left(starts, span[0])), *span)
                    yield part.content[span[1] - span[0] :]  # its content may have a space more
                else:
                    yield part.content

        return "".join(render(0, 0, len(self.text)))


def _order(span: tuple[int, int, Region | str]) -> tuple[int, bool, int]:
    """Return the key that sorts spans by their starts: what is inserted there first, then the longest."""
    start, end, patch = span
    return start, isinstance(patch, Region) or start != end, -end


def find_mark(data: bytes) -> tuple[bytes, str]:
    """Return the byte-order mark at the beginning and the encoding that it stands for, or two empty values."""
    return next(((mark, name) for mark, name in _MARKS if data.startswith(mark)), (b"", ""))


def decode_text(data: bytes, path: str, fallback: str = "") -> tuple[str, tuple[bytes, str]]:
    """Return the text without its byte-order mark, and this mark with the encoding: its own, UTF-8, or `fallback`.

    Raises DocmtError for bytes that are no text in these.
    """
    mark, name = find_mark(data)
    for encoding in [name] if mark else ["utf-8", *filter(None, [fallback])]:
        try:
            text = data[len(mark) :].decode(encoding)
            break
        except UnicodeDecodeError as error:
            if encoding.startswith("utf-16"):
                place = error.start + len(mark)
                raise DocmtError(f"{path}: broken UTF-16 at byte {place}: save it as UTF-8") from error
    else:
        text = decode_utf8(data, path)  # raises with the line and a guess
    if "\0" in text:
        raise DocmtError(f"{path}: it has null bytes, so it is no text, or UTF-16 without a mark: save it as UTF-8")
    return text, (mark, encoding)


class TextFile(UnitFile):
    """A text file with units."""

    def __init__(self, data: bytes, path: str, fallback: str = "", protect: Sequence[str] = ()) -> None:
        """Decode a file: see `decode_text`. protect: see `ReadConfig`."""
        super().__init__()
        self.text, self._encoding = decode_text(data, path, fallback)
        self.path, self.patches, self._protect = path, PatchedText(self.text), protect
        self.spans: list[Span] = []
        """of the string of each unit, see `add_string`"""

    @property
    def is_guessed(self) -> bool:
        """Whether the file is not in UTF-8 or UTF-16, so that its encoding is a guess."""
        return not self._encoding[1].startswith("utf")

    def render(self, units: Sequence[Unit], replacements: Iterable[Replacement] = ()) -> bytes:
        """Return the file with these units in its regions, and further replacements: see `PatchedText.render`.

        A text that its encoding does not have becomes UTF-8 with a byte-order mark.
        """
        text = self.patches.render(self.units, units, replacements)
        for mark, encoding in (self._encoding, (codecs.BOM_UTF8, "utf-8")):
            with suppress(UnicodeEncodeError):
                return mark + text.encode(encoding)
        raise DocmtError(
            f"{self.path}: a translation has half a character (a lone surrogate), which no file can hold: change it"
        )

    def render_strings(
        self, units: Sequence[Unit], quote: Callable[[str, str], str], replacements: Iterable[Replacement] = ()
    ) -> bytes:
        """Return the file with these units as strings. quote: writes a value in the place of an old string."""
        changed = [
            (start, end, quote(tidy_pieces(old, new).render(), self.text[start:end]))
            for (start, end), old, new in zip(self.spans, self.units, units, strict=True)
            if new != old
        ]
        return self.render(units, [*changed, *replacements])

    def add_string(self, text: str, id: str, span: Span) -> bool:
        """Add the unit of a string of a program, with its placeholders as codes, if it has letters. Return whether."""
        if is_icu_message(text):
            self.skipped.append(Skipped("ICU messages", text))
            return False
        unit = hide_placeholders(Unit(text, id=id), protect=self._protect)
        if not has_letters(unit.text):
            return False
        self.add_unit(unit)
        self.spans.append(span)
        return True

    def find_line(self, position: int) -> str:
        """Return the file and the line of a position, for messages."""
        line = self.text.count("\n", 0, position) + 1
        return f"{self.path}, line {line}"
