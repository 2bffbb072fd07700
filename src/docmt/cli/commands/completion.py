"""docmt completion bash|zsh|fish

Print a script that makes a shell complete commands, options (with their short names) and values.

usage:
    SHELL

examples:
    docmt completion bash > ~/.local/share/bash-completion/completions/docmt
    docmt completion zsh > ~/.zfunc/_docmt       # with fpath+=(~/.zfunc) before compinit in ~/.zshrc
    docmt completion fish > ~/.config/fish/completions/docmt.fish
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal, get_args, get_origin

from docmt.cli.options import Option, Parser
from docmt.core.settings import flag_of, option


@dataclass(frozen=True)
class CompletionOptions:
    """The options of the command."""

    shell: Literal["bash", "zsh", "fish"] = option(positional=True, metavar="SHELL")
    """bash, zsh or fish"""


def parser() -> Parser[CompletionOptions]:
    """Return the parser of the command."""
    return Parser("completion", CompletionOptions, __doc__)


def run(arguments: Sequence[str]) -> int:
    """Print the completion script of a shell."""
    shell = parser().parse(arguments).shell
    from docmt.cli.app import COMMANDS  # imported here because it imports the commands

    flags = {command: _values_of_flags(import_module(f"docmt.cli.commands.{command}").parser()) for command in COMMANDS}
    if shell == "fish":
        print(_format_fish(flags, COMMANDS), end="")
    else:
        print(_format_bash(flags, zsh=shell == "zsh"), end="")
    return 0


def _values_of_flags(parser: Parser[Any]) -> dict[str, list[str] | None]:
    """Return the values of every flag, with short names. None stands for any value, such as a file."""
    names = {flag_of(name): option for name, option in parser.names.items()}
    names |= {flag: option for option in parser.options for flag in option.flags}
    return {flag: _values(option) for flag, option in names.items() if option.flags}


def _values(option: Option) -> list[str] | None:
    if option.default is None and option.is_switch:  # --help
        return []
    if option.is_switch:
        return ["true", "false"]
    return [str(value) for value in get_args(option.kind)] if get_origin(option.kind) is Literal else None


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


def _format_fish(commands: dict[str, dict[str, list[str] | None]], summaries: dict[str, str]) -> str:
    lines = [
        f"complete -c docmt -n __fish_use_subcommand -f -a {command} -d {shlex.quote(summary)}"
        for command, summary in summaries.items()
    ]
    for command, flags in commands.items():
        start = f"complete -c docmt -n '__fish_seen_subcommand_from {command}'"
        for flag, choices in flags.items():
            name = f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}"
            value = f" -x -a {shlex.quote(' '.join(choices))}" if choices else ("" if choices == [] else " -r")
            lines.append(f"{start} {name}{value}")
    return "".join(f"{line}\n" for line in lines)
