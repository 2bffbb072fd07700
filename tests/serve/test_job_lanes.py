"""A short document does not wait for long ones."""

import asyncio

import pytest
from fake_engine import FakeEngine
from test_document_jobs import create, follow, running

from docmt.serve.document_jobs import JobConfig
from docmt.serve.engine import Overloaded

pytestmark = pytest.mark.usefixtures("files_here")

BOOK = "It rains. " * 201


class EngineOfLanes(FakeEngine):
    """Long documents wait for ever."""

    def submit(self, work):
        submitted = super().submit(work)
        if work.lane == "jobs":
            submitted.engine = FakeEngine(hold=0)
        return submitted


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_short_text_is_done_while_books_have_all_turns(tmp_path, is_restarted):
    async def scenario():
        engine, config = EngineOfLanes(), JobConfig(active=1)
        async with running(engine, tmp_path / "data", config) as jobs:
            books = [await create(jobs, tmp_path, BOOK) for _ in range(2)]
            text = await create(jobs, tmp_path, "It rains. " * 200)
            if not is_restarted:
                assert (await follow(jobs, text.id))[-1].data["finished"] == 200
        async with running(engine, tmp_path / "data", config) as jobs:
            assert (await follow(jobs, text.id))[-1].data["status"] == "done"
            assert [jobs.status(book.id, "").finished for book in books] == [0, 0]

    asyncio.run(scenario())


def test_a_short_text_becomes_a_job_like_others_where_too_many_texts_wait(tmp_path):
    async def scenario():
        engine = FakeEngine()
        engine.refusals = [Overloaded("too many texts are waiting", 30)]
        async with running(engine, tmp_path / "data") as jobs:
            id = (await create(jobs, tmp_path)).id
            assert (await follow(jobs, id))[-1].data["status"] == "done"
            assert [options["lane"] for *_, options in engine.requests] == ["jobs"]

    asyncio.run(scenario())
