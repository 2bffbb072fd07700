"""Terms that a user asks for in a document: the sentences that have them, and what became of these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import NamedTuple

from docmt.core.errors import DocmtError
from docmt.decoding.term_report import UNMET, judge_terms
from docmt.decoding.translation_results import TermUse
from docmt.serve.job_journal import JobJournal
from docmt.terms import Glossary, Term
from docmt.terms.matching import Occurrence, TermMatcher, TermMode


class TermReview(NamedTuple):
    """A translation, and what became of terms in it."""

    target: str | None
    uses: Sequence[TermUse]


TermReviews = dict[int, TermReview]
"""By the number of the sentence."""


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

    def review(self, journal: JobJournal, known: Mapping[int, TermReview] = MappingProxyType({})) -> TermReviews:
        """Return what became of the terms in each present translation. known: of earlier ones, which may be the same.

        It takes a millisecond a sentence.
        """
        targets = {number: journal.sentences[number].target for number in self.occurrences}
        same = {number for number, each in known.items() if each.target == targets[number]}
        return {n: known[n] if n in same else self._review(n, target) for n, target in targets.items()}

    def _review(self, number: int, target: str | None) -> TermReview:
        uses = judge_terms(self.matcher, self.occurrences[number], target) if target is not None else []
        return TermReview(target, uses)

    def to_line(self, reviews: TermReviews) -> dict[str, object]:
        """Return the line of the journal, with those terms that occur."""
        found: dict[str, Term] = {one.term.source: one.term for each in self.occurrences.values() for one in each}
        rows = [[term.source, term.targets, term.forbidden, term.keep, term.case] for term in found.values()]
        uses = [[number, list(map(asdict, each.uses))] for number, each in reviews.items()]
        return {"terms": rows, "mode": self.matcher.mode, "uses": uses}

    def count_changes(self, before: TermReviews, journal: JobJournal) -> dict[str, int]:
        """Return what became of sentences that lacked terms.

        changed: they have other translations; kept: they are the user's; refused: they still lack terms; waiting: they
        are not searched yet.
        """
        lacking, after = list_lacking(before), self.review(journal, before)
        waiting, kept = lacking & set(journal.list_sought()), {n for n in lacking if journal.sentences[n].is_fixed}
        return {
            "changed": sum(after[number].target != before[number].target for number in lacking),
            "kept": len(kept),
            "refused": len((lacking & list_lacking(after)) - kept - waiting),
            "waiting": len(waiting),
        }


def list_lacking(reviews: TermReviews) -> set[int]:
    """Return the sentences that lack terms."""
    return {number for number, each in reviews.items() if any(use.status in UNMET for use in each.uses)}
