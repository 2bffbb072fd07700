"""Doing what is left of an experiment: one run after the other, or several at once."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from docmt.core.errors import DocmtError
from docmt.core.files import cannot_write, lock_directory
from docmt.experiments.plan import Plan, PlannedRun
from docmt.experiments.runner import Teller, complete, state_of
from docmt.experiments.scores import EvaluationConfig
from docmt.experiments.workers import Worker, stop, wait_for_one
from docmt.training.distributed import stop_on_signals

AfterEach = Callable[[dict[Path, str]], object]
_LOOK_EVERY = 5.0  # seconds: whether a run that waited for drafts can begin
_STEPS = {"trained": "evaluating", "resumable": "going on with", "missing": "training", "stale": "not using"}


def reproduce(
    plan: Plan,
    evaluation: EvaluationConfig,
    tell: Teller = lambda line: None,
    after_each: AfterEach = lambda failures: None,
    jobs: int = 1,
) -> dict[Path, str]:
    """Trains and evaluates what is not done yet; returns what failed: directory of the run, and why in a sentence.

    `tell` gets a line at each step, `after_each` what has failed so far whenever a run has ended. A run that failed
    does not stop the others; it is tried again (from its last checkpoint, if it has one) when this is called again.
    jobs: how many runs, of one device each, are worked on at the same time; more than one have processes of their own,
    and share the CPU's threads. Raises KeyboardInterrupt when Ctrl-C or SIGTERM ended trainings, which then can be
    resumed to the last bit, and DocmtError at once if another process is working in the same output directory.
    """
    if "LOCAL_RANK" in os.environ:
        raise DocmtError("docmt reproduce starts its processes itself: set --devices instead of using torchrun")
    if jobs < 1:
        raise DocmtError(f"--jobs is {jobs}: give the number of runs to work on at the same time, 1 or more")
    if jobs > 1 and (several := [run for run in plan.trainings() if run.config.devices > 1]):
        raise DocmtError(
            f"--jobs {jobs} is for runs of one device, but {several[0].title} has {several[0].config.devices}: leave "
            "it out, or set devices to 1"
        )
    try:
        plan.output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(plan.output, error) from error
    with lock_directory(plan.output, f"the experiments in {plan.output} are being run"):
        left = _Left(plan, evaluation, tell, after_each)
        return left.in_turn() if jobs == 1 else left.at_once(jobs)


class _Left:
    """What is left to do of an experiment, and what failed of it."""

    def __init__(self, plan: Plan, evaluation: EvaluationConfig, tell: Teller, after_each: AfterEach) -> None:
        self.plan, self.evaluation, self.tell, self.after_each = plan, evaluation, tell, after_each
        self.numbers = {run.config.run: number for number, run in enumerate(plan.trainings(), 1)}
        self.left = [run for run in plan.trainings() if state_of(run, evaluation) != "done"]
        self.failures: dict[Path, str] = {}

    def in_turn(self) -> dict[Path, str]:
        """One run after the other, in this process."""
        for run in self.left:
            self._announce(run)
            self._note(run, complete(self.plan, run, self.evaluation, self.failures, self.tell))
        return self.failures

    def at_once(self, jobs: int) -> dict[Path, str]:
        """So many runs at a time, each in a process of its own, as soon as what it needs is done."""
        working: list[Worker] = []
        with stop_on_signals() as wish:
            try:
                while self.left or working:
                    ready = self._ready([worker.run for worker in working])[: jobs - len(working)]
                    threads = max(1, torch.get_num_threads() // max(1, len(working) + len(ready)))
                    for run in ready:
                        self.left.remove(run)
                        self._announce(run)
                        name = f"[{self._number(run)}]"
                        working.append(Worker(name, threads, self.plan, run, self.evaluation, self.failures))
                    wait_for_one(working, wish, _LOOK_EVERY)
                    for worker in [each for each in working if each.has_ended()]:
                        self._note(worker.run, worker.answer())
                        working.remove(worker)
            finally:
                stop(working)
        return self.failures

    def _ready(self, working: Sequence[PlannedRun]) -> list[PlannedRun]:
        """The runs that are left and wait for nothing; where all wait for each other, the first, which says why."""
        open_ones = [*self.left, *working]
        unfinished = {run.config.run for run in open_ones}
        ready: list[PlannedRun] = []
        for run in self.left:
            needed = {run.config.initialize_from, run.config.initialize_reverse_from}
            if not (needed - {run.config.run}) & unfinished:
                ready.append(run)
        return ready or ([] if working else self.left[:1])

    def _announce(self, run: PlannedRun) -> None:
        step = _STEPS[state_of(run, self.evaluation)]
        name = f"{run.title} ({run.config.run.name})"
        self.tell(f"[{self._number(run)}/{len(self.numbers)}] {step} {name}")

    def _number(self, run: PlannedRun) -> int:
        return self.numbers[run.config.run]

    def _note(self, run: PlannedRun, failure: str | None) -> None:
        """Keeps what became of a run."""
        if failure is not None:
            self.failures[run.config.run] = failure
            self.tell(f"[{self._number(run)}/{len(self.numbers)}] failed: {failure}")
        self.after_each(self.failures)
