"""Kills at any moment: the same command again ends with what one ends with that nobody has disturbed."""

import os
import signal
import threading
import time
from contextlib import suppress

import pytest
from bulk_jobs import is_clean, read_parts, write_rows
from commands import QUICK, assert_one_sentence
from harness import TEXT, Child, contents, keeps_to_the_contract
from launching import free_port, variables_of

from docmt.bulk import worker
from docmt.serve import document_jobs
from docmt.serve.job_store import JobStore
from docmt.training import distributed

pytestmark = pytest.mark.full
PATIENCE = 120
"""The most that a case of several starts may take on a busy machine, in seconds."""


def seconds_of(folder, *arguments):
    """How long a command takes that is not killed."""
    started = time.monotonic()
    outcome = Child(folder, *arguments).end()
    assert outcome.status == 0, outcome
    return time.monotonic() - started


def test_a_killed_prepare_is_done_by_the_same_command(cases, prepare, store, tmp_path):
    whole = seconds_of(tmp_path, *prepare, "--store", tmp_path / "whole")
    assert contents(tmp_path / "whole") == contents(store)
    (tmp_path / "stores").mkdir()
    for chance in cases(4, "kills of prepare"):
        place = tmp_path / "stores" / "s"
        child = Child(tmp_path, *prepare, "--store", place, "--overwrite=true")
        chance.counts = child.kill(chance.uniform(0, whole))
        assert not place.exists() or contents(place) == contents(store)
        keeps_to_the_contract(*prepare, "--store", place, "--overwrite=true", statuses=(0,))
        assert contents(place) == contents(store)
        assert list(place.parent.iterdir()) == [place]


def go_on(train, run):
    """The command that begins a training, or goes on with it, as scripts on clusters do."""
    return ["train", "--resume", run] if (run / "recipe.yaml").exists() else [*train, "--run", run]


def test_a_killed_training_goes_on(cases, train, run, tmp_path):
    whole = seconds_of(tmp_path, *train, "--run", tmp_path / "whole")
    assert contents(tmp_path / "whole" / "model") == contents(run / "model")
    for number, chance in enumerate(cases(4, "kills of train")):
        place = tmp_path / f"run{number}"
        chance.counts = Child(tmp_path, *train, "--run", place).kill(chance.uniform(0, whole))
        keeps_to_the_contract(*go_on(train, place), statuses=(0,))
        assert contents(place / "model") == contents(run / "model")
        assert not list(place.rglob(".*.tmp"))


def start_two(folder, *arguments, before=lambda: None):
    """Two processes of a training that find each other by variables, as those of torchrun do."""
    port = free_port()

    def start(rank):
        own = folder / str(rank)
        own.mkdir(exist_ok=True)

        def join():
            os.environ.update(variables_of(rank, 2, port))
            before()

        return Child(own, *arguments, before=join)

    return [start(0), start(1)]


def impatient():
    """Notices lost processes within seconds."""
    distributed.POLL_SECONDS, distributed.LOST_POLLS, distributed.GRACE_SECONDS, distributed.MEETING_SECONDS = (
        0.2,
        15,
        1.0,
        4.0,
    )


def test_a_training_in_two_processes_goes_on(cases, train, tmp_path):
    """Whether one of them is killed, and then the other says so and ends by itself, or both."""
    started = time.monotonic()
    assert [child.end().status for child in start_two(tmp_path, *train, "--run", tmp_path / "whole")] == [0, 0]
    seconds = time.monotonic() - started
    whole = contents(tmp_path / "whole" / "model")
    for number, chance in enumerate(cases(2, "kills of train in two processes", PATIENCE)):
        place = tmp_path / f"run{number}"
        children = start_two(tmp_path, *train, "--run", place, before=impatient)
        victims = chance.choice([[0], [1], [0, 1]])
        time.sleep(chance.uniform(0, seconds))
        was_running = [children[rank].kill() for rank in victims]
        chance.counts = any(was_running)
        for rank in {0, 1}.difference(victims):
            outcome = children[rank].end()
            if outcome.status == 2:
                assert_one_sentence(outcome.err, "process(es|) of this training ")
            else:  # the other one was not needed any more
                assert outcome.status == 0, outcome
                assert rank == 1 or contents(place / "model") == whole
        assert [child.end() for child in start_two(tmp_path, *go_on(train, place))][1] == (0, "", "")
        assert contents(place / "model") == whole
        assert not list(place.rglob(".*.tmp"))


def test_a_killed_translation_leaves_nothing_half_done(cases, run, source, tmp_path):
    out = tmp_path / "out" / "b.txt"
    out.parent.mkdir()
    whole = seconds_of(tmp_path, "translate", run, source, "-o", tmp_path / "whole.txt", *QUICK)
    for chance in cases(4, "kills of translate"):
        child = Child(tmp_path, "translate", run, source, "-o", out, *QUICK)
        chance.counts = child.kill(chance.uniform(0, whole))
        assert not out.exists() or contents(out) == contents(tmp_path / "whole.txt")
        keeps_to_the_contract("translate", run, source, "-o", out, *QUICK, "--resume", statuses=(0,))
        assert contents(out) == contents(tmp_path / "whole.txt")
        assert list(out.parent.iterdir()) == [out]
        out.unlink()


def test_killed_workers_of_a_bulk_job_leave_its_results_as_they_are(cases, run, tmp_path, monkeypatch):
    """One worker or two, of rows or files; the second one goes on without the first."""
    monkeypatch.setattr(worker, "POLL_SECONDS", 0.02)
    rows = write_rows(tmp_path / "rows.jsonl", [{"id": f"d{n}", "text": TEXT * (n % 3 + 1)} for n in range(12)])
    (tmp_path / "files").mkdir()
    for number in range(8):
        (tmp_path / "files" / f"{number}.txt").write_text(TEXT * (number % 3 + 1))
    commands = [["bulk", run, input, *QUICK, "--shard-tokens=60"] for input in (rows, tmp_path / "files")]
    seconds = [seconds_of(tmp_path, *command, "-o", tmp_path / f"whole{n}") for n, command in enumerate(commands)]
    for number, chance in enumerate(cases(4, "kills of bulk")):
        kind, count, job = chance.randrange(2), chance.randrange(1, 3), tmp_path / f"job{number}"
        folders = [tmp_path / f"worker{n}" for n in range(count)]
        for folder in folders:
            folder.mkdir(exist_ok=True)
        victim, *others = [Child(folder, *commands[kind], "-o", job) for folder in folders]
        chance.counts = victim.kill(chance.uniform(0, seconds[kind]))
        assert [other.end().status for other in others] == [0] * len(others)
        keeps_to_the_contract(*commands[kind], "-o", job, statuses=(0,))
        assert read_parts(job) == read_parts(tmp_path / f"whole{kind}")
        assert is_clean(job), list(job.rglob("*"))


DOCUMENTS = {
    "a.txt": {"text": TEXT * 30, "context": "Before. Just before."},
    "b.html": {"text": f"<p>{TEXT.strip()}</p>\n<p>He <b>buys</b> it.</p>\n" * 20, "format": "html"},
}


def start_suspects_at_once():
    """Goes on with the documents of a server that was killed without waiting for others to make progress."""
    document_jobs._SUSPECT_SECONDS = 0.3


class Service:
    """`docmt serve` in a process, and a client that sends documents and takes what becomes of them."""

    def __init__(self, folder, model, data):
        httpx = pytest.importorskip("httpx")
        port = free_port()
        url = f"http://127.0.0.1:{port}"
        arguments = ["serve", model, "--data", data, "--port", port, *QUICK]
        self.child = Child(folder, *arguments, before=start_suspects_at_once)
        self.client, self.unreachable = httpx.Client(base_url=url, timeout=PATIENCE), httpx.TransportError

    def use(self, ids):
        """Sends what has no id yet; the results. A server that is killed is `unreachable`."""
        self._wait_for_start()
        for name, values in DOCUMENTS.items():
            if name not in ids:
                ids[name] = self._ask("POST", "/v1/documents", json={"name": name, **values}).json()["id"]
        return {name: self._take(f"/v1/documents/{id}") for name, id in ids.items()}

    def _wait_for_start(self):
        while True:
            try:
                self._ask("GET", "/")
                return
            except self.unreachable:
                if not self.child.is_running:
                    raise
                time.sleep(0.02)

    def _ask(self, method, path, **options):
        return self.client.request(method, path, **options).raise_for_status()

    def _take(self, path):
        while (status := self._ask("GET", path).json()["status"]) in ("queued", "running"):
            time.sleep(0.02)
        assert status == "done"
        formats = ("original", "html")
        return {format: self._ask("GET", f"{path}/result", params={"format": format}).content for format in formats}

    def stop(self):
        """Ends it as Ctrl-C does."""
        os.kill(self.child.pid, signal.SIGINT)
        assert self.child.end().status == 0
        self.client.close()


def sweep(data):
    """What the next start of a server finds, and leaves, of the files of documents."""
    store = JobStore(data, keep_seconds=3600.0)
    store.open()
    store.close()
    return {path.name for path in data.rglob("*") if path.is_file()}


def test_a_killed_server_ends_each_document_that_it_has_taken(cases, run, tmp_path):
    pytest.importorskip("uvicorn")
    started = time.monotonic()
    service = Service(tmp_path, run, tmp_path / "whole")
    whole = service.use({})
    seconds = time.monotonic() - started
    service.stop()
    files = sweep(tmp_path / "whole")
    for number, chance in enumerate(cases(2, "kills of serve", PATIENCE)):
        data, ids = tmp_path / f"data{number}", {}
        service = Service(tmp_path, run, data)
        killer = threading.Timer(chance.uniform(0, seconds), os.kill, [service.child.pid, signal.SIGKILL])
        killer.start()
        with suppress(service.unreachable):
            service.use(ids)
        killer.join()
        assert service.child.kill()  # it was still running
        service.client.close()
        again = Service(tmp_path, run, data)
        assert again.use(ids) == whole
        again.stop()
        assert sweep(data) == files
