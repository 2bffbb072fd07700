"""Text that must come out as it is: addresses, placeholders, codes, foreign scripts, signs. No language changes it.

The kinds are in protected_text.yaml. A sentence is translated with a year in place of each, which is put back: a model
copies a year, which no language writes with separators, and every corpus has many. Signs are taken out instead.
What the model does not copy is put beside the words that it stood beside, so nothing is lost. What is left of a year is
removed, so nothing is invented. The measurements are in docs/contributing/benchmarks/files.md.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache, lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

from docmt.core.errors import DocmtError
from docmt.core.grouping import group_pairs
from docmt.core.plain_text import read_text
from docmt.core.settings import quote, read_package_yaml
from docmt.documents.numbers import is_similar, read_digits, repair_numbers
from docmt.documents.words import Span, WordLink, find_words, has_letters, overlaps

_CLASSES = {
    # scripts without spaces, whose words may stand beside an address at once
    r"\p{unspaced}": r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3000-\u9fff\uff00-\uffef",
    # emoji, arrows, shapes, dingbats, mathematics, private use; but no minus
    r"\p{sign}": (
        r"\u00a9\u00ae\u2020-\u2023\u203b\u2117\u2120\u2122\u2190-\u2211\u2213-\u23ff\u2460-\u24ff\u2500-\u2bff"
        r"\u3013\u3030\u303d\u3297\u3299\ue000-\uf8ff\U0001f000-\U0001faff\U000e0020-\U000e007f"
    ),
    # other scripts than the Latin one
    r"\p{foreign}": (
        r"[\u0370-\u1cff\u1f00-\u1fff\u2c80-\u2ddf\u2e80-\u2fdf\u3005-\u3007\u3040-\ua69f\ua840-\uab2f\uabc0-\ud7ff"
        r"\uf900-\ufaff\ufb1d-\ufdff\ufe70-\ufefc\uff66-\uffdc\U00010000-\U0001bfff\U00020000-\U0003ffff]"
    ),
    r"\p{months}": "Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec",
}
"""Parts of patterns by their names."""
_UNSPACED = re.compile(rf"[{_CLASSES[chr(92) + 'p{unspaced}']}]")
_END = ".,;:!?)]}’"
_YEARS = [str(1801 + (56 + 11 * number) % 99) for number in range(99)]
"""1857, 1868, 1879 and so on: far from each other, so that a model does not confuse those of a sentence."""
_DIGITS = re.compile(r"\d{1,3}(?:[.,'’ \u00a0\u202f]\d{3}(?!\d))+|\d+")
"""With digits of any script, because models into Arabic or Persian write theirs. 1857 100 are two numbers."""
_LAST_MARKS = ".!?…。！？"
_UNITS = re.compile(r"[%°€£](?=[\s.,;:!?)\]\"'”»]|$)")
"""Of a placeholder that stands for a number, as in ${price} and {share}%, where $ and % belong to it."""
_AFTER_KEY = ("\ufe0f", "\u20e3")
"""What makes a digit the sign of a key."""
_ENDING = re.compile(r"(?:st|nd|rd|th|e?s|px|x)(?!\w)")
"""Letters after a protected text that a translation need not have: {n}th."""
_JOINING = "'’-\u2011"
_CLOSING = ")]}»”’.,;:!?…%"


_OWN: dict[str, Any] = {"name": "own pattern"}
_CONJUNCTIONS = {
    **{"da": ("og", "eller"), "de": ("und", "oder"), "en": ("and", "or"), "es": ("y|e", "o|u"), "fr": ("et", "ou")},
    **{"it": ("e|ed", "o|od"), "nb": ("og", "eller"), "nl": ("en", "of"), "pt": ("e", "ou"), "sv": ("och", "eller")},
}
"""Words that a model reads in place of & and of / between words, by language."""
_CONJUNCTION = re.compile(r"(?<=[^\W_] )&(?= [^\W_])|(?<=[^\W\d_] )/(?= [^\W\d_])")


class Protected(NamedTuple):
    """A protected part of a text."""

    span: Span
    kind: str
    """name of its kind"""
    is_sign: bool


@cache
def load_kinds() -> list[dict[str, Any]]:
    """Return the kinds with their patterns, whose character classes are complete, in the order that they are tried."""
    kinds: list[dict[str, Any]] = read_package_yaml(__package__, "protected_text.yaml", typed=True)
    for kind in kinds:
        for name, characters in _CLASSES.items():
            kind["patterns"] = [pattern.replace(name, characters) for pattern in kind["patterns"]]
    return kinds


def read_patterns(path: str) -> list[str] | None:
    """Return the regular expressions of a file, one a line, without comments; None for `none`.

    Raises DocmtError for a file that cannot be read, and for a line that is no regular expression.
    """
    if path == "none":
        return None
    patterns = []
    for number, line in enumerate(read_text(path).splitlines() if path else (), 1):
        try:
            if line.strip() and not line.startswith("#"):
                patterns.append(re.compile(line.strip()).pattern)
        except re.error as error:
            raise DocmtError(f"{path}, line {number}: {error} in {quote(line)}: give a regular expression") from error
    return patterns


@cache
def _select_kinds(language: str, in_messages: bool) -> list[dict[str, Any]]:
    """Return the kinds of the texts of a language."""
    language = re.split(r"[-_]", language.lower())[0]
    kinds: list[dict[str, Any]] = []
    for kind in load_kinds():
        is_known = language in kind.get("languages", [language])
        is_other = "other_languages" not in kind or (language and language not in kind["other_languages"])
        if is_known and is_other and (in_messages or kind.get("in") != "messages"):
            kinds.append(kind)
    return kinds


@cache
def _compile(patterns: tuple[tuple[str, ...], ...]) -> re.Pattern[str]:
    """Return the pattern that has a group for each of these kinds."""
    return re.compile("|".join(f"(?P<k{number}>{'|'.join(each)})" for number, each in enumerate(patterns)))


def _find_leftmost(text: str, patterns: Sequence[re.Pattern[str]]) -> Iterator[tuple[int, re.Match[str]]]:
    """Yield the matches of patterns that are not empty, without overlaps, and the number of the pattern of each.

    Where several begin at one place, that of the first pattern counts.
    """
    position, heads = 0, [_search(pattern, text, 0) for pattern in patterns]
    while found := [(head.start(), number, head) for number, head in enumerate(heads) if head]:
        _, number, match = min(found)
        yield number, match
        position = match.end()
        for other, head in enumerate(heads):
            if head and head.start() < position:
                heads[other] = _search(patterns[other], text, position)


def _search(pattern: re.Pattern[str], text: str, position: int) -> re.Match[str] | None:
    return next((match for match in pattern.finditer(text, position) if match[0]), None)


def find_protected(
    text: str, language: str = "", *, in_messages: bool = False, extra: Sequence[str] = ()
) -> list[Protected]:
    """Return the protected parts of a text, in order.

    language: code of its language; empty: any. in_messages: whether it is a string of a program. extra: patterns of
    the user, which come first.
    """
    known = _select_kinds(language, in_messages)
    kinds = [kind for kind in known if "needs" not in kind or re.search(kind["needs"], text)]
    found: list[Protected] = []
    # Patterns of the user are not joined: they may have flags, and groups with numbers or names.
    patterns = [*map(re.compile, extra)]
    if kinds:
        patterns.append(_compile(tuple(tuple(kind["patterns"]) for kind in kinds)))
    for number, match in _find_leftmost(text, patterns):
        kind = _OWN if number < len(extra) else kinds[int((match.lastgroup or "k0")[1:])]
        content = _strip_punctuation(match[0]) if kind["name"] in ("address", "path") else match[0]
        if content:
            start, end = match.start(), match.start() + len(content)
            if kind["name"].endswith(("tag", "placeholder")) and not kind.get("sign"):
                start -= text[start - 1 : start] in ("$", "€", "£") and (not found or found[-1].span[1] < start)
                end += bool(_UNITS.match(text, end))
            if found and start < found[-1].span[1]:  # the % of {0}%.2f is of the second one
                found[-1] = found[-1]._replace(span=(found[-1].span[0], start))
            found.append(Protected((start, end), kind["name"], bool(kind.get("sign"))))
    return found


def find_words_and_protected(text: str, whole: Collection[str]) -> list[Span]:
    """Return the words of a text as `find_words` does, each of these protected texts as one word."""
    words = find_words(text)
    starts, ends = {start for start, _ in words}, {end for _, end in words}
    spans = [each.span for each in find_protected(text)] if whole else []
    undivided = [(a, b) for a, b in spans if a in starts and b in ends and text[a:b] in whole]
    inside = {place for start, end in undivided for place in range(start, end)}
    return sorted([*undivided, *(span for span in words if span[0] not in inside)])


def _strip_punctuation(address: str) -> str:
    """Return an address without the punctuation of its sentence; a bracket that it opens itself stays closed."""
    stripped = address.rstrip(_END)
    for opening, closing in ("()", "[]", "{}"):
        if stripped.count(opening) > stripped.count(closing) and address.startswith(closing, len(stripped)):
            stripped += closing
    return stripped


class _Edit(NamedTuple):
    """Characters of a text, and what replaces them."""

    span: Span
    text: str
    item: Span
    """the protected text, in characters of the source sentence"""

    @property
    def growth(self) -> int:
        return len(self.text) - (self.span[1] - self.span[0])


class Protection:
    """Hides the protected texts of sentences from a model, and puts them back into the translations."""

    def __init__(self, languages: tuple[str, str] = ("", ""), patterns: Sequence[str] = ()) -> None:
        """languages: codes of source and target; empty: any. patterns: of the user, see `find_protected`."""
        self._languages, self.patterns = languages, tuple(patterns)
        words = [_CONJUNCTIONS.get(re.split("[-_]", code.lower())[0], ()) for code in languages]
        self._conjunctions = dict(zip("&/", zip(*words, strict=False), strict=False))

    def hide(self, sentence: str) -> str:
        """Return a source sentence with a year for each protected text, and without signs."""
        return _apply(sentence, self._choose(sentence))

    def restore(self, target: str, source: str) -> str:
        """Return the translation of `hide(source)` with all protected texts.

        Sentences without words are copied. A number of the source that the translation spells wrongly is written as in
        the source.
        """
        edits = self._choose(source)
        hidden = _apply(source, edits)
        if not has_letters(hidden):
            return source
        target = repair_numbers(hidden, target, self._languages)
        if "\ufffd" not in source:
            target = target.replace("\ufffd", "")
        signs = self._restore_signs(target, edits, source, hidden)
        return _apply(target, _put_back(target, edits, source, hidden, signs)) if edits else target

    def hide_pair(self, source: str, target: str) -> tuple[str, str]:
        """Return a source sentence and its translation with the same year for each protected text that both have."""
        hidden, edits = self._find_common(source, target)
        return _apply(source, hidden), _apply(target, edits)

    def restore_links(self, links: Sequence[WordLink], source: str, target: str) -> tuple[WordLink, ...]:
        """Return the links of the words of a sentence and its translation from those of `hide_pair`.

        The words of a protected text are linked with themselves.
        """
        hidden, edits = self._find_common(source, target)
        if target == source and not has_letters(_apply(source, hidden)):
            return tuple(WordLink(span, span, 1.0, True) for span in find_words(source))
        if not hidden:
            return tuple(links)
        return tuple(_move_links(links, _invert(hidden, source), _invert(edits, target), source))

    def _choose(self, sentence: str) -> list[_Edit]:
        """Return the edits that put years, which the sentence does not have, in place of its protected texts."""
        found = self._find_parts(sentence)
        digits = "".join(str(int(each)) for each in sentence if each.isdecimal()) if found else ""
        years = (year for year in _YEARS if year not in digits)  # also not as 1,857, which some languages write as 1857
        edits: list[_Edit] = []
        for part in found:
            if part.kind == "conjunction":
                edits.append(_Edit(part.span, self._read_conjunction(sentence[slice(*part.span)]), part.span))
                continue
            item = part.span if part.is_sign else _widen(sentence, part.span)
            touches = bool(edits) and item[0] <= edits[-1].item[1]
            if part.is_sign and not (touches and edits[-1].text.strip()):
                edits.append(_take_out(sentence, part.span))
                continue
            year = ""
            if touches:  # those that touch are one: {a}{b}, <b>{a}</b>
                year, item = edits[-1].text.strip(), (edits.pop().item[0], item[1])
            year = year or next(years, "")
            left, right = _touch_letters(sentence, item)
            edits.append(_Edit(item, f"{' ' * left}{year}{' ' * right}", item))
        return _part(sentence, edits)

    def _find_parts(self, sentence: str) -> list[Protected]:
        """Return the protected parts of a sentence. Signs that stand for a conjunction have another kind."""
        found = find_protected(sentence, self._languages[0], extra=self.patterns)
        if self._conjunctions and any(part.is_sign and sentence[slice(*part.span)] in "&/" for part in found):
            spans = {match.span() for match in _CONJUNCTION.finditer(sentence)}
            found = [part._replace(kind="conjunction") if part.span in spans else part for part in found]
        return found

    def _read_conjunction(self, sign: str, side: int = 0) -> str:
        """Return the word for a sign in the source language (0) or the target language (1)."""
        return self._conjunctions[sign][side].partition("|")[0]

    def _restore_signs(self, target: str, edits: Sequence[_Edit], source: str, hidden: str) -> list[_Edit]:
        """Return the edits that write signs in place of the conjunctions of a translation that stand for them."""
        signs: list[_Edit] = []
        for edit, (span, sign, item) in zip(edits, _invert(edits, source), strict=True):
            if not edit.text.isalpha():
                continue
            word, other = self._conjunctions[sign]
            sides = hidden[: span[0]], hidden[span[0] :]
            before, after = (len(re.findall(rf"(?i)\b(?:{word})\b", side)) for side in sides)
            found = list(re.finditer(rf"(?i)\b(?:{other})\b", target))
            taken, share = {each.span for each in signs}, span[0] / len(hidden) * len(target)
            left = [each for each in found if each.span() not in taken]
            if len(found) == before + after:
                left = [found[before]]
            if match := min(left, key=lambda each: abs(each.start() - share), default=None):
                signs.append(_Edit(match.span(), sign, item))
        return signs

    def _find_common(self, source: str, target: str) -> tuple[list[_Edit], list[_Edit]]:
        """Return the edits of a source sentence and its translation that hide what both have."""
        hidden = self._choose(source)
        by_text = group_pairs((source[slice(*edit.item)], edit) for edit in hidden)
        longest_first = "|".join(map(re.escape, sorted(by_text, key=len, reverse=True)))
        edits = []
        for match in re.finditer(longest_first, target) if hidden else ():
            equal = by_text[match[0]]  # one that comes several times has several years
            edit = equal.pop(0) if len(equal) > 1 else equal[0]
            new = edit._replace(span=match.span()) if edit.text.strip() else _take_out(target, match.span(), edit)
            is_word = edit.text.strip().isalpha()
            edits.append(new._replace(text=self._read_conjunction(match[0], 1)) if is_word else new)
        common = {edit.item for edit in edits}
        return _part(source, [edit for edit in hidden if edit.item in common]), _part(target, edits)


def _take_out(text: str, span: Span, edit: _Edit | None = None) -> _Edit:
    """Return the edit that takes signs out of a text, with one of the spaces around them."""
    start, end = span
    before, after = text[start - 1 : start], text[end : end + 1]
    if before == " " and (not after or after.isspace() or after in _CLOSING):
        start -= 1
    elif after == " " and before in ("", "(", "["):
        end += 1
    glue = " " if before.isalnum() and after.isalnum() else ""
    return _Edit((start, end), glue, edit.item if edit else span)


def _part(text: str, edits: Sequence[_Edit]) -> list[_Edit]:
    """Return the edits with a space for each sign beside whose place two numbers would be one: {0}→{1}."""
    parted: list[_Edit] = []
    for edit, after in zip(edits, [*edits[1:], None], strict=False):
        start, end = edit.span
        if not edit.text:
            before = parted[-1].text if parted and parted[-1].span[1] == start else text[:start][-1:]
            behind = after.text if after and after.span[0] == end else text[end : end + 1]
            if before[-1:].isdecimal() and behind[:1].isdecimal():
                edit = edit._replace(text=" ")
        parted.append(edit)
    return parted


def _widen(text: str, span: Span) -> Span:
    """Return the span with the digits that touch it: a year beside these would be another number."""
    start, end = span
    while start and text[start - 1].isdecimal():
        start -= 1
    while end < len(text) and text[end].isdecimal() and text[end + 1 : end + 2] not in _AFTER_KEY:
        end += 1
    return start, end


def _touch_letters(text: str, span: Span) -> tuple[bool, bool]:
    """Return whether letters of a script with spaces touch a span on the left and on the right."""
    sides = text[: span[0]][-1:], text[span[1] : span[1] + 1]
    left, right = (side.isalpha() and not _UNSPACED.match(side) for side in sides)
    return left, right


def _apply(text: str, edits: Iterable[_Edit]) -> str:
    """Return the text after edits in the order of their spans."""
    parts, position = [], 0
    for edit in edits:
        parts += [text[position : edit.span[0]], edit.text]
        position = max(position, edit.span[1])
    return "".join([*parts, text[position:]])


def _invert(edits: Sequence[_Edit], text: str) -> list[_Edit]:
    """Return the edits that put the protected texts back into a text."""
    inverse, shift = [], 0
    for (start, end), year, item in edits:
        inverse.append(_Edit((start + shift, start + shift + len(year)), text[start:end], item))
        shift += len(year) - (end - start)
    return inverse


def _put_back(
    target: str, hidden_edits: Sequence[_Edit], source: str, hidden: str, signs: Sequence[_Edit] = ()
) -> list[_Edit]:
    """Return the edits that put the protected texts of a source sentence into the translation of the hidden one.

    signs: edits that are known, see `Protection`.
    """
    missing = {year: edit.item for edit in hidden_edits if (year := edit.text.strip()).isdecimal()}
    years, known = set(missing), {read_digits(match[0]) for match in _DIGITS.finditer(hidden)}
    edits = list(signs)
    others: list[re.Match[str]] = []  # a second time, or no number of the source
    for match in _DIGITS.finditer(target):
        year = read_digits(match[0])
        if year in missing:
            edits.append(_write_item(target, match.span(), source, missing.pop(year)))
        elif years and (year in years or year not in known):
            others.append(match)
    for match in others:
        similar = next((year for year in missing if is_similar(read_digits(match[0]), year)), None)
        if missing and (similar or len(match[0]) > 2):  # shorter ones may stand for number words: 20 for twenty
            edits.append(_write_item(target, match.span(), source, missing.pop(similar or next(iter(missing)))))
        elif any(is_similar(read_digits(match[0]), each) for each in years):
            start, end = match.span()
            end += target[:start].rstrip().endswith(",") and target.startswith(",", end)  # one comma is enough
            edits.append(_Edit((start - (target[start - 1 : start] == " "), end), "", (0, 0)))
    put, shift = {edit.item for edit in edits}, 0
    for edit in hidden_edits:
        if edit.item not in put:
            place = _find_place(hidden, edit.span[0] + shift, target, not edit.text.strip().isdecimal())
            edits.append(_insert_item(target, place, source, edit.item))
        shift += edit.growth
    edits.sort(key=lambda edit: (edit.span[0], edit.item))
    for number, (edit, other) in enumerate(pairwise(edits), 1):
        if edit.span == other.span and not edit.text.endswith(" ") and not other.text.startswith(" "):
            edits[number] = other._replace(text=" " + other.text)
    return edits


def _write_item(target: str, span: Span, source: str, item: Span) -> _Edit:
    """Return the edit that writes a protected text in place of its year, apart from letters as in the source."""
    start, end = span
    touches, ending = _touch_letters(source, item), _ENDING.match(source, item[1])
    start -= touches[0] and target[start - 1 : start] == " "
    end += touches[1] and target.startswith(f" {ending[0] if ending else ''}", end)
    left = not touches[0] and target[start - 1 : start].isalpha()
    right = not touches[1] and target[end : end + 1].isalpha()
    return _Edit((start, end), f"{' ' * left}{source[slice(*item)]}{' ' * right}", item)


def _insert_item(target: str, place: int, source: str, item: Span) -> _Edit:
    """Return the edit that inserts a protected text with spaces where the source has them."""
    (start, end), before, after = item, target[place - 1 : place] if place else "", target[place : place + 1]
    is_apart = source[:start][-1:].isspace() or not start
    is_glued = source[end : end + 1].strip(_CLOSING) and not source[end].isspace()
    if is_glued and (word := re.match(r"\s*(?=\w)", target[place:])):  # §12, <b>word</b>
        next_word = place + word.end()
        space = " " if is_apart and before.isalnum() and next_word == place else ""
        return _Edit((next_word if is_apart else place, next_word), space + source[start:end], item)
    left = bool(before.strip()) and source[:start][-1:].isspace()
    right = after.isalnum() or (bool(after.strip()) and after not in _CLOSING and source[end : end + 1].isspace())
    return _Edit((place, place), f"{' ' * left}{source[start:end]}{' ' * right}", item)


class _WordIndex(NamedTuple):
    """The words of a text without punctuation."""

    spans: list[Span]
    ends: list[int]
    equal: dict[str, list[int]]
    """numbers of the words that are equal without case, and of those where equal numbers begin"""


@lru_cache(maxsize=4)
def _index_words(text: str) -> _WordIndex:
    """Return the words of a sentence, which each of its protected texts asks for."""
    spans = [span for span in find_words(text) if text[span[0]].isalnum()]
    keys = ((text[start:end].casefold(), _read_number(text, start)) for start, end in spans)
    equal = group_pairs((key, number) for number, pair in enumerate(keys) for key in pair if key)
    return _WordIndex(spans, [end for _, end in spans], equal)


def _read_number(text: str, start: int) -> str:
    """Return the digits of a number that begins there: those of 1,234 are also written 1234."""
    number = _DIGITS.match(text, start)
    return f"number {read_digits(number[0])}" if number else ""


def _find_place(source: str, offset: int, target: str, is_sign: bool) -> int:
    """Return where in a translation something stands that is at this offset of the source and has no translation.

    It stands beside the word that both sides have, or else after the same share of the words.
    """
    (words, ends, _), (targets, _, equal) = _index_words(source), _index_words(target)
    before = bisect_right(ends, offset)
    if not targets or not words or not before:
        return 0
    if before == len(words):
        marks = _LAST_MARKS if source[offset:].strip() or not is_sign else ""
        return len(target.rstrip().rstrip(marks))
    share = before / len(words) * len(targets)
    last_word, next_word = (source[slice(*words[number])].casefold() for number in (before - 1, before))
    is_glued = words[before][0] == offset and not source[offset - 1].isalnum()
    keys = [(last_word, 1), (next_word, 0)]
    if is_glued and source[words[before - 1][1] : offset].strip():  # a bracket or a comma is before it
        keys.reverse()
    for key, shift in [(_read_number(source, offset), 0), *keys] if is_glued else keys:
        if numbers := equal.get(key):
            near = bisect_left(numbers, share - shift)
            nearest = min(numbers[max(0, near - 1) : near + 1], key=lambda number: abs(number + shift - share))
            return targets[nearest][1 if shift else 0]
    place = targets[max(0, round(share) - 1)][1]
    while target[place : place + 1] and target[place] in _JOINING and target[place + 1 : place + 2].isalnum():
        place = next(end for start, end in targets if start > place)
    return place


def _move_links(
    links: Sequence[WordLink], sources: Sequence[_Edit], targets: Sequence[_Edit], source: str
) -> list[WordLink]:
    """Return the links of other words, moved, and those of the words of protected texts."""
    moved = [
        replace(link, source=_move(link.source, sources), target=_move(link.target, targets))
        for link in links
        if not overlaps(link.target, (edit.span for edit in targets))
    ]
    shift = 0
    for edit in targets:
        start, end = edit.item
        first = edit.span[0] + shift + edit.text.index(source[start:end])
        for one, last in find_words(source[start:end]):
            moved.append(WordLink((start + one, start + last), (first + one, first + last), 1.0, True))
        shift += edit.growth
    return sorted(moved, key=lambda link: link.target)


def _move(span: Span, edits: Sequence[_Edit]) -> Span:
    """Return where the characters of a word are after edits."""
    start = span[0] + sum(edit.growth for edit in edits if edit.span[1] <= span[0])
    return start, span[1] + sum(edit.growth for edit in edits if edit.span[0] < span[1])
