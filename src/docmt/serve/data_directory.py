"""The directory of the service: private to its user, with databases that know their version."""

from __future__ import annotations

import errno
import os
import re
import sqlite3
from contextlib import suppress
from pathlib import Path

from docmt.core.errors import DocmtError
from docmt.core.files import LOCK_FILE, write_error

_VERSION = 1
"""Of the tables, and of the values in them."""
_DATABASES = (
    f"{name}.sqlite{end}" for name in ("keys", "jobs", "glossaries") for end in ("", "-wal", "-shm", "-journal")
)
_NAMES = frozenset((*_DATABASES, LOCK_FILE, "spool", "uploads", "usage.json", "usage.partial"))
"""Files and folders of the service."""
_FOLDERS = re.compile(r"(?<![\w/:.])/(?:{word}(?: {word}){{0,3}}/)+".format(word=r"[^\s/'\",;:()]+"))


def make_private(data: Path, file: Path) -> None:
    """Create the directory and a file in it, and take the rights of others from what the service has there.

    A directory that holds other files, too, keeps its mode. Raises DocmtError if rights cannot be changed.
    """
    try:
        data.mkdir(parents=True, exist_ok=True, mode=0o700)
        file.touch(mode=0o600)
        entries = set(data.iterdir())
        ours = {path for path in entries if path.name in _NAMES}
        for path in ours:
            if not os.access(path, os.R_OK | os.W_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        for path in [*([data] if ours == entries else []), *ours, *(each for one in ours for each in one.rglob("*"))]:
            with suppress(FileNotFoundError):  # a server at work deletes files
                if not path.is_symlink() and path.stat().st_mode & 0o077:
                    path.chmod(0o700 if path.is_dir() else 0o600)
    except PermissionError as error:
        advice = "run the command as that user, or choose another --data"
        raise DocmtError(f"{error.filename} belongs to another user: {advice}") from error
    except OSError as error:
        raise write_error(data, error) from error


def prepare_database(connection: sqlite3.Connection, path: Path, schema: str) -> None:
    """Create the tables of a new database. Raises DocmtError for a database of another version, and sqlite3.Error."""
    if not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
        connection.executescript(f"BEGIN IMMEDIATE; {schema}; PRAGMA user_version = {_VERSION}; COMMIT")
    (stored,) = connection.execute("PRAGMA user_version").fetchone()
    if stored != _VERSION:
        raise other_version_error(path, f"version {stored}, here {_VERSION}")


def other_version_error(path: Path, reason: str) -> DocmtError:
    """Return the DocmtError for a database that this version of docmt cannot read."""
    return DocmtError(f"{path} is of another version of docmt ({reason}): use that version, or move the file away")


def hide_folders(message: str) -> str:
    """Return a message for clients: the paths of the server in it lose their folders."""
    return _FOLDERS.sub("", message)
