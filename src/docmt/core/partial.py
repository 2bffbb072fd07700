"""A file that is written over hours: what is finished of it outlives its process, and the next process goes on.

Beside OUT stands OUT.partial until OUT is complete. It has one JSON object a line. The first line tells what OUT is
made from. Each further line has some text of OUT, and a note: what its writer must know to go on. Every line ends with
the CRC-32 of all up to there. A line without an end is of a process that was killed while it wrote, and is dropped.

When all text is there, OUT is rendered from these lines and put in place in one step. OUT.partial then loses its texts.
It stays until `remove` is called, so that a command with several files can tell which of them it has finished.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import zlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, nullcontext, suppress
from pathlib import Path
from typing import Any, BinaryIO

from docmt.core.errors import DocmtError
from docmt.core.files import (
    atomic_path,
    cannot_read,
    cannot_write,
    checksum_of_file,
    lock,
    short_name,
    target_of,
    utf8_of,
    write_all,
)

Note = dict[str, Any]
_VERSION = 2
_OURS = b'{"docmt": "partial", '
_CHECKSUM = re.compile(rb', "crc32": "([0-9a-f]{8})"\}$')


class PartialFile:
    """A file on its way to completion. Errors of the operating system are DocmtErrors."""

    def __init__(self, path: Path, facts: Mapping[str, Any], resume: bool, compressed: bool = False) -> None:
        """Look for what there is; nothing is written yet.

        facts: by their names in messages, what the file is made from, as JSON has it. Raises DocmtError where something
        unfinished would be lost (without `resume`), where it was begun with other facts, and where it is damaged.
        """
        self.path = target_of(path)
        name = short_name(self.path.name)
        self.partial = self.path.with_name(f"{name}.partial")
        self.notes: list[Note] = []
        """of what is there, in order"""
        self.finished = False
        """whether the file is complete and in place"""
        self._output = ""  # checksum of the file that was put in place
        self._lock_file = self.path.with_name(f".{name}.lock")
        self._facts, self._resume, self._compressed = json.loads(json.dumps(facts)), resume, compressed
        self._held = ExitStack()
        self._file: BinaryIO | None = None
        self._size = self._checksum = 0
        self._read()

    @property
    def as_written(self) -> bool:
        """Whether the file is complete, and still what was put in place."""
        return self.finished and checksum_of_file(self.path) == self._output

    def hold(self) -> None:
        """Keep the file for this process until `close`, as it is now. Raises DocmtError if another process has it."""
        self._held.enter_context(lock(self._lock_file, f"{self.path} is being written", remove=True))
        self._read()

    def add(self, text: str, note: Note) -> None:
        """Write text and its note to the disk."""
        utf8_of(text, self.path)
        try:
            file = self._file or self._open()
            _append(file, self._line({"text": text, "note": note}))
        except OSError as error:
            raise cannot_write(self.partial, error) from error
        self.notes.append(note)

    def finish(self) -> None:
        """Put the complete file in place, and let go of it."""
        if not self.finished:
            try:
                if self._file is None:
                    self._open()
                self._render()
                output = checksum_of_file(self.path)
                with atomic_path(self.partial) as temporary, temporary.open("wb") as file:
                    self._checksum = 0
                    for values in (
                        {**self._first(finished=True), "output": output},
                        *({"text": "", "note": note} for note in self.notes),
                    ):
                        file.write(self._line(values))
            except OSError as error:
                raise cannot_write(self.path, error) from error
            self.finished = self._resume = True
        self.close()

    def close(self) -> None:
        """Let go of the file. Where nothing was added, nothing is left of it."""
        if self._file is not None:
            self._file.close()
            if not self.notes and not self.finished:
                self.partial.unlink(missing_ok=True)
        self._file = None
        self._held.close()

    def remove(self) -> None:
        """Remove OUT.partial of a file that is complete, unless another process has begun that file anew."""
        with suppress(DocmtError), lock(self._lock_file, "", remove=True):
            self._read()
            if self.finished:
                self.partial.unlink()

    def _read(self) -> None:
        """Read the notes that are there and count for this process. Raises DocmtError as the constructor does."""
        self.notes, self.finished, self._output, self._size = [], False, "", 0
        if not self.partial.exists():
            return
        lines = self._lines()
        first = next(lines, None)
        if first is None:
            return
        notes = [line["note"] for line in lines]
        finished = first["finished"] and self.path.exists()
        if not self._resume:
            if notes and not first["finished"]:
                raise DocmtError(
                    f"{self.partial} is unfinished: go on with it with --resume, or remove it to begin anew"
                )
            return
        stored = first["facts"]
        names = [name for name in {**stored, **self._facts} if stored.get(name) != self._facts.get(name)]
        if names and notes:
            raise DocmtError(
                f"cannot go on with {self.partial}, which was begun with another {', '.join(names)}: give the same "
                "again, or remove it to begin anew"
            )
        if not names and (finished or not first["finished"]):
            self.notes, self.finished = notes, finished
            self._output = first.get("output", "")

    def _lines(self) -> Iterator[dict[str, Any]]:
        """Yield the lines and count their bytes. Raises DocmtError for damage, and for a file that is not ours."""
        self._size = self._checksum = 0
        try:
            with self.partial.open("rb") as file:
                for number, line in enumerate(file, 1):
                    if number == 1 and not line.startswith(_OURS) and not _OURS.startswith(line):
                        raise DocmtError(
                            f"{self.partial} is in the way, and is no part of a translation: move it, or choose "
                            "another place"
                        )
                    if not line.endswith(b"\n"):
                        return
                    yield self._checked(line, number)
                    self._size += len(line)
        except OSError as error:
            raise cannot_read(self.partial, error) from error

    def _checked(self, line: bytes, number: int) -> dict[str, Any]:
        checksum = _CHECKSUM.search(line[:-1])
        if checksum is not None:
            self._checksum = zlib.crc32(line[: checksum.start()], self._checksum)
        if checksum is None or int(checksum[1], 16) != self._checksum:
            raise DocmtError(f"{self.partial}, line {number}: damaged; remove the file to begin anew")
        values = json.loads(line)
        if number == 1 and values["version"] != _VERSION:
            raise DocmtError(f"{self.partial} is of another version of docmt: remove it to begin anew")
        return values

    def _open(self) -> BinaryIO:
        """Open OUT.partial for what is added, without what is beyond its last whole line."""
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
        file = self._file = open(os.open(self.partial, flags, 0o666), "r+b", buffering=0)  # noqa: PTH123, SIM115
        size = self._size if self.notes else 0
        file.truncate(size)
        file.seek(size)
        if not self.notes:
            self._checksum = 0
            _append(file, self._line(self._first(finished=False)))
        return file

    def _render(self) -> None:
        with atomic_path(self.path) as temporary, temporary.open("wb") as file:
            # Without name and time: equal texts are equal files.
            gzipped = gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) if self._compressed else None
            with gzipped or nullcontext(file) as target:
                lines = self._lines()
                next(lines)
                target.writelines(line["text"].encode() for line in lines)

    def _first(self, finished: bool) -> dict[str, Any]:
        return {"docmt": "partial", "version": _VERSION, "finished": finished, "facts": self._facts}

    def _line(self, values: Mapping[str, Any]) -> bytes:
        data = json.dumps(values).encode()[:-1]
        self._checksum = zlib.crc32(data, self._checksum)
        return data + f', "crc32": "{self._checksum:08x}"}}\n'.encode()


def _append(file: BinaryIO, data: bytes) -> None:
    """Write all of it, to the disk."""
    write_all(file, data)
    os.fsync(file.fileno())
