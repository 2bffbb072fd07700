"""A service with a translation memory: jobs and texts reuse it, and results tell what came from it."""

import asyncio

import pytest
from test_document_jobs_with_models import create, cut_journal, finish
from test_engine import SYSTEMS, running, save

from docmt import DocmtError, Document
from docmt.serve import document_jobs
from docmt.serve.document_jobs import DocumentJobs
from docmt.serve.job_translation import TermRequest
from docmt.serve.work_queue import Work
from docmt.terms import Glossary

pytestmark = pytest.mark.usefixtures("files_here")

PAGE = "<p>Anna bought a lamp. It is <b>very cheap</b> here.</p><p>It is very <b>cheap</b> here.</p><p>Here it is.</p>"
TMX = (
    '<tmx version="1.4"><header srclang="en"/><body>'
    '<tu><tuv xml:lang="en"><seg>Anna bought a lamp.</seg></tuv>'
    '<tuv xml:lang="fr"><seg>Anna a une lampe.</seg></tuv></tu>'
    '<tu><tuv xml:lang="en"><seg>It is <bpt i="1"/>very cheap<ept i="1"/> here.</seg></tuv>'
    '<tuv xml:lang="fr"><seg>Ici, <bpt i="1"/>pas cher<ept i="1"/> du tout.</seg></tuv></tu></body></tmx>'
)


@pytest.fixture(scope="module", params=["sentence", pytest.param("group", marks=pytest.mark.full)])
def model(request, tmp_path_factory):
    return save(tmp_path_factory.mktemp("model") / request.param, **SYSTEMS[request.param])


@pytest.fixture
def memory(tmp_path):
    (tmp_path / "m.tmx").write_text(TMX)
    return [str(tmp_path / "m.tmx")]


@pytest.mark.full
def test_jobs_and_texts_reuse_a_memory(model, memory, tmp_path, monkeypatch):
    monkeypatch.setattr(document_jobs, "_SUSPECT_SECONDS", 0.0)
    data, expected = tmp_path / "data", ["Anna a une lampe.", "Ici, pas cher du tout."]

    async def translate(id=""):
        with running(model, device="cpu", memory=memory) as engine:
            jobs = DocumentJobs(engine, data)
            await jobs.start()
            try:
                id = id or await create(jobs, tmp_path, PAGE, "a.html")
                await finish(jobs, id)
                results = [(await jobs.result(id, "", kind))[0].read_text() for kind in ("original", "xlf", "tmx")]
                others = await jobs.alternatives(id, "", 0, 2)
                text = Document.from_sentences(["Anna bought a lamp."])
                (part,) = await engine.submit(Work(engine.models.find(), text)).result()
                return id, jobs.sentences(id, ""), results, others, part.translation.text()
            finally:
                await jobs.stop()

    id, rows, (page, xliff, tmx), others, text = asyncio.run(translate())
    assert [row["match"] for row in rows] == [100, 101, 0, 0]
    assert [row["target"] for row in rows][:2] == expected and rows[0]["score"] is None
    assert "<p>Anna a une lampe. Ici, <b>pas cher</b> du tout.</p>" in page
    assert [xliff.count(f'type="{kind}" origin="memory"') for kind in ("em", "icem")] == [1, 1]
    assert tmx.count('<prop type="x-origin">memory</prop>') == 2 and '<prop type="x-match">101</prop>' in tmx
    assert "Anna a une lampe." not in [each["target"] for each in others] and text == "Anna a une lampe.\n"
    lines = (data / "spool" / id / "journal.jsonl").read_bytes().splitlines(keepends=True)
    cut_journal(data, id, lines[:1])  # and after a kill
    assert asyncio.run(translate(id))[2][0] == page


def test_a_memory_of_other_languages_is_an_error(model, tmp_path):
    (tmp_path / "m.tmx").write_text(TMX.replace('"fr"', '"de"'))
    with (
        pytest.raises(DocmtError, match="its translations are in de, en"),
        running(model, memory=[str(tmp_path / "m.tmx")]),
    ):
        pass


def test_codes_stay_where_the_memory_has_them_after_a_search_for_terms(model, memory, tmp_path):
    async def translate():
        with running(model, device="cpu", memory=memory) as engine:
            jobs = DocumentJobs(engine, tmp_path / "data")
            await jobs.start()
            try:
                id = await create(jobs, tmp_path, PAGE, "a.html")
                await finish(jobs, id)
                glossary = Glossary.from_pairs({"cheap": "avantageux"}, ("en", "fr"))
                await jobs.use_terms(id, "", TermRequest.make(jobs.sources(id, ""), glossary, "prefer"))
                await finish(jobs, id)
                return jobs.sentences(id, ""), (await jobs.result(id, "", "original"))[0].read_text()
            finally:
                await jobs.stop()

    rows, page = asyncio.run(translate())
    assert [use["status"] for use in rows[1]["terms"]] in (["lost"], ["refused"]) and rows[1]["match"] == 101
    assert "<p>Anna a une lampe. Ici, <b>pas cher</b> du tout.</p>" in page
