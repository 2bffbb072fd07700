"""Features of queries and keys, whose products are the weights of linear attention: random ones, and learned ones.

The products of random features estimate a softmax of cosines (Rahimi and Recht 2007; Peng et al. 2021); learned ones
are what training makes of them (Zhang et al. 2024, "The Hedgehog & the Porcupine").
"""

from __future__ import annotations

import math
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.quasirandom import SobolEngine

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
    if how == "quasi":
        seed = int(torch.randint(2**31, (), generator=generator))
        points = SobolEngine(width, scramble=True, seed=seed).draw(heads * count).double()
        # The points nearest to 0 and 1 are kept from infinity.
        points = points.clamp(2.0**-32, 1 - 2.0**-32)
        normal = math.sqrt(2) * torch.erfinv(2 * points - 1)
        return normal.float().view(heads, count, width)
    raise ValueError(f"how {how!r}: choose one of {', '.join(get_args(Drawing))}")


class Features(nn.Module):
    """A map of queries and keys to features."""

    floor: float
    """least denominator of attention with these features"""

    def directions(self) -> Tensor:
        """W [H, D, k] of this pass, float32 or wider; queries and keys must share one."""
        raise NotImplementedError

    def forward(self, x: Tensor, directions: Tensor) -> Tensor:
        """x [H, n, k] -> [H, n, 2 D]"""
        raise NotImplementedError

    def salience(self, key: Tensor) -> Tensor:
        """[T, H] the logarithm of what long keys [T, H, k] weigh more."""
        raise NotImplementedError

    def temperatures(self) -> Tensor:
        """[H] tau of each head, or [0] where there is none."""
        return torch.zeros(0)


class RandomFeatures(Features):
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
        """Of this pass in training, else those of the checkpoint: see `Features`."""
        found = wide(self.matrices)
        if self.training:
            heads, count, width = found.shape
            found = draw(heads, count, width, self.how).to(found)
        if self.per_dimension:
            found = found * wide(self.scales)
        return found / wide(self.temperature)

    def forward(self, x: Tensor, directions: Tensor) -> Tensor:
        """See `Features`."""
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


class LearnedFeatures(Features):
    """phi(x) = [softmax(W x), softmax(-W x)] with learned W (Zhang et al. 2024, section 4.2).

    Features are positive, so that no weight is below zero and no denominator near it, and a few stand out for each x.
    """

    floor = 1e-6

    def __init__(self, heads: int, width: int, count: int) -> None:
        """count: D, pairs of features; width: k. W begins with the dimensions of x, then directions between them."""
        super().__init__()
        first = torch.eye(width).expand(heads, -1, -1)
        more = max(count - width, 0)
        others = draw(heads, more, width, "orthogonal") * width**-0.5 if more else first[:, :0]
        self.weight = nn.Parameter(torch.cat((first, others), dim=1)[:, :count].clone())

    def directions(self) -> Tensor:
        """The learned ones."""
        return wide(self.weight)

    def forward(self, x: Tensor, directions: Tensor) -> Tensor:
        """See `Features`."""
        with torch.autocast(x.device.type, enabled=False):
            projected = torch.matmul(wide(x), directions.mT)
        return torch.cat((projected.softmax(-1), (-projected).softmax(-1)), dim=-1)

    def salience(self, key: Tensor) -> Tensor:
        """|key|^2 / (2 k): as that of random features without a temperature."""
        return 0.5 * wide(key).square().mean(-1)


def wide(x: Tensor) -> Tensor:
    """The same in float32 at the least: phases and long sums are not for 16 bits."""
    return x if x.dtype == torch.float64 else x.float()
