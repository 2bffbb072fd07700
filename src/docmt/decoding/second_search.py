"""The second search: sentences whose translation lacks words, or loses or adds numbers, are translated again."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from docmt.decoding.long_sentences import Align, Key, PieceTranslator, Rows, Translate, cut_by_tokens, join_whole
from docmt.decoding.missing_text import count_missing, find_doubtful
from docmt.decoding.term_search import SearchOpenings, TermSearch
from docmt.decoding.translation_results import PreparedDocument, TranslatedSentence, Translation
from docmt.documents import Document
from docmt.documents.numbers import find_number_faults, find_numbers, repair_numbers
from docmt.documents.protected_text import Protection


def complete_translations(
    translator: PieceTranslator,
    sources: Sequence[PreparedDocument],
    translations: Sequence[Translation],
    translate: Translate,
    align: Align,
    search_openings: SearchOpenings,
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
        search = TermSearch(translator, translator.terms, align, search_openings)
        translations, with_terms = search.run(sources, translations, changed | given, given)
        changed |= with_terms
        with_terms = {key: pieces for key, pieces in with_terms.items() if key not in given}
        missing |= count_missing(find_doubtful(sources, with_terms), align)
    changed = given | changed
    if translator.consistent:
        from docmt.decoding.consistency import make_consistent  # imported here: it reads lists of words

        searches = align, search_openings
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
        return Protection(translator.languages, [*patterns, *translator.patterns])


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
    found = translate([translator.prepare(Document.from_sentences([text])) for text in hidden]) if hidden else []
    changed, missing = dict[Key, Rows](), dict[Key, int]()
    for fault, protection, translation in zip(faults, protections, found, strict=True):
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
