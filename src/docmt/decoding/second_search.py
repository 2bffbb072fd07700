"""Second searches of sentences whose translation has a fault.

The translation lacks words, loses or adds numbers, or renders a name or noun phrase otherwise than its document mostly
does.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from docmt.checking.renderings import (
    RepeatedPhrase,
    find_renderings,
    find_repeated_phrases,
    is_other_rendering,
    most_common_text,
)
from docmt.decoding.long_sentences import (
    Align,
    Key,
    PieceTranslator,
    Rows,
    Translate,
    count_missing,
    cut_by_tokens,
    find_doubtful,
    join_whole,
    make_translation,
)
from docmt.decoding.term_search import Case, ReadSources, TermSearch
from docmt.decoding.translation_results import PreparedDocument, TermUse, TranslatedSentence, Translation
from docmt.documents import Document
from docmt.documents.numbers import find_number_faults, find_numbers, repair_numbers
from docmt.documents.protected_text import Protection
from docmt.documents.words import Span, overlaps
from docmt.formats.language_codes import primary_language
from docmt.terms import Glossary, Term
from docmt.terms.matching import Match, TermMatcher
from docmt.terms.word_forms import choose_lemma


def complete_translations(
    translator: PieceTranslator,
    sources: Sequence[PreparedDocument],
    translations: Sequence[Translation],
    translate: Translate,
    align: Align,
    read_sources: ReadSources,
) -> list[Translation]:
    """Return the translations of whole sentences from those of what the model read.

    What seems to lack text is searched again once, in two pieces or more. The translation that lacks less is kept.
    So is what lacks numbers, with these protected. Without protection the model is let alone. At last come terms. What
    a memory gave stays as it is.
    """
    pairs = enumerate(zip(sources, translations, strict=True))
    given = {(n, key): each for n, (source, made) in pairs for key, each in source.list_given(made).items()}
    rows = {
        (document, number): [sentence]
        for document, translation in enumerate(translations)
        if translator.protection and translation.has_finite_scores
        for number, sentence in enumerate(translation)
        if (document, number) not in given
    }
    missing, changed = count_missing(find_doubtful(sources, rows), align), dict[Key, Rows]()
    if translator.search.implementation == "docmt" and not translator.search.sampling:
        again = _search_in_pieces(translator, [(key, sources[key[0]]) for key in missing], translate)
        counts = count_missing(again, align)
        changed = {key: pieces for key, pieces in again.items() if counts.get(key, 0) < missing[key]}
        missing = {key: counts.get(key, 0) if key in changed else count for key, count in missing.items()}
        joined = {
            (document, number)
            for document, translation in enumerate(translations)
            for span in translation.miscounted
            for number in range(*span)
        }  # their translations are not those of single sentences
        counted = {key: sentences for key, sentences in (rows | changed).items() if key not in joined}
        with_numbers, lost = _search_numbers(translator, counted, translate)
        changed, missing = changed | with_numbers, {**missing, **lost}
    if translator.terms is not None:
        search = TermSearch(translator, translator.terms, read_sources)
        translations, with_terms = search.run(sources, translations, changed | given, given)
        changed |= with_terms
        with_terms = {key: pieces for key, pieces in with_terms.items() if key not in given}
        missing |= count_missing(find_doubtful(sources, with_terms), align)
    changed = given | changed
    if translator.consistent:
        searches = align, read_sources
        translations, consistent = make_consistent(translator, sources, translations, changed, given, *searches)
        changed |= consistent
    by_document: list[tuple[dict[int, Rows], set[int]]] = [({}, set()) for _ in sources]
    for (document, number), sentences in changed.items():
        by_document[document][0][number] = sentences
    for (document, number), count in missing.items():
        by_document[document][1].update([number] if count else [])
    triples = zip(sources, translations, by_document, strict=True)
    completed = [join_whole(translator.languages[1], source, made, *each) for source, made, each in triples]
    return [
        replace(each, score=translator.search.normalize_score(*_sum_scores(each))) if new else each
        for each, (new, _) in zip(completed, by_document, strict=True)
    ]


def _sum_scores(translation: Translation) -> tuple[float, int]:
    """Return the log-probability of a translation, and how many tokens it has."""
    return sum(each.score for each in translation), sum(each.tokens for each in translation)


@dataclass(frozen=True)
class _NumberFault:
    """A sentence, or piece of one, that lost or invented numbers."""

    key: Key
    part: int
    """number of the piece"""
    sentence: TranslatedSentence
    lost: Sequence[str]
    invented: Sequence[str]

    def protect(self, translator: PieceTranslator) -> Protection:
        """Return the protection of its numbers, with the words that have them, like IPv4."""
        numbers = map(re.escape, find_numbers(self.sentence.source) if self.invented else self.lost)
        patterns = [rf"(?:[^\W\d_]+{number}[^\W\d_]*|(?<!\d){number}(?:bn|tn|[mkMK]\b)?)(?!\d)" for number in numbers]
        return Protection(translator.languages, [*patterns, *(translator.patterns or ())])


def _search_numbers(
    translator: PieceTranslator, rows: Mapping[Key, Rows], translate: Translate
) -> tuple[dict[Key, Rows], dict[Key, int]]:
    """Return new translations of sentences that lost or invented numbers, and how many numbers still lack.

    Each sentence is translated apart from its document, with its numbers protected.
    """
    languages = translator.languages
    pieces = [(key, part, each) for key, sentences in rows.items() for part, each in enumerate(sentences)]
    checked = [
        _NumberFault(*piece, *find_number_faults(piece[2].source, piece[2].target, languages)) for piece in pieces
    ]
    faults = [fault for fault in checked if fault.lost or fault.invented]
    protections = [fault.protect(translator) for fault in faults]
    hidden = [each.hide(fault.sentence.source) for fault, each in zip(faults, protections, strict=True)]
    repaired = translate([translator.prepare(Document.from_sentences([text])) for text in hidden]) if hidden else []
    changed, missing = dict[Key, Rows](), dict[Key, int]()
    for fault, protection, translation in zip(faults, protections, repaired, strict=True):
        source, new, left = fault.sentence.source, translation.sentences[0], fault.lost
        restored = protection.restore(new.target, source)
        lost, invented = find_number_faults(source, restored, languages)
        target = repair_numbers(source, restored, languages, fault.lost)
        is_better = len(lost) <= len(left) and len(lost) + len(invented) < len(left) + len(fault.invented)
        if len(translation) == 1 and translation.has_finite_scores and is_better:
            # The tokens were found for another source: it is scored as a text, as pieces are.
            whole = ((0, len(source)), (0, len(target)))
            again = replace(new, source=source, target=target, pieces=(whole,))
            changed.setdefault(fault.key, list(rows[fault.key]))[fault.part] = again
            left = lost
        if left:
            missing[fault.key] = len(left)
    return changed, missing


def _search_in_pieces(
    translator: PieceTranslator, wanted: Sequence[tuple[Key, PreparedDocument]], translate: Translate
) -> dict[Key, Rows]:
    """Return new translations of sentences in pieces, each apart from its document, where they can be cut."""
    divided = {}
    for key, source in wanted:
        sentence, size = source.document.sentences[key[1]], len(source.words[key[1]])
        pieces = [sentence[slice(*span)] for span in cut_by_tokens(translator, sentence, size * 2 // 3)]
        if len(pieces) > 1:
            divided[key] = translator.prepare(Document.from_sentences(pieces))
    translations = translate(list(divided.values())) if divided else []
    return {key: list(each.sentences) for key, each in zip(divided, translations, strict=True)}


_LEAST_USUAL = 3
"""Occurrences of a rendering that is the usual one."""
Place = tuple[Key, int, Span]
"""A sentence, its piece, and the characters of a phrase there."""


class ConsistencySearch(TermSearch):
    """Second search of sentences with a rendering that the rest of their document does not have."""

    most_loss = 4.0

    def __init__(
        self, translator: PieceTranslator, terms: Sequence[Term], other_texts: Mapping[Place, str],
        read_sources: ReadSources,
    ) -> None:  # fmt: skip
        """terms: the usual renderings. other_texts: other words, by their place."""
        matcher = TermMatcher(Glossary(translator.languages, tuple(terms)))
        super().__init__(translator, matcher, read_sources)
        self._texts, self._user = other_texts, translator.terms

    def _make_cases(self, key: Key, pieces: Rows, is_changed: bool) -> list[Case]:
        cases = super()._make_cases(key, pieces, is_changed)
        for case in cases:
            spans = [(case.key, case.part, each.span) for each in case.occurrences]
            case.searched = {n for n, each in enumerate(spans) if case.matches[n] is None and each not in self._texts}
        return [case for case in cases if case.missing]

    def _count_faults(self, case: Case, target: str, matches: Sequence[Match | None]) -> int:
        faults, user = super()._count_faults(case, target, matches), self._user
        wanted = user.find(case.sentence.source) if user else []
        return faults + (user.match(wanted, target).count(None) if user else 0)

    def _describe(self, case: Case) -> list[TermUse]:
        return [
            replace(use, status="consistent", replaced=self._texts.get((case.key, case.part, use.span), ""))
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
    read_sources: ReadSources,
) -> tuple[list[Translation], dict[Key, Rows]]:
    """Return the translations, and the sentences with other translations, as `TermSearch.run` does (see there).

    Each document is searched apart from the others, so that it does not matter which these are.
    """
    made, others = list(translations), dict[Key, Rows]()
    for document, translation in enumerate(translations):
        if not translation.has_finite_scores:
            continue
        rows = {(0, n): changed.get((document, n), [sentence]) for n, sentence in enumerate(translation)}
        terms, texts = _find_terms(translator, rows, align)
        other_texts = {place: text for place, text in texts.items() if (document, place[0][1]) not in given}
        if other_texts:
            search = ConsistencySearch(translator, terms, other_texts, read_sources)
            known = {key: pieces for key, pieces in rows.items() if (document, key[1]) in changed}
            (made[document],), replacements = search.run([sources[document]], [translation], known)
            others |= {(document, number): pieces for (_, number), pieces in replacements.items()}
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
    terms, texts = [], dict[Place, str]()
    for phrase in find_renderings(pairs, phrases, links, target, choose_lemma(target)):
        usual, *rest = phrase.groups
        if not _has_usual(phrase):
            continue
        terms.append(Term(phrase.text, (most_common_text([each.text for each in usual]),)))
        for each in (each for group in rest for each in group if is_other_rendering(each, usual[0])):
            uses = translator.terms.find(pairs[each.sentence][0]) if translator.terms else []
            if not overlaps(each.source, [use.span for use in uses]):
                texts[(*flat[each.sentence][:2], each.source)] = each.text
    return terms, texts


def _has_usual(phrase: RepeatedPhrase) -> bool:
    """Return whether one rendering of a phrase is more frequent than all others together; of a name two are enough."""
    return _LEAST_USUAL - phrase.text[:1].isupper() <= len(phrase.groups[0]) > phrase.total - len(phrase.groups[0])
