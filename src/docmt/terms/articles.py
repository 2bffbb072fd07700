"""Articles and other words before a noun: which of them its gender and its first letter may ask for."""

from __future__ import annotations

import re
from collections.abc import Sequence

from docmt.core.settings import read_package_yaml
from docmt.documents.words import Span
from docmt.formats.language_codes import primary_language
from docmt.terms.word_forms import load_word_forms

_DATA = read_package_yaml(__package__, "articles.yaml")
"""Groups of words that stand before nouns, endings of nouns, and definite articles, by language."""
_VOWELS = re.compile("[aeiouàáâãäèéêëìíîïòóôõöùúûüæœ]", re.I)
_ASPIRATED = (
    "h(?:a(?:ch|ck|ie|in|ï(?!ti)|l(?:l(?!uc|ali|ow)|o(?!g))|lte|mac|meau|mster|nch|nd|ngar|nnet|nt(?!av)|r[acdgp]|"
    "ri(?!ss)|reng|sard|ut|uss|v)|â|eurt|ériss|ernie|éron|éros\\b|erse|être|i(?:bou|c\\b|érarch|ss)|"
    "o(?:bb|ch|ck|ld|ll|mard|ngr|nte|quet|rd|rs|tte|u)|u(?:bl|ch|ée|it(?!r)|rl|ss|tte))"
)
"""Beginnings of French nouns with an h that counts as a consonant: le hangar."""
_UNCLEAR = {
    "en": re.compile("[hu]|eu|one", re.I),
    "fr": re.compile(f"(?!{_ASPIRATED})[hy]", re.I),
    "": re.compile("[hy]", re.I),
}
"""First letters of nouns that may count as vowels or not, by language."""
_MOST_WORDS = 3
"""Words of a table that may follow each other before a noun."""
_MOST_ENDING = 2
"""Letters by which a form of an adjective may be longer than its base form; others compare."""


class Articles:
    """The articles of one language."""

    def __init__(self, language: str) -> None:
        """language: code; of one without a table no articles are known."""
        code = primary_language(language)
        self._unclear = _UNCLEAR.get(code, _UNCLEAR[""])
        groups = [group.split("|") for group in _DATA["groups"].get(code, ())]
        kinds = [[[word.replace("_", " ") for word in kind.split()] for kind in group] for group in groups]
        self._groups = [(kind[0], kind[-1]) for kind in kinds]
        words = {word for group in self._groups for kind in group for word in kind}
        longest_first = "|".join(map(re.escape, sorted(words, key=len, reverse=True)))
        article = rf"(?:{longest_first})(?:(?<=')|\s+)"
        chain = rf"(?<![\w-])((?:{article}){{1,{_MOST_WORDS}}})(?:[^\W\d_]+\s+)?$"
        self._one, self._last = (re.compile(each, re.I) for each in (rf"{article}|\w+\s+", chain))
        self._forms = load_word_forms(code)
        self._genders = [re.compile(f"^(?:{each})$", re.I | re.X) for each in _DATA["genders"].get(code, ())]

    def find(self, text: str) -> str:
        """Return the articles and the like that a text ends with, and an adjective after them; empty: no article."""
        match = self._last.search(text.replace("’", "'")) if self._groups else None
        return text[match.start() :] if match else ""

    def cut_adjective(self, found: str) -> str:
        """Return the articles alone of what `find` found."""
        match = self._last.search(found.replace("’", "'")) if found else None
        return found[: match.end(1)] if match else ""

    def is_cut(self, text: str, noun: str) -> bool:
        """Return whether a text ends in an apostrophe that cannot stand before a noun: c'plan."""
        has_elision = any(word.endswith("'") for group in self._groups for word in group[1])
        is_clear = not (_VOWELS.match(noun) or self._unclear.match(noun))
        return has_elision and is_clear and text.endswith(("'", "’"))

    def list_others(self, found: str, noun: str) -> list[str]:
        """Return what may stand before a noun in place of what `find` found; that may be among it."""
        words = [match[0].strip() for match in self._one.finditer(found.replace("’", "'"))]
        gender = self._find_gender(noun) if all(map(self._is_before_noun, words)) else -1
        rows = [("", gender)]  # the words, and which of two genders they have
        for groups in reversed([self._list_kinds(word) for word in words]):
            rows = [
                (word + row, number if len(kind) == 2 else gender)
                for row, gender in rows
                for kind in self._choose(groups, row or noun)
                for number, word in enumerate(kind)
                if len(kind) != 2 or gender in (-1, number)
            ]
        texts = dict.fromkeys(text for text, _ in rows)
        return [text[:1].upper() + text[1:] if found[:1].isupper() else text for text in texts]

    def _is_before_noun(self, word: str) -> bool:
        """Return whether a word is none that an adjective follows: it is of the table, or has both genders."""
        lemma = self._forms.lemma(word.lower())
        return self._find_groups(word) != [] or self._forms.feminine(lemma) not in ("", lemma)

    def _find_groups(self, word: str) -> list[tuple[list[str], list[str]]]:
        return [group for group in self._groups if any(word.lower() in kind for kind in group)]

    def _find_gender(self, noun: str) -> int:
        """Return which of two genders the first word of a noun has by its ending; -1 if that does not tell."""
        word = "".join(re.findall(r"^[\w-]+", noun))
        return next((n for n, each in enumerate(self._genders) if each.match(word) and not word.isupper()), -1)

    def _list_kinds(self, word: str) -> list[tuple[list[str], list[str]]]:
        """Return the groups of a word, each word with what parts it from the next one."""

        def end(kind: Sequence[str]) -> list[str]:
            return [word if word.endswith("'") else f"{word} " for word in kind]

        groups = self._find_groups(word)
        if not groups:  # an adjective, in any form
            longest = len(self._forms.lemma(word)) + _MOST_ENDING
            others = [each for each in self._forms.list_forms(word) if each.islower() and len(each) <= longest]
            return [([f"{each} "], [f"{each} "]) for each in (word, *others)]
        return [(end(before_consonant), end(before_vowel)) for before_consonant, before_vowel in groups]

    def _choose(self, groups: Sequence[tuple[list[str], list[str]]], following: str) -> list[list[str]]:
        """Return the kinds that may stand before a word."""
        if self._unclear.match(following):
            return [kind for group in groups for kind in group]
        return [group[bool(_VOWELS.match(following))] for group in groups]


def cut_definite(text: str, language: str) -> str:
    """Return a text without the definite article that it begins with; it is the same if there is none."""
    words = "|".join(_DATA["definite"].get(primary_language(language), "").split())
    return re.sub(rf"^(?:{words})(?:\s+|['’])(?=\w)", "", text, flags=re.I) if words else text


def join_elided(text: str, words: Sequence[Span]) -> list[Span]:
    """Return the words with an article or the like that ends in an apostrophe as one word: l' in l'eau."""
    joined: list[Span] = []
    for start, end in words:
        if text[start:end] in ("'", "’") and joined and joined[-1][1] == start and text[end : end + 1].isalpha():
            joined[-1] = (joined[-1][0], end)
        else:
            joined.append((start, end))
    return joined
