"""Which words of one side are names, and which may be terms."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from docmt.checking.languages import DETERMINERS, FUNCTION_WORDS, NOUNS_ARE_CAPITALISED, NUMBER_WORDS
from docmt.checking.words import folded, found_tokens, stem, words

SHORTEST_NAME = 3
_NOUN_SHARE = 0.25
"""Share of the occurrences of a word after a determiner from which on it is taken for a noun."""
_CLOSING_SHARE = 0.4
"""And share of those that end a phrase, which adjectives seldom do."""
_MANY_DOCUMENTS = 10
_NAME_SHARE = 0.75
"""Share of the occurrences of a word inside sentences that have a capital, from which on it is a name."""
_NO_NAME_AFTER = frozenset('.!?:…"“«(-')


@dataclass(frozen=True)
class Vocabulary:
    """What kind of words the words of one side are."""

    nouns: frozenset[str]
    """stems"""
    names: frozenset[str]
    """words as they are written"""
    numerals: frozenset[str]
    """numbers in words"""

    @classmethod
    def of(cls, documents: Sequence[Sequence[str]], language: str, most: float = 1.0) -> Vocabulary:
        """Nouns are told by the determiners before them and the ends of phrases after them (all words are, where a
        language has no determiners that are known), names by their capitals inside sentences.

        documents: of sentences; most: share of them, if they are many, that a noun stands in at most.
        """
        counts = _Counts.of((sentence for document in documents for sentence in document), language)
        spread = Counter(
            each for document in documents for each in {stem(word) for sentence in document for word in words(sentence)}
        )
        widest = most * len(documents) if len(documents) >= _MANY_DOCUMENTS else len(documents)
        nouns = (word for word in spread if spread[word] <= widest and counts.is_noun(word, language))
        names = (word for word in counts.capital if counts.is_name(word, language))
        numerals = (word for beginnings in NUMBER_WORDS.get(language, {}).values() for word in beginnings)
        return cls(frozenset(nouns), frozenset(names), frozenset(numerals))


@dataclass
class _Counts:
    """How often stems stand where nouns do, and how often words have capitals."""

    seen: Counter[str] = field(default_factory=Counter)
    after: Counter[str] = field(default_factory=Counter)
    """stems, after a determiner"""
    closing: Counter[str] = field(default_factory=Counter)
    """stems, before a function word, a mark or nothing"""
    inside: Counter[str] = field(default_factory=Counter)
    """folded words, where no sentence begins"""
    capital: Counter[str] = field(default_factory=Counter)
    """words as written, those of `inside` that have a capital"""

    @classmethod
    def of(cls, sentences: Iterable[str], language: str) -> _Counts:
        determiners = DETERMINERS.get(language, frozenset[str]())
        functions = FUNCTION_WORDS.get(language, frozenset[str]())
        counts = cls()
        for sentence in sentences:
            said = found_tokens(sentence)
            for number, (start, end, word) in enumerate(said):
                own = stem(word)
                counts.seen[own] += 1
                following = said[number + 1] if number + 1 < len(said) else None
                counts.closing[own] += (
                    following is None or following[2].lower() in functions or not sentence[end : following[0]].isspace()
                )
                if number == 0:
                    continue
                _, before, previous = said[number - 1]
                counts.after[own] += previous.lower() in determiners
                if not _NO_NAME_AFTER.intersection(sentence[before:start]):
                    counts.inside[folded(word)] += 1
                    if word[0].isupper():
                        counts.capital[word] += 1
        return counts

    def is_noun(self, stem: str, language: str) -> bool:
        if language not in DETERMINERS:
            return True
        times = self.seen[stem]
        return self.after[stem] >= _NOUN_SHARE * times and self.closing[stem] >= _CLOSING_SHARE * times

    def is_name(self, word: str, language: str) -> bool:
        if len(word) < SHORTEST_NAME or word.lower() in FUNCTION_WORDS.get(language, ()):
            return False
        cased = language not in NOUNS_ARE_CAPITALISED
        return (cased and self.capital[word] >= _NAME_SHARE * self.inside[folded(word)]) or _is_odd(word)


def _is_odd(word: str) -> bool:
    """Whether no ordinary word is written so: with digits or capitals inside."""
    return not word.isdecimal() and (any(map(str.isdigit, word)) or not (word.islower() or word[1:].islower()))
