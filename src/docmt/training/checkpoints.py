"""The state of a training run on disk: weights, optimiser, and where it stands. Nothing is ever pickled."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from docmt.checkpoint.weights import STATE_FILE, read_weights, save_tensors
from docmt.core.checksums import ENTRY, checksum_of, checksums, recorded
from docmt.core.errors import DocmtError
from docmt.core.files import atomic_directory, cannot_write, find_leftovers, read_json
from docmt.core.settings import MANY, build, check_number
from docmt.training.early_stopping import BestSoFar

OPTIMIZER_FILE = "optimizer.safetensors"
_STATE = "state"  # the name of the checksum of the state itself, among those of the files
# What every state has. Without one of these a run would silently begin something anew.
_NEEDED = {
    "": {"best", "data", "update", "epoch", "position", "seconds", "validated", "interval", "snapshots", "new_weights"},
    "best": {"higher_is_better", "score", "update", "since"},
    "interval": {"loss", "nll", "tokens", "seconds"},
}


@dataclass
class Interval:
    """Sums over the updates since the last line of metrics."""

    loss: float = 0.0
    """label-smoothed loss in nats, summed over tokens"""
    nll: float = 0.0
    """negative log-likelihood in nats, summed over tokens"""
    tokens: int = 0
    """label tokens"""
    seconds: float = 0.0
    """time in updates, without validations"""


@dataclass
class TrainingState:
    """Where a run stands, besides weights and optimiser. Random numbers need no state: each update has its seed."""

    best: BestSoFar
    data: str = ""
    """fingerprint of the training data"""
    update: int = 0
    """updates done"""
    epoch: int = 0
    """the current epoch, from 0"""
    position: int = 0
    """batches of the epoch that are done"""
    seconds: float = 0.0
    """training time so far, resumed runs included"""
    validated: int = 0
    """the update after which the last validation was"""
    interval: Interval = field(default_factory=Interval)
    snapshots: list[tuple[int, float]] = field(default_factory=list)
    """update and score of the checkpoints that are kept, for the average or for later"""
    new_weights: list[str] = field(default_factory=list)
    """parameters that the model to start from did not have (they may have a learning rate of their own)"""
    processes: int = 0
    """processes that train the run, which an update's batches are shared among; 0: earlier versions did not say"""


def save_checkpoint(
    directory: Path,
    files: Mapping[str, Mapping[str, Tensor]],
    state: Mapping[str, Any],
    describe: Callable[[Path], object] = lambda folder: None,
) -> None:
    """Writes tensors (by file, then by name) and state; `directory` is replaced at once or not at all.

    describe: writes into the folder what makes a model directory of it (config, tokenizer, card).
    Raises DocmtError when it cannot be written; the previous checkpoint then still stands.
    """
    with atomic_directory(directory) as temporary:
        for name, tensors in files.items():
            save_tensors(temporary / name, tensors)
        describe(temporary)
        described = {**state, ENTRY: {_STATE: checksum_of(state), **checksums(temporary, list(files))}}
        (temporary / STATE_FILE).write_text(json.dumps(described, indent=2) + "\n", encoding="utf-8")


def read_state(directory: Path) -> TrainingState:
    """The state of a checkpoint. Raises DocmtError if it is damaged."""
    path = directory / STATE_FILE
    values = read_json(path)
    sums = recorded(values, path)
    values.pop(ENTRY, None)
    try:
        state = build(TrainingState, values, path.name)
        for name in ("update", "epoch", "position", "validated"):
            check_number(name, getattr(state, name), (0, MANY))
        for group, needed in _NEEDED.items():
            if missing := sorted(needed - set(values[group] if group else values)):
                raise DocmtError(f"it has no {f'{group}.' if group else ''}{missing[0]}")
        if sums.get(_STATE, checksum_of(values)) != checksum_of(values):
            raise DocmtError("it is not what its checksum says")
    except DocmtError as error:
        raise DocmtError(
            f"{path} is not understood ({error}): it is damaged or written by another version of docmt; copy the run "
            "directory again"
        ) from error
    return state


def state_values(state: TrainingState) -> dict[str, Any]:
    """The state in types that JSON has."""
    return asdict(state)


def finish_interrupted_swaps(folder: Path) -> None:
    """Mends what a kill in the middle of saving left in `folder`.

    A directory is replaced in two steps (the old one aside, the new one in place): between them only the old one is
    complete, under another name. Half-written ones, files or directories, are removed. For folders that this process
    has locked: nobody else is writing there. Raises DocmtError when the system refuses.
    """
    try:
        # The complete ones last written first: there may be several of one name.
        for leftover in sorted(find_leftovers(folder), key=lambda found: -found.path.lstat().st_mtime):
            leftover.settle()
    except OSError as error:
        raise cannot_write(error.filename or folder, error) from error


def optimizer_tensors(trained: Mapping[str, nn.Parameter], optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """name.key -> tensor for everything the optimiser remembers about each of the parameters that it trains."""
    states = {name: optimizer.state.get(parameter, {}) for name, parameter in trained.items()}
    example: dict[str, Any] = next((state for state in states.values() if state), {})
    tensors = {}
    for name, parameter in trained.items():
        for key, value in example.items():
            # A parameter that no update has reached yet starts from zero: so no entry is ever missing in a whole file.
            zero = torch.zeros_like(parameter if torch.as_tensor(value).dim() else torch.as_tensor(value))
            tensors[f"{name}.{key}"] = torch.as_tensor(states[name].get(key, zero))
    return tensors


def restore_optimizer(trained: Mapping[str, nn.Parameter], optimizer: torch.optim.Optimizer, path: Path) -> None:
    """Puts back what `optimizer_tensors` gave. Raises DocmtError for a file that is damaged or of another model."""
    tensors = read_weights(path)
    for full_name, tensor in tensors.items():
        name, _, key = full_name.rpartition(".")
        parameter = trained.get(name)
        if parameter is None or (tensor.dim() and tensor.shape != parameter.shape):
            raise DocmtError(f"{path} does not fit the model (at {full_name}): copy the run directory again")
        # Cloned, because a memory-mapped file is not aligned as torch's own tensors are, which changes last bits.
        optimizer.state[parameter][key] = tensor.clone().to(parameter.device)
    keys = {full_name.rpartition(".")[2] for full_name in tensors}
    for name in trained:
        for key in sorted(keys):
            if f"{name}.{key}" not in tensors:
                raise DocmtError(f"{path} is not complete ({name}.{key} is missing): copy the run directory again")
