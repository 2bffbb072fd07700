"""Process many items so that a failure of one does not stop the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from docmt.core.errors import DocmtError, is_out_of_memory

Item = TypeVar("Item")
Result = TypeVar("Result")

OUT_OF_MEMORY = "out of memory: split its long sentences, or use smaller batches (--search.batch_tokens)"


def map_or_error(
    items: Sequence[Item], work: Callable[[Sequence[Item]], Sequence[Result]]
) -> list[Result | DocmtError]:
    """Return the result of `work` for every item, or its error.

    All items are processed together, which is fastest. After a failure they are halved until the failing item is
    isolated. A failure is a DocmtError or a lack of memory; other exceptions are raised.
    """
    results = _attempt(items, work) if items else []
    if not isinstance(results, str):
        return list(results)
    if len(items) == 1:
        return [DocmtError(results)]
    half = len(items) // 2
    return [*map_or_error(items[:half], work), *map_or_error(items[half:], work)]


def _attempt(items: Sequence[Item], work: Callable[[Sequence[Item]], Sequence[Result]]) -> Sequence[Result] | str:
    """Return the results, or the reason of a failure; a string, so that no traceback holds on to tensors."""
    try:
        return work(items)
    except DocmtError as error:
        return str(error)
    except (MemoryError, RuntimeError) as error:
        if is_out_of_memory(error):
            return OUT_OF_MEMORY
        raise
