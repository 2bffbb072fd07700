"""Directory of a training run: recipe, metrics, log, checkpoints with their state, and the final model."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import yaml
from torch import Tensor

from docmt.checkpoint.model_directory import DRAFTER_FOLDER, RUN_CHECKPOINTS, RUN_MODEL, RUN_RECIPE, copy_model
from docmt.checkpoint.weights import STATE_FILE, save_tensors
from docmt.core import files
from docmt.core.errors import DocmtError, printable
from docmt.core.settings import MANY, build, check_number, flatten, list_names, read_yaml, to_mapping
from docmt.training.train_config import TrainConfig, absolute_path, first_difference

_log = logging.getLogger(__name__)

_STATE = "state"  # name of the checksum of the state among those of the files
_PATHS = ("store", "initialize_from", "initialize_reverse_from", "drafter")
"""Settings that hold paths."""


@dataclass
class BestValidation:
    """Best validation score of a run; part of its training state."""

    higher_is_better: bool
    score: float | None = None
    update: int = 0
    """update of the best score"""
    since: int = 0
    """number of validations after the best one"""

    def add_score(self, score: float, update: int) -> bool:
        """Add the score of a validation. Return True if it is the best so far (not for a tie or NaN)."""
        sign = 1 if self.higher_is_better else -1
        if score == score and (self.score is None or sign * score > sign * self.score):
            self.score, self.update, self.since = score, update, 0
            return True
        self.since += 1
        return False

    def exceeds_patience(self, patience: int) -> bool:
        """Return True if `patience` validations (0 = no limit) passed without improvement."""
        return patience > 0 and self.since >= patience


@dataclass
class MetricsInterval:
    """Sums over the updates since the last metrics line."""

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
    """Progress of a run besides weights and optimizer. Updates have their own seeds, so no generator state is kept."""

    best: BestValidation
    data: str = ""
    """fingerprint of training and dev data"""
    update: int = 0
    """number of updates done"""
    epoch: int = 0
    """current epoch, from 0"""
    position: int = 0
    """number of batches of the epoch that are done"""
    seconds: float = 0.0
    """training time including earlier sessions of the run"""
    validated: int = 0
    """update of the last validation"""
    interval: MetricsInterval = field(default_factory=MetricsInterval)
    snapshots: list[tuple[int, float]] = field(default_factory=list)
    """update and score of the saved snapshots"""
    new_weights: list[str] = field(default_factory=list)
    """parameters that the model to start from did not have; they may have another learning rate"""
    processes: int = 1
    """number of processes at the start of the run; times gradient accumulation, it is the batches of an update"""


def save_checkpoint(
    directory: Path,
    tensors: Mapping[str, Mapping[str, Tensor]],
    state: Mapping[str, Any],
    write_model_files: Callable[[Path], object] = lambda folder: None,
) -> None:
    """Write tensors (by file, then by name) and state. `directory` is replaced completely or not at all.

    write_model_files: writes config, tokenizer and card, which make the folder a model directory.
    Raises DocmtError if writing fails; the previous checkpoint then stays.
    """
    with files.atomic_directory(directory) as temporary:
        for name, contents in tensors.items():
            save_tensors(temporary / name, contents)
        write_model_files(temporary)
        write_state(temporary, state, files.file_checksums(temporary, list(tensors)))


def write_state(folder: Path, state: Mapping[str, Any], checksums: Mapping[str, str]) -> None:
    """Write the state of a checkpoint with the checksums of its files (not atomic)."""
    entries = {**state, files.CHECKSUMS_KEY: {_STATE: files.json_checksum(state), **checksums}}
    (folder / STATE_FILE).write_text(json.dumps(entries, indent=2) + "\n", encoding="utf-8")


def read_state(directory: Path) -> TrainingState:
    """Read the state of a checkpoint. Raises DocmtError if it is damaged."""
    path = directory / STATE_FILE
    values = files.read_json(path)
    sums = files.stored_checksums(values, path)
    values.pop(files.CHECKSUMS_KEY, None)
    try:
        state = build(TrainingState, values, path.name)
        for name in ("update", "epoch", "position", "validated"):
            check_number(name, getattr(state, name), (0, MANY))
        if missing := sorted(flatten(to_mapping(state)).keys() - flatten(values).keys()):
            raise DocmtError(f"it has no {missing[0]}")  # a default would silently reset part of the run
        if sums.get(_STATE, files.json_checksum(values)) != files.json_checksum(values):
            raise DocmtError("its checksum does not match")
    except DocmtError as error:
        raise DocmtError(
            f"{path} cannot be read ({error}). It is damaged or written by another version of docmt: copy the run "
            "directory again"
        ) from error
    return state


def finish_interrupted_swaps(folder: Path) -> None:
    """Repair what a kill in the middle of saving left in `folder`.

    A directory is replaced in two steps: the old one is moved aside, then the new one takes its name. Between them only
    the old one is complete, under another name. Half-written files and directories are removed. The caller must have
    locked the folder. Raises DocmtError if the system refuses.
    """
    try:
        # The newest first, as there may be several for one name.
        for leftover in sorted(files.find_leftovers(folder), key=lambda leftover: -leftover.path.lstat().st_mtime):
            leftover.clean_up()
    except OSError as error:
        raise files.write_error(error.filename or folder, error) from error


class RunDirectory:
    """Paths inside of a run directory, and the files that grow during the run.

    recipe.yaml            full configuration
    metrics.jsonl          one JSON object for each log interval, the last one perhaps shorter, and each validation
    train.log              log for people
    checkpoints/last       weights, optimizer and state for resuming; of sharded trainings a file of each process
    checkpoints/best       weights of the best validation
    checkpoints/update-N   weights kept for an average
    model                  final model; this and each checkpoint (but a sharded one) are complete model directories
    drafter                model that writes drafts at translation, if needed; `model` has its own copy
    tensorboard            metrics for TensorBoard
    .lock                  lock of the process that trains the run
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.recipe = path / RUN_RECIPE
        self.metrics = path / "metrics.jsonl"
        self.log = path / "train.log"
        self.checkpoints = path / RUN_CHECKPOINTS
        self.last = self.checkpoints / "last"
        self.best = self.checkpoints / "best"
        self.model = path / RUN_MODEL
        self.drafter = path / DRAFTER_FOLDER
        self.tensorboard = path / "tensorboard"

    def snapshot_path(self, update: int) -> Path:
        """Return the checkpoint directory of the weights after `update`."""
        return self.checkpoints / f"update-{update}"

    @contextmanager
    def claim(self, config: TrainConfig, resume: bool) -> Iterator[None]:
        """Check the run, create the directory of a new run, and lock it while the block runs.

        Raises DocmtError if another process trains it, if a new run would overwrite files, or if a run to resume is
        missing or has another configuration.
        """
        check = partial(self.check_resumable, config) if resume else self._check_new
        check()  # before anything is written
        files.make_directory(self.path)
        with files.lock_directory(self.path, f"the run {self.path} is being trained"):
            check()  # another process may have changed it until now
            yield

    def _check_new(self) -> None:
        """Raise DocmtError if the directory has files, other than those of a start that was killed at once."""
        try:
            leftovers = {each.path for each in files.find_leftovers(self.path) if each.target == self.recipe.name}
            if self.checkpoints.is_dir() and not any(self.checkpoints.iterdir()):
                leftovers.add(self.checkpoints)
            unexpected = set(self.path.iterdir()) - leftovers - {self.path / files.LOCK_FILE}
        except FileNotFoundError:
            unexpected = {self.path} if self.path.is_symlink() else set()
        except (OSError, ValueError) as error:
            raise DocmtError(f"the run directory {str(self.path)!r} cannot be used: {error}; choose another") from error
        if unexpected:
            hint = f"add --resume {self.path} to continue it, or " if self.recipe.exists() else ""
            raise DocmtError(f"the run directory {self.path} already exists: {hint}choose another --run")

    def prepare(self, config: TrainConfig) -> None:
        """Write the recipe into a claimed run that has none, and repair what a kill left half-written."""
        files.make_directory(self.checkpoints)
        for folder in (self.checkpoints, self.path):
            finish_interrupted_swaps(folder)
        if not self.recipe.exists():
            self.write_recipe(config)

    def undo_start(self) -> None:
        """Remove the files of a new run that did not start, as far as possible."""
        for path in (self.recipe, self.log, self.path / files.LOCK_FILE):
            with suppress(OSError):
                path.unlink(missing_ok=True)
        for path in (self.checkpoints, self.drafter):
            shutil.rmtree(path, ignore_errors=True)
        with suppress(OSError):  # fails if others have put files there
            self.path.rmdir()

    def check_resumable(self, config: TrainConfig) -> None:
        """Raise DocmtError if the run is missing or has another configuration."""
        stored = TrainConfig.from_dict(read_recipe(self.recipe, self.path), str(self.recipe))
        if not stored.model.vocabulary_size:
            raise DocmtError(f"{self.recipe} is damaged (its end is missing): restore it from a copy")
        difference = first_difference(stored.to_dict(), config.to_dict())
        if difference is not None:
            raise DocmtError(
                f"the run {self.path} cannot be resumed with another configuration: {difference}; "
                "only stop limits, device(s), strategy, cpu_offload, activation_checkpointing, log_every, tensorboard, "
                "checkpoints.keep and the store's path may change"
            )

    def copy_drafter(self, drafter: Path) -> None:
        """Copy the model that writes drafts into the run. Raises DocmtError if it is damaged."""
        with files.atomic_directory(self.drafter) as temporary:
            copy_model(drafter, temporary)

    def write_recipe(self, config: TrainConfig) -> None:
        """Write the configuration as YAML, in field order and with absolute paths."""
        paths: dict[str, Any] = {name: absolute_path(path) for name in _PATHS if (path := getattr(config, name))}
        values = replace(config, **paths).to_dict()
        files.write_text(self.recipe, yaml.safe_dump(values, sort_keys=False, allow_unicode=True))

    def add_metrics(self, values: Mapping[str, Any]) -> None:
        """Append one line to the metrics."""
        with files.writing(self.metrics), self.metrics.open("a", encoding="utf-8") as file:
            file.write(json.dumps(values) + "\n")

    def truncate_metrics(self, update: int, within_interval: bool) -> None:
        """Remove metrics after `update`, and damaged lines such as a half-written last one.

        within_interval: remove the means of an interval that ended with this update, too, as it goes on.
        """
        if not self.metrics.exists():
            return
        *lines, _ = files.read_bytes(self.metrics, regular=True).split(b"\n")
        valid_lines, damaged = [], 0
        for line in lines:
            try:
                values = json.loads(line)
                if values["update"] <= (update - 1 if within_interval and "loss" in values else update):
                    valid_lines.append(line + b"\n")
            except (ValueError, KeyError, TypeError, RecursionError):
                damaged += 1
        if damaged:
            _log.warning("%s: removed damaged lines: %d", self.metrics, damaged)
        with files.atomic_path(self.metrics) as temporary:
            temporary.write_bytes(b"".join(valid_lines))

    def remove_snapshots(self, needed_updates: set[int]) -> None:
        """Remove the snapshots of all other updates."""
        needed = {self.snapshot_path(update) for update in needed_updates}
        for path in self.checkpoints.glob("update-*"):
            if path not in needed:
                shutil.rmtree(path)

    @contextmanager
    def log_to_file(self) -> Iterator[None]:
        """Append log messages of docmt to the log file while the block runs."""
        logger = logging.getLogger("docmt")
        with files.writing(self.log):
            handler = _LogFile(self.log, encoding="utf-8", errors="backslashreplace")
        handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
        level = logger.level
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        try:
            yield
        finally:
            logger.setLevel(level)
            logger.removeHandler(handler)
            with suppress(OSError):  # the disk may be full
                handler.close()


class _LogFile(logging.FileHandler):
    """Log file that drops lines which a full disk refuses, without a traceback.

    Metrics and checkpoints, which the run needs, raise their own errors.
    """

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        pass

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record), allowed="\n\t" if record.exc_info else "")


def read_recipe(path: Path, run: Path) -> dict[str, Any]:
    """Return the configuration stored in a run. Raises DocmtError if it is missing or damaged."""
    if not path.exists():
        raise DocmtError(
            f"there is no run to resume in {run} ({path.name} is missing): name a run directory, or leave out --resume"
        )
    files.check_regular(path)
    try:
        values = read_yaml(path)
    except DocmtError as error:
        raise DocmtError(f"{path} is damaged ({error}): restore it from a copy") from error
    if not isinstance(values, dict):
        raise DocmtError(f"{path} is damaged (no settings in it): restore it from a copy")
    if unknown := sorted(set(flatten(values)) - set(list_names(TrainConfig))):
        raise DocmtError(
            f"{path} has the setting {unknown[0]}, which this version of docmt does not know. Resume the run with the "
            f"version that began it, or start a new run with --initialize-from {run}"
        )
    return values


def select_snapshots(run: Path, criterion: Literal["last", "best"], count: int) -> list[Path]:
    """Return `count` snapshots of a run: the last ones, or those with the best dev scores.

    Raises DocmtError if the run has fewer snapshots (`checkpoints.keep`) or no scores.
    """
    directory = RunDirectory(run)
    if not directory.last.is_dir():
        raise DocmtError(f"{run} has no checkpoints of a run: name the directory of a training run")
    state = read_state(directory.last)
    if criterion == "best" and state.best.score is None:
        raise DocmtError(f"the run {run} has no dev scores to choose the best checkpoints by: use --last")
    if len(state.snapshots) < count:
        advice = f"train with --checkpoints.keep {count}"
        raise DocmtError(
            f"the run {run} has {len(state.snapshots)} checkpoints to average, but {count} are requested: "
            f"{f'ask for fewer, or {advice}' if state.snapshots else advice}"
        )
    selected = select_updates(state.snapshots, criterion, count, state.best.higher_is_better)
    return [directory.snapshot_path(update) for update, _ in selected]


def select_updates(
    scores: Sequence[tuple[int, float]], policy: Literal["none", "last", "best"], count: int, higher_is_better: bool
) -> list[tuple[int, float]]:
    """Return the (update, score) pairs, in order of time, whose weights belong to the average so far."""
    if policy == "none":
        return []
    if policy == "last":
        return list(scores[-count:])
    ranked = sorted(scores, key=lambda pair: -pair[1] if higher_is_better else pair[1])
    return sorted(ranked[:count])
