"""Label-smoothed cross entropy, computed together with the output projection; and word dropout.

The logits [T, V] of a batch are by far its largest tensor. They are never held as a whole here: a chunk of tokens at
a time is projected, turned into its loss, and at once into the gradients of states and embedding (the idea of fused
linear cross-entropy kernels, e.g. Hsu et al. 2024, "Liger Kernel"). The softmax, always in float32, takes a few rows of
a chunk at a time, which stay in the processor's cache; gradients of the embedding are added up chunk by chunk, which
costs as much as the embedding is large, so chunks are no smaller than they must. Speeds are in
docs/contributing/decisions/0012-chunked-loss.md.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from docmt.model import TranslationModel
from docmt.text import SpecialTokens

_CHUNK_BYTES = 2**26  # of logits that are held at a time, but at least
_CHUNK = 512  # tokens
_IN_CACHE = 2**20  # logits that the softmax takes at a time, on CPU
_ROWS = 2**16  # of the vocabulary: of larger ones no second gradient is held as a whole


def smoothed_cross_entropy(
    states: Tensor, embedding: Tensor, labels: Tensor, smoothing: float, bias: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Summed label-smoothed loss and summed negative log-likelihood, in nats; only the first has gradients.

    states [T, d], embedding [V, d] (logits are their products, plus a bias [V], which gets no gradient), labels [T].
    The loss of a token is
    (1 - e) * nll + e / V * sum over the whole vocabulary of -log p (Szegedy et al. 2016, section 7).
    Under autocast the products are computed in its dtype, the softmax always in float32.
    """
    device = states.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else states.dtype
    with torch.autocast(device, enabled=False):
        train = torch.is_grad_enabled()
        loss, nll = _ProjectedCrossEntropy.apply(states, embedding, labels, smoothing, dtype, train, bias)  # type: ignore[no-untyped-call]
    return loss, nll


def batch_loss(model: TranslationModel, states: Tensor, labels: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
    """`smoothed_cross_entropy` of decoder states [n, d] with the head of their model; the vocabulary is what it has."""
    head = model.head()
    states = states if head.scale == 1.0 else states * head.scale
    labels = labels - head.first if head.first else labels
    return smoothed_cross_entropy(states, head.weight, labels, smoothing, head.bias)


class _ProjectedCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        states: Tensor,
        embedding: Tensor,
        labels: Tensor,
        smoothing: float,
        dtype: torch.dtype,
        train: bool,
        bias: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        states_needed, embedding_needed = (train and needed for needed in ctx.needs_input_grad[:2])
        states_grad = torch.empty(states.shape, device=states.device) if states_needed else None
        embedding_grad = torch.zeros(embedding.shape, device=states.device) if embedding_needed else None
        x, e = states.to(dtype), embedding.to(dtype)
        mean_embedding = e.float().mean(dim=0)  # [d]; its product with a state is the mean of the state's logits
        mean_bias = 0.0 if bias is None else bias.float().mean()
        nll = torch.zeros((), dtype=torch.float64, device=states.device)
        uniform = torch.zeros_like(nll)  # sum of -log p averaged over the vocabulary
        count = max(_CHUNK, _CHUNK_BYTES // (len(e) * e.element_size()))
        for start in range(0, len(x), count):
            chunk = x[start : start + count]  # [c, d]
            gold = labels[start : start + count, None]  # [c, 1]
            logits = chunk @ e.t()  # [c, V]
            parts = max(1, _IN_CACHE // len(e)) if logits.device.type == "cpu" else len(logits)
            for own, own_gold, own_x in zip(logits.split(parts), gold.split(parts), chunk.split(parts), strict=True):
                p = own.float()
                if bias is not None:
                    p += bias
                gold_logits = p.gather(1, own_gold)
                highest = p.amax(dim=1, keepdim=True)
                p.sub_(highest).exp_()
                normalizer = p.sum(dim=1, keepdim=True)
                log_normalizer = normalizer.log() + highest  # [r, 1]
                nll += (log_normalizer - gold_logits).sum()
                uniform += (log_normalizer[:, 0] - own_x.float() @ mean_embedding - mean_bias).sum()
                p.div_(normalizer).scatter_add_(1, own_gold, torch.full_like(highest, smoothing - 1))
                own.copy_(p)
            if states_grad is not None:
                states_grad[start : start + count] = logits @ e
            if embedding_grad is not None:
                for row in range(0, len(e), _ROWS):
                    embedding_grad[row : row + _ROWS] += logits[:, row : row + _ROWS].t() @ chunk
        # The uniform part of the target is the same for every token and word: two vectors instead of [T, V].
        if states_grad is not None:
            states_grad.sub_(smoothing * mean_embedding)
        if embedding_grad is not None:
            embedding_grad.sub_(smoothing / len(e) * x.float().sum(dim=0))
        ctx.save_for_backward(states_grad, embedding_grad)
        ctx.dtypes = states.dtype, embedding.dtype
        loss = (1 - smoothing) * nll + smoothing * uniform
        loss, nll = loss.float(), nll.float()
        ctx.mark_non_differentiable(nll)
        return loss, nll

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        found = zip(ctx.saved_tensors, ctx.dtypes, strict=True)
        # In place: of a large vocabulary each copy counts. A second backward pass would be told by torch.
        scaled = [None if each is None else each.mul_(gradients[0]).to(dtype) for each, dtype in found]
        return *scaled, *[None] * 5


def drop_words(tokens: Tensor, rate: float, specials: SpecialTokens, inside: Tensor | None = None) -> Tensor:
    """tokens [T] with each word replaced by <mask> with probability `rate`, from torch's global generator.

    Marks (and all that is not `inside`, [n] places), <unk>, <eod> and <mask> stay (Bao et al. 2021, section 4.1 and
    published code). Source and decoder input are dropped by calls of their own; labels never are.
    """
    if rate == 0:
        return tokens
    words = (tokens >= specials.first_word) & (tokens < specials.eod)
    if inside is not None:
        words &= torch.zeros_like(words).index_fill_(0, inside.to(words.device), True)
    dropped = torch.rand(tokens.shape, device=tokens.device) < rate
    return tokens.masked_fill(words & dropped, specials.mask)


def rate_in_epoch(rate: float, epochs: int, epoch: int) -> float:
    """`rate` in the first `epochs` epochs (counted from 0), then exactly 0: a step, not a ramp."""
    return rate if epoch < epochs else 0.0
