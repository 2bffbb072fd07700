"""The layer, and the blocks that systems add: hops, sentence encoders, hierarchical attention, a bidirectional LSTM."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_sequence, unpack_sequence

from docmt.model.attention import Attention, AttentionContext, FullContext, Memory, Opening
from docmt.model.linear_attention import wide
from docmt.model.spans import Packed, Spans

if TYPE_CHECKING:
    from docmt.model.embeddings import Embeddings
    from docmt.model.scope import AttentionScope
    from docmt.model.transformer import Parts


class Layer(nn.Module):
    """Blocks such as self-attention, cross-attention and feed-forward, one after the other.

    A block is called with (states, context), its branch has `enter` (what the block reads) and `leave` (what goes on).
    """

    def __init__(self, blocks: dict[str, tuple[nn.Module, Residual]]) -> None:
        """Block `x` becomes the attribute `x`, its branch `x_residual`."""
        super().__init__()
        self.order: list[tuple[str, str]] = []
        for name, (block, branch) in blocks.items():
            self.insert(name, block, branch)

    def insert(self, name: str, block: nn.Module, branch: Residual, after: str = "") -> Layer:
        """Puts in one more block, behind the named one (or behind all); returns the layer."""
        names = [block_name for block_name, _ in self.order]
        place = names.index(after) + 1 if after else len(names)
        self.order.insert(place, (name, f"{name}_residual"))
        self.add_module(name, block)
        self.add_module(f"{name}_residual", branch)
        return self

    def forward(self, x: Tensor, context: AttentionContext) -> Tensor:
        """x [..., d] -> [..., d]"""
        for _, passed in self.passed(x, context):
            x = passed
        return x

    def passed(self, x: Tensor, context: AttentionContext) -> Iterator[tuple[str, Tensor]]:
        """x [..., d] behind each block and its branch, with the name of the block."""
        for block_name, branch_name in self.order:
            block: Any = self._modules[block_name]
            branch: Any = self._modules[branch_name]
            x = branch.leave(x, block(branch.enter(x), context))
            yield block_name, x


class Residual(nn.Module):
    """The branch around a block f: norm(x + dropout(f(x))), or with pre-norm x + dropout(f(norm(x))).

    Without a norm: x + dropout(f(x)).
    """

    def __init__(self, norm: nn.Module | None, dropout: float, pre_norm: bool) -> None:
        super().__init__()
        self.norm = norm
        self.dropout = Dropout(dropout)
        self.pre_norm = pre_norm

    def enter(self, x: Tensor) -> Tensor:
        """What the block reads."""
        normed: Tensor = self.norm(x) if self.pre_norm and self.norm is not None else x
        return normed

    def leave(self, x: Tensor, output: Tensor) -> Tensor:
        """What goes on after the branch, from its input and the block's output."""
        total = x + self.dropout(output)
        normed: Tensor = total if self.pre_norm or self.norm is None else self.norm(total)
        return normed


class GatedResidual(Residual):
    """The branch around an attention to context, joined by a gate lam = sigmoid(W x + U y) in [0, 1]^d.

    Published (Zhang et al. 2018, section 3.3, and their code): norm(lam * x + (1 - lam) * y). Additive:
    x + (1 - lam) * y, which, where no norm follows, is the identity as long as y is zero.
    """

    def __init__(self, norm: nn.Module | None, width: int, pre_norm: bool, additive: bool) -> None:
        super().__init__(norm, 0.0, pre_norm)
        self.additive = additive
        self.gate_input = nn.Linear(width, width, bias=False)
        self.gate_context = nn.Linear(width, width, bias=False)
        self.opening = Opening("own")
        for projection in (self.gate_input, self.gate_context):
            nn.init.xavier_uniform_(projection.weight)

    def leave(self, x: Tensor, output: Tensor) -> Tensor:
        """What goes on after the branch, from its input and the block's output."""
        gate = self.opening(self.gate_input(x) + self.gate_context(output))
        # Not `lerp`: under autocast x may be of another precision, where a norm gave it.
        total = x + (1 - gate) * output if self.additive else output + gate * (x - output)
        normed: Tensor = total if self.pre_norm or self.norm is None else self.norm(total)
        return normed


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "silu": F.silu,
}
GATED = "gated_"
"""Before the name of an activation: what it gives is multiplied with a product of its own (Shazeer 2020)."""


class FeedForward(nn.Module):
    """W2 f(W1 x + b1) + b2, or gated W2 (f(W1 x + b1) * (W3 x + b3)) + b2, element by element."""

    def __init__(self, width: int, inner: int, activation: str, biases: bool = True) -> None:
        super().__init__()
        self.activation = ACTIVATIONS[activation.removeprefix(GATED)]
        self.inner = nn.Linear(width, inner, bias=biases)
        self.factor = nn.Linear(width, inner, bias=biases) if activation.startswith(GATED) else None
        self.outer = nn.Linear(inner, width, bias=biases)

    def forward(self, x: Tensor, context: AttentionContext) -> Tensor:
        """x [..., d] -> [..., d]; looks at nothing else."""
        states = self.activation(self.inner(x))
        output: Tensor = self.outer(states if self.factor is None else states * self.factor(x))
        return output


def run(layers: Iterable[nn.Module], x: Tensor, context: AttentionContext) -> Tensor:
    """x [..., d] through a stack of layers."""
    for layer in layers:
        x = layer(x, context)
    return x


class Dropout(nn.Module):
    """Dropout with 16 random bits an element on CPU: the generator is the bottleneck there, and this needs a
    quarter of its calls (4 times faster; the rate is rounded to 1/65536)."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        """x [...] -> [...]"""
        if not self.training or self.rate == 0.0:
            return x
        if x.device.type != "cpu":
            return F.dropout(x, self.rate)
        result: Tensor = _BitDropout.apply(x, self.rate)  # type: ignore[no-untyped-call]
        return result


class _BitDropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, rate: float) -> Tensor:
        dropped = round(rate * 65536)
        words = torch.empty((x.numel() + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
        kept = (words.view(torch.int16)[: x.numel()] >= dropped - 32768).view(x.shape)
        factors = kept.to(x.dtype).mul_(65536 / (65536 - dropped))
        ctx.save_for_backward(factors)
        return x * factors

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        (factors,) = ctx.saved_tensors
        return gradients[0] * factors, None


class Hops(nn.Module):
    """Attention to one sentence after the other, each asking with what was found so far.

    A hop adds to what it asks with. Its output has no bias, so that it adds nothing where its sentence is missing.
    """

    def __init__(self, hops: Sequence[Attention]) -> None:
        super().__init__()
        self.hops = nn.ModuleList(hops)

    def forward(self, x: Tensor, context: AttentionContext) -> Tensor:
        """x [..., d] -> what all hops together add to it, [..., d]"""
        first, *others = self.hops
        found: Tensor = first(x, context)
        for hop in others:
            found = found + hop(x + found, context)
        return found


class SentenceEncoder(nn.Module):
    """Encodes the sentences of a document each by itself and keeps the states of every layer to be looked at."""

    def __init__(
        self,
        layers: Sequence[Layer],
        kept: str,
        norms: Sequence[nn.Module],
        embeddings: Embeddings | None,
        frozen: bool,
    ) -> None:
        """kept: the block of each layer whose states are kept; norms: for those of each layer, or none; embeddings: its
        own, to embed what it reads with, or None for those of the model's source; frozen: it is not trained."""
        super().__init__()
        self.layers, self.norms = nn.ModuleList(layers), nn.ModuleList(norms)
        self.embeddings = embeddings
        self.kept, self.frozen = kept, frozen
        self.requires_grad_(not frozen)

    def forward(self, x: Tensor, text: Packed) -> Memory:
        """Embedded text [T, d] -> what can be looked at of it: states [T, d] behind the kept block of each layer."""
        x = x.detach() if self.frozen else x
        context, states = FullContext(text), []
        for layer in self.layers:
            assert isinstance(layer, Layer)
            for block, passed in layer.passed(x, context):
                x = passed
                if block == self.kept:
                    states.append(x)
        if self.norms:
            states = [norm(state) for norm, state in zip(self.norms, states, strict=True)]
        return Memory(states[-1], text.sentences, text.documents, states)


class Hierarchy(nn.Module):
    """What stands above a stack: states in, states with what they find in the k sentences before out.

    s_j is the attention of LN(x) to the states of sentence j, one attention for all; s is the attention of LN'(x) to
    LN(s_1) .. LN(s_k), with a feed-forward block behind it; l = sigmoid(W [x; s] + b). Published: LN((1 - l) x + l s).
    Exact: x + l s with s = 0 at the start, as the projection of the second attention and that of the feed-forward
    block begin at zero, and no norm, which would change x: so a new model is the sentence model, bit for bit.

    Where there is no sentence before, x stays as it is. (The published code takes the mean over all positions of the
    first sentence of the batch there, later target words included.) Sentences that are missing are not seen.
    """

    def __init__(self, parts: Parts, scope: AttentionScope, *, exact: bool, detach: bool) -> None:
        """scope: of the sentences before, `scope.back` of them; detach: no gradient reaches the states through what
        attention asks and sees, but through x alone, as published."""
        super().__init__()
        sizes = parts.sizes
        self.detach = detach
        self.words_norm, self.sentences_norm, self.summary_norm = (parts.norm() for _ in range(3))
        self.words = parts.attention(scope)
        self.sentences = SentenceAttention(sizes.width, sizes.heads, sizes.attention_width)
        self.feed_forward = parts.feed_forward()
        self.feed_forward_residual = Residual(parts.norm(), sizes.dropout, pre_norm=True)
        self.gate = nn.Linear(2 * sizes.width, sizes.width)
        self.opening = Opening("context")
        nn.init.xavier_uniform_(self.gate.weight)
        nn.init.zeros_(self.gate.bias)
        self.norm = None if exact else parts.norm()
        if exact:
            for projection in (self.sentences.output, self.feed_forward.outer):
                nn.init.zeros_(projection.weight)
                if projection.bias is not None:
                    nn.init.zeros_(projection.bias)

    def forward(self, x: Tensor, context: AttentionContext) -> Tensor:
        """x [..., d] -> [..., d]"""
        states = x.detach() if self.detach else x
        found, there = context.attend_before(self.words, self.words_norm(states), states)  # [..., k, d], [..., k]
        summaries = self.summary_norm(self.words.output(found))
        s = self.sentences(self.sentences_norm(states), summaries, there)
        branch = self.feed_forward_residual
        s = branch.leave(s, self.feed_forward(branch.enter(s), context))
        gate = self.opening(self.gate(torch.cat((x, s), dim=-1)))
        # Not `lerp`: under autocast x may be of another precision, where a norm gave it.
        joined = x + gate * s if self.norm is None else self.norm(x + gate * (s - x))
        return torch.where(there.any(-1, keepdim=True), joined, x)


class SentenceAttention(nn.Module):
    """Attention of each position to its own k summaries, those of sentences that are missing left out.

    Not an `Attention`: it looks at no other position, so it has no scope and needs no cache.
    """

    def __init__(self, width: int, heads: int, attention_width: int = 0) -> None:
        """attention_width: of all heads together where `width` is no multiple of their number."""
        super().__init__()
        self.heads = heads
        inner = width if width % heads == 0 else attention_width
        self.query, self.key, self.value = (nn.Linear(width, inner) for _ in range(3))
        self.output = nn.Linear(inner, width)
        for projection in (self.query, self.key, self.value, self.output):
            nn.init.xavier_uniform_(projection.weight)
        nn.init.zeros_(self.output.bias)

    def forward(self, x: Tensor, summaries: Tensor, there: Tensor) -> Tensor:
        """x [..., d], summaries [..., k, d], there [..., k] bool -> [..., d]; finite where no summary is there."""
        values = self._split(self.value(summaries))  # [..., H, k, d / H]
        weights = self.weights(x, summaries, there).to(values.dtype)
        output: Tensor = self.output((weights[..., None, :] @ values).flatten(-3))
        return output

    def weights(self, x: Tensor, summaries: Tensor, there: Tensor) -> Tensor:
        """How much each position looks at each of its summaries: [..., H, k]."""
        query = self.query(x).unflatten(-1, (self.heads, -1))[..., None, :]  # [..., H, 1, d / H]
        keys = self._split(self.key(summaries))  # [..., H, k, d / H]
        scores = (query @ keys.transpose(-1, -2))[..., 0, :] * query.shape[-1] ** -0.5  # [..., H, k]
        seen = there | ~there.any(-1, keepdim=True)  # a softmax over nothing has no numbers
        return scores.masked_fill(~seen[..., None, :], -torch.inf).softmax(-1)

    def _split(self, x: Tensor) -> Tensor:
        """[..., k, d] -> [..., H, k, d / H]"""
        return x.unflatten(-1, (self.heads, -1)).transpose(-2, -3)


class Bilstm(nn.Module):
    """Each segment read in both directions by an LSTM of d units each (Hochreiter and Schmidhuber 1997)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(width, width, bidirectional=True)

    def forward(self, x: Tensor, segments: Spans) -> Tensor:
        """x [T, d], segments laid end to end -> [T, 2 d]: forward states, then backward states."""
        parts = [part for part in wide(x).split(segments.lengths.tolist()) if len(part)]
        with torch.autocast(x.device.type, enabled=False):
            found, _ = self.lstm(pack_sequence(parts, enforce_sorted=False))
        return torch.cat(unpack_sequence(found)).to(x.dtype)
