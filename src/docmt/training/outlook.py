"""What the progress line of a training shows: the loss of the last updates, and how long it will still take."""

from __future__ import annotations

from collections import deque

import torch
from torch import Tensor

from docmt.training.checkpoints import TrainingState
from docmt.training.config import StopConfig

_WINDOW = 20  # updates


class Recent:
    """Loss and speed of the last updates. Reading a loss makes a GPU wait, so there it is done once a window."""

    def __init__(self, device: torch.device) -> None:
        self._together = 1 if device.type == "cpu" else _WINDOW  # updates between two readings
        self._read: deque[tuple[float, int, float]] = deque(maxlen=_WINDOW // self._together)
        self._begin()

    def _begin(self) -> None:
        self._loss: Tensor | float = 0.0
        self._updates, self._tokens, self._seconds = 0, 0, 0.0

    def add(self, loss: Tensor, tokens: int, seconds: float) -> None:
        """Takes in an update: its loss [] summed over its label tokens, in nats, and how long it took."""
        self._loss = self._loss + loss
        self._updates, self._tokens, self._seconds = self._updates + 1, self._tokens + tokens, self._seconds + seconds
        if self._updates == self._together:
            self._read.append((float(self._loss), self._tokens, self._seconds))
            self._begin()

    def note(self) -> str:
        """Means over the window, for people; empty before anything is known."""
        loss, tokens, seconds = (sum(column) for column in zip(*self._read, strict=True)) if self._read else (0, 0, 0)
        return f"loss {loss / tokens:.3f}, {tokens / max(seconds, 1e-9):,.0f} tokens/s" if tokens else ""


def seconds_left(stop: StopConfig, state: TrainingState, epoch_done: float, pace: tuple[int, float]) -> float | None:
    """Time until the nearest of the limits that can be foreseen; None where there is none, or nothing to go by.

    epoch_done: share of the current epoch in [0, 1); pace: the last updates and how many seconds they took.
    """
    updates, seconds = pace
    if not updates:
        return None
    each = seconds / updates
    found = []
    if stop.max_steps:
        found.append((stop.max_steps - state.update) * each)
    epochs = state.epoch + epoch_done
    if stop.max_epochs and epochs:
        found.append((stop.max_epochs / epochs - 1) * state.update * each)
    if stop.max_minutes:
        found.append(60 * stop.max_minutes - state.seconds)
    return max(min(found), 0.0) if found else None
