"""How good a finished run is on the test split of its store."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from docmt.data import ParallelStore
from docmt.decoding import SearchConfig, Translator, translate_documents
from docmt.decoding.precision import computing_in
from docmt.decoding.task import packed_units
from docmt.errors import DocmtError
from docmt.evaluation import MetricConfig, evaluate_documents, in_documents, in_units
from docmt.files import read_json, write_text
from docmt.progress import progress
from docmt.training import TrainConfig

SCORES_FILE = "test.json"


@dataclass(frozen=True)
class EvaluationConfig:
    """How runs are evaluated; scores of other settings are computed anew."""

    search: SearchConfig = field(default_factory=SearchConfig)
    metrics: MetricConfig = field(default_factory=MetricConfig)


def stored_scores(run: Path, config: EvaluationConfig) -> dict[str, Any] | None:
    """The scores beside a run, if they are there, whole, and of this configuration."""
    try:
        found = read_json(run / SCORES_FILE)
    except DocmtError:
        return None
    return found.get("scores") if found.get("config") == asdict(config) else None


def evaluate_run(run: TrainConfig, test: ParallelStore, config: EvaluationConfig) -> dict[str, Any]:
    """Translates the test split, from token ids as in training, and stores the scores beside the run.

    Returns them as `Evaluation.to_json` does. With unit instance the instances of the split, packed as in training,
    are translated one by one, as the published code does.
    """
    device = "cuda" if run.device != "cpu" and torch.cuda.is_available() else "cpu"
    translator = Translator(run.run, device=device, search=config.search, precision=run.precision)
    tokenizer, model = translator.tokenizer, translator.model
    sources = test.documents("source")
    references = [tokenizer.decode_batch(document, "target") for document in test.documents("target")]
    instances = None
    if config.metrics.unit == "instance":
        instances = packed_units(model.config, test.source_lengths, test.target_lengths, test.document_offsets)
    units = in_units(sources, instances)
    drafts, specials = translator.drafts(units), tokenizer.specials
    with computing_in(model, run.precision), progress("translating (sentences)", len(test.source_lengths)) as bar:
        found = translate_documents(model, units, specials, config.search, bar.advance, drafts)
    best = [ranks[0] for ranks in found]
    hypotheses = in_documents([tokenizer.decode_batch(unit.sentences, "target") for unit in best], instances)
    miscounted = sum(len(unit.miscounted) for unit in best)
    scores = evaluate_documents(hypotheses, references, config.metrics, instances, miscounted=miscounted).to_json()
    write_text(run.run / SCORES_FILE, json.dumps({"config": asdict(config), "scores": scores}, indent=2) + "\n")
    return scores
