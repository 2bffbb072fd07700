"""Terms: sentences whose translation lacks a term of the glossary are searched again.

The new search begins with the translation so far, up to where its links say that the term stands. The word before it,
or its articles, may change. A form of the term follows, and then the rest is free, so that it agrees with the term.
Several terms of a sentence are met one after the other, and a sentence keeps what it has met.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import NamedTuple

from docmt.decoding.alignment import link_sentences
from docmt.decoding.long_sentences import Key, PieceTranslator, Rows, make_translation
from docmt.decoding.openings import Opening, OpeningSearch
from docmt.decoding.scheduler import batch_ordered
from docmt.decoding.term_openings import Place, TermOpenings
from docmt.decoding.term_report import judge_terms
from docmt.decoding.translation_results import (
    Hypothesis,
    PreparedDocument,
    TermStatus,
    TermUse,
    TranslatedSentence,
    Translation,
)
from docmt.documents import Document
from docmt.documents.numbers import find_number_faults
from docmt.documents.protected_text import find_protected
from docmt.documents.words import Span, WordLink, find_words, has_words, overlaps
from docmt.terms.matching import Match, Occurrence, TermMatcher

_MOST_SEARCHED = 2
"""Openings of a term without a link after which a rest is searched."""
_MOST_CHECKED = 3
"""New translations of a sentence in which words are looked for that the old one translates."""
_MOST_READ = 32_768
"""Source tokens of documents whose states are in memory together."""
_MOST_TERMS = 12
"""Searches of one sentence, which may have a term in every word."""
_UNTRANSLATED = 3.0
"""Times the usual loss that a term may cost where the model left its source words as they are."""
_REPEATED = re.compile(r"\b(\w{5,}|\w+(?:\W{1,3}\w+){1,4})\W{1,3}\1\b", re.I)
"""Words that follow themselves."""
_MARKS = re.compile(r"""["«»“”„()\[\]]""")
"""Quotation marks and brackets, none of which a new translation may lose."""
_OPENING_BEAM, _REST_BEAM = 4, 2
"""Beam of a search of openings alone, in which articles may change, and the most of one after them."""
ReadSources = Callable[[Sequence[PreparedDocument]], OpeningSearch]
"""Returns a search of openings in documents."""
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
    searches: int = 0
    refused: dict[int, _Change] = field(default_factory=dict)
    """occurrences that would cost too much, and the change that would meet them"""
    dropped: list[str] = field(default_factory=list)
    """source words that lost their translation to a term"""
    texts: tuple[str, str] = ("", "")
    """what the model read and wrote, without protected texts"""
    found: Sequence[Occurrence] = ()
    """terms in what the model read"""
    links: Sequence[WordLink] = ()
    """of the two texts"""
    lacking: dict[str, list[str]] = field(default_factory=dict)
    """source words that new translations do not translate, by their texts"""

    @property
    def missing(self) -> list[int]:
        """Occurrences without a match that can still be searched. Verbs stay."""
        if self.searches >= _MOST_TERMS:
            return []
        return [
            number
            for number, (occurrence, match) in enumerate(zip(self.occurrences, self.matches, strict=True))
            if match is None and number not in self.searched and occurrence.targets and not occurrence.is_verb
        ]


class _Change(NamedTuple):
    """A new translation of a sentence that meets more terms."""

    sentence: TranslatedSentence
    text: str
    """translation without protected texts"""
    matches: Sequence[Match | None]
    loss: float
    """nats that it costs"""
    is_free: bool
    """whether it may cost anything"""
    reason: str
    """why it is refused, if it is"""
    dropped: Sequence[str] = ()
    """source words that it does not translate any more"""

    def drop(self, words: Sequence[str]) -> _Change:
        """Return the change with the source words that it does not translate any more."""
        reason = self.reason or ("leaves words out" if words and not self.is_free else "")
        return self._replace(dropped=words, reason=reason)


class TermSearch:
    """Second search of sentences that lack terms."""

    most_loss = 10.0
    """log-probability (nats) that a sentence may lose for each term, in the mode prefer"""

    def __init__(self, translator: PieceTranslator, matcher: TermMatcher, read_sources: ReadSources) -> None:
        """read_sources: of the translator."""
        self._translator, self._matcher = translator, matcher
        self._openings = TermOpenings(translator, matcher)
        self._read_sources = read_sources
        self._needed: list[int] = []
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
            target = targets[number] if counts[number] == 1 else self._openings.decode([ids])[0]
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
        needed = sorted({case.document for case in free if case.missing})  # others need not be read, nor drafted
        sizes = ((sum(map(len, self._documents[number].words)), number) for number in needed)
        for self._needed in batch_ordered(sizes, _MOST_READ):
            self._reader = self._read_sources([self._documents[number] for number in self._needed])
            cases_of_these = [case for case in free if case.document in self._needed]
            while waiting := [case for case in cases_of_these if case.missing]:  # each search leaves one less
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
                sentence = self._encode(sentence)
                document, number = len(self._documents), 0
                self._documents.append(self._translator.prepare(Document.from_sentences([sentence.source])))
                self._translations.append([sentence])
            matches = self._match(occurrences, sentence.target)
            matches = [
                each if each and not self._is_cell(sentence, asked, each) else None
                for asked, each in zip(occurrences, matches, strict=True)
            ]
            cases.append(Case(key, part, document, number, sentence, occurrences, protected, matches))
        return cases

    def _is_cell(self, sentence: TranslatedSentence, asked: Occurrence, match: Match) -> bool:
        """Return whether a sentence is a term as it is listed, and another form of a translation stands for it."""
        is_whole = not has_words(_blank(sentence.source, [asked.span], ""))
        is_same = sentence.source[slice(*asked.span)].casefold() == asked.term.source.casefold()
        return is_whole and is_same and not match.is_listed

    def _encode(self, sentence: TranslatedSentence) -> TranslatedSentence:
        """Return a sentence with the words of its translation, which may have been repaired since the search."""
        protection = self._translator.protection
        target = protection.hide_pair(sentence.source, sentence.target)[1] if protection else sentence.target
        if self._openings.decode([sentence.token_ids])[0] == target:
            return sentence
        return replace(sentence, token_ids=self._translator.encode([target], "target")[0])

    def _match(self, occurrences: Sequence[Occurrence], target: str) -> list[Match | None]:
        """Return what stands for terms in a translation beside its protected texts."""
        for start, end in self._find_protected(target, 1):
            target = f"{target[:start]}{' ' * (end - start)}{target[end:]}"
        return self._matcher.match(occurrences, target)

    def _find(self, source: str) -> tuple[list[Occurrence], list[Occurrence]]:
        """Return the terms of a sentence beside its protected texts, and those in them."""
        found = self._matcher.find(source)
        texts = self._find_protected(source, 0) if found else []
        protected = [each for each in found if overlaps(each.span, texts)]
        return [each for each in found if each not in protected], protected

    def _find_protected(self, text: str, side: int) -> list[Span]:
        """Return the protected texts of a sentence (side 0) or a translation (1)."""
        protection, language = self._translator.protection, self._translator.languages[side]
        return [each.span for each in find_protected(text, language, extra=protection.patterns)] if protection else []

    def _read(self, case: Case) -> tuple[str, str]:
        """Return what the model read and wrote of a sentence, without protected texts."""
        protection, sentence = self._translator.protection, case.sentence
        source = protection.hide(sentence.source) if protection else sentence.source
        return source, self._openings.decode([sentence.token_ids])[0]

    def _search(self, cases: Sequence[Case]) -> None:
        """Search the first missing term of each sentence."""
        pairs = [self._read(case) for case in cases]
        links, places = self._link(cases, pairs, [case.sentence.token_ids for case in cases]), list[Place]()
        for case, (source, target), each in zip(cases, pairs, links, strict=True):
            found = case.occurrences if source == case.sentence.source else self._find(source)[0]
            # Protected text may change what is a term.
            is_same = [other.term for other in found] == [other.term for other in case.occurrences]
            if is_same:  # with the feminines that stand for terms
                written = [each.written for each in case.occurrences]
                found = [each._replace(written=word) for each, word in zip(found, written, strict=True)]
            missing = case.missing[0]
            case.texts, case.found, case.links, case.lacking = (source, target), found, each, {}
            case.searched.add(missing)
            case.searches += 1
            place = self._find_whole(source, missing, found) if is_same else Place(target, None, ())
            places.append(place or self._find_place(target, missing, found, each))
        cases, places = self._accept_feminines(cases, places)
        openings, wholes = self._choose_openings(cases, places)
        results = dict(self._run(list(zip(cases, wholes, strict=True)), stops=True))
        changes = self._choose_all(cases, places, results)
        rests = list(openings)
        for index, change in changes.items():
            if not openings[index] or change.reason:
                continue
            if begun := self._openings.find_likely(places[index], openings[index][0], results[index][0]):
                rests[index] = [begun]
            elif not change.dropped:  # the old rest stays
                rests[index], results[index] = [], []
        for _ in range(2):
            others = [list[list[int]]() for _ in cases]
            for index, hypotheses in self._run(list(zip(cases, rests, strict=True)), stops=False):
                whole = [each for each in hypotheses if not self._openings.continues_word(each, openings[index])]
                results[index] = [*whole, *results[index]]
                if hypotheses and not whole:
                    others[index] = self._openings.add_tail(places[index], openings[index][0])
            rests = others
        for index, change in (changes | self._choose_all(cases, places, results)).items():
            self._change(cases[index], change)

    def _find_whole(self, source: str, missing: int, found: Sequence[Occurrence]) -> Place | None:
        """Return the place of a term, or of two in a row, if it is all that there is."""
        terms = found[missing : missing + 1]
        if (
            len(found) == 2
            and all(each.targets for each in found)
            and source[found[0].span[1] : found[1].span[0]] == " "
            and self._openings.may_follow(found[0])
        ):
            terms = found
        if has_words(_blank(source, [each.span for each in terms], "")):
            return None
        first, last = terms[0], terms[-1]
        around = source[: first.span[0]], source[last.span[1] :]
        return Place(source, last, (), around=around, modifier=first if len(terms) > 1 else None)

    def _accept_feminines(self, cases: Sequence[Case], places: Sequence[Place]) -> tuple[list[Case], list[Place]]:
        """Return the cases, and their places, in which no feminine of an adjective stands for the term: *commune*.

        The table tells hardly which words are adjectives. So links have to say that such a word stands for the term.
        """
        left = []
        for case, place in zip(cases, places, strict=True):
            word = self._openings.find_feminine(place, case.texts[0])
            asked = _write(case.occurrences, case.found, place.occurrence, word) if word else case.occurrences
            matches = self._match(asked, case.sentence.target) if word else case.matches
            if _count_met(matches) > _count_met(case.matches):
                pairs = zip(matches, case.matches, strict=True)
                case.searched -= {number for number, (new, old) in enumerate(pairs) if new and not old}
                case.occurrences, case.matches = asked, matches
            else:
                left.append((case, self._expect_feminine(case, place)))
        return [case for case, _ in left], [place for _, place in left]

    def _expect_feminine(self, case: Case, place: Place) -> Place:
        """Return a place that asks for a feminine, if it does, which counts from now on."""
        if not (word := self._openings.find_unknown_feminine(place)) or place.occurrence is None:
            return place
        case.occurrences = _write(case.occurrences, case.found, place.occurrence, word)
        case.found = _write(case.found, case.found, place.occurrence, word)
        return replace(place, occurrence=place.occurrence._replace(written=word))

    def _choose_openings(
        self, cases: Sequence[Case], places: Sequence[Place]
    ) -> tuple[list[list[list[int]]], list[list[list[int]]]]:
        """Return the best openings of each case, and whole translations: with the old rest, or nothing but a term."""
        listed = [self._openings.make(place) for place in places]
        openings = [[] if place.around else each for place, each in zip(places, listed, strict=True)]
        wholes = [each if place.around else [] for place, each in zip(places, listed, strict=True)]
        for index, hypotheses in self._run(list(zip(cases, openings, strict=True)), stops=True):
            case, place = cases[index], places[index]
            rows = []
            for each in hypotheses:
                (text,) = self._openings.decode(each.sentences)
                absent = self._list_absent(case, text, place.start)
                rows.append(((len(absent), *self._openings.rate(place, text, each)), text, each))
            rows.sort(key=itemgetter(0))
            if place.number is None:
                openings[index] = [each.sentences[0] for *_, each in rows[:_MOST_SEARCHED]]
                continue
            most, is_free, other_kind = self._judge_place(case, place)
            for _, text, best in rows[:1]:
                tail = self._openings.find_tail(place).strip()
                text = text.removesuffix(tail).rstrip()
                begun = self._openings.encode(text, 0, "") if tail else best.sentences[0]
                is_start = list(best.sentences[0][: len(begun)]) == list(begun)  # the tail comes after it
                openings[index] = [begun]
                loss = case.sentence.score - sum(best.token_scores[0][: len(begun) * is_start])  # the rest adds to it
                if other_kind or (not is_free and loss > most * case.matches.count(None)):
                    openings[index] = []
                (whole,) = self._translator.encode([text + place.rest], "target")
                wholes[index] = [[*whole, self._translator.tokenizer.specials.eos]]
        return openings, wholes

    def _choose_all(
        self, cases: Sequence[Case], places: Sequence[Place], found: Mapping[int, Sequence[Hypothesis]]
    ) -> dict[int, _Change]:
        """Return the best change of each sentence that has one, if possible one that translates all of its words.

        found: hypotheses by the numbers of cases.
        """
        ranked = {n: self._rank(cases[n], places[n], each)[:_MOST_CHECKED] for n, each in found.items()}
        self._find_dropped([(cases[n], changes) for n, changes in ranked.items()])
        chosen: dict[int, _Change] = {}
        for n, changes in ranked.items():
            for change in changes:
                checked = change.drop(cases[n].lacking[change.text])
                best = chosen.setdefault(n, checked)
                if len(checked.dropped) < len(best.dropped) and change.loss <= best.loss + self.most_loss:
                    chosen[n] = checked
                if not chosen[n].dropped:
                    break
        return chosen

    def _find_dropped(self, ranked: Iterable[tuple[Case, Sequence[_Change]]]) -> None:
        """Note the source words that new translations do not translate, but the old ones do.

        Such a word stands beside terms that are met, its old translation is not in the new one in any form, and no word
        of the new one beside these terms has a link with it. Of function words negations and conjunctions count.
        Where the first translation of a case has none, the others are not looked at.
        """
        doubtful = list[tuple[Case, _Change, list[Span]]]()
        for case, changes in ranked:
            for change in changes:
                spans = self._list_absent(case, change.text) if change.text not in case.lacking else []
                if spans:
                    doubtful.append((case, change, spans))
                elif not case.lacking.setdefault(change.text, []) and change is changes[0]:
                    break
        texts = [(case.texts[0], change.text) for case, change, _ in doubtful]
        links = self._link([row[0] for row in doubtful], texts, [row[1].sentence.token_ids for row in doubtful])
        for (case, change, spans), each in zip(doubtful, links, strict=True):
            text = change.text
            terms = [match.span for match in self._matcher.match(case.found, text) if match]
            linked = {link.source for link in each if self._openings.is_vital(text, link.target, terms, 1)}
            case.lacking[text] = [case.texts[0][slice(*span)] for span in spans if span not in linked]

    def _list_absent(self, case: Case, text: str, end: int | None = None) -> list[Span]:
        """Return the source words beside met terms whose old translation, before a character, is not in a new one."""
        source, target = case.texts
        matches = zip(case.found, self._matcher.match(case.found, text), strict=True)
        terms = [each.span for each, match in matches if match]
        words = {text[slice(*span)] for span in find_words(text)}
        mutual = {link.source for link in case.links if link.mutual}
        vital = [
            link
            for link in case.links
            if link.source in mutual and self._openings.is_vital(source, link.source, terms, 0)
            if (end is None or link.target[1] <= end) and self._openings.is_vital(target, link.target, (), 1)
        ]
        certain = {link.source for link in vital if link.mutual}  # of ont besoin, besoin counts if need is for ont
        old = [link for link in vital if link.mutual or link.source not in certain]
        kept = {link.source for link in old if self._has_form(target[slice(*link.target)], words)}
        return list(dict.fromkeys(link.source for link in old if link.source not in kept))

    def _has_form(self, word: str, words: Collection[str]) -> bool:
        """Return whether a word of a translation, or a form of it, is among others."""
        return word in words or any(self._matcher.target.are_forms(word, other) for other in words)

    def _find_place(
        self, target: str, missing: int, occurrences: Sequence[Occurrence], links: Sequence[WordLink]
    ) -> Place:
        """Return the place of a missing term, or of another occurrence of it if that is not met where it stands."""
        spans = [match.span for match in self._matcher.match(occurrences, target) if match]
        wanted = occurrences[missing]
        others = [each for each in occurrences if each.term == wanted.term and each is not wanted]
        places = [self._openings.find_place(target, each, links) for each in (wanted, *others)]
        free = (each for each in places if each.number is not None and not each.overlaps(spans))
        return next(free, places[0])

    def _run(self, rows: Sequence[tuple[Case, Sequence[list[int]]]], stops: bool) -> list[tuple[int, list[Hypothesis]]]:
        """Return what a search finds for the openings of each case."""
        openings = [self._open(case, words, stops) for case, each in rows for words in each]
        beam = _OPENING_BEAM if stops else min(self._translator.search.beam, _REST_BEAM)
        config = replace(self._translator.search, beam=beam, n_best=beam)
        results = iter(self._reader.search(self._targets, openings, config))
        return [(n, [found for _ in each for found in next(results)]) for n, (_, each) in enumerate(rows)]

    def _open(self, case: Case, words: Sequence[int], stops: bool = True) -> Opening:
        """Return an opening of a sentence for the search."""
        return Opening(self._needed.index(case.document), case.number, words, stops)

    @property
    def _targets(self) -> list[list[Sequence[int]]]:
        """The translations of the documents that the search has read (word ids)."""
        return [[each.token_ids for each in self._translations[number]] for number in self._needed]

    def _link(
        self, cases: Sequence[Case], texts: Sequence[tuple[str, str]], words: Sequence[Sequence[int]]
    ) -> list[Sequence[WordLink]]:
        """Return the links of sentences and translations. texts: what the model reads and writes. words: their ids."""
        sources = [self._documents[case.document].words[case.number] for case in cases]
        wanted = [self._open(*pair) for pair in zip(cases, words, strict=True)]
        weights = dict(enumerate(self._reader.align(self._targets, wanted)))
        links = link_sentences(self._translator.tokenizer, texts, sources, words, weights)
        return [links[number] for number in range(len(cases))]

    def _rank(self, case: Case, place: Place, hypotheses: Sequence[Hypothesis]) -> list[_Change]:
        """Return new translations of a sentence that meet more terms, the best first.

        A translation that keeps words which stood for the term is worse, and so is one that repeats words, or loses
        quotation marks or brackets.
        """
        translator, sentence = self._translator, case.sentence
        most, is_free, other_kind = self._judge_place(case, place)
        texts = self._openings.decode([each.sentences[0] for each in hypotheses])
        met, faults = _count_met(case.matches), self._count_faults(case, sentence.target, case.matches)
        repeated, marks = (len(each.findall(sentence.target)) for each in (_REPEATED, _MARKS))
        better, mean = [], sentence.score / max(sentence.tokens, 1)  # without it short translations would win
        for hypothesis, text in zip(hypotheses, texts, strict=True):
            target = translator.protection.restore(text, sentence.source) if translator.protection else text
            matches = self._match(case.occurrences, target)
            count = _count_met(matches)
            if count > met and not hypothesis.at_limit and self._count_faults(case, target, matches) <= faults:
                hidden = matches if text == target else self._matcher.match(case.found, text)
                left = self._openings.count_left(place, text, [match.span for match in hidden if match])
                score, tokens = hypothesis.sentence_scores[0], hypothesis.sentence_tokens[0]
                loss = sentence.score - score
                is_clean = len(_REPEATED.findall(target)) <= repeated and len(_MARKS.findall(target)) >= marks
                faulty = {
                    "repeats words, or loses marks": not is_clean,
                    "keeps words that the term replaces": left > 0,
                    "too improbable": loss > most * (count - met),
                }
                reason = other_kind or next((name for name, holds in faulty.items() if holds and not is_free), "")
                new = replace(
                    sentence,
                    target=target,
                    score=score,
                    rank_score=hypothesis.score,
                    tokens=tokens,
                    token_ids=hypothesis.sentences[0],
                )
                rank = not reason, is_clean, count, -left, score - mean * tokens
                better.append((rank, _Change(new, text, matches, loss, is_free, reason)))
        return [change for _, change in sorted(better, key=lambda each: each[0], reverse=True)]

    def _judge_place(self, case: Case, place: Place) -> tuple[float, bool, str]:
        """Return how many nats a term may cost in a place, whether it may cost more, and what of another kind is there.

        That is a verb for a noun, or the reverse. Terms that are kept, and sentences that are nothing but a term, may
        be anything and cost anything.
        """
        wanted = place.occurrence
        is_kept = place.around is not None or (wanted is not None and wanted.term.keep)
        is_free = is_kept or (wanted is not None and wanted.mode == "require")
        most = self.most_loss * (_UNTRANSLATED if self._openings.is_untranslated(place) else 1.0)
        return most, is_free, "" if is_kept else self._openings.find_other_kind(place, case.texts[0])

    def _change(self, case: Case, change: _Change) -> None:
        """Take a new translation of a sentence, or note that it is refused."""
        gained = [n for n, each in enumerate(change.matches) if each is not None and case.matches[n] is None]
        if change.reason:
            case.refused |= dict.fromkeys(gained, change)
            return
        case.sentence, case.matches, case.loss = change.sentence, change.matches, case.loss + change.loss
        case.searched |= set(gained)
        case.dropped += change.dropped
        self._translations[case.document][case.number] = case.sentence

    def _count_faults(self, case: Case, target: str, matches: Sequence[Match | None]) -> int:
        """Return how many numbers beside terms a translation loses or adds, and how many terms have forbidden words."""
        pairs = [(each.span, match.span) for each, match in zip(case.occurrences, matches, strict=True) if match]
        source = _blank(case.sentence.source, [one for one, _ in pairs])
        forbidden = (self._matcher.find_forbidden(each.term, target, matches) for each in case.occurrences)
        return sum(map(bool, forbidden)) + sum(
            map(
                len,
                find_number_faults(source, _blank(target, [other for _, other in pairs]), self._translator.languages),
            )
        )

    def _describe(self, case: Case) -> list[TermUse]:
        """Return what became of each term of a sentence."""
        others = self._match(case.occurrences, case.sentence.target) if None in case.matches else case.matches
        matches = [match or other for match, other in zip(case.matches, others, strict=True)]
        uses = judge_terms(self._matcher, case.occurrences, case.sentence.target, matches)
        for number, (use, match) in enumerate(zip(uses, case.matches, strict=True)):
            searched = case if number in case.searched else None
            if (cost := searched if match else case.refused.get(number)) is None:
                continue
            status: TermStatus = "second_search" if match else "refused"
            status = use.status if use.status == "forbidden" else status
            reason = cost.reason if isinstance(cost, _Change) else ""
            uses[number] = replace(use, status=status, loss=cost.loss, dropped=", ".join(cost.dropped), reason=reason)
        for term, span, *_ in case.protected:
            found = source if (source := case.sentence.source[slice(*span)]) in case.sentence.target else ""
            uses.append(TermUse(span, term.source, term.targets, found, "protected"))
        return sorted(uses, key=lambda each: each.span)


def _write(
    occurrences: Sequence[Occurrence], found: Sequence[Occurrence], wanted: Occurrence | None, word: str
) -> list[Occurrence]:
    """Return occurrences, one of which another text counts for. found: the same ones beside protected texts."""
    pairs = zip(occurrences, found, strict=True)
    return [each._replace(written=word) if other is wanted else each for each, other in pairs]


def _count_met(matches: Sequence[Match | None]) -> int:
    return sum(each is not None for each in matches)


def _blank(text: str, spans: Sequence[Span], word: str = "term") -> str:
    """Return a text with a word in the place of spans."""
    for start, end in sorted(spans, reverse=True):
        text = f"{text[:start]}{word}{text[end:]}"
    return text
