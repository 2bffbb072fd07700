"""The encoder-decoder that every system is a setting of."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from docmt.model.config import ModelConfig
from docmt.model.layers import DecoderLayer, Dropout, EncoderLayer
from docmt.model.packed import Packed, pack
from docmt.model.positions import LearnedPositions, SinusoidalPositions

SentenceIds = Sequence[Sequence[int]]

PADDING_ID = 1


class TranslationModel(nn.Module):
    """A Transformer over packed documents; one matrix embeds source and target and projects to the vocabulary.

    Streams (marks included): source and decoder input are `<s> w .. </s>` per sentence, labels are the decoder
    input shifted left by one with the end-of-document mark in the end.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        config = config.filled()
        self.config = config
        self.tokens = _token_embedding(config.vocabulary_size, config.width)
        self.source_positions = _position_vectors(config)
        self.target_positions = _position_vectors(config)
        self.encoder = nn.ModuleList(EncoderLayer(config, scope) for scope in config.scopes("encoder"))
        scopes = zip(config.scopes("decoder"), config.scopes("cross"), strict=True)
        self.decoder = nn.ModuleList(DecoderLayer(config, own, cross) for own, cross in scopes)
        self.source_norm: nn.LayerNorm | None = None
        self.target_norm: nn.LayerNorm | None = None
        if config.embedding_normalization:
            self.source_norm = nn.LayerNorm(config.width)
            self.target_norm = nn.LayerNorm(config.width)
        self.encoder_norm: nn.LayerNorm | None = None
        self.decoder_norm: nn.LayerNorm | None = None
        if config.normalization == "pre":
            self.encoder_norm = nn.LayerNorm(config.width)
            self.decoder_norm = nn.LayerNorm(config.width)
        self.dropout = Dropout(config.dropout)
        # Stands in for the product with the embedding where a translator has rearranged its weights.
        self.projection: nn.Module | None = None

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.tokens.weight.device

    def encode(self, source: Packed) -> Tensor:
        """Encoder states [Ts, d]."""
        x = self.embed_source(source.tokens, self.positions(source))
        for layer in self.encoder:
            x = layer(x, source)
        return self.encoder_norm(x) if self.encoder_norm is not None else x

    def decode(self, memory: Tensor, source: Packed, target: Packed) -> Tensor:
        """Decoder states [Tt, d] for encoder states `memory` [Ts, d]; sentence i of the target belongs to
        sentence i of the source. Raises ValueError when the sentence or document counts differ."""
        x = self.embed_target(target.tokens, self.positions(target))
        for layer in self.decoder:
            x = layer(x, target, memory, source)
        return self.decoder_norm(x) if self.decoder_norm is not None else x

    def forward(self, source: Packed, target: Packed) -> Tensor:
        """Decoder states [Tt, d] before the output projection."""
        return self.decode(self.encode(source), source, target)

    def embed_source(self, tokens: Tensor, positions: Tensor) -> Tensor:
        """What the first encoder layer reads: tokens and positions [...] -> [..., d]"""
        return self._embed(tokens, self.source_positions(positions), self.source_norm)

    def embed_target(self, tokens: Tensor, positions: Tensor) -> Tensor:
        """What the first decoder layer reads: tokens and positions [...] -> [..., d]"""
        return self._embed(tokens, self.target_positions(positions), self.target_norm)

    def _embed(self, tokens: Tensor, position_vectors: Tensor, norm: nn.LayerNorm | None) -> Tensor:
        """sqrt(d) * E[token] + P[position] (Vaswani et al. 2017, section 3.4).

        Under autocast the states are in its precision from here on: casting them to and fro around every product
        made 240 copies in a training step of a small one (docs/log.md).
        """
        x = self.tokens(tokens) * math.sqrt(self.config.width) + position_vectors
        if torch.is_autocast_enabled(x.device.type):
            x = x.to(torch.get_autocast_dtype(x.device.type))
        if norm is not None:
            x = norm(x)
        return self.dropout(x)

    def project(self, states: Tensor) -> Tensor:
        """States [..., d] to logits [..., V]."""
        logits: Tensor = F.linear(states, self.tokens.weight) if self.projection is None else self.projection(states)
        return logits

    def positions(self, packed: Packed) -> Tensor:
        """[T] position of every token in its document or sentence, as the model counts them."""
        spans = packed.documents if self.config.positions == "document" else packed.sentences
        return spans.positions().to(packed.tokens.device)

    @torch.no_grad()
    def logits(self, pairs: Sequence[tuple[SentenceIds, SentenceIds]]) -> list[Tensor]:
        """Logits [decoder input tokens, V] of each document, one row for each decoder input position.

        `pairs` holds (source sentences, target sentences) as lists of token ids with their marks (`<s> .. </s>`);
        the target sentences are the decoder input. Dropout is off; the model's mode is left as it was. Raises
        ValueError where a document has unequal numbers of them, but for the plain document system.
        """
        for number, (ours, theirs) in enumerate(pairs, 1):
            if self.config.framed and len(ours) != len(theirs):
                raise ValueError(
                    f"document {number} has {len(ours)} source but {len(theirs)} target sentences: sentence i of the "
                    "target belongs to sentence i of the source"
                )
        was_training = self.training
        self.eval()
        try:
            source = pack([pair[0] for pair in pairs]).to(self.device)
            target = pack([pair[1] for pair in pairs]).to(self.device)
            logits = self.project(self(source, target))
        finally:
            self.train(was_training)
        return list(logits.split(target.documents.lengths.tolist()))


def _token_embedding(vocabulary_size: int, width: int) -> nn.Embedding:
    """E ~ N(0, 1/d) with a zero row for padding."""
    embedding = nn.Embedding(vocabulary_size, width, padding_idx=PADDING_ID)
    nn.init.normal_(embedding.weight, std=width**-0.5)
    with torch.no_grad():
        embedding.weight[PADDING_ID].zero_()
    return embedding


def _position_vectors(config: ModelConfig) -> nn.Module:
    if config.position_encoding == "learned":
        return LearnedPositions(config.width, config.max_positions)
    return SinusoidalPositions(config.width)
