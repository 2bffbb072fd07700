"""What translators with one server share: its answers, its state, and the model that links words."""

from __future__ import annotations

import json
import logging
import threading
import time
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

from docmt.checkpoint.model_names import find_named_model
from docmt.core.errors import DocmtError
from docmt.decoding.translation_results import EngineUse, sum_uses
from docmt.engines.http_client import EngineUnavailable, HttpClient, RefusedRequest
from docmt.engines.profile import EngineProfile
from docmt.engines.services import Answer
from docmt.formats.language_codes import is_same_language, primary_language

if TYPE_CHECKING:
    from docmt.decoding import Translator

_REST_SECONDS = 10.0
"""How long a server that did not answer is not asked again."""
_MOST_FAILURES = 2
"""Sentences in succession at which a server may not fail."""
_MOST_REFUSED = 12
"""Requests in a row whose refusal is no matter of their sentences."""
_MOST_ANSWERS = 4096
"""Answers that are kept, because a document may be tried again."""
_log = logging.getLogger(__name__)


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
