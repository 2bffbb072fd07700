"""Training and translation speed of every system, as a share of the sentence model's, in one run.

Documents of random words pass through the real update and the real translation, in the order of each system. Drafts are
supplied to systems that read them: translating them, which takes as long as the sentence model's translation, is not
timed.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from benchmarks.decoding import build_never_ending
from benchmarks.measure import Case, Finding, Result, interleave
from benchmarks.sentences import Sentences, draw_parallel_lengths, draw_words
from docmt.cli.app import keep_freed_memory
from docmt.data import ParallelStore
from docmt.data.store import StoreWriter
from docmt.decoding import SearchConfig, translate_documents
from docmt.model import ModelConfig, TranslationModel
from docmt.model.products import Precision, precision_context
from docmt.model.systems import Concat, Hierarchical
from docmt.text import SpecialTokens
from docmt.training import BatchConfig, TrainConfig
from docmt.training.distributed import start_fabric
from docmt.training.optimizer import Updater
from docmt.training.training_corpus import BatchedSplit, UpdatePlan


@dataclass(frozen=True)
class Settings:
    """Sizes of the benchmark."""

    model: ModelConfig
    batch_tokens: int = 4096
    document_tokens: int = 512
    documents: int = 16
    """documents translated at a time"""
    rounds: int = 5
    beam: int = 5
    precision: Precision = "float32"
    least: Mapping[str, float] = field(default_factory=dict)
    """targets: least share of the sentence model's translation speed"""


FULL = Settings(
    ModelConfig(
        system="sentence", preset="tiny", encoder_layers=3, decoder_layers=3, vocabulary_size=8192, dropout=0.1
    ),
    least={"context": 0.8, "multihop, drafts given": 0.5, "hierarchical encoder": 0.8},
)
QUICK = Settings(
    ModelConfig(
        system="sentence",
        preset="tiny",
        width=64,
        feed_forward=128,
        encoder_layers=2,
        decoder_layers=2,
        vocabulary_size=500,
    ),
    batch_tokens=256,
    document_tokens=64,
    documents=2,
    rounds=1,
)
# Words a second of the paper, context against sentence model (Zhang et al. 2018, section 4.5).
PUBLISHED = {"training": 31 / 41, "translation": 364 / 872}


def run(settings: Settings) -> Result:
    """Return target tokens a second of each system, and its share of the sentence model's."""
    keep_freed_memory()
    variants = {
        "sentence": settings.model,
        "document": replace(settings.model, system="document"),
        "group": replace(settings.model, system="group"),
        "context": replace(settings.model, system="context", instance_tokens=128),
        "concat": replace(settings.model, system="concat"),
        "multihop, drafts given": replace(settings.model, system="multihop", instance_tokens=128),
        "hierarchical encoder": _hierarchical_config(settings, "encoder"),
        "hierarchical decoder": _hierarchical_config(settings, "decoder"),
        "concat, prefix": replace(settings.model, system="concat", concat=Concat(window_decoding="prefix")),
    }
    training = {
        name: _make_training_case(settings, name, model) for name, model in variants.items() if "prefix" not in name
    }
    training["context, frozen"] = _make_training_case(settings, "context, frozen", variants["context"], frozen=True)
    translation = {name: _make_translation_case(settings, name, model) for name, model in variants.items()}
    interleave("training of every system (updates)", list(training.values()))
    interleave("translation of every system (searches)", list(translation.values()))
    findings = []
    for task, cases in (("training", training), ("translation", translation)):
        base = cases["sentence"].tokens_per_second
        for name, case in cases.items():
            share = case.tokens_per_second / base
            least = settings.least.get(name) if task == "translation" else None
            published = f" (published: {PUBLISHED[task]:.2f})" if name.startswith("context") else ""
            findings.append(Finding(f"{task}, {name} against sentence{published}", share, at_least=least))
    rows = [case.to_row() for case in (*training.values(), *translation.values())]
    return Result({**asdict(settings), "model": asdict(settings.model.resolve())}, rows, findings)


def _hierarchical_config(settings: Settings, side: Literal["encoder", "decoder"]) -> ModelConfig:
    return replace(settings.model, system="hierarchical", hierarchical=Hierarchical(side=side), instance_tokens=128)


def _draw_documents(settings: Settings, count: int, seed: int) -> list[tuple[Sentences, Sentences]]:
    specials = SpecialTokens(settings.model.vocabulary_size)
    generator = np.random.default_rng(seed)
    pairs = []
    for _ in range(count):
        source, target = draw_parallel_lengths(settings.document_tokens, generator)
        pairs.append((draw_words(source, specials, generator), draw_words(target, specials, generator)))
    return pairs


class _Corpus:
    """The part of a `TrainingCorpus` that an update uses."""

    def __init__(self, settings: Settings, config: TrainConfig) -> None:
        self.specials = SpecialTokens(settings.model.vocabulary_size)
        count = (settings.rounds + 1) * settings.batch_tokens // settings.document_tokens + 1
        with tempfile.TemporaryDirectory() as folder:
            drafts = config.model.system_options.context_spec().drafts
            with StoreWriter(Path(folder) / "train", settings.model.vocabulary_size, drafts) as store:
                for number, (source, target) in enumerate(_draw_documents(settings, count, 1)):
                    # Drafts are as long as the target, which they stand for.
                    store.add(str(number), source, target, target if drafts else None)
            self.train = BatchedSplit(ParallelStore(Path(folder) / "train"), config, self.specials)


def _make_training_case(settings: Settings, name: str, model_config: ModelConfig, frozen: bool = False) -> Case:
    """Return updates of one system; in windows every sentence is predicted, and counts, several times."""
    start = Path("-") if frozen else None
    config = TrainConfig(
        Path("-"),
        Path("-"),
        model_config,
        BatchConfig(batch_tokens=settings.batch_tokens),
        precision=settings.precision,
        device="cpu",
        initialize_from=start,
        freeze="pretrained" if frozen else "none",
    )
    torch.manual_seed(1)
    model = TranslationModel(model_config)
    new = [key for key, _ in model.named_parameters() if model.system.initial_weight(key) is None]
    updater = Updater(start_fabric(config), config, model, new)
    corpus = _Corpus(settings, config)
    # The last batch of an epoch is smaller than the others.
    batches = iter(corpus.train.plan.batches_in_epoch(0)[:-1])
    number = 0

    def work() -> int:
        nonlocal number
        number += 1
        indices = next(batches)
        plan = UpdatePlan([(indices, 1.0)], corpus.train.count_label_tokens(indices))
        updater.update(number, plan, [corpus.train.build_batch(indices)])
        return plan.label_tokens

    return Case({"work": "training", "system": name}, work, settings.rounds)


def _make_translation_case(settings: Settings, name: str, model_config: ModelConfig) -> Case:
    specials = SpecialTokens(settings.model.vocabulary_size)
    model = build_never_ending(model_config, specials, settings.precision)
    # Every sentence is closed at its limit, one word more than its source has.
    config = SearchConfig(beam=settings.beam, max_length_ratio=1.0, max_length_extra=1.0)
    documents, targets = zip(*_draw_documents(settings, settings.documents, 2), strict=True)
    drafts = targets if model_config.system_options.context_spec().drafts else None
    tokens = sum(len(sentence) + 3 for document in documents for sentence in document)

    def work() -> int:
        with precision_context(model, settings.precision):
            translate_documents(model, documents, specials, config, drafts=drafts)
        return tokens

    return Case({"work": "translation", "system": name}, work, max(settings.rounds - 2, 1))
