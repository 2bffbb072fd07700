"""Prometheus metrics of the service. Labels are routes, methods and codes: never texts, keys or addresses."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

_BUCKETS = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100)
"""Bounds of the histogram in seconds."""
Gauges = Mapping[str, float | Mapping[Any, float]]
"""Values now, by name; several of one name by a label."""


class _GaugeCollector(Collector):
    """Reads values when they are collected."""

    def __init__(self, read: Callable[[], Gauges]) -> None:
        self._read = read

    def collect(self) -> Iterator[Metric]:
        for name, value in self._read().items():
            if isinstance(value, Mapping):
                family = GaugeMetricFamily(f"docmt_{name}", name.replace("_", " "), labels=["kind"])
                for kind, number in value.items():
                    family.add_metric([kind], number)
            else:
                family = GaugeMetricFamily(f"docmt_{name}", name.replace("_", " "), value=value)
            yield family


class ServiceMetrics:
    """Counters of requests, and gauges that are read when they are asked for."""

    def __init__(self, read: Callable[[], Gauges]) -> None:
        """read: returns the gauges."""
        self._registry = CollectorRegistry()
        labels = ["route", "method"]
        self._requests = Counter("docmt_requests", "Requests", [*labels, "code"], registry=self._registry)
        self._seconds = Histogram(
            "docmt_request_seconds", "Seconds of requests", labels, registry=self._registry, buckets=_BUCKETS
        )
        self._characters = Counter("docmt_characters", "Characters of texts", registry=self._registry)
        self._registry.register(_GaugeCollector(read))

    def count_request(self, route: str, method: str, code: int, seconds: float) -> None:
        """Count an answered request; route: path with the names of its parameters."""
        self._requests.labels(route, method, str(code)).inc()
        self._seconds.labels(route, method).observe(seconds)

    def count_characters(self, characters: int) -> None:
        """Count characters of texts that were sent for translation."""
        self._characters.inc(characters)

    def format(self) -> bytes:
        """Return all metrics in the text format of Prometheus."""
        return generate_latest(self._registry)
