"""Workers that are killed at any moment: the results are those of one that was left in peace."""

import multiprocessing
import os
import random
import signal
import time
from pathlib import Path

import pytest
from bulk_jobs import QUICK, bulk, is_clean, read_parts
from commands import call

from docmt.bulk import worker

FORK = multiprocessing.get_context("fork")  # a new Python would import torch for seconds


@pytest.fixture
def whole(model, corpus, tmp_path):
    """The results of one worker."""
    bulk(model, corpus, "-o", tmp_path / "whole")
    return read_parts(tmp_path / "whole")


@pytest.fixture(autouse=True)
def quickly(monkeypatch):
    monkeypatch.setattr(worker, "POLL_SECONDS", 0.02)


def start(model, corpus, job, kill_at=0):
    """Start a worker in a process, which kills itself before its n-th change of the disk."""

    def work():
        counted = [0]

        def counting(function):
            def call_or_die(*arguments, **options):
                counted[0] += 1
                if counted[0] == kill_at:
                    os.kill(os.getpid(), signal.SIGKILL)
                return function(*arguments, **options)

            return call_or_die

        for name in ("rename", "replace", "unlink", "touch", "mkdir", "write_bytes"):
            setattr(Path, name, counting(getattr(Path, name)))
        os.fsync = counting(os.fsync)
        os._exit(call("bulk", model, corpus, "-o", job, *QUICK).status)

    process = FORK.Process(target=work)
    process.start()
    return process


@pytest.mark.parametrize("kill_at", [pytest.param(n, marks=[] if n == 12 else pytest.mark.full) for n in range(1, 60)])
def test_killed_before_any_change_of_the_disk(model, corpus, tmp_path, whole, kill_at):
    process = start(model, corpus, tmp_path / "job", kill_at)
    process.join()
    assert process.exitcode in ((-signal.SIGKILL,) if kill_at < 50 else (-signal.SIGKILL, 0))
    bulk(model, corpus, "-o", tmp_path / "job")
    assert read_parts(tmp_path / "job") == whole
    assert is_clean(tmp_path / "job"), list((tmp_path / "job").rglob("*"))


@pytest.mark.full
def test_two_workers_killed_at_random_moments(model, corpus, tmp_path, whole):
    chance, job = random.Random(50), tmp_path / "job"
    workers = [start(model, corpus, job, chance.randrange(1, 60)) for _ in range(2)]
    for _ in range(20):
        time.sleep(chance.random() * 0.3)
        victim = workers.pop(0)
        victim.kill()
        workers.append(start(model, corpus, job, chance.randrange(1, 60)))
    for each in workers:
        each.join()
    workers = [start(model, corpus, job) for _ in range(2)]
    for each in workers:
        each.join()
        assert each.exitcode == 0
    assert read_parts(job) == whole
    bulk(model, "-o", job)
    assert is_clean(job)
