"""Reading, checking and writing of weights in safetensors, and vocabulary files of other toolkits."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from docmt.core.errors import DocmtError
from docmt.core.files import check_checksum, check_regular, read_bytes
from docmt.model import ModelConfig, TranslationModel
from docmt.text import SpecialTokens

WEIGHTS_FILE = "model.safetensors"
CONFIG_FILE = "config.json"
STATE_FILE = "state.json"
"""Checksums of the files of a checkpoint, as config.json holds them in a model directory."""
CONFIG_MISMATCH = ("the config needs", "It belongs to another model. Copy the directory again")
ARGUMENTS_MISMATCH = ("its arguments need", "They belong to another checkpoint")
"""Parts of error messages: what expects other weights, and advice."""
_FLOAT_TYPES = ("F32", "F16", "BF16", "F64")  # weight types in safetensors
_SCALES = ".int8_scale"  # suffix of the tensor with the scales of a matrix in int8
StoredType = Literal["float32", "float16", "int8"]
"""Types of the weights in a model directory. int8: matrices, each row with a scale; the rest is float32."""
_LFS_POINTER = b"version https://git-lfs"  # start of a placeholder file that git-lfs has not replaced


def load_weights(model: nn.Module, path: Path, assign: bool = False) -> None:
    """Load a safetensors file into `model`. `assign`: replace its parameters, as float32 on the CPU.

    Raises DocmtError if the file is missing or damaged, or has other names or shapes than the model.
    """
    check_shapes(model.state_dict(), read_shapes(path), path)
    tensors = _read_checked_tensors(path)
    if assign:
        tensors = {name: tensor.float() for name, tensor in tensors.items()}
    model.load_state_dict(tensors, assign=assign)


def read_shapes(path: Path, skipped: Sequence[str] = ()) -> dict[str, list[int]]:
    """Return the shape of every tensor of a safetensors file, without reading the tensors.

    skipped: safetensors types that are ignored. Raises DocmtError if the file is missing or damaged, or has a tensor of
    any other type than floating point, or int8 with scales.
    """
    check_regular(path)
    with open_tensors(path) as file:
        slices = {key: file.get_slice(key) for key in file.keys()}  # noqa: SIM118 - it is no mapping
        slices = {key: tensor for key, tensor in slices.items() if tensor.get_dtype() not in skipped}
        for name, tensor in slices.items():
            is_quantized = tensor.get_dtype() == "I8" and name + _SCALES in slices
            if not is_quantized and tensor.get_dtype() not in _FLOAT_TYPES:
                raise DocmtError(
                    f"{path} has {name} as {tensor.get_dtype()}. Convert it to one of {', '.join(_FLOAT_TYPES)}"
                )
        scales = {name for name in slices if name.removesuffix(_SCALES) in slices and name.endswith(_SCALES)}
        return {name: tensor.get_shape() for name, tensor in slices.items() if name not in scales}


def check_shapes(
    expected: Mapping[str, Tensor],
    shapes: Mapping[str, Sequence[int]],
    path: Path,
    mismatch: tuple[str, str] = CONFIG_MISMATCH,
) -> None:
    """Raise DocmtError unless the tensors at `path` have the expected names and shapes.

    mismatch: see `CONFIG_MISMATCH`.
    """
    requirement, advice = mismatch
    if missing := sorted(expected.keys() - shapes.keys()):
        raise DocmtError(f"{path} lacks weights for {missing[0]}. {advice}")
    if surplus := sorted(shapes.keys() - expected.keys()):
        raise DocmtError(f"{path} has weights {surplus[0]}, which docmt's model does not have. {advice}")
    for name, tensor in expected.items():
        if list(shapes[name]) != list(tensor.shape):
            actual, required = list(shapes[name]), list(tensor.shape)
            raise DocmtError(f"{path} has {name} of shape {actual}, but {requirement} {required}. {advice}")


def save_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write a safetensors file (not atomic: for use inside `atomic_path` and `atomic_directory`).

    Raises OSError if the system refuses.
    """
    try:
        save_file({name: tensor.detach().contiguous() for name, tensor in tensors.items()}, path)
    except SafetensorError as error:  # for example a full disk
        number = re.search(r"os error (\d+)", str(error))
        raise OSError(int(number[1]), os.strerror(int(number[1]))) if number else OSError(str(error)) from error


def read_weights(path: Path) -> dict[str, Tensor]:
    """Return all tensors of a safetensors file that docmt wrote, on the CPU.

    Raises DocmtError if it is missing or damaged, differs from the checksum in the config beside it, or holds NaN or
    infinite weights.
    """
    read_shapes(path)
    return _read_checked_tensors(path)


def _read_checked_tensors(path: Path) -> dict[str, Tensor]:
    check_checksum(path, CONFIG_FILE, STATE_FILE)
    tensors = read_tensors(path)
    check_numbers(path, tensors)
    return _restore_floats(path, tensors)


def convert_weights(path: Path, tensors: Mapping[str, Tensor], stored: StoredType) -> dict[str, Tensor]:
    """Convert float weights to the type in which they are stored at `path`. Raises DocmtError beyond its range."""
    if stored != "int8":
        result = {name: tensor.to(getattr(torch, stored)) for name, tensor in tensors.items()}
        check_numbers(path, result)
        return result
    result = {name: tensor.float() for name, tensor in tensors.items()}
    check_numbers(path, result)
    for name, tensor in list(result.items()):
        if tensor.dim() == 2 and tensor.numel():
            scales = (tensor.abs().amax(dim=1) / 127).clamp(min=torch.finfo(torch.float32).tiny)
            result |= {name: (tensor / scales[:, None]).round().to(torch.int8), name + _SCALES: scales}
    return result


def _restore_floats(path: Path, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Multiply matrices in int8 by the scales of their rows. Raises DocmtError for another number of scales."""
    for name in [name for name, tensor in tensors.items() if tensor.dtype == torch.int8]:
        scales = tensors.pop(name + _SCALES).float()
        if scales.shape != tensors[name].shape[:1]:
            raise DocmtError(f"{path} has {len(scales)} scales for {name}, one for each row is needed. Copy it again")
        tensors[name] = tensors[name] * scales[:, None]
    return tensors


def check_numbers(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Raise DocmtError if a tensor holds NaN or an infinite number. Takes one pass over memory."""
    for name, tensor in tensors.items():
        if tensor.numel() and not all(math.isfinite(value) for value in torch.aminmax(tensor)):
            raise DocmtError(
                f"{path} has NaN or infinite weights (in {name}). Copy it again, or train the model again if the "
                "original has them, too"
            )


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Return all tensors of a safetensors file, on the CPU. Raises DocmtError if it is missing or damaged."""
    check_regular(path)
    with open_tensors(path) as file:
        return {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118 - it is no mapping


@contextmanager
def open_tensors(path: Path) -> Iterator[Any]:
    """Open a safetensors file. Raises DocmtError if it is missing or damaged."""
    try:
        with path.open("rb") as opened:
            if opened.read(len(_LFS_POINTER)) == _LFS_POINTER:
                raise DocmtError(f"{path} is a git-lfs placeholder without weights. Run `git lfs pull` there")
            name = Path(f"/dev/fd/{opened.fileno()}")  # the library cannot open a name that is not UTF-8
            with safe_open(name if name.exists() else path, framework="pt") as file:
                yield file
    except FileNotFoundError as error:
        raise DocmtError(f"{path} is missing. Copy the whole directory again") from error
    except (SafetensorError, OSError) as error:
        raise DocmtError(f"{path} is damaged ({error}). Copy it again from its source") from error


def build_on_meta(
    config: ModelConfig, names: Collection[str], path: Path, mismatch: tuple[str, str] = CONFIG_MISMATCH
) -> TranslationModel:
    """Build a model on the "meta" device, without memory and initialisation for weights that will be loaded.

    names: of the weights at `path`. Raises DocmtError if their number of layers differs from the config's, because a
    damaged config may ask for more layers than can be built. mismatch: see `CONFIG_MISMATCH`. A config of an encoder
    alone gets a decoder with an empty vocabulary.
    """
    requirement, advice = mismatch
    for side in ("encoder",) if config.is_encoder else ("encoder", "decoder"):
        required = getattr(config.resolve(), f"{side}_layers")
        layers = len({name.split(".")[1] for name in names if name.startswith(f"{side}.") and name.count(".") > 1})
        if layers != required:
            raise DocmtError(f"{path} has {layers} {side} layers, but {requirement} {required}. {advice}")
    for name, count in vars(config.system_options).items():
        if name.endswith("layers") and count > len(names):
            raise DocmtError(f"{path} has {len(names)} weights, but {requirement} {count} {name}. {advice}")
    if config.is_encoder:
        config = replace(config, vocabulary_size=SpecialTokens.count)
    with torch.device("meta"), _SkipInitialization():
        return TranslationModel(config)


class _SkipInitialization(TorchFunctionMode):
    """Mode that skips random initialisation, which on the "meta" device imports half of torch (1 s)."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in (Tensor.normal_, Tensor.uniform_) or getattr(func, "__module__", "") == "torch.nn.init":
            return kwargs["tensor"] if "tensor" in kwargs else args[0]
        return func(*args, **kwargs)


def read_symbols(path: Path, description: str) -> list[str]:
    """Return the lines of a vocabulary. Raises DocmtError naming `description` if it cannot be read as UTF-8."""
    data = read_bytes(path, description, advice="give that of the checkpoint")
    try:
        lines = data.decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise DocmtError(f"{path} is not UTF-8 text ({error}). Use {description} of the checkpoint") from error
    return lines[:-1] if lines[-1] == "" else lines


def build_from_weights(
    config: ModelConfig, weights: Mapping[str, Tensor], checkpoint: Path, mismatch: tuple[str, str] = ARGUMENTS_MISMATCH
) -> TranslationModel:
    """Build a model of these tensors without copying. The decoder of an encoder alone stays on "meta".

    weights: must not share memory. mismatch: see `CONFIG_MISMATCH`. Raises DocmtError if names or shapes differ from
    the config (before memory is used), or if weights are NaN or infinite.
    """
    model = build_on_meta(config, weights, checkpoint, mismatch)
    expected = model.state_dict()
    if config.is_encoder:
        expected = {name: expected[name] for name in expected if name.startswith(("encoder.", "source_"))}
    check_shapes(expected, {name: tensor.shape for name, tensor in weights.items()}, checkpoint, mismatch)
    check_numbers(checkpoint, weights)
    model.load_state_dict(weights, strict=not config.is_encoder, assign=True)
    return model


def apply_renames(name: str, names: Sequence[tuple[str, str]]) -> str:
    """Replace the patterns in a name, one after the other."""
    for pattern, replacement in names:
        name = re.sub(pattern, replacement, name)
    return name
