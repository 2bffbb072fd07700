"""Writing files so that a crash, a kill or a full disk never leaves half of one behind."""

from __future__ import annotations

import errno
import json
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

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


def read_bytes(path: Path | str, what: str = "", *, regular: bool = False, advice: str = "check the path") -> bytes:
    """The contents of a file; `what` says in an error what it is ("the tokenizer file").

    `regular`: anything but a plain file is refused, for files of ours: nobody wants to wait for a named pipe, or for
    the end of /dev/zero. `advice`: what to do where the file is missing.
    Raises DocmtError, in the same words for every reader, if it is missing, a directory or not readable.
    """
    try:
        if regular:
            check_regular(path, what=what)
        return Path(path).read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a path with a null byte in it
        raise cannot_read(path, error, what, advice) from error


def check_regular(path: Path | str, why: str = "it is", what: str = "") -> None:
    """Raises DocmtError for a pipe, a device or a socket; what is missing or a directory is left to the reader.

    `why`: the beginning of the reason, such as "it is read more than once, but is".
    """
    try:
        mode = Path(path).stat().st_mode
    except (OSError, ValueError):
        return
    names = {stat.S_IFIFO: "a pipe", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device", stat.S_IFSOCK: "a socket"}
    if name := names.get(stat.S_IFMT(mode)):
        raise DocmtError(f"cannot read {_named(path, what)}: {why} {name}; give a file")


def cannot_read(
    path: Path | str, error: OSError | ValueError, what: str = "", advice: str = "check the path"
) -> DocmtError:
    """The DocmtError for a failed open or read; see `read_bytes`."""
    if isinstance(error, FileNotFoundError):
        reason = "there is no such file"
    elif isinstance(error, IsADirectoryError):
        reason, advice = "it is a directory", "name a file inside it"
    elif isinstance(error, PermissionError):
        reason, advice = "permission denied", "ask for the right to read it"
    else:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        advice = "check that it is a readable file"
    return DocmtError(f"cannot read {_named(path, what)}: {reason}; {advice}")


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file of ours. Raises DocmtError if it is missing or damaged."""
    try:
        values = parse_json(read_bytes(path, regular=True, advice="copy the directory again, complete"))
    except ValueError as error:
        raise DocmtError(f"{path} is damaged ({error}): copy it again from where it came") from error
    if not isinstance(values, dict):
        raise DocmtError(f"{path} does not hold a JSON object: copy it again from where it came")
    return values


def parse_json(data: bytes) -> Any:
    """What JSON in UTF-8 says. Raises ValueError for anything else, lists in lists without end included."""
    try:
        return json.loads(data.decode("utf-8"))
    except RecursionError as error:
        raise ValueError("too many brackets within brackets") from error


def _named(path: Path | str, what: str) -> str:
    return f"{what} {path}" if what else str(path)
