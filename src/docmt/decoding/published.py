"""Searches of other toolkits, sentence by sentence, for agreement with them.

They differ from ours in what competes and when it stops: candidates that end compete, by their normalised scores, with
the B best that ended before, and the search goes on until what has not ended could not do better.
Notation as in `caches`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from docmt.decoding.incremental import IncrementalDecoder, likeliest
from docmt.decoding.models import Memories, Model, next_logits
from docmt.decoding.rules import SearchRow, TargetBoundaries
from docmt.decoding.search_config import SearchConfig
from docmt.decoding.translation import Hypothesis
from docmt.text import SpecialTokens

_NONE = -torch.inf


class PooledSearch(ABC):
    """One search over rows of a sentence each."""

    def __init__(
        self,
        model: Model,
        memories: Memories,
        rows: Sequence[SearchRow],
        specials: SpecialTokens,
        config: SearchConfig,
    ) -> None:
        device, beam = model.device, config.beam
        self.specials, self.config, self.marks = specials, config, TargetBoundaries(specials, model.parts.frame)
        self.model, self.decoder = model, IncrementalDecoder(model, memories, rows, beam)
        self.family = model.parts.family
        self.sentences = torch.tensor([row.sentences[0] for row in rows], device=device).repeat_interleave(beam)
        limits = [config.sentence_limit(row.lengths[0]) + self.marks.inner for row in rows]
        self.limits = torch.tensor(limits, device=device)  # [D] tokens
        self.limit = max(*limits, 0)
        shape = (len(rows), beam)
        self.total = torch.full(shape, _NONE, device=device)  # [D, B] of those that go on
        self.total[:, 0] = 0.0
        self.said = torch.zeros(*shape, 0, dtype=torch.int64, device=device)  # [D, B, steps]
        self.ended = torch.full(shape, _NONE, device=device)  # [D, B] scores of those that ended
        self.ended_total = torch.full(shape, _NONE, device=device)
        self.ended_said = torch.zeros(*shape, self.limit, dtype=torch.int64, device=device)
        self.ended_length = torch.zeros(shape, dtype=torch.int64, device=device)

    def run(self) -> list[list[Hypothesis]]:
        """The best of each sentence, best first; those that did not end only where none did."""
        while self.said.shape[2] < self.limit and not self._settled():
            self._step()
        return [self._best(number)[: self.config.n_best] for number in range(len(self.total))]

    @abstractmethod
    def _settled(self) -> bool:
        """Whether nothing better can be found; sentences that are settled may be ended here."""

    @abstractmethod
    def _ending(self, chosen: Tensor, length: int) -> tuple[Tensor, Tensor]:
        """Which candidates chosen [D, 2 B], the best first, do not go on, and which of these count as ended."""

    def _step(self) -> None:
        documents, beam, step = self.said.shape
        last = self.said[:, :, -1].flatten() if step else torch.full_like(self.sentences, self.marks.begins)
        offsets = torch.full_like(last, step)
        states = self.decoder.read(last, offsets, step, self.sentences)
        scores = self._scores(states, step)
        totals = (self.total.flatten()[:, None] + scores).view(documents, -1)  # [D, B * V]
        best, index = likeliest(totals, min(2 * beam, totals.shape[1]))  # [D, 2 B]
        parents, chosen = index // scores.shape[1], index % scores.shape[1]
        said = torch.cat((self.said.gather(1, parents[:, :, None].expand(-1, -1, step)), chosen[:, :, None]), dim=2)
        stop, ended = self._ending(chosen, step + 1)
        self._take_ended(best.masked_fill(~ended, _NONE), said)
        self.total, kept = best.masked_fill(stop, _NONE).topk(beam, dim=1)  # [D, B]
        self.said = said.gather(1, kept[:, :, None].expand(-1, -1, step + 1))
        first = torch.arange(documents, device=kept.device)[:, None] * beam
        self.decoder.reorder((parents.gather(1, kept) + first).flatten())

    def _scores(self, states: Sequence[Tensor], step: int) -> Tensor:
        """[R, V] log-probabilities of the next token; of a mark that opens the sentence, which is given, 0."""
        scores = next_logits(self.model, states, self.config.temperature).float().log_softmax(-1)
        if step < self.marks.inner:
            scores = torch.full_like(scores, _NONE)
            scores[:, self.marks.frame.target_opens[step + 1]] = 0.0
        return scores

    def _take_ended(self, totals: Tensor, said: Tensor) -> None:
        """The B best that ended before and now; totals [D, 2 B] (minus infinity: goes on), said [D, 2 B, n]."""
        length = said.shape[2]
        scores = torch.cat((self.ended, self.config.normalized(totals, length)), dim=1)  # [D, 3 B]
        self.ended, kept = scores.topk(self.config.beam, dim=1)
        padded = torch.nn.functional.pad(said, (0, self.limit - length))
        everything = torch.cat((self.ended_said, padded), dim=1)
        self.ended_said = everything.gather(1, kept[:, :, None].expand(-1, -1, self.limit))
        self.ended_total = torch.cat((self.ended_total, totals), dim=1).gather(1, kept)
        lengths = torch.cat((self.ended_length, torch.full_like(totals, length, dtype=torch.int64)), dim=1)
        self.ended_length = lengths.gather(1, kept)

    def _best(self, number: int) -> list[Hypothesis]:
        if bool(self.ended[number].isfinite().any()):
            lengths, totals, scores = self.ended_length[number], self.ended_total[number], self.ended[number]
            said = [
                own[:length] for own, length in zip(self.ended_said[number].tolist(), lengths.tolist(), strict=True)
            ]
        else:
            said, totals = self.said[number].tolist(), self.total[number]
            scores = self.config.normalized(totals, self.said.shape[2])
        found = zip(said, totals.tolist(), scores.tolist(), strict=True)
        return [
            Hypothesis([self._words(own)], [total], [len(own)], score, len(own))
            for own, total, score in found
            if score > _NONE
        ]

    def _words(self, said: list[int]) -> list[int]:
        """What was said without its marks."""
        closed = len(said) > self.marks.inner and said[-1] == self.specials.eos
        return said[self.marks.inner : len(said) - closed]


class ThumtSearch(PooledSearch):
    """The search of THUMT, whose rules Zhang et al. (2018) used.

    All sentences of a batch stop together, as soon as in each of them the worst ended hypothesis beats what the best
    unended one could still reach, and the longest source limits all of them. So results can depend on the batch.
    """

    def _settled(self) -> bool:
        reachable = self.config.normalized(self.total.amax(1), self.limit)
        ended = self.ended.isfinite()
        worst = torch.where(ended, self.ended, torch.inf).amin(1)
        return bool((ended.any(1) & (worst > reachable)).all())

    def _ending(self, chosen: Tensor, length: int) -> tuple[Tensor, Tensor]:
        ends = chosen == self.specials.eos
        return ends, ends


class GenerateSearch(PooledSearch):
    """The search of `generate` in transformers (version 5), with its usual early_stopping = False.

    Of the candidates that end only those among the B best count. A sentence is settled as soon as B hypotheses ended,
    of which the worst beats what the best unended one is worth at its length. At the limit all end, without `</s>`.
    """

    def _settled(self) -> bool:
        best = self.config.normalized(self.total.amax(1), max(self.said.shape[2], 1))
        # Unended ones of a sentence that is settled are worth nothing from now on.
        self.total[self.ended.amin(1) >= best] = _NONE
        return bool(self.total.amax(1).isneginf().all())

    def _ending(self, chosen: Tensor, length: int) -> tuple[Tensor, Tensor]:
        stop = (chosen == self.specials.eos) & (length > self.marks.inner)
        stop |= (length >= self.limits)[:, None]
        first = torch.arange(chosen.shape[1], device=chosen.device) < self.config.beam
        return stop, stop & first

    def _scores(self, states: Sequence[Tensor], step: int) -> Tensor:
        scores = super()._scores(states, step)
        if not self.family.says_padding:
            scores[:, self.specials.pad] = _NONE
        if self.marks.inner <= step < self.marks.inner + self.config.min_length:
            scores[:, self.specials.eos] = _NONE
        return scores
