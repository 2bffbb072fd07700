"""The training data as the loop sees it: which batches make which update, and the dev split beside them."""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property

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
    cut,
    instance_lengths,
)
from docmt.data.instances import Mixture, cut_mixed, lengths_before, place_of
from docmt.data.prepare_config import MARKS
from docmt.model import ModelConfig
from docmt.model.families import FAMILIES
from docmt.text import SpecialTokens, Tokenizer
from docmt.training.train_config import TrainConfig


class Split:
    """One split of the store, cut into instances and planned into batches."""

    def __init__(
        self, store: ParallelStore, config: TrainConfig, specials: SpecialTokens, training: bool = False
    ) -> None:
        """training: as the train split, of whose documents a share (at least one) is used, from the first on.

        Raises DocmtError where the system reads drafts and the split has none.
        """
        model = config.model
        self.store, self.specials, self.drafts = store, specials, _drafts_of(store, model)
        self._draft_lengths = None if self.drafts is None else self.drafts.lengths
        self.predicts, self.frame = (
            model.system_options.labelled_sentences,
            FAMILIES[model.family].boundary_tokens(model),
        )
        self.references = training and model.system_options.context_spec().references
        self._check_words(SpecialTokens(model.source_vocabulary_size or specials.vocabulary_size))
        share = config.batches.train_share if training else 1.0
        documents = max(round(share * len(store.document_ids)), 1)
        self.instances, mixture = _instances(store, documents, config, training)
        self._check_positions(config)
        sentences = int(store.document_offsets[documents])
        source, target = (int(side.offsets[sentences]) for side in (store.source, store.target))
        self.size = documents, sentences, source, target
        """documents, sentence pairs, source tokens and target tokens, without marks"""
        lengths = instance_lengths(self.instances, store.source.lengths, store.target.lengths, self._draft_lengths)
        self.plan = BatchPlan(lengths, config.batches.batch_tokens, config.seed, mixture)
        first = self.instances.own if self.predicts == "last" else self.instances.first
        last = self.instances.last
        words = store.target.offsets[last] - store.target.offsets[first]
        self._label_tokens: NDArray[np.int64] = words + (1 + self.frame.predicts_boundary) * (last - first)  # [I]

    def _check_words(self, source_specials: SpecialTokens) -> None:
        """Raises DocmtError for a file of tokens with numbers that are no words."""
        source, target = self.store.sides
        columns = [(source, self.store.source, source_specials), (target, self.store.target, self.specials)]
        for name, column, specials in [*columns, ("draft", self.drafts, self.specials)]:
            tokens = column.tokens if column is not None else np.empty(0)
            if len(tokens) and (int(tokens.min()) < specials.unk or int(tokens.max()) >= specials.eod):
                raise DocmtError(
                    f"{self.store.directory / f'{name}_tokens.npy'} is damaged (it holds numbers that are no words): "
                    "run `docmt prepare` again to write the store anew"
                )

    def _check_positions(self, config: TrainConfig) -> None:
        """Raises DocmtError where learned positions do not reach: now, not in the middle of an epoch."""
        model, store = config.model, self.store
        if model.position_limit is None:
            return
        limited = (store.source.lengths, (store.target if model.limits_target else store.source).lengths)
        if model.restarts_positions:
            sentences = np.arange(len(limited[0]))
            longest = np.max([side for side in (*limited, self._draft_lengths) if side is not None], axis=0)
            context_spec = model.system_options.context_spec()
            before = context_spec.source_context if context_spec.joined_context else 0
            contexts = lengths_before(limited[0], store.document_offsets, before)
            checks = [
                ("sentence", longest + self.frame.max_per_sentence, sentences),
                (f"context of {before} sentences before sentence", contexts, sentences),
            ]
        else:
            lengths = instance_lengths(self.instances, *limited, self._draft_lengths)
            more = max(self.frame.max_per_sentence - MARKS, 0)  # than lengths have for each sentence
            lengths = lengths + more * (self.instances.last - self.instances.before)
            checks = [("instance that begins with sentence", lengths, self.instances.first)]
        for what, sizes, sentences in checks:
            longest_of_all = int(sizes.argmax())
            if sizes[longest_of_all] > model.position_limit:
                document, number = place_of(int(sentences[longest_of_all]), store.document_offsets)
                raising = "raise it, choose model.position_encoding sinusoidal, "
                raise DocmtError(
                    f"the {what} {number + 1} of document {store.document_ids[document]!r} in {store.directory} "
                    f"has {sizes[longest_of_all]} tokens, but model.max_positions is {model.position_limit}: "
                    f"{'' if config.initialize_from else raising}lower model.instance_tokens, or leave out longer "
                    "sentences"
                )

    def batch(self, indices: NDArray[np.int64]) -> Batch:
        """The batch of these instances, on the CPU."""
        return collate(
            *(self.store.source, self.store.target, self.instances, indices, self.specials, self.frame, self.predicts),
            drafts=self.drafts,
            references=self.references,
        )

    def fingerprint(self) -> str:
        """Changes when the split, its drafts (where they are read) or the vocabulary does.

        CRC-32 of all arrays; 1 GB takes about a second.
        """
        source, target = self.store.source, self.store.target
        columns = [source.tokens, target.tokens, source.offsets, target.offsets, self.store.document_offsets]
        drafts = [] if self.drafts is None else [self.drafts.tokens, self.drafts.offsets]
        crc = zlib.crc32(str(self.specials.vocabulary_size).encode())
        for column in [*columns, *drafts]:
            crc = zlib.crc32(np.ascontiguousarray(column).data, crc)
        return f"{crc:08x}"

    def label_tokens(self, indices: NDArray[np.int64]) -> int:
        """How many tokens these instances predict, known without laying them out."""
        return int(self._label_tokens[indices].sum())


def _instances(
    store: ParallelStore, documents: int, config: TrainConfig, training: bool
) -> tuple[Instances, Mixture | None]:
    """The instances of the first documents, in training those at all limits that it mixes."""
    model, limits = config.model, config.batches.instance_lengths if training else []
    lengths = store.source.lengths, store.target.lengths, store.document_offsets[: documents + 1]
    context_spec, most = model.system_options.context_spec(), model.instance_sentences
    if limits:
        return cut_mixed(*lengths, context_spec, limits, most)
    return cut(*lengths, context_spec, limit=model.instance_tokens, max_sentences=most, training=training), None


def _drafts_of(store: ParallelStore, model: ModelConfig) -> SentenceTokens | None:
    """The drafts of a split, if the system reads them. Raises DocmtError if it does and there are none."""
    if not model.system_options.context_spec().drafts:
        return None
    if store.drafts is None:
        old = store.directory.parent / "drafts"
        why = f"{old} is of docmt 0.3.0 and no longer read" if old.is_dir() else f"{store.directory} has none"
        raise DocmtError(
            f"the {model.system} system reads drafts, but {why}: translate the source texts with a sentence model, and "
            "run `docmt prepare` again with --drafts"
        )
    return store.drafts


@dataclass(frozen=True)
class UpdatePlan:
    """The batches of one update on this process: instance indices, and how much each counts."""

    batches: list[tuple[NDArray[np.int64], float]]
    """instance indices and weight of each; weight 0 where an epoch's end leaves this process without a batch"""
    label_tokens: int
    """label tokens of the whole update, those of all processes"""
    epoch: int = 0
    position: int = 0
    """batches of the epoch that are done after the update, those of all processes"""
    epoch_batches: int = 1
    """batches of the epoch, those of all processes"""

    @property
    def ends_epoch(self) -> bool:
        """Whether this is the last update of its epoch."""
        return self.position == self.epoch_batches


Updates = Generator[tuple[UpdatePlan, list[Batch]], None, None]


def ahead(updates: Updates, count: int = 2) -> Updates:
    """Yield the same updates, laid out by a background thread up to `count` ahead.

    A device then need not wait for Python. Laying out draws no random numbers, so nothing else changes.
    """
    with ThreadPoolExecutor(1) as pool:
        waiting = deque(pool.submit(next, updates) for _ in range(count))
        while True:
            waiting.append(pool.submit(next, updates))
            yield waiting.popleft().result()


class TrainingCorpus:
    """Train and dev split of a prepared store for one process (`rank`) of `world`."""

    def __init__(self, store: PreparedStore, config: TrainConfig, rank: int = 0, world: int = 1) -> None:
        """Raises DocmtError when the store lacks a split that the configuration needs."""
        self.directory = store.directory
        self.tokenizer: Tokenizer = store.tokenizer
        self.statistics = store.statistics
        self.specials = store.tokenizer.specials
        self.rank, self.world, self.gradient_accumulation = rank, world, config.batches.gradient_accumulation
        self.train = Split(store.split("train"), config, self.specials, training=True)
        self.dev = Split(store.split("dev"), config, self.specials) if "dev" in store.splits else None
        self._check_documents(config.model)
        stop = config.stop
        if self.dev is None and config.validation.best_by == "d_bleu":
            store.split("dev")
        if self.dev is None and config.checkpoints.average == "best":
            raise DocmtError(
                f"checkpoints.average is 'best', but the store {store.directory} has no dev split to measure with: "
                "choose last or none, or run `docmt prepare` again with --dev"
            )
        if self.dev is None and not (stop.max_steps or stop.max_epochs or stop.max_minutes):
            raise DocmtError(
                f"the store {store.directory} has no dev split, so stop.patience cannot end the training: "
                "set stop.max_steps, stop.max_epochs or stop.max_minutes, or run `docmt prepare` again with --dev"
            )
        self._planned: tuple[int, list[NDArray[np.int64]]] = (-1, [])

    def batches(self, epoch: int) -> list[NDArray[np.int64]]:
        """The batches of an epoch in order, those of all processes: instance indices of each."""
        planned = self._planned  # which another thread may replace
        if planned[0] != epoch:
            planned = self._planned = (epoch, self.train.plan.epoch(epoch))
        return planned[1]

    def updates_in(self, epoch: int) -> int:
        """How many updates an epoch has."""
        return -(-len(self.batches(epoch)) // (self.world * self.gradient_accumulation))

    def _check_documents(self, model: ModelConfig) -> None:
        """Raises DocmtError where no document is as long as the context that the system would look at."""
        context_spec = model.system_options.context_spec()
        context = max(context_spec.source_context, context_spec.target_context)
        wanted = context + 1 if context else (context_spec.sentences or 1) if context_spec.windows else 1
        documents = np.unique(self.train.instances.document)
        longest = int(np.diff(self.train.store.document_offsets)[documents].max())
        if wanted > longest:
            raise DocmtError(
                f"the {model.system} system would look at {wanted} sentences together, but no training document in "
                f"{self.directory} has more than {longest}: lower model.{model.system}.sentences, or mark the borders "
                "of documents in the corpus"
            )

    def update(self, epoch: int, position: int) -> UpdatePlan:
        """The update that begins at batch `position` of `epoch`: each process takes every `world`-th batch of it."""
        planned = self.batches(epoch)
        taken = planned[position : position + self.world * self.gradient_accumulation]
        mine: list[tuple[NDArray[np.int64], float]] = []
        for start in range(0, len(taken), self.world):
            place = start + self.rank
            # Every process must take part in each round; one without a batch repeats the first, counted as nothing.
            mine.append((taken[place], 1.0) if place < len(taken) else (taken[0], 0.0))
        total = sum(self.train.label_tokens(indices) for indices in taken)
        return UpdatePlan(mine, total, epoch, position + len(taken), len(planned))

    def updates(self, epoch: int, position: int) -> Updates:
        """Yield the updates from batch `position` of `epoch` on, without end: the plan and its batches, on the CPU."""
        while True:
            plan = self.update(epoch, position)
            yield plan, [self.train.batch(indices) for indices, _ in plan.batches]
            epoch, position = (epoch + 1, 0) if plan.ends_epoch else (epoch, plan.position)

    @cached_property
    def fingerprint(self) -> str:
        """That of the training split, and after a hyphen that of the dev split, or "none"."""
        return f"{self.train.fingerprint()}-{'none' if self.dev is None else self.dev.fingerprint()}"


def in_direction(store: PreparedStore, config: TrainConfig) -> PreparedStore:
    """The store as the configuration reads it, with source and target in each other's place if it is reversed."""
    return store.reversed() if config.reverse else store


def fit_model_config(config: ModelConfig, store: PreparedStore) -> ModelConfig:
    """The architecture with all sizes filled in, the vocabulary that of the store.

    Raises DocmtError when the configuration names another vocabulary size.
    """
    size = store.tokenizer.vocabulary_size
    if config.vocabulary_size not in (0, size):
        raise DocmtError(
            f"model.vocabulary_size is {config.vocabulary_size}, but the store {store.directory} has {size} entries: "
            "leave it at 0"
        )
    source_size = store.tokenizer.source_vocabulary_size
    if not store.tokenizer.shares_vocabulary and FAMILIES[config.family].tables == "one":
        having = ", ".join(name for name, family in FAMILIES.items() if family.tables != "one")
        raise DocmtError(
            f"the store {store.directory} has a source vocabulary of its own, which model.family {config.family} has "
            f"not: set one of the families {having}, or prepare the data with another tokenizer"
        )
    apart = source_size != size or config.source_vocabulary_size == source_size
    if FAMILIES[config.family].tables == "either":
        apart = apart or not store.tokenizer.shares_vocabulary
    return replace(config, vocabulary_size=size, source_vocabulary_size=source_size if apart else 0).resolve()
