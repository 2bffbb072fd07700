"""Linear attention in the place of a softmax attention: feature maps of queries and keys, and the module.

The products of random features estimate a softmax of cosines (Rahimi and Recht 2007; Peng et al. 2021); learned ones
are what training makes of them (Zhang et al. 2024, "The Hedgehog & the Porcupine").
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
from docmt.model.kernels import AttentionPattern
from docmt.model.linear import GateDecay, attend_linear
from docmt.model.model_config import RANDOM_CROSS_FEATURES, RANDOM_FEATURES, Linear
from docmt.model.scope import AttentionScope
from docmt.model.spans import Spans

Drawing = Literal["independent", "orthogonal", "quasi"]
"""independent: N(0, 1) each; orthogonal: rows of blocks of k are at right angles, with the lengths of independent ones;
quasi: points of a low-discrepancy sequence (Sobol, scrambled) through the inverse of the normal distribution"""
SCALE = 0.1
"""Features are multiplied with it, so that D pairs of sine and cosine give a key that matches the weight D / 100."""
LENGTH_EPSILON = 1e-3
DIRECTIONS = ".features.matrices"
"""How the names of evaluation features end in a model: they are drawn, not learned."""


def draw(heads: int, count: int, width: int, how: Drawing, generator: torch.Generator | None = None) -> Tensor:
    """[H, D, k]: D random directions for each head, on the CPU; without a generator by torch's own."""
    if how == "independent":
        return torch.randn(heads, count, width, generator=generator)
    if how == "orthogonal":
        blocks = -(-count // width)
        bases, triangles = torch.linalg.qr(torch.randn(heads, blocks, width, width, generator=generator))
        bases = bases * triangles.diagonal(dim1=-2, dim2=-1).sign()[..., None, :]  # else some directions are likelier
        lengths = torch.randn(heads, count, width, generator=generator).norm(dim=-1, keepdim=True)
        return bases.flatten(1, 2)[:, :count] * lengths
    seed = int(torch.randint(2**31, (), generator=generator))
    points = SobolEngine(width, scramble=True, seed=seed).draw(heads * count).double()
    # The points nearest to 0 and 1 are kept from infinity.
    points = points.clamp(2.0**-32, 1 - 2.0**-32)
    normal = math.sqrt(2) * torch.erfinv(2 * points - 1)
    return normal.float().view(heads, count, width)


class RandomFeatures(nn.Module):
    """phi(x) = s [sin(W u), cos(W u)], u = x / |x|, W = w / tau, so phi(x) . phi(y) ~ s^2 D exp(-|u - v|^2 / 2 tau^2).

    That is, up to a factor, exp(u . v / tau^2): attention by softmax of cosines. `w` is drawn anew at every pass in
    training; in evaluation it is one that checkpoints carry. It is drawn from one seed, so that all layers with as many
    features have the same, as in the published code. tau is learned, one a head (Wu et al. 2022), or, with
    `per_dimension`, the learned scale of every dimension of a head stands for it (Peng et al. 2021, section 3.1).
    """

    matrices: Tensor
    floor = 0.1  # sums of these features may be near zero, or negative (the authors' EPS)

    def __init__(
        self,
        heads: int,
        width: int,
        count: int,
        how: Drawing = "independent",
        *,
        temperature: float = 1.0,
        per_dimension: bool = False,
        seed: int = 31415,
    ) -> None:
        """count: D, pairs of features; width: k."""
        super().__init__()
        self.how, self.per_dimension = how, per_dimension
        generator = torch.Generator().manual_seed(seed)
        self.register_buffer("matrices", draw(heads, count, width, how, generator))
        if per_dimension:
            self.register_buffer("temperature", torch.full((heads, 1, 1), temperature))
            self.scales = nn.Parameter(torch.ones(heads, 1, width))
        else:
            self.temperature = nn.Parameter(torch.full((heads, 1, 1), temperature))

    def directions(self) -> Tensor:
        """Return W [H, D, k], float32 or wider: drawn for this pass in training, else those of the checkpoint.

        Queries and keys of a pass must share one.
        """
        found = wide(self.matrices)
        if self.training:
            heads, count, width = found.shape
            found = draw(heads, count, width, self.how).to(found)
        if self.per_dimension:
            found = found * wide(self.scales)
        return found / wide(self.temperature)

    def forward(self, x: Tensor, directions: Tensor) -> Tensor:
        """x [H, n, k] -> [H, n, 2 D]"""
        x = wide(x)
        x = x / (x.norm(dim=-1, keepdim=True) + LENGTH_EPSILON)
        with torch.autocast(x.device.type, enabled=False):
            projected = torch.matmul(x, directions.mT)
        return SCALE * torch.cat((projected.sin(), projected.cos()), dim=-1)

    def temperatures(self) -> Tensor:
        """[H] tau of each head; of a head with scales, that at which one scale for all dimensions is as sharp."""
        found = wide(self.temperature)[:, 0, 0].abs()
        return found / wide(self.scales)[:, 0].square().mean(-1).sqrt() if self.per_dimension else found

    def salience(self, key: Tensor) -> Tensor:
        """[T, H] the logarithm of what long keys [T, H, k] weigh more, |key|^2 / (2 k tau^2): "norm rescaling".

        Cross-attention alone has it (Wu et al. 2022, their code).
        """
        return 0.5 * wide(key).square().sum(-1) / (key.shape[-1] * wide(self.temperature)[:, 0, 0].square())


class LearnedFeatures(nn.Module):
    """phi(x) = [softmax(W x), softmax(-W x)] with learned W (Zhang et al. 2024, section 4.2).

    Features are positive, so that no weight is below zero and no denominator near it, and a few stand out for each x.
    """

    floor = 1e-6  # the least denominator of attention

    def __init__(self, heads: int, width: int, count: int) -> None:
        """count: D, pairs of features; width: k. W begins with the dimensions of x, then directions between them."""
        super().__init__()
        first = torch.eye(width).expand(heads, -1, -1)
        more = max(count - width, 0)
        others = draw(heads, more, width, "orthogonal") * width**-0.5 if more else first[:, :0]
        self.weight = nn.Parameter(torch.cat((first, others), dim=1)[:, :count].clone())

    def directions(self) -> Tensor:
        """Return the learned W [H, D, k], float32 or wider."""
        return wide(self.weight)

    def forward(self, x: Tensor, directions: Tensor) -> Tensor:
        """x [H, n, k] -> [H, n, 2 D]"""
        with torch.autocast(x.device.type, enabled=False):
            projected = torch.matmul(wide(x), directions.mT)
        return torch.cat((projected.softmax(-1), (-projected).softmax(-1)), dim=-1)

    def salience(self, key: Tensor) -> Tensor:
        """|key|^2 / (2 k): as that of random features without a temperature."""
        return 0.5 * wide(key).square().mean(-1)

    def temperatures(self) -> Tensor:
        """Return [0]: there are none."""
        return torch.zeros(0)


Features = RandomFeatures | LearnedFeatures


def wide(x: Tensor) -> Tensor:
    """The same in float32 at the least: phases and long sums are not for 16 bits."""
    return x if x.dtype == torch.float64 else x.float()


def features_of(options: Linear, heads: int, width: int, *, own: bool) -> Features:
    """The map of queries and keys [.., H, k] of attention to the sequence itself (`own`), or to the source."""
    count = options.features if own else options.cross_features
    if options.feature_map == "learned":
        return LearnedFeatures(heads, width, count or width)
    count = count or (RANDOM_FEATURES if own else RANDOM_CROSS_FEATURES)
    return RandomFeatures(
        heads, width, count, options.feature_sampling, per_dimension=options.temperature_per == "dimension"
    )


class KeyWeights(NamedTuple):
    """What keys weigh, as for `attend_linear`; each [T, H] or None. floor: least sum of weights."""

    floor: float
    fading: Tensor | None = None
    fresh: Tensor | None = None
    salience: Tensor | None = None


class LinearAttention(Attention):
    """Attention with features (Katharopoulos et al. 2020) over what the scope names, with the gate of Wu et al. (2022).

    The gate is that of attention to what was said before, one a head or one in all: at the end of each sentence it says
    how much of all so far is left to the next.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        scope: AttentionScope,
        options: Linear,
        joined: bool = False,
        *,
        memory_width: int | None = None,
        head_width: int = 0,
        biases: bool = True,
    ) -> None:
        """joined: the first token of a sentence ends the one before (`BoundaryTokens`), and belongs to it here."""
        super().__init__(width, heads, scope, memory_width=memory_width, head_width=head_width, biases=biases)
        own = scope.memory == "self"
        self.features = features_of(options, heads, head_width or width // heads, own=own)
        self.rescaled = options.rescale_keys and not own
        self.averaging = options.gate == "average"
        self.joined = joined
        self.gate: nn.Linear | None = None
        if scope.causal and options.gate != "none":
            self.gate = nn.Linear(width, heads if options.gate_per == "head" else 1)
            nn.init.xavier_uniform_(self.gate.weight)
            nn.init.constant_(self.gate.bias, options.gate_bias)

    def over(self, x: Tensor, memory: Tensor, pattern: AttentionPattern, times: int = 1) -> Tensor:
        """x [Tq, d] attends to memory [Tk, d], the same tensor for self-attention: [Tq, d].

        Raises ValueError where queries ask several times, which needs weights that can be told apart.
        """
        if times != 1:
            raise ValueError("linear attention asks once: look at sentences one by one with softmax attention")
        return self.among(x, *self.shown(memory, pattern), pattern)

    def shown(self, memory: Tensor, pattern: AttentionPattern) -> tuple[Tensor, Tensor, KeyWeights]:
        """Keys and values [Tk, H, k] of memory [Tk, d], and what the keys weigh."""
        key = self.split(self.key(memory))
        return key, self.split(self.value(memory)), self.weighing(memory, key, pattern)

    def among(self, x: Tensor, key: Tensor, value: Tensor, weighing: KeyWeights, pattern: AttentionPattern) -> Tensor:
        """What x [Tq, d] finds among keys and values [Tk, H, k]: [Tq, d]."""
        query = self.split(self.query(x))
        found = attend_linear(query, key, value, pattern, features=self.feature_map(), **weighing._asdict())
        return found.to(x.dtype).flatten(-2)

    def feature_map(self) -> Callable[[Tensor], Tensor]:
        """What turns queries and keys [H, n, k] of this pass into features [H, n, F]."""
        return partial(self.features, directions=self.features.directions())

    def salience(self, key: Tensor) -> Tensor | None:
        """The salience of keys [T, H, k], where keys have any: [T, H]."""
        return self.features.salience(key) if self.rescaled else None

    def weighing(self, memory: Tensor, key: Tensor, pattern: AttentionPattern) -> KeyWeights:
        """What keys [T, H, k] of memory [T, d] weigh, and how that fades."""
        if self.gate is None:
            return KeyWeights(self.features.floor, salience=self.salience(key))
        faded = GateDecay.of(*self.sentence_gates(memory, pattern), pattern.keys, self.averaging)
        return KeyWeights(self.features.floor, faded.fading, faded.fresh)

    def asked_and_shown(self, x: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        """The features of what x [Tq, d] asks, [Tq, H, F], and of what memory [Tk, d] shows, [Tk, H, F]."""
        features = self.feature_map()  # one for both: in training each is another drawing
        query, key = self.split(self.query(x)), self.split(self.key(memory))
        return features(query.transpose(0, 1)).transpose(0, 1), features(key.transpose(0, 1)).transpose(0, 1)

    def asked_features(self, x: Tensor) -> Tensor:
        """The features of what x [T, d] asks, of keys that were shown before: [T, H, F]."""
        return self.feature_map()(self.split(self.query(x)).transpose(0, 1)).transpose(0, 1)

    def values(self, memory: Tensor) -> Tensor:
        """[T, d] -> [T, H, k], float32 or wider: sums of many are made of them."""
        return wide(self.split(self.value(memory)))

    def sentence_gates(self, memory: Tensor, pattern: AttentionPattern) -> tuple[Tensor, Spans]:
        """The gates of the last tokens of the sentences of memory [T, d], before the sigmoid: [S, H]; and these
        sentences."""
        if pattern.sentences is None:
            raise ValueError("a gate needs to know where sentences end")
        spans = pattern.sentences

        def found() -> tuple[Spans, Tensor]:
            sentences = spans.borders_later(pattern.keys) if self.joined else spans
            return sentences, (sentences.ends - 1).clamp(min=0).to(memory.device)

        sentences, ends = pattern.kept(("sentence ends", self.joined, memory.device), found)
        return self.gates(memory[ends]), sentences

    def gates(self, x: Tensor) -> Tensor:
        """The gates of x [n, d] before the sigmoid: [n, H]."""
        assert self.gate is not None
        return wide(self.gate(x)).expand(-1, self.heads)
