"""Changes that are based on an earlier version of a sentence: they are refused, and tell the present one."""

import asyncio
import threading

import pytest
from fake_engine import FakeEngine
from service_fixtures import running_service
from test_document_jobs import create, follow, running
from test_openapi import check

from docmt.serve.access_keys import AccessKeys

pytestmark = pytest.mark.usefixtures("files_here")

TEXT = "One cat. Two cats. Three dogs. Four dogs."


class Person:
    """A client that reads the document and sends what it has read."""

    def __init__(self, client, path):
        self.client, self.path = client, path
        self.read()

    def read(self):
        self.rows = self.client.get(self.path + "/sentences").json()["sentences"]
        self.last_change = self.client.get(self.path).json()["last_change"]

    def version(self, number):
        return {"version": self.rows[number]["version"]}

    def write(self, number, target, **values):
        values |= {"target": target} | self.version(number)
        return self.client.post(f"{self.path}/sentences/{number}", json=values)

    def write_all(self, targets):
        versions = {number: self.rows[int(number)]["version"] for number in targets}
        return self.client.post(f"{self.path}/sentences", json={"targets": targets, "versions": versions})

    def confirm(self, number):
        return self.client.post(f"{self.path}/sentences/{number}", json={"confirmed": True} | self.version(number))

    def restore(self, number):
        return self.client.delete(f"{self.path}/sentences/{number}", params=self.version(number))

    def undo(self):
        return self.client.post(f"{self.path}/undo", json={"last_change": self.last_change})


@pytest.fixture
def client(tmp_path):
    with running_service(tmp_path) as client:
        yield client


def start(client, text=TEXT):
    path = f"/v1/documents/{client.post('/v1/documents', json={'text': text}).json()['id']}"
    client.get(path + "/events")
    return path


def read(client, path):
    return client.get(path + "/sentences").json()["sentences"]


def test_of_two_edits_of_a_sentence_the_later_one_is_refused_and_shown_the_first(client):
    path = start(client)
    anna, ben = Person(client, path), Person(client, path)
    (row,) = anna.write(1, "Deux chats.").json()["updated"]
    assert (row["target"], row["version"]) == ("Deux chats.", 2)
    answer = ben.write(1, "Deux chatons.")
    assert answer.status_code == 409
    check(answer.json(), {"$ref": "#/components/schemas/Error"})
    assert answer.json()["error"].startswith("sentence 1 was changed meanwhile")
    assert [row["target"] for row in answer.json()["sentences"]] == ["Deux chats."]
    assert read(client, path)[1]["target"] == "Deux chats."
    ben.rows[1] = answer.json()["sentences"][0]
    assert ben.write(1, "Deux chatons.").status_code == 200
    assert ben.write(2, "Trois.").status_code == 200  # others are as they were
    assert client.post(f"{path}/sentences/1", json={"target": "Sans version."}).status_code == 200


@pytest.mark.parametrize("is_late", [False, True])
@pytest.mark.parametrize(
    "change",
    [
        lambda person: person.write(1, "Mine."),
        lambda person: person.write(1, "Mine.", retranslate=True),
        lambda person: person.write_all({"0": "One.", "1": "Two."}),
        lambda person: person.confirm(1),
        lambda person: person.restore(1),
        lambda person: person.undo(),
    ],
)
def test_each_change_of_what_somebody_changed_meanwhile_is_refused_and_changes_nothing(client, change, is_late):
    path = start(client)
    client.post(f"{path}/sentences/1", json={"target": "Before."})
    ben = Person(client, path)
    if is_late:
        Person(client, path).write(1, "Hers.")
    before, events = read(client, path), client.get(path + "/sentences").json()["last_event"]
    answer = change(ben)
    assert answer.status_code == (409 if is_late else 200)
    if is_late:
        assert [row["target"] for row in answer.json()["sentences"]] == ["Hers."]
        assert read(client, path) == before
        assert client.get(path + "/sentences").json()["last_event"] == events


def test_a_confirmation_or_an_undo_is_another_version_and_terms_alone_are_none(client):
    path = start(client)
    ben, anna = Person(client, path), Person(client, path)
    anna.confirm(0)
    assert ben.write(0, "Mine.").status_code == 409
    anna.read()
    anna.undo()
    assert read(client, path)[0]["version"] == 3 and ben.write(0, "Mine.").status_code == 409
    client.post(f"{path}/terms", json={"source": "dogs", "target": "dogs"})
    assert read(client, path)[2]["terms"] and ben.write(2, "Mine.").status_code == 200


def test_of_many_edits_all_late_ones_are_told_and_none_is_made(client):
    path = start(client)
    ben, anna = Person(client, path), Person(client, path)
    anna.write_all({"0": "Un.", "3": "Quatre."})
    answer = ben.write_all({"0": "1.", "1": "2.", "3": "4."})
    assert answer.json()["error"].startswith("2 of 3 sentences were changed meanwhile")
    assert [row["number"] for row in answer.json()["sentences"]] == [0, 3]
    assert [row["edited"] for row in read(client, path)] == [True, False, False, True]
    for versions in ({"0": 1}, {"0": 1, "1": 1, "2": 1}, [1], {"0": 1, "1": "x"}, {"0": 1, "1": None}):
        values = {"targets": {"0": "a", "1": "b"}, "versions": versions}
        assert client.post(f"{path}/sentences", json=values).status_code in (400, 409)
    assert client.post(f"{path}/sentences/0", json={"target": "a", "verison": 1}).status_code == 400


def test_versions_are_the_same_after_a_restart(tmp_path):
    with running_service(tmp_path) as client:
        path = start(client)
        ben, anna = Person(client, path), Person(client, path)
        anna.write(1, "Deux.", retranslate=True)
        client.get(path + "/events")
        anna.read()
        anna.confirm(3)
        anna.read()
        anna.undo()
        rows, last_change = read(client, path), client.get(path).json()["last_change"]
    with running_service(tmp_path) as client:
        assert read(client, path) == rows and client.get(path).json()["last_change"] == last_change > 0
        ben.client = client
        assert [ben.write(number, "Mine.").status_code for number in range(4)] == [200, 409, 409, 409]
        assert ben.undo().status_code == 409


def test_a_stream_that_stays_tells_what_is_changed_after_the_end(tmp_path):
    async def scenario():
        async with running(FakeEngine(), tmp_path / "data") as jobs:
            id = (await create(jobs, tmp_path)).id
            last = (await follow(jobs, id))[-1].id
            events = jobs.events(id, "", last, stay=True)
            assert [(await anext(events)).name for _ in range(2)] == ["progress", "done"]
            await jobs.edit(id, "", {1: "Mine."}, False)
            changed = await anext(events)
            assert (changed.name, changed.data["version"]) == ("sentence", 2)
            progress = (await anext(events)).data
            assert progress["status"] == "done" and progress["last_change"] == jobs.status(id, "").last_change > 0
            await jobs.cancel(id, "")  # deletes it
            assert [each.name async for each in events] == ["done"]

    asyncio.run(scenario())


def test_a_stream_that_stays_ends_when_its_key_is_revoked(tmp_path):
    keys = AccessKeys(tmp_path)
    secret, key = keys.create("anna")
    keys.create("ben")
    with running_service(tmp_path, keys=keys, heartbeat_seconds=0.02) as client:
        client.headers["authorization"] = f"Bearer {secret}"
        path = start(client)
        threading.Timer(0.2, keys.revoke, [key.id]).start()
        text = client.get(path + "/events?stay=true").text
        assert "event: done" in text and text.endswith(": still here\n\n")
        assert client.get(path).status_code == 401 and client.state.staying == 0
