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
VITAL_WORDS = _word_sets("vital_words")
"""Function words that negate a clause or join two."""

_DETECTION_WORDS = _word_sets("detection_words")
_EVIDENCE = {code: words | _DETECTION_WORDS.get(code, set()) for code, words in FUNCTION_WORDS.items()}
"""Words that tell a language."""

WORD = re.compile(r"\w+(?:[\u0300-\u036f]+\w*)*")
Token = tuple[int, int, str]
"""(start, end, word)"""
_CODES = re.compile(r"<[^<>]*>|\{[^{}]*\}|&#?\w+;")
_STOPS = ".!?…"
_MARKS = f"\"'«»“”„‘’‹›()[]¿¡*_-–—,;{_STOPS}"
_LETTERS = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*['’]?")
_PART = re.compile(r"[cdjlmnst]['’]|[^\W\d_]{2,}|[^\Wa-z\d_]")
_NAME = re.compile(
    r"\b([A-ZÀ-Þ][\w.'’-]*) (?:van|von|de|del|di|da|do|dos|du|della) (?:(?:der|den|la|las|los|le) |l['’])?(?=[A-ZÀ-Þ])"
)
_UNSPACED = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]")
_STEM = 6
"""Characters of a stem. Most words with the same beginning are forms of one word."""
_RELATED = 0.7
"""Share of letters in common, in order, that makes two words related."""
_MIN_RATIO = 2.0
"""Least ratio of a language's function words to those of the next language."""
_MIN_FUNCTION_WORDS = 10


def split_words(text: str) -> list[str]:
    """Return the words of a text in lower case."""
    return WORD.findall(text.lower())


@lru_cache(maxsize=1 << 12)
def tokenize(text: str) -> tuple[Token, ...]:
    """Return the words of a text as written, with their positions."""
    return tuple((match.start(), match.end(), match[0]) for match in WORD.finditer(text))


@lru_cache(maxsize=1 << 18)
def fold(word: str) -> str:
    """Return the word in lower case without accents."""
    if word.isascii():
        return word.lower()
    bare = unicodedata.normalize("NFD", word.lower().replace("ß", "ss"))
    return "".join(character for character in bare if not unicodedata.combining(character))


def stem(word: str) -> str:
    """Return the beginning of a folded word."""
    return fold(word)[:_STEM]


@lru_cache(maxsize=1 << 16)
def are_related(one: str, other: str) -> bool:
    """Return whether two words may be forms of one word, or one a part of the other in a compound."""
    one, other = sorted((fold(one), fold(other)), key=len)
    if one[:4] in other or (len(one) < 4 and other.startswith(one)):
        return True
    return SequenceMatcher(None, one, other, autojunk=False).ratio() >= _RELATED


def find_evidence(text: str) -> list[str]:
    """Return the words, in lower case, that may tell the language of a text.

    Markup, placeholders, digits, names, acronyms and single letters do not. A letter before an apostrophe does: l'eau.
    """
    words, starts, capitals = list[str](), True, text.isupper()
    for token in _NAME.sub(r"\1 ", _CODES.sub(" % ", text)).split():
        word = token.lstrip(_MARKS).rstrip(_MARKS + ":")
        is_name = not capitals and word[:1].isupper() and (not starts or word[1:].isupper())
        if _LETTERS.fullmatch(word) and (not is_name or word == "Sie"):
            words += [part.rstrip("'’") for part in _PART.findall(word.lower())]
        starts = token.rstrip(_MARKS[: -len(_STOPS)]).endswith((*_STOPS, ":"))
    return words


def rank_languages(sentences: Iterable[str], different: bool = False) -> list[tuple[int, str]]:
    """Return (number of its function words, code) of each language that has some in the text, most first.

    different: a word counts once.
    """
    counts = Counter(word for sentence in sentences for word in find_evidence(sentence))
    if different:
        counts = Counter(counts.keys())
    ranking = ((sum(counts[word] for word in words), code) for code, words in _EVIDENCE.items())
    return sorted((each for each in ranking if each[0]), reverse=True)


def detect_language(sentences: Iterable[str]) -> str:
    """Return the language code of a text by its function words, or an empty string if unclear."""
    (most, code), (second, _) = [*rank_languages(sentences), (0, ""), (0, "")][:2]
    return code if most >= _MIN_FUNCTION_WORDS and most >= _MIN_RATIO * second else ""


def is_unspaced(sentences: Sequence[str]) -> bool:
    """Return whether the text is in a script without spaces between words."""
    text = "".join(sentences[:1000])
    return 3 * len(_UNSPACED.findall(text)) > len(text)
