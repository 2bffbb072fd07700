"""Files that go out of a job, and what comes back: translated files, both sides, and reviewed XLIFF files."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from docmt.core.errors import DocmtError
from docmt.core.files import write_text
from docmt.core.plain_text import plain_name
from docmt.formats.language_codes import format_language_tag
from docmt.serve.engine import Engine
from docmt.serve.file_process import RESULTS, WORK_PREFIX, FileProcess, JobFacts
from docmt.serve.job_journal import JobJournal
from docmt.serve.job_store import LoadedJob
from docmt.serve.job_translation import check_pairs, list_links

_MAX_DIGITS = 10
_MAX_PROBLEMS = 1000
"""Translations of a reviewed file of which is told that they are left out."""


class JobResults:
    """Writer and reader of these files. Only one call for a job may run at a time."""

    def __init__(self, engine: Engine, files: FileProcess) -> None:
        self._engine, self._files = engine, files

    async def align(self, job: LoadedJob, numbers: Sequence[int]) -> None:
        """Add links to these sentences, if they have none."""
        for number in numbers:
            sentence = job.journal.sentences[number]
            if sentence.links is None and sentence.target and not sentence.error:
                pair = job.journal.sources[number], sentence.target
                sentence.links = list_links((await self._engine.align(job.facts.model, [pair]))[0])

    async def _align_codes(self, job: LoadedJob) -> None:
        """Add links to the sentences that have codes, so that these stand where they stood in earlier results."""
        journal = job.journal
        wanted = [number for number in journal.contents.aligned if journal.sentences[number].code_links is None]
        with suppress(DocmtError):  # codes are then placed by the order of words
            await self.align(job, wanted)

    async def write(self, folder: Path, job: LoadedJob, format: str) -> Path:
        """Return the path of a result in the folder of the job, and remove those from before the last change."""
        facts, journal = job.facts, job.journal
        path = folder / f"result.{len(journal.events)}.{format}"
        if path.exists():
            return path
        if format == "terms":
            await asyncio.to_thread(write_text, path, journal.render_terms(facts.name))
            return path
        await self._align_codes(job)
        revision = f"{len(journal.events)}-{_hash_id(folder)}"
        await self._files.write(folder / "source", path, facts, journal.list_records(), format, revision=revision)
        for other in folder.glob("result.*"):
            if other.name.split(".")[1] != path.name.split(".")[1]:
                other.unlink(missing_ok=True)
        return path

    async def find_changes(
        self, folder: Path, job: LoadedJob, file: Path, name: str
    ) -> tuple[list[tuple[Any, ...]], list[str]]:
        """Return the edits of a reviewed XLIFF file, as the journal has them, and why other translations are left out.

        What was changed in the document since the file was written stays: if the file changes it, too, that is told.
        Raises DocmtError for a file that cannot be read, or of another document.
        """
        path, facts, journal = folder / f"{WORK_PREFIX}changes", job.facts, job.journal

        async def compare(state: JobJournal, restored: Collection[int] = ()) -> tuple[list[list[Any]], list[str], str]:
            records, reviewed = state.list_records(restored), (str(file.absolute()), name)
            try:
                await self._files.write(folder / "source", path, facts, records, "changes", reviewed)
                changes, problems, revision = json.loads(await asyncio.to_thread(path.read_bytes))
            finally:
                path.unlink(missing_ok=True)
            return changes, problems, revision

        await self._align_codes(job)
        changes, problems, revision = await compare(journal)
        events, _, document = revision.partition("-")
        if document == _hash_id(folder) and events.isdecimal() and len(events) < _MAX_DIGITS:
            base = await asyncio.to_thread(journal.read_earlier, int(events))
            late = {n for n, *_ in changes if base.sentences[n].visible != journal.sentences[n].visible}
            base.sentences = [(base if n in late else journal).sentences[n] for n in range(len(journal.sentences))]
            await self._align_codes(replace(job, journal=base))
            for n, target, *_ in (await compare(base))[0] if late else ():
                if n in late:
                    reason = f"“{journal.sources[n]}” was changed since this file was downloaded, so it stays"
                    problems.insert(0, f"{name}: {reason}" + (f"; the file has “{target}”" if target else ""))
            changes = [each for each in changes if each[0] not in late]
        edited = {n: each.machine.target for n, each in enumerate(journal.sentences) if each.edited and each.machine}
        restored = {number for number, target, *_ in changes if target is not None and edited.get(number) == target}
        if restored:  # with the codes of the machine's version, too, they are no edits
            others = (await compare(journal, restored))[0]
            restored -= {number for number, target, *_ in others if target is not None}
        changes = [[*each[:3], None if each[0] in restored else each[3]] for each in changes]
        pairs = [(journal.sources[number], target or "") for number, target, *_ in changes]
        findings = await asyncio.to_thread(check_pairs, pairs, facts, self._engine.models.patterns or ())
        edits = [(*each[:2], messages, *each[2:]) for each, messages in zip(changes, findings, strict=True)]
        return edits, problems[:_MAX_PROBLEMS]


def _hash_id(folder: Path) -> str:
    """Return a name of a document that does not tell its id, which lets who knows it in."""
    return hashlib.sha256(folder.name.encode()).hexdigest()[:16]


def count_edits(edits: Sequence[tuple[Any, ...]], journal: JobJournal) -> dict[str, int]:
    """Return how many sentences edits change or confirm, and how many of the user's own sentences they replace."""
    changed = [number for number, target, *_ in edits if target is not None]
    return {
        "changed": len(changed),
        "replaced": sum(journal.sentences[number].edited for number in changed),
        "confirmed": sum(is_confirmed for *_, is_confirmed, _ in edits),
    }


def name_result(facts: JobFacts, format: str) -> str:
    """Return report.fr.docx for report.docx, and report.en-fr.html for both sides of it; XLIFF 1.2 is named so."""
    path = Path(plain_name(facts.name))
    codes = facts.source_language, facts.target_language
    source, target = (format_language_tag(code) if code else "" for code in codes)
    label = target or "translated"
    if format not in ("original", "txt") and source and target:
        label = f"{source}-{target}" + ".xliff12" * (format == "xlf12")
    return f"{path.stem}.{label}{RESULTS[format] or path.suffix}"
