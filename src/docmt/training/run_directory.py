"""The directory of a training run: recipe, metrics, log, checkpoints with their state, and the final model."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import yaml
from torch import Tensor

from docmt.checkpoint.averaging import select_updates
from docmt.checkpoint.model_directory import DRAFTER_FOLDER, RUN_CHECKPOINTS, RUN_MODEL, copy_model
from docmt.checkpoint.weights import STATE_FILE, save_tensors
from docmt.core.errors import DocmtError, printable
from docmt.core.files import (
    CHECKSUMS_KEY,
    LOCK_FILE,
    atomic_directory,
    atomic_path,
    check_regular,
    file_checksums,
    find_leftovers,
    json_checksum,
    lock_directory,
    read_bytes,
    read_json,
    stored_checksums,
    write_error,
    write_text,
)
from docmt.core.settings import MANY, build, check_number, flatten, names_of, read_yaml, to_mapping
from docmt.training.train_config import TrainConfig, absolute, first_difference

_log = logging.getLogger(__name__)

_STATE = "state"  # the name of the checksum of the state itself, among those of the files
_PLACES = ("store", "initialize_from", "initialize_reverse_from", "drafter")
"""Settings that name what the run was made from."""


@dataclass
class BestSoFar:
    """The best validation score of a run; part of its training state."""

    higher_is_better: bool
    score: float | None = None
    update: int = 0
    """the update after which the best score was measured"""
    since: int = 0
    """validations after that one"""

    def improves(self, score: float, update: int) -> bool:
        """Takes in the score of one more validation; True if it is the best so far (a tie, or no number, is not)."""
        sign = 1 if self.higher_is_better else -1
        if score == score and (self.score is None or sign * score > sign * self.score):
            self.score, self.update, self.since = score, update, 0
            return True
        self.since += 1
        return False

    def out_of(self, patience: int) -> bool:
        """Whether `patience` validations (0 = any number) passed without improvement."""
        return patience > 0 and self.since >= patience


@dataclass
class MetricsInterval:
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
    """fingerprint of training and dev data"""
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
    interval: MetricsInterval = field(default_factory=MetricsInterval)
    snapshots: list[tuple[int, float]] = field(default_factory=list)
    """update and score of the checkpoints that are kept, for the average or for later"""
    new_weights: list[str] = field(default_factory=list)
    """parameters that the model to start from did not have (they may have a learning rate of their own)"""
    processes: int = 1
    """processes that train the run, which an update's batches are shared among"""


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
        described = {**state, CHECKSUMS_KEY: {_STATE: json_checksum(state), **file_checksums(temporary, list(files))}}
        (temporary / STATE_FILE).write_text(json.dumps(described, indent=2) + "\n", encoding="utf-8")


def read_state(directory: Path) -> TrainingState:
    """The state of a checkpoint. Raises DocmtError if it is damaged."""
    path = directory / STATE_FILE
    values = read_json(path)
    sums = stored_checksums(values, path)
    values.pop(CHECKSUMS_KEY, None)
    try:
        state = build(TrainingState, values, path.name)
        for name in ("update", "epoch", "position", "validated"):
            check_number(name, getattr(state, name), (0, MANY))
        if missing := sorted(flatten(to_mapping(state)).keys() - flatten(values).keys()):
            raise DocmtError(f"it has no {missing[0]}")  # without it a run would silently begin something anew
        if sums.get(_STATE, json_checksum(values)) != json_checksum(values):
            raise DocmtError("it is not what its checksum says")
    except DocmtError as error:
        raise DocmtError(
            f"{path} is not understood ({error}): it is damaged or written by another version of docmt; copy the run "
            "directory again"
        ) from error
    return state


def finish_interrupted_swaps(folder: Path) -> None:
    """Mends what a kill in the middle of saving left in `folder`.

    A directory is replaced in two steps (the old one aside, the new one in place): between them only the old one is
    complete, under another name. Half-written ones, files or directories, are removed. For folders that this process
    has locked: nobody else is writing there. Raises DocmtError when the system refuses.
    """
    try:
        # The complete ones last written first: there may be several of one name.
        for leftover in sorted(find_leftovers(folder), key=lambda found: -found.path.lstat().st_mtime):
            leftover.clean_up()
    except OSError as error:
        raise write_error(error.filename or folder, error) from error


class RunDirectory:
    """Paths inside of a run directory, and the files that grow during the run.

    recipe.yaml        the full configuration
    metrics.jsonl      one JSON object for each log interval and each validation
    train.log          what happened, for people
    checkpoints/last   weights, optimiser and state: where a resumed run goes on
    checkpoints/best   weights of the best validation
    checkpoints/update-N   weights kept for an average
    model              the final model; each of these is a complete model directory
    drafter            the model whose drafts they read, if they do; `model` has a copy of its own
    tensorboard        the metrics once more, for TensorBoard
    .lock              which process trains it
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.recipe = path / "recipe.yaml"
        self.metrics = path / "metrics.jsonl"
        self.log = path / "train.log"
        self.checkpoints = path / RUN_CHECKPOINTS
        self.last = self.checkpoints / "last"
        self.best = self.checkpoints / "best"
        self.model = path / RUN_MODEL
        self.drafter = path / DRAFTER_FOLDER
        self.tensorboard = path / "tensorboard"
        self._created: list[Path] = []  # by this process, in this order
        self._earlier_recipe: str | None = None

    def snapshot(self, update: int) -> Path:
        """Where the weights after `update` are kept for the average."""
        return self.checkpoints / f"update-{update}"

    @contextmanager
    def claimed(self, config: TrainConfig, resume: bool) -> Iterator[None]:
        """Check the run and lock it for this process while the block runs; make the directory of a new run.

        Raises DocmtError if another process trains it, if a new run finds something there, and if a run that is to
        go on is not there or trains differently.
        """
        check = partial(self.check_resumable, config) if resume else self._check_new
        check()  # before anything is written
        try:
            self._created += [path for path in (self.path, self.path / LOCK_FILE) if not path.exists()]
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise write_error(self.path, error) from error
        with lock_directory(self.path, f"the run {self.path} is being trained"):
            check()  # another process may have let go of it only now
            yield

    def _check_new(self) -> None:
        """Raises DocmtError if something is there already, but what a start that was killed at once has left."""
        try:
            left = {leftover.path for leftover in find_leftovers(self.path) if leftover.target == self.recipe.name}
            if self.checkpoints.is_dir() and not any(self.checkpoints.iterdir()):
                left.add(self.checkpoints)
            strange = set(self.path.iterdir()) - left - {self.path / LOCK_FILE}
        except FileNotFoundError:
            strange = {self.path} if self.path.is_symlink() else set()
        except (OSError, ValueError) as error:
            raise DocmtError(f"the run directory {str(self.path)!r} cannot be used: {error}; choose another") from error
        if strange:
            hint = f"add --resume {self.path} to go on with it, or " if self.recipe.exists() else ""
            raise DocmtError(f"the run directory {self.path} is there already: {hint}choose another --run")

    def prepare(self, config: TrainConfig) -> None:
        """Write the recipe into a claimed run, and mend what a kill left half-written."""
        try:
            self._created += [path for path in (self.recipe, self.checkpoints, self.drafter) if not path.exists()]
            self.checkpoints.mkdir(parents=True, exist_ok=True)
            for folder in (self.checkpoints, self.path):
                finish_interrupted_swaps(folder)
            if self.recipe.exists():
                self._earlier_recipe = self.recipe.read_text(encoding="utf-8")
            self.write_recipe(config)
        except OSError as error:
            raise write_error(self.path, error) from error

    def discard(self) -> None:
        """Take back what this process has changed, of a run that has not trained yet, as far as that can be done."""
        if self._earlier_recipe is not None:
            with suppress(OSError):
                write_text(self.recipe, self._earlier_recipe)
        for path in reversed(self._created):
            with suppress(OSError):
                if path == self.drafter:
                    shutil.rmtree(path)
                elif path.is_dir():
                    path.rmdir()  # unless somebody else has put something there
                else:
                    path.unlink()

    def check_resumable(self, config: TrainConfig) -> None:
        """Raises DocmtError if there is no run, or one that trains differently."""
        stored = TrainConfig.from_dict(read_recipe(self.recipe, self.path), str(self.recipe))
        if not stored.model.vocabulary_size:
            raise DocmtError(f"{self.recipe} is damaged (its end is missing): restore it from a copy")
        difference = first_difference(stored.to_dict(), config.to_dict())
        if difference is not None:
            raise DocmtError(
                f"the run {self.path} cannot be resumed with another configuration: {difference}; "
                "only stop limits, device, log_every, tensorboard and checkpoints.keep may change"
            )

    def keep_drafter(self, drafter: Path) -> None:
        """Copy the model that drafts into the run. Raises DocmtError if it is damaged."""
        self._created.append(self.drafter)
        with atomic_directory(self.drafter) as temporary:
            copy_model(drafter, temporary)

    def write_recipe(self, config: TrainConfig) -> None:
        """Writes the configuration as YAML, in the order of its fields; it can be read from any folder."""
        places: dict[str, Any] = {name: absolute(path) for name in _PLACES if (path := getattr(config, name))}
        values = replace(config, **places).to_dict()
        write_text(self.recipe, yaml.safe_dump(values, sort_keys=False, allow_unicode=True))

    def add_metrics(self, values: Mapping[str, Any]) -> None:
        """Appends one line to the metrics."""
        try:
            with self.metrics.open("a", encoding="utf-8") as file:
                file.write(json.dumps(values) + "\n")
        except OSError as error:
            raise write_error(self.metrics, error) from error

    def cut_metrics(self, update: int) -> None:
        """Removes what was recorded after `update`, and a last line that a kill left half-written."""
        if not self.metrics.exists():
            return
        *lines, _ = read_bytes(self.metrics, regular=True).split(b"\n")
        kept, damaged = [], 0
        for line in lines:
            try:
                if json.loads(line)["update"] <= update:
                    kept.append(line + b"\n")
            except (ValueError, KeyError, TypeError, RecursionError):
                damaged += 1
        if damaged:
            _log.warning("%s: damaged lines are removed: %d", self.metrics, damaged)
        with atomic_path(self.metrics) as temporary:
            temporary.write_bytes(b"".join(kept))

    def remove_snapshots(self, but: set[int]) -> None:
        """Removes the weights kept for the average, but those after these updates."""
        needed = {self.snapshot(update) for update in but}
        for path in self.checkpoints.glob("update-*"):
            if path not in needed:
                shutil.rmtree(path)

    @contextmanager
    def logging(self) -> Iterator[None]:
        """While the block runs, docmt's log messages are appended to the log file."""
        logger = logging.getLogger("docmt")
        try:
            self._created += [] if self.log.exists() else [self.log]
            handler = _LogFile(self.log, encoding="utf-8", errors="backslashreplace")
        except OSError as error:
            raise write_error(self.log, error) from error
        handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
        level = logger.level
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        try:
            yield
        finally:
            logger.setLevel(level)
            logger.removeHandler(handler)
            with suppress(OSError):  # what a full disk did not take
                handler.close()


class _LogFile(logging.FileHandler):
    """A log for people: lines that a full disk does not take are left out, and no traceback is shown of it.

    What the run cannot do without (metrics, checkpoints) says so itself.
    """

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        pass

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record), allowed="\n\t" if record.exc_info else "")


def read_recipe(path: Path, run: Path) -> dict[str, Any]:
    """The configuration stored in a run. Raises DocmtError if there is none or it is damaged."""
    if not path.exists():
        raise DocmtError(f"there is no run to resume in {run} ({path.name} is missing): leave out --resume")
    check_regular(path)
    try:
        values = read_yaml(path)
    except DocmtError as error:
        raise DocmtError(f"{path} is damaged ({error}): restore it from a copy") from error
    if not isinstance(values, dict):
        raise DocmtError(f"{path} is damaged (no settings in it): restore it from a copy")
    if unknown := sorted(set(flatten(values)) - set(names_of(TrainConfig))):
        raise DocmtError(
            f"{path} has the setting {unknown[0]}, which this version of docmt does not know. Resume the run with the "
            f"version that began it, or start a new run with --initialize-from {run}"
        )
    return values


def kept_checkpoints(run: Path, which: Literal["last", "best"], count: int) -> list[Path]:
    """So many of the checkpoints that a run keeps (`checkpoints.keep`), by time or by score on the dev split.

    Raises DocmtError if it does not keep as many, or has no scores.
    """
    directory = RunDirectory(run)
    if not directory.last.is_dir():
        raise DocmtError(f"{run} is no run directory with checkpoints, from which to take the {which} {count}")
    state = read_state(directory.last)
    if which == "best" and state.best.score is None:
        raise DocmtError(f"the run {run} has no dev split that says which checkpoints are the best: use --last")
    if len(state.snapshots) < count:
        advice = f"train with --checkpoints.keep {count}"
        raise DocmtError(
            f"the run {run} keeps {len(state.snapshots)} checkpoints, and {count} are to be averaged: "
            f"{f'ask for fewer, or {advice}' if state.snapshots else advice}"
        )
    chosen = select_updates(state.snapshots, which, count, state.best.higher_is_better)
    return [directory.snapshot(update) for update, _ in chosen]
