"""Formal and informal address in one document, by the words of the target language."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from docmt.checking.finding import Certainty, Finding, Spans, place
from docmt.checking.languages import FORMAL, INFORMAL, PLURAL_IS_FORMAL
from docmt.checking.words import quoted
from docmt.documents import ParallelDocument

_SHOWN = 3
"""Sentences of each kind that a finding shows."""
_SAID = re.compile(r"[\"“”«»„‘]")


def formality(document: ParallelDocument, language: str) -> Iterator[Finding]:
    """At most one finding: the sentences of the rarer address, and the first of the other one.

    Sentences in which both stand, and those in quotation marks (somebody else speaks), do not count.
    """
    formal, informal = _sentences(document, FORMAL[language]), _sentences(document, INFORMAL[language])
    both = formal.keys() & informal.keys()
    formal, informal = ({n: spans for n, spans in side.items() if n not in both} for side in (formal, informal))
    if not formal or not informal:
        return
    rarer, other = (informal, formal) if len(informal) <= len(formal) else (formal, informal)
    shown = [*list(rarer.items())[:_SHOWN], *list(other.items())[:_SHOWN]]
    words = {name: _first_words(document, side) for name, side in (("formal", formal), ("informal", informal))}
    what = (
        f"{len(formal)} sentence{'s' * (len(formal) > 1)} with formal address ({words['formal']}), "
        f"{len(informal)} with informal address ({words['informal']})"
    )
    if language in PLURAL_IS_FORMAL:
        what += "; formal words may also address several people"
    places = tuple(place(document, number, (), spans) for number, spans in sorted(shown))
    yield Finding("formality", what, places, _certainty(language, len(rarer), len(other)))


def _certainty(language: str, rarer: int, other: int) -> Certainty:
    """People who talk with each other differ in how they do: only a few sentences out of many are likely mistakes."""
    if language in PLURAL_IS_FORMAL or 4 * rarer > other:
        return "possible"
    return "likely"


@lru_cache
def _pattern(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


def _sentences(document: ParallelDocument, pattern: str) -> dict[int, Spans]:
    """The sentences with such a word, by number, and where these words stand."""
    found = {}
    for number, target in enumerate(document.target):
        spans = tuple(match.span() for match in _pattern(pattern).finditer(target))
        if spans and not _SAID.search(target):
            found[number] = spans
    return found


def _first_words(document: ParallelDocument, sentences: dict[int, Spans]) -> str:
    """Some of the words, in quotes."""
    said = {document.target[number][start:end]: None for number, spans in sentences.items() for start, end in spans}
    return quoted(list(said)[:_SHOWN])
