"""Jobs with an engine that has no model: states, events, edits, results, restarts."""

import asyncio
import errno
import json
import logging
from contextlib import asynccontextmanager

import docx
import pytest
from fake_engine import FakeEngine

from docmt.cli.app import load_command
from docmt.core.errors import DocmtError
from docmt.serve import document_jobs, job_journal
from docmt.serve.access_keys import AccessKeys
from docmt.serve.document_jobs import DocumentJobs, DocumentOptions, JobConfig
from docmt.serve.file_process import FileContents
from docmt.serve.job_journal import JobJournal
from docmt.serve.job_store import DocumentNotReady, JobQueue, JobStore, NoSuchDocument

pytestmark = pytest.mark.usefixtures("files_here")

TEXT = "One cat. Two cats.\nThree dogs. Four dogs.\n\nFive birds. Six birds. Seven birds.\n"
SOURCES = ["One cat.", "Two cats.", "Three dogs.", "Four dogs.", "Five birds.", "Six birds.", "Seven birds."]


@asynccontextmanager
async def running(engine, data, config=None):
    jobs = DocumentJobs(engine, data, config or JobConfig())
    await jobs.start()
    try:
        yield jobs
    finally:
        await jobs.stop()


async def create(jobs, tmp_path, text=TEXT, owner="", **options):
    file = tmp_path / options.get("name", "text.txt")
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    return await jobs.create(file, DocumentOptions(**options), owner)


async def follow(jobs, id, after=0, owner=""):
    return [event async for event in jobs.events(id, owner, after)]


def targets_of(jobs, id):
    return [each["target"] for each in jobs.sentences(id, "")]


def expect(sources, history=()):
    """What the engine makes of these sentences after these targets."""
    history = list(history)
    for source in sources:
        seen = "+".join(text.split()[0].strip("«»") for text in history[-2:] if text)
        history.append(f"«{source}» ({seen})")
    return history[-len(sources) :]


def test_a_text_is_translated_with_events_in_order(tmp_path):
    async def scenario():
        engine = FakeEngine()
        async with running(engine, tmp_path / "data") as jobs:
            status = await create(jobs, tmp_path, name="letter.txt")
            assert (status.status, status.finished) == ("queued", 0)
            assert (status.facts.sentences, status.facts.format) == (7, "text")
            events = await follow(jobs, status.id)
            sentences = [event for event in events if event.name == "sentence"]
            assert [event.id for event in sentences] == list(range(1, 8))
            assert [event.data["source"] for event in sentences] == SOURCES
            assert [event.data["paragraph"] for event in sentences] == [0, 0, 1, 1, 2, 2, 2]
            assert [event.data["target"] for event in sentences] == expect(SOURCES)
            assert [event.id for event in events] == sorted(event.id for event in events)
            counts = {"finished": 7, "sentences": 7, "changes": 0, "last_change": 0}
            assert events[-2].data == counts | {"status": "done"}
            assert (events[-1].name, events[-1].data["status"]) == ("done", "done")
            assert sentences[0].data["warnings"] == ["length_limit"]
            assert [each.data for each in sentences] == jobs.sentences(status.id, "")
            assert [event.id for event in await follow(jobs, status.id, after=5)] == [6, 7, 7, 7]
            path, name = await jobs.result(status.id, "")
            assert name == "letter.fr.txt"
            lines = expect(SOURCES)
            assert path.read_text().split("\n")[:2] == [f"{lines[0]} {lines[1]}", f"{lines[2]} {lines[3]}"]
            assert jobs.store.count_states() == {"done": 1}
            assert engine.requests[0][3]["lane"] == "interactive"

    asyncio.run(scenario())


def test_the_place_of_events_survives_a_restart(tmp_path):
    async def scenario():
        async with running(FakeEngine(), tmp_path / "data") as jobs:
            status = await create(jobs, tmp_path)
            before = await follow(jobs, status.id)
        async with running(FakeEngine(), tmp_path / "data") as jobs:
            after = await follow(jobs, status.id, after=3)
            assert [event.id for event in after] == [4, 5, 6, 7, 7, 7]
            assert after[:4] == [event for event in before if event.name == "sentence"][3:]
            assert after[-1] == before[-1]

    asyncio.run(scenario())


def test_another_owner_sees_nothing(tmp_path):
    async def scenario():
        async with running(FakeEngine(), tmp_path / "data") as jobs:
            status = await create(jobs, tmp_path, owner="alice")
            assert jobs.store.count_active("alice") == 1
            for id, owner in ((status.id, "bob"), (status.id, ""), ("../x", "alice")):
                with pytest.raises(NoSuchDocument):
                    jobs.status(id, owner)
                with pytest.raises(NoSuchDocument):
                    await jobs.result(id, owner)
                with pytest.raises(NoSuchDocument):
                    await follow(jobs, id, owner=owner)
            await follow(jobs, status.id, owner="alice")
            assert jobs.store.count_active("alice") == 0

    asyncio.run(scenario())


def test_an_edit_stays_and_is_the_context_of_what_follows(tmp_path):
    async def scenario():
        engine = FakeEngine()
        async with running(engine, tmp_path / "data") as jobs:
            id = (await create(jobs, tmp_path)).id
            last = (await follow(jobs, id))[-1].id
            assert (await jobs.edit(id, "", {5: "Written by me."}, False)).status == "done"
            status = await jobs.edit(id, "", {1: "Mine too."}, True)
            assert (status.status, status.finished, status.edited) == ("running", 3, 2)
            events = await follow(jobs, id, after=last)
            assert [event.data["number"] for event in events if event.name == "sentence"] == [5, 1, 2, 3, 4, 6]
            first = expect(SOURCES[:1])
            middle = expect(SOURCES[2:5], [*first, "Mine too."])
            end = expect(SOURCES[6:], [middle[-1], "Written by me."])
            expected = [*first, "Mine too.", *middle, "Written by me.", *end]
            assert targets_of(jobs, id) == expected
            assert engine.requests[-1][2] == tuple(expected[:6])
            path, _ = await jobs.result(id, "", "txt")
            assert "Written by me." in path.read_text()
            assert [each["edited"] for each in jobs.sentences(id, "")] == [n in (1, 5) for n in range(7)]
        async with running(engine, tmp_path / "data") as jobs:
            assert targets_of(jobs, id) == expected

    asyncio.run(scenario())


def test_an_edit_of_a_running_job(tmp_path):
    async def scenario():
        engine = FakeEngine(step=1, hold=4)
        async with running(engine, tmp_path / "data") as jobs:
            id = (await create(jobs, tmp_path)).id
            async for event in jobs.events(id, ""):
                if event.name == "sentence" and event.data["number"] == 3:
                    break
            assert (await jobs.edit(id, "", {0: "Un chat."}, True)).status == "running"
            engine.hold = 100
            assert (await follow(jobs, id))[-1].data["status"] == "done"
            assert targets_of(jobs, id) == ["Un chat.", *expect(SOURCES[1:], ["Un chat."])]

    asyncio.run(scenario())


def test_alternatives_and_alignment(tmp_path):
    async def scenario():
        engine = FakeEngine()
        async with running(engine, tmp_path / "data") as jobs:
            id = (await create(jobs, tmp_path)).id
            await follow(jobs, id)
            alternatives = await jobs.alternatives(id, "", 2, 3)
            target = expect(SOURCES)[2]
            assert [each["target"] for each in alternatives] == [target, f"{target}1", f"{target}2"]
            document, _, targets, options = engine.requests[-1]
            assert document.sentences == tuple(SOURCES[:3])
            assert targets == tuple(expect(SOURCES)[:2])
            assert options["n_best"] == 3
            assert await jobs.alignment(id, "", 0) == [[0, 3, 0, 4], [4, 8, 5, 10]]
            for call in (
                jobs.alternatives(id, "", 99, 3),
                jobs.alternatives(id, "", 0, 99),
                jobs.alignment(id, "", -1),
            ):
                with pytest.raises(DocmtError):
                    await call

    asyncio.run(scenario())


def test_a_failed_sentence_keeps_its_source(tmp_path):
    async def scenario():
        engine = FakeEngine()
        engine.error = DocmtError("a sentence is too long")
        async with running(engine, tmp_path / "data") as jobs:
            id = (await create(jobs, tmp_path, "One. FAIL here. Three.")).id
            done = (await follow(jobs, id))[-1].data
            assert (done["status"], done["finished"]) == ("done", 3)
            assert done["error"] == "1 of 3 sentences could not be translated: a sentence is too long"
            failed = jobs.sentences(id, "")[1]
            assert (failed["target"], failed["warnings"], failed["score"]) == ("FAIL here.", ["failed"], None)
            assert "FAIL here." in (await jobs.result(id, ""))[0].read_text()
            id = (await create(jobs, tmp_path, "FAIL.")).id
            assert (await follow(jobs, id))[-1].data["status"] == "failed"
            with pytest.raises(DocumentNotReady):
                await jobs.result(id, "")
            assert (await jobs.edit(id, "", {0: "Mine."}, False)).status == "done"

    asyncio.run(scenario())


def test_context_is_seen_and_not_returned(tmp_path):
    async def scenario():
        engine = FakeEngine()
        async with running(engine, tmp_path / "data") as jobs:
            id = (await create(jobs, tmp_path, context="Before. Just before. Right before.")).id
            await follow(jobs, id)
            history = expect(["Before.", "Just before.", "Right before."])
            assert targets_of(jobs, id) == expect(SOURCES, history)
            await jobs.edit(id, "", {0: "Un chat."}, True)
            await follow(jobs, id)
            assert engine.requests[-1][2] == (*history, "Un chat.")
            assert targets_of(jobs, id)[1:] == expect(SOURCES[1:], [*history, "Un chat."])
            assert (await jobs.result(id, ""))[0].read_text().startswith("Un chat. ")

    asyncio.run(scenario())


def make_docx(path):
    document = docx.Document()
    paragraph = document.add_paragraph("The ")
    paragraph.add_run("old").bold = True
    paragraph.add_run(" house fell. It was empty.")
    document.add_paragraph("Nobody came.")
    document.save(path)
    return path.read_bytes()


@pytest.mark.full
def test_a_word_document_in_every_form(tmp_path):
    async def scenario():
        engine = FakeEngine(step=1)
        async with running(engine, tmp_path / "data") as jobs:
            id = (await create(jobs, tmp_path, make_docx(tmp_path / "a.docx"), name="a.docx")).id
            await follow(jobs, id)
            assert [each["paragraph"] for each in jobs.sentences(id, "")][:3] == [0, 0, 1]
            align = engine.requests[0][3]["align"]
            assert [align(n) for n in range(3)] == [True, False, False]
            await jobs.edit(id, "", {0: "La vieille maison tomba."}, False)
            for format, name in (
                ("original", "a.fr.docx"),
                ("html", "a.en-fr.html"),
                ("xlf", "a.en-fr.xlf"),
                ("xlf12", "a.en-fr.xliff12.xlf"),
                ("tmx", "a.en-fr.tmx"),
                ("txt", "a.fr.txt"),
            ):
                path, given_name = await jobs.result(id, "", format)
                assert given_name == name
                if format == "original":
                    paragraph = docx.Document(path).paragraphs[0]
                    assert paragraph.text.startswith("La vieille maison tomba. ")
                    assert [run.text.strip() for run in paragraph.runs if run.bold] == ["vieille"]
                else:
                    assert "vieille" in path.read_text()
                assert (await jobs.result(id, "", format))[0] == path
            await jobs.edit(id, "", {2: "Personne."}, False)
            path, _ = await jobs.result(id, "")
            assert docx.Document(path).paragraphs[1].text == "Personne."
            assert [each.name for each in path.parent.glob("result.*")] == [path.name]
            with pytest.raises(DocmtError, match="pdf is no format of results"):
                await jobs.result(id, "", "pdf")

    asyncio.run(scenario())


def test_documents_of_one_file_are_translated_in_order(tmp_path):
    text = '{"id": "a", "text": "One. Two."}\n{"id": "b", "source": ["Three.", "Four."]}\n'

    async def scenario():
        engine = FakeEngine()
        async with running(engine, tmp_path / "data") as jobs:
            id = (await create(jobs, tmp_path, text, name="a.jsonl")).id
            await follow(jobs, id)
            assert targets_of(jobs, id) == [*expect(["One.", "Two."]), *expect(["Three.", "Four."])]
            await jobs.edit(id, "", {0: "Un."}, True)
            await follow(jobs, id)
            assert targets_of(jobs, id) == ["Un.", *expect(["Two."], ["Un."]), *expect(["Three.", "Four."])]
            rows = [json.loads(line) for line in (await jobs.result(id, ""))[0].read_text().splitlines()]
            assert [(row["document"], row["sentence"]) for row in rows] == [("a", 1), ("a", 2), ("b", 1), ("b", 2)]

    asyncio.run(scenario())


def test_short_documents_wait_together_in_the_engine(tmp_path):
    text = "".join(f'{{"id": "{number}", "source": ["One.", "Two."]}}\n' for number in range(40))

    async def scenario():
        engine = FakeEngine(hold=6)
        async with running(engine, tmp_path / "data") as jobs:
            id = (await create(jobs, tmp_path, text, name="a.jsonl")).id
            async for event in jobs.events(id, ""):
                if event.data.get("number") == 5:
                    break
            assert 3 < len(engine.requests) < 40
            await jobs.edit(id, "", {2: "Un."}, True)
            engine.hold = 1000
            numbers = [event.data["number"] for event in await follow(jobs, id) if event.name == "sentence"]
            assert numbers == [0, 1, 3, 4, 5, 2, 3, *range(6, 80)]
            assert targets_of(jobs, id)[2:4] == ["Un.", *expect(["Two."], ["Un."])]
            assert targets_of(jobs, id)[4:] == expect(["One.", "Two."]) * 38

    asyncio.run(scenario())


def test_a_bad_file_leaves_nothing(tmp_path):
    async def scenario():
        async with running(FakeEngine(), tmp_path / "data", JobConfig(max_file_bytes=100)) as jobs:
            for name, data in (("a.docx", b"PK\3\4nonsense"), ("a.pdf", b"%PDF-1.7 x"), ("a.txt", b"\xff\xfe\x00")):
                with pytest.raises(DocmtError, match=name):
                    await create(jobs, tmp_path, data, name=name)
            with pytest.raises(DocmtError, match="MiB"):
                await create(jobs, tmp_path, b"x" * 101)
            assert jobs.store.count_states() == {}
            assert list((tmp_path / "data" / "spool").iterdir()) == []

    asyncio.run(scenario())


def test_cancel_delete_and_expiry(tmp_path):
    async def scenario():
        engine = FakeEngine(step=1, hold=2)
        async with running(engine, tmp_path / "data", JobConfig(active=1)) as jobs:
            first, second = [(await create(jobs, tmp_path)).id for _ in range(2)]
            async for event in jobs.events(first, ""):
                if event.name == "sentence":
                    break
            assert (await jobs.cancel(first, "")).status == "cancelled"
            assert (await follow(jobs, first))[-1].data["status"] == "cancelled"
            assert (await jobs.cancel(second, "")).status == "cancelled"
            engine.hold = 100
            assert (await follow(jobs, second))[-1].data["finished"] == 0
            assert (await jobs.cancel(first, "")).id == first
            with pytest.raises(NoSuchDocument):
                jobs.status(first, "")
            assert [each.name for each in (tmp_path / "data" / "spool").iterdir()] == [second]
        async with running(engine, tmp_path / "data", JobConfig(keep_hours=-1)) as jobs:
            assert jobs.store.count_states() == {}
            assert list((tmp_path / "data" / "spool").iterdir()) == []

    asyncio.run(scenario())


def test_the_end_of_an_edit_that_is_cancelled_or_fails(tmp_path):
    """What is not made again stays, and can be downloaded and edited, also after a restart."""

    async def scenario():
        engine = FakeEngine(step=1)
        async with running(engine, tmp_path / "data") as jobs:
            id = (await create(jobs, tmp_path)).id
            await follow(jobs, id)
            before = targets_of(jobs, id)
            engine.hold = engine.translated + 1
            await jobs.edit(id, "", {1: "Mine."}, True)
            async for event in jobs.events(id, "", after=8):
                if event.name == "sentence":
                    break
            status = await jobs.cancel(id, "")
            assert (status.status, status.finished) == ("done", 7)
            expected = [before[0], "Mine.", *expect(SOURCES[2:3], [before[0], "Mine."]), *before[3:]]
            assert targets_of(jobs, id) == expected
            # the next edit comes before the loop has ended the cancelled work
            assert (await jobs.edit(id, "", {5: "Also mine."}, True)).status == "running"
            engine.hold = 1000
            assert (await follow(jobs, id))[-1].data["status"] == "done"
            expected = [*expected[:5], "Also mine.", *expect(SOURCES[6:], [expected[4], "Also mine."])]
            assert targets_of(jobs, id) == expected
            engine.refusals = [DocmtError("there is not enough memory")]
            await jobs.edit(id, "", {0: "Mine, too."}, True)
            status = (await follow(jobs, id))[-1].data
            assert (status["status"], status["error"]) == ("done", "there is not enough memory")
        async with running(engine, tmp_path / "data") as jobs:
            assert (await jobs.edit(id, "", {0: "Mine alone."}, False)).status == "done"
            assert targets_of(jobs, id) == ["Mine alone.", *expected[1:]]
            path, _ = await jobs.result(id, "", "txt")
            assert path.read_text().startswith("Mine alone. Mine.\n")

    asyncio.run(scenario())


def test_a_document_that_ended_just_before_it_is_cancelled(tmp_path):
    async def scenario():
        async with running(FakeEngine(), tmp_path / "data") as jobs:
            id = (await create(jobs, tmp_path)).id
            while not (task := jobs._jobs.get(id).task) or not task.done():
                await asyncio.sleep(0)
            assert (await jobs.cancel(id, "", keep=True)).status == "done"
            assert (await follow(jobs, id))[-1].data["status"] == "done"
            assert (await jobs.cancel(id, "", keep=True)).status == "done"
            assert targets_of(jobs, id) == expect(SOURCES)

    asyncio.run(scenario())


def kill_at_step(patch, left):
    """Let the table and the journal be written so often, and then raise KeyboardInterrupt."""

    def make(function):
        def call(*arguments, **values):
            nonlocal left
            if left == 0:
                raise KeyboardInterrupt
            left -= 1
            return function(*arguments, **values)

        return call

    patch.setattr(JobStore, "update", make(JobStore.update))
    patch.setattr(JobJournal, "append", make(JobJournal.append))


def test_a_server_that_is_killed_within_an_edit(tmp_path, monkeypatch):
    """Whatever was written before: what follows is translated again, or the edit is not there."""

    async def scenario(kill):
        data = tmp_path / str(kill)
        async with running(FakeEngine(), data) as jobs:
            id = (await create(jobs, tmp_path)).id
            await follow(jobs, id)
            with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
                kill_at_step(patch, kill)
                patch.setattr(
                    asyncio, "create_task", lambda work: work.close() or asyncio.ensure_future(asyncio.sleep(0))
                )
                await jobs.edit(id, "", {0: "Mine."}, True)
                raise KeyboardInterrupt
        async with running(FakeEngine(), data) as jobs:
            assert (await follow(jobs, id))[-1].data["status"] == "done"
            return targets_of(jobs, id)

    whole = ["Mine.", *expect(SOURCES[1:], ["Mine."])]
    assert [asyncio.run(scenario(kill)) for kill in range(3)] == [expect(SOURCES), expect(SOURCES), whole]


def test_a_document_that_is_deleted_while_its_results_are_written(tmp_path):
    async def scenario():
        async with running(FakeEngine(), tmp_path / "data") as jobs:
            id = (await create(jobs, tmp_path)).id
            await follow(jobs, id)
            results = [asyncio.ensure_future(jobs.result(id, "", format)) for format in ("txt", "html", "tmx")]
            await asyncio.sleep(0)
            await jobs.cancel(id, "")
            for error in await asyncio.gather(*results, return_exceptions=True):
                assert isinstance(error, DocmtError)
            assert [type(each.exception()) for each in results[1:]] == [NoSuchDocument] * 2
            assert list((tmp_path / "data" / "spool").iterdir()) == []

    asyncio.run(scenario())


def test_an_edit_leaves_the_error_of_other_sentences(tmp_path):
    async def scenario():
        engine = FakeEngine()
        engine.error = DocmtError("it is too long")
        async with running(engine, tmp_path / "data") as jobs:
            id = (await create(jobs, tmp_path, "One. FAIL two. Three.")).id
            await follow(jobs, id)
            status = await jobs.edit(id, "", {2: "Mine."}, False)
            assert status.error == "1 of 3 sentences could not be translated: it is too long"
            assert (await jobs.edit(id, "", {1: "Mine."}, False)).error == ""

    asyncio.run(scenario())


def test_an_engine_that_refuses(tmp_path):
    async def scenario():
        engine = FakeEngine()
        async with running(engine, tmp_path / "data") as jobs:
            engine.refusals = [DocmtError("there is no model fake")]
            id = (await create(jobs, tmp_path)).id
            assert (await follow(jobs, id))[-1].data["error"] == "there is no model fake"

    asyncio.run(scenario())


def test_a_fault_is_one_sentence_and_no_text_in_the_log(tmp_path, caplog):
    async def scenario():
        engine = FakeEngine()
        engine.refusals = [RuntimeError("secret text")]
        async with running(engine, tmp_path / "data") as jobs:
            id = (await create(jobs, tmp_path)).id
            assert "internal reason" in (await follow(jobs, id))[-1].data["error"]

    with caplog.at_level(logging.DEBUG):
        asyncio.run(scenario())
    assert "RuntimeError" in caplog.text
    assert "secret" not in caplog.text and "cat" not in caplog.text


def test_a_full_disk_spoils_no_journal(tmp_path, monkeypatch, caplog):
    """The line that is half written is taken back; a job goes on as soon as there is room."""

    def raise_full(*arguments, **values):
        raise DocmtError("No space left") from OSError(errno.ENOSPC, "No space left on device")

    def write_half(file, data):
        file.write(data[: len(data) // 2])
        raise OSError(errno.ENOSPC, "No space left on device")

    async def scenario():
        async with running(FakeEngine(), tmp_path / "data") as jobs:
            id = (await create(jobs, tmp_path)).id
            await follow(jobs, id)
            path = tmp_path / "data" / "spool" / id / "journal.jsonl"
            before = path.read_bytes()
            with monkeypatch.context() as patch:
                patch.setattr(job_journal, "write_all", write_half)
                with pytest.raises(DocmtError, match="No space left on device; free space"):
                    await jobs.edit(id, "", {0: "Un chat."}, False)
                assert path.read_bytes() == before
                assert jobs.status(id, "").status == "done"
                other = (await create(jobs, tmp_path)).id
                patch.setattr(JobStore, "find_fault", lambda store: OSError(errno.ENOSPC, "No space left on device"))
                while "No space left" not in caplog.text:
                    await asyncio.sleep(0.01)
                await asyncio.sleep(0.05)
                assert caplog.text.count("No space left") == 1
                patch.setattr(JobStore, "update", raise_full)  # the table cannot be written either
                with pytest.raises(DocmtError, match="No space left"):
                    await jobs.edit(id, "", {0: "Un chat."}, False)
            status = (await follow(jobs, other))[-1].data
            assert (status["status"], status["finished"], status["error"]) == ("done", 7, "")
            await jobs.edit(id, "", {0: "Un chat."}, False)
        async with running(FakeEngine(), tmp_path / "data") as jobs:
            assert targets_of(jobs, id)[0] == "Un chat."
            with pytest.raises(DocmtError, match="lone surrogate"):
                await jobs.edit(id, "", {0: "\ud800"}, False)

    asyncio.run(scenario())


def test_a_fault_of_the_table_stops_no_other_job(tmp_path, monkeypatch, caplog):
    async def scenario():
        async with running(FakeEngine(), tmp_path / "data", JobConfig(active=1)) as jobs:
            with monkeypatch.context() as patch:
                patch.setattr(JobStore, "update", raise_error)
                lost = (await create(jobs, tmp_path)).id
                while "the table is full" not in caplog.text:
                    await asyncio.sleep(0.001)
            id = (await create(jobs, tmp_path)).id
            assert (await follow(jobs, id))[-1].data["status"] == "done"
            return lost

    def raise_error(*arguments, **values):
        raise DocmtError("the table is full")

    async def start_again(lost):
        async with running(FakeEngine(), tmp_path / "data") as jobs:
            assert (await follow(jobs, lost))[-1].data["status"] == "done"

    asyncio.run(start_again(asyncio.run(scenario())))


def test_a_second_server_is_refused(tmp_path):
    async def scenario():
        async with running(FakeEngine(), tmp_path / "data"):
            with pytest.raises(DocmtError, match="is used by"):
                await DocumentJobs(FakeEngine(), tmp_path / "data").start()

    asyncio.run(scenario())


def test_findings_of_a_sentence(tmp_path):
    async def scenario():
        async with running(FakeEngine(), tmp_path / "data") as jobs:
            id = (await create(jobs, tmp_path, "There are 17 cats here.")).id
            await follow(jobs, id)
            assert jobs.sentences(id, "")[0]["findings"] != []  # the engine copies its source
            await jobs.edit(id, "", {0: "Il y a 18 chats ici."}, False)
            assert jobs.sentences(id, "")[0]["findings"] == [
                "number: “17” not in the translation; “18” not in the source"
            ]
        engine = FakeEngine()
        engine.patterns = ("Acme Corp",)
        async with running(engine, tmp_path / "other") as jobs:
            id = (await create(jobs, tmp_path, "She works at Acme Corp.")).id
            await follow(jobs, id)
            await jobs.edit(id, "", {0: "Elle y travaille."}, False)
            assert jobs.sentences(id, "")[0]["findings"] == ["placeholder: “Acme Corp” not in the translation"]

    asyncio.run(scenario())


def test_a_journal_that_was_cut_anywhere_is_read_to_its_last_whole_line(tmp_path):
    async def scenario():
        async with running(FakeEngine(), tmp_path / "data") as jobs:
            id = (await create(jobs, tmp_path, context="Before.")).id
            await follow(jobs, id)
            await jobs.edit(id, "", {2: "Trois chiens."}, True)
            await follow(jobs, id)
            return tmp_path / "data" / "spool" / id

    folder = asyncio.run(scenario())
    contents = FileContents.from_json((folder / "contents.json").read_bytes())
    data = (folder / "journal.jsonl").read_bytes()
    whole = JobJournal(folder / "journal.jsonl", contents)
    assert (whole.is_whole, whole.list_plans(1), whole.finished) == (True, [], 7)
    for size in range(0, len(data), 17):
        path = tmp_path / "journal.jsonl"
        path.write_bytes(data[:size])
        journal = JobJournal(path, contents)
        assert path.read_bytes() == data[: data.rfind(b"\n", 0, size) + 1]
        assert journal.events == whole.events[: len(journal.events)]
    (folder / "journal.jsonl").write_bytes(b"{}\n" + data)
    with pytest.raises(DocmtError, match="journal of this document is damaged"):
        JobJournal(folder / "journal.jsonl", contents)


async def kill(jobs):
    """End a server as its process would die: nothing is written any more."""
    for task in jobs._tasks:
        task.cancel()
    await asyncio.gather(*jobs._tasks, return_exceptions=True)
    jobs.store.close()


def test_a_job_that_brings_the_server_down_twice_is_put_aside(tmp_path, monkeypatch):
    """The others that ran beside it go on: only one at a time has not shown that it is harmless."""
    monkeypatch.setattr(document_jobs, "_SUSPECT_SECONDS", 0.0)
    data = tmp_path / "data"

    async def start_and_die(count=0):
        """The server dies as soon as the first sentence of the bad document is to be translated."""
        engine, jobs, died = FakeEngine(step=1), None, asyncio.Event()
        jobs = DocumentJobs(engine, data)
        submit = engine.submit

        def die(work):
            if work.document.sentences[0] == "Bad.":
                died.set()
                engine.hold = 0
            return submit(work)

        engine.submit = die
        await jobs.start()
        ids = [(await create(jobs, tmp_path, text)).id for text in ["Bad. Day.", TEXT, TEXT][:count]]
        await asyncio.wait_for(died.wait(), 60)
        await kill(jobs)
        return ids

    async def start_again(ids):
        async with running(FakeEngine(), data) as jobs:
            for id in ids[1:]:
                assert (await follow(jobs, id))[-1].data["status"] == "done"
            status = jobs.status(ids[0], "")
            assert (status.status, status.error) == (
                "failed",
                "the server died twice while it translated this document. Split it, or send it again.",
            )
            assert (await jobs.cancel(ids[0], "")).status == "failed"

    ids = asyncio.run(start_and_die(3))
    asyncio.run(start_and_die())
    asyncio.run(start_again(ids))


def test_a_server_that_is_killed_again_at_once_died_of_something_else(tmp_path):
    async def scenario():
        jobs = DocumentJobs(FakeEngine(hold=0), tmp_path / "data")
        await jobs.start()
        await asyncio.sleep(0)
        if not jobs.store.count_states():
            await create(jobs, tmp_path)
        await asyncio.sleep(0.05)
        (record,) = jobs.store.list_jobs()
        await kill(jobs)
        return record.status, record.crashes

    assert [asyncio.run(scenario()) for _ in range(4)] == [("running", 0), *[("queued", 1)] * 3]


def test_a_clean_stop_and_progress_are_no_crashes(tmp_path, monkeypatch):
    monkeypatch.setattr(document_jobs, "_SUSPECT_SECONDS", 0.0)

    async def scenario(end, sentences):
        engine = FakeEngine(step=1, hold=sentences)
        jobs = DocumentJobs(engine, tmp_path / "data")
        await jobs.start()
        if not jobs.store.count_states():
            await create(jobs, tmp_path)
        (record,) = jobs.store.list_jobs()
        async for event in jobs.events(record.id, ""):
            if engine.translated == sentences and event.name == "progress":
                break
        await end(jobs)
        return record.crashes

    assert [asyncio.run(scenario(kill, 1)) for _ in range(4)] == [0, 1, 1, 1]
    assert asyncio.run(scenario(DocumentJobs.stop, 1)) == 1
    assert asyncio.run(scenario(DocumentJobs.stop, 1)) == 0


def test_a_job_with_a_new_part_on_the_disk_is_not_suspected(tmp_path, monkeypatch):
    """Whatever the moment of the next kill."""
    monkeypatch.setattr(document_jobs, "_SUSPECT_SECONDS", 0.0)
    crashes, append = [], JobJournal.append

    async def scenario(hold):
        jobs = DocumentJobs(FakeEngine(step=1, hold=hold), tmp_path / "data")
        await jobs.start()
        job = next(iter(jobs.store.list_jobs()), None) or await create(jobs, tmp_path)

        def append_and_look(journal, line):
            append(journal, line)
            crashes.append(jobs.store.find(job.id).crashes)

        monkeypatch.setattr(JobJournal, "append", append_and_look)
        await (asyncio.sleep(0.05) if hold == 0 else follow(jobs, job.id))
        await kill(jobs)

    asyncio.run(scenario(0))
    assert not crashes
    asyncio.run(scenario(10_000))
    assert len(crashes) > 1 and not any(crashes)


def test_jobs_are_listed_and_cancelled_from_elsewhere(tmp_path, capsys):
    """Beside a server, and without one."""
    data = tmp_path / "data"

    def list_rows():
        assert load_command("serve")[1](["--list-jobs", "--data", str(data)]) == 0
        return [line.split("\t") for line in capsys.readouterr().out.splitlines()]

    async def scenario():
        engine = FakeEngine(step=1, hold=3)
        async with running(engine, data, JobConfig(active=1)) as jobs:
            ids = [(await create(jobs, tmp_path, name=name, owner="anna")).id for name in ("a.txt", "b.txt")]
            third = (await create(jobs, tmp_path, owner="anna")).id
            while list_rows()[0][3] != "3/7":
                await asyncio.sleep(0.05)
            assert [row[:5] for row in list_rows()] == [
                [ids[0], "a.txt", "running", "3/7", "anna"],
                [ids[1], "b.txt", "queued", "0/7", "anna"],
                [third, "text.txt", "queued", "0/7", "anna"],
            ]
            for id in ids:
                assert load_command("serve")[1](["--cancel-job", id, "--data", str(data)]) == 0
            engine.hold = 4
            for id in ids:
                events = await asyncio.wait_for(follow(jobs, id, owner="anna"), 10)
                assert events[-1].data["status"] == "cancelled"
            with pytest.raises(DocmtError, match=r"no document .* waits or is translated"):
                load_command("serve")[1](["--cancel-job", ids[0], "--data", str(data)])
        assert load_command("serve")[1](["--cancel-job", third, "--data", str(data)]) == 0
        assert [row[2] for row in list_rows()] == ["cancelled"] * 3
        async with running(engine, data) as jobs:
            assert (await follow(jobs, third, owner="anna"))[-1].data["status"] == "cancelled"

    asyncio.run(scenario())
    with pytest.raises(DocmtError, match="has no documents"):
        load_command("serve")[1](["--list-jobs", "--data", str(tmp_path)])


def test_documents_of_a_key_that_is_revoked_are_cancelled(tmp_path):
    data = tmp_path / "data"
    one, other = (AccessKeys(data).create(name)[1].id for name in ("one", "other"))

    async def scenario():
        engine = FakeEngine(step=1, hold=2)
        async with running(engine, data) as jobs:
            ids = [(await create(jobs, tmp_path, owner=owner)).id for owner in (one, other)]
            assert load_command("serve")[1](["--revoke-key", one, "--data", str(data)]) == 0
            events = await asyncio.wait_for(follow(jobs, ids[0], owner=one), 10)
            assert events[-1].data["status"] == "cancelled"
            engine.hold = 100
            assert (await follow(jobs, ids[1], owner=other))[-1].data["status"] == "done"

    asyncio.run(scenario())
    _, key = AccessKeys(tmp_path).create("without documents")
    assert load_command("serve")[1](["--revoke-key", key.id, "--data", str(tmp_path)]) == 0


def test_owners_take_turns_with_their_documents(tmp_path):
    """One with many files does not hold up the others: neither in the queue nor in the engine."""

    async def scenario():
        engine = FakeEngine(step=1, hold=0)
        async with running(engine, tmp_path / "data", JobConfig(active=2)) as jobs:
            owners = ["anna"] * 6 + ["bob"] * 3 + ["carla"] * 2
            ids = [(await create(jobs, tmp_path, f"{n}. One.", owner=owner)).id for n, owner in enumerate(owners)]
            while len(engine.requests) < 6:
                await asyncio.sleep(0.01)
            assert [request[3]["owner"] for request in engine.requests] == ["anna"] * 2 + ["bob"] * 2 + ["carla"] * 2
            engine.hold = 1000
            for id, owner in zip(ids, owners, strict=True):
                assert (await follow(jobs, id, owner=owner))[-1].data["status"] == "done"

    asyncio.run(scenario())


def test_waiting_owners_take_turns():
    async def take_all():
        queue, order = JobQueue(1), []
        for owner, id in [("a", "a1"), ("a", "a2"), ("a", "a3"), ("b", "b1"), ("b", "b2"), ("c", "c1")]:
            queue.put(owner, id)

        async def run():
            while True:
                async with queue.take() as id:
                    order.append(id)
                    await asyncio.sleep(0)

        tasks = [asyncio.create_task(run()) for _ in range(2)]
        while len(order) < 6:
            await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        return order

    order = asyncio.run(take_all())
    assert order[:3] == ["a1", "b1", "c1"] and order.index("b2") < order.index("a3")
