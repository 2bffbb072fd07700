"""A directory of the library transformers: its config and its weights, read without that library.

Weights come from safetensors files alone, in one piece or in shards with an index; pickled ones are refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from docmt.checkpoint.weights import WEIGHTS_FILE, read_shapes
from docmt.core.errors import DocmtError
from docmt.core.files import read_json

CONFIG_FILE = "config.json"
INDEX_FILE = f"{WEIGHTS_FILE}.index.json"
_PICKLED = ("pytorch_model.bin", "pytorch_model.bin.index.json", "tf_model.h5", "flax_model.msgpack")
_NO_WEIGHTS, _BUFFER = ("I64",), "position_ids"  # some have numbers of positions beside their weights
_POINTER = b"version https://git-lfs"
_ROWS = 16_384  # of a table, read and moved at a time


@dataclass(frozen=True)
class Weights:
    """Weights by name, which are read from their files when they are asked for."""

    directory: Path
    shapes: Mapping[str, Sequence[int]]
    files: Mapping[str, Path]

    def tensor(self, name: str) -> Tensor:
        """The weights of this name, float32."""
        with self._open(name) as file:
            found: Tensor = file.get_tensor(name)
        return found.float()

    def rows(self, name: str, wanted: Sequence[int]) -> Tensor:
        """These rows of a table [rows, d], float32; a row of -1 is zero. Of the whole table little is held at once."""
        numbers = torch.tensor(wanted)
        made = torch.zeros(len(wanted), int(self.shapes[name][1]))
        with self._open(name) as file:
            table = file.get_slice(name)
            for first in range(0, int(self.shapes[name][0]), _ROWS):
                part = table[first : first + _ROWS]
                places = ((numbers >= first) & (numbers < first + len(part))).nonzero().flatten()
                made[places] = part[numbers[places] - first].float()
        return made

    def same(self, one: str, other: str) -> bool:
        """Whether two tables are equal."""
        if self.shapes[one] != self.shapes[other]:
            return False
        with self._open(one) as file, self._open(other) as second:
            ours, theirs = file.get_slice(one), second.get_slice(other)
            rows = int(self.shapes[one][0])
            return all(
                torch.equal(ours[first : first + _ROWS], theirs[first : first + _ROWS])
                for first in range(0, rows, _ROWS)
            )

    @contextmanager
    def _open(self, name: str) -> Iterator[Any]:
        path = self.files[name]
        try:
            with safe_open(path, framework="pt") as file:
                yield file
        except (SafetensorError, OSError) as error:
            raise DocmtError(f"{path} is damaged ({error}): copy it again from where it came") from error


def read_config(directory: Path) -> dict[str, Any]:
    """What config.json says. Raises DocmtError where there is none."""
    if not directory.is_dir():
        raise DocmtError(
            f"there is no directory {directory}: give one with {CONFIG_FILE}, weights and tokenizer files (nothing is "
            "downloaded)"
        )
    if (directory / "snapshots").is_dir():
        raise DocmtError(f"{directory} is the folder of a cache: give the directory in its folder snapshots")
    if not (directory / CONFIG_FILE).is_file():
        raise DocmtError(
            f"{directory} has no {CONFIG_FILE}: give a directory of a pretrained model, as `save_pretrained` writes it"
        )
    return read_json(directory / CONFIG_FILE)


def open_weights(directory: Path) -> Weights:
    """The weights in a directory. Raises DocmtError where there are none in safetensors, or some are missing."""
    if (directory / WEIGHTS_FILE).is_file():
        return _weights(directory, [directory / WEIGHTS_FILE])
    if (directory / INDEX_FILE).is_file():
        table = read_json(directory / INDEX_FILE).get("weight_map")
        if not isinstance(table, dict) or not all(isinstance(name, str) for name in table.values()):
            raise DocmtError(f"{directory / INDEX_FILE} has no weight_map: copy it again from where it came")
        names = sorted(set(table.values()))
        if outside := [name for name in names if Path(name).name != name]:
            raise DocmtError(f"{directory / INDEX_FILE} names a file elsewhere ({outside[0]}): copy it again")
        found = _weights(directory, [directory / name for name in names])
        if missing := sorted(name for name in set(table) - set(found.shapes) if not name.endswith(_BUFFER)):
            raise DocmtError(f"{directory} lacks weights for {missing[0]}, which {INDEX_FILE} names: copy it again")
        return found
    for name in _PICKLED:
        if (directory / name).is_file():
            raise DocmtError(
                f"{directory} has its weights in {name}, which is not opened, as it may hold code: save it with "
                f"`save_pretrained` of transformers, which writes {WEIGHTS_FILE}"
            )
    raise DocmtError(f"{directory} has neither {WEIGHTS_FILE} nor {INDEX_FILE}: copy it again, complete")


def _is_pointer(path: Path) -> bool:
    """Whether the file stands for one that was not fetched with the rest of a repository."""
    try:
        with path.open("rb") as file:
            return file.read(len(_POINTER)) == _POINTER
    except OSError:
        return False  # as whoever reads it will say


def _weights(directory: Path, files: Sequence[Path]) -> Weights:
    shapes: dict[str, Sequence[int]] = {}
    places: dict[str, Path] = {}
    for path in files:
        if _is_pointer(path):
            raise DocmtError(f"{path} only says where git-lfs has the weights: run `git lfs pull` in that directory")
        own = read_shapes(path, skipped=_NO_WEIGHTS)
        shapes |= own
        places |= dict.fromkeys(own, path)
    return Weights(directory, shapes, places)
