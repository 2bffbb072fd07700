"""A thousand hostile requests against a running server: each is refused, and the server goes on."""

import json
import logging
import random
import socket
from contextlib import suppress
from itertools import product

import pytest

pytest.importorskip("uvicorn")
pytest.importorskip("httpx")

import httpx
from tiny_model import save_tiny_model
from tiny_service import running_server

PATHS = {
    "/v1/translate": {"text": "x", "model": "", "source": "en", "target": "fr", "context": "", "alternatives": 1},
    "/v1/documents": {"text": "x", "format": "text", "fields": [], "name": "x", "context": ""},
    "/translate": {"q": "x", "source": "en", "target": "fr", "format": "text", "alternatives": 1},
    "/detect": {"q": "x"},
    "/v2/translate": {"text": ["x"], "target_lang": "FR", "context": "", "split_sentences": "1"},
}
WRONG = [
    *(None, True, -1, 1e308, 10**400, [], {}, [[]], [{}], [1], {"a": {"b": []}}, [None]),
    *("\0", "a\0b", "\ud800", "x\udfff", [["x"]], ["\0"], "\ud83d"),
]
REQUIRED = {"/v1/translate": ("text",), "/v1/documents": ("text",), "/translate": ("q", "target"), "/detect": ("q",)}
REQUIRED["/v2/translate"] = ("text", "target_lang")
ALLOWED = [("/v1/translate", "context", []), ("/v1/documents", "fields", []), ("/translate", "q", [])]
ALLOWED += [("/detect", "q", []), ("/v2/translate", "text", []), ("/v2/translate", "split_sentences", True)]
JSON = {"content-type": "application/json"}
MULTIPART = "multipart/form-data; boundary=b"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hostile")
    with running_server(save_tiny_model(folder / "en-fr"), data=folder / "data", max_file_mb=1) as url:
        yield url


def wrong_values():
    """Bodies with one value of a wrong type, or without characters."""
    for path, usual in PATHS.items():
        for name, value in product(usual, WRONG):
            is_absent = value is None and name not in REQUIRED[path]
            if not (is_absent or (path, name, value) in ALLOWED):
                yield path, json.dumps({**usual, name: value}).encode(), JSON


def broken_bodies(count):
    """Bodies that no parser reads, by random cuts and bytes."""
    numbers = random.Random(7)
    for number in range(count):
        path = list(PATHS)[number % len(PATHS)]
        body = bytearray(json.dumps({**PATHS[path], "more": ["é", 1.5, {"a": None}]}).encode())
        match number % 6:
            case 0:
                body = body[: numbers.randrange(1, len(body))]
            case 1:
                body[numbers.randrange(len(body))] = 0xFF
            case 2:
                body = bytearray(b"[" * numbers.randrange(1, 20_000))
            case 3:
                body = bytearray(b'{"a":' * numbers.randrange(1000, 10_000))
            case 4:
                body = bytearray(b'{"q": NaN, "text": Infinity, "sentences": -Infinity}')
            case 5:
                body = bytearray(numbers.randbytes(numbers.randrange(1, 5000)))
        yield path, bytes(body), JSON


def wrong_forms():
    """Multipart and other forms that are cut, without names, with wrong charsets, or of unknown kinds."""
    part = b'--b\r\ncontent-disposition: form-data; name="q"\r\n\r\nx\r\n'
    file = b'--b\r\ncontent-disposition: form-data; name="file"; filename="%s"\r\n\r\n%s\r\n--b--\r\n'
    forms = [
        (b"", MULTIPART),
        (b"x" * 1000, MULTIPART),
        (part, "multipart/form-data"),
        (part, "multipart/form-data; boundary="),
        (part, "multipart/form-data; boundary=" + "b" * 1000),
        (part.replace(b'; name="q"', b"") + b"--b--", MULTIPART),
        (part.replace(b"x\r\n", b"\0\r\n") + b"--b--", MULTIPART),
        (part * 10_500 + b"--b--", MULTIPART),
        (b"--b\r\n" + b"a" * 100_000, MULTIPART),
        (b"--b\r\n: \r\n\r\n--b--", MULTIPART),
        (part + b"--b--", MULTIPART + "; charset=undefined"),
        (file % (b"a.docx", b"PK\3\4"), MULTIPART),
        (file % (b"a.exe.docm", b"x"), MULTIPART),
        (file % (b"a.xlf", b"<!DOCTYPE x [<!ENTITY a 'b'>]><xliff>&a;</xliff>"), MULTIPART),
        (file % (b"a.json", b"[" * 5000), MULTIPART),
        (file % (b"a.txt", b"\xff\xfe\xff"), MULTIPART),
        (file % (b"a.txt", b"x" * 1_200_000), MULTIPART),
        (b"q=%ff&text=%ff", "application/x-www-form-urlencoded"),
        (b"&".join(b"q=%d" % n for n in range(10_001)), "application/x-www-form-urlencoded"),
        (b"q=x", "application/x-yaml"),
        (b"q=x", "text/html; charset=" + "x" * 500),
    ]
    for path in PATHS:
        for body, kind in forms:
            if path == "/v1/documents" or b"filename" not in body:
                yield path, body, {"content-type": kind}


@pytest.mark.full
def test_each_of_a_thousand_bodies_is_refused_with_a_sentence(server, caplog):
    requests = [*wrong_values(), *wrong_forms()]
    requests += broken_bodies(1000 - len(requests))
    assert len(requests) >= 1000
    with httpx.Client(base_url=server, timeout=60) as client:
        for path, body, headers in requests:
            answer = client.post(path, content=body, headers=headers)
            assert 400 <= answer.status_code < 500, (path, body[:300], headers, answer.text)
            assert 10 < len(answer.json().get("error") or answer.json()["message"]) < 3000
        text = {"q": "It is.", "source": "en", "target": "fr"}
        assert client.post("/translate", json=text).status_code == 200
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


@pytest.mark.parametrize(
    "lines",
    [
        [b"GET /" + b"a" * 300_000 + b" HTTP/1.1", b"Host: localhost"],
        [b"GET /none HTTP/9.9", b"Host: localhost"],
        [b"\0\1\2\3", b""],
        [b"POST /translate HTTP/1.1", b"Host: localhost", b"Content-Length: -5"],
        [b"POST /translate HTTP/1.1", b"Host: localhost", b"Content-Length: 5", b"Content-Length: 6"],
        [b"POST /translate HTTP/1.1", b"Host: localhost", b"Content-Length: " + b"9" * 400],
        [b"POST /translate HTTP/1.1", b"Host: localhost", b"Transfer-Encoding: chunked", b"", b"zz"],
        [b"POST /translate HTTP/1.1", b"Host: localhost", b"Transfer-Encoding: gzip"],
        [b"GET /v1/models HTTP/1.1", b"Host: localhost", b"Bad Header: x"],
        [b"GET /v1/models HTTP/1.1", b"Host: a\0b"],
        [b"GET /v1/models HTTP/1.1", b"Host: evil.example"],
        [b"GET /%00%ff/..%2f..%2fetc/passwd HTTP/1.1", b"Host: localhost"],
        [b"GET /v1/documents/%2e%2e%2f%2e%2e HTTP/1.1", b"Host: localhost"],
        [b"GET /v1/documents/x/result?format=%ff HTTP/1.1", b"Host: localhost"],
        [b"BREW /translate HTTP/1.1", b"Host: localhost"],
    ],
)
def test_garbage_on_the_wire_is_refused(server, lines, caplog):
    host, port = server.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall(b"\r\n".join([*lines, b"", b""]))
        head = b""
        with suppress(ConnectionResetError):
            head = connection.recv(65_536)
    assert not head or head.split()[1].startswith(b"4"), head
    assert httpx.get(f"{server}/health").json() == {"status": "ok"}
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


def test_clients_that_send_too_much_get_an_answer(server):
    def endless():
        for _ in range(200):
            yield b" " * 100_000

    for content in (endless(), b" " * 20_000_000):
        answer = httpx.post(f"{server}/translate", content=content, headers=JSON, timeout=60)
        assert answer.status_code == 413
    files = {"file": ("a.txt", b" " * 20_000_000)}
    assert httpx.post(f"{server}/v1/documents", files=files, timeout=60).status_code == 413
    assert httpx.post(f"{server}/none", files=files, timeout=60).status_code == 413
    assert httpx.post(f"{server}/none", files={"file": ("a.txt", b" " * 900_000)}).status_code == 404
    assert httpx.get(f"{server}/health").status_code == 200
