"""Checkpoints of the published code of Wu et al. (2022): random feature attention with a sentential gate, on fairseq.

Its softmax baseline is read as well. Both have a dictionary file for each side; the symbol that joins sentences is in
neither of them: its id comes after those of the four special symbols of fairseq.
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
from docmt.checkpoint.model_directory import check_new
from docmt.checkpoint.weights import load_renamed, renamed
from docmt.core.errors import DocmtError
from docmt.model import ModelConfig, TranslationModel
from docmt.model.families import FAMILIES
from docmt.text import DictionaryTokenizer, SpecialTokens

# Their names of parameters and ours, applied in this order. Keys and values of attention to the source lie with their
# encoder, which computes the states of them.
_NAMES = (
    (r"\.module(?=\.)", ""),
    (r"^encoder\.cross_attention_project\.", "decoder."),
    (r"^(decoder\.layers\.\d+)\.(k_proj|v_proj|tau|sigma)", r"\1.encoder_attn.\2"),
    (r"self_attn\.", "attention.whole."),
    (r"encoder_attn\.", "cross.whole."),
    *fairseq.BART.names,
    (r"g_proj", "gate"),
    (r"\.tau$", ".features.temperature"),
    (r"\.sigma$", ".features.scales"),
    (r"^encoder\.embed_tokens", "source_tokens"),
    (r"^decoder\.embed_tokens", "target_tokens"),
)
_OUTPUT = "decoder.output_projection.weight"  # a copy of the target's embeddings
# Where attention stands in a decoder layer of ours, with what is theirs: matrices of evaluation, and the temperature
# where that is not learned.
_FEATURES = {
    "attention": ("decoder.random_matrices_eval", "causal_tau"),
    "cross": ("encoder.cross_attention_project.random_matrices_eval", "cross_tau"),
}
_UNKNOWN = sum(FAMILIES["rfa"].unpredicted)
"""Rows of ours that theirs lacks, those of <eod> and <mask>."""
_POOLS = ("decoder.random_matrices", "encoder.cross_attention_project.random_matrices")
"""Which training draws from."""

# Arguments with the only value that docmt's model has.
_FIXED: dict[str, object] = {
    "share_all_embeddings": False,
    "share_decoder_input_output_embed": True,
    "encoder_learned_pos": False,
    "encoder_normalize_before": False,
    "layernorm_embedding": False,
    "use_sep": True,
}
_GATES = {"decay": "decay_sentential_gate", "average": "use_sentential_gate"}
_JOINS = 4
"""Their id of the symbol that joins sentences: ours is that of `<s>`, 0, which is no symbol of their text."""


def convert_rfa(
    checkpoint: Path,
    output: Path,
    *,
    source_dictionary: Path,
    target_dictionary: Path,
    arguments: Path | None = None,
    instance_tokens: int = 512,
) -> TranslationModel:
    """Writes the checkpoint as a docmt model directory, whose logits are those of the published code.

    checkpoint: a fairseq `.pt` or the weights as safetensors; arguments: a JSON file with the training arguments,
    needed where the checkpoint does not hold them. Raises DocmtError for a damaged file, and for anything in the
    architecture that docmt's model does not have, by its name.
    """
    check_new(output)
    weights, values = fairseq.read_checkpoint(checkpoint, arguments)
    target_rows = len(fairseq.check_copies(checkpoint, weights, "decoder.embed_tokens.weight", [_OUTPUT]))
    source_rows = len(fairseq.check_copies(checkpoint, weights, "encoder.embed_tokens.weight", []))
    source, target = _symbols(source_dictionary, source_rows), _symbols(target_dictionary, target_rows)
    linear = _FEATURES["cross"][0] in weights
    sizes = {"source_size": source_rows + _UNKNOWN, "target_size": target_rows + _UNKNOWN}
    config = replace(architecture(values, linear=linear, **sizes), instance_tokens=instance_tokens)
    model = load_renamed(config, rename(weights, config, values), checkpoint)
    origin = f"{checkpoint.name}, a checkpoint of the code of Wu et al. (2022)"
    return fairseq.save_converted(output, model, DictionaryTokenizer(target, source), origin, values)


def architecture(values: Mapping[str, Any], *, linear: bool, source_size: int, target_size: int) -> ModelConfig:
    """docmt's description of a model trained with these arguments; linear: with random features, not the baseline.

    Raises DocmtError naming what it cannot express.
    """
    fairseq.check_arguments(values, _FIXED)
    fairseq.needed(values, "context_size")
    sentences = fairseq.number(values, "context_size", 0) + 1
    everything = bool(values.get("full_supervision") or values.get("seq2seq"))
    return ModelConfig.from_dict(
        {
            "family": "rfa",
            "system": "concat",
            "concat": {
                "sentences": sentences,
                "loss": "all" if everything else "last",
                "window_decoding": "prefix",
                "attention": "linear" if linear else "softmax",
                "padding_windows": bool(values.get("extra_padding")) and sentences > 1 and everything,
            },
            **({"linear": _linear(values)} if linear else {}),
            "vocabulary_size": target_size,
            "source_vocabulary_size": source_size if source_size != target_size else 0,
            **fairseq.sizes(values),
        }
    )


def _linear(values: Mapping[str, Any]) -> dict[str, Any]:
    """The options of linear attention."""
    fairseq.choice(values, "random_feature", {"rrf": "sine and cosine"})
    gates = [gate for gate, name in _GATES.items() if values.get(name)]
    if len(gates) > 1:
        raise DocmtError(
            "the checkpoint was trained with decay_sentential_gate and use_sentential_gate: docmt has only one of them"
        )
    gate = {"gate": gates[0], "gate_bias": fairseq.number(values, "decay_gate_bias", 0.0)} if gates else {}
    return {
        "feature_map": "random",
        "features": fairseq.needed(values, "causal_proj_dim"),
        "cross_features": fairseq.needed(values, "cross_proj_dim"),
        "temperature_per": "dimension" if values.get("reparam_proj") else "head",
        "rescale_keys": bool(values.get("norm_rescale")),
        **gate,
    }


def rename(weights: Mapping[str, Tensor], config: ModelConfig, values: Mapping[str, Any]) -> dict[str, Tensor]:
    """The weights under docmt's names, with the rows of their ids in the order of ours; every layer has matrices of its
    own, where theirs share them."""
    shared = {name for name, _ in _FEATURES.values()}
    kept = {name: tensor for name, tensor in weights.items() if name not in (*shared, *_POOLS, _OUTPUT)}
    found = {renamed(name, _NAMES): tensor.float() for name, tensor in kept.items()}
    for side in ("source", "target"):
        found[f"{side}_tokens.weight"] = _our_rows(found[f"{side}_tokens.weight"])
    if config.chosen.linear:
        for layer in range(config.decoder_layers):
            for place, (matrices, temperature) in _FEATURES.items():
                features = f"decoder.{layer}.{place}.whole.features"
                if matrices in weights:
                    found[f"{features}.matrices"] = weights[matrices].float().clone()
                if not values.get("learned_tau"):
                    constant = fairseq.number(values, temperature, 1.0)
                    found[f"{features}.temperature"] = torch.full((config.heads, 1, 1), float(constant))
    return found


def _our_rows(rows: Tensor) -> Tensor:
    """Rows of embeddings [V, d] in the order of our ids, with those of <eod> and <mask> behind."""
    order = torch.arange(len(rows))
    order[SpecialTokens.bos], order[_JOINS] = _JOINS, SpecialTokens.bos
    return F.pad(rows[order], (0, 0, 0, _UNKNOWN))


def _symbols(path: Path, rows: int) -> list[str]:
    """The words in docmt's order of ids: <s>, which their text does not have, in the place of what joins sentences."""
    symbols = ["<s>", *fairseq.read_dictionary(path, rows, specials=_JOINS + 1)]
    fairseq.check_different(path, symbols)
    return symbols
