"""Checkpoints of the published code of Zhang et al. (2018), which is built on THUMT (TensorFlow).

Such a checkpoint has variables by name, here in a safetensors or .npz file; its parameters lie beside it as JSON, its
two vocabularies (one symbol a line: <pad>, <eos>, <unk>, then the words) beside its training data.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from docmt.checkpoint.fairseq import check_different, choice, needed, number, read_arguments, save_converted
from docmt.checkpoint.model_directory import check_new
from docmt.checkpoint.weights import load_renamed, read_symbols, read_tensors, renamed
from docmt.core.errors import DocmtError
from docmt.model import ModelConfig, TranslationModel
from docmt.text import DictionaryTokenizer, Tokenizer

_SPECIALS = ("<pad>", "<eos>", "<unk>")
"""Their ids 0 to 2; ours are one higher, as <s> comes first."""

# Their names of parameters and ours, applied in this order; scopes of attention end in a sub-layer's name.
_NAMES = (
    (r"^(?:\w+/)?(encoder|decoder|context)/layer_norm/", r"\1_norm/"),
    (r"^(?:\w+/)?(encoder|decoder|context)/layer_(\d+)/", r"\1.\2."),
    (r"self_attention/layer_norm/", "attention_residual.norm/"),
    (r"self_attention/multihead_attention/", "attention.local."),
    (r"ctx(?:enc|dec)_attention/layer_norm/", "context_residual.norm/"),
    (r"ctx(?:enc|dec)_attention/multihead_attention/", "context."),
    (r"ctx(?:enc|dec)_attention/gating_x/linear/", "context_residual.gate_input/"),
    (r"ctx(?:enc|dec)_attention/gating_y/linear/", "context_residual.gate_context/"),
    (r"encdec_attention/layer_norm/", "cross_residual.norm/"),
    (r"encdec_attention/multihead_attention/", "cross.local."),
    (r"feed_forward/layer_norm/", "feed_forward_residual.norm/"),
    (r"feed_forward/ffn_layer/input_layer/linear/", "feed_forward.inner/"),
    (r"feed_forward/ffn_layer/output_layer/linear/", "feed_forward.outer/"),
    (r"output_transform/", "output/"),
    (r"q_transform/", "query/"),
    (r"/(?:matrix|scale)$", ".weight"),
    (r"/(?:bias|offset)$", ".bias"),
)
# One variable of theirs holds several of ours, side by side.
_FUSED = {"qkv_transform": ("query", "key", "value"), "kv_transform": ("key", "value")}
_EMBEDDINGS = {
    "bias": "source_bias.vector",
    "softmax": "softmax.weight",
    "source_embedding": "source_tokens.weight",
    "target_embedding": "target_tokens.weight",
    "weights": "shared",  # of both sides, with shared_source_target_embedding
}
_NO_WEIGHTS = re.compile(r"(^|/)(global_step|Adam(_\d+)?|beta\d_power|OptimizeLoss/.*|learning_rate)$|/Adam(_\d+)?$")

# Parameters with the only value that docmt's model has.
_FIXED: dict[str, object] = {
    "attention_key_channels": 0,
    "attention_value_channels": 0,
    "multiply_embedding_mode": "sqrt_depth",
    "position_info_type": "absolute",
}
_REPRESENTATIONS = {"self_attention": "encoder", "embedding": "embedding", "bilstm": "bilstm"}


def convert_thumt(
    checkpoint: Path,
    output: Path,
    *,
    source_vocabulary: Path,
    target_vocabulary: Path,
    arguments: Path | None = None,
    context_sentences: int = 2,
    instance_tokens: int = 512,
) -> TranslationModel:
    """Writes the checkpoint as a docmt model directory, whose logits are those of the published code.

    checkpoint: safetensors or .npz of its variables; arguments: a JSON file with its parameters (default: args.json
    beside it); context_sentences: how many a context line of its training data held. Raises DocmtError for a damaged
    file, and for anything in the architecture that docmt's model does not have, by its name.
    """
    check_new(output)
    variables = read_variables(checkpoint)
    values = read_arguments(arguments or checkpoint.parent / "args.json")
    tokenizer = DictionaryTokenizer(_symbols(target_vocabulary), _symbols(source_vocabulary))
    config = architecture(values, variables, tokenizer, context_sentences)
    weights = rename(variables)
    if (shared := weights.pop("shared", None)) is not None:  # docmt's model has two tables, which begin as copies
        weights |= {"source_tokens.weight": shared, "target_tokens.weight": shared.clone()}
    for name in ("source_tokens.weight", "target_tokens.weight"):
        if name in weights:  # rows for <s> before, for <eod> and <mask> behind
            weights[name] = torch.nn.functional.pad(weights[name], (0, 0, 1, 2))
    model = load_renamed(replace(config, instance_tokens=instance_tokens), weights, checkpoint)
    origin = f"{checkpoint.name}, a checkpoint of the code of Zhang et al. (2018)"
    return save_converted(output, model, tokenizer, origin, {})


def read_variables(path: Path) -> dict[str, Tensor]:
    """The weights in a safetensors or .npz file, in float32; other variables, such as Adam's, are left out."""
    if not path.is_file():
        raise DocmtError(f"there is no file {path}: give the checkpoint's variables as .safetensors or .npz")
    if path.suffix == ".npz":
        try:
            with np.load(path, allow_pickle=False) as arrays:
                tensors = {name: torch.from_numpy(arrays[name]) for name in arrays.files}
        except (OSError, ValueError, TypeError, KeyError, EOFError, zipfile.BadZipFile) as error:
            raise DocmtError(f"{path} is damaged or no .npz file ({error}): write it again") from error
    else:
        tensors = read_tensors(path)
    return {name.split(":")[0]: tensor.float() for name, tensor in tensors.items() if not _NO_WEIGHTS.search(name)}


def architecture(
    values: Mapping[str, Any], variables: Collection[str], tokenizer: Tokenizer, context_sentences: int
) -> ModelConfig:
    """docmt's description of a model with these parameters. Raises DocmtError naming what it cannot express."""
    for name, wanted in _FIXED.items():
        if (found := values.get(name, wanted)) != wanted:
            raise DocmtError(f"the checkpoint was trained with {name} = {found!r}, where docmt's model has {wanted!r}")
    context = [values.get(f"context_{side}_attention", True) for side in ("encoder", "decoder")]
    if not any("ctxenc" in name or "ctxdec" in name for name in variables):
        context = [False, False]  # the sentence model has no such parameters
    source_size, target_size = tokenizer.source_vocabulary_size, tokenizer.vocabulary_size
    settings: dict[str, Any] = {"system": "sentence"}
    if any(context):
        kind = {"context_representation": "self_attention", **values}
        options = {
            "sentences": context_sentences,
            "representation": choice(kind, "context_representation", _REPRESENTATIONS),
            "side": "both" if all(context) else "encoder" if context[0] else "decoder",
            "gating": "gate" if values.get("context_gating", True) else "residual",
            "fusion": "published",
        }
        if options["representation"] == "encoder":
            options["layers"] = needed(values, "num_context_layers")
        settings = {"system": "context", "context": options}
    return ModelConfig.from_dict(
        {
            **settings,
            "family": "thumt",
            "vocabulary_size": target_size,
            "source_vocabulary_size": source_size if source_size != target_size else 0,
            "width": needed(values, "hidden_size"),
            "feed_forward": needed(values, "filter_size"),
            "heads": needed(values, "num_heads"),
            "encoder_layers": needed(values, "num_encoder_layers"),
            "decoder_layers": needed(values, "num_decoder_layers"),
            "normalization": "pre" if values.get("layer_preprocess", "none") == "layer_norm" else "post",
            "dropout": number(values, "residual_dropout", 0.0),
            "attention_dropout": number(values, "attention_dropout", 0.0),
            "output": "tied" if values.get("shared_embedding_and_softmax_weights") else "auto",
            "positions": "sentence",
        }
    )


def rename(variables: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights under docmt's names, in its layout: matrices are [out, in], fused ones are taken apart."""
    found: dict[str, Tensor] = {}
    for name, tensor in variables.items():
        if "bidirectional_rnn" in name:
            found |= _lstm(name, tensor)
        else:
            for ours, part in parameters(name, tensor).items():
                found[ours] = part.t() if name.endswith("/matrix") else part
    return found


def parameters(name: str, tensor: Tensor) -> dict[str, Tensor]:
    """docmt's names for a variable of theirs, each with its part of the tensor (last axis), not transposed."""
    last = name.rpartition("/")[2]
    if last in _EMBEDDINGS and name.count("/") <= 1:
        return {_EMBEDDINGS[last]: tensor}
    name = renamed(name, _NAMES)
    for fused, parts in _FUSED.items():
        if f"{fused}/" in name or f"{fused}." in name:
            tensors = tensor.chunk(len(parts), dim=-1)
            return {re.sub(rf"{fused}[/.]", f"{part}.", name): own for part, own in zip(parts, tensors, strict=True)}
    return {name: tensor}


def _lstm(name: str, tensor: Tensor) -> dict[str, Tensor]:
    """An LSTM's kernel [input + d, 4 d] or bias [4 d], gates i j f o in theirs, i f j o in ours."""
    suffix = "_reverse" if "/bw/" in name else ""
    i, j, f, o = tensor.chunk(4, dim=-1)
    if name.endswith("/bias"):
        # They add 1 to the forget gate.
        bias = torch.cat((i, f + 1, j, o))
        return {f"context.lstm.bias_ih_l0{suffix}": bias, f"context.lstm.bias_hh_l0{suffix}": torch.zeros_like(bias)}
    kernel = torch.cat((i, f, j, o), dim=-1).t()
    width = kernel.shape[0] // 4
    return {
        f"context.lstm.weight_ih_l0{suffix}": kernel[:, :-width],
        f"context.lstm.weight_hh_l0{suffix}": kernel[:, -width:],
    }


def _symbols(path: Path) -> list[str]:
    """The words of a vocabulary, without the three special symbols."""
    symbols = read_symbols(path, "the vocabulary")
    if tuple(symbols[: len(_SPECIALS)]) != _SPECIALS:
        raise DocmtError(f"{path} does not begin with {', '.join(_SPECIALS)}, a line each: give the checkpoint's vocab")
    check_different(path, symbols)
    return symbols[len(_SPECIALS) :]
