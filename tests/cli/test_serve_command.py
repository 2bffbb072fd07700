"""docmt serve: who may reach it, keys, a whole process from start to stop."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from commands import call, fails
from forked import ForkedPython

pytest.importorskip("uvicorn")
pytest.importorskip("httpx")

import httpx

from docmt.cli.commands.serve import ServeOptions, default_data, local_names, make_engine, make_server
from docmt.core.errors import DocmtError
from docmt.core.files import lock_directory
from docmt.serve.application import format_url, is_loopback, open_socket


def test_keys_are_made_listed_and_revoked(tmp_path):
    outcome = call("serve", "--data", tmp_path, "--create-key", "anna", "--concurrent-jobs", 2)
    assert outcome.status == 0 and len(outcome.out.strip()) > 40
    id, folder = re.search(r"key (\w+) of anna, in (.+);", outcome.err).groups()
    assert folder == str(tmp_path)
    assert outcome.out.strip() not in (tmp_path / "keys.sqlite").read_bytes().decode("latin-1")
    limits = "2 documents at once, 50 MiB a file"
    expected = rf"{id}\t\d{{4}}-\d\d-\d\d\tnever\t{limits}\tanna\n"
    assert re.fullmatch(expected, call("serve", "--data", tmp_path, "--list-keys").out)
    fails("serve", "--data", tmp_path, "--create-key", "a\tb", message="printable")
    assert call("serve", "--data", tmp_path, "--revoke-key", id).status == 0
    assert call("serve", "--data", tmp_path, "--list-keys").out == ""
    fails("serve", "--data", tmp_path, "--revoke-key", id, message=r"there is no key")


@pytest.mark.parametrize("flag", ["--create-key", "--revoke-key", "--cancel-job"])
def test_an_empty_value_starts_no_server(tmp_path, flag, monkeypatch):
    """Such as that of a variable of the shell that is not set."""
    monkeypatch.setattr("docmt.cli.commands.serve._serve", lambda *_: pytest.fail("it serves"))
    fails("serve", "--data", tmp_path, flag, "", message=r"name of a key|there is no key|has no documents")


@pytest.mark.parametrize("limit", ["--characters-per-minute", "--concurrent-jobs"])
def test_a_limit_of_keys_is_no_limit_of_a_server(run, tmp_path, limit, monkeypatch):
    monkeypatch.setattr("docmt.cli.commands.serve._serve", lambda *_: pytest.fail("it serves"))
    fails("serve", run, "--data", tmp_path, limit, 5, message=f"{limit} is a limit of a new key: add --create-key")


@pytest.mark.skipif(os.name == "nt", reason="Windows has other owners")
def test_a_key_that_the_service_would_not_see_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("DOCMT_HOME", str(tmp_path))
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setenv("SUDO_USER", "anna")
    fails("serve", "--create-key", "anna", message=r"a service does not read the keys of root \(.*serve\)")
    monkeypatch.delenv("SUDO_USER")
    monkeypatch.setattr("docmt.cli.commands.serve._UNIT", tmp_path)
    fails("serve", "--create-key", "anna", message="name its directory with --data")
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr("os.geteuid", lambda: tmp_path.stat().st_uid + 1)
    message = r"user \d+ of .* could not read the keys: run docmt serve as that user"
    fails("serve", "--data", tmp_path, "--create-key", "anna", message=message)
    assert list(tmp_path.iterdir()) == []
    monkeypatch.undo()
    assert call("serve", "--data", tmp_path, "--create-key", "anna").status == 0


def test_an_address_that_others_reach_needs_keys_or_open(run, tmp_path):
    message = "0.0.0.0 can be reached from elsewhere: make a key with docmt serve --create-key NAME, or add --open"
    fails("serve", run, "--host", "0.0.0.0", "--port", 0, "--data", tmp_path, message=re.escape(message))


def test_addresses_that_cannot_be_used(run, tmp_path):
    with open_socket("127.0.0.1", 0) as listener:
        assert is_loopback(listener) and listener.proto == socket.IPPROTO_TCP  # asyncio asks for it, to send at once
        port = listener.getsockname()[1]
        message = rf"127.0.0.1 port {port} cannot be used \(Address"
        fails("serve", run, "--port", port, "--data", tmp_path, message=message)
    message = "no.where port 1 cannot be used"
    fails("serve", run, "--host", "no.where", "--port", 1, "--data", tmp_path, message=message)
    fails("serve", tmp_path / "none", "--port", 0, "--data", tmp_path, message=r"none")


@pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="there are no unix sockets")
def test_a_unix_socket(run, tmp_path):
    path = tmp_path / "s"
    message = r"unix:.*s cannot be used \(Address already in use\)"
    with open_socket(f"unix:{path}", 0) as listener:
        assert is_loopback(listener) and format_url(listener) == f"unix:{path}"
        fails("serve", run, "--host", f"unix:{path}", "--data", tmp_path / "data", message=message)
    open_socket(f"unix:{path}", 0).close()  # in place of one that nobody listens on
    path.unlink()
    path.write_text("a file of the user")
    fails("serve", run, "--host", f"unix:{path}", "--data", tmp_path / "data", message=message)
    assert path.read_text() == "a file of the user"
    fails("serve", run, "--host", f"unix:{tmp_path}/no/s", "--data", tmp_path, message="cannot be used")
    fails("serve", run, "--host", f"unix:{tmp_path / ('s' * 200)}", "--data", tmp_path, message="cannot be used")
    fails("serve", run, "--host", "unix:", "--data", tmp_path, message="cannot be used")


@pytest.mark.parametrize(
    "path", ["mt", "/mt/../x", "/m t", "//evil", "ftp://x/mt", "https://x/?q", "/mt\n", "https:///mt"]
)
def test_a_root_path_that_is_none(run, tmp_path, path):
    with pytest.raises(DocmtError, match=r"(?s)--root-path .* is no path: write /mt, or https://tool\.example/mt"):
        options = ServeOptions(models=[str(run)], root_path=path)
        make_server(options, make_engine(options), tmp_path, None, frozenset())


def test_the_page_is_not_announced_before_the_directory_is_locked(run, tmp_path):
    with lock_directory(tmp_path, "used"):
        outcome = call("serve", run, "--port", 0, "--data", tmp_path)
    assert outcome.status == 2 and "is used by process" in outcome.err and "the page" not in outcome.err


@pytest.mark.skipif(sys.platform == "darwin", reason="macOS has one loopback address alone")
def test_another_loopback_address_is_a_name_of_the_server():
    with open_socket("127.0.0.2", 0) as listener:
        assert is_loopback(listener)
        assert local_names(listener) == {"localhost", "127.0.0.1", "[::1]", "127.0.0.2"}


def test_the_data_is_in_the_state_directory(monkeypatch, tmp_path):
    monkeypatch.delenv("DOCMT_HOME", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert default_data() == tmp_path / "docmt" / "serve"
    monkeypatch.setenv("DOCMT_HOME", str(tmp_path / "home"))
    assert default_data() == tmp_path / "home" / "serve"


@pytest.mark.parametrize("package", ["starlette", pytest.param("python_multipart", marks=pytest.mark.full)])
def test_a_missing_package_is_named(tmp_path, package):
    program = (
        f"import sys; sys.modules[{package!r}] = None; from docmt.cli.app import main; sys.exit(main(sys.argv[1:]))"
    )
    command = [sys.executable, "-c", program, "serve", "none", "--port", "0", "--data", str(tmp_path)]
    outcome = subprocess.run(command, capture_output=True, text=True)
    assert (
        outcome.stderr
        == f"docmt: error: docmt serve needs {package}: run pip install '.[serve]' where docmt was unpacked\n"
    )
    assert outcome.returncode == 2


@pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="there are no unix sockets")
@pytest.mark.full
def test_a_process_serves_on_a_unix_socket_behind_a_prefix(run, tmp_path):
    path = tmp_path / "s"
    options = ["--host", f"unix:{path}", "--root-path", "https://tool.example/mt", "--data", str(tmp_path / "data")]
    with socket.socket(socket.AF_UNIX) as killed:
        killed.bind(str(path))  # its file stays
    process = ForkedPython(["-m", "docmt", "serve", run, *options, "--beam", "1"])
    try:
        line = next(line for line in process.stderr if "the page is at" in line)
        assert f"unix:{path} " in line
        with httpx.Client(transport=httpx.HTTPTransport(uds=str(path)), base_url="http://localhost") as client:
            assert client.get("/health").json() == client.get("/mt/health").json() == {"status": "ok"}
            assert client.post("/v1/translate", json={"text": "Anna."}, timeout=120).status_code == 200
            files = {"files": {"file": ("a.txt", b"Anna.")}, "data": {"target": "de"}}
            url = client.post("/translate_file", **files, timeout=60).json()["translatedFileUrl"]
        assert url.startswith("https://tool.example/mt/download_file/")
    finally:
        process.terminate()
        _, log = process.communicate(timeout=60)
    assert process.returncode == 0 and not path.exists(), log


@pytest.mark.parametrize("signal_", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.full)])
def test_a_process_serves_until_it_is_asked_to_stop(run, tmp_path, signal_):
    process = ForkedPython(["-m", "docmt", "serve", run, "--port", "0", "--data", tmp_path, "--beam", "1"])
    try:
        line = next(line for line in process.stderr if "the page is at" in line)
        url = re.search(r"http://\S+", line)[0]
        text = "Anna is here."
        answer = httpx.post(f"{url}/v1/translate", json={"text": text}, timeout=120)
        assert answer.status_code == 200 and answer.json()["target_language"] == "de"
        id = httpx.post(f"{url}/v1/documents", json={"text": text}, timeout=60).json()["id"]
        with httpx.stream("GET", f"{url}/v1/documents/{id}/events", timeout=60) as stream:
            assert stream.status_code == 200
            process.send_signal(signal_)
            stream.read()
        _, log = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 0, log
    id_of_request = answer.headers["x-request-id"]
    assert re.search(rf"\d-\d\dT[\d:]{{8}}Z docmt: POST /v1/translate 200 \d+\.\d{{3}} s {id_of_request}\n", log), log
    assert "Anna" not in log and id not in log and "Traceback" not in log


def test_the_unit_for_systemd_is_hardened(tmp_path):
    page = (Path(__file__).parents[2] / "docs" / "serving.md").read_text(encoding="utf-8")
    unit = re.search(r"```ini\n(.*?)```", page, re.DOTALL)[1]
    assert {"UMask=0077", "StateDirectoryMode=0700", "NoNewPrivileges=true"} <= set(unit.splitlines())
    program = shutil.which("systemd-analyze")
    if not program:
        pytest.skip("systemd is not installed")
    (tmp_path / "docmt.service").write_text(unit)
    command = [program, "security", "--offline=true", "--no-pager", str(tmp_path / "docmt.service")]
    outcome = subprocess.run(command, capture_output=True, text=True)
    score = re.search(r"exposure level for docmt.service: ([\d.]+)", outcome.stdout)
    if score is None:
        pytest.skip("this systemd-analyze does not read files")
    assert float(score[1]) < 4 and f"gives it {score[1]} of 10" in page, outcome.stdout


@pytest.mark.parametrize("origin", ["tool.example", "https://tool.example/", "https://tool.example/mt", ""])
def test_an_origin_that_no_page_has(run, tmp_path, origin):
    options = ServeOptions(models=[str(run)], cors=["https://tool.example:8443", "null", "*", origin])
    with pytest.raises(DocmtError, match=r"--cors .* is no origin: write https://tool\.example, without a path"):
        make_server(options, make_engine(options), tmp_path / "data", None, frozenset())
