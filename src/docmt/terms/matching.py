"""Where the terms of a glossary stand in source sentences, and which of them their translations obey."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress, islice, product
from operator import itemgetter
from typing import Literal, NamedTuple

from docmt.core.grouping import group_pairs
from docmt.documents.words import Span, find_words, normalize_characters, overlaps
from docmt.terms.glossary import Glossary, Term, Terms, make_glossary, paused_collection
from docmt.terms.word_forms import WordForms, load_word_forms

TermMode = Literal["prefer", "require"]
"""prefer: a term is met where the model's own probability falls little; require: wherever it can be met."""
_LONGEST_ACRONYM = 4
"""Letters of a term in capitals that is searched in capitals only."""
_MOST_TOGETHER, _DEEPEST = 16, 32
"""Terms that are not divided by their next word, and words by which they are."""
_HYPHENS = "-\u2010\u2011"
_TO = re.compile(r"(?<![\w'’])to\s$")
"""The word before an English verb."""
_MOST_FORMS = 6
"""Forms of a target that a search tries."""


class Occurrence(NamedTuple):
    """A term in a source sentence."""

    term: Term
    span: Span
    """its characters"""
    words: tuple[str, ...] = ()
    mode: TermMode = "prefer"
    """of the matcher whose term it is"""
    is_verb: bool = False
    """whether it is a verb, and no translation is one"""
    written: str = ""
    """another text that counts: how the sentence writes a name that is kept, or a feminine that stands for the term"""

    @property
    def targets(self) -> tuple[str, ...]:
        """What it may be in a translation."""
        return (self.written, *self.term.targets) if self.written else self.term.targets


class Match(NamedTuple):
    """What stands for a term in a translation."""

    span: Span
    is_listed: bool
    """whether it is written as the glossary has it, but for capitals at the beginning"""


def _read_words(text: str) -> tuple[list[Span], list[str]]:
    """Return the words of a text: their characters, and what is compared, whatever the apostrophes and hyphens."""
    spans = find_words(text)
    return spans, [normalize_characters(text[start:end]).replace("’", "'") for start, end in spans]


def _read_source(text: str) -> tuple[list[Span], list[str]]:
    """Return the words of a source text as `_read_words` does, without hyphens in words: log-file is log file."""
    spans, words = _read_words(text)
    around = zip([-1, *(end for _, end in spans)], spans, [*(start for start, _ in spans[1:]), -1], strict=False)
    kept = [
        text[slice(*span)] not in _HYPHENS
        or (before, after) != span
        or not (text[before - 1].isalnum() and text[after].isalnum())
        for before, span, after in around
    ]
    return list(compress(spans, kept)), list(compress(words, kept))


@dataclass(frozen=True)
class _Phrase:
    """Words of a term."""

    text: str
    words: tuple[str, ...]
    is_verb: bool = False
    """whether it is written as a verb: to report"""
    has_hyphens: bool = False
    """whether it is written with hyphens in words, which are not among them"""

    @classmethod
    def split(cls, text: str) -> _Phrase:
        """Return the words of a text."""
        return cls(text, tuple(_read_words(text)[1]))

    @property
    def is_acronym(self) -> bool:
        """Whether it is known by its capitals: the US are no form of us."""
        return self.text.isupper() and sum(map(str.isalpha, self.text)) <= _LONGEST_ACRONYM


@dataclass
class _Node:
    """Terms that begin with the same words, and what those of many are divided into by the next word."""

    terms: Sequence[tuple[_Phrase, Term]]
    by_key: Mapping[str, Sequence[_Node]] = field(default_factory=dict)

    @classmethod
    def make(cls, terms: Sequence[tuple[_Phrase, Term]], forms: WordForms, depth: int = 0) -> _Node:
        """Return the node of terms; depth: number of words that they share."""
        if len(terms) <= _MOST_TOGETHER or depth == _DEEPEST:
            return cls(terms)
        groups = group_pairs(("".join(each[0].words[depth : depth + 1]), each) for each in terms)
        whole = groups.pop("", [])
        nodes = [(word, cls.make(others, forms, depth + 1)) for word, others in groups.items()]
        return cls(whole, group_pairs((key, node) for word, node in nodes for key in forms.keys(word)))

    def find(self, all_keys: Sequence[frozenset[str]]) -> list[tuple[_Phrase, Term]]:
        """Return the terms that words with these keys may begin with."""
        nodes, found = [self], list[tuple[_Phrase, Term]]()
        for keys in [*all_keys, frozenset[str]()]:
            found += (each for node in nodes for each in node.terms)
            next_nodes = {id(each): each for node in nodes for key in sorted(keys) for each in node.by_key.get(key, ())}
            if not (nodes := list(next_nodes.values())):
                break
        return found


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
        """Index the terms by the keys of their words."""
        self.source, self.target = map(load_word_forms, self.glossary.languages)
        with paused_collection():
            phrases = [(self._read_term(term), term) for term in self.glossary.terms]
            self._index = _Node.make(phrases, self.source)

    def _read_term(self, term: Term) -> _Phrase:
        """Return the words of a term, without the *to* of an English verb."""
        text = normalize_characters(term.source)
        is_verb = self.source.language == "en" and text.startswith("to ") and self.target.tells_verbs
        is_verb = is_verb and not self.has_no_verb(term)
        text = text.removeprefix("to ") if is_verb else text
        words = _read_source(text)[1]
        return _Phrase(text, tuple(words), is_verb, len(words) != len(_read_words(text)[1]))

    def _list_matchers(self) -> list[TermMatcher]:
        return [self, *(self.base._list_matchers() if self.base else ())]

    def find(self, sentence: str) -> list[Occurrence]:
        """Return the terms of a source sentence in order.

        Of those that overlap, the longest counts, then the first, then the one in this form.
        """
        spans, words = _read_source(sentence)
        all_keys, idioms = list(map(self.source.keys, words)), self.source.find_idioms(sentence)
        fixed = {number for number, span in enumerate(spans) if overlaps(span, idioms)}
        found = list[tuple[tuple[int, int, int, bool, bool], Occurrence]]()  # of each: how good, the least first
        for number, (start, _) in enumerate(spans):
            keys = all_keys[number : number + _DEEPEST]
            for order, matcher in enumerate(self._list_matchers()):
                for phrase, term in matcher._index.find(keys):
                    size = len(phrase.words)
                    part = tuple(words[number : number + size])
                    if len(part) != size or (size == 1 and number in fixed) or not self._is_term(part, phrase, term):
                        continue
                    end = spans[number + size - 1][1]
                    text, before, after = sentence[start:end], sentence[:start], sentence[end:]
                    is_noun = phrase.is_verb and self.source.cannot_be_verb(part[0], before)
                    if is_noun or not self._has_hyphens(part, phrase, text):
                        continue
                    is_word = " " not in text  # e-mailed is one
                    is_verb = self.source.is_verb_between(part[-1] if is_word else part[0], before, after)
                    is_doubtful = phrase.is_verb != bool(_TO.search(before[-4:]) or is_verb)  # to report, or report
                    is_past = self.source.is_past(part[-1]) and part[-1].casefold() != term.source.casefold()
                    is_verb = is_word and not term.keep and (is_past or is_verb) and self.has_no_verb(term)
                    written = text if term.keep and text not in (*term.targets, *term.forbidden) else ""
                    occurrence = Occurrence(term, (start, end), part, matcher.mode, is_verb, written)
                    found.append(((-size, number, order, is_doubtful, part != phrase.words), occurrence))
        occurrences = list[Occurrence]()
        for _, each in sorted(found, key=itemgetter(0)):
            if not overlaps(each.span, [other.span for other in occurrences]):
                occurrences.append(each)
        return sorted(occurrences, key=lambda each: each.span)

    def has_no_verb(self, term: Term) -> bool:
        """Return whether no translation of a term is a verb or begins with one, as far as that is known."""
        is_verb, texts = term.source.startswith("to "), term.targets or term.forbidden
        return self.target.tells_verbs and not any(self.target.begins_with_verb(text, is_verb) for text in texts)

    def list_infinitives(self, term: Term) -> list[str]:
        """Return the translations of a term that are infinitives, as far as that is known."""
        is_verb = term.source.startswith("to ")
        return [text for text in term.targets if self.target.is_infinitive(text, is_verb)]

    def _is_term(self, words: Sequence[str], phrase: _Phrase, term: Term) -> bool:
        """Return whether words of a sentence are those of a term, each in any form."""
        if term.keep and phrase.text[:1].isupper() and words[0][:1].islower():  # Word: not words
            return tuple(map(str.casefold, words)) == tuple(map(str.casefold, phrase.words))
        if term.case or phrase.is_acronym:
            plural = (*phrase.words[:-1], f"{phrase.words[-1]}s")  # NGOs
            return tuple(words) == phrase.words or (phrase.is_acronym and not term.case and tuple(words) == plural)
        return all(map(self.source.are_forms, words, phrase.words))

    def _has_hyphens(self, words: Sequence[str], phrase: _Phrase, text: str) -> bool:
        """Return whether a text has the hyphens of a term, or is the same words: not *made up* for *make-up*.

        Where the first word is a verb, it needs them: *peut être* is not *peut-être*.
        """
        if not phrase.has_hyphens or not set(text).isdisjoint(_HYPHENS):
            return True
        pairs = zip(words[:-1], phrase.words[:-1], strict=True)
        return all(one.casefold() == other.casefold() for one, other in pairs) and not self.source.is_verb(words[0])

    def match(self, occurrences: Sequence[Occurrence], target: str) -> list[Match | None]:
        """Return what stands in a translation for each occurrence; a word of it stands for one occurrence only."""
        spans, words = _read_words(target)
        taken: set[int] = set()
        matches: list[Match | None] = [self._match_forbidden(each.term, target) for each in occurrences]
        wanted = [
            (phrase, index)
            for index, occurrence in enumerate(occurrences)
            for phrase in map(_Phrase.split, occurrence.targets)
        ]
        for exact in (True, False):
            for phrase, index in sorted(wanted, key=lambda each: (occurrences[each[1]].is_verb, -len(each[0].words))):
                for numbers in self._find_places(words, phrase, exact, occurrences[index].term):
                    if matches[index] is None and taken.isdisjoint(numbers):
                        taken.update(numbers)
                        matches[index] = Match((spans[numbers[0]][0], spans[numbers[-1]][1]), exact)
        return matches

    def _match_forbidden(self, term: Term, target: str) -> Match | None:
        """Return an empty match for a term that has only forbidden translations, none of which stands there."""
        return Match((0, 0), True) if not term.targets and self.find_forbidden(term, target) is None else None

    def find_forbidden(self, term: Term, target: str, matches: Sequence[Match | None] = ()) -> Span | None:
        """Return where a forbidden translation of a term stands, if it does. matches: what is allowed there."""
        places = (span for text in term.forbidden for span in self.list_places(term, text, target))
        allowed = [match.span for match in matches if match]
        return next((span for span in places if not overlaps(span, allowed)), None)

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
        if phrase.is_acronym or not self.target.are_phrase_forms(words, phrase.words):
            return False
        pairs = zip(words, phrase.words, strict=True)
        return not term.case or all(word[0].isupper() or not wanted[0].isupper() for word, wanted in pairs)

    def list_feminines(self, occurrence: Occurrence, replaced: str) -> list[str]:
        """Return the translations of a term that are adjectives, in the feminine and the number of a word."""
        words = [self.target.feminine(text) for text in occurrence.term.targets if text.isalpha() and text.islower()]
        return [f"{word}{'s' * replaced.endswith('s')}" for word in words if word and not occurrence.term.keep]

    def list_forms(self, occurrence: Occurrence, replaced: str = "") -> list[str]:
        """Return the texts that may stand for a term: as listed, and other forms of its words.

        Words have the grammatical number of the source, if it can be told and the table has such a form. Where the
        translation has a plural all the same, as in adjectives, they have one of any gender. replaced: that word.
        """
        term, is_plural = occurrence.term, self.source.is_plural(occurrence.words)
        agrees = not is_plural and bool(replaced) and bool(self.target.is_plural([replaced]))
        forms, listed = dict[str, None](), dict.fromkeys(occurrence.targets)
        own_words = self._read_term(term).words
        is_own = not agrees and list(map(str.casefold, occurrence.words)) == list(map(str.casefold, own_words))
        new_verbs = {text for text in self.list_infinitives(term) if not self.target.is_known(text)}
        forms |= dict.fromkeys(text for text in listed if text in new_verbs)  # they have no plural
        for text in () if term.keep else (each for each in listed if each not in new_verbs):
            spans = find_words(text)
            inflected = self.target.inflect([text[slice(*span)] for span in spans], agrees or is_plural, not agrees)
            for words in islice(product(*inflected), _MOST_FORMS):
                parts, position = [], 0
                for span, word in zip(spans, words, strict=True):
                    parts += [text[position : span[0]], word]
                    position = span[1]
                forms.setdefault("".join([*parts, text[position:]]))
        first = [text for text in listed if term.keep or is_own or text in forms]
        return list(dict.fromkeys([*first, *forms]))


def make_matcher(
    terms: Terms | TermMatcher | None, languages: tuple[str, str], mode: TermMode = "prefer"
) -> TermMatcher | None:
    """Return what finds terms, or None for none. Raises DocmtError for terms that cannot be used."""
    if terms is None or isinstance(terms, TermMatcher):
        return terms
    return TermMatcher(make_glossary(terms, languages), mode)
