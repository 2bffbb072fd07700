"""Linear attention: feature maps of queries and keys, and the attention module.

Products of random features estimate a softmax of cosines (Rahimi and Recht 2007; Peng et al. 2021). Learned features
are trained (Zhang et al. 2024, "The Hedgehog & the Porcupine").
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.quasirandom import SobolEngine

from docmt.model.attention import Attention
from docmt.model.contexts import AttentionContext
from docmt.model.embeddings import Stack
from docmt.model.families import RANDOM_CROSS_FEATURES, RANDOM_FEATURES, Linear
from docmt.model.kernels import AttentionPattern, upcast
from docmt.model.linear_kernels import GateDecay, attend_linear
from docmt.model.scope import AttentionScope
from docmt.model.spans import Spans

FeatureSampling = Literal["independent", "orthogonal", "quasi"]
"""Sampling of random directions.

independent: N(0, 1) each. orthogonal: orthogonal rows in blocks of k, with the norms of independent ones. quasi:
scrambled Sobol points through the inverse normal distribution."""
FEATURE_SCALE = 0.1
"""Factor of features: a matching key has weight D / 100 with D pairs of sine and cosine."""
LENGTH_EPSILON = 1e-3
DIRECTIONS_SUFFIX = ".features.matrices"
"""Suffix of the names of evaluation features, which are sampled, not learned."""


def draw_directions(
    heads: int, count: int, width: int, method: FeatureSampling, generator: torch.Generator | None = None
) -> Tensor:
    """Sample D random directions for each head, [H, D, k], on the CPU. None: the default generator."""
    if method == "independent":
        return torch.randn(heads, count, width, generator=generator)
    if method == "orthogonal":
        blocks = -(-count // width)
        bases, triangles = torch.linalg.qr(torch.randn(heads, blocks, width, width, generator=generator))
        bases = bases * triangles.diagonal(dim1=-2, dim2=-1).sign()[..., None, :]  # makes all directions equally likely
        lengths = torch.randn(heads, count, width, generator=generator).norm(dim=-1, keepdim=True)
        return bases.flatten(1, 2)[:, :count] * lengths
    seed = int(torch.randint(2**31, (), generator=generator, device="cpu"))  # also where models have no storage yet
    points = SobolEngine(width, scramble=True, seed=seed).draw(heads * count).double()
    # Points near 0 and 1 would become infinite.
    points = points.clamp(2.0**-32, 1 - 2.0**-32)
    normal = math.sqrt(2) * torch.erfinv(2 * points - 1)
    return normal.float().view(heads, count, width)


class RandomFeatures(nn.Module):
    """phi(x) = s [sin(W u), cos(W u)], u = x / |x|, W = w / tau, so phi(x) . phi(y) ~ s^2 D exp(-|u - v|^2 / 2 tau^2).

    This is, up to a factor, exp(u . v / tau^2): a softmax of cosines. Training samples `w` in every pass. Evaluation
    uses the `w` of the checkpoint, sampled from one seed, so that all layers with equally many features share it, as
    published. tau is learned, one per head (Wu et al. 2022). With `per_dimension`, each dimension of a head has a
    learned scale instead (Peng et al. 2021, section 3.1).
    """

    matrices: Tensor
    min_denominator = 0.1  # sums may be near zero or negative (EPS of the published code)

    def __init__(
        self,
        heads: int,
        width: int,
        count: int,
        method: FeatureSampling = "independent",
        *,
        temperature: float = 1.0,
        per_dimension: bool = False,
        seed: int = 31415,
    ) -> None:
        """count: D, pairs of features; width: k."""
        super().__init__()
        self.method, self.per_dimension = method, per_dimension
        generator = torch.Generator().manual_seed(seed)
        self.register_buffer("matrices", draw_directions(heads, count, width, method, generator))
        if per_dimension:
            self.register_buffer("temperature", torch.full((heads, 1, 1), temperature))
            self.scales = nn.Parameter(torch.ones(heads, 1, width))
        else:
            self.temperature = nn.Parameter(torch.full((heads, 1, 1), temperature))

    def get_directions(self) -> Tensor:
        """Return W [H, D, k], float32 or wider: sampled in training, else from the checkpoint.

        Queries and keys of a pass must share one.
        """
        directions = upcast(self.matrices)
        if self.training:
            heads, count, width = directions.shape
            directions = draw_directions(heads, count, width, self.method).to(directions)
        if self.per_dimension:
            directions = directions * upcast(self.scales)
        return directions / upcast(self.temperature)

    def forward(self, x: Tensor, directions: Tensor) -> Tensor:
        """x [H, n, k] -> [H, n, 2 D]"""
        x = upcast(x)
        x = x / (x.norm(dim=-1, keepdim=True) + LENGTH_EPSILON)
        with torch.autocast(x.device.type, enabled=False):
            projected = torch.matmul(x, directions.mT)
        return FEATURE_SCALE * torch.cat((projected.sin(), projected.cos()), dim=-1)

    def key_log_weights(self, key: Tensor) -> Tensor:
        """Return log weights [T, H] of keys [T, H, k] by their norm, |key|^2 / (2 k tau^2) ("norm rescaling").

        Only cross-attention uses them (Wu et al. 2022, their code).
        """
        return 0.5 * upcast(key).square().sum(-1) / (key.shape[-1] * upcast(self.temperature)[:, 0, 0].square())


class LearnedFeatures(nn.Module):
    """phi(x) = [softmax(W x), softmax(-W x)] with learned W (Zhang et al. 2024, section 4.2).

    Features are positive, so weights are too, and few dominate for each x.
    """

    min_denominator = 1e-6  # of attention

    def __init__(self, heads: int, width: int, count: int) -> None:
        """count: D, pairs of features; width: k. W starts with unit vectors, then directions between them."""
        super().__init__()
        first = torch.eye(width).expand(heads, -1, -1)
        more = max(count - width, 0)
        combined = draw_directions(heads, more, width, "orthogonal") * width**-0.5 if more else first[:, :0]
        self.weight = nn.Parameter(torch.cat((first, combined), dim=1)[:, :count].clone())

    def get_directions(self) -> Tensor:
        """Return the learned W [H, D, k], float32 or wider."""
        return upcast(self.weight)

    def forward(self, x: Tensor, directions: Tensor) -> Tensor:
        """x [H, n, k] -> [H, n, 2 D]"""
        with torch.autocast(x.device.type, enabled=False):
            projected = torch.matmul(upcast(x), directions.mT)
        return torch.cat((projected.softmax(-1), (-projected).softmax(-1)), dim=-1)

    def key_log_weights(self, key: Tensor) -> Tensor:
        """Return log weights [T, H] of keys by their norm, |key|^2 / (2 k)."""
        return 0.5 * upcast(key).square().mean(-1)


Features = RandomFeatures | LearnedFeatures


def build_features(options: Linear, heads: int, width: int, *, self_attention: bool) -> Features:
    """Build the feature map of self-attention, or of attention to the source."""
    count = options.features if self_attention else options.cross_features
    if options.feature_map == "learned":
        return LearnedFeatures(heads, width, count or width)
    count = count or (RANDOM_FEATURES if self_attention else RANDOM_CROSS_FEATURES)
    return RandomFeatures(
        heads, width, count, options.feature_sampling, per_dimension=options.temperature_per == "dimension"
    )


class KeyWeights(NamedTuple):
    """Weights of keys as in `attend_linear`, each [T, H] or None."""

    min_denominator: float
    log_decay: Tensor | None = None
    input_weights: Tensor | None = None
    log_weights: Tensor | None = None


class LinearAttention(Attention):
    """Linear attention (Katharopoulos et al. 2020) over the states of a scope, with sentence gates (Wu et al. 2022).

    Causal attention may have a gate per head or one in all. It sets the share of the state that a sentence passes to
    the next one.
    """

    def __init__(self, stack: Stack, scope: AttentionScope, memory_width: int) -> None:
        """See `Attention`."""
        super().__init__(stack, scope, memory_width)
        width, options = stack.config.width, stack.config.linear
        self_attention = scope.memory == "self"
        self.features = build_features(options, self.heads, self.head_width, self_attention=self_attention)
        self.rescales_keys = options.rescale_keys and not self_attention
        self.is_averaging = options.gate == "average"
        self.joined = stack.family.joined
        """the first token of a sentence ends the one before (`BoundaryTokens`) and belongs to it"""
        self.gate: nn.Linear | None = None
        if scope.causal and options.gate != "none":
            self.gate = nn.Linear(width, self.heads if options.gate_per == "head" else 1)
            nn.init.xavier_uniform_(self.gate.weight)
            nn.init.constant_(self.gate.bias, options.gate_bias)

    def forward(self, x: Tensor, context: AttentionContext, states: Tensor | None = None) -> Tensor:
        """x [..., d] -> [..., d]; states: see `Attention`."""
        attended = context.find(self, x if states is None else states).attend_linear(self, x)
        return self.output(attended.to(x.dtype).flatten(-2))

    def attend_memory(self, x: Tensor, memory: Tensor, pattern: AttentionPattern) -> Tensor:
        """Attend from x [Tq, d] to memory [Tk, d] (x itself for self-attention): [Tq, H, k]."""
        return self.attend_keys(x, *self.project_keys_values(memory, pattern), pattern)

    def project_keys_values(self, memory: Tensor, pattern: AttentionPattern) -> tuple[Tensor, Tensor, KeyWeights]:
        """Project memory [Tk, d] to keys and values [Tk, H, k], and weigh the keys."""
        key, value = self.project_memory(memory)
        return key, value, self.weigh_keys(memory, key, pattern)

    def attend_keys(
        self, x: Tensor, key: Tensor, value: Tensor, key_weights: KeyWeights, pattern: AttentionPattern
    ) -> Tensor:
        """Attend from x [Tq, d] to keys and values [Tk, H, k]: [Tq, H, k]."""
        query = self.split_heads(self.query(x))
        return attend_linear(query, key, value, pattern, features=self.build_feature_map(), **key_weights._asdict())

    def build_feature_map(self) -> Callable[[Tensor], Tensor]:
        """Return the map of queries and keys [H, n, k] of this pass to features [H, n, F]."""
        return partial(self.features, directions=self.features.get_directions())

    def key_log_weights(self, key: Tensor) -> Tensor | None:
        """Return the log weights [T, H] of keys [T, H, k] by their norm, or None without rescaling."""
        return self.features.key_log_weights(key) if self.rescales_keys else None

    def weigh_keys(self, memory: Tensor, key: Tensor, pattern: AttentionPattern) -> KeyWeights:
        """Return the weights of keys [T, H, k] of memory [T, d], and their decay."""
        if self.gate is None:
            return KeyWeights(self.features.min_denominator, log_weights=self.key_log_weights(key))
        decay = GateDecay.from_gates(*self.compute_sentence_gates(memory, pattern), pattern.keys, self.is_averaging)
        return KeyWeights(self.features.min_denominator, decay.log_decay, decay.input_weights)

    def project_features(self, x: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Return features [Tq, H, F] of the queries of x [Tq, d], and [Tk, H, F] of the keys of memory [Tk, d]."""
        features = self.build_feature_map()  # one for both, because training samples it
        query, key = self.split_heads(self.query(x)), self.split_heads(self.key(memory))
        return features(query.transpose(0, 1)).transpose(0, 1), features(key.transpose(0, 1)).transpose(0, 1)

    def project_query_features(self, x: Tensor) -> Tensor:
        """Return features [T, H, F] of the queries of x [T, d], for earlier keys."""
        return self.build_feature_map()(self.split_heads(self.query(x)).transpose(0, 1)).transpose(0, 1)

    def project_values(self, memory: Tensor) -> Tensor:
        """Project memory [T, d] to values [T, H, k], float32 or wider for long sums."""
        return upcast(self.split_heads(self.value(memory)))

    def compute_sentence_gates(self, memory: Tensor, pattern: AttentionPattern) -> tuple[Tensor, Spans]:
        """Return gates [S, H] before the sigmoid at the last tokens of the sentences of memory [T, d], and the
        sentences."""
        if pattern.sentences is None:
            raise ValueError("a gate needs the sentences of the pattern: pass `sentences` to AttentionPattern")
        spans = pattern.sentences

        def find_ends() -> tuple[Spans, Tensor]:
            sentences = spans.shift_boundaries(pattern.keys) if self.joined else spans
            return sentences, (sentences.ends - 1).clamp(min=0).to(memory.device)

        sentences, ends = pattern.get_or_build(("sentence ends", self.joined, memory.device), find_ends)
        return self.compute_gates(memory[ends]), sentences

    def compute_gates(self, x: Tensor) -> Tensor:
        """Compute the gates [n, H] of x [n, d], before the sigmoid."""
        assert self.gate is not None
        return upcast(self.gate(x)).expand(-1, self.heads)
