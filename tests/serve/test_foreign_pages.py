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


HOSTS = ["evil.example", "evil.example:5000", "localhost.evil.example", "x@localhost", "localhost:5000/evil", "a b"]


@pytest.mark.parametrize("root", ["", "/mt", "/a/b"])
def test_no_answer_repeats_an_unknown_host(tmp_path, root):
    with running_service(tmp_path, root_path=root) as client:
        file = {"files": {"file": ("ä b.txt", b"One cat.")}, "data": {"target": "fr"}}
        for host in HOSTS:
            headers = {"host": host, "x-forwarded-host": "evil.example"}
            url = client.post("/translate_file", **file, headers=headers).json()["translatedFileUrl"]
            assert url.startswith(f"{root}/download_file/")
            assert client.get(url).status_code == 200
            for method, path in (("GET", "/health/"), ("GET", root or "/"), ("POST", "/v1/translate/"), ("GET", "/no")):
                answer = client.request(method, path, headers=headers, follow_redirects=False)
                assert not any("evil" in value or host in value for value in answer.headers.values())
                assert path == "/" or "evil" not in answer.text
        for host, name in (("localhost:8443", "localhost:8443"), ("127.0.0.1", "127.0.0.1"), ("[::1]:80", "[::1]:80")):
            url = client.post("/translate_file", **file, headers={"host": host}).json()["translatedFileUrl"]
            assert url.startswith(f"http://{name}{root}/download_file/")


def test_a_known_address_is_in_all_urls(tmp_path):
    with running_service(tmp_path, root_path="/mt", address="https://tool.example:8443") as client:
        file = {"files": {"file": ("a.txt", b"One cat.")}, "data": {"target": "fr"}}
        for host in ("evil.example", "localhost", "127.0.0.1:5000"):
            url = client.post("/translate_file", **file, headers={"host": host}).json()["translatedFileUrl"]
            assert url.startswith("https://tool.example:8443/mt/download_file/")


@pytest.mark.parametrize("prefix", ["", "/mt"])
def test_a_prefix_that_the_proxy_removes_or_leaves(tmp_path, prefix):
    with running_service(tmp_path, root_path="/mt") as client:
        assert "<title>docmt" in client.get(f"{prefix}/").text
        assert client.get("/mt", follow_redirects=False).headers["location"] == "/mt/"
        assert client.get(f"{prefix}/page/app.js").status_code == 200
        answer = client.post(f"{prefix}/v1/documents", json={"text": "One cat."})
        assert answer.headers["location"] == f"/mt/v1/documents/{answer.json()['id']}"
        assert client.get(answer.headers["location"]).json()["id"] == answer.json()["id"]
        assert client.get(f"{prefix}/v1/models/", follow_redirects=False).headers["location"] == "/mt/v1/models"
        assert set(client.get(f"{prefix}/v2/none").json()) == {"message"}
        assert set(client.get(f"{prefix}/v1/none").json()) == {"error"}
        metrics = client.get(f"{prefix}/metrics").text
        assert 'route="/v1/documents/{id}"' in metrics and "/mt" not in metrics
