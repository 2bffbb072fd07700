"""What a translation must preserve: numbers in the ways of both languages, addresses, placeholders, brackets."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

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
_HUNDRED, _THOUSAND = 100, 1000


@dataclass(frozen=True)
class Number:
    """A number as it is written."""

    text: str
    span: tuple[int, int]

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


def unmatched_numbers(
    source: str, target: str, languages: tuple[str, str], in_words: int
) -> tuple[list[Number], list[Number]]:
    """The numbers of the source that the target lacks, and those of the target that the source lacks.

    Numbers may be written in the way of either language: with other separators, in words (up to `in_words` where the
    words of the language are not known), in Roman digits, times with p.m., years of two digits, months by name.
    """
    ours, theirs = numbers(source), numbers(target)
    if not ours and not theirs:
        return [], []
    lost, new = _beyond(ours, theirs), _beyond(theirs, ours)
    if max(len(lost), len(new)) > _MOST:
        return lost, new
    return (
        [each for each in lost if not _is_said(each, source, target, theirs, languages[1], in_words)],
        [each for each in new if not _is_said(each, target, source, ours, languages[0], in_words)],
    )


def may_be_converted(source: str) -> bool:
    """Whether a sentence has units of measurement that other languages do not use."""
    return _IMPERIAL.search(source.lower()) is not None


def _beyond(numbers: list[Number], others: list[Number]) -> list[Number]:
    """The numbers that the others have not as often, whatever parts their digits."""
    left = Counter(other.digits for other in others)
    missing = []
    for number in numbers:
        if left[number.digits]:
            left[number.digits] -= 1
        else:
            missing.append(number)
    return missing


def _is_said(number: Number, own: str, text: str, others: list[Number], language: str, in_words: int) -> bool:
    """Whether a number stands in the text in another way, or can be missing there."""
    digits = [other.digits for other in others]
    if number.digits in digits:  # said once less
        return True
    if not number.is_plain and all(part in digits for part in number.parts):
        return True
    if any(number.digits in other.parts for other in others if not other.is_plain):
        return True
    if _is_scaled(number, own, text, others) or _is_of_date(number, own) or _is_of_date(number, text):
        return True
    afternoon = _AFTERNOON.search(f"{own} {text}") is not None
    if any(_is_same_time(number, other, afternoon) for other in others):
        return True
    if number.digits.endswith("5") and not number.is_plain and HALF.intersection(words(text)):
        return True
    value = int(number.digits[:9])
    if number.is_plain and not _RANGE.search(own) and _is_in_range(value, text):
        return True
    if number.is_plain and any(_is_short_year(value, other) or _is_century(value, other) for other in digits):
        return True
    if number.is_plain and (value in _roman(text) or (value == 1 and language != "en" and _ONE.search(text))):
        return True
    return _in_words(value, text, language, in_words)


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
    if value < _THOUSAND or value % _THOUSAND or not any(scale in text.lower() for scale in _SCALES):
        return False
    return _is_spoken(int(first), spoken, known) or first in text


def _is_spoken(value: int, spoken: Sequence[str], known: Mapping[int, tuple[str, ...]]) -> bool:
    """Whether the words of a number below a thousand, or their beginnings, are among those that are spoken."""
    if any(_begins(beginning, spoken) for beginning in known.get(value, ())):
        return True
    if value < 20 or value >= _THOUSAND:
        return False
    unit = _HUNDRED if value > _HUNDRED else 10
    many, rest = divmod(value, unit)
    if unit == _HUNDRED:
        parts = [_HUNDRED] + [many] * (many > 1) + [rest] * (rest > 0)
        return all(_is_spoken(part, spoken, known) for part in parts)
    # Ninety-five may be quatre-vingt-quinze: eighty and fifteen.
    pairs = ((10 * many, rest), (10 * many - 10, rest + 10))
    return rest > 0 and any(all(_is_spoken(part, spoken, known) for part in pair) for pair in pairs)


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
        found = [
            _compared("url", _addresses(source), _addresses(target), source, target),
            _compared("placeholder", _placeholders(source), _placeholders(target), source, target),
            _numbers(_without_marks(source), _without_marks(target), config, languages),
            _brackets(source, target),
        ]
        for kind, what, certainty, ours, theirs in filter(None, found):
            yield Finding(kind, what, (place(document, number, ours, theirs),), certainty)


_Marks = list[tuple[int, int]]
_Found = tuple[str, str, Certainty, _Marks, _Marks]
_Things = list[tuple[str, tuple[int, int]]]


def _addresses(text: str) -> _Things:
    if "://" not in text and "@" not in text and "www." not in text:
        return []
    found = [(each[0].rstrip(_URL_END), each.start()) for each in _URL.finditer(text)]
    return [(address, (start, start + len(address))) for address, start in found]


def _placeholders(text: str) -> _Things:
    return [(_SPACES.sub(" ", found[0]), found.span()) for found in _PLACEHOLDER.finditer(text)]


def _compared(kind: str, ours: _Things, theirs: _Things, source: str, target: str) -> _Found | None:
    """The finding for things of the source that the target lacks, or the other way round; None if there are none."""
    if not ours and not theirs:
        return None
    lost = _without(ours, [thing for thing, _ in theirs], target)
    new = _without(theirs, [thing for thing, _ in ours], source)
    if not lost and not new:
        return None
    certainty: Certainty = "possible" if _are_localised(ours, theirs) else "sure"
    return kind, _told(lost, new), certainty, [span for _, span in lost], [span for _, span in new]


def _are_localised(ours: _Things, theirs: _Things) -> bool:
    """Whether both sides have addresses at the same places of the web, which may have a page in each language."""
    places = [{found[1] for thing, _ in side if (found := _SITE.search(thing))} for side in (ours, theirs)]
    return bool(places[0]) and places[0] == places[1]


def _without_marks(text: str) -> str:
    """The text with blanks for addresses and placeholders: their numbers are not for themselves."""
    for pattern in (_URL, _PLACEHOLDER):
        text = pattern.sub(lambda found: " " * len(found[0]), text)
    return text


def _without(things: _Things, others: list[str], text: str) -> _Things:
    """The things that the others have not as often; what stands in the text in another way is there."""
    left = Counter(others)
    missing = []
    for thing, span in things:
        if left[thing]:
            left[thing] -= 1
        elif thing not in text or thing in others:
            missing.append((thing, span))
    return missing


def _told(lost: _Things, new: _Things) -> str:
    """What is lost and what is new, in words."""
    parts = [f"{quoted(thing for thing, _ in lost)} not in the translation"] if lost else []
    parts += [f"{quoted(thing for thing, _ in new)} not in the source"] if new else []
    return "; ".join(parts)


def _numbers(source: str, target: str, config: CheckConfig, languages: tuple[str, str]) -> _Found | None:
    lost, new = unmatched_numbers(source, target, languages, config.number_words)
    if not lost and not new:
        return None
    certainty: Certainty = "sure" if lost and new else "likely"
    if may_be_converted(source):
        certainty = "possible"
    lost_things, new_things = ([(each.text, each.span) for each in side] for side in (lost, new))
    return "number", _told(lost_things, new_things), certainty, [s for _, s in lost_things], [s for _, s in new_things]


def _brackets(source: str, target: str) -> _Found | None:
    """The first bracket without its partner in the target, of a kind of which all have theirs in the source."""
    for opening, closing in _BRACKETS:
        if opening not in target and closing not in target:
            continue
        alone = _alone(target, opening, closing)
        if alone is None or _alone(source, opening, closing) is not None:
            continue
        wrong = target[alone]
        what = (
            f"{quoted([wrong])} is {'not closed' if wrong == opening else 'closed, but not opened'} in the translation"
        )
        return "bracket", what, "likely", [], [(alone, alone + 1)]
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
