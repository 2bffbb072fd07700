"""A translator whose sentences are translated by a server: one request a sentence, so that their number is right."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from itertools import chain
from queue import Empty, SimpleQueue
from typing import Any, Self, TypeAlias

from docmt.core.errors import DocmtError
from docmt.core.progress import progress
from docmt.core.settings import check_choice
from docmt.decoding.document_translator import (
    TOKEN_CHARACTERS,
    DocumentTranslator,
    Preparable,
    check_targets,
    describe_texts,
)
from docmt.decoding.long_sentences import Links, align_selected, count_missing
from docmt.decoding.search_config import between_steps
from docmt.decoding.term_search import Scores
from docmt.decoding.translation_results import (
    EngineUse,
    PartialTranslation,
    PreparedDocument,
    ResumePoint,
    TranslatedSentence,
    Translation,
    WordLink,
    check_documents,
)
from docmt.documents import Document
from docmt.documents.words import find_words
from docmt.engines.http_client import EngineUnavailable, HttpClient, Server
from docmt.engines.profile import EngineProfile, read_profile
from docmt.engines.sentence_requests import ASKED_AGAIN, OpenText, SentenceRequests, make_sentence, mark_as_asked_again
from docmt.engines.services import Answer, Question, make_request
from docmt.terms.glossary import Terms
from docmt.terms.matching import TermMatcher, TermMode, make_matcher

_LOOK_SECONDS = 0.05
"""Time between two looks at whether anybody still waits."""
_TURN_SECONDS = 2.0
"""Time after which `translate_next` asks nothing new, so that what is finished is seen before the rest."""
_SHOWN_REQUESTS = 2
"""Requests of a preview."""
Answers: TypeAlias = "SimpleQueue[tuple[OpenText, int, Any]]"
"""Documents and numbers of sentences, with their translations and what these lack, or errors."""


class EndpointTranslator(DocumentTranslator):
    """Translates with a server that a profile describes.

    Answers are checked, and asked for again where they are no translation; a sentence without a right answer is an
    error. Scores are 0 unless the server gives log-probabilities.
    """

    def __init__(self, profile: EngineProfile | str, *, protect: Sequence[str] | None = ()) -> None:
        """Read the profile, the path of a YAML file, and the key.

        protect: regular expressions of text that stays as it is; None: no text is looked for. Raises DocmtError for a
        profile with errors, and for a key that is not set.
        """
        self.profile = read_profile(profile) if isinstance(profile, str) else profile
        self.languages, self.patterns = self.profile.languages, None if protect is None else tuple(protect)
        server = Server(self.profile, HttpClient(self.profile))
        server.check_aligner()
        self._requests = SentenceRequests(server, self.patterns)

    def __repr__(self) -> str:
        return f"<EndpointTranslator: {self.profile.name}, {self.profile.url}>"

    @property
    def settings(self) -> dict[str, Any]:
        """What determines translations, by the names of options."""
        protect = "none" if self.patterns is None else list(self.patterns)
        return {**self.profile.describe(), **describe_texts(protect, self.terms, self.memory)}

    @property
    def terms(self) -> TermMatcher | None:
        """What finds the terms of a glossary."""
        return self._requests.terms

    @property
    def use(self) -> EngineUse | None:  # type: ignore[override]
        """What all requests took."""
        return self._requests.server.use

    def prepare(self, document: Preparable) -> PreparedDocument:
        """Return a document with as many bytes as its sentences have tokens, about."""
        if isinstance(document, PreparedDocument):
            return document
        source = self.make_document(document)
        sizes = [bytes(len(text) // TOKEN_CHARACTERS + 1) for text in source.sentences]
        return PreparedDocument(source, sizes, source, range(len(source)))

    def resume_after(self, document: PreparedDocument, targets: Sequence[str]) -> ResumePoint:
        """See `DocumentTranslator.resume_after`."""
        check_targets(document, targets)
        seen = list(targets)[max(len(targets) - self.profile.context.sentences, 0) :]
        return ResumePoint(len(targets), [[list(text.encode())] for text in seen], is_supplied=True)

    def open(self, document: Preparable, resume_point: ResumePoint | None = None, tokens: int = 512) -> OpenText:
        """See `DocumentTranslator.open`."""
        prepared = self.prepare(document)
        if self.memory:
            prepared = prepared.with_memory(self.memory, lambda _, texts: [list(text.encode()) for text in texts])
        return OpenText(self._requests, prepared, resume_point or ResumePoint(0), self._find_missing)

    def preview(self, documents: Sequence[Document | str]) -> str:
        """Return the first two requests, without the key, and about how much would be asked. Nothing is sent.

        Sources stand for translations that are not there yet.
        """
        shown, use = list[str](), EngineUse(self.profile.name)
        for each in documents:
            text = self.open(each)
            text.targets = dict(enumerate(text.document.sentences))
            for number, source in enumerate(text.document.sentences):
                if self._requests.find_known(text.prepared, number) is not None:
                    continue
                path, body = make_request(self.profile, text.make_question(number))
                request = json.dumps(body, ensure_ascii=False, indent=1)
                if len(shown) < _SHOWN_REQUESTS:
                    shown.append(f"POST {self.profile.url.rstrip('/')}{path}\n{request}\n")
                tokens = len(request) // TOKEN_CHARACTERS, len(source) // TOKEN_CHARACTERS
                use += self._requests.server.price(Answer("", *tokens))
        return "\n".join([*shown, f"estimate, with sources in place of translations: {use}"])

    def translate_next(self, documents: Sequence[OpenText], tokens: int) -> list[PartialTranslation]:
        """See `DocumentTranslator.translate_next`. Raises EngineUnavailable if the server does not answer."""
        error = None
        try:
            for _ in self._ask(documents, tokens):
                pass
        except EngineUnavailable as problem:
            error = problem  # raised by the next call, where something is translated
        parts = [part for number, document in enumerate(documents) for part in document.take_parts(number)]
        if error is not None and not parts:
            raise error
        return parts

    def translate_all(
        self, documents: Sequence[Document | str], *, copies: Sequence[int] | None = None
    ) -> list[Translation]:
        """See `DocumentTranslator.translate_all`."""
        opened = list(map(self.open, check_documents(documents)))
        rows: list[list[PartialTranslation]] = [[] for _ in opened]
        for part in chain.from_iterable(self._stream(opened)):
            if part.error is not None:
                raise DocmtError(f"sentence {part.first + 1}: {part.error}")
            rows[part.document].append(part)
        return [document.join_parts(parts) for document, parts in zip(opened, rows, strict=True)]

    def stream_parts(
        self,
        documents: Sequence[Preparable],
        *,
        copies: Sequence[int] | None = None,
        resume_points: Mapping[int, ResumePoint] | None = None,
    ) -> Iterator[list[PartialTranslation]]:
        """See `DocumentTranslator.stream_parts`. Raises EngineUnavailable if the server does not answer."""
        points = resume_points or {}
        return self._stream([self.open(each, points.get(n)) for n, each in enumerate(check_documents(documents))])

    def _stream(self, documents: Sequence[OpenText]) -> Iterator[list[PartialTranslation]]:
        """Yield the parts of documents in order."""
        first, total = 0, sum(len(each.document) for each in documents)
        before = sum(each.point.sentences for each in documents)
        with progress(f"translating with {self.profile.name} (sentences)", total, before) as bar:
            for _ in chain(self._ask(documents, None), [None]):
                parts = list[PartialTranslation]()
                while first < len(documents):
                    parts += documents[first].take_parts(first)
                    if not documents[first].is_done:
                        break
                    first += 1
                bar.advance(sum(len(part.source) for part in parts))
                if parts:
                    yield parts

    def _ask(self, documents: Sequence[OpenText], tokens: int | None) -> Iterator[None]:
        """Ask about so many source tokens of documents, for a few seconds, or None for all; yield after each sentence.

        Between two answers the caller may stop: see `between_steps`. Raises EngineUnavailable.
        """
        if documents:
            self._requests.server.check_available()
        answers: Answers = SimpleQueue()
        cancelled = threading.Event()
        left, running = float("inf") if tokens is None else tokens, 0
        end = float("inf")
        rest, begun = iter(documents), list[OpenText]()  # few are begun, of however many
        try:
            while True:
                while left > 0 and running < self.profile.limits.requests and time.monotonic() < end:
                    found = next(((each, taken) for each in begun if (taken := each.take())), None)
                    if found is None:
                        begun = [each for each in begun if each.next < len(each.document)]
                        if (new := next(rest, None)) is None:
                            break
                        begun.append(new)
                        continue
                    document, taken = found
                    left, running = left - document.cost(taken[0]), running + 1
                    if tokens is not None:
                        end = min(end, time.monotonic() + _TURN_SECONDS)
                    arguments = document, *taken, answers, cancelled
                    threading.Thread(target=self._work, args=arguments, daemon=True).start()
                if not running:
                    return
                between_steps()
                try:
                    document, number, result = answers.get(timeout=_LOOK_SECONDS)
                except Empty:
                    continue
                running -= 1
                if isinstance(result, EngineUnavailable):
                    self._requests.server.rest(result)
                    raise result
                if isinstance(result, Exception) and not isinstance(result, DocmtError):
                    raise result
                if isinstance(result, tuple):
                    result, losses = result
                    document.lossy.update([number] if losses else [])
                document.add(number, result)
                yield
        finally:
            cancelled.set()
            for document in documents:
                document.drop_questions()

    def _work(
        self, document: OpenText, number: int, question: Question, answers: Answers, cancelled: threading.Event
    ) -> None:
        """Put the translation of a sentence and its losses, or an error, into a queue; runs in a thread."""
        result: Any
        try:
            result = self._requests.translate(document.document.sentences[number], question, cancelled)
            match = document.prepared.matches.get(number)
            if match is not None and match.kind == "conflict":
                result = replace(result[0], memory="conflict"), result[1]
        except Exception as error:  # the thread that waits gets it
            result = error
        answers.put((document, number, result))

    def _find_missing(self, sentences: Sequence[TranslatedSentence]) -> set[int]:
        """Return the sentences (from 0) of which a part seems not to be translated."""
        rows = {
            (0, number): [each]
            for number, each in enumerate(sentences)
            if each.engine and len(find_words(each.target)) < len(find_words(each.source))
        }
        return {number for _, number in count_missing(rows, self._link)} if self.patterns is not None else set()

    def _link(self, translations: Sequence[Translation], wanted: Sequence[Collection[int]]) -> list[Links]:
        """Return the links of sentences."""
        aligned = self.align(translations, wanted)
        return [
            {n: each.sentences[n].alignment or () for n in rows} for each, rows in zip(aligned, wanted, strict=True)
        ]

    def align(self, translations: Sequence[Any], sentences: Sequence[Collection[int]] | None = None) -> list[Any]:
        """Return translations with the links of their words, by a model of docmt, or else by the order of words."""
        if aligner := self._requests.server.aligner:
            return aligner.align(translations, sentences)
        return align_selected(_link_by_order, translations, sentences)

    def with_terms(
        self, terms: Terms | TermMatcher | None, mode: TermMode = "prefer", consistent: bool = False
    ) -> Self:
        """See `DocumentTranslator.with_terms`. Terms are asked for and checked, in both modes."""
        check_choice("mode", mode, ("prefer", "require"))
        if consistent:
            raise DocmtError(f"{self.profile.name} is no model of docmt: it cannot be made consistent; leave that out")
        other = copy(self)
        other._requests = replace(self._requests, terms=make_matcher(terms, self.languages, mode))
        return other

    def search_terms(self, document: Document, targets: Sequence[str], scores: Scores) -> dict[int, TranslatedSentence]:
        """See `DocumentTranslator.search_terms`: sentences that lack a term are asked for again."""
        rows, found, check = {}, dict[int, TranslatedSentence](), self._requests.check_terms
        for number, (source, target) in enumerate(zip(document.sentences, targets, strict=True)):
            rows[number] = row = make_sentence(source, target)
            uses = check(self._requests.find_terms(source), target, source, 0) if number in scores else ()
            if uses:
                found[number] = replace(row, terms=tuple(uses))
            if any(use.status in ASKED_AGAIN for use in uses):
                del rows[number]
        unmet, prepared = found.keys() - rows.keys(), self.prepare(document)
        text = OpenText(
            self._requests, prepared, ResumePoint(0), self._find_missing, dict(enumerate(targets)), dict(rows)
        )
        for _ in self._ask([text] if unmet else [], None):
            pass
        for number in unmet:
            if isinstance(new := text.results[number], TranslatedSentence):  # else the translation stays
                found[number] = replace(new, terms=tuple(map(mark_as_asked_again, new.terms)))
        return found


def _link_by_order(translations: Sequence[Translation], wanted: Sequence[Collection[int]]) -> list[Links]:
    """Return links of each target word to the source word at the same share of the sentence."""

    def link(sentence: TranslatedSentence) -> tuple[WordLink, ...]:
        sources, targets = find_words(sentence.source), find_words(sentence.target)
        places = enumerate(targets) if sources else ()
        return tuple(WordLink(sources[n * len(sources) // len(targets)], word, 1.0, True) for n, word in places)

    return [{n: link(each.sentences[n]) for n in rows} for each, rows in zip(translations, wanted, strict=True)]
