"""The translation of one sentence by a server: what is asked, and which answer is taken."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace

from docmt.core.errors import DocmtError
from docmt.decoding.term_report import judge_terms
from docmt.decoding.translation_results import EngineUse, PreparedDocument, TermUse, TranslatedSentence
from docmt.documents import unwrap_lines
from docmt.documents.protected_text import Protected, find_protected
from docmt.documents.words import has_letters
from docmt.engines.answers import clean_answer, find_fault, find_losses, is_copy
from docmt.engines.http_client import FailedRequest, RefusedRequest, Server
from docmt.engines.profile import EngineProfile
from docmt.engines.services import Answer, Question, Turn, make_request
from docmt.terms.matching import Occurrence, TermMatcher

ASKED_AGAIN = ("lost", "forbidden")
"""States of terms for which a sentence is asked again."""
_MOST_QUESTIONS = 3
"""Requests for a sentence whose answers are wrong."""


class UntranslatedSentence(DocmtError):  # noqa: N818 - it is no fault of docmt
    """No answer of a server for a sentence is a translation."""

    def __init__(self, message: str, engine: EngineUse) -> None:
        """engine: what the answers took."""
        super().__init__(message)
        self.engine = engine


@dataclass(frozen=True)
class SentenceRequests:
    """Translates sentences one by one. Safe for threads."""

    server: Server
    patterns: tuple[str, ...] | None = ()
    """of text that stays as it is; None: neither protected text nor numbers are looked for"""
    terms: TermMatcher | None = None

    @property
    def profile(self) -> EngineProfile:
        """The profile of the server."""
        return self.server.profile

    @property
    def languages(self) -> tuple[str, str]:
        """Source and target code."""
        return self.profile.languages

    @property
    def reads_targets(self) -> bool:
        """Whether a sentence waits for the translations of earlier ones."""
        return self.profile.context.sentences > 0 and self.profile.kind != "deepl"

    def translate(
        self, source: str, question: Question, cancelled: threading.Event
    ) -> tuple[TranslatedSentence, Sequence[str]]:
        """Return the translation of a sentence, and what it lacks. Raises DocmtError if no answer is one."""
        occurrences, use, fault = self.find_terms(source), EngineUse(self.profile.name), ""
        best, losses, rank, previous, failures = None, list[str](), (0, 0), None, 0
        for attempt in range(_MOST_QUESTIONS):
            if attempt:
                question = Question(question.text, question.terms, fault=fault)  # apart from its document
            path, body = make_request(self.profile, question)
            if attempt and "seed" in body:
                body["seed"] = self.profile.seed + attempt
            if body == previous and (best is not None or attempt > 1):
                break  # the server would say the same
            previous = body
            try:
                answer, is_new = self.server.ask(path, body, cancelled)
            except RefusedRequest as error:
                fault, use = str(error), use + self.server.price(Answer(""))
                failures += isinstance(error, FailedRequest)
                continue
            use = use + self.server.price(answer) if is_new else use
            text = clean_answer(answer.text, question.text)
            if fault := find_fault(answer, text, question.text, self.languages):
                self.server.forget(path, body)
                continue
            lacks = [] if self.patterns is None else find_losses(source, text, self.languages, self.patterns)
            if is_copy(text, question.text, self.languages):  # kept if the server stays with it, and reported
                lacks = ["a translation", *lacks]
            uses = self.check_terms(occurrences, text, source, attempt)
            unmet = [each for each in uses if each.status in ASKED_AGAIN]
            if best is None or (len(lacks), len(unmet)) < rank:
                # What was cut off the answer is in its log-probability, too.
                scores = answer.scores if text == answer.text.strip() else ()
                best = replace(make_sentence(source, text), score=sum(scores, 0.0), tokens=len(scores))
                best, losses, rank = replace(best, terms=tuple(uses)), lacks, (len(lacks), len(unmet))
            if not any(rank):
                break
            wanted = [f"{use.term} = {' | '.join(use.wanted)}" for use in unmet if use.wanted]
            forbidden = [text for each in occurrences if not each.term.targets for text in each.term.forbidden]
            faults = {"it lacks or adds": lacks, "it lacks": wanted, "it may not have": forbidden}
            fault = "; ".join(f"{name} {', '.join(texts)}" for name, texts in faults.items() if texts)
        if best is None:
            if failures == use.requests:
                self.server.fail(fault)
            raise UntranslatedSentence(
                f"{self.profile.name} gives no translation of it in {use.requests} requests: {fault}", use
            )
        return replace(best, engine=use), losses

    def find_known(self, prepared: PreparedDocument, number: int) -> TranslatedSentence | None:
        """Return the translation of a sentence that needs no request: of the memory, or without words to translate."""
        source, match = prepared.whole.sentences[number], prepared.matches.get(number)
        if match is not None and match.target:
            return prepared.recall(number)
        rest = list(source)
        for each in self._find_protected(source):
            rest[slice(*each.span)] = " " * (each.span[1] - each.span[0])
        return None if has_letters("".join(rest)) else make_sentence(source, unwrap_lines(source).strip())

    def _find_protected(self, source: str) -> list[Protected]:
        return [] if self.patterns is None else find_protected(source, self.languages[0], extra=self.patterns)

    def find_terms(self, source: str) -> list[Occurrence]:
        """Return the terms of a sentence."""
        return self.terms.find(source) if self.terms else []

    def describe_terms(self, text: str) -> str:
        """Return what a request says of the terms of a sentence."""
        nouns = [each for each in self.find_terms(text) if not each.is_verb]
        rows = {each.written or each.term.source: each.targets for each in nouns if each.term.targets}
        if not rows or not self.profile.prompt.terms:
            return ""
        fill, prompt = self.profile.fill, self.profile.prompt
        lines = [fill(prompt.term, source=source, target=" | ".join(targets)) for source, targets in rows.items()]
        return str(fill(prompt.terms, terms="; ".join(lines)))

    def make_turn(self, source: str, target: str) -> Turn:
        """Return an earlier sentence as it was asked."""
        text = unwrap_lines(source).strip()
        return Turn(text, self.describe_terms(text), unwrap_lines(target).strip())

    def check_terms(self, occurrences: Sequence[Occurrence], text: str, source: str, attempt: int) -> list[TermUse]:
        """Return what became of the terms of a sentence."""
        if not (occurrences and self.terms):
            return []
        protected = self._find_protected(source)
        uses = judge_terms(self.terms, occurrences, text)
        for number, use in enumerate(uses):
            start, end = use.span
            if any(each.span[0] < end and start < each.span[1] for each in protected):
                uses[number] = replace(use, status="protected", found="")
            elif attempt:
                uses[number] = mark_as_asked_again(use)
        return uses


def mark_as_asked_again(use: TermUse) -> TermUse:
    """Return the use of a term in a sentence that was asked again."""
    return replace(use, status="second_search") if use.status in ("met", "other_form") else use


def make_sentence(source: str, target: str) -> TranslatedSentence:
    """Return a sentence with a translation that nobody has scored."""
    return TranslatedSentence(source, target, 0.0, (0, len(source)), (0, len(target)))
