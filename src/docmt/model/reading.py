"""What one pass of a model reads."""

from __future__ import annotations

from collections.abc import Callable
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
    `drafts` has a first translation of every sentence of the source, those only read too, in documents alike;
    `references`, in training where a system asks for them, their true translations.
    `predicted` [n] int64, on the device of the tokens: the positions of the decoder input that have a label; None: all.

    Where several translations of one source are read, `documents` [D_t] int64, on the host, has the document of the
    source that each document of the target belongs to (None: the one of the same number), and `same` [T_t] int64, on
    the device of the tokens, for each token of the decoder input one that has the same source and the same tokens
    before it (itself, or one for all of them), whose state is the same, so that it is computed once.
    """

    source: Packed
    aligned: Tensor
    target: Packed | None = None
    predicted: Tensor | None = None
    drafts: Packed | None = None
    references: Packed | None = None
    documents: Tensor | None = None
    same: Tensor | None = None

    def to(self, device: torch.device | str) -> Reading:
        """The same with tokens and positions on `device`."""
        predicted, same = (None if places is None else places.to(device) for places in (self.predicted, self.same))
        return replace(self._with_sides(lambda side: side.to(device)), predicted=predicted, same=same)

    def filled(self, multiple: int, filler: int) -> Reading:
        """The same with a last instance of filler tokens on each side, which has no labels; see `Packed.filled`.

        Where all positions are predicted, states of the filler come behind those that have labels.
        """
        assert self.target is not None
        aligned = torch.cat((self.aligned, torch.tensor([len(self.source.sentences)])))
        return replace(self._with_sides(lambda side: side.filled(multiple, filler)), aligned=aligned)

    def apart(self) -> Reading:
        """The same without context: through every sight a sentence sees itself alone; see `Packed.apart`."""
        return replace(self._with_sides(Packed.apart), documents=self.aligned)

    def _with_sides(self, change: Callable[[Packed], Packed]) -> Reading:
        """The same with every sequence that there is changed alike."""
        target, drafts, references = (
            None if side is None else change(side) for side in (self.target, self.drafts, self.references)
        )
        return replace(self, source=change(self.source), target=target, drafts=drafts, references=references)
