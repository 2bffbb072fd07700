"""Terms that a user asks for in a document: the sentences that have them, and what became of these."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from docmt.core.errors import DocmtError
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

    def to_line(self, lacking: Collection[int]) -> dict[str, object]:
        """Return the line of the journal, with those terms that occur. lacking: sentences that lack them."""
        found: dict[str, Term] = {one.term.source: one.term for each in self.occurrences.values() for one in each}
        rows = [[term.source, term.targets, term.forbidden, term.keep, term.case] for term in found.values()]
        return {"terms": rows, "mode": self.matcher.mode, "numbers": list(self.occurrences), "lacking": list(lacking)}

    def list_lacking(self, journal: JobJournal) -> dict[int, str]:
        """Return the present translations that lack a term, by number."""
        targets = {number: journal.sentences[number].target for number in self.occurrences}
        return {
            number: target
            for number, target in targets.items()
            if target is not None and None in self.matcher.match(self.occurrences[number], target)
        }

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
