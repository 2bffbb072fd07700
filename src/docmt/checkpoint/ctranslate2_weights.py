"""Where the weights of a docmt model belong in one of CTranslate2."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from docmt.checkpoint import export_weights
from docmt.checkpoint.huggingface_model import BIAS, SOFTMAX
from docmt.model import TranslationModel
from docmt.model.embeddings import sinusoids
from docmt.model.parts import Parts
from docmt.text import SpecialTokens

POSITIONS = 1024
"""Computed positions that are written at least: CTranslate2 reads no longer sentences unless told so."""
NEVER = -1e4
"""Bias of what the model never says: finite in float16, and its exponential is 0 in all types."""
_TABLES = ("tokens.weight", "source_tokens.weight", "target_tokens.weight")

no_form = partial(export_weights.no_form, toolkit="CTranslate2")


def fill(encoder: Any, decoder: Any, model: TranslationModel) -> None:
    """Puts the model's weights into specifications of its stacks, which have their layers already.

    Raises DocmtError for a model that has weights which CTranslate2 has no place for.
    """
    weights = _Weights(model.state_dict())
    weights.projection(decoder.projection, model.parts)
    if model.config.output == "scaled":
        decoder.scale_outputs = model.config.width**-0.5
    weights.embeddings(encoder, "source", model.parts.encoder)
    weights.embeddings(decoder, "target", model.parts)
    weights.layers(encoder, "encoder", model.parts.encoder)
    weights.layers(decoder, "decoder", model.parts)
    if weights.left.keys() - set(_TABLES):
        raise no_form(model.config, "family")


class _Weights:
    """The weights of a model by docmt's names; what has found its place is taken out, but for tables of tokens."""

    def __init__(self, state: dict[str, Tensor]) -> None:
        self.left = dict(state)

    def projection(self, spec: Any, parts: Parts) -> None:
        """The matrix [V, d] and the bias [V] that make logits."""
        first, last = parts.family.unpredicted
        own = self.left.pop(f"{SOFTMAX}.weight", None)
        # Of a table all rows are taken, so that it is in the file once; some have no logit in docmt.
        spec.weight = self._table("target") if own is None else F.pad(own, (0, 0, first, last))
        bias = self.left.pop(BIAS, None)
        if bias is None and (first or last):
            bias = torch.zeros(len(spec.weight) - first - last)
        if bias is not None:
            spec.bias = F.pad(bias, (first, last), value=NEVER)
            if not parts.family.says_padding:
                spec.bias[SpecialTokens.pad] = NEVER

    def embeddings(self, spec: Any, side: str, parts: Parts) -> None:
        """What turns the tokens of a side into vectors."""
        sizes, family = parts.sizes, parts.family
        tokens = spec.embeddings[0] if side == "source" else spec.embeddings
        tokens.weight = self._table(side)
        if sizes.position_encoding != "relative":
            count = max(sizes.max_positions, POSITIONS)
            table = self.left.pop(f"{side}_positions.table.weight", None)
            if table is None:
                table = sinusoids(count, sizes.width, family.first_position, frequencies=family.frequencies)
            if side == "source" and (vector := self.left.pop("source_bias.vector", None)) is not None:
                table = table + vector
            spec.position_encodings.encodings = table
        if sizes.embedding_normalization:
            self._norm(spec.layernorm_embedding, f"{side}_norm")

    def layers(self, spec: Any, stack: str, parts: Parts) -> None:
        """All layers of the encoder or of the decoder, and the norm above them."""
        distances = self.left.pop(f"{stack}_distances.table.weight", None)
        for number, layer in enumerate(spec.layer):
            name = f"{stack}.{number}"
            self._attention(layer.self_attention, f"{name}.attention", parts)
            if distances is not None:
                layer.self_attention.relative_attention_bias = distances
                layer.self_attention.relative_attention_max_distance = np.int32(parts.sizes.relative_distance)
            if stack == "decoder":
                self._attention(layer.attention, f"{name}.cross", parts)
            self._linear(layer.ffn.linear_0, f"{name}.feed_forward.inner")
            if f"{name}.feed_forward.factor.weight" in self.left:
                self._linear(layer.ffn.linear_0_noact, f"{name}.feed_forward.factor")
            self._linear(layer.ffn.linear_1, f"{name}.feed_forward.outer")
            self._norm(layer.ffn.layer_norm, f"{name}.feed_forward_residual.norm")
        if parts.pre_norm:
            self._norm(spec.layer_norm, f"{stack}_norm")

    def _attention(self, spec: Any, name: str, parts: Parts) -> None:
        """Attention and its norm; that to the sequence itself has queries, keys and values in one matrix."""
        sizes = parts.sizes
        spec.queries_scale = (sizes.attention_width // sizes.heads) ** -0.5 if parts.family.scaled else 1.0
        groups = (("query", "key", "value"),) if len(spec.linear) == 2 else (("query",), ("key", "value"))
        for linear, group in zip(spec.linear, (*groups, ("output",)), strict=True):
            self._linear(linear, *(f"{name}.local.{part}" for part in group))
        self._norm(spec.layer_norm, f"{name}_residual.norm")

    def _table(self, side: str) -> Tensor:
        return next(self.left[name] for name in (f"{side}_tokens.weight", "tokens.weight") if name in self.left)

    def _linear(self, spec: Any, *names: str) -> None:
        spec.weight = torch.cat([self.left.pop(f"{name}.weight") for name in names])
        if f"{names[0]}.bias" in self.left:
            spec.bias = torch.cat([self.left.pop(f"{name}.bias") for name in names])

    def _norm(self, spec: Any, name: str) -> None:
        spec.gamma = self.left.pop(f"{name}.weight")
        if f"{name}.bias" in self.left:
            spec.beta = self.left.pop(f"{name}.bias")
