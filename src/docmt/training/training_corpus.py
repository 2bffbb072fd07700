"""Training data: the batches of each update, and the dev split."""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from docmt.core.errors import DocmtError
from docmt.data import (
    Batch,
    BatchPlan,
    Instances,
    ParallelStore,
    PreparedStore,
    SentenceTokens,
    collate,
    cut_instances,
    instance_lengths,
)
from docmt.data.batches import Indices
from docmt.data.compact_instances import CompactInstances, document_blocks, narrow
from docmt.data.instances import Mixture, context_lengths, cut_mixed_instances, locate_sentence
from docmt.data.prepare_config import NUM_BOUNDARY_TOKENS
from docmt.model import ModelConfig
from docmt.model.families import FAMILIES
from docmt.text import SpecialTokens, Tokenizer
from docmt.training.train_config import TrainConfig

_CHECKED_AT_ONCE = 1 << 20  # tokens


class BatchedSplit:
    """Split of a store, cut into instances and planned into batches."""

    def __init__(
        self, store: ParallelStore, config: TrainConfig, specials: SpecialTokens, training: bool = False
    ) -> None:
        """training: use this split as the train split, with the first `train_share` of its documents (at least one).

        Raises DocmtError if the system reads drafts and the split has none.
        """
        model = config.model
        self.store, self.specials, self.drafts = store, specials, _select_drafts(store, model)
        self.labelled, self.boundaries = (
            model.system_options.labelled_sentences,
            FAMILIES[model.family].boundary_tokens(model),
        )
        self.references = training and model.system_options.context_spec().references
        self._check_token_ids(SpecialTokens(model.source_vocabulary_size or specials.vocabulary_size))
        share = config.batches.train_share if training else 1.0
        documents = max(round(share * store.num_documents), 1)
        self.instances, lengths, mixture = self._cut(store.document_offsets[: documents + 1], config, training)
        sentences = int(store.document_offsets[documents])
        source, target = (int(side.offsets[sentences]) for side in (store.source, store.target))
        self.size = documents, sentences, source, target
        """numbers of documents, sentence pairs, source tokens and target tokens, without boundary tokens"""
        self.plan = BatchPlan(lengths, config.batches.batch_tokens, config.seed, mixture)

    def _cut(
        self, document_offsets: NDArray[np.int64], config: TrainConfig, training: bool
    ) -> tuple[CompactInstances, NDArray[Any], Mixture | None]:
        """Return the instances of documents, their lengths [I], and in training the mixture if lengths are mixed.

        They are cut block by block, as arrays of all sentences would take a gigabyte. Raises DocmtError if learned
        positions are too few.
        """
        positions = _PositionCheck(self, config)
        parts, lengths, mixtures = [], [], []
        for block in document_blocks(document_offsets):
            offsets = document_offsets[block[0] : block[1] + 1]
            columns = [self.store.source, self.store.target, *([] if self.drafts is None else [self.drafts])]
            sides = [np.diff(column.offsets[offsets[0] : offsets[-1] + 1]) for column in columns]
            instances, mixture = _cut_block(sides[0], sides[1], offsets - offsets[0], config, training)
            positions.add(instances, sides, offsets)
            parts.append(CompactInstances.pack(instances, document_offsets, int(offsets[0])))
            lengths.append(narrow(instance_lengths(instances, *sides)))
            mixtures += [] if mixture is None else [mixture]
        positions.raise_if_exceeded()
        joined, joined_lengths = CompactInstances.concatenate(parts), narrow(np.concatenate(lengths))
        if not mixtures:
            return joined, joined_lengths, None
        mixed, order = Mixture.concatenate(mixtures)
        return joined.reorder(order), joined_lengths[order], mixed

    def _check_token_ids(self, source_specials: SpecialTokens) -> None:
        """Raise DocmtError if a token file has ids outside of the vocabulary."""
        source, target = self.store.sides
        columns = [(source, self.store.source, source_specials), (target, self.store.target, self.specials)]
        for name, column, specials in [*columns, ("draft", self.drafts, self.specials)]:
            tokens = column.tokens if column is not None else np.empty(0)
            blocks = (tokens[start : start + _CHECKED_AT_ONCE] for start in range(0, len(tokens), _CHECKED_AT_ONCE))
            if any(int(block.min()) < specials.unk or int(block.max()) >= specials.eod for block in blocks):
                raise DocmtError(
                    f"{self.store.directory / f'{name}_tokens.npy'} is damaged (it has ids outside of the vocabulary): "
                    "run `docmt prepare` again to write the store anew"
                )

    def build_batch(self, indices: Indices) -> Batch:
        """Return the batch of these instances, on the CPU."""
        return collate(
            *(self.store.source, self.store.target, self.instances, indices),
            *(self.specials, self.boundaries, self.labelled),
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


def _cut_block(
    source_lengths: NDArray[np.int64],
    target_lengths: NDArray[np.int64],
    document_offsets: NDArray[np.int64],
    config: TrainConfig,
    training: bool,
) -> tuple[Instances, Mixture | None]:
    """Return the instances of documents; in training, those of all mixed lengths."""
    model, limits = config.model, config.batches.instance_lengths if training else []
    lengths = source_lengths, target_lengths, document_offsets
    context_spec, max_sentences = model.system_options.context_spec(), model.instance_sentences
    if limits:
        return cut_mixed_instances(*lengths, context_spec, limits, max_sentences)
    limit = model.instance_tokens
    return cut_instances(*lengths, context_spec, limit=limit, max_sentences=max_sentences, training=training), None


class _PositionCheck:
    """Search for what needs more positions than a model has learned, before training starts."""

    def __init__(self, split: BatchedSplit, config: TrainConfig) -> None:
        self._split, self._config = split, config
        self._longest: dict[str, tuple[int, int]] = {}  # its tokens and its first sentence, by kind of text

    def add(self, instances: Instances, lengths: Sequence[NDArray[np.int64]], document_offsets: Any) -> None:
        """Look at a block of documents.

        lengths: [S] each, of source, target and perhaps drafts. document_offsets [D + 1] count from the first sentence
        of the split, `instances` from that of the block.
        """
        model, boundaries = self._config.model, self._split.boundaries
        if model.position_limit is None:
            return
        source, target, *drafts = lengths
        limited = [source, target if model.limits_target else source, *drafts]
        if model.restarts_positions:
            sentences = np.arange(len(source))
            context_spec = model.system_options.context_spec()
            before = context_spec.source_context if context_spec.joined_context else 0
            contexts = context_lengths(source, document_offsets - document_offsets[0], before)
            checks = [
                ("sentence", np.max(limited, axis=0) + boundaries.max_per_sentence, sentences),
                (f"context of {before} sentences before sentence", contexts, sentences),
            ]
        else:
            extra = max(boundaries.max_per_sentence - NUM_BOUNDARY_TOKENS, 0)  # beyond those in lengths
            sizes = instance_lengths(instances, *limited) + extra * (instances.last - instances.before)
            checks = [("instance that begins with sentence", sizes, instances.first)]
        for kind, sizes, sentences in checks:
            index = int(sizes.argmax())
            if kind not in self._longest or sizes[index] > self._longest[kind][0]:
                self._longest[kind] = int(sizes[index]), int(sentences[index] + document_offsets[0])

    def raise_if_exceeded(self) -> None:
        """Raise DocmtError that names the longest text of all blocks, if it is too long."""
        config, store = self._config, self._split.store
        for kind, (tokens, sentence) in self._longest.items():
            if config.model.position_limit is not None and tokens > config.model.position_limit:
                document, number = locate_sentence(sentence, store.document_offsets)
                raising = "raise it, choose model.position_encoding sinusoidal, "
                raise DocmtError(
                    f"the {kind} {number + 1} of document {store.document_ids[document]!r} in {store.directory} "
                    f"has {tokens} tokens, but model.max_positions is {config.model.position_limit}: "
                    f"{'' if config.initialize_from else raising}lower model.instance_tokens, or leave out longer "
                    "sentences"
                )


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


def prefetch(updates: UpdateIterator, count: int = 2) -> UpdateIterator:
    """Yield the same updates, prepared by a background thread up to `count` ahead.

    A GPU then need not wait for Python. Building batches draws no random numbers, so results stay the same. An error in
    the thread is raised for its update. When the generator is closed, the thread ends with the update that it prepares.
    """
    with ThreadPoolExecutor(1) as pool:
        try:
            waiting = deque(pool.submit(next, updates) for _ in range(count))
            while True:
                waiting.append(pool.submit(next, updates))
                yield waiting.popleft().result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


class TrainingCorpus:
    """Train and dev split of a prepared store, for one of `world_size` processes."""

    def __init__(self, store: PreparedStore, config: TrainConfig, rank: int = 0, world_size: int = 1) -> None:
        """Raises DocmtError if the store lacks a split that the configuration needs."""
        self.directory = store.directory
        self.tokenizer: Tokenizer = store.tokenizer
        self.statistics = store.statistics
        self.specials = store.tokenizer.specials
        self.rank, self.world_size = rank, world_size
        self.update_batches = world_size * config.batches.gradient_accumulation
        """batches of an update, over all processes"""
        self.train = BatchedSplit(store.split("train"), config, self.specials, training=True)
        self.dev = BatchedSplit(store.split("dev"), config, self.specials) if "dev" in store.splits else None
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
            self._epoch_batches, batches = (-1, []), []  # two epochs are never in memory
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
                f"{self.directory} has {longest}. Lower model.{model.system}.sentences, or mark where documents begin "
                "in the corpus"
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
