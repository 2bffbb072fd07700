"""Multi-head attention, and gates that join two attentions.

Notation: T packed tokens, H heads, d model width, k = d / H.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from docmt.model.contexts import AttentionContext, VisibleStates
from docmt.model.embeddings import DistanceBiases, SentenceRelation, Stack
from docmt.model.scope import AttentionScope


class Attention(nn.Module):
    """Multi-head attention over the states of a scope (Vaswani et al. 2017, section 3.2.2)."""

    def __init__(
        self,
        stack: Stack,
        scope: AttentionScope,
        memory_width: int | None = None,
        *,
        heads: int = 0,
        output_bias: bool = True,
        relation: SentenceRelation | None = None,
    ) -> None:
        """stack: that computes the output; memory_width: width of the visible states, if not its own; heads: how many
        of usual width (0: as in the model); output_bias: without it, an attention that sees nothing gives zero;
        relation: what it knows of the distance in sentences."""
        super().__init__()
        config, biases = stack.config, stack.family.biases
        self.heads, self.scope, self.dropout = heads or config.heads, scope, config.attention_dropout
        width, self.head_width = config.width, stack.head_width
        inner = self.heads * self.head_width
        self.query = nn.Linear(width, inner, bias=biases)
        self.key = nn.Linear(memory_width or width, inner, bias=biases)
        self.value = nn.Linear(memory_width or width, inner, bias=biases)
        self.output = nn.Linear(inner, width, bias=biases and output_bias)
        self.joint: nn.Module | None = None
        self.query_scale = 1.0 if stack.family.scaled else self.head_width**0.5
        # Distances to another sequence or sentence are undefined.
        has_distances = scope.memory == "self" and not scope.sees_each_preceding
        # In a tuple, so that it is no submodule: its weights are those of the model.
        self._distances = (stack.distances.get(scope.causal) if has_distances else None,)
        self.relation = relation
        for projection in (self.query, self.key, self.value):
            nn.init.xavier_uniform_(projection.weight, gain=2**-0.5)
        nn.init.xavier_uniform_(self.output.weight)
        if self.output.bias is not None:
            nn.init.zeros_(self.output.bias)

    @property
    def distances(self) -> DistanceBiases | None:
        """Biases of scores by distance, shared by all attentions of a stack."""
        return self._distances[0]

    def forward(self, x: Tensor, context: AttentionContext, states: Tensor | None = None) -> Tensor:
        """x [..., d] -> [..., d], or [..., n, d] for each of n preceding sentences.

        states [..., d]: of the sequence, if not x.
        """
        visible = context.find(self, x if states is None else states)
        query, key, value = self.project(x, visible)
        dropout = self.dropout if self.training else 0.0
        # softmax(Q K^T / sqrt(k)) V over the visible keys, as `kernels.attend_reference` defines it
        attended = visible.attend(query, key, value, dropout=dropout, distances=self.distances)
        if self.relation is not None:
            attended = self.relation.read_output(attended, visible.describe_sentences(self.relation)[0])
        return self.output(attended.flatten(-2))

    def project(self, x: Tensor, visible: VisibleStates) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Project x [..., d] to queries, and the visible states to keys and values (None: stored already).

        Each is [..., H, k]. Kernels divide scores by sqrt(k).
        """
        key = value = None
        if self.joint is not None:
            query, key, value = self.joint(x).unflatten(-1, (3, self.heads, -1)).unbind(-3)
        else:
            query = self.split_heads(self.query(x))
            if visible.memory is not None:
                key, value = self.project_memory(visible.memory)
        if self.query_scale != 1.0:
            query = query * self.query_scale
        if self.relation is not None:
            queries, keys = visible.describe_sentences(self.relation)
            query = self.relation.change_query(query, queries)
            if key is not None and value is not None:
                key, value = self.relation.change_pair(key, value, keys)
        return query, key, value

    def project_memory(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Project memory [..., d] to keys and values [..., H, k]."""
        return self.split_heads(self.key(memory)), self.split_heads(self.value(memory))

    def split_heads(self, x: Tensor) -> Tensor:
        """[..., H k] -> [..., H, k]"""
        return x.view(*x.shape[:-1], self.heads, x.shape[-1] // self.heads)  # x may be empty

    def join_projections(self) -> None:
        """Join the three projections of self-attention into one: fewer, larger products."""
        if self.scope.memory != "self" or self.scope.sees_each_preceding:
            return
        projections = (self.query, self.key, self.value)
        weights = torch.cat([projection.weight.detach() for projection in projections])
        has_bias = self.query.bias is not None
        self.joint = nn.Linear(weights.shape[1], weights.shape[0], bias=has_bias, device="meta")
        self.joint.weight = nn.Parameter(weights)
        if has_bias:
            self.joint.bias = nn.Parameter(torch.cat([projection.bias.detach() for projection in projections]))
        del self.query, self.key, self.value  # frees their weights


class GateSigmoid(nn.Module):
    """Elementwise sigmoid of a gate that weights an input and its context."""

    def __init__(self, passes: Literal["input", "context"]) -> None:
        """passes: what an open gate (1) lets through."""
        super().__init__()
        self.passes = passes

    def forward(self, x: Tensor) -> Tensor:
        """x [..., d] -> [..., d]"""
        return torch.sigmoid(x)

    def context_share(self, opening: Tensor) -> Tensor:
        """Return the weight of the context for an output of `forward`."""
        return opening if self.passes == "context" else 1 - opening


class Gate(nn.Module):
    """g = sigmoid(W [local; global] + b); g * local + (1 - g) * global, element by element (Bao et al. 2021, 3.3).

    Additive: local + (1 - g) * global. It equals local as long as global is zero.
    """

    def __init__(self, width: int, bias: float = 0.0, *, additive: bool = False) -> None:
        """bias: initial bias. At 3, the weight of the attention over the document is 5 %."""
        super().__init__()
        self.additive = additive
        self.linear = nn.Linear(2 * width, width)
        self.opening = GateSigmoid("input")
        nn.init.xavier_uniform_(self.linear.weight)
        nn.init.constant_(self.linear.bias, bias)

    def forward(self, local: Tensor, global_: Tensor) -> Tensor:
        """local, global_ [..., d] -> [..., d]"""
        gate = self.opening(self.linear(torch.cat((local, global_), dim=-1)))
        return torch.addcmul(local, 1 - gate, global_) if self.additive else torch.lerp(global_, local, gate)


class GroupAttention(nn.Module):
    """Attention within sentences (`local`), over the document (`global`), or both: by a gate, or weighted equally."""

    def __init__(
        self, local: Attention | None, global_: Attention | None = None, gate: Gate | None = None, weight: float = 1.0
    ) -> None:
        """weight: of each attention, without a gate."""
        super().__init__()
        self.local = local
        self.add_module("global", global_)
        self.gate, self.weight = gate, weight

    @property
    def global_(self) -> Attention | None:
        """The attention over the document, called `global` in the names of weights. That is a keyword of Python."""
        return self._modules["global"]  # type: ignore[return-value]

    def forward(self, x: Tensor, context: AttentionContext) -> Tensor:
        """x [..., d] -> [..., d]"""
        outputs: list[Tensor] = [module(x, context) for module in (self.local, self.global_) if module is not None]
        if self.gate is not None:
            return self.gate(*outputs)
        total = outputs[0] if len(outputs) == 1 else outputs[0] + outputs[1]
        return total if self.weight == 1.0 else self.weight * total
