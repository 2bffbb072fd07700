"""Clients that want to hurt a service: endless sentences, half requests, foreign pages, floods, wrong bodies."""

from __future__ import annotations

import asyncio
import random
import time
import zipfile
from collections import Counter
from collections.abc import Awaitable, Callable
from io import BytesIO

import httpx

from benchmarks.soak_clients import GARBAGE, JUNK, damage, make_files

_WAIT_SECONDS = 120.0
"""After so long without an answer or an end of the connection, there is none."""
_FLOOD = 200


class HostileClients:
    """One worker for each way to hurt, with a key of its own."""

    def __init__(self, port: int, key: str, seed: int = 1) -> None:
        self._port, self._chance = port, random.Random(seed)
        self._headers = {"Authorization": f"Bearer {key}"}
        self.answers = Counter[str]()
        """by way and outcome: a status, closed, or silent; the last is a fault"""

    async def run(self, until: float) -> None:
        """Hurt until a time."""
        ways = (self._send_endless, self._send_half, self._cross, self._flood, self._send_junk, self._send_bomb)
        limits = httpx.Limits(max_connections=_FLOOD, max_keepalive_connections=0)
        async with httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{self._port}", timeout=_WAIT_SECONDS, limits=limits, headers=self._headers
        ) as http:
            await asyncio.gather(*(self._repeat(way, http, until) for way in ways))

    async def _repeat(
        self, way: Callable[[httpx.AsyncClient], Awaitable[None]], http: httpx.AsyncClient, until: float
    ) -> None:
        while (left := until - time.monotonic()) > 0:
            try:
                await asyncio.wait_for(way(http), left)
            except TimeoutError:
                return
            await asyncio.sleep(self._chance.random())

    async def _post(self, http: httpx.AsyncClient, name: str, path: str, **content: object) -> None:
        try:
            answer = await http.post(path, **content)  # type: ignore[arg-type]
            outcome = str(answer.status_code)
        except httpx.TimeoutException:
            outcome = "silent"
        except httpx.TransportError:
            outcome = "closed"
        self.answers[f"{name}: {outcome}"] += 1

    async def _send_endless(self, http: httpx.AsyncClient) -> None:
        """Send one sentence of many thousand words, and leave, or wait."""
        words = " ".join(
            self._chance.choices(
                ["the", "report", "of", "a", "member", "and", "in", "its", "old", "committee"], k=12_000
            )
        )
        request = self._post(http, "endless sentence", "/v1/translate", json={"text": words})
        try:
            await asyncio.wait_for(request, self._chance.choice([1.0, 5.0, 30.0]))
        except TimeoutError:
            self.answers["endless sentence: left"] += 1

    async def _send_half(self, http: httpx.AsyncClient) -> None:
        """Open many connections that send half a head or half a body, or what is no request."""
        await asyncio.gather(*(self._send_raw(text) for text in self._chance.choices(self._halves(), k=50)))

    def _halves(self) -> list[bytes]:
        start = b"POST /v1/translate HTTP/1.1\r\nHost: localhost\r\n"
        body = start + b"Content-Type: application/json\r\nContent-Length: 900000\r\n\r\n{"
        return [start, body, b"G", *GARBAGE]

    async def _send_raw(self, text: bytes) -> None:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
            writer.write(text)
            await writer.drain()
            answer = await asyncio.wait_for(reader.read(), _WAIT_SECONDS)
            outcome = answer.split(b" ", 2)[1].decode() if answer else "closed"
            writer.close()
        except TimeoutError:
            outcome = "silent"
        except OSError:
            outcome = "closed"
        self.answers[f"half request: {outcome}"] += 1

    async def _cross(self, http: httpx.AsyncClient) -> None:
        """Write as a page of another site does."""
        headers = {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"}
        for path in ("/v1/translate", "/v1/documents", "/translate", "/v2/translate"):
            await self._post(http, "foreign page", path, headers=headers, json={"text": "The lamp is old."})

    async def _flood(self, http: httpx.AsyncClient) -> None:
        """Send many texts at once."""
        texts = [f"Number {self._chance.randrange(10**6)} is old." for _ in range(_FLOOD)]
        await asyncio.gather(*(self._post(http, "flood", "/v1/translate", json={"text": text}) for text in texts))

    async def _send_junk(self, http: httpx.AsyncClient) -> None:
        """Send bodies and files that are wrong."""
        for path, body, kind in JUNK:
            await self._post(http, "wrong body", path, content=body, headers={"Content-Type": kind})
        for name, data in make_files().items():
            wrong, content = damage(name, data, self._chance)
            await self._post(http, "wrong file", "/v1/documents", files={"file": (wrong, content)})

    async def _send_bomb(self, http: httpx.AsyncClient) -> None:
        """Send a small file that is large when it is open."""
        buffer = BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
            file.writestr("[Content_Types].xml", b"<Types/>")
            file.writestr("word/document.xml", bytes(300 * 2**20))
        await self._post(http, "bomb", "/v1/documents", files={"file": ("a.docx", buffer.getvalue())})
        await asyncio.sleep(10)
