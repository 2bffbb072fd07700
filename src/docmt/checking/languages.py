"""Language data, word similarity, and language detection."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from difflib import SequenceMatcher
from functools import lru_cache

from docmt.core.settings import read_package_yaml

_DATA = read_package_yaml(__package__, "languages.yaml")


def _word_sets(name: str) -> Mapping[str, frozenset[str]]:
    """Return the words of each language in a table of the data."""
    return {language: frozenset(words.split()) for language, words in _DATA[name].items()}


FUNCTION_WORDS = _word_sets("function_words")
"""The most frequent words of a language, for language detection."""
DETERMINERS = _word_sets("determiners")
"""Words before nouns."""
NOUNS_ARE_CAPITALISED = frozenset(_DATA["capital_nouns"].split())
HALF, QUARTER, NOON, MIDNIGHT = (re.compile(_DATA[name]) for name in ("half", "quarter", "noon", "midnight"))
"""Words for one half (six and a half is 6.5), a quarter, 12 and 0 o'clock."""
NUMBER_WORDS: Mapping[str, Mapping[int, tuple[str, ...]]] = {
    language: {int(value): tuple(beginnings.split()) for value, beginnings in numbers.items()}
    for language, numbers in _DATA["numbers"].items()
}
"""Beginnings of the words for a number, ordinals and fractions included."""
FORMAL: Mapping[str, str] = _DATA["formal"]
"""Regular expressions for words of formal address."""
INFORMAL: Mapping[str, str] = _DATA["informal"]
PLURAL_IS_FORMAL = frozenset(_DATA["plural_is_formal"].split())
"""Languages in which formal address is also the plural."""

WORD = re.compile(r"\w+(?:[\u0300-\u036f]+\w*)*")
Token = tuple[int, int, str]
"""(start, end, word)"""
_UNSPACED = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]")
STEM = 6
"""Characters of a stem. Most words with the same beginning are forms of one word."""
_MIN_RATIO = 2.0
"""Least ratio of a language's function words to those of the next language."""
_MIN_FUNCTION_WORDS = 10


def split_words(text: str) -> list[str]:
    """Return the words of a text in lower case."""
    return WORD.findall(text.lower())


def tokenize_uncached(text: str) -> list[Token]:
    """Return the words of a text as written, with their positions."""
    return [(match.start(), match.end(), match[0]) for match in WORD.finditer(text)]


@lru_cache(maxsize=1 << 12)
def tokenize(text: str) -> tuple[Token, ...]:
    """Return `tokenize_uncached(text)`, cached for repeated use of the sentences of one document."""
    return tuple(tokenize_uncached(text))


@lru_cache(maxsize=1 << 18)
def fold(word: str) -> str:
    """Return the word in lower case without accents."""
    if word.isascii():
        return word.lower()
    bare = unicodedata.normalize("NFD", word.lower().replace("ß", "ss"))
    return "".join(character for character in bare if not unicodedata.combining(character))


def stem(word: str) -> str:
    """Return the beginning of a folded word."""
    return fold(word)[:STEM]


def letter_similarity(one: str, other: str, least: float = 0.0) -> float:
    """Return the share of letters that two words have in common in order.

    If it is below `least`, the result may be 0.
    """
    shorter, longer = sorted((len(fold(one)), len(fold(other))))
    return _letter_ratio(one, other) if 2 * shorter >= least * (shorter + longer) else 0.0


@lru_cache(maxsize=1 << 16)
def _letter_ratio(one: str, other: str) -> float:
    return SequenceMatcher(None, fold(one), fold(other), autojunk=False).ratio()


def are_related(one: str, other: str) -> bool:
    """Return whether two words may be forms of one word, or one a part of the other in a compound."""
    one, other = sorted((fold(one), fold(other)), key=len)
    return one[:4] in other or (len(one) < 4 and other.startswith(one)) or letter_similarity(one, other) >= 0.7


def word_overlap(one: Sequence[str], other: Sequence[str]) -> float:
    """Return the share of words that two sentences have in common (Jaccard)."""
    first, second = set(one), set(other)
    return len(first & second) / max(1, len(first | second))


def rank_languages(sentences: Iterable[str]) -> list[tuple[int, str]]:
    """Return (number of its function words, code) of each language that has some in the text, most first."""
    counts = Counter(word for sentence in sentences for word in split_words(sentence))
    ranking = ((sum(counts[word] for word in words), code) for code, words in FUNCTION_WORDS.items())
    return sorted((each for each in ranking if each[0]), reverse=True)


def detect_language(sentences: Iterable[str]) -> str:
    """Return the language code of a text by its function words, or an empty string if unclear."""
    (most, code), (second, _) = [*rank_languages(sentences), (0, ""), (0, "")][:2]
    return code if most >= _MIN_FUNCTION_WORDS and most >= _MIN_RATIO * second else ""


def is_unspaced(sentences: Sequence[str]) -> bool:
    """Return whether the text is in a script without spaces between words."""
    text = "".join(sentences[:1000])
    return 3 * len(_UNSPACED.findall(text)) > len(text)


def quote(texts: Iterable[str]) -> str:
    """Return texts in quotation marks, separated by commas."""
    return ", ".join(f"“{text}”" for text in texts)
