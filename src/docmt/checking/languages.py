"""Words: what is known of languages, how alike words are, and which language a text is of."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from difflib import SequenceMatcher
from functools import lru_cache

from docmt.core.settings import read_data

_DATA = read_data(__package__, "languages.yaml")


def _word_sets(name: str) -> Mapping[str, frozenset[str]]:
    """Return the words of each language in a table of the data."""
    return {language: frozenset(words.split()) for language, words in _DATA[name].items()}


FUNCTION_WORDS = _word_sets("function_words")
"""The commonest words of a language, which say what language a text is in."""
DETERMINERS = _word_sets("determiners")
"""What stands before nouns."""
NOUNS_ARE_CAPITALISED = frozenset(_DATA["capital_nouns"].split())
HALF = frozenset(_DATA["half"].split())
"""Six and a half is 6.5."""
NUMBER_WORDS: Mapping[str, Mapping[int, tuple[str, ...]]] = {
    language: {int(value): tuple(beginnings.split()) for value, beginnings in numbers.items()}
    for language, numbers in _DATA["numbers"].items()
}
"""How the words of a number begin, ordinals and parts included."""
FORMAL: Mapping[str, str] = _DATA["formal"]
"""Words of formal address, as regular expressions."""
INFORMAL: Mapping[str, str] = _DATA["informal"]
PLURAL_IS_FORMAL = frozenset(_DATA["plural_is_formal"].split())
"""Languages whose formal address is also that of several people."""

WORD = re.compile(r"\w+(?:[\u0300-\u036f]+\w*)*")
Token = tuple[int, int, str]
"""(start, end, word)"""
_UNSPACED = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]")
STEM = 6
"""Characters of a stem. Words that begin alike mostly are forms of one word; where they are not, too little is told."""
_CLEAR = 2.0
"""How many times as many function words as any other language the language of a text has."""
_ENOUGH = 10


def words(text: str) -> list[str]:
    """The words of a text, in lower case."""
    return WORD.findall(text.lower())


def found_tokens(text: str) -> list[Token]:
    """The words of a text, as they are written, and where they stand."""
    return [(found.start(), found.end(), found[0]) for found in WORD.finditer(text)]


@lru_cache(maxsize=1 << 12)
def tokens(text: str) -> tuple[Token, ...]:
    """The same, kept for those who ask for the words of the sentences of one document several times."""
    return tuple(found_tokens(text))


@lru_cache(maxsize=1 << 18)
def folded(word: str) -> str:
    """The word in lower case and without accents."""
    if word.isascii():
        return word.lower()
    bare = unicodedata.normalize("NFD", word.lower().replace("ß", "ss"))
    return "".join(character for character in bare if not unicodedata.combining(character))


def stem(word: str) -> str:
    """How the word begins."""
    return folded(word)[:STEM]


def similar(one: str, other: str, least: float = 0.0) -> float:
    """The share of letters that two words have in common, in the same order; or, where that is below `least`, perhaps
    0."""
    shorter, longer = sorted((len(folded(one)), len(folded(other))))
    return _similar(one, other) if 2 * shorter >= least * (shorter + longer) else 0.0


@lru_cache(maxsize=1 << 16)
def _similar(one: str, other: str) -> float:
    return SequenceMatcher(None, folded(one), folded(other), autojunk=False).ratio()


def alike(one: str, other: str) -> bool:
    """Whether two words may well be forms of one word, or one a part of the other (in a compound)."""
    one, other = sorted((folded(one), folded(other)), key=len)
    return one[:4] in other or (len(one) < 4 and other.startswith(one)) or similar(one, other) >= 0.7


def overlap(one: Sequence[str], other: Sequence[str]) -> float:
    """The share of words that two sentences have in common (Jaccard)."""
    first, second = set(one), set(other)
    return len(first & second) / max(1, len(first | second))


def language_of(sentences: Iterable[str]) -> str:
    """The code of the language that the text is in by its function words; empty where that is not clear."""
    counts = Counter(word for sentence in sentences for word in words(sentence))
    found = sorted(
        ((sum(counts[word] for word in known), code) for code, known in FUNCTION_WORDS.items()), reverse=True
    )
    (most, code), (second, _) = found[:2]
    return code if most >= _ENOUGH and most >= _CLEAR * second else ""


def base_language(code: str) -> str:
    """The code of a language without that of its country or script: de for de_AT."""
    return re.split("[-_]", code.lower(), maxsplit=1)[0]


def is_unspaced(sentences: Sequence[str]) -> bool:
    """Whether the text is of a script without spaces between words."""
    text = "".join(sentences[:1000])
    return 3 * len(_UNSPACED.findall(text)) > len(text)


def quoted(texts: Iterable[str]) -> str:
    """Texts in quotes, with commas between."""
    return ", ".join(f"“{text}”" for text in texts)
