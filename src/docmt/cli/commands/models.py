"""docmt pull, models, convert, export, average: models from a hub, those that are there, from and to other toolkits."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from inspect import Parameter, signature
from pathlib import Path
from typing import Any, Literal

from docmt.core.errors import DocmtError, printable
from docmt.core.plain_text import align_columns
from docmt.core.settings import Excludes, field_range, format_flag, option, ranged, read_package_yaml
from docmt.model.families import TransformerConfig
from docmt.model.systems import Context

_log = logging.getLogger(__name__)

_ADDED_TOKENS = {"tokenizer.json": " (its encode adds these tokens)", "docmt": " (its encode adds only TOKENS)"}


@dataclass(frozen=True, kw_only=True)
class PretrainedOptions:
    """How a pretrained model is converted."""

    source_language: str = option("", metavar="CODE")
    """source language of a multilingual model, such as de, or its own code deu_Latn"""
    target_language: str = option("", metavar="CODE")
    """target language of a multilingual model"""
    prefix: str = option("", metavar="TEXT")
    """T5: text before each sentence, such as 'translate English to German:'"""
    keep_vocabulary: tuple[Path, Path] | None = option(None, metavar="SOURCE TARGET")
    """keep only the vocabulary of these files, for a smaller pretrained model"""


@dataclass(frozen=True, kw_only=True)
class PullOptions(PretrainedOptions):
    """docmt pull OWNER/NAME

    Download a pretrained translation model from the Hugging Face hub and convert it. Then every command takes its name
    or its language pair in the place of a model directory. It is written to the data home: DOCMT_HOME, or else docmt in
    the user's data directory. `docmt models --available` lists models.

    usage:
        OWNER/NAME [--revision REVISION] [-o DIRECTORY] [options]

    examples:
        docmt pull Helsinki-NLP/opus-mt-en-de
        docmt pull facebook/nllb-200-distilled-600M --source-language en --target-language de
    """

    model: str = option(positional=True, metavar="OWNER/NAME")
    """repository on the hub"""
    revision: str = option("", metavar="REVISION")
    """branch, tag or commit (default: main)"""
    output: Path | None = option(None, flags=("-o",), metavar="DIRECTORY")
    """new model directory (default: in the data home)"""


def run_pull(options: PullOptions) -> int:
    """Download and convert a model."""
    # imported here because torch loads slowly
    from docmt.checkpoint.hub import choose_directory, find_pair, is_pulled, open_repository, pull_model
    from docmt.checkpoint.model_names import describe_installed, is_non_commercial

    model = open_repository(options.model, options.revision)
    languages = options.source_language, options.target_language
    directory = options.output or choose_directory(model, *languages)
    pair = " to ".join(chosen or named for chosen, named in zip(languages, find_pair(model.name), strict=True))
    licence = f"licence {model.licence}" if model.licence else "no licence stated"
    _log.info(f"{model.hub_id}: {pair}{', ' * (len(pair) > 4)}{licence}, {model.size / 1e6:,.0f} MB")
    if is_non_commercial(model.licence):
        _log.warning(f"the licence of {model.hub_id}, {model.licence}, forbids commercial use")
    if options.keep_vocabulary is None and not options.prefix and is_pulled(model, directory):
        print(printable(f"{directory}: is there already, in this revision"))
        return 0
    names = [field.name for field in fields(PretrainedOptions)]
    pull_model(model, directory, **{name: value for name in names if (value := getattr(options, name))})
    pulled = describe_installed(directory)
    print(printable(f"{directory}: system {pulled.system}, {pulled.parameters / 1e6:.1f} million parameters"))
    name = directory if options.output else pulled.pair or pulled.name
    use = "train --store STORE --run RUN --initialize-from {}" if pulled.is_encoder else "translate {} FILE"
    _log.info(f"try: docmt {use.format(name)}")
    return 0


@dataclass(frozen=True)
class ModelsOptions:
    """docmt models

    List the models that every command takes by name or by language pair: those in the data home (DOCMT_HOME, or else
    docmt in the user's data directory) and those in the package. --available lists models that docmt pull gets.

    usage:
        [--available]

    examples:
        docmt models
        docmt models --available
    """

    available: bool = False
    """list recommended models on the hub instead"""


def run_models(options: ModelsOptions) -> int:
    """Print a list of models."""
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
        folder = "package" if model.path.parent == PACKAGE_MODELS else str(model.path.parent)
        sizes = f"{model.parameters / 1e6:.1f} million", f"{model.size / 1e6:.0f} MB"
        licence = _describe_licence(model.licence)
        rows.append([model.name, model.pair or "unknown", model.system, *sizes, licence, folder])
    yield from map(str.rstrip, align_columns(rows, len(rows[0])))


def _list_available() -> Iterator[str]:
    """Yield the lines of the table of recommended models."""
    entries = read_package_yaml("docmt.checkpoint", "available_models.yaml")
    cells = [[each["id"], each["languages"], _describe_licence(each["licence"]), each["size"]] for each in entries]
    rows = [["docmt pull", "languages", "licence", "size"], *cells]
    head, *lines = map(str.rstrip, align_columns(rows, len(rows[0])))
    yield head
    for line, entry in zip(lines, entries, strict=True):
        yield line
        unchecked = f" (not checked: {entry['unchecked']})" if "unchecked" in entry else ""
        yield f"    {entry['note']}{unchecked}"


def _describe_licence(licence: str) -> str:
    """Return a licence as a cell."""
    from docmt.checkpoint.model_names import is_non_commercial  # imports torch

    return f"{licence}, no commercial use" if is_non_commercial(licence) else licence or "unknown"


@dataclass(frozen=True, kw_only=True)
class ConvertOptions(PretrainedOptions):
    """docmt convert FAMILY CHECKPOINT ... -o DIR

    Convert a checkpoint of another toolkit to a docmt model directory. huggingface reads translation models (Marian,
    NLLB-200, M2M100, mBART, T5, mT5, MADLAD-400, BART) and encoders (BERT, RoBERTa, XLM-R). The others read checkpoints
    of published code with their dictionaries or vocabularies: fairseq-gtransformer (Bao et al. 2021), fairseq-rfa (Wu
    et al. 2022) and thumt (Zhang et al. 2018), whose models translate text that is tokenized as their training data
    was.

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

    common:
        output arguments instance_tokens source_language target_language prefix keep_vocabulary
    """

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


def run_convert(options: ConvertOptions) -> int:
    """Convert a checkpoint of another toolkit to a model directory."""
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
            raise DocmtError(f"{format_flag(name)} is for {families}, not for {options.family}: leave it out")
    for name, parameter in list(parameters[options.family].items())[1:]:
        if parameter.default is Parameter.empty and name not in arguments:
            raise DocmtError(f"{format_flag(name)} is missing; see docmt convert --help")
    return arguments


@dataclass(frozen=True)
class ExportOptions:
    """docmt export FORMAT MODEL -o DIR

    Export a sentence model to CTranslate2, as a directory for ctranslate2.Translator with a tokenizer beside the model.
    The command prints the tokens that must surround a sentence. Settings that CTranslate2 does not support are errors.

    usage:
        ctranslate2 MODEL -o DIRECTORY [--quantization TYPE]

    examples:
        docmt export ctranslate2 MODEL -o exported

    common:
        output
    """

    format: Literal["ctranslate2"] = option(positional=True, metavar="FORMAT")
    """output format: ctranslate2"""
    model: str = option(positional=True, metavar="MODEL")
    """model or run directory"""
    output: Path = option(flags=("-o",), metavar="DIRECTORY")
    """new directory"""
    quantization: Literal["float32", "float16", "bfloat16", "int8"] = option("float32", metavar="TYPE")
    """type of the stored weights: float32, float16, bfloat16 or int8"""


def run_export(options: ExportOptions) -> int:
    """Export a model to another toolkit."""
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


@dataclass(frozen=True)
class AverageOptions:
    """docmt average MODEL MODEL ... -o DIR

    Average the weights of several models into a new model. They are models of one architecture and vocabulary, or
    checkpoints of runs (trained with --checkpoints.keep).

    usage:
        MODEL MODEL ... -o DIRECTORY
        RUN ... --last N -o DIRECTORY
        RUN ... --best N -o DIRECTORY
        MODEL --quantization TYPE -o DIRECTORY

    examples:
        docmt average runs/group --last 5 -o models/mean
        docmt average models/one models/two -o models/mean
    """

    models: list[str] = option(positional=True, metavar="MODEL")
    """model directories, run directories, or checkpoints of runs"""
    output: Path = option(flags=("-o",), metavar="DIRECTORY")
    """new model directory"""
    last: int = ranged(0, 0, 10_000)
    """average the last N checkpoints of each run"""
    best: int = ranged(0, 0, 10_000)
    """average the N best checkpoints of each run on the dev split"""
    quantization: Literal["float32", "float16", "int8"] | None = option(None, metavar="TYPE")
    """type of the stored weights: float32 (default), float16 or int8; also of a single model"""

    option_rules = (Excludes("last", "best", "and {} are both set: choose one of them"),)


def run_average(options: AverageOptions) -> int:
    """Average several models and write the result as a model."""
    # imported here because torch loads slowly
    from docmt.checkpoint.model_directory import average_models
    from docmt.training.run_directory import select_snapshots

    models = [Path(model) for model in options.models]
    if count := options.last or options.best:
        which: Literal["last", "best"] = "last" if options.last else "best"
        models = [checkpoint for run in models for checkpoint in select_snapshots(run, which, count)]
    elif len(models) == 1 and options.quantization is None:
        raise DocmtError(
            f"{models[0]} is a single model: name several, or set --last N or --best N for the checkpoints of a run"
        )
    average_models(models, options.output, options.quantization)
    content = "mean" if models[1:] else f"copy in {options.quantization}"
    print(printable(f"{options.output}: {content} of {', '.join(map(str, models))}"))
    return 0
