"""Checkpoints of code built on fairseq: what they share, and those of the G-Transformer (Bao et al. 2021).

Such a checkpoint holds weights by name and the command line arguments of its training. Its vocabulary lies in a
dictionary file beside the training data (`dict.en.txt`: a symbol and its count on each line).
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

from docmt.checkpoint.hf_model import about_family
from docmt.checkpoint.model_directory import ModelCard, check_new, save_model
from docmt.checkpoint.weights import load_renamed, read_symbols, read_tensors, renamed
from docmt.core.errors import DocmtError
from docmt.core.files import read_json
from docmt.model import ModelConfig, TranslationModel
from docmt.text import DictionaryTokenizer, SpecialTokens

BART = about_family("bart")
"""Whose parameters have the names that fairseq gives them."""
_NO_WEIGHTS = re.compile(r"(^|\.)(version|_float_tensor)$")

# Arguments of the architecture with the only value that docmt's models have.
_FIXED: dict[str, object] = {
    "no_scale_embedding": False,
    "no_token_positional_embeddings": False,
    "adaptive_softmax_cutoff": None,
    "encoder_layers_to_keep": None,
    "decoder_layers_to_keep": None,
    "no_cross_attention": False,
    "cross_self_attention": False,
    "no_decoder_final_norm": False,
    "quant_noise_scalar": 0,
}
# The same for what acts in training alone: the weights translate without it.
_FIXED_IN_TRAINING = dict.fromkeys(
    ("activation_dropout", "relu_dropout", "encoder_layerdrop", "decoder_layerdrop", "quant_noise_pq"), 0
)
# Arguments that must agree, since docmt's model has one setting for both.
_EQUAL = (
    ("encoder_embed_dim", "decoder_embed_dim"),
    ("encoder_ffn_embed_dim", "decoder_ffn_embed_dim"),
    ("encoder_attention_heads", "decoder_attention_heads"),
    ("encoder_normalize_before", "decoder_normalize_before"),
    ("encoder_learned_pos", "decoder_learned_pos"),
    ("decoder_embed_dim", "decoder_input_dim"),
    ("decoder_embed_dim", "decoder_output_dim"),
)


def read_checkpoint(path: Path, arguments: Path | None) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Weights and training arguments: those in the checkpoint, or in args.json beside a safetensors file, or in
    another JSON file that is named. Raises DocmtError where one of them is missing or damaged."""
    weights, own = _read(path)
    values = read_arguments(arguments) if arguments is not None else own
    if values is None:
        raise DocmtError(f"{path} holds no training arguments: give them as a JSON file with --arguments")
    return {name: tensor for name, tensor in weights.items() if not _NO_WEIGHTS.search(name)}, values


def check_copies(path: Path, weights: Mapping[str, Tensor], shared: str, copies: Sequence[str]) -> Tensor:
    """The matrix of that name. Raises DocmtError where there is none, or copies of it that are others."""
    if shared not in weights:
        raise DocmtError(f"{path} has no {shared}: it is another kind of checkpoint")
    for name in copies:
        if name in weights and not torch.equal(weights[name], weights[shared]):
            raise DocmtError(f"{path} has a {name} of its own: docmt's model shares {shared}")
    return weights[shared]


def check_arguments(
    values: Mapping[str, Any], fixed: Mapping[str, object], equal: Sequence[tuple[str, str]] = ()
) -> None:
    """Raises DocmtError naming what docmt's models cannot express.

    fixed: further arguments with the only value that the model has; equal: further ones that must agree.
    """
    for name, wanted in {**_FIXED, **_FIXED_IN_TRAINING, **fixed}.items():
        if (found := values.get(name, wanted)) != wanted and (found or wanted):
            advice = f": to translate with it, give its arguments with {name} = 0 (--arguments)"
            raise DocmtError(
                f"the checkpoint was trained with {name} = {found!r}, which docmt's model does not have"
                f"{advice if name in _FIXED_IN_TRAINING else ''}"
            )
    for one, other in (*_EQUAL, *equal):
        if values.get(one, values.get(other)) != values.get(other, values.get(one)):
            raise DocmtError(
                f"the checkpoint was trained with {one} = {values[one]!r} and {other} = {values[other]!r}: "
                "docmt's model has one setting for both"
            )


def sizes(values: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a model that are called otherwise in these arguments."""
    return {
        "width": needed(values, "encoder_embed_dim"),
        "feed_forward": needed(values, "encoder_ffn_embed_dim"),
        "heads": needed(values, "encoder_attention_heads"),
        "encoder_layers": needed(values, "encoder_layers"),
        "decoder_layers": needed(values, "decoder_layers"),
        "activation": choice(values, "activation_fn", {"relu": "relu", "gelu": "gelu"}),
        "dropout": number(values, "dropout", 0.0),
        "attention_dropout": number(values, "attention_dropout", 0.0),
    }


def read_dictionary(path: Path, rows: int, specials: int) -> list[str]:
    """Return the symbols of a dictionary file, in order, filled up as fairseq does where the file is not.

    rows: how many the checkpoint has; specials: how many of them are for symbols that such a file does not have. Raises
    DocmtError for what is no dictionary, or another checkpoint's.
    """
    symbols = []
    for place, line in enumerate(read_symbols(path, "the dictionary"), 1):
        if not line:
            continue
        symbol, _, times = line.rpartition(" ")
        if not symbol or not times.isdigit():
            raise DocmtError(f"line {place} of {path} is not a symbol and its count: give the checkpoint's dict.*.txt")
        symbols.append(symbol)
    missing = rows - specials - len(symbols)
    if not 0 <= missing < 8:  # dictionaries are padded to a multiple of 8 entries
        raise DocmtError(
            f"{path} has {len(symbols)} symbols, but the checkpoint {rows} rows, {specials} special tokens among them: "
            "give the dictionary of this checkpoint"
        )
    known = set(symbols)
    names = (f"madeupword{place:04d}" for place in count())
    return symbols + list(islice((name for name in names if name not in known), missing))


def check_different(path: Path, symbols: Sequence[str]) -> None:
    """Raises DocmtError where a symbol of a vocabulary stands twice."""
    if len(set(symbols)) < len(symbols):
        raise DocmtError(f"{path} has a symbol twice: give the vocabulary file of the checkpoint")


def save_converted(
    output: Path, model: TranslationModel, tokenizer: DictionaryTokenizer, origin: str, values: Mapping[str, Any]
) -> TranslationModel:
    """Writes a converted model with a card, and returns it; origin: what it was converted from."""
    source, target = (str(values.get(f"{side}_lang") or "") for side in ("source", "target"))
    card = ModelCard(source_language=source, target_language=target, training={"converted_from": origin})
    save_model(output, model, tokenizer, card)
    return model.eval()


def _read(path: Path) -> tuple[dict[str, Tensor], dict[str, Any] | None]:
    """Weights and, where they are there, training arguments. Code in the file is never run."""
    if not path.exists():
        raise DocmtError(f"there is no file {path}: give a checkpoint (.pt or .safetensors)")
    if path.suffix == ".safetensors":
        beside = path.parent / "args.json"
        return read_tensors(path), read_arguments(beside) if beside.is_file() else None
    try:
        with torch.serialization.safe_globals([argparse.Namespace]):
            content = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        blocked = re.search(r"GLOBAL (\S+)", str(error))
        what = f"it asks for {blocked[1]}" if blocked else "it is damaged, or holds more than tensors and arguments"
        raise DocmtError(
            f"{path} cannot be opened without running code from it ({what}): save its weights as safetensors where it "
            "was trained, with its arguments in args.json beside them"
        ) from error
    except Exception as error:  # where the file is none of torch's, its bytes lead anywhere
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise DocmtError(f"{path} is damaged or no checkpoint ({reason}): copy it again from where it came") from error
    weights = content.get("model") if isinstance(content, dict) else None
    if not isinstance(weights, dict) or not all(isinstance(tensor, Tensor) for tensor in weights.values()):
        raise DocmtError(f"{path} is no fairseq checkpoint: it has no weights under 'model'")
    found = content.get("args")
    values = vars(found) if isinstance(found, argparse.Namespace) else found
    return weights, values if isinstance(values, dict) else None


def read_arguments(path: Path) -> dict[str, Any]:
    """The training arguments in a JSON file: all of it, or its entry `args` or `parameters`. Raises DocmtError."""
    if not path.exists():
        raise DocmtError(f"there is no file {path}: give the JSON file with the checkpoint's training arguments")
    values = read_json(path)
    return next((own for name in ("args", "parameters") if isinstance(own := values.get(name), dict)), values)


def needed(values: Mapping[str, Any], name: str) -> Any:
    """The argument. Raises DocmtError where it is missing."""
    if name not in values:
        raise DocmtError(f"the checkpoint's arguments lack {name}: give the arguments it was trained with")
    return values[name]


def number(values: Mapping[str, Any], name: str, default: float) -> float:
    """The argument, or the default where it is missing or None. Raises DocmtError for what is no number."""
    value = values.get(name)
    if value is None:
        return default
    if not isinstance(value, int | float):
        raise DocmtError(f"the checkpoint's arguments have {name} = {value!r}, which is no number: mend them")
    return value


def choice(values: Mapping[str, Any], name: str, known: Mapping[str, str]) -> str:
    """What docmt calls the argument's value. Raises DocmtError for one that is not known, or missing."""
    value = needed(values, name)
    if value not in tuple(known):
        raise DocmtError(
            f"the checkpoint was trained with {name} = {value!r}, where docmt's model knows {', '.join(known)}"
        )
    return known[value]


# The G-Transformer: its names of parameters and ours, applied in this order.
_NAMES = (
    (r"self_attn_local", "attention.local"),
    (r"self_attn_global", "attention.whole"),
    (r"self_attn_gate\.0", "attention.gate.linear"),
    (r"encoder_attn_local", "cross.local"),
    (r"encoder_attn_global", "cross.whole"),
    (r"encoder_attn_gate\.0", "cross.gate.linear"),
    (r"^encoder\.embed_tokens", "tokens"),
    *BART.names,
)
# Copies of the one embedding matrix.
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
    """Writes the checkpoint as a docmt model directory, whose logits are those of the published code.

    checkpoint: a fairseq `.pt` or the weights as safetensors; arguments: a JSON file with the training arguments,
    needed where the checkpoint does not hold them; sentences: the checkpoint was trained without document mode on
    single sentences, so that it is a sentence model. Raises DocmtError for a damaged file, and for anything in the
    architecture that docmt's model does not have, by its name.
    """
    check_new(output)
    weights, values = read_checkpoint(checkpoint, arguments)
    embedding = check_copies(checkpoint, weights, "encoder.embed_tokens.weight", _COPIES)
    config = replace(architecture(values, len(embedding), sentences=sentences), instance_tokens=instance_tokens)
    symbols, end_row = _symbols(dictionary, values, len(embedding))
    model = load_renamed(config, rename(weights, config), checkpoint)
    # The row of the target language marks the end of a document: docmt keeps that one before <mask>.
    last, rows = SpecialTokens(config.vocabulary_size).eod, model.head().weight
    with torch.no_grad():
        rows[[end_row, last]] = rows[[last, end_row]]
    origin = f"{checkpoint.name}, a checkpoint of the published G-Transformer code"
    return save_converted(output, model, DictionaryTokenizer(symbols), origin, values)


def architecture(values: Mapping[str, Any], vocabulary_size: int, *, sentences: bool = False) -> ModelConfig:
    """docmt's description of a model trained with these arguments. Raises DocmtError naming what it cannot express."""
    learned = bool(needed(values, "encoder_learned_pos"))
    positions = "max_source_positions", "max_target_positions"
    check_arguments(values, {"share_all_embeddings": True}, [positions] if learned else [])
    mode = choice(values, "doc_mode", {"partial": "group", "full": "document"})
    if sentences and mode == "group":
        raise DocmtError("the checkpoint was trained with doc_mode = 'partial': it is no sentence model")
    options: dict[str, Any] = {"system": "sentence" if sentences else mode}
    if mode == "group":
        layers = {site: needed(values, f"{site}_ctxlayers") for site in ("encoder", "decoder", "cross")}
        options["group"] = {f"{site}_layers": count for site, count in layers.items()}
    return ModelConfig.from_dict(
        {
            **options,
            "vocabulary_size": vocabulary_size,
            **sizes(values),
            "normalization": "pre" if needed(values, "encoder_normalize_before") else "post",
            "embedding_normalization": bool(values.get("layernorm_embedding", False)),
            "positions": "document",
            "position_encoding": "learned" if learned else "sinusoidal",
            "max_positions": max(int(number(values, name, 1024)) for name in positions),
        }
    )


def rename(weights: Mapping[str, Tensor], config: ModelConfig) -> dict[str, Tensor]:
    """The weights under docmt's names; copies of the embedding are left out."""
    found = {}
    for name, tensor in weights.items():
        if name in _COPIES:
            continue
        ours = parameter_name(name, config)
        if ours.endswith("_positions.table.weight"):
            tensor = tensor[BART.first_position :]
        found[ours] = tensor.float()
    return found


def parameter_name(name: str, config: ModelConfig) -> str:
    """docmt's name of a parameter of theirs."""
    name = renamed(name, _NAMES)
    # They call an attention local whatever it sees; ours is named so that it starts from theirs.
    whole = name.replace(".local.", ".whole.")
    return whole if config.chosen.origin(whole) == name else name


def _symbols(path: Path, values: Mapping[str, Any], vocabulary_size: int) -> tuple[list[str], int]:
    """The words in docmt's order of ids, and the row of the symbol that ends a document in theirs."""
    languages = [f"[{code}]" for code in str(needed(values, "langs")).split(",")]
    target = f"[{needed(values, 'target_lang')}]"
    if target not in languages:
        raise DocmtError(f"target_lang is not among the langs {', '.join(languages)} of the checkpoint's arguments")
    first = SpecialTokens.first_word
    # Behind the dictionary come the languages and <mask>.
    symbols = read_dictionary(path, vocabulary_size, first + len(languages) + 1) + languages
    end_row = first + symbols.index(target)
    last = SpecialTokens(vocabulary_size).eod
    symbols[end_row - first] = symbols[last - first]
    symbols.pop()
    check_different(path, symbols)
    return symbols, end_row
