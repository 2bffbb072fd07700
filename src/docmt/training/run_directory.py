"""The directory of a training run: recipe, metrics, log, checkpoints and the final model."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from docmt.errors import DocmtError
from docmt.files import cannot_write, write_text
from docmt.model_directory import RUN_MODEL
from docmt.training.checkpoints import finish_interrupted_swaps
from docmt.training.config import TrainConfig, first_difference


class RunDirectory:
    """Paths inside of a run directory, and the files that grow during the run.

    recipe.yaml        the full configuration
    metrics.jsonl      one JSON object for each log interval and each validation
    train.log          what happened, for people
    checkpoints/last   weights, optimiser and state: where a resumed run goes on
    checkpoints/best   weights of the best validation
    checkpoints/update-N   weights kept for the average
    model              the final model directory
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.recipe = path / "recipe.yaml"
        self.metrics = path / "metrics.jsonl"
        self.log = path / "train.log"
        self.checkpoints = path / "checkpoints"
        self.last = self.checkpoints / "last"
        self.best = self.checkpoints / "best"
        self.model = path / RUN_MODEL

    def snapshot(self, update: int) -> Path:
        """Where the weights after `update` are kept for the average."""
        return self.checkpoints / f"update-{update}"

    def check_new(self) -> None:
        """Raises DocmtError if something is there already."""
        if self.path.exists() and (not self.path.is_dir() or any(self.path.iterdir())):
            hint = f"add --resume {self.path} to go on with it, or " if self.recipe.exists() else ""
            raise DocmtError(f"the run directory {self.path} is there already: {hint}choose another --run")

    def create(self, config: TrainConfig) -> None:
        """Makes the directory. Raises DocmtError if something is there already."""
        self.check_new()
        try:
            self.checkpoints.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise cannot_write(self.path, error) from error
        self.write_recipe(config)

    def remove(self) -> None:
        """Removes a run that `create` has just made, with all that is in it."""
        shutil.rmtree(self.path)

    def check_resumable(self, config: TrainConfig) -> None:
        """Raises DocmtError if there is no run, or one that trains differently."""
        # Through the dataclasses, so that settings younger than the run have the defaults they had in effect.
        stored = TrainConfig.from_dict(read_recipe(self.recipe, self.path), str(self.recipe))
        if not stored.model.vocabulary_size:
            raise DocmtError(f"{self.recipe} is damaged (its end is missing): restore it from a copy")
        difference = first_difference(stored.to_dict(), config.to_dict())
        if difference is not None:
            raise DocmtError(
                f"the run {self.path} cannot be resumed with another configuration: {difference}; "
                "only stop limits, device and log_every may change"
            )

    def reopen(self, config: TrainConfig) -> None:
        """Prepares to go on. Raises DocmtError if there is no run, or one that trains differently."""
        self.check_resumable(config)
        self.checkpoints.mkdir(exist_ok=True)
        for folder in (self.checkpoints, self.path):
            finish_interrupted_swaps(folder)
        self.write_recipe(config)

    def write_recipe(self, config: TrainConfig) -> None:
        """Writes the configuration as YAML, in the order of its fields."""
        write_text(self.recipe, yaml.safe_dump(config.to_dict(), sort_keys=False, allow_unicode=True))

    def add_metrics(self, values: Mapping[str, Any]) -> None:
        """Appends one line to the metrics."""
        try:
            with self.metrics.open("a", encoding="utf-8") as file:
                file.write(json.dumps(values) + "\n")
        except OSError as error:
            raise cannot_write(self.metrics, error) from error

    def cut_metrics(self, update: int) -> None:
        """Removes what was recorded after `update`, and a last line that a kill left half-written."""
        if not self.metrics.exists():
            return
        kept = []
        for line in self.metrics.read_text(encoding="utf-8").splitlines():
            try:
                if json.loads(line)["update"] <= update:
                    kept.append(line + "\n")
            except (ValueError, KeyError, TypeError):
                continue
        write_text(self.metrics, "".join(kept))

    def remove_snapshots(self, but: set[int]) -> None:
        """Removes the weights kept for the average, but those after these updates."""
        needed = {self.snapshot(update) for update in but}
        for path in self.checkpoints.glob("update-*"):
            if path not in needed:
                shutil.rmtree(path)

    @contextmanager
    def logging(self, enabled: bool = True) -> Iterator[None]:
        """While the block runs, docmt's log messages are appended to the log file (unless not enabled)."""
        if not enabled:
            yield
            return
        logger = logging.getLogger("docmt")
        handler = logging.FileHandler(self.log, encoding="utf-8")
        handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
        level = logger.level
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        try:
            yield
        finally:
            logger.setLevel(level)
            logger.removeHandler(handler)
            handler.close()


def read_recipe(path: Path, run: Path) -> dict[str, Any]:
    """The configuration stored in a run. Raises DocmtError if there is none or it is damaged."""
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise DocmtError(f"there is no run to resume in {run} ({path.name} is missing): leave out --resume") from error
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise DocmtError(f"{path} is damaged ({error}): restore it from a copy") from error
    if not isinstance(values, dict):
        raise DocmtError(f"{path} is damaged (no settings in it): restore it from a copy")
    return values
