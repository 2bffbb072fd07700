"""Terms: sentences whose translation lacks a term of the glossary are searched again.

The new search begins with the translation so far, up to where its links say that the term stands, or up to two free
words earlier, so that articles may change. A form of the term follows, and then the rest is free. So the words around
a term agree with it. Several terms of a sentence are met one after the other, and a sentence keeps what it has met.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from docmt.decoding.long_sentences import (
    Align,
    Key,
    PieceTranslator,
    Rows,
    count_missing,
    find_doubtful,
    make_translation,
)
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
from docmt.documents.words import Span, WordLink, find_words, has_words
from docmt.formats.language_codes import primary_language
from docmt.terms.matching import Match, Occurrence, TermMatcher

_LITTLE_LOSS = 5.0
"""Log-probability (nats) up to which a translation that goes on as before is taken without another search."""
_FREE = ((0, 0), (1, 1), (2, 1), (2, 2))
"""How many words earlier an opening may end before a term, and the free tokens in their place."""
_ELIDING = frozenset(["fr", "it", "ca", "oc"])
"""Languages whose articles lose a vowel: l'eau."""
_VOWELS = "aeiouyhœæ"
_MOST_PLACES = 8
"""Places that are tried for a term without a link."""
SearchOpenings = Callable[
    [Sequence[PreparedDocument], Sequence[Sequence[Sequence[int]]], Sequence[Opening]], list[list[Hypothesis]]
]
"""Searches openings in documents with these translations (word ids)."""
Scores = Mapping[int, tuple[float, int]]
"""Log-probability (nats) and tokens of sentences, by number."""


@dataclass
class Case:
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
    protected: Sequence[Occurrence]
    """others, in protected text"""
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
        return [
            number
            for number, (occurrence, match) in enumerate(zip(self.occurrences, self.matches, strict=True))
            if match is None and number not in self.searched and occurrence.term.targets
        ]


class _Change(NamedTuple):
    """A new translation of a sentence that meets more terms."""

    sentence: TranslatedSentence
    matches: Sequence[Match | None]
    loss: float
    """nats that it costs"""
    is_free: bool
    """whether it may cost anything"""
    is_accepted: bool


@dataclass(frozen=True)
class _Place:
    """Where a term should stand in a translation."""

    target: str
    occurrence: Occurrence | None
    words: Sequence[Span]
    """of the target"""
    number: int | None = None
    """the word that its link names"""
    around: tuple[str, str] | None = None
    """what stands before and after the term in a sentence that is nothing else"""

    @classmethod
    def find(cls, target: str, occurrence: Occurrence, links: Sequence[WordLink]) -> _Place:
        """Return the place of a term in a translation. links: of the sentence."""
        start, end = occurrence.span
        linked = [link for link in links if start <= link.source[0] < end]
        linked = [link for link in linked if link.mutual] or linked
        words = _join_elided(target, find_words(target))
        numbers = (n for n, span in enumerate(words) if linked and span[0] <= linked[0].target[0] < span[1])
        return cls(target, occurrence, words, next(numbers, None))

    def overlaps(self, spans: Sequence[Span]) -> bool:
        """Return whether the word that its link names is in any of these spans."""
        start, end = (0, 0) if self.number is None else self.words[self.number]
        return any(first < end and start < last for first, last in spans)

    @property
    def replaced(self) -> str:
        """The word that its link names."""
        return "" if self.number is None else self.target[slice(*self.words[self.number])]

    def begin(self, form: str, is_first: bool) -> str:
        """Return a form of the term: in capitals like the word that it replaces, or with one at the beginning."""
        keep = self.occurrence is not None and self.occurrence.term.keep
        if not keep and len(self.replaced) > 1 and self.replaced.isupper() and self.target.isupper():
            return form.upper()
        return form[:1].upper() + form[1:] if is_first and not keep and self.target[:1].isupper() else form

    @property
    def rest(self) -> str:
        """The translation after this word."""
        return "" if self.number is None else self.target[self.words[self.number][1] :]


class TermSearch:
    """Second search of sentences that lack terms."""

    most_loss = 10.0
    """log-probability (nats) that a sentence may lose for each term, in the mode prefer"""

    def __init__(
        self, translator: PieceTranslator, matcher: TermMatcher, align: Align, search_openings: SearchOpenings
    ) -> None:
        """align, search_openings: of the translator."""
        self._translator, self._matcher = translator, matcher
        self._align, self._search_openings = align, search_openings
        self._documents: list[PreparedDocument] = []
        self._translations: list[list[TranslatedSentence]] = []

    def run_again(
        self, source: PreparedDocument, targets: Sequence[str], scores: Scores
    ) -> dict[int, TranslatedSentence]:
        """Return sentences of a translated document by number, searched again, with what became of their terms.

        targets: translations of all sentences. scores: of those that are searched.
        Sentences without terms are left out, and so are those that the model reads in pieces.
        """
        hide = self._translator.protection.hide_pair if self._translator.protection else lambda *pair: pair
        hidden = [hide(*pair)[1] for pair in zip(source.whole.sentences, targets, strict=True)]
        words = source.divide_targets(self._translator.encode(hidden, "target"))
        rows, counts = list[TranslatedSentence](), Counter(source.numbers)
        for text, number, ids in zip(source.document.sentences, source.numbers, words, strict=True):
            target = targets[number] if counts[number] == 1 else self._decode([ids])[0]
            score, tokens = scores.get(number, (0.0, 0))
            spans = (0, len(text)), (0, len(target))
            rows.append(TranslatedSentence(text, target, score, *spans, tokens=tokens, token_ids=ids))
        wanted = {(0, part) for part, n in enumerate(source.numbers) if n in scores and counts[n] == 1}
        (made,), others = self.run([source], [make_translation(rows)], {}, wanted=wanted)
        found = {part: others.get((0, part), [made.sentences[part]])[0] for _, part in wanted}
        return {source.numbers[part]: each for part, each in found.items() if each.terms}

    def run(
        self,
        sources: Sequence[PreparedDocument],
        translations: Sequence[Translation],
        changed: Mapping[Key, Rows],
        given: Collection[Key] = (),
        wanted: Collection[Key] | None = None,
    ) -> tuple[list[Translation], dict[Key, Rows]]:
        """Return the translations with what became of their terms, and the sentences with other translations.

        changed: sentences that were searched again, without their documents. given: those that stay as they are.
        wanted: sentences to look at; None: all.
        """
        self._documents, self._translations = list(sources), [list(each.sentences) for each in translations]
        rows = {
            (d, n): [each]
            for d, made in enumerate(translations)
            if made.has_finite_scores
            for n, each in enumerate(made)
            if wanted is None or (d, n) in wanted
        } | dict(changed)
        cases = [case for key, pieces in rows.items() for case in self._make_cases(key, pieces, key in changed)]
        free = [case for case in cases if case.key not in given]
        while waiting := [case for case in free if case.missing]:  # each search leaves one less
            self._search(waiting)
        described = {case.key: list(rows[case.key]) for case in cases}
        for case in cases:
            described[case.key][case.part] = replace(case.sentence, terms=(*case.sentence.terms, *self._describe(case)))
        same = [
            key for key, pieces in described.items() if key not in changed and pieces[0].target == rows[key][0].target
        ]
        sentences = [list(each.sentences) for each in translations]
        for document, number in same:
            (sentences[document][number],) = described.pop((document, number))
        made = zip(translations, sentences, strict=True)
        return [replace(each, sentences=tuple(others)) for each, others in made], described

    def _make_cases(self, key: Key, pieces: Rows, is_changed: bool) -> list[Case]:
        """Return the cases of a sentence, one for each piece with terms."""
        cases = []
        for part, sentence in enumerate(pieces):
            occurrences, protected = self._find(sentence.source)
            if not (occurrences or protected):
                continue
            document, number = key
            if is_changed:
                document, number = len(self._documents), 0
                self._documents.append(self._translator.prepare(Document.from_sentences([sentence.source])))
                self._translations.append([sentence])
            matches = self._match(occurrences, sentence.target)
            cases.append(Case(key, part, document, number, sentence, occurrences, protected, matches))
        return cases

    def _match(self, occurrences: Sequence[Occurrence], target: str) -> list[Match | None]:
        """Return what stands for terms in a translation beside its protected texts."""
        for start, end in self._find_protected(target, 1):
            target = f"{target[:start]}{' ' * (end - start)}{target[end:]}"
        return self._matcher.match(occurrences, target)

    def _find(self, source: str) -> tuple[list[Occurrence], list[Occurrence]]:
        """Return the terms of a sentence beside its protected texts, and those in them."""
        found = self._matcher.find(source)
        texts = self._find_protected(source, 0) if found else []
        protected = [each for each in found if any(a < each.span[1] and each.span[0] < b for a, b in texts)]
        return [each for each in found if each not in protected], protected

    def _find_protected(self, text: str, side: int) -> list[Span]:
        """Return the protected texts of a sentence (side 0) or a translation (1)."""
        protection, language = self._translator.protection, self._translator.languages[side]
        return [each.span for each in find_protected(text, language, extra=protection.patterns)] if protection else []

    def _read(self, case: Case) -> tuple[str, str]:
        """Return what the model read and wrote of a sentence, without protected texts."""
        protection, sentence = self._translator.protection, case.sentence
        source = protection.hide(sentence.source) if protection else sentence.source
        return source, self._decode([sentence.token_ids])[0]

    def _decode(self, sentences: Sequence[Sequence[int]]) -> list[str]:
        """Return the target texts of word ids."""
        return [unwrap_lines(text).strip() for text in self._translator.tokenizer.decode_batch(sentences, "target")]

    def _search(self, cases: Sequence[Case]) -> None:
        """Search the first missing term of each sentence."""
        pairs = [self._read(case) for case in cases]
        links, places = self._link(cases, pairs), list[_Place]()
        for case, (source, target), each in zip(cases, pairs, links, strict=True):
            missing, (found, _) = case.missing[0], self._find(source)
            case.searched.add(missing)
            # Protected text may change what is a term.
            is_same = [other.term for other in found] == [other.term for other in case.occurrences]
            if not is_same:
                places.append(_Place(target, None, ()))
            elif has_words(_blank(source, [found[missing].span], "")):
                places.append(self._find_place(target, missing, found, each))
            else:  # the term is all that there is
                start, end = found[missing].span
                places.append(_Place(source, found[missing], (), around=(source[:start], source[end:])))
        openings = [self._open(place) for place in places]
        wholes: list[list[list[int]]] = [[] for _ in places]
        linked = [index for index, place in enumerate(places) if place.number is not None]
        for index, hypotheses in self._run([(cases[index], openings[index]) for index in linked], stops=True):
            best = sorted(hypotheses, key=lambda each: -each.sentence_scores[0])[:1]
            openings[linked[index]] = [list(each.sentences[0]) for each in best]
            texts = [text + places[linked[index]].rest for text in self._decode(openings[linked[index]])]
            eos = self._translator.tokenizer.specials.eos
            wholes[linked[index]] = [[*words, eos] for words in self._translator.encode(texts, "target")]
        results = dict(self._run(list(zip(cases, wholes, strict=True)), stops=True))
        changes = self._choose_all(cases, places, results)
        cheap = {index for index, each in changes.items() if each.is_accepted and each.loss <= _LITTLE_LOSS}
        rows = [(case, [] if index in cheap else openings[index]) for index, case in enumerate(cases)]
        for index, hypotheses in self._run(rows, stops=False):
            results[index] = [*hypotheses, *results[index]]
        changes = self._choose_all(cases, places, results)
        lacking = self._find_lacking(cases, changes)
        for index, change in changes.items():
            self._change(cases[index], change, change.is_accepted and (change.is_free or index not in lacking))

    def _choose_all(
        self, cases: Sequence[Case], places: Sequence[_Place], found: Mapping[int, Sequence[Hypothesis]]
    ) -> dict[int, _Change]:
        """Return the best change of each sentence that has one; found: hypotheses by the numbers of cases."""
        chosen = {n: self._choose(cases[n], places[n], hypotheses) for n, hypotheses in found.items() if hypotheses}
        return {number: change for number, change in chosen.items() if change}

    def _find_lacking(self, cases: Sequence[Case], changes: Mapping[int, _Change]) -> set[int]:
        """Return the changes whose sentences lack text that they had before."""
        numbers = {index: (cases[index].document, cases[index].number) for index in changes}
        doubtful = find_doubtful(self._documents, {numbers[n]: [each.sentence] for n, each in changes.items()})
        after = count_missing(doubtful, self._align)
        before = count_missing({key: [self._translations[key[0]][key[1]]] for key in after}, self._align)
        return {index for index, key in numbers.items() if after.get(key, 0) > before.get(key, 0)}

    def _find_place(
        self, target: str, missing: int, occurrences: Sequence[Occurrence], links: Sequence[WordLink]
    ) -> _Place:
        """Return the place of a missing term, or of another occurrence of it if that is not met where it stands."""
        spans = [match.span for match in self._matcher.match(occurrences, target) if match]
        wanted = occurrences[missing]
        others = [each for each in occurrences if each.term == wanted.term and each is not wanted]
        places = [_Place.find(target, each, links) for each in (wanted, *others)]
        free = (each for each in places if each.number is not None and not each.overlaps(spans))
        return next(free, places[0])

    def _run(self, rows: Sequence[tuple[Case, Sequence[list[int]]]], stops: bool) -> list[tuple[int, list[Hypothesis]]]:
        """Return what a search finds for the openings of each case."""
        needed = sorted({case.document for case, each in rows if each})  # others need not be read, nor their drafts
        numbers = {document: number for number, document in enumerate(needed)}
        openings = [Opening(numbers[case.document], case.number, words, stops) for case, each in rows for words in each]
        documents = [self._documents[number] for number in numbers]
        targets = [[list(each.token_ids) for each in self._translations[number]] for number in numbers]
        results = iter(self._search_openings(documents, targets, openings) if openings else [])
        return [(n, [found for _ in each for found in next(results)]) for n, (_, each) in enumerate(rows)]

    def _link(self, cases: Sequence[Case], texts: Sequence[tuple[str, str]]) -> list[Sequence[WordLink]]:
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

    def _open(self, place: _Place) -> list[list[int]]:
        """Return the openings to try for a term: the translation so far, free words, and a form of the term."""
        if place.occurrence is None:
            return []
        target, words, forms = place.target, place.words, self._matcher.list_forms(place.occurrence)
        if place.around:
            whole = self._encode(place.around[0], 0, place.begin(forms[0], True) + place.around[1])
            rows = [[*whole, self._translator.tokenizer.specials.eos]] if whole else []
        elif place.number is None:
            starts = [target[:start] for start, _ in words[:: len(words) // _MOST_PLACES + 1]]
            rows = [self._encode(start, 0, place.begin(forms[0], not start)) for start in starts]
        else:
            rows = [
                self._encode(
                    target[: words[place.number - back][0]],
                    free,
                    place.begin(form, back == place.number and not free),
                    elided,
                )
                for form in forms
                for back, free in _FREE
                for elided in (False, True)[: 1 + (back == 1 and self._can_elide(form))]
                if back <= place.number
            ]
        return [row for row in rows if row]

    def _can_elide(self, form: str) -> bool:
        """Return whether an article may lose its vowel before a form."""
        first = unicodedata.normalize("NFD", form[:1].lower())[:1]
        return first in _VOWELS and primary_language(self._translator.languages[1]) in _ELIDING

    def _encode(self, before: str, free: int, form: str, elided: bool = False) -> list[int]:
        """Return the word ids of a beginning, free tokens, and a form; none if the model does not know the form.

        elided: an apostrophe stands between the free token and the form.
        """
        tokenizer = self._translator.tokenizer

        def encode(text: str) -> list[int]:
            return self._translator.encode([text], "target")[0]

        for text in (form, form.replace("’", "'")):
            words = encode(f"l'{text}")[len(encode("l")) :] if elided else encode(text if free else before + text)
            if tokenizer.specials.unk not in words:
                return [*(encode(before.rstrip()) if free else ()), *[-1] * free, *words]
        return []

    def _choose(self, case: Case, place: _Place, hypotheses: Sequence[Hypothesis]) -> _Change | None:
        """Return the best new translation of a sentence, if one meets more terms.

        A translation without the word that stood for the term is better. Terms that are kept, and sentences that are
        nothing but a term, may cost anything.
        """
        translator, sentence, replaced = self._translator, case.sentence, place.replaced
        wanted = place.occurrence
        is_free = place.around is not None or (wanted is not None and (wanted.mode == "require" or wanted.term.keep))
        texts = self._decode([each.sentences[0] for each in hypotheses])
        met, faults = _count_met(case.matches), self._count_faults(case, sentence.target, case.matches)
        better, mean = [], sentence.score / max(sentence.tokens, 1)  # without it short translations would win
        for hypothesis, text in zip(hypotheses, texts, strict=True):
            target = translator.protection.restore(text, sentence.source) if translator.protection else text
            matches = self._match(case.occurrences, target)
            count = _count_met(matches)
            if count > met and not hypothesis.at_limit and self._count_faults(case, target, matches) <= faults:
                is_replaced = bool(replaced) and target.count(replaced) < sentence.target.count(replaced)
                loss = sentence.score - hypothesis.sentence_scores[0]
                is_accepted = is_free or loss <= self.most_loss * (count - met)
                rank = (
                    is_accepted,
                    count,
                    is_replaced,
                    hypothesis.sentence_scores[0] - mean * hypothesis.sentence_tokens[0],
                )
                better.append((rank, loss, target, matches, hypothesis))
        if not better:
            return None
        (is_accepted, *_), loss, target, matches, hypothesis = max(better, key=lambda each: each[0])
        new = replace(
            sentence,
            target=target,
            score=hypothesis.sentence_scores[0],
            rank_score=hypothesis.score,
            tokens=hypothesis.sentence_tokens[0],
            token_ids=hypothesis.sentences[0],
        )
        return _Change(new, matches, loss, is_free, is_accepted)

    def _change(self, case: Case, change: _Change, is_accepted: bool) -> None:
        """Take a new translation of a sentence, or note that it is refused."""
        gained = [n for n, each in enumerate(change.matches) if each is not None and case.matches[n] is None]
        if not is_accepted:
            case.refused |= dict.fromkeys(gained, change.loss)
            return
        case.sentence, case.matches, case.loss = change.sentence, change.matches, case.loss + change.loss
        case.searched |= set(gained)
        self._translations[case.document][case.number] = case.sentence

    def _count_faults(self, case: Case, target: str, matches: Sequence[Match | None]) -> int:
        """Return how many numbers a translation loses or adds, beside those of terms that are met."""
        pairs = [(each.span, match.span) for each, match in zip(case.occurrences, matches, strict=True) if match]
        source = _blank(case.sentence.source, [one for one, _ in pairs])
        return sum(
            map(
                len,
                find_number_faults(source, _blank(target, [other for _, other in pairs]), self._translator.languages),
            )
        )

    def _describe(self, case: Case) -> list[TermUse]:
        """Return what became of each term of a sentence."""
        uses = []
        for number, (occurrence, match) in enumerate(zip(case.occurrences, case.matches, strict=True)):
            status: TermStatus = "refused" if number in case.refused else "lost"
            loss, found, target = case.refused.get(number, 0.0), "", case.sentence.target
            if not occurrence.term.targets and (span := self._matcher.find_forbidden(occurrence.term, target)):
                status, found = "forbidden", target[slice(*span)]
            if match is not None:
                status, found = "met" if match.is_listed else "other_form", target[slice(*match.span)]
            if match is not None and number in case.searched:
                status, loss = "second_search", case.loss
            uses.append(TermUse(occurrence.span, occurrence.term.source, occurrence.term.targets, found, status, loss))
        for term, span, *_ in case.protected:
            found = source if (source := case.sentence.source[slice(*span)]) in case.sentence.target else ""
            uses.append(TermUse(span, term.source, term.targets, found, "protected"))
        return sorted(uses, key=lambda each: each.span)


def _count_met(matches: Sequence[Match | None]) -> int:
    return sum(each is not None for each in matches)


def _blank(text: str, spans: Sequence[Span], word: str = "term") -> str:
    """Return a text with a word in the place of spans."""
    for start, end in sorted(spans, reverse=True):
        text = f"{text[:start]}{word}{text[end:]}"
    return text


def _join_elided(text: str, words: Sequence[Span]) -> list[Span]:
    """Return the words with an article or the like that ends in an apostrophe as one word: l' in l'eau."""
    joined: list[Span] = []
    for start, end in words:
        if text[start:end] in ("'", "’") and joined and joined[-1][1] == start and text[end : end + 1].isalpha():
            joined[-1] = (joined[-1][0], end)
        else:
            joined.append((start, end))
    return joined
