"""The page without JavaScript: errors, keys, and names that are no HTML."""

import pytest

pytest.importorskip("starlette", reason="starlette, which the service is built on, is not installed")
pytest.importorskip("httpx", reason="httpx, which the test client is built on, is not installed")
from service_fixtures import running_service

from docmt.serve.access_keys import AccessKeys


def send(client, text="One. Two.", file=("", b""), **values):
    """Send the form as browsers do: with an empty file if none was chosen."""
    return client.post("/documents", data={"text": text, **values}, files={"file": file}, follow_redirects=False)


def test_a_document_leads_to_its_page(tmp_path):
    with running_service(tmp_path) as client:
        assert '<option value="fake">' in client.get("/documents").text
        response = send(client, file=("<b>.txt", b"One. Two."))
        assert response.status_code == 303 and response.headers["location"].startswith("documents/")
        page = client.get("/" + response.headers["location"])
        assert "&lt;b&gt;.txt" in page.text and "<b>" not in page.text
        assert "default-src 'self'" in page.headers["content-security-policy"]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"text": " "}, ">There is nothing to translate"),
        ({"model": "<i>"}, "&lt;i&gt;"),
        ({"file": ("a.docx", b"no zip")}, ">a.docx is not a zip package"),
        ({"file": ("a.png", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR")}, ".docx, "),
        ({"file": ("a.json", b'{"title": "One."}')}, "to translate in “Fields to translate” (in requests"),
    ],
)
def test_errors_are_pages(values, message, tmp_path):
    with running_service(tmp_path) as client:
        response = send(client, **values)
        assert 400 <= response.status_code < 500 and message in response.text and "<i>" not in response.text
        assert response.headers["content-type"].startswith("text/html")


def test_a_file_without_text(tmp_path):
    with running_service(tmp_path) as client:
        address = "/" + send(client, file=("a.txt", b"\n")).headers["location"]
        while 'http-equiv="refresh"' in (page := client.get(address).text):
            pass
        assert "<p>There is no text to translate.</p>" in page


def test_a_document_that_is_not_there(tmp_path):
    with running_service(tmp_path) as client:
        for path in ("/documents/x", "/documents/x/result"):
            response = client.get(path)
            assert response.status_code == 404 and ">There is no such document" in response.text


def test_the_key_of_the_form_is_kept_in_a_cookie_that_no_script_reads(tmp_path):
    keys = AccessKeys(tmp_path)
    key, _ = keys.create("anna")
    with running_service(tmp_path, keys=keys) as client:
        assert 'name="key"' in client.get("/documents").text
        assert send(client).status_code == 401
        response = send(client, key=key)
        assert {"HttpOnly", "SameSite=strict"} <= set(response.headers["set-cookie"].split("; "))
        path = "/" + response.headers["location"]
        assert client.get(path).status_code == 200
        client.cookies.clear()
        assert client.get(path).status_code == 401
