"""Which validation was the best, and how long ago."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class BestSoFar:
    """The best validation score of a run; part of its training state."""

    higher_is_better: bool
    score: float | None = None
    update: int = 0
    """the update after which the best score was measured"""
    since: int = 0
    """validations after that one"""

    def improves(self, score: float, update: int) -> bool:
        """Takes in the score of one more validation; True if it is the best so far (a tie, or no number, is not)."""
        if score == score and (self.score is None or self.is_better(score, self.score)):
            self.score, self.update, self.since = score, update, 0
            return True
        self.since += 1
        return False

    def is_better(self, score: float, other: float) -> bool:
        """Whether `score` beats `other`."""
        return score > other if self.higher_is_better else score < other

    def out_of(self, patience: int) -> bool:
        """Whether `patience` validations (0 = any number) passed without improvement."""
        return patience > 0 and self.since >= patience
