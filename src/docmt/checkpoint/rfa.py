"""The converter of checkpoints of Wu et al. (2022): random feature attention with a sentential gate, on fairseq.

It also reads their softmax baseline. Both have one dictionary file for each side. The sentence separator is in neither
file. Its id follows the four special symbols of fairseq.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

import docmt.checkpoint.fairseq as fairseq
from docmt.checkpoint.model_directory import check_not_existing
from docmt.checkpoint.weights import apply_renames
from docmt.core.errors import DocmtError
from docmt.model import ModelConfig, TranslationModel
from docmt.model.families import FAMILIES
from docmt.text import DictionaryTokenizer, SpecialTokens

_PUBLISHED = fairseq.PUBLISHED["rfa"]
_NAMES = [*_PUBLISHED["names_before_bart"], *fairseq.BART.weight_names, *_PUBLISHED["names_after_bart"]]
_OUTPUT = "decoder.output_projection.weight"  # a copy of the target's embeddings
# By docmt's attention in a decoder layer: their evaluation matrices, and their argument for a fixed temperature.
_FEATURES = {
    "attention": ("decoder.random_matrices_eval", "causal_tau"),
    "cross": ("encoder.cross_attention_project.random_matrices_eval", "cross_tau"),
}
_UNPREDICTED_ROWS = sum(FAMILIES["rfa"].ids_without_logits)
"""Embedding rows that their checkpoints lack: <eod> and <mask>."""
_TRAINING_MATRICES = ("decoder.random_matrices", "encoder.cross_attention_project.random_matrices")
"""Matrices that only training samples from."""

_GATES = {"decay": "decay_sentential_gate", "average": "use_sentential_gate"}
_SEPARATOR = 4
"""Their id of the sentence separator. docmt uses the id of `<s>`, which does not occur in their text."""


def convert_rfa(
    checkpoint: Path,
    output: Path,
    *,
    source_dictionary: Path,
    target_dictionary: Path,
    arguments: Path | None = None,
    instance_tokens: int = 512,
) -> TranslationModel:
    """Write a checkpoint as a docmt model directory with the same logits.

    checkpoint: a fairseq `.pt` or a safetensors file. arguments: a JSON file of the training arguments, if the
    checkpoint has none. Raises DocmtError for a damaged file, and for an unsupported architecture, naming the argument.
    """
    check_not_existing(output)
    weights, values = fairseq.read_checkpoint(checkpoint, arguments)
    target_rows = len(fairseq.check_shared_matrix(checkpoint, weights, "decoder.embed_tokens.weight", [_OUTPUT]))
    source_rows = len(fairseq.check_shared_matrix(checkpoint, weights, "encoder.embed_tokens.weight", []))
    source, target = _read_words(source_dictionary, source_rows), _read_words(target_dictionary, target_rows)
    linear = _FEATURES["cross"][0] in weights
    sizes = {"source_size": source_rows + _UNPREDICTED_ROWS, "target_size": target_rows + _UNPREDICTED_ROWS}
    config = replace(read_architecture(values, linear=linear, **sizes), instance_tokens=instance_tokens)
    weights, tokenizer = rename_weights(weights, config, values), DictionaryTokenizer(target, source)
    code = "the code of Wu et al. (2022)"
    return fairseq.save_converted(output, checkpoint, code, config, weights, tokenizer, values)


def read_architecture(values: Mapping[str, Any], *, linear: bool, source_size: int, target_size: int) -> ModelConfig:
    """Return the config of a model trained with these arguments. Raises DocmtError for unsupported ones.

    linear: it has random features. Otherwise it is the softmax baseline.
    """
    fairseq.check_arguments(values, _PUBLISHED["arguments"])
    fairseq.require_argument(values, "context_size")
    sentences = fairseq.read_number(values, "context_size", 0) + 1
    is_full_loss = bool(values.get("full_supervision") or values.get("seq2seq"))
    settings = {
        "family": "rfa",
        "system": "concat",
        "concat": {
            "sentences": sentences,
            "loss": "all" if is_full_loss else "last",
            "window_decoding": "prefix",
            "attention": "linear" if linear else "softmax",
            "padding_windows": bool(values.get("extra_padding")) and sentences > 1 and is_full_loss,
        },
        **({"linear": _linear_options(values)} if linear else {}),
        "vocabulary_size": target_size,
        "source_vocabulary_size": source_size if source_size != target_size else 0,
        **fairseq.read_common_settings(values),
    }
    return ModelConfig.from_dict(settings)


def _linear_options(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of linear attention."""
    fairseq.read_choice(values, "random_feature", {"rrf": "sine and cosine"})
    gates = [gate for gate, name in _GATES.items() if values.get(name)]
    if len(gates) > 1:
        raise DocmtError(
            "the checkpoint was trained with decay_sentential_gate and use_sentential_gate. docmt supports only one"
        )
    gate = {"gate": gates[0], "gate_bias": fairseq.read_number(values, "decay_gate_bias", 0.0)} if gates else {}
    return {
        "feature_map": "random",
        "features": fairseq.require_argument(values, "causal_proj_dim"),
        "cross_features": fairseq.require_argument(values, "cross_proj_dim"),
        "temperature_per": "dimension" if values.get("reparam_proj") else "head",
        "rescale_keys": bool(values.get("norm_rescale")),
        **gate,
    }


def rename_weights(weights: Mapping[str, Tensor], config: ModelConfig, values: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return the weights under docmt's names, with embeddings in docmt's order.

    Every layer gets a copy of the random matrices, which the checkpoint shares among layers.
    """
    skipped = {*(name for name, _ in _FEATURES.values()), *_TRAINING_MATRICES, _OUTPUT}
    result = {apply_renames(name, _NAMES): weights[name].float() for name in weights if name not in skipped}
    for side in ("source", "target"):
        result[f"{side}_tokens.weight"] = _reorder_rows(result[f"{side}_tokens.weight"])
    if config.system_options.has_linear_attention:
        for layer in range(config.decoder_layers):
            for attention, (matrices, temperature) in _FEATURES.items():
                features = f"decoder.{layer}.{attention}.global.features"
                if matrices in weights:
                    result[f"{features}.matrices"] = weights[matrices].float().clone()
                if not values.get("learned_tau"):
                    constant = fairseq.read_number(values, temperature, 1.0)
                    result[f"{features}.temperature"] = torch.full((config.heads, 1, 1), float(constant))
    return result


def _reorder_rows(rows: Tensor) -> Tensor:
    """Return embeddings [V, d] in the order of docmt's ids, followed by zero rows for <eod> and <mask>."""
    order = torch.arange(len(rows))
    order[SpecialTokens.bos], order[_SEPARATOR] = _SEPARATOR, SpecialTokens.bos
    return F.pad(rows[order], (0, 0, 0, _UNPREDICTED_ROWS))


def _read_words(path: Path, rows: int) -> list[str]:
    """Return the words in docmt's order of ids. `<s>`, which their text lacks, has the separator's id."""
    symbols = ["<s>", *fairseq.read_dictionary(path, rows, specials=_SEPARATOR + 1)]
    fairseq.check_no_duplicates(path, symbols)
    return symbols
