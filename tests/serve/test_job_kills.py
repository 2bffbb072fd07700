"""A server that is killed at any moment and started again ends with the same bytes: nothing lost, nothing twice."""

import asyncio
import multiprocessing
import os
import random
import sys
import time
from pathlib import Path

import pytest
from fake_engine import FakeEngine
from job_process import main
from killed_processes import CONTEXT, start_process

from docmt.serve.document_jobs import DocumentJobs, DocumentOptions
from docmt.serve.file_process import FileProcess
from docmt.serve.job_store import JobStore

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGKILL")
TEXT = "".join(f"Sentence number {number} is here. And one more.\n" for number in range(60))
PAGE = "".join(f"<p>Sentence <b>number {number}</b> is here.</p>\n" for number in range(60))


def start(data, *files):
    """Start a server with these files; return its process, and the ids of their jobs."""
    receiver, sender = CONTEXT.Pipe(duplex=False)
    process = start_process(main, data, files, sender)
    return process, [receiver.recv() for _ in files]


def end(process):
    process.join()
    return process.exitcode


def make_files(folder):
    """Two files in a folder; a server moves them."""
    folder.mkdir()
    (folder / "a.txt").write_text(TEXT)
    (folder / "b.html").write_text(PAGE)
    return [folder / "a.txt", folder / "b.html"]


def contents(data, ids):
    """The files of jobs, by the number of the job and their name."""
    kept = {}
    for index, id in enumerate(ids):
        for path in sorted((data / "spool" / id).iterdir()):
            kept[index, path.name] = path.read_bytes()
    return kept


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    process, ids = start(folder / "data", *make_files(folder / "files"))
    assert end(process) == 0
    return contents(folder / "data", ids)


def count_bytes(data):
    return sum(path.stat().st_size for path in (data / "spool").glob("*/journal.jsonl"))


@pytest.mark.full
def test_a_server_that_is_killed_again_and_again_ends_with_the_same_bytes(tmp_path, uninterrupted):
    data, generator = tmp_path / "data", random.Random(7)
    total = sum(len(value) for (_, name), value in uninterrupted.items() if name == "journal.jsonl")
    process, ids = start(data, *make_files(tmp_path / "files"))
    for size in sorted(generator.randrange(total) for _ in range(8)):
        while count_bytes(data) < size:
            assert process.is_alive()
            time.sleep(0.001)
        process.kill()
        process.join()
        process, _ = start(data)
    assert end(process) == 0
    assert contents(data, ids) == uninterrupted
    assert sorted(name for _, name in uninterrupted)[:2] == ["contents.json"] * 2


@pytest.mark.full
def test_what_a_killed_server_was_writing_is_swept(tmp_path, monkeypatch):
    """The file of a result; whether the client asks for it again or not."""
    data = tmp_path / "data"

    async def die(self, task):
        Path(task.output).write_text("half of it")
        os._exit(0)

    async def scenario():
        jobs = DocumentJobs(FakeEngine(), data)
        await jobs.start()
        id = (await jobs.create(make_files(tmp_path / "files")[0], DocumentOptions(), "")).id
        async for _ in jobs.events(id, ""):
            pass
        monkeypatch.setattr(FileProcess, "_run", die)
        await jobs.result(id, "")

    process = multiprocessing.get_context("fork").Process(target=lambda: asyncio.run(scenario()))
    process.start()
    process.join()
    (folder,) = (data / "spool").iterdir()
    assert [path.read_text() for path in folder.glob("*/result")] == ["half of it"]
    store = JobStore(data, 3600.0)
    store.open()
    store.close()
    assert {path.name for path in folder.iterdir()} == {"source", "contents.json", "journal.jsonl"}
