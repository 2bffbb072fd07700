"""Reading, checking and writing of weights: safetensors, and pickled files of PyTorch, which may hold code.

A pickle names the functions that it wants to call. Before anything is loaded, these names and the operations are
compared with the few that files of weights have. The loader is then PyTorch's restricted one (`weights_only`).
"""

from __future__ import annotations

import io
import math
import os
import pickle
import pickletools
import re
import zipfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, Literal

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from docmt.core.errors import DocmtError
from docmt.core.files import check_checksum, check_regular, read_bytes, read_error, read_json
from docmt.core.settings import quote
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
    tensors = read_weights(path)
    if assign:
        tensors = {name: tensor.float() for name, tensor in tensors.items()}
    model.load_state_dict(tensors, assign=assign)


def read_shapes(path: Path, skipped: Sequence[str] = ()) -> dict[str, list[int]]:
    """Return the shape of every tensor of a safetensors file, without reading the tensors.

    skipped: safetensors types that are ignored. Raises DocmtError if the file is missing or damaged, or has a tensor of
    any other type than floating point, or int8 with scales.
    """
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
    check_checksum(path, CONFIG_FILE, STATE_FILE)
    tensors = read_tensors(path)
    check_numbers(path, tensors)
    return _restore_floats(path, tensors)


def convert_weights(path: Path, tensors: Mapping[str, Tensor], stored: StoredType) -> dict[str, Tensor]:
    """Convert float weights to the type in which they are stored at `path`. Raises DocmtError beyond its range."""
    kind = torch.float32 if stored == "int8" else getattr(torch, stored)
    result = {name: tensor.to(kind) for name, tensor in tensors.items()}
    check_numbers(path, result)
    for name, tensor in list(result.items()):
        if stored == "int8" and tensor.dim() == 2 and tensor.numel():
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
    with open_tensors(path) as file:
        return {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118 - it is no mapping


@contextmanager
def open_tensors(path: Path) -> Iterator[Any]:
    """Open a safetensors file. Raises DocmtError if it is missing, damaged or no regular file."""
    check_regular(path)
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

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
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


PICKLE_FILE = "pytorch_model.bin"
INDEX_SUFFIX = ".index.json"
"""Ending of the index of shards"""
_SKIPPED_TYPES, _POSITION_BUFFER = ("I64",), "position_ids"  # some files hold position numbers beside weights


@dataclass(frozen=True)
class Weights:
    """Weights of a directory, read from their files on demand."""

    directory: Path
    shapes: Mapping[str, Sequence[int]]
    stored: Mapping[str, Path | Tensor]
    """The file of each tensor, or itself, mapped into memory, if its file is pickled"""

    def read_tensor(self, name: str) -> Tensor:
        """Return one tensor as float32, in memory of its own."""
        stored = self.stored[name]
        if isinstance(stored, Tensor):
            return stored.to(torch.float32, copy=True, memory_format=torch.contiguous_format)
        with open_tensors(stored) as file:
            tensor: Tensor = file.get_tensor(name)
        return tensor.float()

    def read_rows(self, name: str, rows: Sequence[int]) -> Tensor:
        """Return rows of a table as float32 [rows, d]. Row -1 is zero."""
        return select_rows(self.read_tensor(name), rows)

    def are_equal(self, first: str, second: str) -> bool:
        """Return whether two tables are equal."""
        equal_shapes = self.shapes[first] == self.shapes[second]
        return equal_shapes and torch.equal(self.read_tensor(first), self.read_tensor(second))


def select_rows(table: Tensor, rows: Sequence[int]) -> Tensor:
    """Return rows of a table or vector. Row -1 is zero."""
    indices = torch.tensor(rows)
    selected = table[indices.clamp(min=0)]
    selected[indices < 0] = 0.0
    return selected


def open_weights(directory: Path, allow_pickle: bool = False) -> Weights:
    """Return the weights of a directory.

    allow_pickle: if there are no safetensors, read pickled weights, after a check of what they call.
    Raises DocmtError if there are no such files or some are missing.
    """
    for name in (WEIGHTS_FILE, PICKLE_FILE):
        index = directory / f"{name}{INDEX_SUFFIX}"
        if not (directory / name).is_file() and not index.is_file():
            continue
        if name == PICKLE_FILE and not allow_pickle:
            file = name if (directory / name).is_file() else index.name
            raise DocmtError(
                f"{directory} has its weights in {file}, which may hold code and is not opened. Add --allow-pickle to "
                f"read it after a check, or save it with `save_pretrained` of transformers, which writes {WEIGHTS_FILE}"
            )
        weight_map = {} if (directory / name).is_file() else read_weight_map(index)
        weights = _open_files(directory, sorted({*weight_map.values()} or {name}), name == PICKLE_FILE)
        stored = weights.shapes.keys()
        if missing := sorted(key for key in weight_map.keys() - stored if not key.endswith(_POSITION_BUFFER)):
            raise DocmtError(f"{directory} lacks weights for {missing[0]}, which {index.name} names. Copy it again")
        return weights
    raise DocmtError(
        f"{directory} has neither {WEIGHTS_FILE} nor {WEIGHTS_FILE}{INDEX_SUFFIX}. Copy the whole directory again, or "
        "save it with `save_pretrained` of transformers"
    )


def read_weight_map(index: Path) -> dict[str, str]:
    """Return the file name of each tensor in an index of shards. Raises DocmtError if it is damaged."""
    weight_map = read_json(index).get("weight_map")
    if not isinstance(weight_map, dict) or not all(isinstance(name, str) for name in weight_map.values()):
        raise DocmtError(f"{index} has no weight_map. Copy it again from its source")
    return {key: Path(name).name for key, name in weight_map.items()}


def _open_files(directory: Path, names: Sequence[str], pickled: bool) -> Weights:
    """Return the weights of files. Raises DocmtError if they are missing or damaged."""
    shapes: dict[str, Sequence[int]] = {}
    stored: dict[str, Path | Tensor] = {}
    for path in (directory / name for name in names):
        if pickled:
            floats = {key: each for key, each in read_pickled_weights(path).items() if each.is_floating_point()}
            shapes |= {key: list(tensor.shape) for key, tensor in floats.items()}
            stored |= floats
        else:
            file_shapes = read_shapes(path, skipped=_SKIPPED_TYPES)
            shapes |= file_shapes
            stored |= dict.fromkeys(file_shapes, path)
    return Weights(directory, shapes, stored)


_STORAGES = [f"torch {kind}Storage" for kind in ("Float", "Half", "BFloat16", "Long")]
_GLOBALS = frozenset(["collections OrderedDict", "torch._utils _rebuild_tensor_v2", *_STORAGES])
_OPERATION_NAMES = """
    PROTO STOP MARK GLOBAL REDUCE BUILD BINPERSID NONE NEWTRUE NEWFALSE BININT BININT1 BININT2 LONG1 BINFLOAT BINUNICODE
    SHORT_BINUNICODE EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3 EMPTY_LIST APPEND APPENDS EMPTY_DICT SETITEM SETITEMS BINPUT
    LONG_BINPUT BINGET LONG_BINGET
"""
_OPERATIONS = frozenset(_OPERATION_NAMES.split())
_ZIP_START = b"PK\x03\x04"
_LEGACY_PICKLES = 5  # before PyTorch 1.6: magic number, version, system, state, keys of storages
_LEGACY_START = b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19."  # the pickled magic number
_LARGEST_PICKLE = 2**26  # bytes; that of a model of 1000 tensors has about 100,000
_DAMAGED = (ValueError, KeyError, IndexError, EOFError, AttributeError, zipfile.BadZipFile, NotImplementedError)


def read_pickled_weights(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a pickled file by name, on the CPU, mapped into memory where the format allows it.

    Raises DocmtError, before anything is loaded, for a pickle with anything but tensors in dictionaries, and for a
    damaged file.
    """
    is_zip = check_pickle(path)
    try:
        values = torch.load(path, map_location="cpu", weights_only=True, mmap=is_zip)
    except (RuntimeError, pickle.UnpicklingError, TypeError, OSError, AssertionError, *_DAMAGED) as error:
        raise _damage_error(path, error) from error
    if not isinstance(values, dict):
        raise DocmtError(f"{path} holds a {type(values).__name__}, not weights by name. Use another file")
    for name, tensor in values.items():
        if not isinstance(name, str) or not isinstance(tensor, Tensor):
            raise DocmtError(f"{path} holds {type(tensor).__name__} as {quote(name)}. docmt reads tensors only")
        if tensor.numel() * tensor.element_size() > tensor.untyped_storage().nbytes():
            raise DocmtError(f"{path} has {name} with more elements than bytes are stored. Copy it again")
    return values


def check_pickle(path: Path) -> bool:
    """Check that a pickled file can hold tensors only. Return whether it is in PyTorch's zip format.

    Nothing in it is run. Raises DocmtError naming the first operation or function that does not belong there.
    """
    check_regular(path)
    try:
        with path.open("rb") as file:
            start = file.read(len(_LEGACY_START))
            if start.startswith(_ZIP_START):
                _check_operations(path, io.BytesIO(_read_zipped_pickle(path, file)), 1)
                return True
            if start != _LEGACY_START:
                raise DocmtError(f"{path} is not a file of PyTorch weights. Copy it again from its source")
            file.seek(0)
            _check_operations(path, file, _LEGACY_PICKLES)
            return False
    except OSError as error:
        raise read_error(path, error, advice="copy it again from its source") from error
    except (RuntimeError, *_DAMAGED) as error:
        raise _damage_error(path, error) from error


def _read_zipped_pickle(path: Path, file: BinaryIO) -> bytes:
    """Return the only pickle of a file in zip format."""
    with zipfile.ZipFile(file) as archive:
        entries = [entry for entry in archive.infolist() if entry.filename.lower().endswith(".pkl")]
        if len(entries) != 1 or Path(entries[0].filename).name != "data.pkl":
            raise DocmtError(f"{path} has {len(entries)} pickles where weights have one. It is not opened")
        if entries[0].compress_type != zipfile.ZIP_STORED or entries[0].file_size > _LARGEST_PICKLE:
            raise DocmtError(f"{path} has a compressed or overlong pickle, as weights never have. It is not opened")
        data = archive.read(entries[0])
    # A file can have two directories, of which one reader sees the first and another one the second.
    if torch._C.PyTorchFileReader(str(path)).get_record("data.pkl") != data:
        raise DocmtError(f"{path} has a pickle beside the one that its directory names. It is not opened")
    return data


def _check_operations(path: Path, file: BinaryIO, pickles: int) -> None:
    """Raise DocmtError for the first operation that weights do not need, in pickles that follow each other."""
    start = file.tell()
    for _ in range(pickles):
        for operation, argument, _ in pickletools.genops(file):
            if operation.name == "GLOBAL" and argument not in _GLOBALS:
                name = quote(str(argument).replace(" ", "."))
                raise DocmtError(f"{path} may run code: it has {name}, which weights do not need. It is not opened")
            if operation.name not in _OPERATIONS:
                unusual = f"the pickle operation {operation.name}"
                raise DocmtError(f"{path} has {unusual}, as weights never have. It is not opened")
            if file.tell() - start > _LARGEST_PICKLE:
                raise DocmtError(f"{path} has an overlong pickle, as weights never have. It is not opened")


def _damage_error(path: Path, error: Exception) -> DocmtError:
    reason = str(error).partition("\n")[0][:200]
    return DocmtError(f"{path} is damaged ({reason}). Copy it again from its source")


def average_weights(paths: Sequence[Path]) -> dict[str, Tensor]:
    """Return the mean of the tensors of safetensors files, summed in float64.

    Raises DocmtError if a file is missing or damaged, or has other tensors than the first.
    """
    return average_tensors((str(path), read_weights(path)) for path in paths)


def average_tensors(models: Iterable[tuple[str, dict[str, Tensor]]]) -> dict[str, Tensor]:
    """Return the mean of named models, given as (model name, tensors by name). Keeps one model in memory at a time."""
    iterator = iter(models)
    first, weights = next(iterator)
    sums, count = {name: tensor.double() for name, tensor in weights.items()}, 1
    for model_name, tensors in iterator:
        for name in {**weights, **tensors}:
            if name not in tensors or name not in weights or tensors[name].shape != weights[name].shape:
                raise DocmtError(f"{model_name} and {first} are different models (at {name}). Copy the run again")
            sums[name] += tensors[name]
        count += 1
    return {name: (total / count).float() for name, total in sums.items()}
