"""docmt export FORMAT MODEL -o DIR

Export a sentence model to CTranslate2, as a directory for ctranslate2.Translator with a tokenizer beside the model. The
command prints the tokens that must surround a sentence. Settings that CTranslate2 does not support are errors.

usage:
    ctranslate2 MODEL -o DIRECTORY [--quantization TYPE]

examples:
    docmt export ctranslate2 MODEL -o exported
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from docmt.cli.options import Parser
from docmt.core.errors import DocmtError, printable
from docmt.core.settings import option

_ADDED_TOKENS = {"tokenizer.json": " (its encode adds these tokens)", "docmt": " (its encode adds only TOKENS)"}


@dataclass(frozen=True)
class ExportOptions:
    """The options of the command."""

    format: Literal["ctranslate2"] = option(positional=True, metavar="FORMAT")
    """output format: ctranslate2"""
    model: str = option(positional=True, metavar="MODEL")
    """model or run directory"""
    output: Path = option(flags=("-o",), metavar="DIRECTORY")
    """new directory"""
    quantization: Literal["float32", "float16", "bfloat16", "int8"] = option("float32", metavar="TYPE")
    """type of the stored weights: float32, float16, bfloat16 or int8"""


def run(arguments: Sequence[str]) -> int:
    """Export a model to another toolkit."""
    options = parser().parse(arguments)
    # imported here because torch loads slowly
    from docmt.checkpoint import export_ctranslate2
    from docmt.checkpoint.model_names import parse_model_paths

    if len(paths := parse_model_paths(options.model)) > 1:
        raise DocmtError(f"{options.model} is an ensemble: export one model, such as {paths[0]}")
    values = export_ctranslate2(options.model, options.output, options.quantization)
    print(f"{printable(str(options.output))}: {_describe_input(values['docmt'])}")
    return 0


def _describe_input(layout: Mapping[str, Any]) -> str:
    """Return the input that CTranslate2 needs for a sentence."""
    sentence = " ".join([*layout["source_opens"], "TOKENS", *layout["source_closes"]])
    prefix = f", target_prefix {' '.join(layout['target_prefix'])}" if layout["target_prefix"] else ""
    kind = layout["tokenizer"]
    return printable(
        f"CTranslate2 model, tokenizer {kind}; its input is {sentence}{_ADDED_TOKENS.get(kind, '')}{prefix}"
    )


def parser() -> Parser[ExportOptions]:
    """Return the parser of the command."""
    return Parser("export", ExportOptions, __doc__, common="output")
