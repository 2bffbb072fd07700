"""The interface of docmt: texts, sentences, context, documents, events, keys and limits."""

import asyncio
import json
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("starlette")

from service_fixtures import ListedModel, ServiceEngine, expect, parse_events, running_service

from docmt.core.errors import DocmtError
from docmt.serve.access_keys import AccessKeys, KeyLimits
from docmt.serve.model_pool import ModelNotLoaded

pytestmark = pytest.mark.usefixtures("files_here")

TEXT = "  One cat sleeps. Two dogs run!\n\nThree birds sing.\n"
SENTENCES = ["One cat sleeps.", "Two dogs run!", "Three birds sing."]


class BusyError(DocmtError):
    retry_after = 7


@pytest.fixture
def client(tmp_path):
    with running_service(tmp_path / "data") as client:
        yield client


def wait_for(client, id, path="/v1/documents"):
    """The events of a document until its end."""
    return parse_events(client.get(f"{path}/{id}/events").text)


def test_a_text_is_translated_with_spans_scores_and_warnings(client):
    answer = client.post("/v1/translate", json={"text": TEXT, "target": "fr-CA"})
    assert answer.status_code == 200 and client.engine.is_started
    data = answer.json()
    targets = expect(*SENTENCES)
    assert (data["model"], data["source_language"], data["target_language"]) == ("fake", "en", "fr")
    assert data["text"] == f"  {targets[0]} {targets[1]}\n\n{targets[2]}\n"
    for row, source, target in zip(data["sentences"], SENTENCES, targets, strict=True):
        assert TEXT[slice(*row["source_span"])] == row["source"] == source
        assert data["text"][slice(*row["target_span"])] == row["target"] == target
        assert row["score"] == -len(source) and row["tokens"] == 4
        assert not {"alignment", "alternatives"} & set(row)
    assert [row["warnings"] for row in data["sentences"]] == [["length_limit"], [], []]


def test_sentences_alignments_and_alternatives_on_request(client):
    request = {"sentences": ["One cat.", "", "Two dogs."], "alignments": True, "alternatives": 2}
    data = client.post("/v1/translate", json=request).json()
    assert [row["source"] for row in data["sentences"]] == request["sentences"]
    assert data["sentences"][0]["alignment"] == [[0, 3, 0, 4], [4, 8, 5, 10]]
    first = expect("One cat.")[0]
    assert [each["target"] for each in data["sentences"][0]["alternatives"]] == [f"{first}1", f"{first}2"]


def test_an_alternative_comes_once_and_is_not_the_translation(tmp_path):
    """Results of a document may differ in other sentences only."""

    class RepeatingEngine(ServiceEngine):
        def submit(self, *arguments, **options):
            work = super().submit(*arguments, **options)
            make_part = work.make_part

            def repeat(*span):
                part = make_part(*span)
                whole = part.translation
                return replace(part, translation=replace(whole, alternatives=(whole, *whole.alternatives * 2)))

            work.make_part = repeat
            return work

    with running_service(tmp_path, RepeatingEngine()) as client:
        (row,) = client.post("/v1/translate", json={"text": "One cat.", "alternatives": 2}).json()["sentences"]
        assert [each["target"] for each in row["alternatives"]] == [f"{row['target']}1", f"{row['target']}2"]


def test_context_is_given_and_not_returned(client):
    data = client.post("/v1/translate", json={"text": "Two dogs.", "context": "A cat. It runs."}).json()
    assert [row["target"] for row in data["sentences"]] == expect("Two dogs.", context=["A cat.", "It runs."])
    assert data["text"] == data["sentences"][0]["target"] and data["sentences"][0]["source_span"] == [0, 9]
    request = {"text": "Two dogs.", "context": ["A cat.", "It runs."], "context_targets": ["Chat.", "Cours."]}
    data = client.post("/v1/translate", json=request).json()
    assert data["text"] == "«Two dogs.» (Chat.+Cours.)"
    answer = client.post("/v1/translate", json={**request, "context": "A cat."})
    assert answer.status_code == 400 and "context has 1 sentences, and context_targets 2" in answer.json()["error"]


def test_context_that_a_model_does_not_read_is_left_out(tmp_path, monkeypatch):
    monkeypatch.setattr(ServiceEngine, "describe", lambda self: [ListedModel(reads_context=False)])
    with running_service(tmp_path / "data", engine := ServiceEngine()) as client:
        data = client.post("/v1/translate", json={"text": "Two dogs.", "context": "A cat. It runs."}).json()
        assert [row["target"] for row in data["sentences"]] == expect("Two dogs.")
        assert client.get("/v1/models").json()["models"][0]["reads_context"] is False
    assert [work.document.sentences for work in engine.works] == [("Two dogs.",)]


def test_nothing_to_translate_is_no_error(client):
    for text in ("", "  \n", "***"):
        assert client.post("/v1/translate", json={"text": text, "context": "A cat."}).json()["text"] == text
    assert client.engine.requests == []


@pytest.mark.parametrize(
    ("values", "code", "message"),
    [
        ({"text": "x", "target": "de"}, 400, "no model"),
        ({"text": "x", "model": "none"}, 400, "no model none"),
        ({"text": "x", "alternatives": 10_000}, 400, "from 0 to 10"),
        ({"text": "x" * 101}, 413, "101 characters"),
        ({"sentences": ["x"] * 6}, 413, "6 texts"),
        ({"sentences": ["FAIL"]}, 422, "too long"),
    ],
)
def test_what_is_refused(tmp_path, values, code, message):
    with running_service(tmp_path, max_characters=100, max_texts=5) as client:
        client.engine.error = DocmtError("this sentence is too long")
        answer = client.post("/v1/translate", json=values)
    assert answer.status_code == code and message in answer.json()["error"]


def test_an_engine_that_is_full_says_when_to_come_again(client):
    client.engine.refusals = [BusyError("too much waits")]
    answer = client.post("/v1/translate", json={"text": "One cat."})
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "7")
    assert answer.json() == {"error": "too much waits"}


def test_readiness(client, monkeypatch):
    """Of the thread that translates, the data directory, and the models."""
    ready = {"status": "ok", "engine": True, "data": True, "models": {"fake": True, "back": True}}
    assert (client.get("/health/ready").status_code, client.get("/health/ready").json()) == (200, ready)

    def check(**changes):
        answer = client.get("/health/ready")
        assert (answer.status_code, answer.json()) == (503, ready | {"status": "failing"} | changes)
        assert client.get("/health").json() == {"status": "ok"}

    client.engine.unloadable = ["back"]
    check(models={"fake": True, "back": False})
    client.engine.unloadable = []
    client.engine.is_started = False
    check(engine=False)
    client.engine.is_started = True
    monkeypatch.setattr(client.state.jobs.store, "find_fault", lambda: OSError("the disk is full"))
    check(data=False)


def test_a_model_that_cannot_be_loaded(client):
    client.engine.refusals = [ModelNotLoaded("the model fake cannot be loaded now. Try again later.")]
    answer = client.post("/v1/translate", json={"text": "One cat."})
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "60")


def test_models_languages_health_metrics_and_description(client):
    client.post("/v1/translate", json={"text": "One cat."})
    (model, _) = client.get("/v1/models").json()["models"]
    assert model["name"] == "fake" and model["same_in_batches"] is True and model["licence"] == "CC0"
    pair = {"source": "en", "target": "fr", "model": "fake"}
    assert client.get("/v1/languages").json()["languages"][0] == pair
    assert client.get("/health").json() == {"status": "ok"}
    metrics = client.get("/metrics").text
    assert 'route="/v1/translate"' in metrics and 'docmt_waiting_tokens{kind="interactive"} 40.0' in metrics
    assert "docmt_characters_total 8.0" in metrics


def test_a_document_from_upload_to_download(client):
    files = {"file": ("../büro brief.txt", TEXT.encode())}
    answer = client.post("/v1/documents", files=files, data={"source": "en", "target": "fr"})
    assert answer.status_code == 202
    status = answer.json()
    assert (status["name"], status["status"], status["sentences"]) == ("büro brief.txt", "queued", 3)
    id = status["id"]
    assert answer.headers["location"] == f"/v1/documents/{id}"
    events = wait_for(client, id)
    assert [name for _, name, _ in events if name != "progress"] == ["sentence"] * 3 + ["done"]
    assert json.loads(events[-1][2])["status"] == "done"
    assert client.get(f"/v1/documents/{id}").json()["finished"] == 3
    rows = client.get(f"/v1/documents/{id}/sentences").json()["sentences"]
    assert [row["target"] for row in rows] == expect(*SENTENCES)
    answer = client.get(f"/v1/documents/{id}/result")
    assert answer.text.split("\n")[2] == expect(*SENTENCES)[2]
    assert answer.headers["content-disposition"] == "attachment; filename*=utf-8''b%C3%BCro%20brief.fr.txt"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["content-security-policy"].startswith("sandbox")
    assert "<html" in client.get(f"/v1/documents/{id}/result?format=html").text
    assert client.get(f"/v1/documents/{id}/result?format=exe").status_code == 400
    assert client.delete(f"/v1/documents/{id}").json()["status"] == "done"
    assert client.get(f"/v1/documents/{id}").status_code == 404
    assert list(client.state.uploads.iterdir()) == []


def test_a_text_as_a_document_with_context_and_edits(client):
    request = {"text": "Two dogs. Three birds.", "context": "A cat.", "name": "pets.txt"}
    id = client.post("/v1/documents", json=request).json()["id"]
    wait_for(client, id)
    path = f"/v1/documents/{id}/sentences"
    first = [row["target"] for row in client.get(path).json()["sentences"]]
    assert first == expect("Two dogs.", "Three birds.", context=["A cat."])
    assert client.post(f"{path}/0", json={"target": "Deux  chiens.\n", "retranslate": True}).status_code == 200
    wait_for(client, id)
    rows = client.get(path).json()["sentences"]
    assert rows[0]["target"] == "Deux chiens." and "Deux" in rows[1]["target"] and rows[0]["edited"]
    assert len(client.get(f"{path}/1/alternatives?count=3").json()["alternatives"]) == 3
    assert client.get(f"{path}/1/alignment").json()["alignment"]
    for bad in ("9", "-1", "x", "1" * 30):
        assert client.post(f"{path}/{bad}", json={"target": "x"}).status_code in (404, 422)
    assert client.post(f"{path}/0", json={}).status_code == 400
    assert client.get(f"{path}/0/alternatives?count=99").status_code == 400


def test_several_sentences_are_edited_as_one_change(client):
    id = client.post("/v1/documents", json={"text": "One cat. Two dogs. Three birds."}).json()["id"]
    wait_for(client, id)
    path = f"/v1/documents/{id}/sentences"
    before = client.get(path).json()["sentences"]
    answer = client.post(path, json={"targets": {"2": "Trois\u202foiseaux\u00a0!\n", "0": " Un  chat. "}})
    assert (answer.status_code, answer.json()["edited"]) == (200, 2)
    rows = client.get(path).json()["sentences"]
    assert [row["target"] for row in rows] == ["Un chat.", before[1]["target"], "Trois\u202foiseaux\u00a0!"]
    assert client.post(f"/v1/documents/{id}/undo").status_code == 200
    for number in (0, 2):
        before[number]["version"] += 2
    assert client.get(path).json()["sentences"] == before
    wrong = [{}, {"0": 7}, {"0": None, "x": ""}, {"-1": ""}, {"9": "x"}, ["Un chat."], None, {"0": "x" * 100_001}]
    for targets in wrong:
        assert client.post(path, json={"targets": targets}).status_code in (400, 404, 413, 422)
    assert client.get(path).json()["sentences"] == before


def test_a_text_in_another_language_is_translated_and_named(client):
    german = "Die Katze ist nicht auf dem Tisch und der Hund ist nicht in dem Haus."
    for text, language in ((german, "de"), ("The cat is on the table and the dog is in the house.", "")):
        answer = client.post("/v1/translate", json={"text": text, "model": "fake"})
        assert answer.json()["detected_language"] == language


def test_a_stream_goes_on_after_the_last_event_that_was_seen(client):
    id = client.post("/v1/documents", json={"text": "One. Two. Three. Four."}).json()["id"]
    seen = [event for event in wait_for(client, id) if event[1] == "sentence"]
    path = f"/v1/documents/{id}/events"
    later = parse_events(client.get(path, headers={"last-event-id": seen[1][0]}).text)
    assert [event for event in later if event[1] == "sentence"] == seen[2:]
    assert parse_events(client.get(f"{path}?after=3").text)[0] == seen[3]
    for wrong in ("x", "-3", "9" * 40):
        assert parse_events(client.get(path, headers={"last-event-id": wrong}).text)[0] == seen[0]
    assert client.get("/v1/documents/none/events").status_code == 404


def test_a_stream_without_events_is_kept_open_by_comments(tmp_path):
    with running_service(tmp_path, ServiceEngine(seconds=0.2), heartbeat_seconds=0.02) as client:
        id = client.post("/v1/documents", json={"text": "One. Two."}).json()["id"]
        text = client.get(f"/v1/documents/{id}/events").text
    assert ": still here\n\n" in text and parse_events(text)[-1][1] == "done"


def test_results_that_are_not_there_yet(tmp_path):
    with running_service(tmp_path, ServiceEngine(hold=0)) as client:
        id = client.post("/v1/documents", json={"text": "One. Two."}).json()["id"]
        assert client.get(f"/v1/documents/{id}/result").status_code == 409
        assert client.delete(f"/v1/documents/{id}").json()["status"] == "cancelled"


def test_documents_that_wait_are_bounded(tmp_path):
    with running_service(tmp_path, ServiceEngine(hold=0), max_documents=2) as client:
        answers = [client.post("/v1/documents", json={"text": "One."}) for _ in range(3)]
        assert [answer.status_code for answer in answers] == [202, 202, 429]
        client.delete(answers[0].headers["location"])
        assert client.post("/v1/documents", json={"text": "One."}).status_code == 202


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        ({"json": {}}, 400),
        ({"json": {"text": "x", "format": "exe"}}, 400),
        ({"json": {"text": "x", "fields": [3]}}, 400),
        ({"files": {"file": ("a.docx", b"PK\3\4 no zip")}}, 422),
        ({"files": {"file": ("a.doc", b"old")}}, 422),
        ({"files": {"file": ("a.txt", b"x" * 3000)}}, 413),
        ({"files": [("file", ("a.txt", b"x")), ("file", ("b.txt", b"x"))]}, 400),
    ],
)
def test_documents_that_are_refused(tmp_path, request_, code):
    with running_service(tmp_path, max_file_bytes=2000) as client:
        answer = client.post("/v1/documents", **request_)
        assert answer.status_code == code and set(answer.json()) == {"error"}
        assert not client.state.uploads.exists() or list(client.state.uploads.iterdir()) == []


def test_a_text_in_the_target_language_is_not_translated_into_another(tmp_path):
    """The only model for the target is taken, not the first of all."""

    class OtherEngine(ServiceEngine):
        def describe(self):
            return [ListedModel("first", "de", "en"), ListedModel("second", "en", "fr")]

    values = {"text": "Elle a acheté une lampe et elle est dans la maison.", "target": "fr"}
    with running_service(tmp_path, OtherEngine()) as client:
        answer = client.post("/v1/translate", json=values).json()
        assert (answer["model"], answer["target_language"]) == ("second", "fr")
        assert client.post("/v1/documents", json=values).json()["model"] == "second"


def test_documents_that_arrive_together_are_bounded(tmp_path):
    """Each counts from its arrival: its file is read before it is a job."""
    keys = AccessKeys(tmp_path)
    headers = {"authorization": f"Bearer {keys.create('one', KeyLimits(concurrent_jobs=2))[0]}"}
    with running_service(tmp_path, ServiceEngine(hold=0), keys) as client, ThreadPoolExecutor(6) as pool:
        answers = pool.map(lambda _: client.post("/v1/documents", json={"text": "One."}, headers=headers), range(6))
        assert sorted(answer.status_code for answer in answers) == [202, 202, 429, 429, 429, 429]
        assert client.state.arriving.total() == 0


def test_files_that_a_killed_server_left_are_removed(tmp_path):
    (tmp_path / "uploads").mkdir()
    (tmp_path / "uploads" / "left").write_bytes(b"x")
    with running_service(tmp_path) as client:
        assert not client.state.uploads.exists()
        assert client.post("/v1/documents", json={"text": "One."}).status_code == 202


def test_keys_are_asked_for_everywhere_and_owners_see_their_documents_only(tmp_path):
    keys = AccessKeys(tmp_path)
    (one, _), (other, _) = keys.create("one"), keys.create("other")
    first, second = ({"authorization": f"Bearer {key}"} for key in (one, other))
    with running_service(tmp_path, keys=keys) as client:
        public = {"/", "/page/{name}", "/health", "/health/ready", "/openapi.json", "/languages", "/frontend/settings"}
        public |= {"/download_file/{id}/{name}"}
        for route in client.app.routes:
            if route.path not in public:
                path = re.sub(r"{\w+}", "1", route.path)
                method = sorted(route.methods - {"HEAD"})[-1]
                assert client.request(method, path).status_code in (401, 403), route.path
                wrong = client.request(method, path, headers={"authorization": f"Bearer {one}x"})
                assert wrong.status_code in (401, 403), route.path
        assert client.get("/v1/models").headers["www-authenticate"] == "Bearer"
        assert client.post("/v1/translate", json={"text": "x"}, headers=first).status_code == 200
        id = client.post("/v1/documents", json={"text": "One."}, headers=first).json()["id"]
        assert client.get(f"/v1/documents/{id}", headers=first).status_code == 200
        assert client.get(f"/v1/documents/{id}", headers=second).status_code == 404
        lists = [client.get("/v1/documents", headers=headers).json()["documents"] for headers in (first, second)]
        assert [[each["id"] for each in documents] for documents in lists] == [[id], []]


def test_the_first_key_takes_no_document_from_those_who_know_its_id(tmp_path):
    keys = AccessKeys(tmp_path)
    with running_service(tmp_path, keys=keys) as client:
        id = client.post("/v1/documents", json={"text": "One."}).json()["id"]
        headers = {"authorization": f"Bearer {keys.create('one')[0]}"}
        assert client.get(f"/v1/documents/{id}").status_code == 401
        assert client.get(f"/v1/documents/{id}/sentences", headers=headers).status_code == 200
        assert client.get("/v1/documents", headers=headers).json()["documents"] == []


def test_without_keys_nobody_lists_the_documents(tmp_path):
    with running_service(tmp_path) as client:
        client.post("/v1/documents", json={"text": "One."})
        assert client.get("/v1/documents").json() == {"documents": []}


def test_limits_of_a_key(tmp_path):
    keys = AccessKeys(tmp_path)
    limits = KeyLimits(characters_per_minute=60, concurrent_jobs=1, file_bytes=50)
    headers = {"authorization": f"Bearer {keys.create('one', limits)[0]}"}
    with running_service(tmp_path, ServiceEngine(hold=0), keys) as client:
        answers = [client.post("/v1/documents", json={"text": text}, headers=headers) for text in ("x" * 51, "a", "b")]
        assert [answer.status_code for answer in answers] == [413, 202, 429]
        assert answers[2].headers["retry-after"] == "10"
        path = f"/v1/documents/{answers[1].json()['id']}"
        client.delete(path, headers=headers)
        assert client.post("/v1/documents", json={"text": "c"}, headers=headers).status_code == 202
        assert client.post(f"{path}/resume", headers=headers).status_code == 429
        client.engine.hold = 100
        codes = [client.post("/v1/translate", json={"text": "x" * 70}, headers=headers) for _ in range(2)]
        assert [answer.status_code for answer in codes] == [200, 429] and int(codes[1].headers["retry-after"]) >= 1


def test_what_counts_as_translated(tmp_path, monkeypatch):
    """Alternatives and what is translated again, not what a user writes: that is never refused."""
    keys = AccessKeys(tmp_path)
    secret, _ = keys.create("one", KeyLimits(characters_per_minute=1000))
    headers = {"authorization": f"Bearer {secret}"}
    with running_service(tmp_path, keys=keys) as client:
        text = f"{'x' * 400}.\n{'y' * 100}.\n{'z' * 600}."
        id = client.post("/v1/documents", json={"text": text}, headers=headers).json()["id"]
        client.get(f"/v1/documents/{id}/events", headers=headers)
        counted, take = [], keys.take_characters
        monkeypatch.setattr(keys, "take_characters", lambda key, count: counted.append(count))

        def call(path, **values):
            path = f"/v1/documents/{id}/sentences/{path}"
            return (
                client.post(path, json=values, headers=headers) if values else client.get(path, headers=headers)
            ).status_code

        assert call("1", target="a") == call("1/alternatives") == call("0", target="b", retranslate=True) == 200
        client.get(f"/v1/documents/{id}/events", headers=headers)
        assert call("2", target="c", retranslate=True) == 200
        assert counted == [101, 601, 0]
        assert call("9/alternatives") == call("9", target="c", retranslate=True) == 422
        monkeypatch.setattr(keys, "take_characters", take)
        assert call("2", target="d") == 200
        assert call("1/alternatives") == call("0", target="b", retranslate=True) == 429


def test_a_client_that_goes_away_cancels_its_work(tmp_path):
    async def scenario(client):
        body = json.dumps({"text": "One. Two."}).encode()
        messages = [{"type": "http.request", "body": body}, {"type": "http.disconnect"}]

        async def receive():
            if len(messages) == 1:
                while not client.engine.works:
                    await asyncio.sleep(0.001)
            return messages.pop(0)

        async def send(message):
            raise AssertionError(message)

        headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
        scope = {"type": "http", "method": "POST", "path": "/v1/translate", "query_string": b"", "headers": headers}
        await client.app(scope, receive, send)

    with running_service(tmp_path, ServiceEngine(hold=0)) as client:
        client.portal.call(scenario, client)
        assert [work.is_cancelled for work in client.engine.works] == [True]
        assert 'docmt_requests_total{code="499",method="POST",route="/v1/translate"} 1.0' in client.get("/metrics").text


def test_other_origins_are_allowed_only_by_name(tmp_path):
    headers = {"origin": "https://tool.example", "access-control-request-method": "POST"}
    with running_service(tmp_path / "a") as client:
        answer = client.options("/v1/translate", headers=headers)
        assert "access-control-allow-origin" not in answer.headers
    with running_service(tmp_path / "b", cors=("https://tool.example",)) as client:
        answer = client.options("/v1/translate", headers=headers)
        assert answer.headers["access-control-allow-origin"] == "https://tool.example"
        answer = client.options("/v1/translate", headers={**headers, "origin": "https://evil.example"})
        assert "access-control-allow-origin" not in answer.headers


def test_the_page_and_its_files_and_nothing_else(tmp_path):
    page = tmp_path / "page"
    page.mkdir()
    (page / "index.html").write_text("<p>hi")
    (page / "app.js").write_text("1")
    (page / "secret.py").write_text("1")
    with running_service(tmp_path / "data", page=page) as client:
        answer = client.get("/")
        assert answer.text == "<p>hi" and "default-src 'self'" in answer.headers["content-security-policy"]
        assert client.get("/page/app.js").headers["content-type"].startswith("text/javascript")
        for name in ("secret.py", "none.js", "..%2fapp.js", "%2e%2e/app.js", "../jobs.sqlite"):
            assert client.get(f"/page/{name}").status_code == 404
    with running_service(tmp_path / "other", page=Path("nowhere")) as client:
        assert client.get("/").status_code == 404


def test_what_a_client_has_already_is_not_sent_again(client):
    id = client.post("/v1/documents", json={"text": TEXT}).json()["id"]
    wait_for(client, id)
    for path in ("/", "/page/app.js", "/openapi.json", f"/v1/documents/{id}/result"):
        answer = client.get(path)
        tag = answer.headers["etag"]
        for known in (tag, f"W/{tag}", f'"x", {tag}', "*"):
            again = client.get(path, headers={"if-none-match": known})
            assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
            for name in ("cache-control", "content-security-policy"):
                assert again.headers[name] == answer.headers[name]
        again = client.get(path, headers={"if-none-match": '"x"'})
        assert (again.status_code, again.content) == (200, answer.content)
    client.post(f"/v1/documents/{id}/sentences/0", json={"target": "Un autre texte."})
    assert client.get(f"/v1/documents/{id}/result", headers={"if-none-match": tag}).status_code == 200


@pytest.mark.parametrize(("path", "field"), [("/v1/translate", "contxt"), ("/v1/documents", "modell")])
def test_a_misspelt_field_is_refused(client, path, field):
    answer = client.post(path, json={"text": "It is cheap.", field: "x"})
    assert answer.status_code == 400 and f"there is no field '{field}': send " in answer.json()["error"]
