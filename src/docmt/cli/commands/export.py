"""docmt export FORMAT MODEL -o DIR

Writes a sentence model for another toolkit. ctranslate2: a directory for ctranslate2.Translator, tokens in and tokens
out. A sentence is given as the tokens of the tokenizer beside it, with the marks that are printed (encode of its
tokenizer.json puts them there). What the toolkit does not have is refused by the name of the setting, and so is an
ensemble.

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

_MARKS = {"tokenizer.json": " (its encode adds these marks)", "docmt": " (its encode adds no marks)"}


@dataclass(frozen=True)
class ExportOptions:
    """The options of the command."""

    format: Literal["ctranslate2"] = option(positional=True, metavar="FORMAT")
    """what is written: ctranslate2"""
    model: str = option(positional=True, metavar="MODEL")
    """model directory, or run directory, which stands for its model"""
    output: Path = option(flags=("-o",), metavar="DIRECTORY")
    """directory, made new"""
    quantization: Literal["float32", "float16", "bfloat16", "int8"] = option("float32", metavar="TYPE")
    """weights in the file (float32, float16, bfloat16 or int8); Translator(..., compute_type=...) chooses what is
    computed with"""


def run(arguments: Sequence[str]) -> int:
    """Writes a model in the format of another toolkit."""
    options = parser().parse(arguments)
    # torch loads slowly: not for --help
    from docmt.checkpoint import export_ctranslate2
    from docmt.decoding.models import parse_model_paths

    if len(paths := parse_model_paths(options.model)) > 1:
        raise DocmtError(
            f"{options.model} is an ensemble, which cannot be exported: export one model, such as {paths[0]}"
        )
    values = export_ctranslate2(options.model, options.output, options.quantization)
    print(f"{printable(str(options.output))}: {_told(values['docmt'])}")
    return 0


def _told(given: Mapping[str, Any]) -> str:
    """What a caller of CTranslate2 has to give."""
    sentence = " ".join([*given["source_opens"], "TOKENS", *given["source_closes"]])
    prefix = f", target_prefix {' '.join(given['target_prefix'])}" if given["target_prefix"] else ""
    kind = given["tokenizer"]
    return printable(f"model of CTranslate2, tokenizer {kind}; give it {sentence}{_MARKS.get(kind, '')}{prefix}")


def parser() -> Parser[ExportOptions]:
    """Return the parser of the command."""
    return Parser("export", ExportOptions, __doc__, common="output")
