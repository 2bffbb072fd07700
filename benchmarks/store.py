"""Opening a large store: seconds and memory of each step of a training up to its first batches, one process each."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure import Finding, Result
from docmt.cli.app import keep_freed_memory
from docmt.core.files import file_checksums, write_text
from docmt.core.progress import progress
from docmt.data import PreparedStore
from docmt.data.store import DOCUMENTS_FILE, STATISTICS_FILE, TOKENIZER_FOLDER, CorpusStatistics, SplitStatistics
from docmt.model import ModelConfig
from docmt.text import BpeTokenizer
from docmt.training import BatchConfig, StopConfig, TrainConfig
from docmt.training.training_corpus import TrainingCorpus, fit_model_config

_BLOCK = 1 << 20  # sentences that are generated at once
_SAMPLE_SECONDS = 0.005  # between two readings of another process's memory


@dataclass(frozen=True)
class Settings:
    """Sizes of the benchmark."""

    pairs: tuple[int, ...] = (10_000, 1_000_000, 10_000_000)
    systems: tuple[str, ...] = ("sentence", "group")
    document_sentences: int = 20
    sentence_tokens: int = 21
    """median, without boundary tokens"""
    batch_tokens: int = 4096
    batches: int = 200
    """batches that are laid out after the first"""
    open_seconds: float | None = 2.0
    """target: opening the largest store"""
    memory_mib: float | None = 2000.0
    """target: private memory of a process at any step, above that of its imports"""


FULL = Settings()
QUICK = replace(FULL, pairs=(500,), systems=("group",), batch_tokens=256, batches=3, open_seconds=None, memory_mib=None)


def run(settings: Settings) -> Result:
    """Return seconds and memory of every step, by number of pairs and system."""
    rows: list[dict[str, Any]] = []
    with progress("store (processes)", len(settings.pairs) * len(settings.systems)) as bar:
        for pairs in settings.pairs:
            with tempfile.TemporaryDirectory() as folder:
                store = write_store(Path(folder), pairs, settings)
                for system in settings.systems:
                    labels = {"pairs": pairs, "system": system}
                    rows += [{**labels, **row} for row in _measure(store, system, settings)]
                    bar.advance(1, f"{pairs:,} pairs, {system}")
    return Result(asdict(settings), rows, _make_findings(settings, rows))


def write_store(directory: Path, pairs: int, settings: Settings) -> Path:
    """Write a store of random word ids, without text and without a dev split, and return its directory."""
    generator = np.random.default_rng(1)
    tokenizer = BpeTokenizer.train(["a few words"], 264)
    train = directory / "train"
    train.mkdir(parents=True)
    tokenizer.save(directory / TOKENIZER_FOLDER)
    words = []
    for side in ("source", "target"):
        lengths = np.maximum(generator.lognormal(np.log(settings.sentence_tokens), 0.5, pairs).astype(np.int64), 1)
        np.save(train / f"{side}_offsets.npy", offsets := np.append(0, np.cumsum(lengths)))
        words.append(int(offsets[-1]))
        first, last = tokenizer.specials.first_word, tokenizer.specials.eod
        tokens = np.lib.format.open_memmap(train / f"{side}_tokens.npy", "w+", np.uint16, (words[-1],))
        for start in range(0, words[-1], _BLOCK):
            block = tokens[start : start + _BLOCK]
            block[:] = generator.integers(first, last, len(block), dtype=np.uint16)
        tokens.flush()
    sizes = generator.geometric(1 / settings.document_sentences, pairs)
    borders = np.cumsum(sizes)
    borders = np.concatenate([[0], borders[borders < pairs], [pairs]])
    np.save(train / "document_offsets.npy", borders)
    ids = [f"document-{number}" for number in range(len(borders) - 1)]
    write_text(train / DOCUMENTS_FILE, json.dumps(ids) + "\n")
    checksums = file_checksums(train, [path.name for path in sorted(train.iterdir())])
    # Only what opening reads is right; costs and instances are not counted.
    split = SplitStatistics(len(ids), pairs, 1, *words, 0, 0, ids[0], 1, 0, crc32=checksums)
    size = tokenizer.vocabulary_size
    statistics = CorpusStatistics("", "", tokenizer.kind, size, 512, {"train": split})
    write_text(directory / STATISTICS_FILE, statistics.to_json())
    return directory


@dataclass
class _Memory:
    """Private memory of another process in MiB: now and at its peak since the last step."""

    pid: int
    start: float = 0.0
    peak: float = 0.0
    stopped: threading.Event = field(default_factory=threading.Event)

    def read(self) -> dict[str, float]:
        lines = Path(f"/proc/{self.pid}/status").read_text(encoding="utf-8").splitlines()
        values = dict(line.split(":", 1) for line in lines if line.startswith("Rss"))
        return {key: int(value.split()[0]) / 1024 for key, value in values.items()}

    def watch(self) -> None:
        while not self.stopped.wait(_SAMPLE_SECONDS):
            try:
                self.peak = max(self.peak, self.read()["RssAnon"])
            except (OSError, KeyError):  # it has ended
                return


@contextmanager
def _watch(pid: int) -> Iterator[_Memory]:
    memory = _Memory(pid)
    thread = threading.Thread(target=memory.watch)
    thread.start()
    try:
        yield memory
    finally:
        memory.stopped.set()
        thread.join()


def _measure(store: Path, system: str, settings: Settings) -> list[dict[str, Any]]:
    """Return the steps of one process, which waits after each until its memory is read."""
    numbers = map(str, (settings.batch_tokens, settings.batches))
    command = [sys.executable, "-m", "benchmarks.store", str(store), system, *numbers]
    rows, pipe, root = [], subprocess.PIPE, Path(__file__).parent.parent  # benchmarks/ is not installed
    with (
        subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, bufsize=1, cwd=root) as process,
        _watch(process.pid) as memory,
    ):
        assert process.stdout is not None and process.stdin is not None
        for line in process.stdout:
            now, row = memory.read(), json.loads(line)
            memory.start = memory.start or now["RssAnon"]
            peak = max(memory.peak, now["RssAnon"])
            sizes = {"private_mib": now["RssAnon"], "peak_mib": peak, "mapped_mib": now["RssFile"]}
            rows.append({**row, **{key: value - memory.start * (key != "mapped_mib") for key, value in sizes.items()}})
            memory.peak = 0.0
            process.stdin.write("\n")
    if process.returncode:
        raise RuntimeError(f"a process ended with status {process.returncode}")
    return rows


def _make_findings(settings: Settings, rows: list[dict[str, Any]]) -> list[Finding]:
    largest = [row for row in rows if row["pairs"] == max(settings.pairs)]
    opening = max(row["seconds"][0] for row in largest if row["step"] == "open")
    peak = max(row["peak_mib"] for row in largest)
    label = f"{max(settings.pairs):,} pairs"
    return [
        Finding(f"{label}: opening", opening, "s", at_most=settings.open_seconds),
        Finding(
            f"{label}: peak of private memory above the imports", max(peak, 0.0), "MiB", at_most=settings.memory_mib
        ),
    ]


def _train_until_first_batches(store: Path, system: Any, batch_tokens: int, batches: int) -> None:
    """Do in this process what a training does before its first updates; print a line of JSON after each step."""

    def step(name: str, work: Callable[[], Any], count: int = 1) -> Any:
        started, used = time.perf_counter(), time.process_time()
        result = work()
        seconds, used = (time.perf_counter() - started) / count, (time.process_time() - used) / count
        times = {"seconds": [seconds], "best_seconds": seconds, "processor_seconds": used}
        print(json.dumps({"step": name, **times}), flush=True)
        sys.stdin.readline()
        return result

    keep_freed_memory()  # as a training does
    step("imports", lambda: None)
    opened = step("open", lambda: PreparedStore.open(store))
    model = fit_model_config(ModelConfig(system=system, preset="tiny"), opened)
    stop = StopConfig(max_steps=1)
    config = TrainConfig(store, Path("-"), model, BatchConfig(batch_tokens=batch_tokens), stop=stop)
    corpus = step("check and cut into instances", lambda: TrainingCorpus(opened, config))
    step("fingerprint", lambda: corpus.fingerprint)
    step("plan an epoch", lambda: corpus.plan_epoch(0))
    updates = corpus.iterate_updates(0, 0)
    step("first batch", lambda: next(updates))
    step("each further batch", lambda: [None for _ in islice(updates, batches)], batches)
    step("plan the next epoch", lambda: corpus.plan_epoch(1))


if __name__ == "__main__":
    _train_until_first_batches(Path(sys.argv[1]), sys.argv[2], *map(int, sys.argv[3:]))
