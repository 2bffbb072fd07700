"""The jobs that wait for their translation: their owners take turns."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class JobQueue:
    """Jobs of a lane that wait. Owners take turns, and of each a few run at once."""

    def __init__(self, active: int) -> None:
        """active: jobs of an owner that run at once."""
        self._active = active
        self._waiting: dict[str, deque[str]] = {}  # ids by owner, in the order of their turns
        self._running, self._changed = Counter[str](), asyncio.Event()

    def put(self, owner: str, id: str) -> None:
        """Add a job."""
        self._waiting.setdefault(owner, deque()).append(id)
        self._changed.set()

    @asynccontextmanager
    async def take(self) -> AsyncIterator[str]:
        """Wait for a job that may run, which runs until the end of the context."""
        while (owner := next((each for each in self._waiting if self._running[each] < self._active), None)) is None:
            self._changed.clear()
            await self._changed.wait()
        ids = self._waiting.pop(owner)
        id = ids.popleft()
        if ids:
            self._waiting[owner] = ids  # the last one now
        self._running[owner] += 1
        try:
            yield id
        finally:
            self._running[owner] -= 1
            self._changed.set()
