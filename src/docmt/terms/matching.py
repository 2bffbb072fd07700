"""Where the terms of a glossary stand in source sentences, and which of them their translations obey."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Literal, NamedTuple

from docmt.documents.words import Span, find_words, normalize_characters
from docmt.terms.glossary import Glossary, Term, Terms, make_glossary
from docmt.terms.word_forms import WordForms, load_word_forms

TermMode = Literal["prefer", "require"]
"""prefer: a term is met where the model's own probability falls little; require: wherever it can be met."""
_LONGEST_ACRONYM = 4
"""Letters of a term in capitals that is searched in capitals only."""
_MOST_FORMS = 6
"""Forms of a target that a search tries."""


class Occurrence(NamedTuple):
    """A term in a source sentence."""

    term: Term
    span: Span
    """its characters"""
    words: tuple[str, ...] = ()


class Match(NamedTuple):
    """What stands for a term in a translation."""

    span: Span
    is_listed: bool
    """whether it is written as the glossary has it, but for capitals at the beginning"""


def _read_words(text: str) -> tuple[list[Span], list[str]]:
    """Return the words of a text: their characters, and what is compared, whatever the apostrophes and hyphens."""
    spans = find_words(text)
    return spans, [normalize_characters(text[start:end]).replace("’", "'") for start, end in spans]


@dataclass(frozen=True)
class _Phrase:
    """Words of a term."""

    text: str
    words: tuple[str, ...]

    @classmethod
    def split(cls, text: str) -> _Phrase:
        """Return the words of a text."""
        return cls(text, tuple(_read_words(text)[1]))

    @property
    def is_acronym(self) -> bool:
        """Whether it is known by its capitals: the US are no form of us."""
        return self.text.isupper() and sum(map(str.isalpha, self.text)) <= _LONGEST_ACRONYM


@dataclass
class TermMatcher:
    """Finds the terms of a glossary in sentences."""

    glossary: Glossary
    mode: TermMode = "prefer"
    base: TermMatcher | None = None
    """finds further terms, of the same languages: where both have one of the same length, it is not asked"""
    source: WordForms = field(init=False)
    target: WordForms = field(init=False)

    def __post_init__(self) -> None:
        """Index the terms by the keys of their first two words."""
        self.source, self.target = map(load_word_forms, self.glossary.languages)
        self._by_beginning: dict[tuple[str, ...], list[tuple[_Phrase, Term]]] = defaultdict(list)
        for term in self.glossary.terms:
            phrase = _Phrase.split(normalize_characters(term.source))
            for keys in product(*map(self.source.keys, phrase.words[:2])):
                self._by_beginning[keys].append((phrase, term))

    def _list_matchers(self) -> list[TermMatcher]:
        return [self, *(self.base._list_matchers() if self.base else ())]

    def find(self, sentence: str) -> list[Occurrence]:
        """Return the terms of a source sentence in order. Of those that overlap, the longest counts, then the first."""
        spans, words = _read_words(sentence)
        all_keys = list(map(self.source.keys, words))
        found: list[tuple[int, int, Term]] = []  # words, number of the first word
        for number in range(len(words)):
            candidates = {
                id(term): (phrase, term)
                for matcher in self._list_matchers()
                for size in (1, 2)
                for keys in product(*all_keys[number : number + size])
                for phrase, term in matcher._by_beginning.get(keys, ())
            }
            for phrase, term in candidates.values():
                size = len(phrase.words)
                if number + size <= len(words) and self._is_term(words[number : number + size], phrase, term):
                    found.append((size, number, term))
        taken: set[int] = set()
        occurrences = []
        for size, number, term in sorted(found, key=lambda each: (-each[0], each[1])):
            numbers = range(number, number + size)
            if taken.isdisjoint(numbers):
                taken.update(numbers)
                span = spans[number][0], spans[number + size - 1][1]
                occurrences.append(Occurrence(term, span, tuple(words[number : number + size])))
        return sorted(occurrences, key=lambda each: each.span)

    def _is_term(self, words: Sequence[str], phrase: _Phrase, term: Term) -> bool:
        """Return whether words of a sentence are those of a term, each in any form."""
        if term.case or phrase.is_acronym:
            return tuple(words) == phrase.words
        return all(map(self.source.are_forms, words, phrase.words))

    def match(self, occurrences: Sequence[Occurrence], target: str) -> list[Match | None]:
        """Return what stands in a translation for each occurrence; a word of it stands for one occurrence only."""
        spans, words = _read_words(target)
        taken: set[int] = set()
        matches: list[Match | None] = [self._match_forbidden(each.term, target) for each in occurrences]
        wanted = [
            (phrase, index)
            for index, occurrence in enumerate(occurrences)
            for phrase in map(_Phrase.split, occurrence.term.targets)
        ]
        for exact in (True, False):
            for phrase, index in sorted(wanted, key=lambda each: -len(each[0].words)):
                for numbers in self._find_places(words, phrase, exact, occurrences[index].term):
                    if matches[index] is None and taken.isdisjoint(numbers):
                        taken.update(numbers)
                        matches[index] = Match((spans[numbers[0]][0], spans[numbers[-1]][1]), exact)
        return matches

    def _match_forbidden(self, term: Term, target: str) -> Match | None:
        """Return an empty match for a term that has only forbidden translations, none of which stands there."""
        return Match((0, 0), True) if not term.targets and self.find_forbidden(term, target) is None else None

    def find_forbidden(self, term: Term, target: str) -> Span | None:
        """Return where a forbidden translation of a term stands."""
        for forbidden in term.forbidden:
            for span in self.list_places(term, forbidden, target):
                return span
        return None

    def list_places(self, term: Term, text: str, target: str, exact: bool = False) -> list[Span]:
        """Return where one of the texts of a term stands in a translation. exact: only as it is written."""
        spans, words = _read_words(target)
        places = self._find_places(words, _Phrase.split(text), exact, term)
        return [(spans[numbers[0]][0], spans[numbers[-1]][1]) for numbers in places]

    def _find_places(self, words: Sequence[str], phrase: _Phrase, exact: bool, term: Term) -> Iterator[range]:
        """Yield the numbers of the words that are a target."""
        size = len(phrase.words)
        for number in range(len(words) - size + 1):
            if self._is_target(words[number : number + size], phrase, exact, term):
                yield range(number, number + size)

    def _is_target(self, words: Sequence[str], phrase: _Phrase, exact: bool, term: Term) -> bool:
        """Return whether words of a translation are those of a target; not exact: in any form, but for acronyms."""
        if exact:
            first, *others = words
            capitalized = first[:1].lower() + first[1:]
            return tuple(others) == phrase.words[1:] and phrase.words[0] in (first, capitalized)
        if phrase.is_acronym or not all(map(self.target.are_forms, words, phrase.words)):
            return False
        pairs = zip(words, phrase.words, strict=True)
        return not term.case or all(word[0].isupper() or not wanted[0].isupper() for word, wanted in pairs)

    def list_forms(self, occurrence: Occurrence) -> list[str]:
        """Return the texts that may stand for a term: as listed, and other forms of its words.

        Those of another grammatical number than the source are left out, if it can be told and others are there.
        """
        term, is_plural = occurrence.term, self.source.is_plural(occurrence.words)
        forms = dict[str, None].fromkeys(term.targets)
        for text in list(forms):
            spans = find_words(text)
            inflected = [[text[slice(*span)], *self.target.list_forms(text[slice(*span)])] for span in spans]
            for words in () if term.keep else product(*inflected):
                parts, position = [], 0
                for span, word in zip(spans, words, strict=True):
                    parts += [text[position : span[0]], word]
                    position = span[1]
                forms.setdefault("".join([*parts, text[position:]]))
                if len(forms) >= _MOST_FORMS * len(term.targets):
                    break
        numbers = {form: self.target.is_plural(_read_words(form)[1]) for form in forms if is_plural is not None}
        return [form for form, number in numbers.items() if number in (is_plural, None)] or list(forms)


def make_matcher(
    terms: Terms | TermMatcher | None, languages: tuple[str, str], mode: TermMode = "prefer"
) -> TermMatcher | None:
    """Return what finds terms, or None for none. Raises DocmtError for terms that cannot be used."""
    if terms is None or isinstance(terms, TermMatcher):
        return terms
    return TermMatcher(make_glossary(terms, languages), mode)
