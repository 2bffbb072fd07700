"""What a search finds."""

from __future__ import annotations

from dataclasses import dataclass, replace

from docmt.core.errors import DocmtError


@dataclass(frozen=True)
class Hypothesis:
    """One translation of one document (or of one piece of it)."""

    sentences: list[list[int]]
    """word ids of each target sentence, marks not included"""
    sentence_scores: list[float]
    """log-probability (nats) of each sentence: its words and marks as far as they were chosen, not forced"""
    sentence_tokens: list[int]
    """how many tokens of each these are"""
    score: float
    """log-probability divided by (number of free tokens ** length_penalty)"""
    free_tokens: int
    """tokens that count in the length: those chosen rather than forced (in the published search of G-Transformer all
    but those of translations that were given, in that of RFA all)"""

    def after(self, count: int, *, alone: bool = False) -> Hypothesis:
        """Its sentences but the first `count`; score and free tokens are those of the whole, in which a prefix that was
        given has no part.

        alone: of what follows the next sentence only, whatever comes after, and its tokens (the published search of
        RFA).
        """
        last = count + 1 if alone else None
        tokens = self.sentence_tokens[count:last] or [0]
        return replace(
            self,
            sentences=self.sentences[count:last] or [[]],
            sentence_scores=self.sentence_scores[count:last] or [0.0],
            sentence_tokens=tokens,
            free_tokens=sum(tokens) if alone else self.free_tokens,
        )


def not_numbers() -> DocmtError:
    """The error for a model whose scores are no numbers."""
    return DocmtError(
        "the model's weights or scores are not numbers: train it again with a lower optimizer.learning_rate, or set "
        "search.temperature nearer to 1"
    )
