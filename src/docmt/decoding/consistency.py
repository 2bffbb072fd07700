"""Consistency: a name or noun phrase is translated as the document mostly does, where another word stood for it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from docmt.checking.renderings import (
    RepeatedPhrase,
    find_renderings,
    find_repeated_phrases,
    is_other_rendering,
    most_common_text,
)
from docmt.decoding.long_sentences import Align, Key, PieceTranslator, Rows, make_translation
from docmt.decoding.term_search import Case, SearchOpenings, TermSearch
from docmt.decoding.translation_results import PreparedDocument, TermUse, Translation
from docmt.documents.words import Span
from docmt.formats.language_codes import primary_language
from docmt.terms import Glossary, Term
from docmt.terms.matching import Match, TermMatcher
from docmt.terms.word_forms import choose_lemma

_LEAST_USUAL = 3
"""Occurrences of a rendering that is the usual one."""
Place = tuple[Key, int, Span]
"""A sentence, its piece, and the characters of a phrase there."""


class ConsistencySearch(TermSearch):
    """Second search of sentences with a rendering that the rest of their document does not have."""

    most_loss = 4.0

    def __init__(
        self, translator: PieceTranslator, terms: Sequence[Term], places: Mapping[Place, str], align: Align,
        search_openings: SearchOpenings,
    ) -> None:  # fmt: skip
        """terms: the usual renderings. places: where other words stand, and these."""
        matcher = TermMatcher(Glossary(translator.languages, tuple(terms)))
        super().__init__(translator, matcher, align, search_openings)
        self._places, self._user = places, translator.terms

    def _make_cases(self, key: Key, pieces: Rows, is_changed: bool) -> list[Case]:
        cases = super()._make_cases(key, pieces, is_changed)
        for case in cases:
            spans = [(case.key, case.part, each.span) for each in case.occurrences]
            case.searched = {n for n, each in enumerate(spans) if case.matches[n] is None and each not in self._places}
        return [case for case in cases if case.missing]

    def _count_faults(self, case: Case, target: str, matches: Sequence[Match | None]) -> int:
        faults, user = super()._count_faults(case, target, matches), self._user
        wanted = user.find(case.sentence.source) if user else []
        return faults + (user.match(wanted, target).count(None) if user else 0)

    def _describe(self, case: Case) -> list[TermUse]:
        return [
            replace(use, status="consistent", replaced=self._places.get((case.key, case.part, use.span), ""))
            for use in super()._describe(case)
            if use.status == "second_search"
        ]


def make_consistent(
    translator: PieceTranslator,
    sources: Sequence[PreparedDocument],
    translations: Sequence[Translation],
    changed: Mapping[Key, Rows],
    given: Collection[Key],
    align: Align,
    search_openings: SearchOpenings,
) -> tuple[list[Translation], dict[Key, Rows]]:
    """Return the translations, and the sentences with other translations, as `TermSearch.run` does (see there).

    Each document is searched apart from the others, so that it does not matter which these are.
    """
    made, others = list(translations), dict[Key, Rows]()
    for document, translation in enumerate(translations):
        if not translation.has_finite_scores:
            continue
        rows = {(0, n): changed.get((document, n), [sentence]) for n, sentence in enumerate(translation)}
        terms, found_places = _find_terms(translator, rows, align)
        places = {place: text for place, text in found_places.items() if (document, place[0][1]) not in given}
        if places:
            search = ConsistencySearch(translator, terms, places, align, search_openings)
            known = {key: pieces for key, pieces in rows.items() if (document, key[1]) in changed}
            (made[document],), found = search.run([sources[document]], [translation], known)
            others |= {(document, number): pieces for (_, number), pieces in found.items()}
    return made, others


def _find_terms(
    translator: PieceTranslator, rows: Mapping[Key, Rows], align: Align
) -> tuple[list[Term], dict[Place, str]]:
    """Return the usual renderings of the phrases of a document, and where other words stand for them."""
    flat = [(key, part, each) for key, pieces in rows.items() for part, each in enumerate(pieces)]
    pairs = [(each.source, each.target) for _, _, each in flat]
    source, target = map(primary_language, translator.languages)
    phrases = find_repeated_phrases([one for one, _ in pairs], source, choose_lemma(source))
    if not any(phrases):
        return [], {}
    numbers = [number for number, each in enumerate(phrases) if each]
    (links,) = align([make_translation([each for _, _, each in flat])], [numbers])
    terms, places = [], dict[Place, str]()
    for phrase in find_renderings(pairs, phrases, links, target, choose_lemma(target)):
        usual, *rest = phrase.groups
        if not _has_usual(phrase):
            continue
        terms.append(Term(phrase.text, (most_common_text([each.text for each in usual]),)))
        for each in (each for group in rest for each in group if is_other_rendering(each, usual[0])):
            asked = translator.terms.find(pairs[each.sentence][0]) if translator.terms else []
            if all(use.span[1] <= each.source[0] or each.source[1] <= use.span[0] for use in asked):
                places[(*flat[each.sentence][:2], each.source)] = each.text
    return terms, places


def _has_usual(phrase: RepeatedPhrase) -> bool:
    """Return whether one rendering of a phrase is more frequent than all others together; of a name two are enough."""
    return _LEAST_USUAL - phrase.text[:1].isupper() <= len(phrase.groups[0]) > phrase.total - len(phrase.groups[0])
