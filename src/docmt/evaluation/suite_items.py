"""One question of a test set for context: which translation is right, or which word must a translation have?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from docmt.core.errors import DocmtError
from docmt.documents.formats import LONE_SURROGATE

Record = Mapping[str, object]
MOST = 1_000_000
"""Sentences that nothing decides over."""


@dataclass(frozen=True)
class Item:
    """One question. Contrastive: which of these target documents is the translation of the source?

    Generative (without candidates): does the translation of a sentence have the `expected` form?
    """

    id: str
    phenomenon: str
    """what is asked for; empty if the file does not say"""
    distance: int | None
    """sentences back to the one that decides; None if the file does not say"""
    source: tuple[str, ...]
    candidates: tuple[tuple[str, ...], ...]
    """two or more, each with one sentence for each of the source"""
    correct: int
    """index of the right candidate"""
    sentence: int
    """index of the sentence that is decided: the one in which candidates differ, or that is looked at"""
    label: str = ""
    """what else the file tells items apart by: the right pronoun, its gender and number, or the rule"""
    expected: str = ""
    """of generative items the form that must be there"""

    @property
    def wrong(self) -> list[int]:
        """The candidates that are not the right one, nor a copy of it."""
        return [number for number, each in enumerate(self.candidates) if each != self.candidates[self.correct]]

    @property
    def chance(self) -> float:
        """How often guessing is right: equal candidates count as one. Of generative items nobody knows: 0."""
        return 1 / len(set(self.candidates)) if self.candidates else 0.0

    @property
    def has_context(self) -> bool:
        """Whether there is anything beside the sentence that is decided."""
        return any(text.strip() for number, text in enumerate(self.source) if number != self.sentence)


def contrastive(
    where: str,
    source: Sequence[str],
    candidates: Sequence[Sequence[str]],
    correct: int,
    sentence: int | None = None,
    *,
    id: str = "",
    phenomenon: str = "",
    distance: int | None = None,
    label: str = "",
) -> Item:
    """An item whose candidates are checked; sentence: which one is decided (None: the last).

    Raises DocmtError, saying where, for candidates that ask nothing.
    """
    place = len(source) - 1 if sentence is None else sentence
    found = tuple(map(tuple, candidates))
    if len(found) < 2:
        raise DocmtError(f"{where}: one candidate only, so that it is right whatever a model says: give two or more")
    for number, candidate in enumerate(found, 1):
        if len(candidate) != len(source):
            raise DocmtError(
                f"{where}: candidate {number} has {len(candidate)} sentences and the source {len(source)}: give one "
                "for each"
            )
        if not candidate[place].strip():
            raise DocmtError(f"{where}: candidate {number} is empty: give every candidate a text, or leave it out")
    if not 0 <= correct < len(found):
        raise DocmtError(
            f"{where}: the right candidate is {correct}, but there are {len(found)}: give a number from 0 to "
            f"{len(found) - 1}"
        )
    return Item(id, phenomenon, distance, tuple(source), found, correct, place, label)


def sentences(values: object, where: str, what: str, empty: bool = False) -> tuple[str, ...]:
    """A list of texts. Raises DocmtError for anything else, and for an empty one unless that is allowed."""
    if not isinstance(values, list) or not (values or empty) or not all(isinstance(value, str) for value in values):
        raise DocmtError(f"{where}: {what} is no list of sentences: give strings in brackets")
    if any(LONE_SURROGATE.search(value) for value in values):
        raise DocmtError(f"{where}: {what} holds a lone surrogate, which is no character: remove it")
    return tuple(values)


def text(record: Record, entry: str, where: str, needed: bool = False) -> str:
    """A text; empty if there is none, unless it is needed. Raises DocmtError for anything else."""
    value = record.get(entry, None if needed else "")
    if not isinstance(value, str) or LONE_SURROGATE.search(value) or (needed and not value.strip()):
        raise DocmtError(f"{where}: `{entry}` is no text: give a string{'' if needed else ', or leave it out'}")
    return value


def index(record: Record, entry: str, end: int, where: str) -> int:
    """A whole number from 0 to end - 1. Raises DocmtError for anything else."""
    if entry not in record:
        wanted = "0" if end == 1 else f"a whole number from 0 to {end - 1:,}"
        raise DocmtError(f"{where}: `{entry}` is missing: give {wanted}")
    value = record[entry]
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < end:
        raise DocmtError(f"{where}: `{entry}` is no whole number from 0 to {end - 1:,}: give one")
    return value


def distance(record: Record, entry: str, where: str) -> int | None:
    """How far back what decides stands, if the file says so."""
    return None if record.get(entry) is None else index(record, entry, MOST, where)
