"""The changes that a reviewed XLIFF file makes to the sentences of the document that it was written for."""

from __future__ import annotations

import unicodedata
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise

from docmt.core.errors import DocmtError
from docmt.documents import sentence_spans
from docmt.formats.bilingual_files import BilingualUnit, CodeTable
from docmt.formats.language_codes import is_same_language
from docmt.formats.placeholders import tidy_spaces
from docmt.formats.units import SPACE, Unit
from docmt.formats.xliff_exchange import Mark, XliffPiece, XliffTargets, get_text, read_xliff_targets, write_xliff
from docmt.formats.xml_tree import ILLEGAL

Change = tuple[int, str | None, bool, list[list[int]] | None]
"""Number of a sentence among all, its translation (None: the present one), whether it is confirmed, and links that put
its codes where the file has them."""
_Text = tuple[str, list[tuple[int, Mark]]]
"""A text, and codes with their offsets in it."""
_MAX_TEXT = 60
"""Characters of a source in a message."""


@dataclass
class _Group:
    """Sentences of a unit, and the segments of a reviewed file that together have their source."""

    numbers: list[int] = field(default_factory=list)
    """of the sentences in the unit, from 0"""
    now: list[XliffPiece] = field(default_factory=list)
    around: list[XliffPiece] = field(default_factory=list)
    """`now`, and what stands between the sentences"""
    new: list[XliffPiece] = field(default_factory=list)
    size: int = 0
    """characters of the source of `new`"""


def find_changes(
    units: Sequence[BilingualUnit], reviewed: XliffTargets, source_language: str, target_language: str
) -> tuple[list[Change], list[str]]:
    """Return the changes of sentences, and why other translations are left out.

    units: of the document, with its present translations.
    Raises DocmtError for the XLIFF file of another document, or in other languages.
    """
    stated, languages = (reviewed.source_language, reviewed.target_language), (source_language, target_language)
    if not all(map(is_same_language, stated, languages)):
        names = [" to ".join(each) for each in (stated, languages)]
        raise DocmtError(f"{reviewed.path} is a translation from {names[0]}, and the document one from {names[1]}")
    present = read_xliff_targets(write_xliff(units, "", "", *languages), reviewed.path).units
    changes: list[Change] = []
    problems: list[str] = []
    first, is_known = 0, False
    for unit, (name, now) in zip(units, present.items(), strict=True):
        if unit.sentences and (new := reviewed.units.get(name)):
            groups, reasons = _match(now.pieces, new.pieces)
            is_known = is_known or bool(groups)
            for group in groups:
                missing = [piece.is_missing for piece in group.new if piece.is_segment]
                if not any(missing):
                    changes += _compare(_show_placeholders(group, unit), first, target_language)
                elif not all(missing):
                    reasons.append(f"{sum(missing)} of {len(missing)} segments of a sentence have no translation")
            problems += [f"{reviewed.path}, line {new.line}: {reason}" for reason in reasons]
        first += len(unit.sentences)
    if not is_known:
        raise DocmtError(
            f"{reviewed.path} is of another document ({reviewed.original or 'without a name'}): upload it there. If the"
            " server has that no longer, docmt merge puts the translations into the original file."
        )
    return changes, problems


def _match(now: Sequence[XliffPiece], new: Sequence[XliffPiece]) -> tuple[list[_Group], list[str]]:
    """Return the groups of a unit, and why segments are in none: split and merged ones begin and end together."""
    keys = [_make_key(piece) for piece in now]
    borders, text = [0, *accumulate(map(len, keys))], "".join(keys)
    spans: list[tuple[int, int, XliffPiece]] = []
    problems, end = [], 0
    for piece in new:
        key = _make_key(piece)
        start = text.find(key, end)
        while start > end and start not in borders:
            start = text.find(key, start + 1)
        if start >= 0:
            end = start + len(key)
            spans.append((start, end, piece))
        elif piece.is_segment:
            problems.append(f"“{get_text(piece.source).strip()[:_MAX_TEXT]}” is not the source of the document")
    cuts = sorted({*borders} & {border for span in spans for border in span[:2]})
    groups = [_Group() for _ in range(len(cuts) + 1)]
    for start, end, piece in spans:
        group = groups[bisect_right(cuts, start - (start == end))]  # what has no source goes with what is before it
        group.new.append(piece)
        group.size += end - start
    number = 0
    for (start, end), piece in zip(pairwise(borders), now, strict=True):
        group = groups[bisect_right(cuts, start - (start == end and not piece.is_segment))]
        group.around.append(piece)
        if piece.is_segment:
            group.numbers.append(number)
            group.now.append(piece)
            number += 1
    pairs = zip(groups[1:-1], pairwise(cuts), strict=True)
    return [group for group, (start, end) in pairs if group.now and group.size == end - start], problems


def _make_key(piece: XliffPiece) -> str:
    """Return the characters of a source by which it is known: tools change white space and write others alike."""
    return "".join(unicodedata.normalize("NFC", ILLEGAL.sub("", get_text(piece.source))).split())


def _show_placeholders(group: _Group, unit: BilingualUnit) -> _Group:
    """Return a group whose placeholders are text, as models read them."""
    table = CodeTable()
    table.add(unit.source)
    ids = {id for number in group.numbers for id in unit.sentences[number].placeholders}
    chosen = {number: code for code, number in table.numbers.items() if code.id in ids}
    breaks = {number for code, number in table.numbers.items() if code.follows_space}

    def show(tokens: Sequence[str | Mark], is_source: bool = False) -> list[str | Mark]:
        starts = accumulate((len(each) if isinstance(each, str) else 0 for each in tokens), initial=0)
        codes = tuple(
            replace(chosen[each.number], offset=start)
            for each, start in zip(tokens, starts, strict=False)
            if isinstance(each, Mark) and each.number in chosen
        )
        new = Unit(get_text(tokens), codes)
        contents = deque((new if is_source else tidy_spaces(new, unit.source)).codes)
        shown, last = list[str | Mark](), ""
        for each in tokens:
            if isinstance(each, Mark) and each.number in chosen:
                each = contents.popleft().content.lstrip(SPACE * (not last))
            elif isinstance(each, Mark) and each.number in breaks and last not in ("", SPACE):
                shown.append(each)
                each = SPACE
            shown.append(each)
            last = each[-1] if isinstance(each, str) and each else last
        return shown

    now, around, new = (
        [replace(each, source=show(each.source, True), target=show(each.target)) for each in side]
        for side in (group.now, group.around, group.new)
    )
    return replace(group, now=now, around=around, new=new)


def _compare(group: _Group, first: int, language: str) -> Iterator[Change]:
    """Yield the changes of a group. first: number of the first sentence of the unit."""
    is_confirmed = all(piece.is_confirmed for piece in group.new if piece.is_segment)
    text, codes = _read_all(group.new)
    if len(group.now) > 1:  # merged segments: their sentences have no codes of their own
        starts = [0, *(start for start, _ in sentence_spans(text, language)[1 : len(group.now)])]
        texts = [text[start:end].strip() for start, end in pairwise([*starts, len(text)])]
    else:
        texts = [text]
    texts += [""] * (len(group.now) - len(texts))
    for number, old, new in zip(group.numbers, group.now, texts, strict=True):
        before, codes_before = _read(old.target)
        has_codes = len(group.now) == 1 and bool(codes)
        around, codes_around = _read_all(group.around)
        is_moved = has_codes and codes not in (codes_before, codes_around)
        if old.is_missing or new not in (before, around) or is_moved:
            links = _link_runs(_read(old.source, is_exact=True), (new, codes)) if has_codes else None
            yield first + number, new, is_confirmed, links
        elif is_confirmed and not old.is_confirmed:
            yield first + number, None, True, None


def _read_all(pieces: Sequence[XliffPiece]) -> _Text:
    """Return the translation of pieces, which has spaces at a border where the source has them."""
    tokens: list[str | Mark] = []
    for piece in pieces:
        source = get_text(piece.source)
        tokens += [" " * source[:1].isspace(), *piece.target, " " * source[-1:].isspace()]
    return _read(tokens)


def _read(tokens: Sequence[str | Mark], is_exact: bool = False) -> _Text:
    """Return the text, and the codes that docmt wrote with their offsets. Spaces are single, unless `is_exact`."""
    text, codes = "", []
    for token in tokens:
        if isinstance(token, str):
            text += unicodedata.normalize("NFC", ILLEGAL.sub("", token))
        elif token.number:
            codes.append((len(text), token))
    if is_exact:
        return text, codes
    spaces = [each in " \t\r\n" for each in (" ", *text.rstrip(" \t\r\n"))]
    kept = [index for index, pair in enumerate(pairwise(spaces)) if not all(pair)]
    squeezed = "".join(" " if spaces[index + 1] else text[index] for index in kept)
    return squeezed, [(bisect_left(kept, offset), code) for offset, code in codes]


def _link_runs(source: _Text, target: _Text) -> list[list[int]]:
    """Return links of each text between two codes with the source that follows the same code."""
    spans = dict(reversed(_find_runs(*source)))  # the first of each code
    return [[*spans[code], *span] for code, span in _find_runs(*target) if code in spans]


def _find_runs(text: str, codes: Sequence[tuple[int, Mark]]) -> list[tuple[Mark | None, tuple[int, int]]]:
    """Return the characters between two codes, with the code before them."""
    borders: list[tuple[int, Mark | None]] = [(0, None), *codes, (len(text), None)]
    return [(code, (start, end)) for (start, code), (end, _) in pairwise(borders) if start < end]
