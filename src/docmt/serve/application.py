"""The application: all routes, errors, what is started and stopped with them, and the server that it runs in.

The server bounds the number of connections, and the time in which a request must arrive.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import os
import shutil
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, cast

import h11
import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from uvicorn.protocols.http.h11_impl import H11Protocol

from docmt.core.errors import DocmtError, printable
from docmt.serve import deepl_routes, libretranslate_routes, native_routes
from docmt.serve.access_keys import AccessKeys
from docmt.serve.document_jobs import DocumentJobs
from docmt.serve.engine import Engine
from docmt.serve.glossary_store import GlossaryStore
from docmt.serve.http_requests import RequestGuard, ServiceConfig, answer_error, answer_file
from docmt.serve.service_state import ServiceState, get_state, max_connections

_PAGE_TYPES = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".json": "application/json",
    ".svg": "image/svg+xml",
}
_PAGE_POLICY = "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'"
"""Content security policy of the page: nothing from elsewhere, and no scripts or styles in its text."""
_CORS: dict[str, Any] = {
    "allow_methods": ["GET", "POST", "PUT", "PATCH", "DELETE"],
    "allow_headers": ("Authorization", "Content-Type", "Last-Event-ID", "X-Docmt-Document"),
    "expose_headers": ["Content-Disposition", "Retry-After", "X-Docmt-Terms", "X-Request-ID"],
}
_MAX_HEAD_BYTES = 2**18
"""Bytes of the first line and the headers: some clients send texts in the query."""
_BACKLOG = 2048
_STOP_SECONDS = 10
"""Seconds in which running requests may end when the server stops."""
HEAD_SECONDS = 30.0
"""For the first line and the headers."""
BODY_SECONDS = 60.0
"""In which a part of a body must arrive, as long as the server reads."""
BODY_BYTES = 6_000
"""Of this part, if it is not the last."""


def create_app(
    engine: Engine, jobs: DocumentJobs, keys: AccessKeys | None, data: Path, config: ServiceConfig
) -> Starlette:
    """Return the ASGI application. It starts and stops the engine and the jobs.

    keys: None if everybody may use the service, whatever keys there are. data: directory of the service.
    """
    state = ServiceState(engine, jobs, keys, GlossaryStore(data), data / "uploads", config)
    middleware = [Middleware(RequestGuard, config, state.metrics.count_request, state.has_keys)]
    if config.cors:
        middleware.append(Middleware(CORSMiddleware, allow_origins=list(config.cors), **_CORS))
    modules = (native_routes, libretranslate_routes, deepl_routes)
    app = Starlette(
        routes=[route for module in modules for route in module.ROUTES] + _PAGE_ROUTES,
        middleware=middleware,
        exception_handlers={HTTPException: answer_error, DocmtError: answer_error},
        lifespan=_run,
    )
    app.state.service, app.state.failure = state, None
    return app


@asynccontextmanager
async def _run(app: Starlette) -> AsyncIterator[None]:
    """Start the engine and the jobs; stop the jobs, which go on at the next start, and the engine."""
    state: ServiceState = app.state.service
    async with AsyncExitStack() as stack:
        stack.callback(os.umask, os.umask(0o077))  # what the service writes is private, as is what its processes write
        state.engine.start()
        stack.push_async_callback(asyncio.to_thread, state.engine.stop)
        try:
            await state.jobs.start()
        except DocmtError as error:
            app.state.failure = error  # for the command
            raise
        stack.push_async_callback(state.jobs.stop)
        shutil.rmtree(state.uploads, ignore_errors=True)  # of a server that was killed
        yield


async def _show_page(request: Request) -> Response:
    """Return a file of the page."""
    name = request.path_params.get("name", "index.html")
    path = get_state(request).config.page / name
    kind = _PAGE_TYPES.get(path.suffix)
    if kind is None or not path.is_file() or "/" in name:
        raise HTTPException(404)
    headers = {"content-security-policy": _PAGE_POLICY, "cache-control": "no-cache"}
    return answer_file(request, path, media_type=kind, headers=headers)


_PAGE_ROUTES = [Route("/", _show_page), Route("/page/{name}", _show_page)]


def open_socket(host: str, port: int) -> socket.socket:
    """Return a socket that listens; port 0: a free one. Raises DocmtError if the address cannot be used.

    host: a name, an address, or unix:PATH, whose directory decides who reaches the socket.
    """
    try:
        address: Any
        if is_unix := host.startswith("unix:") and hasattr(socket, "AF_UNIX"):
            family, kind, protocol, address = socket.AF_UNIX, socket.SOCK_STREAM, 0, _free_path(Path(host[5:]))
        else:
            family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with ExitStack() as stack:
            # asyncio sets TCP_NODELAY only where the protocol is named
            listener = stack.enter_context(socket.socket(family, kind, protocol))
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            if is_unix:
                Path(address).chmod(0o666)
            listener.listen(_BACKLOG)
            stack.pop_all()  # it stays open
        return listener
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or "no such name"
        name = printable(host) if is_unix else f"{printable(host)} port {port}"
        raise DocmtError(f"{name} cannot be used ({reason}): choose another --port, or --host") from error


def _free_path(path: Path) -> str:
    """Return a path for a unix socket, without the socket that a killed server left there. Raises OSError."""
    with socket.socket(socket.AF_UNIX) as probe:
        if path.is_socket() and probe.connect_ex(str(path)) == errno.ECONNREFUSED:
            path.unlink()
    return str(path)


def is_loopback(listener: socket.socket) -> bool:
    """Return whether a socket can be reached from this machine only."""
    name = listener.getsockname()
    return isinstance(name, str) or ipaddress.ip_address(name[0]).is_loopback


def format_url(listener: socket.socket) -> str:
    """Return the URL of a socket."""
    name = listener.getsockname()
    if isinstance(name, str):
        return f"unix:{name}"
    host, port = name[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


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


class ServiceServer(uvicorn.Server):
    """Uvicorn that ends streams of events when it stops, which would last."""

    def __init__(self, app: Starlette) -> None:
        """app: of `create_app`."""
        config = uvicorn.Config(
            app,
            loop="asyncio",
            http=BoundedProtocol,
            backlog=16,  # accepted at once: asyncio logs an error for each that there is no file for
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
        self._on_start: Callable[[], object] = lambda: None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start the application, and tell when it answers."""
        await super().startup(sockets)
        for listener in sockets or ():
            listener.listen(_BACKLOG)
        if self.started:
            self._on_start()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop, after the streams."""
        self._app_state.service.stopping.set()
        await super().shutdown(sockets)

    def serve_forever(self, listener: socket.socket, on_start: Callable[[], object] = lambda: None) -> None:
        """Answer requests until the process is asked to stop (Ctrl-C, SIGTERM), or `should_exit` is set.

        on_start: called when the application answers. Raises DocmtError if the application cannot start.
        """
        self._on_start = on_start
        path = listener.getsockname()
        with suppress(KeyboardInterrupt), listener:  # uvicorn raises the signal again at its end
            try:
                self.run(sockets=[listener])
            except SystemExit as error:
                raise self._app_state.failure or DocmtError("the service could not start") from error
            finally:
                if isinstance(path, str):
                    Path(path).unlink(missing_ok=True)
