"""Training data: the batches of each update, and the dev split."""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from docmt.core.errors import DocmtError
from docmt.data import (
    Batch,
    BatchPlan,
    ParallelStore,
    PreparedStore,
    SentenceTokens,
    collate,
    cut_instances,
    instance_lengths,
)
from docmt.data.batches import Indices
from docmt.data.instances import NUM_BOUNDARY_TOKENS, Integers, context_lengths, locate_sentence
from docmt.model import ModelConfig
from docmt.model.families import FAMILIES
from docmt.text import SpecialTokens, Tokenizer
from docmt.training.train_config import TrainConfig


class BatchedSplit:
    """Split of a store, cut into instances and planned into batches."""

    def __init__(
        self, store: ParallelStore, config: TrainConfig, specials: SpecialTokens, training: bool = False
    ) -> None:
        """training: use this split as the train split, with the first `train_share` of its documents (at least one).

        Raises DocmtError if the system reads drafts and the split has none, or if learned positions are too few.
        """
        model, options = config.model, config.model.system_options
        self.store, self.specials, self.drafts = store, specials, _select_drafts(store, model)
        self.labelled = options.labelled_sentences
        self.boundaries = FAMILIES[model.family].boundary_tokens(model)
        self.references = training and options.context_spec().references
        share = config.batches.train_share if training else 1.0
        documents = max(round(share * store.num_documents), 1)
        offsets = store.document_offsets[: documents + 1]
        columns = [store.source, store.target, *([] if self.drafts is None else [self.drafts])]
        lengths = [np.diff(column.offsets[: offsets[-1] + 1]) for column in columns]
        self.instances = cut_instances(
            lengths[0],
            lengths[1],
            offsets,
            options.context_spec(),
            limit=model.instance_tokens,
            max_sentences=model.instance_sentences,
            training=training,
        )
        self._check_positions(config, lengths, offsets)
        self.size = documents, int(offsets[-1]), int(lengths[0].sum()), int(lengths[1].sum())
        """numbers of documents, sentence pairs, source tokens and target tokens, without boundary tokens"""
        tokens = instance_lengths(self.instances, *lengths)
        self.plan = BatchPlan(tokens, config.batches.batch_tokens, config.seed)

    def _check_positions(self, config: TrainConfig, lengths: Sequence[Integers], document_offsets: Integers) -> None:
        """Raise DocmtError for the longest text if it needs more positions than the model has learned.

        lengths: [S] each, of source, target and perhaps drafts.
        """
        model, limit = config.model, config.model.position_limit
        if limit is None:
            return
        source, target, *drafts = lengths
        limited = [source, target if model.limits_target else source, *drafts]
        if model.restarts_positions:
            context_spec = model.system_options.context_spec()
            before = context_spec.source_context if context_spec.joined_context else 0
            kind, sentences = "sentence", np.arange(len(source))
            sizes = np.max(limited, axis=0) + self.boundaries.max_per_sentence
            if sizes.max() <= limit:
                kind, sizes = "context of sentence", context_lengths(source, document_offsets, before)
        else:
            extra = max(self.boundaries.max_per_sentence - NUM_BOUNDARY_TOKENS, 0)  # beyond those in lengths
            instances = self.instances
            sizes = instance_lengths(instances, *limited) + extra * (instances.last - instances.before)
            kind, sentences = "instance that begins with sentence", instances.first
        index = int(sizes.argmax())
        if sizes[index] > limit:
            document, number = locate_sentence(int(sentences[index]), document_offsets)
            raising = "" if config.initialize_from else "raise it, choose model.position_encoding sinusoidal, "
            raise DocmtError(
                f"the {kind} {number + 1} of document {self.store.document_ids[document]!r} in {self.store.directory} "
                f"has {sizes[index]} tokens, but model.max_positions is {limit}: {raising}lower model.instance_tokens, "
                "or leave out longer sentences"
            )

    def build_batch(self, indices: Indices) -> Batch:
        """Return the batch of these instances, on the CPU."""
        return collate(
            self.store.source,
            self.store.target,
            self.instances,
            indices,
            self.specials,
            self.boundaries,
            self.labelled,
            drafts=self.drafts,
            references=self.references,
        )

    def fingerprint(self) -> str:
        """Return a checksum of the split, its drafts (if they are read) and the vocabulary size.

        It is the CRC-32 of all arrays; 1 GB takes about a second.
        """
        source, target = self.store.source, self.store.target
        columns = [source.tokens, target.tokens, source.offsets, target.offsets, self.store.document_offsets]
        drafts = [] if self.drafts is None else [self.drafts.tokens, self.drafts.offsets]
        crc = zlib.crc32(str(self.specials.vocabulary_size).encode())
        for column in [*columns, *drafts]:
            crc = zlib.crc32(np.ascontiguousarray(column).data, crc)
        return f"{crc:08x}"

    def count_label_tokens(self, indices: Indices) -> int:
        """Return the number of label tokens of these instances, without building a batch."""
        selected, words = self.instances.select(indices), self.store.target.offsets
        first = selected.first_output if self.labelled == "last" else selected.first
        last, added = selected.last, 1 + self.boundaries.predicts_boundary
        return int((words[last] - words[first] + added * (last - first)).sum())


def _select_drafts(store: ParallelStore, model: ModelConfig) -> SentenceTokens | None:
    """Return the drafts of a split, or None if the system reads none. Raises DocmtError if they are missing."""
    if not model.system_options.context_spec().drafts:
        return None
    if store.drafts is None:
        raise DocmtError(
            f"this {model.system} model reads drafts, but {store.directory} has none. Translate the source texts with "
            "a sentence model, then run `docmt prepare` again with --drafts"
        )
    return store.drafts


@dataclass(frozen=True)
class UpdatePlan:
    """Batches of one update in this process, with their weights."""

    batches: list[tuple[Indices, float]]
    """instance indices and weight of each batch; weight 0 if the end of an epoch leaves this process without a batch"""
    label_tokens: int
    """label tokens of the whole update, over all processes"""
    epoch: int = 0
    position: int = 0
    """batches of the epoch done after the update, over all processes"""
    epoch_batches: int = 1
    """batches of the epoch, over all processes"""

    @property
    def ends_epoch(self) -> bool:
        """True if this is the last update of its epoch."""
        return self.position == self.epoch_batches


UpdateIterator = Generator[tuple[UpdatePlan, list[Batch]], None, None]


def prefetch(updates: UpdateIterator) -> UpdateIterator:
    """Yield the same updates, prepared by a background thread up to two ahead.

    A GPU then need not wait for Python. Building batches draws no random numbers, so results stay the same. An error in
    the thread is raised for its update. When the generator is closed, the thread ends with the update that it prepares.
    """
    with ThreadPoolExecutor(1) as pool:
        try:
            waiting = deque(pool.submit(next, updates) for _ in range(2))
            while True:
                waiting.append(pool.submit(next, updates))
                yield waiting.popleft().result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


class TrainingCorpus:
    """Train and dev split of a prepared store, for one of `world_size` processes."""

    def __init__(self, store: PreparedStore, config: TrainConfig, rank: int = 0, world_size: int = 1) -> None:
        """Raises DocmtError if the store lacks a split that the configuration needs."""
        self.tokenizer: Tokenizer = store.tokenizer
        self.statistics = store.statistics
        self.rank, self.world_size = rank, world_size
        self.update_batches = world_size * config.batches.gradient_accumulation
        """batches of an update, over all processes"""
        self.train = BatchedSplit(store.split("train"), config, self.tokenizer.specials, training=True)
        has_dev = "dev" in store.splits
        self.dev = BatchedSplit(store.split("dev"), config, self.tokenizer.specials) if has_dev else None
        self._check_document_lengths(config.model)
        stop = config.stop
        if self.dev is None and config.validation.best_by == "d_bleu":
            store.split("dev")
        if self.dev is None and config.checkpoints.average == "best":
            raise DocmtError(
                f"checkpoints.average is 'best', but the store {store.directory} has no dev split: "
                "choose last or none, or run `docmt prepare` again with --dev"
            )
        if self.dev is None and not (stop.max_steps or stop.max_epochs or stop.max_minutes):
            raise DocmtError(
                f"the store {store.directory} has no dev split, so stop.patience cannot end the training: "
                "set stop.max_steps, stop.max_epochs or stop.max_minutes, or run `docmt prepare` again with --dev"
            )
        self._epoch_batches: tuple[int, Sequence[Indices]] = (-1, [])

    def plan_epoch(self, epoch: int) -> Sequence[Indices]:
        """Return the instance indices of each batch of an epoch, in order, over all processes."""
        planned_epoch, batches = self._epoch_batches  # read once, as another thread may replace it
        if planned_epoch != epoch:
            batches = self.train.plan.batches_in_epoch(epoch)
            self._epoch_batches = epoch, batches
        return batches

    def count_updates(self, epoch: int) -> int:
        """Return the number of updates of an epoch."""
        return -(-len(self.plan_epoch(epoch)) // self.update_batches)

    def _check_document_lengths(self, model: ModelConfig) -> None:
        """Raise DocmtError if every document is shorter than the context of the system."""
        context_spec = model.system_options.context_spec()
        context = max(context_spec.source_context, context_spec.target_context)
        required = context + 1 if context else (context_spec.sentences or 1) if context_spec.windows else 1
        longest = int(np.diff(self.train.store.document_offsets[: self.train.size[0] + 1]).max())
        if required > longest:
            raise DocmtError(
                f"the {model.system} system reads {required} sentences at once, but the longest training document in "
                f"{self.train.store.directory.parent} has {longest}. Lower model.{model.system}.sentences, or mark "
                "where documents begin in the corpus"
            )

    def plan_update(self, epoch: int, position: int) -> UpdatePlan:
        """Return the update from batch `position` of `epoch` on: each process takes every `world_size`-th batch."""
        epoch_batches = self.plan_epoch(epoch)
        batches = list(epoch_batches[position : position + self.update_batches])
        local: list[tuple[Indices, float]] = []
        for start in range(0, len(batches), self.world_size):
            index = start + self.rank
            # Every process must join each round: one without a batch repeats the first with weight 0.
            local.append((batches[index], 1.0) if index < len(batches) else (batches[0], 0.0))
        total = sum(self.train.count_label_tokens(indices) for indices in batches)
        return UpdatePlan(local, total, epoch, position + len(batches), len(epoch_batches))

    def iterate_updates(self, epoch: int, position: int) -> UpdateIterator:
        """Yield plan and batches (on the CPU) of each update, from batch `position` of `epoch` on, without end."""
        while True:
            plan = self.plan_update(epoch, position)
            yield plan, [self.train.build_batch(indices) for indices, _ in plan.batches]
            epoch, position = (epoch + 1, 0) if plan.ends_epoch else (epoch, plan.position)

    @cached_property
    def fingerprint(self) -> str:
        """Fingerprint of the training split, a hyphen, and that of the dev split or "none"."""
        return f"{self.train.fingerprint()}-{'none' if self.dev is None else self.dev.fingerprint()}"


def select_direction(store: PreparedStore, config: TrainConfig) -> PreparedStore:
    """Return the store, with source and target exchanged if the configuration is reversed."""
    return store.reversed() if config.reverse else store


def fit_model_config(config: ModelConfig, store: PreparedStore) -> ModelConfig:
    """Return the architecture with all sizes filled in and the vocabulary sizes of the store.

    Raises DocmtError if the configuration sets another vocabulary size.
    """
    size = store.tokenizer.vocabulary_size
    if config.vocabulary_size not in (0, size):
        raise DocmtError(
            f"model.vocabulary_size is {config.vocabulary_size}, but the store {store.directory} has {size} entries: "
            "leave it at 0"
        )
    source_size = store.tokenizer.source_vocabulary_size
    if not store.tokenizer.shares_vocabulary and FAMILIES[config.family].tables == "one":
        families = ", ".join(name for name, family in FAMILIES.items() if family.tables != "one")
        raise DocmtError(
            f"the store {store.directory} has separate vocabularies of source and target, but model.family "
            f"{config.family} has one. Choose {families}, or prepare the data with another tokenizer"
        )
    separate = source_size != size or config.source_vocabulary_size == source_size
    if FAMILIES[config.family].tables == "either":
        separate = separate or not store.tokenizer.shares_vocabulary
    return replace(config, vocabulary_size=size, source_vocabulary_size=source_size if separate else 0).resolve()
