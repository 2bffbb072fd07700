"""Find the parts of a text that no language changes: web and mail addresses, and paths of files."""

from __future__ import annotations

import re
from collections.abc import Collection

from docmt.documents.words import Span, find_words

_UNSPACED = r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3000-\u9fff\uff00-\uffef"
"""Scripts without spaces, whose words may stand beside an address at once."""
_NO_URL = rf"\s<>\"'“”«»{_UNSPACED}"
ADDRESS = re.compile(
    rf"(?:https?|ftp)://[^{_NO_URL}]+|(?:\b|(?<=[{_UNSPACED}]))www\.[^{_NO_URL}]+|"
    rf"(?:(?<![\w.+-])|(?<=[{_UNSPACED}]))(?:(?![{_UNSPACED}])[\w.+-]){{1,64}}@"
    r"(?a:[\w-]{1,63}(?:\.[\w-]{1,63})+)"
)
"""A web or mail address, with punctuation that follows it."""
_PATH = (
    r"(?<![\w/\\.:~<+-])(?a:"
    rf"[A-Za-z]:\\[^|?*{_NO_URL}]+"  # C:\Users\anna
    r"|(?:~|\.{1,2})/[\w.+-]+(?:/[\w.+-]+)*/?"  # ~/notes, ../notes
    r"|/[\w.+-]+(?:/[\w.+-]+)+/?"  # /srv/www
    r"|[\w-]+(?:/[\w.+-]+)*/[\w+-]+\.[a-z][a-z0-9]{1,4}\b"  # docs/files.md
    r")"
)
_ADDRESS_OR_PATH = re.compile(f"{ADDRESS.pattern}|{_PATH}")
_END = ".,;:!?)]}’"


def find_addresses(text: str, with_paths: bool = False) -> list[Span]:
    """Return the web and mail addresses, without the punctuation after them. with_paths: also paths of files."""
    if not any(mark in text for mark in ("://", "@", "www.", *("/\\" if with_paths else ""))):
        return []
    matches = (_ADDRESS_OR_PATH if with_paths else ADDRESS).finditer(text)
    return [(match.start(), match.start() + len(_strip_punctuation(match[0]))) for match in matches]


def find_words_and_addresses(text: str, addresses: Collection[str]) -> list[Span]:
    """Return the words of a text as `find_words` does, each of these addresses and paths as one word."""
    words = find_words(text)
    starts, ends = {start for start, _ in words}, {end for _, end in words}
    found = find_addresses(text, with_paths=True) if addresses else []
    whole = [(a, b) for a, b in found if a in starts and b in ends and text[a:b] in addresses]
    inside = {place for start, end in whole for place in range(start, end)}
    return sorted([*whole, *(span for span in words if span[0] not in inside)])


def _strip_punctuation(address: str) -> str:
    """Return an address without the punctuation of its sentence; a bracket that it opens itself stays closed."""
    stripped = address.rstrip(_END)
    is_open = stripped.count("(") > stripped.count(")")
    return stripped + ")" if is_open and address.startswith(")", len(stripped)) else stripped
