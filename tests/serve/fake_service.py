"""A small server with the routes that the page calls, whose translations are canned and whose pace a test sets."""

import asyncio
import json
import re
import socket
import threading
import time
from dataclasses import dataclass, field
from importlib.resources import files

import uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

PAGE = files("docmt.serve") / "page"
MODEL = {"name": "tiny", "source_language": "en", "target_language": "fr"}


@dataclass
class FakeDocument:
    """A document with the log of its events."""

    id: str
    name: str
    sentences: list
    file: bytes = b""
    events: list = field(default_factory=list)
    finished: int = 0
    status: str = "running"

    def log(self, name, data):
        self.events.append((len(self.events) + 1, name, dict(data)))

    def describe(self):
        languages = {key: value for key, value in MODEL.items() if key != "name"}
        numbers = {"sentences": len(self.sentences), "finished": self.finished, "skipped": {}, "error": ""}
        head = {
            "id": self.id,
            "status": self.status,
            "name": self.name,
            "model": "tiny",
            "created": "2026-01-02T03:04:05Z",
            "format": "docx",
        }
        return head | languages | numbers

    def translate(self, context=""):
        """Translate the next sentence."""
        sentence = self.sentences[self.finished]
        sentence["target"] = f"{context}fr {sentence['source']}"
        self.finished += 1
        self.log("sentence", sentence)
        self.log("progress", {"finished": self.finished, "sentences": len(self.sentences)})
        if self.finished == len(self.sentences):
            self.status = "done"
            self.log("done", self.describe())

    def edit(self, number, target, retranslate):
        self.sentences[number] |= {"target": target, "edited": True}
        self.log("sentence", self.sentences[number])
        if retranslate:
            self.finished, self.status = number + 1, "running"
            while self.status == "running":
                self.translate(context="then ")
        else:
            self.log("done", self.describe())


def split_text(text):
    """Return the sentences of a text, as the API gives them. One with "odd" in it is doubtful."""
    sentences = []
    for paragraph, line in enumerate(filter(None, text.split("\n"))):
        for source in re.split(r"(?<=[.!?]) ", line):
            odd = "odd" in source
            findings = ["number: 7 is missing"] if "7" in source else []
            sentence = {"number": len(sentences), "paragraph": paragraph, "source": source, "target": None}
            marks = {"score": -20.0 if odd else -1.0, "tokens": 10, "warnings": [], "findings": findings}
            sentences.append(sentence | marks | {"edited": False, "confirmed": False})
    return sentences


class FakeService:
    """The server. It can be stopped and started again, and keeps its documents."""

    def __init__(self):
        self.documents = {}
        self.hold_after = 10**9  # sentences of a document after which it waits
        self.key = ""
        self.reads_context = True
        self.systems = ["tiny"]  # of the models, which are also their names
        self.models_known = threading.Event()  # until it is set, the list of models is not answered
        self.models_known.set()
        self.typed, self.held = [], set()  # texts to translate while they are typed, and those that wait
        self.streams = True  # else the stream of events stays empty, as behind some proxies
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        self.socket.close()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}/"

    def start(self):
        config = uvicorn.Config(self.make_app(), port=self.port, log_level="critical", timeout_graceful_shutdown=1)
        self.server = uvicorn.Server(config)
        self.thread = threading.Thread(target=self.server.run, daemon=True)
        self.thread.start()
        while not self.server.started:
            time.sleep(0.01)

    def stop(self):
        self.server.should_exit = True
        self.thread.join()

    def make_app(self):
        document = "/v1/documents/{id}"
        routes = [
            Route("/", self.show_page),
            Mount("/page", StaticFiles(directory=str(PAGE))),
            Route("/v1/models", self.list_models),
            Route("/v1/translate", self.translate, methods=["POST"]),
            Route("/v1/documents", self.create, methods=["POST"]),
            Route("/v1/documents", self.list_documents),
            Route(document, self.describe, methods=["GET"]),
            Route(document, self.delete, methods=["DELETE"]),
            Route(document + "/sentences", self.list_sentences),
            Route(document + "/events", self.stream),
            Route(document + "/result", self.send_result),
            Route(document + "/sentences", self.edit, methods=["POST"]),
            Route(document + "/sentences/{number:int}/alternatives", self.list_alternatives),
            Route(document + "/sentences/{number:int}/alignment", self.align),
        ]
        return Starlette(routes=routes)

    async def show_page(self, request):
        text = (PAGE / "index.html").read_text(encoding="utf-8")
        return Response(text, media_type="text/html", headers={"Content-Security-Policy": "default-src 'self'"})

    async def list_models(self, request):
        while not self.models_known.is_set():
            await asyncio.sleep(0.01)
        if self.key and request.headers.get("Authorization") != f"Bearer {self.key}":
            return JSONResponse({"error": "This server asks for a key."}, 401)
        facts = {"reads_context": self.reads_context}
        return JSONResponse({"models": [MODEL | facts | {"name": each, "system": each} for each in self.systems]})

    async def translate(self, request):
        """Translate a text that is being typed, when the test lets it."""
        text = (await request.json())["text"]
        self.typed.append(text)
        while text in self.held:
            await asyncio.sleep(0.01)
        return JSONResponse({"text": f"fr {text}", "detected_language": "", **MODEL})

    async def create(self, request):
        if request.headers["Content-Type"] == "application/json":
            values = await request.json()
            name, data = values["name"], values["text"].encode()
        else:
            file = (await request.form())["file"]
            name, data = file.filename, await file.read()
        if b"\0bad" in data:
            return JSONResponse({"error": f"{name} is broken. Save it again."}, 422)
        document = FakeDocument(f"id{len(self.documents)}", name, split_text(data.decode(errors="replace")), data)
        self.documents[document.id] = document
        if not document.sentences:
            document.status = "done"
            document.log("done", document.describe())
        return JSONResponse(document.describe(), 202)

    async def list_documents(self, request):
        return JSONResponse({"documents": []})

    def find(self, request):
        return self.documents[request.path_params["id"]]

    async def describe(self, request):
        if request.path_params["id"] not in self.documents:
            return JSONResponse({"error": "There is no such document."}, 404)
        return JSONResponse(self.find(request).describe())

    async def delete(self, request):
        document = self.find(request)
        if document.status == "running":
            document.status = "cancelled"
            document.log("done", document.describe())
        elif "keep" not in request.query_params:
            del self.documents[document.id]
        return JSONResponse(document.describe())

    async def list_sentences(self, request):
        if request.path_params["id"] not in self.documents:
            return JSONResponse({"error": "There is no such document."}, 404)
        document = self.find(request)
        return JSONResponse({"sentences": document.sentences, "last_event": len(document.events)})

    async def stream(self, request):
        document = self.find(request)
        after = int(request.headers.get("Last-Event-ID", 0))
        events = self.send_events(document, after) if self.streams else iter(())
        return StreamingResponse(events, media_type="text/event-stream")

    async def send_events(self, document, after):
        while not self.server.should_exit:
            if document.status == "running" and document.finished < self.hold_after:
                document.translate()
            latest = {data["number"]: number for number, name, data in document.events if name == "sentence"}
            for number, name, data in document.events[after:]:
                after = number
                last = latest[data["number"]] if name == "sentence" else len(document.events)
                if name != "progress" and number != last:
                    continue  # a sentence that has changed comes once, after those that follow it
                yield f"id: {number}\nevent: {name}\ndata: {json.dumps(data)}\n\n"
            await asyncio.sleep(0.001 if document.status == "running" else 0.02)

    async def send_result(self, request):
        document = self.find(request)
        if request.query_params["format"] == "txt":
            return Response(b"fr " + document.file)
        name = document.name if request.query_params["format"] == "original" else "translation.html"
        headers = {"Content-Disposition": f"attachment; filename*=utf-8''{name or 'translation.txt'}"}
        return Response(document.file, headers=headers)

    async def edit(self, request):
        values = await request.json()
        for number, target in values["targets"].items():
            self.find(request).edit(int(number), target, values["retranslate"])
        return JSONResponse(self.find(request).describe())

    async def list_alternatives(self, request):
        target = self.find(request).sentences[request.path_params["number"]]["target"]
        return JSONResponse({"alternatives": [{"target": f"{word} {target}", "score": -9} for word in ("one", "two")]})

    async def align(self, request):
        """Align each word with the one after it: the translation begins with one word more."""
        sentence = self.find(request).sentences[request.path_params["number"]]
        source, target = (
            [word.span() for word in re.finditer(r"\S+", sentence[side])] for side in ("source", "target")
        )
        return JSONResponse({"alignment": [[*one, *other] for one, other in zip(source, target[1:], strict=False)]})
