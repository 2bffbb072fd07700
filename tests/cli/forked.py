"""Python in processes of its own that need not import torch, which takes seconds: forks of one that has."""

import gc
import json
import multiprocessing
import os
import runpy
import signal
import socket
import socketserver
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["docmt.training.loop", "docmt.serve.application", "docmt.serve.document_jobs"])


class ForkedPython:
    """As `subprocess.Popen([sys.executable, *arguments])`: with -c, -m or a script, texts, and pipes unless files or
    descriptors are given; its standard input is empty."""

    def __init__(self, arguments, env=None, stdout=None, stderr=None, cwd=None):
        self.stdout, stdout = _make_pipe() if stdout is None else (None, _copy(stdout))
        self.stderr, stderr = _make_pipe() if stderr is None else (None, _copy(stderr))
        streams = [Connection(each, readable=False) for each in (stdout, stderr)]
        variables = dict(os.environ if env is None else env)
        self.process = CONTEXT.Process(
            target=call, args=(_run, [*map(str, arguments)], variables, streams, cwd), daemon=True
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


class Forking:
    """Stands for the module `subprocess` in a module that starts Python."""

    @staticmethod
    def run(command, **options):
        return run_forked(command[1:])

    @staticmethod
    def Popen(command, **options):  # noqa: N802
        with Path(os.devnull).open("w") as nothing:
            return ForkedPython(command[1:], stdout=nothing, stderr=2)

    DEVNULL = None


CLIENT = """#!{python} -IS
import json, os, socket, sys
server = socket.socket(socket.AF_UNIX)
server.connect({path!r})
arguments = [{start}, *sys.argv[1:]]
socket.send_fds(server, [json.dumps([arguments, os.getcwd(), dict(os.environ)]).encode() + b"\\n"], [1, 2])
sys.exit(int(server.recv(9)))
"""
"""The program that has a fork made of the tests, and ends as it does."""


class _Request(socketserver.BaseRequestHandler):
    def handle(self):
        data, streams, _, _ = socket.recv_fds(self.request, 1 << 20, 2)
        while not data.endswith(b"\n"):
            data += self.request.recv(1 << 20)
        arguments, folder, variables = json.loads(data)
        process = ForkedPython(arguments, env=variables, cwd=folder, stdout=streams[0], stderr=streams[1])
        for stream in streams:
            os.close(stream)
        self.request.send(str(process.wait()).encode())


@contextmanager
def forking_commands():
    """A folder for the front of PATH, whose `docmt` and `python` are forks."""
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/socket"
        for name, start in (("docmt", "'-m', 'docmt.cli.app'"), ("python", "")):
            client = Path(folder, name)
            client.write_text(CLIENT.format(python=sys.executable, path=path, start=start).replace("[, ", "["))
            client.chmod(0o755)
        with socketserver.ThreadingUnixStreamServer(path, _Request) as server:
            thread = threading.Thread(target=server.serve_forever, args=(0.05,))
            thread.start()
            yield folder
            server.shutdown()
            thread.join()


def _make_pipe():
    """The reading end as a file of text, and the writing end."""
    reading, writing = os.pipe()
    return os.fdopen(reading, encoding="utf-8"), writing


def _copy(file):
    return os.dup(file if isinstance(file, int) else file.fileno())


def _run(arguments, variables, streams, folder):
    """Be the Python that was asked for."""
    import torch

    if folder is not None:
        os.chdir(folder)
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
