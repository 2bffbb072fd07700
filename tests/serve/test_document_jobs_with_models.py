"""Jobs with the real engine and tiny models with random weights."""

import asyncio
import sqlite3
from contextlib import asynccontextmanager, closing

import pytest
from test_engine import SEARCH, SYSTEMS, running, save, sentences

import docmt
from docmt.documents import Document
from docmt.serve import document_jobs
from docmt.serve.document_jobs import DocumentJobs, DocumentOptions
from docmt.serve.job_translation import TermRequest
from docmt.serve.model_pool import UnknownModel
from docmt.terms import Glossary

pytestmark = pytest.mark.usefixtures("files_here")

TEXT = "\n".join(" ".join(sentences(2, seed)) for seed in range(20)) + "\n"
PAGE = "".join(f"<p>{one} <b>{other}</b> here.</p>" for one, other in (sentences(2, seed) for seed in range(8)))


SLOW = [pytest.param(name, marks=pytest.mark.full) for name in ("document", "hierarchical")]


@pytest.fixture(scope="module", params=["sentence", "group", *SLOW])
def model(request, tmp_path_factory):
    return save(tmp_path_factory.mktemp("model") / request.param, **SYSTEMS[request.param])


@asynccontextmanager
async def serving(model, data):
    with running(model, device="cpu") as engine:
        jobs = DocumentJobs(engine, data)
        jobs.engine = engine
        await jobs.start()
        try:
            yield jobs
        finally:
            await jobs.stop()


async def create(jobs, tmp_path, text, name):
    (tmp_path / name).write_text(text)
    return (await jobs.create(tmp_path / name, DocumentOptions(), "")).id


async def finish(jobs, id):
    events = [event async for event in jobs.events(id, "")]
    assert events[-1].data["status"] == "done", events[-1].data


async def read_result(jobs, id):
    return (await jobs.result(id, ""))[0].read_bytes()


@pytest.mark.full
def test_a_job_is_the_translation_of_the_translator(model, tmp_path):
    async def scenario():
        async with serving(model, tmp_path / "data") as jobs:
            id = await create(jobs, tmp_path, TEXT, "a.txt")
            await finish(jobs, id)
            translation = docmt.Translator(model, search=SEARCH, device="cpu").translate(Document.from_text(TEXT))
            rows = jobs.sentences(id, "")
            assert [row["target"] for row in rows] == [each.target for each in translation]
            assert [row["score"] for row in rows] == pytest.approx([each.score for each in translation], abs=1e-4)
            assert (await read_result(jobs, id)).decode() == translation.text()
            alternatives = await jobs.alternatives(id, "", 7, 2)
            assert 1 <= len(alternatives) == len({each["target"] for each in alternatives}) <= 2
            links = await jobs.alignment(id, "", 7)
            source, target = rows[7]["source"], rows[7]["target"]
            assert all(0 <= a < b <= len(source) and 0 <= c < d <= len(target) for a, b, c, d in links)

    asyncio.run(scenario())


def cut_journal(data, id, lines, status="running"):
    """Leave what a server leaves that is killed after these lines, or that stops there (queued)."""
    (data / "spool" / id / "journal.jsonl").write_bytes(b"".join(lines))
    with closing(sqlite3.connect(data / "jobs.sqlite")) as connection, connection:
        connection.execute("UPDATE jobs SET status = ? WHERE id = ?", (status, id))


@pytest.mark.full
def test_an_interrupted_job_ends_with_the_same_bytes(model, tmp_path, monkeypatch):
    monkeypatch.setattr(document_jobs, "_SUSPECT_SECONDS", 0.0)
    data = tmp_path / "data"

    async def translate(id=""):
        async with serving(model, data) as jobs:
            id = id or await create(jobs, tmp_path, PAGE, "a.html")
            await finish(jobs, id)
            if not any(row["edited"] for row in jobs.sentences(id, "")):
                await jobs.edit(id, "", {3: "Anna is here."}, True)
                await finish(jobs, id)
            return id, await read_result(jobs, id), jobs.sentences(id, "")

    id, expected, rows = asyncio.run(translate())
    lines = (data / "spool" / id / "journal.jsonl").read_bytes().splitlines(keepends=True)
    [edit] = [number for number, line in enumerate(lines) if b'{"edits"' in line]
    assert edit < len(lines) - 1
    for count in {1, edit, edit + 1, len(lines) - 1}:
        cut_journal(data, id, lines[:count])
        _, result, resumed = asyncio.run(translate(id))
        assert result == expected
        for row, other in zip(resumed, rows, strict=True):
            assert row.pop("score") == pytest.approx(other["score"], abs=1e-3)  # other batches
            assert row == {name: value for name, value in other.items() if name != "score"}


def test_a_document_of_a_model_that_is_served_no_longer(tmp_path):
    old, new = (save(tmp_path / name, **SYSTEMS["sentence"]) for name in ("old", "new"))

    async def translate():
        async with serving(old, tmp_path / "data") as jobs:
            id, queued = [await create(jobs, tmp_path, PAGE, name) for name in ("a.html", "b.html")]
            await finish(jobs, id)
            await finish(jobs, queued)
            return id, queued

    async def refuse(id, queued):
        async with serving(new, tmp_path / "data") as jobs:
            glossary = Glossary.from_pairs([("here", "ici")], ("en", "fr"))
            terms = TermRequest.make(jobs.sources(id, ""), glossary, "require")
            changes = [jobs.use_terms(id, "", terms), jobs.edit(id, "", {0: "Anna."}, True)]
            for work in (*changes, jobs.alternatives(id, "", 0, 2)):
                with pytest.raises(UnknownModel, match="the model old of this document is not served any more"):
                    await work
            assert jobs.status(id, "").last_change == 0
            assert (await jobs.edit(id, "", {0: "Anna."}, False)).status == "done"
            with pytest.raises(UnknownModel):
                await jobs.alignment(id, "", 0)
            assert b"Anna." in await read_result(jobs, id)
            events = [event async for event in jobs.events(queued, "")]
            assert events[-1].data["status"] == "failed" and "served any more" in events[-1].data["error"]
            assert jobs.engine.models.unloadable == set()

    id, queued = asyncio.run(translate())
    cut_journal(tmp_path / "data", queued, [], "queued")
    asyncio.run(refuse(id, queued))
