"""How far a bulk job is."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

from docmt.bulk.job_directory import JobDirectory
from docmt.core.progress import format_time


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
    warnings: tuple[tuple[str, int], ...] = ()
    """documents with each warning"""
    deleted: tuple[str, ...] = ()
    """results that were there and have been deleted; their shards do not count as done"""

    @property
    def is_complete(self) -> bool:
        """Whether all shards are done."""
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
        return f"{self.path}: {self.translated:,} of {self.documents:,} documents are translated{failed}"

    def to_json(self) -> dict[str, Any]:
        """Return the counts as JSON values."""
        derived = {"is_complete": self.is_complete, "rate": self.rate, "seconds_left": self.seconds_left}
        return {**asdict(self), "warnings": dict(self.warnings), **derived}

    def format(self) -> str:
        """Return the status in lines of text."""
        if not self.planned:
            return f"{self.path} is not planned yet; workers: {self.workers}\n"
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
        lines += [f"documents with the warning {name}: {count:,}" for name, count in self.warnings]
        return "\n".join(lines) + "\n"


def read_status(job: JobDirectory) -> JobStatus:
    """Return the status of a job, whose workers are not disturbed."""
    plan = job.read_plan()
    if plan is None:
        return JobStatus(str(job.path), False, workers=job.count_workers())
    claimed = job.list_claimed().keys()  # before the finished ones, of which some may still be claimed
    facts = job.read_facts()
    deleted = job.find_deleted(facts)
    facts = {name: each for name, each in facts.items() if name not in deleted}
    warnings = Counter[str]()
    for each in facts.values():
        warnings.update(each.warnings)
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
        warnings=tuple(sorted(warnings.items())),
        deleted=tuple(file for name in sorted(deleted) for file in deleted[name]),
    )
