"""Timing on machines with other load, and the results of a benchmark."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from docmt.core.progress import progress


@dataclass
class Case:
    """Work that is timed in several rounds."""

    labels: dict[str, Any]
    """values that distinguish it from other cases"""
    work: Callable[[], int]
    """does the work once and returns its number of tokens"""
    rounds: int
    """number of timed rounds"""
    seconds: list[float] = field(default_factory=list)
    """time of each round"""
    tokens: int = 0
    """tokens of a round, the same in all"""

    @property
    def best(self) -> float:
        """Seconds of the fastest round: other load can only slow a round down."""
        return min(self.seconds)

    @property
    def tokens_per_second(self) -> float:
        """Tokens a second of the fastest round."""
        return self.tokens / self.best

    def name(self) -> str:
        """Return the labels as text."""
        return " ".join(str(value) for value in self.labels.values())

    def to_row(self) -> dict[str, Any]:
        """Return labels and times, for a table and for JSON."""
        times = {"tokens": self.tokens, "seconds": self.seconds, "best_seconds": self.best}
        return {**self.labels, **times, "tokens_per_second": self.tokens_per_second}


@dataclass(frozen=True)
class Finding:
    """Number that a benchmark measures, with its target if it has one."""

    what: str
    value: float
    unit: str = "x"
    at_least: float | None = None
    at_most: float | None = None

    @property
    def met(self) -> bool | None:
        """True if the target is met, None without one."""
        if self.at_least is None and self.at_most is None:
            return None
        return (self.at_least is None or self.value >= self.at_least) and (
            self.at_most is None or self.value <= self.at_most
        )

    def __str__(self) -> str:
        target = ""
        if self.at_least is not None:
            target = f"   target: at least {_format_value(self.at_least)}"
        if self.at_most is not None:
            target = f"   target: at most {_format_value(self.at_most)}"
        verdict = {None: "", True: "   met", False: "   MISSED"}[self.met]
        return f"{self.what}: {_format_value(self.value)} {self.unit}{target}{verdict}"


@dataclass(frozen=True)
class Result:
    """Settings, measurements and findings of one benchmark."""

    settings: dict[str, Any]
    measurements: list[dict[str, Any]]
    findings: list[Finding]
    note: str = ""
    """explanation of the case names, where they need one"""

    def to_json(self) -> dict[str, Any]:
        """Return the result in JSON types."""
        findings = [{**asdict(finding), "met": finding.met} for finding in self.findings]
        return {"settings": self.settings, "measurements": self.measurements, "findings": findings}

    def to_text(self) -> str:
        """Return a table of the measurements, the note, and a line for each finding."""
        note = [self.note, ""] if self.note else []
        return "\n".join([format_table(self.measurements), "", *note, *map(str, self.findings)])


def interleave(title: str, cases: Sequence[Case]) -> None:
    """Time all cases once, then all again, and so on, so that temporary load slows all of them."""
    with progress(title, sum(case.rounds for case in cases)) as bar:
        for round_ in range(max(case.rounds for case in cases)):
            for case in cases:
                if round_ < case.rounds:
                    bar.advance(0, f"{case.name()} ...")
                    started = time.perf_counter()
                    case.tokens = case.work()
                    case.seconds.append(time.perf_counter() - started)
                    bar.advance(1, f"{case.name()}: {case.seconds[-1]:.2f} s")


def format_table(rows: Sequence[dict[str, Any]]) -> str:
    """Format rows as aligned columns; lists (raw times) are left to the JSON."""
    names = list(dict.fromkeys(name for row in rows for name, value in row.items() if not isinstance(value, list)))
    cells = [[name.replace("_", " ") for name in names]]
    cells += [[_format_value(row[name]) if name in row else "" for name in names] for row in rows]
    widths = [max(len(line[column]) for line in cells) for column in range(len(names))]
    return "\n".join(
        "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in cells
    )


def describe_machine() -> dict[str, Any]:
    """Return the processor, the threads and the versions of the measurement."""
    names, flags = {platform.processor()}, set()
    information = Path("/proc/cpuinfo")
    if information.is_file():
        lines = [line.partition(":") for line in information.read_text(encoding="utf-8").splitlines()]
        names = {value.strip() for key, _, value in lines if key.strip() == "model name"} or names
        flags = {flag for key, _, value in lines if key.strip() == "flags" for flag in value.split()}
    return {
        "cpu": ", ".join(sorted(names)),
        "cores": os.cpu_count(),
        # The two that decide how fast bfloat16 is.
        "bfloat16_instructions": sorted(flags & {"avx512_bf16", "amx_bf16"}),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "system": platform.system(),
    }


def _format_value(value: Any) -> str:
    if not isinstance(value, float):
        return str(value)
    if value and abs(value) < 0.01:
        return f"{value:.1e}"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
