"""Output cache: words of a document's finished sentences become more likely where the decoder's state is alike.

After Grave et al. (2017, "Improving neural language models with a continuous cache", section 3) and the cache of Tu et
al. (2018), but without training. A slot is a word and its key, the decoder state that predicted it. At the state s, a
slot has the weight a_i = softmax_i(sharpness * cos(s, key_i)). The next token has the probability

    p(w) = (1 - g) p_model(w) + g sum_i a_i [w = word_i].

g is `search.cache_weight`. The temperature holds for p_model alone. Forced tokens stay forced, and tokens that may not
follow are excluded after the mixture. Boundary tokens have no slots, so each keeps (1 - g) p_model.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from docmt.decoding.incremental import log_normalizers
from docmt.decoding.search_config import SearchConfig
from docmt.decoding.translation_results import Hypothesis
from docmt.text import SpecialTokens


class OutputCache(NamedTuple):
    """Slots of one document, in the order of its words."""

    keys: Tensor
    """[K, d] float32, of length 1, so that products are cosines"""
    words: Tensor
    """[K] ids"""


def extend_cache(cache: OutputCache | None, hypothesis: Hypothesis, most: int) -> OutputCache:
    """Return the cache of a document with the words of a further translation; the latest `most` slots stay."""
    keys = torch.cat(hypothesis.word_states)
    words = torch.tensor([word for sentence in hypothesis.sentences for word in sentence], device=keys.device).long()
    if cache is not None:
        keys, words = torch.cat((cache.keys, keys)), torch.cat((cache.words, words))
    return OutputCache(keys[-most:], words[-most:])


def mix_logits(logits: Tensor, attention: Tensor, words: Tensor, weight: float) -> Tensor:
    """Return logits [n, V] of the mixture, float32; attention [n, K]: weights of slots with these words [n, K].

    Words outside of the cache keep their logits to the last bit: all p are divided by (1 - weight), and their sum is
    part of the softmax. Slots of padding have weight 0. Without any other slot, all logits stay.
    """
    logits = logits.float()
    # Slots of one word have one sum, so that each writes the same logit.
    sums = torch.zeros_like(logits).scatter_add_(1, words, attention).gather(1, words)
    cached = sums.log() + log_normalizers(logits) + math.log(weight / (1 - weight))
    return logits.scatter(1, words, torch.logaddexp(logits.gather(1, words), cached))


class CacheReader:
    """Slots that D search rows read, and the states of their R = D * B hypotheses, which may become keys."""

    def __init__(self, caches: Sequence[OutputCache | None], config: SearchConfig) -> None:
        """caches: of the document of each search row; None: it has no finished sentence."""
        self.config = config
        self.queries: list[Tensor] = []  # of each step: [R, d] states, of length 1
        self.parents: list[Tensor] = []  # of each step but the first: [R] the hypotheses that were continued
        self.attention: Tensor | None = None  # [R, K] weights of the slots
        self.slots: tuple[Tensor, ...] | None = None
        """keys [D, K, d], words [D, K], and whether each slot exists [D, K]; None: no search row has slots"""
        filled = [cache for cache in caches if cache is not None]
        if filled:
            empty = OutputCache(*(x[:0] for x in filled[0]))
            keys, words = zip(*(cache or empty for cache in caches), strict=True)
            exists = [torch.ones_like(each, dtype=torch.bool) for each in words]
            self.slots = tuple(pad_sequence(list(each), batch_first=True) for each in (keys, words, exists))

    def read_states(self, states: Sequence[Tensor]) -> None:
        """Read the decoder states [R, d] of each member; the cosine of an ensemble is the mean over its members."""
        query = torch.cat([F.normalize(x.float(), dim=-1) for x in states], dim=-1) / math.sqrt(len(states))
        self.queries.append(query)
        if self.slots is not None:
            keys, _, exists = self.slots
            with torch.autocast(query.device.type, enabled=False):
                cosines = query.view(len(keys), -1, query.shape[1]) @ keys.transpose(1, 2)  # [D, B, K]
            hidden = ~exists[:, None]
            scores = (self.config.cache_sharpness * cosines).masked_fill(hidden, -torch.inf)
            self.attention = scores.softmax(-1).masked_fill(hidden, 0.0).flatten(0, 1)

    def mix(self, logits: Tensor, hypotheses: Tensor | slice) -> Tensor:
        """Return the logits of the mixture for these hypotheses [n]: [n, V] -> [n, V]."""
        if self.slots is None or self.attention is None:
            return logits
        words = self.slots[1].repeat_interleave(len(self.attention) // len(self.slots[1]), 0)
        return mix_logits(logits, self.attention[hypotheses], words[hypotheses], self.config.cache_weight)

    def advance(self, hypotheses: Tensor) -> None:
        """Let hypothesis i continue hypothesis hypotheses[i]."""
        self.parents.append(hypotheses)

    def select_rows(self, hypotheses: Tensor, rows: Tensor) -> None:
        """Keep these search rows (numbered as of now) and their hypotheses only, after `advance`."""
        self.parents[-1] = self.parents[-1][hypotheses]
        if self.slots is not None:
            self.slots = tuple(x[rows] for x in self.slots)

    def trace_states(self, hypotheses: Tensor) -> Tensor:
        """Return the states of all steps of these hypotheses [n], before `advance`: [n, steps, d]."""
        states = [self.queries[-1][hypotheses]]
        for queries, parents in zip(self.queries[-2::-1], self.parents[::-1], strict=True):
            hypotheses = parents[hypotheses]
            states.append(queries[hypotheses])
        return torch.stack(states[::-1], dim=1)


def split_states(
    states: Tensor, tokens: Sequence[int], sentences: Sequence[Sequence[int]], specials: SpecialTokens
) -> list[Tensor]:
    """Split states [n, d], those of the last n tokens, by sentence, without those of boundary tokens.

    States of the words before, which were read in one pass, are 0.
    """
    boundaries = (specials.bos, specials.eos, specials.eod, specials.pad)
    words = [number for number, token in enumerate(tokens[-len(states) :]) if token not in boundaries]
    lengths = list(map(len, sentences))
    return list(F.pad(states[words], (0, 0, sum(lengths) - len(words), 0)).split(lengths))
