"""A training in several processes: one of them dies, there are too many of them, or other ones than before."""

import json
import os
import signal
import socket
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import yaml
from forked import ForkedPython, run_forked
from launching import ENVIRONMENT, finish, free_port, start, variables_of
from runs import assert_equal_runs, metrics
from safetensors.torch import load_file

from docmt.checkpoint.model_directory import load_model
from docmt.core.errors import DocmtError
from docmt.core.files import CHECKSUMS_KEY
from docmt.training import ObjectiveConfig, ValidationConfig, train
from docmt.training.distributed import start_fabric
from docmt.training.training_corpus import TrainingCorpus
from docmt.training.validation import DevBleu

TRAIN = ["-m", "docmt.cli.app", "train"]
GOES_ON = "Continue from the last checkpoint with docmt train --resume {}, or start again if there is none"


def wait_for(condition, process):
    deadline = time.monotonic() + 120
    while not condition():
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.05)


def children_of(pid):
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.full
@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="two processes need two cores")
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="children are found in /proc")
def test_the_survivor_of_two_says_how_to_go_on(config, tmp_path):
    config = replace(config, devices=2, stop=replace(config.stop, max_steps=100_000, patience=0))
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(yaml.safe_dump(config.to_dict()))
    process = ForkedPython([*TRAIN, recipe])
    wait_for((config.run / "checkpoints" / "last").exists, process)
    os.kill(children_of(process.pid)[0], signal.SIGKILL)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (2, ""), err
    assert err.endswith(GOES_ON.format(config.run) + "\n")
    assert "Traceback" not in err


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="two processes need two cores")
@pytest.mark.full
def test_two_processes_share_the_translation_of_the_dev_split(change, store, tmp_path):
    """The first one translated all of it, while the others waited, at most until their connection timed out."""
    settings = {"model__dropout": 0.0, "objective": ObjectiveConfig(), "stop__max_steps": 4}
    config = change(run=tmp_path / "one", batches__gradient_accumulation=2, **settings)
    train(config)
    script = tmp_path / "script.py"
    script.write_text(
        "import sys, yaml\n"
        "from docmt.training import TrainConfig, train, validation\n"
        "translate_documents = validation.translate_documents\n"
        "def noted(model, documents, *rest, **more):\n"
        "    counts.append(len(documents))\n"
        "    return translate_documents(model, documents, *rest, **more)\n"
        "counts, validation.translate_documents = [], noted\n"
        "result = train(TrainConfig.from_dict(yaml.safe_load(open(sys.argv[1]))))\n"
        "open(f'{sys.argv[1]}.{int(result.is_main_process)}', 'w').write(str(counts))\n"
    )
    validation = ValidationConfig(every=4, best_by="d_bleu", beam=2)
    recipe = tmp_path / "recipe.yaml"
    config = replace(change(run=tmp_path / "two", **settings), validation=validation)
    recipe.write_text(yaml.safe_dump(config.to_dict()))
    for status, errors in finish(start([script, recipe], 2)):
        assert status == 0, errors
    assert [(tmp_path / f"recipe.yaml.{leads}").read_text() for leads in (0, 1)] == ["[3, 3]", "[3, 3]"]
    for one, two in zip(metrics(tmp_path / "one"), metrics(tmp_path / "two"), strict=True):
        assert two == pytest.approx({**two, **one}, rel=1e-4)  # as one process with twice the batches
    dev = TrainingCorpus(store, config).dev
    bleu = DevBleu(start_fabric(replace(config, devices=1)), dev, store.tokenizer, beam=2)
    assert bleu(load_model(config.run)) == pytest.approx(metrics(config.run)[-1]["valid_d_bleu"])


@pytest.mark.full
@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="two processes need two cores")
def test_two_processes_fine_tune_as_one_would_with_twice_the_batches(change, sentence_run, tmp_path):
    """All at once: frozen weights, adapters, gradients in bfloat16, layers that are computed again."""
    settings = {"adapters__rank": 2, "precision": "bfloat16-weights", "activation_checkpointing": True}
    settings |= {"model__dropout": 0.0, "objective": ObjectiveConfig(), "stop__max_steps": 4}
    config = change(initialize_from=sentence_run, **settings)
    train(replace(config, run=tmp_path / "one", batches=replace(config.batches, gradient_accumulation=2)))
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(yaml.safe_dump(replace(config, run=tmp_path / "two").to_dict()))
    for status, errors in finish(start([*TRAIN, recipe], 2)):
        assert status == 0, errors
    for one, two in zip(metrics(tmp_path / "one"), metrics(tmp_path / "two"), strict=True):
        assert two == pytest.approx(one, rel=0.02)
    one, two = (load_file(tmp_path / run / "model" / "model.safetensors") for run in ("one", "two"))
    for name, tensor in load_file(sentence_run / "model" / "model.safetensors").items():
        assert torch.equal(one[name], tensor) == torch.equal(two[name], tensor), name


def test_more_processes_than_processor_cores(config):
    with pytest.raises(DocmtError, match=r"devices is 1024, but this machine has \d+ processor core\(s\): choose"):
        train(replace(config, devices=1024))
    assert not config.run.exists()


@pytest.mark.full
def test_another_number_of_processes_keeps_the_batches_of_an_update(change, tmp_path):
    """A run of two processes, as its state says, goes on in one with twice the batches."""
    config = change(run=tmp_path / "run")
    train(
        replace(
            config, stop=replace(config.stop, max_steps=4), batches=replace(config.batches, gradient_accumulation=2)
        )
    )
    recipe, state_file = config.run / "recipe.yaml", config.run / "checkpoints" / "last" / "state.json"
    recipe.write_text(recipe.read_text().replace("gradient_accumulation: 2", "gradient_accumulation: 1"))
    state = json.loads(state_file.read_text())
    assert state.pop("processes") == 1
    state.pop(CHECKSUMS_KEY)
    state_file.write_text(json.dumps({**state, "processes": 2}))
    train(config, resume=True)
    whole = change(run=tmp_path / "whole", batches__gradient_accumulation=2)
    train(whole)
    assert_equal_runs(config.run, whole.run)


@pytest.mark.full
@pytest.mark.parametrize(("stop", "number"), [(signal.SIGKILL, 1), (signal.SIGSTOP, 1), (signal.SIGSTOP, 0)])
def test_every_process_says_that_one_is_lost_and_the_run_goes_on(stop, number, change, tmp_path):
    """Killed, or stopped as a process that hangs: no launcher looks after these."""
    config = change(run=tmp_path / "run", stop__max_steps=100_000, stop__patience=0, strategy="fsdp")
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(yaml.safe_dump(config.to_dict()))
    code = (
        "import sys\n"
        "from docmt.cli.app import main\n"
        "from docmt.training import distributed\n"
        "distributed.POLL_SECONDS, distributed.LOST_POLLS, distributed.GRACE_SECONDS = 0.2, 15, 1.0\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    processes = start(["-c", code, "train", recipe], 2)
    wait_for((config.run / "checkpoints" / "last").exists, processes[0])
    processes[number].send_signal(stop)
    survivor = processes[1 - number]
    out, err = survivor.communicate(timeout=120)
    processes[number].kill()
    processes[number].wait()  # or it still holds the lock
    assert (survivor.returncode, out) == (2, ""), err
    assert "frame #" not in err  # of C++
    assert err.splitlines()[-1].startswith("docmt: error: ")
    assert err.endswith(GOES_ON.format(config.run) + "\n")
    assert "Traceback" not in err
    done = json.loads((config.run / "checkpoints" / "last" / "state.json").read_text())["update"]
    assert train(replace(config, stop=replace(config.stop, max_steps=done + 1)), resume=True).update == done + 1


@pytest.mark.full
@pytest.mark.parametrize("busy", [0, 1])
def test_processes_end_if_one_never_reaches_an_exchange(busy, config, tmp_path):
    """It lives, but computes for ever, as after an error in the program."""
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(yaml.safe_dump(config.to_dict()))
    code = (
        "import datetime, os, sys, time\n"
        "from docmt.cli.app import main\n"
        "from docmt.training import distributed\n"
        "from docmt.training.loop import Training\n"
        "distributed.EXCHANGE_TIMEOUT = datetime.timedelta(seconds=3)\n"
        "distributed.POLL_SECONDS, distributed.GRACE_SECONDS = 0.2, 1.0\n"
        f"if os.environ['RANK'] == '{busy}':\n"
        "    Training._validate = lambda self: time.sleep(600)\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    for status, errors in finish(start(["-c", code, "train", recipe], 2), timeout=120):
        assert status == 2, errors
        assert "Traceback" not in errors
        assert errors.endswith(GOES_ON.format(config.run) + "\n")


@pytest.mark.full
@pytest.mark.parametrize("rank", [0, 1])
def test_a_process_that_meets_no_other_ends(rank, config, tmp_path):
    """The other one was killed, or never started; it waited for a day."""
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(yaml.safe_dump(config.to_dict()))
    code = (
        "import sys\n"
        "from docmt.cli.app import main\n"
        "from docmt.training import distributed\n"
        "distributed.MEETING_SECONDS = 1.2\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    environment = {**ENVIRONMENT, **variables_of(rank, 2, free_port())}
    done = run_forked(["-c", code, "train", recipe], env=environment)
    assert (done.returncode, done.stdout) == (2, "")
    assert "the 2 processes of this training have not met within 0.02 minutes: " in done.stderr.splitlines()[-1]
    assert done.stderr.count("docmt: error: ") == 1, done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.full
def test_a_meeting_at_a_port_that_is_taken(config, tmp_path):
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(yaml.safe_dump(config.to_dict()))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        environment = {**ENVIRONMENT, **variables_of(0, 2, str(listener.getsockname()[1]))}
        done = run_forked([*TRAIN, recipe], env=environment)
    assert done.returncode == 2
    assert "cannot meet (" in done.stderr and "Choose a free port" in done.stderr
    assert "--resume" not in done.stderr and "Traceback" not in done.stderr


@pytest.mark.full
def test_slurm_starts_the_processes(config, tmp_path):
    """By the variables that srun sets; a batch script without srun has one task and starts the processes itself."""
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(yaml.safe_dump(replace(config, stop=replace(config.stop, max_steps=2)).to_dict()))
    shared = {
        "SLURM_STEP_NUM_TASKS": "2",
        "SLURM_STEP_NUM_NODES": "1",
        "SLURM_NTASKS": "2",
        "SLURM_NODELIST": "localhost",
    }
    shared |= {"SLURM_JOB_NAME": "train", "SLURM_JOB_ID": "4711", "SLURM_NODEID": "0", "MASTER_PORT": free_port()}
    ranks = [{"SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank)} for rank in range(2)]
    processes = [ForkedPython([*TRAIN, recipe], env={**ENVIRONMENT, **shared, **rank}) for rank in ranks]
    assert [status for status, _ in finish(processes)] == [0, 0]
    assert json.loads((config.run / "checkpoints" / "last" / "state.json").read_text())["processes"] == 2
