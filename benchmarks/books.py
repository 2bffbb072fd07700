"""Memory of `docmt translate` for texts of any length: the peak of one process each, with a random model."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.decoding import build_never_ending
from benchmarks.measure import Finding, Result
from docmt.checkpoint.model_directory import ModelCard, save_model
from docmt.core.progress import progress
from docmt.model import ModelConfig
from docmt.text import BpeTokenizer

# Peak of the process itself: the value that its parent gets includes the parent's memory.
_WORK = """
import sys
from docmt.cli.app import main
status = main(sys.argv[1:])
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
sys.exit(status)
"""


@dataclass(frozen=True)
class Settings:
    """Sizes of the benchmark."""

    model: ModelConfig
    systems: tuple[str, ...] = ("sentence", "group")
    words: tuple[int, ...] = (1_000, 10_000, 100_000)
    batch_tokens: int = 1024
    """small enough for the shortest text to fill a batch, which determines the memory"""
    growth: float | None = 1.2
    """target: peak of the longest text over that of the shortest"""


FULL = Settings(
    ModelConfig(
        preset="tiny", width=64, feed_forward=256, heads=4, encoder_layers=2, decoder_layers=2, vocabulary_size=8192
    )
)
QUICK = replace(
    FULL, model=replace(FULL.model, vocabulary_size=400), systems=("sentence",), words=(50, 100), growth=None
)


def run(settings: Settings) -> Result:
    """Return peak memory and seconds by system and length of the text, translated greedily."""
    rows = []
    total = len(settings.systems) * len(settings.words)
    with tempfile.TemporaryDirectory() as folder, progress("books (texts)", total) as bar:
        text = _make_text(max(settings.words), settings.model.vocabulary_size)
        for system in settings.systems:
            model = _save(Path(folder) / system, replace(settings.model, system=system), " ".join(text))
            for words in settings.words:
                source = Path(folder) / f"{words}.txt"
                source.write_text("".join(_make_sentences(text[:words])), encoding="utf-8")
                rows.append({"system": system, "words": words, **_translate(model, source, settings.batch_tokens)})
                bar.advance(1, f"{system}, {words} words")
    described = {**asdict(settings), "model": asdict(settings.model.resolve())}
    return Result(described, rows, _make_findings(settings, rows))


def _make_text(count: int, vocabulary: int) -> list[str]:
    """Return this many words of a random language, some far more frequent than others."""
    generator = np.random.default_rng(1)
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    lexicon = ["".join(generator.choice(letters, length)) for length in generator.integers(2, 9, vocabulary // 2)]
    return [lexicon[number % len(lexicon)] for number in generator.zipf(1.3, count).tolist()]


def _make_sentences(words: list[str]) -> list[str]:
    """Return sentences of 5 to 34 words, about four in a paragraph."""
    generator = np.random.default_rng(2)
    sentences, first = [], 0
    while first < len(words):
        last = first + int(generator.integers(5, 35))
        end = "\n\n" if generator.random() < 0.25 else " "
        sentences.append(" ".join(words[first:last]).capitalize() + "." + end)
        first = last
    return sentences


def _save(directory: Path, config: ModelConfig, text: str) -> Path:
    tokenizer = BpeTokenizer.train([text], config.vocabulary_size)
    torch.manual_seed(1)
    config = replace(config, vocabulary_size=tokenizer.vocabulary_size)
    save_model(directory, build_never_ending(config, tokenizer.specials, "float32"), tokenizer, ModelCard())
    return directory


def _translate(model: Path, source: Path, batch_tokens: int) -> dict[str, Any]:
    """Return the peak memory in MiB, and the seconds, of a process that translates a file."""
    options = {"beam": 1, "max_length_ratio": 1, "max_length_extra": 1, "batch_tokens": batch_tokens, "device": "cpu"}
    arguments = ["translate", str(model), str(source), "-o", str(source.with_suffix(".out")), "-q"]
    command = [sys.executable, "-c", _WORK, *arguments, *(f"--{name}={value}" for name, value in options.items())]
    started = time.perf_counter()
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    if process.returncode:
        raise RuntimeError(f"docmt translate failed: {process.stderr}")
    seconds = time.perf_counter() - started
    return {"peak_mib": int(process.stdout.split()[-1]) / 1024, "seconds": [seconds], "best_seconds": seconds}


def _make_findings(settings: Settings, rows: list[dict[str, Any]]) -> list[Finding]:
    findings = []
    for system in settings.systems:
        peaks = {row["words"]: row["peak_mib"] for row in rows if row["system"] == system}
        shortest, longest = min(peaks), max(peaks)
        label = f"{system}: peak memory for {longest:,} words against {shortest:,}"
        findings.append(Finding(label, max(peaks.values()) / peaks[shortest], at_most=settings.growth))
    return findings
