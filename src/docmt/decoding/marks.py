"""What a search says, sentence after sentence, with the marks of the model's family."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from torch import Tensor

from docmt.model.scope import SentenceFrame
from docmt.text import SpecialTokens


@dataclass(frozen=True)
class Marks:
    """What comes after the first mark, which is given.

    `w .. </s> <s> w .. </s> <eod>` after `<s>`; in other families the last `</s>` ends all, and other marks may open a
    sentence; where sentences are joined (`SentenceFrame`) it is `w .. <s> w .. </s>` after `</s>`.
    """

    specials: SpecialTokens
    frame: SentenceFrame

    @property
    def begins(self) -> int:
        """The first mark."""
        return self.specials.eos if self.frame.joined else self.frame.target_opens[0]

    @property
    def ends(self) -> int:
        """The last mark of all."""
        return self.specials.eod if self.frame.goes_on else self.specials.eos

    @property
    def between(self) -> tuple[int, ...]:
        """The marks between two sentences."""
        return (self.specials.bos,) if self.frame.joined else (self.specials.eos, *self.frame.target_opens)

    @property
    def inner(self) -> int:
        """How many marks that open a sentence come after its first."""
        return len(self.frame.target_opens) - 1

    def opened(self, offset: Tensor) -> Tensor:
        """Whether all marks that open the sentence were read, of tokens at these offsets in it."""
        return offset >= self.inner

    def closed(self, last: Tensor, offset: Tensor) -> Tensor:
        """Whether these tokens, at these offsets in their sentences, closed them, so that another mark must follow."""
        return (last == self.specials.eos) & (offset > self.inner)

    def opens(self, tokens: Tensor, last: Tensor, offset: Tensor) -> Tensor:
        """Whether these tokens open a sentence; last, offset: the token before each, and its place."""
        if self.frame.opens_alike:
            return tokens == self.specials.bos
        return self.closed(last, offset)

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
