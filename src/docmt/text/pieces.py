"""What splits a sentence into the pieces of a pretrained model, whatever library its file is for."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import ClassVar

BYTE = re.compile(r"<0x[0-9A-F]{2}>")
"""A piece that stands for a byte of a character which has no piece."""


class Pieces(ABC):
    """A model of pieces, and the ids that pieces have in the vocabulary. What has no id becomes <unk>.

    A model holds pieces that text can become, and no marks: text that looks like a mark is split like any other.
    """

    suffix: ClassVar[str]
    """of the names of the files that hold such a model"""

    def __init__(self, data: bytes, ids: Mapping[str, int]) -> None:
        """`data`: the file; `ids`: those of the words. Raises ValueError if the file is damaged or lacks words."""
        self.data = data
        self.ids = ids

    @abstractmethod
    def encode(self, sentences: Sequence[str]) -> list[list[int]]:
        """Ids of every sentence, using all processor cores."""

    @abstractmethod
    def decode(self, batch: Sequence[Sequence[int]]) -> list[str]:
        """The text of every sequence of ids; ids of anything but words are left out."""

    @abstractmethod
    def used(self, sentences: Sequence[str]) -> set[str]:
        """The pieces that these sentences become, and text that becomes <unk>."""

    @abstractmethod
    def needed(self, used: Collection[str]) -> set[str]:
        """These pieces, and those without which sentences would become other ones: see `docmt.text.pruning`."""

    @abstractmethod
    def restricted(self, pieces: Collection[str]) -> bytes:
        """The file of a model that has only these pieces, and what it cannot do without."""


def merges_of(pieces: Iterable[str], rank: Callable[[str, str], float | None]) -> set[str]:
    """All that byte-pair encoding makes on its way from characters to these pieces.

    `rank` of two neighbours: the pair of lowest rank is merged first, the leftmost of equals; None: never.
    """
    made: set[str] = set()
    for piece in pieces:
        parts = list(piece)
        while True:
            ranks = [(rank(left, right), place) for place, (left, right) in enumerate(pairwise(parts))]
            best = min(((first, place) for first, place in ranks if first is not None), default=None)
            if best is None:
                break
            place = best[1]
            parts[place : place + 2] = [parts[place] + parts[place + 1]]
            made.add(parts[place])
    return made
