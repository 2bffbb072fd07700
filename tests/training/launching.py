"""Trainings in several processes of this machine that find each other; as a program, one of the processes."""

import json
import os
import socket
import sys
from dataclasses import replace
from pathlib import Path

from forked import ForkedPython

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


def free_port():
    """A port of this machine that nobody uses at present."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return str(listener.getsockname()[1])


def variables_of(rank, count, port):
    """The variables by which torchrun tells a process its number and where to meet the others."""
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "GROUP_RANK": "0"}
    counts = {"WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count)}
    return {**meeting, **counts, "RANK": str(rank), "LOCAL_RANK": str(rank)}


def start(command, count, **variables):
    """Start `count` processes that find each other, with these further variables of the environment."""
    port = free_port()
    return [
        ForkedPython(command, env={**ENVIRONMENT, **variables_of(rank, count, port), **variables})
        for rank in range(count)
    ]


def finish(processes, timeout=300):
    """Wait for processes; their exit status and errors."""
    try:
        outcomes = [process.communicate(timeout=timeout)[1] for process in processes]
    finally:
        for process in processes:
            process.kill()
    return [(process.returncode, errors) for process, errors in zip(processes, outcomes, strict=True)]


def train_all(configs, count, folder, resume=False):
    """Train each configuration in the same `count` processes, one after the other.

    The batches of an update are those of the configurations, which are written for one process.
    """
    jobs = []
    for config in configs:
        batches = config.batches.gradient_accumulation
        if not resume:
            assert batches % count == 0
            config = replace(config, batches=replace(config.batches, gradient_accumulation=batches // count))
        jobs.append(config.to_dict())
    path = folder / "jobs.json"
    path.write_text(json.dumps({"jobs": jobs, "resume": resume}))
    for status, errors in finish(start([__file__, path], count), timeout=900):
        assert status == 0, errors


def main(path):
    """Train the jobs of a file."""
    import torch

    from docmt.training import TrainConfig, train

    torch.set_num_threads(1)
    values = json.loads(Path(path).read_text())
    for job in values["jobs"]:
        train(TrainConfig.from_dict(job), resume=values["resume"])


if __name__ == "__main__":
    main(sys.argv[1])
