"""Checks of content that a translation must keep: numbers, addresses, placeholders, brackets."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from docmt.checking.findings import Certainty, CheckConfig, Finding, mark_sentence
from docmt.checking.languages import HALF, NUMBER_WORDS, fold, quote, split_words
from docmt.documents import ParallelDocument
from docmt.documents.addresses import ADDRESS, find_addresses

# Groups of three digits are one number with any separator: 1,234.5, 1.234,5, 1 234,5 and 1'234.5.
_NUMBER = re.compile(
    r"\d{1,3}(?:(?:[.,'’\u00a0\u202f ]|, )\d{3})+(?!\d)(?:[.,]\d+)?|\d{1,2}:\d\d(?!\d)|\d+(?:[.,]\d+)?"
)
# The fraction of a number. Three digits after a separator are a group of thousands, except after a single zero.
_FRACTION = re.compile(r"(?:(?<=^0)[.,]|[.,:](?!\d{3}$))(\d+)$")
# Two numbers with a point are a day and a month only with another point or a year.
_DATE = re.compile(r"\b\d{1,2}(?:[/-]\d{1,2}(?:[/-]\d{2,4})?|\.\d{1,2}\.(?:\d{2,4})?)(?!\d)|\b\d{4}-\d{2}-\d{2}\b")
_ROMAN = re.compile(r"\b(?=[IVXLC]{2}|[VX])([LXC]{0,5}(?:IX|IV|V?I{0,3}))(?=[eèrº.]|\b)")
_RANGE = re.compile(r"\b(\d{1,9})\s?(?:-|–|to|through|bis|à|a|al|tot|do|до)\s?(\d{1,9})\b")
_IMPERIAL = re.compile(
    r"(?<![a-z])(?:ft|feet|foot|inch(?:es)?|miles?|mph|pounds?|lbs?|gallons?|yards?|acres?|ounces?|fahrenheit)\b"
)
_AFTERNOON = re.compile(r"\d\s?p\.?m\b", re.IGNORECASE)
_ONE = re.compile(r"\bI\b")
_ROMAN_DIGITS = {"I": 1, "V": 5, "X": 10, "L": 50, "C": 100}
_SCALES = ("mil", "bil", "bn", "mrd", "mio", "tril", "thousand", "tausend", "cent", "hund", "млн", "млрд", "тыс", "k€")
_PERCENT = re.compile(r"\b(?:per|pour|por) ?cent")
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
    def key(self) -> str:
        """The value: the digits without separators of thousands, and a point before the fraction, if it is not 0."""
        fraction = _FRACTION.search(self.text)
        whole = re.sub(r"\D", "", self.text[: fraction.start()] if fraction else self.text).lstrip("0") or "0"
        return f"{whole}.{fraction[1]}".rstrip("0").rstrip(".") if fraction else whole

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
        return [part.lstrip("0") or "0" for part in re.split(r"\D", self.text)]

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
    missing, added = _subtract(sources, targets), _subtract(targets, sources)
    if max(len(missing), len(added)) <= _MAX_UNMATCHED:
        missing = [n for n in missing if not _is_expressed(n, source, target, targets, languages[1], max_in_words)]
        added = [n for n in added if not _is_expressed(n, target, source, sources, languages[0], max_in_words)]
    # Units of measurement that other languages do not use may be converted.
    if (missing or added) and _IMPERIAL.search(source.lower()):
        return missing, added, "possible"
    return missing, added, "sure" if missing and added else "likely"


PieceKind = TypeVar("PieceKind", bound=ProtectedText)


def _subtract(pieces: Sequence[PieceKind], others: Sequence[PieceKind]) -> list[PieceKind]:
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
    number: Number, context: str, text: str, others: list[Number], language: str, max_in_words: int
) -> bool:
    """Return whether `text` has the number in another form, or may omit it.

    context: the sentence of the number. others: the numbers of `text`.
    """
    digits = [other.digits for other in others]
    value = int((number.key if number.key.isdecimal() else number.digits)[:9])
    afternoon = _AFTERNOON.search(f"{context} {text}") is not None
    whole = _same_hours(number.digits, afternoon)
    if number.is_unseparated:
        is_matched = (
            (not _RANGE.search(context) and _is_in_range(value, text))
            or any(_is_two_digit_year(value, other) or _is_century(value, other) for other in digits)
            or value in _parse_roman(text)
            or (value == 1 and language != "en" and _ONE.search(text) is not None)
        )
    else:
        is_half = number.digits.endswith(("5", "30")) and not HALF.isdisjoint(split_words(text))
        first, *rest = number.parts  # hour and minutes, or day and month
        is_start_found = not _same_hours(first, afternoon).isdisjoint(digits)
        is_matched = is_half or (is_start_found and all(part in digits for part in rest))
    return (
        is_matched
        or any(number.key == other.key for other in others)  # repeated less often
        or any(number.digits == other.digits and ":" in number.text + other.text for other in others)  # 18:30 and 1830
        or any(not whole.isdisjoint(other.parts) for other in others if not other.is_unseparated)
        or _is_scaled(number, context, text, others)
        or _is_in_date(number, context)
        or _is_in_date(number, text)
        or any(_is_same_time(number, other, afternoon) for other in others)
        or _is_spelled_out(value, text, language, max_in_words)
    )


def _is_in_range(value: int, text: str) -> bool:
    """Return whether a range of the text includes the value, as 4 to 8 does for 5, 6 and 7."""
    return any(int(match[1]) < value < int(match[2]) for match in _RANGE.finditer(text))


def _same_hours(number: str, afternoon: bool) -> set[str]:
    """Return the number, and with p.m. the hours that it may be on a clock of 12 or 24 hours."""
    return {number, str(int(number) + 12), str(int(number) - 12)} if afternoon and len(number) <= 2 else {number}


def _is_same_time(number: Number, other: Number, afternoon: bool) -> bool:
    """Return whether two numbers are one time of the day: 18:00 and 18, or 6 and 18 with p.m."""
    (hour, *minutes), (other_hour, *other_minutes) = number.parts, other.parts
    if max(len(hour), len(other_hour)) > 2 or (minutes or ["0"]) != (other_minutes or ["0"]):
        return False
    return abs(int(hour) - int(other_hour)) in ((0, 12) if afternoon else (0,))


def _is_century(value: int, other: str) -> bool:
    """Return whether one number is a century and the other its first year: the 19th and the 1800s."""
    century, year = sorted((value, int(other[:9])))
    return 10 < century < 22 and year == 100 * (century - 1)


def _is_scaled(number: Number, context: str, text: str, others: list[Number]) -> bool:
    """Return whether the text has the same digits in another unit: 0.5 million and 500,000."""
    both = _PERCENT.sub("", f"{context}\n{text}".lower())
    return any(scale in both for scale in _SCALES) and any(
        other.significant == number.significant and number.significant for other in others
    )


def _is_in_date(number: Number, text: str) -> bool:
    """Return whether the number may be a month of a date, which the other side may name."""
    for date in _DATE.finditer(text):
        inside = date.start() <= number.span[0] and number.span[1] <= date.end()
        if inside and any(int(part) <= _LAST_MONTH for part in re.split(r"\D", number.text) if part):
            return True
    return False


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
    first = str(value).rstrip("0")  # two thousand, a billion
    if value < 1000 or value % 1000 or not any(scale in text.lower() for scale in _SCALES):
        return False
    return _has_number_words(int(first), folded, spellings) or first in text


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
