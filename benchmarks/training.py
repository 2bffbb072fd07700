"""Training speed: whole updates (forward, loss, backward, Adam) through the real `Updater` on random documents."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from benchmarks.measure import Case, Finding, Result, interleave
from benchmarks.sentences import draw_parallel_lengths, draw_words
from docmt.cli.app import keep_freed_memory
from docmt.data import ParallelStore
from docmt.data.store import StoreWriter
from docmt.model import ModelConfig, TranslationModel
from docmt.text import SpecialTokens
from docmt.training import BatchConfig, TrainConfig
from docmt.training.distributed import start_fabric
from docmt.training.optimizer import Updater
from docmt.training.training_corpus import BatchedSplit, UpdatePlan

PRECISIONS: tuple[Literal["float32", "bfloat16"], ...] = ("float32", "bfloat16")
SYSTEMS: tuple[Literal["group", "document"], ...] = ("group", "document")
# How many times as fast as the published code the group system trained where both ran in one run on one machine (base
# size, two cores; docs/contributing/benchmarks), by precision of docmt and tokens of an instance. The published code
# computes in float32. Tokens a second of another processor do not compare, so none are given.
SIDE_BY_SIDE = {"float32": {128: 1.22, 512: 1.67, 2048: 3.39}, "bfloat16": {128: 2.45, 512: 3.44, 2048: 6.32}}


@dataclass(frozen=True)
class Size:
    """Model, tokens of a batch, and targets."""

    name: str
    model: ModelConfig
    batch_tokens: int
    side_by_side: dict[str, dict[int, float]] = field(default_factory=dict)
    """speed over that of the published code in a joint run, by precision and tokens of an instance"""
    least_bfloat16: float | None = None
    """target: tokens a second in bfloat16 at the shortest instances"""


@dataclass(frozen=True)
class Settings:
    """Sizes of the benchmark."""

    sizes: tuple[Size, ...]
    instance_tokens: tuple[int, ...] = (128, 512, 2048)
    rounds: int = 5
    growth: float | None = 1.35
    """target: cost of a token in the longest instances over the shortest"""


def _build_model(**sizes: Any) -> ModelConfig:
    return ModelConfig(system="group", dropout=0.1, **sizes)


FULL = Settings(
    (
        Size("base", _build_model(preset="base", vocabulary_size=30000), batch_tokens=2048, side_by_side=SIDE_BY_SIDE),
        Size(
            "small",
            _build_model(preset="tiny", encoder_layers=3, decoder_layers=3, vocabulary_size=8192),
            batch_tokens=4096,
            least_bfloat16=6000,
        ),
    )
)
QUICK = Settings(
    (
        Size(
            "quick",
            _build_model(
                preset="tiny", width=64, feed_forward=128, encoder_layers=2, decoder_layers=2, vocabulary_size=500
            ),
            batch_tokens=512,
        ),
    ),
    instance_tokens=(64, 256),
    rounds=2,
    growth=None,
)


def run(settings: Settings) -> Result:
    """Return tokens a second of each size, system, precision and instance length at equal tokens a batch."""
    keep_freed_memory()  # as a training does
    timed: list[Case] = []
    findings: list[Finding] = []
    for size in settings.sizes:
        cases = {
            (precision, system, tokens): Case(
                {"size": size.name, "system": system, "precision": precision, "instance_tokens": tokens},
                updates(tokens, settings.rounds),
                settings.rounds,
            )
            for precision, system in product(PRECISIONS, SYSTEMS)
            for updates in [_make_update_factory(size, system, precision)]
            for tokens in settings.instance_tokens
        }
        interleave(f"training, {size.name} size (updates)", list(cases.values()))
        timed += cases.values()
        speeds: dict[tuple[str, int], float] = {
            (precision, tokens): case.tokens_per_second
            for (precision, system, tokens), case in cases.items()
            if system == "group"
        }
        findings += _make_findings(settings, size, speeds)
    return Result(_describe_settings(settings), [case.to_row() for case in timed], findings)


def _make_update_factory(size: Size, system: Any, precision: Any) -> Callable[[int, int], Callable[[], int]]:
    """Return a function that makes updates of one model for an instance length and a number of rounds.

    Every round has its own batch: new lengths give products of new shapes, which cost more the first time.
    """
    model_config = replace(size.model, system=system)
    config = TrainConfig(Path("-"), Path("-"), model_config, precision=precision, device="cpu")
    torch.manual_seed(1)
    updater = Updater(start_fabric(config), config, TranslationModel(model_config))
    number = 0

    def make_updates(tokens: int, rounds: int) -> Callable[[], int]:
        corpus = _Corpus(size, system, tokens, rounds)
        plans = iter(corpus.plans())

        def work() -> int:
            nonlocal number
            number += 1
            plan = next(plans)
            updater.update(number, plan, [corpus.train.build_batch(indices) for indices, _ in plan.batches])
            return plan.label_tokens

        return work

    return make_updates


class _Corpus:
    """The part of a `TrainingCorpus` that an update uses: random documents, each one instance of `tokens` tokens."""

    def __init__(self, size: Size, system: Any, tokens: int, updates: int) -> None:
        self.specials = SpecialTokens(size.model.vocabulary_size)
        # The packing counts the longer side of each sentence, so whole documents need room.
        model = replace(size.model, system=system, instance_tokens=2 * tokens)
        batches = BatchConfig(batch_tokens=size.batch_tokens)
        config = TrainConfig(Path("-"), Path("-"), model, batches)
        generator = np.random.default_rng(tokens)
        with tempfile.TemporaryDirectory() as folder:
            with StoreWriter(Path(folder) / "train", size.model.vocabulary_size) as store:
                for document in range(updates * (size.batch_tokens // tokens)):
                    source, target = (
                        draw_words(lengths, self.specials, generator)
                        for lengths in draw_parallel_lengths(tokens, generator)
                    )
                    store.add(str(document), source, target)
            self.train = BatchedSplit(ParallelStore(Path(folder) / "train"), config, self.specials)

    def plans(self) -> list[UpdatePlan]:
        """Return updates of one batch each, which together use all documents."""
        return [
            UpdatePlan([(indices, 1.0)], self.train.count_label_tokens(indices))
            for indices in self.train.plan.batches_in_epoch(0)
        ]


def _make_findings(settings: Settings, size: Size, speeds: dict[tuple[str, int], float]) -> list[Finding]:
    """Return ratios of the group system; speeds by precision and tokens of an instance."""
    findings = []
    shortest, longest = min(settings.instance_tokens), max(settings.instance_tokens)
    for precision in PRECISIONS:
        label = f"{size.name} group {precision}"
        findings.append(
            Finding(
                f"{label}: cost of a token at {longest} against {shortest}",
                speeds[precision, shortest] / speeds[precision, longest],
                at_most=settings.growth,
            )
        )
        for tokens, ratio in size.side_by_side.get(precision, {}).items():
            text = f"{label}: speed at {tokens}; side by side it was {ratio:g} times the published code's"
            findings.append(Finding(text, speeds[precision, tokens], "tokens/s"))
    if size.least_bfloat16 is not None:
        label = f"{size.name} group bfloat16: speed at {shortest}"
        findings.append(Finding(label, speeds["bfloat16", shortest], "tokens/s", at_least=size.least_bfloat16))
    return findings


def _describe_settings(settings: Settings) -> dict[str, Any]:
    sizes = [
        {"name": size.name, "model": asdict(size.model.resolve()), "batch_tokens": size.batch_tokens}
        for size in settings.sizes
    ]
    lengths = list(settings.instance_tokens)
    return {"sizes": sizes, "instance_tokens": lengths, "rounds": settings.rounds}
