"""Connections of a running server: slow requests end, streams and uploads that go on do not."""

import json
import socket
import time
from contextlib import ExitStack, suppress

import pytest

pytest.importorskip("uvicorn")
pytest.importorskip("httpx")

import httpx
from tiny_model import save_tiny_model
from tiny_service import running_server

from docmt.serve import application, service_state
from docmt.serve.access_keys import AccessKeys, KeyLimits

HEAD = b"POST /v1/translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
BODY = json.dumps({"text": "It is."}).encode()


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("connections")
    with running_server(save_tiny_model(folder / "en-fr"), data=folder / "data") as url:
        yield url


@pytest.fixture
def short_times(monkeypatch):
    monkeypatch.setattr(application, "HEAD_SECONDS", 0.5)
    monkeypatch.setattr(application, "BODY_SECONDS", 0.5)
    monkeypatch.setattr(application, "BODY_BYTES", 100)


def connect(server):
    host, port = server.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=20)


def send_slowly(connection, parts, pause=0.1):
    """The answer, or nothing, and the seconds until the end of the connection."""
    started, answer = time.monotonic(), b""
    with suppress(ConnectionError):
        for part in parts:
            connection.sendall(part)
            time.sleep(pause)
    with suppress(ConnectionError):
        while data := connection.recv(65_536):
            answer += data
    return answer, time.monotonic() - started


@pytest.mark.parametrize(
    "parts",
    [
        [b""],
        [b"POST /v1"],
        [HEAD],
        [bytes([each]) for each in HEAD],  # one byte a time
        [HEAD + b"Content-Length: 1000\r\n\r\n"],
        [HEAD + b"Content-Length: 1000\r\n\r\n" + BODY],
        [HEAD + b"Content-Length: 1000\r\n\r\n", *[b" "] * 900],
        [HEAD + b"Transfer-Encoding: chunked\r\n\r\n", *[b"1\r\n \r\n"] * 90],
        [HEAD + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY + HEAD],  # half a request after a whole one
    ],
)
def test_a_request_that_arrives_too_slowly_ends(server, short_times, parts):
    with connect(server) as connection:
        answer, seconds = send_slowly(connection, parts)
    assert seconds < 15
    assert b"too slowly" in answer if len(parts) == 1 else not answer or b"too slowly" in answer, answer


@pytest.mark.full
def test_uploads_and_streams_that_go_on_are_not_ended(server, short_times, monkeypatch):
    monkeypatch.setattr(application, "BODY_SECONDS", 1)  # ten pauses, as a busy machine makes them longer

    def slowly():
        yield b'{"text": "It is."'
        for _ in range(15):
            time.sleep(0.1)
            yield b" " * 100
        yield b"}"

    json_body = {"content-type": "application/json"}
    answer = httpx.post(f"{server}/v1/translate", content=slowly(), headers=json_body, timeout=30)
    assert answer.status_code == 200
    id = httpx.post(f"{server}/v1/documents", json={"text": "It is. " * 30}).json()["id"]
    with httpx.stream("GET", f"{server}/v1/documents/{id}/events", timeout=60) as stream:
        lines = []
        for line in stream.iter_lines():
            lines.append(line)
            time.sleep(0.02)
    assert "event: done" in lines
    with httpx.Client(base_url=server) as client:  # one connection, idle for longer than a head may take
        assert client.get("/health").status_code == 200
        time.sleep(1)
        assert client.get("/health").status_code == 200


@pytest.mark.parametrize(("begun", "is_answered"), [(b"GET /", True), (HEAD + b"Content-Length: 9\r\n\r\n", False)])
def test_the_longest_waiting_connection_ends_if_there_are_too_many(server, monkeypatch, begun, is_answered):
    monkeypatch.setattr(service_state, "MAX_CONNECTIONS", 20)
    with ExitStack() as stack:
        held = [stack.enter_context(connect(server)) for _ in range(50)]
        for connection in held:
            with suppress(ConnectionError):
                connection.sendall(begun)
        time.sleep(0.5)
        if is_answered:
            assert httpx.get(f"{server}/health").status_code == 200
            answers = [each.recv(1000) for each in held[:30]]
            assert all(b" 503 " in answer for answer in answers)
        else:  # nobody waits, and all others are at work
            assert httpx.get(f"{server}/health").status_code == 503
    time.sleep(0.5)
    assert httpx.get(f"{server}/health").status_code == 200


def test_the_bound_leaves_files_for_the_work(monkeypatch):
    resource = pytest.importorskip("resource")
    monkeypatch.setattr(resource, "getrlimit", lambda which: (128, 128))
    assert service_state.max_connections() == 28
    monkeypatch.setattr(resource, "getrlimit", lambda which: (resource.RLIM_INFINITY, 0))
    assert service_state.max_connections() == 512


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    """The URL of a server that asks for keys, and keys without limits, for small files, and for no documents."""
    folder = tmp_path_factory.mktemp("guarded")
    keys = AccessKeys(folder / "data")
    limits = (KeyLimits(), KeyLimits(file_bytes=1_000_000), KeyLimits(characters_per_minute=1))
    secrets = [keys.create("client", each)[0] for each in limits]
    with running_server(save_tiny_model(folder / "en-fr"), data=folder / "data", keys=keys) as url:
        yield url, *secrets


def form(*parts):
    """A form with one part after the other, without its end."""
    return b"".join(b'--b\r\ncontent-disposition: form-data; name="%s"\r\n\r\n%s\r\n' % part for part in parts)


FILE = b'--b\r\ncontent-disposition: form-data; name="file"; filename="a.txt"\r\n\r\n'


def start_upload(url, path, body, size=40_000_000, key=""):
    """The answer to the beginning of an upload, of which no more comes."""
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", "Content-Type: multipart/form-data; boundary=b"]
    lines += [f"Content-Length: {size}", *([f"Authorization: Bearer {key}"] if key else []), "", ""]
    with connect(url) as connection:
        connection.sendall("\r\n".join(lines).encode() + body)
        answer = b""
        while not answer.endswith(b"}"):
            answer += connection.recv(65_536)
        return answer


@pytest.mark.parametrize("path", ["/v1/documents", "/v2/document", "/translate_file"])
def test_size_and_key_are_checked_before_a_file_is_read(guarded, path):
    url, secret, small, spent = guarded
    refusals = (b" 401 ", b" 403 ")
    assert start_upload(url, path, b"", size=60_000_000, key=secret).split()[1] == b"413"
    assert any(code in start_upload(url, path, b"", key="wrong") for code in refusals)
    answer = start_upload(url, path, b"", key=small)
    assert b" 413 " in answer and b"larger than 1,000,000 bytes" in answer
    httpx.post(f"{url}/v1/translate", json={"text": "It is."}, headers={"authorization": f"Bearer {spent}"}, timeout=60)
    assert b" 429 " in start_upload(url, path, b"", key=spent)
    if path != "/translate_file":
        assert any(code in start_upload(url, path, b"") for code in refusals)


@pytest.mark.full
def test_a_key_in_a_form_stands_before_a_large_file(guarded):
    url, secret, small, _ = guarded
    begun = FILE + b" " * 4_500_000
    for body in (begun, form((b"api_key", b"wrong")) + begun):
        assert b" 403 " in start_upload(url, "/translate_file", body)
    assert b" 403 " in start_upload(url, "/translate_file?api_key=wrong", b"")
    assert b" 413 " in start_upload(url, "/translate_file", form((b"api_key", small.encode())) + begun)
    files = {"file": ("a.txt", b"It is." + b" " * 4_500_000)}
    fields = {"target": "fr", "api_key": secret}  # which clients send first
    assert httpx.post(f"{url}/translate_file", files=files, data=fields, timeout=60).status_code == 200
    body = FILE + b"It is.\r\n" + form((b"target", b"fr"), (b"api_key", secret.encode())) + b"--b--"
    kind = {"content-type": "multipart/form-data; boundary=b"}  # a small file may come first
    assert httpx.post(f"{url}/translate_file", content=body, headers=kind, timeout=60).status_code == 200
