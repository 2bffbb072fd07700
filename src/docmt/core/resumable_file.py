"""An output file that a later process can complete after an interruption.

Until OUT is complete, its finished parts are in OUT.partial, one JSON object a line. The first line has the fingerprint
of OUT: its input, model and options. Each further line has a part of the text and a note with the state of the writer.
Every line ends with the CRC-32 of all data up to there. An incomplete last line of a killed process is dropped.

When all parts are written, OUT is rendered from them atomically. OUT.partial then keeps its notes without the texts,
until `remove` is called. So a command with several files can tell which of them are finished.
"""

from __future__ import annotations

import json
import os
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, BinaryIO

from docmt.core.errors import DocmtError
from docmt.core.files import (
    atomic_path,
    encode_utf8,
    file_checksum,
    lock,
    read_error,
    resolve_links,
    shorten_name,
    write_all,
    writing,
)
from docmt.core.plain_text import find_suffix, open_compressing

Note = dict[str, Any]
"""State of the writer after a part of the text."""
_VERSION = 4
_MAGIC = b'{"docmt": "partial", '
_CHECKSUM = re.compile(rb', "crc32": "([0-9a-f]{8})"\}$')


class ResumableFile:
    """An output file and its OUT.partial. Operating system errors are raised as DocmtErrors."""

    def __init__(
        self,
        path: Path,
        fingerprint: Mapping[str, Any],
        resume: bool,
        render: Callable[[Iterator[str]], bytes] | None = None,
    ) -> None:
        """Read OUT.partial, if it exists. Nothing is written yet.

        fingerprint: JSON values that must be equal to resume, by their names in messages. render: returns OUT from the
        texts of its parts (default: OUT is their concatenation in UTF-8). Raises DocmtError for a damaged OUT.partial,
        for another fingerprint, and, without `resume`, for an unfinished file.
        """
        self.path = resolve_links(path)
        self.partial = self.path.with_name(f"{shorten_name(self.path.name)}.partial")
        self.notes: list[Note] = []
        """notes of the finished parts, in order"""
        self.finished = False
        """whether OUT is complete"""
        self._output = ""  # checksum of the complete OUT
        self._lock_file = self.path.with_name(f".{shorten_name(self.path.name)}.lock")
        self._fingerprint, self._resume = json.loads(json.dumps(fingerprint)), resume
        self._compression = find_suffix(path)
        self._make_output = render
        self._locks = ExitStack()
        self._file: BinaryIO | None = None
        self._size = self._checksum = 0
        self._read()

    @property
    def is_unchanged(self) -> bool:
        """True if OUT is complete and was not edited afterwards."""
        return self.finished and file_checksum(self.path) == self._output

    def acquire(self) -> None:
        """Lock the file for this process until `close`, and read it again. Raises DocmtError if it is locked."""
        self._locks.enter_context(lock(self._lock_file, f"{self.path} is being written", remove=True))
        self._read()

    def add(self, text: str, note: Note) -> None:
        """Append a part of the text and its note, and sync them to the disk."""
        encode_utf8(text, self.path)
        with writing(self.partial):
            file = self._file or self._open()
            _append(file, self._line({"text": text, "note": note}))
        self.notes.append(note)

    def finish(self) -> None:
        """Render OUT from its parts, and release the file."""
        if not self.finished:
            with writing(self.path):
                if self._file is None:
                    self._open()
                self._render()
                output = file_checksum(self.path)
                with atomic_path(self.partial) as temporary, temporary.open("wb") as file:
                    self._checksum = 0
                    file.write(self._line({**self._header(finished=True), "output": output}))
                    for note in self.notes:
                        file.write(self._line({"text": "", "note": note}))
            self.finished = self._resume = True
        self.close()

    def close(self) -> None:
        """Release the file. Remove OUT.partial if nothing was added."""
        if self._file is not None:
            self._file.close()
            if not self.notes and not self.finished:
                self.partial.unlink(missing_ok=True)
        self._file = None
        self._locks.close()

    def remove(self) -> None:
        """Remove OUT.partial of a complete file, unless another process has started that file again."""
        with suppress(DocmtError), lock(self._lock_file, "", remove=True):
            self._read()
            if self.finished:
                self.partial.unlink()

    def _read(self) -> None:
        """Read the notes that this process can resume from. Raises DocmtError as the constructor does."""
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
                    f"{self.partial} is unfinished: continue it with --resume, or remove it to start again"
                )
            return
        stored, current = first["fingerprint"], self._fingerprint
        names = [name for name in {**stored, **current} if stored.get(name) != current.get(name)]
        if names and notes:
            raise DocmtError(
                f"cannot resume {self.partial}: it was started with another {', '.join(names)}. Use the same, or "
                "remove it to start again"
            )
        if not names and (finished or not first["finished"]):
            self.notes, self.finished = notes, finished
            self._output = first.get("output", "")

    def _lines(self) -> Iterator[dict[str, Any]]:
        """Yield the lines and count their bytes. Raises DocmtError for damage, and for a file of another program."""
        self._size = self._checksum = 0
        try:
            with self.partial.open("rb") as file:
                for number, line in enumerate(file, 1):
                    if number == 1 and not line.startswith(_MAGIC) and not _MAGIC.startswith(line):
                        raise DocmtError(
                            f"{self.partial} exists and is not an unfinished translation: move it, or choose another "
                            "output"
                        )
                    if not line.endswith(b"\n"):
                        return
                    yield self._parse_line(line, number)
                    self._size += len(line)
        except OSError as error:
            raise read_error(self.partial, error) from error

    def _parse_line(self, line: bytes, number: int) -> dict[str, Any]:
        checksum = _CHECKSUM.search(line[:-1])
        if checksum is not None:
            self._checksum = zlib.crc32(line[: checksum.start()], self._checksum)
        if checksum is None or int(checksum[1], 16) != self._checksum:
            raise DocmtError(f"{self.partial}, line {number}: damaged; remove the file to start again")
        values = json.loads(line)
        if number == 1 and values["version"] != _VERSION:
            raise DocmtError(f"{self.partial} is of another version of docmt: finish it there, or remove it to restart")
        return values

    def _open(self) -> BinaryIO:
        """Open OUT.partial for appending after its last complete line."""
        descriptor = os.open(self.partial, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        file = self._file = open(descriptor, "r+b", buffering=0)  # noqa: PTH123, SIM115
        size = self._size if self.notes else 0
        file.truncate(size)
        file.seek(size)
        if not self.notes:
            self._checksum = 0
            _append(file, self._line(self._header(finished=False)))
        return file

    def _render(self) -> None:
        with (
            atomic_path(self.path) as temporary,
            temporary.open("wb") as file,
            open_compressing(file, self._compression) as target,
        ):
            lines = self._lines()
            next(lines)
            texts = (line["text"] for line in lines)
            if self._make_output is None:
                for text in texts:  # files of zstandard have no writelines
                    target.write(text.encode())
            else:
                target.write(self._make_output(texts))

    def _header(self, finished: bool) -> dict[str, Any]:
        return {"docmt": "partial", "version": _VERSION, "finished": finished, "fingerprint": self._fingerprint}

    def _line(self, values: Mapping[str, Any]) -> bytes:
        data = json.dumps(values).encode()[:-1]
        self._checksum = zlib.crc32(data, self._checksum)
        return data + f', "crc32": "{self._checksum:08x}"}}\n'.encode()


def _append(file: BinaryIO, data: bytes) -> None:
    """Write all data and sync it to the disk."""
    write_all(file, data)
    os.fsync(file.fileno())
