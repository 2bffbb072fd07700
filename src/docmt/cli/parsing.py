"""Flags, recipes and help from the dataclasses that the rooms document; one way for all commands."""

from __future__ import annotations

import argparse
import logging
import re
import shutil
import sys
import typing
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import fields
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

import jsonargparse
import yaml
from jsonargparse import ArgumentParser, _postponed_annotations, set_loader, set_parsing_settings
from jsonargparse._loaders_dumpers import yaml_load

from docmt.cli.recipes import group_names, is_recipe, read_recipe
from docmt.cli.spelling import closest, is_switch, short_name, spelled_out, type_of
from docmt.core.errors import DocmtError
from docmt.core.logging import set_quiet
from docmt.decoding.config import BATCH_TOKENS

if TYPE_CHECKING:
    from docmt.decoding import Translator

_log = logging.getLogger(__name__)

set_parsing_settings(docstring_parse_attribute_docstrings=True)
# To know annotations that no option has, the library would also run what stands below `if TYPE_CHECKING:` where options
# are defined, and so load torch, which takes longer than everything else here.
_postponed_annotations.update_module_global_vars = lambda module, global_vars, logger: global_vars.update(
    vars(sys.modules[module])
)


def _read_value(text: str) -> Any:
    """A value as YAML has it; what YAML cannot read (file names that are no UTF-8, endless digits) is text as it is."""
    try:
        return yaml_load(text)  # type: ignore[no-untyped-call]
    except (ValueError, yaml.reader.ReaderError):
        return text


set_loader("yaml", _read_value, (yaml.YAMLError,))

WIDEST_HELP = 110
SEARCH_TITLE = "beam search over whole documents"
CONTEXT_TITLE = "what of a document is read at once"


class HelpFormatter(jsonargparse.DefaultHelpFormatter):
    """Help for people: what an option is and its default, without the names of Python types."""

    def __init__(self, prog: str) -> None:
        width = min(shutil.get_terminal_size().columns, WIDEST_HELP) - 2
        super().__init__(prog, max_help_position=34, width=width)  # type: ignore[no-untyped-call]

    def _get_help_string(self, action: argparse.Action) -> str:
        text = (action.help or "").rstrip(".")
        if action.required and action.option_strings:
            return f"{text} (required)"
        default = action.default
        if default in (None, "", [], argparse.SUPPRESS) or not action.option_strings or action.nargs == 0:
            return text
        return f"{text} (default: {str(default).lower() if isinstance(default, bool) else default})"

    def _format_action_invocation(self, action: argparse.Action) -> str:
        if is_switch(action):  # `true` need not be written
            return ", ".join(action.option_strings)
        return super()._format_action_invocation(action)

    def _get_default_metavar_for_optional(self, action: argparse.Action) -> str:
        return {int: "N", float: "X", Path: "PATH"}.get(type_of(action), "TEXT")


class Parser(ArgumentParser):
    """A parser of one command."""

    examples: Sequence[str] = ()
    """whole commands that work, for the help"""
    common: Sequence[str] = ()
    """the options that people use most, by full name without dashes; the help shows them first"""
    also: Mapping[str, str] = MappingProxyType({})
    """further names of options, and what they stand for"""

    def format_help(self, formatter: argparse.HelpFormatter | None = None) -> str:
        """The help: usage, examples and common options, then all."""
        text = super().format_help()
        whole = [string for action in self._actions for string in action.option_strings]
        first = self._get_formatter()
        first.add_usage(self.usage, self._actions, self._mutually_exclusive_groups)
        first.add_text(self.description)
        usage, shown = first.format_help(), self._get_formatter()
        if self.examples:
            shown.start_section("examples")
            shown._add_item("\n".join, [[f"  {example}" for example in self.examples] + [""]])
            shown.end_section()
        if not self.common:
            return "\n".join(filter(None, [usage, shown.format_help(), text.removeprefix(usage).lstrip("\n")]))
        shown.start_section("common options")
        for name in self.common:
            action = copy(_option(self, name))
            if action is not None:
                *others, long = action.option_strings
                action.option_strings = [*others, short_name(long, whole)]
                shown.add_argument(action)
        shown.end_section()
        return usage + "\n" + shown.format_help() + text.removeprefix(usage)


def make_parser(
    command: str,
    description: str,
    usage: str = "",
    examples: Sequence[str] = (),
    common: Sequence[str] = (),
    also: Mapping[str, str] = MappingProxyType({}),
) -> Parser:
    """A parser that takes flags and, as `--config` or a first argument ending in .yaml, a recipe.

    `usage`: one line for each way to call the command, without its name; the default is that of a command with
    nothing but options. For the rest see `Parser`.
    """
    program = f"docmt {command}"
    lines = [f"{program} {line}" for line in (usage or "[RECIPE.yaml] [options]").splitlines()]
    parser = Parser(
        prog=program,
        usage="\n       ".join(lines),
        description=description,
        exit_on_error=False,
        allow_abbrev=False,
        formatter_class=HelpFormatter,
    )
    parser.add_argument(
        "--config",
        action="config",
        metavar="RECIPE.yaml",
        help="YAML file with any of the options here, nested at the dots (a first argument ending in .yaml is one too)",
    )
    parser.add_argument(
        "-q", "--quiet", type=bool, default=False, help="no progress and no news, only warnings and errors"
    )
    parser.examples, parser.common, parser.also = examples, common, also
    return parser


def add_settings(parser: Parser, settings: type, group: str | None, title: str, skip: set[str] | None = None) -> None:
    """Adds the fields of a dataclass as options, `--group.field` or `--field`, under `title` in the help."""
    before = len(parser._action_groups)
    parser.add_class_arguments(settings, group, skip=skip or set())
    parser._action_groups[before].title = title
    actions: list[Any] = parser._actions
    for action in actions:
        if typing.get_origin(type_of(action)) is list:  # given as lists are everywhere: --option 1 2
            (action._typehint,) = typing.get_args(type_of(action))
            action.nargs, action.metavar, action.option_strings = "+", None, action.option_strings[:1]


def parse(parser: Parser, arguments: Sequence[str], settings: type | None = None) -> Any:
    """The parsed arguments with dataclasses instantiated.

    `settings`: the dataclass whose fields are options without a group; it becomes the attribute `settings`.
    Raises DocmtError for anything that does not fit, naming the flag or the line of the recipe.
    """
    _tidy_help(parser)
    arguments, places = _with_recipes(parser, list(arguments))
    try:
        options = parser.instantiate(parser.parse_args(arguments))
        set_quiet(options.quiet)
        if settings is not None:
            options.settings = settings(**{field.name: getattr(options, field.name) for field in fields(settings)})
        return options
    except jsonargparse.ArgumentError as error:
        raise DocmtError(_located(_explain(parser, str(error)), parser, places)) from error
    except DocmtError as error:
        raise DocmtError(_located(str(error), parser, places)) from error


def parse_given(parser: Parser, arguments: Sequence[str]) -> dict[str, Any]:
    """The options that are given, and no defaults: by dotted name, checked for their types alone.

    Raises DocmtError as `parse` does.
    """
    _tidy_help(parser)
    arguments, places = _with_recipes(parser, list(arguments))
    try:
        given = dict(vars(parser.parse_args(arguments, defaults=False).as_flat()))
        set_quiet(given.pop("quiet", False))
        return given
    except jsonargparse.ArgumentError as error:
        raise DocmtError(_located(_explain(parser, str(error)), parser, places)) from error


def _tidy_help(parser: Parser) -> None:
    """Makes what the library adds to the help readable."""
    for action in parser._actions:
        if action.dest == "print_config":
            action.help, action.metavar = "print the options and their values as a recipe, and exit", ""
        elif action.dest in group_names(parser._actions) and action.default is argparse.SUPPRESS:
            action.help = argparse.SUPPRESS  # `--group FILE`, which the library adds


def _with_recipes(parser: Parser, arguments: list[str]) -> tuple[list[str], dict[str, str]]:
    """The arguments with the settings of recipes in their places, and where each setting that counts comes from."""
    if arguments and is_recipe(arguments[0]):
        arguments.insert(0, "--config")
    arguments = spelled_out(arguments, options_of(parser), parser.also)
    arguments = _given_once(parser, arguments)
    expanded: list[str] = []
    places: dict[str, str] = {}
    rest = iter(arguments)
    for argument in rest:
        flag, equals, value = argument.partition("=")
        name = flag.removeprefix("--")
        if flag == "--config":
            path = value if equals else next(rest, None)
            if path is None:
                raise DocmtError(f"--config needs the path of a YAML file; see {parser.prog} --help")
            for setting in read_recipe(path, parser._actions, parser.prog, parser.also):
                expanded += setting.arguments()
                places[setting.name] = setting.place
            continue
        if flag.startswith("--") and name in group_names(parser._actions) and not _option(parser, name):
            raise DocmtError(
                f"--{name} is a group of options, such as {_example(parser, name)}; see {parser.prog} --help"
            )
        places.pop(name, None)
        expanded.append(argument)
    return expanded, places


def _given_once(parser: Parser, arguments: list[str]) -> list[str]:
    """The arguments with the values of every option that takes a list put together, where it stands last.

    Raises DocmtError for any other option that is there twice: the library would drop the first without a word.
    Recipes may be several, and a flag may overrule the setting of a recipe.
    """
    options = {string: action for action in parser._actions for string in action.option_strings}
    parts: list[list[str]] = [[]]  # each an option and what stands up to the next one
    last: dict[str, list[str]] = {}
    for argument in arguments:
        flag, equals, value = argument.partition("=")
        action = options.get(flag)
        if action is None:
            parts[-1].append(argument)
            continue
        part = [argument]
        parts.append(part)
        before = last.get(action.dest)
        if before is not None and action.nargs in ("+", "*"):
            first, *values = before
            values = [first.partition("=")[2], *values] if "=" in first else values
            part[:] = [flag, *values, *([value] if equals else [])]
            before.clear()
        elif before is not None and flag != "--config":
            raise DocmtError(f"{flag} is there twice: give it once")
        last[action.dest] = part
    return [argument for part in parts for argument in part]


def options_of(parser: Parser) -> list[argparse.Action]:
    """What can be given, without the groups that the library makes options of."""
    groups = group_names(parser._actions)
    return [a for a in parser._actions if a.dest not in groups or a.default is not argparse.SUPPRESS]


def _option(parser: Parser, name: str) -> argparse.Action | None:
    """The option or positional argument of that name."""
    return next((a for a in options_of(parser) if a.dest == name or f"--{name}" in a.option_strings), None)


def _example(parser: Parser, group: str) -> str:
    return next(f"--{action.dest}" for action in parser._actions if action.dest.startswith(f"{group}."))


def _located(message: str, parser: Parser, places: dict[str, str]) -> str:
    """The message with the place of the setting that it begins with: the line of a recipe, or the flag."""
    name, space, rest = message.removeprefix("--").partition(" ")
    if name in places:
        return f"{places[name]}: {name}{space}{rest}"
    option = _option(parser, name)
    return f"--{name}{space}{rest}" if option is not None and option.option_strings else message


def _explain(parser: Parser, message: str) -> str:
    """What the library's message says, in one sentence without Python in it."""
    help_hint = f"see {parser.prog} --help"
    if found := re.search(r"key \"([\w.]+)\"(?: element \d+)?:\s*(?:.*Got value: (.*))?", message, re.DOTALL):
        value = " ".join((found[2] or "").split())
        return f"{found[1]} is {value!r}: {_allowed(_option(parser, found[1]))}"
    if found := re.search(r"arguments are required: (.*)", message):
        missing = [_written(parser, name) for name in found[1].split(", ")]
        missing = [name for name in missing if name]
        verb = "is" if len(missing) == 1 else "are"
        return f"{' and '.join(missing)} {verb} missing; {help_hint}"
    if found := re.search(r"argument ([-\w.]+).*: expected", message):
        return f"{found[1].removeprefix('--')} has no value: {_allowed(_option(parser, found[1].removeprefix('--')))}"
    if found := re.search(r"unrecognized arguments: (.*)", message):
        return _unknown(parser, found[1].split()[0], help_hint)
    text = " ".join(line.strip(" -") for line in message.splitlines() if line.strip())
    return f"{text.rstrip('.')}; {help_hint}"


def _unknown(parser: Parser, argument: str, help_hint: str) -> str:
    flag = argument.partition("=")[0]
    if not flag.startswith("-"):
        example = f"a whole command is: {parser.examples[0]}" if parser.examples else help_hint
        return f"unexpected argument {argument!r}; {example}"
    options = [
        string for action in parser._actions for string in action.option_strings if action.help != argparse.SUPPRESS
    ]
    close = closest(flag, options)
    return f"unknown option {flag}; {f'did you mean {close}?' if close else help_hint}"


def _written(parser: Parser, name: str) -> str:
    """How a missing argument is written; nothing for one that may be missing."""
    positional = next((a for a in parser._actions if not a.option_strings and name in (a.dest, a.metavar)), None)
    if positional is None:
        return f"--{name}"
    return "" if positional.nargs in ("?", "*") else str(positional.metavar)


def _allowed(option: argparse.Action | None) -> str:
    """What to give instead of a value that does not fit."""
    kind = type_of(option)
    if typing.get_origin(kind) is Literal:
        return f"choose one of {', '.join(map(str, typing.get_args(kind)))}"
    wanted = {int: "give a whole number", float: "give a number", bool: "choose true or false", Path: "give a path"}
    return wanted.get(kind, "give one")


def add_model_options(parser: Parser) -> None:
    """Where and how a model runs."""
    parser.add_argument(
        "--device",
        type=str,
        default="auto",
        help="where to compute: cpu, cuda, cuda:1 for another GPU, or auto for a GPU if there is one that works",
    )
    parser.add_argument(
        "--batch_tokens",
        type=int,
        default=BATCH_TOKENS,
        help="source tokens that are computed together, padding included",
    )
    parser.add_argument(
        "--precision",
        type=Literal["float32", "bfloat16", "int8"],
        default="float32",
        help="number format of products; bfloat16 is faster where the processor has it, int8, on CPUs with "
        "VNNI, faster yet where matrices are large (1,024 wide, large vocabularies), and less exact; both decide near "
        "ties otherwise than float32, and otherwise again in other batches",
    )


def translator_of(options: Any, model: str | None = None) -> Translator:
    """The translator that the options name, or another `model`; with commas between them several translate as one."""
    from docmt.core.progress import on_terminal
    from docmt.decoding import Translator

    name = options.model if model is None else model
    translator = Translator(name, **translator_options(options))
    if on_terminal():  # elsewhere standard error is for what is wrong, and lines of progress tell it
        _log.info(f"computing on {translator.device} in {translator.precision}")
    return translator


def translator_options(options: Any) -> dict[str, Any]:
    """Return the options of `Translator` among those of a command; of what the command lacks, the defaults hold."""
    names = ("search", "context", "batch_tokens", "device", "precision")
    return {name: getattr(options, name) for name in names if hasattr(options, name)}


def changed(given: Any, usual: Any, group: str) -> list[str]:
    """The fields of a dataclass that are not as usual, by their flags."""
    return [f"{group}.{each.name}" for each in fields(given) if getattr(given, each.name) != getattr(usual, each.name)]
