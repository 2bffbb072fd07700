"""Compare the numbers of a sentence and of its translation, which may write them differently."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

from docmt.checking.findings import Certainty
from docmt.checking.languages import HALF, MIDNIGHT, NOON, NUMBER_WORDS, QUARTER, fold, split_words

# Groups of three digits are one number with any separator: 1,234.5, 1.234,5, 1 234,5 and 1'234.5. So are an hour and
# its minutes: 18:30, 18h30 and 18 h 30.
_NUMBER = re.compile(
    r"\d{1,3}(?:(?:[.,'’\u00a0\u202f ]|, )\d{3})+(?!\d)(?:[.,]\d+)?|\d{1,2}(?::|\s?[hH]\s?)\d\d(?!\d)|"
    r"(?<![\w.,)])\.\d{1,4}(?!\d)|\d+(?:[.,]\d+)?"
)
_HOUR = re.compile(r"\s?[hH]\s?")
_TIME = re.compile(r"(\d{1,2})(?:[:.](\d\d))?")
# The fraction of a number. Three digits after a separator are a group of thousands, except after a single zero.
_FRACTION = re.compile(r"(?:(?<=^0)[.,]|^\.|[.,](?!\d{3}$))(\d+)$")
_THOUSANDS = re.compile(r"\d{1,3}[.,]\d{3}")
# Two numbers with a point are a day and a month only with another point and more text, or a year.
_DATE = re.compile(
    r"\b\d{1,2}(?:/\d{1,2}(?:/\d{2,4})?|-\d{1,2}-\d{2,4}|\.\d{1,2}\.(?:\d{2,4}|(?=\s*\S)))(?!\d)|"
    r"(?<=\b(?:[Aa]m|[Oo]n|[Ll]e) )\d{1,2}\.\d{1,2}\.$|\b\d{4}-\d{2}-\d{2}\b"
)
_ROMAN = re.compile(r"\b(?=[IVXLC]{2}|[VX])([LXC]{0,5}(?:IX|IV|V?I{0,3}))(?=[eèrº.]|\b)")
_RANGE = re.compile(r"\b(\d{1,9})\s?(?:-|–|to|through|bis|à|a|al|tot|do|до)\s?(\d{1,9})\b")
_IMPERIAL = re.compile(
    r"(?<![a-z])(?:ft|feet|foot|inch(?:es)?|miles?|mph|pounds?|lbs?|gallons?|yards?|acres?|ounces?|fahrenheit)\b"
)
_AFTERNOON = re.compile(r"\d\s?p\.?m\b|\b(?:afternoon|evening|at night)\b", re.IGNORECASE)
_AFTER_MIDNIGHT = re.compile(r"\b12(?:[:.]\d\d)?\s?a\.?m\b", re.IGNORECASE)
_ONE = re.compile(r"\bI\b")
_ROMAN_DIGITS = {"I": 1, "V": 5, "X": 10, "L": 50, "C": 100}
_SCALES = [
    (2, re.compile(r"\bcents?\b|\bcento|\bcien|hundred|hundert|honderd|hundra|hundrede")),
    (3, re.compile(r"thousand|tausend|duizend|\btus(?:en|in)d?|\btys|mila\b|\bmill?(?:e|es|iers?)?\b|тыс|\d\s?k\b|k€")),
    # 4 to 5,000
    (3, re.compile(r"\d\s?(?:-|–|to|bis|à|a|al|tot)\s?\d{1,3}[.,\s]000\b")),
    (6, re.compile(r"\b(?:milli?[oó]|miljo|milh|mili[oó]n|mio\b|mln)|million|млн|миллион|\d\s?m\b")),
    (9, re.compile(r"\b(?:mill?iard|miljard|mrd|mld|bn\b|bil)|\dbn\b|млрд|миллиард")),
    (12, re.compile(r"\b(?:bil|tri)")),
]
"""Words for a power of ten. A billion is 10^9 or 10^12."""
_PERCENT = re.compile(r"\b(?:per|pour|por)\s?cent|\bpro[cz]ent")
_LAST_MONTH = 12
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
    def magnitude(self) -> int:
        """The power of ten of the first digit that is not 0."""
        whole, _, fraction = self.key.partition(".")
        return len(whole) - 1 if whole != "0" else len(fraction.lstrip("0")) - len(fraction) - 1

    @property
    def digits(self) -> str:
        """All digits, without leading zeros."""
        return re.sub(r"\D", "", self.text).lstrip("0") or "0"

    @property
    def significant(self) -> str:
        """The digits without zeros at either end: equal for 0.5 million and 500,000."""
        return self.digits.strip("0")

    @property
    def parts(self) -> list[str]:
        """The numbers between the separators, without leading zeros."""
        return [part.lstrip("0") or "0" for part in re.split(r"\D+", self.text)]

    @property
    def is_unseparated(self) -> bool:
        """True if the number has digits only."""
        return self.text.isdecimal()


def find_numbers(text: str) -> list[Number]:
    """Return the numbers of a text that are written in digits."""
    return [Number(match[0], match.span()) for match in _NUMBER.finditer(text)]


Unmatched = tuple[Sequence[ProtectedText], Sequence[ProtectedText], Certainty]
"""(pieces missing in the target, pieces added in the target, certainty)"""


def find_unmatched_numbers(source: str, target: str, languages: tuple[str, str], max_in_words: int) -> Unmatched:
    """Return the numbers that only one side has.

    Numbers may be written differently: with other separators, in Roman digits, with p.m., as a year of two digits, or
    as a month name. Numbers in words match too. If the number words of the language are unknown, all numbers up to
    `max_in_words` do.
    """
    sources, targets = find_numbers(source), find_numbers(target)
    missing, added = subtract_pieces(sources, targets), subtract_pieces(targets, sources)
    if max(len(missing), len(added)) <= _MAX_UNMATCHED:
        missing = [n for n in missing if not _is_expressed(n, source, target, targets, languages, max_in_words)]
        languages = languages[1], languages[0]
        added = [n for n in added if not _is_expressed(n, target, source, sources, languages, max_in_words)]
    # Units of measurement that other languages do not use may be converted.
    if (missing or added) and _IMPERIAL.search(source.lower()):
        return missing, added, "possible"
    return missing, added, "sure" if missing and added else "likely"


PieceKind = TypeVar("PieceKind", bound=ProtectedText)


def subtract_pieces(pieces: Sequence[PieceKind], others: Sequence[PieceKind]) -> list[PieceKind]:
    """Return the pieces that occur more often than in `others`: those left once equal ones are paired."""
    if not pieces:
        return []
    unused = Counter(other.key for other in others)
    missing = []
    for piece in pieces:
        if unused[piece.key]:
            unused[piece.key] -= 1
        else:
            missing.append(piece)
    return missing


def _is_expressed(
    number: Number, context: str, text: str, others: list[Number], languages: tuple[str, str], max_in_words: int
) -> bool:
    """Return whether `text` has the number in another form, or may omit it.

    context: the sentence of the number. others: the numbers of `text`. languages: of the two.
    """
    digits = [other.digits for other in others]
    key = number.key.removesuffix(":00")
    value = int(key[:9]) if key.isdecimal() else None  # of a whole number or hour
    afternoon, after_midnight = (
        pattern.search(f"{context}\n{text}") is not None for pattern in (_AFTERNOON, _AFTER_MIDNIGHT)
    )
    if value is not None and number.is_unseparated:
        hours = _same_hours(number.digits, afternoon)
        is_matched = (
            (not _RANGE.search(context) and _is_in_range(value, text))
            or any(_is_two_digit_year(value, other) or _is_century(value, other) for other in digits)
            or value in _parse_roman(text)
            or (value == 1 and languages[1] != "en" and _ONE.search(text) is not None)
            or any(not hours.isdisjoint(_separate_numbers(other, text, context)) for other in others)
        )
    else:
        first, *rest = number.parts  # hour and minutes, or day and month
        is_start_found = not _same_hours(first, afternoon).isdisjoint(digits)
        is_matched = _is_in_halves(number, text) or (is_start_found and all(part in digits for part in rest))
    return (
        is_matched
        or any(number.key == other.key for other in others)  # repeated less often
        or any(number.digits == other.digits and ":" in number.with_colon + other.with_colon for other in others)
        or any(_read_decimal(number, languages[0]) == _read_decimal(other, languages[1]) for other in others)
        or _is_scaled(number, context, text, others)
        or _is_in_date(number, context, text, others)
        or any(_is_same_time(number, other, afternoon, after_midnight) for other in others)
        or (number.key in ("12", "12:00") and NOON.search(text) is not None)
        or (number.key in ("0", "12", "24", "0:00", "00:00", "12:00", "24:00") and MIDNIGHT.search(text) is not None)
        or (value is not None and _is_spelled_out(value, text, languages[1], max_in_words))
    )


def _separate_numbers(number: Number, text: str, context: str) -> list[str]:
    """Return the parts of a number of `text` that `context` may write apart, or what is before the point.

    Day and month, hour and minutes, article and paragraph are such parts.
    """
    if number.is_unseparated:
        return []
    is_apart = _is_inside_date(number, text) or _find_digits(context).issuperset(number.parts)
    is_time = _TIME.fullmatch(number.with_colon) and number.parts[0] != "0"
    return number.parts if is_time or is_apart else number.parts[:1]


def _is_in_range(value: int, text: str) -> bool:
    """Return whether a range of the text includes the value, as 4 to 8 does for 5, 6 and 7."""
    return any(int(match[1]) < value < int(match[2]) for match in _RANGE.finditer(text))


def _is_in_halves(number: Number, text: str) -> bool:
    """Return whether the text has a word for the fraction or the minutes: half for 2.5, a quarter for 9.15."""
    minutes = number.text[-2:]
    return (number.text.endswith(("5", "30")) and HALF.search(text) is not None) or (
        minutes in ("15", "25", "45", "75") and QUARTER.search(text) is not None
    )


def _read_decimal(number: Number, language: str) -> str:
    """Return the value of a number that may have three decimals, in the language of its text: 99.900 in English."""
    point = "." if language == "en" else ","
    if language and point in number.text and _THOUSANDS.fullmatch(number.text):
        return number.text.replace(",", ".").rstrip("0").rstrip(".")
    return number.key


def _same_hours(number: str, afternoon: bool) -> set[str]:
    """Return the number, and with p.m. the hours that it may be on a clock of 12 or 24 hours."""
    return {number, str(int(number) + 12), str(int(number) - 12)} if afternoon and len(number) <= 2 else {number}


def _is_same_time(number: Number, other: Number, afternoon: bool, after_midnight: bool) -> bool:
    """Return whether two numbers are one time of the day.

    18:00 and 18 are, with p.m. 6 and 18, and with 12 a.m. 12:30 and 0:30.
    """
    times = [_TIME.fullmatch(each.with_colon) for each in (number, other)]
    if times[0] is None or times[1] is None or (times[0][2] or "00") != (times[1][2] or "00"):
        return False
    first, second = sorted(int(time[1]) for time in times if time)
    if first == 0:
        return second == 0 or (after_midnight and second == 12)
    return first == second or (afternoon and second - first == 12)


def _is_century(value: int, other: str) -> bool:
    """Return whether one number is a century and the other its first year: the 19th and the 1800s."""
    century, year = sorted((value, int(other[:9])))
    return 10 < century < 22 and year == 100 * (century - 1)


def _is_scaled(number: Number, context: str, text: str, others: list[Number]) -> bool:
    """Return whether the text has the same value in another unit: 0.5 million and 500,000."""
    candidates = [other for other in others if number.significant and other.significant == number.significant]
    scales = _find_scales(f"{context}\n{text}") if candidates else set()
    powers = scales | {abs(one + sign * two) for one in scales for two in scales for sign in (-1, 1)}
    return any(abs(number.magnitude - other.magnitude) in powers - {0} for other in candidates)


def _find_scales(text: str) -> Set[int]:
    """Return the powers of ten that the text names: 6 for million."""
    text = _PERCENT.sub("", text.lower())
    return {power for power, words in _SCALES if words.search(text)}


def _is_inside_date(number: Number, text: str) -> bool:
    """Return whether a number is in a date of its text."""
    return any(start <= number.span[0] and number.span[1] <= end for start, end in _find_dates(text))


@lru_cache(maxsize=8)
def _find_dates(text: str) -> tuple[tuple[int, int], ...]:
    """Return the start and end of each date in digits."""
    return tuple(date.span() for date in _DATE.finditer(text))


@lru_cache(maxsize=8)
def _find_digits(text: str) -> frozenset[str]:
    """Return the digits of each number of a text."""
    return frozenset(number.digits for number in find_numbers(text))


def _is_in_date(number: Number, context: str, text: str, others: list[Number]) -> bool:
    """Return whether the number may be a month of a date, which the other side may name."""
    if not _is_inside_date(number, context):
        return False
    if _DATE.search(text):  # the same day, otherwise written
        return all(any(part in _separate_numbers(other, text, context) for other in others) for part in number.parts)
    return any(int(part) <= _LAST_MONTH for part in number.parts)


def _is_two_digit_year(value: int, other: str) -> bool:
    """Return whether one number is a year and the other its last two digits."""
    two_digits, year = sorted((str(value).zfill(2), other.zfill(2)), key=len)
    return len(two_digits) == 2 and len(year) == 4 and year[:2] in ("18", "19", "20") and year.endswith(two_digits)


def _parse_roman(text: str) -> set[int]:
    """Return the values of the Roman numerals of a text."""
    numbers = set()
    for match in filter(lambda match: match[1], _ROMAN.finditer(text)):
        values = [_ROMAN_DIGITS[letter] for letter in match[1]]
        numbers.add(sum(-a if a < b else a for a, b in zip(values, [*values[1:], 0], strict=True)))
    return numbers


def _is_spelled_out(value: int, text: str, language: str, max_in_words: int) -> bool:
    """Return whether the text has the number in words."""
    spellings = NUMBER_WORDS.get(language)
    if spellings is None:
        return value <= max_in_words
    folded = [fold(word) for word in split_words(text)]
    if _has_number_words(value, folded, spellings):
        return True
    if 1800 < value < 2100 and value % 10 == 0 and _has_number_words(value % 100, folded, spellings):  # the thirties
        return True
    if value < 1000 or value % 1000 or not _find_scales(text):
        return False
    while value and value % 1000 == 0:  # ten thousand, a billion
        value //= 1000
    return value == 1 or _has_number_words(value, folded, spellings)


def _has_number_words(value: int, folded: Sequence[str], spellings: Mapping[int, tuple[str, ...]]) -> bool:
    """Return whether the words of a number below a thousand, or their beginnings, are among `folded`."""
    if any(_has_beginning(beginning, folded) for beginning in spellings.get(value, ())):
        return True
    if value < 20 or value >= 1000:
        return False
    multiple, remainder = divmod(value, 100 if value > 100 else 10)
    if value > 100:
        decompositions = [[100, *[multiple] * (multiple > 1), *[remainder] * (remainder > 0)]]
    else:  # 95 is quatre-vingt-quinze in French: 80 and 15.
        decompositions = [[10 * multiple, remainder], [10 * multiple - 10, remainder + 10]] if remainder else []
    return any(all(_has_number_words(part, folded, spellings) for part in parts) for parts in decompositions)


def _has_beginning(beginning: str, folded: Sequence[str]) -> bool:
    """Return whether every part of a beginning starts a word, or is inside of one if it is longer than three letters.

    Hyphens separate parts.
    """
    return all(
        any(part in word if len(part) > 3 else word.startswith(part) for word in folded)
        for part in fold(beginning).split("-")
    )
