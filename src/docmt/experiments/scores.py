"""How good a finished run is on the test split of its store."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

from docmt.data import ParallelStore, pack_instances
from docmt.decoding import SearchConfig, Translator, translate_documents
from docmt.decoding.precision import computing_in
from docmt.evaluation import MetricConfig, evaluate_documents
from docmt.files import write_text
from docmt.model_directory import load_model_config, read_json
from docmt.progress import progress
from docmt.training import TrainConfig

SCORES_FILE = "test.json"


@dataclass(frozen=True)
class EvaluationConfig:
    """How runs are evaluated; scores of other settings are computed anew."""

    search: SearchConfig = field(default_factory=SearchConfig)
    metrics: MetricConfig = field(default_factory=MetricConfig)


def stored_scores(run: Path, config: EvaluationConfig) -> dict[str, Any] | None:
    """The scores beside a run, if they are there and of this configuration."""
    path = run / SCORES_FILE
    if not path.exists():
        return None
    found = read_json(path)
    return found["scores"] if found.get("config") == asdict(config) else None


def evaluate_run(run: TrainConfig, test: ParallelStore, config: EvaluationConfig) -> dict[str, Any]:
    """Translates the test split, from token ids as in training, and stores the scores beside the run.

    Returns them as `Evaluation.to_json` does. Where the plain document system gave other numbers of sentences than
    its source has, s-BLEU and chrF are None, as sentences have no partners then.
    """
    device = "cuda" if run.device != "cpu" and torch.cuda.is_available() else "cpu"
    translator = Translator(run.run, device=device, search=config.search, precision=run.precision)
    tokenizer, model = translator.tokenizer, translator.model
    ranges = list(pairwise(test.document_offsets.tolist()))
    sources = [[test.source_sentence(i).tolist() for i in range(first, last)] for first, last in ranges]
    references = [
        tokenizer.decode_batch([test.target_sentence(i).tolist() for i in range(first, last)], "target")
        for first, last in ranges
    ]
    with computing_in(model, run.precision), progress("translating (sentences)", len(test.source_lengths)) as bar:
        found = translate_documents(model, sources, tokenizer.specials, config.search, bar.advance)
    hypotheses = [tokenizer.decode_batch(document[0].sentences, "target") for document in found]
    instances = _instances(run, test) if config.metrics.unit == "instance" else None
    scores = evaluate_documents(hypotheses, references, config.metrics, instances).to_json()
    if miscounted := sum(len(document[0].miscounted) for document in found):
        scores |= {"s_bleu": None, "chrf": None}
        scores["undefined"] = f"{miscounted} instances were given another number of sentences than their source has"
    write_text(run.run / SCORES_FILE, json.dumps({"config": asdict(config), "scores": scores}, indent=2) + "\n")
    return scores


def _instances(run: TrainConfig, test: ParallelStore) -> list[list[tuple[int, int]]]:
    """The instances of every document as in training, in sentences of the document."""
    limit = load_model_config(run.run).instance_tokens
    packed = pack_instances(test.source_lengths, test.target_lengths, test.document_offsets, limit=limit)
    ranges: list[list[tuple[int, int]]] = [[] for _ in test.document_ids]
    for first, last, document in zip(
        packed.first.tolist(), packed.last.tolist(), packed.document.tolist(), strict=True
    ):
        start = int(test.document_offsets[document])
        ranges[document].append((first - start, last - start))
    return ranges
