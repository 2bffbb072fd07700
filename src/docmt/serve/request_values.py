"""Values of a request, from JSON, a form or the query, and the errors for values that cannot be used."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn
from urllib.parse import parse_qsl

from python_multipart.exceptions import FormParserError
from starlette.datastructures import FormData, UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import Request

from docmt.core.errors import DocmtError
from docmt.core.settings import quote

MAX_FIELDS = 10_000
"""Fields of a form or query, such as repeated texts."""
_SWITCHES: Mapping[Any, bool] = {
    **dict.fromkeys(("true", "1", "on", "yes"), True),
    **dict.fromkeys(("false", "0", "off", "no", ""), False),
}
_KINDS = {bool: "true or false", dict: "an object", list: "a list", type(None): "null"}


class RequestError(DocmtError):
    """A request that is refused. status: of HTTP, 400 to 499. headers: of the answer."""

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
