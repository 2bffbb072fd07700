"""How good a finished run is on the test split of its store."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from docmt.core.errors import DocmtError
from docmt.core.files import checksum_of_file, read_json, write_text
from docmt.core.progress import progress
from docmt.data import ParallelStore, PreparedStore
from docmt.decoding import ContextConfig, SearchConfig, Translator, translate_documents
from docmt.decoding.models import computing_in
from docmt.decoding.scheduler import packed_units, supported
from docmt.evaluation import (
    ContrastiveResult,
    MetricConfig,
    evaluate_documents,
    evaluate_items,
    in_documents,
    in_units,
    read_items,
)
from docmt.evaluation.suites import Item
from docmt.training import TrainConfig
from docmt.training.corpus import in_direction

SCORES_FILE = "test.json"
SUITE_FILE = "suite.json"


@dataclass(frozen=True)
class Suite:
    """A contrastive test set."""

    name: str
    crc32: str
    """of its file"""
    items: Sequence[Item]

    @classmethod
    def read(cls, path: Path) -> Suite:
        """The test set in a file. Raises DocmtError for what is none, and for one without candidates."""
        items = read_items(path)
        if not all(item.candidates for item in items):
            raise DocmtError(f"{path} asks for translations: runs are asked contrastive test sets, with candidates")
        return cls(path.name, checksum_of_file(path), items)

    @property
    def facts(self) -> dict[str, str]:
        """What tells it from others."""
        return {"name": self.name, "crc32": self.crc32}


@dataclass(frozen=True)
class EvaluationConfig:
    """How runs are evaluated; scores of other settings are computed anew."""

    search: SearchConfig = field(default_factory=SearchConfig)
    metrics: MetricConfig = field(default_factory=MetricConfig)
    suite: Suite | None = None
    """what is asked besides, if anything, of the runs that translate in the direction of the store"""
    context: ContextConfig = ContextConfig()

    @property
    def facts(self) -> dict[str, Any]:
        """What scores of translations depend on."""
        return {name: asdict(getattr(self, name)) for name in ("search", "context", "metrics")}

    @property
    def asked(self) -> dict[str, Any] | None:
        """What the answers to the contrastive test set depend on, if there is one."""
        how = {name: getattr(self.search, name) for name in ("temperature", "compatibility")}
        how["context"] = asdict(self.context)
        return None if self.suite is None else {**self.suite.facts, **how}

    def context_of(self, run: TrainConfig) -> ContextConfig:
        """Return the settings that have an effect with the system of a run."""
        return supported(self.context, run.model.chosen)


def stored_scores(run: Path, config: EvaluationConfig) -> dict[str, Any] | None:
    """The scores beside a run, if they are there, whole, and of this configuration."""
    try:
        found = read_json(run / SCORES_FILE)
    except DocmtError:
        return None
    return found.get("scores") if found.get("config") == config.facts else None


def stored_contrastive(run: Path, config: EvaluationConfig) -> ContrastiveResult | None:
    """What a run said to the contrastive test set, if that is there, whole, and of the same set."""
    try:
        found = read_json(run / SUITE_FILE)
        asked = config.asked is not None and found["suite"] == config.asked
        return ContrastiveResult.from_json(found["result"]) if asked else None
    except (DocmtError, KeyError, TypeError, ValueError, AttributeError):
        return None


def is_evaluated(run: TrainConfig, config: EvaluationConfig) -> bool:
    """Whether all that was asked for stands beside a run."""
    asked = config.suite is not None and not run.reverse
    return stored_scores(run.run, config) is not None and (not asked or stored_contrastive(run.run, config) is not None)


def evaluate_run(run: TrainConfig, store: PreparedStore, config: EvaluationConfig) -> None:
    """Scores a run on the test split and asks it the contrastive test set; what stands there already is left."""
    context = config.context_of(run)
    translator = Translator(
        run.run, search=config.search, context=context, device=device_of(run), precision=run.products
    )
    if stored_scores(run.run, config) is None:
        scores = _scores(translator, run, in_direction(store, run).split("test"), config)
        write_text(run.run / SCORES_FILE, json.dumps({"config": config.facts, "scores": scores}, indent=2) + "\n")
    if config.suite is not None and not run.reverse and stored_contrastive(run.run, config) is None:
        result = evaluate_items(translator, config.suite.items)
        written = {"suite": config.asked, "result": result.to_json()}
        write_text(run.run / SUITE_FILE, json.dumps(written, indent=2) + "\n")


def device_of(run: TrainConfig) -> str:
    """Where a run that is trained is evaluated."""
    return "cuda" if run.device != "cpu" and torch.cuda.is_available() else "cpu"


def _scores(translator: Translator, run: TrainConfig, test: ParallelStore, config: EvaluationConfig) -> dict[str, Any]:
    """Translates the test split, from token ids as in training; the scores are as `Evaluation.to_json` has them.

    With unit instance the instances of the split, packed as in training, are translated one by one, as the published
    code does.
    """
    tokenizer, model = translator.tokenizer, translator.model
    metrics = config.metrics
    if run.reverse and metrics.language:  # that of the translations
        metrics = replace(metrics, language=translator.languages[1] or metrics.language)
    sources = test.documents("source")
    references = [tokenizer.decode_batch(document, "target") for document in test.documents("target")]
    instances = None
    if metrics.unit == "instance":
        instances = packed_units(model.config, test.source_lengths, test.target_lengths, test.document_offsets)
    units = in_units(sources, instances)
    drafts, specials = translator.drafts(units), tokenizer.specials
    with computing_in(model, run.products), progress("translating (sentences)", len(test.source_lengths)) as bar:
        found = translate_documents(
            model,
            units,
            specials,
            translator.search,
            context=translator.context,
            on_sentences=bar.advance,
            drafts=drafts,
        )
    best = [ranks[0] for ranks in found]
    hypotheses = in_documents([tokenizer.decode_batch(unit.sentences, "target") for unit in best], instances)
    miscounted = sum(len(unit.miscounted) for unit in best)
    return evaluate_documents(hypotheses, references, metrics, instances, miscounted=miscounted).to_json()
