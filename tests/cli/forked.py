"""Python in processes of its own that need not import torch, which takes seconds: forks of one that has."""

import gc
import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["docmt.training.loop", "docmt.serve.application", "docmt.serve.document_jobs"])


class ForkedPython:
    """As `subprocess.Popen([sys.executable, *arguments])`: with -c, -m or a script, texts, and pipes unless files or
    descriptors are given; its standard input is empty."""

    def __init__(self, arguments, env=None, stdout=None, stderr=None):
        self.stdout, stdout = _make_pipe() if stdout is None else (None, _copy(stdout))
        self.stderr, stderr = _make_pipe() if stderr is None else (None, _copy(stderr))
        streams = [Connection(each, readable=False) for each in (stdout, stderr)]
        variables = dict(os.environ if env is None else env)
        self.process = CONTEXT.Process(
            target=call, args=(_run, [*map(str, arguments)], variables, streams), daemon=True
        )
        self.process.start()
        for each in streams:
            each.close()
        self.pid, self.kill, self.terminate = self.process.pid, self.process.kill, self.process.terminate

    @property
    def returncode(self):
        return self.process.exitcode

    def poll(self):
        return self.process.exitcode

    def wait(self, timeout=None):
        self.process.join(timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired("python", timeout)
        return self.returncode

    def send_signal(self, number):
        os.kill(self.pid, number)

    def communicate(self, timeout=None):
        """Wait for the end; what was written into the pipes."""
        with ThreadPoolExecutor(2) as pool:
            texts = [pool.submit(stream.read) if stream else None for stream in (self.stdout, self.stderr)]
            try:
                self.wait(timeout)
            except subprocess.TimeoutExpired:
                self.kill()  # or the threads would wait for the end of the pipes
                raise
            return tuple(text and text.result() for text in texts)


def call(function, *arguments):
    """Call a function in a new process, in which no collection of garbage goes through all that was imported."""
    gc.freeze()
    function(*arguments)


def run_forked(arguments, timeout=120, **options):
    """As `subprocess.run`, with the output captured."""
    process = ForkedPython(arguments, **options)
    out, err = process.communicate(timeout=timeout)
    return subprocess.CompletedProcess(arguments, process.returncode, out, err)


def _make_pipe():
    """The reading end as a file of text, and the writing end."""
    reading, writing = os.pipe()
    return os.fdopen(reading, encoding="utf-8"), writing


def _copy(file):
    return os.dup(file if isinstance(file, int) else file.fileno())


def _run(arguments, variables, streams):
    """Be the Python that was asked for."""
    import torch

    os.environ.clear()
    os.environ.update(variables)
    torch.set_num_threads(int(variables.get("OMP_NUM_THREADS", 1)))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with Path(os.devnull).open() as nothing:
        os.dup2(nothing.fileno(), 0)
    for number, stream in enumerate(streams, 1):
        os.dup2(stream.fileno(), number)
        stream.close()
    sys.stdin = os.fdopen(0)
    sys.stdout = sys.__stdout__ = os.fdopen(1, "w", encoding="utf-8")
    sys.stderr = sys.__stderr__ = os.fdopen(2, "w", buffering=1, encoding="utf-8", errors="backslashreplace")
    first, *rest = arguments
    if first == "-c":
        sys.argv = ["-c", *rest[1:]]
        exec(compile(rest[0], "<string>", "exec"), {"__name__": "__main__"})
    elif first == "-m":
        sys.argv = rest
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv = arguments
        runpy.run_path(first, run_name="__main__")
