"""A bidirectional LSTM over packed segments, one of the context encoders of Zhang et al. (2018)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_sequence, unpack_sequence

from docmt.model.features import wide
from docmt.model.spans import Spans


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
