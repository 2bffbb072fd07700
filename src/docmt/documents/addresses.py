"""Web and mail addresses and paths of files, which no language changes and models damage.

They are translated as years and put back. A model copies a year: no language writes it with separators, and every
corpus has many. The measurements are in docs/contributing/benchmarks/files.md.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import NamedTuple

from docmt.documents.words import Span, WordLink, find_words, has_letters

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
_YEARS = [str(1801 + (56 + 11 * number) % 99) for number in range(99)]
"""1857, 1868, 1879 and so on: far from each other, so that a model does not confuse those of a sentence."""
_YEAR = re.compile(r"(?<!\d)\d{4}(?!\d)")
"""With digits of any script, because models into Arabic or Persian write theirs."""
_LAST_MARKS = re.compile(r"[.!?…。！？]*\s*\Z")


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


class _Edit(NamedTuple):
    """Characters of a text, and what replaces them."""

    span: Span
    text: str
    address: Span
    """characters of the source sentence"""

    @property
    def growth(self) -> int:
        return len(self.text) - (self.span[1] - self.span[0])


def hide_addresses(sentence: str) -> str:
    """Return a source sentence with a year for each address and path."""
    return _apply(sentence, _choose_years(sentence))


def restore_addresses(target: str, source: str) -> str:
    """Return the translation of `hide_addresses(source)` with the addresses.

    An address whose year is not translated goes to the end. Addresses alone, with numbers and signs beside them, are
    copied.
    """
    hidden = _choose_years(source)
    if not hidden:
        return target
    return _apply(target, _find_years(target, hidden, source)) if has_letters(_apply(source, hidden)) else source


def hide_pair(source: str, target: str) -> tuple[str, str]:
    """Return a source sentence and its translation with the same year for each address that both have."""
    hidden, edits = _find_common(source, target)
    return _apply(source, hidden), _apply(target, edits)


def restore_links(links: Sequence[WordLink], source: str, target: str) -> tuple[WordLink, ...]:
    """Return the links of the words of a sentence and its translation from those of `hide_pair`.

    The words of an address are linked with themselves.
    """
    hidden, edits = _find_common(source, target)
    if not hidden:
        return tuple(links)
    if target == source and not has_letters(_apply(source, hidden)):
        return tuple(WordLink(span, span, 1.0, True) for span in find_words(source))
    return tuple(_move_links(links, _invert(hidden, source), _invert(edits, target), source))


def _choose_years(sentence: str) -> list[_Edit]:
    """Return the edits that put years, which the sentence does not have, in place of its addresses."""
    spans = find_addresses(sentence, with_paths=True)
    spans = [
        (start, end)
        for start, end in spans
        if not re.search(r"\d", sentence[start - 1 : start] + sentence[end : end + 1])
    ]
    digits = "".join(str(int(each)) for each in sentence if each.isdecimal()) if spans else ""
    years = (year for year in _YEARS if year not in digits)  # also not as 1,857, which some languages write as 1857
    return [_Edit(span, year, span) for span, year in zip(spans, years, strict=False)]


def _apply(text: str, edits: Sequence[_Edit]) -> str:
    """Return the text after edits in the order of their spans."""
    parts, position = [], 0
    for edit in edits:
        parts += [text[position : edit.span[0]], edit.text]
        position = edit.span[1]
    return "".join([*parts, text[position:]])


def _find_common(source: str, target: str) -> tuple[list[_Edit], list[_Edit]]:
    """Return the edits of a source sentence and its translation that put years in place of their common addresses."""
    hidden, by_address = _choose_years(source), dict[str, list[_Edit]]()
    for edit in hidden:
        by_address.setdefault(source[slice(*edit.span)], []).append(edit)
    longest_first = "|".join(map(re.escape, sorted(by_address, key=len, reverse=True)))
    edits = []
    for match in re.finditer(longest_first, target) if hidden else ():
        equal = by_address[match[0]]  # an address that comes several times has several years
        edits.append((equal.pop(0) if len(equal) > 1 else equal[0])._replace(span=match.span()))
    common = {edit.text for edit in edits}
    return [edit for edit in hidden if edit.text in common], edits


def _invert(edits: Sequence[_Edit], text: str) -> list[_Edit]:
    """Return the edits that put the addresses back into a text."""
    inverse, shift = [], 0
    for (start, end), year, address in edits:
        inverse.append(_Edit((start + shift, start + shift + len(year)), text[start:end], address))
        shift += len(year) - (end - start)
    return inverse


def _find_years(target: str, hidden: Sequence[_Edit], source: str) -> list[_Edit]:
    """Return the edits that put the addresses of a source sentence into its translation."""
    addresses = {edit.text: edit.address for edit in hidden}
    missing = dict(addresses)
    edits = []
    for match in _YEAR.finditer(target):
        year = str(int(match[0]))
        if year not in addresses:
            continue
        missing.pop(year, None)
        start, end = addresses[year]
        before, after = target[: match.start()], target[match.end() :]
        text = f"{' ' * before[-1:].isalpha()}{source[start:end]}{' ' * after[:1].isalpha()}"
        edits.append(_Edit(match.span(), text, (start, end)))
    last = _LAST_MARKS.search(target)
    assert last is not None  # it also matches nothing
    for start, end in missing.values():
        space = " " * bool(edits or last.start())  # not at the beginning
        edits.append(_Edit((last.start(), last.start()), f"{space}{source[start:end]}", (start, end)))
    return edits


def _move_links(
    links: Sequence[WordLink], sources: Sequence[_Edit], targets: Sequence[_Edit], source: str
) -> list[WordLink]:
    """Return the links of a sentence with its addresses: those of other words, moved, and those of equal words."""
    moved = [
        replace(link, source=_move(link.source, sources), target=_move(link.target, targets))
        for link in links
        if not any(link.target[0] < edit.span[1] and edit.span[0] < link.target[1] for edit in targets)
    ]
    shift = 0
    for edit in targets:
        start, end = edit.address
        first = edit.span[0] + shift + edit.text.index(source[start:end])
        for one, last in find_words(source[start:end]):
            moved.append(WordLink((start + one, start + last), (first + one, first + last), 1.0, True))
        shift += edit.growth
    return sorted(moved, key=lambda link: link.target)


def _move(span: Span, edits: Sequence[_Edit]) -> Span:
    """Return where the characters of a word are after edits."""
    start = span[0] + sum(edit.growth for edit in edits if edit.span[1] <= span[0])
    return start, span[1] + sum(edit.growth for edit in edits if edit.span[0] < span[1])
