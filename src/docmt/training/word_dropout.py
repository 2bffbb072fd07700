"""Hiding words from the model so that it must use their context."""

from __future__ import annotations

import torch
from torch import Tensor

from docmt.text import SpecialTokens


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
