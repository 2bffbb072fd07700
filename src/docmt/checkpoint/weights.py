"""Files of weights: safetensors, with their names, shapes, kinds, checksums and numbers checked."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save, save_file
from torch import Tensor, nn

from docmt.core.checksums import check_beside
from docmt.core.errors import DocmtError
from docmt.core.files import check_regular

WEIGHTS_FILE = "model.safetensors"
CONFIG_FILE = "config.json"
STATE_FILE = "state.json"
"""Describes the files of a checkpoint as config.json does those of a model directory."""
_PART = 1 << 26  # bytes of a tensor that are copied at a time
_NUMBERS = ("F32", "F16", "BF16", "F64")  # kinds of weights, in the words of safetensors


def load_weights(model: nn.Module, path: Path, assign: bool = False) -> None:
    """Copies the tensors of a safetensors file into `model`, or makes them its own (`assign`), float32 on the CPU.

    Raises DocmtError if the file is missing or damaged, or has other names or shapes than the model.
    """
    check_shapes(model, read_shapes(path), path)
    tensors = _checked_tensors(path)
    if assign:
        tensors = {name: tensor.float() for name, tensor in tensors.items()}
    model.load_state_dict(tensors, assign=assign)


def read_shapes(path: Path, skipped: Sequence[str] = ()) -> dict[str, list[int]]:
    """The shape of every tensor of a safetensors file, without reading the tensors.

    skipped: kinds that are no weights, in the words of safetensors, and are left out. Raises DocmtError if the file is
    missing or damaged, or holds anything else but numbers with a fraction.
    """
    check_regular(path)
    with _reading(path), _openable(path) as name, safe_open(name, framework="pt") as file:
        found = {key: file.get_slice(key) for key in file.keys()}  # noqa: SIM118 - it is no mapping
        found = {key: tensor for key, tensor in found.items() if tensor.get_dtype() not in skipped}
        for name, tensor in found.items():
            if tensor.get_dtype() not in _NUMBERS:
                raise DocmtError(
                    f"{path} has {name} as {tensor.get_dtype()}, where docmt reads {', '.join(_NUMBERS)}: convert it"
                )
        return {name: tensor.get_shape() for name, tensor in found.items()}


def check_shapes(model: nn.Module, shapes: Mapping[str, Sequence[int]], path: Path) -> None:
    """Raises DocmtError unless the tensors of a file have the names and the shapes of the model's."""
    expected = model.state_dict()
    for name, tensor in expected.items():
        if name not in shapes:
            raise DocmtError(f"{path} has no weights for {name}: it belongs to another model, copy the directory again")
        if list(shapes[name]) != list(tensor.shape):
            raise DocmtError(
                f"{path} has {name} of shape {list(shapes[name])} where the config asks for "
                f"{list(tensor.shape)}: it belongs to another model, copy the directory again"
            )
    unknown = sorted(set(shapes) - set(expected))
    if unknown:
        raise DocmtError(
            f"{path} has weights for {unknown[0]}, which the config does not: "
            "it belongs to another model, copy the directory again"
        )


def save_tensors(path: Path, tensors: Mapping[str, Tensor], facts: dict[str, str] | None = None) -> None:
    """Writes a safetensors file (not atomic: for use inside of `atomic_path` and `atomic_directory`).

    facts: what the file says of itself, for libraries that ask. Raises OSError when the system refuses.
    """
    try:
        contiguous = {name: tensor.detach().contiguous() for name, tensor in tensors.items()}
        if _is_text(path):
            save_file(contiguous, path, facts)
        else:
            path.write_bytes(save(contiguous, facts))
    except SafetensorError as error:  # how the library reports a full disk, among others
        number = re.search(r"os error (\d+)", str(error))
        raise OSError(int(number[1]), os.strerror(int(number[1]))) if number else OSError(str(error)) from error


def read_weights(path: Path) -> dict[str, Tensor]:
    """All tensors of a safetensors file that docmt wrote, on the CPU.

    Raises DocmtError if it is missing or damaged, does not have the checksum that the description beside it says, if
    there is one, or holds weights that are not numbers.
    """
    read_shapes(path)
    return _checked_tensors(path)


def _checked_tensors(path: Path) -> dict[str, Tensor]:
    check_beside(path, CONFIG_FILE, STATE_FILE)
    tensors = read_tensors(path)
    check_numbers(path, tensors)
    return tensors


def check_numbers(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Raises DocmtError if a tensor holds NaN or an infinite number: as fast as memory is read."""
    for name, tensor in tensors.items():
        if tensor.numel() and not all(math.isfinite(value) for value in torch.aminmax(tensor)):
            raise DocmtError(
                f"{path} has weights that are no numbers (NaN or infinite, in {name}): copy it again, or train the "
                "model again if they were so from the start"
            )


def read_tensors(path: Path) -> dict[str, Tensor]:
    """All tensors of a safetensors file, on the CPU. Raises DocmtError if it is missing or damaged."""
    check_regular(path)
    with _reading(path), _openable(path) as place:
        with safe_open(place, framework="pt") as file:
            names = list(file.keys())
        return {name: _copied(place, name) for name in names}


def _copied(path: Path, name: str) -> Tensor:
    """A tensor of the file in memory of its own.

    The file is opened anew for every part of it: what was read of it would stay in memory beside the copy.
    """
    with safe_open(path, framework="pt") as file:
        whole = file.get_tensor(name)
        if whole.nbytes <= _PART:
            return whole.clone()
        made, rows = torch.empty_like(whole), max(_PART * len(whole) // whole.nbytes, 1)
    for first in range(0, len(made), rows):
        with safe_open(path, framework="pt") as file:
            made[first : first + rows] = file.get_slice(name)[first : first + rows]
    return made


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Failures of the library as DocmtError."""
    try:
        yield
    except FileNotFoundError as error:
        raise DocmtError(f"{path} is missing: copy the directory again, complete") from error
    except (SafetensorError, OSError) as error:
        raise DocmtError(f"{path} is damaged ({error}): copy it again from where it came") from error


@contextmanager
def _openable(path: Path) -> Iterator[Path]:
    """The file, opened, under a name by which the library opens the same one every time.

    A training may put another file at `path` in the meantime; and the library opens no name that is not UTF-8.
    """
    descriptor = os.open(path, os.O_RDONLY)
    opened = Path(f"/dev/fd/{descriptor}")
    try:
        yield opened if opened.exists() else path  # not every system has such names
    finally:
        os.close(descriptor)


def _is_text(path: Path) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in str(path))
