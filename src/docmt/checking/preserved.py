"""What a translation must preserve: numbers in the ways of both languages, addresses, placeholders, brackets."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from docmt.checking.findings import Certainty, CheckConfig, Finding, place
from docmt.checking.languages import HALF, NUMBER_WORDS, folded, quoted, words
from docmt.documents import ParallelDocument

# Groups of three digits belong together, whatever stands between them: 1,234.5, 1.234,5, 1 234,5 and 1'234.5.
_NUMBER = re.compile(
    r"\d{1,3}(?:(?:[.,'’\u00a0\u202f ]|, )\d{3})+(?!\d)(?:[.,]\d+)?|\d{1,2}:\d\d(?!\d)|\d+(?:[.,]\d+)?"
)
_DATE = re.compile(r"\b(\d{1,2})[./-](\d{1,2})(?:[./-]\d{2,4})?\b|\b\d{4}-(\d{2})-(\d{2})\b")
_ROMAN = re.compile(r"\b(?=[IVXLC]{2}|[VX])([LXC]{0,5}(?:IX|IV|V?I{0,3}))(?=[eèrº.]|\b)")
_RANGE = re.compile(r"\b(\d{1,9})\s?(?:-|–|to|through|bis|à|a|al|tot|do|до)\s?(\d{1,9})\b")
_IMPERIAL = re.compile(
    r"(?<![a-z])(?:ft|feet|foot|inch(?:es)?|miles?|mph|pounds?|lbs?|gallons?|yards?|acres?|ounces?|fahrenheit)\b"
)
_AFTERNOON = re.compile(r"\d\s?p\.?m\b", re.IGNORECASE)
_ONE = re.compile(r"\bI\b")
_ROMAN_DIGITS = {"I": 1, "V": 5, "X": 10, "L": 50, "C": 100}
_SCALES = ("mil", "bil", "bn", "mrd", "mio", "tril", "thousand", "tausend", "cent", "hund", "млн", "млрд", "тыс", "k€")
_LAST_MONTH = 12
_MOST = 100
"""Numbers of a sentence without equals that are looked for in other ways. Of more, which are no prose, all are told."""


@dataclass(frozen=True)
class ProtectedText:
    """A part of a text that its translation must have, too, and where it stands."""

    text: str
    span: tuple[int, int]

    @property
    def key(self) -> str:
        """What it is compared by."""
        return self.text


class Number(ProtectedText):
    """A number as it is written."""

    @property
    def key(self) -> str:
        """The digits, whatever parts them."""
        return self.digits

    @property
    def digits(self) -> str:
        """All its digits, without zeros before them."""
        return re.sub(r"\D", "", self.text).lstrip("0") or "0"

    @property
    def significant(self) -> str:
        """Its digits without zeros at either end: those of half a million are those of 500,000."""
        return self.digits.strip("0")

    @property
    def parts(self) -> list[str]:
        """The numbers that it would be if what stands between its digits parted them."""
        return [part.lstrip("0") or "0" for part in re.split(r"\D", self.text)]

    @property
    def is_plain(self) -> bool:
        """Whether it is digits alone."""
        return self.text.isdecimal()


def numbers(text: str) -> list[Number]:
    """The numbers of a text that are written in digits."""
    return [Number(found[0], found.span()) for found in _NUMBER.finditer(text)]


Unmatched = tuple[Sequence[ProtectedText], Sequence[ProtectedText], Certainty]
"""Pieces of the source that the target lacks, and those of the target that the source lacks"""


def unmatched_numbers(source: str, target: str, languages: tuple[str, str], in_words: int) -> Unmatched:
    """Return the numbers that one side lacks.

    Numbers may be written in the way of either language: with other separators, in words (up to `in_words` where the
    words of the language are not known), in Roman digits, times with p.m., years of two digits, months by name.
    """
    ours, theirs = numbers(source), numbers(target)
    lost, new = _beyond(ours, theirs), _beyond(theirs, ours)
    if max(len(lost), len(new)) <= _MOST:
        lost = [each for each in lost if not _is_said(each, source, target, theirs, languages[1], in_words)]
        new = [each for each in new if not _is_said(each, target, source, ours, languages[0], in_words)]
    # Units of measurement that other languages do not use may be converted.
    if (lost or new) and _IMPERIAL.search(source.lower()):
        return lost, new, "possible"
    return lost, new, "sure" if lost and new else "likely"


PieceKind = TypeVar("PieceKind", bound=ProtectedText)


def _beyond(pieces: Sequence[PieceKind], others: Sequence[PieceKind]) -> list[PieceKind]:
    """Return the pieces that the others do not have as often."""
    if not pieces:
        return []
    left = Counter(other.key for other in others)
    missing = []
    for piece in pieces:
        if left[piece.key]:
            left[piece.key] -= 1
        else:
            missing.append(piece)
    return missing


def _is_said(number: Number, own: str, text: str, others: list[Number], language: str, in_words: int) -> bool:
    """Whether a number stands in the text in another way, or can be missing there."""
    digits = [other.digits for other in others]
    value = int(number.digits[:9])
    afternoon = _AFTERNOON.search(f"{own} {text}") is not None
    if number.is_plain:
        is_said = (
            (not _RANGE.search(own) and _is_in_range(value, text))
            or any(_is_short_year(value, other) or _is_century(value, other) for other in digits)
            or value in _roman(text)
            or (value == 1 and language != "en" and _ONE.search(text) is not None)
        )
    else:
        is_half = number.digits.endswith("5") and not HALF.isdisjoint(words(text))
        is_said = is_half or all(part in digits for part in number.parts)
    return (
        is_said
        or number.digits in digits  # said once less
        or any(number.digits in other.parts for other in others if not other.is_plain)
        or _is_scaled(number, own, text, others)
        or _is_of_date(number, own)
        or _is_of_date(number, text)
        or any(_is_same_time(number, other, afternoon) for other in others)
        or _in_words(value, text, language, in_words)
    )


def _is_in_range(value: int, text: str) -> bool:
    """Whether a list of numbers is shortened: 4 to 8 for 4, 5, 6, 7 and 8."""
    return any(int(found[1]) < value < int(found[2]) for found in _RANGE.finditer(text))


def _is_same_time(number: Number, other: Number, afternoon: bool) -> bool:
    """Whether two numbers are one time of the day: 18:00 and 18, in the afternoon also 6 and 18."""
    (hour, *minutes), (other_hour, *other_minutes) = number.parts, other.parts
    if max(len(hour), len(other_hour)) > 2 or (minutes or ["0"]) != (other_minutes or ["0"]):
        return False
    return abs(int(hour) - int(other_hour)) in ((0, 12) if afternoon else (0,))


def _is_century(value: int, other: str) -> bool:
    """Whether one of the two names a century, and the other its first year: the 1800s are the 19th century."""
    short, long = sorted((value, int(other[:9])))
    return 10 < short < 22 and long == 100 * (short - 1)


def _is_scaled(number: Number, own: str, text: str, others: list[Number]) -> bool:
    """Whether the same digits stand in the text in another unit: 0.5 million and 500,000."""
    scaled = any(scale in own.lower() or scale in text.lower() for scale in _SCALES)
    alike = (other for other in others if other.significant == number.significant and number.significant)
    return any(scaled or not number.is_plain or not other.is_plain for other in alike)


def _is_of_date(number: Number, text: str) -> bool:
    """Whether the number may be a month, which may have a name on the other side."""
    for date in _DATE.finditer(text):
        inside = date.start() <= number.span[0] and number.span[1] <= date.end()
        if inside and any(int(part) <= _LAST_MONTH for part in re.split(r"\D", number.text) if part):
            return True
    return False


def _is_short_year(value: int, other: str) -> bool:
    """Whether one of the two is a year and the other its last two digits."""
    short, long = sorted((str(value).zfill(2), other.zfill(2)), key=len)
    return len(short) == 2 and len(long) == 4 and long[:2] in ("18", "19", "20") and long.endswith(short)


def _roman(text: str) -> set[int]:
    """The values of the numbers in Roman digits."""
    found = set()
    for match in filter(lambda match: match[1], _ROMAN.finditer(text)):
        values = [_ROMAN_DIGITS[letter] for letter in match[1]]
        found.add(sum(-a if a < b else a for a, b in zip(values, [*values[1:], 0], strict=True)))
    return found


def _in_words(value: int, text: str, language: str, in_words: int) -> bool:
    """Whether a number is there in words."""
    known = NUMBER_WORDS.get(language)
    if known is None:
        return value <= in_words
    spoken = [folded(word) for word in words(text)]
    if _is_spoken(value, spoken, known):
        return True
    if 1800 < value < 2100 and value % 10 == 0 and _is_spoken(value % 100, spoken, known):  # the thirties
        return True
    first = str(value).rstrip("0")  # two thousand, a billion
    if value < 1000 or value % 1000 or not any(scale in text.lower() for scale in _SCALES):
        return False
    return _is_spoken(int(first), spoken, known) or first in text


def _is_spoken(value: int, spoken: Sequence[str], known: Mapping[int, tuple[str, ...]]) -> bool:
    """Whether the words of a number below a thousand, or their beginnings, are among those that are spoken."""
    if any(_begins(beginning, spoken) for beginning in known.get(value, ())):
        return True
    if value < 20 or value >= 1000:
        return False
    many, rest = divmod(value, 100 if value > 100 else 10)
    if value > 100:
        ways = [[100, *[many] * (many > 1), *[rest] * (rest > 0)]]
    else:  # Ninety-five may be quatre-vingt-quinze: eighty and fifteen.
        ways = [[10 * many, rest], [10 * many - 10, rest + 10]] if rest else []
    return any(all(_is_spoken(part, spoken, known) for part in parts) for parts in ways)


def _begins(beginning: str, spoken: Sequence[str]) -> bool:
    """Whether words begin with, or long ones hold, all parts of what may have hyphens in it."""
    return all(
        any(part in word if len(part) > 3 else word.startswith(part) for word in spoken)
        for part in folded(beginning).split("-")
    )


_URL = re.compile(
    r"(?:https?|ftp)://[^\s<>\"'“”«»]+|\bwww\.[^\s<>\"'“”«»]+|"
    r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63})+"
)
_SITE = re.compile(r"(?://|@|^)(?:[^/@]*@)?(?:[\w-]+\.)*([\w-]+\.[\w-]+)(?=[/:?#]|$)")
"""The last two names of the computer that an address is of."""
_URL_END = ".,;:!?)]}’"
_TAGS = "a|b|i|u|em|strong|br|p|span|div|code|pre|sub|sup|li|ul|ol|img|small|tt|h[1-6]|td|tr|th|table"
_PLACEHOLDER = re.compile(
    r"\{\{[^{}]*\}\}|\$\{[\w.]+\}|%\(\w+\)[sdif]|\{\w*(?::[^{}\s]*)?\}|%(?:\d+\$)?(?:l{0,2}[diu]|s|\.\d+f|@)(?!\w)|"
    rf"</[A-Za-z][\w:-]*\s*>|<(?:{_TAGS})(?:\s+[\w:-]+=[^<>]*|\s*/)?>|<[A-Za-z][\w:-]*(?:\s+[\w:-]+=[^<>]*|\s*/)>"
)
_SPACES = re.compile(r"\s+")
_BRACKETS = (("(", ")"), ("[", "]"), ("{", "}"))
_MARKER = re.compile(r"(?:^|\s)(?:\w{1,2}|\d+|[ivx]+)$|[:;=]-?$")
"""What stands before a bracket that belongs to no pair: a), 1) and :-)."""
_LONGEST_MARKER = 10


def carried(document: ParallelDocument, config: CheckConfig, languages: tuple[str, str]) -> Iterator[Finding]:
    """What is lost or new in each translation of a document."""
    for number, (source, target) in enumerate(document):
        if not source or not target:
            continue
        bare_source, bare_target = _without_marks(source), _without_marks(target)
        found = {
            "url": _unmatched(_addresses(source), _addresses(target), source, target),
            "placeholder": _unmatched(_placeholders(source), _placeholders(target), source, target),
            "number": unmatched_numbers(bare_source, bare_target, languages, config.number_words),
        }
        for kind, (lost, new, certainty) in found.items():
            if lost or new:
                where = place(document, number, (each.span for each in lost), (each.span for each in new))
                yield Finding(kind, _told(lost, new), (where,), certainty)
        if (wrong := _bracket_alone(source, target)) is not None:
            how = f"{'not closed' if target[wrong] in '([{' else 'closed, but not opened'} in the translation"
            where = place(document, number, (), [(wrong, wrong + 1)])
            yield Finding("bracket", f"{quoted([target[wrong]])} is {how}", (where,))


def _addresses(text: str) -> list[ProtectedText]:
    if "://" not in text and "@" not in text and "www." not in text:
        return []
    found = [(each[0].rstrip(_URL_END), each.start()) for each in _URL.finditer(text)]
    return [ProtectedText(address, (start, start + len(address))) for address, start in found]


def _placeholders(text: str) -> list[ProtectedText]:
    return [ProtectedText(_SPACES.sub(" ", found[0]), found.span()) for found in _PLACEHOLDER.finditer(text)]


def _unmatched(ours: list[ProtectedText], theirs: list[ProtectedText], source: str, target: str) -> Unmatched:
    """Return the pieces that one side lacks, in whatever way."""
    lost, new = _without(ours, theirs, target), _without(theirs, ours, source)
    return lost, new, "possible" if _are_localised(ours, theirs) else "sure"


def _are_localised(ours: list[ProtectedText], theirs: list[ProtectedText]) -> bool:
    """Whether both sides have addresses at the same places of the web, which may have a page in each language."""
    places = [{found[1] for each in side if (found := _SITE.search(each.text))} for side in (ours, theirs)]
    return bool(places[0]) and places[0] == places[1]


def _without_marks(text: str) -> str:
    """The text with blanks for addresses and placeholders: their numbers are not for themselves."""
    for pattern in (_URL, _PLACEHOLDER):
        text = pattern.sub(lambda found: " " * len(found[0]), text)
    return text


def _without(pieces: list[ProtectedText], others: list[ProtectedText], text: str) -> list[ProtectedText]:
    """The pieces that the others have not as often; what stands in the text in another way is there."""
    known = {other.text for other in others}
    return [each for each in _beyond(pieces, others) if each.text in known or each.text not in text]


def _told(lost: Sequence[ProtectedText], new: Sequence[ProtectedText]) -> str:
    """What is lost and what is new, in words."""
    sides = ((lost, "the translation"), (new, "the source"))
    return "; ".join(f"{quoted(piece.text for piece in pieces)} not in {side}" for pieces, side in sides if pieces)


def _bracket_alone(source: str, target: str) -> int | None:
    """Where the target has a bracket without its partner, of a kind of which all have theirs in the source."""
    for opening, closing in _BRACKETS:
        alone = _alone(target, opening, closing)
        if alone is not None and _alone(source, opening, closing) is None:
            return alone
    return None


def _alone(text: str, opening: str, closing: str) -> int | None:
    """Where the first bracket without a partner stands, if there is one."""
    opened: list[int] = []
    for found in re.finditer(f"[{re.escape(opening + closing)}]", text):
        if found[0] == opening:
            opened.append(found.start())
        elif opened:
            opened.pop()
        elif not _MARKER.search(text, max(0, found.start() - _LONGEST_MARKER), found.start()):
            return found.start()
    return opened[0] if opened else None
