"""The `docmt` command: dispatch to a subcommand, error messages and exit status."""

from __future__ import annotations

import ctypes
import errno
import logging
import os
import shlex
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from types import FrameType
from typing import Any, Literal, NoReturn

from docmt.cli.options import Option, Parser
from docmt.core.errors import INTERRUPTED, USAGE_ERROR, DocmtError, did_you_mean, is_out_of_memory
from docmt.core.logging import discard_output, show_log, standard_streams
from docmt.core.settings import format_flag, option

_log = logging.getLogger("docmt.cli")

GROUPS = {
    "train": {
        "prepare": "Learn a tokenizer and prepare parallel documents for training",
        "train": "Train a model on a prepared store",
        "average": "Average the weights of several models or checkpoints",
        "convert": "Convert a checkpoint of another toolkit to a model directory",
        "reproduce": "Run the experiments of a published table or figure",
    },
    "use": {
        "translate": "Translate files with a model",
        "bulk": "Translate a corpus of documents with any number of workers, each document once",
        "serve": "Translate for other programs and for people with a browser",
        "pull": "Download a pretrained model and convert it",
        "models": "List the models that are there, or those to pull",
        "export": "Export a sentence model to CTranslate2",
        "demo": "Translate a document of the package, and show what context changes",
        "completion": "Print a completion script for bash, zsh or fish",
    },
    "measure": {
        "evaluate": "Score translations or models with BLEU and chrF, and compare systems",
        "probe": "Measure with test suites and references whether models use context",
        "score": "Compute log-probabilities of supplied translations",
        "check": "Report inconsistencies and errors in a translation, without a reference",
        "inspect": "Describe a model, its attention, or the curves of trainings",
    },
    "files": {
        "extract": "Write the text of a file, and a translation, to bilingual XLIFF",
        "merge": "Put an edited translation from XLIFF back into its file",
        "terms": "Check glossaries, or convert them to TSV or TBX",
    },
}
"""The summary of each command, by group."""
COMMANDS = {name: summary for group in GROUPS.values() for name, summary in group.items()}
# Modules of commands that have none of their own.
_MODULES = dict.fromkeys(("prepare", "reproduce"), "commands.train") | {"demo": "commands.translate"}
_MODULES |= {"score": "commands.inspect", "completion": "app"} | dict.fromkeys(GROUPS["files"], "commands.exchange")
_MODULES |= dict.fromkeys(("pull", "convert", "export", "average"), "commands.models")
_TRAINING_COMMANDS = {"train", "reproduce"}
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_TRIM_BYTES = 2**30  # free heap that is not returned to the system
_MMAP_BYTES = 2**27  # largest buffer on the heap
OUT_OF_MEMORY = "out of memory: use smaller batches (--batch-tokens or --batches.batch-tokens)"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `docmt ARGUMENTS...` and return the exit status: 0 done, 2 user error, 130 interrupted."""
    if arguments is None:  # in a separate process, SIGTERM acts as Ctrl-C does
        signal.signal(signal.SIGTERM, _raise_interrupt)
        signal.signal(signal.SIGINT, _raise_interrupt)
    show_log()
    keep_freed_memory()
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not _TRAINING_COMMANDS.intersection(words[:1]):  # an update in bfloat16 has over a hundred products
        limit_compiled_products()
    with standard_streams():
        status = _run_and_report_errors(words)
    if arguments is None:  # the work is done, and Python would report an interrupt of its own clearing up
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: os._exit(status))
    return status


def _raise_interrupt(number: int, frame: FrameType | None) -> NoReturn:
    """Raise KeyboardInterrupt after terminating child processes, which Ctrl-C reaches directly.

    While a module is imported, the process ends at once: there is nothing to save, and a library that is loaded in part
    raises unrelated errors.
    """
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            os.write(2, b"docmt: interrupted\n")
            os._exit(INTERRUPTED)
        frame = frame.f_back
    from multiprocessing import active_children  # imported here to start faster

    for process in active_children() if number == signal.SIGTERM else ():
        process.terminate()
    raise KeyboardInterrupt


def _run_and_report_errors(arguments: list[str]) -> int:
    try:
        status = _run(arguments)
        if sys.stdout is not None:
            sys.stdout.flush()  # reports a full disk before the program ends
        return status
    except DocmtError as error:
        return _report_error(str(error))
    except KeyboardInterrupt:
        _log.warning("interrupted")
        return INTERRUPTED
    except OSError as error:
        if not error.filename and sys.stdout is not None:
            discard_output(sys.stdout)
        return _report_error(str(DocmtError(_describe_os_error(error))))  # DocmtError truncates long file names
    except (MemoryError, RuntimeError) as error:
        if is_out_of_memory(error):
            return _report_error(OUT_OF_MEMORY)
        raise


def _run(arguments: list[str]) -> int:
    if len(arguments) > 1 and arguments[0] == "help":
        arguments = [arguments[1], "--help", *arguments[2:]]
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(_format_usage())
        return 0 if arguments else USAGE_ERROR
    if arguments[0] in ("-V", "--version"):
        from docmt import __version__

        print(f"docmt {__version__}")
        return 0
    command = arguments[0]
    if command not in COMMANDS:
        kind = "option" if command.startswith("-") else "command"
        choice = f"choose one of {', '.join(COMMANDS)}, or --help"
        advice = did_you_mean(command, {name: name for name in COMMANDS}, choice)
        raise DocmtError(f"unknown {kind} {command!r}: {advice}")
    return load_command(command)[1](arguments[1:])


def load_command(name: str) -> tuple[Parser[Any], Callable[[Sequence[str]], int]]:
    """Return the parser of a command, and the function that runs it with arguments.

    A module has, for each of its commands, the options as NAMEOptions, which describe the command, and run_NAME, which
    takes them. If it makes the parser of a command, run_NAME reads the arguments itself.
    """
    module = import_module(f"docmt.cli.{_MODULES.get(name, f'commands.{name}')}")
    run = getattr(module, f"run_{name}")
    if make_parser := getattr(module, f"make_{name}_parser", None):
        return make_parser(), run
    options = getattr(module, f"{name.title()}Options")
    parser = Parser(name, options, options.__doc__)
    return parser, lambda arguments: run(parser.parse(arguments))


def _format_usage() -> str:
    width = max(map(len, COMMANDS))
    lines = ["docmt: document-level machine translation", "", "usage: docmt COMMAND [--help] ...", ""]
    for group, commands in GROUPS.items():
        lines += [f"{group}:", *(f"  {name:<{width}}  {summary}" for name, summary in commands.items()), ""]
    return "\n".join([*lines, "Options can also be in a YAML file: docmt train recipe.yaml"])


def _report_error(message: str) -> int:
    _log.error(message)
    return USAGE_ERROR


def _describe_os_error(error: OSError) -> str:
    """Return the message for an operating system error."""
    path = f"{error.filename}: " if error.filename else ""
    advice = "free space or choose another path" if error.errno == errno.ENOSPC else "check the files that are named"
    return f"{path}{error.strerror or error}; {advice}"


def keep_freed_memory() -> None:
    """Raise glibc's thresholds (mallopt) so that freed tensors are reused without page faults.

    This halves the page faults of CPU training (38,000 -> 20,000 an update of 4096 tokens, width 256). Decoding with a
    vocabulary of 256,000 becomes up to 1.5 times as fast, depending on the machine. Larger buffers, such as gradients
    of such a vocabulary, would fragment the heap (a fifth of the peak of a small model). Without glibc it does nothing.
    """
    with suppress(OSError, AttributeError):
        libc = ctypes.CDLL("libc.so.6")
        libc.mallopt(_M_TRIM_THRESHOLD, _TRIM_BYTES)
        libc.mallopt(_M_MMAP_THRESHOLD, _MMAP_BYTES)


def limit_compiled_products() -> None:
    """Have oneDNN keep 192 compiled products, unless the environment says otherwise; before torch loads.

    It compiles one for each number of rows, and by default keeps 1,024: gigabytes after hours of bfloat16 or int8.
    """
    for name in ("LRU_CACHE_CAPACITY", "ONEDNN_PRIMITIVE_CACHE_CAPACITY"):
        os.environ.setdefault(name, "192")


# docmt completion


@dataclass(frozen=True)
class CompletionOptions:
    """docmt completion bash|zsh|fish

    Print a script that makes a shell complete commands, options (with their short names) and values.

    usage:
        SHELL

    examples:
        docmt completion bash > ~/.local/share/bash-completion/completions/docmt
        docmt completion zsh > ~/.zfunc/_docmt       # with fpath+=(~/.zfunc) before compinit in ~/.zshrc
        docmt completion fish > ~/.config/fish/completions/docmt.fish
    """

    shell: Literal["bash", "zsh", "fish"] = option(positional=True, metavar="SHELL")
    """bash, zsh or fish"""


def run_completion(options: CompletionOptions) -> int:
    """Print the completion script of a shell."""
    flags = {command: _values_of_flags(load_command(command)[0]) for command in COMMANDS}
    is_fish = options.shell == "fish"
    print(_format_fish(flags) if is_fish else _format_bash(flags, zsh=options.shell == "zsh"), end="")
    return 0


def _values_of_flags(parser: Parser[Any]) -> dict[str, list[str] | None]:
    """Return the values of every flag, with short names. None stands for any value, such as a file."""
    names = {format_flag(name): option for name, option in parser.names.items()}
    names |= {flag: option for option in parser.options for flag in option.flags}
    return {flag: _values(option) for flag, option in names.items() if option.flags}


def _values(option: Option) -> list[str] | None:
    if option.default is None and option.is_switch:  # --help
        return []
    if option.is_switch:
        return ["true", "false"]
    return option.choices or None


_BASH = """\
_docmt() {{
    local current="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD-1]}}" words=""
    COMPREPLY=()
    if [ "$COMP_CWORD" -eq 1 ]; then
        words="{commands} --help --version"
    else
        case "${{COMP_WORDS[1]}} $before" in
{values}
        esac
        if [ -z "$words" ]; then
            case "$current" in
            -*) case "${{COMP_WORDS[1]}}" in
{flags}
                esac ;;
            esac
        fi
    fi
    [ -z "$words" ] || COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -o default -F _docmt docmt
"""


def _format_bash(commands: dict[str, dict[str, list[str] | None]], zsh: bool) -> str:
    """Return the script for bash, or for zsh with `bashcompinit`."""
    values = [
        f'        "{command} {flag}") words="{" ".join(choices)}" ;;'
        for command, flags in commands.items()
        for flag, choices in flags.items()
        if choices
    ]
    flags = [f'                {command}) words="{" ".join(flags)}" ;;' for command, flags in commands.items()]
    head = "#compdef docmt\nautoload -U +X bashcompinit && bashcompinit\n" if zsh else ""
    return head + _BASH.format(commands=" ".join(commands), values="\n".join(values), flags="\n".join(flags))


def _format_fish(commands: dict[str, dict[str, list[str] | None]]) -> str:
    lines = [
        f"complete -c docmt -n __fish_use_subcommand -f -a {command} -d {shlex.quote(summary)}"
        for command, summary in COMMANDS.items()
    ]
    for command, flags in commands.items():
        start = f"complete -c docmt -n '__fish_seen_subcommand_from {command}'"
        for flag, choices in flags.items():
            name = f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}"
            value = f" -x -a {shlex.quote(' '.join(choices))}" if choices else ("" if choices == [] else " -r")
            lines.append(f"{start} {name}{value}")
    return "".join(f"{line}\n" for line in lines)


if __name__ == "__main__":
    sys.exit(main())
