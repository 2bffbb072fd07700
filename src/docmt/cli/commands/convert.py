"""docmt convert FAMILY CHECKPOINT ... -o DIR

Turns a checkpoint of another toolkit into a docmt model directory. huggingface: a pretrained translation model as
transformers has it (OPUS-MT and other Marian models, NLLB-200, M2M100, mBART of 25 and of 50 languages, T5, mT5,
MADLAD-400, BART), which becomes a sentence model to translate with, or to train a document model from (docmt train
--initialize-from); or BERT, RoBERTa or XLM-R, which become an encoder to train a model from. fairseq-gtransformer: a
checkpoint of the published G-Transformer code (Bao et al. 2021). fairseq-rfa: one of the published code of Wu et al.
(2022), random feature attention with or without a sentential gate, or its softmax baseline. thumt: one of the
published code of Zhang et al. (2018), its variables saved by name as .safetensors or .npz. Models of these three
translate text that is split into symbols as their training data was.

usage:
    huggingface DIRECTORY -o DIRECTORY [options]
    fairseq-gtransformer CHECKPOINT --dictionary FILE -o DIRECTORY [options]
    fairseq-rfa CHECKPOINT --source-dictionary FILE --target-dictionary FILE -o DIRECTORY [options]
    thumt CHECKPOINT --source-vocabulary FILE --target-vocabulary FILE -o DIRECTORY [options]

examples:
    docmt convert huggingface opus-mt-en-de -o MODEL
    docmt convert huggingface nllb-200-distilled-600M --source-language eng_Latn --target-language deu_Latn -o MODEL
    docmt convert fairseq-gtransformer checkpoint_best.pt --dictionary dict.en.txt -o MODEL
    docmt convert fairseq-rfa checkpoint_best.pt --source-dictionary dict.zh.txt --target-dictionary dict.en.txt -o
        MODEL
    docmt convert thumt model.npz --source-vocabulary vocab.zh.txt --target-vocabulary vocab.en.txt -o MODEL
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from inspect import Parameter, signature
from pathlib import Path
from typing import Any, Literal

from docmt.cli.options import Parser
from docmt.core.errors import DocmtError, printable
from docmt.core.settings import flag_of, option, range_of
from docmt.model.model_config import Sizes
from docmt.model.systems import Context


@dataclass(frozen=True, kw_only=True)
class ConvertOptions:
    """The options of the command."""

    family: Literal["huggingface", "fairseq-gtransformer", "fairseq-rfa", "thumt"] = option(
        positional=True, metavar="FAMILY"
    )
    """where the checkpoint comes from: huggingface, fairseq-gtransformer, fairseq-rfa or thumt"""
    checkpoint: Path = option(positional=True, metavar="CHECKPOINT")
    """fairseq .pt, or the weights as .safetensors (thumt: or .npz); huggingface: the directory"""
    dictionary: Path | None = option(None, metavar="FILE")
    """fairseq-gtransformer: its dict.*.txt"""
    source_dictionary: Path | None = option(None, metavar="FILE")
    """fairseq-rfa: its dict.*.txt of the source"""
    target_dictionary: Path | None = option(None, metavar="FILE")
    """fairseq-rfa: its dict.*.txt of the target"""
    source_vocabulary: Path | None = option(None, metavar="FILE")
    """thumt: a symbol a line, <pad> first"""
    target_vocabulary: Path | None = option(None, metavar="FILE")
    """thumt: a symbol a line, <pad> first"""
    source_language: str = option("", metavar="CODE")
    """huggingface: the source language, for a model of many by the code that it has for it, such as de, de_DE or
    deu_Latn"""
    target_language: str = option("", metavar="CODE")
    """huggingface: the target language, for a model of many by the code that it has for it, such as de, de_DE or
    deu_Latn"""
    prefix: str = option("", metavar="TEXT")
    """huggingface, T5: what it is told before each sentence, such as 'translate English to German:'"""
    keep_vocabulary: tuple[Path, Path] | None = option(None, metavar="SOURCE TARGET")
    """huggingface: keep only the tokens that this text needs, and all single characters: a smaller and faster model
    with the same translations of such text"""
    layout: Literal["own", "published"] = "own"
    """huggingface, mBART: mark sentences as the model does (own), or as the G-Transformer that was trained from it
    (published)"""
    output: Path = option(flags=("-o",), metavar="DIRECTORY")
    """model directory, made new"""
    arguments: Path | None = option(None, metavar="FILE")
    """JSON file with its training arguments, where the checkpoint does not hold them (default: args.json beside it)"""
    sentences: bool = False
    """fairseq-gtransformer: it was trained on single sentences (doc_mode full), so that it becomes a sentence model"""
    context_sentences: int = option(2, range=range_of(Context, "sentences"))
    """thumt: sentences in a context line of its training data"""
    instance_tokens: int = option(512, range=range_of(Sizes, "instance_tokens"))
    """documents are translated in pieces of fewer tokens than this, as in its training"""


def run(arguments: Sequence[str]) -> int:
    """Writes a model directory from a checkpoint of another toolkit."""
    options = parser().parse(arguments)
    # torch loads slowly: not for --help
    from docmt.checkpoint import convert_gtransformer, convert_huggingface, convert_rfa, convert_thumt

    converters: dict[str, Callable[..., Any]] = {
        "fairseq-gtransformer": convert_gtransformer,
        "fairseq-rfa": convert_rfa,
        "thumt": convert_thumt,
        "huggingface": convert_huggingface,
    }
    model = converters[options.family](options.checkpoint, **_given(options, converters))
    if model is None:
        print(f"{printable(str(options.output))}: an encoder, for docmt train --initialize-from")
        return 0
    parameters = sum(parameter.numel() for parameter in model.parameters())
    print(f"{printable(str(options.output))}: system {model.config.system}, {parameters / 1e6:.1f} million parameters")
    return 0


def parser() -> Parser[ConvertOptions]:
    """Return the parser of the command."""
    return Parser(
        "convert",
        ConvertOptions,
        __doc__,
        common="output arguments instance_tokens source_language target_language prefix keep_vocabulary",
    )


def _given(options: ConvertOptions, converters: Mapping[str, Callable[..., Any]]) -> dict[str, Any]:
    """Return the options that are set, which are arguments of the family's converter, after the checkpoint.

    Raises DocmtError for one that is missing, and for one of another family.
    """
    taken = {family: signature(convert).parameters for family, convert in converters.items()}
    of_all = ("family", "checkpoint")
    given = {
        each.name: value
        for each in fields(options)
        if each.name not in of_all and (value := getattr(options, each.name)) != each.default
    }
    for name in given:
        if name not in taken[options.family]:
            others = " or ".join(family for family in taken if name in taken[family])
            raise DocmtError(f"{flag_of(name)} is for {others}, not for {options.family}: leave it out")
    for name, parameter in list(taken[options.family].items())[1:]:
        if parameter.default is Parameter.empty and name not in given:
            raise DocmtError(f"{flag_of(name)} is missing; see docmt convert --help")
    return given
