"""Results of finished shards that somebody deletes are noticed, and written again by the next worker."""

import json
import multiprocessing
import os
import signal
from pathlib import Path

import pytest
from bulk_jobs import QUICK, bulk, is_clean, read_parts
from commands import call

from docmt.bulk import job_directory
from docmt.bulk.job_directory import JobDirectory, read_status
from docmt.decoding import Translator

NAMES = {"000001", "000002", "000003"}


def test_a_deleted_part_is_written_again(model, corpus, tmp_path, caplog):
    job = tmp_path / "job"
    bulk(model, corpus, "-o", job)
    whole = read_parts(job)
    corpus.unlink()
    first, second, third = sorted((job / "output").iterdir())
    second.unlink()
    times = [path.stat().st_mtime_ns for path in (first, third)]
    outcome = call("bulk", "status", job)
    assert outcome.out.startswith(f"{job}: 8 of 12 documents are translated\nshards: 3, of which 2 done")
    assert "deleted results: 1 (first: output/part-000002.jsonl): start a worker again\n" in outcome.out
    bulk(model, "-o", job)
    assert f"deleted results: 1 (first: {second}): their shards are translated again" in caplog.messages
    assert read_parts(job) == whole
    assert [path.stat().st_mtime_ns for path in (first, third)] == times
    assert is_clean(job)


def test_a_worker_leaves_the_share_of_others(model, corpus, tmp_path):
    bulk(model, corpus, "-o", tmp_path / "job")
    parts = sorted((tmp_path / "job" / "output").iterdir())
    parts[0].unlink()
    bulk(model, "-o", tmp_path / "job", "--shard", "2/3")
    assert not parts[0].exists()
    bulk(model, "-o", tmp_path / "job", "--shard", "1/3")
    assert parts[0].exists()


def test_failed_documents_are_tried_again_without_their_record(model, corpus, tmp_path, monkeypatch):
    bulk(model, corpus, "-o", tmp_path / "whole")
    translate = Translator.translate_all

    def fail(self, documents, **options):
        if any(document.id == "d4" for document in documents):
            raise IndexError("list index out of range")
        return translate(self, documents, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Translator, "translate_all", fail)
        bulk(model, corpus, "-o", tmp_path / "job", status=2)
    bulk(model, "-o", tmp_path / "job", status=2)
    (record,) = (tmp_path / "job" / "failed").iterdir()
    record.unlink()
    bulk(model, "-o", tmp_path / "job")
    assert read_parts(tmp_path / "job") == read_parts(tmp_path / "whole")


def test_deleted_files_of_a_folder(model, tmp_path):
    (tmp_path / "folder" / "sub").mkdir(parents=True)
    for name in ("a.txt", "sub/b.txt"):
        (tmp_path / "folder" / name).write_text("a few words")
    (tmp_path / "folder" / "x.pdf").write_text("%PDF-1.5")
    bulk(model, tmp_path / "folder", "-o", tmp_path / "job", status=2)
    whole = read_parts(tmp_path / "job")
    (tmp_path / "job" / "output" / "sub" / "b.txt").unlink()
    status = json.loads(call("bulk", "status", tmp_path / "job", "--json", "-").out)
    assert (status["is_complete"], status["deleted"]) == (False, ["output/sub/b.txt"])
    bulk(model, "-o", tmp_path / "job", status=2)
    assert read_parts(tmp_path / "job") == whole


def test_two_workers_that_start_together(model, corpus, tmp_path):
    """One of them has the shard; the other one finds it waiting, claimed or done."""
    bulk(model, corpus, "-o", tmp_path / "job")
    whole = read_parts(tmp_path / "job")
    next((tmp_path / "job" / "output").iterdir()).unlink()
    one, other = JobDirectory(tmp_path / "job"), JobDirectory(tmp_path / "job")
    names = {"000001", "000002", "000003"}
    assert len(one.reopen("1-00000000-00000000", names)) == 1
    assert other.reopen("2-00000000-00000000", names) == []
    bulk(model, "-o", tmp_path / "job")
    assert read_parts(tmp_path / "job") == whole


@pytest.mark.parametrize("look", [read_status, lambda job: job.reopen("1-00000000-00000000", NAMES)])
def test_a_shard_that_is_reopened_during_a_look(look, model, corpus, tmp_path, monkeypatch):
    """Its facts are listed, and gone when they are read."""
    bulk(model, corpus, "-o", tmp_path / "job")
    whole = read_parts(tmp_path / "job")
    (tmp_path / "job" / "output" / "part-000001.jsonl").unlink()  # the first that is read
    read, other = job_directory.read_json, JobDirectory(tmp_path / "job")

    def read_late(path):
        if path.parent == other.done:
            monkeypatch.undo()
            assert len(other.reopen("2-00000000-00000000", NAMES)) == 1
        return read(path)

    monkeypatch.setattr(job_directory, "read_json", read_late)
    look(JobDirectory(tmp_path / "job"))
    bulk(model, "-o", tmp_path / "job")
    assert read_parts(tmp_path / "job") == whole


def test_finished_shards_that_another_machine_lists_late(model, corpus, tmp_path, monkeypatch):
    bulk(model, corpus, "-o", tmp_path / "job")
    job, names = JobDirectory(tmp_path / "job"), job_directory._list
    monkeypatch.setattr(job_directory, "_list", lambda folder: [] if folder == job.done else names(folder))
    job.reopen("1-00000000-00000000", NAMES)
    assert job.list_waiting() == set()


@pytest.mark.parametrize("name", ["rename", pytest.param("unlink", marks=pytest.mark.full)])
@pytest.mark.parametrize("kill_at", [1, pytest.param(2, marks=pytest.mark.full)])
def test_killed_while_a_shard_is_reopened(model, corpus, tmp_path, name, kill_at):
    job = tmp_path / "job"
    bulk(model, corpus, "-o", job)
    whole = read_parts(job)
    for path in (job / "output").iterdir():
        path.unlink()

    def work():
        original, calls = getattr(Path, name), []

        def call_or_die(*arguments, **options):
            calls.append(arguments)
            if len(calls) == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)
            return original(*arguments, **options)

        opened = JobDirectory(job)
        setattr(Path, name, call_or_die)
        opened.reopen(f"{os.getpid()}-00000000-00000000", {"000001", "000002", "000003"})

    process = multiprocessing.get_context("fork").Process(target=work)
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert call("bulk", model, "-o", job, *QUICK).status == 0
    assert read_parts(job) == whole
    assert is_clean(job)
