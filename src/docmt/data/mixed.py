"""Instances at several limits, of which every epoch takes others (multi-resolution training, Sun et al. 2022).

Documents are cut into stretches, which are the instances at the longest limit. In every epoch each stretch draws one of
the limits and is cut at it, and each batch holds instances of one limit. So every sentence comes once an epoch, each
limit has an equal share of the text, also where documents are few and long, and what an epoch reads is a function of
seed and epoch alone: a run can be resumed anywhere, and all processes agree. (If instead each batch drew its limit from
documents that are cut in as many ways, an epoch would repeat some sentences and miss others.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from docmt.data.instances import Instances, Integers, cut
from docmt.model.systems import Needs


@dataclass(frozen=True)
class Mixture:
    """Which of I instances, cut at all limits, an epoch may take together."""

    stretch: Integers
    """[I] the stretch that each instance is a part of"""
    limit: Integers
    """[I] which of the limits it was cut at, from 0"""
    limits: int
    """how many there are"""

    def only(self, chosen: NDArray[np.bool_]) -> Mixture:
        """That of the chosen instances [I] alone."""
        return replace(self, stretch=self.stretch[chosen], limit=self.limit[chosen])

    def drawn(self, words: NDArray[np.uint64]) -> list[NDArray[np.bool_]]:
        """For each limit, which of the instances [I] an epoch takes; words: a random one for each stretch."""
        own = (words % np.uint64(self.limits)).astype(np.int64)[self.stretch] == self.limit
        return [own & (self.limit == number) for number in range(self.limits)]


def cut_mixed(
    source_lengths: Integers,
    target_lengths: Integers,
    document_offsets: Integers,
    needs: Needs,
    limits: Sequence[int],
    max_sentences: int,
) -> tuple[Instances, Mixture]:
    """Cuts documents at each limit, as `cut` does at one, and says which of the instances are of one stretch.

    For systems whose instances depend on the limit alone (`Needs()`).
    """
    stretches = cut(
        source_lengths, target_lengths, document_offsets, needs, limit=max(limits), max_sentences=max_sentences
    )
    borders = np.append(stretches.first, stretches.last[-1:])  # they lie end to end
    parts = [
        cut(source_lengths, target_lengths, borders, needs, limit=limit, max_sentences=max_sentences)
        for limit in sorted(limits)
    ]
    together = Instances.joined(parts)
    limit = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    instances = replace(together, document=stretches.document[together.document])
    return instances, Mixture(together.document, limit, len(parts))
