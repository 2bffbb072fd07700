"""What one pass of a model reads."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from docmt.model.packed import Packed


@dataclass(frozen=True, eq=False)
class Reading:
    """Source and decoder input of some instances, and how they belong together.

    `source` may hold sentences before those that are translated; a `document` of it or of `target` is an instance.
    `aligned` [S_t] int64, on the host: the source sentence that each target sentence belongs to. Where a translation is
    still to be found there is no `target`, and these are the sentences to translate.
    `predicted` [n] int64, on the device of the tokens: the positions of the decoder input that have a label; None: all.
    """

    source: Packed
    aligned: Tensor
    target: Packed | None = None
    predicted: Tensor | None = None

    def to(self, device: torch.device | str) -> Reading:
        """The same with tokens and positions on `device`."""
        predicted = None if self.predicted is None else self.predicted.to(device)
        target = None if self.target is None else self.target.to(device)
        return replace(self, source=self.source.to(device), target=target, predicted=predicted)

    def filled(self, multiple: int, filler: int) -> Reading:
        """The same with a last instance of filler tokens on each side, which has no labels; see `Packed.filled`.

        Where all positions are predicted, states of the filler come behind those that have labels.
        """
        assert self.target is not None
        return replace(
            self,
            source=self.source.filled(multiple, filler),
            target=self.target.filled(multiple, filler),
            aligned=torch.cat((self.aligned, torch.tensor([len(self.source.sentences)]))),
        )
