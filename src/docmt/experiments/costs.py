"""What each model of an experiment costs: weights, speed of training and translation, memory for a long document.

All models are measured in one call, in turns, so that their ratios hold on a machine with other work.
"""

from __future__ import annotations

import json
import multiprocessing
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from docmt.checkpoint.model_directory import load_model, load_model_tokenizer
from docmt.core.errors import DocmtError
from docmt.core.files import read_json, write_text
from docmt.core.progress import progress
from docmt.data import PreparedStore
from docmt.decoding import ContextConfig, SearchConfig, Translator, translate_documents
from docmt.decoding.scheduler import select_effective_settings
from docmt.decoding.scoring import score_documents
from docmt.experiments.runs import EvaluationConfig, effective_settings
from docmt.model import TranslationModel
from docmt.model.products import precision_context
from docmt.training import TrainConfig
from docmt.training.distributed import start_fabric
from docmt.training.optimizer import Updater
from docmt.training.training_corpus import TrainingCorpus, select_direction

TURNS, UPDATES, SENTENCES, LONG_DOCUMENT = 3, 3, 40, 8192
"""Turns over all models, and for each turn updates and translated sentences; source tokens of the long document."""
_LONG_SENTENCE = 30


@dataclass(frozen=True)
class Costs:
    """Costs of one model. Speeds are the best of several turns."""

    weights: int
    """number of parameters"""
    training_tokens: float
    """target tokens a second in training"""
    translated_sentences: float
    """sentences a second in translation"""
    long_document: int | None
    """bytes to score a document of `LONG_DOCUMENT` source tokens at once; None: the model cannot"""


def measure_costs(configs: Sequence[TrainConfig], evaluation: EvaluationConfig) -> dict[str, Costs]:
    """Return the costs of trained runs by directory name. configs: as trained, with `run`."""
    best: dict[str, list[float]] = {config.run.name: [0.0, 0.0] for config in configs}
    with progress("measuring costs (models)", TURNS * len(configs)) as bar:
        for _ in range(TURNS):
            for config in configs:
                speeds = (_measure_training(config), _measure_translation(config, evaluation))
                best[config.run.name] = [max(pair) for pair in zip(best[config.run.name], speeds, strict=True)]
                bar.advance()
    costs = {}
    for config in configs:
        model = Translator(config.run, device="cpu").model
        weights = sum(weight.numel() for weight in model.parameters())
        training, translation = best[config.run.name]
        costs[config.run.name] = Costs(weights, training, translation, _measure_memory(config.run))
    return costs


def _measure_training(config: TrainConfig) -> float:
    """Return target tokens a second over a few updates of a new model, after one that is not counted."""
    config = replace(config, freeze="none", device="cpu")
    torch.manual_seed(0)
    corpus = TrainingCorpus(PreparedStore.open(config.store), config)
    updater, updates = (
        Updater(start_fabric(config), config, TranslationModel(config.model)),
        corpus.iterate_updates(0, 0),
    )
    tokens, start = 0, 0.0
    for number in range(1, UPDATES + 2):
        plan, batches = next(updates)
        if number == 2:
            start = time.perf_counter()
        updater.update(number, plan, batches)
        tokens += sum(batch.tokens for batch in batches) if number > 1 else 0
    return tokens / (time.perf_counter() - start)


def _measure_translation(config: TrainConfig, evaluation: EvaluationConfig) -> float:
    """Return translated sentences a second on the first documents of the test split, drafts included."""
    search, context = effective_settings(config, evaluation)
    translator = Translator(config.run, search=search, context=context, device="cpu", precision=config.compute_dtype)
    documents: list[list[list[int]]] = []
    for document in select_direction(PreparedStore.open(config.store), config).split("test").documents("source"):
        documents.append(document[:SENTENCES])
        if sum(map(len, documents)) >= SENTENCES:
            break
    start = time.perf_counter()
    drafts = translator.draft_documents(documents)
    with precision_context(translator.model, config.compute_dtype):
        specials = translator.tokenizer.specials
        translate_documents(translator.model, documents, specials, search, context=context, drafts=drafts)
    return sum(map(len, documents)) / (time.perf_counter() - start)


def _measure_memory(run: Path) -> int | None:
    """Return by how many bytes a process grows at most while it scores the long document; None where it cannot."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_score_long_document, args=(run, sender))
    process.start()
    sender.close()
    result: int | None = None
    with suppress(EOFError):
        result = receiver.recv()
    process.join()
    return result


def _score_long_document(run: Path, sender: Connection) -> None:
    with suppress(DocmtError, MemoryError, OSError):
        torch.set_num_threads(1)
        model, specials = load_model(run), load_model_tokenizer(run).specials
        sentence = [specials.first_word + number for number in range(_LONG_SENTENCE)]
        document = [sentence] * (LONG_DOCUMENT // (_LONG_SENTENCE + 2))
        drafts = [document] if model.system.context_spec().drafts else None
        context = select_effective_settings(ContextConfig(instance_tokens=LONG_DOCUMENT + 1), model.system)
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
        before = _peak_memory()
        score_documents(model, [document], [document], specials, SearchConfig(), context=context, drafts=drafts)
        sender.send(_peak_memory() - before)


def _peak_memory() -> int:
    """Return the largest memory of this process so far, in bytes. Raises OSError where the system has no /proc."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith("VmHWM")).split()[1])


def load_costs(path: Path, runs: Sequence[str], evaluation: EvaluationConfig) -> dict[str, Costs]:
    """Return stored costs, or nothing if they are missing or damaged, of other settings, or without one of the runs."""
    with suppress(DocmtError, KeyError, TypeError):
        stored: Mapping[str, Any] = read_json(path)
        if stored["settings"] == evaluation.translation_settings and set(runs) <= set(stored["costs"]):
            return {name: Costs(**stored["costs"][name]) for name in runs}
    return {}


def save_costs(path: Path, costs: Mapping[str, Costs], evaluation: EvaluationConfig) -> None:
    """Write costs for `load_costs`."""
    content = {
        "settings": evaluation.translation_settings,
        "costs": {name: asdict(each) for name, each in costs.items()},
    }
    write_text(path, json.dumps(content, indent=2) + "\n")
