"""The `docmt` command: finds the subcommand, and turns errors into one sentence and a status."""

from __future__ import annotations

import ctypes
import errno
import logging
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from difflib import get_close_matches
from importlib import import_module
from typing import Any, NoReturn

from docmt.core.errors import INTERRUPTED, USAGE_ERROR, DocmtError, is_out_of_memory
from docmt.core.logging import show_log, silence, standard_streams

_log = logging.getLogger("docmt.cli")

COMMANDS = {
    "prepare": "corpus -> tokenizer and prepared store",
    "train": "prepared store -> run directory with a model",
    "translate": "text files -> translated text files",
    "score": "log-probability of given translations",
    "evaluate": "s-BLEU, d-BLEU and chrF of translations or of models, and which differ",
    "probe": "whether models use their context, and where: test suites, and what context adds to references",
    "check": "what can be seen in a translation without a reference: terms, numbers, address, lengths",
    "inspect": "what a model is, what it looks at, how trainings went",
    "average": "several models of one kind -> a model with the mean of their weights",
    "convert": "checkpoint of another toolkit -> model directory",
    "export": "sentence model -> directory of CTranslate2",
    "reproduce": "published table or figure -> every run of it, the table and the figure",
    "demo": "trains two small models on a synthetic corpus and shows what context gives",
    "completion": "completes commands and options in bash, zsh or fish",
}
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_KEEP = 2**30  # bytes of free heap that stay
_LARGEST = 2**27  # bytes; buffers up to this come from the heap
OUT_OF_MEMORY = "out of memory: use smaller batches (--batch-tokens or --batches.batch-tokens)"


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs `docmt ARGUMENTS...` and returns the exit status: 0 done, 2 an error the user can mend, 130 interrupted."""
    if arguments is None:  # a process of its own, which SIGTERM ends as Ctrl-C does
        signal.signal(signal.SIGTERM, _interrupt)
    show_log()
    keep_freed_memory()
    with standard_streams():
        return _guarded(list(sys.argv[1:] if arguments is None else arguments))


def _interrupt(*signal_and_frame: Any) -> NoReturn:
    """Raise KeyboardInterrupt, after passing the signal to child processes, which Ctrl-C reaches by itself."""
    from multiprocessing import active_children  # no command waits for it at its start

    for process in active_children():
        process.terminate()
    raise KeyboardInterrupt


def _guarded(arguments: list[str]) -> int:
    try:
        status = _run(arguments)
        if sys.stdout is not None:
            sys.stdout.flush()  # a full disk shows here, not after the end of the program
        return status
    except DocmtError as error:
        return _fail(str(error))
    except KeyboardInterrupt:
        _log.warning("interrupted")
        return INTERRUPTED
    except OSError as error:
        if not error.filename and sys.stdout is not None:
            silence(sys.stdout)
        return _fail(str(DocmtError(_refusal(error))))  # which is cut, as names may be of any length
    except (MemoryError, RuntimeError) as error:
        if is_out_of_memory(error):
            return _fail(OUT_OF_MEMORY)
        raise


def _run(arguments: list[str]) -> int:
    if len(arguments) > 1 and arguments[0] == "help" and arguments[1] in COMMANDS:
        arguments = [arguments[1], "--help", *arguments[2:]]
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(_usage())
        return 0 if arguments else USAGE_ERROR
    if arguments[0] in ("-V", "--version"):
        from docmt import __version__

        print(f"docmt {__version__}")
        return 0
    command = arguments[0]
    if command not in COMMANDS:
        kind = "option" if command.startswith("-") else "command"
        close = get_close_matches(command, COMMANDS, n=1)
        advice = f"did you mean {close[0]}?" if close else f"choose one of {', '.join(COMMANDS)}, or --help"
        raise DocmtError(f"unknown {kind} {command!r}: {advice}")
    status: int = import_module(f"docmt.cli.commands.{command}").run(arguments[1:])
    return status


def _usage() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {summary}" for name, summary in COMMANDS.items()]
    return "\n".join(
        [
            "docmt: document-level machine translation",
            "",
            "usage: docmt COMMAND [--help] ...",
            "",
            *lines,
            "",
            "Options can also stand in a YAML file: docmt train recipe.yaml",
        ]
    )


def _fail(sentence: str) -> int:
    _log.error(sentence)
    return USAGE_ERROR


def _refusal(error: OSError) -> str:
    """What the operating system did not do, in one sentence."""
    place = f"{error.filename}: " if error.filename else ""
    advice = "free space or choose another place" if error.errno == errno.ENOSPC else "check the files that are named"
    return f"{place}{error.strerror or error}; {advice}"


def keep_freed_memory() -> None:
    """Raises glibc's thresholds (mallopt) so that freed tensors are reused without page faults.

    Halves the page faults of CPU training (38,000 -> 20,000 an update of 4096 tokens, width 256), and makes decoding
    with a vocabulary of 256,000 up to 1.5 times as fast; what it is worth depends on the machine. Larger buffers, such
    as gradients of such a vocabulary, would leave holes of their size (a fifth of the peak of a small model with it).
    Does nothing where there is no glibc.
    """
    with suppress(OSError, AttributeError):
        libc = ctypes.CDLL("libc.so.6")
        libc.mallopt(_M_TRIM_THRESHOLD, _KEEP)
        libc.mallopt(_M_MMAP_THRESHOLD, _LARGEST)


if __name__ == "__main__":
    sys.exit(main())
