"""The training documents in parts of even size, to train without one of them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from docmt.core.errors import DocmtError

if TYPE_CHECKING:  # options are known without waiting for numpy
    import numpy as np
    from numpy.typing import NDArray

MOST_PARTS = 1000


@dataclass(frozen=True)
class Part:
    """Part `number` (from 1) of `count`: every count-th document, as corpora are often in the order of their topics."""

    number: int
    count: int

    @classmethod
    def parse(cls, text: str, name: str) -> Part:
        """The part "2/5". Raises DocmtError, naming the option, for anything else."""
        found = re.fullmatch(r"([0-9]{1,4})/([0-9]{1,4})", text)
        if found is not None:
            part = cls(int(found[1]), int(found[2]))
            if 2 <= part.count <= MOST_PARTS and 1 <= part.number <= part.count:
                return part
        raise DocmtError(
            f"{name} is {text[:40]!r}: give the number of a part and how many there are (2 to {MOST_PARTS:,}), such as "
            "2/5, or leave it out"
        )

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"

    def has(self, documents: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of these documents (numbers from 0) are in the part."""
        return documents % self.count == self.number - 1
