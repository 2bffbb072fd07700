"""Processes of a training: devices, sums over processes, lost processes and stop signals."""

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
_POLL_SECONDS, _GRACE_SECONDS = 1.0, 5.0  # between polls of the other processes; from a failure to the exit
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_SAME_SIGNAL_SECONDS = 1.0


class LostProcessError(DocmtError):
    """Error that another process of the training ended early.

    The broken connection cannot be used or closed: closing it at exit may abort the program.
    """


def is_main_process() -> bool:
    """Return True if this process writes files and messages; known from the launcher before processes are connected.

    torchrun, Fabric and Slurm number their processes in the environment. A process without a number is alone or starts
    the others.
    """
    return all(os.environ.get(name, "0") == "0" for name in ("RANK", "LOCAL_RANK", "SLURM_PROCID"))


def choose_devices(config: TrainConfig) -> tuple[str, int, int]:
    """Return accelerator, devices of each machine and machines: as configured, or as torchrun started processes.

    Raises DocmtError if this machine has too few GPUs or processor cores.
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
        raise DocmtError(f"devices is {devices}, but PyTorch sees {gpus} GPU(s): choose {gpus} or fewer")
    return accelerator, devices, nodes


def start_fabric(config: TrainConfig) -> Fabric:
    """Return a launched Fabric for the devices of `choose_devices`."""
    accelerator, devices, nodes = choose_devices(config)
    logging.getLogger("lightning_fabric").setLevel(logging.WARNING)  # it logs a greeting in every process
    fabric = Fabric(
        accelerator=accelerator,
        devices=devices,
        num_nodes=nodes,
        precision="bf16-mixed" if config.compute_dtype == "bfloat16" else "32-true",
    )
    fabric.launch()
    _watch_processes(fabric, config.run)
    return fabric


@contextmanager
def report_lost_processes(fabric: Fabric, run: Path) -> Iterator[None]:
    """Raise LostProcessError in place of the errors of a broken connection to another process.

    Another process that fails or is killed breaks the connection, here or in the next exchange.
    """
    try:
        yield
    except RuntimeError as error:  # gloo has no error class
        if fabric.world_size > 1 and (isinstance(error, torch.distributed.DistError) or "gloo" in str(error)):
            raise LostProcessError(_lost_process_message(run)) from error
        raise


def _lost_process_message(run: Path) -> str:
    return (
        "another process of this training failed or was killed; see its output. Continue from the last checkpoint "
        f"with docmt train --resume {run}"
    )


def _watch_processes(fabric: Fabric, run: Path) -> None:
    """Watch the processes that this one has started, in place of Fabric's own observer.

    Fabric's observer kills this process without a message, often before the broken connection is reported.
    """
    launched = getattr(fabric.strategy.launcher, "procs", [])
    processes = list(launched)
    launched.clear()  # Fabric's observer has the same list and ends when it is empty
    if processes:
        threading.Thread(target=exit_when_one_fails, args=(processes, run), daemon=True).start()


def exit_when_one_fails(processes: Sequence[subprocess.Popen[bytes]], run: Path) -> None:
    """Exit and kill `processes` when one of them has failed; return when all have ended well.

    Usually the connection breaks and all processes end. A process in a long update, or one that waits on a GPU for a
    lost process, would not notice.
    """
    while all(process.poll() in (None, 0, INTERRUPTED) for process in processes):
        if all(process.poll() is not None for process in processes):
            return
        time.sleep(_POLL_SECONDS)
    time.sleep(_GRACE_SECONDS)
    with suppress(OSError):  # not through sys.stderr: a thread that holds its lock at exit aborts Python
        os.write(2, f"docmt: error: {printable(_lost_process_message(run))}\n".encode())
    for process in processes:
        process.kill()
    os._exit(USAGE_ERROR)


def sum_over_processes(fabric: Fabric, values: Sequence[float]) -> list[float]:
    """Return each value summed over all processes, in float64."""
    if fabric.world_size == 1:
        return list(values)
    total: Any = fabric.all_reduce(torch.tensor(values, dtype=torch.float64, device=fabric.device), reduce_op="sum")
    return list(map(float, total.tolist()))


def gather_shares(fabric: Fabric, items: Sequence[Item]) -> list[Item]:
    """Return the items of all processes in order; each process has every `world_size`-th item."""
    if fabric.world_size == 1:
        return list(items)
    shares: list[list[Item]] = [[] for _ in range(fabric.world_size)]
    torch.distributed.all_gather_object(shares, list(items))
    count = sum(map(len, shares))
    return [shares[number % fabric.world_size][number // fabric.world_size] for number in range(count)]


class StopRequest:
    """Flag that a signal asked the process to stop."""

    def __init__(self) -> None:
        self.requested = False


@contextmanager
def stop_on_signals() -> Iterator[StopRequest]:
    """Make the first Ctrl-C or SIGTERM set `requested` while the block runs; a later one acts as usual.

    Signals within a second count as one, as a launcher may send the same signal again.
    """
    stop_request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield stop_request  # handlers can only be set in the main thread
        return
    old_handlers = {number: signal.getsignal(number) for number in _SIGNALS}

    def restore() -> None:
        for number, handler in old_handlers.items():
            signal.signal(number, handler)

    first_time = 0.0

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal first_time
        if not stop_request.requested:
            stop_request.requested, first_time = True, time.monotonic()
        elif time.monotonic() - first_time > _SAME_SIGNAL_SECONDS:
            restore()
            signal.raise_signal(number)

    for number in _SIGNALS:
        signal.signal(number, handle)
    try:
        yield stop_request
    finally:
        restore()
