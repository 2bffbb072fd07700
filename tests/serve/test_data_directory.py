"""The directory of the service: private files, versions, and keys that a running server takes up."""

import errno
import os
import sqlite3
import stat
from contextlib import closing

import pytest

pytest.importorskip("starlette")

from service_fixtures import ServiceEngine, running_service

from docmt.core.errors import DocmtError
from docmt.serve.access_keys import AccessKeys, KeyLimits
from docmt.serve.data_directory import hide_folders, make_private
from docmt.serve.job_store import JobStore

pytestmark = pytest.mark.usefixtures("files_here")


@pytest.fixture
def umask():
    before = os.umask(0)
    yield
    os.umask(before)


def open_to_others(data):
    """What others may read or write in a directory, the directory included."""
    return [str(path) for path in (data, *data.rglob("*")) if stat.S_IMODE(path.stat().st_mode) & 0o077]


@pytest.mark.parametrize("mode", [None, 0o755, 0o777])
def test_all_files_are_private_whatever_the_parent_and_the_umask(tmp_path, umask, mode):
    data = tmp_path / "data"
    if mode is not None:
        data.mkdir()
        data.chmod(mode)
    secret, _ = AccessKeys(data).create("anna")
    with running_service(data, keys=AccessKeys(data)) as client:
        client.headers["authorization"] = f"Bearer {secret}"
        for values in ({"files": {"file": ("a.html", b"<p>One cat.</p>")}}, {"json": {"text": "One cat."}}):
            id = client.post("/v1/documents", **values).json()["id"]
            client.get(f"/v1/documents/{id}/events")
            for format in ("original", "xlf", "tmx", "html"):
                assert client.get(f"/v1/documents/{id}/result?format={format}").status_code == 200
        names = {path.name for path in data.iterdir()}
        assert {"jobs.sqlite", "jobs.sqlite-wal", "jobs.sqlite-shm", "keys.sqlite", ".lock", "spool"} <= names
        assert open_to_others(data) == []
    assert open_to_others(data) == []


def test_files_with_wider_rights_are_narrowed(tmp_path):
    AccessKeys(tmp_path)
    (tmp_path / "spool" / "x").mkdir(parents=True)
    (tmp_path / "spool" / "x" / "journal").touch()
    outside = tmp_path.parent / "outside"
    outside.touch()
    outside.chmod(0o644)
    (tmp_path / "spool" / "link").symlink_to(outside)
    for path in (tmp_path, tmp_path / "keys.sqlite", tmp_path / "spool", tmp_path / "spool" / "x"):
        path.chmod(0o777)
    make_private(tmp_path, tmp_path / "keys.sqlite")
    assert open_to_others(tmp_path) == [str(tmp_path / "spool" / "link")]  # by its target, which is not touched


def test_a_directory_with_other_files_keeps_its_mode(tmp_path, umask):
    tmp_path.chmod(0o755)
    (tmp_path / "notes.txt").touch()
    AccessKeys(tmp_path)
    assert open_to_others(tmp_path) == [str(tmp_path), str(tmp_path / "notes.txt")]


def test_rights_that_cannot_be_changed_are_one_sentence(tmp_path, monkeypatch):
    AccessKeys(tmp_path)
    monkeypatch.setattr("os.access", lambda *arguments: False)
    with pytest.raises(DocmtError, match=r"keys\.sqlite belongs to another user: run the command as that user"):
        AccessKeys(tmp_path)


def change(path, *statements):
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in statements:
            connection.execute(statement)


@pytest.mark.parametrize(
    "statements",
    [
        ["PRAGMA user_version = 99"],
        ["PRAGMA user_version = 0"],
        ["PRAGMA user_version = 99", "DROP TABLE {table}", "CREATE TABLE other (x)"],
        ["UPDATE {table} SET {column} = '{\"unknown\": 1}'"],
        ["UPDATE {table} SET {column} = 'x'"],
    ],
)
def test_a_database_of_another_version_is_one_sentence(tmp_path, statements):
    keys = AccessKeys(tmp_path)
    keys.create("anna")
    with running_service(tmp_path) as client:
        client.post("/v1/documents", json={"text": "One cat."})
    for name, table, column in (("keys.sqlite", "keys", "limits"), ("jobs.sqlite", "jobs", "facts")):
        change(tmp_path / name, *(each.replace("{table}", table).replace("{column}", column) for each in statements))
    message = r"{}\.sqlite is of another version of docmt \(.+\): use that version, or move the file away"
    with pytest.raises(DocmtError, match=message.format("keys")):
        AccessKeys(tmp_path).list_keys()
    change(tmp_path / "jobs.sqlite", "UPDATE jobs SET status = 'queued'") if "{table}" in statements[0] else None
    store = JobStore(tmp_path, 3600.0)
    with pytest.raises(DocmtError, match=message.format("jobs")):
        store.open()
        store.list_jobs(status="queued")
    store.close()


def test_the_first_key_counts_at_once(tmp_path):
    with running_service(tmp_path, keys=AccessKeys(tmp_path), hosts=frozenset(["localhost"])) as client:
        assert client.post("/v1/translate", json={"text": "One cat."}).status_code == 200
        assert client.get("/frontend/settings").json()["keyRequired"] is False
        assert client.get("/health", headers={"host": "translate.example"}).status_code == 403
        secret, key = AccessKeys(tmp_path).create("anna")  # another process
        assert client.post("/v1/translate", json={"text": "One cat."}).status_code == 401
        assert client.get("/frontend/settings").json()["keyRequired"] is True
        headers = {"authorization": f"Bearer {secret}", "host": "translate.example"}
        assert client.get("/v1/models", headers=headers).status_code == 200
        AccessKeys(tmp_path).revoke(key.id)
        assert client.get("/v1/models").status_code == 401  # without any key, it stays closed


@pytest.mark.parametrize("name", ["a\tb", "a\nb", "\x1b[31m", "", "  ", "a\u202eb", "x" * 200])
def test_names_of_keys_are_one_printable_line(tmp_path, name):
    keys = AccessKeys(tmp_path)
    with pytest.raises(DocmtError, match="name"):
        keys.create(name)
    assert keys.list_keys() == []


def test_the_last_use_of_a_key_is_kept(tmp_path):
    keys = AccessKeys(tmp_path)
    secret, key = keys.create("Anna Å", KeyLimits(concurrent_jobs=2))
    assert key.used == 0
    assert keys.find(secret).id == key.id
    assert AccessKeys(tmp_path).list_keys()[0].used >= key.created
    assert keys.find("wrong") is None


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("cannot write /var/lib/docmt/uploads/x7: no space", "cannot write x7: no space"),
        ("/srv/m/model.safetensors is damaged (it does not match)", "model.safetensors is damaged (it does not match)"),
        ("cannot write '/a/b c.txt'", "cannot write 'b c.txt'"),
        ("/srv/My old Models/en-fr/config.json is damaged", "config.json is damaged"),
        ("see https://x.eu/a/b, text/html and en/fr: 1/2", "see https://x.eu/a/b, text/html and en/fr: 1/2"),
    ],
)
def test_messages_to_clients_have_no_folders(message, expected):
    assert hide_folders(message) == expected


def test_no_answer_names_a_folder_of_the_server(tmp_path, monkeypatch):
    place = tmp_path / "private-place"

    class DamagedEngine(ServiceEngine):
        def submit(self, *arguments, **options):
            raise DocmtError(f"{place}/model.safetensors is damaged: copy it again")

    with running_service(tmp_path / "data", DamagedEngine()) as client:
        id = client.post("/v1/documents", json={"text": "One cat."}).json()["id"]
        answers = [
            client.post("/v1/translate", json={"text": "One cat."}),
            client.get(f"/v1/documents/{id}/events"),
            client.get(f"/v1/documents/{id}"),
            client.post("/translate_file", files={"file": ("a.txt", b"One cat.")}, data={"target": "fr"}),
        ]
        answer = client.post("/v2/document", files={"file": ("a.txt", b"One cat.")}, data={"target_lang": "FR"}).json()
        client.get(f"/v1/documents/{answer['document_id']}/events")
        key = {"document_key": answer["document_key"]}
        answers.append(client.post(f"/v2/document/{answer['document_id']}", json=key))
        full = OSError(errno.ENOSPC, "No space left on device")
        monkeypatch.setattr("shutil.copyfileobj", lambda *arguments: (_ for _ in ()).throw(full))
        answers.append(client.post("/v1/documents", files={"file": ("a.txt", b"One cat.")}))
        assert answers[-1].status_code == 507 and "disk of the server is full" in answers[-1].text
    assert all("damaged" in each.text for each in answers[:-1])
    assert not any(part in each.text for each in answers for part in ("private-place", "uploads/", str(tmp_path)))
