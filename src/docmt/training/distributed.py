"""The processes of a training: where they compute, what they sum, when one is lost, and signals to stop."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

import torch
from lightning_fabric import Fabric

from docmt.core.errors import INTERRUPTED, USAGE_ERROR, DocmtError, printable
from docmt.training.train_config import TrainConfig

Item = TypeVar("Item")
_LOOK_EVERY, _GRACE = 1.0, 5.0  # seconds between looks at the other processes, and before this one is ended for them
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_AT_ONCE = 1.0  # seconds


class LostProcessError(DocmtError):
    """Another process of the training has ended before its time. The connection to it is broken, in this process for
    good: taking it down as the program ends may abort the program."""


def will_lead() -> bool:
    """Whether this process is the one of several that writes: known before they are connected, from the launcher.

    torchrun and Fabric number their processes in the environment, Slurm likewise; a process that nobody has numbered
    is alone, or will start the others.
    """
    return all(os.environ.get(name, "0") == "0" for name in ("RANK", "LOCAL_RANK", "SLURM_PROCID"))


def start_fabric(config: TrainConfig) -> Fabric:
    """A launched Fabric for the configured devices, or for the processes that torchrun started.

    Raises DocmtError when there are not as many GPUs, or processor cores.
    """
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    accelerator = ("cuda" if gpus else "cpu") if config.device == "auto" else config.device
    devices, nodes, cores = config.devices, 1, os.cpu_count() or 1
    if "LOCAL_WORLD_SIZE" in os.environ and "WORLD_SIZE" in os.environ:
        devices = int(os.environ["LOCAL_WORLD_SIZE"])
        nodes = int(os.environ["WORLD_SIZE"]) // devices
    elif accelerator == "cpu" and devices > cores:
        raise DocmtError(
            f"devices is {devices}, but this machine has {cores} processor core(s): choose {cores} or fewer"
        )
    if accelerator == "cuda" and devices > gpus:
        if not gpus:
            raise DocmtError("device is cuda, but PyTorch sees no GPU here: choose --device cpu")
        raise DocmtError(f"devices is {devices}, but there are {gpus} GPUs for them: choose {gpus} or fewer")
    logging.getLogger("lightning_fabric").setLevel(logging.WARNING)  # it greets every process
    fabric = Fabric(
        accelerator=accelerator,
        devices=devices,
        num_nodes=nodes,
        precision="bf16-mixed" if config.products == "bfloat16" else "32-true",
    )
    fabric.launch()
    _watch_started(fabric, config.run)
    return fabric


@contextmanager
def told_of_lost_processes(fabric: Fabric, run: Path) -> Iterator[None]:
    """Says what to do when another process of the training has ended before its time (killed, or by an error).

    The connection to it breaks then, here or in what this process does next. Raises LostProcessError.
    """
    try:
        yield
    except RuntimeError as error:  # gloo has no error of its own
        if fabric.world_size > 1 and (isinstance(error, torch.distributed.DistError) or "gloo" in str(error)):
            raise LostProcessError(_lost(run)) from error
        raise


def _lost(run: Path) -> str:
    return (
        "another process of this training has ended before its time (it may have said why, or was killed): go on "
        f"from the last checkpoint with docmt train --resume {run}"
    )


def _watch_started(fabric: Fabric, run: Path) -> None:
    """Looks after the processes that this one has started, in place of Fabric's own observer.

    That one kills this process without a word, often before the broken connection could be told.
    """
    started = getattr(fabric.strategy.launcher, "procs", [])
    processes = list(started)
    started.clear()  # Fabric's observer has this very list, and ends when nothing is left in it
    if processes:
        threading.Thread(target=end_with_the_first, args=(processes, run), daemon=True).start()


def end_with_the_first(processes: Sequence[subprocess.Popen[bytes]], run: Path) -> None:
    """Ends this process and `processes` when one of them has failed; returns when all have ended well.

    Most often the connection breaks and all end in order. But a process that is busy with a long update, or waits on a
    GPU for one that is gone, would not notice.
    """
    while all(process.poll() in (None, 0, INTERRUPTED) for process in processes):
        if all(process.poll() is not None for process in processes):
            return
        time.sleep(_LOOK_EVERY)
    time.sleep(_GRACE)
    with suppress(OSError):  # past sys.stderr, whose lock, held by a thread while Python ends, aborts it
        os.write(2, f"docmt: error: {printable(_lost(run))}\n".encode())
    for process in processes:
        process.kill()
    os._exit(USAGE_ERROR)


def sum_over_processes(fabric: Fabric, values: Sequence[float]) -> list[float]:
    """Each value summed over all processes, in float64 where the device has it."""
    if fabric.world_size == 1:
        return list(values)
    total: Any = fabric.all_reduce(torch.tensor(values, dtype=torch.float64, device=fabric.device), reduce_op="sum")
    return list(map(float, total.tolist()))


def gather_shares(fabric: Fabric, items: Sequence[Item]) -> list[Item]:
    """Return the items of all processes, of which each has every `world_size`-th, in their order."""
    if fabric.world_size == 1:
        return list(items)
    shares: list[list[Item]] = [[] for _ in range(fabric.world_size)]
    torch.distributed.all_gather_object(shares, list(items))
    count = sum(map(len, shares))
    return [shares[number % fabric.world_size][number // fabric.world_size] for number in range(count)]


class StopRequest:
    """Whether somebody asked the process to stop."""

    def __init__(self) -> None:
        self.wished = False


@contextmanager
def stop_on_signals() -> Iterator[StopRequest]:
    """While the block runs, the first Ctrl-C or SIGTERM only sets `wished`; a later one acts as usual.

    Of several at once, to a process and by whoever started it, all but the first are passed over.
    """
    wish = StopRequest()
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
