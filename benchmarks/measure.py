"""Timing on machines that are never quite quiet, and what a benchmark gives back."""

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
    """One thing to be timed, several times."""

    labels: dict[str, Any]
    """what tells it from the other cases"""
    work: Callable[[], int]
    """does it once; returns how many tokens that were"""
    rounds: int
    """how often it is done"""
    seconds: list[float] = field(default_factory=list)
    """of each round"""
    tokens: int = 0
    """of a round, the same in all"""

    @property
    def best(self) -> float:
        """Seconds of the fastest round: whatever else the machine does can only slow a round down."""
        return min(self.seconds)

    @property
    def tokens_per_second(self) -> float:
        """Of the fastest round."""
        return self.tokens / self.best

    def name(self) -> str:
        """Its labels in words."""
        return " ".join(str(value) for value in self.labels.values())

    def to_row(self) -> dict[str, Any]:
        """Labels and times, for a table and for JSON."""
        times = {"tokens": self.tokens, "seconds": self.seconds, "best_seconds": self.best}
        return {**self.labels, **times, "tokens_per_second": self.tokens_per_second}


@dataclass(frozen=True)
class Finding:
    """One number that a benchmark is run for, with its target if there is one."""

    what: str
    value: float
    unit: str = "x"
    at_least: float | None = None
    at_most: float | None = None

    @property
    def met(self) -> bool | None:
        """Whether the target is met; None without one."""
        if self.at_least is None and self.at_most is None:
            return None
        return (self.at_least is None or self.value >= self.at_least) and (
            self.at_most is None or self.value <= self.at_most
        )

    def __str__(self) -> str:
        target = ""
        if self.at_least is not None:
            target = f"   target: at least {_short(self.at_least)}"
        if self.at_most is not None:
            target = f"   target: at most {_short(self.at_most)}"
        verdict = {None: "", True: "   met", False: "   MISSED"}[self.met]
        return f"{self.what}: {_short(self.value)} {self.unit}{target}{verdict}"


@dataclass(frozen=True)
class Result:
    """What one benchmark found."""

    settings: dict[str, Any]
    measurements: list[dict[str, Any]]
    findings: list[Finding]
    note: str = ""
    """what the names of cases mean, where they do not say it"""

    def to_json(self) -> dict[str, Any]:
        """In types that JSON has."""
        findings = [{**asdict(finding), "met": finding.met} for finding in self.findings]
        return {"settings": self.settings, "measurements": self.measurements, "findings": findings}

    def to_text(self) -> str:
        """A table of the measurements, what its names mean, then a line for each finding."""
        note = [self.note, ""] if self.note else []
        return "\n".join([table(self.measurements), "", *note, *map(str, self.findings)])


def interleave(title: str, cases: Sequence[Case]) -> None:
    """Times all cases once, then all again, and so on: what slows the machine down for a while slows all of them."""
    with progress(title, sum(case.rounds for case in cases)) as bar:
        for round_ in range(max(case.rounds for case in cases)):
            for case in cases:
                if round_ < case.rounds:
                    bar.advance(0, f"{case.name()} ...")
                    started = time.perf_counter()
                    case.tokens = case.work()
                    case.seconds.append(time.perf_counter() - started)
                    bar.advance(1, f"{case.name()}: {case.seconds[-1]:.2f} s")


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Rows as aligned columns; lists (raw times) are left to the JSON."""
    names = list(dict.fromkeys(name for row in rows for name, value in row.items() if not isinstance(value, list)))
    cells = [[name.replace("_", " ") for name in names]]
    cells += [[_short(row[name]) if name in row else "" for name in names] for row in rows]
    widths = [max(len(line[column]) for line in cells) for column in range(len(names))]
    return "\n".join(
        "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in cells
    )


def machine() -> dict[str, Any]:
    """What the numbers were measured on."""
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


def _short(value: Any) -> str:
    if not isinstance(value, float):
        return str(value)
    if value and abs(value) < 0.01:
        return f"{value:.1e}"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
