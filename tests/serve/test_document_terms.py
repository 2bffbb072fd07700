"""Terms for a document that is translated: only the sentences that lack them are searched again."""

import asyncio

import pytest
from fake_engine import FakeEngine
from service_fixtures import running_service
from test_document_jobs import SOURCES, create, expect, follow, kill_at_step, running, targets_of
from test_job_changes import states_of

import docmt
from docmt.core.errors import DocmtError
from docmt.decoding import SearchConfig
from docmt.serve.engine import Engine
from docmt.serve.job_translation import TermRequest
from docmt.serve.model_pool import ModelPool
from docmt.terms import Glossary

pytestmark = pytest.mark.usefixtures("files_here")

PLAIN = expect(SOURCES)


def ask(pairs, mode="require"):
    return TermRequest.make(SOURCES, Glossary.from_pairs(pairs, ("en", "fr")), mode)


def add(targets, **words):
    """Targets with words at the end of some, by number."""
    return [" ".join([target, *filter(None, [words.get(f"n{number}")])]) for number, target in enumerate(targets)]


def test_only_sentences_that_lack_the_term_and_are_not_the_users_are_searched(tmp_path):
    async def scenario():
        engine = FakeEngine()
        async with running(engine, tmp_path / "data") as jobs:
            id = (await create(jobs, tmp_path)).id
            await follow(jobs, id)
            await jobs.edit(id, "", {0: "Un chat.", 1: "Deux matous."}, False)
            before = states_of(jobs, id)
            _, counts = await jobs.use_terms(id, "", ask({"cat": "chat", "cats": "chats", "dog": "chien"}))
            assert counts == {"changed": 2, "kept": 1, "refused": 0, "waiting": 0}
            assert engine.searches == [(SOURCES[2:4], "require")]
            last = (await follow(jobs, id))[-1].id
            after = states_of(jobs, id)
            assert [each[0] for each in after] == ["Un chat.", "Deux matous.", *add(PLAIN, n2="chien", n3="chien")[2:]]
            assert after[2][1:] == (False, False, -9.0)
            await jobs.use_terms(id, "", ask({"dog": "chien"}))
            await jobs.undo(id, "")
            _, counts = await jobs.use_terms(id, "", ask({"bird": "oiseau"}))
            assert counts == {"changed": 0, "kept": 0, "refused": 3, "waiting": 0}
            events = await follow(jobs, id, last)
            assert [each.data["number"] for each in events if each.name == "sentence"] == [2, 3, 4, 5, 6]
            statuses = [[use["status"] for use in each["terms"]] for each in jobs.sentences(id, "")]
            assert statuses == [["met"], ["lost"], *[["second_search"]] * 2, *[["lost"]] * 3]
            counts = events[-1].data["terms"]
            assert (counts["asked"], counts["met"], counts["lost"]) == (7, 3, 4)
        async with running(engine, tmp_path / "data") as jobs:
            assert states_of(jobs, id) == after
            for _ in range(2):
                await jobs.undo(id, "")
                await follow(jobs, id)
            assert states_of(jobs, id) == before and len(engine.searches) == 2

    asyncio.run(scenario())


def test_what_is_translated_later_is_asked_for_the_terms_until_they_are_undone(tmp_path):
    """While the document is translated, and again after an edit."""

    def asked(jobs, id):
        return [[use["term"] for use in each["terms"]] for each in jobs.sentences(id, "")]

    async def scenario():
        engine = FakeEngine(step=1, hold=3)
        async with running(engine, tmp_path / "data") as jobs:
            id = (await create(jobs, tmp_path)).id
            while jobs.status(id, "").finished < 3:
                await asyncio.sleep(0.001)
            asking = asyncio.create_task(jobs.use_terms(id, "", ask({"dog": "chien", "cat": "chat"})))
            await asyncio.sleep(0.01)
            engine.hold = 1000
            assert (await asking)[1]["changed"] == 3
            assert (await follow(jobs, id))[-1].data["status"] == "done"
            assert targets_of(jobs, id) == add(PLAIN, n0="chat", n1="chat", n2="chien")
            terms = [["cat"], ["cat"], ["dog"], ["dog"], [], [], []]
            assert asked(jobs, id) == terms
            await jobs.edit(id, "", {1: "Mine."}, True)
            await follow(jobs, id)
            assert asked(jobs, id) == terms and jobs.status(id, "").terms["lost"] == 3
            assert "chien" not in "".join(targets_of(jobs, id))  # this engine does not obey
            for _ in range(2):
                await jobs.undo(id, "")
                await follow(jobs, id)
            assert targets_of(jobs, id) == PLAIN and asked(jobs, id) == [[]] * 7

    asyncio.run(scenario())


def test_a_required_term_stays_required_after_a_glossary(tmp_path):
    """And the terms of the glossary do not become required ones after a single term."""

    def modes(engine):
        matcher = engine.requests[-1][3]["terms"]
        return {each.term.source: each.mode for source in SOURCES for each in matcher.find(source)}

    async def scenario():
        engine = FakeEngine()
        async with running(engine, tmp_path / "data") as jobs:
            id = (await create(jobs, tmp_path)).id
            await follow(jobs, id)
            for pairs, mode in (({"dog": "chien"}, "require"), ({"bird": "oiseau", "dogs": "chiens"}, "prefer")):
                await jobs.use_terms(id, "", ask(pairs, mode))
            await jobs.edit(id, "", {0: "Mine."}, True)
            await follow(jobs, id)
            assert modes(engine) == {"dog": "require", "bird": "prefer"}
            await jobs.use_terms(id, "", ask({"bird": "oiseau"}))
            await jobs.edit(id, "", {0: "Mine, too."}, True)
            await follow(jobs, id)
            assert modes(engine) == {"dog": "require", "bird": "require"}

    asyncio.run(scenario())


def test_a_server_that_is_killed_within_a_search_for_terms(tmp_path, monkeypatch):
    """The change is made as a whole, or not at all, and one step of undo takes it back."""

    async def scenario(kill):
        data, engine = tmp_path / str(kill), FakeEngine()
        async with running(engine, data) as jobs:
            id = (await create(jobs, tmp_path)).id
            await follow(jobs, id)
            with monkeypatch.context() as patch, pytest.raises((KeyboardInterrupt, TimeoutError)):
                if kill < 2:
                    kill_at_step(patch, kill)
                    await jobs.use_terms(id, "", ask({"dog": "chien"}))
                engine.hold = 0  # the search is not at its end
                await asyncio.wait_for(jobs.use_terms(id, "", ask({"dog": "chien"})), 0.05)
        async with running(FakeEngine(), data) as jobs:
            assert (await follow(jobs, id))[-1].data["status"] == "done"
            targets = targets_of(jobs, id)
            if targets != PLAIN:
                assert targets == add(PLAIN, n2="chien", n3="chien")
                await jobs.undo(id, "")
                await follow(jobs, id)
                assert targets_of(jobs, id) == PLAIN
            return targets != PLAIN

    assert [asyncio.run(scenario(kill)) for kill in range(3)] == [False, False, True]


def test_terms_are_undone_that_were_asked_for_before_the_first_translation(tmp_path):
    async def scenario():
        engine = FakeEngine(hold=0)
        async with running(engine, tmp_path / "data") as jobs:
            id = (await create(jobs, tmp_path)).id
            assert (await jobs.use_terms(id, "", ask({"dog": "chien"})))[1]["waiting"] == 0
            engine.hold = 1000
            await follow(jobs, id)
            assert jobs.status(id, "").terms["asked"] == 2
            await jobs.undo(id, "")
            await follow(jobs, id)
            assert jobs.status(id, "").terms["asked"] == 0 and targets_of(jobs, id) == PLAIN

    asyncio.run(scenario())


def test_a_search_for_terms_is_stopped(tmp_path):
    async def scenario():
        engine = FakeEngine()
        async with running(engine, tmp_path / "data") as jobs:
            id = (await create(jobs, tmp_path)).id
            await follow(jobs, id)
            engine.hold = 0
            asking = asyncio.create_task(jobs.use_terms(id, "", ask({"dog": "chien"})))
            await asyncio.sleep(0.01)
            assert jobs.status(id, "").status == "running" and jobs.status(id, "").finished == 5
            await jobs.cancel(id, "")
            assert (await asking)[1] == {"changed": 0, "kept": 0, "refused": 2, "waiting": 0}
            assert jobs.status(id, "").status == "done" and targets_of(jobs, id) == PLAIN

    asyncio.run(scenario())


def test_terms_that_no_sentence_has_are_refused():
    with pytest.raises(DocmtError, match="no sentence of the document has the term zebra"):
        ask({"zebra": "zèbre"}).check()


def test_the_route_tells_what_became_of_the_sentences_and_names_bad_requests(tmp_path):
    with running_service(tmp_path / "data") as client:
        path = f"/v1/documents/{client.post('/v1/documents', json={'text': 'One dog. Two birds.'}).json()['id']}"
        client.get(path + "/events")
        answer = client.post(path + "/terms", json={"source": "dog", "target": "chien"}).json()
        assert (answer["changed"], answer["refused"], answer["waiting"]) == (1, 0, 0)
        for body, status, message in [
            ({"source": "dog"}, 400, "there is no term: send source and target, or a glossary"),
            ({"source": "zebra", "target": "zèbre"}, 422, "no sentence of the document has the term zebra"),
            ({"source": "dog", "target": "a\u202eb"}, 422, "control character U\\+202E"),
            ({"source": ".", "target": "x"}, 422, "has neither letters nor digits"),
            ({"source": "dog", "target": "x" * 2000}, 422, "longer than 1,024 bytes"),
        ]:
            answer = client.post(path + "/terms", json=body)
            assert answer.status_code == status, answer.text
            with pytest.raises(DocmtError, match=message):
                raise DocmtError(answer.json()["error"])
        for data, message in [
            (b"cat\tchat\nmouse\tsouris\n", "no sentence of the document has a term of this glossary"),
            (b"<tmx><!DOCTYPE", "a.tsv is broken XML"),
            (b"\n", "a.tsv has no terms"),
            (b"de;fr\nHund;chien\n", "a.tsv has no term for en to fr .its languages are de, fr."),
        ]:
            answer = client.post(path + "/terms", files={"file": ("../a.tsv", data)})
            assert answer.status_code == 422, answer.text
            with pytest.raises(DocmtError, match=f"^{message}"):
                raise DocmtError(answer.json()["error"])
        both = client.post(
            path + "/terms", data={"source": "dog", "target": "x"}, files={"file": ("a.tsv", b"dog\tx\n")}
        )
        assert both.status_code == 400 and "not both" in both.json()["error"]
        answer = client.post(path + "/terms", files={"file": ("a.csv", b"en;fr\nbird;oiseau\ndog;chien\n;x\n")}).json()
        assert (answer["changed"], answer["refused"], answer["skipped_rows"], answer["skipped"]) == (0, 1, 1, {})
        assert client.engine.searches[-1] == (["Two birds."], "prefer")
        assert client.post("/v1/documents/none/terms", json={"source": "a", "target": "b"}).status_code == 404


TEXT = "The committee adopted these measures. The committee met. We thank the citizens, see https://example.org/a."


@pytest.mark.full
def test_a_model_obeys_in_the_sentences_that_lack_the_term(tmp_path):
    async def scenario():
        engine = Engine(ModelPool(["en-fr-sentence"], device="cpu", search=SearchConfig(beam=2)))
        engine.start()
        try:
            async with running(engine, tmp_path / "data") as jobs:
                id = (await create(jobs, tmp_path, TEXT)).id
                await follow(jobs, id)
                plain = targets_of(jobs, id)
                sources = [each["source"] for each in jobs.sentences(id, "")]
                glossary = Glossary.from_pairs({"committee": "comité", "citizen": "ressortissant"}, ("en", "fr"))
                _, counts = await jobs.use_terms(id, "", TermRequest.make(sources, glossary, "require"))
                await follow(jobs, id)
                rows = jobs.sentences(id, "")
                assert counts == {"changed": 3, "kept": 0, "refused": 0, "waiting": 0}
                assert plain[0].startswith("La commission") and "comité" in rows[0]["target"]
                assert "ressortissants" in rows[2]["target"] and "https://example.org/a" in rows[2]["target"]
                assert {use["status"] for row in rows for use in row["terms"]} == {"second_search"}
                translator = docmt.Translator("en-fr-sentence", device="cpu", search=SearchConfig(beam=2))
                made = translator.with_terms(glossary, "require").translate(docmt.Document.from_text(TEXT))
                assert [row["target"] for row in rows] == [each.target for each in made]
                assert [row["score"] for row in rows] == pytest.approx([each.score for each in made], abs=1e-3)
        finally:
            engine.stop()

    asyncio.run(scenario())
