"""Two faults of the RFA authors' code, with which the numbers of its whole batches and of its training were computed.

They make results depend on the padding of a batch, so docmt has neither; the tests put them in to compare the rest. The
last gate of a row is applied once more for each separator that the row has less than the longest one; and the largest
weight of the keys of a row is that of its padding, where that is larger.
"""

import math

import torch

from docmt.model import linear_attention
from docmt.model.contexts import FullContext, PackedStates
from docmt.model.kernels import AttentionPattern
from docmt.model.linear_attention import LinearAttention
from docmt.model.linear_kernels import GateDecay, compute_states, read_states
from docmt.model.spans import Spans


class FaultyFading:
    """`GateDecay.from_gates` for rows of which some have fewer separators."""

    @staticmethod
    def from_gates(gates, sentences, documents, averaging=False):
        decay = GateDecay.from_gates(gates, sentences, documents, averaging)
        row = documents.find_segments(sentences.starts)
        separators = torch.bincount(row) - 1
        missing = separators.max() - separators
        last = row != torch.cat((row[1:], torch.tensor([-1])))
        more = torch.zeros(len(sentences), gates.shape[1], dtype=decay.log_decay.dtype)
        for index in last.nonzero().flatten().tolist():
            if separators[row[index]] > 0:
                more[index] = missing[row[index]] * torch.nn.functional.logsigmoid(gates[index - 1].double())
        return GateDecay(decay.log_decay + more.repeat_interleave(sentences.lengths, dim=0), decay.input_weights)


class _OfPadding:
    """The view of one padding token a row: it sees the tokens of the row, as they come into the layer."""

    def __init__(self, states, rows):
        self.states, self.pattern = states, AttentionPattern(Spans.tile([1] * len(rows)), rows, False, len(states))

    def find(self, attention, x):
        return PackedStates(self.states, self.pattern)


@torch.no_grad()
def states_of_padding(model, source):
    """[B, d] what the encoder makes of padding: it has no position, and no token sees it."""
    x = model.embed("source", source)
    padding = math.sqrt(model.config.width) * model.source_tokens.weight[1].expand(len(source.documents), -1)
    for layer in model.encoder:
        padding, x = layer(padding, _OfPadding(x, source.documents)), layer(x, FullContext(source))
    return padding


def add_faults(monkeypatch, model, source):
    """Puts both into all attention of the model, for this source; padded are all rows but the longest."""
    original, padded = LinearAttention.attend_memory, source.documents.lengths < source.documents.lengths.max()

    def attend_memory(self, x, memory, pattern):
        if self.scope.memory == "self" or not self.rescales_keys:
            return original(self, x, memory, pattern)
        key = self.split_heads(self.key(memory))
        min_denominator = self.features.min_denominator
        log_weights = self.key_log_weights(key)
        states = compute_states(key, self.project_values(memory), pattern.keys, self.build_feature_map(), log_weights)
        with torch.no_grad():
            rows = log_weights.split(pattern.keys.lengths.tolist())
            most = torch.stack([row.amax(0) for row in rows])  # [B, H]
            padding = self.features.key_log_weights(self.split_heads(self.key(states_of_padding(model, source))))
            factor = (most - most.maximum(padding.masked_fill(~padded[:, None], -torch.inf))).exp()
        states = (states * factor[..., None, None]).repeat_interleave(pattern.queries.lengths, dim=0)
        return read_states(self.project_query_features(x)[..., None, :], states, min_denominator)[..., 0, :]

    monkeypatch.setattr(LinearAttention, "attend_memory", attend_memory)
    monkeypatch.setattr(linear_attention, "GateDecay", FaultyFading)
