"""Ctrl-C and SIGTERM as wishes to stop after the current update."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_AT_ONCE = 1.0  # seconds


class StopWish:
    """Whether somebody asked the process to stop."""

    def __init__(self) -> None:
        self.wished = False


@contextmanager
def stop_on_signals() -> Iterator[StopWish]:
    """While the block runs, the first Ctrl-C or SIGTERM only sets `wished`; a later one acts as usual.

    Of several at once, to a process and by whoever started it, all but the first are passed over.
    """
    wish = StopWish()
    if threading.current_thread() is not threading.main_thread():
        yield wish  # handlers can only be set in the main thread
        return
    before = {number: signal.getsignal(number) for number in _SIGNALS}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    first = 0.0

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal first
        if not wish.wished:
            wish.wished, first = True, time.monotonic()
        elif time.monotonic() - first > _AT_ONCE:
            restore()
            signal.raise_signal(number)

    for number in _SIGNALS:
        signal.signal(number, handle)
    try:
        yield wish
    finally:
        restore()
