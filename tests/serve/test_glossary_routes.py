"""Glossaries in the interface of docmt: terms of texts and documents, over edits, deletion and restarts."""

import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest

pytest.importorskip("starlette")

from service_fixtures import ServiceEngine, running_service

from docmt.cli.app import main
from docmt.serve import glossary_store
from docmt.serve.access_keys import AccessKeys

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
        assert answer.headers["x-docmt-terms"] == "asked=4 met=2 refused=0 lost=2 forbidden=0 protected=0"
        data = answer.json()
        assert data["terms"] == {"asked": 4, "met": 2, "refused": 0, "lost": 2, "forbidden": 0, "protected": 0}
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
        assert status["terms"] == {"asked": 4, "met": 2, "refused": 0, "lost": 2, "forbidden": 0, "protected": 0}
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
            "document\tsentence\tterm\twanted\tfound\tstatus\tloss\treplaced\tdropped\treason\tsource\ttranslation",
            "text.txt\t1\tcat\tcat|chat\t\tmet\t0.0\t\t\t\tOne cat sleeps.\t«One cat sleeps.» ()",
            "text.txt\t2\tdogs\tchiens\tChiens\tmet\t0.0\t\t\t\tTwo dogs run.\tDeux Chiens courent.",
        ]
        client.post(f"{path}/undo")
        client.post(f"{path}/undo")
        assert client.get(path).json()["terms"]["met"] == 2


def test_keys_have_their_glossaries_and_limits(tmp_path, monkeypatch):
    keys = AccessKeys(tmp_path)
    one, other = ({"authorization": f"DeepL-Auth-Key {keys.create(name)[0]}"} for name in ("one", "other"))
    monkeypatch.setattr(glossary_store, "MAX_GLOSSARIES", 2)
    monkeypatch.setattr(glossary_store, "MAX_ENTRIES", 3)
    monkeypatch.setattr(glossary_store, "MAX_OWNER_BYTES", 60)
    with running_service(tmp_path, keys=keys) as client:

        def send(method, path, status, headers=one, **values):
            row = {"source_lang": "EN", "target_lang": "FR", "entries": "a\tb"} | values
            answer = client.request(method, path, json=row | {"name": "x"}, headers=headers)
            assert answer.status_code == status, answer.text
            return answer.json() if answer.content else {}

        id = send("POST", "/v2/glossaries", 201)["glossary_id"]
        mine = f"/v3/glossaries/{id}"
        for method, path in (
            ("GET", mine),
            ("PATCH", mine),
            ("DELETE", mine),
            ("GET", f"/v2/glossaries/{id}/entries"),
            ("PUT", f"{mine}/dictionaries"),
        ):
            send(method, path, 404, other)
        send("POST", "/v2/glossaries", 413, entries="a\tb\nb\tc\nc\td\nd\te")
        row = {"source_lang": "en", "target_lang": "fr"}
        send("PATCH", mine, 413, dictionaries=[row | {"entries": "b\tb\nc\tc\nd\td"}])
        assert send("GET", mine, 200)["dictionaries"] == [row | {"entry_count": 1}]  # nothing was written
        send("POST", "/v2/glossaries", 413, entries=f"{'é' * 30}\tb")
        send("POST", "/v2/glossaries", 201)
        assert "2 glossaries already" in send("POST", "/v2/glossaries", 400)["message"]
        send("POST", "/v2/glossaries", 201, other)
        send("DELETE", mine, 204)
        send("POST", "/v2/glossaries", 201)


@pytest.mark.parametrize(
    ("entries", "reason"),
    [
        ("", "entries is empty"),
        ("cat", "line 1: it must have a source and a target"),
        ("cat\tchat\tx", "line 1: it must have a source and a target"),
        ("cat\tchat\n \tx", "line 2: a text must have 1 to 1,024 bytes"),
        ("cat\t\u200b", "a text must have"),
        ("cat\tchat\ncat\tmatou", "line 2: 'cat' is there twice"),
        ("ca\x85t\tchat", "control character U\\+0085"),
        ("ca\u2028t\tchat", "control character U\\+2028"),
        ("ca\u202et\tchat", "control character U\\+202E"),
        ("x" * 1025 + "\ty", "is longer than 1,024 bytes"),
        ('csv "cat,chat', "Check the quotes"),
        ('csv "ca\nt",chat', "has a tab or a line break"),
        ("csv cat,chat,en", "may have the languages en and fr"),
        ("csv cat,chat,de,fr", "may have the languages en and fr"),
        ("csv cat;chat", "it must have a source and a target"),
        (f'csv "{"x" * 200_000}",chat', "field larger than field limit"),
    ],
)
def test_entries_that_are_refused(entries, reason):
    text, is_csv = entries.removeprefix("csv "), entries.startswith("csv ")
    with pytest.raises(glossary_store.GlossaryError, match=reason):
        glossary_store.parse_entries(text, is_csv, ("en", "fr"))


def test_entries_that_are_strange_and_fine(tmp_path):
    entries = {"=1+1": "=A1", ".": ";", '"a': "b", "cat": "|", "Cat": "Chat | Matou", "\U0001faa8": "\U0001fab5"}
    lines = [f" {source} \t{target} " for source, target in entries.items()]
    parsed = glossary_store.parse_entries("\ufeff" + "\r\n".join([*lines, "", " \t"][:-1]), False, ("en", "fr"))
    assert parsed == entries
    table = glossary_store.parse_entries('"a, b",c,EN-gb,fr_CA\n\nd,"e ""f"""\n', True, ("en", "fr"))
    assert table == {"a, b": "c", "d": 'e "f"'}
    with running_service(tmp_path) as client:
        id = store(client, "\n".join(map("\t".join, entries.items())))
        text = {"sentences": ["=1+1 . cat Cat \U0001faa8"], "glossary_id": id}
        (row,) = client.post("/v1/translate", json=text).json()["sentences"]
        assert [(use["term"], use["wanted"]) for use in row["terms"]] == [
            ("=1+1", ["=A1"]),
            ("cat", ["|"]),
            ("Cat", ["Chat", "Matou"]),
        ]


@pytest.mark.full
def test_several_processes_change_one_store(tmp_path):
    """Each change is whole, also of a process that is killed, and none is lost."""
    code = (
        "import sys, time; from pathlib import Path; from docmt.serve.glossary_store import GlossaryStore\n"
        "store = GlossaryStore(Path(sys.argv[1])); number = 0\n"
        "while number < 20 or sys.argv[3] == 'endless':\n"
        "    store.change('anna', sys.argv[2], {('en', 'fr'): {f'{sys.argv[3]} {number}': 'x'}})\n"
        "    number += 1; time.sleep(0.01)\n"
    )
    store = glossary_store.GlossaryStore(tmp_path)
    id = store.create("anna", "shared", {("en", "fr"): {"a": "b"}}).id
    command = [sys.executable, "-c", code, str(tmp_path), id]
    processes = [subprocess.Popen([*command, name]) for name in ("one", "two", "endless")]
    assert [process.wait() for process in processes[:2]] == [0, 0]
    processes[2].kill()
    processes[2].wait()
    entries = glossary_store.split_entries(store.read("anna", id, ("en", "fr")))
    assert {f"{name} {number}" for name in ("one", "two") for number in range(20)} <= set(entries)
    assert store.find("anna", id).sizes == {("en", "fr"): len(entries)}


def test_a_key_that_is_revoked_takes_its_glossaries_along(tmp_path):
    store, ids = glossary_store.GlossaryStore(tmp_path), [AccessKeys(tmp_path).create(name)[1].id for name in "ab"]
    for id in ids:
        store.create(id, "x", {("en", "fr"): {"a": "b"}})
    main(["serve", "--data", str(tmp_path), "--revoke-key", ids[0]])
    assert [len(store.list_owned(id)) for id in ids] == [0, 1]


def test_a_store_that_cannot_be_used_is_no_fault_of_the_client(tmp_path, monkeypatch):
    monkeypatch.setattr(glossary_store, "_BUSY_SECONDS", 0.01)
    with running_service(tmp_path) as client, closing(sqlite3.connect(tmp_path / "glossaries.sqlite")) as other:
        id = store(client)
        other.execute("BEGIN IMMEDIATE")
        answers = [client.get("/v2/glossaries"), client.post("/v1/translate", json={"text": TEXT, "glossary_id": id})]
    assert [each.status_code for each in answers] == [503, 503]
    assert "glossaries.sqlite cannot be used (database is locked)" in answers[0].json()["message"]


def test_languages_without_a_model_are_kept_beside_others(tmp_path):
    with running_service(tmp_path) as client:
        rows = [
            {"source_lang": one, "target_lang": two, "entries": "a\tb"} for one, two in (("de", "en"), ("en", "fr"))
        ]
        answer = client.post("/v3/glossaries", json={"name": "both", "dictionaries": rows})
        assert answer.status_code == 201, answer.text
        assert [row["source_lang"] for row in answer.json()["dictionaries"]] == ["de", "en"]
        answer = client.post("/v3/glossaries", json={"name": "one", "dictionaries": rows[:1]})
        assert answer.status_code == 400 and "no model" in answer.json()["message"]
        answer = client.post("/v2/glossaries", json={"name": "one", **rows[0]})
        assert answer.status_code == 400 and "no model" in answer.json()["message"]
