"""Hierarchical attention to the sentences before: first to the words of each, then to these sentences.

Miculicich et al. (2018), section 3. Notation: k sentences before, d model width, H heads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from docmt.model.gates import Opening
from docmt.model.layers import Residual

if TYPE_CHECKING:
    from docmt.model.parts import Parts
    from docmt.model.sight import Sight
    from docmt.model.view import View


class Hierarchy(nn.Module):
    """What stands above a stack: states in, states with what they find in the k sentences before out.

    s_j is the attention of LN(x) to the states of sentence j, one attention for all; s is the attention of LN'(x) to
    LN(s_1) .. LN(s_k), with a feed-forward block behind it; l = sigmoid(W [x; s] + b). Published: LN((1 - l) x + l s).
    Exact: x + l s with s = 0 at the start, as the projection of the second attention and that of the feed-forward
    block begin at zero, and no norm, which would change x: so a new model is the sentence model, bit for bit.

    Where there is no sentence before, x stays as it is. (The published code takes the mean over all positions of the
    first sentence of the batch there, later target words included.) Sentences that are missing are not seen.
    """

    def __init__(self, parts: Parts, sight: Sight, *, exact: bool, detach: bool) -> None:
        """sight: of the sentences before, `sight.back` of them; detach: no gradient reaches the states through what
        attention asks and sees, but through x alone, as published."""
        super().__init__()
        sizes = parts.sizes
        self.detach = detach
        self.words_norm, self.sentences_norm, self.summary_norm = (parts.norm() for _ in range(3))
        self.words = parts.attention(sight)
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

    def forward(self, x: Tensor, view: View) -> Tensor:
        """x [..., d] -> [..., d]"""
        states = x.detach() if self.detach else x
        found, there = view.attend_before(self.words, self.words_norm(states), states)  # [..., k, d], [..., k]
        summaries = self.summary_norm(self.words.output(found))
        s = self.sentences(self.sentences_norm(states), summaries, there)
        branch = self.feed_forward_residual
        s = branch.leave(s, self.feed_forward(branch.enter(s), view))
        gate = self.opening(self.gate(torch.cat((x, s), dim=-1)))
        # Not `lerp`: under autocast x may be of another precision, where a norm gave it.
        joined = x + gate * s if self.norm is None else self.norm(x + gate * (s - x))
        return torch.where(there.any(-1, keepdim=True), joined, x)


class SentenceAttention(nn.Module):
    """Attention of each position to its own k summaries, those of sentences that are missing left out.

    Not an `Attention`: it looks at no other position, so it has no sight and needs no cache.
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
