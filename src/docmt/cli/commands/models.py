"""docmt models

List the models that every command takes by name or by language pair: those in the data home (DOCMT_HOME, or else docmt
in the user's data directory) and those in the package. --available lists models that docmt pull gets.

usage:
    [--available]

examples:
    docmt models
    docmt models --available
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from docmt.cli.options import Parser
from docmt.core.errors import printable
from docmt.core.settings import read_package_yaml


@dataclass(frozen=True)
class ModelsOptions:
    """The options of the command."""

    available: bool = False
    """list recommended models on the hub instead"""


def parser() -> Parser[ModelsOptions]:
    """Return the parser of the command."""
    return Parser("models", ModelsOptions, __doc__)


def run(arguments: Sequence[str]) -> int:
    """Print a list of models."""
    options = parser().parse(arguments)
    lines = _list_available() if options.available else _list_installed()
    print(printable("\n".join(lines), allowed="\n"))
    return 0


def _list_installed() -> Iterator[str]:
    """Yield the lines of the table of models that are there."""
    from docmt.checkpoint.model_names import PACKAGE_MODELS, list_models, models_folder  # imports torch

    models = list_models()
    if not models:
        yield f"there is no model in {models_folder()} or in the package: see docmt models --available"
        return
    rows = [["name", "pair", "system", "parameters", "size", "licence", "folder"]]
    for model in models:
        rows.append(
            [
                model.name,
                model.pair or "unknown",
                model.system,
                f"{model.parameters / 1e6:.1f} million",
                f"{model.size / 1e6:.0f} MB",
                _describe_licence(model.licence),
                "package" if model.path.parent == PACKAGE_MODELS else str(model.path.parent),
            ]
        )
    yield from _align(rows)


def _list_available() -> Iterator[str]:
    """Yield the lines of the table of recommended models."""
    entries = read_package_yaml("docmt.checkpoint", "available_models.yaml")
    rows = [["docmt pull", "languages", "licence", "size"]]
    for entry in entries:
        rows.append([entry["id"], entry["languages"], _describe_licence(entry["licence"]), entry["size"]])
    head, *lines = _align(rows)
    yield head
    for line, entry in zip(lines, entries, strict=True):
        yield line
        unchecked = f" (not checked: {entry['unchecked']})" if "unchecked" in entry else ""
        yield f"    {entry['note']}{unchecked}"


def _align(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table with left-aligned columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _describe_licence(licence: str) -> str:
    """Return a licence as a cell."""
    from docmt.checkpoint.model_names import is_non_commercial  # imports torch

    return f"{licence}, no commercial use" if is_non_commercial(licence) else licence or "unknown"
