"""Counts the pronouns a translation got right."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from docmt.core.errors import DocmtError
from docmt.synthetic.grammar import Pronoun, SyntheticDocument


@dataclass(frozen=True)
class PronounScore:
    """How many marked pronouns were right; `by_distance` holds (correct, total) for each antecedent distance."""

    correct: int
    total: int
    by_distance: dict[int, tuple[int, int]]

    @property
    def accuracy(self) -> float:
        """The share of right pronouns, 0 to 1; 0 where there were none."""
        return self.correct / self.total if self.total else 0.0


def pronoun_accuracy(documents: Sequence[SyntheticDocument], hypotheses: Sequence[Sequence[str]]) -> PronounScore:
    """Scores translated documents: hypothesis d holds one target sentence for each source sentence of document d.

    A pronoun is right if its form stands in its sentence as a whole word, in any letter case, and no other form of its
    case does. The grammar puts no second er, sie, es, ihn, ihm or ihr beside a marked pronoun, so no other word can
    be taken for it. Raises DocmtError if documents or sentences are missing.
    """
    if len(documents) != len(hypotheses):
        raise DocmtError(
            f"there are {len(hypotheses)} translated documents for {len(documents)} source documents;"
            " translate the same file again"
        )
    by_distance: dict[int, tuple[int, int]] = {}
    for item, hypothesis in zip(documents, hypotheses, strict=True):
        if len(hypothesis) != len(item.document.source):
            raise DocmtError(
                f"the translation of document {item.document.id} has {len(hypothesis)} sentences and its source"
                f" {len(item.document.source)}; translate it sentence by sentence"
            )
        for pronoun in item.pronouns:
            correct, total = by_distance.get(pronoun.distance, (0, 0))
            correct += _is_right(pronoun, hypothesis[pronoun.sentence])
            by_distance[pronoun.distance] = (correct, total + 1)
    return PronounScore(
        correct=sum(correct for correct, _ in by_distance.values()),
        total=sum(total for _, total in by_distance.values()),
        by_distance=dict(sorted(by_distance.items())),
    )


def _is_right(pronoun: Pronoun, sentence: str) -> bool:
    words = set(re.findall(r"\w+", sentence.casefold()))
    found = [index for index, candidate in enumerate(pronoun.candidates) if candidate.casefold() in words]
    return found == [pronoun.correct]
