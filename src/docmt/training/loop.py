"""Training loop."""

from __future__ import annotations

import logging
import math
import shlex
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing, nullcontext, suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from lightning_fabric import Fabric

from docmt.checkpoint.model_directory import (
    check_drafter,
    describe_model,
    find_drafter,
    find_model,
    load_model_config,
    save_model,
)
from docmt.checkpoint.weights import WEIGHTS_FILE, average_weights, check_shapes, load_weights, read_shapes
from docmt.core.errors import DocmtError
from docmt.core.logging import set_quiet
from docmt.core.progress import progress
from docmt.data import Batch, PreparedStore
from docmt.model import ModelConfig, TranslationModel
from docmt.model.products import multiplies_bfloat16
from docmt.training import distributed
from docmt.training.finetune import adopt_architecture, check_explicit_settings, initialize_from
from docmt.training.objective import find_word_tokens, model_loss
from docmt.training.optimizer import Updater, derive_seed
from docmt.training.reporting import TensorBoardLogger, build_card, describe_start
from docmt.training.run_directory import (
    BestValidation,
    RunDirectory,
    TrainingState,
    read_state,
    save_checkpoint,
    select_updates,
    write_state,
)
from docmt.training.train_config import TrainConfig
from docmt.training.trained_weights import choose_strategy, has_shards, is_sharded, local, save_shards
from docmt.training.training_corpus import TrainingCorpus, fit_model_config, prefetch, select_direction
from docmt.training.validation import DevBleu, choose_alignment, compute_dev_loss

_log = logging.getLogger(__name__)

_STOP_SYNC_INTERVAL = 10  # updates between exchanges of stop requests among processes
_INTERRUPTED = "interrupted"  # the reason after a signal
_UPDATES_PER_NOTE = 20  # between readings of the loss for the progress line on a GPU


@dataclass(frozen=True)
class TrainingResult:
    """Result of a training run."""

    run: Path
    model: Path | None
    """finished model directory, or None if the training was interrupted"""
    update: int
    """number of updates done in all"""
    reason: str
    """readable reason why the training ended"""
    is_main_process: bool
    """True in the one process that prints messages"""

    @property
    def interrupted(self) -> bool:
        """True if Ctrl-C or SIGTERM ended the training; resuming continues it."""
        return self.model is None


def train(config: TrainConfig, resume: bool = False, explicit: Iterable[str] = ()) -> TrainingResult:
    """Train a model in a new run directory, or resume an interrupted run.

    explicit: names of settings that the start model must not replace, such as model.group.gate_bias, even if they are
    at their default.

    A run killed at any moment resumes from its last checkpoint with the same batches. On a CPU it then gives
    bit-identical numbers. The run directory is locked: only one process at a time trains a run.
    Raises DocmtError for errors that the user can fix.
    """
    store = select_direction(PreparedStore.open(config.store), config)
    config = replace(config, model=resolve_model_config(config, store, resume, explicit))
    run = RunDirectory(config.run)
    is_main = distributed.is_main_process()
    with ExitStack() as stack:
        if is_main:  # before other processes start, so that an error is printed once
            stack.enter_context(run.claim(config, resume))
        else:
            set_quiet(True)
        try:
            training, stop = _start(config, store, run, resume, stack)
        except DocmtError:
            if is_main and not resume:
                run.undo_start()  # nothing is trained yet: a corrected command must find no run directory
            raise
        return training.run_until_stopped(stop)


def batches(store: PreparedStore, config: TrainConfig) -> Iterator[Batch]:
    """Yield the batches of the training split in the order of `train(config)`, epoch after epoch, without end.

    They are on the CPU, without word dropout and padding. `config.run` is not used. An update of `train` takes
    `gradient_accumulation` of them from each process, but not over the end of an epoch.
    Raises DocmtError where `train` does, for a store or a start model that does not fit.
    """
    store = select_direction(store, config)
    config = replace(config, model=resolve_model_config(config, store))
    for _, update in TrainingCorpus(store, config).iterate_updates(epoch=0, position=0):
        yield from update


def resolve_model_config(
    config: TrainConfig, store: PreparedStore, resume: bool = False, explicit: Iterable[str] = ()
) -> ModelConfig:
    """Return the architecture with the sizes of the model to start from and the vocabulary of the store."""
    model = config.model
    if config.initialize_from is not None:
        # The recipe of a resumed run has all sizes, and the model that it started from may be gone.
        with suppress(DocmtError) if resume else nullcontext():
            model = adopt_architecture(model, load_model_config(config.initialize_from, encoders=True))
            if not resume:
                check_explicit_settings(config.model, model, config.initialize_from, explicit)
    return fit_model_config(model, store)


def _start(
    config: TrainConfig, store: PreparedStore, run: RunDirectory, resume: bool, stack: ExitStack
) -> tuple[Training, threading.Event]:
    """Start all processes, write the run directory and build the training.

    `stack` gets the log file and the signal handlers.
    """
    processes = distributed.plan_processes(config)
    on_gpu = processes.accelerator == "cuda"
    split = store.split("train")
    corpus_tokens = len(split.source.tokens) + len(split.target.tokens)
    strategy, need = choose_strategy(config, processes.count, processes.devices, on_gpu, corpus_tokens)
    stack.enter_context(distributed.leave_group_of_one())
    fabric = distributed.start_fabric(config, strategy)
    stack.enter_context(distributed.watch_processes(config.run))
    corpus = TrainingCorpus(store, config, fabric.global_rank, fabric.world_size)
    lost = distributed.LostProcessError(distributed.lost_process_message(config.run))
    stack.enter_context(distributed.replace_connection_errors(processes.count, lambda _: lost))
    distributed.check_agreement(fabric, strategy)
    if fabric.is_global_zero:
        run.prepare(config)
        _copy_drafter(run, config, corpus)
    fabric.barrier()
    if fabric.is_global_zero:
        stack.enter_context(run.log_to_file())
    _log.info("each process needs about %s", need)
    if config.compute_dtype == "bfloat16" and not multiplies_bfloat16(fabric.device):
        _log.warning("this processor has no bfloat16 instructions: --precision float32 is faster here")
    stop = stack.enter_context(distributed.stop_on_signals())
    training = Training(fabric, config, corpus, run, resume)
    if fabric.is_global_zero:
        run.write_recipe(config)  # limits may differ from those of an earlier start
    return training, stop


def _copy_drafter(run: RunDirectory, config: TrainConfig, corpus: TrainingCorpus) -> None:
    """Copy the model that writes drafts at translation into the run, unless a resumed run has it already.

    Raises DocmtError if no such model is set, or if it cannot write drafts for this store.
    """
    if corpus.train.drafts is None or (run.last.exists() and run.drafter.is_dir()):
        return
    drafter = config.drafter or config.initialize_from
    if drafter is None:
        raise DocmtError(
            f"this {config.model.system} model needs another one that writes drafts at translation. "
            "Add --initialize-from with the sentence model that wrote the drafts of the store, or --drafter with it to "
            "start from random weights"
        )
    if load_model_config(drafter).system_options.context_spec().drafts:
        reader, drafter = drafter, find_drafter(drafter)
        _log.info("%s reads drafts itself: its draft model %s writes them", reader, drafter)
    check_drafter(drafter, corpus.tokenizer)
    run.copy_drafter(find_model(drafter))


class Training:
    """State of a training in progress: model, optimizer, data and counters."""

    def __init__(
        self, fabric: Fabric, config: TrainConfig, corpus: TrainingCorpus, run: RunDirectory, resume: bool
    ) -> None:
        """Build the model; when resuming, load the last checkpoint if there is one."""
        self.fabric, self.config, self.corpus, self.run = fabric, config, corpus, run
        torch.manual_seed(derive_seed(config.seed))
        sharded = is_sharded(fabric)
        # Of a sharded model, the first process alone has all values, until the updater spreads them.
        with torch.device("meta") if sharded and not fabric.is_global_zero else nullcontext():
            self.model = TranslationModel(config.model)
        checkpoint = run.last if resume and run.last.exists() else None
        build = self._new_state if checkpoint is None else partial(self._load_checkpoint, checkpoint)
        self.state = distributed.first_builds(fabric, build) if sharded else build()
        corpus.update_batches = self.state.processes * config.batches.gradient_accumulation
        updates = corpus.iterate_updates(self.state.epoch, self.state.position)
        self.updates = prefetch(updates) if _uses_prefetching(fabric.device) else updates
        weighted = find_word_tokens(corpus.tokenizer, config.objective.weighted_words)
        self.updater = Updater(fabric, config, self.model, self.state.new_weights, checkpoint, weighted)
        self.weights = self.updater.weights
        interval = self.state.interval
        if fabric.is_global_zero:
            run.truncate_metrics(self.state.update, within_interval=interval.tokens > 0)
        self.sums = torch.tensor([interval.loss, interval.nll], dtype=torch.float64, device=fabric.device)
        self.gradient_norm: torch.Tensor | None = None  # of the last update, if it was measured
        self.tensorboard = TensorBoardLogger(run.tensorboard, config.tensorboard, self.state.update)
        self.loss_note = self.dev_note = ""  # texts for the progress line
        self.bleu: DevBleu | None = None
        if config.validation.best_by == "d_bleu" and corpus.dev is not None:
            self.bleu = DevBleu(fabric, corpus.dev, corpus.tokenizer, config.validation.beam)

    def run_until_stopped(self, stop_request: threading.Event) -> TrainingResult:
        """Run updates with metrics, validations and checkpoints until a limit is reached; write the final model."""
        config, state = self.config, self.state
        for line in describe_start(config, self.corpus, self.model, state, self.fabric):
            _log.info("%s", line)
        limits = config.stop.max_steps, config.stop.max_epochs * self.corpus.count_updates(state.epoch)
        limit = min(filter(None, limits), default=None)
        with closing(self.updates), progress("training (updates)", limit, done=state.update) as bar:
            while not (reason := self._stop_reason(stop_request)):
                epoch_ended = self._update()
                self._note_loss()
                if state.update % config.log_every == 0:
                    self._record_interval()
                    self.sums.zero_()
                    state.interval.tokens, state.interval.seconds = 0, 0.0
                every = config.validation.every
                validated = (state.update % every == 0) if every else epoch_ended
                if validated:
                    self._validate()
                due = state.update % config.checkpoints.every == 0
                if due and self.corpus.dev is None:
                    self._save_snapshot()
                if validated or due:
                    self._save_checkpoint()
                bar.advance(1, self._progress_note())
        if state.interval.tokens:
            self._record_interval()
        finished = reason != _INTERRUPTED
        if finished and state.validated != state.update:
            self._validate()
        if finished and self.corpus.dev is None and state.update not in dict(state.snapshots):
            self._save_snapshot()
        self._save_checkpoint()
        self.tensorboard.close()
        if finished:
            self._finish(reason)
        else:
            _log.info("interrupted after update %d", state.update)
        model = self.run.model if finished else None
        return TrainingResult(self.run.path, model, state.update, reason, self.fabric.is_global_zero)

    def _update(self) -> bool:
        """Make one update. Return True if it was the last of its epoch."""
        state, started = self.state, time.monotonic()
        plan, batches = next(self.updates)
        number = state.update + 1
        measures_norm = number % self.config.log_every == 0
        sums, self.gradient_norm = self.updater.update(number, plan, batches, measures_norm)
        self.sums += sums
        state.update = number
        state.epoch, state.position = (plan.epoch + 1, 0) if plan.ends_epoch else (plan.epoch, plan.position)
        seconds = time.monotonic() - started
        state.interval.tokens += plan.label_tokens
        state.interval.seconds += seconds
        state.seconds += seconds
        return plan.ends_epoch

    def _stop_reason(self, stop_request: threading.Event) -> str:
        """Return why training must stop, or an empty string. All processes get the same answer."""
        stop, state = self.config.stop, self.state
        if stop.max_steps and state.update >= stop.max_steps:
            return _format_done(state.update, "update")
        if stop.max_epochs and state.epoch >= stop.max_epochs:
            return _format_done(state.epoch, "epoch")
        if state.best.exceeds_patience(stop.patience):
            return f"{state.best.since} validations brought no improvement"
        interrupted = stop_request.is_set()
        time_over = bool(stop.max_minutes) and state.seconds >= 60 * stop.max_minutes
        if self.fabric.world_size > 1:
            if state.update % _STOP_SYNC_INTERVAL:
                return ""
            requests, times_over = distributed.sum_over_processes(self.fabric, [interrupted, time_over])
            interrupted, time_over = requests > 0, times_over > 0
        if interrupted:
            return _INTERRUPTED
        return f"{stop.max_minutes:g} minutes are over" if time_over else ""

    def _record_interval(self) -> None:
        """Write the means over the updates of the interval, which goes on if the run is resumed within it."""
        state = self.state
        loss, nll = (self.sums / state.interval.tokens).tolist()
        self._check_finite("loss", loss)
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

    def _validate(self) -> None:
        """Evaluate the model on the dev split; save its weights if they are the best or part of the average."""
        state, config, dev = self.state, self.config, self.corpus.dev
        state.validated = state.update
        if dev is None:
            return
        self._check_training()
        started = time.monotonic()
        loss = self.updater.loss  # of the parts of this process, if the model is sharded
        dev_loss = compute_dev_loss(
            self.fabric, self.model, dev, lambda batch: loss(lambda: batch), config.validation.entropy
        )
        self._check_finite("dev loss", dev_loss.loss)
        line: dict[str, Any] = {
            "valid_loss": dev_loss.loss,
            "valid_nll": dev_loss.nll,
            "valid_ppl": math.exp(min(dev_loss.nll, 100)),
        }
        score = dev_loss.loss
        if self.bleu is not None:
            score = line["valid_d_bleu"] = self.bleu(self.weights.whole_model())
        state.seconds += time.monotonic() - started
        improved = state.best.add_score(score, state.update)
        line |= {f"entropy_{kind}": bits for kind, bits in dev_loss.entropy.items()}
        self._add_metrics({**line, "best": improved})
        scores = ", ".join(f"{name.removeprefix('valid_')} {line[name]:.4f}" for name in line if "valid_" in name)
        _log.info("update %d: dev %s%s", state.update, scores, " (best)" if improved else "")
        self.dev_note = f"dev {self._score_name} {score:.3f} (best{'' if improved else f' {state.best.score:.3f}'})"
        if improved:
            self._save_weights(self.run.best)
        self._save_snapshot(score)

    @property
    def _score_name(self) -> str:
        """Name of the score that selects the best model."""
        return "d-BLEU" if self.state.best.higher_is_better else "loss"

    def _save_snapshot(self, score: float = 0.0) -> None:
        """Save the weights if the average or `checkpoints.keep` needs them. Without a dev split the score is 0.

        Snapshots that neither the chosen average nor `checkpoints.keep` needs are removed.
        """
        state, keep = self.state, self.config.checkpoints.keep
        state.snapshots = [*state.snapshots, (state.update, score)]
        recent = state.snapshots[-keep:] if keep else []
        state.snapshots = sorted({*self._snapshots_to_average(), *recent})
        if state.update in dict(state.snapshots):
            self._check_training()
            self._save_weights(self.run.snapshot_path(state.update))

    def _snapshots_to_average(self) -> list[tuple[int, float]]:
        """Return update and score of the saved snapshots that the final model is the mean of."""
        state, policy = self.state, self.config.checkpoints
        return select_updates(state.snapshots, policy.average, policy.average_count, state.best.higher_is_better)

    def _check_training(self) -> None:
        """Raise DocmtError if loss or weights are not finite, before they replace a good checkpoint.

        The loss belongs to the weights before the update, so the weights are checked, too.
        """
        if self.state.interval.tokens:
            self._check_finite("loss", float(self.sums[0]) / self.state.interval.tokens)
        parts = [local(parameter.detach()) for parameter in self.weights.trainable.values()]
        largest = float(torch.stack([part.abs().max() for part in parts if part.numel()] or [torch.zeros(())]).max())
        if self.weights.is_sharded:
            largest = distributed.sum_over_processes(self.fabric, [largest])[0]
        self._check_finite("largest weight", largest)

    def _check_finite(self, quantity: str, value: float) -> None:
        if not math.isfinite(value):
            raise DocmtError(
                f"the {quantity} is {value} after update {self.state.update}. Train again with a lower "
                "optimizer.learning_rate, a longer optimizer.warmup, or optimizer.clip_norm"
            )

    def _save_checkpoint(self) -> None:
        """Write the checkpoint for resuming, then remove snapshots that are no longer needed.

        Raises DocmtError and keeps the last checkpoint if loss or weights are not finite.
        """
        self._check_training()
        state = self.state
        state.interval.loss, state.interval.nll = self.sums.tolist()
        if self.weights.is_sharded:
            with distributed.shared_directory(self.fabric, self.run.last) as folder:
                save_shards(folder, self.updater.sharded_tensors())
                sums = distributed.share_file_checksums(self.fabric, folder)
                if self.fabric.is_global_zero:
                    write_state(folder, asdict(state), sums)
        elif self.fabric.is_global_zero:
            tensors = self.updater.checkpoint_tensors()
            save_checkpoint(self.run.last, tensors, asdict(state), self._describe_checkpoint)
        if self.fabric.is_global_zero:
            self.tensorboard.flush()
            self.run.remove_snapshots(needed_updates={update for update, _ in state.snapshots})
        self.fabric.barrier()

    def _save_weights(self, directory: Path) -> None:
        if self.weights.is_sharded or self.fabric.is_global_zero:
            merged = self.weights.merged()
        if self.fabric.is_global_zero:
            save_checkpoint(directory, {WEIGHTS_FILE: merged}, asdict(self.state), self._describe_checkpoint)

    def _describe_checkpoint(self, folder: Path) -> None:
        """Write the files that make a checkpoint a model directory."""
        facts = {**self._facts(), "weights": f"those after update {self.state.update} of an unfinished training"}
        describe_model(folder, self.model.config, self.corpus.tokenizer, build_card(self.config, self.corpus, facts))

    def _facts(self) -> dict[str, Any]:
        state = self.state
        return {"updates": state.update, "epochs": state.epoch, "minutes": round(state.seconds / 60, 1)}

    def _new_state(self) -> TrainingState:
        """Return the state of a new training. Loads the weights of `initialize_from` into the model."""
        start, reverse, new_weights = self.config.initialize_from, self.config.initialize_reverse_from, list[str]()
        if start is not None:
            languages = self.corpus.statistics.languages
            new_weights = initialize_from(self.model, start, self.corpus.tokenizer, reverse, languages)
        return TrainingState(
            best=BestValidation(higher_is_better=self.config.validation.best_by == "d_bleu"),
            data=self.corpus.fingerprint,
            new_weights=new_weights,
            processes=self.fabric.world_size,
        )

    def _load_checkpoint(self, checkpoint: Path) -> TrainingState:
        """Load the weights of a checkpoint and return its state."""
        if not has_shards(checkpoint):
            load_weights(self.model, checkpoint / WEIGHTS_FILE)
        state = read_state(checkpoint)
        fingerprint = self.corpus.fingerprint
        if fingerprint != state.data:
            columns = "drafts or text" if self.corpus.train.drafts is not None else "text"
            split = "dev" if fingerprint.partition("-")[0] == state.data.partition("-")[0] else "training"
            raise DocmtError(
                f"the {split} data in {self.config.store} differs from that of the run {self.run.path} "
                f"({columns}). Restore the old store, or start a new run"
            )
        for update, _ in state.snapshots:  # fail now, not at the end of the training
            if not (weights := self.run.snapshot_path(update) / WEIGHTS_FILE).is_file():
                raise DocmtError(f"{weights} is missing, but the average needs it. Copy the run directory again")
            check_shapes(self.model.state_dict(), read_shapes(weights), weights)
        return state

    def _add_metrics(self, values: dict[str, Any]) -> None:
        state = self.state
        line = {"update": state.update, "epoch": state.epoch, **values, "seconds": round(state.seconds, 2)}
        if self.fabric.is_global_zero:
            self.run.add_metrics(line)
            self.tensorboard.add(line)

    def _note_loss(self) -> None:
        """Tell the mean loss and the speed of the interval, which ends after this."""
        interval = self.state.interval
        # Reading the loss makes a GPU wait.
        if self.fabric.device.type == "cpu" or self.state.update % _UPDATES_PER_NOTE == 0:
            speed = interval.tokens / max(interval.seconds, 1e-9)
            self.loss_note = f"loss {float(self.sums[0]) / interval.tokens:.3f}, {speed:,.0f} tokens/s"

    def _progress_note(self) -> str:
        """Return the text beside the number of updates in the progress line."""
        rate = f"learning rate {self.updater.learning_rate(self.state.update):.2g}"
        return ", ".join(part for part in (self.loss_note, rate, self.dev_note) if part)

    def _finish(self, reason: str) -> None:
        """Write the final model directory with the best or the averaged weights."""
        state, dev = self.state, self.corpus.dev
        self.model = self.weights.finish()
        if averaged := [update for update, _ in self._snapshots_to_average()]:
            paths = [self.run.snapshot_path(update) / WEIGHTS_FILE for update in averaged]
            self.model.load_state_dict(average_weights(paths))
            origin = f"mean of the weights after updates {', '.join(map(str, averaged))}"
        elif state.best.score is not None:
            load_weights(self.model, self.run.best / WEIGHTS_FILE)
            origin = f"best of the validations (update {state.best.update})"
        else:
            origin = f"the last (update {state.update})"
        facts = {**self._facts(), "ended_because": reason, "weights": origin}
        scores = []
        if dev is not None:
            measure = partial(model_loss, self.model, smoothing=self.config.objective.label_smoothing)
            dev_loss = compute_dev_loss(self.fabric, self.model, dev, measure)
            facts["dev_loss_of_this_model"] = f"{dev_loss.loss:.4f} (nll {dev_loss.nll:.4f} nats a token)"
            if self.bleu is not None:
                score = self.bleu(self.model)
                scores.append({"name": "d-BLEU (dev)", "score": score, "signature": self.bleu.signature})
        if self.fabric.is_global_zero:
            self._write_model(facts, scores)
        _log.info("finished: %s; the model is %s", reason, origin)
        if state.best.score is not None:
            best = f"{self._score_name} {state.best.score:.4f} after update {state.best.update}"
            _log.info(f"best validation: dev {best}; dev loss of the model: {facts['dev_loss_of_this_model']}")
        _log.info("try: docmt translate %s FILE", shlex.quote(str(self.run.path)))
        self.fabric.barrier()

    def _write_model(self, facts: dict[str, Any], scores: list[dict[str, Any]]) -> None:
        """Write the final model directory, with the layer that aligns words."""
        dev, store = self.corpus.dev, self.corpus.train.store
        card = build_card(self.config, self.corpus, facts, scores)
        drafter = self.run.drafter if self.corpus.train.drafts is not None else None
        alignment = None if dev is None else choose_alignment(self.fabric, self.model, store, dev)
        save_model(self.run.model, self.model, self.corpus.tokenizer, card, drafter, alignment)


def _uses_prefetching(device: torch.device) -> bool:
    """Return True if a background thread prepares batches. On a CPU it would take cores from the update."""
    return device.type != "cpu"


def _format_done(count: int, unit: str) -> str:
    return f"1 {unit} is done" if count == 1 else f"{count} {unit}s are done"
