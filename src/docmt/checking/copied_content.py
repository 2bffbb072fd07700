"""Checks of content that a translation must keep: numbers in digits, addresses, placeholders, brackets.

Numbers may be written differently: with other separators, on a clock of 12 hours, or with a month by its name.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TypeVar

from docmt.checking.findings import Certainty, CheckConfig, Finding, mark_sentence, quote
from docmt.documents import ParallelDocument
from docmt.documents.addresses import ADDRESS, find_addresses

_SITE = re.compile(r"(?://|@|^)(?:[^/@]*@)?(?:[\w-]+\.)*([\w-]+\.[\w-]+)(?=[/:?#]|$)")
"""The last two labels of the host name of an address."""
_TAGS = "a|b|i|u|em|strong|br|p|span|div|code|pre|sub|sup|li|ul|ol|img|small|tt|h[1-6]|td|tr|th|table"
_PLACEHOLDER = re.compile(
    r"\{\{[^{}]*\}\}|\$\{[\w.]+\}|%\(\w+\)[sdif]|\{\w*(?::[^{}\s]*)?\}|%(?:\d+\$)?(?:l{0,2}[diu]|s|\.\d+f|@)(?!\w)|"
    rf"</[A-Za-z][\w:-]*\s*>|<(?:{_TAGS})(?:\s+[\w:-]+=[^<>]*|\s*/)?>|<[A-Za-z][\w:-]*(?:\s+[\w:-]+=[^<>]*|\s*/)>"
)
_SPACES = re.compile(r"\s+")
_BRACKETS = (("(", ")"), ("[", "]"), ("{", "}"))
_MARKER = re.compile(r"(?:^|\s)(?:\w{1,2}|\d+|[ivx]+)$|[:;=]-?$")
"""Text before a bracket that needs no partner, such as a), 1) and :-)."""
_LONGEST_MARKER = 10

# Groups of three digits are one number with any separator: 1,234.5, 1.234,5, 1 234,5 and 1'234.5. So are an hour and
# its minutes: 18:30, 18h30 and 18 h 30.
_NUMBER = re.compile(
    r"\d{1,3}(?:(?:[.,'’\u00a0\u202f ]|, )\d{3})+(?!\d)(?:[.,]\d+)?|\d{1,2}(?::|\s?[hH]\s?)\d\d(?!\d)|"
    r"(?<![\w.,)])\.\d{1,4}(?!\d)|\d+(?:[.,]\d+)?"
)
_HOUR = re.compile(r"\s?[hH]\s?")
_TIME = re.compile(r"(\d{1,2})(?:[:.](\d\d))?")
_AFTERNOON = re.compile(r"\d\s?p\.?m\b|\b(?:afternoon|evening|at night)\b", re.IGNORECASE)
_AFTER_MIDNIGHT = re.compile(r"\b12(?:[:.]\d\d)?\s?a\.?m\b", re.IGNORECASE)
# The fraction of a number. Three digits after a separator are a group of thousands, except after a single zero.
_FRACTION = re.compile(r"(?:(?<=^0)[.,]|^\.|[.,](?!\d{3}$))(\d+)$")
_THOUSANDS = re.compile(r"\d{1,3}[.,]\d{3}")
# Two numbers with a point are a day and a month only with another point and more text, or a year.
_DATE = re.compile(
    r"\b\d{1,2}(?:/\d{1,2}(?:/\d{2,4})?|-\d{1,2}-\d{2,4}|\.\d{1,2}\.(?:\d{2,4}|(?=\s*\S)))(?!\d)|"
    r"(?<=\b(?:[Aa]m|[Oo]n|[Ll]e) )\d{1,2}\.\d{1,2}\.$|\b\d{4}-\d{2}-\d{2}\b"
)
_LAST_MONTH = 12
_CONVERTED = re.compile(
    r"(?<![a-z])(?:ft|feet|foot|inch(?:es)?|miles?|mph|pounds?|lbs?|gallons?|yards?|acres?|ounces?|fahrenheit)\b"
)
"""Units of measurement that other languages do not use."""
_SCALE = re.compile(
    r"hund[re]|honderd|\bcento|\bcien|thousand|tausend|duizend|\btus|\btys|mila\b|\bmill?(?:e|es|iers?)?\b|тыс|"
    r"\d\s?[km]\b|k€|milli|mili[oó]|miljo|milh|\bmio\b|mln|млн|миллио|miljard|mrd|mld|bn\b|\bbil|\btri|млрд|миллиард"
)
"""Words for a power of ten, with which 0.5 million may be 500,000."""
_MAX_UNMATCHED = 100
"""Unmatched numbers of a sentence up to which other ways of writing them are tried. More are no prose."""


@dataclass(frozen=True)
class ProtectedText:
    """A part of a text that its translation must have too, with its (start, end)."""

    text: str
    span: tuple[int, int]

    @property
    def key(self) -> str:
        """The text that is compared."""
        return self.text


PieceKind = TypeVar("PieceKind", bound=ProtectedText)
Unmatched = tuple[Sequence[ProtectedText], Sequence[ProtectedText], Certainty]
"""(pieces missing in the target, pieces added in the target, certainty)"""


def check_content(document: ParallelDocument, config: CheckConfig, languages: tuple[str, str]) -> Iterator[Finding]:
    """Yield the numbers, addresses, placeholders and brackets missing or added in each translation."""
    for index, (source, target) in enumerate(document):
        if not source or not target:
            continue
        blanked_source, blanked_target = _blank_out_protected(source), _blank_out_protected(target)
        unmatched = {
            "url": _compare(_find_addresses(source), _find_addresses(target), source, target),
            "placeholder": _compare(_find_placeholders(source), _find_placeholders(target), source, target),
            "number": find_unmatched_numbers(blanked_source, blanked_target, languages, config.number_words),
        }
        for kind, (missing, added, certainty) in unmatched.items():
            if missing or added:
                sentence = mark_sentence(document, index, (p.span for p in missing), (p.span for p in added))
                yield Finding(kind, _describe_unmatched(missing, added), (sentence,), certainty)
        if (position := _find_new_bracket(source, target)) is not None:
            problem = f"{'not closed' if target[position] in '([{' else 'closed, but not opened'} in the translation"
            sentence = mark_sentence(document, index, (), [(position, position + 1)])
            yield Finding("bracket", f"{quote([target[position]])} is {problem}", (sentence,))


def _find_addresses(text: str) -> list[ProtectedText]:
    return [ProtectedText(text[start:end], (start, end)) for start, end in find_addresses(text)]


def _find_placeholders(text: str) -> list[ProtectedText]:
    return [ProtectedText(_SPACES.sub(" ", match[0]), match.span()) for match in _PLACEHOLDER.finditer(text)]


def _compare(sources: list[ProtectedText], targets: list[ProtectedText], source: str, target: str) -> Unmatched:
    """Return the pieces that only one side has, in any form."""
    missing, added = _find_missing(sources, targets, target), _find_missing(targets, sources, source)
    return missing, added, "possible" if _are_same_sites(sources, targets) else "sure"


def _are_same_sites(sources: list[ProtectedText], targets: list[ProtectedText]) -> bool:
    """Return whether both sides have addresses of the same sites, which may have a page in each language."""
    sites = [{match[1] for piece in side if (match := _SITE.search(piece.text))} for side in (sources, targets)]
    return bool(sites[0]) and sites[0] == sites[1]


def _blank_out_protected(text: str) -> str:
    """Return the text with blanks for addresses and placeholders, whose numbers are not compared separately."""
    for pattern in (ADDRESS, _PLACEHOLDER):
        text = pattern.sub(lambda match: " " * len(match[0]), text)
    return text


def _find_missing(pieces: list[ProtectedText], others: list[ProtectedText], text: str) -> list[ProtectedText]:
    """Return the pieces that are less frequent in `others`, except those that `text` has in another form."""
    other_texts = {other.text for other in others}
    return [piece for piece in _subtract(pieces, others) if piece.text in other_texts or piece.text not in text]


def _subtract(pieces: Sequence[PieceKind], others: Sequence[PieceKind]) -> list[PieceKind]:
    """Return the pieces that occur more often than in `others`: those left once equal ones are paired."""
    unused = Counter(other.key for other in others)
    missing = []
    for piece in pieces:
        if unused[piece.key]:
            unused[piece.key] -= 1
        else:
            missing.append(piece)
    return missing


def _describe_unmatched(missing: Sequence[ProtectedText], added: Sequence[ProtectedText]) -> str:
    """Return the missing and the added pieces as a message."""
    sides = ((missing, "the translation"), (added, "the source"))
    return "; ".join(f"{quote(piece.text for piece in pieces)} not in {side}" for pieces, side in sides if pieces)


def _find_new_bracket(source: str, target: str) -> int | None:
    """Return the position of an unpaired bracket of the target, of a kind that is always paired in the source."""
    for opening, closing in _BRACKETS:
        position = _find_unpaired_bracket(target, opening, closing)
        if position is not None and _find_unpaired_bracket(source, opening, closing) is None:
            return position
    return None


def _find_unpaired_bracket(text: str, opening: str, closing: str) -> int | None:
    """Return the position of the first bracket without a partner, or None."""
    opened: list[int] = []
    for match in re.finditer(f"[{re.escape(opening + closing)}]", text):
        if match[0] == opening:
            opened.append(match.start())
        elif opened:
            opened.pop()
        elif not _MARKER.search(text, max(0, match.start() - _LONGEST_MARKER), match.start()):
            return match.start()
    return opened[0] if opened else None


class Number(ProtectedText):
    """A number written in digits."""

    @property
    def with_colon(self) -> str:
        """The text, with a colon between an hour and its minutes."""
        return _HOUR.sub(":", self.text)

    @property
    def key(self) -> str:
        """The time, or the value: digits without separators of thousands, and a point before the fraction if not 0."""
        if ":" in self.with_colon:
            return self.with_colon
        fraction = _FRACTION.search(self.text)
        whole = re.sub(r"\D", "", self.text[: fraction.start()] if fraction else self.text).lstrip("0") or "0"
        return f"{whole}.{fraction[1]}".rstrip("0").rstrip(".") if fraction else whole

    @property
    def parts(self) -> list[str]:
        """The numbers between the separators, without leading zeros."""
        return [part.lstrip("0") or "0" for part in re.split(r"\D+", self.text)]


@dataclass(frozen=True)
class _Side:
    """The numbers of a sentence or of its translation."""

    text: str
    language: str
    numbers: Sequence[Number]
    dates: Sequence[tuple[int, int]]

    @classmethod
    def from_text(cls, text: str, language: str) -> _Side:
        numbers = [Number(match[0], match.span()) for match in _NUMBER.finditer(text)]
        return cls(text, language, numbers, [date.span() for date in _DATE.finditer(text)])

    def is_in_date(self, number: Number) -> bool:
        return any(start <= number.span[0] and number.span[1] <= end for start, end in self.dates)

    def has_all(self, parts: Sequence[str]) -> bool:
        """Return whether all parts are numbers of their own."""
        return {number.text.lstrip("0") or "0" for number in self.numbers}.issuperset(parts)


def find_unmatched_numbers(source: str, target: str, languages: tuple[str, str], max_in_words: int) -> Unmatched:
    """Return the numbers in digits that only one side has.

    It is only possible that something is wrong where the other side may have them in words (all up to `max_in_words`),
    in other words of scale (0.5 million and 500,000), or in other units of measurement.
    """
    sides = _Side.from_text(source, languages[0]), _Side.from_text(target, languages[1])
    missing, added = _subtract(sides[0].numbers, sides[1].numbers), _subtract(sides[1].numbers, sides[0].numbers)
    if max(len(missing), len(added)) <= _MAX_UNMATCHED:
        missing = [number for number in missing if not _is_written_otherwise(number, *sides)]
        added = [number for number in added if not _is_written_otherwise(number, *reversed(sides))]
    is_scaled = _SCALE.search(f"{source}\n{target}".lower()) is not None and _are_scaled(missing, added)
    if is_scaled or _CONVERTED.search(source.lower()):
        return missing, added, "possible"
    if missing and added:
        return missing, added, "sure"
    return missing, added, "possible" if all(_is_small(each, max_in_words) for each in missing + added) else "likely"


def _are_scaled(missing: Sequence[Number], added: Sequence[Number]) -> bool:
    """Return whether the numbers, in order, differ by powers of a thousand only: 0.5 (million) and 500,000."""
    keys = [number.key for number in (*missing, *added)]
    if len(missing) != len(added) or any(key == "0" or ":" in key for key in keys):
        return False
    pairs = zip(missing, added, strict=True)
    return all((Decimal(one.key) / Decimal(other.key)).log10() % 3 == 0 for one, other in pairs)


def _is_small(number: Number, most: int) -> bool:
    value = number.key.removesuffix(":00")
    return value.isdecimal() and len(value) < 4 and int(value) <= most


def _is_written_otherwise(number: Number, side: _Side, other: _Side) -> bool:
    """Return whether the other side has a number of `side` in another form, or may omit it."""
    times = _read_times(number, side, other)
    if any(
        number.key == each.key  # repeated less often
        or _read_decimal(number, side.language) == _read_decimal(each, other.language)
        or _is_two_digit_year(number.text, each.text)
        or not times.isdisjoint(_read_times(each, side, other))
        for each in other.numbers
    ):
        return True
    if number.text.isdecimal():
        hours = {str(hour) for hour, _ in times} | {number.parts[0]}
        is_part = any(not hours.isdisjoint(_split_number(each, other, side)) for each in other.numbers)
    else:  # hour and minutes, day and month, or article and paragraph
        first, *rest = number.parts
        is_part = other.has_all(rest) and any(other.has_all([start]) for start in {first, *(str(h) for h, _ in times)})
    if is_part:
        return True
    if not side.is_in_date(number):
        return False
    if other.dates:  # the same day, otherwise written
        return all(any(part in _split_number(each, other, side) for each in other.numbers) for part in number.parts)
    return any(int(part) <= _LAST_MONTH for part in number.parts)


def _read_times(number: Number, *sides: _Side) -> set[tuple[int, str]]:
    """Return the times that a number may be, as hour and minutes: two on a clock of 12 hours."""
    time = _TIME.fullmatch(number.with_colon)
    if time is None:
        return set()
    hour, minutes = int(time[1]), time[2] or "00"
    hours = {hour}
    if any(_AFTERNOON.search(side.text) for side in sides) and hour not in (0, 12):
        hours |= {hour + 12, hour - 12}
    if any(_AFTER_MIDNIGHT.search(side.text) for side in sides) and hour == 12:
        hours |= {0}
    return {(each, minutes) for each in hours if 0 <= each <= 24}


def _split_number(number: Number, side: _Side, other: _Side) -> list[str]:
    """Return the parts of a number that the other side may write apart: of a date, a time, or article 4.5."""
    is_time = ":" in number.with_colon or (_TIME.fullmatch(number.text) and number.parts[0] != "0")
    return number.parts if is_time or side.is_in_date(number) or other.has_all(number.parts) else []


def _read_decimal(number: Number, language: str) -> str:
    """Return the value of a number that may have three decimals, in the language of its text: 99.900 in English."""
    point = "." if language == "en" else ","
    if language and point in number.text and _THOUSANDS.fullmatch(number.text):
        return number.text.replace(",", ".").rstrip("0").rstrip(".")
    return number.key


def _is_two_digit_year(one: str, other: str) -> bool:
    """Return whether one number is a year and the other its last two digits."""
    short, year = sorted((one, other), key=len)
    return len(short) == 2 and year.isdecimal() and year[:2] in ("18", "19", "20") and year[2:] == short
