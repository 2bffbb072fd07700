"""The search of THUMT, whose rules Zhang et al. (2018) used: for agreement with its checkpoints, sentence by sentence.

It differs from ours in what competes and when it stops: of the best 2 B candidates of a sentence those that end
compete with the B best ended so far, by normalised score; and all sentences of a batch stop together, as soon as in
each of them the worst ended hypothesis beats what the best unended one could still reach. So results can depend on the
batch.
Notation as in `search`.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from docmt.decoding.config import SearchConfig
from docmt.decoding.ensemble import Memories, Model
from docmt.decoding.frame import Row
from docmt.decoding.step import Steps
from docmt.text import SpecialTokens

_NONE = -torch.inf


class ThumtSearch:
    """One search over rows of a sentence each; afterwards `found` [D][<= B] has (words, log-probability, score)."""

    def __init__(
        self,
        model: Model,
        memories: Memories,
        rows: Sequence[Row],
        specials: SpecialTokens,
        config: SearchConfig,
    ) -> None:
        device, beam = model.device, config.beam
        self.specials, self.config = specials, config
        self.decoder = Steps(model, memories, rows, beam)
        self.sentences = torch.tensor([row.sentences[0] for row in rows], device=device).repeat_interleave(beam)
        # The longest source of the batch limits all of its sentences.
        self.limit = max(max(config.sentence_limit(row.lengths[0]) for row in rows), 0)
        shape = (len(rows), beam)
        self.total = torch.full(shape, _NONE, device=device)  # [D, B] of those that go on
        self.total[:, 0] = 0.0
        self.said = torch.zeros(*shape, 0, dtype=torch.int64, device=device)  # [D, B, steps]
        self.ended = torch.full(shape, _NONE, device=device)  # [D, B] scores of those that ended
        self.ended_total = torch.full(shape, _NONE, device=device)
        self.ended_said = torch.zeros(*shape, self.limit, dtype=torch.int64, device=device)
        self.ended_length = torch.zeros(shape, dtype=torch.int64, device=device)

    def run(self) -> list[list[tuple[list[int], float, float]]]:
        """The best of each sentence, best first; those that did not end only where none did."""
        while self.said.shape[2] < self.limit and not self._settled():
            self._step()
        return [self._best(number) for number in range(len(self.total))]

    def _settled(self) -> bool:
        reachable = self.config.normalized(self.total.amax(1), self.limit)
        ended = self.ended.isfinite()
        worst = torch.where(ended, self.ended, torch.inf).amin(1)
        return bool((ended.any(1) & (worst > reachable)).all())

    def _step(self) -> None:
        documents, beam, step = self.said.shape
        last = self.said[:, :, -1].flatten() if step else torch.full_like(self.sentences, self.specials.bos)
        offsets = torch.full_like(last, step)
        states = self.decoder.read(last, offsets, step, self.sentences)
        scores = self.decoder.logits(states, self.config.temperature).log_softmax(-1)
        totals = (self.total.flatten()[:, None] + scores).view(documents, -1)  # [D, B * V]
        best, index = totals.topk(min(2 * beam, totals.shape[1]), dim=1)  # [D, 2 B]
        parents, chosen = index // scores.shape[1], index % scores.shape[1]
        ends = chosen == self.specials.eos
        said = torch.cat((self.said.gather(1, parents[:, :, None].expand(-1, -1, step)), chosen[:, :, None]), dim=2)
        self._take_ended(best.masked_fill(~ends, _NONE), said)
        self.total, kept = best.masked_fill(ends, _NONE).topk(beam, dim=1)  # [D, B]
        self.said = said.gather(1, kept[:, :, None].expand(-1, -1, step + 1))
        first = torch.arange(documents, device=kept.device)[:, None] * beam
        self.decoder.reorder((parents.gather(1, kept) + first).flatten())

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

    def _best(self, number: int) -> list[tuple[list[int], float, float]]:
        if bool(self.ended[number].isfinite().any()):
            found = [
                (said[: length - 1], total, score)  # without </s>
                for said, length, total, score in zip(
                    self.ended_said[number].tolist(),
                    self.ended_length[number].tolist(),
                    self.ended_total[number].tolist(),
                    self.ended[number].tolist(),
                    strict=True,
                )
            ]
        else:
            scores = self.config.normalized(self.total[number], self.said.shape[2])
            found = list(zip(self.said[number].tolist(), self.total[number].tolist(), scores.tolist(), strict=True))
        return [item for item in found if item[2] > _NONE]
