"""Requests: their values, from JSON, a form or the query, what is refused, and what surrounds every answer.

That is its size, the name of the host, security headers, the log, metrics, and failures.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any, NoReturn
from urllib.parse import parse_qsl

from python_multipart.exceptions import FormParserError
from starlette.datastructures import FormData, Headers, MutableHeaders, UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from docmt.core.errors import DocmtError
from docmt.core.settings import quote
from docmt.serve.document_jobs import DocumentNotReady, NoSuchDocument
from docmt.serve.job_store import is_disk_full

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
MAX_FIELDS = 10_000
"""Fields of a form or query, such as repeated texts."""
_SWITCHES: Mapping[Any, bool] = {
    **dict.fromkeys(("true", "1", "on", "yes"), True),
    **dict.fromkeys(("false", "0", "off", "no", ""), False),
}
_KINDS = {bool: "true or false", dict: "an object", list: "a list", type(None): "null"}


class RequestError(DocmtError):
    """A request that is refused. status: of HTTP, 400 to 507. headers: of the answer."""

    def __init__(self, message: str, status: int = 400, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.headers = status, dict(headers or {})


@dataclass(frozen=True)
class RequestValues:
    """The fields of a request, by name. A repeated field of a form or query is a list."""

    fields: Mapping[str, Any]
    files: Mapping[str, UploadFile] = field(default_factory=dict)

    def text(self, name: str, default: str = "") -> str:
        """Return a text; `default` if it is missing or null. Raises RequestError for other values."""
        value = self.fields.get(name)
        return default if value is None else _check_text(name, value)

    def texts(self, name: str) -> list[str]:
        """Return the texts of a field that holds one or a list. Raises RequestError if it is missing or otherwise."""
        value = self.fields.get(name)
        if value is None:
            raise RequestError(f"{name} is missing: send a text, or a list of texts")
        values = value if isinstance(value, list) else [value]
        return [_check_text(name, each) for each in values]

    def is_list(self, name: str) -> bool:
        """Return whether the field is a list."""
        return isinstance(self.fields.get(name), list)

    def switch(self, name: str, default: bool = False) -> bool:
        """Return true or false, from JSON, or from text such as 1 or false. Raises RequestError for other values."""
        value = self.fields.get(name)
        if value is None or isinstance(value, bool):
            return default if value is None else value
        key = value.lower() if isinstance(value, str) else str(value) if value in (0, 1) else None
        if key not in _SWITCHES:
            raise RequestError(f"{name} is {quote(value)}: send true or false")
        return _SWITCHES[key]

    def whole(self, name: str, least: int, most: int, default: int = 0) -> int:
        """Return a whole number in a range, from JSON or text. Raises RequestError for other values."""
        value = self.fields.get(name)
        if value is None or value == "":
            return default
        if isinstance(value, str) and len(value) < 10 and value.isascii() and value.isdecimal():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise RequestError(f"{name} is {quote(value)}: send a whole number from {least} to {most}")
        return value

    def choice(self, name: str, allowed: Iterable[str], default: str) -> str:
        """Return one of the allowed words; `default` if it is missing. Raises RequestError for other values."""
        value = self.text(name).lower() or default
        if value not in (choices := tuple(allowed)):
            raise RequestError(f"{name} is {quote(value)}: send one of {', '.join(choices)}")
        return value


def _check_text(name: str, value: Any) -> str:
    """Return the value. Raises RequestError unless it is text that UTF-8 can hold, without null characters."""
    if not isinstance(value, str):
        kind = _KINDS.get(type(value), "a number")
        raise RequestError(f"{name} has {kind} where a text belongs: send a string")
    if "\0" in value:
        raise RequestError(f"{name} has a null character: remove it")
    if any("\ud800" <= character <= "\udfff" for character in value):
        raise RequestError(f"{name} has half of a surrogate pair, which is no character: send UTF-8")
    return value


async def read_values(request: Request, max_bytes: int) -> RequestValues:
    """Return the fields of the body and of the query; the body's go before.

    max_bytes: of one field of a form; the whole body is bounded elsewhere. Raises RequestError for bodies that cannot
    be read, and of unknown types.
    """
    query = _collect(_parse_pairs(request.scope.get("query_string", b""), "the query"))
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "multipart/form-data":
        form = await _read_multipart(request, max_bytes)
        files = {name: value for name, value in form.multi_items() if isinstance(value, UploadFile)}
        pairs = [(name, value) for name, value in form.multi_items() if isinstance(value, str)]
        return RequestValues(query | _collect(pairs), files)
    body = await request.body()
    if not body.strip():
        return RequestValues(query)
    if kind == "application/x-www-form-urlencoded":
        return RequestValues(query | _collect(_parse_pairs(body, "the form")))
    if kind in ("application/json", "") or kind.endswith("+json"):
        return RequestValues(query | parse_object(body))
    raise RequestError(f"the body is {quote(kind)}: send application/json or a form", 415)


def parse_object(body: bytes) -> dict[str, Any]:
    """Return the object of a JSON text. Raises RequestError for anything else."""
    try:
        value = json.loads(body, parse_constant=_refuse_constant)
    except RecursionError as error:
        raise RequestError("the body is nested too deeply: send a flat JSON object") from error
    except ValueError as error:  # also wrong UTF-8, and numbers of thousands of digits
        raise RequestError("the body is not JSON: check its brackets, quotes and encoding (UTF-8)") from error
    if not isinstance(value, dict):
        raise RequestError('the body is JSON but no object: send {"name": value, ...}')
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)


def _parse_pairs(data: bytes, name: str) -> list[tuple[str, str]]:
    """Return the fields of a query or of a form."""
    try:
        return parse_qsl(data.decode(), keep_blank_values=True, errors="strict", max_num_fields=MAX_FIELDS)
    except ValueError as error:
        raise RequestError(f"{name} cannot be read: encode its texts as UTF-8 with % escapes") from error


def _collect(pairs: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """Return the values by name, and a list for a name that is repeated."""
    values: dict[str, list[str]] = {}
    for name, value in pairs:
        values.setdefault(name, []).append(value)
    return {name: each[0] if len(each) == 1 else each for name, each in values.items()}


async def _read_multipart(request: Request, max_bytes: int) -> FormData:
    try:
        return await request.form(max_files=1, max_fields=MAX_FIELDS, max_part_size=max_bytes)
    except (HTTPException, FormParserError, ValueError, LookupError) as error:  # also charsets whose codecs fail
        raise RequestError("the form cannot be read: check its boundary and its parts (multipart/form-data)") from error


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
        return RequestError(str(error), getattr(error, "status", 429), {"retry-after": str(max(1, round(seconds)))})
    if is_disk_full(error):
        return RequestError("the disk of the server is full: try again later, or tell who runs the server", 507)
    statuses = {NoSuchDocument: 404, DocumentNotReady: 409}
    return RequestError(str(error), statuses.get(type(error), 422))


def log_failure(error: BaseException) -> None:
    """Log kind and place of an unforeseen error. Its message may hold texts of users and is left out."""
    lines = [f"{PurePath(each.filename).name}:{each.lineno}" for each in traceback.extract_tb(error.__traceback__)]
    _log.error("a request failed with %s at %s", type(error).__name__, " < ".join(reversed(lines[-6:])))
