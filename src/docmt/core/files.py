"""Writing files so that a crash, a kill or a full disk never leaves half of one behind; locks, reading, and checksums.

Checksums notice a bit which a disk or a copy has changed before anybody computes with it. They are CRC-32, which finds
every burst of up to 32 changed bits and misses other damage once in 4 billion times; it is read faster than any hash
(docs/contributing/decisions/0022-checksums.md: 6 times SHA-256). It does not keep out a forger, who could write a new
one. The description beside the files (config.json of a model, state.json of a checkpoint, tokenizer_config.json) has an
entry "crc32": name of the file -> checksum. Files of earlier versions have none, and are taken as they are.
"""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import os
import re
import secrets
import shutil
import socket
import stat
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from io import BufferedReader
from pathlib import Path
from threading import Timer
from typing import Any, BinaryIO

from docmt.core.errors import DocmtError

LOCK_FILE = ".lock"
ENTRY = "crc32"
"""of checksums in a description"""
_LONGEST_NAME = 255  # bytes of a file name, on all common file systems
_BLOCK_BYTES = 1 << 20
_PATIENCE = 5.0  # seconds
_OLD = 24 * 60 * 60  # seconds after which nobody works on a temporary file any more

_log = logging.getLogger(__name__)


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Yields an empty temporary file beside `path`; when the block ends well, it is synced and renamed to `path`.

    A file that is replaced hands on its mode. On any failure the temporary file is removed and whatever stood at
    `path` before still stands there. What killed processes left of earlier writings of `path` is removed.
    Raises DocmtError for operating system errors (full disk, no permission, missing folder).
    """
    path = target_of(path)  # a link goes on pointing to the file, now with its new content
    with _temporary_beside(path) as temporary:
        # Made here and never opened through a link, so that nobody can plant one where the file will be.
        descriptor = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
        mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
        os.close(descriptor)
        yield temporary
        _set_mode(temporary, stat.S_IMODE(path.stat().st_mode) if path.is_file() else mode)
        _sync(temporary)
        temporary.replace(path)
        _sync(path.parent)


@contextmanager
def atomic_directory(path: Path) -> Iterator[Path]:
    """Like `atomic_path` for a whole directory: `path` appears complete or not at all; an old one is replaced."""
    path = target_of(path)
    with _temporary_beside(path) as temporary:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.mkdir()
        mode = stat.S_IMODE(temporary.stat().st_mode)
        yield temporary
        for file in sorted(temporary.rglob("*")):
            if file.is_file() and not file.is_symlink():  # some libraries write files that only their owner can read
                _set_mode(file, stat.S_IMODE(file.stat().st_mode) | (mode & 0o666))
            _sync(file)
        _sync(temporary)
        if path.exists():
            # A directory cannot be replaced in one step: the old one steps aside, so one of the two always stands.
            aside = temporary.with_suffix(".old")
            try:
                path.replace(aside)
                temporary.replace(path)
            finally:
                if not path.exists():
                    aside.replace(path)
            shutil.rmtree(aside)
        else:
            temporary.replace(path)
        _sync(path.parent)


@contextmanager
def _temporary_beside(path: Path) -> Iterator[Path]:
    """Yield a name beside `path` that nobody can guess; what stands there in the end is removed.

    What killed processes left of earlier writings is removed first. Raises DocmtError for what the system refuses.
    """
    remove_leftovers(path)
    temporary = path.with_name(f".{short_name(path.name)}.{os.getpid()}-{_host()}.{secrets.token_hex(4)}.tmp")
    try:
        yield temporary
    except OSError as error:
        raise cannot_write(path, error) from error
    finally:
        with suppress(OSError):
            _remove(temporary)


def _remove(path: Path) -> None:
    """Remove a file or a directory, if there is one."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


@dataclass(frozen=True)
class Leftover:
    """A temporary file or directory that stands beside what it was to become."""

    path: Path
    target: str
    """name of what it was to become; of a very long name the beginning and a checksum"""
    pid: int
    """process that made it; 0 if the name does not say"""
    host: str
    """checksum of the name of that process's machine"""
    aside: bool
    """whether it is the old directory, complete, that was to be replaced"""

    def is_dead(self) -> bool:
        """Whether nobody can be working on it: its process has ended, or it has not been touched for a day."""
        if self.pid and self.host == _host() and not _runs(self.pid):
            return True
        try:
            return time.time() - self.path.lstat().st_mtime > _OLD
        except OSError:
            return False  # it is gone

    def settle(self) -> None:
        """Removes it; the old directory goes back to its place if nothing took that."""
        place = self.path.with_name(self.target)
        if self.aside and len(os.fsencode(self.target)) <= _LONGEST_STEM and not place.exists():
            self.path.rename(place)
        else:
            _remove(self.path)


# .NAME.PID-HOST.RANDOM.tmp; earlier versions wrote no process into the name.
_LEFTOVER = re.compile(r"\.(.+?)(?:\.(\d+)-([0-9a-f]{8}))?\.\w+\.(tmp|old)", re.DOTALL)
_LONGEST_STEM = _LONGEST_NAME - len(".") - len(".4194304-00000000.00000000.tmp") - 3  # some room for larger pids


def find_leftovers(folder: Path, start: str = ".") -> list[Leftover]:
    """The temporary files and directories in `folder` whose names start so."""
    found = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith(start) and (match := _LEFTOVER.fullmatch(entry.name)):
                target, pid, host, kind = match.groups()
                found.append(Leftover(folder / entry.name, target, int(pid or 0), host or "", kind == "old"))
    return found


def remove_leftovers(path: Path) -> None:
    """Removes what killed processes left of earlier writings of `path`; what cannot be removed stays."""
    stem = short_name(path.name)
    with suppress(OSError):
        for leftover in find_leftovers(path.parent, f".{stem}."):
            if leftover.target == stem and leftover.pid and leftover.is_dead():
                with suppress(OSError):
                    leftover.settle()


@contextmanager
def lock_directory(path: Path, what: str) -> Iterator[None]:
    """Keep a directory for this process while the block runs; see `lock`."""
    with lock(path / LOCK_FILE, what):
        yield


@contextmanager
def lock(file: Path, what: str, remove: bool = False) -> Iterator[None]:
    """Hold a lock on a file while the block runs. The system releases it when the process dies.

    what: what is being done, as in "the run r is being trained". remove: whether the file is removed afterwards. Raises
    DocmtError at once if another process holds the lock. Where the file system knows no locks, a warning is logged
    once for each directory, and the work goes on.
    """
    from filelock import FileLock, Timeout  # here, as commands without locks need not wait for it

    # Of this process, whichever of its threads releases it. A soft lock would outlive a process that is killed.
    holder = FileLock(file, mode=0o666, thread_local=False, fallback_to_soft=False)
    try:
        if not file.parent.is_dir():  # which the library would make
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        holder.acquire(blocking=False)
        file.write_text(f"{os.getpid()} {socket.gethostname()}\n", encoding="utf-8")
    except Timeout as error:
        raise DocmtError(f"{what} by {_holder_of(file)}: wait for it, or stop it") from error
    except OSError as error:
        if remove and holder.is_locked:
            file.unlink(missing_ok=True)
        holder.release()
        if error.errno not in (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EINVAL):
            raise cannot_write(file, error) from error
        _warn_without_locks(file.parent, error.strerror)
    try:
        yield
    finally:
        with suppress(OSError):
            # Nobody is told of this process while the next one has the lock.
            file.unlink() if remove else os.truncate(file, 0)
        holder.release()


@cache
def _warn_without_locks(directory: Path, reason: str) -> None:
    """Log, once for each directory, that its files cannot be locked."""
    _log.warning("files in %s cannot be locked (%s): let nobody else use the directory", directory, reason)


def _holder_of(file: Path) -> str:
    """Return who holds a locked file, as it says in it."""
    text = ""
    for _ in range(20):
        with suppress(OSError):
            text = file.read_text(encoding="utf-8", errors="replace")
        if text:
            break
        time.sleep(0.05)  # it has only just taken it
    pid, _, host = text.strip().partition(" ")
    return f"process {pid} on {host}" if pid.isdecimal() and host.isprintable() and host else "another process"


def utf8_of(text: str, path: Path | str) -> bytes:
    """The bytes of text to be written to `path`. Raises DocmtError for lone surrogates."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise DocmtError(
            f"cannot write {path}: character {error.start + 1} is a lone surrogate "
            f"(U+{ord(text[error.start]):04X}), which UTF-8 cannot hold; remove it"
        ) from error


def write_all(file: BinaryIO, data: bytes) -> None:
    """Writes all of it to a file without a buffer, which may take less at a time."""
    rest = memoryview(data)
    while rest:
        rest = rest[file.write(rest) :]


def write_text(path: Path, text: str) -> None:
    """Writes UTF-8 text atomically, newlines exactly as given."""
    with atomic_path(path) as temporary:
        temporary.write_bytes(utf8_of(text, path))


def check_writable(path: Path) -> None:
    """Raises DocmtError if a file could not be written at `path`, so that nobody works for hours in vain."""
    folder = Path(os.path.realpath(path)).parent
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
    elif isinstance(error, FileNotFoundError) and Path(path).parent.is_dir():
        reason = f"no file can be made in {Path(path).parent}"  # which is none of the disk, such as /proc
    elif isinstance(error, FileNotFoundError):
        advice = "make the directory, or choose another place"
    return DocmtError(f"cannot write {path}: {reason}; {advice}")


def target_of(path: Path) -> Path:
    """Where the file really goes, links followed. Raises DocmtError for paths that can be none."""
    try:
        return path.resolve()
    except OSError as error:
        raise cannot_write(path, error) from error
    except RuntimeError as error:
        raise DocmtError(f"cannot write {path}: the link leads to itself; choose another name") from error


def short_name(name: str) -> str:
    """How names of files beside this one begin: with its name, or what of it leaves room for the rest."""
    data = os.fsencode(name)
    if len(data) <= _LONGEST_STEM:
        return name
    return f"{data[: _LONGEST_STEM // 2].decode('utf-8', 'ignore')}~{hashlib.sha256(data).hexdigest()[:16]}"


def _host() -> str:
    """A checksum of this machine's name: process numbers mean nothing on another one that shares the disk."""
    return f"{zlib.crc32(socket.gethostname().encode('utf-8', 'replace')):08x}"


def _runs(pid: int) -> bool:
    if os.name == "nt":  # where signal 0 is one that ends processes
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True


def _set_mode(path: Path, mode: int) -> None:
    """Sets a mode that differs, as far as the file system has modes."""
    with suppress(PermissionError):
        if stat.S_IMODE(path.stat().st_mode) != mode:
            path.chmod(mode)


def _sync(path: Path) -> None:
    if os.name == "nt" and path.is_dir():  # which cannot be opened there
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_bytes(path: Path | str, what: str = "", *, regular: bool = False, advice: str = "check the path") -> bytes:
    """The contents of a file; `what` says in an error what it is ("the tokenizer file").

    `regular`: anything but a plain file is refused, for files of ours: nobody wants to wait for a named pipe.
    `advice`: what to do where the file is missing.
    Raises DocmtError, in the same words for every reader, if it is missing, a directory or not readable.
    """
    try:
        if regular:
            check_regular(path, what=what)
        with open_for_reading(path) as file:
            return file.read()
    except OSError as error:
        raise cannot_read(path, error, what, advice) from error


@contextmanager
def open_for_reading(path: Path | str) -> Iterator[BufferedReader]:
    """Open a file of bytes. Whoever waits long for the other end of a pipe is told so. Raises OSError."""
    waiting = Timer(_PATIENCE, _log.warning, [f"waiting for a program that writes to the pipe {path}"])
    waiting.daemon = True
    if Path(path).is_fifo():
        waiting.start()
    try:
        file = Path(path).open("rb")  # noqa: SIM115 - closed below
    finally:
        waiting.cancel()
    with file:
        yield file


def check_regular(path: Path | str, why: str = "it is", what: str = "") -> None:
    """Raises DocmtError for a pipe, a device or a socket; what is missing or a directory is left to the reader.

    `why`: the beginning of the reason, such as "it is read more than once, but is".
    """
    try:
        mode = Path(path).stat().st_mode
    except OSError:
        return
    names = {stat.S_IFIFO: "a pipe", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device", stat.S_IFSOCK: "a socket"}
    if name := names.get(stat.S_IFMT(mode)):
        raise DocmtError(f"cannot read {_named(path, what)}: {why} {name}; give a file")


def cannot_read(path: Path | str, error: OSError, what: str = "", advice: str = "check the path") -> DocmtError:
    """The DocmtError for a failed open or read; see `read_bytes`."""
    if isinstance(error, FileNotFoundError):
        reason = "there is no such file"
    elif isinstance(error, IsADirectoryError):
        reason, advice = "it is a directory", "name a file inside it"
    elif isinstance(error, PermissionError):
        reason, advice = "permission denied", "ask for the right to read it"
    else:
        reason = error.strerror or str(error)
        advice = "check that it is a readable file"
    return DocmtError(f"cannot read {_named(path, what)}: {reason}; {advice}")


def refuse_unconverted(directory: Path) -> None:
    """Raises DocmtError for a directory of the library transformers, which somebody takes for one of docmt's."""
    path, values = directory / "config.json", dict[str, Any]()
    with suppress(DocmtError):
        values = read_json(path)
    if "model_type" in values:
        raise DocmtError(
            f"{directory} is a directory of transformers: make a model of it first (docmt convert huggingface "
            f"{directory} -o MODEL), and give that"
        )


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


def checksum_of(values: Any) -> str:
    """The CRC-32 of what JSON can hold, whatever the order of names."""
    return f"{zlib.crc32(json.dumps(values, sort_keys=True).encode()):08x}"


def checksums(folder: Path, names: Iterable[str]) -> dict[str, str]:
    """The checksums of the files of these names, to be written into a description."""
    return {name: checksum_of_file(folder / name) for name in names}


def recorded(values: Mapping[str, Any], description: Path) -> dict[str, str]:
    """The checksums in a description that was read; none where it has no such entry. Raises DocmtError for others."""
    found = values.get(ENTRY, {})
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        raise DocmtError(f'{description} has an entry "{ENTRY}" that holds no checksums: copy it again, or remove it')
    return found


def check_beside(path: Path, *descriptions: str) -> None:
    """Compares a file with the checksum in one of the descriptions that may stand beside it.

    Raises DocmtError if it is another, or if a description is damaged.
    """
    beside = [path.with_name(name) for name in descriptions]
    wanted = {file: recorded(read_json(file), file).get(path.name) for file in beside if file.exists()}
    found = checksum_of_file(path) if any(wanted.values()) else ""
    for description, one in wanted.items():
        if one is not None and one != found:
            raise changed(path, description)


def checksum_of_file(path: Path) -> str:
    """Return the CRC-32 of a file, in eight hexadecimal digits. Raises DocmtError if it cannot be read."""
    check_regular(path)
    found, block = 0, bytearray(_BLOCK_BYTES)
    view = memoryview(block)
    try:
        with path.open("rb", buffering=0) as file:
            while count := file.readinto(block):
                found = zlib.crc32(view[:count], found)
    except OSError as error:
        raise cannot_read(path, error, advice="copy the directory again, complete") from error
    return f"{found:08x}"


def changed(path: Path, description: Path) -> DocmtError:
    """The DocmtError for a file that is not what was written."""
    return DocmtError(
        f"{path} is damaged (it is not what its checksum in {description.name} says): copy it again from where it "
        f'came; if it was changed on purpose, remove "{ENTRY}" from {description.name}'
    )
