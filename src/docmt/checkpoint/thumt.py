"""The converter of checkpoints of Zhang et al. (2018), whose code is built on THUMT (TensorFlow).

The variables are read from a safetensors or .npz file, and the hyperparameters from a JSON file beside it. The two
vocabularies have one symbol a line: <pad>, <eos>, <unk>, then the words.
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

import docmt.checkpoint.fairseq as fairseq
from docmt.checkpoint.model_directory import check_not_existing
from docmt.checkpoint.weights import apply_renames, read_symbols, read_tensors
from docmt.core.errors import DocmtError
from docmt.model import ModelConfig, TranslationModel
from docmt.text import DictionaryTokenizer, Tokenizer

_SPECIALS = ("<pad>", "<eos>", "<unk>")
"""Their ids 0 to 2. docmt's ids are one higher, because <s> comes first."""

_PUBLISHED = fairseq.PUBLISHED["thumt"]
# Their variables that hold several parameters of docmt, concatenated along the last axis.
_FUSED = {"qkv_transform": ("query", "key", "value"), "kv_transform": ("key", "value")}
_NO_WEIGHTS = re.compile(r"(^|/)(global_step|Adam(_\d+)?|beta\d_power|OptimizeLoss/.*|learning_rate)$|/Adam(_\d+)?$")

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
    """Write a checkpoint as a docmt model directory with the same logits.

    checkpoint: its variables as safetensors or .npz. arguments: a JSON file of its hyperparameters (default: args.json
    beside it). context_sentences: number of sentences in a context line of its training data. Raises DocmtError for a
    damaged file, and for an unsupported architecture, naming the hyperparameter.
    """
    check_not_existing(output)
    variables = read_variables(checkpoint)
    values = fairseq.read_arguments(arguments or checkpoint.parent / "args.json")
    tokenizer = DictionaryTokenizer(_read_words(target_vocabulary), _read_words(source_vocabulary))
    config = read_architecture(values, variables, tokenizer, context_sentences)
    weights = rename_variables(variables)
    if (shared := weights.pop("shared", None)) is not None:  # docmt's model has two tables, which begin as copies
        weights |= {"source_tokens.weight": shared, "target_tokens.weight": shared.clone()}
    for name in ("source_tokens.weight", "target_tokens.weight"):
        if name in weights:  # one row for <s> in front, two for <eod> and <mask> at the end
            weights[name] = torch.nn.functional.pad(weights[name], (0, 0, 1, 2))
    config = replace(config, instance_tokens=instance_tokens)
    code = "the code of Zhang et al. (2018)"
    return fairseq.save_converted(output, checkpoint, code, config, weights, tokenizer, {})


def read_variables(path: Path) -> dict[str, Tensor]:
    """Return the weights of a safetensors or .npz file as float32, without other variables such as Adam's."""
    if not path.is_file():
        raise DocmtError(f"there is no file {path}. Name the checkpoint's variables as .safetensors or .npz")
    if path.suffix == ".npz":
        try:
            with np.load(path, allow_pickle=False) as arrays:
                tensors = {name: torch.from_numpy(arrays[name]) for name in arrays.files}
        except (OSError, ValueError, TypeError, KeyError, EOFError, zipfile.BadZipFile) as error:
            raise DocmtError(f"{path} is damaged or not an .npz file ({error}). Write it again") from error
    else:
        tensors = read_tensors(path)
    return {name.split(":")[0]: tensor.float() for name, tensor in tensors.items() if not _NO_WEIGHTS.search(name)}


def read_architecture(
    values: Mapping[str, Any], variables: Collection[str], tokenizer: Tokenizer, context_sentences: int
) -> ModelConfig:
    """Return the config of a model with these hyperparameters. Raises DocmtError for unsupported ones."""
    fairseq.check_arguments(values, _PUBLISHED["arguments"])
    context = [values.get(f"context_{side}_attention", True) for side in ("encoder", "decoder")]
    if not any("ctxenc" in name or "ctxdec" in name for name in variables):
        context = [False, False]  # the sentence model lacks these parameters
    source_size, target_size = tokenizer.source_vocabulary_size, tokenizer.vocabulary_size
    settings: dict[str, Any] = {"system": "sentence"}
    if any(context):
        kind = {"context_representation": "self_attention", **values}
        options = {
            "sentences": context_sentences,
            "representation": fairseq.read_choice(kind, "context_representation", _REPRESENTATIONS),
            "side": "both" if all(context) else "encoder" if context[0] else "decoder",
            "gating": "gate" if values.get("context_gating", True) else "residual",
            "fusion": "published",
        }
        if options["representation"] == "encoder":
            options["layers"] = fairseq.require_argument(values, "num_context_layers")
        settings = {"system": "context", "context": options}
    architecture = {
        **settings,
        "family": "thumt",
        "vocabulary_size": target_size,
        "source_vocabulary_size": source_size if source_size != target_size else 0,
        **fairseq.require_sizes(values, _PUBLISHED["sizes"]),
        "normalization": "pre" if values.get("layer_preprocess", "none") == "layer_norm" else "post",
        "dropout": fairseq.read_number(values, "residual_dropout", 0.0),
        "attention_dropout": fairseq.read_number(values, "attention_dropout", 0.0),
        "output": "tied" if values.get("shared_embedding_and_softmax_weights") else "auto",
        "positions": "sentence",
    }
    return ModelConfig.from_dict(architecture)


def rename_variables(variables: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights under docmt's names and in its layout: [out, in] matrices, fused ones split."""
    weights: dict[str, Tensor] = {}
    for name, tensor in variables.items():
        if "bidirectional_rnn" in name:
            weights |= _convert_lstm(name, tensor)
        else:
            for docmt_name, part in split_variable(name, tensor).items():
                weights[docmt_name] = part.t() if name.endswith("/matrix") else part
    return weights


def split_variable(name: str, tensor: Tensor) -> dict[str, Tensor]:
    """Return the parts of a variable (along the last axis, not transposed) under docmt's names."""
    last = name.rpartition("/")[2]
    if last in _PUBLISHED["embeddings"] and name.count("/") <= 1:
        return {_PUBLISHED["embeddings"][last]: tensor}
    name = apply_renames(name, _PUBLISHED["names"])
    for fused, parts in _FUSED.items():
        if f"{fused}/" in name or f"{fused}." in name:
            tensors = tensor.chunk(len(parts), dim=-1)
            names = (re.sub(rf"{fused}[/.]", f"{part}.", name) for part in parts)
            return dict(zip(names, tensors, strict=True))
    return {name: tensor}


def _convert_lstm(name: str, tensor: Tensor) -> dict[str, Tensor]:
    """Convert an LSTM's kernel [input + d, 4 d] or bias [4 d] from gate order i j f o to PyTorch's i f j o."""
    suffix = "_reverse" if "/bw/" in name else ""
    i, j, f, o = tensor.chunk(4, dim=-1)
    if name.endswith("/bias"):
        # Their code adds 1 to the forget gate.
        bias = torch.cat((i, f + 1, j, o))
        return {f"context.lstm.bias_ih_l0{suffix}": bias, f"context.lstm.bias_hh_l0{suffix}": torch.zeros_like(bias)}
    kernel = torch.cat((i, f, j, o), dim=-1).t()
    width = kernel.shape[0] // 4
    return {
        f"context.lstm.weight_ih_l0{suffix}": kernel[:, :-width],
        f"context.lstm.weight_hh_l0{suffix}": kernel[:, -width:],
    }


def _read_words(path: Path) -> list[str]:
    """Return the words of a vocabulary, without the three special symbols."""
    symbols = read_symbols(path, "the vocabulary")
    if tuple(symbols[: len(_SPECIALS)]) != _SPECIALS:
        raise DocmtError(
            f"{path} does not begin with the lines {', '.join(_SPECIALS)}. Use the checkpoint's vocabulary"
        )
    fairseq.check_no_duplicates(path, symbols)
    return symbols[len(_SPECIALS) :]
