"""What surrounds every request: its size, the name of the host, security headers, the log, metrics, and failures."""

from __future__ import annotations

import asyncio
import logging
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import PurePath

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from docmt.core.errors import DocmtError
from docmt.serve.document_jobs import DocumentNotReady, NoSuchDocument
from docmt.serve.request_values import RequestError

_log = logging.getLogger(__name__)

CLOSED = 499
"""Code in the log and in the metrics of a request whose client went away."""
_DRAIN_BYTES, _DRAIN_SECONDS = 2**26, 20
_METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))
_HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "x-frame-options": "DENY",
    "cross-origin-resource-policy": "same-origin",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "cache-control": "no-store",
}
"""Headers of every answer that does not have them itself."""


@dataclass(frozen=True)
class GuardConfig:
    """Bounds of requests."""

    max_body_bytes: int
    max_file_bytes: int
    """of bodies of multipart forms"""
    hosts: frozenset[str] = frozenset()
    """names of the server that requests may have in `Host`, without ports; empty: any. A page elsewhere whose name is
    made to point at this machine cannot read anything then"""


@dataclass
class _Exchange:
    """A request and the beginning of its answer."""

    scope: Scope
    started: float = field(default_factory=time.monotonic)
    code: int = 0
    """of the answer; 0 before it begins"""
    is_read: bool = False
    """whether the client has sent the whole body, or waits for an answer before it sends any"""

    def __post_init__(self) -> None:
        headers = Headers(scope=self.scope)
        has_body = headers.get("content-length", "0") != "0" or "transfer-encoding" in headers
        self.is_read = not has_body or "expect" in headers

    @property
    def route(self) -> str:
        """The path with the names of its parameters, not their values."""
        return str(getattr(self.scope.get("route"), "path", "other"))

    @property
    def method(self) -> str:
        """The method, or "other"."""
        return self.scope["method"] if self.scope["method"] in _METHODS else "other"


class RequestGuard:
    """ASGI middleware around the whole application."""

    def __init__(self, app: ASGIApp, config: GuardConfig, count: Callable[[str, str, int, float], None]) -> None:
        """count: takes route, method, code and seconds of each request."""
        self._app, self._config, self._count = app, config, count

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        exchange = _Exchange(scope)

        async def send_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                exchange.code = message["status"]
                if exchange.code >= 400 and not exchange.is_read:
                    await _drain(receive)
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            self._check(Headers(scope=scope))
            await self._app(scope, self._limit(exchange, receive), send_headers)
        except RequestError as error:
            await self._answer(exchange, error, receive, send_headers)
        except ClientDisconnect:
            exchange.code = CLOSED
        except Exception as error:
            log_failure(error)
            failure = RequestError("the server failed at this request; its log has the place", 500)
            await self._answer(exchange, failure, receive, send_headers)
        finally:
            seconds = time.monotonic() - exchange.started
            self._count(exchange.route, exchange.method, exchange.code or CLOSED, seconds)
            _log.info("%s %s %d %.3f s", exchange.method, exchange.route, exchange.code or CLOSED, seconds)

    async def _answer(self, exchange: _Exchange, error: RequestError, receive: Receive, send: Send) -> None:
        if not exchange.code:
            await error_response(exchange.scope["path"], error)(exchange.scope, receive, send)

    def _check(self, headers: Headers) -> None:
        """Raise RequestError for another host's name and for a body that says itself that it is too large."""
        host = headers.get("host", "").lower()
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() else host
        if self._config.hosts and name not in self._config.hosts:
            raise RequestError("this server answers to the name localhost alone: start it with --open for others", 403)
        length = headers.get("content-length", "")
        if length.isdecimal() and (len(length) > 15 or int(length) > self._max_bytes(headers)):
            raise self._too_large(headers)

    def _max_bytes(self, headers: Headers) -> int:
        kind = headers.get("content-type", "").lower()
        return self._config.max_file_bytes if "multipart/" in kind else self._config.max_body_bytes

    def _too_large(self, headers: Headers) -> RequestError:
        return RequestError(
            f"the request is larger than {self._max_bytes(headers):,} bytes: send less, or long texts as a file",
            413,
            {"connection": "close"},
        )

    def _limit(self, exchange: _Exchange, receive: Receive) -> Receive:
        """Return `receive` that raises RequestError when the body has more bytes than it may."""
        headers, size = Headers(scope=exchange.scope), 0
        most = self._max_bytes(headers)

        async def receive_counted() -> Message:
            nonlocal size
            message = await receive()
            exchange.is_read = not message.get("more_body", False)
            if message["type"] == "http.request":
                size += len(message.get("body", b""))
                if size > most:
                    raise self._too_large(headers)
            return message

        return receive_counted


async def _drain(receive: Receive) -> None:
    """Read what else a client sends, within bounds: many see an answer only after they have sent all."""
    size = 0
    with suppress(TimeoutError):
        async with asyncio.timeout(_DRAIN_SECONDS):
            while size < _DRAIN_BYTES:
                message = await receive()
                size += len(message.get("body", b""))
                if not message.get("more_body", False):
                    return


def error_response(path: str, error: RequestError) -> JSONResponse:
    """Return the answer for an error, in the shape of the interface that the path belongs to."""
    name = "message" if path.startswith(("/v2/", "/v3/")) else "error"
    return JSONResponse({name: str(error)}, error.status, error.headers)


async def answer_error(request: Request, error: Exception) -> JSONResponse:
    """Handle a refusal: a RequestError, or an HTTPException of the router."""
    if isinstance(error, HTTPException):
        reason = {404: "there is nothing at this path", 405: "this path has no such method"}
        message = f"{reason.get(error.status_code, error.detail)}: see /openapi.json"
        error = RequestError(message, error.status_code, error.headers)
    assert isinstance(error, RequestError)
    return error_response(request.url.path, error)


def convert_error(error: DocmtError) -> RequestError:
    """Return the answer to an error of the parts behind the routes."""
    if isinstance(error, RequestError):
        return error
    if (seconds := getattr(error, "retry_after", None)) is not None:
        return RequestError(str(error), 429, {"retry-after": str(max(1, round(seconds)))})
    statuses = {NoSuchDocument: 404, DocumentNotReady: 409}
    return RequestError(str(error), statuses.get(type(error), 422))


def log_failure(error: BaseException) -> None:
    """Log kind and place of an unforeseen error. Its message may hold texts of users and is left out."""
    places = [f"{PurePath(each.filename).name}:{each.lineno}" for each in traceback.extract_tb(error.__traceback__)]
    _log.error("a request failed with %s at %s", type(error).__name__, " < ".join(reversed(places[-6:])))
