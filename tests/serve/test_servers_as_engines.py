"""docmt serve with servers in place of models, and as the server of another docmt."""

import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
import requests
from test_engine import SYSTEMS, save
from tiny_service import READS_CONTEXT, SEARCH, running_server

from docmt import Document, Translator
from docmt.engines import EndpointTranslator, http_client

sys.path.insert(0, str(Path(__file__).parents[1] / "engines"))
from fake_server import serving, translate_words, write_profile

TEXT = "Hello big world. It is new.\n\nAnother one here.\n"
SECONDS = 60


def wait_for(url, id, *states):
    """The status of a document when it is in one of these states."""
    until = time.monotonic() + SECONDS
    while (status := requests.get(f"{url}/v1/documents/{id}", timeout=SECONDS).json())["status"] not in states:
        assert time.monotonic() < until, status
        time.sleep(0.05)
    return status


def send(url, text, **values):
    """The id of a new document."""
    files = {"file": ("a.md", text.encode())}
    return requests.post(f"{url}/v1/documents", files=files, data=values, timeout=SECONDS).json()["id"]


def test_texts_and_documents_are_translated_by_the_server_of_a_profile(tmp_path):
    with serving() as fake:
        model = write_profile(tmp_path / "far.yaml", fake.url, prices={"input": 1000, "output": 1000})
        with running_server(model, data=tmp_path / "data") as url:
            (row,) = requests.get(f"{url}/v1/models", timeout=SECONDS).json()["models"]
            assert (row["name"], row["system"], row["reads_context"]) == ("far", "endpoint", True)
            answer = requests.post(
                f"{url}/v1/translate", json={"text": TEXT, "alignments": True}, timeout=SECONDS
            ).json()
            assert [each["target"] for each in answer["sentences"]] == [
                "Helloo bigo worldo.",
                "Ito iso newo.",
                "Anothero oneo hereo.",
            ]
            assert {each["score"] for each in answer["sentences"]} == {None}
            id = send(url, "# A *small* title\n\n" + TEXT)
            status = wait_for(url, id, "done", "failed")
            assert status["engine"] == {
                **{"name": "far", "requests": 4, "input_tokens": 28, "output_tokens": 12, "cost": 0.04},
                "currency": "USD",
            }
            result = requests.get(f"{url}/v1/documents/{id}/result", timeout=SECONDS).text
            assert result == "# Ao *smallo* titleo\n\nHelloo bigo worldo. Ito iso newo.\n\nAnothero oneo hereo.\n"
            asked = len(fake.requests)
            term = {"source": "world", "target": "monde"}
            requests.post(f"{url}/v1/documents/{id}/terms", json=term, timeout=SECONDS)
            status = wait_for(url, id, "done", "failed")
            assert status["terms"]["lost"] == 1 and len(fake.requests) > asked
            assert status["engine"]["requests"] == 4 + len(fake.requests) - asked


@pytest.mark.full
def test_a_document_goes_on_when_the_server_is_back(tmp_path, monkeypatch):
    monkeypatch.setattr(http_client, "_REST_SECONDS", 2.0)
    is_gone = threading.Event()

    def answer(text, number):
        if number > 2 and is_gone.is_set():
            return lambda handler: handler.send(503, "no")
        if number == 2:
            is_gone.set()
        return translate_words(text)

    with serving(answer) as fake:
        limits = {"attempts": 1, "requests": 1}
        model = write_profile(tmp_path / "far.yaml", fake.url, limits=limits)
        with running_server(model, data=tmp_path / "data") as url:
            id = send(url, TEXT)
            status = wait_for(url, id, "failed")
            assert "far does not answer" in status["error"] and status["finished"] == 2
            answer = requests.post(f"{url}/v1/translate", json={"text": "Hello."}, timeout=SECONDS)
            assert answer.status_code == 503 and int(answer.headers["Retry-After"]) > 0
            is_gone.clear()
            until = time.monotonic() + SECONDS
            while wait_for(url, id, "failed", "done")["status"] != "done":  # the server is left alone for a while
                assert time.monotonic() < until
                requests.post(f"{url}/v1/documents/{id}/resume", timeout=SECONDS)
                time.sleep(0.5)
            rows = requests.get(f"{url}/v1/documents/{id}/sentences", timeout=SECONDS).json()["sentences"]
            assert [row["target"] for row in rows] == list(
                map(translate_words, ["Hello big world.", "It is new.", "Another one here."])
            )


@contextmanager
def serving_far_and_own(tmp_path):
    """docmt serve with a server, `far`, and a model, `own`; the server answers while the event is set."""
    may_answer = threading.Event()
    may_answer.set()

    def answer(text, number):
        assert may_answer.wait(SECONDS)
        return translate_words(text)

    with serving(answer) as fake:
        far = write_profile(tmp_path / "far.yaml", fake.url)
        own = save(tmp_path / "own", **SYSTEMS["sentence"])
        with running_server(far, own, data=tmp_path / "data") as url:
            yield url, fake, may_answer


def test_texts_for_a_model_do_not_wait_for_a_slow_server(tmp_path):
    with serving_far_and_own(tmp_path) as (url, fake, may_answer):
        may_answer.clear()
        id = send(url, TEXT, model="far")
        while not fake.requests:
            time.sleep(0.01)
        for _ in range(3):
            near = requests.post(f"{url}/v1/translate", json={"text": "ba be", "model": "own"}, timeout=SECONDS)
            assert near.status_code == 200
        may_answer.set()
        assert wait_for(url, id, "done", "failed")["status"] == "done"


def test_a_failed_sentence_has_its_cost_in_the_job(tmp_path):
    with serving(lambda text, number: "" if "new" in text else translate_words(text)) as fake:
        model = write_profile(tmp_path / "far.yaml", fake.url)
        with running_server(model, data=tmp_path / "data") as url:
            status = wait_for(url, send(url, TEXT), "done", "failed")
            assert status["engine"]["requests"] == len(fake.requests) == 5


@pytest.mark.full
def test_texts_for_a_model_do_not_wait_for_a_second_search_by_a_slow_server(tmp_path):
    with serving_far_and_own(tmp_path) as (url, fake, may_answer):
        id = send(url, TEXT, model="far")
        wait_for(url, id, "done")
        asked = len(fake.requests)
        may_answer.clear()
        terms = {"source": "world", "target": "monde"}
        search = threading.Thread(
            target=lambda: requests.post(f"{url}/v1/documents/{id}/terms", json=terms, timeout=SECONDS)
        )
        search.start()
        while len(fake.requests) == asked:
            time.sleep(0.01)
        near = requests.post(f"{url}/v1/translate", json={"text": "ba be", "model": "own"}, timeout=SECONDS / 4)
        assert near.status_code == 200
        may_answer.set()
        search.join()
        assert wait_for(url, id, "done", "failed")["engine"]["requests"] == len(fake.requests)


@pytest.mark.parametrize("kind", ["docmt", "libretranslate", "deepl"])
def test_docmt_is_the_server_of_another_docmt(tmp_path, kind):
    model = save(tmp_path / "own", **READS_CONTEXT)
    text = "ba be. be bi.\n\nbo."
    with running_server(model, data=tmp_path / "data") as url:
        profile = write_profile(
            tmp_path / "p.yaml", url, profile=kind, model="", context={"sentences": 0}, key_variable=""
        )
        translations = EndpointTranslator(profile, protect=None).translate([Document.from_text(text)])
    own = Translator(model, search=SEARCH, device="cpu")
    assert list(translations[0].document.sentences) == [
        own.translate(Document.from_sentences([each])).document.sentences[0]
        for each in Document.from_text(text).sentences
    ]
