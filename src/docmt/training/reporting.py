"""Messages of a training: start lines, progress line, TensorBoard and model cards."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from lightning_fabric import Fabric
from torch import nn

from docmt.checkpoint.model_directory import DRAFTER_FOLDER, ModelCard, find_model, load_languages
from docmt.checkpoint.model_names import load_licence
from docmt.core.errors import DocmtError
from docmt.model import ModelConfig
from docmt.training.finetune import format_weights
from docmt.training.run_directory import TrainingState
from docmt.training.train_config import StopConfig, TrainConfig
from docmt.training.trained_weights import is_sharded
from docmt.training.training_corpus import BatchedSplit, TrainingCorpus

_log = logging.getLogger(__name__)
_NOT_LOGGED = ("update", "epoch", "seconds", "best")


def describe_start(
    config: TrainConfig, corpus: TrainingCorpus, model: nn.Module, state: TrainingState, fabric: Fabric
) -> Iterator[str]:
    """Yield lines on model, data, batches and limits of a training that starts or resumes."""
    total = sum(parameter.numel() for parameter in model.parameters())
    trained = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    note = "" if trained == total else f", of which {format_weights(trained)} are trained"
    yield f"training from update {state.update}: {_describe_model(config.model)}, {format_weights(total)} weights{note}"
    dev = _describe_split(corpus.dev) if corpus.dev is not None else "none"
    direction = ", target to source" if config.reverse else ""
    yield f"data {config.store}{direction}: train {_describe_split(corpus.train)}; dev {dev}"
    if corpus.train.store.drafts is not None and corpus.train.drafts is None:
        yield "the store has drafts, which this model does not read"
    needed = config.model.system_options.random_start_pairs
    if config.initialize_from is None and corpus.train.size[1] < needed:
        advice = "start from a sentence model with --initialize-from"
        yield f"from random weights, a {config.model.system} model needs {needed:,} sentence pairs or more: {advice}"
    batches = -(-corpus.update_batches // fabric.world_size)
    accumulate = f" x {batches}" if batches > 1 else ""
    processes = f", {fabric.world_size} processes" if fabric.world_size > 1 else ""
    if is_sharded(fabric):
        processes += ", each with a part of the weights (fsdp)" if processes else ", strategy fsdp"
    yield (
        f"an update sees up to {config.batches.batch_tokens:,} tokens{accumulate} on each device, "
        f"an epoch has {corpus.count_updates(state.epoch):,} updates; "
        f"on {fabric.device}, {config.precision}{processes}"
    )
    if corpus.update_batches < fabric.world_size:
        yield f"an update has {corpus.update_batches} batch(es), so only as many of the processes have work"
    yield f"training stops after {_describe_limits(config.stop, validates=corpus.dev is not None)}"


def _describe_model(model: ModelConfig) -> str:
    encoder = f"{model.encoder_width} and " if model.encoder_width else ""
    family = "" if model.family == "docmt" else f"of family {model.family} ({model.normalization}-norm), "
    return (
        f"{model.system} model {family}of {model.encoder_layers}+{model.decoder_layers} layers, "
        f"width {encoder}{model.width}, "
        f"feed-forward width {model.feed_forward}, {model.heads} heads, vocabulary of {model.vocabulary_size:,}"
    )


def _describe_split(split: BatchedSplit) -> str:
    documents, sentences, source, target = split.size
    return f"{documents:,} documents, {sentences:,} sentence pairs, {source:,} and {target:,} tokens"


def _describe_limits(stop: StopConfig, validates: bool) -> str:
    limits = {
        "update(s)": stop.max_steps,
        "epoch(s)": stop.max_epochs,
        "minute(s)": stop.max_minutes,
        "validation(s) without improvement": stop.patience * validates,
    }
    return " or ".join(f"{limit:,.12g} {unit}" for unit, limit in limits.items() if limit)


def build_card(
    config: TrainConfig, corpus: TrainingCorpus, facts: dict[str, Any], scores: Sequence[dict[str, Any]] = ()
) -> ModelCard:
    """Return the model card of this run. facts: progress and results of the training."""
    statistics = corpus.statistics
    data = {"store": f"{config.store.name}{', target to source' if config.reverse else ''}"}
    for name, split in statistics.splits.items():
        data[name] = f"{split.documents} documents, {split.sentences} sentence pairs"
    if corpus.train.drafts is not None:
        data["drafts"] = f"first translations that the model reads; the model in `{DRAFTER_FOLDER}` writes them"
    languages, licence = statistics.languages, ""
    if config.initialize_from is not None:
        with suppress(DocmtError):  # the model may have been deleted since the start
            licence = load_licence(find_model(config.initialize_from))
            languages = languages if any(languages) else load_languages(config.initialize_from)
    return ModelCard(
        title=config.run.resolve().name,
        source_language=languages[0],
        target_language=languages[1],
        data=data,
        recipe=config.to_dict(),
        training=facts,
        scores=scores,
        license=licence,
    )


class TensorBoardLogger:
    """Writer of metrics as TensorBoard scalars. On an error it logs one warning and stops writing."""

    def __init__(self, directory: Path, mode: Literal["auto", "true", "false"], update: int) -> None:
        """update: current update; TensorBoard hides points beyond it that an earlier process wrote."""
        self._directory, self._update = directory, update
        # find_spec is fast; importing tensorboard is slow.
        self._enabled = mode == "true" or (mode == "auto" and find_spec("tensorboard") is not None)
        self._writer: Any = None

    def add(self, line: Mapping[str, Any]) -> None:
        """Write the numbers of a line of metrics."""
        with self._disable_on_error():
            if not self._enabled:
                return
            if self._writer is None:
                from torch.utils.tensorboard import SummaryWriter

                self._writer = SummaryWriter(str(self._directory), purge_step=self._update + 1)
            for name in line:
                if name not in _NOT_LOGGED:
                    self._writer.add_scalar(tensorboard_tag(name), line[name], line["update"])

    def flush(self) -> None:
        """Write buffered points to disk. Called with each checkpoint, as a resumed run continues from it."""
        self._call("flush")

    def close(self) -> None:
        """Close the writer."""
        self._call("close")

    def _call(self, method: str) -> None:
        with self._disable_on_error():
            if self._writer is not None:
                getattr(self._writer, method)()

    @contextmanager
    def _disable_on_error(self) -> Iterator[None]:
        """Stop writing on any error in the block (not installed, a full disk); training continues."""
        try:
            yield
        except Exception as error:
            self._enabled, self._writer = False, None
            hint = "" if find_spec("tensorboard") else "; run pip install '.[track]' where docmt was unpacked"
            reason = " ".join(str(error).split()) or type(error).__name__
            _log.warning("TensorBoard logging has stopped (%s)%s", reason, hint)


def tensorboard_tag(name: str) -> str:
    """Return the tag of a metric: valid_loss -> dev/loss, entropy_x -> entropy/x, loss -> train/loss."""
    for start, group in (("valid_", "dev/"), ("entropy_", "entropy/")):
        if name.startswith(start):
            return group + name.removeprefix(start)
    return f"train/{name}"
