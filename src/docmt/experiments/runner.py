"""One run of an experiment: how far it has come, and doing what is left of it: drafting, training, evaluating."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Thread
from typing import IO, Literal

import torch
import yaml

from docmt.core.errors import INTERRUPTED, DocmtError
from docmt.core.files import write_text
from docmt.core.options import flat, is_among
from docmt.experiments.plan import NO_DIFFERENCE, Plan, PlannedRun
from docmt.experiments.scores import EvaluationConfig, evaluate_run, is_evaluated
from docmt.training import TrainConfig, train
from docmt.training.config import first_difference
from docmt.training.distributed import stop_on_signals
from docmt.training.run_directory import RunDirectory, read_recipe

State = Literal["done", "trained", "resumable", "missing", "stale"]
Teller = Callable[[str], object]
ERROR_MARK = "docmt: error: "
_LOOK_EVERY = 0.2  # seconds


def state_of(run: PlannedRun, evaluation: EvaluationConfig) -> State:
    """How far a run has come: done (evaluated), trained, resumable, missing, or stale (trained with other settings)."""
    directory = RunDirectory(run.config.run)
    if directory.model.exists():
        if stale(run) is not None:
            return "stale"
        return "done" if is_evaluated(run.config, evaluation) else "trained"
    return "resumable" if directory.recipe.exists() else "missing"


def stale(run: PlannedRun) -> str | None:
    """Why the model in the run's directory is not what is planned, in a sentence; None if it is.

    Somebody may have gone on with it in another way, or edited its recipe.
    """
    directory = RunDirectory(run.config.run)
    try:
        stored = read_recipe(directory.recipe, directory.path)
        trained = TrainConfig.from_dict(stored, str(directory.recipe)).to_dict()
    except DocmtError as error:
        return f"it is not known how {directory.path} was trained ({error})"
    planned = run.config.to_dict()
    # A setting that its recipe does not have was in effect with a default that nobody knows any more.
    unknown = [name for name in flat(planned) if name not in flat(stored) and not is_among(name, NO_DIFFERENCE)]
    found = first_difference(trained, planned, NO_DIFFERENCE)
    if unknown:
        found = f"{unknown[0]} is not in its recipe"
    if found is None:
        return None
    return f"{directory.path} was trained with other settings ({found}): move it away, and it is trained again"


def complete(
    plan: Plan, run: PlannedRun, evaluation: EvaluationConfig, failures: Mapping[Path, str], tell: Teller
) -> str | None:
    """Trains a run as far as that is left, and evaluates it; returns why that failed in a sentence, None if it did not.

    failures: the runs that failed before it, by directory. Raises KeyboardInterrupt when Ctrl-C or SIGTERM ended the
    training, which then can be resumed to the last bit.
    """
    state = state_of(run, evaluation)
    try:
        for start in (run.config.initialize_from, run.config.initialize_reverse_from):
            if start is not None and start in failures:
                raise DocmtError(f"the run that it starts from, {start.name}, failed")
        if reason := stale(run) if state == "stale" else None:
            raise DocmtError(reason)
        if state != "trained":
            _train(run.config, resume=state == "resumable")
        evaluate_run(run.config, plan.store_of(run.config), evaluation)
    except (DocmtError, MemoryError, torch.OutOfMemoryError) as error:
        return why_of(error)
    return None


def why_of(error: Exception) -> str:
    """Why a run failed, in a line."""
    return " ".join(str(error).split()) or "there was not enough memory"


def _train(config: TrainConfig, resume: bool) -> None:
    """Trains to the end. Raises KeyboardInterrupt if somebody stopped it, and DocmtError if it failed."""
    interrupted = train(config, resume).interrupted if config.devices == 1 else _train_in_processes(config, resume)
    if interrupted:
        raise KeyboardInterrupt


def _train_in_processes(config: TrainConfig, resume: bool) -> bool:
    """Trains by `docmt train`, which starts the processes of several devices as copies of its own command line.

    Returns whether it was interrupted. Raises DocmtError with the sentence that the command failed with.
    """
    recipe = config.run.with_name(f"{config.run.name}.yaml")
    if resume:
        RunDirectory(config.run).check_resumable(config)
        arguments = ["--resume", str(config.run), "--store", str(config.store), "--device", config.device]
    else:
        recipe.parent.mkdir(parents=True, exist_ok=True)
        write_text(recipe, yaml.safe_dump(config.to_dict(), sort_keys=False))
        arguments = [str(recipe)]
    command = [sys.executable, "-m", "docmt.cli.app", "train", *arguments]
    try:
        with stop_on_signals() as wish:
            # In a session of its own, so that Ctrl-C reaches it only once: by the lines below.
            process = subprocess.Popen(
                command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True
            )
            assert process.stderr is not None
            failure: list[str] = []
            reader = Thread(target=_pass_on, args=(process.stderr, failure), daemon=True)
            reader.start()
            while process.poll() is None:
                if wish.wished:
                    process.terminate()
                    process.wait()
                time.sleep(_LOOK_EVERY)
            reader.join()
    finally:
        recipe.unlink(missing_ok=True)
    if process.returncode not in (0, INTERRUPTED):
        raise DocmtError(failure[0] if failure else f"docmt train ended with status {process.returncode}")
    return process.returncode == INTERRUPTED


def _pass_on(lines: IO[str], failure: list[str]) -> None:
    """Copies the standard error of a process to ours; `failure` gets the sentence that it failed with."""
    for line in lines:
        sys.stderr.write(line)
        if line.startswith(ERROR_MARK):
            failure[:] = [line.removeprefix(ERROR_MARK).strip()]
