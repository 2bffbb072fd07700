"""Paragraphs of runs (ECMA-376: `w:r`, `a:r`) as units.

A run is a pair whose id depends on its format, so adjoining runs with equal format are one. A changed paragraph is
written as new runs around its text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from itertools import groupby
from operator import itemgetter
from typing import Any

from docmt.documents.words import Span
from docmt.formats.units import Code, Unit, UnitBuilder
from docmt.formats.xml_tree import COMMENT, Element, escape_text

_LINE_FEEDS = re.compile(r"[ \t]*[\r\n]+[ \t\r\n]*")
_LINE_FEEDS_AND_TABS = re.compile(r"[ ]*[\t\r\n]+[ \t\r\n]*")
Format = tuple[tuple[Any, ...], ...] | None
"""Attributes and elements of a format; None for no format."""
_PLAIN_ATTRIBUTES = ("lang", "altLang", "dirty", "err", "smtClean", "noProof", "bmk")
_PLAIN_ELEMENTS = ("lang", "noProof", "proofErr", "extLst")
"""Attributes and elements of a format that do not show."""


@dataclass
class RunLayout:
    """How the runs of a paragraph are written."""

    text_start: str
    """start tag of text in a run"""
    text_end: str
    run_end: str
    heads: dict[str, str] = field(default_factory=dict)
    """start tag and format of a run, by the id of its pair"""
    inner: dict[str, str] = field(default_factory=dict)
    """markup of single codes that belong into a run, such as tabs, by id"""

    def lay_out(self, unit: Unit, set_language: Callable[[str], str]) -> Unit:
        """Return the unit with all markup as single codes: runs open where text begins, and none is empty.

        set_language: changes the head of a run.
        """
        segments = list(unit.segments())
        parts: list[tuple[str, str | Code]] = []  # each with its run; empty: between runs
        previous = ""
        opened: list[str] = []
        for number, part in enumerate(segments):
            if isinstance(part, Code) and part.kind != "single" and part.id in self.heads:
                if part.kind == "open":
                    opened.append(part.id)
                else:
                    opened.pop()
            elif isinstance(part, str) or part.id in self.inner:
                # A pair that the projection put back encloses the others, so the outermost is the one that counts.
                previous = opened[0] if opened else self._find_neighbor(previous, segments[number:])
                parts.append((previous, part))
            else:
                parts.append(("", part))
        builder = UnitBuilder()
        for run, inside in groupby(parts, key=itemgetter(0)):
            if run:
                builder.add_single("", set_language(self.heads[run]))
            for is_text, group in groupby((part for _, part in inside), key=lambda part: isinstance(part, str)):
                if is_text:
                    builder.add_single("", self.text_start)
                for part in group:
                    if isinstance(part, str):
                        builder.add_text(part)
                    elif content := self.inner[part.id] if run else part.content:
                        builder.add_single("/" * (part.kind == "close") + part.id, content)
                if is_text:
                    builder.add_single("", self.text_end)
            if run:
                builder.add_single("", self.run_end)
        return builder.finish(unit.id)

    def _find_neighbor(self, previous: str, following: Iterable[str | Code]) -> str:
        """Return the run of text outside of runs: the plainer one of the runs before and after it."""
        pairs = (part for part in following if isinstance(part, Code) and part.kind != "single")
        later = (part.id for part in pairs if part.id in self.heads)
        near = [id for id in (previous, next(later, "")) if id] or list(self.heads)
        return min(near, key=lambda id: len(self.heads[id]))


class RunBuilder:
    """Builder of the unit of a paragraph from its runs and the markup between them."""

    def __init__(self, prefix: str, keep_space: bool) -> None:
        """prefix: of the tags of the paragraph, with its colon. keep_space: whether texts need xml:space."""
        space = ' xml:space="preserve"' if keep_space else ""
        self.layout = RunLayout(f"<{prefix}t{space}>", f"</{prefix}t>", f"</{prefix}r>")
        self.nested: dict[str, Span] = {}
        self._builder = UnitBuilder(escape=escape_text)
        self._ids: dict[Format, str] = {}
        self._run = ""

    def add_text(self, key: Format, head: str, text: str) -> None:
        """Add text of a run. key: its format. head: its start tag and format as markup."""
        if text:
            self._open_run(key, head)
            self._builder.add_text(text)

    def add_inner(self, key: Format, head: str, content: str, is_space: bool = False, span: Span | None = None) -> None:
        """Add a single code of a run. span: of a code that holds units itself."""
        self._open_run(key, head)
        id = f"i{self._builder.code_count}"
        self.layout.inner[id] = content
        whole = f"{self.layout.text_end}{content}{self.layout.text_start}"
        self._builder.add_single(id, whole, is_space)
        if span:
            self.nested[id] = span

    def add_single(self, content: str, is_space: bool = False, span: Span | None = None) -> None:
        """Add a single code between runs. span: of a code that holds units itself."""
        self._close_run()
        id = str(self._builder.code_count)
        self._builder.add_single(id, content, is_space)
        if span:
            self.nested[id] = span

    def open(self, content: str, can_copy: bool = False) -> str:
        """Open a pair around runs. Return its id."""
        self._close_run()
        id = str(self._builder.code_count)
        self._builder.open(id, content, can_copy)
        return id

    def close(self, id: str, content: str) -> None:
        """Close a pair around runs."""
        self._close_run()
        self._builder.close(id, content)

    def finish(self) -> Unit:
        """Return the unit."""
        self._close_run()
        unit, plain = self._builder.finish(), self._find_plain()
        return replace(unit, codes=tuple(replace(code, is_plain=code.id == plain) for code in unit.codes))

    def _find_plain(self) -> str:
        """Return the id of the run whose format is within those of all others, or an empty string."""
        formats = {id: frozenset(part for parts in key or () for part in parts) for key, id in self._ids.items()}
        common = frozenset.intersection(*formats.values()) if formats else frozenset()
        return next((id for id, each in formats.items() if each == common), "")

    def _open_run(self, key: Format, head: str) -> None:
        id = self._ids.setdefault(key, f"r{len(self._ids)}")
        if id != self._run:
            self._close_run()
            self.layout.heads.setdefault(id, head)
            is_mark = 'vertAlign w:val="superscript"' in head
            self._builder.open(id, head + self.layout.text_start, is_mark=is_mark)
            self._run = id

    def _close_run(self) -> None:
        if self._run:
            self._builder.close(self._run, self.layout.text_end + self.layout.run_end)
            self._run = ""


def join_lines(text: str, has_tabs: bool = False) -> str:
    """Return the text of a run without the line feeds of its markup, which programs show as a space.

    has_tabs: whether they show a tab as such, as PowerPoint does.
    """
    return (_LINE_FEEDS if has_tabs else _LINE_FEEDS_AND_TABS).sub(" ", text)


def format_key(element: Element | None) -> Format:
    """Return a value that is equal for equal formats of runs; None for no format."""
    if element is None:
        return None
    attributes = sorted((name, value) for name, value in element.attributes.items() if name not in _PLAIN_ATTRIBUTES)
    attributes = [pair for pair in attributes if "rsid" not in pair[0] and not pair[0].startswith("xmlns")]
    shown = [each for each in element.elements if each.name != COMMENT and each.local_name not in _PLAIN_ELEMENTS]
    children = tuple((child.name, format_key(child)) for child in shown)
    return (tuple(attributes), children) if attributes or children else None
