"""The words and characters of a sentence. Spans are (first character, one after the last)."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass

Span = tuple[int, int]
UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
)
"""Scripts without spaces between words: Thai, Lao, Myanmar, Khmer, kana, Chinese characters."""
MARKS = "\u0300-\u036f\u0e31\u0e34-\u0e3a\u0e47-\u0e4e\u3099\u309a"
_LETTERS = rf"(?:(?![{UNSPACED}])[\w{MARKS}])+"
_WORD = re.compile(rf"[{UNSPACED}][{MARKS}]*|{_LETTERS}(?:\u00ad+{_LETTERS})*|[^\w\s\u00ad]")
"""A soft hyphen within a word is part of it."""

INVISIBLE = "\u00ad\u200b\u200e\u200f\u2060\ufeff"
"""Soft hyphen, space of no width, marks of direction, word joiner, byte order mark."""
PLAIN_CHARACTERS = (
    dict.fromkeys("\u00a0\u202f\u205f" + "".join(map(chr, range(0x2000, 0x200B))), " ")
    | dict.fromkeys(INVISIBLE, "")
    | dict.fromkeys("\u2010\u2011", "-")
    | {chr(0xFB00 + number): text for number, text in enumerate(("ff", "fi", "fl", "ffi", "ffl", "st", "st"))}
)
"""What models read for characters of documents."""
_PLAIN = str.maketrans(PLAIN_CHARACTERS)


def complement_spans(spans: Iterable[Span], length: int) -> list[Span]:
    """Return the spans before, between and after those of a text of this length, in order."""
    borders = [0, *(border for span in spans for border in span), length]
    return list(zip(borders[::2], borders[1::2], strict=True))


def overlaps(span: Span, spans: Iterable[Span]) -> bool:
    """Return whether a span has a character in common with one of others."""
    return any(start < span[1] and span[0] < end for start, end in spans)


def strip_span(text: str, start: int, end: int, characters: str | None = None) -> Span:
    """Return a span of a text without white space, or these characters, at its ends."""
    raw = text[start:end]
    return start + len(raw) - len(raw.lstrip(characters)), end - len(raw) + len(raw.rstrip(characters))


def has_words(text: str) -> bool:
    """Return whether the text has a letter or a digit."""
    return any(map(str.isalnum, text))


def has_letters(text: str) -> bool:
    """Return whether the text has a letter of any script, and so anything to translate."""
    return any(map(str.isalpha, text))


def normalize_characters(sentence: str) -> str:
    """Return a source sentence as models know it: from corpora without the invisible characters of documents.

    Spaces and hyphens of all kinds become ordinary ones. Soft hyphens, marks of direction and spaces of no width
    vanish. Letters and their accents are composed (NFC), and Latin ligatures divided. Joiners of Indic scripts and
    emoji stay.
    """
    if sentence.isascii():
        return sentence
    return unicodedata.normalize("NFC", sentence.translate(_PLAIN))


def find_words(sentence: str) -> list[Span]:
    """Return the words: runs of letters and digits, single other signs, and single characters of unspaced scripts."""
    return [match.span() for match in _WORD.finditer(sentence)]


_ALPHABETS = ("LATIN", "GREEK", "CYRILLIC")
_VOWELS = frozenset("aeiouyæøœαεηιουωаеёиоуыэюяєіїў")
_SPOKEN = frozenset("?!.,;:…¿¡")
_SIGNS = frozenset("ºªµ")
"""Letters for `str.isalpha` that are signs."""


def is_symbol(text: str) -> bool:
    """Return whether a whole text is a label or a unit and no word: X, kV, ºC. A model makes sentences of these.

    It has at most three characters, none of them a mark of a sentence, and one letter, or two without a vowel (kV) or
    with a capital after a small one (mA).
    """
    text = text.strip()
    if not 0 < len(text) <= 3 or not _SPOKEN.isdisjoint(text):
        return False
    letters = [each for each in text if each.isalpha() and each not in _SIGNS]
    if len(letters) > 2 or not all(unicodedata.name(each, "").startswith(_ALPHABETS) for each in letters):
        return False
    has_vowel = any(unicodedata.normalize("NFD", each.lower())[0] in _VOWELS for each in letters)
    return len(letters) < 2 or not has_vowel or (letters[0].islower() and letters[1].isupper())


@dataclass(frozen=True)
class WordLink:
    """A source word and a target word that translates it. Spans are (first character, one after the last)."""

    source: tuple[int, int]
    """in the source sentence, not in the document"""
    target: tuple[int, int]
    """in the target sentence"""
    weight: float
    """share of the attention, 0 to 1: the sum over the tokens of the source word, the mean over those of the target
    word"""
    mutual: bool
    """the target word is also the best one of the source word; fewer links, but more of them are right"""
