"""Connections of the server: their number, and the time in which a request must arrive."""

from __future__ import annotations

import asyncio
import sys
from typing import Any, cast

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_SECONDS = 30.0
"""For the first line and the headers."""
BODY_SECONDS = 60.0
"""In which a part of a body must arrive, as long as the server reads."""
BODY_BYTES = 6_000
"""Of this part, if it is not the last."""
MAX_CONNECTIONS = 512
_FILES = 100
"""That the process opens for its work, about."""


def max_connections() -> int:
    """Return how many connections are open at most: what the process may open, without the files of its work."""
    if sys.platform == "win32":
        return MAX_CONNECTIONS
    import resource

    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MAX_CONNECTIONS if files == resource.RLIM_INFINITY else max(16, min(MAX_CONNECTIONS, files - _FILES))


class BoundedProtocol(H11Protocol):
    """A connection that is closed if there are too many, or if a request arrives too slowly."""

    _timer: asyncio.TimerHandle | None = None
    _phase: object = None
    _size = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request. If too many wait, the one that has waited longest ends."""
        super().connection_made(transport)
        self._watch()
        connections = cast("set[BoundedProtocol]", self.connections)
        active = [each for each in connections if not each.transport.is_closing()]
        if len(active) > max_connections():
            waiting = {each._timer.when(): each for each in active if each._timer and each._phase is h11.IDLE}
            waiting[min(waiting)]._refuse("503 Service Unavailable", "too many clients are connected: try again later")

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop to wait."""
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Count what arrives."""
        self._size += len(data)
        super().data_received(data)

    def handle_events(self) -> None:
        """Begin to wait for the next part of a request where one has arrived."""
        super().handle_events()
        if self.conn.their_state is not self._phase:
            self._watch()

    def _watch(self) -> None:
        self._phase, self._size = self.conn.their_state, 0
        if self._timer is not None:
            self._timer.cancel()
        seconds = {h11.IDLE: HEAD_SECONDS, h11.SEND_BODY: BODY_SECONDS}.get(cast(Any, self._phase))
        self._timer = None if seconds is None else self.loop.call_later(seconds, self._check)

    def _check(self) -> None:
        """Close the connection, unless the body comes fast enough, or waits for the server."""
        in_body = self._phase is h11.SEND_BODY
        if in_body and (self._size >= BODY_BYTES or self.flow.read_paused or self.cycle.waiting_for_100_continue):
            self._watch()
        else:
            self._refuse("408 Request Timeout", "the request arrives too slowly: send it again")

    def _refuse(self, status: str, reason: str) -> None:
        """Close the connection, with an answer if none has begun."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE) and not self.transport.is_closing():
            body = f'{{"error":"{reason}"}}'
            head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
            self.transport.write(f"{head}\r\nConnection: close\r\n\r\n{body}".encode())
        self.transport.close()
