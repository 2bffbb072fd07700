"""A server that answers as tests say: with the interfaces of OpenAI, LibreTranslate, DeepL and docmt."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import yaml


def translate_words(text: str) -> str:
    """Return a translation of the made-up target language: each word of letters gets the ending -o."""
    words = [word.split("(Use these words")[0] for word in text.split("\n\n(")[0].split(" ")]
    return " ".join(word[:1] + word[1:] + "o" if word.isalpha() else _inside(word) for word in words)


def _inside(word: str) -> str:
    stem = word.rstrip(".,;:!?")
    return f"{stem}o{word[len(stem) :]}" if stem.isalpha() else word


@dataclass
class FakeServer:
    """What the server was asked, and how it answers."""

    answer: Callable[[str, int], Any] = lambda text, number: translate_words(text)
    """the translation of a text; number: of the request, from 1. A callable answer gets the handler, and says it all"""
    url: str = ""
    stream: bool = False
    requests: list[dict[str, Any]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    most_at_once: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)
    running: int = 0

    def texts(self) -> list[str]:
        """Return the texts that were asked."""
        return [find_text(body) for body in self.requests]


def find_text(body: dict[str, Any]) -> str:
    """Return the text to translate in a request."""
    if "messages" in body:
        content = body["messages"][-1]["content"]
        text = content if isinstance(content, str) else content[0]["text"]
        return str(text).removeprefix("Translate into French:\n")
    for name in ("prompt", "q"):
        if name in body:
            return str(body[name])
    return str((body.get("sentences") or body.get("text"))[0])


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    fake: FakeServer

    def log_message(self, *arguments: Any) -> None:
        """Say nothing."""

    def do_POST(self) -> None:
        """Answer a request."""
        fake = self.fake
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with fake.lock:
            fake.requests.append(body)
            fake.paths.append(self.path)
            fake.headers.append(dict(self.headers))
            number = len(fake.requests)
            fake.running += 1
            fake.most_at_once = max(fake.most_at_once, fake.running)
        try:
            answer = fake.answer(find_text(body), number)
        finally:
            with fake.lock:  # before the answer, which the client may be faster to read
                fake.running -= 1
        if callable(answer):
            answer(self)
        else:
            self.say(answer, body)

    def say(self, text: Any, body: dict[str, Any], reason: str = "stop") -> None:
        """Answer with a translation, in the interface of the path."""
        usage = {"prompt_tokens": 7, "completion_tokens": 3}
        if self.path.endswith("/chat/completions") and body.get("stream"):
            pieces = [{"choices": [{"delta": {"content": part}}]} for part in text.split("|")]
            pieces.append({"choices": [{"delta": {}, "finish_reason": reason}], "usage": usage})
            lines = "".join(f"data: {json.dumps(each)}\n\n" for each in pieces) + "data: [DONE]\n\n"
            self.send(200, lines, "text/event-stream")
            return
        rows = [{"logprob": -0.5}, {"logprob": -0.25}] if body.get("logprobs") else None
        choice = {"message": {"content": text}, "finish_reason": reason, "logprobs": rows and {"content": rows}}
        values = {
            "/chat/completions": {"choices": [choice], "usage": usage},
            "/completions": {"choices": [{"text": text, "finish_reason": reason}], "usage": usage},
            "/v2/translate": {"translations": [{"text": text}]},
            "/v1/translate": {"sentences": [{"target": text}]},
            "/translate": {"translatedText": text},
        }
        self.send(200, json.dumps(next(value for path, value in values.items() if self.path.endswith(path))))

    def send(self, status: int, text: str, kind: str = "application/json", **headers: str) -> None:
        """Answer with this text."""
        data = text.encode()
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(data)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(data)


@contextmanager
def serving(
    answer: Callable[[str, int], Any] | None = None, context: ssl.SSLContext | None = None
) -> Iterator[FakeServer]:
    """Run a fake server while the block runs. context: with a certificate, for https."""
    fake = FakeServer() if answer is None else FakeServer(answer)
    handler = type("Handler", (_Handler,), {"fake": fake})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    fake.url = f"http{'s' * (context is not None)}://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield fake
    finally:
        server.shutdown()
        server.server_close()


def write_profile(path: Path, url: str, **settings: Any) -> str:
    """Write a profile for English-French and return its MODEL."""
    values = {"profile": "chat", "url": url, "model": "m", "source_language": "en", "target_language": "fr"}
    values |= {"aligner": "none"} | settings
    path.write_text(yaml.safe_dump(values))
    return f"endpoint:{path}"
