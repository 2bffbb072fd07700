"""A server of jobs in a process that may be killed. It ends when no job is active."""

import asyncio

from fake_engine import FakeEngine

from docmt.serve import document_jobs
from docmt.serve.document_jobs import DocumentJobs, DocumentOptions

CONFIRMED = 20
EDITS = {5: "Written by a person.", 11: "Also by a person."}


async def serve(data, files, ids):
    """ids: the end of a pipe that gets the id of each new job."""
    jobs = DocumentJobs(FakeEngine(step=3, seconds=0.002), data)
    await jobs.start()
    for file in files:
        status = await jobs.create(file, DocumentOptions(name=file.name, context="Before. Just before."), "")
        ids.send(status.id)
    known = [path.name for path in (data / "spool").iterdir()]
    for id in sorted(known):
        async for _ in jobs.events(id, ""):
            pass
        await edit(jobs, id)
    for id in known:
        async for _ in jobs.events(id, ""):
            pass
        for format in ("original", "html"):
            await jobs.result(id, "", format)
    await jobs.stop()


async def edit(jobs, id):
    """Make the changes that are not made yet."""
    if not jobs.sentences(id, "")[CONFIRMED]["confirmed"]:
        await jobs.confirm(id, "", CONFIRMED, True)
    for number, target in EDITS.items():
        if not jobs.sentences(id, "")[number]["edited"]:
            await jobs.edit(id, "", {number: target}, True)
            async for _ in jobs.events(id, ""):
                pass


def main(data, files, ids):
    document_jobs._SUSPECT_SECONDS = 0.3  # else a test of many kills takes minutes
    document_jobs._MAX_CRASHES = 1000  # a file is killed here whether it has got on or not
    asyncio.run(serve(data, files, ids))
