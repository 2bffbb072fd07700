"""What each model of an experiment costs: weights, speed of training and translation, memory for a long document.

All models are measured in one call, in turns, so that their ratios hold on a machine with other work.
"""

from __future__ import annotations

import json
import multiprocessing
import resource
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from docmt.core.errors import DocmtError
from docmt.core.files import read_json, write_text
from docmt.core.progress import progress
from docmt.data import PreparedStore
from docmt.decoding import ContextConfig, SearchConfig, Translator, translate_documents
from docmt.decoding.ensembles import precision_context
from docmt.decoding.scoring import score_documents
from docmt.model import TranslationModel
from docmt.training import TrainConfig
from docmt.training.distributed import start_fabric
from docmt.training.optimizer import Updater
from docmt.training.training_corpus import TrainingCorpus, select_direction

TURNS, UPDATES, SENTENCES, LONG_DOCUMENT = 3, 3, 40, 8192
"""Turns over all models, and for each turn updates and translated sentences; source tokens of the long document."""


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


def measure_costs(configs: Sequence[TrainConfig], search: SearchConfig) -> dict[str, Costs]:
    """Return the costs of trained runs by directory name.

    configs: as trained, with `run`. search: for translation. Each model is loaded once for each turn.
    """
    best: dict[str, list[float]] = {config.run.name: [0.0, 0.0] for config in configs}
    with progress("measuring costs (models)", TURNS * len(configs)) as bar:
        for _ in range(TURNS):
            for config in configs:
                speeds = (_measure_training(config), _measure_translation(config, search))
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
    config = replace(config, initialize_from=None, initialize_reverse_from=None, freeze="none", device="cpu")
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


def _measure_translation(config: TrainConfig, search: SearchConfig) -> float:
    """Return translated sentences a second on the first documents of the test split."""
    translator = Translator(config.run, search=search, device="cpu", precision=config.compute_dtype)
    documents: list[list[list[int]]] = []
    for document in select_direction(PreparedStore.open(config.store), config).split("test").documents("source"):
        documents.append(document[:SENTENCES])
        if sum(map(len, documents)) >= SENTENCES:
            break
    drafts = translator.draft_documents(documents)
    start = time.perf_counter()
    with precision_context(translator.model, config.compute_dtype):
        translate_documents(translator.model, documents, translator.tokenizer.specials, search, drafts=drafts)
    return sum(map(len, documents)) / (time.perf_counter() - start)


def _measure_memory(run: Path) -> int | None:
    """Return by how many bytes the peak memory of a process grows when it scores the long document."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_score_long_document, args=(run, sender))
    process.start()
    sender.close()
    with suppress(EOFError):
        result: int | None = receiver.recv()
        process.join()
        return result
    process.join()
    return None


def _score_long_document(run: Path, sender: Any) -> None:
    torch.set_num_threads(1)
    translator = Translator(run, device="cpu")
    specials = translator.tokenizer.specials
    sentence = [specials.first_word + number for number in range(30)]
    document = [sentence] * (LONG_DOCUMENT // (len(sentence) + 2))
    drafts = [document] if translator.model.system.context_spec().drafts else None
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        score_documents(
            translator.model,
            [document],
            [document],
            specials,
            SearchConfig(),
            context=ContextConfig(instance_tokens=LONG_DOCUMENT + 1),
            drafts=drafts,
        )
    except (DocmtError, MemoryError):
        sender.send(None)
        return
    sender.send((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)


def load_costs(path: Path, runs: Sequence[str]) -> dict[str, Costs]:
    """Return stored costs, or nothing if they are missing or damaged, or a run is not among them."""
    with suppress(DocmtError, KeyError, TypeError):
        stored: Mapping[str, Any] = read_json(path)["costs"]
        if set(runs) <= set(stored):
            return {name: Costs(**stored[name]) for name in runs}
    return {}


def save_costs(path: Path, costs: Mapping[str, Costs]) -> None:
    """Write costs for `load_costs`."""
    write_text(path, json.dumps({"costs": {name: asdict(each) for name, each in costs.items()}}, indent=2) + "\n")
