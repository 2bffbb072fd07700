"""Keys of the service: who may use it, and how much.

Only hashes of keys are kept, in a table in SQLite that the command line can change while the service runs. Keys are
random (256 bits), so a single SHA-256 is enough.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import math
import secrets
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from docmt.core.errors import DocmtError
from docmt.serve.data_directory import make_private, other_version_error, prepare_database

_KEY_BYTES = 32
_ID_BYTES = 6
_SECONDS = 60
_MAX_NAME = 100
_SCHEMA = """
    CREATE TABLE IF NOT EXISTS keys (
        id TEXT PRIMARY KEY, hash TEXT NOT NULL, name TEXT NOT NULL, created REAL NOT NULL, limits TEXT NOT NULL,
        used REAL NOT NULL DEFAULT 0, remaining REAL, counted REAL NOT NULL DEFAULT 0
    )
"""


class LimitReached(DocmtError):  # noqa: N818 - a state, not a fault
    """A key has used what it may use. `retry_after` is in seconds."""

    def __init__(self, message: str, retry_after: int) -> None:
        super().__init__(message)
        self.retry_after = retry_after


@dataclass(frozen=True)
class KeyLimits:
    """What a key may use; 0: no limit."""

    characters_per_minute: int = 0
    concurrent_jobs: int = 0
    file_bytes: int = 0

    def describe(self) -> str:
        """Return the limits in words."""
        units = ("characters a minute", "documents at once", "MiB a file")
        amounts = zip((self.characters_per_minute, self.concurrent_jobs, self.file_bytes >> 20), units, strict=True)
        return ", ".join(f"{amount:,} {unit}" for amount, unit in amounts if amount) or "no limits"


@dataclass(frozen=True)
class AccessKey:
    """A key, without the secret."""

    id: str
    name: str
    """for people"""
    created: float
    """seconds since 1970"""
    limits: KeyLimits
    used: float = 0.0
    """the last time, within a minute; 0: never"""


class AccessKeys:
    """The keys of a data directory, and their budgets."""

    def __init__(self, data: Path, clock: Callable[[], float] = time.time) -> None:
        """clock: seconds, for budgets. Raises DocmtError if the table cannot be opened."""
        self._path, self._clock = data / "keys.sqlite", clock
        self._budgets: dict[str, tuple[float, float]] = {}  # characters that are left, and when
        make_private(data, self._path)
        self._execute("")

    def create(self, name: str, limits: KeyLimits = KeyLimits()) -> tuple[str, AccessKey]:
        """Return a new key, which is nowhere else, and its description. Raises DocmtError for a name of no use."""
        if not (name.strip() and name.isprintable() and len(name) <= _MAX_NAME):
            raise DocmtError(f"the name of a key is one line of 1 to {_MAX_NAME} printable characters: choose another")
        secret = secrets.token_urlsafe(_KEY_BYTES)
        key = AccessKey(secrets.token_hex(_ID_BYTES), name, time.time(), limits)
        values = (key.id, _hash(secret), name, key.created, json.dumps(asdict(limits)))
        self._execute("INSERT INTO keys (id, hash, name, created, limits) VALUES (?, ?, ?, ?, ?)", values)
        return secret, key

    def list_keys(self) -> list[AccessKey]:
        """Return all keys, oldest first."""
        return [key for _, key in self._read()]

    def revoke(self, id: str) -> None:
        """Delete a key. Raises DocmtError if there is none of this id."""
        if id not in [key.id for key in self.list_keys()]:
            raise DocmtError(f"there is no key {id}. List them, and name one of these.")
        self._execute("DELETE FROM keys WHERE id = ?", (id,))

    def find(self, secret: str) -> AccessKey | None:
        """Return the key of a secret, or None. The time does not depend on how much of a hash is equal."""
        hashed = _hash(secret)
        match = next((key for other, key in self._read() if hmac.compare_digest(hashed, other)), None)
        if match is not None and time.time() - match.used > _SECONDS:
            with suppress(DocmtError):  # such as a full disk
                self._execute("UPDATE keys SET used = ? WHERE id = ?", (time.time(), match.id))
        return match

    def take_characters(self, key: AccessKey, count: int) -> None:
        """Count characters of a request. Raises LimitReached if the budget of a minute is used up.

        The budget grows steadily. A request larger than what is left is let in, and the next ones wait: otherwise no
        document longer than the budget could be translated.
        """
        rate = key.limits.characters_per_minute
        if not rate:
            return
        now = self._clock()
        left, then = self._budgets.get(key.id) or self._read_budget(key)
        left = min(rate, left + max(now - then, 0) * rate / _SECONDS)
        if left <= 0:
            seconds = math.floor(-left * _SECONDS / rate) + 1
            message = f"this key may translate {rate:,} characters a minute. Try again in {seconds} seconds."
            raise LimitReached(message, seconds)
        self._budgets[key.id] = left - count, now
        if count:
            values = (left - count, now, key.id)
            with suppress(DocmtError):  # such as a full disk
                self._execute("UPDATE keys SET remaining = ?, counted = ? WHERE id = ?", values)

    def _read_budget(self, key: AccessKey) -> tuple[float, float]:
        """Return the characters that were left of an earlier process, and when."""
        query = "SELECT coalesce(remaining, ?), counted FROM keys WHERE id = ?"
        rows = self._execute(query, (key.limits.characters_per_minute, key.id))
        return rows[0] if rows else (key.limits.characters_per_minute, 0.0)  # it was revoked

    def _read(self) -> list[tuple[str, AccessKey]]:
        rows = self._execute("SELECT hash, id, name, created, limits, used FROM keys ORDER BY created, id")
        try:
            return [
                (hash, AccessKey(id, name, created, KeyLimits(**json.loads(limits)), used))
                for hash, id, name, created, limits, used in rows
            ]
        except (ValueError, TypeError) as error:
            raise other_version_error(self._path, "a key with other limits") from error

    def _execute(self, query: str, values: tuple[object, ...] = ()) -> list[tuple[Any, ...]]:
        try:
            with closing(sqlite3.connect(self._path)) as connection, connection:
                prepare_database(connection, self._path, _SCHEMA)
                return connection.execute(query, values).fetchall()
        except sqlite3.Error as error:
            raise DocmtError(f"{self._path} cannot be used ({error}): move it away, or repair it") from error


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
