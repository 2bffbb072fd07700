"""A server of jobs in a process that may be killed: python job_process.py DATA [FILE ...].

It writes the id of each new job, and ends when no job is active.
"""

import asyncio
import sys
from pathlib import Path

from fake_engine import FakeEngine

from docmt.serve import document_jobs
from docmt.serve.document_jobs import DocumentJobs, DocumentOptions

document_jobs._SUSPECT_SECONDS = 0.3  # else a test of many kills takes minutes

CONFIRMED = 20
EDITS = {5: "Written by a person.", 11: "Also by a person."}


async def serve(data, files):
    jobs = DocumentJobs(FakeEngine(step=3, seconds=0.002), data)
    await jobs.start()
    for file in files:
        status = await jobs.create(file, DocumentOptions(name=file.name, context="Before. Just before."), "")
        print(status.id, flush=True)
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


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1]), list(map(Path, sys.argv[2:]))))
