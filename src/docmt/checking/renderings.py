"""The ways in which a word is translated in a document, and what is told of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from docmt.checking.finding import Finding, Place, Spans, place
from docmt.checking.words import quoted, tokens
from docmt.documents import ParallelDocument


@dataclass
class Rendering:
    """One way in which a word is translated in a document."""

    word: str
    sentences: list[int] = field(default_factory=list)
    spans: list[Spans] = field(default_factory=list)
    """of the word, in each of these sentences"""

    def add(self, number: int, spans: Spans) -> None:
        """Counts a sentence."""
        self.sentences.append(number)
        self.spans.append(spans)


def rendered(
    kind: str, document: ParallelDocument, word: str, found: Sequence[Rendering], is_form: Callable[[str], bool]
) -> Finding:
    """A word with all ways in which it is translated, the commonest first; a sentence of each before the others.

    is_form: says of words of the source whether they are the one that this is about.
    """
    found = sorted(found, key=lambda each: -len(each.sentences))
    ways = "; ".join(f"{quoted([each.word])} in {_numbers(each.sentences)}" for each in found)
    firsts: list[Place] = []
    others: list[Place] = []
    for each in found:
        for at, (number, spans) in enumerate(zip(each.sentences, each.spans, strict=True)):
            source = [(start, end) for start, end, said in tokens(document.source[number]) if is_form(said)]
            (others if at else firsts).append(place(document, number, source, spans))
    return Finding(kind, f"{quoted([word])} translated as {ways}", (*firsts, *others))


def _numbers(numbers: Sequence[int]) -> str:
    """Sentences by number from 1, in words."""
    shown = ", ".join(str(number + 1) for number in numbers)
    return f"sentence{'s' * (len(numbers) > 1)} {shown}"
