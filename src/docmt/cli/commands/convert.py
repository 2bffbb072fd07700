"""docmt convert FAMILY CHECKPOINT ... -o DIR"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from docmt.cli.options import Parser, make_parser, parse
from docmt.core.errors import DocmtError, printable
from docmt.core.options import check_number, range_of
from docmt.model.config import Sizes
from docmt.model.systems import Context

USAGE = """huggingface DIRECTORY -o DIRECTORY [options]
fairseq-gtransformer CHECKPOINT --dictionary FILE -o DIRECTORY [options]
fairseq-rfa CHECKPOINT --source_dictionary FILE --target_dictionary FILE -o DIRECTORY [options]
thumt CHECKPOINT --source_vocabulary FILE --target_vocabulary FILE -o DIRECTORY [options]"""
EXAMPLES = (
    "docmt convert huggingface opus-mt-en-de -o MODEL",
    "docmt convert huggingface nllb-200-distilled-600M --source_language eng_Latn --target_language deu_Latn -o MODEL",
    "docmt convert fairseq-gtransformer checkpoint_best.pt --dictionary dict.en.txt -o MODEL",
    "docmt convert fairseq-rfa checkpoint_best.pt --source_dictionary dict.zh.txt --target_dictionary dict.en.txt -o "
    "MODEL",
    "docmt convert thumt model.npz --source_vocabulary vocab.zh.txt --target_vocabulary vocab.en.txt -o MODEL",
)
DEFAULTS: dict[str, Any] = {
    "dictionary": None,
    "sentences": False,
    "source_dictionary": None,
    "target_dictionary": None,
    "source_vocabulary": None,
    "target_vocabulary": None,
    "context_sentences": 2,
    "source_language": "",
    "target_language": "",
    "prefix": "",
    "keep_vocabulary": [],
    "layout": "own",
}
# What each family takes besides the checkpoint, the output and its arguments: needed, then optional.
OPTIONS = {
    "fairseq-gtransformer": (("dictionary",), ("sentences",)),
    "fairseq-rfa": (("source_dictionary", "target_dictionary"), ()),
    "thumt": (("source_vocabulary", "target_vocabulary"), ("context_sentences",)),
    "huggingface": ((), ("source_language", "target_language", "prefix", "keep_vocabulary", "layout")),
}


def run(arguments: Sequence[str]) -> int:
    """Writes a model directory from a checkpoint of another toolkit."""
    options = parse(parser(), arguments)
    # torch loads slowly: not for --help
    from docmt.checkpoint import convert_gtransformer, convert_huggingface, convert_rfa, convert_thumt

    check_number("--context_sentences", options.context_sentences, range_of(Context, "sentences"))
    check_number("--instance_tokens", options.instance_tokens, range_of(Sizes, "instance_tokens"))
    given = _given(options)
    converters: dict[str, Any] = {
        "fairseq-gtransformer": convert_gtransformer,
        "fairseq-rfa": convert_rfa,
        "thumt": convert_thumt,
        "huggingface": convert_huggingface,
    }
    if options.family != "huggingface":
        given["arguments"] = options.arguments
    elif options.arguments is not None:
        raise DocmtError("--arguments is not for huggingface, whose directory has a config.json: leave it out")
    model = converters[options.family](
        options.checkpoint, output=options.output, instance_tokens=options.instance_tokens, **given
    )
    if model is None:
        print(f"{printable(str(options.output))}: an encoder, for docmt train --initialize_from")
        return 0
    parameters = sum(parameter.numel() for parameter in model.parameters())
    print(f"{printable(str(options.output))}: system {model.config.system}, {parameters / 1e6:.1f} million parameters")
    return 0


def parser() -> Parser:
    """The options of the command."""
    made = make_parser(
        "convert",
        "Turns a checkpoint of another toolkit into a docmt model directory. huggingface: a pretrained translation "
        "model as transformers has it (OPUS-MT and other Marian models, NLLB-200, M2M100, mBART of 25 and of 50 "
        "languages, T5, mT5, MADLAD-400, BART), which becomes a sentence model to translate with, or to train a "
        "document model from (docmt train --initialize_from); or BERT, RoBERTa or XLM-R, which become an encoder to "
        "train a model from. fairseq-gtransformer: a checkpoint of the "
        "published G-Transformer code (Bao et al. 2021). fairseq-rfa: one of the published code of Wu et al. (2022), "
        "random feature attention with or without a sentential gate, or its softmax baseline. thumt: one of the "
        "published code of Zhang et al. (2018), its variables saved by name as .safetensors or .npz. Models of these "
        "three translate text that is split into symbols as their training data was.",
        USAGE,
        examples=EXAMPLES,
        common=(
            "output",
            "arguments",
            "instance_tokens",
            "source_language",
            "target_language",
            "prefix",
            "keep_vocabulary",
        ),
    )
    made.add_argument(
        "family",
        type=Literal["huggingface", "fairseq-gtransformer", "fairseq-rfa", "thumt"],
        metavar="FAMILY",
        help="where the checkpoint comes from: huggingface, fairseq-gtransformer, fairseq-rfa or thumt",
    )
    made.add_argument(
        "checkpoint",
        type=Path,
        metavar="CHECKPOINT",
        help="fairseq .pt, or the weights as .safetensors (thumt: or .npz); huggingface: the directory",
    )
    made.add_argument("--dictionary", type=Path, metavar="FILE", help="fairseq-gtransformer: its dict.*.txt")
    made.add_argument(
        "--source_dictionary", type=Path, metavar="FILE", help="fairseq-rfa: its dict.*.txt of the source"
    )
    made.add_argument(
        "--target_dictionary", type=Path, metavar="FILE", help="fairseq-rfa: its dict.*.txt of the target"
    )
    made.add_argument("--source_vocabulary", type=Path, metavar="FILE", help="thumt: a symbol a line, <pad> first")
    made.add_argument("--target_vocabulary", type=Path, metavar="FILE", help="thumt: a symbol a line, <pad> first")
    _add_options_of_huggingface(made)
    made.add_argument("-o", "--output", type=Path, required=True, metavar="DIRECTORY", help="model directory, made new")
    made.add_argument(
        "--arguments",
        type=Path,
        metavar="FILE",
        help="JSON file with its training arguments, where the checkpoint does not hold them (default: args.json "
        "beside it)",
    )
    made.add_argument(
        "--sentences",
        type=bool,
        default=DEFAULTS["sentences"],
        help="fairseq-gtransformer: it was trained on single sentences (doc_mode full), so that it becomes a sentence "
        "model",
    )
    made.add_argument(
        "--context_sentences",
        type=int,
        default=DEFAULTS["context_sentences"],
        help="thumt: sentences in a context line of its training data",
    )
    made.add_argument(
        "--instance_tokens",
        type=int,
        default=512,
        help="documents are translated in pieces of fewer tokens than this, as in its training",
    )
    return made


def _add_options_of_huggingface(made: Parser) -> None:
    for side in ("source", "target"):
        made.add_argument(
            f"--{side}_language",
            type=str,
            default="",
            metavar="CODE",
            help=f"huggingface: the {side} language, for a model of many by the code that it has for it, such as de, "
            "de_DE or deu_Latn",
        )
    made.add_argument(
        "--prefix",
        type=str,
        default="",
        metavar="TEXT",
        help="huggingface, T5: what it is told before each sentence, such as 'translate English to German:'",
    )
    made.add_argument(
        "--keep_vocabulary",
        type=Path,
        nargs=2,
        default=[],
        metavar="SOURCE TARGET",
        help="huggingface: keep only the tokens that this text needs, and all single characters: a smaller and faster "
        "model with the same translations of such text",
    )
    made.add_argument(
        "--layout",
        type=Literal["own", "published"],
        default=DEFAULTS["layout"],
        help="huggingface, mBART: mark sentences as the model does (own), or as the G-Transformer that was trained "
        "from it (published)",
    )


def _given(options: Any) -> dict[str, Any]:
    """The family's own options. Raises DocmtError for one that is missing, and for one of another family."""
    given = {name: getattr(options, name) for name in DEFAULTS if getattr(options, name) != DEFAULTS[name]}
    for family, (always, sometimes) in OPTIONS.items():
        for name in (*always, *sometimes):
            if family != options.family and name in given:
                raise DocmtError(f"--{name} is for {family}, not for {options.family}: leave it out")
    for name in OPTIONS[options.family][0]:
        if name not in given:
            raise DocmtError(f"--{name} is missing; see docmt convert --help")
    return given
