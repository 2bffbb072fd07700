"""Glossaries in the interface of docmt: terms of texts and documents, over edits, deletion and restarts."""

import pytest

pytest.importorskip("starlette")

from service_fixtures import ServiceEngine, running_service

pytestmark = pytest.mark.usefixtures("files_here")

TEXT = "One cat sleeps. Two dogs run. One cat and two dogs."
ENTRIES = "cat\tcat | chat\ndogs\tchiens"


def store(client, entries=ENTRIES, **more):
    """The id of a stored glossary."""
    values = {"name": "animals", "source_lang": "en", "target_lang": "fr", "entries": entries}
    answer = client.post("/v2/glossaries", json=values | {"entries_format": "tsv"} | more)
    assert answer.status_code == 201, answer.text
    return answer.json()["glossary_id"]


def statuses(rows):
    return [(use["term"], use["status"]) for row in rows for use in row["terms"]]


def test_texts_say_what_became_of_terms(tmp_path):
    with running_service(tmp_path) as client:
        id = store(client)
        answer = client.post("/v1/translate", json={"text": TEXT, "glossary_id": id})
        assert answer.headers["x-docmt-terms"] == "asked=4 met=2 refused=0 lost=2 forbidden=0"
        data = answer.json()
        assert data["terms"] == {"asked": 4, "met": 2, "refused": 0, "lost": 2, "forbidden": 0}
        assert statuses(data["sentences"]) == [("cat", "met"), ("dogs", "lost"), ("cat", "met"), ("dogs", "lost")]
        assert data["sentences"][0]["terms"][0]["wanted"] == ["cat", "chat"]
        plain = client.post("/v1/translate", json={"text": TEXT})
        assert plain.json()["terms"]["asked"] == 0 and "x-docmt-terms" not in plain.headers
        for values in ({"glossary_id": "x"}, {"glossary_ids": [id, "x"]}):
            assert client.post("/v1/translate", json={"text": TEXT, **values}).status_code == 404
        other = client.post("/v1/translate", json={"text": TEXT, "glossary_id": id, "source": "fr", "target": "en"})
        assert other.status_code == 404 and "no dictionary for fr to en: it has en to fr" in other.json()["error"]


def test_documents_keep_terms_over_edits_deletion_and_restarts(tmp_path):
    with running_service(tmp_path, ServiceEngine(hold=0)) as client:
        glossary = store(client)
        answer = client.post("/v1/documents", json={"text": TEXT, "glossary_id": glossary})
        id = answer.json()["id"]
        assert answer.status_code == 202 and answer.json()["glossary_ids"] == [glossary]
        assert client.delete(f"/v3/glossaries/{glossary}").status_code == 204
        assert client.post("/v1/documents", json={"text": TEXT, "glossary_id": glossary}).status_code == 404
    with running_service(tmp_path) as client:
        client.get(f"/v1/documents/{id}/events")
        path = f"/v1/documents/{id}"
        status = client.get(path).json()
        assert status["terms"] == {"asked": 4, "met": 2, "refused": 0, "lost": 2, "forbidden": 0}
        assert status["glossary_ids"] == [glossary]
        rows = client.get(f"{path}/sentences").json()["sentences"]
        assert statuses(rows) == [("cat", "met"), ("dogs", "lost"), ("cat", "met"), ("dogs", "lost")]
        client.post(f"{path}/sentences/1", json={"target": "Deux Chiens courent."})
        client.post(f"{path}/sentences/2", json={"target": "Un chien."})
    with running_service(tmp_path) as client:
        rows = client.get(f"{path}/sentences").json()["sentences"]
        expected = [("cat", "met"), ("dogs", "met"), ("cat", "lost"), ("dogs", "other_form")]
        assert statuses(rows) == expected
        report = client.get(f"{path}/result?format=terms")
        assert report.headers["content-disposition"].endswith('filename="text.en-fr.terms.tsv"')
        assert report.text.splitlines()[:3] == [
            "document\tsentence\tterm\twanted\tfound\tstatus\tloss",
            "text.txt\t1\tcat\tcat|chat\t\tmet\t0.0",
            "text.txt\t2\tdogs\tchiens\tChiens\tmet\t0.0",
        ]
        client.post(f"{path}/undo")
        client.post(f"{path}/undo")
        assert client.get(path).json()["terms"]["met"] == 2
