"""What is read from requests, what is refused, and what surrounds every answer."""

import gzip
import json
import logging
import re

import pytest

pytest.importorskip("starlette")
pytest.importorskip("httpx")

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from docmt.serve.http_requests import FORM_BYTES, RequestError, RequestGuard, ServiceConfig, answer_error, read_values
from docmt.serve.service_state import ServiceMetrics

URL = "http://localhost:5000"
PART = b"--a\r\ncontent-disposition: form-data"


async def echo(request):
    values = await read_values(request, 1000)
    size = len(await values.files["file"].read()) if values.files else 0
    texts = values.texts("q") if "q" in values.fields else []
    number = values.whole("n", 0, 5, 1)
    return JSONResponse({"q": texts, "list": values.is_list("q"), "on": values.switch("on"), "n": number, "size": size})


async def fail(request):
    raise KeyError("a private text")


async def leave(request):
    raise ClientDisconnect


async def own_policy(request):
    return PlainTextResponse("x", headers={"content-security-policy": "default-src 'self'"})


@pytest.fixture
def counted():
    return []


@pytest.fixture
def client(counted):
    config = ServiceConfig(
        max_body_bytes=2000, max_file_bytes=5000 - FORM_BYTES, hosts=frozenset(["localhost", "127.0.0.1", "[::1]"])
    )
    guard = Middleware(RequestGuard, config=config, count=lambda *row: counted.append(row))
    routes = [Route("/echo/{id}", echo, methods=["GET", "POST"]), Route("/fail", fail), Route("/policy", own_policy)]
    app = Starlette(
        routes=[*routes, Route("/leave", leave)], middleware=[guard], exception_handlers={RequestError: answer_error}
    )
    return TestClient(app, base_url=URL, raise_server_exceptions=False)


@pytest.mark.parametrize(
    "request_", [{"json": {"q": ["a", "é"]}}, {"data": {"q": ["a", "é"]}}, {"params": {"q": ["a", "é"]}}]
)
def test_a_list_may_come_as_json_form_or_query(client, request_):
    assert client.post("/echo/1", **request_).json()["q"] == ["a", "é"]


def test_a_form_with_a_file_and_fields(client):
    answer = client.post("/echo/1?on=1", data={"q": "a", "n": "3"}, files={"file": ("x.txt", b"12345")})
    assert answer.json() == {"q": ["a"], "list": False, "on": True, "n": 3, "size": 5}


def test_the_body_goes_before_the_query(client):
    assert client.post("/echo/1?q=a", json={"q": "b"}).json()["q"] == ["b"]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"q": "a"', "is not JSON"),
        (b'{"q": NaN}', "is not JSON"),
        (b'{"q": 1' + b"0" * 1500 + b"}", "q has a number"),
        (b"[" * 1900, "nested|not JSON"),
        (b'{"q":' * 380 + b"1" + b"}" * 0, "nested|not JSON"),
        (b'"q"', "no object"),
        (b'{"q": "\xff"}', "is not JSON"),
        (b'{"q": "\\ud800"}', "surrogate"),
        (b'{"q": "a\\u0000b"}', "null character"),
        (b'{"q": [["a"]]}', "q has a list"),
        (b'{"q": {"a": 1}}', "q has an object"),
        (b'{"q": [null]}', "q has null"),
        (b'{"q": true}', "q has true or false"),
        (b'{"n": 6}', "from 0 to 5"),
        (b'{"n": 1e300}', "from 0 to 5"),
        (b'{"n": "-1"}', "from 0 to 5"),
        (b'{"n": true}', "from 0 to 5"),
        (b'{"on": 2}', "true or false"),
        (b'{"on": []}', "true or false"),
    ],
)
def test_json_that_is_refused_with_a_reason(client, body, message):
    answer = client.post("/echo/1", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 400
    assert re.search(message, answer.json()["error"])


@pytest.mark.parametrize(
    ("kind", "body", "code"),
    [
        ("multipart/form-data", b"x", 400),
        ("multipart/form-data; boundary=", b"x", 400),
        ("multipart/form-data; boundary=a", b"--b\r\n\r\n", 400),
        (
            "multipart/form-data; boundary=a; charset=undefined",
            b'--a\r\ncontent-disposition: form-data; name="\xff.."\r\n\r\nx\r\n--a--',
            400,
        ),
        ("multipart/form-data; boundary=a", PART + b"\r\n\r\nx\r\n--a--", 400),
        ("application/x-www-form-urlencoded", b"q=%ff", 400),
        ("application/x-www-form-urlencoded", b"q=\xff", 400),
        ("text/plain", b"q=a", 415),
        ("application/xml", b"<q/>", 415),
        ("application/json; charset=latin-1", b'{"q": "\xe9"}', 415),
        ('application/json; x=1; charset="ISO-8859-15"; y=2', b'{"q": "a"}', 415),
    ],
)
def test_bodies_that_are_refused(client, kind, body, code):
    answer = client.post("/echo/1", content=body, headers={"content-type": kind})
    assert answer.status_code == code and set(answer.json()) == {"error"}


@pytest.mark.parametrize("charset", ["utf-8", "UTF-8", '"utf8"', "us-ascii"])
def test_charsets_that_are_utf_8_are_read(client, charset):
    headers = {"content-type": f"application/json;charset={charset}"}
    assert client.post("/echo/1", content=b'{"q": "a"}', headers=headers).json()["q"] == ["a"]


@pytest.mark.parametrize("kind", ["application/json", "multipart/form-data; boundary=a", "application/json; charset=x"])
def test_what_a_body_is_not_is_named(client, kind):
    headers = {"content-type": kind, "content-encoding": "gzip"}
    answer = client.post("/echo/1", content=gzip.compress(b'{"q": "a"}'), headers=headers)
    assert (answer.status_code, answer.json()["error"]) == (415, "the body is compressed ('gzip'): send it as it is")
    headers = {"content-type": "application/json; charset=Latin-1"}
    answer = client.post("/echo/1", content=b'{"q": "\xe9"}', headers=headers)
    assert (answer.status_code, answer.json()["error"]) == (415, "the charset of the body is 'latin-1': send UTF-8")


@pytest.mark.parametrize("size", [2001, 10**6])
def test_a_body_that_is_too_large_is_refused_before_and_while_it_is_read(client, size):
    kind = {"content-type": "application/json"}
    assert client.post("/echo/1", content=b" " * size, headers=kind).status_code == 413
    chunks = (b" " * 500 for _ in range(size // 500 + 1))
    assert client.post("/echo/1", content=chunks, headers=kind).status_code == 413
    assert client.post("/echo/1", files={"file": ("x", b" " * 4000)}).json()["size"] == 4000
    assert client.post("/echo/1", files={"file": ("x", b" " * 6000)}).status_code == 413


def test_a_failure_shows_no_text_of_the_user(client, caplog):
    answer = client.get("/fail")
    assert (answer.status_code, set(answer.json())) == (500, {"error"})
    assert "KeyError at test_http_requests.py" in caplog.text and "private" not in caplog.text + answer.text
    id = answer.headers["x-request-id"]
    assert f"request {id} failed" in caplog.text and id in answer.json()["error"]


def test_the_log_and_the_metrics_have_routes_only(client, counted, caplog):
    with caplog.at_level(logging.INFO, "docmt.serve"):
        client.get("/echo/secret?q=private", headers={"authorization": "Bearer abc"})
        client.request("BREW", "/pot")
        client.get("/leave")
    assert [row[:3] for row in counted] == [("/echo/{id}", "GET", 200), ("other", "other", 404), ("/leave", "GET", 499)]
    assert not {"secret", "private", "abc", "BREW", "pot"} & set(caplog.text.replace("/", " ").split())
    metrics = ServiceMetrics(lambda: {"jobs": {"done": 2.0}, "waiting_tokens": 7.0})
    metrics.count_request(*counted[0])
    text = metrics.format().decode()
    assert 'docmt_requests_total{code="200",method="GET",route="/echo/{id}"} 1.0' in text
    assert 'docmt_jobs{kind="done"} 2.0' in text and "docmt_waiting_tokens 7.0" in text


def test_each_line_of_the_log_has_the_id_of_its_request(client, caplog):
    with caplog.at_level(logging.INFO, "docmt.serve"):
        answers = [client.get(path, headers={"x-request-id": "theirs"}) for path in ("/echo/1", "/none", "/fail")]
    ids = [answer.headers["x-request-id"] for answer in answers]
    assert len(set(ids)) == 3 and all(re.fullmatch("[0-9a-f]{12}", id) for id in ids)
    lines = [record.getMessage() for record in caplog.records if record.levelno == logging.INFO]
    assert [line.split()[-1] for line in lines if line.startswith("GET")] == ids and "theirs" not in caplog.text


def test_every_answer_has_security_headers(client):
    for path in ("/echo/1", "/none", "/fail"):
        headers = client.get(path).headers
        assert headers["x-content-type-options"] == "nosniff" and headers["cache-control"] == "no-store"
        assert headers["content-security-policy"] == "default-src 'none'; frame-ancestors 'none'"
    assert client.get("/policy").headers["content-security-policy"] == "default-src 'self'"


@pytest.mark.parametrize(
    ("host", "code"),
    [
        ("localhost", 200),
        ("127.0.0.1:5000", 200),
        ("[::1]:80", 200),
        ("evil.example", 403),
        ("localhost.evil", 403),
        ("", 403),
    ],
)
def test_a_page_whose_name_points_at_this_machine_reads_nothing(client, host, code):
    assert client.get("/echo/1", headers={"host": host}).status_code == code


def test_errors_have_the_shape_of_their_interface(counted):
    async def refuse(request):
        raise RequestError("no", 429, {"retry-after": "3"})

    app = Starlette(routes=[Route("/v2/x", refuse)], exception_handlers={RequestError: answer_error})
    answer = TestClient(app).get("/v2/x")
    assert answer.status_code == 429 and answer.headers["retry-after"] == "3"
    assert json.loads(answer.text) == {"message": "no"}
