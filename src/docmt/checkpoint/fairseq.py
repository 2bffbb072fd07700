"""Checkpoints of the published G-Transformer code (Bao et al. 2021), which is built on fairseq."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from docmt.checkpoint.fairseq_files import (
    NAMES,
    check_arguments,
    check_copies,
    choice,
    made_up,
    needed,
    number,
    read_checkpoint,
    read_dictionary,
    renamed,
    sizes,
)
from docmt.checkpoint.loading import load_renamed
from docmt.checkpoint.model_card import ModelCard
from docmt.checkpoint.model_directory import save_model
from docmt.core.errors import DocmtError
from docmt.model import ModelConfig, TranslationModel
from docmt.text import DictionaryTokenizer, SpecialTokens

# Their names of parameters and ours, applied in this order.
_NAMES = (
    *NAMES,
    (r"self_attn_local", "attention.local"),
    (r"self_attn_global", "attention.whole"),
    (r"self_attn_gate\.0", "attention.gate.linear"),
    (r"encoder_attn_local", "cross.local"),
    (r"encoder_attn_global", "cross.whole"),
    (r"encoder_attn_gate\.0", "cross.gate.linear"),
    (r"^(encoder|decoder)\.layer_norm", r"\1_norm"),
    (r"^encoder\.layernorm_embedding", "source_norm"),
    (r"^decoder\.layernorm_embedding", "target_norm"),
    (r"^encoder\.embed_positions\.weight", "source_positions.table.weight"),
    (r"^decoder\.embed_positions\.weight", "target_positions.table.weight"),
    (r"^encoder\.embed_tokens", "tokens"),
)
# Copies of the one embedding matrix.
_COPIES = ("decoder.embed_tokens.weight", "decoder.output_projection.weight")

_FIRST_LEARNED_POSITION = 2  # their table of positions begins with two rows that no token uses


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
    if output.exists():
        raise DocmtError(f"{output} exists already: choose another directory, or remove it")
    weights, values = read_checkpoint(checkpoint, arguments)
    embedding = check_copies(checkpoint, weights, "encoder.embed_tokens.weight", _COPIES)
    config = architecture(values, len(embedding), sentences=sentences, instance_tokens=instance_tokens)
    symbols, end_row = _symbols(dictionary, values, len(embedding))
    model = load_renamed(config, rename(weights, config), checkpoint)
    # The row of the target language marks the end of a document: docmt keeps that one before <mask>.
    last, rows = SpecialTokens(config.vocabulary_size).eod, model.head().weight
    with torch.no_grad():
        rows[[end_row, last]] = rows[[last, end_row]]
    card = ModelCard(
        source_language=str(values.get("source_lang") or ""),
        target_language=str(values.get("target_lang") or ""),
        training={"converted_from": f"{checkpoint.name}, a checkpoint of the published G-Transformer code"},
    )
    save_model(output, model, DictionaryTokenizer(symbols), card)
    return model.eval()


def architecture(
    values: Mapping[str, Any], vocabulary_size: int, *, sentences: bool = False, instance_tokens: int = 512
) -> ModelConfig:
    """docmt's description of a model trained with these arguments. Raises DocmtError naming what it cannot express."""
    check_arguments(values, {"share_all_embeddings": True})
    mode = choice(values, "doc_mode", {"partial": "group", "full": "document"})
    if sentences and mode == "group":
        raise DocmtError("the checkpoint was trained with doc_mode = 'partial': it is no sentence model")
    grouped = mode == "group"
    learned = bool(needed(values, "encoder_learned_pos"))
    positions = {number(values, f"max_{side}_positions", 1024) for side in ("source", "target")}
    if learned and len(positions) > 1:
        raise DocmtError(
            "the checkpoint was trained with max_source_positions other than max_target_positions: "
            "docmt's model has one setting for both"
        )
    return ModelConfig.from_dict(
        {
            "system": "sentence" if sentences else mode,
            "vocabulary_size": vocabulary_size,
            **sizes(values),
            **(
                {
                    "group": {
                        f"{site}_layers": needed(values, f"{site}_ctxlayers")
                        for site in ("encoder", "decoder", "cross")
                    }
                }
                if grouped
                else {}
            ),
            "normalization": "pre" if needed(values, "encoder_normalize_before") else "post",
            "embedding_normalization": bool(values.get("layernorm_embedding", False)),
            "positions": "document",
            "position_encoding": "learned" if learned else "sinusoidal",
            "max_positions": int(max(positions)),
            "instance_tokens": instance_tokens,
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
            tensor = tensor[_FIRST_LEARNED_POSITION:]
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
    symbols = read_dictionary(path)
    languages = [f"[{code}]" for code in str(needed(values, "langs")).split(",")]
    target = f"[{needed(values, 'target_lang')}]"
    if target not in languages:
        raise DocmtError(f"target_lang is not among the langs {', '.join(languages)} of the checkpoint's arguments")
    first = SpecialTokens.first_word
    # Dictionaries are padded to a multiple of 8 entries; then come the languages and <mask>.
    padding = vocabulary_size - first - len(symbols) - len(languages) - 1
    if not 0 <= padding < 8:
        raise DocmtError(
            f"{path} has {len(symbols)} symbols, but the checkpoint {vocabulary_size} rows, {first} special tokens, "
            f"{len(languages)} languages and <mask> among them: give the dictionary of this checkpoint"
        )
    symbols += made_up(symbols, padding) + languages
    end_row = first + symbols.index(target)
    last = SpecialTokens(vocabulary_size).eod
    symbols[end_row - first] = symbols[last - first]
    symbols.pop()
    if len(set(symbols)) < len(symbols):
        raise DocmtError(f"{path} has a symbol twice: give the dict.*.txt of the checkpoint")
    return symbols, end_row
