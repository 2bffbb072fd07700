"""Output that nobody reads or that is closed, and two processes at one run: in processes as users start them."""

import os
import subprocess
import sys
import time

import pytest
from commands import SIZES, TINY, assert_one_sentence, call, fails, start, wait_for_lines
from forked import ForkedPython

from docmt.training import train

# Progress lines at once, not after ten seconds.
TALKATIVE = (
    "import sys, docmt.core.progress, docmt.cli.app; docmt.core.progress.LINE_INTERVAL_SECONDS = 0.0; "
    "sys.exit(docmt.cli.app.main(sys.argv[1:]))"
)


def talkative(*arguments, **options):
    """Runs `docmt ARGUMENTS` in a process that shows progress all the time."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **options.pop("environment", {})}
    command = [sys.executable, "-c", TALKATIVE, *map(str, arguments)]
    return subprocess.Popen(command, env=environment, **options)


def training(store, run, *others, steps=5):
    return ["train", "--store", store, "--run", run, *TINY, "--stop.max-steps", steps, "--log-every", 1, *others]


@pytest.mark.full
@pytest.mark.parametrize("closed", [pytest.param("stderr", marks=pytest.mark.full), "stdout and stderr"])
def test_progress_into_a_closed_pipe_does_not_end_the_work(store, tmp_path, closed):
    """It ended the command with status 0, and nothing was saved."""
    inputs, writing = os.pipe()
    os.close(inputs)
    out = writing if closed == "stdout and stderr" else None
    process = ForkedPython(["-c", TALKATIVE, *training(store, tmp_path / "run")], stderr=writing, stdout=out)
    os.close(writing)
    shown, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    assert (tmp_path / "run" / "model" / "model.safetensors").is_file()
    if out is None:
        assert shown.startswith("5 updates are done; the model is in")


@pytest.mark.full
def test_nothing_of_a_closed_standard_error_goes_to_standard_output(store, tmp_path):
    def closing():
        os.close(2)

    process = talkative(*training(store, tmp_path / "run"), stdout=subprocess.PIPE, preexec_fn=closing)
    shown, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    assert shown.decode() == f"5 updates are done; the model is in {tmp_path / 'run' / 'model'}\n"
    process = talkative("train", "--no-such-option", stdout=subprocess.PIPE, preexec_fn=closing)
    assert (process.communicate(timeout=120)[0], process.returncode) == (b"", 2)


@pytest.mark.full
def test_a_pipe_that_is_closed_elsewhere_is_an_error(store, tmp_path):
    """Only of standard output it may be said that nobody wants to read it."""
    inputs, writing = os.pipe()
    os.close(inputs)
    text = tmp_path / "a.txt"
    text.write_text("One.\n")
    arguments = ["evaluate", "--hypothesis", text, "--reference", text, "--json", f"/dev/fd/{writing}"]
    process = talkative(*arguments, stderr=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=[writing])
    os.close(writing)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 2, out
    assert b"Broken pipe" in err


@pytest.mark.full
def test_what_the_encoding_lacks_is_written_as_its_number(tmp_path):
    text = tmp_path / "größe.txt"
    text.write_text("One.\n")
    arguments = ["--hypothesis", text, "--reference", text, "--metrics.protocol", "nö"]
    process = talkative(
        "evaluate", *arguments, stderr=subprocess.PIPE, environment={"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    )
    _, err = process.communicate(timeout=120)
    assert process.returncode == 2
    assert b"Traceback" not in err
    code = "from docmt.core.logging import standard_streams\nwith standard_streams(): print('5 ± 1')"
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    assert (
        subprocess.run([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE).stdout == b"5 \\xb1 1\n"
    )


def outcomes(processes):
    """Status and standard error of each, when all have ended."""
    return sorted((process.wait(timeout=300), process.communicate()[1]) for process in processes)


@pytest.mark.full
def test_two_resumes_of_one_run(store, tmp_path):
    """Both went on, and wrote over each other."""
    run = tmp_path / "run"
    first = start(*training(store, run, "--checkpoints.every", 1, steps=100_000))
    wait_for_lines(run / "metrics.jsonl", 3, first)
    first.kill()
    first.communicate()
    resume = ["train", "--resume", run, "--stop.max-steps", 1000]
    pair = [start(*resume), start(*resume)]
    deadline = time.monotonic() + 120
    while all(process.poll() is None for process in pair):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    refused, working = sorted(pair, key=lambda process: process.poll() is None)
    assert refused.wait() == 2
    message = rf"the run {run} is being trained by process {working.pid} on \S+: wait for it, or stop it"
    assert_one_sentence(refused.communicate()[1], message)
    # The same is said where it seems to be a new run, or to be finished in other ways.
    third = call("train", "--resume", run)
    assert (third.status, "being trained by process" in third.err) == (2, True)
    working.terminate()
    assert working.wait(timeout=60) == 130
    working.communicate()
    lines = (run / "metrics.jsonl").read_text().splitlines()
    updates = [line.split(",")[0] for line in lines if '"loss"' in line]
    assert len(updates) == len(set(updates))
    assert call("train", "--resume", run, "--stop.max-steps", 1).status == 0


@pytest.mark.full
def test_two_reproductions_into_one_directory(corpus, store, tmp_path, monkeypatch):
    tested = tmp_path / "tested"
    splits = [
        part
        for name in ("train", "dev", "test")
        for part in (f"--{name}", corpus / f"{name}.en", corpus / f"{name}.de")
    ]
    assert call("prepare", "--store", tested, *splits, "--vocabulary-size", 400).status == 0
    sizes = "".join(f"  {name}: {value}\n" for name, value in SIZES.items())
    (tmp_path / "tiny.yaml").write_text(
        f"store: x\nrun: x\nmodel:\n{sizes}stop: {{max_steps: 2}}\ndevice: cpu\nlog_every: 1\n"
    )
    (tmp_path / "small.yaml").write_text("title: Small\nvariants: {one: {recipe: tiny.yaml}}\n")
    output = tmp_path / "out"
    command = ["reproduce", tmp_path / "small.yaml", "--store", tested, "--output", output, "--search.beam", 1]
    message = rf"the experiments in {output} are being run by process {os.getpid()} on \S+: wait for it, or stop it"

    def train_meanwhile(config, resume):
        fails(*command, message=message)
        return train(config, resume)

    monkeypatch.setattr("docmt.experiments.runs.train", train_meanwhile)
    assert call(*command).status == 0
    assert call(*command, "--dry-run").out.startswith("done")


@pytest.mark.full
@pytest.mark.parametrize("name", ["null", "-dash"])
def test_runs_with_awkward_names(store, tmp_path, monkeypatch, name):
    """`--resume null` was taken for no resume, and the value of `--resume=-dash` for an option."""
    monkeypatch.chdir(tmp_path)
    options = ["--store", store, *TINY, "--stop.max-steps"]
    assert call("train", f"--run={name}", *options, 1).status == 0
    assert call("train", f"--resume={name}", "--stop.max-steps", 2).status == 0
