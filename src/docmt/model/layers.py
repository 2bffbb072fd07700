"""The layer, and further blocks of systems: hops, sentence encoders, hierarchical attention, a bidirectional LSTM."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_sequence, unpack_sequence

from docmt.model.attention import Attention, Gate, GateSigmoid
from docmt.model.contexts import AttentionContext, FullContext, Memory
from docmt.model.embeddings import Embeddings
from docmt.model.kernels import upcast
from docmt.model.spans import Packed, Spans


class Layer(nn.Module):
    """Blocks such as self-attention, cross-attention and feed-forward, each in its residual branch.

    A block is called with (states, context). Its branch prepares the input of the block and adds its output.
    """

    def __init__(self, blocks: Mapping[str, tuple[nn.Module, Residual]]) -> None:
        """blocks: by name; block `x` becomes the attribute `x`, and its branch `x_residual`."""
        super().__init__()
        self.order: list[tuple[str, str]] = []
        for name, (block, branch) in blocks.items():
            self.insert(name, block, branch)

    @property
    def blocks(self) -> dict[str, tuple[nn.Module, Residual]]:
        """The blocks with their branches, by name."""
        return {name: (self._modules[name], self._modules[branch]) for name, branch in self.order}  # type: ignore[misc]

    def insert(self, name: str, block: nn.Module, branch: Residual, after: str = "") -> Layer:
        """Insert a block after the named one, or at the end. Returns the layer."""
        names = [block_name for block_name, _ in self.order]
        if after and after not in names:
            raise ValueError(f"the layer has no block {after!r}: insert {name!r} after one of {names}")
        index = names.index(after) + 1 if after else len(names)
        self.order.insert(index, (name, f"{name}_residual"))
        self.add_module(name, block)
        self.add_module(f"{name}_residual", branch)
        return self

    def forward(self, x: Tensor, context: AttentionContext) -> Tensor:
        """x [..., d] -> [..., d]"""
        for block, branch in self.blocks.values():
            x = branch.add_output(x, block(branch.prepare_input(x), context))
        return x

    def iterate_blocks(self, x: Tensor, context: AttentionContext) -> Iterator[tuple[str, Tensor]]:
        """Yield each block's name, and the states [..., d] after its branch."""
        for name, (block, branch) in self.blocks.items():
            x = branch.add_output(x, block(branch.prepare_input(x), context))
            yield name, x


class Residual(nn.Module):
    """Residual branch around a block f: norm(x + dropout(f(x))), or with pre-norm x + dropout(f(norm(x))).

    Without a norm: x + dropout(f(x)).
    """

    def __init__(self, norm: nn.Module | None, dropout: float, pre_norm: bool) -> None:
        super().__init__()
        self.norm = norm
        self.dropout = Dropout(dropout)
        self.pre_norm = pre_norm

    def prepare_input(self, x: Tensor) -> Tensor:
        """Return the input of the block."""
        normed: Tensor = self.norm(x) if self.pre_norm and self.norm is not None else x
        return normed

    def add_output(self, x: Tensor, output: Tensor) -> Tensor:
        """Add the block's output to the input x of the branch."""
        total = self.join(x, output)
        normed: Tensor = total if self.pre_norm or self.norm is None else self.norm(total)
        return normed

    def join(self, x: Tensor, output: Tensor) -> Tensor:
        """Join the input and the output, before the norm."""
        return x + self.dropout(output)


class GatedResidual(Residual):
    """Residual branch around context attention, with a gate lam = sigmoid(W x + U y) in [0, 1]^d.

    Published (Zhang et al. 2018, section 3.3, and their code): norm(lam * x + (1 - lam) * y). Additive:
    x + (1 - lam) * y. Without a norm, the latter is the identity as long as y is zero.
    """

    def __init__(self, norm: nn.Module | None, width: int, pre_norm: bool, additive: bool) -> None:
        super().__init__(norm, 0.0, pre_norm)
        self.additive = additive
        self.gate_input = nn.Linear(width, width, bias=False)
        self.gate_context = nn.Linear(width, width, bias=False)
        self.opening = GateSigmoid("input")
        for projection in (self.gate_input, self.gate_context):
            nn.init.xavier_uniform_(projection.weight)

    def join(self, x: Tensor, output: Tensor) -> Tensor:
        """Join the input and the output by the gate, before the norm."""
        gate = self.opening(self.gate_input(x) + self.gate_context(output))
        # Not `lerp`: under autocast, x from a norm may have another precision.
        return x + (1 - gate) * output if self.additive else output + gate * (x - output)


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "silu": F.silu,
}
GATED_PREFIX = "gated_"
"""Prefix of gated activations: their output is multiplied by a third product (Shazeer 2020)."""


class FeedForward(nn.Module):
    """W2 f(W1 x + b1) + b2, or gated W2 (f(W1 x + b1) * (W3 x + b3)) + b2, element by element."""

    def __init__(self, width: int, inner: int, activation: str, biases: bool = True) -> None:
        super().__init__()
        self.activation = ACTIVATIONS[activation.removeprefix(GATED_PREFIX)]
        self.inner = nn.Linear(width, inner, bias=biases)
        self.factor = nn.Linear(width, inner, bias=biases) if activation.startswith(GATED_PREFIX) else None
        self.outer = nn.Linear(inner, width, bias=biases)

    def forward(self, x: Tensor, context: AttentionContext) -> Tensor:
        """x [..., d] -> [..., d]; the context is unused."""
        states = self.activation(self.inner(x))
        output: Tensor = self.outer(states if self.factor is None else states * self.factor(x))
        return output


def run_layers(layers: Iterable[nn.Module], x: Tensor, context: AttentionContext) -> Tensor:
    """Run x [..., d] through a stack of layers."""
    for layer in layers:
        x = layer(x, context)
    return x


class Dropout(nn.Module):
    """Dropout with 16 random bits per element on CPU.

    The generator is the bottleneck there, and this needs a quarter of its calls (4 times faster). The rate is rounded
    to 1/65536.
    """

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
        num_dropped = round(rate * 65536)
        words = torch.empty((x.numel() + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
        is_kept = (words.view(torch.int16)[: x.numel()] >= num_dropped - 32768).view(x.shape)
        factors = is_kept.to(x.dtype).mul_(65536 / (65536 - num_dropped))
        ctx.save_for_backward(factors)
        return x * factors

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        (factors,) = ctx.saved_tensors
        return gradients[0] * factors, None


class Hops(nn.Module):
    """Successive attentions to single sentences. Each adds its output to the queries of the next (Multi-Hop).

    The outputs have no bias, so a missing sentence adds nothing.
    """

    def __init__(self, hops: Sequence[Attention]) -> None:
        super().__init__()
        self.hops = nn.ModuleList(hops)

    def forward(self, x: Tensor, context: AttentionContext) -> Tensor:
        """x [..., d] -> the sum of all hops, [..., d]"""
        first, *following = self.hops
        total: Tensor = first(x, context)
        for hop in following:
            total = total + hop(x + total, context)
        return total


class HierarchicalAttention(nn.Module):
    """Attention to each of n sentences, then to the n outputs (after Miculicich et al. 2018), as a block of a layer.

    Attentions to sentences have no output bias. So the output of a missing sentence is zero, by which it is hidden.
    """

    def __init__(self, words: Sequence[Attention], sentences: SentenceAttention) -> None:
        """words: one for each sentence, oldest first; sentences: attention to their outputs."""
        super().__init__()
        self.words, self.sentences = nn.ModuleList(words), sentences

    def forward(self, x: Tensor, context: AttentionContext) -> Tensor:
        """x [..., d] -> [..., d], zero without any sentence"""
        summaries = torch.stack([attention(x, context) for attention in self.words], dim=-2)  # [..., n, d]
        exists = summaries.detach().any(-1)  # [..., n]
        output: Tensor = self.sentences(x, summaries, exists)
        return output * exists.any(-1, keepdim=True)


class SentenceEncoder(nn.Module):
    """Encoder of single sentences whose memory has the states of every layer."""

    def __init__(
        self,
        layers: Sequence[Layer],
        memory_block: str,
        norms: Sequence[nn.Module],
        embeddings: Embeddings | None,
        frozen: bool,
    ) -> None:
        """memory_block: the block of each layer whose output becomes the memory; norms: for the states of each layer,
        or none; embeddings: separate ones for the text, or None for those of the source; frozen: not trained."""
        super().__init__()
        self.layers, self.norms = nn.ModuleList(layers), nn.ModuleList(norms)
        self.embeddings = embeddings
        self.memory_block, self.frozen = memory_block, frozen
        self.requires_grad_(not frozen)

    def forward(self, x: Tensor, text: Packed) -> Memory:
        """Embedded text [T, d] -> a memory with the states [T, d] after the memory block of each layer."""
        x = x.detach() if self.frozen else x
        context, states = FullContext(text), []
        for layer in self.layers:
            assert isinstance(layer, Layer)
            for block, output in layer.iterate_blocks(x, context):
                x = output
                if block == self.memory_block:
                    states.append(x)
        if self.norms:
            states = [norm(state) for norm, state in zip(self.norms, states, strict=True)]
        return Memory(states[-1], text.sentences, text.documents, states)


def zero_projections(*projections: nn.Module) -> None:
    """Set weights and biases to zero, so that a new block starts without effect."""
    for weights in (weights for projection in projections for weights in projection.parameters()):
        nn.init.zeros_(weights)


class Hierarchy(nn.Module):
    """Hierarchical attention above a stack, from each state to the n preceding sentences (Miculicich et al. 2018).

    s_j is the attention of LN(x) to the states of sentence j, with one attention for all j. s is the attention of
    LN'(x) to LN(s_1) .. LN(s_n), followed by a feed-forward block. g = sigmoid(W [x; s] + b). Published: LN((1 - g) x +
    g s). Identity: x + g s without a norm, where both output projections start at zero. Then a new model equals the
    sentence model bit for bit.

    Without a preceding sentence x is unchanged. (There the published code takes the mean over all positions of the
    first sentence of the batch, later target words included.) Missing sentences are hidden.
    """

    def __init__(
        self,
        words: Attention,
        sentences: SentenceAttention,
        feed_forward: FeedForward,
        norms: Sequence[nn.Module],
        last_norm: nn.Module | None,
        *,
        dropout: float,
        detach: bool,
    ) -> None:
        """words: attention to the words of the n = `scope.offset` preceding sentences; sentences: to their summaries;
        norms: of the queries of both, of the summaries, and of the feed-forward block; last_norm: None for identity;
        detach: no gradient reaches the states through queries and keys, but through x alone, as published."""
        super().__init__()
        self.detach = detach
        self.words_norm, self.sentences_norm, self.summary_norm, feed_forward_norm = norms
        self.words, self.sentences, self.feed_forward = words, sentences, feed_forward
        self.feed_forward_residual = Residual(feed_forward_norm, dropout, pre_norm=True)
        width = sentences.output.out_features
        self.gate = nn.Linear(2 * width, width)
        self.opening = GateSigmoid("context")
        nn.init.xavier_uniform_(self.gate.weight)
        nn.init.zeros_(self.gate.bias)
        self.norm = last_norm
        if last_norm is None:
            zero_projections(sentences.output, feed_forward.outer)

    def forward(self, x: Tensor, context: AttentionContext) -> Tensor:
        """x [..., d] -> [..., d]"""
        states = x.detach() if self.detach else x
        exists = context.find(self.words, states).exists  # [..., n]
        assert exists is not None
        summaries = self.summary_norm(self.words(self.words_norm(states), context, states))  # [..., n, d]
        s = self.sentences(self.sentences_norm(states), summaries, exists)
        branch = self.feed_forward_residual
        s = branch.add_output(s, self.feed_forward(branch.prepare_input(s), context))
        gate = self.opening(self.gate(torch.cat((x, s), dim=-1)))
        # Not `lerp`: under autocast, x from a norm may have another precision.
        joined = x + gate * s if self.norm is None else self.norm(x + gate * (s - x))
        return torch.where(exists.any(-1, keepdim=True), joined, x)


class DocumentLayer(nn.Module):
    """Layer of attention to the document above sentence states x, joined with them by a gate (Zheng et al. 2020).

    With y = layer(x), in pre-norm branches: g x + (1 - g) y, followed by a norm if published. As x + (1 - g) (y - x),
    it is x bit for bit while the outputs of the layer are zero. The gate reads x and y - x, a reparametrisation.
    """

    def __init__(self, layer: Layer, gate: Gate, norm: nn.Module | None) -> None:
        """layer: has pre-norm branches; norm: follows the gate. Without one, the outputs of the blocks start at
        zero."""
        super().__init__()
        self.layer, self.gate, self.norm = layer, gate, norm
        if norm is None:
            zero_projections(layer.get_submodule("attention.output"), layer.get_submodule("feed_forward.outer"))

    def forward(self, x: Tensor, context: AttentionContext) -> Tensor:
        """x [..., d] -> [..., d]"""
        joined: Tensor = self.gate(x, self.layer(x, context) - x)
        return joined if self.norm is None else self.norm(joined)


class SentenceAttention(nn.Module):
    """Attention of each position to its n sentence summaries, without those of missing sentences.

    It reads no other position, so it has no scope and needs no cache, and is no `Attention`.
    """

    def __init__(self, width: int, heads: int, attention_width: int = 0, memory: str = "self") -> None:
        """attention_width: of all heads together, if `width` is not a multiple of `heads`; memory: that is summarized
        (`AttentionScope.memory`)."""
        super().__init__()
        self.heads, self.memory = heads, memory
        inner = width if width % heads == 0 else attention_width
        self.query, self.key, self.value = (nn.Linear(width, inner) for _ in range(3))
        self.output = nn.Linear(inner, width)
        for projection in (self.query, self.key, self.value, self.output):
            nn.init.xavier_uniform_(projection.weight)
        nn.init.zeros_(self.output.bias)

    def forward(self, x: Tensor, summaries: Tensor, exists: Tensor) -> Tensor:
        """x [..., d], summaries [..., n, d], exists [..., n] bool -> [..., d], finite even without summaries."""
        values = self._split(self.value(summaries))  # [..., H, n, d / H]
        weights = self.attention_weights(x, summaries, exists).to(values.dtype)
        output: Tensor = self.output((weights[..., None, :] @ values).flatten(-3))
        return output

    def attention_weights(self, x: Tensor, summaries: Tensor, exists: Tensor) -> Tensor:
        """Return the attention weights of each position for its summaries: [..., H, n]."""
        query = self.query(x).unflatten(-1, (self.heads, -1))[..., None, :]  # [..., H, 1, d / H]
        keys = self._split(self.key(summaries))  # [..., H, n, d / H]
        scores = (query @ keys.transpose(-1, -2))[..., 0, :] * query.shape[-1] ** -0.5  # [..., H, n]
        visible = exists | ~exists.any(-1, keepdim=True)  # a softmax over no key is NaN
        return scores.masked_fill(~visible[..., None, :], -torch.inf).softmax(-1)

    def _split(self, x: Tensor) -> Tensor:
        """[..., n, d] -> [..., H, n, d / H]"""
        return x.unflatten(-1, (self.heads, -1)).transpose(-2, -3)


class Bilstm(nn.Module):
    """Bidirectional LSTM over each segment, with d units per direction (Hochreiter and Schmidhuber 1997)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(width, width, bidirectional=True)

    def forward(self, x: Tensor, segments: Spans) -> Tensor:
        """x [T, d], segments laid end to end -> [T, 2 d]: forward states, then backward states."""
        parts = [part for part in upcast(x).split(segments.lengths.tolist()) if len(part)]
        with torch.autocast(x.device.type, enabled=False):
            output, _ = self.lstm(pack_sequence(parts, enforce_sorted=False))
        return torch.cat(unpack_sequence(output)).to(x.dtype)
