"""Linear attention over a document of any length against softmax: a training step and a decoding step of a layer.

Both are one causal self-attention over the whole document, projections included, as in the top layers of a group model.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor

from benchmarks.attention import peak_bytes
from benchmarks.measure import Case, Finding, Result, interleave
from benchmarks.sentences import MEAN_SENTENCE
from docmt.decoding.caches import Cache, DocumentSelfCache
from docmt.decoding.linear_caches import LinearSelfCache
from docmt.model import Spans
from docmt.model.attention import Attention
from docmt.model.kernels import Pattern
from docmt.model.linear_attention import LinearAttention
from docmt.model.sight import Sight
from docmt.model.sizes import Linear
from docmt.progress import progress

SIGHT = Sight(part="document", causal=True)


@dataclass(frozen=True)
class Settings:
    """What is measured."""

    width: int = 256
    heads: int = 4
    features: int = 32
    gate: str = "decay"
    tokens: tuple[int, ...] = (512, 2048, 8192, 32768, 131072)
    softmax_tokens: tuple[int, ...] = (512, 2048, 8192)
    """its scores are quadratic"""
    steps: int = 64
    """decoding steps that are timed, after so many tokens"""
    rounds: int = 3
    flat: float | None = 1.1
    """target: most against least time a token of linear attention"""


FULL = Settings()
QUICK = Settings(width=32, heads=2, features=4, tokens=(128, 512), softmax_tokens=(128,), steps=4, rounds=1, flat=None)


def run(settings: Settings) -> Result:
    """Times and peak memory of both kinds at each length; whether those of linear attention are flat a token."""
    training = [_training(settings, kind, tokens) for kind, tokens in _sizes(settings)]
    interleave("a training step of a layer (rounds)", training)
    decoding = [_decoding(settings, kind, tokens) for kind, tokens in _sizes(settings)]
    interleave("decoding steps of a layer (rounds)", decoding)
    memory = _memory(settings)
    findings = []
    for what, cases in (("training step", training), ("decoding step", decoding)):
        times = {(case.labels["attention"], case.labels["length"]): case.best / case.tokens for case in cases}
        linear = [seconds for (kind, _), seconds in times.items() if kind == "linear"]
        lengths = f"{settings.tokens[0]} to {settings.tokens[-1]} tokens"
        findings.append(
            Finding(
                f"{what}: most against least time a token, {lengths}",
                max(linear) / min(linear),
                "x",
                None,
                settings.flat,
            )
        )
        for tokens in settings.softmax_tokens:
            ratio = times["softmax", tokens] / times["linear", tokens]
            findings.append(Finding(f"{what}: linear against softmax, {tokens} tokens", ratio, "x as fast"))
    per_token = [row["bytes_per_token"] for row in memory if row["attention"] == "linear"]
    findings.append(Finding("training step: most against least memory a token", max(per_token) / min(per_token)))
    return Result(asdict(settings), [case.to_row() for case in training + decoding] + memory, findings)


def _sizes(settings: Settings) -> list[tuple[str, int]]:
    return [("linear", tokens) for tokens in settings.tokens] + [("softmax", n) for n in settings.softmax_tokens]


def _attention(settings: Settings, kind: str) -> Attention:
    torch.manual_seed(1)
    if kind == "softmax":
        return Attention(settings.width, settings.heads, SIGHT)
    options = replace(Linear(), features=settings.features, gate=settings.gate)
    return LinearAttention(settings.width, settings.heads, SIGHT, options)


def _step(settings: Settings, kind: str, tokens: int) -> Callable[[], int]:
    """Forward and backward through a layer over one document."""
    attention = _attention(settings, kind)
    x = torch.randn(tokens, settings.width, generator=torch.Generator().manual_seed(1)).requires_grad_()
    lengths = [MEAN_SENTENCE] * (tokens // MEAN_SENTENCE) + ([tokens % MEAN_SENTENCE] if tokens % MEAN_SENTENCE else [])
    document, sentences = Spans.tile([tokens]), Spans.tile(lengths)

    def work() -> int:
        pattern = Pattern(document, document, True, tokens, sentences)
        torch.autograd.grad(attention.output(attention.over(x, x, pattern)).sum(), [x, *attention.parameters()])
        return tokens

    return work


def _training(settings: Settings, kind: str, tokens: int) -> Case:
    labels = {"step": "training", "attention": kind, "length": tokens}
    return Case(labels, _step(settings, kind, tokens), settings.rounds)


def _decoding(settings: Settings, kind: str, tokens: int) -> Case:
    """Greedy decoding of one document after so many tokens."""
    attention = _attention(settings, kind).eval()
    x = torch.randn(1, settings.width, generator=torch.Generator().manual_seed(1))

    @torch.no_grad()
    def work() -> int:
        cache = _filled(attention, x, tokens, settings.heads)
        for step in range(settings.steps):
            _read(attention, cache, x, step)
        return settings.steps

    return Case({"step": "decoding", "attention": kind, "length": tokens}, work, settings.rounds)


@torch.no_grad()
def _filled(attention: Attention, x: Tensor, tokens: int, heads: int) -> Cache:
    """What is remembered after so many tokens."""
    if isinstance(attention, LinearAttention):
        return LinearSelfCache(1, attention.averaging, attention.features.floor)  # of one size whatever was said
    cache = DocumentSelfCache(1, 1, 1, x[0], heads)
    cache.prefix = cache.prefix.new_zeros(*cache.prefix.shape[:4], tokens + 1024, cache.prefix.shape[-1])
    cache.shared = tokens
    return cache


def _read(attention: Attention, cache: Cache, x: Tensor, step: int) -> Tensor:
    cache.begin_step(torch.tensor([step % MEAN_SENTENCE]), torch.zeros(1, dtype=torch.int64))
    if isinstance(attention, LinearAttention):
        assert isinstance(cache, LinearSelfCache)
        gates = None if attention.gate is None else attention.gates(x)
        cache.read(0, attention.shown(x), attention.values(x), gates)
        found = cache.attend(0, attention.asked(x))
    else:
        cache.store(0, attention.split(attention.key(x)), attention.split(attention.value(x)))
        found = cache.attend(0, attention.split(attention.query(x)))
    output: Tensor = attention.output(found.flatten(-2))
    return output


def _memory(settings: Settings) -> list[dict[str, Any]]:
    """Peak memory of a training step at each length."""
    rows = []
    with progress("memory of a training step (sizes)", len(_sizes(settings))) as bar:
        for kind, tokens in _sizes(settings):
            peak = peak_bytes(_step(settings, kind, tokens))
            labels = {"step": "memory", "attention": kind, "length": tokens}
            rows.append({**labels, "bytes": peak, "bytes_per_token": peak / tokens})
            bar.advance()
    return rows
