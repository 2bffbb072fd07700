"""Files of weights: safetensors, checked, into a model that takes no memory before; vocabularies of other toolkits."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from docmt.core.errors import DocmtError
from docmt.core.files import check_beside, check_regular, read_bytes
from docmt.model import ModelConfig, TranslationModel
from docmt.text import SpecialTokens

WEIGHTS_FILE = "model.safetensors"
CONFIG_FILE = "config.json"
STATE_FILE = "state.json"
"""Describes the files of a checkpoint as config.json does those of a model directory."""
BY_CONFIG = ("the config asks for", "it belongs to another model, copy the directory again")
BY_ARGUMENTS = ("its arguments ask for", "they belong to another checkpoint")
_NUMBERS = ("F32", "F16", "BF16", "F64")  # kinds of weights, in the words of safetensors
_POINTER = b"version https://git-lfs"  # in the place of a file that was not fetched with the rest of a repository


def load_weights(model: nn.Module, path: Path, assign: bool = False) -> None:
    """Copies the tensors of a safetensors file into `model`, or makes them its own (`assign`), float32 on the CPU.

    Raises DocmtError if the file is missing or damaged, or has other names or shapes than the model.
    """
    check_shapes(model.state_dict(), read_shapes(path), path)
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
    with open_tensors(path) as file:
        found = {key: file.get_slice(key) for key in file.keys()}  # noqa: SIM118 - it is no mapping
        found = {key: tensor for key, tensor in found.items() if tensor.get_dtype() not in skipped}
        for name, tensor in found.items():
            if tensor.get_dtype() not in _NUMBERS:
                raise DocmtError(
                    f"{path} has {name} as {tensor.get_dtype()}, where docmt reads {', '.join(_NUMBERS)}: convert it"
                )
        return {name: tensor.get_shape() for name, tensor in found.items()}


def check_shapes(
    expected: Mapping[str, Tensor], shapes: Mapping[str, Sequence[int]], path: Path, asked: tuple[str, str] = BY_CONFIG
) -> None:
    """Raises DocmtError unless the tensors at `path` have the expected names and shapes.

    asked: who asks for these, and what to do where that does not fit.
    """
    asks, advice = asked
    if missing := sorted(expected.keys() - shapes.keys()):
        raise DocmtError(f"{path} lacks weights for {missing[0]}: {advice}")
    if surplus := sorted(shapes.keys() - expected.keys()):
        raise DocmtError(f"{path} has weights {surplus[0]}, for which docmt's model has no place: {advice}")
    for name, tensor in expected.items():
        if list(shapes[name]) != list(tensor.shape):
            has, wanted = list(shapes[name]), list(tensor.shape)
            raise DocmtError(f"{path} has {name} of shape {has} where {asks} {wanted}: {advice}")


def save_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Writes a safetensors file (not atomic: for use inside of `atomic_path` and `atomic_directory`).

    Raises OSError when the system refuses.
    """
    try:
        save_file({name: tensor.detach().contiguous() for name, tensor in tensors.items()}, path)
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
    with open_tensors(path) as file:
        return {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118 - it is no mapping


@contextmanager
def open_tensors(path: Path) -> Iterator[Any]:
    """The safetensors file, opened by the library, whose failures are raised as DocmtError."""
    try:
        with path.open("rb") as opened:
            if opened.read(len(_POINTER)) == _POINTER:
                raise DocmtError(f"{path} only says where git-lfs has the weights: run `git lfs pull` there")
            name = Path(f"/dev/fd/{opened.fileno()}")  # as the library opens no name that is not UTF-8
            with safe_open(name if name.exists() else path, framework="pt") as file:
                yield file
    except FileNotFoundError as error:
        raise DocmtError(f"{path} is missing: copy the directory again, complete") from error
    except (SafetensorError, OSError) as error:
        raise DocmtError(f"{path} is damaged ({error}): copy it again from where it came") from error


def model_on_meta(
    config: ModelConfig, names: Collection[str], path: Path, asked: tuple[str, str] = BY_CONFIG
) -> TranslationModel:
    """The model on "meta": no memory, no random numbers and no time for weights that are read from `path` at once.

    Raises DocmtError unless it has as many layers as there are weights for by these names: a short file may ask for
    more than can be built. asked: see `check_shapes`. To an encoder alone belongs a decoder for no words, which a model
    cannot be without.
    """
    asks, advice = asked
    for side in ("encoder",) if config.is_encoder else ("encoder", "decoder"):
        wanted = getattr(config.filled(), f"{side}_layers")
        found = len({name.split(".")[1] for name in names if name.startswith(f"{side}.") and name.count(".") > 1})
        if found != wanted:
            raise DocmtError(f"{path} has {found} layers of the {side} where {asks} {wanted}: {advice}")
    for name, wanted in vars(config.chosen).items():
        if name.endswith("layers") and wanted > len(names):
            raise DocmtError(f"{path} has {len(names)} weights where {asks} {wanted} {name}: {advice}")
    if config.is_encoder:
        config = replace(config, vocabulary_size=SpecialTokens.count)
    with torch.device("meta"), _Unfilled():
        return TranslationModel(config)


class _Unfilled(TorchFunctionMode):
    """Leaves weights as they are where random numbers would be drawn: on "meta" that loads half of torch (1 s)."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in (Tensor.normal_, Tensor.uniform_) or getattr(func, "__module__", "") == "torch.nn.init":
            return kwargs["tensor"] if "tensor" in kwargs else args[0]
        return func(*args, **kwargs)


def read_symbols(path: Path, what: str) -> list[str]:
    """The lines of a vocabulary. Raises DocmtError, saying `what` it is, where it cannot be read or is no text."""
    data = read_bytes(path, what, advice="give that of the checkpoint")
    try:
        lines = data.decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise DocmtError(f"{path} is no text in UTF-8 ({error}): give {what} of the checkpoint") from error
    return lines[:-1] if lines[-1] == "" else lines


def load_renamed(
    config: ModelConfig, weights: Mapping[str, Tensor], checkpoint: Path, asked: tuple[str, str] = BY_ARGUMENTS
) -> TranslationModel:
    """The model made of these weights themselves; for an encoder alone the rest stays on "meta".

    weights: each in memory of its own; asked: see `check_shapes`. Raises DocmtError where names or shapes are not those
    of the model, before it takes memory, or where weights are not numbers.
    """
    model = model_on_meta(config, weights, checkpoint, asked)
    expected = model.state_dict()
    if config.is_encoder:
        expected = {name: expected[name] for name in expected if name.startswith(("encoder.", "source_"))}
    check_shapes(expected, {name: tensor.shape for name, tensor in weights.items()}, checkpoint, asked)
    check_numbers(checkpoint, weights)
    model.load_state_dict(weights, strict=not config.is_encoder, assign=True)
    return model


def renamed(name: str, names: Sequence[tuple[str, str]]) -> str:
    """A name with the patterns replaced, one after the other."""
    for pattern, replacement in names:
        name = re.sub(pattern, replacement, name)
    return name
