"""What the routes share: engine, jobs, keys, bounds, counts and metrics."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import prometheus_client as prometheus
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.requests import Request

from docmt.serve.access_keys import AccessKey, AccessKeys, LimitReached
from docmt.serve.document_jobs import DocumentJobs
from docmt.serve.engine import Engine
from docmt.serve.glossary_store import GlossaryStore
from docmt.serve.http_requests import FORM_BYTES, RequestError, ServiceConfig, read_host

FORBIDDEN = 403
"""Status of a missing or wrong key in the interfaces of LibreTranslate and DeepL."""
MAX_CONNECTIONS = 512
_FILES = 100
"""That the process opens for its work, about."""
LOCAL_NAMES = ("localhost", "127.0.0.1", "[::1]")
_BUCKETS = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100)
"""Bounds of the histogram in seconds."""
Gauges = Mapping[str, float | Mapping[Any, float]]
"""Values now, by name; several of one name by a label."""


class ServiceMetrics(Collector):
    """Counters of requests, and gauges that are read when they are asked for."""

    def __init__(self, read: Callable[[], Gauges]) -> None:
        """read: returns the gauges."""
        self._read, self._registry = read, prometheus.CollectorRegistry()
        labels = ["route", "method"]
        self._requests = prometheus.Counter("docmt_requests", "Requests", [*labels, "code"], registry=self._registry)
        self._seconds = prometheus.Histogram(
            "docmt_request_seconds", "Seconds of requests", labels, registry=self._registry, buckets=_BUCKETS
        )
        self.characters = prometheus.Counter("docmt_characters", "Characters of texts", registry=self._registry)
        self._registry.register(self)

    def collect(self) -> Iterator[Metric]:
        """Yield the gauges."""
        for name, value in self._read().items():
            if isinstance(value, Mapping):
                family = GaugeMetricFamily(f"docmt_{name}", name.replace("_", " "), labels=["kind"])
                for kind, number in value.items():
                    family.add_metric([kind], number)
            else:
                family = GaugeMetricFamily(f"docmt_{name}", name.replace("_", " "), value=value)
            yield family

    def count_request(self, route: str, method: str, code: int, seconds: float) -> None:
        """Count an answered request; route: path with the names of its parameters."""
        self._requests.labels(route, method, str(code)).inc()
        self._seconds.labels(route, method).observe(seconds)

    def format(self) -> bytes:
        """Return all metrics in the text format of Prometheus: labels are never texts, keys or addresses."""
        return prometheus.generate_latest(self._registry)


@dataclass
class ServiceState:
    """All that the routes use. keys: None if everybody may use the service, whatever keys there are."""

    engine: Engine
    jobs: DocumentJobs
    keys: AccessKeys | None
    glossaries: GlossaryStore
    uploads: Path
    """directory of files while they arrive"""
    config: ServiceConfig
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    """set when the server stops, so that streams end"""
    characters: Counter[str] = field(default_factory=Counter)
    """of texts, by owner, also before a restart"""
    staying: int = 0
    """streams of events that go on after the end of their document"""
    arriving: Counter[str] = field(default_factory=Counter)
    """documents that are not jobs yet, by owner"""
    downloads: dict[str, str] = field(default_factory=dict)
    """owner of each document that may be downloaded by its id alone"""

    def __post_init__(self) -> None:
        self.metrics = ServiceMetrics(lambda: self.engine.statistics() | {"jobs": self.jobs.store.count_states()})
        self._has_keys = False
        self._usage, self._partial = (self.uploads.parent / f"usage.{end}" for end in ("json", "partial"))
        with suppress(OSError, ValueError):  # there is none, or a power failure has left a part
            self.characters.update(json.loads(self._usage.read_bytes()))

    def has_keys(self) -> bool:
        """Return whether clients need a key: from the first one on, also after the last one was revoked."""
        self._has_keys = self._has_keys or bool(self.keys and self.keys.list_keys())
        return self._has_keys

    def find_owner(self, request: Request, key: str = "", status: int = 401) -> str:
        """Return the id of the request's key, or an empty string if no keys are asked for.

        key: one that the request has elsewhere than in its headers. status: of the error. Raises RequestError for a
        missing or wrong key.
        """
        if self.keys is None or not self.has_keys():
            return ""
        key = find_secret(request) or key
        headers = {"www-authenticate": "Bearer"} if status == 401 else {}
        if not key:
            raise RequestError("this server asks for a key: send the header Authorization: Bearer KEY", status, headers)
        access_key = self.keys.find(key)
        if access_key is None:
            raise RequestError("this key is not known here: check it, or ask for another", status, headers)
        request.state.access_key, request.state.owner = access_key, access_key.id
        return access_key.id

    def take_texts(self, request: Request, texts: Sequence[str], context: str = "") -> None:
        """Count the texts of a request, after `find_owner`. context: what is translated with each of them.

        Raises RequestError if they are too many or too long, and LimitReached if the key has used its budget.
        """
        self.take_characters(request, self.check_texts(texts, context))

    def check_texts(self, texts: Sequence[str], context: str = "") -> int:
        """Return the number of characters of texts. Raises RequestError if they are too many or too long."""
        config, size = self.config, sum(map(len, texts)) + len(context) * len(texts)
        if len(texts) > config.max_texts:
            raise RequestError(f"there are {len(texts):,} texts: send at most {config.max_texts:,} at once", 413)
        if size > config.max_characters:
            raise RequestError(
                f"the texts have {size:,} characters: send at most {config.max_characters:,} at once, or a document",
                413,
            )
        return size

    def take_characters(self, request: Request, size: int) -> None:
        """Count characters that are to be translated. Raises LimitReached."""
        key = _find_key(request)
        if key is not None and self.keys is not None:
            self.keys.take_characters(key, size)
        self.characters[key.id if key else ""] += size
        self.metrics.characters.inc(size)
        if size:
            with suppress(OSError):  # such as a full disk; not synced, as it is written for each text
                self._partial.write_text(json.dumps(self.characters))
                self._partial.replace(self._usage)

    def check_upload(self, request: Request) -> None:
        """Check what is known of a file before it is read. See `check_file`."""
        length = request.headers.get("content-length", "")
        is_form = length.isdecimal() and "multipart/" in request.headers.get("content-type", "").lower()
        self.check_file(request, max(0, int(length) - FORM_BYTES) if is_form else 0)

    def check_file(self, request: Request, size: int) -> None:
        """Check a file of a request against the key's limits, after `find_owner`.

        Raises RequestError, and LimitReached if the key has used its budget.
        """
        self.take_characters(request, 0)
        key = _find_key(request)
        limits = key.limits if key else None
        most = min(filter(None, (self.config.max_file_bytes, limits.file_bytes if limits else 0)))
        if size > most:
            raise RequestError(f"the file is larger than {most:,} bytes: send a smaller one", 413)
        if self.jobs.store.count_active() + self.arriving.total() >= self.config.max_documents:
            raise RequestError("too many documents are waiting: try again later", 429, {"retry-after": "60"})
        active_of_key = self.jobs.store.count_active(key.id) + self.arriving[key.id] if key else 0
        if limits and limits.concurrent_jobs and active_of_key >= limits.concurrent_jobs:
            message = f"this key has its limit of documents at once ({limits.concurrent_jobs}): wait for one to end"
            raise RequestError(message, 429, {"retry-after": "10"})

    def take_document(self, request: Request, id: str, owner: str) -> None:
        """Count the characters of a document, whose file was checked before it was read."""
        with suppress(LimitReached):  # it is let in, as a text is that is larger than what is left
            self.take_characters(request, self.jobs.count_characters(id, owner))


def max_connections() -> int:
    """Return how many connections are open at most: what the process may open, without the files of its work."""
    if sys.platform == "win32":
        return MAX_CONNECTIONS
    import resource

    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MAX_CONNECTIONS if files == resource.RLIM_INFINITY else max(16, min(MAX_CONNECTIONS, files - _FILES))


def find_secret(request: Request) -> str:
    """Return the key in the headers of a request, or an empty string."""
    scheme, _, secret = request.headers.get("authorization", "").partition(" ")
    return secret.strip() if scheme.lower() in ("bearer", "deepl-auth-key") else ""


def make_url(request: Request, path: str) -> str:
    """Return the URL of a path; without a host if the client calls the server by a name that is not known here."""
    config, host, (server, _) = get_state(request).config, read_host(request.headers), request.scope["server"]
    address = config.address
    if not address and host in {*LOCAL_NAMES, server, f"[{server}]", socket.gethostname().lower()}:
        address = f"{request.url.scheme}://{request.headers['host']}"
    return f"{address}{config.root_path}{path}"


def _find_key(request: Request) -> AccessKey | None:
    """Return the key of a request that `find_owner` has seen."""
    return getattr(request.state, "access_key", None)


def authorize(request: Request, status: int = 401) -> tuple[ServiceState, str]:
    """Return what the routes share, and the owner of the request's key. See `ServiceState.find_owner`."""
    state = get_state(request)
    return state, state.find_owner(request, status=status)


def get_state(request: Request) -> ServiceState:
    """Return what the routes share."""
    state: ServiceState = request.app.state.service
    return state
