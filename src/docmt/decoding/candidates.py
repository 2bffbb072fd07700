"""Tables of candidates beside a model: which target tokens a search looks at for a source."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from docmt.checkpoint.model_directory import (
    differ,
    find_model,
    load_languages,
    load_model_tokenizer,
    tell_if_unfinished,
)
from docmt.checkpoint.weights import read_tensors, save_tensors
from docmt.core.errors import DocmtError
from docmt.core.files import atomic_path, check_regular
from docmt.data import ParallelStore, PreparedStore, cut
from docmt.data.cooccurrence import count_together
from docmt.decoding.config import SearchConfig
from docmt.decoding.ensemble import Model, members_of
from docmt.model import ModelConfig
from docmt.model.candidates import CandidateTable
from docmt.text import Tokenizer

CANDIDATES_FILE = "candidates.safetensors"
"""In a model directory."""


def candidates_file(directory: Path) -> Path:
    """The file of candidates of a model or run directory, which need not be there."""
    return find_model(directory) / CANDIDATES_FILE


class Coverage(NamedTuple):
    """How many of the words of references are candidates."""

    tokens: float
    """the share of them"""
    candidates: float
    """in the mean of what is searched together"""


def check_candidates(model: Model, config: SearchConfig) -> None:
    """Raises DocmtError for a search with candidates where none are known."""
    if config.candidates and members_of(model)[0].candidates is None:
        raise DocmtError(
            f"search.candidates is {config.candidates}, but this model knows no candidates: leave it out, or translate "
            "with a model directory to which `docmt candidates` has added them"
        )


def load_candidates(directory: Path, tokenizer: Tokenizer) -> CandidateTable:
    """The table in a model directory. Raises DocmtError if it is missing, damaged or of another vocabulary."""
    path = candidates_file(directory)
    if not path.exists():
        raise DocmtError(
            f"{directory} has no candidates ({path} is missing), which search.candidates asks for: make them from its "
            f"store (docmt candidates {directory} --store STORE), or leave it out"
        )
    check_regular(path)
    found, size = read_tensors(path), tokenizer.vocabulary_size
    best, always = (found.get(name, torch.empty(0)) for name in ("best", "always"))
    is_table = (best.dim(), always.dim(), len(best)) == (2, 1, tokenizer.source_vocabulary_size) and len(always)
    if not is_table or not all(_are_ids(ids, size) for ids in (best, always)):
        raise DocmtError(f"{path} holds no candidates of this vocabulary: run `docmt candidates` again")
    return CandidateTable(best, always, size)


def _are_ids(found: Tensor, size: int) -> bool:
    return found.dtype == torch.int32 and bool(((found >= 0) & (found < size)).all())


def make_candidates(
    store: PreparedStore, model: Path, *, per_token: int, frequent: int, sentences: int, overwrite: bool = False
) -> CandidateTable:
    """Counts which words go together in the training split, and writes the table into the model directory.

    per_token: target words for each source word; frequent: how many are always candidates; sentences: how many pairs
    are counted at most. Raises DocmtError for a store of other words or languages, and for a table that is there.
    """
    found, tokenizer = find_model(model), load_model_tokenizer(model)
    path = found / CANDIDATES_FILE
    tell_if_unfinished(model, found)
    _check_fits(store, model, tokenizer)
    if path.exists() and not overwrite:
        raise DocmtError(f"{path} is there already: add --overwrite to replace it")
    split, sizes = store.split("train"), (tokenizer.source_vocabulary_size, tokenizer.vocabulary_size)
    counted = count_together(split, sizes, per_token, frequent, sentences)
    best = counted.best
    if tokenizer.shares_vocabulary:  # a name that is spelled in pieces may be copied
        own = np.arange(len(best), dtype=np.int32)[:, None]
        best = np.concatenate([own, best[:, : per_token - 1]], axis=1)
    tensors = {"best": torch.from_numpy(best), "always": torch.from_numpy(counted.frequent)}
    with atomic_path(path) as temporary:
        save_tensors(temporary, tensors)
    return load_candidates(model, tokenizer)


def _check_fits(store: PreparedStore, model: Path, tokenizer: Tokenizer) -> None:
    if not store.tokenizer.same_words(tokenizer):
        raise DocmtError(
            f"the model {model} has another tokenizer than the store {store.directory}: count in the store that it was "
            "trained on, or in one that was prepared with its tokenizer (`docmt prepare --tokenizer`)"
        )
    ours, theirs = (store.statistics.source_language, store.statistics.target_language), load_languages(model)
    if differ(ours, theirs):
        raise DocmtError(
            f"the model {model} translates from {theirs[0]} to {theirs[1]}, but the store {store.directory} is from "
            f"{ours[0]} to {ours[1]}: count in a store of this direction"
        )


def rows_of(split: ParallelStore, model: ModelConfig) -> list[tuple[int, int]]:
    """What such a model searches by itself, sentences or instances, as ranges of the sentences of a split."""
    system, count = model.chosen, len(split.source_lengths)
    if system.order == "sentences":
        return [(number, number + 1) for number in range(count)]
    limit, most = model.instance_tokens, model.instance_sentences
    cuts = cut(split.source_lengths, None, split.document_offsets, system.needs(), limit=limit, max_sentences=most)
    return list(zip(cuts.first.tolist(), cuts.last.tolist(), strict=True))


def coverage(split: ParallelStore, rows: Sequence[tuple[int, int]], table: CandidateTable, count: int) -> Coverage:
    """How many target words of these ranges of sentences are among `count` candidates for each source word."""
    covered = words = candidates = 0
    for first, last in rows:
        source, target = (
            torch.from_numpy(tokens[offsets[first] : offsets[last]].astype(np.int64))
            for tokens, offsets in (
                (split.source_tokens, split.source_offsets),
                (split.target_tokens, split.target_offsets),
            )
        )
        chosen = table.of(source, count)
        covered += int(torch.isin(target, chosen).sum())
        words += len(target)
        candidates += len(chosen)
    return Coverage(covered / words, candidates / len(rows))
