"""The soak sees what it looks for: wrong answers, none at all, documents that are lost, descriptors and memory."""

import json
import subprocess
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace

import pytest
from benchmarks import __main__ as command
from benchmarks import soak
from benchmarks.soak_clients import Client, Tally
from forked import Forking

SENTENCE = b'{"error": "there is no text: send one"}'


@pytest.mark.parametrize(
    ("status", "body", "is_good", "outcomes"),
    [
        (200, b"{}", True, {"answered": 1}),
        (200, b"{}", False, {"answered": 1}),
        (400, SENTENCE, False, {"refused": 1}),
        (503, SENTENCE, True, {"refused": 1}),
        (429, b'{"message": "wait"}', True, {"refused": 1}),
        (400, b"Invalid HTTP request received.", False, {"refused": 1}),
        (400, SENTENCE, True, {"refused": 1, "good_refused": 1}),
        (400, b'{"error": ""}', False, {"faults": 1}),
        (404, b"", False, {"faults": 1}),
        (500, SENTENCE, False, {"faults": 1}),
        (0, b"", False, {"faults": 1}),
    ],
)
def test_only_answers_and_refusals_with_a_reason_are_no_faults(status, body, is_good, outcomes):
    tally = Tally()
    assert tally.judge("POST /x", status, body, is_good) is ("answered" in outcomes)
    assert dict(tally.counts) == outcomes


def test_a_server_that_hangs_up_or_fails_is_blamed_for_each_request():
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            if self.path == "/fails":
                self.send_error(500)
            # else the connection ends without an answer

        def log_message(self, *arguments):
            pass

    tally = Tally()
    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        client = Client(server.server_port, tally, threading.Event(), seed=1, pause=0.0)
        assert client.request("GET", "/fails", stays=True) is None
        assert client.request("GET", "/hangs-up", stays=True) is None
        server.shutdown()
        thread.join()
    assert dict(tally.counts) == {"faults": 2} and "500" in tally.faults[0] and "hangs-up" in tally.faults[1]


@pytest.mark.parametrize(
    ("done", "failed", "lost"), [("abc", 2, 0), ("ab", 2, 1), ("abb", 2, 1), ("abcd", 2, 1), ("abc", 0, 2)]
)
def test_a_document_that_is_lost_or_there_twice_is_seen(done, failed, lost, tmp_path):
    (tmp_path / "failed").mkdir()
    (tmp_path / "failed" / "000001.jsonl").write_text("{}\n" * failed)
    tally = Tally()
    soak._check_documents(5, list(done), tmp_path, tally)
    assert tally.select(["documents", "lost", "faults"]) == {"documents": 5, "lost": lost, "faults": int(lost > 0)}


@pytest.mark.parametrize(
    ("last", "descriptors", "lost", "missed"),
    [(104.0, 9, 0, []), (106.0, 9, 0, [0]), (104.0, 10, 0, [1]), (104.0, 8, 1, [3])],
)
def test_growth_a_leak_and_a_loss_miss_their_targets(last, descriptors, lost, missed):
    rows = [{"minute": n, "megabytes": megabytes} for n, megabytes in enumerate([20.0, 100.0, 101.0, last])]
    tally = Tally()
    tally.count("lost", lost)
    result = soak._make_result(soak.FULL, tally, rows, {"descriptors": 9}, {"descriptors": descriptors})
    assert [number for number, finding in enumerate(result.findings) if finding.met is False] == missed


@pytest.mark.full
def test_a_short_soak_has_no_faults(tmp_path, monkeypatch):
    pytest.importorskip("uvicorn")
    if not Path("/proc/self/smaps").exists():
        pytest.skip("the soak reads /proc")
    monkeypatch.setattr(soak, "QUICK", replace(soak.QUICK, minutes=4 / 60, sample_seconds=1.0))
    monkeypatch.setattr(soak, "_IDLE_SECONDS", 2)
    monkeypatch.setattr(soak, "subprocess", SimpleNamespace(Popen=subprocess.Popen, run=Forking.run))
    output = tmp_path / "report.json"
    assert command.main(["soak", "--quick", "--output", str(output)]) == 0
    result = json.loads(output.read_text())["benchmarks"]["soak"]
    assert result["settings"]["faults"] == [] and len(result["settings"]["samples"]) == 4
    last = result["measurements"][-1]
    assert last["minute"] == "idle" and last["answered"] > 0 and last["faults"] == 0
