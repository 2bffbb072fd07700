"""The metrics of a run for TensorBoard, where that is installed."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

_log = logging.getLogger(__name__)
_NO_SCALARS = ("update", "epoch", "seconds", "best")


class Tracker:
    """Writes lines of metrics as scalars. Trouble with it is told once, and the training goes on without."""

    def __init__(self, folder: Path, wanted: Literal["auto", "true", "false"], update: int) -> None:
        """update: where the run stands; what it wrote beyond that before it was stopped is not shown any more."""
        self._folder, self._update = folder, update
        # Whether it is installed is known at once; loading it takes a while.
        self._on = wanted == "true" or (wanted == "auto" and find_spec("tensorboard") is not None)
        self._writer: Any = None

    def add(self, line: Mapping[str, Any]) -> None:
        """Writes the numbers of a line of metrics."""
        with self._at_no_risk():
            if self._on:
                writer = self._open()
                for name in line:
                    if name not in _NO_SCALARS:
                        writer.add_scalar(tag_of(name), line[name], line["update"])

    def flush(self) -> None:
        """Makes sure that all of it is on the disk: with each checkpoint, as a resumed run goes on from there."""
        with self._at_no_risk():
            if self._writer is not None:
                self._writer.flush()

    def close(self) -> None:
        """Ends the writing."""
        with self._at_no_risk():
            if self._writer is not None:
                self._writer.close()

    def _open(self) -> Any:
        if self._writer is None:
            from torch.utils.tensorboard import SummaryWriter

            self._writer = SummaryWriter(str(self._folder), purge_step=self._update + 1)
        return self._writer

    @contextmanager
    def _at_no_risk(self) -> Iterator[None]:
        """Whatever goes wrong in the block (not installed, a full disk) ends the writing, and nothing else."""
        try:
            yield
        except Exception as error:
            self._on, self._writer = False, None
            hint = "" if find_spec("tensorboard") else "; install docmt[track]"
            reason = " ".join(str(error).split()) or type(error).__name__
            _log.warning("nothing more is written for TensorBoard (%s)%s", reason, hint)


def tag_of(name: str) -> str:
    """The name of a metric in its group: valid_loss -> dev/loss, entropy_... -> entropy/..., loss -> train/loss."""
    for start, group in (("valid_", "dev/"), ("entropy_", "entropy/")):
        if name.startswith(start):
            return group + name.removeprefix(start)
    return f"train/{name}"
