"""Writing files so that a crash, a kill or a full disk never leaves half of one behind."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from docmt.errors import DocmtError


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Yields a temporary path beside `path`; when the block ends well, it is synced and renamed to `path`.

    On any failure the temporary file is removed and whatever stood at `path` before still stands there.
    Raises DocmtError for operating system errors (full disk, no permission, missing folder).
    """
    path = path.resolve()  # a link goes on pointing to the file, now with its new content
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        _sync(temporary)
        temporary.replace(path)
        _sync(path.parent)
    except OSError as error:
        raise cannot_write(path, error) from error
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def atomic_directory(path: Path) -> Iterator[Path]:
    """Like `atomic_path` for a whole directory: `path` appears complete or not at all; an old one is replaced."""
    temporary: Path | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent))
        temporary.chmod(0o755)
        yield temporary
        for file in sorted(temporary.rglob("*")):
            _sync(file)
        _sync(temporary)
        if path.exists():
            # A directory cannot be replaced in one step: the old one steps aside, so one of the two always stands.
            aside = temporary.with_suffix(".old")
            path.replace(aside)
            temporary.replace(path)
            shutil.rmtree(aside)
        else:
            temporary.replace(path)
        _sync(path.parent)
    except OSError as error:
        raise cannot_write(path, error) from error
    finally:
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)


def write_text(path: Path, text: str) -> None:
    """Writes UTF-8 text atomically, newlines exactly as given."""
    with atomic_path(path) as temporary:
        temporary.write_bytes(text.encode("utf-8"))


def check_writable(path: Path) -> None:
    """Raises DocmtError if a file could not be written at `path`, so that nobody works for hours in vain."""
    folder = path.resolve().parent
    if path.is_dir():
        raise DocmtError(f"cannot write {path}: it is a directory; name a file")
    if not folder.is_dir():
        raise DocmtError(f"cannot write {path}: there is no directory {folder}; make it, or choose another place")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise DocmtError(f"cannot write {path}: nothing may be written in {folder}; choose another place")


def cannot_write(path: Path | str, error: OSError) -> DocmtError:
    """The DocmtError for a write that the operating system refused."""
    reason, advice = error.strerror or str(error), "choose another place"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        advice = "free space or choose another place"
    elif isinstance(error, FileExistsError | NotADirectoryError):
        reason = "a file stands where a directory is needed"
    elif isinstance(error, FileNotFoundError):
        advice = "make the directory, or choose another place"
    return DocmtError(f"cannot write {path}: {reason}; {advice}")


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
