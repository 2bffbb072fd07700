"""Work on many documents in which one that fails does not stop the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from docmt.core.errors import DocmtError, is_out_of_memory

Item = TypeVar("Item")
Result = TypeVar("Result")

OUT_OF_MEMORY = "out of memory: split its long sentences, or use smaller batches (--search.batch_tokens)"


def each_or_error(
    items: Sequence[Item], work: Callable[[Sequence[Item]], Sequence[Result]]
) -> list[Result | DocmtError]:
    """What `work` makes of all items, and in the place of one that cannot be done the error.

    The items (documents, most often) are done together, as that is fastest. Where it fails they are halved until the
    one is alone that fails. What fails: DocmtError, and memory that is not there.
    """
    done = _attempt(items, work) if items else []
    if not isinstance(done, str):
        return list(done)
    if len(items) == 1:
        return [DocmtError(done)]
    half = len(items) // 2
    return [*each_or_error(items[:half], work), *each_or_error(items[half:], work)]


def _attempt(items: Sequence[Item], work: Callable[[Sequence[Item]], Sequence[Result]]) -> Sequence[Result] | str:
    """What `work` makes of the items, or why it cannot. With the error the tensors of its frames are let go."""
    try:
        return work(items)
    except DocmtError as error:
        return str(error)
    except (MemoryError, RuntimeError) as error:
        if is_out_of_memory(error):
            return OUT_OF_MEMORY
        raise
