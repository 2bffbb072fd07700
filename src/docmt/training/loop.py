"""The training loop."""

from __future__ import annotations

import logging
import math
import shlex
import time
from contextlib import ExitStack, closing, nullcontext, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from lightning_fabric import Fabric

from docmt.checkpoint.averaging import average_weights, select_updates
from docmt.checkpoint.model_directory import describe_model, find_drafter, find_model, load_model_config, save_model
from docmt.checkpoint.weights import WEIGHTS_FILE, check_shapes, load_weights, read_shapes
from docmt.core.errors import DocmtError
from docmt.core.logging import set_quiet
from docmt.core.progress import progress
from docmt.data import PreparedStore
from docmt.decoding.drafter import check_drafter
from docmt.model import TranslationModel
from docmt.training.distributed import (
    StopRequest,
    start_fabric,
    stop_on_signals,
    sum_over_processes,
    told_of_lost_processes,
    will_lead,
)
from docmt.training.finetune import initialize_from, with_architecture_of
from docmt.training.optimizer import Updater, seed_of
from docmt.training.reporting import RecentUpdates, Tracker, card_of, opening, seconds_left
from docmt.training.run_directory import BestSoFar, RunDirectory, TrainingState, read_state, save_checkpoint
from docmt.training.train_config import CheckpointConfig, TrainConfig
from docmt.training.training_data import TrainingCorpus, ahead, fit_model_config, in_direction
from docmt.training.validation import DevBleu, validation_loss

_log = logging.getLogger(__name__)

_AGREE_EVERY = 10  # updates between looks whether another process was told to stop


@dataclass(frozen=True)
class TrainingResult:
    """How a training ended."""

    run: Path
    model: Path | None
    """the finished model directory; None if the training was interrupted"""
    update: int
    """updates done in all"""
    reason: str
    """why it ended, for people"""
    leads: bool
    """whether this process is the one of several that speaks to people"""

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C or SIGTERM ended it (`resume` goes on)."""
        return self.model is None


def train(config: TrainConfig, resume: bool = False) -> TrainingResult:
    """Train a model in a new run directory, or go on with an interrupted run.

    A run that was killed at any moment goes on from its last checkpoint with the same batches and, on CPU, the same
    numbers to the last bit. One process at a time trains a run: for a second one it is locked.
    Raises DocmtError for what the user can mend.
    """
    kept = config.checkpoints
    if not resume and kept.average == "none" and kept.average_count != CheckpointConfig.average_count:
        raise DocmtError(
            "checkpoints.average_count is set but checkpoints.average is none: choose last or best, or leave it out"
        )
    store = in_direction(PreparedStore.open(config.store), config)
    config = _with_architecture(config, store, resume)
    run = RunDirectory(config.run)
    leads = will_lead()
    with ExitStack() as stack:
        if leads:  # before other processes are started, so that a refusal is told once
            stack.enter_context(run.claimed(config, resume))
        else:
            set_quiet(True)
        try:
            training, stop = _begin(config, store, run, resume, stack)
        except DocmtError:
            if leads:
                run.discard()  # nothing has been trained: the same command, mended, must not find it in its way
            raise
        return training.to_the_end(stop)


def _with_architecture(config: TrainConfig, store: PreparedStore, resume: bool) -> TrainConfig:
    """Return the configuration with the sizes of the model to start from and the vocabulary of the store."""
    model = config.model
    if config.initialize_from is not None:
        # A run that goes on has all of it in its recipe: the model that it began with may be gone by then.
        with suppress(DocmtError) if resume else nullcontext():
            model = with_architecture_of(model, load_model_config(config.initialize_from, encoders=True))
    return replace(config, model=fit_model_config(model, store))


def _begin(
    config: TrainConfig, store: PreparedStore, run: RunDirectory, resume: bool, stack: ExitStack
) -> tuple[Training, StopRequest]:
    """Start all processes, write the run directory and build the training; the stack keeps log and signal handlers."""
    fabric = start_fabric(config)
    corpus = TrainingCorpus(store, config, fabric.global_rank, fabric.world_size)
    stack.enter_context(told_of_lost_processes(fabric, config.run))
    if fabric.is_global_zero:
        run.prepare(config)
        _keep_drafter(run, config, corpus)
    fabric.barrier()
    if fabric.is_global_zero:
        stack.enter_context(run.logging())
    stop = stack.enter_context(stop_on_signals())
    return Training(fabric, config, corpus, run, resume), stop


def _keep_drafter(run: RunDirectory, config: TrainConfig, corpus: TrainingCorpus) -> None:
    """Copy the model that will draft at translation into the run, unless a run that goes on has it already.

    Raises DocmtError where none is named, and for one that cannot draft for this store.
    """
    if corpus.train.drafts is None or (run.last.exists() and run.drafter.is_dir()):
        return
    drafter = config.drafter or config.initialize_from
    if drafter is None:
        raise DocmtError(
            f"the {config.model.system} system reads drafts, but no model is named that writes them at translation: "
            "add --drafter with the model that made those of the store"
        )
    if load_model_config(drafter).system_options.context_spec().drafts:
        drafter = find_drafter(drafter)
    check_drafter(drafter, corpus.tokenizer)
    run.keep_drafter(find_model(drafter))


class Training:
    """A training under way: model, optimiser and state."""

    def __init__(
        self, fabric: Fabric, config: TrainConfig, corpus: TrainingCorpus, run: RunDirectory, resume: bool
    ) -> None:
        """Builds the model and, to resume, loads the last checkpoint if there is one."""
        self.fabric, self.config, self.corpus, self.run = fabric, config, corpus, run
        torch.manual_seed(seed_of(config.seed))
        self.model = TranslationModel(config.model)
        checkpoint = run.last if resume and run.last.exists() else None
        self.state = self._new_state() if checkpoint is None else self._load(checkpoint)
        updates = corpus.updates(self.state.epoch, self.state.position)
        self.updates = ahead(updates) if _lays_out_ahead(fabric.device) else updates
        self.updater = Updater(fabric, config, self.model, self.state.new_weights, checkpoint)
        if fabric.is_global_zero:
            run.cut_metrics(self.state.update)
        self.sums = torch.tensor(
            [self.state.interval.loss, self.state.interval.nll], dtype=torch.float64, device=fabric.device
        )
        self.gradient_norm: torch.Tensor | None = None  # of the last update, where it was measured
        self.tracker = Tracker(run.tensorboard, config.tensorboard, self.state.update)
        self.recent = RecentUpdates(fabric.device)
        self.began = self.state.update, self.state.seconds
        self.epoch_done = 0.0  # share of the epoch
        self.measured = ""  # the last validation, for the progress line
        self.bleu: DevBleu | None = None
        if config.validation.best_by == "d_bleu" and corpus.dev is not None:
            self.bleu = DevBleu(fabric, corpus.dev, corpus.tokenizer, config.validation.beam)

    def to_the_end(self, wish: StopRequest) -> TrainingResult:
        """The loop: updates, with metrics, validations and checkpoints between them, until a limit is reached."""
        config, state = self.config, self.state
        for line in opening(config, self.corpus, self.model, state, self.fabric):
            _log.info("%s", line)
        limit = config.stop.max_steps or None
        with closing(self.updates), progress("training (updates)", limit, done=state.update) as bar:
            while not (reason := self._reason_to_stop(wish)):
                epoch_ended = self._update()
                if state.update % config.log_every == 0:
                    self._record_interval()
                every = config.validation.every
                validated = (state.update % every == 0) if every else epoch_ended
                if validated:
                    self._validate()
                due = state.update % config.checkpoints.every == 0
                if due and self.corpus.dev is None:
                    self._keep_for_average()
                if validated or due:
                    self._save()
                bar.advance(1, self._note(), self._seconds_left())
        finished = not wish.wished
        if finished and state.validated != state.update:
            self._validate()
        if finished and self.corpus.dev is None and state.update not in dict(state.snapshots):
            self._keep_for_average()
        self._save()
        self.tracker.close()
        if finished:
            self._finish(reason)
        else:
            _log.info("interrupted after update %d", state.update)
        model = self.run.model if finished else None
        return TrainingResult(self.run.path, model, state.update, reason, self.fabric.is_global_zero)

    def _update(self) -> bool:
        """One update; returns whether it was the last of its epoch."""
        state, started = self.state, time.monotonic()
        plan, batches = next(self.updates)
        number = state.update + 1
        result = self.updater.update(number, plan, batches, measure_norm=number % self.config.log_every == 0)
        self.sums += result.sums
        self.gradient_norm = result.gradient_norm
        state.update = number
        state.epoch, state.position = (plan.epoch + 1, 0) if plan.ends_epoch else (plan.epoch, plan.position)
        self.epoch_done = state.position / plan.epoch_batches
        seconds = time.monotonic() - started
        self.recent.add(result.sums[0], plan.label_tokens, seconds)
        state.interval.tokens += plan.label_tokens
        state.interval.seconds += seconds
        state.seconds += seconds
        return plan.ends_epoch

    def _reason_to_stop(self, wish: StopRequest) -> str:
        """Why no further update should be made; empty if one should. The same on all processes."""
        stop, state = self.config.stop, self.state
        if stop.max_steps and state.update >= stop.max_steps:
            return _done(state.update, "update")
        if stop.max_epochs and state.epoch >= stop.max_epochs:
            return _done(state.epoch, "epoch")
        if state.best.out_of(stop.patience):
            return f"{state.best.since} validations brought no improvement"
        late = bool(stop.max_minutes) and state.seconds >= 60 * stop.max_minutes
        if self.fabric.world_size > 1:
            if state.update % _AGREE_EVERY:
                return ""
            wished, lates = sum_over_processes(self.fabric, [wish.wished, late])
            wish.wished, late = wished > 0, lates > 0
        if wish.wished:
            return "interrupted"
        return f"{stop.max_minutes:g} minutes are over" if late else ""

    def _record_interval(self) -> None:
        """Writes the means since the last line of metrics and begins a new interval."""
        state = self.state
        loss, nll = (self.sums / state.interval.tokens).tolist()
        self._check_number("loss", loss)
        line = {
            "loss": loss,
            "nll": nll,
            "ppl": math.exp(min(nll, 100)),
            "learning_rate": self.updater.learning_rate(state.update),
        }
        if self.gradient_norm is not None:
            line["gradient_norm"] = self.gradient_norm.item()
        line["tokens_per_second"] = round(state.interval.tokens / max(state.interval.seconds, 1e-9), 1)
        self._add_metrics(line)
        self.sums.zero_()
        state.interval.tokens, state.interval.seconds = 0, 0.0

    def _validate(self) -> None:
        """Measures the model on the dev split and keeps it if it is the best so far, or for the average."""
        state, config, dev = self.state, self.config, self.corpus.dev
        state.validated = state.update
        if dev is None:
            return
        self._check_numbers()
        started = time.monotonic()
        smoothing, entropy = config.objective.label_smoothing, config.validation.entropy
        found = validation_loss(self.fabric, self.model, dev, smoothing, entropy)
        self._check_number("dev loss", found.loss)
        line: dict[str, Any] = {
            "valid_loss": found.loss,
            "valid_nll": found.nll,
            "valid_ppl": math.exp(min(found.nll, 100)),
        }
        score = found.loss
        if self.bleu is not None:
            score = line["valid_d_bleu"] = self.bleu(self.model)
        state.seconds += time.monotonic() - started
        improved = state.best.improves(score, state.update)
        line |= {f"entropy_{kind}": bits for kind, bits in found.entropy.items()}
        self._add_metrics({**line, "best": improved})
        shown = ", ".join(f"{name.removeprefix('valid_')} {line[name]:.4f}" for name in line if "valid_" in name)
        _log.info("update %d: dev %s%s", state.update, shown, " (best)" if improved else "")
        self.measured = f"dev {self._score_name} {score:.3f} (best{'' if improved else f' {state.best.score:.3f}'})"
        if improved:
            self._save_weights(self.run.best)
        self._keep_for_average(score)

    @property
    def _score_name(self) -> str:
        """What models are compared by."""
        return "d-BLEU" if self.state.best.higher_is_better else "loss"

    def _keep_for_average(self, score: float = 0.0) -> None:
        """Keeps the weights if they belong to the average so far, or for later; without a dev split none has a score.

        The best of all measured so far are among those kept: so both choices can be made from these.
        """
        state, keep = self.state, self.config.checkpoints.keep
        state.snapshots = [*state.snapshots, (state.update, score)]
        for_later = state.snapshots[-keep:] if keep else []
        state.snapshots = sorted({*self._averaged(), *for_later})
        if state.update in dict(state.snapshots):
            self._check_numbers()
            self._save_weights(self.run.snapshot(state.update))

    def _averaged(self) -> list[tuple[int, float]]:
        """Those of the kept checkpoints whose mean is to be the final model: update and score."""
        state, checkpoints = self.state, self.config.checkpoints
        return select_updates(
            state.snapshots, checkpoints.average, checkpoints.average_count, state.best.higher_is_better
        )

    def _check_numbers(self) -> None:
        """Raises DocmtError if the training has lost itself: nothing of it may replace a good checkpoint.

        The loss of an update is that of the weights before it, so the weights are looked at, too.
        """
        if self.state.interval.tokens:
            self._check_number("loss", float(self.sums[0]) / self.state.interval.tokens)
        largest = torch.stack([parameter.detach().abs().max() for parameter in self.model.parameters()])
        self._check_number("largest weight", float(largest.max()))

    def _check_number(self, name: str, value: float) -> None:
        if not math.isfinite(value):
            raise DocmtError(
                f"the {name} is {value} by update {self.state.update}: train again with a lower "
                "optimizer.learning_rate, a longer optimizer.warmup or with optimizer.clip_norm"
            )

    def _save(self) -> None:
        """Writes the checkpoint that a resumed run starts from, and then removes weights that are needed no more.

        Raises DocmtError, leaving the last checkpoint as it is, if loss or weights are not numbers any more.
        """
        self._check_numbers()
        state = self.state
        state.interval.loss, state.interval.nll = self.sums.tolist()
        if self.fabric.is_global_zero:
            save_checkpoint(self.run.last, self.updater.tensors(), asdict(state), self._describe)
            self.tracker.flush()
            self.run.remove_snapshots(but={update for update, _ in state.snapshots})
        self.fabric.barrier()

    def _save_weights(self, directory: Path) -> None:
        if self.fabric.is_global_zero:
            weights = {WEIGHTS_FILE: self.updater.weights()}
            save_checkpoint(directory, weights, asdict(self.state), self._describe)

    def _describe(self, folder: Path) -> None:
        """Makes a model directory of a checkpoint."""
        facts = {**self._facts(), "weights": f"those after update {self.state.update} of an unfinished training"}
        describe_model(folder, self.model, self.corpus.tokenizer, card_of(self.config, self.corpus, facts))

    def _facts(self) -> dict[str, Any]:
        state = self.state
        return {"updates": state.update, "epochs": state.epoch, "minutes": round(state.seconds / 60, 1)}

    def _new_state(self) -> TrainingState:
        """That of a training that begins; the model has the weights to start from."""
        start, reverse, new_weights = self.config.initialize_from, self.config.initialize_reverse_from, list[str]()
        if start is not None:
            languages = self.corpus.statistics.languages
            new_weights = initialize_from(self.model, start, self.corpus.tokenizer, reverse, languages)
        return TrainingState(
            best=BestSoFar(higher_is_better=self.config.validation.best_by == "d_bleu"),
            data=self.corpus.fingerprint,
            new_weights=new_weights,
            processes=self.fabric.world_size,
        )

    def _load(self, checkpoint: Path) -> TrainingState:
        """That of a checkpoint, whose weights the model has then."""
        load_weights(self.model, checkpoint / WEIGHTS_FILE)
        state = read_state(checkpoint)
        fingerprint = self.corpus.fingerprint
        if not fingerprint.startswith(state.data):  # runs of earlier versions have that of the training split alone
            what = "drafts or text" if self.corpus.train.drafts is not None else "text"
            split = "dev" if fingerprint.partition("-")[0] == state.data.partition("-")[0] else "training"
            raise DocmtError(
                f"the {split} data in {self.config.store} is not what the run {self.run.path} was started with "
                f"({what}): put the old store back, or start a new run"
            )
        if state.processes != self.fabric.world_size:
            raise DocmtError(
                f"the run {self.run.path} was trained by {state.processes} process(es), not "
                f"{self.fabric.world_size}, which would give its updates other batches: start as many again"
            )
        for update, _ in state.snapshots:  # now, not at the end of the training
            if not (weights := self.run.snapshot(update) / WEIGHTS_FILE).is_file():
                raise DocmtError(f"{weights}, which is kept for an average, is missing: copy the run again")
            check_shapes(self.model.state_dict(), read_shapes(weights), weights)
        return state

    def _add_metrics(self, values: dict[str, Any]) -> None:
        state = self.state
        line = {"update": state.update, "epoch": state.epoch, **values, "seconds": round(state.seconds, 2)}
        if self.fabric.is_global_zero:
            self.run.add_metrics(line)
            self.tracker.add(line)

    def _note(self) -> str:
        """What the progress line shows beside the number of updates."""
        rate = f"learning rate {self.updater.learning_rate(self.state.update):.2g}"
        return ", ".join(part for part in (self.recent.note(), rate, self.measured) if part)

    def _seconds_left(self) -> float | None:
        state, (update, seconds) = self.state, self.began
        return seconds_left(self.config.stop, state, self.epoch_done, (state.update - update, state.seconds - seconds))

    def _finish(self, reason: str) -> None:
        """Writes the final model directory: the best weights, or the average."""
        state, dev = self.state, self.corpus.dev
        self.updater.finish()
        if averaged := [update for update, _ in self._averaged()]:
            paths = [self.run.snapshot(update) / WEIGHTS_FILE for update in averaged]
            self.model.load_state_dict(average_weights(paths))
            chosen = f"mean of the weights after updates {', '.join(map(str, averaged))}"
        elif state.best.score is not None:
            load_weights(self.model, self.run.best / WEIGHTS_FILE)
            chosen = f"best of the validations (update {state.best.update})"
        else:
            chosen = f"the last (update {state.update})"
        facts = {**self._facts(), "ended_because": reason, "weights": chosen}
        scores = []
        if dev is not None:
            found = validation_loss(self.fabric, self.model, dev, self.config.objective.label_smoothing)
            facts["dev_loss_of_this_model"] = f"{found.loss:.4f} (nll {found.nll:.4f} nats a token)"
            if self.bleu is not None:
                score = self.bleu(self.model)
                scores.append({"name": "d-BLEU (dev)", "score": score, "signature": self.bleu.signature})
        if self.fabric.is_global_zero:
            card = card_of(self.config, self.corpus, facts, scores)
            drafter = self.run.drafter if self.corpus.train.drafts is not None else None
            save_model(self.run.model, self.model, self.corpus.tokenizer, card, drafter)
        _log.info("finished: %s; the model is %s", reason, chosen)
        if state.best.score is not None:
            _log.info(
                "best validation: dev %s %.4f after update %d; dev loss of the model: %s",
                *(self._score_name, state.best.score, state.best.update, facts["dev_loss_of_this_model"]),
            )
        _log.info("try: docmt translate %s FILE", shlex.quote(str(self.run.path)))
        self.fabric.barrier()


def _lays_out_ahead(device: torch.device) -> bool:
    """Return whether batches are laid out in a background thread: on a CPU it would only take cores from the update."""
    return device.type != "cpu"


def _done(count: int, what: str) -> str:
    return f"1 {what} is done" if count == 1 else f"{count} {what}s are done"
