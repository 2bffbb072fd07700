"""Group attention over spans beside attention with a dense mask: forward and backward time, and memory.

The published code computes all T x T scores of a packed sequence and masks those between sentences (Bao et al. 2021).
The twin here does that with PyTorch's fused attention and a prebuilt mask, which favours it.
"""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from benchmarks.measure import Case, Finding, Result, interleave
from benchmarks.sentences import MEAN_SENTENCE
from docmt.core.progress import progress
from docmt.model import Spans, attend

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
# Largest difference of outputs that rounding explains; values are averages of standard normal ones.
TOLERANCE = {"float32": 1e-5, "bfloat16": 0.03}


@dataclass(frozen=True)
class Settings:
    """Sizes of the benchmark."""

    heads: int = 8
    head_width: int = 64
    sentence: int = MEAN_SENTENCE
    tokens: tuple[int, ...] = (512, 2048, 8192)
    memory_tokens: tuple[int, ...] = (512, 2048, 8192, 32768)
    rounds: int = 5
    speedup: float | None = 10.0
    """target at the largest size"""


FULL = Settings()
QUICK = Settings(tokens=(256, 1024), memory_tokens=(256, 2048), rounds=2, speedup=None)


def run(settings: Settings) -> Result:
    """Return times of both kinds at each size, their ratio, the difference of their outputs, and bytes a token."""
    timed, findings = [], []
    sizes = list(product(DTYPES, settings.tokens))
    for precision, tokens in sizes:
        inputs = _Inputs(settings, tokens, precision)
        kinds = {"group": inputs.group, "dense mask": inputs.dense}
        cases = [
            Case({"precision": precision, "tokens": tokens, "attention": kind}, inputs.step(function), settings.rounds)
            for kind, function in kinds.items()
        ]
        interleave(f"attention, {tokens} tokens in {precision} (rounds)", cases)
        timed += cases
        group, dense = cases
        largest = tokens == max(settings.tokens)
        label = f"group attention against dense masks, {tokens} tokens, {precision}"
        findings.append(
            Finding(label, dense.best / group.best, "x as fast", at_least=settings.speedup if largest else None)
        )
        difference = inputs.difference()
        findings.append(
            Finding(
                f"largest difference of their outputs, {tokens} tokens, {precision}",
                difference,
                "",
                at_most=TOLERANCE[precision],
            )
        )
    memory = _measure_memory(settings)
    for precision in DTYPES:
        per_token = [row["bytes_per_token"] for row in memory if row["precision"] == precision]
        sizes_text = f"{settings.memory_tokens[0]} to {settings.memory_tokens[-1]} tokens, {precision}"
        # Linear growth keeps this at 1; a dense mask would make it the ratio of the sizes.
        growth = max(per_token) / min(per_token)
        findings.append(Finding(f"most against least memory a token, {sizes_text}", growth, at_most=1.1))
    return Result(asdict(settings), [case.to_row() for case in timed] + memory, findings)


class _Inputs:
    """Random queries, keys, values and output gradients [T, H, k], cut into sentences."""

    def __init__(self, settings: Settings, tokens: int, precision: str) -> None:
        generator = torch.Generator().manual_seed(1)
        shape = (tokens, settings.heads, settings.head_width)
        self.query, self.key, self.value, self.gradient = (
            torch.randn(shape, generator=generator).to(DTYPES[precision]) for _ in range(4)
        )
        self.projected = [x.requires_grad_() for x in (self.query, self.key, self.value)]
        self.tokens = tokens
        self.lengths = [settings.sentence] * (tokens // settings.sentence)
        if tokens % settings.sentence:
            self.lengths.append(tokens % settings.sentence)
        self.spans = Spans.tile(self.lengths)
        self._mask: Tensor | None = None

    def group(self) -> Tensor:
        return attend(self.query, self.key, self.value, self.spans, self.spans)

    def dense(self) -> Tensor:
        query, key, value = (x.transpose(0, 1)[None] for x in self.projected)
        return F.scaled_dot_product_attention(query, key, value, attn_mask=self.mask())[0].transpose(0, 1)

    def mask(self) -> Tensor:
        """Return the mask [T, T], minus infinity between sentences, built once."""
        if self._mask is None:
            sentence = torch.repeat_interleave(torch.arange(len(self.spans)), self.spans.lengths)
            self._mask = torch.zeros(self.tokens, self.tokens, dtype=self.query.dtype)
            self._mask.masked_fill_(sentence[:, None] != sentence, -math.inf)
        return self._mask

    def step(self, function: Callable[[], Tensor]) -> Callable[[], int]:
        """Return a step forward and backward through `function`."""
        self.mask()

        def work() -> int:
            torch.autograd.grad(function(), self.projected, self.gradient)
            return self.tokens

        return work

    @torch.no_grad()
    def difference(self) -> float:
        """Return the largest absolute difference between the outputs of the two kinds."""
        return float((self.group().float() - self.dense().float()).abs().max())


def _measure_memory(settings: Settings) -> list[dict[str, Any]]:
    """Return the peak memory of group attention at each size: forward and backward, with layout and gradients."""
    rows = []
    sizes = list(product(DTYPES, settings.memory_tokens))
    with progress("memory of group attention (sizes)", len(sizes)) as bar:
        for precision, tokens in sizes:
            inputs = _Inputs(settings, tokens, precision)

            def work(inputs: _Inputs = inputs) -> None:
                inputs.spans = Spans.tile(inputs.lengths)  # a new layout, whose index tensors count too
                torch.autograd.grad(inputs.group(), inputs.projected, inputs.gradient)

            labels = {"precision": precision, "tokens": tokens, "attention": "group"}
            peak = measure_peak_bytes(work)
            rows.append({**labels, "peak_bytes": peak, "bytes_per_token": peak / tokens})
            bar.advance(1, f"{precision} {tokens}")
    return rows


def measure_peak_bytes(work: Callable[[], object]) -> int:
    """Return the most bytes that PyTorch holds on the CPU at any time while `work` runs."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        work()
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(trace))
        events = json.loads(trace.read_text(encoding="utf-8"))["traceEvents"]
    changes = sorted((event for event in events if event.get("name") == "[memory]"), key=lambda event: event["ts"])
    held = peak = 0
    for change in changes:
        held += change["args"]["Bytes"]
        peak = max(peak, held)
    return peak
