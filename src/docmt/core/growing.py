"""A file that grows over hours: what is finished of it outlives its process, and whoever goes on finds where.

Beside OUT stand, until it is complete, OUT.partial with what there is of it and OUT.journal, one line of JSON for each
time that something was added: how many bytes belong to it from then on, and what the writer must know to go on. What
stands after these bytes, or after the last whole line, is of a process that was killed while it wrote.
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from docmt.core.errors import DocmtError
from docmt.core.files import (
    atomic_path,
    cannot_read,
    cannot_write,
    lock_file,
    put_in_place,
    remove_leftovers,
    short_name,
    target_of,
    utf8_of,
    write_all,
)

Note = dict[str, Any]
_VERSION = 1


def is_unfinished(path: Path) -> bool:
    """Whether this file, or one of those that were begun with it, is not complete."""
    return any(place.exists() for place in Growing.places(target_of(path)))


class Growing:
    """A file on its way to completion. Errors of the operating system are DocmtErrors."""

    def __init__(self, path: Path, facts: Mapping[str, Any], resume: bool, compressed: bool = False) -> None:
        """Looks for what there is; nothing is written yet.

        facts: by their names in messages, what the file is made from, as JSON has it. Raises DocmtError where there is
        something to go on with: without `resume` always, with it where it was begun with other facts.
        """
        self.path = target_of(path)
        self.partial, self.journal = self.places(self.path)
        self.notes: list[Note] = []
        """of what is there already, in order"""
        self._facts, self._compressed = json.loads(json.dumps(facts)), compressed
        self._stored: Note = {}
        self._bytes = self._journal_bytes = 0
        self._files: list[BinaryIO] = []
        self._held = False
        self._known = self.journal.stat() if self.journal.exists() else None  # as this process has last seen it
        found, self._ended = self._read_journal() if self.journal.exists() else ([], False)
        if not self._journal_bytes and self.partial.exists() and self.partial.stat().st_size:
            raise DocmtError(
                f"{self.partial} is in the way, and nothing tells what it is part of: move it, or choose another place"
            )
        if resume and found:
            self._go_on(found)
        elif found and self.partial.exists():
            raise DocmtError(f"{self.partial} is unfinished: go on with it with --resume, or remove it to begin anew")
        else:
            self._ended = False

    @staticmethod
    def places(path: Path) -> tuple[Path, Path]:
        """Where what is unfinished of this file stands, and its journal."""
        name = short_name(path.name)
        return path.with_name(f"{name}.partial"), path.with_name(f"{name}.journal")

    @property
    def complete(self) -> bool:
        """Whether there is nothing left to do."""
        return self._ended and not self.partial.exists() and self.path.exists()

    def add(self, text: str, note: Note) -> None:
        """Writes text to the disk, and then that it is there."""
        try:
            data = utf8_of(text, self.path)
            partial, journal = self._files or self._open()
            _append(partial, data)
            self._bytes += len(data)
            _append(journal, _line({"bytes": self._bytes, "note": note}))
            self.notes[:] = [note]
        except OSError as error:
            raise cannot_write(self.partial, error) from error

    def finish(self) -> None:
        """The file is complete: it takes its place. The journal stays, to tell that, until it is forgotten."""
        try:
            if not self.complete:
                _, journal = self._files or self._open()
                if not self._ended:
                    _append(journal, _line({"bytes": self._bytes, "ended": True}))
                self._put_in_place()
            self._ended = True
        except OSError as error:
            raise cannot_write(self.path, error) from error

    def close(self) -> None:
        """Lets go of the files. Where nothing was added, none are left."""
        if self._held and not self.notes and not self._ended:
            self.partial.unlink(missing_ok=True)
            self.journal.unlink(missing_ok=True)
        if self._files:
            self._known = os.fstat(self._files[1].fileno())
        for file in self._files:
            file.close()
        self._files, self._held = [], False

    def forget(self) -> None:
        """Removes the journal of a file that is complete, unless another process has begun that file anew."""
        self.close()
        with suppress(FileNotFoundError):
            if self._known is not None and _is_same(self.journal.stat(), self._known):
                self.journal.unlink()

    def _read_journal(self) -> tuple[list[Note], bool]:
        """The lines of additions that are there, and whether they are all. Raises DocmtError for what is no journal."""
        try:
            *whole, _ = self.journal.read_bytes().split(b"\n")
            size = self.partial.stat().st_size if self.partial.exists() else None
        except OSError as error:
            raise cannot_read(self.journal, error) from error
        try:
            lines = [json.loads(line) for line in whole]
            if lines and lines[0]["version"] != _VERSION:
                raise ValueError("another version of docmt wrote it")
            found = [line for line in lines[1:] if size is None or line["bytes"] <= size]
            ended = bool(found) and found[-1].get("ended", False)
            self._stored = lines[0]["facts"] if lines else {}
            self._journal_bytes = sum(len(line) + 1 for line in whole[: len(found) + 1])
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise DocmtError(
                f"{self.journal} is no journal of a translation ({error}): remove it, and {self.partial}, to begin anew"
            ) from error
        return [line for line in found if "note" in line], ended

    def _go_on(self, found: list[Note]) -> None:
        """Takes up what was found. Raises DocmtError where it is of something else."""
        names = [name for name in {**self._stored, **self._facts} if self._stored.get(name) != self._facts.get(name)]
        if names:
            raise DocmtError(
                f"cannot go on with {self.partial}, which was begun with another {', '.join(names)}: give the same "
                f"again, or remove it and {self.journal.name} to begin anew"
            )
        if not self.partial.exists() and not self.complete:
            raise DocmtError(f"{self.partial} is gone, though {self.journal} tells of it: remove that to begin anew")
        self.notes, self._bytes = [line["note"] for line in found], found[-1]["bytes"]

    def _open(self) -> list[BinaryIO]:
        """Both files, held for this process, without what is beyond what there is of them."""
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        journal = open(os.open(self.journal, flags, 0o666), "r+b", buffering=0)  # noqa: PTH123, SIM115
        try:
            lock_file(journal.fileno(), self.journal, f"{self.path} is being written")
            self._check_unchanged(os.fstat(journal.fileno()))
            self._held = True
            partial = open(os.open(self.partial, flags, 0o666), "r+b", buffering=0)  # noqa: PTH123, SIM115
        except BaseException:
            journal.close()
            raise
        self._files = [partial, journal]
        for file, size in ((partial, self._bytes), (journal, self._journal_bytes if self.notes else 0)):
            file.truncate(size)
            file.seek(size)
        if not self.notes:
            _append(journal, _line({"version": _VERSION, "facts": self._facts}))
        return self._files

    def _check_unchanged(self, locked: os.stat_result) -> None:
        """Raises DocmtError where another process has written since the files were looked at, or has ended."""
        there = self.journal.exists() and os.path.samestat(locked, self.journal.stat())
        held = self.partial.stat().st_size if self.partial.exists() else 0
        if not there or locked.st_size != (self._known.st_size if self._known else 0) or held < self._bytes:
            if there and not locked.st_size:
                self.journal.unlink()  # made just now
            raise DocmtError(f"another process has gone on with {self.path} meanwhile: call the same again")

    def _put_in_place(self) -> None:
        remove_leftovers(self.path)
        if self._compressed:
            with (
                atomic_path(self.path) as temporary,
                self.partial.open("rb") as text,
                temporary.open("wb") as file,
                # Without name and time: equal texts are equal files.
                gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as compressing,
            ):
                shutil.copyfileobj(text, compressing)
            self.partial.unlink()
        else:
            put_in_place(self.partial, self.path, stat.S_IMODE(self.partial.stat().st_mode))


def _is_same(now: os.stat_result, known: os.stat_result) -> bool:
    return os.path.samestat(now, known) and now.st_size == known.st_size


def _append(file: BinaryIO, data: bytes) -> None:
    """Writes all of it, to the disk."""
    write_all(file, data)
    os.fsync(file.fileno())


def _line(values: Note) -> bytes:
    return json.dumps(values).encode() + b"\n"
