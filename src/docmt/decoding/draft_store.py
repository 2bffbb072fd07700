"""Drafting a whole store: every sentence of every split, in groups that survive a kill."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from docmt.checkpoint.model_directory import (
    DOCMT_VERSION,
    DRAFTING_FILE,
    choose_device,
    copy_model,
    differ,
    find_model,
    load_languages,
    load_model_config,
    tell_if_unfinished,
)
from docmt.checkpoint.weights import WEIGHTS_FILE
from docmt.core.checksums import checksum_of_file
from docmt.core.errors import DocmtError
from docmt.core.files import atomic_directory, atomic_path, lock_directory, read_json
from docmt.core.progress import progress
from docmt.data import ParallelStore, PreparedStore, Words
from docmt.data.drafts import DRAFTER_FOLDER, DRAFTS_FOLDER, identity_of, write_columns
from docmt.data.parts import Part
from docmt.decoding.config import SearchConfig, search_facts
from docmt.decoding.drafting import check_drafter, load_drafter
from docmt.decoding.precision import Precision
from docmt.decoding.task import check_instances

PARTIAL_FOLDER = "drafts.partial"
"""In a store: the groups that are drafted so far."""
GROUP_SENTENCES = 2048
"""A group has about so many sentences, some batches of the search: what a kill can cost."""
_PLAN_FILE = "plan.json"
_NO_MATTER = ("docmt_version", "model")  # of two plans that are to write the same drafts

_log = logging.getLogger(__name__)


class _Group(NamedTuple):
    """Documents of a split that one model drafts together."""

    split: str
    part: int
    """number of the model that was trained without them, or 0: the model itself"""
    number: int
    documents: list[int]

    @property
    def file(self) -> str:
        """Where its drafts are kept until all are there."""
        return f"{self.split}-{self.part}-{self.number}.npz"


def check_undrafted(store: PreparedStore, overwrite: bool) -> None:
    """Raises DocmtError for a store that has drafts, unless they are to be replaced."""
    if (store.directory / DRAFTS_FOLDER).exists() and not overwrite:
        raise DocmtError(f"the store {store.directory} has drafts already: add --overwrite to replace them")


def check_fits(model: Path, store: PreparedStore, search: SearchConfig) -> None:
    """Raises DocmtError for a model that cannot draft for the store, or not with this search."""
    check_drafter(model, store.tokenizer)
    check_instances(load_model_config(model), search)
    ours = store.statistics.source_language, store.statistics.target_language
    theirs = load_languages(model)
    if differ(ours, theirs):
        raise DocmtError(
            f"the model {model} translates from {theirs[0]} to {theirs[1]}, but the store {store.directory} is from "
            f"{ours[0]} to {ours[1]}: draft with a model of this direction"
        )


def draft_store(
    store: PreparedStore,
    model: Path,
    search: SearchConfig,
    *,
    parts: Sequence[Path] = (),
    device: torch.device | str = "auto",
    precision: Precision = "float32",
    overwrite: bool = False,
) -> None:
    """Writes a draft of every source sentence of a store into it, complete or not at all.

    parts: models of which the i-th was trained without part i of the training documents, and drafts that. What a call
    that was killed has done is kept: the same call goes on with it. Raises DocmtError for a model that does not fit,
    for drafts that are there, and at once if another process is drafting the store.
    """
    device = choose_device(device)
    for each in (model, *parts):
        check_fits(each, store, search)
    found = find_model(model)
    facts = {
        "docmt_version": DOCMT_VERSION,
        "model": str(model.resolve()),
        "system": load_model_config(model).system,
        "weights": checksum_of_file(found / WEIGHTS_FILE),
        "search": search_facts(search),
        "precision": precision,
        "parts": [checksum_of_file(find_model(part) / WEIGHTS_FILE) for part in parts],
        "store": identity_of(store.statistics),
    }
    tell_if_unfinished(model, found)
    with lock_directory(store.directory, f"the store {store.directory} is being drafted"):
        check_undrafted(store, overwrite)
        partial = store.directory / PARTIAL_FOLDER
        _begin(partial, facts, model, search, overwrite)
        _draft(store, partial, [partial / DRAFTER_FOLDER, *parts], search, device, precision)
        if PreparedStore.open(store.directory).statistics != store.statistics:
            raise DocmtError(
                f"the store {store.directory} was prepared anew while it was being drafted: draft it again"
            )
        with atomic_directory(store.directory / DRAFTS_FOLDER) as folder:
            copy_model(partial / DRAFTER_FOLDER, folder / DRAFTER_FOLDER)
            columns = {name: _column(partial, store.split(name), name, len(parts)) for name in store.splits}
            write_columns(folder, columns, store.tokenizer.vocabulary_size, facts)
        (partial / _PLAN_FILE).unlink()  # first: what is left without it, if this is killed, is nothing to go on with
        shutil.rmtree(partial, ignore_errors=True)


def _begin(partial: Path, facts: dict[str, Any], model: Path, search: SearchConfig, overwrite: bool) -> None:
    """Makes the folder of finished groups, with a copy of the model, or goes on with the one that is there."""
    plan = {**facts, "group_sentences": GROUP_SENTENCES}
    if (partial / _PLAN_FILE).exists():
        begun = read_json(partial / _PLAN_FILE)
        different = [name for name in plan if name not in _NO_MATTER and begun.get(name) != plan[name]]
        if not different:
            _log.info("going on with the drafts in %s", partial)
            return
        if not overwrite:
            raise DocmtError(
                f"drafts by another model or with other settings ({different[0]}) were begun in {partial}: give that "
                "command again to go on with them, or add --overwrite to begin anew"
            )
    with atomic_directory(partial) as folder:
        copy_model(model, folder / DRAFTER_FOLDER)
        drafting = json.dumps({"search": search_facts(search)}, indent=2)
        (folder / DRAFTER_FOLDER / DRAFTING_FILE).write_text(drafting + "\n", encoding="utf-8")
        (folder / _PLAN_FILE).write_text(json.dumps(plan, indent=2) + "\n", encoding="utf-8")


def _groups(split: ParallelStore, name: str, parts: int) -> Iterator[_Group]:
    """The groups of a split; only the training documents are in parts."""
    documents = np.arange(len(split.document_ids))
    sizes = np.diff(split.document_offsets)
    if name != "train" or not parts:
        yield from _grouped(name, 0, documents, sizes)
        return
    for number in range(1, parts + 1):
        yield from _grouped(name, number, documents[Part(number, parts).has(documents)], sizes)


def _grouped(name: str, part: int, documents: NDArray[np.int64], sizes: NDArray[np.int64]) -> Iterator[_Group]:
    reached = np.cumsum(sizes[documents]) // GROUP_SENTENCES
    borders = [0, *(np.flatnonzero(np.diff(reached)) + 1).tolist(), len(documents)]
    for number, (first, last) in enumerate(pairwise(borders)):
        if first < last:
            yield _Group(name, part, number, documents[first:last].tolist())


def _draft(
    store: PreparedStore,
    partial: Path,
    models: Sequence[Path],
    search: SearchConfig,
    device: torch.device,
    precision: Precision,
) -> None:
    """Drafts the groups that are not there yet; models: by the number that groups have for them."""
    groups = [group for name in store.splits for group in _groups(store.split(name), name, len(models) - 1)]
    todo = [group for group in groups if not (partial / group.file).exists()]
    total, left = (_sentences(store, some) for some in (groups, todo))
    with progress(f"drafting on {device} in {precision} (sentences)", total, total - left) as bar:
        for number, model in enumerate(models):
            own = [group for group in todo if group.part == number]
            if not own:
                continue
            drafter = load_drafter(model, store.tokenizer, device, precision, search)
            for group in own:
                split = store.split(group.split)
                drafts = Words.of(drafter.drafts(_sources(split, group.documents), bar.advance))
                with atomic_path(partial / group.file) as temporary, temporary.open("wb") as file:
                    np.savez(file, tokens=drafts.tokens.astype(np.int32), lengths=drafts.lengths)


def _sentences(store: PreparedStore, groups: Iterable[_Group]) -> int:
    sizes = {name: np.diff(store.split(name).document_offsets) for name in store.splits}
    return sum(int(sizes[group.split][group.documents].sum()) for group in groups)


def _sources(split: ParallelStore, documents: Sequence[int]) -> list[list[list[int]]]:
    return [[split.source_sentence(n).tolist() for n in _numbers(split, [document])] for document in documents]


def _numbers(split: ParallelStore, documents: Sequence[int]) -> NDArray[np.int64]:
    """The numbers of the sentences of these documents."""
    offsets = split.document_offsets
    return np.concatenate([np.arange(offsets[document], offsets[document + 1]) for document in documents])


def _column(partial: Path, split: ParallelStore, name: str, parts: int) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Tokens and offsets of all drafts of a split, put together from its groups."""
    lengths = np.zeros(len(split.source_offsets) - 1, dtype=np.int64)
    for group in _groups(split, name, parts):
        lengths[_numbers(split, group.documents)] = _read(partial / group.file, "lengths")
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    tokens = np.zeros(offsets[-1], dtype=np.int32)
    for group in _groups(split, name, parts):
        numbers = _numbers(split, group.documents)
        own = lengths[numbers]
        # Where each token of the group goes: the start of its sentence, and its place in it.
        place = np.arange(own.sum()) - np.repeat(np.cumsum(own) - own, own)
        tokens[np.repeat(offsets[numbers], own) + place] = _read(partial / group.file, "tokens")
    return tokens, offsets


def _read(path: Path, name: str) -> NDArray[np.int64]:
    """One array of a finished group. Raises DocmtError if the file is damaged."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            found: NDArray[np.int64] = arrays[name]
            return found
    except Exception as error:  # what numpy and zipfile find in other bytes raises many kinds
        raise DocmtError(f"{path} is damaged ({error}): remove it, and give the same command again") from error
