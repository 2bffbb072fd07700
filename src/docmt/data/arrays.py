"""Arrays of token ids and offsets on disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from docmt.core.errors import DocmtError
from docmt.core.files import check_regular

Tokens = NDArray[np.uint16] | NDArray[np.int32]
Offsets = NDArray[np.int64]


def token_dtype(vocabulary_size: int) -> np.dtype[Any]:
    """Two bytes for a token where the ids allow it: reading is then half the work."""
    return np.dtype("<u2" if vocabulary_size <= 1 << 16 else "<i4")


def save_array(path: Path, array: NDArray[Any]) -> None:
    """Like `np.save`, whose error for a full disk does not say so."""
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, np.lib.format.header_data_from_array_1_0(array))
        file.write(array.tobytes())


def load_array(path: Path, kinds: str, advice: str) -> NDArray[Any]:
    """The array of one dimension in a file, mapped into memory; kinds: of its numbers, as numpy calls them.

    Raises DocmtError, with the advice, if it is missing or damaged.
    """
    check_regular(path)
    try:
        loaded = np.load(path, mmap_mode="r", allow_pickle=False)
    except OSError as error:
        raise damaged(path, error.strerror or "it cannot be read", advice) from error
    except Exception as error:
        # numpy reads the header as Python: a flipped bit raises TokenError, SyntaxError and whatever else it spells.
        raise damaged(path, "it is truncated or no array", advice) from error
    if not isinstance(loaded, np.ndarray) or loaded.ndim != 1 or loaded.dtype.kind not in kinds:
        raise damaged(path, "it does not hold a list of whole numbers", advice)
    return loaded


def damaged(path: Path, reason: str, advice: str) -> DocmtError:
    """The DocmtError for a file that is missing or not what was written; advice: what to do."""
    return DocmtError(f"{path} is missing or damaged ({reason}); {advice}")
