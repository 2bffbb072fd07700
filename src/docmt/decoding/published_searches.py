"""Searches of other toolkits, sentence by sentence, for agreement with them. Notation as in `caches`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from docmt.decoding.ensembles import Memories, Model, compute_next_logits
from docmt.decoding.incremental import IncrementalDecoder
from docmt.decoding.logits import top_tokens
from docmt.decoding.search_config import SearchConfig, between_steps
from docmt.decoding.search_rules import SearchRow, TargetBoundaries
from docmt.decoding.translation_results import Hypothesis
from docmt.text import SpecialTokens


class PooledSearch(ABC):
    """Search of another toolkit over search rows of one sentence each, for agreement with it.

    It differs from docmt's in competition and stopping. Candidates that end compete, by their normalised scores, with
    the B best that ended before. The search goes on until no unended hypothesis could do better.
    """

    def __init__(
        self, model: Model, memories: Memories, rows: Sequence[SearchRow], specials: SpecialTokens, config: SearchConfig
    ) -> None:
        device, beam = model.device, config.beam
        self.model, self.specials, self.config = model, specials, config
        self.boundaries = TargetBoundaries(specials, model.boundary_tokens)
        self.decoder = IncrementalDecoder(model, memories, rows, beam)
        self.sentences = torch.tensor([row.sentences[0] for row in rows], device=device).repeat_interleave(beam)
        limits = [config.sentence_limit(row.lengths[0]) + self.boundaries.inner_openers for row in rows]
        self.limits = torch.tensor(limits, device=device)  # [D] tokens
        self.limit = max(*limits, 0)
        shape = (len(rows), beam)
        self.total = torch.full(shape, -torch.inf, device=device)  # [D, B] of unended hypotheses
        self.total[:, 0] = 0.0
        self.generated = torch.zeros(*shape, 0, dtype=torch.int64, device=device)  # [D, B, steps]
        self.ended = torch.full(shape, -torch.inf, device=device)  # [D, B] scores of ended hypotheses
        self.ended_total = torch.full(shape, -torch.inf, device=device)
        self.ended_tokens = torch.zeros(*shape, self.limit, dtype=torch.int64, device=device)
        self.ended_length = torch.zeros(shape, dtype=torch.int64, device=device)

    def run(self) -> list[list[Hypothesis]]:
        """Return the best hypotheses of each sentence, best first; unended ones only where none ended."""
        while self.generated.shape[2] < self.limit and not self._is_finished():
            between_steps()
            self._step()
        return [self._best_hypotheses(number)[: self.config.n_best] for number in range(len(self.total))]

    @abstractmethod
    def _is_finished(self) -> bool:
        """Return whether no better hypothesis can follow; finished sentences may be ended here."""

    @abstractmethod
    def _find_ends(self, chosen: Tensor, length: int) -> tuple[Tensor, Tensor]:
        """Return which candidates [D, 2 B], best first, stop, and which of these count as ended."""

    def _step(self) -> None:
        """Add one token to every hypothesis."""
        rows, beam, step = self.generated.shape
        last = self.generated[:, :, -1].flatten() if step else torch.full_like(self.sentences, self.boundaries.start)
        offsets = torch.full_like(last, step)
        states = self.decoder.step(last, offsets, step, self.sentences)
        scores = self._scores(states, step)
        totals = (self.total.flatten()[:, None] + scores).view(rows, -1)  # [D, B * V]
        index = top_tokens(totals, min(2 * beam, totals.shape[1]), totals.new_zeros(rows, 1))  # [D, 2 B]
        best = totals.gather(1, index)
        parents, chosen = index // scores.shape[1], index % scores.shape[1]
        generated = torch.cat(
            (self.generated.gather(1, parents[:, :, None].expand(-1, -1, step)), chosen[:, :, None]), dim=2
        )
        stop, ended = self._find_ends(chosen, step + 1)
        self._add_ended(best.masked_fill(~ended, -torch.inf), generated)
        self.total, indices = best.masked_fill(stop, -torch.inf).topk(beam, dim=1)  # [D, B]
        self.generated = generated.gather(1, indices[:, :, None].expand(-1, -1, step + 1))
        first = torch.arange(rows, device=indices.device)[:, None] * beam
        self.decoder.reorder((parents.gather(1, indices) + first).flatten())

    def _scores(self, states: Sequence[Tensor], step: int) -> Tensor:
        """Return log-probabilities of the next token [R, V]; 0 for a forced opening token."""
        scores = compute_next_logits(self.model, states, self.config.temperature).float().log_softmax(-1)
        if step < self.boundaries.inner_openers:
            scores = torch.full_like(scores, -torch.inf)
            scores[:, self.boundaries.tokens.target_opening[step + 1]] = 0.0
        return scores

    def _add_ended(self, totals: Tensor, tokens: Tensor) -> None:
        """Keep the B best ended hypotheses; totals [D, 2 B] (minus infinity: not ended), tokens [D, 2 B, n]."""
        length = tokens.shape[2]
        scores = torch.cat((self.ended, self.config.normalize_score(totals, length)), dim=1)  # [D, 3 B]
        self.ended, indices = scores.topk(self.config.beam, dim=1)
        padded = F.pad(tokens, (0, self.limit - length))
        all_tokens = torch.cat((self.ended_tokens, padded), dim=1)
        self.ended_tokens = all_tokens.gather(1, indices[:, :, None].expand(-1, -1, self.limit))
        self.ended_total = torch.cat((self.ended_total, totals), dim=1).gather(1, indices)
        lengths = torch.cat((self.ended_length, torch.full_like(totals, length, dtype=torch.int64)), dim=1)
        self.ended_length = lengths.gather(1, indices)

    def _best_hypotheses(self, number: int) -> list[Hypothesis]:
        """Return the best hypotheses of a sentence."""
        if bool(self.ended[number].isfinite().any()):
            totals, scores = self.ended_total[number], self.ended[number]
            pairs = zip(self.ended_tokens[number].tolist(), self.ended_length[number].tolist(), strict=True)
            token_lists = [tokens[:length] for tokens, length in pairs]
        else:
            token_lists, totals = self.generated[number].tolist(), self.total[number]
            scores = self.config.normalize_score(totals, self.generated.shape[2])
        hypotheses = []
        for tokens, total, score in zip(token_lists, totals.tolist(), scores.tolist(), strict=True):
            if score > -torch.inf:
                is_closed, count = tokens[-1:] == [self.specials.eos], len(tokens)
                words = tokens[self.boundaries.inner_openers : count - is_closed]
                hypotheses.append(Hypothesis([words], [total], [count], score, count, [] if is_closed else [0]))
        return hypotheses


class ThumtSearch(PooledSearch):
    """Search of THUMT, whose rules Zhang et al. (2018) used.

    All sentences of a batch stop together: as soon as in each of them the worst ended hypothesis beats the best score
    that an unended one could still reach. The longest source limits all of them, so results can depend on the batch.
    """

    def _is_finished(self) -> bool:
        reachable = self.config.normalize_score(self.total.amax(1), self.limit)
        ended = self.ended.isfinite()
        worst = torch.where(ended, self.ended, torch.inf).amin(1)
        return bool((ended.any(1) & (worst > reachable)).all())

    def _find_ends(self, chosen: Tensor, length: int) -> tuple[Tensor, Tensor]:
        ends = chosen == self.specials.eos
        return ends, ends


class GenerateSearch(PooledSearch):
    """Search of `generate` in transformers (version 5), with its default early_stopping = False.

    Only candidates among the B best can end. A sentence is finished as soon as B hypotheses ended and the worst of
    these beats the score of the best unended one at its length. At the limit all end, without `</s>`.
    """

    def _is_finished(self) -> bool:
        best = self.config.normalize_score(self.total.amax(1), max(self.generated.shape[2], 1))
        # Unended hypotheses of a finished sentence no longer compete.
        self.total[self.ended.amin(1) >= best] = -torch.inf
        return bool(self.total.amax(1).isneginf().all())

    def _find_ends(self, chosen: Tensor, length: int) -> tuple[Tensor, Tensor]:
        stop = (chosen == self.specials.eos) & (length > self.boundaries.inner_openers)
        stop |= (length >= self.limits)[:, None]
        first = torch.arange(chosen.shape[1], device=chosen.device) < self.config.beam
        return stop, stop & first

    def _scores(self, states: Sequence[Tensor], step: int) -> Tensor:
        scores = super()._scores(states, step)
        if not self.model.family.can_generate_padding:
            scores[:, self.specials.pad] = -torch.inf
        if self.boundaries.inner_openers <= step < self.boundaries.inner_openers + self.config.min_length:
            scores[:, self.specials.eos] = -torch.inf
        return scores
