"""Processes of a training: devices, sums over processes, lost processes and stop signals.

A process that waits for another one in an exchange notices nothing if that is lost on a GPU, or hangs. So a thread of
each process counts signs of life in the store through which the processes have met, and reads those of the others.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, Literal, TypeVar, cast

import torch
from lightning_fabric import Fabric
from lightning_fabric.plugins.environments.cluster_environment import ClusterEnvironment
from lightning_fabric.plugins.environments.lightning import LightningEnvironment
from lightning_fabric.plugins.environments.slurm import SLURMEnvironment
from lightning_fabric.plugins.environments.torchelastic import TorchElasticEnvironment
from lightning_fabric.strategies.ddp import DDPStrategy
from lightning_fabric.strategies.model_parallel import ModelParallelStrategy
from lightning_fabric.strategies.strategy import Strategy
from torch.distributed import Store, distributed_c10d  # type: ignore[attr-defined]

from docmt.core.errors import USAGE_ERROR, DocmtError, printable
from docmt.core.files import atomic_directory, file_checksums
from docmt.training.train_config import TrainConfig

Item = TypeVar("Item")
POLL_SECONDS = 5.0
LOST_POLLS = 12
"""polls without a sign of a process, after which it counts as lost: stopped, killed, or on a machine without network"""
MEETING_SECONDS = 1800.0
"""in which all processes must connect; machines of a cluster start minutes apart"""
GRACE_SECONDS = 5.0
"""from a failure to the exit: most processes notice it themselves and say more"""
EXCHANGE_TIMEOUT = timedelta(hours=2)
"""in which all processes must reach an exchange; longer than one of them translates or writes meanwhile"""
_GROUP_VARIABLES = {"MASTER_ADDR", "MASTER_PORT", "NODE_RANK", "LOCAL_RANK", "WORLD_SIZE"}  # that Fabric sets
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


@dataclass(frozen=True)
class Processes:
    """Processes that a training is to have, and where they come from."""

    accelerator: Literal["cpu", "cuda"]
    devices: int
    """on each machine"""
    nodes: int
    """machines"""
    environment: ClusterEnvironment
    """of the launcher that has started, or will start, the processes"""

    @property
    def count(self) -> int:
        """Number of processes on all machines."""
        return self.devices * self.nodes


def plan_processes(config: TrainConfig) -> Processes:
    """Return the configured processes, or those that torchrun or Slurm (`srun`) has started.

    Raises DocmtError if the machine has too few GPUs or processor cores, or if tasks differ by machine.
    """
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    accelerator: Literal["cpu", "cuda"]
    accelerator = ("cuda" if gpus else "cpu") if config.device == "auto" else config.device
    devices, nodes, cores = config.devices, 1, os.cpu_count() or 1
    environment: ClusterEnvironment = LightningEnvironment()
    if "LOCAL_WORLD_SIZE" in os.environ and "WORLD_SIZE" in os.environ:
        devices = int(os.environ["LOCAL_WORLD_SIZE"])
        nodes = int(os.environ["WORLD_SIZE"]) // devices
        environment = TorchElasticEnvironment()
    elif int(os.environ.get("SLURM_STEP_NUM_TASKS", 1)) > 1:  # not a batch script without srun, nor a shell
        tasks, nodes = int(os.environ["SLURM_STEP_NUM_TASKS"]), int(os.environ.get("SLURM_STEP_NUM_NODES", 1))
        devices = tasks // nodes
        if devices * nodes != tasks:
            raise DocmtError(f"Slurm started {tasks} tasks on {nodes} machines: use srun --ntasks-per-node")
        os.environ.setdefault("SLURM_NTASKS_PER_NODE", str(devices))
        environment = SLURMEnvironment(auto_requeue=False)
    elif accelerator == "cpu" and devices > cores:
        raise DocmtError(
            f"devices is {devices}, but this machine has {cores} processor core(s): choose {cores} or fewer"
        )
    if accelerator == "cuda" and devices > gpus:
        if not gpus:
            raise DocmtError("device is cuda, but PyTorch sees no GPU here: choose --device cpu")
        raise DocmtError(f"devices is {devices}, but PyTorch sees {gpus} GPU(s): choose {gpus} or fewer")
    return Processes(accelerator, devices, nodes, environment)


def start_fabric(config: TrainConfig, strategy: Literal["ddp", "fsdp"] = "ddp") -> Fabric:
    """Return a launched Fabric for the configured devices, or for the processes that torchrun or Slurm started.

    strategy: for several processes; fsdp also works in one. Raises DocmtError as `plan_processes` does, and if another
    process ends before all are connected.
    """
    processes = plan_processes(config)
    logging.getLogger("lightning_fabric").setLevel(logging.WARNING)  # it logs a greeting in every process
    fabric = Fabric(
        accelerator=processes.accelerator,
        devices=processes.devices,
        num_nodes=processes.nodes,
        strategy=_build_strategy(config, processes, strategy),
        precision="bf16-mixed" if config.compute_dtype == "bfloat16" else "32-true",
        plugins=[processes.environment],
    )

    def cannot_meet(error: RuntimeError) -> DocmtError:
        reason = " ".join(str(error).split("\n")[0].split())
        return DocmtError(
            f"the {processes.count} processes of this training cannot meet ({reason}). Choose a free port if it is "
            "taken, and start all of them again"
        )

    late = (
        f"the {processes.count} processes of this training have not met within {MEETING_SECONDS / 60:.3g} minutes: "
        "look for those that did not start or have failed, and start all of them again"
    )
    with _exit_after(MEETING_SECONDS, late), replace_connection_errors(processes.count, cannot_meet):
        fabric.launch()
    # Fabric's observer of these would end this process without a message. It stops when their list is empty.
    getattr(fabric.strategy.launcher, "procs", []).clear()
    return fabric


def _build_strategy(config: TrainConfig, processes: Processes, strategy: str) -> Strategy | str:
    """Return what exchanges gradients."""
    if strategy == "fsdp":
        from docmt.training.trained_weights import shard  # imports what one process does not need

        return ModelParallelStrategy(
            partial(shard, config=config),
            data_parallel_size=processes.count,
            tensor_parallel_size=1,
            # With offloading, norms of gradients are summed on the CPU.
            process_group_backend="cpu:gloo,cuda:nccl" if processes.accelerator == "cuda" else "gloo",
            timeout=EXCHANGE_TIMEOUT,
        )
    return "auto" if processes.count == 1 else DDPStrategy(timeout=EXCHANGE_TIMEOUT)


@contextmanager
def replace_connection_errors(count: int, describe: Callable[[RuntimeError], DocmtError]) -> Iterator[None]:
    """Raise what `describe` returns in place of the errors of a connection to other processes of `count`.

    Another process that fails or is killed breaks the connection, here or in the next exchange.
    """
    try:
        yield
    except RuntimeError as error:  # gloo has no error class
        if count > 1 and (isinstance(error, torch.distributed.DistError) or "gloo" in str(error)):
            raise describe(error) from error
        raise


@contextmanager
def leave_group_of_one() -> Iterator[None]:
    """At the end, close the process group of a sharded training in one process and its environment variables.

    Programs that this process starts later would inherit the address of the group and wait for it.
    """
    before = set(os.environ)
    existed = torch.distributed.is_initialized()
    try:
        yield
    finally:
        if not existed and torch.distributed.is_initialized() and torch.distributed.get_world_size() == 1:
            torch.distributed.destroy_process_group()
            for name in _GROUP_VARIABLES - before:
                os.environ.pop(name, None)


def lost_process_message(
    run: Path, problem: str = "another process of this training failed or was killed; see its output"
) -> str:
    """Return the sentence on the end of a training whose processes cannot go on."""
    advice = f"Continue from the last checkpoint with docmt train --resume {run}, or start again if there is none"
    return f"{problem}. {advice}"


def _exit_with(message: str) -> None:
    """Print an error and end the process at once, from any thread."""
    with suppress(OSError):  # not through sys.stderr: a thread that holds its lock at exit aborts Python
        os.write(2, f"docmt: error: {printable(message)}\n".encode())
    os._exit(USAGE_ERROR)


@contextmanager
def _exit_after(seconds: float, message: str) -> Iterator[None]:
    """End this process with an error if the block takes longer. It may wait for other processes without end."""
    timer = threading.Timer(seconds, _exit_with, [message])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


@contextmanager
def watch_processes(run: Path) -> Iterator[None]:
    """End this process if another one is lost while the block runs."""
    if not torch.distributed.is_initialized() or torch.distributed.get_world_size() == 1:
        yield
        return
    ended = threading.Event()
    threading.Thread(target=_exchange_signs, args=(run, ended), daemon=True).start()
    try:
        yield
    finally:
        ended.set()


def _exchange_signs(run: Path, ended: threading.Event) -> None:
    """Count a sign of this process and read those of the others until `ended`; exit some seconds after one is lost.

    Polls are counted, not seconds, so a machine that sleeps wakes up in peace.
    """
    rank, size = torch.distributed.get_rank(), torch.distributed.get_world_size()
    # A connection of its own: a call that waits in another thread must not block it.
    store: Store = distributed_c10d._get_default_store().clone()  # type: ignore[attr-defined]
    problem = "process {} of this training failed, was killed or hangs; see its output"
    signs, silent_polls = [-1] * size, [0] * size
    while not ended.wait(POLL_SECONDS):
        try:
            # Process 0 keeps the store, and a call waits for it.
            with _exit_after((LOST_POLLS + 1) * POLL_SECONDS, lost_process_message(run, problem.format(0))):
                store.add(f"docmt/{rank}", 1)
                latest = [store.add(f"docmt/{number}", 0) for number in range(size)]
        except RuntimeError:  # process 0 has ended
            lost = [0]
        else:
            pairs = zip(signs, latest, silent_polls, strict=True)
            silent_polls = [polls + 1 if new == old else 0 for old, new, polls in pairs]
            lost = [number for number, polls in enumerate(silent_polls) if polls >= LOST_POLLS]
            signs = latest
        if lost and not ended.wait(GRACE_SECONDS):
            _exit_with(lost_process_message(run, problem.format(lost[0])))


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


def first_builds(fabric: Fabric, build: Callable[[], Item]) -> Item:
    """Return what `build` returns in the first process, in all of them. A DocmtError of it is raised in all."""
    built: list[Item] = []
    raise_together(fabric, lambda: built.append(build()) if fabric.is_global_zero else None)
    return cast(Item, fabric.broadcast(built[0] if built else None))


def raise_together(fabric: Fabric, check: Callable[[], object]) -> None:
    """Run a check in every process. A DocmtError of one of them is raised in all."""
    error = None
    try:
        check()
    except DocmtError as raised:
        error = raised
    if errors := list(filter(None, gather_shares(fabric, [error]))):
        raise errors[0]


def check_agreement(fabric: Fabric, strategy: str) -> None:
    """Raise DocmtError if the processes have chosen different strategies, as machines with other memory may."""
    if len(set(gather_shares(fabric, [strategy]))) > 1:
        raise DocmtError("the machines have different amounts of memory: choose --strategy ddp or --strategy fsdp")


@contextmanager
def shared_directory(fabric: Fabric, path: Path) -> Iterator[Path]:
    """Yield the temporary directory of `atomic_directory` of the first process, in all processes."""
    with atomic_directory(path) if fabric.is_global_zero else nullcontext(path) as temporary:
        yield Path(fabric.broadcast(str(temporary)))
    fabric.barrier()


def share_file_checksums(fabric: Fabric, folder: Path) -> dict[str, str]:
    """Return the checksums of all files in a folder; each process reads some of them."""
    names = sorted(path.name for path in folder.iterdir())
    checksums = file_checksums(folder, names[fabric.global_rank :: fabric.world_size])
    return dict(gather_shares(fabric, list(checksums.items())))


@contextmanager
def stop_on_signals() -> Iterator[threading.Event]:
    """Make the first Ctrl-C or SIGTERM set the event while the block runs; a later one acts as usual.

    Signals within a second count as one, as a launcher may send the same signal again.
    """
    stop_request = threading.Event()
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
        if not stop_request.is_set():
            stop_request.set()
            first_time = time.monotonic()
        elif time.monotonic() - first_time > _SAME_SIGNAL_SECONDS:
            restore()
            signal.raise_signal(number)

    for number in _SIGNALS:
        signal.signal(number, handle)
    try:
        yield stop_request
    finally:
        restore()
