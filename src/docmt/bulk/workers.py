"""Workers of a bulk job: their signs of life, without a common clock, and workers that Ray starts.

Every worker has a file in a folder that all share. A thread renews its modification time, which the file system sets.
A worker counts as dead if its file is old by the clock of the file system, and does not change while another worker
watches it. So neither clocks that differ nor a clock that jumps end the claim of a living worker.
"""

from __future__ import annotations

import logging
import os
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from docmt.core.errors import DocmtError, missing_package_error
from docmt.core.files import host_id, is_running, write_error

CLAIM_SECONDS = 300.0
"""Age of a sign of life after which a worker may count as dead. NFS shows other machines a change a minute late."""
_RENEWALS = 10
"""Signs of life in that time."""
_RESTARTS = 20  # of an actor: a document that ends its process must not restart it for ever
_NAME = re.compile(r"\d+-[0-9a-f]{8}-[0-9a-f]{8}")
_log = logging.getLogger(__name__)
Result = TypeVar("Result")


@contextmanager
def sign_of_life(folder: Path, seconds: float = CLAIM_SECONDS) -> Iterator[str]:
    """Yield the name of a new worker, whose file is renewed until the block ends. Raises DocmtError if it cannot be."""
    name = f"{os.getpid()}-{host_id()}-{secrets.token_hex(4)}"
    file, ended = folder / name, threading.Event()
    try:
        file.touch()
    except OSError as error:
        raise write_error(file, error) from error

    def renew() -> None:
        while not ended.wait(seconds / _RENEWALS):
            with suppress(OSError):  # of a disk that is full, or of a network that is away for a while
                file.touch()

    thread = threading.Thread(target=renew, name="sign of life", daemon=True)
    thread.start()
    try:
        yield name
    finally:
        ended.set()
        thread.join()
        with suppress(OSError):
            file.unlink()


class Watch:
    """Observation of the workers in a folder."""

    def __init__(self, folder: Path, seconds: float = CLAIM_SECONDS) -> None:
        self._folder, self._seconds = folder, seconds
        self._unchanged: dict[str, tuple[float, float]] = {}  # last renewal, and since when it is watched

    def look(self, patient: bool = True) -> dict[str, bool]:
        """Return whether each worker lives, by name.

        patient: whether workers with an old sign of life count as living until they have been watched for a while.
        """
        ages, now = self._read_ages(), time.monotonic()
        self._unchanged = {
            name: seen if (seen := self._unchanged.get(name)) and seen[0] == renewed else (renewed, now)
            for name, (renewed, _) in ages.items()
        }
        patience = 2 * self._seconds / _RENEWALS if patient else 0.0
        return {
            name: not _has_ended(name) and (age <= self._seconds or now - self._unchanged[name][1] < patience)
            for name, (_, age) in ages.items()
        }

    def _read_ages(self) -> dict[str, tuple[float, float]]:
        """Return when each worker gave its last sign of life, and how long ago, by the clock of the file system."""
        renewals = {}
        with os.scandir(self._folder) as entries:
            for entry in entries:
                if _NAME.fullmatch(entry.name):
                    with suppress(OSError):  # it has ended
                        renewals[entry.name] = entry.stat().st_mtime
        now = read_clock(self._folder) if renewals else 0.0
        # After a jump of the clock, a dead worker's sign of life may lie in the future.
        return {name: (renewed, abs(now - renewed)) for name, renewed in renewals.items()}


def read_clock(folder: Path) -> float:
    """Return the time by the clock of a folder's file system; by that of this machine if it cannot be written."""
    file = folder / f".clock.{os.getpid()}-{host_id()}.{secrets.token_hex(4)}.tmp"
    try:
        file.touch()
        now = file.stat().st_mtime
        file.unlink()
    except OSError:
        return time.time()
    return now


def _has_ended(name: str) -> bool:
    """Return whether a worker was a process of this machine that does not run any more."""
    pid, host, _ = name.split("-")
    return host == host_id() and not is_running(int(pid))


# Actors of Ray, which starts them on the machines of a cluster and restarts dead ones


def run_actors(work: Callable[[], Result], actors: int, use_gpus: bool) -> Result:
    """Run the same work in every actor. Return the result of the last one that ended.

    The cluster is that of RAY_ADDRESS or of this machine, or else a new one of this machine, which ends with the call.
    use_gpus: give each actor a GPU if the cluster has any. Raises DocmtError of the work, or if no actor ends well.
    """
    ray = _import_ray()
    is_new = not ray.is_initialized()
    if is_new:
        ray.init(include_dashboard=False, logging_level=logging.WARNING)
    try:
        gpus = 1 if use_gpus and ray.cluster_resources().get("GPU") else 0
        make = ray.remote(num_cpus=1, num_gpus=gpus, max_restarts=_RESTARTS, max_task_retries=_RESTARTS)(_Actor)
        handles = [make.remote() for _ in range(actors)]
        return _wait(ray, [handle.work.remote(work) for handle in handles])
    finally:
        if is_new:
            ray.shutdown()


class _Actor:
    """A process of Ray."""

    def work(self, work: Callable[[], Any]) -> Any:
        """Return the result of the work."""
        return work()


def _wait(ray: Any, tasks: list[Any]) -> Any:
    """Return the result of the last task that ended. Actors that are lost are logged, as others do their shards."""
    results, lost = [], DocmtError("")
    while tasks:
        (ended, *_), tasks = ray.wait(tasks)
        try:
            results.append(ray.get(ended))
        except ray.exceptions.RayTaskError as error:
            raise error.cause from error
        except ray.exceptions.RayError as error:
            lost = DocmtError(f"an actor of Ray is lost ({str(error).splitlines()[0]}): start the job again")
            _log.warning("%s", lost)
    if not results:
        raise lost
    return results[-1]


def _import_ray() -> Any:
    try:
        import ray
    except ImportError as error:
        raise missing_package_error("--ray", "ray", "ray") from error
    return ray
