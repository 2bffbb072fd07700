"""What a shard consists of: the seam between the worker and the files of a corpus."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from docmt.core.errors import DocmtError

if TYPE_CHECKING:
    from docmt.decoding import Translation
    from docmt.decoding.file_translation import Align, SourceFile
    from docmt.documents import Document

CountTokens = Callable[[Sequence[str]], list[int]]
"""Returns the number of tokens of each text."""
_BLOCK = 256  # items whose tokens are counted together
Item = TypeVar("Item")


@dataclass(frozen=True)
class ShardItem:
    """A row or a file, which is translated whole or fails whole."""

    name: str
    """for messages"""
    documents: list[Document]
    values: dict[str, Any] = field(default_factory=dict)
    """what the kind needs to write it, and what is told if it fails"""
    error: str = ""
    """why it cannot be read"""
    file: SourceFile | None = None
    """the file, if it is none of rows"""

    def failure(self, reason: str) -> dict[str, Any]:
        """Return the record of an item that failed."""
        return {**self.values, "location": self.name, "error": reason}


Versions = Sequence[Sequence["Translation"]]
"""The translations of each document of an item, best first."""
Result = tuple[ShardItem, Versions]
Failure = tuple[ShardItem, str]
"""An item that failed, and why."""


def describe_error(error: Exception) -> str:
    """Return why an item failed; errors that are no DocmtErrors are named."""
    return str(error) if isinstance(error, DocmtError) else f"{type(error).__name__}: {error}"


class Part(NamedTuple):
    """A shard of a plan."""

    data: bytes
    documents: int
    tokens: int


Written = tuple[list[str], list[Failure]]
"""The files that are written of a shard, below the output folder, and the items that cannot be written."""


class ShardKind(ABC):
    """How the input of a job is split, and its shards are read and written."""

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """Return JSON values from which `docmt.bulk.worker.open_kind` makes an equal kind."""

    @abstractmethod
    def split(self, count: CountTokens, limit: int) -> Iterator[Part]:
        """Yield shards of about `limit` source tokens. Raises DocmtError for input that cannot be read."""

    @abstractmethod
    def read(self, data: bytes) -> list[ShardItem]:
        """Return the items of a shard."""

    @abstractmethod
    def write(self, output: Path, name: str, data: bytes, results: Sequence[Result], align: Align) -> Written:
        """Write the translations of a shard. name, data: of its file. align: `Translator.align`."""


def group_by_tokens(
    items: Iterable[Item], texts: Callable[[Item], Sequence[str]], count: CountTokens, limit: int
) -> Iterator[tuple[list[Item], int]]:
    """Yield items in order, in groups that end when they have `limit` tokens or more, and the tokens of the group."""
    group: list[Item] = []
    tokens, iterator = 0, iter(items)
    while block := list(islice(iterator, _BLOCK)):
        block_texts = [texts(item) for item in block]
        counts = iter(count([text for each in block_texts for text in each]))
        for item, each in zip(block, block_texts, strict=True):
            group.append(item)
            tokens += sum(islice(counts, len(each)))
            if tokens >= limit:
                yield group, tokens
                group, tokens = [], 0
    if group:
        yield group, tokens
