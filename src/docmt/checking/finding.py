"""What was found in a translation, and where."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from docmt.checking.config import CERTAINTIES, KINDS, CheckConfig
from docmt.documents import ParallelDocument

Certainty = Literal["sure", "likely", "possible"]
Spans = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Place:
    """One sentence with its translation; marks are (start, end) in characters of what it is about."""

    document: str
    sentence: int
    """counted from 1 in its document"""
    line: int
    """in the source file; 0 if it has no lines"""
    source: str
    target: str
    source_marks: Spans = ()
    target_marks: Spans = ()


@dataclass(frozen=True)
class Finding:
    """Something that a person should look at."""

    kind: str
    """one of KINDS"""
    what: str
    """in words, with what it is about in quotes"""
    places: tuple[Place, ...]
    certainty: Certainty = "likely"

    def to_json(self) -> dict[str, Any]:
        """In types that `json.dumps` takes."""
        return asdict(self)


@dataclass(frozen=True)
class Report:
    """All findings of a translation, in the order of KINDS and of the text.

    `hidden`: how many findings of each kind are less certain than asked for; `notes`: what could not be checked.
    """

    config: CheckConfig
    documents: int
    sentences: int
    source_language: str
    target_language: str
    findings: Sequence[Finding]
    hidden: Counter[str] = field(default_factory=Counter)
    notes: Sequence[str] = ()

    def counts(self) -> dict[str, int]:
        """The number of findings of every kind, those of which there are none included."""
        found = Counter(finding.kind for finding in self.findings)
        return {kind: found[kind] for kind in KINDS}

    def of_kind(self, kind: str) -> list[Finding]:
        """The findings of one kind."""
        return [finding for finding in self.findings if finding.kind == kind]

    def to_json(self) -> dict[str, Any]:
        """In types that `json.dumps` takes."""
        return {
            "documents": self.documents,
            "sentences": self.sentences,
            "source_language": self.source_language,
            "target_language": self.target_language,
            "counts": self.counts(),
            "hidden": dict(self.hidden),
            "notes": list(self.notes),
            "settings": asdict(self.config),
            "findings": [finding.to_json() for finding in self.findings],
        }


def place(document: ParallelDocument, number: int, source: Iterable[Any] = (), target: Iterable[Any] = ()) -> Place:
    """The place of a sentence (from 0) of a document, with what is marked in it."""
    line = document.lines[number] if document.lines else 0
    return Place(
        *(document.id, number + 1, line, document.source[number], document.target[number]),
        *(tuple(source), tuple(target)),
    )


def is_certain(finding: Finding, least: str) -> bool:
    """Whether a finding is as certain as asked for."""
    return CERTAINTIES.index(finding.certainty) <= CERTAINTIES.index(least)
