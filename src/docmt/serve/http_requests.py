"""Requests: their values, from JSON, a form or the query, what is refused, and what surrounds every answer.

That is its size, the name of the host, security headers, the log, metrics, and failures.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import time
import traceback
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any, NoReturn
from urllib.parse import parse_qsl, urlsplit

from python_multipart.exceptions import FormParserError
from starlette.datastructures import Headers, MutableHeaders, UploadFile
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.staticfiles import NotModifiedResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from docmt.core.errors import DocmtError
from docmt.core.grouping import group_pairs
from docmt.core.settings import quote
from docmt.serve.data_directory import hide_folders
from docmt.serve.glossary_store import MAX_BYTES
from docmt.serve.job_store import is_disk_full

_log = logging.getLogger(__name__)

CLOSED = 499
"""Code in the log and in the metrics of a request whose client went away."""
_CHARSETS = frozenset(("", "utf-8", "utf8", "us-ascii", "ascii"))
_DRAIN_BYTES, _DRAIN_SECONDS = 2**26, 20
_SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
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
FORM_BYTES = 100_000
"""Bytes of a form besides its file."""
_ESCAPED = 3
"""Bytes of JSON for a byte of UTF-8, at most: \\u00e9 has six."""
MAX_FIELDS = 10_000
"""Fields of a form or query, such as repeated texts."""
_SWITCHES: Mapping[Any, bool] = {
    **dict.fromkeys(("true", "1", "on", "yes"), True),
    **dict.fromkeys(("false", "0", "off", "no", ""), False),
}
CountRequest = Callable[[str, str, int, float], None]
"""Takes route, method, code and seconds of each request."""
_KINDS = {bool: "true or false", dict: "an object", list: "a list", type(None): "null"}


class RequestError(DocmtError):
    """A request that is refused. status: of HTTP, 400 to 507. headers: of the answer."""

    details: Mapping[str, Any] = {}
    """other fields of the answer"""

    def __init__(self, message: str, status: int = 400, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.headers = status, dict(headers or {})


@dataclass(frozen=True)
class RequestValues:
    """The fields of a request, by name. A repeated field of a form or query is a list."""

    fields: Mapping[str, Any]
    files: Mapping[str, UploadFile] = field(default_factory=dict)

    def check_names(self, names: str) -> None:
        """Raise RequestError for a field that is none of these names, such as a misspelt one."""
        for name in self.fields:
            if name not in names.split():
                raise RequestError(f"there is no field {quote(name)}: send {', '.join(names.split())}")

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


async def read_values(
    request: Request, max_bytes: int, check: Callable[[RequestValues], object] = lambda values: None
) -> RequestValues:
    """Return the fields of the body and of the query; the body's go before.

    max_bytes: of one field of a form; the whole body is bounded elsewhere. check: raises RequestError for a form by the
    fields before its file, and is called if more than `max_bytes` come. Raises RequestError for bodies that cannot be
    read, and of unknown types.
    """
    query = _collect(_parse_pairs(request.scope.get("query_string", b""), "the query"))
    if (encoding := request.headers.get("content-encoding", "identity").strip().lower()) != "identity":
        raise RequestError(f"the body is compressed ({quote(encoding)}): send it as it is", 415)
    kind, _, parameters = request.headers.get("content-type", "").lower().partition(";")
    kind, charset = kind.strip(), parameters.partition("charset=")[2].partition(";")[0].strip(' "')
    if kind == "multipart/form-data":
        items = await _read_multipart(request, max_bytes, check)
        uploads = [(name, value) for name, value in items if isinstance(value, UploadFile)]
        files = dict(uploads)
        if len(files) < len(uploads):
            raise RequestError("the form has two files of one name: send one of them")
        return RequestValues(query | _collect(items), files)
    body = await request.body()
    if not body.strip():
        return RequestValues(query)
    if kind == "application/x-www-form-urlencoded":
        return RequestValues(query | _collect(_parse_pairs(body, "the form")))
    if charset not in _CHARSETS:
        raise RequestError(f"the charset of the body is {quote(charset)}: send UTF-8", 415)
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


def _collect(pairs: Iterable[tuple[str, str | UploadFile]]) -> dict[str, Any]:
    """Return the texts by name, and a list for a name that is repeated."""
    values = group_pairs((name, value) for name, value in pairs if isinstance(value, str))
    return {name: each[0] if len(each) == 1 else each for name, each in values.items()}


async def _read_multipart(
    request: Request, max_bytes: int, check: Callable[[RequestValues], object]
) -> list[tuple[str, str | UploadFile]]:
    """Return the parts of a form. See `read_values`."""

    async def read_parts() -> AsyncGenerator[bytes]:
        size = 0
        async for part in request.stream():
            size += len(part)
            if size - len(part) <= max_bytes < size:
                check(RequestValues(_collect(parser.items)))
            yield part

    async with aclosing(read_parts()) as parts:
        parser = MultiPartParser(request.headers, parts, max_files=2, max_fields=MAX_FIELDS, max_part_size=max_bytes)
        try:
            return (await parser.parse()).multi_items()
        except (MultiPartException, FormParserError, ValueError, LookupError) as error:  # also charsets that fail
            message = "the form cannot be read: check its boundary and its parts (multipart/form-data)"
            raise RequestError(message) from error


@dataclass(frozen=True)
class ServiceConfig:
    """Bounds of the service, and who may reach it."""

    max_characters: int = 100_000
    """of the texts of one request; longer texts are documents"""
    max_texts: int = 1000
    """of one request"""
    max_documents: int = 200
    """that are translated or wait at one time"""
    max_body_bytes: int = 4_000_000
    max_file_bytes: int = 50 * 2**20
    cors: tuple[str, ...] = ()
    """origins of pages elsewhere that may start work; *: any"""
    hosts: frozenset[str] = frozenset()
    """names of the server that requests may have in `Host` while there is no key, without ports; empty: any. A page
    elsewhere whose name is made to point at this machine cannot read anything then"""
    root_path: str = ""
    """prefix of all paths, which a proxy may have removed"""
    address: str = ""
    """scheme and host by which clients call the service, if they are known (https://tool.example)"""
    heartbeat_seconds: float = 15.0
    """between comments in a stream of events without events, so that proxies keep it open"""
    page: Path = Path(__file__).parent / "page"
    """directory of the page"""


@dataclass
class _Exchange:
    """A request and the beginning of its answer."""

    scope: Scope
    started: float = field(default_factory=time.monotonic)
    id: str = field(default_factory=lambda: secrets.token_hex(6))
    code: int = 0
    """of the answer; 0 before it begins"""
    is_read: bool = False
    """whether the client has sent the whole body, or waits for an answer before it sends any"""
    is_early: bool = False
    """whether the answer is an error before the whole body has come"""

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

    def __init__(
        self, app: ASGIApp, config: ServiceConfig, count: CountRequest, has_keys: Callable[[], bool] = lambda: False
    ) -> None:
        """has_keys: see `ServiceState.has_keys`."""
        self._app, self._config, self._count, self._has_keys = app, config, count, has_keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        root = scope["root_path"] = self._config.root_path
        if root and not f"{scope['path']}/".startswith(f"{root}/"):
            scope["path"] = root + scope["path"]
        exchange = _Exchange(scope)

        async def send_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                exchange.code = message["status"]
                headers = MutableHeaders(scope=message)
                exchange.is_early = exchange.code >= 400 and not exchange.is_read
                if exchange.is_early:
                    headers["connection"] = "close"
                headers["x-request-id"] = exchange.id
                if terms := scope.get("state", {}).get("terms"):
                    headers["x-docmt-terms"] = " ".join(f"{name}={count}" for name, count in terms.items())
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
                if "location" in headers:  # a redirection repeats what a client calls this server
                    headers["location"] = urlsplit(headers["location"])._replace(scheme="", netloc="").geturl()
            elif exchange.is_early and not message.get("more_body", False):
                await send({**message, "more_body": True})
                await _drain(receive)
                message = {"type": "http.response.body"}
            await send(message)

        try:
            self._check(scope)
            self._check_origin(Headers(scope=scope), exchange.method)
            await self._app(scope, self._limit(exchange, receive), send_headers)
        except RequestError as error:
            await self._answer(exchange, error, receive, send_headers)
        except ClientDisconnect:
            exchange.code = CLOSED
        except Exception as error:
            log_failure(error, exchange.id)
            failure = RequestError(f"the server failed at this request; its log has the place ({exchange.id})", 500)
            await self._answer(exchange, failure, receive, send_headers)
        finally:
            seconds = time.monotonic() - exchange.started
            self._count(exchange.route, exchange.method, exchange.code or CLOSED, seconds)
            _log.info(f"{exchange.method} {exchange.route} {exchange.code or CLOSED} {seconds:.3f} s {exchange.id}")

    async def _answer(self, exchange: _Exchange, error: RequestError, receive: Receive, send: Send) -> None:
        if not exchange.code:
            await error_response(exchange.scope, error)(exchange.scope, receive, send)

    def _check(self, scope: Scope) -> None:
        """Raise RequestError for another host's name and for a body that says itself that it is too large."""
        headers = Headers(scope=scope)
        name = read_host(headers)
        if self._config.hosts and name not in self._config.hosts and not self._has_keys():
            raise RequestError("this server answers to the name localhost alone: start it with --open for others", 403)
        length = headers.get("content-length", "")
        if length.isdecimal() and (len(length) > 15 or int(length) > self._max_bytes(scope)):
            raise self._too_large(scope)

    def _check_origin(self, headers: Headers, method: str) -> None:
        """Raise RequestError for work that a page of another site asks for. Other programs send none of these headers.

        Browsers send `Sec-Fetch-Site` from pages with HTTPS, which holds behind a proxy that changes `Host`, too.
        """
        origin, site = headers.get("origin", ""), headers.get("sec-fetch-site", "")
        if method in _SAFE_METHODS or {origin, "*"} & {*self._config.cors}:
            return
        is_foreign = origin and origin.lower().partition("://")[2] != headers.get("host", "").lower()
        if site not in ("same-origin", "none") if site else is_foreign:
            raise RequestError("a page of another site asks for this: start the server with --cors ORIGIN for it", 403)

    def _max_bytes(self, scope: Scope) -> int:
        kind = Headers(scope=scope).get("content-type", "").lower()
        if "/glossaries" in scope["path"]:
            return _ESCAPED * MAX_BYTES + FORM_BYTES
        return self._config.max_file_bytes + FORM_BYTES if "multipart/" in kind else self._config.max_body_bytes

    def _too_large(self, scope: Scope) -> RequestError:
        return RequestError(
            f"the request is larger than {self._max_bytes(scope):,} bytes: send less, or long texts as a file", 413
        )

    def _limit(self, exchange: _Exchange, receive: Receive) -> Receive:
        """Return `receive` that raises RequestError when the body has more bytes than it may."""
        most, size = self._max_bytes(exchange.scope), 0

        async def receive_counted() -> Message:
            nonlocal size
            message = await receive()
            exchange.is_read = not message.get("more_body", False)
            if message["type"] == "http.request":
                size += len(message.get("body", b""))
                if size > most:
                    raise self._too_large(exchange.scope)
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


def read_host(headers: Headers) -> str:
    """Return the name of the server in `Host`, in lower case and without the port."""
    name, _, port = headers.get("host", "").lower().rpartition(":")
    return name if port.isdecimal() else headers.get("host", "").lower()


def answer_file(request: Request, path: Path, **options: Any) -> Response:
    """Return a file, or that it is what the client has already. options: of FileResponse."""
    response = FileResponse(path, stat_result=path.stat(), **options)
    known = [tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")]
    if not {response.headers["etag"], "*"} & {*known}:
        return response
    unchanged = NotModifiedResponse(response.headers)
    for name in _HEADERS.keys() & response.headers.keys():  # browsers take them from this answer
        unchanged.headers[name] = response.headers[name]
    return unchanged


def error_response(scope: Scope, error: RequestError) -> JSONResponse:
    """Return the answer for an error, in the shape of the interface that the path belongs to."""
    path = scope["path"].removeprefix(scope.get("root_path", ""))
    name = "message" if path.startswith(("/v2/", "/v3/")) else "error"
    return JSONResponse({name: str(error), **error.details}, error.status, error.headers)


async def answer_error(request: Request, error: Exception) -> JSONResponse:
    """Handle an HTTPException of the router, or a DocmtError: a refusal, or one of the parts behind the routes."""
    if isinstance(error, HTTPException):
        reason = {404: "there is nothing at this path", 405: "this path has no such method"}
        message = f"{reason.get(error.status_code, error.detail)}: see /openapi.json"
        error = RequestError(message, error.status_code, error.headers)
    assert isinstance(error, DocmtError)
    return error_response(request.scope, convert_error(error))


def convert_error(error: DocmtError) -> RequestError:
    """Return the answer to an error of the parts behind the routes."""
    if isinstance(error, RequestError):
        return error
    message = hide_folders(str(error))
    if (seconds := getattr(error, "retry_after", None)) is not None:
        return RequestError(message, getattr(error, "status", 429), {"retry-after": str(max(1, round(seconds)))})
    if is_disk_full(error):
        return RequestError("the disk of the server is full: try again later, or tell who runs the server", 507)
    answer = RequestError(message, getattr(error, "status", 422))
    answer.details = getattr(error, "details", {})
    return answer


def log_failure(error: BaseException, id: str) -> None:
    """Log kind and place of an unforeseen error. Its message may hold texts of users and is left out."""
    lines = [f"{PurePath(each.filename).name}:{each.lineno}" for each in traceback.extract_tb(error.__traceback__)]
    _log.error("request %s failed with %s at %s", id, type(error).__name__, " < ".join(reversed(lines[-6:])))
