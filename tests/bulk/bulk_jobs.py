"""Bulk jobs with a tiny model, and what they leave."""

import json
from pathlib import Path

from commands import call

TEXTS = ["a few words", "a few more words. more words", "words", "few. a few. few more", "more", "a word. few words"]
QUICK = ["--beam", "1", "--max-length-extra", "4", "--shard-tokens", "40", "-q"]
DOCUMENTS = 12


def write_rows(path, rows):
    """Write JSONL."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def write_corpus(folder):
    """Write JSONL with texts."""
    rows = [{"id": f"d{n}", "text": TEXTS[n % len(TEXTS)], "url": f"u{n}"} for n in range(DOCUMENTS)]
    return write_rows(folder / "corpus.jsonl", rows)


def bulk(model, *arguments, status=0):
    """Run a worker in this process."""
    outcome = call("bulk", model, *arguments, *QUICK)
    assert outcome.status == status, outcome
    return outcome


def read_parts(job):
    """Return the bytes of all results of a job, by path."""
    folders = [Path(job) / name for name in ("output", "failed")]
    files = sorted(path for folder in folders for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(job).as_posix(): path.read_bytes() for path in files}


def read_records(job):
    """Return the records of all parts of a JSONL job."""
    parts = sorted((Path(job) / "output").iterdir())
    return [json.loads(line) for part in parts for line in part.read_bytes().splitlines()]


def is_clean(job):
    """Return whether nothing is left of workers."""
    state = Path(job) / "state"
    left = [path for name in ("waiting", "claimed", "workers") for path in (state / name).iterdir()]
    return left == [] and not list(Path(job).rglob(".*"))
