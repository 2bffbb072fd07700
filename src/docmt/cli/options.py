"""Flags, recipes and help of all commands, from dataclasses.

A field of a dataclass is one flag (`--group.field`) and one line of a recipe (a YAML file). Its help is the string
below the field, its type and default are the field's. What a command is for, its usage and its examples stand in the
docstring of its options.
"""

from __future__ import annotations

import logging
import re
import shutil
import textwrap
import typing
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import cached_property
from inspect import cleandoc
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

import yaml

from docmt.core.errors import DocmtError, did_you_mean
from docmt.core.logging import set_quiet
from docmt.core.settings import (
    MANY,
    OptionError,
    build,
    check_fields,
    convert_or_raise,
    field_default,
    field_docs,
    field_types,
    find_set,
    flatten,
    format_flag,
    is_required,
    nest,
    read_yaml_with_lines,
    strip_optional,
    to_mapping,
    value_hint,
)
from docmt.core.settings import option as setting

_log = logging.getLogger(__name__)

Options = TypeVar("Options")

# The options that may be written without their group, `--beam` for `--search.beam`: scripts of users depend on each.
# If two options of a command would share a short name, both need the full one there.
SHORT_NAMES = {
    "input": "layout language join_lines",
    "search": "beam n_best length_penalty max_length_ratio max_length_extra min_length temperature implementation "
    "sampling seed",
    "context": "instance_tokens overlap window_decoding",
    "metrics": "protocol unit text language tokenize lowercase",
    "significance": "test resample samples seed",
    "cxmi": "examples replaced_sentences",
    "contrastive": "normalization",
    "check": "source_language target_language certainty length_factor term_share batch_sentences",
    "model": "system preset family vocabulary_size width feed_forward heads encoder_layers decoder_layers dropout "
    "positions max_positions instance_tokens",
    "model.group": "gate_bias global_start",
    "batches": "batch_tokens gradient_accumulation train_share",
    "objective": "label_smoothing word_dropout",
    "optimizer": "learning_rate warmup pretrained_lr_scale lr_factors clip_norm",
    "stop": "max_steps max_epochs max_minutes patience",
    "adapters": "rank alpha modules",
}
# Names that other toolkits or commands have: the name here, or what to do instead.
_OTHER_NAMES = {
    "nbest": "n_best",
    "batch_size": "batch_tokens",
    "max_tokens": "batch_tokens",
    "beam_size": "beam",
    "lr": "learning_rate",
    "max_length": "max_length_ratio",
    **dict.fromkeys(("metric", "ter"), "--metrics names what is scored, such as s-bleu chrf++ ter"),
    "target_language": "a model has one; docmt inspect MODEL shows it",
    "profile": "a profile of a server is named as endpoint:FILE",
    **dict.fromkeys(("suite", "context_ablation", "contrastive", "cxmi"), "docmt probe has it"),
}
_SWITCH_VALUES = {"yes": "true", "on": "true", "no": "false", "off": "false", "true": "true", "false": "false"}
_NOT_IN_RECIPES = ("help", "config", "print_config")
_WIDEST, _COLUMN, _EXAMPLES = 100, 30, 2  # of the help


@dataclass
class Option:
    """One option, or one positional argument, of a command."""

    name: str
    """full name with its group, `search.beam`"""
    kind: Any
    """type of the value"""
    flags: tuple[str, ...]
    """all ways to write it, the full name last; empty for a positional argument"""
    default: Any
    max_values: int
    """maximum number of values"""
    required: bool
    metavar: str
    """placeholder of the value in the help; empty: by the type"""
    title: str
    """title of its section in the help"""
    owner: type
    """dataclass that has the field"""

    @property
    def group(self) -> str:
        """The group of the option, `search`; empty if it has none."""
        return self.name.rpartition(".")[0]

    @property
    def last_name(self) -> str:
        """The name without its group, `beam`."""
        return self.name.rpartition(".")[2]

    @property
    def short_name(self) -> str:
        """The name without its group, if it may be written so; otherwise empty."""
        return self.last_name if self.last_name in SHORT_NAMES.get(self.group, "").split() else ""

    @property
    def value_kind(self) -> Any:
        """The type of one value."""
        kind = strip_optional(self.kind)
        return typing.get_args(kind)[0] if typing.get_origin(kind) in (list, tuple) else kind

    @property
    def is_switch(self) -> bool:
        """True if its values are true and false."""
        return strip_optional(self.kind) is bool

    @property
    def choices(self) -> list[str]:
        """The words of which it takes one, none if it takes any."""
        return list(map(str, typing.get_args(self.value_kind))) if typing.get_origin(self.value_kind) is Literal else []

    @property
    def takes_list(self) -> bool:
        """True if it takes several values."""
        return self.max_values > 1

    @property
    def invocation(self) -> str:
        """The flags with the placeholder of the value, for the help."""
        usual = {int: "N", float: "X", Path: "PATH"}.get(self.value_kind, "TEXT")
        value = self.metavar or (self.last_name.upper() if self.choices else usual)
        if not self.flags:
            return value
        value = f" {value} ..." if self.max_values == MANY else f" {value}"
        if self.is_switch:
            value = " true|false" if self.default is True else ""
        return ", ".join(self.flags) + value


@dataclass(frozen=True)
class EveryCommand:
    """The options of all commands."""

    help: bool | None = setting(None, flags=("-h",), metavar="TOPIC")
    """show this help; with a topic (a group, an option or all) show its options"""
    config: str | None = setting(None, metavar="RECIPE.yaml")
    """YAML file with options, nested at the dots"""
    print_config: bool | None = None
    """print all options with their values as YAML, and exit"""
    quiet: bool = setting(False, flags=("-q",))
    """show only warnings and errors"""


class Parser(Generic[Options]):
    """The options of one command: reads arguments and recipes, and writes the help."""

    def __init__(self, command: str, settings: type[Options], about: str | None, title: str = "options") -> None:
        """settings: the dataclass whose fields are the options. title: of their section in the help.

        about: the docstring of the options. Below its first line it describes the command. The section `usage:` has a
        line for each way to call it, without its name, `examples:` whole commands that work, and `common:` the full
        names of the options that people use most, which the help has first. A line that is indented further goes on
        with the one above it.
        """
        self.program, self.settings = f"docmt {command}", settings
        self.usage, self.examples, self.common = ["[RECIPE.yaml] [options]"], list[str](), list[str]()
        self.description = ""
        for paragraph in re.sub(r"\n {8,}", " ", cleandoc(about or "")).split("\n\n")[1:]:
            lines = [line.strip() for line in paragraph.splitlines()]
            if lines[0] == "usage:":
                self.usage = lines[1:]
            elif lines[0] == "examples:":
                self.examples = lines[1:]
            elif lines[0] == "common:":
                self.common = " ".join(lines[1:]).split()
            else:
                self.description = " ".join(lines)
        self.options: list[Option] = []
        self.add_settings(EveryCommand, "", "options")
        self.add_settings(settings, "", title)

    def add_settings(self, settings: type, group: str, title: str, skip: Collection[str] = ()) -> None:
        """Add the fields of a dataclass, and of those in it, as options `--group.field`."""
        for each in fields(settings):
            name, kind = f"{group}.{each.name}" if group else each.name, field_types(settings)[each.name]
            if each.name in skip or not each.init:
                continue
            about, positional = each.metadata, each.metadata.get("positional", False)
            if is_dataclass(kind):
                self.add_settings(typing.cast(type, kind), name, field_docs(settings)[each.name], about.get("skip", ()))
                continue
            most = MANY if typing.get_origin(kind) is list else 1
            if typing.get_origin(pair := strip_optional(kind)) is tuple:
                most = len(typing.get_args(pair))
            flags = () if positional else (*about.get("flags", ()), format_flag(name))
            default = None if is_required(each) else field_default(each)
            section = "positional arguments" if positional else title
            values = default, most, is_required(each), about.get("metavar", ""), section
            self.options.append(Option(name, kind, flags, *values, settings))

    @cached_property
    def names(self) -> dict[str, Option]:
        """Every name by which an option can be written, without dashes."""
        names = {option.name: option for option in self.options}
        for option in self.options:
            if option.name.startswith("model.") and option.name.count(".") > 1:  # --group.top-attention
                names.setdefault(option.name.removeprefix("model."), option)
        short_names = [option.short_name for option in self.options if option.short_name]
        for option in self.options:
            if short_names.count(option.short_name) == 1:
                names.setdefault(option.short_name, option)
        return names

    def find(self, flag: str) -> Option:
        """Return the option that a flag names. Raises DocmtError for an unknown one, with a hint if one is near."""
        option = next((option for option in self.options if flag in option.flags), None)
        if option is None and flag.startswith("--"):
            option = self.names.get(flag[2:].replace("-", "_"))
        if option is None:
            raise DocmtError(self._explain_unknown(flag, format_flag))
        return option

    def _explain_unknown(self, written: str, write: Callable[[str], str]) -> str:
        """Return what is wrong with the name of an option that is none, and advice.

        write: writes the full name of an option as `written` is.
        """
        name, see = written.lstrip("-").replace("-", "_"), f"see {self.program} --help"
        if inner := [option.name for option in self.options if option.name.startswith(f"{name}.")]:
            return f"{written} is a group of options, such as {write(inner[0])}; {see}"
        several = [write(option.name) for option in self.options if option.name.endswith(f".{name}")]
        if len(several) > 1:
            return f"{written} may be {' or '.join(several)}: write which"
        group, _, last = name.rpartition(".")
        meant = _OTHER_NAMES.get(group) or _OTHER_NAMES.get(last, name)
        if " " not in meant:
            named = {option.last_name: write(option.name) for option in reversed(self.options) if option.flags}
            named |= {option.name: write(option.name) for option in self.options if option.flags}
            meant = see if re.match("-[^-]", written) else did_you_mean(meant, named, see)
        return f"unknown option {written}; {meant}"

    # Help

    def format_help(self, topic: str = "") -> str:
        """Return the short help; or that of a `topic`: a group of options, `all` of them, or one option.

        Raises DocmtError for an unknown topic.
        """
        width = min(shutil.get_terminal_size().columns, _WIDEST)
        if topic:
            return self._format_options(self._select_options(topic), width, short=False) + "\n"
        usage = [f"{self.program} {line}" for line in self.usage]
        parts = ["usage: " + "\n       ".join(usage), textwrap.fill(self.description, width)]
        positional = [option for option in self.options if not option.flags]
        common = [self.names[name] for name in self.common]
        if not common:
            common = [option for option in self.options if option.flags and option.owner is not EveryCommand]
        parts.append(self._format_options([*positional, *common], width, short=True))
        more = f"more: {self.program} --help {' | '.join([*self.topics, 'all'])}"
        parts.append(textwrap.fill(more, width, subsequent_indent="      ", break_on_hyphens=False))
        if self.examples:
            parts.append("\n".join(["examples:", *(f"  {example}" for example in self.examples[:_EXAMPLES])]))
        return "\n\n".join(parts) + "\n"

    @property
    def topics(self) -> list[str]:
        """The groups of options, `general` for those without one."""
        return list(dict.fromkeys(option.group or "general" for option in self.options))

    def _select_options(self, topic: str) -> list[Option]:
        if topic == "all":
            return self.options
        if (topic := topic.replace("-", "_").lstrip("_")) in self.topics:
            return [option for option in self.options if (option.group or "general") == topic]
        if option := self.names.get(topic):
            return [option]
        choice = f"choose one of {', '.join([*self.topics, 'all'])}"
        hint = did_you_mean(topic, {name: name for name in self.topics}, choice)
        raise DocmtError(f"--help: {self.program} has no options called {topic!r}; {hint}")

    def _format_options(self, options: Sequence[Option], width: int, *, short: bool) -> str:
        """Return the lines of options. short: with their short names, and all under one title."""
        rows = [(option.title, self._format_flags(option, short), _describe(option)) for option in options]
        column = min(max(len(flags) for _, flags, _ in rows) + 4, _COLUMN)
        lines: list[str] = []
        for title, flags, text in rows:
            if not short and f"{title}:" not in lines:
                lines += [*([""] if lines else []), f"{title}:"]
            folded = textwrap.wrap(text, max(width - column, 20), break_on_hyphens=False) or [""]
            if len(flags) <= column - 4:
                lines.append(f"  {flags:<{column - 2}}{folded.pop(0)}".rstrip())
            else:
                lines.append(f"  {flags}")
            lines += [" " * column + line for line in folded]
        return "\n".join(lines)

    def _format_flags(self, option: Option, short: bool) -> str:
        """Return the flags and the metavar of an option. short: its short name instead of the full one."""
        if self.names.get(option.short_name) is not option:
            return option.invocation
        name = format_flag(option.short_name)
        return option.invocation.replace(format_flag(option.name), name) if short else f"{name}, {option.invocation}"

    # Arguments and recipes

    def read(self, arguments: Sequence[str], recipes: Sequence[Path] = ()) -> tuple[dict[str, Any], dict[str, str]]:
        """Return the text of each option that is set, by full name, and the file and line where a recipe sets it.

        An option of the command line counts before those of recipes, a later recipe before an earlier one.
        Raises DocmtError for anything that is no option, has no value or is there twice. Prints the help if asked.
        """
        for number, argument in enumerate(arguments):
            if argument in ("-h", "--help"):
                topic = next(iter(arguments[number + 1 :]), "")
                print(self.format_help("" if topic.startswith("-") else topic), end="")
                raise SystemExit(0)
        rest, typed, positional = deque(arguments), dict[str, Any](), list[str]()
        files = [str(path) for path in recipes]
        if rest and is_recipe(rest[0]):
            files.append(rest.popleft())
        while rest:
            token = rest.popleft()
            if token == "--":
                positional += rest
                break
            if not _is_flag(token):
                positional.append(token)
                continue
            flag, equals, value = token.partition("=") if token.startswith("--") else (token, "", "")
            option = self.find(flag)
            values = self._take_values(option, flag, [value] if equals else None, rest)
            if option.name == "config":
                files += values
            elif option.name not in typed:
                typed[option.name] = values if option.takes_list else values[0]
            elif option.takes_list:
                typed[option.name] += values
            else:
                raise DocmtError(f"{option.flags[-1] if option.flags else flag} is there twice: give it once")
        self._assign_positional(positional, typed)
        from_recipes: dict[str, Any] = {}
        locations: dict[str, str] = {}
        for file in files:
            for name, value, location in self._read_recipe(file):
                from_recipes[name], locations[name] = value, location
        return {**from_recipes, **typed}, {name: each for name, each in locations.items() if name not in typed}

    def _take_values(self, option: Option, flag: str, values: list[str] | None, rest: deque[str]) -> list[str]:
        """Take the values of an option from the rest of the arguments, unless they stand behind an equals sign."""
        if values is not None:
            return [_SWITCH_VALUES.get(values[0].lower(), values[0])] if option.is_switch else values
        if option.is_switch:
            # Where the command takes files, what stands behind a switch is most likely one.
            takes_files = any(not option.flags for option in self.options)
            has_value = rest and (rest[0].lower() in _SWITCH_VALUES or not (takes_files or _is_flag(rest[0])))
            value = rest.popleft() if has_value else "true"
            return [_SWITCH_VALUES.get(value.lower(), value)]
        values = []
        while rest and len(values) < option.max_values and not _is_flag(rest[0]):
            values.append(rest.popleft())
        if rest and rest[0] == "--" and option.takes_list and not values:
            values = list(rest)[1:]
            rest.clear()
        if option.name == "config" and not values:
            raise DocmtError(f"--config needs the path of a YAML file; see {self.program} --help")
        if not values or len(values) < option.max_values < MANY:
            advice = "give one" if option.value_kind is str else value_hint(option.value_kind)
            raise DocmtError(f"{flag} {f'takes {option.max_values} values' if values else 'has no value'}: {advice}")
        return values

    def _assign_positional(self, positional: list[str], typed: dict[str, Any]) -> None:
        """Give arguments without a flag to the positional arguments that have no value yet."""
        for option in self.options:
            if option.flags or option.name in typed or not positional:
                continue
            typed[option.name] = positional[:] if option.takes_list else positional[0]
            del positional[: len(positional) if option.takes_list else 1]
        if positional:
            examples = " or ".join(self.examples[:_EXAMPLES]) or f"see {self.program} --help"
            raise DocmtError(f"unexpected argument {positional[0]!r}; whole commands are: {examples}")

    def _read_recipe(self, path: str) -> Iterator[tuple[str, Any, str]]:
        """Yield full name, value and location (file and line) of every option that a recipe sets."""
        values, lines = read_yaml_with_lines(path)
        see, locations = f"see {self.program} --help", dict[str, str]()
        if values is None:
            raise DocmtError(f"the recipe {path} is empty: write options into it ({see})")
        if not isinstance(values, dict):
            raise DocmtError(f"the recipe {path} does not consist of `option: value` lines; {see}")
        known = {
            name: option for name, option in self.names.items() if option.flags and option.name not in _NOT_IN_RECIPES
        }
        for written, value in flatten(values).items():
            name = written if written in known else written.replace("-", "_")
            location, group = f"{path}, line {lines[written]}", written.rpartition(".")[0]
            if name not in known and group in known:
                raise DocmtError(f"{path}, line {lines[group]}: {group} takes one value; write it after the colon")
            if name not in known:
                raise DocmtError(f"{location}: {self._explain_unknown(written, str)}")
            option = known[name]
            if before := locations.get(option.name):  # under two of its names
                raise DocmtError(f"{location}: {option.name} is set here and in {before}: write it once")
            locations[option.name] = location
            if value is None and option.kind == strip_optional(option.kind):
                raise DocmtError(f"{location}: {name} has no value; write one after the colon, or remove the line")
            if isinstance(value, list) and not option.takes_list:
                raise DocmtError(f"{location}: {name} takes one value; write it after the colon")
            if option.takes_list:
                value = value if isinstance(value, list) else [value]
            yield option.name, _SWITCH_VALUES.get(value.lower(), value) if option.is_switch else value, location

    def locate(self, error: DocmtError, locations: Mapping[str, str]) -> DocmtError:
        """Return the error with options as flags, or with the line of the recipe that sets the wrong one."""
        if not isinstance(error, OptionError):
            option, _, problem = str(error).partition(" ")
            if option not in self.names:
                return error
            error = OptionError(option, problem)

        def write(name: str) -> str:
            name, space, value = name.partition(" ")
            if (option := self.names.get(name)) and not option.flags:
                return option.metavar
            return (name if name in locations else format_flag(name)) + space + value

        location = locations.get(error.option)
        return DocmtError(error.describe(write, f"{location}: {error.option}" if location else ""))

    def parse(self, arguments: Sequence[str], recipes: Sequence[Path] = ()) -> Options:
        """Return the options as the dataclass that declares them.

        recipes: files that are read before those of the arguments.
        Raises DocmtError for anything that does not fit, naming the flag or the line of the recipe.
        """
        values, locations = self.read(arguments, recipes)
        missing = [option for option in self.options if option.required and option.name not in values]
        if missing:
            names = [format_flag(option.name) if option.flags else option.metavar for option in missing]
            verb = "are" if missing[1:] else "is"
            example = f"a whole command is: {self.examples[0]}" if self.examples else f"see {self.program} --help"
            raise DocmtError(f"{' and '.join(names)} {verb} missing; {example}")
        names_of_fields = {each.name for each in fields(typing.cast(Any, self.settings))}
        settings = {name: value for name, value in values.items() if name.split(".")[0] in names_of_fields}
        try:
            prints, quiet = (
                convert_or_raise(bool, values.get(name, False), name) for name in ("print_config", "quiet")
            )
            options = build(self.settings, nest(settings, ""), "")
            check_fields(options, "")
        except DocmtError as error:
            raise self.locate(error, locations) from error
        if prints:
            print(self._as_recipe(options), end="")
            raise SystemExit(0)
        set_quiet(quiet)
        return options

    def _as_recipe(self, options: Options) -> str:
        """Return the options with their values as a YAML file that can be given as a recipe."""
        known = {option.name for option in self.options if option.flags and option.name not in _NOT_IN_RECIPES}
        values = {name: value for name, value in flatten(to_mapping(options)).items() if name in known}
        written = {name: value for name, value in values.items() if value not in (None, [], "")}
        return yaml.safe_dump(nest(written, ""), sort_keys=False, allow_unicode=True)


def _is_flag(token: str) -> bool:
    """Return whether an argument is a flag, and not a value: `-` is standard input, `-4` and `-.5` are numbers."""
    return token.startswith("-") and token != "-" and not (token[1].isdigit() or token[1] == ".")


def _describe(option: Option) -> str:
    """Return the help of an option with its default, and with its choices unless the help names all of them."""
    text, default = field_docs(option.owner).get(option.last_name, "").rstrip("."), option.default
    if not all(re.search(rf"\b{re.escape(choice)}\b", text) for choice in option.choices):
        text = f"{text}: {', '.join(option.choices)}"
    if option.required and option.flags:
        return f"{text} (required)"
    if default in (None, "", [], False) or not option.flags:
        return text
    return f"{text} (default: {str(default).lower() if isinstance(default, bool) else default})"


def is_recipe(argument: str) -> bool:
    """Return whether the first argument of a command is a recipe."""
    return argument.endswith((".yaml", ".yml")) and not (argument.startswith("-") or "endpoint:" in argument)


def refuse_others(options: Any, flag: str, *used: str) -> None:
    """Raise DocmtError for options that are set, but are not among those that are used with a flag."""
    if unused := find_set(options, *(each.name for each in fields(options) if each.name not in used)):
        raise DocmtError(f"{flag} has no use for {', '.join(map(format_flag, unused))}: leave it out")
