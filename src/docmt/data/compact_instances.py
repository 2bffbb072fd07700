"""Instances of a whole split in a few bytes each, and the blocks of documents in which they are cut.

A corpus of ten million pairs has as many instances in some systems. As `Instances` they would take 480 MB.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from docmt.data.instances import Instances, Integers, Numbers

BLOCK_SENTENCES = 1 << 17
"""Sentences that are cut at once: few enough for arrays of some MB, enough for numpy to be fast."""


def document_blocks(document_offsets: Integers, sentences: int | None = None) -> Iterator[tuple[int, int]]:
    """Yield the first and last document (exclusive) of blocks of at least so many sentences, but for the last block.

    document_offsets [D + 1] are in sentences.
    """
    first, documents, size = 0, len(document_offsets) - 1, sentences or BLOCK_SENTENCES
    while first < documents:
        last = int(np.searchsorted(document_offsets, document_offsets[first] + size))
        yield first, min(last, documents)
        first = last


@dataclass(frozen=True)
class CompactInstances:
    """The same values as `Instances`, each column in the smallest type that holds its numbers.

    Columns are kept as differences: most are then equal for all instances and take no memory. Documents are found anew
    in `document_offsets`.
    """

    document_offsets: Integers
    """[D + 1] first sentence of each document"""
    columns: tuple[NDArray[Any], ...]
    """[I] each: `before`, from there to `first`, to `first_output`, to `last`, and `cost`"""

    def __len__(self) -> int:
        return len(self.columns[0])

    @classmethod
    def pack(cls, instances: Instances, document_offsets: Integers, shift: int = 0) -> Self:
        """Return the instances with all sentence numbers raised by `shift`."""
        edges = instances.before, instances.first, instances.first_output, instances.last
        steps = [later - earlier for earlier, later in pairwise(edges)]
        return cls(document_offsets, tuple(map(narrow, (instances.before + shift, *steps, instances.cost))))

    @classmethod
    def concatenate(cls, parts: Sequence[CompactInstances]) -> Self:
        """Return all instances of the parts, which are of one split, in order."""
        columns = zip(*(part.columns for part in parts), strict=True)
        return cls(parts[0].document_offsets, tuple(narrow(np.concatenate(column)) for column in columns))

    def reorder(self, order: Integers) -> Self:
        """Return the instances with these indices, in this order."""
        return type(self)(self.document_offsets, tuple(narrow(column[order]) for column in self.columns))

    def select(self, indices: Numbers) -> Instances:
        """Return the instances with these indices, in this order."""
        rows = np.asarray(indices)
        before, *steps, cost = (column[rows].astype(np.int64) for column in self.columns)
        first = before + steps[0]
        first_output = first + steps[1]
        document = np.searchsorted(self.document_offsets, first_output, side="right") - 1
        return Instances(document, before, first, first_output, first_output + steps[2], cost)

    def expand(self) -> Instances:
        """Return all instances, at 48 bytes each."""
        return self.select(np.arange(len(self)))


def narrow(numbers: NDArray[Any]) -> NDArray[Any]:
    """Return numbers of at least 0 in the smallest unsigned type; equal ones as one number that is repeated."""
    smallest = np.min_scalar_type(int(numbers.max(initial=0)))
    if len(numbers) and (numbers == numbers[0]).all():
        return np.broadcast_to(numbers[:1].astype(smallest), numbers.shape)
    return numbers.astype(smallest, copy=False)
