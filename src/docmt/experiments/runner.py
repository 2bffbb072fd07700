"""Doing what is left of an experiment: training, going on with what was killed, evaluating."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Thread
from typing import IO, Literal

import torch
import yaml

from docmt.decoding import SearchConfig
from docmt.decoding.config import USUAL_DRAFT_BEAM
from docmt.decoding.draft_store import draft_store
from docmt.errors import DocmtError
from docmt.experiments.plan import NO_DIFFERENCE, Plan, PlannedRun, facts_of_drafts
from docmt.experiments.scores import EvaluationConfig, evaluate_run, is_evaluated
from docmt.files import cannot_write, lock_directory, write_text
from docmt.settings import flat, is_among
from docmt.training import TrainConfig, train
from docmt.training.config import first_difference
from docmt.training.interrupts import stop_on_signals
from docmt.training.run_directory import RunDirectory, read_recipe

State = Literal["done", "trained", "resumable", "missing", "stale"]
ERROR_MARK = "docmt: error: "
INTERRUPTED = 130
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


def reproduce(
    plan: Plan,
    evaluation: EvaluationConfig,
    tell: Callable[[str], object] = lambda line: None,
    after_each: Callable[[dict[Path, str]], object] = lambda failures: None,
) -> dict[Path, str]:
    """Trains and evaluates what is not done yet; returns what failed: directory of the run, and why in a sentence.

    `tell` gets a line at each step, `after_each` what has failed so far whenever a run has ended. A run that failed
    does not stop the others; it is tried again (from its last checkpoint, if it has one) when this is called again.
    Raises KeyboardInterrupt when Ctrl-C or SIGTERM ended a training, which then can be resumed to the last bit, and
    DocmtError at once if another process is working in the same output directory.
    """
    if "LOCAL_RANK" in os.environ:
        raise DocmtError("docmt reproduce starts its processes itself: set --devices instead of using torchrun")
    try:
        plan.output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(plan.output, error) from error
    with lock_directory(plan.output, f"the experiments in {plan.output} are being run"):
        return _do_what_is_left(plan, evaluation, tell, after_each)


def _do_what_is_left(
    plan: Plan,
    evaluation: EvaluationConfig,
    tell: Callable[[str], object],
    after_each: Callable[[dict[Path, str]], object],
) -> dict[Path, str]:
    failures: dict[Path, str] = {}
    trainings = plan.trainings()
    for number, run in enumerate(trainings, 1):
        directory, state = run.config.run, state_of(run, evaluation)
        if state == "done":
            continue
        steps = {"trained": "evaluating", "resumable": "going on with", "missing": "training", "stale": "not using"}
        step = steps[state]
        tell(f"[{number}/{len(trainings)}] {step} {run.title} ({directory.name})")
        try:
            for start in (run.config.initialize_from, run.config.initialize_reverse_from):
                if start in failures:
                    raise DocmtError(f"the run that it starts from, {start.name}, failed")
            if reason := stale(run) if state == "stale" else None:
                raise DocmtError(reason)
            if state != "trained":
                if run.config.model.chosen.needs().drafts:
                    _draft(plan, run.config, failures, tell)
                _train(run.config, resume=state == "resumable")
            evaluate_run(run.config, plan.store, evaluation)
        except (DocmtError, MemoryError, torch.OutOfMemoryError) as error:
            failures[directory] = " ".join(str(error).split()) or "there was not enough memory"
            tell(f"failed: {failures[directory]}")
        after_each(failures)
    return failures


def _draft(plan: Plan, config: TrainConfig, failures: Mapping[Path, str], tell: Callable[[str], object]) -> None:
    """Drafts the store if it has no drafts yet.

    Raises DocmtError where that cannot be done, and for others than the run is named after.
    """
    if plan.store.drafts is not None:
        if facts_of_drafts(plan.store, plan.drafter) != plan.drafts:
            raise DocmtError(
                f"the store {plan.store.directory} has been drafted by another model or in another way meanwhile: give "
                "the same command again to train on these drafts"
            )
        if (made_by := plan.store.drafts.made[0]) != plan.drafter:
            tell(f"reading the drafts that the store {plan.store.directory} has already, by {made_by}")
        return
    if plan.drafter is None:
        raise DocmtError(
            f"the {config.model.system} system reads drafts, but the store {plan.store.directory} has none: let the "
            "variant start from one of single sentences, which then drafts, or run `docmt draft`"
        )
    if plan.drafter in failures:
        raise DocmtError(f"the run that drafts the store, {plan.drafter.name}, failed")
    tell(f"drafting the store {plan.store.directory} with {plan.drafter.name}")
    search = SearchConfig(beam=USUAL_DRAFT_BEAM)
    draft_store(plan.store, plan.drafter, search, device=config.device, precision=config.precision)


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
        arguments = ["--resume", str(config.run), "--data", str(config.data), "--device", config.device]
    else:
        recipe.parent.mkdir(parents=True, exist_ok=True)
        write_text(recipe, yaml.safe_dump(config.to_dict(), sort_keys=False))
        arguments = [str(recipe)]
    command = [sys.executable, "-m", "docmt.cli.main", "train", *arguments]
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
