"""Readers of fairseq checkpoints, and the converter of G-Transformer checkpoints (Bao et al. 2021).

A checkpoint holds weights by name and the command line arguments of its training. Its vocabulary is a dictionary
file beside the training data (`dict.en.txt`: a symbol and its count on each line).
"""

from __future__ import annotations

import argparse
import pickle
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import count, islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from docmt.checkpoint.hf_import import get_hf_format
from docmt.checkpoint.model_directory import ModelCard, check_not_existing, save_model
from docmt.checkpoint.weights import apply_renames, build_from_weights, read_symbols, read_tensors
from docmt.core.errors import DocmtError
from docmt.core.files import read_json
from docmt.core.settings import read_package_yaml
from docmt.model import ModelConfig, TranslationModel
from docmt.text import DictionaryTokenizer, SpecialTokens
from docmt.text.tokenizer import SIDES

BART = get_hf_format("bart")
"""The format of BART, whose parameters have fairseq's names."""
_NO_WEIGHTS = re.compile(r"(^|\.)(version|_float_tensor)$")

PUBLISHED = read_package_yaml("docmt.checkpoint", "published_names.yaml", typed=True)
"""Names and arguments of published code."""


def read_checkpoint(path: Path, arguments: Path | None) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return weights and training arguments of a checkpoint.

    arguments: a JSON file; by default the checkpoint itself, or args.json beside a safetensors file. Raises DocmtError
    if one of them is missing or damaged.
    """
    weights, stored = _read_file(path)
    values = read_arguments(arguments) if arguments is not None else stored
    if values is None:
        raise DocmtError(f"{path} has no training arguments. Add a JSON file of them with --arguments")
    return {name: tensor for name, tensor in weights.items() if not _NO_WEIGHTS.search(name)}, values


def check_shared_matrix(path: Path, weights: Mapping[str, Tensor], shared: str, copies: Sequence[str]) -> Tensor:
    """Return the shared matrix. Raises DocmtError if it is missing or a copy differs from it."""
    if shared not in weights:
        raise DocmtError(f"{path} has no {shared}. It is another kind of checkpoint")
    for name in copies:
        if name in weights and not torch.equal(weights[name], weights[shared]):
            raise DocmtError(f"{path} has a {name} that differs from {shared}. docmt's model shares one matrix")
    return weights[shared]


def check_arguments(values: Mapping[str, Any], fixed: Mapping[str, object]) -> None:
    """Raise DocmtError for the first argument that docmt's models cannot express. fixed: further required values.

    Arguments that only act in training, such as activation_dropout, are ignored. Weights show the others.
    """
    for name, required in {**PUBLISHED["fairseq"]["arguments"], **fixed}.items():
        if (value := values.get(name, required)) != required and (value or required):
            raise DocmtError(
                f"the checkpoint was trained with {name} = {value!r}, which docmt's model does not support"
            )
    heads = {name: values.get(name) for name in ("encoder_attention_heads", "decoder_attention_heads")}
    if None not in heads.values() and len(set(heads.values())) > 1:
        both = " and ".join(f"{name} = {value!r}" for name, value in heads.items())
        raise DocmtError(f"the checkpoint was trained with {both}. docmt's model has one setting for both")


def read_common_settings(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the model settings that all fairseq checkpoints have, under docmt's names."""
    return {
        **require_sizes(values, PUBLISHED["fairseq"]["sizes"]),
        "activation": read_choice(values, "activation_fn", {"relu": "relu", "gelu": "gelu"}),
        "dropout": read_number(values, "dropout", 0.0),
        "attention_dropout": read_number(values, "attention_dropout", 0.0),
    }


def read_dictionary(path: Path, rows: int, specials: int) -> list[str]:
    """Return the symbols of a dictionary file in order, padded as fairseq does.

    rows: number of embeddings in the checkpoint. specials: how many of them are for symbols outside the file. Raises
    DocmtError for an invalid dictionary or one of another checkpoint.
    """
    symbols = []
    for number, line in enumerate(read_symbols(path, "the dictionary"), 1):
        if not line:
            continue
        symbol, _, frequency = line.rpartition(" ")
        if not symbol or not frequency.isdigit():
            raise DocmtError(f"line {number} of {path} is not a symbol and its count. Use the checkpoint's dict.*.txt")
        symbols.append(symbol)
    missing = rows - specials - len(symbols)
    if not 0 <= missing < 8:  # dictionaries are padded to a multiple of 8 entries
        raise DocmtError(
            f"{path} has {len(symbols)} symbols, but the checkpoint has {rows} embeddings, {specials} of them for "
            "special tokens. Use the dictionary of this checkpoint"
        )
    known = set(symbols)
    padding = (name for number in count() if (name := f"madeupword{number:04d}") not in known)
    return symbols + list(islice(padding, missing))


def check_no_duplicates(path: Path, symbols: Sequence[str]) -> None:
    """Raise DocmtError for a duplicate symbol in a vocabulary."""
    if len(set(symbols)) < len(symbols):
        raise DocmtError(f"{path} has a duplicate symbol. Use the vocabulary file of the checkpoint")


def save_converted(
    output: Path,
    checkpoint: Path,
    code: str,
    config: ModelConfig,
    weights: Mapping[str, Tensor],
    tokenizer: DictionaryTokenizer,
    values: Mapping[str, Any],
) -> TranslationModel:
    """Write a converted model with a card, and return it. code: whose checkpoint it is. values: its arguments."""
    model = build_from_weights(config, weights, checkpoint)
    source, target = (str(values.get(f"{side}_lang") or "") for side in SIDES)
    origin = {"converted_from": f"{checkpoint.name}, a checkpoint of {code}"}
    save_model(output, model, tokenizer, ModelCard(source_language=source, target_language=target, training=origin))
    return model.eval()


def _read_file(path: Path) -> tuple[dict[str, Tensor], dict[str, Any] | None]:
    """Return weights and training arguments (or None) of a file. Code in the file is never run."""
    if not path.exists():
        raise DocmtError(f"there is no file {path}. Name a checkpoint (.pt or .safetensors)")
    if path.suffix == ".safetensors":
        beside = path.parent / "args.json"
        return read_tensors(path), read_arguments(beside) if beside.is_file() else None
    try:
        with torch.serialization.safe_globals([argparse.Namespace]):
            content = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        blocked = re.search(r"GLOBAL (\S+)", str(error))
        reason = f"it needs {blocked[1]}" if blocked else "it is damaged, or holds more than tensors and arguments"
        raise DocmtError(
            f"{path} cannot be opened without running code from it ({reason}). Save its weights as safetensors where "
            "it was trained, with its arguments in args.json beside them"
        ) from error
    except Exception as error:  # a file of another format can raise anything
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise DocmtError(f"{path} is damaged or not a checkpoint ({reason}). Copy it again from its source") from error
    weights = content.get("model") if isinstance(content, dict) else None
    if not isinstance(weights, dict) or not all(isinstance(tensor, Tensor) for tensor in weights.values()):
        raise DocmtError(f"{path} is not a fairseq checkpoint. It has no weights under 'model'")
    arguments = content.get("args")
    values = vars(arguments) if isinstance(arguments, argparse.Namespace) else arguments
    return weights, values if isinstance(values, dict) else None


def read_arguments(path: Path) -> dict[str, Any]:
    """Return the training arguments in a JSON file: its entry `args` or `parameters`, or all of it."""
    if not path.exists():
        raise DocmtError(f"there is no file {path}. Name a JSON file of the checkpoint's training arguments")
    values = read_json(path)
    return next((entry for name in ("args", "parameters") if isinstance(entry := values.get(name), dict)), values)


def require_argument(values: Mapping[str, Any], name: str) -> Any:
    """Return an argument. Raises DocmtError if it is missing."""
    if name not in values:
        raise DocmtError(f"the checkpoint's arguments lack {name}. Use the arguments it was trained with")
    return values[name]


def require_sizes(values: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Return sizes by docmt's names. names: of the arguments that have them. Raises DocmtError if one is missing."""
    return {name: require_argument(values, argument) for name, argument in names.items()}


def read_number(values: Mapping[str, Any], name: str, default: float) -> float:
    """Return a number, or the default if it is missing or None. Raises DocmtError for another type."""
    value = values.get(name)
    if value is None:
        return default
    if not isinstance(value, int | float):
        raise DocmtError(f"the checkpoint's arguments have {name} = {value!r}. It must be a number")
    return value


def read_choice(values: Mapping[str, Any], name: str, known: Mapping[str, str]) -> str:
    """Return docmt's name of an argument's value. Raises DocmtError for an unknown or missing one."""
    value = require_argument(values, name)
    if value not in tuple(known):
        supported = ", ".join(known)
        raise DocmtError(f"the checkpoint was trained with {name} = {value!r}. docmt's model supports {supported}")
    return known[value]


# Copies of the shared embedding matrix.
_COPIES = ("decoder.embed_tokens.weight", "decoder.output_projection.weight")


def convert_gtransformer(
    checkpoint: Path,
    dictionary: Path,
    output: Path,
    *,
    arguments: Path | None = None,
    sentences: bool = False,
    instance_tokens: int = 512,
) -> TranslationModel:
    """Write a G-Transformer checkpoint as a docmt model directory with the same logits.

    checkpoint: a fairseq `.pt` or a safetensors file. arguments: a JSON file of the training arguments, if the
    checkpoint has none. sentences: it was trained on single sentences, so it becomes a sentence model. Raises
    DocmtError for a damaged file, and for an unsupported architecture, naming the argument.
    """
    check_not_existing(output)
    stored, values = read_checkpoint(checkpoint, arguments)
    rows = check_shared_matrix(checkpoint, stored, "encoder.embed_tokens.weight", _COPIES)
    config = replace(read_architecture(values, len(rows), sentences=sentences), instance_tokens=instance_tokens)
    symbols, end_row = _read_words(dictionary, values, len(rows))
    weights = rename_weights(stored, config)
    # The symbol of the target language ends a document. docmt's <eod> has the id before <mask>.
    last = SpecialTokens(config.vocabulary_size).eod
    weights["tokens.weight"][[end_row, last]] = rows[[last, end_row]].float()
    code, tokenizer = "the published G-Transformer code", DictionaryTokenizer(symbols)
    return save_converted(output, checkpoint, code, config, weights, tokenizer, values)


def read_architecture(values: Mapping[str, Any], vocabulary_size: int, *, sentences: bool = False) -> ModelConfig:
    """Return the config of a model trained with these arguments. Raises DocmtError for unsupported ones."""
    learned = bool(require_argument(values, "encoder_learned_pos"))
    check_arguments(values, PUBLISHED["gtransformer"]["arguments"])
    mode = read_choice(values, "doc_mode", {"partial": "group", "full": "document"})
    if sentences and mode == "group":
        raise DocmtError("the checkpoint was trained with doc_mode = 'partial'. It is not a sentence model")
    options: dict[str, Any] = {"system": "sentence" if sentences else mode}
    if mode == "group":
        layers = {site: require_argument(values, f"{site}_ctxlayers") for site in ("encoder", "decoder", "cross")}
        options["group"] = {f"{site}_layers": count for site, count in layers.items()}
    settings = {
        **options,
        "vocabulary_size": vocabulary_size,
        **read_common_settings(values),
        "normalization": "pre" if require_argument(values, "encoder_normalize_before") else "post",
        "embedding_normalization": bool(values.get("layernorm_embedding", False)),
        "positions": "document",
        "position_encoding": "learned" if learned else "sinusoidal",
        "max_positions": max(int(read_number(values, f"max_{side}_positions", 1024)) for side in SIDES),
    }
    return ModelConfig.from_dict(settings)


def rename_weights(weights: Mapping[str, Tensor], config: ModelConfig) -> dict[str, Tensor]:
    """Return the weights under docmt's names, without copies of the embeddings."""
    result = {}
    for name, tensor in weights.items():
        if name in _COPIES:
            continue
        docmt_name = find_docmt_name(name, config)
        if docmt_name.endswith("_positions.table.weight"):
            tensor = tensor[BART.first_position :]
        result[docmt_name] = tensor.float()
    return result


def find_docmt_name(name: str, config: ModelConfig) -> str:
    """Return docmt's name of a parameter of the checkpoint."""
    name = apply_renames(name, [*PUBLISHED["gtransformer"]["names"], *BART.weight_names])
    # The checkpoint also calls an attention over the whole document local, docmt calls it global.
    global_name = name.replace(".local.", ".global.")
    return global_name if config.system_options.initial_weight(global_name) == name else name


def _read_words(path: Path, values: Mapping[str, Any], vocabulary_size: int) -> tuple[list[str], int]:
    """Return the words in docmt's order, and the checkpoint's row of the symbol that ends a document."""
    languages = [f"[{code}]" for code in str(require_argument(values, "langs")).split(",")]
    target = f"[{require_argument(values, 'target_lang')}]"
    if target not in languages:
        raise DocmtError(f"target_lang is not among the langs {', '.join(languages)} of the checkpoint's arguments")
    first = SpecialTokens.first_word
    # The languages and <mask> follow the dictionary.
    symbols = read_dictionary(path, vocabulary_size, first + len(languages) + 1) + languages
    end_row = first + symbols.index(target)
    last = SpecialTokens(vocabulary_size).eod
    symbols[end_row - first] = symbols[last - first]
    symbols.pop()
    check_no_duplicates(path, symbols)
    return symbols, end_row
