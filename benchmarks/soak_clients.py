"""Clients of a soak: they translate, send what is broken, are slow, and leave at any moment."""

from __future__ import annotations

import gzip
import http.client
import io
import json
import random
import socket
import sys
import threading
import time
import urllib.parse
import zipfile
from collections import Counter
from collections.abc import Sequence
from typing import Any

TEXT = "The lamp is old. It is not cheap, but Anna likes it. She bought it in a small shop near the river.\n\n" * 3
LINES = TEXT.split("\n\n")[0].split(". ")
_WAIT_SECONDS = 600
"""After so long without an answer, there is none."""
_LEAVING, _SLOW = 0.2, 0.1
"""Shares of requests whose client leaves, or is slow."""
_MOMENTS = ("head", "body", "waiting", "answer")
"""When a client leaves."""
_EARLY = (409, 429, 503)
"""Statuses that may refuse a good request: it comes too early, or too much waits."""
_JSON, _FORM = "application/json", "application/x-www-form-urlencoded"
_PAGES = ("/", "/health", "/metrics", "/v1/models", "/v1/languages", "/languages", "/v2/usage")
JUNK: tuple[tuple[str, bytes, str], ...] = (
    ("/v1/translate", b'{"text": "a few', _JSON),
    ("/v1/translate", b'{"text": 7, "alternatives": "many"}', _JSON),
    ("/v1/translate", b"[" * 20_000, _JSON),
    ("/v1/translate", b"\xff\xfe\x00", _JSON),
    ("/v1/translate", b'{"sentences": [null]}', _JSON),
    ("/v1/documents", b'{"text": "", "format": "exe"}', _JSON),
    ("/v1/documents/none/sentences/1", b'{"target": "a"}', _JSON),
    ("/translate", b"q=%ff&target=fr", _FORM),
    ("/translate", b'{"q": "a", "source": "xx", "target": "yy"}', _JSON),
    ("/translate", json.dumps({"q": "a " * 60_000, "source": "en", "target": "fr"}).encode(), _JSON),
    ("/translate_file", b"--b\r\n: \r\n\r\n--b--", "multipart/form-data; boundary=b"),
    ("/v2/translate", b'{"text": ["a"], "target_lang": "FR", "formality": "more"}', _JSON),
    ("/v2/document", b"x" * 1000, "multipart/form-data"),
    ("/v2/translate", b"a" * 5_000_000, _JSON),
    ("/none", b"{}", "text/html"),
)
GARBAGE = (
    b"\0\1\2\3\r\n\r\n",
    b"GET /health HTTP/9.9\r\n\r\n",
    b"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n",
    b"POST /translate HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n\r\n",
    b"GET /v1/models HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n",
)


def make_files() -> dict[str, bytes]:
    """Return small documents by name."""
    docx, word = io.BytesIO(), "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
    paragraphs = "".join(f"<w:p><w:r><w:t>{line}</w:t></w:r></w:p>" for line in LINES)
    with zipfile.ZipFile(docx, "w", zipfile.ZIP_DEFLATED) as file:
        types = "http://schemas.openxmlformats.org/package/2006/content-types"
        main = "application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"
        part = f'<Override PartName="/word/document.xml" ContentType="{main}"/>'
        file.writestr("[Content_Types].xml", f'<Types xmlns="{types}">{part}</Types>')
        file.writestr("word/document.xml", f'<w:document xmlns:w="{word}"><w:body>{paragraphs}</w:body></w:document>')
    texts = {
        "a.txt": TEXT,
        "a.html": "<html><body>" + "".join(f"<p>{line} <b>and</b> so on.</p>" for line in LINES) + "</body></html>",
        "a.md": "# A lamp\n\n" + TEXT,
        "a.srt": "".join(f"{n}\n00:00:0{n},000 --> 00:00:0{n},900\n{line}\n\n" for n, line in enumerate(LINES, 1)),
        "a.po": 'msgid ""\nmsgstr ""\n"Content-Type: text/plain; charset=UTF-8\\n"\n\nmsgid "It is old."\nmsgstr ""\n',
        "a.vtt": "WEBVTT\n\n" + "".join(f"00:0{n}.000 --> 00:0{n}.900\n{line}\n\n" for n, line in enumerate(LINES)),
    }
    return {"a.docx": docx.getvalue(), **{name: text.encode() for name, text in texts.items()}}


def damage(name: str, data: bytes, chance: random.Random) -> tuple[str, bytes]:
    """Return a broken file: empty, cut, with wrong bits, random, of another type, or truncated after compression."""
    changed = bytearray(data)
    for _ in range(5):
        changed[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    compressed = gzip.compress(data)
    choices = [
        (name, b""),
        (name, data[: chance.randrange(len(data))]),
        (name, bytes(changed)),
        (name, chance.randbytes(chance.choice([1, 100, 5000]))),
        (name + chance.choice([".docx", ".epub", ".xliff", ".exe", ""]), data),
        (f"{name}.gz", compressed[: chance.randrange(len(compressed))]),
    ]
    return chance.choice(choices)


class Tally:
    """Counts of all clients, and what went wrong."""

    def __init__(self) -> None:
        self._lock, self.counts, self.faults = threading.Lock(), Counter[str](), list[str]()

    def count(self, outcome: str, number: int = 1) -> None:
        """Count outcomes: answered, refused, good_refused (of these), left, documents, lost."""
        with self._lock:
            self.counts[outcome] += number

    def blame(self, fault: str) -> None:
        """Count a fault."""
        with self._lock:
            self.counts["faults"] += 1
            self.faults.append(fault)
            print(f"fault: {fault}", file=sys.stderr, flush=True)

    def select(self, names: Sequence[str]) -> dict[str, int]:
        """Return the counts of these names."""
        return {name: self.counts[name] for name in names}

    def judge(self, name: str, status: int, body: bytes, is_good: bool = False) -> bool:
        """Count an answer, and return whether it is one: not a refusal. is_good: whether the request was."""
        if 200 <= status < 300:
            self.count("answered")
            return True
        if not (400 <= status < 500 or status == 503) or not _find_sentence(body):
            self.blame(f"{name}: {status} {body[:200]!r}")
        elif is_good and status not in _EARLY:
            self.count("refused")
            self.count("good_refused")
            print(f"refused, though good: {name}: {body[:200]!r}", file=sys.stderr, flush=True)
        else:
            self.count("refused")
        return False


def _find_sentence(body: bytes) -> str:
    """Return the reason in a refusal; empty if there is none."""
    try:
        values = json.loads(body)
    except ValueError:
        return body.decode(errors="replace").strip()
    return str(values.get("error") or values.get("message") or "") if isinstance(values, dict) else ""


class Client(threading.Thread):
    """A client that sends one random request after the other until it is asked to stop."""

    def __init__(self, port: int, tally: Tally, stop: threading.Event, seed: int, pause: float) -> None:
        """pause: longest time between two works, in seconds."""
        super().__init__(name=f"client-{seed}", daemon=True)
        self._port, self._tally, self._stop_event, self._pause = port, tally, stop, pause
        self._chance, self._files = random.Random(seed), make_files()

    def run(self) -> None:
        """Work until the event is set."""
        works = [self._send_text, self._send_document, self._send_file, self._send_deepl_file, self._send_junk]
        while not self._stop_event.wait(self._chance.random() * self._pause):
            work = self._chance.choices(works, [10, 3, 1, 1, 4])[0]
            try:
                work()
            except Exception as error:  # an answer in another shape than documented
                self._tally.blame(f"{work.__name__}: {error!r}")

    def request(
        self, method: str, path: str, body: bytes = b"", kind: str = _JSON, is_good: bool = True, stays: bool = False
    ) -> bytes | None:
        """Return the answer; None if the request was refused, failed, or left alone."""
        moment = "" if stays or self._chance.random() > _LEAVING else self._chance.choice(_MOMENTS)
        try:
            return self._exchange(method, path, body, kind, is_good, moment)
        except (OSError, http.client.HTTPException) as error:
            self._tally.blame(f"{method} {path}: {error!r}")
            return None

    def _exchange(self, method: str, path: str, body: bytes, kind: str, is_good: bool, moment: str) -> bytes | None:
        pause = self._chance.random() * 3 if self._chance.random() < _SLOW else 0.0
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=_WAIT_SECONDS)
        try:
            connection.connect()
            if moment == "head":
                connection.sock.sendall(f"{method} {path} HTTP/1.1\r\nHost: local".encode())
                return self._leave()
            connection.putrequest(method, path)
            connection.putheader("Content-Type", kind)
            connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body[: len(body) // 2])
            time.sleep(pause)
            if moment == "body":
                return self._leave()
            connection.send(body[len(body) // 2 :])
            if moment == "waiting":
                time.sleep(self._chance.random())
                return self._leave()
            answer = connection.getresponse()
            data = answer.read1(20)
            time.sleep(pause)
            if moment == "answer":
                return self._leave()
            data += answer.read()
            return data if self._tally.judge(f"{method} {path}", answer.status, data, is_good) else None
        finally:
            connection.close()

    def _leave(self) -> None:
        self._tally.count("left")

    def _send(self, path: str, values: dict[str, Any]) -> dict[str, Any] | None:
        answer = self.request("POST", path, json.dumps(values).encode())
        return None if answer is None else json.loads(answer)

    def _send_text(self) -> None:
        """Send a text by one of the interfaces."""
        lines = self._chance.choices(LINES, k=self._chance.randint(1, 8))
        text, pair = ". ".join(lines), {"source": "en", "target": "fr"}
        match self._chance.randrange(6):
            case 0:
                self._send("/v1/translate", {"text": text, "context": TEXT[:40], "alignments": True})
            case 1:
                answer = self._send("/v1/translate", {"sentences": lines, "alternatives": self._chance.randrange(3)})
                if answer is not None and len(answer["sentences"]) != len(lines):
                    self._tally.blame("/v1/translate: not as many sentences as were sent")
            case 2:
                answer = self._send("/translate", {"q": lines, **pair})
                if answer is not None and len(answer["translatedText"]) != len(lines):
                    self._tally.blame("/translate: not as many texts as were sent")
            case 3:
                self._send("/translate", {"q": f"<p>{text} <b>and</b> so on.</p>", "format": "html", **pair})
            case 4:
                self.request("POST", "/translate", urllib.parse.urlencode({"q": text, **pair}).encode(), _FORM)
            case 5:
                self._send("/v2/translate", {"text": lines, "target_lang": "FR", "context": TEXT[:40]})

    def _upload(self, path: str, **fields: str) -> tuple[dict[str, Any] | None, bool]:
        """Send a file, perhaps a broken one. Return the answer, and whether the file was good."""
        name, data = self._chance.choice(list(self._files.items()))
        is_good = self._chance.random() < 0.6
        if not is_good:
            name, data = damage(name, data, self._chance)
        form = "".join(
            f'--b\r\ncontent-disposition: form-data; name="{key}"\r\n\r\n{fields[key]}\r\n' for key in fields
        )
        form += f'--b\r\ncontent-disposition: form-data; name="file"; filename="{name}"\r\n\r\n'
        body = form.encode() + data + b"\r\n--b--\r\n"
        answer = self.request("POST", path, body, "multipart/form-data; boundary=b", is_good)
        return None if answer is None else json.loads(answer), is_good

    def _wait(self, path: str, done: tuple[str, ...]) -> str:
        """Return the status of a document at its end."""
        until, status = time.monotonic() + _WAIT_SECONDS, ""
        while time.monotonic() < until and status not in done:
            time.sleep(0.5)
            if (answer := self.request("GET", path, stays=True)) is None:
                return ""
            status = json.loads(answer)["status"]
        if status not in done:
            self._tally.blame(f"GET {path}: still {status} after {_WAIT_SECONDS} s")
        return status

    def _send_document(self) -> None:
        """Translate a document, watch it, edit it, fetch results, and perhaps delete it, at once or at the end."""
        answer, is_good = self._upload("/v1/documents")
        if answer is None:
            return
        path = f"/v1/documents/{answer['id']}"
        if self._chance.random() < 0.1:
            self.request("DELETE", path)
            return
        self.request("GET", f"{path}/events")
        if self._wait(path, ("done", "failed", "cancelled")) == "done" and answer["sentences"]:
            number = self._chance.randrange(answer["sentences"])
            self.request("GET", f"{path}/sentences/{number}/alternatives?count=2")
            self.request("GET", f"{path}/sentences/{number}/alignment")
            edit = {"target": "Written by hand.", "retranslate": self._chance.random() < 0.5}
            self.request("POST", f"{path}/sentences/{number}", json.dumps(edit).encode())
            self.request("GET", f"{path}/sentences")
            self.request(
                "GET", f"{path}/result?format={self._chance.choice(['original', 'html', 'xlf'])}", is_good=is_good
            )
        if self._chance.random() < 0.5:
            self.request("DELETE", path)

    def _send_file(self) -> None:
        """Translate a file as LibreTranslate's clients do."""
        answer, _ = self._upload("/translate_file", source="en", target="fr")
        if answer is not None:
            self.request("GET", urllib.parse.urlsplit(answer["translatedFileUrl"]).path)

    def _send_deepl_file(self) -> None:
        """Translate a file as DeepL's clients do."""
        answer, is_good = self._upload("/v2/document", target_lang="FR")
        if answer is None:
            return
        path, key = f"/v2/document/{answer['document_id']}", f"?document_key={answer['document_key']}"
        if self._wait(path + key, ("done", "error")) == "done":
            self.request("GET", f"{path}/result{key}", is_good=is_good)

    def _send_junk(self) -> None:
        """Look at a page, or send what no client should."""
        match self._chance.randrange(3):
            case 0:
                self.request("GET", self._chance.choice(_PAGES))
            case 1:
                path, body, kind = self._chance.choice(JUNK)
                self.request("POST", path, body, kind, is_good=False)
            case 2:
                garbage = self._chance.choice(GARBAGE)
                with socket.create_connection(("127.0.0.1", self._port), timeout=_WAIT_SECONDS) as connection:
                    connection.sendall(garbage)
                    head, _, body = connection.recv(65_536).partition(b"\r\n\r\n")
                    words = head.split()
                    body = body or connection.recv(65_536)
                self._tally.judge(repr(garbage[:40]), int(words[1]) if len(words) > 1 else 0, body)
