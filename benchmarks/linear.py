"""Linear attention over the document in a group model: training steps and decoding from short documents to books.

Beside it the same model with softmax attention over the document, and with none (group attention alone).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch

from benchmarks.attention import measure_peak_bytes
from benchmarks.measure import Case, Finding, Result, interleave
from benchmarks.sentences import draw_parallel_lengths
from docmt.cli.app import keep_freed_memory
from docmt.core.progress import progress
from docmt.decoding.ensembles import compute_next_logits
from docmt.decoding.incremental import IncrementalDecoder, Prefixes, TargetPass
from docmt.decoding.search_rules import SearchRow
from docmt.model import ModelConfig, Packed, Spans, TranslationModel
from docmt.model.model_config import Linear
from docmt.model.spans import ModelInput
from docmt.model.systems import Group
from docmt.training.objective import batch_loss

KINDS: dict[str, dict[str, Any]] = {
    "linear": {"group": Group(global_attention="linear"), "linear": Linear(gate="decay")},
    "softmax": {"group": Group()},
    "none": {"group": Group(top_attention="group")},
}


@dataclass(frozen=True)
class Settings:
    """Sizes of the benchmark."""

    model: ModelConfig
    tokens: tuple[int, ...] = (512, 2048, 8192, 32768, 131072)
    softmax_tokens: tuple[int, ...] = (512, 2048, 8192)
    """shorter lengths: its cost is quadratic"""
    batch_tokens: int = 8192
    """tokens of a training step, unless its only document is longer"""
    steps: int = 64
    """timed decoding steps after each length"""
    rounds: int = 3
    flat: float | None = 1.1
    """target: most over least time a token of linear attention"""
    memory: float | None = 2.0
    """target: memory of linear attention over that of group attention alone"""


_SIZES: dict[str, Any] = {"system": "group", "preset": "tiny", "dropout": 0.0, "positions": "sentence"}
FULL = Settings(ModelConfig(**_SIZES, encoder_layers=3, decoder_layers=3, vocabulary_size=8192))
QUICK = Settings(
    ModelConfig(**_SIZES, width=32, feed_forward=32, heads=2, encoder_layers=2, decoder_layers=2, vocabulary_size=99),
    tokens=(128, 512), softmax_tokens=(128,), batch_tokens=512, steps=4, rounds=1, flat=None, memory=None,
)  # fmt: skip


def run(settings: Settings) -> Result:
    """Return times and peak memory of all kinds at each length."""
    keep_freed_memory()  # as a training does
    models = {kind: _build_model(settings, kind) for kind in KINDS}
    training = [
        Case({"step": "training", **labels}, _update(settings, models[kind], tokens), settings.rounds)
        for labels, kind, tokens in _list_sizes(settings)
    ]
    interleave("training steps (rounds)", training)
    decoding = [
        Case({"step": "decoding", **labels}, _make_decoding_steps(settings, models[kind], tokens), settings.rounds)
        for labels, kind, tokens in _list_sizes(settings)
    ]
    interleave("decoding steps (rounds)", decoding)
    memory = _measure_memory(settings, models)
    findings = []
    lengths = f"{settings.tokens[0]} to {settings.tokens[-1]} tokens"
    for label, cases in (("training step", training), ("decoding step", decoding)):
        times = {(case.labels["over the document"], case.labels["length"]): case.best / case.tokens for case in cases}
        linear = [seconds for (kind, _), seconds in times.items() if kind == "linear"]
        growth = max(linear) / min(linear)
        findings.append(
            Finding(f"{label}: linear, most against least time a token, {lengths}", growth, at_most=settings.flat)
        )
        for other, lengths_of_kind in (("softmax", settings.softmax_tokens), ("none", settings.tokens)):
            for tokens in lengths_of_kind:
                ratio = times[other, tokens] / times["linear", tokens]
                findings.append(Finding(f"{label}: linear against {other}, {tokens} tokens", ratio, "x as fast"))
    sizes = {(row["over the document"], row["length"]): row["bytes_per_token"] for row in memory}
    linear = [size for (kind, _), size in sizes.items() if kind == "linear"]
    findings.append(
        Finding(f"training step: linear, most against least memory a token, {lengths}", max(linear) / min(linear))
    )
    most = max(sizes["linear", tokens] / sizes["none", tokens] for tokens in settings.tokens)
    findings.append(Finding("training step: memory, linear against none, at most", most, at_most=settings.memory))
    described = {**asdict(settings), "model": asdict(settings.model.resolve())}
    return Result(described, [case.to_row() for case in training + decoding] + memory, findings)


def _list_sizes(settings: Settings) -> list[tuple[dict[str, Any], str, int]]:
    """Return labels, kind and tokens of a document of each case."""
    lengths = {"linear": settings.tokens, "softmax": settings.softmax_tokens, "none": settings.tokens}
    return [({"over the document": kind, "length": tokens}, kind, tokens) for kind in KINDS for tokens in lengths[kind]]


def _build_model(settings: Settings, kind: str) -> TranslationModel:
    torch.manual_seed(1)
    return TranslationModel(replace(settings.model, **KINDS[kind]))


def _draw_documents(model: TranslationModel, tokens: int, count: int) -> ModelInput:
    """Return this many documents of random words."""
    generator = np.random.default_rng(tokens)
    lengths = [draw_parallel_lengths(tokens, generator) for _ in range(count)]
    sides = []
    for side in zip(*lengths, strict=True):
        words = torch.from_numpy(generator.integers(4, model.config.vocabulary_size - 2, tokens * count))
        sides.append(
            Packed(words, Spans.tile([n for sentences in side for n in sentences]), Spans.tile([tokens] * count))
        )
    return ModelInput(sides[0], torch.arange(len(sides[0].sentences)), sides[1])


def _update(settings: Settings, model: TranslationModel, tokens: int) -> Callable[[], int]:
    """Return a training step: forward, loss and backward, without the optimizer, whose work does not depend on the
    length.
    """
    inputs = _draw_documents(model, tokens, max(settings.batch_tokens // tokens, 1))
    assert inputs.target is not None
    labels = inputs.target.tokens.roll(-1)

    def work() -> int:
        model.train()
        with torch.autocast("cpu", torch.bfloat16):
            loss, _ = batch_loss(model, model(inputs), labels, 0.1)
        loss.backward()  # type: ignore[no-untyped-call]
        model.zero_grad()
        return len(labels)

    return work


@torch.inference_mode()
def _make_decoding_steps(settings: Settings, model: TranslationModel, tokens: int) -> Callable[[], int]:
    """Return greedy steps after this many translated tokens of a document; work done once a document is not timed."""
    inputs = _draw_documents(model, tokens, 1)
    assert inputs.target is not None
    last, words = len(inputs.source.sentences) - 1, inputs.source.tokens[:1]
    model.eval()
    memories = model.compute_memories(inputs)
    read = TargetPass(model, memories, inputs.target, inputs.alignment, torch.tensor([0]))
    prefixes = [Prefixes(read, torch.tensor([0]), torch.tensor([last]))]
    steps = IncrementalDecoder(model, memories, [SearchRow([last], [0])], 1, prefixes)

    @torch.inference_mode()
    def work() -> int:
        for step in range(settings.steps):
            states = steps.step(words, torch.tensor([step % 23]), tokens + step, torch.tensor([last]))
            compute_next_logits(model, states, 1.0)
        return settings.steps

    return work


def _measure_memory(settings: Settings, models: dict[str, TranslationModel]) -> list[dict[str, Any]]:
    """Return the peak memory of a training step on one document of each length."""
    rows, sizes = [], _list_sizes(settings)
    with progress("memory of a training step (sizes)", len(sizes)) as bar:
        for labels, kind, tokens in sizes:
            peak = measure_peak_bytes(_update(replace(settings, batch_tokens=tokens), models[kind], tokens))
            rows.append({"step": "memory", **labels, "bytes": peak, "bytes_per_token": peak / tokens})
            bar.advance()
    return rows
