"""Load on `docmt serve`: answers beside those of the translator alone, latency, memory, and throughput.

python -m benchmarks.service MODEL TEXT [--clients N] [--seconds N] [--hostile] [--output FILE.json]

TEXT: a sentence a line. The clients send short texts, lists and documents, and leave a third of the requests before
the answer comes. Beside them a book is translated. `--hostile` adds clients that want to hurt, with a key of their own.
Every ordinary client has a key, too. At last the lines go through `Translator` alone, for the same
sentences a second.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from benchmarks.hostile_clients import HostileClients
from docmt import Document, Translator
from docmt.core.files import write_text

CANCELLED_SHARE = 1 / 3
DOCUMENT_CLIENTS = 20  # one client of so many sends documents
PORT = 5987
_MEMORY_SECONDS = 5.0


@dataclass
class Record:
    """Counts of a run."""

    answers: Counter[str] = field(default_factory=Counter)
    """by kind of request and outcome"""
    sentences: int = 0
    book: int = 0
    """translated sentences of the book"""
    seconds: dict[str, list[float]] = field(default_factory=dict)
    """latencies of whole answers, by kind"""
    megabytes: list[float] = field(default_factory=list)
    """resident memory of the server"""
    descriptors: list[int] = field(default_factory=list)
    """open files and connections of the server"""
    hostile: Counter[str] = field(default_factory=Counter)
    """what hostile clients got"""

    def count(self, kind: str, outcome: str, sentences: int, seconds: float) -> None:
        """Count an answer; outcome: right, wrong, refused, cancelled, or an HTTP status."""
        self.answers[f"{kind}: {outcome}"] += 1
        if outcome == "right":
            self.sentences += sentences
            self.seconds.setdefault(kind, []).append(seconds)


class Client:
    """One client: sends random requests one after the other and checks the answers."""

    def __init__(self, http: httpx.AsyncClient, expected: dict[str, str], record: Record, seed: int) -> None:
        self._http, self._expected, self._record = http, expected, record
        self._random, self._lines, self._retry_after = random.Random(seed), list(expected), 1
        self._sends_documents = seed % DOCUMENT_CLIENTS == 0

    async def run(self, until: float) -> None:
        """Send requests until a time."""
        while time.monotonic() < until:
            kind = "document" if self._sends_documents else self._random.choices(["short", "list"], [8, 2])[0]
            count = {"short": self._random.randint(1, 3), "list": 8, "document": self._random.randint(20, 60)}[kind]
            lines = self._random.sample(self._lines, count)
            started = time.monotonic()
            request = asyncio.ensure_future(getattr(self, f"_send_{kind}")(lines))
            if self._random.random() < CANCELLED_SHARE:
                await asyncio.sleep(self._random.random() * 2)
                if not request.done():
                    request.cancel()
                    await asyncio.gather(request, return_exceptions=True)
                    self._record.count(kind, "cancelled", count, 0.0)
                    continue
            done, _ = await asyncio.wait([request], timeout=max(until - time.monotonic(), 0))
            if not done:
                request.cancel()
                await asyncio.gather(request, return_exceptions=True)
                return
            outcome = request.result()
            self._record.count(kind, outcome, count, time.monotonic() - started)
            if outcome == "refused":
                pause = self._retry_after * (1 + self._random.random())
                await asyncio.sleep(max(min(pause, until - time.monotonic()), 0))

    async def _send_short(self, lines: list[str]) -> str:
        answer = await self._http.post("/v1/translate", json={"sentences": lines})
        return self._judge(answer, lines, lambda body: [sentence["target"] for sentence in body["sentences"]])

    async def _send_list(self, lines: list[str]) -> str:
        answer = await self._http.post("/translate", json={"q": lines, "source": "en", "target": "fr"})
        return self._judge(answer, lines, lambda body: body["translatedText"])

    async def _send_document(self, lines: list[str]) -> str:
        text = "\n\n".join(lines)
        answer = await self._http.post("/v1/documents", json={"text": text})
        if answer.status_code != 202:
            return self._judge(answer, lines, lambda body: [])
        path = f"/v1/documents/{answer.json()['id']}"
        try:
            while (await self._http.get(path)).json()["status"] in ("queued", "running"):
                await asyncio.sleep(0.5)
        except asyncio.CancelledError:
            await self._http.delete(path)
            raise
        answer = await self._http.get(f"{path}/sentences")
        return self._judge(answer, lines, lambda body: [sentence["target"] for sentence in body["sentences"]])

    def _judge(self, answer: httpx.Response, lines: list[str], read: Any) -> str:
        if answer.status_code == 429:
            self._retry_after = int(answer.headers["Retry-After"])
            return "refused"
        if answer.status_code != 200:
            return str(answer.status_code)
        return "right" if read(answer.json()) == [self._expected[line] for line in lines] else "wrong"


async def run_clients(
    expected: dict[str, str], clients: int, seconds: float, process: int, keys: Sequence[str]
) -> Record:
    """Run all clients beside a book, and watch the server. keys: of the clients, and of hostile ones if any."""
    record, until = Record(), time.monotonic() + seconds
    limits = httpx.Limits(max_connections=clients + 10, max_keepalive_connections=clients)
    headers = {"Authorization": f"Bearer {keys[0]}"}
    async with httpx.AsyncClient(
        base_url=f"http://127.0.0.1:{PORT}", timeout=600, limits=limits, headers=headers
    ) as http:
        book = "\n\n".join(list(expected) * 50)
        answer = await http.post("/v1/documents", json={"text": book})

        async def watch() -> None:
            while time.monotonic() < until:
                status = Path(f"/proc/{process}/status").read_text(encoding="utf-8")
                record.megabytes.append(int(status.split("VmRSS:")[1].split()[0]) / 1024)
                record.descriptors.append(len(list(Path(f"/proc/{process}/fd").iterdir())))
                await asyncio.sleep(_MEMORY_SECONDS)
            record.book = (await http.get(f"/v1/documents/{answer.json()['id']}")).json()["finished"]

        workers = [Client(http, expected, record, seed).run(until) for seed in range(clients)]
        hostile = [HostileClients(PORT, key) for key in keys[1:]]
        await asyncio.gather(watch(), *workers, *(each.run(until) for each in hostile))
        record.hostile.update(*(each.answers for each in hostile))
    return record


def summarize(record: Record, seconds: float, alone: float) -> dict[str, Any]:
    """Return the figures of a run; alone: sentences a second of the translator."""
    latencies = {kind: sorted(values) for kind, values in record.seconds.items()}
    return {
        "answers": dict(sorted(record.answers.items())),
        "seconds (median, p95)": {
            kind: [round(values[int(len(values) * share)], 2) for share in (0.5, 0.95)]
            for kind, values in latencies.items()
        },
        "megabytes, a value each minute": [round(value) for value in record.megabytes[:: int(60 / _MEMORY_SECONDS)]],
        "descriptors, a value each minute": record.descriptors[:: int(60 / _MEMORY_SECONDS)],
        "hostile": dict(sorted(record.hostile.items())),
        "sentences": {"answers": record.sentences, "book": record.book},
        "sentences a second": round((record.sentences + record.book) / seconds, 1),
        "sentences a second of the translator alone": round(alone, 1),
    }


def main() -> None:
    """Start a server, load it, and print the figures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.service", description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("text", type=Path)
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--hostile", action="store_true")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    lines = [line.strip() for line in options.text.read_text(encoding="utf-8").splitlines()]
    texts = [text for text in dict.fromkeys(map(Document.from_text, lines)) if len(text) == 1]
    translator, started = Translator(options.model), time.monotonic()
    translations = translator.translate_all(texts)
    expected = {str(text).strip(): str(each) for text, each in zip(texts, translations, strict=True)}
    alone = len(texts) / (time.monotonic() - started)
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "docmt", "serve", "--data", folder]
        names = ["ordinary", "hostile"][: 1 + options.hostile]
        keys = [subprocess.check_output([*command, "--create-key", name], text=True).split()[-1] for name in names]
        command += [str(options.model), "--port", str(PORT)]
        server = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        try:
            wait_for_server()
            record = asyncio.run(run_clients(expected, options.clients, options.seconds, server.pid, keys))
        finally:
            stop = measure_stop(server)
        started = time.monotonic()
        server = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        wait_for_server()
        start = time.monotonic() - started
        measure_stop(server)
    figures = summarize(record, options.seconds, alone)
    figures["seconds to stop, and to start again"] = [round(stop, 1), round(start, 1)]
    print(json.dumps(figures, indent=1))
    if options.output:
        write_text(options.output, json.dumps(figures, indent=1) + "\n")


def measure_stop(server: subprocess.Popen[bytes]) -> float:
    """Stop a server, and return the seconds that it took."""
    started = time.monotonic()
    server.terminate()
    server.wait(60)
    return time.monotonic() - started


def wait_for_server() -> None:
    """Wait until the server answers. Raises TimeoutError after a minute."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        try:
            if httpx.get(f"http://127.0.0.1:{PORT}/health").status_code == 200:
                return
        except httpx.TransportError:
            time.sleep(0.3)
    raise TimeoutError("the server does not answer")


if __name__ == "__main__":
    main()
