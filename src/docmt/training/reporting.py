"""What a training tells people: opening lines, progress line, TensorBoard and model cards."""

from __future__ import annotations

import logging
import re
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from docmt.checkpoint.model_directory import DRAFTER_FOLDER, ModelCard, load_languages
from docmt.core.errors import DocmtError
from docmt.model import ModelConfig
from docmt.model.linear_attention import DIRECTIONS_SUFFIX
from docmt.training.run_directory import TrainingState
from docmt.training.train_config import StopConfig, TrainConfig
from docmt.training.training_data import Split, TrainingCorpus

_log = logging.getLogger(__name__)
# Parts of layers that all families have; others are called by their names in the model.
_WORDS = {
    "attention.whole": "self-attention over the document",
    "cross.whole": "cross-attention over the document",
    "attention.gate": "gates",
    "cross.gate": "gates",
}
_WINDOW = 20  # updates
_NO_SCALARS = ("update", "epoch", "seconds", "best")


def opening(
    config: TrainConfig, corpus: TrainingCorpus, model: nn.Module, state: TrainingState, fabric: Fabric
) -> Iterator[str]:
    """Lines on model, data, batches and limits of a training that begins or goes on, and on where it computes."""
    sizes = [parameter.numel() for parameter in model.parameters()]
    trained = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    part = "" if trained == sum(sizes) else f", of which {_count(trained)} are trained"
    yield f"training from update {state.update}: {_architecture(config.model)}, {_count(sum(sizes))} weights{part}"
    dev = _amount(corpus.dev) if corpus.dev is not None else "none"
    direction = ", target to source" if config.reverse else ""
    yield f"data {config.store}{direction}: train {_amount(corpus.train)}; dev {dev}"
    accumulate = f" x {config.batches.gradient_accumulation}" if config.batches.gradient_accumulation > 1 else ""
    processes = f", {fabric.world_size} processes" if fabric.world_size > 1 else ""
    mixed = [f"{length:,}" for length in sorted(config.batches.instance_lengths)]
    yield (
        f"an update sees up to {config.batches.batch_tokens:,} tokens{accumulate} on each device, "
        f"{'this' if mixed else 'an'} epoch has {corpus.updates_in(state.epoch):,} updates; "
        f"on {fabric.device}, {config.precision}{processes}"
    )
    if mixed:
        yield f"every stretch of a document draws its limit anew in each epoch: {', '.join(mixed)} tokens"
    yield f"it ends after {_limits(config.stop)}"


def _architecture(model: ModelConfig) -> str:
    encoder = f"{model.encoder_width} and " if model.encoder_width else ""
    family = "" if model.family == "docmt" else f"of family {model.family} ({model.normalization}-norm), "
    return (
        f"{model.system} model {family}of {model.encoder_layers}+{model.decoder_layers} layers, "
        f"width {encoder}{model.width}, "
        f"feed-forward width {model.feed_forward}, {model.heads} heads, vocabulary of {model.vocabulary_size:,}"
    )


def _amount(split: Split) -> str:
    documents, sentences, source, target = split.size
    return f"{documents:,} documents, {sentences:,} sentence pairs, {source:,} and {target:,} tokens"


def _limits(stop: StopConfig) -> str:
    limits = {
        "update(s)": stop.max_steps,
        "epoch(s)": stop.max_epochs,
        "minute(s)": stop.max_minutes,
        "validation(s) without improvement": stop.patience,
    }
    return " or ".join(f"{limit:,.12g} {what}" for what, limit in limits.items() if limit)


def new_weights_in_words(names: Collection[str], model: nn.Module) -> str:
    """How many weights of the model these are and what they are for, part by part: the rest was loaded."""
    tensors = model.state_dict()
    names = [name for name in names if not name.endswith(DIRECTIONS_SUFFIX)]  # which are drawn, and no weights
    total = sum(tensors[name].numel() for name in names)
    loaded = [name for name in tensors if name not in names]
    # A part is the largest module of which nothing was loaded.
    prefixes = {name[: place.start()] for name in loaded for place in re.finditer(r"\.", name)}
    layers: dict[tuple[str, str], set[int]] = {}
    for name in names:
        path = name.split(".")
        size = next(size for size in range(1, len(path) + 1) if ".".join(path[:size]) not in prefixes)
        found = re.fullmatch(r"(\w+)\.(\d+)\.(.+)", ".".join(path[:size]))
        stack, number, part = found.groups() if found else (path[0], None, ".".join(path[1:size]))
        layers.setdefault((stack, part), set()).update([int(number)] if number else [])
    places: dict[str, list[str]] = {}
    for (stack, part), numbers in layers.items():
        place = f"{stack} layer{'s' if len(numbers) > 1 else ''} {_ranges(numbers)}" if numbers else stack
        words = places.setdefault(place, [])
        if part and (word := _WORDS.get(part, part)) not in words:
            words.append(word)
    parts = "; ".join(f"{place} ({', '.join(words)})" if words else place for place, words in places.items())
    return f"{len(names)} new tensors ({_count(total)} weights): {parts}"


def _ranges(numbers: Collection[int]) -> str:
    """Layers for people, counted from 1: {0, 1, 2, 4} -> 1-3, 5."""
    # Numbers that follow each other are as far from their places in the list.
    groups = groupby(enumerate(sorted(numbers)), lambda pair: pair[1] - pair[0])
    runs = [[number for _, number in group] for _, group in groups]
    return ", ".join(f"{run[0] + 1}-{run[-1] + 1}" if len(run) > 1 else str(run[0] + 1) for run in runs)


def _count(number: int) -> str:
    return f"{number / 1e6:.1f} million" if number >= 1e6 else f"{number:,}"


def card_of(
    config: TrainConfig, corpus: TrainingCorpus, facts: dict[str, Any], scores: Sequence[dict[str, Any]] = ()
) -> ModelCard:
    """The card of a model of this run; facts: how far the training had come, and with what result."""
    statistics = corpus.statistics
    data = {"store": f"{config.store.name}{', target to source' if config.reverse else ''}"}
    for name, split in statistics.splits.items():
        data[name] = f"{split.documents} documents, {split.sentences} sentence pairs"
    if corpus.train.drafts is not None:
        data["drafts"] = f"first translations, which it reads; the model in `{DRAFTER_FOLDER}` writes them"
    languages = statistics.languages
    if not any(languages) and config.initialize_from is not None:
        with suppress(DocmtError):  # it may be gone since the training began
            languages = load_languages(config.initialize_from)
    return ModelCard(
        title=config.run.resolve().name,
        source_language=languages[0],
        target_language=languages[1],
        data=data,
        recipe=config.to_dict(),
        training=facts,
        scores=scores,
    )


class RecentUpdates:
    """Loss and speed of the last updates. ModelInput a loss makes a GPU wait, so there it is done once a window."""

    def __init__(self, device: torch.device) -> None:
        self._together = 1 if device.type == "cpu" else _WINDOW  # updates between two readings
        self._read: deque[tuple[float, int, float]] = deque(maxlen=_WINDOW // self._together)
        self._begin()

    def _begin(self) -> None:
        self._loss: Tensor | float = 0.0
        self._updates, self._tokens, self._seconds = 0, 0, 0.0

    def add(self, loss: Tensor, tokens: int, seconds: float) -> None:
        """Takes in an update: its loss [] summed over its label tokens, in nats, and how long it took."""
        self._loss = self._loss + loss
        self._updates, self._tokens, self._seconds = self._updates + 1, self._tokens + tokens, self._seconds + seconds
        if self._updates == self._together:
            self._read.append((float(self._loss), self._tokens, self._seconds))
            self._begin()

    def note(self) -> str:
        """Means over the window, for people; empty before anything is known."""
        loss, tokens, seconds = (sum(column) for column in zip(*self._read, strict=True)) if self._read else (0, 0, 0)
        return f"loss {loss / tokens:.3f}, {tokens / max(seconds, 1e-9):,.0f} tokens/s" if tokens else ""


def seconds_left(stop: StopConfig, state: TrainingState, epoch_done: float, pace: tuple[int, float]) -> float | None:
    """Time until the nearest of the limits that can be foreseen; None where there is none, or nothing to go by.

    epoch_done: share of the current epoch in [0, 1); pace: the last updates and how many seconds they took.
    """
    updates, seconds = pace
    if not updates:
        return None
    each = seconds / updates
    found = []
    if stop.max_steps:
        found.append((stop.max_steps - state.update) * each)
    epochs = state.epoch + epoch_done
    if stop.max_epochs and epochs:
        found.append((stop.max_epochs / epochs - 1) * state.update * each)
    if stop.max_minutes:
        found.append(60 * stop.max_minutes - state.seconds)
    return max(min(found), 0.0) if found else None


class Tracker:
    """Writes lines of metrics as scalars. Trouble with it is told once, and the training goes on without."""

    def __init__(self, folder: Path, wanted: Literal["auto", "true", "false"], update: int) -> None:
        """update: where the run stands; what it wrote beyond that before it was stopped is not shown any more."""
        self._folder, self._update = folder, update
        # Whether it is installed is known at once; loading it takes a while.
        self._on = wanted == "true" or (wanted == "auto" and find_spec("tensorboard") is not None)
        self._writer: Any = None

    def add(self, line: Mapping[str, Any]) -> None:
        """Write the numbers of a line of metrics."""
        with self._at_no_risk():
            if not self._on:
                return
            if self._writer is None:
                from torch.utils.tensorboard import SummaryWriter

                self._writer = SummaryWriter(str(self._folder), purge_step=self._update + 1)
            for name in line:
                if name not in _NO_SCALARS:
                    self._writer.add_scalar(tag_of(name), line[name], line["update"])

    def flush(self) -> None:
        """Make sure that all of it is on the disk: with each checkpoint, as a resumed run goes on from there."""
        self._call("flush")

    def close(self) -> None:
        """End the writing."""
        self._call("close")

    def _call(self, method: str) -> None:
        with self._at_no_risk():
            if self._writer is not None:
                getattr(self._writer, method)()

    @contextmanager
    def _at_no_risk(self) -> Iterator[None]:
        """Whatever goes wrong in the block (not installed, a full disk) ends the writing, and nothing else."""
        try:
            yield
        except Exception as error:
            self._on, self._writer = False, None
            hint = "" if find_spec("tensorboard") else "; install docmt[track]"
            reason = " ".join(str(error).split()) or type(error).__name__
            _log.warning("nothing more is written for TensorBoard (%s)%s", reason, hint)


def tag_of(name: str) -> str:
    """The name of a metric in its group: valid_loss -> dev/loss, entropy_... -> entropy/..., loss -> train/loss."""
    for start, group in (("valid_", "dev/"), ("entropy_", "entropy/")):
        if name.startswith(start):
            return group + name.removeprefix(start)
    return f"train/{name}"
