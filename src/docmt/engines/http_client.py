"""The server of a profile: JSON over HTTP, sent again when the server cannot answer at the moment.

Translators with one server share its answers, its state, and the model that links words.
"""

from __future__ import annotations

import json
import logging
import random
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from functools import cached_property
from hashlib import blake2b
from http.client import HTTPException, HTTPResponse, IncompleteRead
from pathlib import Path
from socket import socket
from ssl import SSLError
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError, URLError
from urllib.request import HTTPHandler, HTTPRedirectHandler, HTTPSHandler, ProxyHandler, Request, build_opener

from docmt.checkpoint.model_names import find_named_model
from docmt.core.errors import DocmtError, Unavailable, printable
from docmt.decoding.translation_results import EngineUse, sum_uses
from docmt.engines.profile import EngineProfile
from docmt.engines.services import Answer, WrongAnswer, join_stream, make_headers, read_answer
from docmt.formats.language_codes import is_same_language, primary_language

if TYPE_CHECKING:
    from docmt.decoding import Translator

_MOST_BYTES = 4 << 20
"""Longest answer."""
_FIRST_WAIT, _LONGEST_WAIT = 0.5, 60.0
"""Seconds before a request is sent again the first time, and at most."""
_BUSY = frozenset([408, 409, 425, 429, 500, 502, 503, 504, 529])
"""Status of servers that may answer later."""
_FAILED = 500
"""Status of a server that fails at a request."""
_MISUSED = frozenset([400, 413, 414, 422])
"""Status for a request that the server does not take, perhaps for its length."""
_WRONG_TLS = frozenset(["CERTIFICATE_VERIFY_FAILED", "WRONG_VERSION_NUMBER"])
"""Reasons that time does not change."""
_TOLD_ATTEMPT = 3
"""Attempt before which a user is told that a server does not answer."""
_EXCERPT, _ECHO = 200, 16
"""Characters of a server's message that are repeated at most, and of a text in it that hide it."""
_REST_SECONDS = 10.0
"""How long a server that did not answer is not asked again."""
_MOST_FAILURES = 2
"""Sentences in succession at which a server may not fail."""
_MOST_REFUSED = 12
"""Requests in a row whose refusal is no matter of their sentences."""
_MOST_ANSWERS = 4096
"""Answers that are kept, because a document may be tried again."""
_log = logging.getLogger(__name__)


class EngineUnavailable(Unavailable):
    """The server does not answer, or refuses all requests. `retry_after` is in seconds, `status` that of HTTP."""

    retry_after, status = 30, 503


class RefusedRequest(Exception):  # noqa: N818 - it is no fault of docmt
    """The server does not take this request."""


class FailedRequest(RefusedRequest):
    """The server fails at this request whenever it is sent, or answers nonsense."""


class Cancelled(Exception):  # noqa: N818 - it is no fault
    """Nobody waits for the answer any more."""


class _TimedResponse(HTTPResponse):
    """An answer that has to be complete within the time of a request, however slowly its bytes come."""

    def __init__(self, connection: socket, *arguments: Any, **settings: Any) -> None:
        super().__init__(connection, *arguments, **settings)
        raw, deadline = self.fp.raw, time.monotonic() + (connection.gettimeout() or 0)
        read = raw.readinto

        def read_in_time(buffer: Any) -> Any:
            connection.settimeout(max(deadline - time.monotonic(), 0.001))
            return read(buffer)

        raw.readinto = read_in_time  # type: ignore[method-assign]


class _TimedHandler(HTTPHandler, HTTPSHandler):
    def do_open(self, http_class: Any, req: Request, **settings: Any) -> HTTPResponse:
        """Return the answer to a request."""
        timed: Any = type("TimedConnection", (http_class,), {"response_class": _TimedResponse})
        return super().do_open(timed, req, **settings)


class _NoRedirects(HTTPRedirectHandler):
    """A text goes to the address of the profile and nowhere else."""

    def redirect_request(self, *arguments: Any) -> None:
        """Return no request."""


class HttpClient:
    """Client of a server. Safe for threads."""

    def __init__(self, profile: EngineProfile) -> None:
        """Read the key. Raises DocmtError if its variable is not set."""
        self._profile = profile
        self._headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        self._key, self._is_told = profile.read_key(), False
        self._headers |= {"User-Agent": "docmt", **make_headers(profile, self._key)}
        # Requests to this machine need no proxy; others have that of the environment.
        handlers = [ProxyHandler({})] if profile.is_local else []
        self._opener = build_opener(_TimedHandler(), _NoRedirects(), *handlers)

    def post(self, path: str, body: dict[str, Any], cancelled: threading.Event) -> Answer:
        """Return the answer to a request.

        Raises EngineUnavailable if the server does not answer after some attempts, or not to this user, RefusedRequest
        if it does not take the request, FailedRequest if it fails at it, and Cancelled.
        """
        limits, wait, problem, is_failure = self._profile.limits, _FIRST_WAIT, "", False
        for attempt in range(limits.attempts):
            if attempt:
                pause = min(wait * (1 + random.random()), _LONGEST_WAIT)
                is_new = attempt == _TOLD_ATTEMPT and not self._is_told
                self._is_told |= is_new
                level = logging.WARNING if is_new else logging.INFO
                _log.log(level, "%s: %s; asking again in %.1f s", self._profile.name, problem, pause)
                cancelled.wait(pause)
                wait *= 2
            if cancelled.is_set():
                raise Cancelled
            try:
                answer = read_answer(self._profile.kind, self._send(path, body))
                self._is_told = False
                return answer
            except HTTPError as error:
                problem = self._describe_status(error, body)
                if error.code in _MISUSED:
                    raise RefusedRequest(problem) from None
                if error.code not in _BUSY:
                    advice = "correct url, model and key in the profile, and try again"
                    if error.code == 404 and self._profile.is_of_model and "/v1" not in self._profile.url:
                        advice += " (url mostly ends in /v1)"
                    raise EngineUnavailable(f"{self._profile.name}: {problem}: {advice}") from None
                wait = max(wait, _read_retry_after(error.headers.get("Retry-After", "")))
                is_failure = error.code == _FAILED
            except WrongAnswer as error:
                problem, is_failure = self._excerpt(error, body), True
            except IncompleteRead:
                problem, is_failure = "its answer ends early", False
            except (URLError, HTTPException, OSError, ValueError) as error:
                reason = error.reason if isinstance(error, URLError) else error
                problem, is_failure = f"it cannot be reached ({self._excerpt(reason) or type(error).__name__})", False
                if isinstance(reason, TimeoutError):
                    problem = f"no answer within {limits.seconds:g} s"
                if isinstance(reason, SSLError) and reason.reason in _WRONG_TLS:
                    advice = "correct url in the profile (http or https), or the certificates of this machine"
                    raise EngineUnavailable(f"{self._profile.name}: {problem}: {advice}") from None
        attempts = f"after {limits.attempts} attempts" if limits.attempts > 1 else "at the only attempt"
        if is_failure:
            raise FailedRequest(f"{problem} {attempts}")
        advice = "start it, or correct url in the profile" if "reached" in problem else "look after the server"
        raise EngineUnavailable(f"{self._profile.name} does not answer {attempts}: {problem}: {advice}")

    def _send(self, path: str, body: dict[str, Any]) -> Any:
        """Return the JSON that answers one request. Raises WrongAnswer if it is none."""
        url = self._profile.url.rstrip("/") + path
        if self._profile.kind == "libretranslate" and self._key:
            body = body | {"api_key": self._key}
        request = Request(url, json.dumps(body).encode(), self._headers, method="POST")
        with self._opener.open(request, timeout=self._profile.limits.seconds) as response:
            lines = _read_lines(response)
            kind = response.headers.get_content_type()
            if kind == "text/html":
                raise WrongAnswer("it answers with a web page")
            try:
                if kind == "text/event-stream":
                    texts = (line.decode() for line in lines)
                    return join_stream(line[5:] for line in texts if line.startswith("data:"))
                return json.loads(b"".join(lines).decode())
            except (ValueError, RecursionError):
                raise WrongAnswer("its answer is no JSON") from None

    def _excerpt(self, value: Any, body: dict[str, Any] | None = None) -> str:
        """Return the beginning of what a server says of a request, for messages and logs that others may see.

        It has neither the key nor texts.
        """
        text = " ".join(str(value or "").split())
        texts = " ".join(json.dumps({**(body or {}), "model": ""}, ensure_ascii=False).split())
        if any(text[n : n + _ECHO] in texts for n in range(len(text) - _ECHO + 1)):
            text = "with the text"
        text = printable(text.replace(self._key, "***") if self._key else text)
        return text if len(text) <= _EXCERPT else f"{text[:_EXCERPT]}..."

    def _describe_status(self, error: HTTPError, body: dict[str, Any]) -> str:
        """Return the status of an answer, with what the server says."""
        if 300 <= error.code < 400:
            return f"it sends the request on to another address ({self._excerpt(error.headers.get('Location'))})"
        with error:
            try:
                text = error.read(_MOST_BYTES).decode("utf-8", "replace")
            except (HTTPException, OSError):
                text = ""
        try:
            value = json.loads(text)
            found = value.get("error") or value.get("message") or value.get("detail") or ""
            text = str(found.get("message", "") if isinstance(found, dict) else found)
        except (ValueError, AttributeError, RecursionError):
            text = "" if text.lstrip().startswith("<") else text
        said = f", {self._excerpt(text, body)}" if text.strip() else ""
        return f"it answers {error.code}{said}"


def _read_lines(response: HTTPResponse) -> Iterator[bytes]:
    """Yield the lines of an answer. Raises WrongAnswer for one that is cut, or does not end."""
    size, rest = 0, b""
    while block := response.read1(1 << 16):
        size += len(block)
        if size > _MOST_BYTES:
            raise WrongAnswer("its answer does not end")
        *lines, rest = (rest + block).split(b"\n")
        yield from (line + b"\n" for line in lines)
    if response.length:
        raise WrongAnswer("its answer ends early")
    if rest:
        yield rest


def _read_retry_after(value: str) -> float:
    """Return the seconds of a Retry-After header, a number or a date; 0 for none."""
    with suppress(ValueError):
        return float(value)
    with suppress(TypeError, ValueError, OverflowError):
        return max(parsedate_to_datetime(value).timestamp() - time.time(), 0.0)
    return 0.0


@dataclass
class Server:
    """A server, for all threads."""

    profile: EngineProfile
    client: HttpClient
    answers: dict[bytes, Answer] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)
    error: EngineUnavailable | None = None
    rests_until: float = 0.0
    refused: int = 0
    """requests in a row that the server did not take"""
    is_told: bool = False
    use: EngineUse | None = None
    """what all requests took"""
    failures: int = 0
    """sentences in succession at which the server failed"""

    def check_available(self) -> None:
        """Raise EngineUnavailable if the server did not answer a moment ago."""
        if self.error is not None and time.monotonic() < self.rests_until:
            raise self.error
        self.error = None

    def rest(self, error: EngineUnavailable) -> None:
        """Ask no more for a while."""
        self.error, self.rests_until = error, time.monotonic() + _REST_SECONDS

    def price(self, answer: Answer) -> EngineUse:
        """Return what the request of an answer took."""
        prices, read, written = self.profile.prices, answer.input_tokens, answer.output_tokens
        cost = (read * prices.input + written * prices.output) / 1e6
        currency = prices.currency if prices.input or prices.output else ""
        return EngineUse(self.profile.name, 1, read, written, cost, currency)

    def _count(self, answer: Answer) -> None:
        with self.lock:
            self.use = sum_uses([self.use, self.price(answer)])

    def fail(self, problem: str) -> None:
        """Note that the server failed at a sentence. Raises EngineUnavailable after another one in succession."""
        with self.lock:
            self.failures += 1
            if self.failures >= _MOST_FAILURES:
                raise EngineUnavailable(f"{self.profile.name} fails again and again: {problem}: look after the server")

    def ask(self, path: str, body: dict[str, Any], cancelled: threading.Event) -> tuple[Answer, bool]:
        """Return the answer to a request, and whether it is a new one, not kept from an earlier request."""
        key = _make_key(path, body)
        with self.lock:
            if key in self.answers:
                return self.answers[key], False
            if not (self.is_told or self.profile.is_local):
                _log.warning("%s: texts leave this machine, to %s", self.profile.name, self.profile.url)
            self.is_told = True
        try:
            answer = self.client.post(path, body, cancelled)
        except RefusedRequest as error:
            self._count(Answer(""))
            with self.lock:
                self.refused += 1
            if self.refused < _MOST_REFUSED:
                raise
            advice = "see what the server says and correct the profile"
            raise EngineUnavailable(f"{self.profile.name} takes no request: {error}: {advice}") from None
        self._count(answer)
        with self.lock:
            self.refused, self.failures, self.answers[key] = 0, 0, answer
            if len(self.answers) > _MOST_ANSWERS:
                del self.answers[next(iter(self.answers))]
        return answer, True

    def forget(self, path: str, body: dict[str, Any]) -> None:
        """Drop an answer that is no translation."""
        with self.lock:
            self.answers.pop(_make_key(path, body), None)

    def check_aligner(self) -> None:
        """Raise DocmtError if the profile names a model that is not there, or for other languages."""
        name, languages = self.profile.aligner, self.profile.languages
        if name in ("auto", "none"):
            return
        from docmt.checkpoint.model_directory import read_tokenizer_and_languages  # torch loads slowly
        from docmt.checkpoint.model_names import parse_model_paths

        try:
            found = read_tokenizer_and_languages(parse_model_paths(name))[1]
        except DocmtError as error:
            raise DocmtError(f"{self.profile.name}, aligner: {error}") from None
        if not all(map(is_same_language, languages, found)):
            raise DocmtError(
                f"{self.profile.name}: aligner {name} is for {'-'.join(found)}, not {'-'.join(languages)}: name another"
            )

    @cached_property
    def aligner(self) -> Translator | None:
        """The model that links words, or None. Raises DocmtError if the profile names one that is not there."""
        name, pair = self.profile.aligner, "-".join(map(primary_language, self.profile.languages))
        path: Path | str | None = None if name == "none" else name
        if name == "auto":
            path = find_named_model(f"{pair}-sentence") or find_named_model(pair)
        if path is None:
            advice = "markup is placed by the order of words (aligner: NAME in the profile names one)"
            _log.warning("no model links words of %s: %s", pair, advice)
            return None
        from docmt.decoding import Translator  # torch loads slowly

        return Translator(path)


def _make_key(path: str, body: dict[str, Any]) -> bytes:
    """Return what stands for a request, which may be long."""
    return blake2b(json.dumps([path, body], sort_keys=True).encode()).digest()
