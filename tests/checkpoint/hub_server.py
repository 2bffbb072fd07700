"""A small hub on the loopback: repositories of files, with faults."""

import hashlib
import json
import re
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

COMMIT = "a" * 40


@dataclass
class HubServer:
    """Repositories by id, faults by name, and the requests that came."""

    repositories: dict = field(default_factory=dict)
    """files by repository: name -> bytes"""
    revisions: dict = field(default_factory=lambda: {"main": COMMIT, COMMIT: COMMIT})
    status: int = 200
    """status of every answer"""
    error_code: str = ""
    """code of the hub in that answer"""
    answer: bytes = b""
    """body of every answer, if any"""
    cut: dict = field(default_factory=dict)
    """files that end after so many bytes, for the next request alone"""
    stalled: dict = field(default_factory=dict)
    """files that stall after so many bytes"""
    sizes: dict = field(default_factory=dict)
    """wrong sizes of files, as the hub says them"""
    requests: list = field(default_factory=list)
    """(method, path, Range)"""
    endpoint: str = ""

    def paths(self, method="GET"):
        return [path for each, path, _ in self.requests if each == method]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: HubServer

    def do_GET(self):
        self._answer(True)

    def do_HEAD(self):
        self._answer(False)

    def _answer(self, with_body):
        hub, path = self.hub, self.path.partition("?")[0]
        hub.requests.append((self.command, self.path, self.headers.get("Range")))
        if hub.status != 200:
            return self._send(hub.status, b"{}", {"X-Error-Code": hub.error_code} if hub.error_code else {}, with_body)
        if hub.answer:
            return self._send(200, hub.answer, {}, with_body)
        if match := re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/revision/(.+))?", path):
            return self._describe(match[1], match[2] or "main", with_body)
        match = re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path)
        files = hub.repositories.get(match[1], {}) if match else {}
        if not match or match[3] not in files:
            return self._send(404, b"", {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": COMMIT}, with_body)
        self._send_file(match[3], files[match[3]], hub.revisions.get(match[2], COMMIT), with_body)

    def _describe(self, repository, revision, with_body):
        if repository not in self.hub.repositories:
            return self._send(404, b"{}", {"X-Error-Code": "RepoNotFound"}, with_body)
        if revision not in self.hub.revisions:
            return self._send(404, b"{}", {"X-Error-Code": "RevisionNotFound"}, with_body)
        files = self.hub.repositories[repository]
        siblings = [
            {"rfilename": name, "size": self.hub.sizes.get(name, len(data)), "blobId": "b"}
            for name, data in files.items()
        ]
        info = {"id": repository, "sha": self.hub.revisions[revision], "siblings": siblings, "private": False}
        self._send(200, json.dumps(info).encode(), {"Content-Type": "application/json"}, with_body)

    def _send_file(self, name, data, commit, with_body):
        headers = {"ETag": f'"{hashlib.sha256(data).hexdigest()}"', "X-Repo-Commit": commit, "Accept-Ranges": "bytes"}
        start = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range") or "")
        status, first = (206, int(start[1])) if start and with_body else (200, 0)
        if status == 206:
            headers["Content-Range"] = f"bytes {first}-{len(data) - 1}/{len(data)}"
        cut = self.hub.cut.pop(name, None) if with_body else None
        stall = self.hub.stalled.get(name) if with_body else None
        self._send(status, data[first:], headers, with_body, cut or stall)
        if stall:
            threading.Event().wait(60)
        if cut or stall:
            self.close_connection = True

    def _send(self, status, body, headers, with_body, sent=None):
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if with_body:
            self.wfile.write(body[:sent])
            self.wfile.flush()

    def log_message(self, *arguments):
        pass


@contextmanager
def serve_hub():
    """Run a hub while the block runs."""
    hub = HubServer()
    handler = type("Handler", (_Handler,), {"hub": hub})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    hub.endpoint = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
