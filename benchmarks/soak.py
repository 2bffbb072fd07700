"""A soak: `docmt serve` and `docmt bulk` beside each other, with clients that leave and files that are broken.

The model has random weights. The service is a process of its own, whose memory and descriptors are watched.
"""

from __future__ import annotations

import gzip
import json
import random
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.measure import Finding, Result
from benchmarks.soak_clients import LINES, TEXT, Client, Tally, damage, make_files
from docmt.checkpoint.model_directory import save_model
from docmt.core.progress import progress
from docmt.model import ModelConfig, TranslationModel
from docmt.text import BpeTokenizer

_SEARCH = ("--beam", "2", "--max-length-extra", "4", "--device", "cpu")
_START_SECONDS, _IDLE_SECONDS, _LONGEST_IDLE_SECONDS = 60, 8, 60
_COUNTS = ("answered", "refused", "good_refused", "left", "faults", "documents")
_SHOWN = (1 / 12, 1 / 4, 1 / 2, 3 / 4, 1)
"""Moments of the table, as shares of the length."""
_BROKEN_ROWS = (
    '{"id": "cut", "text": "a few',
    '{"id": "number", "text": 7}',
    '{"id": "none"}',
    '["text"]',
    "null",
    '{"id": "half", "text": "\\ud800"}',
    '{"id": "list", "text": ["a", 1]}',
    json.dumps({"id": "long", "text": "a" * 3000}),
    json.dumps({"id": "empty", "text": ""}),
    json.dumps({"id": "marks", "text": "\0\u2028\ufeff" * 9}),
)


@dataclass(frozen=True)
class Settings:
    """Size of the soak."""

    minutes: float
    clients: int
    pause: float
    """longest pause of a client between two works, in seconds"""
    sample_seconds: float = 60.0
    growth: float | None = 1.05
    """target: median memory of the last quarter over that of the second"""


FULL = Settings(minutes=60.0, clients=8, pause=1.0)
QUICK = Settings(minutes=0.4, clients=4, pause=0.1, sample_seconds=2.0, growth=None)


def run(settings: Settings) -> Result:
    """Return the state of the service at several moments, what clients got, and what went wrong."""
    tally, stop, chance = Tally(), threading.Event(), random.Random(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = _save_model(folder / "en-fr")
        with _running_service(model, folder, tally) as (process, port):
            clients = [Client(port, tally, stop, seed, settings.pause) for seed in range(settings.clients)]
            _warm_up(clients[0])
            before = _measure(process.pid)
            workers = [*clients, threading.Thread(target=_run_jobs, args=(model, folder, tally, stop, chance))]
            for worker in workers:
                worker.start()
            rows = _watch(process, settings, tally)
            stop.set()
            for worker in workers:
                worker.join()
            after = _wait_until_idle(process.pid, before, folder)
        if left := _count_files(folder / "serve" / "uploads"):
            tally.blame(f"{left} files are left in the folder of uploads")
    return _make_result(settings, tally, rows, before, after)


def _save_model(directory: Path) -> Path:
    torch.manual_seed(1)
    tokenizer = BpeTokenizer.train([TEXT], 300)
    sizes = {"width": 32, "feed_forward": 64, "heads": 2, "encoder_layers": 1, "decoder_layers": 1}
    model = TranslationModel(ModelConfig(system="group", vocabulary_size=tokenizer.vocabulary_size, **sizes))
    save_model(directory, model, tokenizer, {"source_language": "en", "target_language": "fr"})
    return directory


@contextmanager
def _running_service(model: Path, folder: Path, tally: Tally) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Start a service, and stop it at the end; what its log says of failures is blamed."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    log = folder / "serve.log"
    command = [sys.executable, "-m", "docmt", "serve", str(model), "--port", str(port), "--keep-hours", "0.05"]
    with log.open("wb") as output:
        # In a session of its own, Ctrl-C reaches it only after the clients.
        process = subprocess.Popen(
            [*command, "--data", str(folder / "serve"), *_SEARCH], stderr=output, start_new_session=True
        )
    try:
        until = time.monotonic() + _START_SECONDS
        while time.monotonic() < until and process.poll() is None and b"the page is at" not in log.read_bytes():
            time.sleep(0.1)
        yield process, port
    finally:
        process.terminate()
        status = process.wait(_START_SECONDS)
    if status not in (0, -15):
        tally.blame(f"the service ended with status {status}")
    failures = re.findall(r".*(?:a request failed|Traceback|Error).*", log.read_text(errors="replace"))
    for line in failures:
        tally.blame(f"log of the service: {line}")


def _warm_up(client: Client) -> None:
    """Let the service load the model, and start what it starts but once."""
    for _ in range(8):
        client.request("POST", "/v1/translate", json.dumps({"text": TEXT}).encode(), stays=True)
        client.request("POST", "/v1/documents", json.dumps({"text": TEXT}).encode(), stays=True)
    time.sleep(_IDLE_SECONDS)


def _measure(process: int) -> dict[str, Any]:
    """Return memory (MB), descriptors and threads of a process, and its children with their memory."""
    root = Path(f"/proc/{process}")
    children = " ".join(path.read_text() for path in root.glob("task/*/children")).split()
    return {
        "megabytes": _read_megabytes(root),
        "descriptors": len(list((root / "fd").iterdir())),
        "threads": len(list((root / "task").iterdir())),
        "children": len(children),
        "megabytes_of_children": sum(_read_megabytes(Path(f"/proc/{child}")) for child in children),
    }


def _read_megabytes(root: Path) -> float:
    """Return the resident memory of a process; 0 if it has ended."""
    try:
        return int((root / "status").read_text().split("VmRSS:")[1].split()[0]) / 1024
    except (OSError, IndexError):
        return 0.0


def _watch(process: subprocess.Popen[bytes], settings: Settings, tally: Tally) -> list[dict[str, Any]]:
    """Return a sample each minute, with counts so far. A service that ends is a fault, and ends the soak."""
    started, rows = time.monotonic(), list[dict[str, Any]]()
    count = round(settings.minutes * 60 / settings.sample_seconds)
    with progress("soak (samples)", count) as bar:
        for number in range(1, count + 1):
            time.sleep(max(0.0, started + number * settings.sample_seconds - time.monotonic()))
            if process.poll() is not None:
                tally.blame("the service is dead")
                break
            minute = number * settings.sample_seconds / 60
            rows.append({"minute": minute, **_measure(process.pid), **tally.select(_COUNTS)})
            bar.advance(1, ", ".join(f"{value:.6g} {name}" for name, value in rows[-1].items()))
    return rows


def _wait_until_idle(process: int, before: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return the measurement of a service that has had nothing to do for a while."""
    until = time.monotonic() + _LONGEST_IDLE_SECONDS
    time.sleep(_IDLE_SECONDS)
    while (after := _measure(process))["descriptors"] > before["descriptors"] or after["children"]:
        if time.monotonic() > until:
            break
        time.sleep(1)
    return after


def _run_jobs(model: Path, folder: Path, tally: Tally, stop: threading.Event, chance: random.Random) -> None:
    """Work through bulk jobs, of rows and of files, until the event is set."""
    number = 0
    while not stop.wait(1):
        number += 1
        with tempfile.TemporaryDirectory(dir=folder) as name:
            try:
                (_run_rows if number % 2 else _run_files)(model, Path(name), tally, chance)
            except Exception as error:  # an output in another shape than documented
                tally.blame(f"bulk job {number}: {error!r}")


def _run_rows(model: Path, folder: Path, tally: Tally, chance: random.Random) -> None:
    """Translate rows of which some are broken; then the same file, cut short, which must be refused."""
    rows = [json.dumps({"id": f"d{n}", "text": ". ".join(chance.choices(LINES, k=5))}) for n in range(60)]
    rows[1:] = chance.sample([*rows[1:], *_BROKEN_ROWS], len(rows) - 1 + len(_BROKEN_ROWS))
    corpus, data = folder / "rows.jsonl.gz", gzip.compress("".join(f"{row}\n" for row in rows).encode())
    corpus.write_bytes(data)
    _bulk(model, corpus, folder / "job", tally)
    parts = sorted((folder / "job" / "output").glob("part-*"))
    done = [json.loads(line)["source_id"] for part in parts for line in gzip.decompress(part.read_bytes()).splitlines()]
    _check_documents(len(rows), done, folder / "job", tally)
    corpus.write_bytes(data[: chance.randrange(20, len(data) - 8)])
    if len((message := _bulk(model, corpus, folder / "cut", tally, statuses=(2,))).splitlines()) != 1:
        tally.blame(f"the refusal of a truncated input is not one line: {message[:500]}")


def _run_files(model: Path, folder: Path, tally: Tally, chance: random.Random) -> None:
    """Translate a folder of files, half of which are broken."""
    source = folder / "files"
    for number in range(6):
        for name, data in make_files().items():
            each, content = (name, data) if number % 2 else damage(name, data, chance)
            path = source / str(number) / each
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
    _bulk(model, source, folder / "job", tally)
    done = [str(path) for path in (folder / "job" / "output").rglob("*") if path.is_file()]
    _check_documents(_count_files(source), done, folder / "job", tally)


def _bulk(model: Path, input: Path, job: Path, tally: Tally, statuses: tuple[int, ...] = (0, 2)) -> str:
    """Run a job of small shards, and return its standard error. statuses: with which it may end."""
    command = [sys.executable, "-m", "docmt", "bulk", str(model), str(input), "-o", str(job), "--shard-tokens", "2000"]
    process = subprocess.run([*command, *_SEARCH, "-q"], capture_output=True, text=True, start_new_session=True)
    if process.returncode not in statuses or "Traceback" in process.stderr:
        tally.blame(f"docmt bulk ended with status {process.returncode}: {process.stderr[-500:]}")
    return process.stderr


def _check_documents(count: int, done: list[str], job: Path, tally: Tally) -> None:
    """Count the documents of a complete job. Each must be translated or failed, and once."""
    failed = sum(len(path.read_bytes().splitlines()) for path in (job / "failed").glob("*.jsonl"))
    tally.count("documents", count)
    if len(done) + failed != count or len(set(done)) != len(done):
        tally.count("lost", abs(count - failed - len(set(done))) or 1)
        tally.blame(f"a job of {count} documents translated {len(done)}, and failed at {failed}")


def _count_files(folder: Path) -> int:
    return sum(path.is_file() for path in folder.rglob("*"))


def _make_result(
    settings: Settings, tally: Tally, rows: list[dict[str, Any]], before: dict[str, Any], after: dict[str, Any]
) -> Result:
    quarter = len(rows) // 4
    memory = [row["megabytes"] for row in rows]
    growth = statistics.median(memory[-quarter:]) / statistics.median(memory[quarter : 2 * quarter]) if quarter else 1.0
    shown = [rows[max(0, round(share * len(rows)) - 1)] for share in _SHOWN] if rows else []
    table = [{"minute": "start", **before}, *shown, {"minute": "idle", **after, **tally.select(_COUNTS)}]
    findings = [
        Finding("memory: median of the last quarter over that of the second", growth, at_most=settings.growth),
        Finding("descriptors more than at the start", after["descriptors"] - before["descriptors"], "", at_most=0),
        Finding("faults: requests neither answered nor refused, and others", tally.counts["faults"], "", at_most=0),
        Finding("documents that bulk jobs lost", tally.counts["lost"], "", at_most=0),
    ]
    return Result({**asdict(settings), "samples": rows, "faults": tally.faults}, table, findings)
