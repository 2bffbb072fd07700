"""The directory of a bulk job, which any number of workers share. Its state is in the names of files.

    output/             translations: part-N, or files
    failed/N.jsonl      documents that could not be translated, with the reasons
    plan.json           settings, input and shards; written last, so that a job with it is planned
    state/waiting/N     the documents of shard N, which no worker has claimed; `plan` until the job is planned
    state/claimed/N.W   the same while worker W has it
    state/done/N        facts of a finished shard
    state/kept/N        its documents, to translate them again if its results are deleted
    state/workers/W     sign of life of a worker

A worker claims a shard by renaming its file, which one worker alone succeeds in. Results are written to temporary
files, synced, and renamed; `state/done/N` comes last. So a worker may be killed at any moment: another one returns its
claim and translates the shard again, to the same bytes.

Signs of life need no common clock. A thread renews the modification time of a worker's file, which the file system
sets. A worker counts as dead if its file is old by the clock of the file system, and does not change while another
worker watches it. So neither clocks that differ nor a clock that jumps end the claim of a living worker.
"""

from __future__ import annotations

import errno
import json
import os
import re
import secrets
import shutil
import threading
import time
import zlib
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, astuple, dataclass, field
from pathlib import Path
from typing import Any

from docmt.core.errors import DocmtError
from docmt.core.files import find_leftovers, host_id, is_running, read_bytes, read_json, write_text, writing
from docmt.core.plain_text import write_bytes
from docmt.core.progress import format_time
from docmt.decoding.term_report import summarize_terms
from docmt.decoding.translation_results import EngineUse, sum_uses

CLAIM_SECONDS = 300.0
"""Age of a sign of life after which a worker may count as dead. NFS shows other machines a change a minute late."""
_RENEWALS = 10
"""Signs of life in that time."""
_NAME = re.compile(r"\d+-[0-9a-f]{8}-[0-9a-f]{8}")


@contextmanager
def sign_of_life(folder: Path, seconds: float = CLAIM_SECONDS) -> Iterator[str]:
    """Yield the name of a new worker, whose file is renewed until the block ends. Raises DocmtError if it cannot be."""
    name = f"{os.getpid()}-{host_id()}-{secrets.token_hex(4)}"
    file, ended = folder / name, threading.Event()
    with writing(file):
        file.touch()

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

    def __init__(self, folder: Path) -> None:
        self._folder = folder
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
        patience = 2 * CLAIM_SECONDS / _RENEWALS if patient else 0.0
        return {
            name: not _has_ended(name) and (age <= CLAIM_SECONDS or now - self._unchanged[name][1] < patience)
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


PLAN = "plan"
"""Name of the claim to plan a job."""
PLAN_FILE = "plan.json"
_VERSION = 3
_STATE = "state"
_STATE_FOLDERS = ("waiting", "claimed", "done", "kept", "workers")
_RESULT_FOLDERS = ("output", "failed")


@dataclass(frozen=True)
class Shard:
    """A part of a job that one worker translates and writes once."""

    name: str
    documents: int
    tokens: int
    """source tokens"""
    crc32: str
    """checksum of its file"""


@dataclass(frozen=True)
class Plan:
    """The plan of a job, on which all its workers agree."""

    settings: dict[str, Any]
    """JSON values by the names that messages give them"""
    shards: list[Shard]
    kind: dict[str, Any]
    """how documents are read and written, see `docmt.bulk.shards`"""


@dataclass(frozen=True)
class ShardFacts:
    """Facts of a finished shard."""

    documents: int
    failed: int
    tokens: int
    seconds: float
    """time of its worker"""
    warnings: dict[str, int] = field(default_factory=dict)
    """documents with each warning"""
    terms: dict[str, int] = field(default_factory=dict)
    """terms of each state, see `TermStatus`"""
    files: list[str] = field(default_factory=list)
    """paths of its translations below `output`"""
    engine: dict[str, Any] = field(default_factory=dict)
    """what a server took (`EngineUse`)"""
    reused: int = 0
    """sentences that a memory gave"""


@dataclass(frozen=True)
class Claim:
    """A shard, or the planning, that a worker has claimed."""

    name: str
    path: Path

    @property
    def is_held(self) -> bool:
        """True if no other worker has returned it because this one seemed dead."""
        return self.path.exists()


class JobDirectory:
    """The directory of a job. Operating system errors are raised as DocmtErrors."""

    def __init__(self, path: Path) -> None:
        """Open an existing job. Raises DocmtError if there is none."""
        if not _is_job(path):
            raise DocmtError(f"{path} holds no bulk job yet: name the input as well, or the -o of a planned job")
        self.path = path
        self.output, self.failed = (path / name for name in _RESULT_FOLDERS)
        folders = (path / _STATE / name for name in _STATE_FOLDERS)
        self.waiting, self.claimed, self.done, self.kept, self.workers = folders
        self._watch = Watch(self.workers)
        self._candidates: list[str] = []

    @classmethod
    def create(cls, path: Path) -> JobDirectory:
        """Open a job, or begin a new one in a new or empty directory. Raises DocmtError for any other directory."""
        temporary = path / f".{_STATE}.{os.getpid()}-{host_id()}.{secrets.token_hex(4)}.tmp"
        with writing(path):
            path.mkdir(parents=True, exist_ok=True)
            known = {_STATE, PLAN_FILE, *_RESULT_FOLDERS}
            if (other := next((name for name in _list(path) if name not in known), "")) and not _is_job(path):
                raise DocmtError(f"{path} holds something else, such as {other}: choose another -o DIR")
            for name in _RESULT_FOLDERS:
                (path / name).mkdir(exist_ok=True)
            if _is_job(path):
                return cls(path)
            if any(_list(path / name) for name in _RESULT_FOLDERS):
                raise DocmtError(f"{path} has the results of an earlier job: choose another -o DIR")
            try:
                for name in _STATE_FOLDERS:
                    (temporary / name).mkdir(parents=True)
                (temporary / "waiting" / PLAN).touch()
                temporary.rename(path / _STATE)
            except OSError as error:  # unless another worker was faster
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
            finally:
                shutil.rmtree(temporary, ignore_errors=True)
        return cls(path)

    # The plan

    def read_plan(self) -> Plan | None:
        """Return the plan, or None if the job is not planned. Raises DocmtError for a damaged one."""
        if not (self.path / PLAN_FILE).exists():
            return None
        values = read_json(self.path / PLAN_FILE)
        if values.get("version") != _VERSION:
            raise DocmtError(f"{self.path} is of another version of docmt: finish it there, or choose another -o DIR")
        return Plan(values["settings"], [Shard(*each) for each in values["shards"]], values["kind"])

    def write_plan(self, plan: Plan) -> None:
        """Make a job planned, all of whose shards are written."""
        shards = list(map(astuple, plan.shards))
        values = {"version": _VERSION, "settings": plan.settings, "kind": plan.kind, "shards": shards}
        write_text(self.path / PLAN_FILE, json.dumps(values, indent=1) + "\n")

    def clear_shards(self) -> None:
        """Remove what a dead planner has written."""
        for name in _list(self.waiting):
            (self.waiting / name).unlink(missing_ok=True)

    def write_shard(self, name: str, data: bytes) -> None:
        """Write the documents of a shard that waits."""
        write_bytes(self.waiting / name, data)

    # Claims

    def claim(self, worker: str, names: Collection[str]) -> Claim | None:
        """Claim one of these shards, in their order; return None if none of them waits."""
        for is_new in (False, True):
            if is_new:
                self._candidates = sorted(set(names).intersection(_list(self.waiting)), reverse=True)
            while self._candidates:
                name = self._candidates.pop()
                claim = Claim(name, self.claimed / f"{name}.{worker}")
                if _rename(self.waiting / name, claim.path):
                    if not self._is_done(name):
                        return claim
                    self.drop(claim)  # a worker had finished it before it seemed dead
        return None

    @contextmanager
    def holding(self, claim: Claim) -> Iterator[Claim]:
        """Release a claim after the block if its shard is not done, so that any worker can have it at once."""
        try:
            yield claim
        finally:
            _rename(claim.path, self.waiting / claim.name)

    def return_dead_claims(self) -> int:
        """Let the shards of dead workers wait again, and remove their signs of life. Return the number of claims."""
        claims = self.list_claimed()  # first: a worker gives a sign of life before it claims
        living = self._watch.look()
        # NFS may list a new name late, but finds it.
        unlisted = {worker for worker in {*claims.values()} - living.keys() if (self.workers / worker).exists()}
        dead = [(name, worker) for name, worker in claims.items() if not (living.get(worker) or worker in unlisted)]
        returned = sum([self._return(Claim(name, self.claimed / f"{name}.{worker}")) for name, worker in dead])
        for worker in (worker for worker, lives in living.items() if not lives):
            (self.workers / worker).unlink(missing_ok=True)
        return returned

    def count_workers(self) -> int:
        """Return the number of workers with a recent sign of life."""
        return sum(self._watch.look(patient=False).values())

    def _is_done(self, name: str) -> bool:
        return (self.path / PLAN_FILE if name == PLAN else self.done / name).exists()

    def _return(self, claim: Claim) -> bool:
        if self._is_done(claim.name):
            self.drop(claim)
            return False
        return _rename(claim.path, self.waiting / claim.name)

    def read_shard(self, claim: Claim, shard: Shard) -> bytes:
        """Return the documents of a claimed shard. Raises DocmtError if its file is damaged."""
        data = read_bytes(claim.path)
        if f"{zlib.crc32(data):08x}" != shard.crc32:
            raise DocmtError(f"shard {shard.name} of {self.path} is damaged: start the job again in another directory")
        return data

    def finish(self, claim: Claim, facts: ShardFacts, failures: Sequence[Mapping[str, Any]]) -> None:
        """Mark a shard as done whose translations are written."""
        file = self.failed / f"{claim.name}.jsonl"
        if failures:
            write_text(file, "".join(json.dumps(each, default=str) + "\n" for each in failures))
        else:
            file.unlink(missing_ok=True)  # of a worker that had less memory, and was killed before the shard was done
        write_text(self.done / claim.name, json.dumps(asdict(facts)) + "\n")
        self.drop(claim)

    def drop(self, claim: Claim) -> None:
        """End a claim whose work is done."""
        if claim.name == PLAN:
            claim.path.unlink(missing_ok=True)
        else:
            _rename(claim.path, self.kept / claim.name)

    def find_deleted(self, facts: Mapping[str, ShardFacts]) -> dict[str, list[str]]:
        """Return the files of these finished shards that somebody has deleted, by shard, relative to the job."""
        walks = (os.walk(folder) for folder in (self.output, self.failed))
        present = {f"{folder}{os.sep}{name}" for walk in walks for folder, _, names in walk for name in names}
        deleted = {}
        for shard, each in facts.items():
            paths = [self.output / file for file in each.files]
            if each.failed:
                paths.append(self.failed / f"{shard}.jsonl")
            # NFS may list a new name late, but finds it.
            if gone := [path for path in paths if str(path) not in present and not path.exists()]:
                deleted[shard] = [path.relative_to(self.path).as_posix() for path in gone]
        return deleted

    def reopen(self, worker: str, names: Collection[str]) -> list[str]:
        """Let finished shards among `names` wait again whose files somebody has deleted. Return these files."""
        self.return_dead_claims()  # of a worker that was killed in the midst of this
        kept = set(_list(self.kept)).intersection(names)  # first: a shard is done before it is kept
        facts = {name: facts for name, facts in self.read_facts().items() if name in names}
        deleted = self.find_deleted(facts)
        # If two workers met here. NFS may list a new name late, but finds it.
        undone = {name for name in kept - facts.keys() if not self._is_done(name)}
        for name in sorted(kept & deleted.keys() | undone):
            path = self.claimed / f"{name}.{worker}"
            if _rename(self.kept / name, path):
                (self.done / name).unlink(missing_ok=True)
                _rename(path, self.waiting / name)
        return [file for name in sorted(kept & deleted.keys()) for file in deleted[name]]

    def read_facts(self) -> dict[str, ShardFacts]:
        """Return the facts of all finished shards, by name."""
        facts = {}
        for name in sorted(_list(self.done)):
            try:
                facts[name] = ShardFacts(**read_json(self.done / name))
            except DocmtError:
                if self._is_done(name):  # or another worker has just reopened it
                    raise
        return facts

    def list_done(self) -> set[str]:
        """Return the names of the finished shards."""
        return set(_list(self.done))

    def list_waiting(self) -> set[str]:
        """Return the names of the shards that no worker has claimed."""
        return set(_list(self.waiting))

    def list_claimed(self) -> dict[str, str]:
        """Return the worker of each claimed shard."""
        return {name: worker for name, _, worker in (file.partition(".") for file in _list(self.claimed))}

    def sweep(self, complete: bool) -> None:
        """Remove temporary files of killed workers; complete: of all workers, as no shard is left."""
        for folder, _, _ in os.walk(self.path):
            with suppress(OSError):
                for leftover in find_leftovers(Path(folder)):
                    if complete or leftover.is_abandoned():
                        leftover.clean_up()


def _is_job(path: Path) -> bool:
    return (path / _STATE / _STATE_FOLDERS[-1]).is_dir()


def _list(folder: Path) -> list[str]:
    """Return the names in a folder, without temporary files. Raises DocmtError if it cannot be read."""
    with writing(folder):
        return [name for name in os.listdir(folder) if not name.startswith(".")]  # noqa: PTH208 - names alone are read


def _rename(source: Path, target: Path) -> bool:
    """Rename a file. Return False if it is not there any more. The name of the target is used by one caller alone."""
    with writing(target):
        try:
            source.rename(target)
        except FileNotFoundError:
            return target.exists()  # NFS may repeat a request whose answer was lost
    return True


# Status


@dataclass(frozen=True)
class JobStatus:
    """Counts of a job."""

    path: str
    planned: bool
    shards: int = 0
    done: int = 0
    claimed: int = 0
    workers: int = 0
    """with a recent sign of life"""
    documents: int = 0
    translated: int = 0
    """documents of finished shards, without the failed ones"""
    failed: int = 0
    tokens: int = 0
    done_tokens: int = 0
    seconds: float = 0.0
    """time that workers took for these tokens"""
    warnings: dict[str, int] = field(default_factory=dict)
    """documents with each warning"""
    terms: dict[str, int] = field(default_factory=dict)
    """terms of each state, see `TermStatus`"""
    reused: int = 0
    """sentences that a memory gave"""
    engine: EngineUse | None = None
    """what a server took"""
    deleted: tuple[str, ...] = ()
    """results that were there and have been deleted; their shards do not count as done"""

    @property
    def is_complete(self) -> bool:
        """True if all shards are done."""
        return self.planned and self.done == self.shards

    @property
    def rate(self) -> float:
        """Source tokens a second of one worker, 0 if unknown."""
        return self.done_tokens / self.seconds if self.seconds else 0.0

    @property
    def seconds_left(self) -> float | None:
        """Estimate of the remaining time with as many workers, None if unknown."""
        if self.is_complete:
            return 0.0
        rate = self.rate * self.workers
        return (self.tokens - self.done_tokens) / rate if rate else None

    def summarize(self) -> str:
        """Return the result in one line."""
        failed = f"; {self.failed:,} failed, see {self.path}/failed" if self.failed else ""
        terms = f"; {summarize_terms(self.terms)}" if self.terms else ""
        memory = f"; memory: {self.reused:,} sentences reused" if self.reused else ""
        engine = f"; {self.engine}" if self.engine else ""
        done = f"{self.translated:,} of {self.documents:,} documents are translated"
        return f"{self.path}: {done}{failed}{terms}{memory}{engine}"

    def to_json(self) -> dict[str, Any]:
        """Return the counts as JSON values."""
        return asdict(self) | {"is_complete": self.is_complete, "rate": self.rate, "seconds_left": self.seconds_left}

    def format(self) -> str:
        """Return the status in lines of text."""
        if not self.planned:
            return f"{self.path} is not planned yet; workers: {self.workers}"
        waiting = self.shards - self.done - self.claimed
        workers = "1 worker" if self.workers == 1 else f"{self.workers} workers"
        lines = [
            self.summarize(),
            f"shards: {self.shards:,}, of which {self.done:,} done, {self.claimed:,} claimed, {waiting:,} waiting",
            f"source tokens: {self.done_tokens:,} of {self.tokens:,}",
        ]
        if self.rate:
            lines[-1] += f", {self.rate:,.0f} a second for each worker"
        if not self.is_complete:
            left = "" if self.seconds_left is None else f", {format_time(self.seconds_left)} left"
            lines.append(f"{workers}{left}")
        if self.deleted:
            lines.append(f"deleted results: {len(self.deleted):,} (first: {self.deleted[0]}): start a worker again")
        lines += [f"documents with the warning {name}: {count:,}" for name, count in self.warnings.items()]
        return "\n".join(lines)


def read_status(job: JobDirectory) -> JobStatus:
    """Return the status of a job, whose workers are not disturbed."""
    plan = job.read_plan()
    if plan is None:
        return JobStatus(str(job.path), False, workers=job.count_workers())
    claimed = job.list_claimed().keys()  # before the finished ones, of which some may still be claimed
    facts = job.read_facts()
    deleted = job.find_deleted(facts)
    facts = {name: each for name, each in facts.items() if name not in deleted}
    warnings, terms = Counter[str](), Counter[str]()
    for each in facts.values():
        warnings.update(each.warnings)
        terms.update(each.terms)
    failed = sum(each.failed for each in facts.values())
    return JobStatus(
        str(job.path),
        True,
        shards=len(plan.shards),
        done=len(facts),
        claimed=len(claimed & {shard.name for shard in plan.shards} - facts.keys()),
        workers=job.count_workers(),
        documents=sum(shard.documents for shard in plan.shards),
        translated=sum(each.documents for each in facts.values()) - failed,
        failed=failed,
        tokens=sum(shard.tokens for shard in plan.shards),
        done_tokens=sum(each.tokens for each in facts.values()),
        seconds=sum(each.seconds for each in facts.values()),
        warnings=dict(sorted(warnings.items())),
        terms=dict(sorted(terms.items())),
        reused=sum(each.reused for each in facts.values()),
        engine=sum_uses(EngineUse(**each.engine) for each in facts.values() if each.engine),
        deleted=tuple(file for name in sorted(deleted) for file in deleted[name]),
    )
