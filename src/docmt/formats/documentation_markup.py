"""Inline markup of documentation in message catalogs: reStructuredText and POD, in which po4a also writes manual pages.

The sources are https://docutils.sourceforge.io/docs/ref/rst/restructuredtext.html#inline-markup and perlpod.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from docmt.formats.placeholders import hide_placeholders
from docmt.formats.units import Code, Unit, UnitBuilder


class Markup(NamedTuple):
    """A language of inline markup."""

    comments: str
    """regular expression of comments that name it"""
    texts: str
    """regular expression of texts that have it"""
    singles: str
    """verbose regular expression of what is one code"""
    pairs: str
    """verbose regular expression of what encloses text, with three groups: beginning, text and end"""
    joins_words: bool
    """whether a word may touch it"""


_TEXT_ROLES = "abbr|dfn|emphasis|guilabel|menuselection|strong|title|title-reference|t"
_ANGLES = r"<(?:[^<>]|<(?:[^<>]|<[^<>]*>)*+>)*+>"
MARKUP = (
    Markup(
        comments=r"^#[:.,].*(?:\.rst|\.rest|\brst)\b",
        texts=r"``[^`\s][^`]*``(?!`)|:[a-z][\w.+-]*:`[^`]+`|`[^`]+`__?(?!\w)",
        singles=rf"""
            ``.+?``(?!`) | (?:\\[^\w\s])+\w* | \\(?:\s|$) | ::\s*\Z  # literals, escapes
          | _`[^`]+` | \|[^\s|](?:[^|]*[^\s|])?\|_{{0,2}} | \[(?:\#[\w-]*|\*|[\w.-]+)\]_  # targets, |x|, notes
          | (?!:(?:{_TEXT_ROLES}):`[^&`]*`)(?::[\w.+-]+)+:`[^`<]+`  # :ref:`target`
          | (?<![`:])`(?=\S)[^`<']+(?<=\S)`(?!_)(?::[\w.+-]+:)? | (?<![\w`])[A-Za-z][\w.-]*?__?(?!\w)  # `text`, target_
        """,
        pairs=rf"""
            ((?:(?::[\w.+-]+)+:)?`)([^`<]+?)(\s*<[^`<>]+>`_{{0,2}})  # :ref:`text <target>`, `text <address>`_
          | (:(?:{_TEXT_ROLES}):`)([^`&]+)(`) | (`)([^`]+)(`__?)
          | (?<!\w)(\*\*)(?=\S)(.+?)(?<=\S)(\*\*)(?!\w) | (?<![\w*])(\*)(?=[^\s*])([^*]+?)(?<=\S)(\*)(?![\w*])
        """,
        joins_words=False,
    ),
    Markup(
        comments=r"^#:.*\.pod\b|^#\. type: (?:=|textblock)",
        texts=r"(?<![\w<])(?:[BCFI]<[^<>\s][^<>]*>|L<[^<>]+[|/][^<>]+>|E<(?:lt|gt|sol|verbar|\d+)>)",
        singles=rf"""
            [CEFXZ](?:<<<\s.+?\s>>>|<<\s.+?\s>>|{_ANGLES}) | L<[^<>|]*>
          | [BI]<[^\s<>]+>,?\s*\(\d\w?\)  # B<ls>(1)
          | [BI]<(?:[A-Z\d_]{{2,}}|[^\s<>]*[^\w\s<>][^\s<>]*)>(?:=?[BI]<[^\s<>]+>)*  # B<--color>=I<WHEN>
        """,
        pairs=rf"(L<)([^<>|]+)(\|[^<>]*>) | ([BIS]<)((?:[^<>]|{_ANGLES})+)(>)",
        joins_words=True,
    ),
)


def find_markup(comments: str, texts: Iterable[str]) -> Markup | None:
    """Return the markup of a catalog. comments: its lines; texts: its messages."""
    messages = "\n\n".join(texts)
    for markup in MARKUP:
        if re.search(markup.comments, comments, re.MULTILINE) or re.search(markup.texts, messages):
            return markup
    return None


def hide_markup(text: str, markup: Markup, id: str) -> Unit:
    """Return the unit of a message, with its markup and its placeholders as codes."""
    builder = UnitBuilder()
    _add(builder, text, re.compile(f"{markup.singles}|{markup.pairs}", re.DOTALL | re.VERBOSE))
    return hide_placeholders(builder.finish(id), [f"(?sx:{markup.singles})"])


def _add(builder: UnitBuilder, text: str, pattern: re.Pattern[str]) -> None:
    position = 0
    for match in pattern.finditer(text):
        if groups := [group for group in match.groups() if group]:
            builder.add_text(text[position : match.start()])
            id, end = f"m{builder.code_count + 1}", f" <{groups[1]}_>`_" if groups[2] == "`_" else groups[2]
            builder.open(id, groups[0], can_copy=end[-1] in "*>")
            _add(builder, groups[1], pattern)
            builder.close(id, end)
            position = match.end()
    builder.add_text(text[position:])


def separate_words(unit: Unit) -> str:
    """Return a message with a backslash and a space between each word and the markup of reStructuredText beside it."""
    parts: list[str] = []
    last: str | Code = ""
    for part in unit.segments():
        before, after = last if isinstance(last, str) else last.content, part if isinstance(part, str) else part.content
        is_end = isinstance(last, Code) and last.kind != "open" and before[-1:] in ("`", "*", "|", "_")
        is_start = isinstance(part, Code) and part.kind != "close" and re.match(r"[`*|]|:\w", after) is not None
        is_glued = (is_end and after[:1].isalnum()) or (is_start and before[-1:].isalnum())
        parts += ["\\ " * is_glued, after]
        last = part
    return "".join(parts)
