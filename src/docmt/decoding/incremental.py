"""The decoder one step at a time."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor

from docmt.decoding.caches import DocumentCrossCache, DocumentSelfCache, SentenceCrossCache, SentenceSelfCache
from docmt.model.attention import MultiHeadAttention, ScopedAttention
from docmt.model.layers import DecoderLayer
from docmt.model.packed import Packed
from docmt.model.transformer import TranslationModel


class IncrementalDecoder:
    """Decoder states of R = D * B hypotheses, a token at a time, equal to those of the full forward pass.

    Raises nothing of its own; positions beyond learned ones are refused by the model.
    """

    def __init__(self, model: TranslationModel, memory: Tensor, source: Packed, beams: int) -> None:
        self.model = model
        self.layers = [cast(DecoderLayer, layer) for layer in model.decoder]
        rows, heads = len(source.documents) * beams, model.config.heads
        # Caches hold what the projections give, whose weights may be of lower precision than the states.
        like = memory.new_empty(memory.shape[-1], dtype=self.layers[0].feed_forward.inner.weight.dtype)
        local_self = [layer.attention.local for layer in self.layers if layer.attention.local is not None]
        whole_self = [layer.attention.whole for layer in self.layers if layer.attention.whole is not None]
        local_cross = [layer.cross.local for layer in self.layers if layer.cross.local is not None]
        whole_cross = [layer.cross.whole for layer in self.layers if layer.cross.whole is not None]
        kinds = (local_self, whole_self, local_cross, whole_cross)
        # Each kind of attention has one cache for all layers: where a layer's part lies in it.
        self.numbers = {part: number for parts in kinds for number, part in enumerate(parts)}
        self.local_self = SentenceSelfCache(len(local_self), rows, like, heads) if local_self else None
        documents = len(source.documents)
        self.whole_self = DocumentSelfCache(len(whole_self), documents, beams, like, heads) if whole_self else None
        self.local_cross = SentenceCrossCache(*_project(local_cross, memory), source, rows) if local_cross else None
        self.whole_cross = DocumentCrossCache(*_project(whole_cross, memory), source, beams) if whole_cross else None

    def step(self, tokens: Tensor, step: int, offsets: Tensor, sentences: Tensor) -> Tensor:
        """States [R, d] after reading one more token in each row.

        tokens [R]; step: how many tokens each row has read before; offsets [R]: position of the token in its
        sentence; sentences [R]: number of the source sentence in the packed source.
        """
        if self.local_self is not None:
            self.local_self.begin_step(offsets)
        if self.whole_self is not None:
            self.whole_self.begin_step()
        if self.local_cross is not None:
            self.local_cross.begin_step(sentences)
        by_sentence = self.model.config.positions == "sentence"
        positions = offsets if by_sentence else torch.full_like(offsets, step)
        x = self.model.embed_target(tokens, positions)
        for layer in self.layers:
            residual = layer.attention_residual
            x = residual.leave(x, self._self_attention(layer.attention, residual.enter(x)))
            residual = layer.cross_residual
            x = residual.leave(x, self._cross_attention(layer.cross, residual.enter(x)))
            residual = layer.feed_forward_residual
            x = residual.leave(x, layer.feed_forward(residual.enter(x)))
        return self.model.decoder_norm(x) if self.model.decoder_norm is not None else x

    def _self_attention(self, attention: ScopedAttention, x: Tensor) -> Tensor:
        outputs: list[Tensor | None] = []
        for part, cache in ((attention.local, self.local_self), (attention.whole, self.whole_self)):
            output = None
            if part is not None and cache is not None:
                query, key, value = (part.split(projection(x)) for projection in (part.query, part.key, part.value))
                output = part.output(cache.attend(self.numbers[part], query, key, value).flatten(-2))
            outputs.append(output)
        return attention.join(*outputs)

    def _cross_attention(self, attention: ScopedAttention, x: Tensor) -> Tensor:
        outputs: list[Tensor | None] = []
        for part, cache in ((attention.local, self.local_cross), (attention.whole, self.whole_cross)):
            output = None
            if part is not None and cache is not None:
                output = part.output(cache.attend(self.numbers[part], part.split(part.query(x))).flatten(-2))
            outputs.append(output)
        return attention.join(*outputs)

    def reorder(self, rows: Tensor) -> None:
        """Row i goes on from hypothesis rows[i], one of the same document (cross caches follow by themselves)."""
        if self.local_self is not None:
            self.local_self.reorder(rows)
        if self.whole_self is not None:
            self.whole_self.reorder(rows)

    def share(self, common: int) -> None:
        """The next `common` positions not yet shared are the same in all beams of each document."""
        if self.whole_self is not None:
            self.whole_self.share(common)

    def keep(self, rows: Tensor, documents: Tensor) -> None:
        """Goes on with these documents (numbers as of now) and their rows only."""
        if self.local_self is not None:
            self.local_self.reorder(rows)
        if self.whole_self is not None:
            self.whole_self.keep(rows, documents)
        if self.local_cross is not None:
            self.local_cross.keep(rows)
        if self.whole_cross is not None:
            self.whole_cross.keep(documents)


def _project(attentions: list[MultiHeadAttention], memory: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    """Keys and values [Ts, H, k] of every attention."""
    keys = [attention.split(attention.key(memory)) for attention in attentions]
    values = [attention.split(attention.value(memory)) for attention in attentions]
    return keys, values
