"""Bulk jobs with a server in place of a model: each sentence is asked once, and nothing is lost when it goes away."""

import json
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
from bulk_jobs import is_clean, read_parts, read_records, write_rows
from commands import call

from docmt.bulk import worker
from docmt.engines import http_client

sys.path.insert(0, str(Path(__file__).parents[1] / "engines"))
from fake_server import serving, translate_words, write_profile

FORK = multiprocessing.get_context("fork")  # a new Python would import torch for seconds
SHARDS = ("--shard-tokens", "20", "-q")
WORDS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]


@pytest.fixture(autouse=True)
def quickly(monkeypatch):
    monkeypatch.setattr(worker, "POLL_SECONDS", 0.02)
    monkeypatch.setattr(http_client, "_FIRST_WAIT", 0.001)
    monkeypatch.setattr(http_client, "_LONGEST_WAIT", 0.002)


@pytest.fixture
def rows(tmp_path):
    """A corpus of documents without equal sentences."""
    texts = [f"House {word} is old. The door of {word} is red." for word in WORDS]
    return write_rows(tmp_path / "rows.jsonl", [{"id": f"d{n}", "text": text} for n, text in enumerate(texts)])


def make(tmp_path, fake, **settings):
    """A MODEL, always of the same name."""
    return write_profile(tmp_path / "far.yaml", fake.url, **settings)


def check_whole(job):
    """Each document has its translation, once."""
    records = read_records(job)
    assert sorted(record["id"] for record in records) == sorted(f"d{n}" for n in range(len(WORDS)))
    for record in records:
        word = WORDS[int(record["id"][1:])]
        assert record["translation"] == f"Houseo {word}o iso oldo. Theo dooro ofo {word}o iso redo."
    assert is_clean(job)


def test_each_sentence_is_asked_once(rows, tmp_path):
    with serving() as fake:
        model, job = make(tmp_path, fake), tmp_path / "job"
        outcome = call("bulk", model, rows, "-o", job, *SHARDS)
        assert outcome.status == 0, outcome.err
        check_whole(job)
        assert Counter(fake.texts()).most_common(1)[0][1] == 1 and len(fake.requests) == 20
        assert call("bulk", model, rows, "-o", job, *SHARDS).status == 0
        assert len(fake.requests) == 20
    status = json.loads(call("bulk", "status", job, "--json", "-").out)
    assert status["engine"]["requests"] == 20 and status["engine"]["input_tokens"] == 140
    assert {record["score"] for record in read_records(job)} == {None}


def test_another_profile_does_not_go_on_with_a_job(rows, tmp_path):
    with serving() as fake:
        assert call("bulk", make(tmp_path, fake), rows, "-o", tmp_path / "job", *SHARDS).status == 0
        outcome = call("bulk", make(tmp_path, fake, temperature=1.0), rows, "-o", tmp_path / "job", *SHARDS)
        assert outcome.status == 2 and "Traceback" not in outcome.err


@pytest.mark.parametrize("after", [0, 1, 7, 12])
def test_a_server_that_goes_away_loses_no_document(after, rows, tmp_path):
    left = [after]

    def answer(text, number):
        left[0] -= 1
        return translate_words(text) if left[0] >= 0 else lambda handler: handler.send(503, "")

    with serving(answer) as fake:
        model, job = make(tmp_path, fake, limits={"attempts": 2, "requests": 2}), tmp_path / "job"
        outcome = call("bulk", model, rows, "-o", job, *SHARDS)
        assert outcome.status == 2
        assert outcome.err.splitlines()[-1].startswith("docmt: error: far does not answer after 2 attempts: ")
        status = json.loads(call("bulk", "status", job, "--json", "-").out)
        assert status["failed"] == 0 and status["documents"] == (10 if "documents" in status else 0)
        left[0] = 10**6
        assert call("bulk", model, rows, "-o", job, *SHARDS).status == 0
        check_whole(job)


def test_a_server_that_stutters_fails_no_document(rows, tmp_path, monkeypatch):
    monkeypatch.setattr("docmt.engines.http_client._REST_SECONDS", 0.0)

    def answer(text, number):
        return translate_words(text) if number % 5 else lambda handler: handler.send(503, "")

    with serving(answer) as fake:
        model, job = make(tmp_path, fake, limits={"attempts": 1, "requests": 1}), tmp_path / "job"
        for _ in range(30):
            outcome = call("bulk", model, rows, "-o", job, *SHARDS)
            if outcome.status == 0:
                break
            assert "does not answer" in outcome.err.splitlines()[-1]
        check_whole(job)


def test_a_sentence_without_an_answer_fails_its_document_alone(rows, tmp_path):
    with serving(lambda text, number: "" if "door of four" in text else translate_words(text)) as fake:
        job = tmp_path / "job"
        outcome = call("bulk", make(tmp_path, fake), rows, "-o", job, "--shard-tokens", "1000", "-q")
        assert outcome.status in (0, 2) and "Traceback" not in outcome.err
        assert len(read_records(job)) == 9
        (failed,) = [json.loads(line) for path in (job / "failed").iterdir() for line in path.read_text().splitlines()]
        assert failed["id"] == "d3" and "gives no translation of it" in json.dumps(failed)
        assert f"{len(fake.requests)} requests" in outcome.err
        counts = Counter(fake.texts())
        assert max(count for text, count in counts.items() if "four" not in text) <= 2


def start(model, rows, job):
    """A worker in a process of its own."""
    process = FORK.Process(target=lambda: os._exit(call("bulk", model, rows, "-o", job, *SHARDS).status))
    process.start()
    return process


@pytest.mark.full
def test_two_workers_ask_each_sentence_once(rows, tmp_path):
    with serving(lambda text, number: time.sleep(0.02) or translate_words(text)) as fake:
        model, job = make(tmp_path, fake), tmp_path / "job"
        workers = [start(model, rows, job) for _ in range(2)]
        for each in workers:
            each.join(120)
            assert each.exitcode == 0
        check_whole(job)
        assert len(fake.requests) == 20


@pytest.mark.full
def test_a_worker_that_is_killed_while_it_asks(rows, tmp_path):
    with serving() as fake:
        model = make(tmp_path, fake)
        assert call("bulk", model, rows, "-o", tmp_path / "whole", *SHARDS).status == 0
    gate = threading.Event()

    def answer(text, number):
        if number == 8:
            gate.wait(60)
        return translate_words(text)

    with serving(answer) as fake:
        model, job = make(tmp_path, fake, limits={"requests": 1}), tmp_path / "job"
        process = start(model, rows, job)
        deadline = time.monotonic() + 60
        while len(fake.requests) < 8 and time.monotonic() < deadline:
            time.sleep(0.01)
        os.kill(process.pid, signal.SIGKILL)
        process.join(60)
        gate.set()
        outcome = call("bulk", model, rows, "-o", job, *SHARDS)
        assert outcome.status == 0, outcome.err
        check_whole(job)
    assert read_parts(tmp_path / "job") == read_parts(tmp_path / "whole")
