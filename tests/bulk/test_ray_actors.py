"""Workers as actors of a local Ray: the results are those of one worker, also when an actor is killed."""

import os
import signal
import threading
import time
from pathlib import Path

import pytest
from bulk_jobs import QUICK, read_parts
from commands import call, fails

from docmt.bulk import worker
from docmt.core.errors import missing_package_error


def test_ray_is_an_extra(model, corpus, tmp_path, monkeypatch):
    def fail():
        raise missing_package_error("--ray", "ray", "ray")

    monkeypatch.setattr(worker, "_import_ray", fail)
    fails(
        "bulk", model, corpus, "-o", tmp_path / "job", "--ray", "2", *QUICK, message="--ray needs ray: run pip install"
    )


def test_actors_find_the_files_from_elsewhere(model, corpus, tmp_path, monkeypatch):
    """Their working directories differ; a model may have a comma in its path."""
    (tmp_path / "here").mkdir()
    (tmp_path / "there").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    for name, target in (("a,b", model), ("corpus.jsonl", corpus)):
        Path(name).symlink_to(target)
    Path("terms.tsv").write_text("word\tmore\n")
    Path("patterns.txt").write_text("few\n")

    def work_elsewhere(work, actors, use_gpus):
        monkeypatch.chdir(tmp_path / "there")
        return work()

    monkeypatch.setattr(worker, "run_actors", work_elsewhere)
    files = ["--terms", "terms.tsv", "--protect", "patterns.txt"]
    outcome = call("bulk", "a,b", "corpus.jsonl", "-o", "job", "--ray", "1", *files, *QUICK)
    assert outcome.status == 0, outcome.err
    assert read_parts(tmp_path / "here" / "job") and not [*(tmp_path / "there").iterdir()]


@pytest.mark.full
def test_two_actors_one_of_which_is_killed(model, corpus, tmp_path):
    pytest.importorskip("ray")
    options = [*QUICK[:-2], "1", "-q"]  # a shard for each document
    bulk_options = ["bulk", model, corpus, "-o", tmp_path / "whole", *options]
    assert call(*bulk_options).status == 0
    workers, killed = tmp_path / "job" / "state" / "workers", []

    def kill_one():
        deadline = time.monotonic() + 120
        while not killed and time.monotonic() < deadline:
            names = [path.name for path in workers.glob("[1-9]*")]
            if len(names) > 1 and any((tmp_path / "job" / "state" / "claimed").iterdir()):
                pid = int(names[0].partition("-")[0])
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)
            time.sleep(0.01)

    thread = threading.Thread(target=kill_one)
    thread.start()
    outcome = call("bulk", model, corpus, "-o", tmp_path / "job", "--ray", "2", *options)
    thread.join()
    assert outcome.status == 0, outcome.err
    assert killed
    assert read_parts(tmp_path / "job") == read_parts(tmp_path / "whole")
