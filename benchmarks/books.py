"""Memory of `docmt translate` for texts of any length: the peak of a process of its own for each, of a random model."""

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

from benchmarks.decoding import never_ending
from benchmarks.measure import Finding, Result
from docmt.checkpoint.model_directory import ModelCard, save_model
from docmt.core.progress import progress
from docmt.model import ModelConfig
from docmt.text import BpeTokenizer

# The peak of the process itself: that which its parent is told begins with the memory of the parent.
_WORK = """
import sys
from docmt.cli.app import main
status = main(sys.argv[1:])
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
sys.exit(status)
"""


@dataclass(frozen=True)
class Settings:
    """What is measured."""

    model: ModelConfig
    systems: tuple[str, ...] = ("sentence", "group")
    words: tuple[int, ...] = (1_000, 10_000, 100_000)
    batch_tokens: int = 1024
    """few enough for the shortest text to fill a batch: the batch is what takes the memory"""
    growth: float | None = 1.2
    """target: the peak for the longest text against that for the shortest"""


FULL = Settings(
    ModelConfig(
        preset="tiny", width=64, feed_forward=256, heads=4, encoder_layers=2, decoder_layers=2, vocabulary_size=8192
    )
)
QUICK = replace(
    FULL, model=replace(FULL.model, vocabulary_size=400), systems=("sentence",), words=(50, 100), growth=None
)


def run(settings: Settings) -> Result:
    """Peak memory and seconds by system and length of the text, translated greedily into sentences as long."""
    rows = []
    total = len(settings.systems) * len(settings.words)
    with tempfile.TemporaryDirectory() as folder, progress("books (texts)", total) as bar:
        text = _text(max(settings.words), settings.model.vocabulary_size)
        for system in settings.systems:
            model = _save(Path(folder) / system, replace(settings.model, system=system), " ".join(text))
            for words in settings.words:
                source = Path(folder) / f"{words}.txt"
                source.write_text("".join(_sentences(text[:words])), encoding="utf-8")
                rows.append({"system": system, "words": words, **_translate(model, source, settings.batch_tokens)})
                bar.advance(1, f"{system}, {words} words")
    described = {**asdict(settings), "model": asdict(settings.model.filled())}
    return Result(described, rows, _findings(settings, rows))


def _text(count: int, vocabulary: int) -> list[str]:
    """So many words of a language of about half as many words as there are tokens, some far more frequent."""
    generator = np.random.default_rng(1)
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    lexicon = ["".join(generator.choice(letters, length)) for length in generator.integers(2, 9, vocabulary // 2)]
    return [lexicon[number % len(lexicon)] for number in generator.zipf(1.3, count).tolist()]


def _sentences(words: list[str]) -> list[str]:
    """Sentences of 5 to 34 words, about four in a paragraph."""
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
    save_model(directory, never_ending(config, tokenizer.specials, "float32"), tokenizer, ModelCard())
    return directory


def _translate(model: Path, source: Path, batch_tokens: int) -> dict[str, Any]:
    """Peak memory in MiB, and seconds, of a process that translates a file."""
    options = {"beam": 1, "max_length_ratio": 1, "max_length_extra": 1, "batch_tokens": batch_tokens, "device": "cpu"}
    asked = ["translate", str(model), str(source), "-o", str(source.with_suffix(".out")), "-q"]
    command = [sys.executable, "-c", _WORK, *asked, *(f"--{name}={value}" for name, value in options.items())]
    started = time.perf_counter()
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    if process.returncode:
        raise RuntimeError(f"docmt translate failed: {process.stderr}")
    seconds = time.perf_counter() - started
    return {"peak_mib": int(process.stdout.split()[-1]) / 1024, "seconds": [seconds], "best_seconds": seconds}


def _findings(settings: Settings, rows: list[dict[str, Any]]) -> list[Finding]:
    findings = []
    for system in settings.systems:
        peaks = {row["words"]: row["peak_mib"] for row in rows if row["system"] == system}
        shortest, longest = min(peaks), max(peaks)
        what = f"{system}: peak memory for {longest:,} words against {shortest:,}"
        findings.append(Finding(what, max(peaks.values()) / peaks[shortest], at_most=settings.growth))
    return findings
