"""Numbers in digits of a sentence and its translation, compared by value.

Numbers may be written differently: with other separators, on a clock of 12 hours, or with a month by its name.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from difflib import SequenceMatcher
from typing import Literal, TypeVar

from docmt.core.settings import read_package_yaml

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
class TextPiece:
    """A part of a text that its translation must have too, with its (start, end)."""

    text: str
    span: tuple[int, int]

    @property
    def key(self) -> str:
        """The text that is compared."""
        return self.text


Certainty = Literal["sure", "likely", "possible"]
PieceKind = TypeVar("PieceKind", bound=TextPiece)
Unmatched = tuple[Sequence[TextPiece], Sequence[TextPiece], Certainty]
"""(pieces missing in the target, pieces added in the target, certainty)"""


def subtract(pieces: Sequence[PieceKind], others: Sequence[PieceKind]) -> list[PieceKind]:
    """Return the pieces that occur more often than in `others`: those left once equal ones are paired."""
    unused = Counter(other.key for other in others)
    missing = []
    for piece in pieces:
        if unused[piece.key]:
            unused[piece.key] -= 1
        else:
            missing.append(piece)
    return missing


class Number(TextPiece):
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


class _Side:
    """The numbers of a sentence or of its translation."""

    def __init__(self, text: str, language: str) -> None:
        self.text, self.language, self.numbers = text, language, _read_numbers(text)
        self.dates = [date.span() for date in _DATE.finditer(text)]

    def is_in_date(self, number: Number) -> bool:
        return any(start <= number.span[0] and number.span[1] <= end for start, end in self.dates)

    def has_all(self, parts: Sequence[str]) -> bool:
        """Return whether all parts are numbers of their own."""
        return {number.text.lstrip("0") or "0" for number in self.numbers}.issuperset(parts)


def find_numbers(text: str) -> list[str]:
    """Return the numbers of a text as they are written."""
    return [match[0] for match in _NUMBER.finditer(text)]


def _read_numbers(text: str) -> list[Number]:
    return [Number(match[0], match.span()) for match in _NUMBER.finditer(text)]


def find_unmatched_numbers(
    source: str, target: str, languages: tuple[str, str], max_in_words: int
) -> tuple[list[Number], list[Number], Certainty]:
    """Return the numbers in digits that only one side has.

    It is only possible that something is wrong where the other side may have them in words (all up to `max_in_words`),
    in other words of scale (0.5 million and 500,000), or in other units of measurement.
    """
    sides = _Side(source, languages[0]), _Side(target, languages[1])
    missing, added = subtract(sides[0].numbers, sides[1].numbers), subtract(sides[1].numbers, sides[0].numbers)
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


_DATA = read_package_yaml(__package__, "number_words.yaml")
_GROUPED = re.compile(r"[.,]\s?\d{3}(?!\d)")
"""In a number whose separators may mean another value in another language."""
_AMOUNT = re.compile(r"[$€£¥]\s?(\d+\.\d\d)(?!\d)")
"""A sum of money without groups."""
_SCALED = re.compile(r"(?<![\w.,])(?P<number>\d[\d.,]*)(?:bn|tn|m|k|M|K)(?!\w)")
"""A number with a letter for a power of ten."""
_LABEL = re.compile(r"[^\W\d_] (\d{1,2})(?=[,;:)]|$)")
"""A number that names something: Row 1, Col 1."""
_SIMILAR = 0.6
_IN_WORDS = 12
"""Greatest number that texts write in words."""


def read_digits(number: str) -> str:
    """Return the digits of a number as ASCII, without separators."""
    return "".join(str(int(each)) for each in number if each.isdecimal())


def is_similar(one: str, other: str) -> bool:
    """Return whether a number may be another one that a model spelled wrongly."""
    return SequenceMatcher(None, one, other, autojunk=False).ratio() >= _SIMILAR


def find_number_faults(source: str, target: str, languages: tuple[str, str]) -> tuple[list[str], list[str]]:
    """Return the numbers of a source that its translation has neither in digits nor in words, and those that it adds.

    languages: codes. Small numbers are looked for in the languages whose words are known. 0 and 1 have too many words.
    """
    if not any(map(str.isdecimal, source)):
        return [], []
    missing, added, certainty = find_unmatched_numbers(source, target, languages, _IN_WORDS)
    if (scaled := _SCALED.search(source)) and not _SCALE.search(target.lower()):  # $3bn and 3 $
        missing = [Number(scaled["number"], scaled.span("number")), *missing]
    are_small = all(_is_small(number, _IN_WORDS) for number in (*missing, *added))
    if certainty == "possible" and ((missing and added) or not are_small):
        return [], []  # perhaps in another unit
    lost, invented = (
        [number.text for number in numbers if not _may_be_in_words(number, text, language)]
        for numbers, text, language in ((missing, target, languages[1]), (added, source, languages[0]))
    )
    repeated, found = Counter(_LABEL.findall(source)), Counter(find_numbers(target))
    lost += [label for label, count in repeated.items() if count > max(found[label], 1) and label not in lost]
    return lost, invented


def _may_be_in_words(number: Number, text: str, language: str) -> bool:
    """Return whether a text of this language may have a small number in words."""
    is_part = number.text[0] in ".0" and len(number.text) > 1  # .00 that was invented
    if not _is_small(number, _IN_WORDS) or is_part:
        return False
    word = dict(enumerate(_DATA["words"].get(language[:2], "").split(), 2)).get(int(number.key.removesuffix(":00")))
    return word is None or re.search(rf"\b(?:{word})", text.lower()) is not None


def repair_numbers(source: str, target: str, languages: tuple[str, str], copied: Sequence[str] = ()) -> str:
    """Return the translation with the numbers of the source that it spells wrongly, and with their lost signs.

    A number with groups of three digits is written as its language has it: 1,250 is 1 250 in French. languages: codes,
    by which separators and the side of a sign are chosen. copied: other numbers that the translation may have as the
    source writes them.
    """
    if not any(map(str.isdecimal, source)):
        return target
    missing, added, certainty = find_unmatched_numbers(source, target, languages, _IN_WORDS)
    replaced: dict[tuple[int, int], str] = {}
    for number in missing if certainty != "possible" else ():
        free = (each for each in added if each.span not in replaced)
        match = next((each for each in free if is_similar(read_digits(number.text), read_digits(each.text))), None)
        if match is not None:
            replaced[match.span] = _write_number(number.text, languages)
    if all(language[:2] in _DATA["separators"] for language in languages):
        written = [*copied, *filter(_GROUPED.search, find_numbers(source)), *_AMOUNT.findall(source)]
        by_key = {Number(each, (0, 0)).key: each for each in written}
        for number in _read_numbers(target):
            wanted = by_key.get(number.key)
            is_foreign = _GROUPED.search(number.text) or number.text == wanted
            if wanted and is_foreign and number.span not in replaced:
                replaced[number.span] = _write_number(wanted, languages)
    for (start, end), text in sorted(replaced.items(), reverse=True):
        target = target[:start] + text + target[end:]
    return _restore_signs(source, target, languages)


def _write_number(number: str, languages: tuple[str, str]) -> str:
    """Return a number with the separators of the target language."""
    one, other = (_DATA["separators"].get(language[:2]) for language in languages)
    return number if one is None or other is None else number.translate(str.maketrans(one, other))


def _restore_signs(source: str, target: str, languages: tuple[str, str]) -> str:
    """Return the translation with each sign beside its number, if it has the sign neither as such nor as a word.

    Signs of money that the source has not are removed, if it has others.
    """
    if re.search("[€£$¥]", source):
        invented = [sign for sign in "€£$¥" if not re.search(_DATA["signs"][sign], source, re.IGNORECASE)]
        target = re.sub(rf"[{''.join(invented)}\0]\s?", "", target)
    for sign, words in _DATA["signs"].items():
        if sign not in source or re.search(words, target, re.IGNORECASE):
            continue
        escaped = re.escape(sign)
        for beside in re.finditer(rf"{escaped}\s?(?P<a>\d[\d.,]*)|(?P<b>\d[\d.,]*)\s?{escaped}", source):
            key = Number((beside["a"] or beside["b"]).rstrip(".,"), (0, 0)).key
            for number in _read_numbers(target):
                is_marked = sign in target[max(0, number.span[0] - 2) : number.span[1] + 2]
                if number.key == key and not is_marked:
                    target = _write_sign(sign, target, number.span, languages)
                    break
    return target


def _write_sign(sign: str, target: str, span: tuple[int, int], languages: tuple[str, str]) -> str:
    """Return the translation with a sign beside the number of this span."""
    is_before = languages[1][:2] in ("en", "nl") and sign != "%"
    place = span[0] if is_before else span[1]
    scale = re.match(r"\s\w+", target[place:])
    if scale and not is_before and _SCALE.search(scale[0].lower()):
        place += scale.end()
    space = "" if languages[1][:2] == "en" and not sign.isalpha() else "\u00a0"
    return target[:place] + (sign + space if is_before else space + sign) + target[place:]
