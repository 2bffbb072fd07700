"""The HTTP server: a socket, uvicorn on it, and a stop that ends streams first."""

from __future__ import annotations

import ipaddress
import socket
from contextlib import suppress

import uvicorn
from starlette.applications import Starlette

from docmt.core.errors import DocmtError, printable

_MAX_HEAD_BYTES = 2**18
"""Bytes of the first line and the headers: some clients send texts in the query."""
_BACKLOG = 2048
_STOP_SECONDS = 10
"""Seconds in which running requests may end when the server stops."""


def open_socket(host: str, port: int) -> socket.socket:
    """Return a socket that listens; port 0: a free one. Raises DocmtError if the address cannot be used."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)  # asyncio sets TCP_NODELAY only where the protocol is named
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(_BACKLOG)
        except OSError:
            listener.close()
            raise
        return listener
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or "no such name"
        name = printable(host)
        raise DocmtError(f"{name} port {port} cannot be used ({reason}): choose another --port, or --host") from error


def is_loopback(listener: socket.socket) -> bool:
    """Return whether a socket can be reached from this machine only."""
    return ipaddress.ip_address(listener.getsockname()[0]).is_loopback


def format_url(listener: socket.socket) -> str:
    """Return the URL of a socket."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class ServiceServer(uvicorn.Server):
    """Uvicorn that ends streams of events when it stops, which would last."""

    def __init__(self, app: Starlette) -> None:
        """app: of `docmt.serve.application.create_app`."""
        config = uvicorn.Config(
            app,
            loop="asyncio",
            http="h11",
            ws="none",
            lifespan="on",
            log_config=None,
            log_level="critical",  # the application logs requests and failures itself
            access_log=False,
            server_header=False,
            h11_max_incomplete_event_size=_MAX_HEAD_BYTES,
            timeout_graceful_shutdown=_STOP_SECONDS,
        )
        super().__init__(config)
        self._app_state = app.state

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop, after the streams."""
        self._app_state.service.stopping.set()
        await super().shutdown(sockets)

    def serve_forever(self, listener: socket.socket) -> None:
        """Answer requests until the process is asked to stop (Ctrl-C, SIGTERM), or `should_exit` is set.

        Raises DocmtError if the application cannot start.
        """
        with suppress(KeyboardInterrupt), listener:  # uvicorn raises the signal again at its end
            try:
                self.run(sockets=[listener])
            except SystemExit as error:
                raise self._app_state.failure or DocmtError("the service could not start") from error
