"""What a search says, sentence after sentence, with the marks of the model's family."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from docmt.text import SpecialTokens


@dataclass(frozen=True)
class Marks:
    """What comes after the first mark, which is given.

    `w .. </s> <s> w .. </s> <eod>` after `<s>`; where sentences are joined (`SentenceFrame`) `w .. <s> w .. </s>` after
    `</s>`.
    """

    specials: SpecialTokens
    joined: bool = False

    @property
    def begins(self) -> int:
        """The first mark."""
        return self.specials.eos if self.joined else self.specials.bos

    @property
    def ends(self) -> int:
        """The last mark of all."""
        return self.specials.eos if self.joined else self.specials.eod

    @property
    def between(self) -> tuple[int, ...]:
        """The marks between two sentences."""
        return (self.specials.bos,) if self.joined else (self.specials.eos, self.specials.bos)

    @property
    def goes_on(self) -> bool:
        """Whether the mark that closes a sentence is followed by another one, which opens the next or ends all."""
        return not self.joined

    def split(self, tokens: Sequence[int], scores: Sequence[float]) -> tuple[list[list[int]], list[float]]:
        """Sentences of word ids and their log-probabilities.

        A sentence ends at the mark that closes it; what opens the next one or ends all belongs to it, as it is
        predicted inside it.
        """
        closing = {self.specials.eos, *self.between[:1]}
        sentences: list[list[int]] = []
        totals: list[float] = []
        words: list[int] = []
        total = 0.0
        for token, score in zip(tokens, scores, strict=True):
            total += score
            if token in closing:
                sentences.append(words)
                totals.append(total)
                words, total = [], 0.0
            elif token not in (self.specials.bos, self.specials.eod):
                words.append(token)
            elif sentences and not words:
                totals[-1] += total
                total = 0.0
        if words:
            sentences.append(words)
            totals.append(total)
        elif totals:
            totals[-1] += total
        return sentences, totals

    def chosen(self, tokens: Sequence[int], forced: Collection[int]) -> list[int]:
        """How many tokens of each sentence were chosen; forced: the places of the others."""
        chosen = [0.0 if place in forced else 1.0 for place in range(len(tokens))]
        return list(map(int, self.split(tokens, chosen)[1]))
