"""Which words are forms of one word: by the tables of simplemma (`docmt[terms]`), or else by short endings."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache
from typing import Any

from docmt.formats.language_codes import primary_language

_SHORTEST, _MAX_ENDING = 4, 2
"""Letters of the shortest beginning that two forms share, and of the longest ending that they do not."""

_PLURALS = {
    "de": ("(ung|heit|keit|schaft|ion|tät|inn)en$|er[n]?$|[^s]e$", "(el|er|n|s|lein)$"),
    "en": ("(s|[^aeiou]men|children|feet|teeth|mice|[aiu]a|ae)$", "(s|ed|ing|people|police|staff|data|media|fish)$"),
    "es": ("s$", "s$"),
    "fr": ("[sx]$", "[sx]$"),
    "it": ("[ei]$", "[^aeio]$"),
}
"""Endings of the plural for words that are not base forms, and endings that do not tell."""
_PARTICIPLES = {"es": "[ai]do$", "fr": "é$", "it": "[aiu]to$", "pt": "[ai]do$"}
"""Endings of participles, which may be nouns."""
_NOUN_FIRST = {"es", "fr", "it"}
"""Languages of the table of plurals whose phrases begin with their noun."""
_VERBS = {
    "de": (8, "e[lr]?n$", "(?-i:^[A-ZÄÖÜ])"),
    **dict.fromkeys(("es", "fr", "it", "pt"), (20, "", "(é|[aiu][dt]o)$")),
}
"""Of verbs: least number of forms in the table, ending of the base form, and beginnings or endings of other words."""
_BEFORE_VERBS = (
    "(please|i|we|you|they|he|she|it|who|must|should|would|could|can(not)?|might|will|shall|do not|(do|did|does)n['’]t)"
)
"""English words between which and a noun another word stands."""
_VERB_FORMS = 4
"""Forms that the table has of English verbs, at least."""
_BEGINNING = 6
"""Letters that the forms of a word mostly share."""


def _load_simplemma(language: str) -> Any | None:
    """Return simplemma if it is installed and has a table of the language."""
    try:
        import simplemma
        from simplemma.strategies.dictionaries.dictionary_factory import SUPPORTED_LANGUAGES
    except ImportError:
        return None
    return simplemma if language in SUPPORTED_LANGUAGES else None


@lru_cache(maxsize=16)
def load_word_forms(language: str) -> WordForms:
    """Return the words of a language, whose table is read once."""
    return WordForms(language)


class WordForms:
    """The words of one language, without regard to capitals."""

    def __init__(self, language: str) -> None:
        """language: code; empty or unknown: words are compared by their endings."""
        self.language = primary_language(language)
        self._simplemma = _load_simplemma(self.language)
        self.lemma = lru_cache(maxsize=1 << 16)(self._find_lemma)
        self.is_known = lru_cache(maxsize=1 << 16)(self._is_known)

    @property
    def has_table(self) -> bool:
        """Whether a table tells the forms of words."""
        return self._simplemma is not None

    def _find_lemma(self, word: str) -> str:
        """Return the base form of a word in lower case, or the word where there is no table."""
        is_noun = self.language == "en" and word[-3:].casefold() == "ing"  # meeting, training: not a form of meet
        if self._simplemma is None or is_noun or not word.isalpha():
            return word.casefold()
        lemma: str = self._simplemma.lemmatize(word, lang=self.language)
        return lemma.casefold()

    def _is_known(self, word: str) -> bool:
        """Return whether the table has a word."""
        return self._simplemma is not None and word.isalpha() and self._simplemma.is_known(word, lang=self.language)

    def keys(self, word: str) -> set[str]:
        """Return keys of a word: two words without a common key are no forms of one word."""
        folded = word.casefold()
        if self.is_known(word):
            return {folded, self.lemma(word)}
        return {folded, *(folded[:-cut] for cut in range(1, _MAX_ENDING + 1) if len(folded) - cut >= _SHORTEST)}

    def are_forms(self, one: str, other: str) -> bool:
        """Return whether two words are forms of one word."""
        if one.casefold() == other.casefold():
            return True
        if not (one.isalpha() and other.isalpha()):
            return False
        if self.is_known(one) or self.is_known(other):
            lemmas = self.lemma(one), self.lemma(other)  # salariés is a form of salarié, and that one of salarier
            return lemmas[0] == lemmas[1] or one.casefold() == lemmas[1] or other.casefold() == lemmas[0]
        short, long = sorted((one.casefold(), other.casefold()), key=len)
        return len(short) >= _SHORTEST and len(long) - len(short) <= _MAX_ENDING and long.startswith(short)

    def is_plural(self, words: Sequence[str]) -> bool | None:
        """Return whether one of the words of a term is in the plural; None if that cannot be told."""
        numbers = set(map(self._is_plural, words)) if self.has_table and self.language in _PLURALS else {None}
        return True if True in numbers else None if None in numbers else False

    def can_have_number(self, words: Sequence[str], is_plural: bool) -> bool:
        """Return whether the words of a term may be a plural, or else a singular: *partie prenantes* is neither."""
        number = self.is_plural(words)
        is_mixed = number and self.language in _NOUN_FIRST and self.is_plural(words[:1]) is False
        return number in (is_plural, None) and not is_mixed

    def _is_plural(self, word: str) -> bool | None:
        """Return whether a word has an ending of the plural; None if it may have."""
        if not word.isalpha() or (self.language == "de" and word.islower()):  # of words in small letters nouns tell
            return False
        folded, (plural, unclear) = word.casefold(), _PLURALS[self.language]
        is_other = self.lemma(word) != folded
        return True if is_other and re.search(plural, folded) else None if re.search(unclear, folded) else False

    def is_verb(self, word: str) -> bool:
        """Return whether a word is a form of a verb and of nothing else, but for infinitives: *pouvoir* may be both."""
        fewest, ending, unclear = _VERBS.get(self.language, (0, "", ""))
        if not (fewest and self.is_known(word)) or re.search(unclear, word, re.I):
            return False
        lemma = self.lemma(word)
        return bool(re.search(ending, lemma)) and len(self._by_lemma.get(lemma, ())) >= fewest

    def is_verb_after(self, before: str, word: str) -> bool:
        """Return whether an English word that may be a noun is a verb after a text: *report* after *we*."""
        is_expected = self.language == "en" and re.search(rf"(?<![\w'’]){_BEFORE_VERBS}\s+$", before, re.I)
        return bool(is_expected) and self.has_table and len(self._by_lemma.get(self.lemma(word), ())) >= _VERB_FORMS

    def list_forms(self, word: str) -> list[str]:
        """Return the other forms of a word that the table has, in lower case.

        Of a participle, such as *salarié*, the table has forms of the verb: those that begin with the word are its own.
        """
        lemma, folded = self.lemma(word), word.casefold()
        forms = [*self._by_lemma.get(lemma, []), *self._by_lemma.get(folded, [])] if self.has_table else []
        is_participle = lemma != folded and re.search(_PARTICIPLES.get(self.language, "(?!)"), folded)
        start = folded if is_participle else ""
        found = (form for form in forms if form != folded and form.startswith(start))
        return list(dict.fromkeys(form for form in found if self.lemma(form) in (lemma, folded)))

    @cached_property
    def _by_lemma(self) -> dict[str, list[str]]:
        """The forms of each base form."""
        from simplemma.strategies.dictionaries.dictionary_factory import DEFAULT_DICTIONARY_FACTORY

        forms: dict[str, list[str]] = {}
        for form, lemma in DEFAULT_DICTIONARY_FACTORY.get_dictionary(self.language).items():
            forms.setdefault(lemma.casefold(), []).append(form)
        return forms


def choose_lemma(language: str) -> Callable[[str], str]:
    """Return the function that gives all forms of a word one key: by the table, or else their beginning."""
    forms = load_word_forms(language)
    return forms.lemma if forms.has_table else lambda word: word.casefold()[:_BEGINNING]
