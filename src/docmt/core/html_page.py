"""Pages of reports in HTML: one file that requests and runs nothing, for light and dark screens of any width."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from importlib import resources
from string import Template

from docmt.core.errors import printable


def render_page(title: str, sections: Iterable[str]) -> str:
    """Return a page of sections in HTML, under its title."""
    template = resources.files("docmt.core").joinpath("report_page.html").read_text(encoding="utf-8")
    return Template(template).substitute(title=escape_text(title), sections="\n".join(sections))


def escape_text(text: str) -> str:
    """Return untrusted text without markup or control characters."""
    return escape(printable(text))


def mark_spans(text: str, spans: Iterable[tuple[int, int]]) -> str:
    """Return escaped text with these spans (start, end) highlighted."""
    parts, position = [], 0
    for first, end in sorted(spans):
        start = max(first, position)  # spans may overlap
        if start < end:
            parts += [escape_text(text[position:start]), f"<mark>{escape_text(text[start:end])}</mark>"]
            position = end
    return "".join([*parts, escape_text(text[position:])])
