"""Token embeddings, noise in their place, positions, attention biases by distance, and the output projection."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from docmt.core.errors import DocmtError
from docmt.core.settings import assigned
from docmt.model.families import PADDING_ID, Family, TransformerConfig

# The published code counts positions from the padding id (1) plus one.
FIRST_POSITION = 2
_VECTORS = 4096  # noise vectors
_STRIDE = 1 << 24  # above all vocabularies; a noise word is number of vector (from 1) * stride + word
_seed: ContextVar[int | None] = ContextVar("seed of the noise vectors", default=None)


class SinusoidalPositions(nn.Module):
    """Sinusoidal position vectors of any length (Vaswani et al. 2017, section 3.5; sines, then cosines)."""

    def __init__(self, width: int, first: int, frequencies: Literal["fairseq", "vaswani"]) -> None:
        """first: index of the first position; frequencies: see `build_sinusoids`."""
        super().__init__()
        self.width, self.first, self.frequencies = width, first, frequencies

    def forward(self, positions: Tensor) -> Tensor:
        """positions [...] counted from 0 -> [..., d]"""
        last = int(positions.max()) if positions.numel() else 0
        # Sizes are powers of two, so few tables are computed.
        count = 1 << max(10, last.bit_length())
        return build_sinusoids(count, self.width, self.first, positions.device, self.frequencies)[positions]


class LearnedPositions(nn.Module):
    """Learned position vectors of up to `count` positions."""

    def __init__(self, width: int, count: int) -> None:
        super().__init__()
        self.table = nn.Embedding(count, width)
        nn.init.normal_(self.table.weight, std=width**-0.5)

    def forward(self, positions: Tensor) -> Tensor:
        """positions [...] counted from 0 -> [..., d]. Raises DocmtError beyond the last learned position."""
        last = int(positions.max()) if positions.numel() else 0
        if last >= self.table.num_embeddings:
            raise DocmtError(
                f"a sequence has {last + 1} tokens, but this model has only {self.table.num_embeddings} learned "
                "positions. Split its longest sentence, or use a model with sinusoidal positions"
            )
        return self.table(positions)


class DistanceBiases(nn.Module):
    """Learned attention biases by the distance between two tokens, one per head (Raffel et al. 2020, 2.1).

    Small distances have a bucket each. Larger ones share ever wider buckets. The last bucket starts at `max_distance`.
    """

    def __init__(self, buckets: int, max_distance: int, heads: int, *, causal: bool) -> None:
        """causal: only preceding tokens are visible. Otherwise half of the buckets are for following tokens."""
        super().__init__()
        self.buckets, self.max_distance, self.causal = buckets, max_distance, causal
        self.table = nn.Embedding(buckets, heads)
        nn.init.zeros_(self.table.weight)

    def forward(self, query_positions: Tensor, length: int) -> Tensor:
        """Return the biases [..., H, q, length] of queries at query_positions [..., q] for keys 0 .. length - 1."""
        return self.look_up_biases(self.find_buckets(query_positions, length))

    def find_buckets(self, query_positions: Tensor, length: int) -> Tensor:
        """Return the buckets [..., q, length] of keys 0 .. length - 1 for query_positions [..., q]."""
        return self.assign_buckets(torch.arange(length, device=query_positions.device) - query_positions[..., None])

    def look_up_biases(self, bucket_indices: Tensor) -> Tensor:
        """Return the biases [..., H, q, l] of buckets [..., q, l]."""
        biases: Tensor = self.table(bucket_indices)  # [..., q, l, H]
        return biases.movedim(-1, -3)

    def assign_buckets(self, distance: Tensor) -> Tensor:
        """Return the bucket of each distance [...]: key position minus query position."""
        count = self.buckets if self.causal else self.buckets // 2
        offset = torch.zeros_like(distance) if self.causal else (distance > 0) * count
        distances = -distance.clamp(max=0) if self.causal else distance.abs()
        num_exact = count // 2
        logs = (distances.clamp(min=1).float() / num_exact).log() / math.log(self.max_distance / num_exact)
        log_bucket = (num_exact + (logs * (count - num_exact)).long()).clamp(max=count - 1)
        return offset + torch.where(distances < num_exact, distances, log_bucket)


class SentenceRotation:
    """Rotation of queries and keys by the number of their sentence (Su et al. 2021, equation 15, there by token).

    A score then depends on how many sentences lie between query and key. Half of the dimensions of a head rotate, by
    1 to 1/100 radians a sentence.
    """

    def __init__(self, head_width: int) -> None:
        """head_width: k, at least 2."""
        self.pairs = max(1, head_width // 4)
        self.rest = head_width - 2 * self.pairs

    def describe_queries(self, numbers: Tensor, count: int, device: torch.device | str) -> Tensor:
        """Return factors [n, 2, 1, k] by the angles of sentence numbers [n] below `count` on the host."""
        length = 1 << max(10, (count - 1).bit_length())  # powers of two, so few tables are computed
        table = build_sinusoids(length, 2 * self.pairs, 0, device, "vaswani", 100)[numbers.to(device)]
        sines, cosines = table.chunk(2, dim=-1)
        rest = table.new_zeros(len(numbers), self.rest)
        same, swapped = (cosines, cosines, rest + 1.0), (-sines, sines, rest)
        return torch.stack((torch.cat(same, dim=-1), torch.cat(swapped, dim=-1)), dim=1)[:, :, None]

    describe_keys = describe_queries

    def extra_width(self, count: int) -> int:
        """Return how much wider than a head its changed keys and values are."""
        return 0

    def change_pair(self, key: Tensor, value: Tensor, described: Tensor) -> tuple[Tensor, Tensor]:
        """Rotate keys [n, H, k]; values [n, H, k] stay."""
        return self.change_query(key, described), value

    def read_output(self, output: Tensor, described: Tensor) -> Tensor:
        """Return attention outputs [n, H, k] as they are."""
        return output

    def change_query(self, query: Tensor, described: Tensor) -> Tensor:
        """Rotate queries [n, H, k] by factors [n, 2, 1, k] of their sentences: of x, and of x with swapped pairs."""
        same, swapped = described.to(query.dtype).unbind(1)  # [n, 1, k]
        first, second, rest = query.split((self.pairs, self.pairs, self.rest), dim=-1)
        return torch.addcmul(query * same, torch.cat((second, first, rest), dim=-1), swapped)


class SentenceVectors(nn.Module):
    """Vectors by the distance of sentences, added to keys and values (Zheng et al. 2020; by token: Shaw et al. 2018).

    The score of a query and a key is q (k + r[D]), the output the weighted mean of v + s[D]. D is the number of the
    key's sentence minus that of the query. r and s start at zero.

    Kernels see nothing of it: keys and values get the one-hot vector of their sentence, and queries their products with
    r for each sentence. The output then has the weight of each sentence, which s is multiplied with.
    """

    def __init__(self, head_width: int, heads: int, recent: int | None, farthest: int = 0) -> None:
        """heads: of r and s (1: all heads share them); recent: how many sentences before that of the query the
        attention sees, in scopes of recent sentences; farthest: otherwise, the distance to which D is clipped."""
        super().__init__()
        self.recent, self.farthest = recent, farthest
        rows = 2 * farthest + 1 if recent is None else recent + 1
        self.keys, self.values = (nn.Parameter(torch.zeros(rows, heads, head_width)) for _ in range(2))

    def extra_width(self, count: int) -> int:
        """Return how many one-hot dimensions keys and values get, for `count` sentences of a document."""
        return -(-(count if self.recent is None else self.recent + 1) // 8) * 8  # as kernels of GPUs like it

    def describe_queries(self, numbers: Tensor, count: int, device: torch.device | str) -> Tensor:
        """Return the row of r [n, w] for each one-hot dimension, by the sentence numbers [n] of the queries."""
        numbers, sentences = numbers.to(device)[:, None], torch.arange(self.extra_width(count), device=device)
        if self.recent is None:
            return (sentences - numbers).clamp(-self.farthest, self.farthest) + self.farthest
        # Dimensions repeat: no two visible sentences have the same one.
        return ((numbers - sentences) % len(sentences)).clamp(max=self.recent)

    def describe_keys(self, numbers: Tensor, count: int, device: torch.device | str) -> Tensor:
        """Return the one-hot vector [n, w] of the sentence of each key, by its number [n]."""
        width = self.extra_width(count)
        return F.one_hot(numbers.to(device) % width, width)

    def change_query(self, query: Tensor, described: Tensor) -> Tensor:
        """Add products with r to queries: [n, H, k] -> [n, H, k + w]."""
        width = query.shape[-1]
        products = torch.einsum("nhk,rhk->nhr", query, self._table(self.keys, query))
        products = products.gather(-1, described[:, None].expand(-1, query.shape[1], -1))
        # Kernels divide by the square root of the whole width.
        return torch.cat((query, products), dim=-1) * ((width + described.shape[-1]) / width) ** 0.5

    def change_pair(self, key: Tensor, value: Tensor, described: Tensor) -> tuple[Tensor, Tensor]:
        """Add one-hot vectors to keys and values: [n, H, k] -> [n, H, k + w] each."""
        one_hot = described.to(key.dtype)[:, None].expand(-1, key.shape[1], -1)
        return torch.cat((key, one_hot), dim=-1), torch.cat((value, one_hot), dim=-1)

    def read_output(self, output: Tensor, described: Tensor) -> Tensor:
        """Replace the weights of sentences in attention outputs by their mean of s: [n, H, k + w] -> [n, H, k]."""
        width = described.shape[-1]
        output, weights = output.split((output.shape[-1] - width, width), dim=-1)
        rows = weights.new_zeros(*weights.shape[:-1], len(self.values))
        rows = rows.scatter_add(-1, described[:, None].expand_as(weights), weights)
        return output + torch.einsum("nhr,rhk->nhk", rows, self._table(self.values, output))

    def _table(self, table: Tensor, like: Tensor) -> Tensor:
        return table.to(like.dtype).expand(-1, like.shape[1], -1)


SentenceRelation = SentenceRotation | SentenceVectors
"""The knowledge that an attention has of the distance in sentences between a query and a key."""


@lru_cache(maxsize=16)
def build_sinusoids(
    count: int,
    width: int,
    first: int = FIRST_POSITION,
    device: torch.device | str = "cpu",
    frequencies: Literal["fairseq", "vaswani"] = "fairseq",
    longest: float = 10000,
) -> Tensor:
    """Build position vectors [count, d], starting at index `first`: sines in the first half, cosines in the second.

    Frequencies fall from 1 to 1/longest (fairseq), or to one step before it (vaswani; in double precision, as in
    Marian).
    """
    half = width // 2
    is_vaswani = frequencies == "vaswani"
    dtype, steps = (torch.float64, half) if is_vaswani else (torch.float32, max(half - 1, 1))
    falling_frequencies = torch.exp(torch.arange(half, dtype=dtype) * -(math.log(longest) / steps))
    angles = torch.arange(first, count + first, dtype=dtype)[:, None] * falling_frequencies
    return torch.cat((angles.sin(), angles.cos()), dim=1).float().to(device)


class Head(NamedTuple):
    """The projection of decoder states to logits. Row i is the logit of id `first` + i."""

    weight: Tensor
    """[rows, d]"""
    first: int = 0
    bias: Tensor | None = None
    """[rows], not trained"""
    scale: float = 1.0
    """factor of the states"""


class SourceBias(nn.Module):
    """Learned vector added to every source embedding."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.vector = nn.Parameter(torch.zeros(width))

    def forward(self, vectors: Tensor) -> Tensor:
        """vectors [..., d] -> [..., d]"""
        return vectors + self.vector


class OutputProjection(nn.Module):
    """Matrix [rows, d] that projects to the target vocabulary."""

    def __init__(self, rows: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(rows, width))
        nn.init.normal_(self.weight, std=width**-0.5)


class HeadBias(nn.Module):
    """Untrained bias of the logits [rows]."""

    vector: Tensor

    def __init__(self, rows: int) -> None:
        super().__init__()
        self.register_buffer("vector", torch.zeros(rows))


@dataclass(frozen=True)
class ContextNoise:
    """Noise in place of all sentences but one of each document: a control for what context adds.

    Li et al. (2020, "Does Multi-Encoder Help?") found that a context encoder also acts as a generator of noise, which
    makes training robust. A model that scores as well after noise as after the true context gains nothing from its
    content. Here noise replaces the embeddings of the words of context sentences, in source, target and drafts. All
    systems read context through embeddings alone, so none needs code of its own. (States of a context encoder, as in
    the paper, exist in few systems.) Boundary tokens and positions stay.

    A noise word is an id beyond all vocabularies: its noise vector and the word that it replaces. So copies, selections
    and comparisons of tokens treat it as they treat words. The noise of a sentence depends on its words and the seed
    alone. So it is equal for all candidates of an item, in any batch.
    """

    kept: Sequence[int]
    """number of the sentence of each document that stays, from 0"""
    seed: int = 1

    def replace_context(self, documents: Sequence[Sequence[Sequence[int]]]) -> list[list[Sequence[int]]]:
        """Return documents of word ids with noise words in all sentences but the kept ones.

        Raises ValueError for another number of documents.
        """
        return [
            [words if number == kept else self._draw(words) for number, words in enumerate(document)]
            for document, kept in zip(documents, self.kept, strict=True)
        ]

    def _draw(self, words: Sequence[int]) -> list[int]:
        drawn = np.random.default_rng([self.seed, *words]).bit_generator.random_raw(len(words)) % _VECTORS
        return [(vector + 1) * _STRIDE + word for vector, word in zip(drawn.tolist(), words, strict=True)]

    def readable(self) -> AbstractContextManager[None]:
        """Let models read noise words while the block runs."""
        return assigned(_seed, self.seed)


def replaced_words(tokens: Tensor) -> Tensor:
    """Return tokens [...] with the replaced words in place of noise words."""
    return tokens % _STRIDE


def _look_up(table: nn.Embedding, tokens: Tensor) -> Tensor:
    """Return the rows of the table for tokens [...]: [..., d]; for noise words, if readable, vectors from N(0, s^2).

    s is the root mean square of the table, so noise is as long as embeddings are.
    """
    seed = _seed.get()
    if seed is None:
        return table(tokens)
    vectors, numbers = table(replaced_words(tokens)), tokens // _STRIDE
    scale = table.weight.float().square().mean().sqrt()
    noise = (scale * _draw_vectors(table.embedding_dim, seed).to(scale.device)).to(vectors.dtype)
    return torch.where(numbers[..., None] > 0, noise[numbers - 1], vectors)


@lru_cache(maxsize=4)
def _draw_vectors(width: int, seed: int) -> Tensor:
    return torch.randn(_VECTORS, width, generator=torch.Generator().manual_seed(seed))


def build_token_embedding(rows: int, width: int, zero_row: int | None = PADDING_ID) -> nn.Embedding:
    """Build E ~ N(0, 1/d). Row `zero_row` is zero and never trained."""
    embedding = nn.Embedding(rows, width, padding_idx=zero_row)
    nn.init.normal_(embedding.weight, std=width**-0.5)
    if zero_row is not None:
        with torch.no_grad():
            embedding.weight[zero_row].zero_()
    return embedding


class Stack:
    """Options and conventions of the encoder or the decoder, and what reads its side of the text."""

    def __init__(self, config: TransformerConfig, family: Family) -> None:
        self.config, self.family = config, family
        self.head_width = config.attention_width // config.heads
        self.pre_norm = config.normalization == "pre"
        """whether norms precede blocks"""
        separate = family.tables == "either" and config.source_vocabulary_size > 0
        self.has_two_tables = family.tables == "two" or separate
        """whether each side has token embeddings of its own"""
        self.distances: dict[bool, DistanceBiases] = {}
        """shared biases of scores by distance, by whether attention is causal"""
        if config.position_encoding == "relative":
            shape = (config.relative_buckets, config.relative_distance, config.heads)
            self.distances = {causal: DistanceBiases(*shape, causal=causal) for causal in (False, True)}

    def build_norm(self) -> nn.Module:
        """Build a norm of states."""
        norm = nn.RMSNorm if self.family.norm == "rms" else nn.LayerNorm
        return norm(self.config.width, eps=self.family.norm_epsilon)

    def build_positions(self) -> nn.Module:
        """Build position vectors."""
        if self.config.position_encoding == "learned":
            return LearnedPositions(self.config.width, self.config.max_positions)
        return SinusoidalPositions(self.config.width, self.family.first_position, self.family.frequencies)


class Embeddings(nn.Module):
    """Token embeddings, positions and norms of both sides, and the output head.

    A model inherits from it, so that its weights have the same names in every system.
    """

    source_bias: SourceBias
    softmax: OutputProjection
    head_bias: HeadBias

    def __init__(self, encoder: Stack, decoder: Stack) -> None:
        super().__init__()
        self.stacks = {"source": encoder, "target": decoder}
        """the stack that reads a side"""
        config, self.family = decoder.config, decoder.family
        self.boundary_tokens = self.family.boundary_tokens(config)
        self.has_two_tables = decoder.has_two_tables
        self.has_separate_head = (self.family.head if config.output == "auto" else config.output) == "untied"
        self.build_tables()

    def build_tables(self) -> None:
        """Build token embeddings, positions, norms and output head, as attributes."""
        config, family = self.stacks["target"].config, self.family
        if self.has_two_tables:
            source_rows = config.source_vocabulary_size or config.vocabulary_size
            self.source_tokens = build_token_embedding(source_rows, self.stacks["source"].config.width)
        target_table = build_token_embedding(config.vocabulary_size, config.width, family.zero_row)
        self.add_module(self.table_name("target"), target_table)
        rows = config.vocabulary_size - sum(family.ids_without_logits)
        if self.has_separate_head:
            self.softmax = OutputProjection(rows, config.width)
        if family.head_bias:
            self.head_bias = HeadBias(rows)
        if family.source_bias:
            self.source_bias = SourceBias(config.width)
        for side, stack in self.stacks.items():
            if stack.config.position_encoding == "relative":
                name = "encoder_distances" if side == "source" else "decoder_distances"
                self.add_module(name, stack.distances[side == "target"])
            else:
                self.add_module(f"{side}_positions", stack.build_positions())
            if stack.config.embedding_normalization:
                self.add_module(f"{side}_norm", stack.build_norm())

    def table_name(self, side: str) -> str:
        """Return the name of the token embedding of a side."""
        return f"{side}_tokens" if self.has_two_tables else "tokens"

    def look_up_tokens(self, side: str, tokens: Tensor) -> Tensor:
        """Embed tokens [...] as E[token], [..., d], times sqrt(d) with `scale_embeddings` (Vaswani et al. 2017, 3.4).

        side: source or target.
        """
        vectors = _look_up(getattr(self, self.table_name(side)), tokens)
        config = self.stacks[side].config
        if config.scale_embeddings:
            vectors = vectors * math.sqrt(config.width)
        return self.source_bias(vectors) if self.family.source_bias and side == "source" else vectors

    def add_positions(self, side: str, vectors: Tensor, positions: Tensor | None) -> Tensor:
        """Add the vectors of positions [...] (None: nothing) to vectors [..., d], and apply the norm of embeddings."""
        config = self.stacks[side].config
        if positions is not None and config.position_encoding != "relative":
            vectors = vectors + self.get_submodule(f"{side}_positions")(positions)
        if torch.is_autocast_enabled(vectors.device.type):
            # States keep the precision of autocast. Casting them around every product made 240 copies in a training
            # step of a small model (decision 0011).
            vectors = vectors.to(torch.get_autocast_dtype(vectors.device.type))
        return self.get_submodule(f"{side}_norm")(vectors) if config.embedding_normalization else vectors

    def head(self) -> Head:
        """Return the output head: the target embedding, or a separate matrix."""
        first, last = self.family.ids_without_logits
        bias = self.head_bias.vector if self.family.head_bias else None
        if self.has_separate_head:
            return Head(self.softmax.weight, first, bias)
        config, table = self.stacks["target"].config, self._target_table()
        scale = config.width**-0.5 if config.output == "scaled" else 1.0
        return Head(table[first : len(table) - last] if first or last else table, first, bias, scale)

    def full_head(self) -> Head:
        """Return the head with all rows of a tied table, and a bias of minus infinity for ids without logits."""
        head, table = self.head(), self._target_table()
        if self.has_separate_head or len(head.weight) == len(table):
            return head
        bias = head.weight.new_zeros(len(head.weight)) if head.bias is None else head.bias
        return Head(table, 0, F.pad(bias.detach(), self.family.ids_without_logits, value=-torch.inf), head.scale)

    def table_names(self) -> Sequence[str]:
        """Return the names of the token embeddings."""
        return tuple(dict.fromkeys(self.table_name(side) for side in ("source", "target")))

    def _target_table(self) -> Tensor:
        return getattr(self, self.table_name("target")).weight
