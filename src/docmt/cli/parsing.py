"""Flags, YAML and help from the dataclasses that the rooms document; one way for all commands."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import jsonargparse
from jsonargparse import ArgumentParser, set_parsing_settings

from docmt.errors import DocmtError

if TYPE_CHECKING:
    from docmt.decoding import Translator

set_parsing_settings(docstring_parse_attribute_docstrings=True)


def make_parser(command: str, description: str) -> ArgumentParser:
    """A parser that takes flags and, as `--config` or a first argument ending in .yaml, a YAML file."""
    parser = ArgumentParser(prog=f"docmt {command}", description=description, exit_on_error=False)
    parser.add_argument("--config", action="config", help="YAML file with the options below (also: first argument)")
    return parser


def parse(parser: ArgumentParser, arguments: Sequence[str]) -> Any:
    """The parsed arguments with dataclasses instantiated. Raises DocmtError for anything that does not fit."""
    arguments = list(arguments)
    if arguments and arguments[0].endswith((".yaml", ".yml")):
        if not Path(arguments[0]).is_file():
            raise DocmtError(f"recipe {arguments[0]} does not exist: give the path of a YAML file")
        arguments.insert(0, "--config")
    try:
        return parser.instantiate_classes(parser.parse_args(arguments))
    except jsonargparse.ArgumentError as error:
        raise DocmtError(_sentence(str(error), parser.prog)) from error


def _sentence(message: str, program: str) -> str:
    """The library's message, which may have several lines, in one sentence."""
    text = " ".join(line.strip(" -") for line in message.splitlines() if line.strip())
    return f"{text.rstrip('.')}; see {program} --help"


def add_model_options(parser: ArgumentParser) -> None:
    """Where and how a model runs."""
    parser.add_argument("--device", type=str, default="cpu", help="cpu or cuda")
    parser.add_argument(
        "--precision", type=Literal["float32", "bfloat16"], default="float32", help="number format of matrix products"
    )


def translator_of(options: Any) -> Translator:
    """The translator that the options name."""
    from docmt.decoding import Translator

    return Translator(options.model, device=options.device, search=options.search, precision=options.precision)
