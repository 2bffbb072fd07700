"""Seconds of short texts alone and beside a book, and of a stop, with a `docmt serve` of its own.

python -m benchmarks.short_texts MODEL TEXT
"""

from __future__ import annotations

import json
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

TEXTS, BOOK_SENTENCES, PAUSE_SECONDS = 40, 4000, 0.2


def call(url: str, body: bytes, kind: str = "application/json") -> dict[str, Any]:
    """Return the answer to a POST."""
    request = urllib.request.Request(url, body, {"Content-Type": kind})
    with urllib.request.urlopen(request, timeout=600) as answer:
        return dict(json.load(answer))


def measure(url: str, texts: list[str]) -> list[float]:
    """Return the seconds of each text, one after the other."""
    seconds = []
    for text in texts:
        started = time.monotonic()
        call(f"{url}/v1/translate", json.dumps({"text": text}).encode())
        seconds.append(time.monotonic() - started)
        time.sleep(PAUSE_SECONDS)
    return sorted(seconds)


def upload(url: str, text: str) -> str:
    """Return the id of a new job."""
    lines = ["--border", 'Content-Disposition: form-data; name="file"; filename="book.txt"', "", text, "--border--", ""]
    return str(call(f"{url}/v1/documents", "\r\n".join(lines).encode(), "multipart/form-data; boundary=border")["id"])


def count_finished(url: str, id: str) -> int:
    """Return the translated sentences of a job."""
    with urllib.request.urlopen(f"{url}/v1/documents/{id}") as answer:
        return int(json.load(answer)["finished"])


def main() -> None:
    """Print a row of a table: alone, beside a book, sentences of the book meanwhile, and the stop."""
    model, path = sys.argv[1:]
    lines = [line.strip() for line in Path(path).read_text(encoding="utf-8").splitlines()]
    texts, book = [line for line in lines if 60 < len(line) < 140][:TEXTS], (lines * BOOK_SENTENCES)[:BOOK_SENTENCES]
    with tempfile.TemporaryDirectory() as data:
        command = [sys.executable, "-m", "docmt", "serve", model, "--port", "0", "--data", data]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert process.stderr is not None
        url = next(word for line in process.stderr for word in line.split() if word.startswith("http://"))
        measure(url, texts[:2])
        alone = measure(url, texts)
        id = upload(url, "\n".join(book))
        while not count_finished(url, id):
            time.sleep(1)
        before, started = count_finished(url, id), time.monotonic()
        beside, elapsed = measure(url, texts), time.monotonic() - started
        finished, stopped = count_finished(url, id) - before, time.monotonic()
        process.send_signal(signal.SIGTERM)
        process.wait()
        stopped = time.monotonic() - stopped
    for name, seconds in (("alone", alone), ("beside a book", beside)):
        print(f"{name}: median {statistics.median(seconds):.2f} s, p95 {seconds[int(0.95 * len(seconds))]:.2f} s")
    print(f"sentences of the book meanwhile: {finished} in {elapsed:.0f} s; stop: {stopped:.1f} s")


if __name__ == "__main__":
    main()
