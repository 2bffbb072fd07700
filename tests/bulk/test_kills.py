"""Workers that are killed at any moment: the results are those of one that was left in peace."""

import multiprocessing
import os
import random
import signal
import time
import traceback
from itertools import count
from pathlib import Path

import pytest
from bulk_jobs import QUICK, bulk, is_clean, read_parts, write_corpus
from commands import call

from docmt.bulk import worker

FORK = multiprocessing.get_context("fork")  # a new Python would import torch for seconds


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """JSONL with texts, which no worker changes."""
    return write_corpus(tmp_path_factory.mktemp("kills"))


@pytest.fixture(scope="module")
def whole(model, corpus):
    """The results of one worker."""
    bulk(model, corpus, "-o", corpus.with_name("whole"))
    return read_parts(corpus.with_name("whole"))


@pytest.fixture(autouse=True)
def quickly(monkeypatch):
    monkeypatch.setattr(worker, "POLL_SECONDS", 0.02)


def start(model, corpus, job, kill_at=0):
    """Start a worker in a process, which kills itself where it is about to change the disk for the n-th reason."""

    def work():
        places = set()

        def counting(function):
            def call_or_die(*arguments, **options):
                places.add(tuple((frame.f_code, line) for frame, line in traceback.walk_stack(None)))
                if len(places) == kill_at:
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


@pytest.mark.parametrize(
    ("first", "step"), [(12, 1000), *(pytest.param(first, 3, marks=pytest.mark.full) for first in (1, 2, 3))]
)
def test_killed_before_any_change_of_the_disk(model, corpus, tmp_path, whole, first, step):
    """Once for every place in the program that changes it."""
    for kill_at in count(first, step):
        job = tmp_path / str(kill_at)
        process = start(model, corpus, job, kill_at)
        process.join()
        if process.exitcode == 0:
            break
        assert process.exitcode == -signal.SIGKILL
        bulk(model, corpus, "-o", job)
        assert read_parts(job) == whole
        assert is_clean(job), list(job.rglob("*"))
    assert kill_at > 30


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
