"""python -m benchmarks [NAME ...] [--quick] [--output FILE] [--threads N] [--minutes N] [--weights NAME --text FILE]"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from benchmarks import attention, books, decoding, linear, peers, real_peers, soak, store, systems, training
from benchmarks.measure import describe_machine
from docmt.core.errors import DocmtError
from docmt.core.files import write_text

# In this order whatever order they are named in: a training changes the allocator of its process for good.
BENCHMARKS: dict[str, Any] = {
    "attention": attention,
    "decoding": decoding,
    "linear": linear,
    "training": training,
    "systems": systems,
    "books": books,
    "store": store,
    "peers": peers,
    "soak": soak,
}
BY_NAME = ("peers", "soak")
"""Benchmarks that need other packages or an hour, and run only when they are named."""
MUST_MEET = ("soak",)
"""Benchmarks whose missed targets are faults, whatever the machine: the exit status is 1."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the named benchmarks, print a table and the findings of each, and write a JSON report."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Speed and memory, as ratios in one run.")
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"{', '.join(BENCHMARKS)} (default: all but {', '.join(BY_NAME)})"
    )
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to check that they run")
    parser.add_argument("--output", type=Path, default=Path("runs/benchmarks.json"), help="default: %(default)s")
    parser.add_argument("--threads", type=int, help="threads of PyTorch; ratios depend on it")
    parser.add_argument("--weights", help="peers: a packaged or other sentence model, translating --text")
    parser.add_argument("--text", type=Path, help="peers: a sentence a line, an empty line between documents")
    parser.add_argument("--minutes", type=float, help="length of the soak (default: 60)")
    options = parser.parse_args(arguments)
    for name in options.names:
        if name not in BENCHMARKS:
            parser.error(f"unknown benchmark {name!r}: choose from {', '.join(BENCHMARKS)}")
    if bool(options.weights) != bool(options.text):
        parser.error("--weights and --text go together: give both, or none")
    if options.threads is not None:
        if options.threads < 1:
            parser.error(f"--threads {options.threads}: choose at least 1")
        torch.set_num_threads(options.threads)
    try:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        names = options.names or [name for name in BENCHMARKS if name not in BY_NAME]
        real = real_peers.Settings(options.weights, options.text) if options.weights else None
        report = run([name for name in BENCHMARKS if name in names], options.quick, options.minutes, real)
        write_text(options.output, json.dumps(report, indent=1) + "\n")
    except (DocmtError, OSError) as error:
        print(f"benchmarks: error: {error}", file=sys.stderr)
        return 2
    print(f"\nwritten to {options.output}")
    findings = [each for name in MUST_MEET if name in names for each in report["benchmarks"][name]["findings"]]
    return int(any(finding["met"] is False for finding in findings))


def run(
    names: Sequence[str], quick: bool, minutes: float | None = None, real: real_peers.Settings | None = None
) -> dict[str, Any]:
    """Run these benchmarks, print each result, and return the report. minutes: of the soak; real: of the peers."""
    report: dict[str, Any] = {"machine": describe_machine(), "quick": quick, "benchmarks": {}}
    print(", ".join(f"{key}: {value}" for key, value in report["machine"].items()))
    if quick:
        print("quick: sizes are tiny, so times and ratios mean nothing")
    for name in names:
        benchmark = BENCHMARKS[name]
        started = time.perf_counter()
        settings = benchmark.QUICK if quick else benchmark.FULL
        if name == "peers" and real is not None:
            benchmark, settings = real_peers, real.shrink() if quick else real
        result = benchmark.run(replace(settings, minutes=minutes) if minutes and name == "soak" else settings)
        seconds = time.perf_counter() - started
        print(f"\n{name} ({seconds:.0f} s)\n\n{result.to_text()}", flush=True)
        report["benchmarks"][name] = {**result.to_json(), "seconds": seconds}
    return report


if __name__ == "__main__":
    sys.exit(main())
