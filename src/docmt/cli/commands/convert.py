"""docmt convert FAMILY CHECKPOINT ... -o DIR

Convert a checkpoint of another toolkit to a docmt model directory. huggingface reads translation models (Marian,
NLLB-200, M2M100, mBART, T5, mT5, MADLAD-400, BART) and encoders (BERT, RoBERTa, XLM-R). The others read checkpoints of
published code with their dictionaries or vocabularies: fairseq-gtransformer (Bao et al. 2021), fairseq-rfa (Wu et al.
2022) and thumt (Zhang et al. 2018), whose models translate text that is tokenized as their training data was.

usage:
    huggingface DIRECTORY -o DIRECTORY [options]
    fairseq-gtransformer CHECKPOINT -o DIRECTORY [options]
    fairseq-rfa CHECKPOINT -o DIRECTORY [options]
    thumt CHECKPOINT -o DIRECTORY [options]

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
from docmt.core.settings import field_range, flag_of, option
from docmt.model.systems import Context
from docmt.model.transformer_config import TransformerConfig


@dataclass(frozen=True, kw_only=True)
class ConvertOptions:
    """The options of the command."""

    family: Literal["huggingface", "fairseq-gtransformer", "fairseq-rfa", "thumt"] = option(
        positional=True, metavar="FAMILY"
    )
    """format of the checkpoint: huggingface, fairseq-gtransformer, fairseq-rfa or thumt"""
    checkpoint: Path = option(positional=True, metavar="CHECKPOINT")
    """fairseq .pt or .safetensors file, thumt .npz or .safetensors file, huggingface directory"""
    dictionary: Path | None = option(None, metavar="FILE")
    """fairseq-gtransformer: dictionary, dict.*.txt"""
    source_dictionary: Path | None = option(None, metavar="FILE")
    """fairseq-rfa: source dictionary, dict.*.txt"""
    target_dictionary: Path | None = option(None, metavar="FILE")
    """fairseq-rfa: target dictionary, dict.*.txt"""
    source_vocabulary: Path | None = option(None, metavar="FILE")
    """thumt: source vocabulary, one symbol a line, <pad> first"""
    target_vocabulary: Path | None = option(None, metavar="FILE")
    """thumt: target vocabulary, one symbol a line, <pad> first"""
    source_language: str = option("", metavar="CODE")
    """huggingface: source language, by the code of a multilingual model, such as deu_Latn"""
    target_language: str = option("", metavar="CODE")
    """huggingface: target language, by the code of a multilingual model, such as deu_Latn"""
    prefix: str = option("", metavar="TEXT")
    """T5: text before each sentence, such as 'translate English to German:'"""
    keep_vocabulary: tuple[Path, Path] | None = option(None, metavar="SOURCE TARGET")
    """huggingface: keep only the vocabulary of these files, for a smaller model"""
    allow_pickle: bool = False
    """huggingface: read pytorch_model.bin, after a check that it calls nothing but what tensors need"""
    layout: Literal["native", "published"] = "native"
    """mBART: boundary tokens of the model (native) or of its G-Transformer (published)"""
    output: Path = option(flags=("-o",), metavar="DIRECTORY")
    """new model directory"""
    arguments: Path | None = option(None, metavar="FILE")
    """JSON file with training arguments, if not in the checkpoint (default: args.json beside it)"""
    sentences: bool = False
    """fairseq-gtransformer: convert a model of single sentences (doc_mode full)"""
    context_sentences: int = option(2, range=field_range(Context, "sentences"))
    """thumt: sentences in a context line of the training data"""
    instance_tokens: int = option(512, range=field_range(TransformerConfig, "instance_tokens"))
    """upper limit of the tokens of an instance, as in training"""


def run(arguments: Sequence[str]) -> int:
    """Convert a checkpoint of another toolkit to a model directory."""
    options = parser().parse(arguments)
    # imported here because torch loads slowly
    from docmt.checkpoint import convert_gtransformer, convert_huggingface, convert_rfa, convert_thumt

    converters: dict[str, Callable[..., Any]] = {
        "fairseq-gtransformer": convert_gtransformer,
        "fairseq-rfa": convert_rfa,
        "thumt": convert_thumt,
        "huggingface": convert_huggingface,
    }
    model = converters[options.family](options.checkpoint, **_converter_arguments(options, converters))
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


def _converter_arguments(options: ConvertOptions, converters: Mapping[str, Callable[..., Any]]) -> dict[str, Any]:
    """Return the options that are set, as keyword arguments of the family's converter.

    Raises DocmtError for a missing option, and for one of another family.
    """
    parameters = {family: signature(convert).parameters for family, convert in converters.items()}
    common = ("family", "checkpoint")
    arguments = {
        setting.name: value
        for setting in fields(options)
        if setting.name not in common and (value := getattr(options, setting.name)) != setting.default
    }
    for name in arguments:
        if name not in parameters[options.family]:
            families = " or ".join(family for family in parameters if name in parameters[family])
            raise DocmtError(f"{flag_of(name)} is for {families}, not for {options.family}: leave it out")
    for name, parameter in list(parameters[options.family].items())[1:]:
        if parameter.default is Parameter.empty and name not in arguments:
            raise DocmtError(f"{flag_of(name)} is missing; see docmt convert --help")
    return arguments
