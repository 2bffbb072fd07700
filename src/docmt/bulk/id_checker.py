"""A check that the ids of millions of documents differ, in 8 bytes of memory for each."""

from __future__ import annotations

from array import array
from hashlib import blake2b

import numpy as np

_DIGEST_BYTES = 8
_FIRST_LOOK = 1 << 16  # ids, after which there is a look at every doubling
_MOST_SUSPECTS = 1000  # are enough: different ids of one digest are rare


def digest_id(id: str) -> int:
    """Return a digest of an id, in which two of ten million ids agree by chance once in 400,000 jobs."""
    return int.from_bytes(blake2b(id.encode("utf-8", "surrogatepass"), digest_size=_DIGEST_BYTES).digest())


class IdChecker:
    """The digests of the ids so far."""

    def __init__(self) -> None:
        self._digests, self._next_look = array("Q"), _FIRST_LOOK

    def add(self, id: str) -> set[int]:
        """Add an id. Now and then, return the digests that came twice, so that long input is not read in vain."""
        self._digests.append(digest_id(id))
        if len(self._digests) < self._next_look:
            return set()
        self._next_look *= 2
        return self.find_repeated()

    def find_repeated(self) -> set[int]:
        """Return digests that came twice, some of them if there are many."""
        digests = np.array(self._digests)
        digests.sort()
        return set(digests[1:][digests[1:] == digests[:-1]][:_MOST_SUSPECTS].tolist())
