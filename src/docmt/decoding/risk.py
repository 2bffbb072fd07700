"""What may be risked by finding sentences at the same time that wait for each other.

Each is found after drafts of those before it; where a draft changes, that was for nothing. So only as many sentences
are begun as may be lost, more where drafts stay. Costs are estimates, in steps of one row.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch

from docmt.decoding.drafts import Drafts
from docmt.decoding.ensemble import Model, members_of
from docmt.decoding.precision import Int8Linear

RISK = 0.1
"""Of the time of translating one after the other: so much may be lost by trying all at once."""


def cost_of(rows: int, model: Model) -> float:
    """How long a step of so many rows takes, in steps of one."""
    return 1 + rows / _free_rows(model)


def cost_of_pass(tokens: int, model: Model) -> float:
    """How long a full pass over so many tokens takes, in steps of one row."""
    return tokens / (1.5 * _free_rows(model))


def _free_rows(model: Model) -> int:
    """How many rows make a step take twice as long as one does: measured on CPUs (docs/log.md), guessed for GPUs.

    (Not measured where it runs: what is searched at the same time would depend on what else the machine does.)
    """
    device = model.device.type
    if device != "cpu":
        return 500
    if torch.is_autocast_enabled(device):
        return 24
    return 17 if isinstance(members_of(model)[0].projection, Int8Linear) else 12


class RiskedDrafts(Drafts):
    """Drafts that are made at the same time as long as that is worth it."""

    def spent(self) -> float:
        """What was done so far."""
        return self.work.cost + cost_of_pass(self.work.passes, self.model)

    def saved(self, found: Collection[int]) -> float:
        """How much may be spent till these sentences are final: what those that are final then would take one after the
        other, and RISK of all."""
        asked = [number for number, own in enumerate(self.sentences) if not own.given]
        return (1 + RISK) * self.one_by_one(asked) - self.left(found)

    def gained(self, found: Collection[int]) -> float:
        """How much less is left to do one after the other if these sentences are final, too."""
        return self.left() - self.left(found)

    def left(self, found: Collection[int] = ()) -> float:
        """How long one after the other would still take if these sentences are final, too."""
        return self.one_by_one([n for n, own in enumerate(self.sentences) if not own.final and n not in found])

    def one_by_one(self, numbers: Sequence[int]) -> float:
        """How long these sentences take one after the other, those of different documents at the same time."""
        lengths = [0] * len(self.rows)
        for number in numbers:
            lengths[self.sentences[number].row] += self.lengths[number]
        return max(lengths) * cost_of(len(self.rows) * self.config.beam, self.model)
