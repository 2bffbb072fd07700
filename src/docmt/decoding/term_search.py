"""Terms: sentences whose translation lacks a term of the glossary are searched again.

The new search begins with the translation so far, up to where its links say that the term stands, or up to two free
words earlier, so that articles may change. A form of the term follows, and then the rest is free. So the words around
a term agree with it. Several terms of a sentence are met one after the other, and a sentence keeps what it has met.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from docmt.decoding.long_sentences import Align, Key, PieceTranslator, Rows, make_translation
from docmt.decoding.openings import Opening
from docmt.decoding.translation_results import (
    Hypothesis,
    PreparedDocument,
    TermStatus,
    TermUse,
    TranslatedSentence,
    Translation,
)
from docmt.documents import Document, unwrap_lines
from docmt.documents.numbers import find_number_faults
from docmt.documents.protected_text import find_protected
from docmt.documents.words import WordLink, find_words
from docmt.terms.matching import Match, Occurrence, TermMatcher

MOST_LOSS = 4.0
"""Log-probability (nats) that a sentence may lose for each term, in the mode prefer."""
_ROUNDS = 4
"""Most searches of a sentence."""
_FREE_WORDS = 2
"""Most free tokens before a term."""
_MOST_PLACES = 8
"""Places that are tried for a term without a link."""
SearchOpenings = Callable[
    [Sequence[PreparedDocument], Sequence[Sequence[Sequence[int]]], Sequence[Opening]], list[Hypothesis | None]
]
"""Searches openings in documents with these translations (word ids)."""


@dataclass
class _Case:
    """A sentence with terms, and its translation so far."""

    key: Key
    part: int
    """number of the piece, where the sentence was searched again in pieces"""
    document: int
    """number of the document in which it is searched"""
    number: int
    """in that document"""
    sentence: TranslatedSentence
    occurrences: Sequence[Occurrence]
    matches: Sequence[Match | None] = ()
    loss: float = 0.0
    """nats that the terms cost so far"""
    searched: set[int] = field(default_factory=set)
    """occurrences that were searched again"""
    refused: dict[int, float] = field(default_factory=dict)
    """occurrences that would cost too much, and how much"""

    @property
    def missing(self) -> list[int]:
        """Occurrences without a match that can still be searched."""
        return [n for n, each in enumerate(self.matches) if each is None and n not in self.searched]


class TermSearch:
    """Second search of sentences that lack terms."""

    def __init__(
        self, translator: PieceTranslator, matcher: TermMatcher, align: Align, search_openings: SearchOpenings
    ) -> None:
        """align, search_openings: of the translator."""
        self._translator, self._matcher = translator, matcher
        self._align, self._search_openings = align, search_openings
        self._documents: list[PreparedDocument] = []
        self._translations: list[list[TranslatedSentence]] = []

    def run(
        self, sources: Sequence[PreparedDocument], translations: Sequence[Translation], changed: Mapping[Key, Rows]
    ) -> tuple[list[Translation], dict[Key, Rows]]:
        """Return the translations with what became of their terms, and the sentences with other translations.

        changed: sentences that were searched again, without their documents.
        """
        self._documents, self._translations = list(sources), [list(each.sentences) for each in translations]
        rows = {(d, n): [each] for d, made in enumerate(translations) for n, each in enumerate(made)} | dict(changed)
        cases = [case for key, pieces in rows.items() for case in self._make_cases(key, pieces, key in changed)]
        if self._translator.search.implementation == "docmt" and not self._translator.search.sampling:
            for _ in range(_ROUNDS):
                if not (waiting := [case for case in cases if case.missing]):
                    break
                self._search(waiting)
        described = {case.key: list(rows[case.key]) for case in cases}
        for case in cases:
            described[case.key][case.part] = replace(case.sentence, terms=tuple(self._describe(case)))
        same = [
            key for key, pieces in described.items() if key not in changed and pieces[0].target == rows[key][0].target
        ]
        sentences = [list(each.sentences) for each in translations]
        for document, number in same:
            (sentences[document][number],) = described.pop((document, number))
        made = zip(translations, sentences, strict=True)
        return [replace(each, sentences=tuple(others)) for each, others in made], described

    def _make_cases(self, key: Key, pieces: Rows, is_changed: bool) -> list[_Case]:
        """Return the cases of a sentence, one for each piece with terms."""
        cases = []
        for part, sentence in enumerate(pieces):
            occurrences = self._find(sentence.source)
            if not occurrences:
                continue
            document, number = key
            if is_changed:
                document, number = len(self._documents), 0
                self._documents.append(self._translator.prepare(Document.from_sentences([sentence.source])))
                self._translations.append([sentence])
            matches = self._matcher.match(occurrences, sentence.target)
            cases.append(_Case(key, part, document, number, sentence, occurrences, matches))
        return cases

    def _find(self, source: str) -> list[Occurrence]:
        """Return the terms of a sentence beside its protected texts."""
        found, protection = self._matcher.find(source), self._translator.protection
        if not found or protection is None:
            return found
        protected = [
            each.span for each in find_protected(source, self._translator.languages[0], extra=protection.patterns)
        ]
        return [each for each in found if not any(a < each.span[1] and each.span[0] < b for a, b in protected)]

    def _read(self, case: _Case) -> tuple[str, str]:
        """Return what the model read and wrote of a sentence, without protected texts."""
        protection, sentence = self._translator.protection, case.sentence
        source = protection.hide(sentence.source) if protection else sentence.source
        return source, self._decode([sentence.token_ids])[0]

    def _decode(self, sentences: Sequence[Sequence[int]]) -> list[str]:
        """Return the target texts of word ids."""
        return [unwrap_lines(text).strip() for text in self._translator.tokenizer.decode_batch(sentences, "target")]

    def _search(self, cases: Sequence[_Case]) -> None:
        """Search the first missing term of each sentence."""
        texts = [self._read(case) for case in cases]
        links = self._link(cases, texts)
        openings, owners = list[Opening](), list[tuple[int, int]]()
        for index, (case, pair) in enumerate(zip(cases, texts, strict=True)):
            occurrences = self._find(pair[0])
            missing = case.missing[0]
            case.searched.add(missing)
            if [each.term for each in occurrences] != [each.term for each in case.occurrences]:
                continue  # protected text changes what is a term
            for words in self._open(pair[1], occurrences[missing], links[index]):
                openings.append(Opening(case.document, case.number, words))
                owners.append((index, missing))
        targets = [[list(each.token_ids) for each in sentences] for sentences in self._translations]
        results = self._search_openings(self._documents, targets, openings) if openings else []
        by_case: dict[int, list[Hypothesis]] = {}
        for (index, _), hypothesis in zip(owners, results, strict=True):
            if hypothesis is not None:
                by_case.setdefault(index, []).append(hypothesis)
        for index, hypotheses in by_case.items():
            self._choose(cases[index], hypotheses)

    def _link(self, cases: Sequence[_Case], texts: Sequence[tuple[str, str]]) -> list[Sequence[WordLink]]:
        """Return the links of the sentences, each read within its document."""
        wanted: dict[int, dict[int, tuple[str, str]]] = {}
        for case, pair in zip(cases, texts, strict=True):
            wanted.setdefault(case.document, {})[case.number] = pair
        documents = [
            make_translation(
                [
                    replace(each, source=numbers[n][0], target=numbers[n][1]) if n in numbers else each
                    for n, each in enumerate(self._translations[document])
                ]
            )
            for document, numbers in wanted.items()
        ]
        found = dict(zip(wanted, self._align(documents, [list(numbers) for numbers in wanted.values()]), strict=True))
        return [found[case.document][case.number] for case in cases]

    def _open(self, target: str, occurrence: Occurrence, links: Sequence[WordLink]) -> list[list[int]]:
        """Return the openings to try for a term: the translation so far, free words, and a form of the term."""
        start, end = occurrence.span
        linked = [link for link in links if start <= link.source[0] < end]
        linked = [link for link in linked if link.mutual] or linked
        words, forms = find_words(target), self._matcher.list_forms(occurrence.term)
        places = [(words.index(link.target), _FREE_WORDS) for link in linked[:1]]
        if not places:
            forms = forms[:1]
            places = [(number, 0) for number in range(0, len(words), len(words) // _MOST_PLACES + 1)]
        openings = []
        for form in forms:
            for number, most in places:
                for free in range(min(number, most) + 1):
                    before = target[: words[number - free][0]]
                    openings.append(self._encode(before, free, form))
        return [words for words in openings if words]

    def _encode(self, before: str, free: int, form: str) -> list[int]:
        """Return the word ids of a beginning, free tokens, and a form; none if the model does not know the form."""
        if not before and not free:
            form = form[:1].upper() + form[1:]
        texts = [before.rstrip(), form] if free else [before + form]
        encoded = self._translator.encode(texts, "target")
        if self._translator.tokenizer.specials.unk in encoded[-1]:
            return []
        return [*encoded[0], *[-1] * free, *encoded[1]] if free else encoded[0]

    def _choose(self, case: _Case, hypotheses: Sequence[Hypothesis]) -> None:
        """Take the best new translation of a sentence, if it meets more terms and costs little enough."""
        translator, sentence = self._translator, case.sentence
        texts = self._decode([each.sentences[0] for each in hypotheses])
        met, faults = (
            sum(each is not None for each in case.matches),
            self._count_faults(sentence.target, sentence.source),
        )
        better = []
        for hypothesis, text in zip(hypotheses, texts, strict=True):
            target = translator.protection.restore(text, sentence.source) if translator.protection else text
            matches = self._matcher.match(case.occurrences, target)
            count = sum(each is not None for each in matches)
            if count > met and self._count_faults(target, sentence.source) <= faults:
                better.append((count, hypothesis.sentence_scores[0], target, matches, hypothesis))
        if not better:
            return
        count, score, target, matches, hypothesis = max(better, key=lambda each: each[:2])
        loss = sentence.score - score
        gained = [n for n, each in enumerate(matches) if each is not None and case.matches[n] is None]
        if self._matcher.mode == "prefer" and loss > MOST_LOSS * len(gained):
            case.refused |= dict.fromkeys(gained, loss)
            return
        case.sentence = replace(
            sentence,
            target=target,
            score=score,
            rank_score=hypothesis.score,
            tokens=hypothesis.sentence_tokens[0],
            token_ids=hypothesis.sentences[0],
        )
        case.matches, case.loss = matches, case.loss + loss
        case.searched |= set(gained)
        self._translations[case.document][case.number] = case.sentence

    def _count_faults(self, target: str, source: str) -> int:
        """Return how many numbers a translation loses or adds."""
        return sum(map(len, find_number_faults(source, target, self._translator.languages)))

    def _describe(self, case: _Case) -> list[TermUse]:
        """Return what became of each term of a sentence."""
        uses = []
        for number, (occurrence, match) in enumerate(zip(case.occurrences, case.matches, strict=True)):
            status: TermStatus = "refused" if number in case.refused else "lost"
            loss, found = case.refused.get(number, 0.0), ""
            if match is not None:
                status, found = "met" if match.is_listed else "other_form", case.sentence.target[slice(*match.span)]
            if match is not None and number in case.searched:
                status, loss = "second_search", case.loss
            uses.append(TermUse(occurrence.span, occurrence.term.source, occurrence.term.targets, found, status, loss))
        return uses
