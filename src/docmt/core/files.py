"""Atomic writing, reading, locks and checksums of files.

A crash, a kill or a full disk never leaves a partly written file.

Checksums detect bits changed by a disk or a copy. They are CRC-32, which detects every burst of up to 32 changed bits
and misses other damage once in 4 billion times. It is 6 times as fast as SHA-256 (decision 0022) but no protection
against forgery. The description beside the files (config.json of a model, state.json of a checkpoint,
tokenizer_config.json) has an entry "crc32" that maps file names to checksums. Files without an
entry are not checked.
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
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from io import BufferedReader
from pathlib import Path
from threading import Timer
from typing import TYPE_CHECKING, Any, BinaryIO

from docmt.core.errors import DocmtError

if TYPE_CHECKING:
    from filelock import BaseFileLock

LOCK_FILE = ".lock"
CHECKSUMS_KEY = "crc32"
"""Entry of a description that holds the checksums."""
_MAX_NAME_BYTES = 255  # bytes of a file name, on all common file systems
_BLOCK_BYTES = 1 << 20
_PIPE_WAIT = 5.0  # seconds
_STALE_AFTER = 24 * 60 * 60  # seconds after which a temporary file counts as abandoned

_log = logging.getLogger(__name__)


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Yield an empty temporary file beside `path`, then sync it and rename it to `path`.

    The mode of a replaced file is kept. After any failure the temporary file is removed and `path` is unchanged.
    Temporary files of killed processes are removed.
    Raises DocmtError for operating system errors (full disk, no permission, missing folder).
    """
    path = resolve_links(path)  # a symbolic link stays, and its target is replaced
    with _temporary_path(path) as temporary:
        # O_EXCL refuses a link that somebody has put there.
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
    """Yield a temporary directory, then rename it to `path`, as `atomic_path` does. An existing one is replaced."""
    path = resolve_links(path)
    with _temporary_path(path) as temporary:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.mkdir()
        mode = stat.S_IMODE(temporary.stat().st_mode)
        yield temporary
        for file in sorted(temporary.rglob("*")):
            if file.is_file() and not file.is_symlink():  # some libraries write private files
                _set_mode(file, stat.S_IMODE(file.stat().st_mode) | (mode & 0o666))
            _sync(file)
        _sync(temporary)
        if path.exists():
            # A directory cannot be replaced in one step. One of the two always exists.
            backup = temporary.with_suffix(".old")
            try:
                path.replace(backup)
                temporary.replace(path)
            finally:
                if not path.exists():
                    backup.replace(path)
            shutil.rmtree(backup)
        else:
            temporary.replace(path)
        _sync(path.parent)


@contextmanager
def _temporary_path(path: Path) -> Iterator[Path]:
    """Yield an unpredictable path beside `path`. It is removed at the end if it exists.

    Temporary files of killed processes are removed first. Raises DocmtError for operating system errors.
    """
    remove_leftovers(path)
    temporary = path.with_name(f".{shorten_name(path.name)}.{os.getpid()}-{host_id()}.{secrets.token_hex(4)}.tmp")
    try:
        yield temporary
    except OSError as error:
        raise write_error(path, error) from error
    finally:
        with suppress(OSError):
            _remove(temporary)


def _remove(path: Path) -> None:
    """Remove a file or a directory, if it exists."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


@dataclass(frozen=True)
class Leftover:
    """Temporary file or directory of an earlier write."""

    path: Path
    target: str
    """final name; of a very long one its beginning and a checksum (see `shorten_name`)"""
    pid: int
    """process that wrote it"""
    host: str
    """checksum of the host name of that process"""
    is_backup: bool
    """whether it is the complete old directory that was being replaced"""

    def is_abandoned(self) -> bool:
        """Return whether its process has ended, or it has not been modified for a day."""
        if self.host == host_id() and not is_running(self.pid):
            return True
        try:
            return time.time() - self.path.lstat().st_mtime > _STALE_AFTER
        except OSError:
            return False  # it is gone

    def clean_up(self) -> None:
        """Remove it. An old directory is renamed back if its path is free."""
        original = self.path.with_name(self.target)
        if self.is_backup and len(os.fsencode(self.target)) <= _MAX_STEM_BYTES and not original.exists():
            self.path.rename(original)
        else:
            _remove(self.path)


_LEFTOVER_NAME = re.compile(r"\.(.+?)\.(\d+)-([0-9a-f]{8})\.\w+\.(tmp|old)", re.DOTALL)  # see `_temporary_path`
_MAX_STEM_BYTES = _MAX_NAME_BYTES - len(".") - len(".4194304-00000000.00000000.tmp") - 3  # room for longer PIDs


def find_leftovers(folder: Path, start: str = ".") -> list[Leftover]:
    """Return the temporary files and directories in `folder` whose names begin with `start`."""
    leftovers = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith(start) and (match := _LEFTOVER_NAME.fullmatch(entry.name)):
                target, pid, host, kind = match.groups()
                leftovers.append(Leftover(folder / entry.name, target, int(pid), host, kind == "old"))
    return leftovers


def remove_leftovers(path: Path) -> None:
    """Remove temporary files that killed processes left beside `path`. Errors are ignored."""
    stem = shorten_name(path.name)
    with suppress(OSError):
        for leftover in find_leftovers(path.parent, f".{stem}."):
            if leftover.target == stem and leftover.is_abandoned():
                with suppress(OSError):
                    leftover.clean_up()


def lock_directory(path: Path, activity: str, mode: int = 0o666) -> AbstractContextManager[None]:
    """Lock a directory for this process while the block runs. See `lock`."""
    return lock(path / LOCK_FILE, activity, mode=mode)


@contextmanager
def lock(file: Path, activity: str, remove: bool = False, mode: int = 0o666) -> Iterator[None]:
    """Hold a lock on a file while the block runs. The system releases it when the process dies.

    activity: for the error message, as in "the run r is being trained". remove: whether to remove the file afterwards.
    mode: of the file; by default, other users may lock it.
    If the file system has no locks, a warning is logged once a directory, and the block runs.
    Raises DocmtError at once if another process holds the lock.
    """
    from filelock import FileLock  # imported here because most commands need no locks

    # Any thread may release it. A soft lock would outlive a killed process.
    holder = FileLock(file, mode=mode, thread_local=False, fallback_to_soft=False)
    try:
        if not _acquire(holder, file, activity) and remove:
            file.unlink(missing_ok=True)
        yield
    finally:
        if holder.is_locked:
            with suppress(OSError):
                # The next holder must not be reported as this process.
                file.unlink() if remove else os.truncate(file, 0)
        holder.release()


def _acquire(holder: BaseFileLock, file: Path, activity: str) -> bool:
    """Acquire a lock and write this process into its file. Return whether the file system has locks. See `lock`."""
    from filelock import Timeout

    try:
        if not file.parent.is_dir():  # the library would create the directory
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        holder.acquire(blocking=False)
        file.write_text(f"{os.getpid()} {socket.gethostname()}\n", encoding="utf-8")
    except Timeout as error:
        raise DocmtError(f"{activity} by {_describe_holder(file)}: wait for it, or stop it") from error
    except OSError as error:
        if error.errno not in (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EINVAL):
            raise write_error(file, error) from error
        _warn_about_locks(file.parent, error.strerror)
        return False
    return True


@cache
def _warn_about_locks(directory: Path, reason: str) -> None:
    """Log once for each directory that its files cannot be locked."""
    _log.warning("files in %s cannot be locked (%s): use the directory in one process at a time", directory, reason)


def _describe_holder(file: Path) -> str:
    """Return the process that holds a locked file, as the file names it."""
    text = ""
    for _ in range(20):
        with suppress(OSError):
            text = file.read_text(encoding="utf-8", errors="replace")
        if text:
            break
        time.sleep(0.05)  # the holder has not written its name yet
    pid, _, host = text.strip().partition(" ")
    return f"process {pid} on {host}" if pid.isdecimal() and host.isprintable() and host else "another process"


def encode_utf8(text: str, path: Path | str) -> bytes:
    """Return the UTF-8 bytes of text for `path`. Raises DocmtError for lone surrogates."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise DocmtError(
            f"cannot write {path}: character {error.start + 1} is a lone surrogate "
            f"(U+{ord(text[error.start]):04X}), which UTF-8 cannot hold; remove it"
        ) from error


def write_all(file: BinaryIO, data: bytes) -> None:
    """Write all data to an unbuffered file, whose `write` may accept a part only."""
    remaining = memoryview(data)
    while remaining:
        remaining = remaining[file.write(remaining) :]


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 text atomically, without newline translation."""
    with atomic_path(path) as temporary:
        temporary.write_bytes(encode_utf8(text, path))


def check_writable(path: Path) -> None:
    """Raise DocmtError if a file cannot be written at `path`, before hours of work on its contents."""
    try:
        folder = Path(os.path.realpath(path)).parent
    except ValueError as error:  # a null byte or a surrogate
        raise DocmtError(f"cannot write {path}: no file can have such a name; choose another path") from error
    if path.is_dir():
        raise DocmtError(f"cannot write {path}: it is a directory; name a file")
    if not folder.is_dir():
        raise DocmtError(f"cannot write {path}: there is no directory {folder}; create it, or choose another path")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise DocmtError(f"cannot write {path}: there is no permission to write in {folder}; choose another path")


def user_folder(name: str, variable: str, usual: str) -> Path:
    """Return a folder of docmt: in DOCMT_HOME, or in the directory of a variable, such as XDG_DATA_HOME.

    usual: that directory if the variable is not set, in the home of the user.
    """
    if home := os.environ.get("DOCMT_HOME"):
        return Path(home) / name
    return Path(os.environ.get(variable) or Path.home() / usual) / "docmt" / name


def make_directory(path: Path) -> None:
    """Create a directory, unless it exists. Raises DocmtError if it cannot be created."""
    with writing(path):
        path.mkdir(parents=True, exist_ok=True)


def write_error(path: Path | str, error: OSError) -> DocmtError:
    """Return the DocmtError for a failed write."""
    reason, advice = error.strerror or str(error), "choose another path"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        advice = "free space or choose another path"
    elif isinstance(error, FileExistsError | NotADirectoryError):
        reason = "a file is where a directory is needed"
    elif isinstance(error, FileNotFoundError) and Path(path).parent.is_dir():
        reason = f"no file can be created in {Path(path).parent}"  # such as /proc
    elif isinstance(error, FileNotFoundError):
        advice = "create the directory, or choose another path"
    return DocmtError(f"cannot write {path}: {reason}; {advice}")


@contextmanager
def writing(path: Path | str) -> Iterator[None]:
    """Raise DocmtError for operating system errors of the block, which writes this path."""
    try:
        yield
    except OSError as error:
        raise write_error(path, error) from error


def resolve_links(path: Path) -> Path:
    """Return a path with symbolic links resolved. Raises DocmtError for an invalid path."""
    try:
        return path.resolve()
    except OSError as error:
        raise write_error(path, error) from error
    except RuntimeError as error:
        raise DocmtError(f"cannot write {path}: the symbolic link points to itself; choose another name") from error


def shorten_name(name: str) -> str:
    """Return a file name, shortened if there is no room for the suffixes of temporary files."""
    data = os.fsencode(name)
    if len(data) <= _MAX_STEM_BYTES:
        return name
    return f"{data[: _MAX_STEM_BYTES // 2].decode('utf-8', 'ignore')}~{hashlib.sha256(data).hexdigest()[:16]}"


def host_id() -> str:
    """Return a checksum of the machine and of the namespace of its PIDs, which have no meaning elsewhere."""
    name = socket.gethostname()
    with suppress(OSError):  # two machines, or two containers, may have one host name
        name += str(Path("/proc/self/ns/pid").readlink())
        name += Path("/", "etc", "machine-id").read_text(encoding="ascii", errors="replace")
    return f"{zlib.crc32(name.encode('utf-8', 'replace')):08x}"


def is_running(pid: int) -> bool:
    """Return whether a process of this host runs."""
    try:
        with suppress(PermissionError, OverflowError):
            os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def _set_mode(path: Path, mode: int) -> None:
    """Set the mode of a file if it differs and the file system has modes."""
    with suppress(PermissionError):
        if stat.S_IMODE(path.stat().st_mode) != mode:
            path.chmod(mode)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_bytes(path: Path | str, label: str = "", *, regular: bool = False, advice: str = "check the path") -> bytes:
    """Return the contents of a file.

    label: what an error calls the file, such as "the tokenizer file". regular: whether to refuse anything but a regular
    file. advice: for the error if the file is missing.
    Raises DocmtError if it is missing, a directory or not readable.
    """
    try:
        if regular:
            check_regular(path, label=label)
        with open_for_reading(path) as file:
            return file.read()
    except OSError as error:
        raise read_error(path, error, label, advice) from error


@contextmanager
def open_for_reading(path: Path | str) -> Iterator[BufferedReader]:
    """Open a file for bytes. Warns after a long wait for the writer of a pipe. Raises OSError."""
    waiting = Timer(_PIPE_WAIT, _log.warning, [f"waiting for a program that writes to the pipe {path}"])
    waiting.daemon = True
    if Path(path).is_fifo():
        waiting.start()
    try:
        file = Path(path).open("rb")  # noqa: SIM115 - closed below
    finally:
        waiting.cancel()
    with file:
        yield file


def check_regular(path: Path | str, reason: str = "it is", label: str = "") -> None:
    """Raise DocmtError for a pipe, a device or a socket. Missing files and directories are not checked.

    reason: beginning of the reason in the error, such as "it is read more than once, but is".
    """
    try:
        mode = Path(path).stat().st_mode
    except OSError:
        return
    names = {stat.S_IFIFO: "a pipe", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device", stat.S_IFSOCK: "a socket"}
    if name := names.get(stat.S_IFMT(mode)):
        raise DocmtError(f"cannot read {_with_label(path, label)}: {reason} {name}; give a file")


def read_error(path: Path | str, error: OSError, label: str = "", advice: str = "check the path") -> DocmtError:
    """Return the DocmtError for a failed open or read. See `read_bytes`."""
    known: dict[type[OSError], tuple[str, str]] = {
        FileNotFoundError: ("there is no such file", advice),
        IsADirectoryError: ("it is a directory", "name a file inside it"),
        PermissionError: ("permission denied", "ask for permission to read it"),
    }
    reason, advice = known.get(type(error), (error.strerror or str(error), "check that it is a readable file"))
    return DocmtError(f"cannot read {_with_label(path, label)}: {reason}; {advice}")


def check_converted(directory: Path) -> None:
    """Raise DocmtError for a directory of the library transformers, which is not a docmt model."""
    path, values = directory / "config.json", dict[str, Any]()
    with suppress(DocmtError):
        values = read_json(path)
    if "model_type" in values:
        raise DocmtError(
            f"{directory} is a directory of transformers. Convert it first: "
            f"docmt convert huggingface {directory} -o MODEL"
        )


def read_json(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file of docmt. Raises DocmtError if it is missing or damaged."""
    try:
        values = parse_json(read_bytes(path, regular=True, advice="copy the directory again, complete"))
    except ValueError as error:
        raise DocmtError(f"{path} is damaged ({error}): copy it again") from error
    if not isinstance(values, dict):
        raise DocmtError(f"{path} does not hold a JSON object: copy it again")
    return values


def parse_json(data: bytes) -> Any:
    """Parse JSON in UTF-8. Raises ValueError for anything else, also for excessive nesting."""
    try:
        return json.loads(data.decode("utf-8"))
    except RecursionError as error:
        raise ValueError("too many nested brackets") from error


def parse_json_or_none(text: str) -> Any:
    """Return the value of a JSON text, None if it is invalid."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _with_label(path: Path | str, label: str) -> str:
    return f"{label} {path}" if label else str(path)


def json_checksum(values: Any) -> str:
    """Return the CRC-32 of values as JSON with sorted keys."""
    return f"{zlib.crc32(json.dumps(values, sort_keys=True).encode()):08x}"


def file_checksums(folder: Path, names: Iterable[str]) -> dict[str, str]:
    """Return the checksums of files in a folder, for a description."""
    return {name: file_checksum(folder / name) for name in names}


def stored_checksums(values: Mapping[str, Any], description: Path) -> dict[str, str]:
    """Return the checksums in the values of a description, if any. Raises DocmtError for an invalid entry."""
    stored = values.get(CHECKSUMS_KEY, {})
    if not isinstance(stored, dict) or not all(isinstance(value, str) for value in stored.values()):
        raise DocmtError(f'{description} has no valid checksums in "{CHECKSUMS_KEY}": copy it again, or remove them')
    return stored


def check_checksum(path: Path, *descriptions: str) -> None:
    """Compare a file with its checksums in the descriptions beside it, if they exist.

    Raises DocmtError if a checksum differs, or if a description is damaged.
    """
    files = [path.with_name(name) for name in descriptions]
    expected = {file: stored_checksums(read_json(file), file).get(path.name) for file in files if file.exists()}
    actual = file_checksum(path) if any(expected.values()) else ""
    for description, checksum in expected.items():
        if checksum is not None and checksum != actual:
            raise checksum_error(path, description)


def file_checksum(path: Path) -> str:
    """Return the CRC-32 of a file, in eight hexadecimal digits. Raises DocmtError if it cannot be read."""
    check_regular(path)
    checksum, block = 0, bytearray(_BLOCK_BYTES)
    view = memoryview(block)
    try:
        with path.open("rb", buffering=0) as file:
            while count := file.readinto(block):
                checksum = zlib.crc32(view[:count], checksum)
    except OSError as error:
        raise read_error(path, error, advice="copy the directory again, complete") from error
    return f"{checksum:08x}"


def checksum_error(path: Path, description: Path) -> DocmtError:
    """Return the DocmtError for a file whose checksum differs."""
    return DocmtError(
        f"{path} is damaged (it does not match its checksum in {description.name}): copy it again. "
        f'If it was changed on purpose, remove "{CHECKSUMS_KEY}" from {description.name}'
    )
