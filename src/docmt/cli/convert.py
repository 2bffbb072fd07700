"""docmt convert fairseq-gtransformer CHECKPOINT --dictionary dict.txt -o DIR"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from docmt.cli.parsing import make_parser, parse


def run(arguments: Sequence[str]) -> int:
    """Writes a model directory from a checkpoint of another toolkit."""
    parser = make_parser(
        "convert",
        "Turns a checkpoint of another toolkit into a docmt model directory. fairseq-gtransformer: a checkpoint of the "
        "published G-Transformer code (Bao et al. 2021). The model translates text that is split into symbols as its "
        "training data was.",
        "fairseq-gtransformer CHECKPOINT --dictionary FILE -o DIRECTORY [options]",
    )
    parser.add_argument(
        "family", type=Literal["fairseq-gtransformer"], metavar="FAMILY", help="where the checkpoint comes from"
    )
    parser.add_argument(
        "checkpoint", type=Path, metavar="CHECKPOINT", help="fairseq .pt, or its weights as .safetensors"
    )
    parser.add_argument("--dictionary", type=Path, required=True, metavar="FILE", help="its dict.*.txt")
    parser.add_argument(
        "-o", "--output", type=Path, required=True, metavar="DIRECTORY", help="model directory, made new"
    )
    parser.add_argument(
        "--arguments",
        type=Path,
        metavar="FILE",
        help="JSON file with its training arguments, where the checkpoint does not hold them (default: args.json "
        "beside a .safetensors)",
    )
    parser.add_argument(
        "--sentences",
        type=bool,
        default=False,
        help="it was trained on single sentences (doc_mode full), so that it becomes a sentence model",
    )
    parser.add_argument(
        "--instance_tokens",
        type=int,
        default=512,
        help="documents are translated in pieces of fewer tokens than this, as in its training",
    )
    options = parse(parser, arguments)
    from docmt.interop import convert_gtransformer  # torch takes a while to load: not for --help

    model = convert_gtransformer(
        options.checkpoint,
        options.dictionary,
        options.output,
        arguments=options.arguments,
        sentences=options.sentences,
        instance_tokens=options.instance_tokens,
    )
    parameters = sum(parameter.numel() for parameter in model.parameters())
    print(f"{options.output}: system {model.config.system}, {parameters / 1e6:.1f} million parameters")
    return 0
