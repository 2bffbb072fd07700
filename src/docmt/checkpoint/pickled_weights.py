"""Reader of pickled PyTorch weights (`pytorch_model.bin`), which may hold code.

A pickle names the functions that it wants to call. Before anything is loaded, these names and the operations are
compared with the few that files of weights have. The loader is then PyTorch's restricted one (`weights_only`).
"""

from __future__ import annotations

import io
import pickle
import pickletools
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor

from docmt.core.errors import DocmtError
from docmt.core.files import check_regular, read_error
from docmt.core.settings import quote

_GLOBALS = frozenset(
    [
        "collections OrderedDict",
        "torch._utils _rebuild_tensor_v2",
        *(f"torch {kind}Storage" for kind in ("Float", "Half", "BFloat16", "Long")),
    ]
)
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
    for operation, argument in _iterate_operations(path, file, pickles):
        if operation == "GLOBAL" and argument not in _GLOBALS:
            name = str(argument).replace(" ", ".")
            raise DocmtError(f"{path} may run code: it has {quote(name)}, which weights do not need. It is not opened")
        if operation not in _OPERATIONS:
            raise DocmtError(f"{path} has the pickle operation {operation}, as weights never have. It is not opened")


def _iterate_operations(path: Path, file: BinaryIO, pickles: int) -> Iterator[tuple[str, Any]]:
    start = file.tell()
    for _ in range(pickles):
        for operation, argument, _ in pickletools.genops(file):
            yield operation.name, argument
            if file.tell() - start > _LARGEST_PICKLE:
                raise DocmtError(f"{path} has an overlong pickle, as weights never have. It is not opened")


def _damage_error(path: Path, error: Exception) -> DocmtError:
    reason = str(error).partition("\n")[0][:200]
    return DocmtError(f"{path} is damaged ({reason}). Copy it again from its source")
