"""Drafts of a store: a first translation of every source sentence, as a third column beside source and target.

`STORE/drafts/` holds, for each split, `<split>_tokens.npy` and `<split>_offsets.npy` (word ids, all sentences end to
end, and where each begins), the model directory `drafter/` that wrote them, and `drafts.json`, which says how.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from docmt.core.checksums import ENTRY, checksum_of, checksums, matches, recorded
from docmt.core.errors import DocmtError
from docmt.core.files import read_json
from docmt.data.arrays import Offsets, Tokens, load_array, save_array, token_dtype
from docmt.data.statistics import CorpusStatistics
from docmt.text import SpecialTokens

DRAFTS_FOLDER = "drafts"
DRAFTS_FILE = "drafts.json"
DRAFTER_FOLDER = "drafter"
"""In the drafts of a store, in a run and in a model directory: the model that drafts."""
_FACTS = {"model": str, "system": str, "weights": str, "search": dict, "parts": list, "store": str}
_AGAIN = "run `docmt draft` again with --overwrite"


class Column(NamedTuple):
    """The drafts of one split; sentence i is tokens[offsets[i] : offsets[i + 1]]."""

    tokens: Tokens
    """word ids of the target, without marks"""
    offsets: Offsets
    """[S + 1]"""


class Drafts:
    """The drafts of all splits of a store, read from disk as they are needed."""

    def __init__(self, directory: Path, statistics: CorpusStatistics) -> None:
        """directory: `STORE/drafts`; statistics: of the store.

        Raises DocmtError, naming the file, for what is missing, damaged, or of another store.
        """
        self.directory = directory
        path = directory / DRAFTS_FILE
        self.facts: dict[str, Any] = read_json(path)
        """what drafted them and how; `identity` tells whether two are the same"""
        self._sums = recorded(self.facts, path)
        for name, kind in _FACTS.items():
            if not isinstance(self.facts.get(name), kind):
                raise DocmtError(f"{path} is damaged (it does not say {name!r}): {_AGAIN}")
        self._statistics = statistics
        if self.facts["store"] != identity_of(statistics):
            raise DocmtError(f"the drafts in {directory} are of another store than that around them: {_AGAIN}")

    @property
    def made(self) -> tuple[Path, dict[str, Any]]:
        """The model or run directory that drafted, as it was named then, and how: its search, and how many parts of the
        training documents had a model of their own."""
        return Path(self.facts["model"]), {"search": self.facts["search"], "jackknife": len(self.facts["parts"])}

    @property
    def identity(self) -> str:
        """A checksum that differs where drafts, or the model that wrote them, do."""
        return checksum_of({"files": self._sums, **{name: self.facts[name] for name in ("weights", "search")}})

    @property
    def system(self) -> str:
        """Of the model that drafts."""
        system: str = self.facts["system"]
        return system

    @property
    def drafter(self) -> Path:
        """The model directory that drafts."""
        return self.directory / DRAFTER_FOLDER

    def check_drafter(self, weights: str) -> None:
        """weights: name of their file. Raises DocmtError where the model that drafts is not the one that did."""
        path = self.drafter / weights
        if not path.is_file() or not matches(path, self.facts["weights"]):
            raise self._damaged(f"{DRAFTER_FOLDER}/{weights}", f"it is not what its checksum in {DRAFTS_FILE} says")

    def column(self, split: str) -> Column:
        """The drafts of one split. Raises DocmtError where they are missing, damaged, or too few or too many."""
        names = f"{split}_tokens.npy", f"{split}_offsets.npy"
        tokens = load_array(self.directory / names[0], "ui", _AGAIN)
        offsets = load_array(self.directory / names[1], "i", _AGAIN)
        if len(offsets) != (wanted := self._statistics.splits[split].sentences) + 1:
            raise DocmtError(
                f"the drafts in {self.directory} are of {len(offsets) - 1} sentences of {split}, where the store has "
                f"{wanted}: {_AGAIN}"
            )
        if offsets[0] != 0 or offsets[-1] != len(tokens) or bool((np.diff(offsets) < 0).any()):
            raise self._damaged(names[1], "it does not fit the other files beside it")
        for name in names:
            if name not in self._sums or not matches(self.directory / name, self._sums[name]):
                raise self._damaged(name, f"it is not what its checksum in {DRAFTS_FILE} says")
        ids = SpecialTokens(self._statistics.vocabulary_size)
        # <unk> and <mask> are said in some published searches.
        if bool(((tokens < ids.unk) | (tokens == ids.eod) | (tokens > ids.mask)).any()):
            raise self._damaged(names[0], "it holds numbers that are no words")
        return Column(tokens, offsets)

    def _damaged(self, name: str, reason: str) -> DocmtError:
        return DocmtError(f"{self.directory / name} is missing or damaged ({reason}): {_AGAIN}")


def write_columns(
    folder: Path, columns: Mapping[str, tuple[NDArray[Any], NDArray[Any]]], size: int, facts: Mapping[str, Any]
) -> None:
    """Writes tokens and offsets of every split and `drafts.json` (not atomic); size: of the vocabulary."""
    names = []
    for split, (tokens, offsets) in columns.items():
        names += [f"{split}_tokens.npy", f"{split}_offsets.npy"]
        save_array(folder / names[-2], tokens.astype(token_dtype(size)))
        save_array(folder / names[-1], offsets.astype("<i8"))
    described = {**facts, ENTRY: checksums(folder, names)}
    (folder / DRAFTS_FILE).write_text(json.dumps(described, indent=2) + "\n", encoding="utf-8")


def identity_of(statistics: CorpusStatistics) -> str:
    """A checksum of what a store holds."""
    splits = {name: (split.sentences, split.source_tokens, split.crc32) for name, split in statistics.splits.items()}
    return checksum_of([statistics.vocabulary_size, splits])
