"""What a caller does between the steps of a search: stop it, or do something that cannot wait."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from contextvars import ContextVar

from docmt.core.settings import assigned

_CALL: ContextVar[Callable[[], None]] = ContextVar("between_steps", default=lambda: None)


def calling_between_steps(call: Callable[[], None]) -> AbstractContextManager[None]:
    """Let searches, scoring and alignment in this context make a call between their steps and batches.

    The call may translate with the same model. An exception that is no DocmtError ends the search and is passed on.
    """
    return assigned(_CALL, call)


def between_steps() -> None:
    """Make the caller's call, if any."""
    _CALL.get()()
