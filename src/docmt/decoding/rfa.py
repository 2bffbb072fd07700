"""The rules of the published search of Wu et al. (2022), for agreement with its checkpoints.

The mark that joins sentences is a symbol like any other, so that a window may come out with more or fewer sentences
than its source, or with empty ones; one limit holds for all of it; and the tokens of a forced prefix count, with their
log-probabilities and in the length. What competes with what, and when it ends, is as in our own `search`.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from docmt.core.errors import DocmtError
from docmt.decoding.config import SearchConfig
from docmt.decoding.frame import Frame, OpenEnd, Progress, Row, leave_only, prefixes_of
from docmt.decoding.marks import Marks

MOST = 1023
"""Tokens that their search says at most, those of a prefix counted in: it has positions for so many."""


class RfaRules(OpenEnd):
    """Anything up to a limit, then `</s>`; what a prefix forces is chosen as the only thing left."""

    def __init__(self, rows: Sequence[Row], config: SearchConfig, marks: Marks, device: torch.device):
        self.specials, self.least = marks.specials, config.min_length
        self.prefixes = prefixes_of(rows, marks, device)  # [D, P], -1 where there is a choice
        self.limits = torch.tensor([self._limit(row, config) for row in rows], device=device)
        self.never = torch.tensor([self.specials.pad], device=device)

    @staticmethod
    def _limit(row: Row, config: SearchConfig) -> int:
        """That of the window and its prefix together, in the order in which they add and multiply.

        Raises DocmtError for a prefix after which nothing may be said.
        """
        window = sum(row.lengths) + len(row.lengths)
        before = len(row.prefix)
        context = sum(row.lengths[:before]) + before
        said = sum(map(len, row.prefix)) + before
        if said >= MOST:
            raise DocmtError(
                f"the translations before a sentence have {said} tokens, but with search.compatibility rfa all have "
                f"at most {MOST}: choose none, or a model of fewer sentences (model.concat.sentences)"
            )
        extra = config.max_length_extra + said - config.max_length_ratio * context
        return min(int(config.max_length_ratio * window + extra), MOST)

    ended_by_limit = staticmethod(Frame.ended_by_limit)

    def keep(self, documents: Tensor) -> None:
        """Goes on with these documents only."""
        super().keep(documents)
        self.prefixes = self.prefixes[documents]

    def restrict(self, logits: Tensor, progress: Progress, document: Tensor) -> None:
        """Sets what may not follow to minus infinity, in place; logits [R, V]."""
        logits.index_fill_(1, self.never, -torch.inf)
        full = progress.free >= self.limits[document]
        step = int(progress.free.max())  # all rows have said as many tokens
        given = torch.full_like(document, -1)
        if step < self.prefixes.shape[1]:
            given = self.prefixes[document, step]
        if step < self.least:
            logits[(given < 0) & ~full, self.specials.eos] = -torch.inf
        only = torch.where(full, self.specials.eos, given)
        rows = (only >= 0).nonzero().flatten()
        leave_only(logits, rows, only[rows])
