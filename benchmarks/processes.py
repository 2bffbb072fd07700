"""Training in several processes: efficiency against one, and memory of a process by strategy. Needs an idle machine.

python -m benchmarks.processes [--processes 1 2] [--strategies ddp fsdp] [--preset base] [--updates 10]

It starts the processes itself, with one thread each, and prints one JSON object per setting. An update has the same
batches in every setting. Weights are random.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from benchmarks.training import Size, _Corpus
from docmt.model import ModelConfig, TranslationModel
from docmt.training import BatchConfig, TrainConfig
from docmt.training.distributed import start_fabric
from docmt.training.optimizer import Updater
from docmt.training.training_corpus import UpdatePlan


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure every combination of strategy and number of processes."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.processes")
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--strategies", nargs="+", default=["ddp", "fsdp"])
    parser.add_argument("--preset", default="base")
    parser.add_argument("--vocabulary-size", type=int, default=32_000)
    parser.add_argument("--layers", type=int, default=0, help="of encoder and decoder each; 0: those of the preset")
    parser.add_argument("--batch-tokens", type=int, default=1024)
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--activation-checkpointing", action="store_true")
    parser.add_argument("--updates", type=int, default=10)
    options = parser.parse_args(arguments)
    if "LOCAL_WORLD_SIZE" in os.environ:
        _measure(options)
        return 0
    batches, speeds = max(options.processes), dict[str, float]()
    for strategy in options.strategies:
        for count in options.processes:
            result = _run_processes(count, [*sys.argv[1:], "--strategies", strategy, "--processes", str(batches)])
            first = speeds.setdefault(strategy, result["tokens_per_second"] / count)
            result |= {"strategy": strategy, "efficiency": round(result["tokens_per_second"] / count / first, 3)}
            print(json.dumps(result), flush=True)
    return 0


def _run_processes(count: int, arguments: Sequence[str]) -> dict[str, Any]:
    """Return what the first of `count` processes measures, with the largest memory of all."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = str(listener.getsockname()[1])
    shared = {"WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count), "GROUP_RANK": "0", "OMP_NUM_THREADS": "1"}
    shared |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    command = [sys.executable, "-m", "benchmarks.processes", *arguments]
    processes = [
        subprocess.Popen(
            command, env={**os.environ, **shared, "RANK": str(n), "LOCAL_RANK": str(n)}, stdout=subprocess.PIPE
        )
        for n in range(count)
    ]
    results = [json.loads(process.communicate()[0]) for process in processes]
    return {**results[0], "peak_gigabytes": max(result["peak_gigabytes"] for result in results)}


def _measure(options: argparse.Namespace) -> None:
    """Print tokens a second and peak memory of this process."""
    torch.set_num_threads(1)
    layers = {"encoder_layers": options.layers, "decoder_layers": options.layers} if options.layers else {}
    model = ModelConfig(system="document", preset=options.preset, vocabulary_size=options.vocabulary_size, **layers)
    config = TrainConfig(
        store=Path("-"),
        run=Path("-"),
        model=replace(model.resolve(), dropout=0.0),
        batches=BatchConfig(batch_tokens=options.batch_tokens),
        precision=options.precision,
        activation_checkpointing=options.activation_checkpointing,
        device="cpu",
    )
    (strategy,), (batches,) = options.strategies, options.processes
    fabric = start_fabric(config, strategy)
    size = Size("processes", config.model, options.batch_tokens)
    corpus = _Corpus(size, "document", options.batch_tokens // 2, batches * (options.updates + 1))
    plans = corpus.plans()
    torch.manual_seed(1)
    with torch.device("meta" if strategy == "fsdp" and fabric.global_rank else "cpu"):
        network = TranslationModel(config.model)
    updater, tokens, started = Updater(fabric, config, network), 0, 0.0
    for number in range(options.updates + 1):
        if number == 1:  # the first one allocates
            tokens, started = 0, time.perf_counter()
        together = plans[number * batches : (number + 1) * batches]
        own = [(plan.batches[0][0], 1.0) for plan in together[fabric.global_rank :: fabric.world_size]]
        plan = UpdatePlan(own, sum(each.label_tokens for each in together))
        updater.update(number + 1, plan, [corpus.train.build_batch(indices) for indices, _ in own])
        tokens += plan.label_tokens
    parameters = sum(weights.numel() for weights in network.parameters())
    result = {
        "processes": fabric.world_size,
        "million_weights": round(parameters / 1e6, 1),
        "tokens_per_second": round(tokens / (time.perf_counter() - started), 1),
        "peak_gigabytes": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6, 2),
    }
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    sys.exit(main())
