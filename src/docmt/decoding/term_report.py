"""The report of terms: what became of each occurrence in the sentences of a translation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from docmt.decoding.translation_results import TermStatus, TermUse
from docmt.documents.words import overlaps
from docmt.terms.glossary import Glossary, Term
from docmt.terms.matching import Match, Occurrence, TermMatcher

TERM_COLUMNS = (
    *("document", "sentence", "term", "wanted", "found"),
    *("status", "loss", "replaced", "dropped", "reason", "source", "translation"),
)
VERB = "a verb stands there"
"""Why a noun is refused."""
NO_VERB = "no form of such a verb fits there"
"""Why a verb is refused."""
UNMET = ("refused", "lost", "forbidden", "protected")
"""States of terms that a translation lacks."""


def make_rows(document: str, number: int, source: str, target: str, uses: Iterable[TermUse]) -> list[list[Any]]:
    """Return a row for each term of a sentence, in the order of `TERM_COLUMNS`; number: of the sentence, from 1."""
    return [
        [
            *(document, number, use.term, "|".join(use.wanted), use.found),
            *(use.status, loss, use.replaced, use.dropped, use.reason, source, target),
        ]
        for use in uses
        for loss in ["" if use.status == "lost" or (use.status == "refused" and not use.loss) else round(use.loss, 2)]
    ]


def count_statuses(statuses: Iterable[str]) -> dict[str, int]:
    """Return how many terms were asked and met, and how many are in each state of `UNMET`."""
    counts = Counter(status for status in statuses if status != "consistent")
    unmet = {status: counts[status] for status in UNMET}
    return {"asked": counts.total(), "met": counts.total() - sum(unmet.values()), **unmet}


def summarize_terms(statuses: Mapping[str, int]) -> str:
    """Return how many terms are in each state, as one line."""
    counts, consistent = count_statuses(Counter(statuses).elements()), statuses.get("consistent", 0)
    always = ("asked", "met") if counts["asked"] or not consistent else ()
    parts = [f"{count:,} {name}" for name, count in counts.items() if count or name in always]
    parts += [f"{consistent:,} made consistent"] if consistent else []
    return f"terms: {', '.join(parts)}"


def render_rows(rows: Iterable[Sequence[Any]]) -> str:
    """Return rows as tab-separated values, with the names of the columns."""
    lines = ["\t".join(" ".join(str(value).split()) for value in row) for row in [TERM_COLUMNS, *rows]]
    return "\n".join(lines) + "\n"


def join_uses(before: Iterable[TermUse], uses: Iterable[TermUse]) -> list[TermUse]:
    """Return what became of the terms of a sentence, and of others, which replace those that they overlap."""
    new = list(uses)
    kept = [use for use in before if not overlaps(use.span, [each.span for each in new])]
    return sorted([*kept, *new], key=lambda each: tuple(each.span))


def judge_terms(
    matcher: TermMatcher, occurrences: Sequence[Occurrence], target: str, matches: Sequence[Match | None] | None = None
) -> list[TermUse]:
    """Return what stands in a translation for each term. matches: of `TermMatcher.match`, if they are known."""
    uses, matches = list[TermUse](), matcher.match(occurrences, target) if matches is None else matches
    for asked, match in zip(occurrences, matches, strict=True):
        term, span = asked.term, asked.span
        place, wanted = match and match.span, asked.targets if term.keep else term.targets
        is_other = bool(match and asked.written and not term.keep and target[slice(*match.span)] == asked.written)
        is_met = match.is_listed and not is_other if match else not term.targets  # its forbidden word may be of another
        status: TermStatus = "met" if is_met else "other_form" if match else "lost"
        if other := matcher.find_forbidden(term, target, matches):
            status, place = "forbidden", other
        found = target[slice(*place)] if place else ""
        is_verb = status == "lost" and asked.is_verb
        status, reason = ("refused", VERB) if is_verb else (status, "")
        case, forbidden = term.case or term.keep, term.forbidden
        uses.append(TermUse(span, term.source, wanted, found, status, reason=reason, forbidden=forbidden, case=case))
    return uses


def review_terms(uses: Sequence[TermUse], target: str, languages: tuple[str, str]) -> list[TermUse]:
    """Return what became of the terms of a sentence in another translation, which no search has made.

    What stood for a term, though no table tells that it does, still counts: the feminine of an adjective.
    """
    asked, matcher = [use for use in uses if use.status != "protected"], TermMatcher(Glossary(languages, ()))
    occurrences = []
    for use in asked:
        each = Occurrence(Term(use.term, use.wanted, use.forbidden, case=use.case), use.span)
        is_other = use.status in ("other_form", "second_search") and not any(matcher.match([each], use.found))
        occurrences.append(each._replace(written=use.found if is_other else ""))
    reviewed = judge_terms(matcher, occurrences, target)
    return sorted([*reviewed, *(use for use in uses if use.status == "protected")], key=lambda use: tuple(use.span))
