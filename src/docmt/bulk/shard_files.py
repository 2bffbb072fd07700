"""Shards: what they consist of, for the worker, and those of folders of files that `docmt translate` reads."""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeVar

from docmt.core.errors import DocmtError
from docmt.core.files import check_regular, make_directory
from docmt.core.plain_text import write_bytes
from docmt.decoding.file_translation import FileConfig, SourceFile
from docmt.documents.input_formats import has_jsonl_name
from docmt.documents.published_corpora import is_parquet

if TYPE_CHECKING:
    from docmt.decoding import Translation
    from docmt.decoding.file_translation import Align
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


_NO_OPTION = "(an option of docmt translate, which docmt bulk lacks)"


def list_files(folder: Path) -> list[Path]:
    """Return the files below a folder, relative to it, in order; names that begin with a dot are left out.

    A link to a folder is not followed but counts as a file, which cannot be read. Raises OSError.
    """
    files = []
    for parent, folders, names in os.walk(folder, onerror=_raise):
        folders[:] = [name for name in folders if not name.startswith(".")]
        names += [name for name in folders if Path(parent, name).is_symlink()]
        files += [Path(parent, name).relative_to(folder) for name in names if not name.startswith(".")]
    return sorted(files)


def _raise(error: OSError) -> NoReturn:
    raise error


class FileShards(ShardKind):
    """Files in folders. A shard that waits has their paths, as (number of the folder, path in it)."""

    format = "files"

    def __init__(self, config: FileConfig, folders: Sequence[Path]) -> None:
        """folders: with several, outputs are in a folder for each. Raises DocmtError for two of one name."""
        self._config, self._folders = config, [folder.absolute() for folder in folders]
        self._names = [folder.name for folder in self._folders] if len(self._folders) > 1 else [""]
        if len(set(self._names)) < len(self._names):
            raise DocmtError(f"two folders have one name among {', '.join(self._names)}: translate them in two jobs")

    @classmethod
    def from_description(cls, values: Mapping[str, Any], folders: Sequence[Path]) -> FileShards:
        """Return the kind of a plan. folders: where this worker has them, if elsewhere."""
        tuples = {name: tuple(values["config"][name]) for name in ("fields", "protect")}
        config = FileConfig(**{**values["config"], **tuples})
        kind = cls(config, folders or list(map(Path, values["folders"])))
        if missing := next((folder for folder in kind._folders if not folder.is_dir()), None):
            raise DocmtError(f"there is no folder {missing}: name the input as this machine has it")
        return kind

    def describe(self) -> dict[str, Any]:
        """Return JSON values for `from_description`."""
        config = {name: value for name, value in asdict(self._config).items() if name != "tags"}  # of requests alone
        return {"format": self.format, "config": config, "folders": list(map(str, self._folders))}

    def split(self, count: CountTokens, limit: int) -> Iterator[Part]:
        """Yield shards of files. Raises DocmtError for files of rows."""
        files = self._list_files()
        for group, tokens in group_by_tokens(files, self._texts, count, limit):
            yield Part(json.dumps(group).encode(), len(group), tokens)

    def _list_files(self) -> Iterator[tuple[int, str]]:
        for number, folder in enumerate(self._folders):
            for path in list_files(folder):
                if is_parquet(path) or has_jsonl_name(path):
                    raise DocmtError(f"{folder / path} has a document a row: name such files, not their folder")
                yield number, str(path)

    def _texts(self, file: tuple[int, str]) -> list[str]:
        """Return the sentences of a file, to count their tokens; none if it cannot be read."""
        return [sentence for document in self._read(*file).documents for sentence in document.sentences]

    def read(self, data: bytes) -> list[ShardItem]:
        """Return an item for each file."""
        return [self._read(number, path) for number, path in json.loads(data)]

    def _read(self, number: int, name: str) -> ShardItem:
        path, values = str(self._folders[number] / name), {"path": self._output_name(number, name)}
        try:
            check_regular(path)  # nobody may write to a pipe in a folder
            file = SourceFile.read(path, "auto", self._config)
            return ShardItem(path, file.documents, values, file=file)
        except Exception as error:  # whatever a damaged file causes must not stop the others
            reason = describe_error(error).removeprefix(f"{path}: ")
            if " --" in reason.replace(path, ""):
                reason += f" {_NO_OPTION}"
            return ShardItem(path, [], values, reason)

    def write(self, output: Path, name: str, data: bytes, results: Sequence[Result], align: Align) -> Written:
        """Write each file to its path in the output folder."""
        files, failures = list[str](), list[Failure]()
        for item, versions in results:
            assert item.file is not None
            try:
                translated, _ = item.file.render([best for best, *_ in versions], align)
            except Exception as error:  # of a file that cannot be put together again
                failures.append((item, describe_error(error)))
                continue
            path = output / item.values["path"]
            make_directory(path.parent)
            write_bytes(path, translated)
            files.append(item.values["path"])
        # An earlier worker may have written a file that now fails, and have been killed before the shard was done.
        for file in {self._output_name(*each) for each in json.loads(data)} - set(files):
            (output / file).unlink(missing_ok=True)
        return files, failures

    def _output_name(self, number: int, name: str) -> str:
        return str(Path(self._names[number], name))
