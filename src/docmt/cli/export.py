"""docmt export FORMAT MODEL -o DIR"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from docmt.cli.parsing import Parser, make_parser, parse
from docmt.errors import printable

USAGE = "huggingface MODEL -o DIRECTORY"
EXAMPLES = ("docmt export huggingface MODEL -o exported",)


def run(arguments: Sequence[str]) -> int:
    """Writes a model in the format of another toolkit."""
    options = parse(parser(), arguments)
    from docmt.interop import export_huggingface  # torch loads slowly: not for --help

    values = export_huggingface(options.model, options.output)
    print(f"{printable(str(options.output))}: {values['architectures'][0]} of transformers")
    return 0


def parser() -> Parser:
    """The options of the command."""
    made = make_parser(
        "export",
        "Writes a sentence model as a directory of transformers, for that library and all that reads such directories. "
        "A pretrained model that was converted gets its own type again; one of docmt's own the type that computes the "
        "same (Marian, M2M100, BART or mBART). What no type of transformers has is refused by the name of the setting.",
        USAGE,
        examples=EXAMPLES,
        common=("output",),
    )
    made.add_argument("format", type=Literal["huggingface"], metavar="FORMAT", help="what is written: huggingface")
    made.add_argument(
        "model", type=str, metavar="MODEL", help="model directory, or run directory, which stands for its model"
    )
    made.add_argument("-o", "--output", type=Path, required=True, metavar="DIRECTORY", help="directory, made new")
    return made
