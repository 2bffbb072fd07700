"""What checkpoints of models built on fairseq have in common: files, arguments, names, dictionaries.

Such a checkpoint holds weights by name and the command line arguments of its training; its vocabulary lies in a
dictionary file beside the training data (`dict.en.txt`: a symbol and its count on each line).
"""

from __future__ import annotations

import argparse
import pickle
import re
from collections.abc import Mapping, Sequence
from itertools import count, islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from docmt.checkpoint.loading import read_symbols
from docmt.checkpoint.weights import read_tensors
from docmt.core.errors import DocmtError
from docmt.core.files import read_json

# Names of parameters of layers, theirs and ours, applied in this order.
NAMES = (
    (r"\.layers\.", "."),
    (r"self_attn_layer_norm", "attention_residual.norm"),
    (r"encoder_attn_layer_norm", "cross_residual.norm"),
    (r"final_layer_norm", "feed_forward_residual.norm"),
    (r"fc1", "feed_forward.inner"),
    (r"fc2", "feed_forward.outer"),
    (r"q_proj", "query"),
    (r"k_proj", "key"),
    (r"v_proj", "value"),
    (r"out_proj", "output"),
)
_NO_WEIGHTS = re.compile(r"(^|\.)(version|_float_tensor)$")

# Arguments of the architecture with the only value that docmt's models have.
_FIXED: dict[str, object] = {
    "no_scale_embedding": False,
    "no_token_positional_embeddings": False,
    "adaptive_input": False,
    "adaptive_softmax_cutoff": None,
    "encoder_layers_to_keep": None,
    "decoder_layers_to_keep": None,
    "no_cross_attention": False,
    "cross_self_attention": False,
    "character_embeddings": False,
    "no_decoder_final_norm": False,
    "quant_noise_scalar": 0,
}
# The same for what acts in training alone: the weights translate without it.
_FIXED_IN_TRAINING = (
    "activation_dropout",
    "relu_dropout",
    "encoder_layerdrop",
    "decoder_layerdrop",
    "quant_noise_pq",
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
    values = _arguments(arguments) if arguments is not None else own
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


def check_arguments(values: Mapping[str, Any], fixed: Mapping[str, object]) -> None:
    """Raises DocmtError naming what docmt's models cannot express; fixed: further arguments with the only value that
    the model has."""
    for name, wanted in {**_FIXED, **fixed}.items():
        if (found := values.get(name, wanted)) != wanted and not (found in ("", 0, None) and not wanted):
            raise DocmtError(f"the checkpoint was trained with {name} = {found!r}, which docmt's model does not have")
    for name in _FIXED_IN_TRAINING:
        if values.get(name):
            raise DocmtError(
                f"the checkpoint was trained with {name} = {values[name]!r}, which docmt's model does not have: to "
                f"translate with it, give its arguments with {name} = 0 (--arguments)"
            )
    for one, other in _EQUAL:
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


def renamed(name: str, names: Sequence[tuple[str, str]]) -> str:
    """A name with the patterns replaced, one after the other."""
    for pattern, replacement in names:
        name = re.sub(pattern, replacement, name)
    return name


def read_dictionary(path: Path) -> list[str]:
    """The symbols of a dictionary file, in order. Raises DocmtError for what is none."""
    symbols = []
    for place, line in enumerate(read_symbols(path, "the dictionary"), 1):
        if not line:
            continue
        symbol, _, times = line.rpartition(" ")
        if not symbol or not times.isdigit():
            raise DocmtError(f"line {place} of {path} is not a symbol and its count: give the checkpoint's dict.*.txt")
        symbols.append(symbol)
    return symbols


def made_up(symbols: Sequence[str], missing: int) -> list[str]:
    """The symbols with which fairseq fills a dictionary up to a multiple of 8."""
    known = set(symbols)
    names = (f"madeupword{place:04d}" for place in count())
    return list(islice((name for name in names if name not in known), missing))


def _read(path: Path) -> tuple[dict[str, Tensor], dict[str, Any] | None]:
    """Weights and, where they are there, training arguments. Code in the file is never run."""
    if not path.exists():
        raise DocmtError(f"there is no file {path}: give a checkpoint (.pt or .safetensors)")
    if path.suffix == ".safetensors":
        beside = path.parent / "args.json"
        return read_tensors(path), _arguments(beside) if beside.is_file() else None
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
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DocmtError(f"{path} is damaged or no checkpoint ({reason}): copy it again from where it came") from error
    weights = content.get("model") if isinstance(content, dict) else None
    if not isinstance(weights, dict) or not all(isinstance(tensor, Tensor) for tensor in weights.values()):
        raise DocmtError(f"{path} is no fairseq checkpoint: it has no weights under 'model'")
    found = content.get("args")
    if isinstance(found, argparse.Namespace):
        found = vars(found)
    return weights, found if isinstance(found, dict) else None


def _arguments(path: Path) -> dict[str, Any]:
    if not path.exists():
        raise DocmtError(f"there is no file {path}: give the JSON file with the checkpoint's training arguments")
    values = read_json(path)
    nested = values.get("args")
    return nested if isinstance(nested, dict) else values


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
