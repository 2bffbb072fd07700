"""What commands tell of documents: a record for each sentence, what may be wrong with it, and what failed."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from docmt.decoding import Translation
    from docmt.documents import Document

_log = logging.getLogger(__name__)

WARNINGS = {
    "sentence_count": "places where the model gave another number of sentences than the source has: surplus sentences "
    "were joined, missing ones left empty",
    "length_limit": "sentences ended by the length limit, so that words may be missing (--max_length_ratio and "
    "--max_length_extra raise it)",
    "long_source": "source sentences longer than an instance, each read as an instance of its own, in which most "
    "systems see no context",
}


def records(translation: Translation) -> list[dict[str, Any]]:
    """One JSON object per sentence of a translation."""
    found = []
    for number, (sentence, warnings) in enumerate(zip(translation.sentences, translation.warnings(), strict=True)):
        record = {"document": translation.document.id, "sentence": number + 1, **sentence.to_json()}
        record["score"] = float(sentence.score)  # of a sentence that is missing it is a sum of nothing, a whole number
        record["warnings"] = warnings
        if translation.alternatives:
            others = [alternative.sentences[number] for alternative in translation.alternatives]
            record["rank_score"] = sentence.rank_score
            record["alternatives"] = [
                {"target": other.target, "score": other.score, "rank_score": other.rank_score} for other in others
            ]
        found.append(record)
    return found


def error_records(document: Document, error: str) -> list[dict[str, Any]]:
    """One JSON object per sentence of a document that has no translation, or no scores."""
    return [
        {"document": document.id, "sentence": number, "source": source, "source_span": list(span), "error": error}
        for number, (source, span) in enumerate(zip(document.sentences, document.spans(), strict=True), 1)
    ]


@dataclass
class Report:
    """Where each warning applies, and why something could not be done."""

    places: dict[str, list[str]] = field(default_factory=lambda: {warning: [] for warning in WARNINGS})
    failures: list[str] = field(default_factory=list)
    """a sentence each, which names the file"""

    def collect(self, within: str, translation: Translation, first: int = 0) -> None:
        """Adds the warnings of a translation; `within` names its document, whose sentence `first` is its sentence 0."""
        for start, end in translation.miscounted:
            self.places["sentence_count"].append(f"{within}, sentences {first + start + 1} to {first + end}")
        for warning, numbers in (("length_limit", translation.at_limit), ("long_source", translation.overlong)):
            self.places[warning].extend(f"{within}, sentence {first + number + 1}" for number in numbers)

    def counts(self) -> dict[str, int]:
        """How often each warning applies."""
        return {warning: len(found) for warning, found in self.places.items()}

    def numbers_only(
        self, translations: Sequence[Translation | None], names: Sequence[str]
    ) -> list[Translation | None]:
        """The translations, without those that have a score that is no number: of these the failure is noted.

        Such scores come from weights that are damaged, or divided by a temperature beyond all measure.
        """
        found: list[Translation | None] = []
        for name, translation in zip(names, translations, strict=True):
            problem = not_a_number(translation) if translation is not None else ""
            if problem:
                self.failures.append(f"{name}: {problem}")
            found.append(None if problem else translation)
        return found

    def add(self, other: Report) -> None:
        """What is told of other documents as well."""
        for warning, found in other.places.items():
            self.places[warning].extend(found)
        self.failures.extend(other.failures)

    def reason(self, name: str) -> str:
        """Why the thing of that name failed."""
        start = f"{name}: "
        return next((failure.removeprefix(start) for failure in self.failures if failure.startswith(start)), "unknown")

    def print(self, total: int, done: int, things: str, undone: str) -> int:
        """Tells all on standard error, at the end how many of the `total` things ("files") were not done, and how.

        Returns the status of the command.
        """
        for warning, found in self.places.items():
            if found:
                first = f"first: {found[0]}" if len(found) > 1 else found[0]
                _log.warning(f"{len(found)} x {WARNINGS[warning]} ({first})")
        for failure in self.failures:
            _log.error(failure)
        if done < total and total > 1:
            _log.warning(f"{total - done} of {total} {things} could not be {undone}")
        return 2 if self.failures else 0


def not_a_number(translation: Translation, first: int = 0) -> str:
    """A sentence on the first score that is not a number, or so far below all numbers that JSON has no word for it;
    empty if there is none. first: number of the first sentence in its document."""
    for number, sentence in enumerate(translation.sentences, first + 1):
        if not math.isfinite(sentence.score):
            return (
                f"the score of sentence {number} is no number; copy the model again if it is damaged, and give usual "
                "--search options"
            )
    return ""
