"""Terms that a user asks for in a document: the sentences that have them, and what became of these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from docmt.core.errors import DocmtError
from docmt.decoding.term_report import UNMET, review_terms
from docmt.decoding.translation_results import TermStatus, TermUse
from docmt.serve.job_journal import JobJournal
from docmt.terms import Glossary, Term
from docmt.terms.matching import Occurrence, TermMatcher, TermMode


@dataclass(frozen=True)
class TermRequest:
    """A glossary that is to hold in a document, and the sentences that have its terms."""

    matcher: TermMatcher
    occurrences: dict[int, list[Occurrence]]
    """by the number of the sentence"""

    @classmethod
    def make(cls, sources: Sequence[str], glossary: Glossary, mode: TermMode) -> TermRequest:
        """Find the terms in source sentences."""
        matcher = TermMatcher(glossary, mode)
        found = {number: matcher.find(source) for number, source in enumerate(sources)}
        return cls(matcher, {number: each for number, each in found.items() if each})

    def check(self) -> None:
        """Raise DocmtError if no sentence has a term."""
        if not self.occurrences:
            terms = self.matcher.glossary.terms
            names = f"the term {terms[0].source}" if len(terms) == 1 else "a term of this glossary"
            raise DocmtError(f"no sentence of the document has {names}")

    def to_line(self, journal: JobJournal) -> dict[str, object]:
        """Return the line of the journal, with those terms that occur."""
        found: dict[str, Term] = {one.term.source: one.term for each in self.occurrences.values() for one in each}
        rows = [[term.source, term.targets, term.forbidden, term.keep, term.case] for term in found.values()]
        uses = [[number, list(map(asdict, self._review(number, journal)))] for number in self.occurrences]
        return {"terms": rows, "mode": self.matcher.mode, "uses": uses}

    def _review(self, number: int, journal: JobJournal) -> list[TermUse]:
        """Return what became of the terms in the present translation of a sentence, if there is one."""
        if (target := journal.sentences[number].target) is None:
            return []
        uses = []
        for term, span, _ in self.occurrences[number]:
            place = self.matcher.find_forbidden(term, target) if not term.targets else None
            found = target[slice(*place)] if place else ""
            status: TermStatus = "lost" if term.targets else "forbidden" if place else "met"
            uses.append(TermUse(span, term.source, term.targets, found, status))
        return review_terms(uses, target, self.matcher.glossary.languages)

    def list_lacking(self, journal: JobJournal) -> dict[int, str]:
        """Return the present translations that lack a term, by number."""
        reviewed = {number: self._review(number, journal) for number in self.occurrences}
        numbers = [number for number, uses in reviewed.items() if any(use.status in UNMET for use in uses)]
        return {number: journal.sentences[number].target or "" for number in numbers}

    def count_changes(self, journal: JobJournal, before: Mapping[int, str]) -> dict[str, int]:
        """Return what became of translations that lacked terms.

        changed: they are others; kept: they are the user's; refused: they still lack terms; waiting: not searched yet.
        """
        waiting, sentences = before.keys() & set(journal.list_sought()), journal.sentences
        kept = {number for number in before if sentences[number].is_fixed}
        return {
            "changed": sum(target != sentences[number].target for number, target in before.items()),
            "kept": len(kept),
            "refused": len((self.list_lacking(journal).keys() & before.keys()) - kept - waiting),
            "waiting": len(waiting),
        }
