"""Pages of other sites cannot start work, and no answer repeats the host that a client names."""

import pytest

pytest.importorskip("starlette")
pytest.importorskip("httpx")

from service_fixtures import running_service

pytestmark = pytest.mark.usefixtures("files_here")

WORK = [
    ("POST", "/v1/translate", {"json": {"text": "One cat."}}),
    ("POST", "/v1/documents", {"files": {"file": ("a.txt", b"One cat.")}}),
    ("POST", "/translate", {"data": {"q": "One cat.", "source": "en", "target": "fr"}}),
    ("POST", "/v2/document", {"files": {"file": ("a.txt", b"One cat.")}, "data": {"target_lang": "FR"}}),
    ("DELETE", "/v1/documents/x", {}),
    ("PUT", "/v1/documents", {}),
]
FOREIGN = [
    {"origin": "http://evil.example"},
    {"origin": "null"},
    {"origin": "http://localhost:3000"},
    {"origin": "http://localhost"},
    {"origin": "http://localhost:5000.evil.example"},
    {"sec-fetch-site": "cross-site"},
    {"sec-fetch-site": "same-site", "origin": "http://localhost:3000"},
    {"sec-fetch-site": "cross-site", "origin": "http://localhost:5000"},
]
FRIENDLY = [
    {},
    {"origin": "http://localhost:5000"},
    {"origin": "HTTP://LOCALHOST:5000"},
    {"origin": "http://localhost:5000", "sec-fetch-site": "same-origin"},
    {"sec-fetch-site": "none"},
    {"origin": "https://translate.example", "sec-fetch-site": "same-origin"},  # a proxy that sends another Host
]


@pytest.fixture
def client(tmp_path):
    with running_service(tmp_path / "data") as client:
        yield client


@pytest.mark.parametrize("headers", FOREIGN)
def test_work_for_a_page_of_another_site_is_refused(client, headers):
    for method, path, values in WORK:
        answer = client.request(method, path, headers=headers, **values)
        assert answer.status_code == 403, (path, answer.text)
        [message] = answer.json().values()
        assert "another site" in message and "--cors" in message and "evil" not in message
    assert client.engine.works == []
    assert client.get("/health", headers=headers).status_code == 200


@pytest.mark.parametrize("headers", FRIENDLY)
def test_the_page_and_programs_work_as_before(client, headers):
    assert client.post("/v1/translate", json={"text": "One cat."}, headers=headers).status_code == 200


@pytest.mark.parametrize("allowed", ["https://tool.example", "*"])
def test_a_page_that_is_named_may_start_work(tmp_path, allowed):
    headers = {"origin": "https://tool.example", "sec-fetch-site": "cross-site"}
    with running_service(tmp_path, cors=(allowed,)) as client:
        answer = client.post("/v1/translate", json={"text": "One cat."}, headers=headers)
        assert answer.status_code == 200 and answer.headers["access-control-allow-origin"] in (allowed, "*")
        if allowed != "*":
            headers["origin"] = "https://evil.example"
            assert client.post("/v1/translate", json={"text": "One cat."}, headers=headers).status_code == 403
