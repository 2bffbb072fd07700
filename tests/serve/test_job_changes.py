"""Changes of the user: undo, the machine's version, confirmed sentences, and documents that are stopped and resumed."""

import asyncio

import pytest
from fake_engine import FakeEngine
from test_document_jobs import SOURCES, create, expect, follow, kill_at_step, running, targets_of

from docmt.serve.document_jobs import JobConfig
from docmt.serve.job_store import DocumentNotReady

pytestmark = pytest.mark.usefixtures("files_here")


def states_of(jobs, id):
    return [(each["target"], each["edited"], each["confirmed"], each["score"]) for each in jobs.sentences(id, "")]


async def wait_for_sentence(jobs, id, number, after=0):
    async for event in jobs.events(id, "", after):
        if event.name == "sentence" and event.data["number"] == number:
            return event.id


def test_every_change_is_undone_in_turn_also_after_a_restart(tmp_path):
    async def scenario():
        engine, states = FakeEngine(), []
        async with running(engine, tmp_path / "data") as jobs:
            id = (await create(jobs, tmp_path)).id
            last = (await follow(jobs, id))[-1].id
            changes = [
                lambda: jobs.edit(id, "", {5: "Mine."}, False),
                lambda: jobs.edit(id, "", {1: "Mine too."}, True),
                lambda: jobs.confirm(id, "", 3, True),
                lambda: jobs.edit(id, "", {0: "Again."}, True),
                lambda: jobs.edit(id, "", {5: "Mine, better."}, False),
                lambda: jobs.edit(id, "", {6: "Seven.", 0: "One.", 2: "Three."}, False),
                lambda: jobs.restore(id, "", 1),
                lambda: jobs.confirm(id, "", 3, False),
            ]
            for change in changes:
                states.append(states_of(jobs, id))
                await change()
                progress, done = (await follow(jobs, id, after=last))[-2:]
                assert progress.data["changes"] == len(states) and done.data["status"] == "done"
            assert len(set(map(str, states))) == len(states)
            # what was confirmed stays
            assert states[4][3][:3] == (states[3][3][0], False, True) and states[4][2] != states[3][2]
        for _ in range(4):
            async with running(engine, tmp_path / "data") as jobs:
                for _ in range(3):
                    if states:
                        assert (await jobs.undo(id, "")).status == "done"
                        assert states_of(jobs, id) == states.pop()
        assert states == []
        async with running(engine, tmp_path / "data") as jobs:
            with pytest.raises(DocumentNotReady, match="no change to undo"):
                await jobs.undo(id, "")
            assert targets_of(jobs, id) == expect(SOURCES)
            path, _ = await jobs.result(id, "", "txt")
            assert "Mine" not in path.read_text()

    asyncio.run(scenario())


def test_an_edit_is_undone_while_what_follows_is_translated_again(tmp_path):
    async def scenario():
        engine = FakeEngine(step=1)
        async with running(engine, tmp_path / "data") as jobs:
            id = (await create(jobs, tmp_path)).id
            last = (await follow(jobs, id))[-1].id
            engine.hold = engine.translated + 2
            await jobs.edit(id, "", {1: "Mine."}, True)
            last = await wait_for_sentence(jobs, id, 3, last)
            await jobs.undo(id, "")
            engine.hold = 1000
            assert (await follow(jobs, id, last))[-1].data["status"] == "done"
            assert targets_of(jobs, id) == expect(SOURCES)

    asyncio.run(scenario())


def test_an_edit_of_a_running_document_is_undone(tmp_path):
    """Sentences that were translated for the first time after the edit are made again as without it."""

    async def scenario():
        engine = FakeEngine(step=1, hold=4)
        async with running(engine, tmp_path / "data") as jobs:
            id = (await create(jobs, tmp_path)).id
            await wait_for_sentence(jobs, id, 3)
            await jobs.edit(id, "", {2: "Mine."}, True)
            engine.hold = 1000
            assert (await follow(jobs, id))[-1].data["status"] == "done"
            assert targets_of(jobs, id) != expect(SOURCES)
            await jobs.undo(id, "")
            assert (await follow(jobs, id))[-1].data["status"] == "done"
            assert targets_of(jobs, id) == expect(SOURCES)

    asyncio.run(scenario())


def test_edits_of_one_change_are_undone_together(tmp_path):
    """Also where one stands among sentences that an earlier edit translates again at that time."""

    async def scenario():
        engine = FakeEngine(step=1)
        async with running(engine, tmp_path / "data") as jobs:
            id = (await create(jobs, tmp_path)).id
            await follow(jobs, id)
            engine.hold = engine.translated + 2
            await jobs.edit(id, "", {1: "Mine."}, True)
            await jobs.edit(id, "", {6: "Seven.", 0: "One.", 4: "Five."}, False)
            engine.hold = 1000
            await follow(jobs, id)
            after = targets_of(jobs, id)
            assert [after[number] for number in (0, 1, 4, 6)] == ["One.", "Mine.", "Five.", "Seven."]
            assert after[5] == expect(SOURCES[5:6], after[3:5])[0]
            await jobs.undo(id, "")
            await follow(jobs, id)
            before = [*expect(SOURCES[:1]), "Mine."]
            assert targets_of(jobs, id) == before + expect(SOURCES[2:], before)
            await jobs.undo(id, "")
            await follow(jobs, id)
            assert targets_of(jobs, id) == expect(SOURCES)

    asyncio.run(scenario())


def test_a_sentence_gets_the_machines_version_back(tmp_path):
    async def scenario():
        async with running(FakeEngine(), tmp_path / "data") as jobs:
            id = (await create(jobs, tmp_path)).id
            await follow(jobs, id)
            before = jobs.sentences(id, "")
            await jobs.edit(id, "", {2: "Mine."}, False)
            await jobs.edit(id, "", {2: "Mine, better."}, False)
            await jobs.confirm(id, "", 2, True)
            assert (await jobs.restore(id, "", 2)).edited == 0
            before[2]["version"] += 4
            assert jobs.sentences(id, "") == before
            with pytest.raises(DocumentNotReady, match="is not edited"):
                await jobs.restore(id, "", 2)

    asyncio.run(scenario())


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_document_is_stopped_mended_downloaded_and_resumed(tmp_path, is_restarted):
    async def scenario():
        engine = FakeEngine(step=1, hold=3)
        async with running(engine, tmp_path / "data", JobConfig(active=1)) as jobs:
            id = (await create(jobs, tmp_path)).id
            await wait_for_sentence(jobs, id, 2)
            assert (await jobs.cancel(id, "")).status == "cancelled"
            assert targets_of(jobs, id) == [*expect(SOURCES[:3]), *[None] * 4]
            status = await jobs.edit(id, "", {1: "Mine."}, False)
            assert (status.status, status.finished, status.edited) == ("cancelled", 3, 1)
            path, _ = await jobs.result(id, "")
            text = path.read_text()
            assert text.startswith("«One cat.» () Mine.\n") and text.endswith(
                "Four dogs.\n\nFive birds. Six birds. Seven birds.\n"
            )
            engine.hold = 1000
            if not is_restarted:
                await finish(jobs, id)
        if is_restarted:
            async with running(engine, tmp_path / "data") as jobs:
                await finish(jobs, id)

    async def finish(jobs, id):
        assert (await jobs.resume(id, "")).status == "queued"
        assert (await jobs.cancel(id, "")).status == "cancelled"  # and once more, before its turn
        for _ in range(2):
            assert (await jobs.resume(id, "")).status == "queued"
        assert (await follow(jobs, id))[-1].data["status"] == "done"
        first = expect(SOURCES[:3])
        assert targets_of(jobs, id)[:3] == [first[0], "Mine.", first[2]]
        assert None not in targets_of(jobs, id)
        assert (await jobs.resume(id, "")).status == "done"

    asyncio.run(scenario())


def test_a_server_that_is_killed_within_an_undo(tmp_path, monkeypatch):
    """The change is undone as a whole, or not at all."""

    async def scenario(kill):
        data = tmp_path / str(kill)
        async with running(FakeEngine(), data) as jobs:
            id = (await create(jobs, tmp_path)).id
            await follow(jobs, id)
            await jobs.edit(id, "", {1: "Mine."}, True)
            await follow(jobs, id)
            edited = targets_of(jobs, id)
            with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
                kill_at_step(patch, kill)
                await jobs.undo(id, "")
                raise KeyboardInterrupt
        async with running(FakeEngine(), data) as jobs:
            assert (await follow(jobs, id))[-1].data["status"] == "done"
            return "edited" if targets_of(jobs, id) == edited else targets_of(jobs, id)

    assert [asyncio.run(scenario(kill)) for kill in range(4)] == ["edited", "edited", *[expect(SOURCES)] * 2]


def test_documents_are_listed_for_their_owner(tmp_path):
    async def scenario():
        async with running(FakeEngine(), tmp_path / "data") as jobs:
            ids = [(await create(jobs, tmp_path, owner=owner)).id for owner in ("anna", "ben", "anna")]
            assert [each.id for each in jobs.list_documents("anna")] == [ids[2], ids[0]]
            await follow(jobs, ids[0], owner="anna")
            assert jobs.list_documents("anna")[1].finished == 7

    asyncio.run(scenario())
