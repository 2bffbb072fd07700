"""What a search reads of logits: normalizers, the best tokens, and tokens that must follow."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from docmt.text import SpecialTokens

_BLOCK_NUMBERS = 2**17
_BLOCK = 64


def log_normalizers(logits: Tensor) -> Tensor:
    """Return the logarithm of the sum of exponentials, in float32: [n, V] -> [n, 1]."""
    return torch.cat([block.logsumexp(-1, keepdim=True) for block in float_blocks(logits)])


def float_blocks(logits: Tensor) -> Iterator[Tensor]:
    """Yield a few rows at a time in float32, so that they stay in the processor's cache."""
    for block in logits.split(max(1, _BLOCK_NUMBERS // logits.shape[1])):
        yield block.float()


def top_tokens(logits: Tensor, count: int, offsets: Tensor) -> Tensor:
    """Return the indices [n, count] of the largest sums of logits and offsets, largest first.

    logits: [n m, V]; offsets: [n, m] float32, added to rows of logits. m rows compete; the index is row * V + id, with
    row < m. Logits are read once: only blocks with the largest maxima can have the best.
    """
    size, width = logits.shape[1], _BLOCK if logits.shape[1] >= 8 * _BLOCK else 1
    blocks = -(-size // width)
    padded = logits if size % width == 0 else F.pad(logits, (0, blocks * width - size), value=-torch.inf)
    padded = padded.view(-1, blocks, width)  # [n m, blocks, width]
    maxima = torch.cat([block.float().amax(-1) for block in padded.split(max(1, _BLOCK_NUMBERS // size))])
    maxima = maxima.view(*offsets.shape, blocks)
    best = _find_largest((maxima + offsets[:, :, None]).flatten(1), count)  # [n, blocks that can have the best]
    if width == 1:
        return best
    rows = torch.arange(len(best), device=best.device)[:, None] * (offsets.shape[1] * blocks)
    candidates = padded.flatten(0, 1).index_select(0, (rows + best).flatten()).view(*best.shape, width).float()
    index = _find_largest((candidates + offsets.gather(1, best // blocks)[:, :, None]).flatten(1), count)
    best = best.gather(1, index // width)
    ids = best % blocks * width + index % width
    ids = ids.where(ids < size, SpecialTokens.pad)  # where fewer are above minus infinity; it never follows
    return best // blocks * size + ids


def _find_largest(x: Tensor, count: int) -> Tensor:
    """Return the indices of the largest values: [n, m] -> [n, min(count, m)]."""
    return x.argmax(-1, keepdim=True) if count == 1 else x.topk(min(count, x.shape[1]), dim=-1).indices


def force_tokens(logits: Tensor, hypotheses: Tensor, tokens: int | Tensor) -> None:
    """Set all logits [R, V] of these hypotheses [n] but those of one token each to minus infinity, in place.

    tokens: one for all hypotheses, or [n].
    """
    forced_logits = logits[hypotheses, tokens]
    logits[hypotheses] = -torch.inf
    logits[hypotheses, tokens] = forced_logits
