"""What a hypothesis may say next: the frame that gives every source sentence exactly one target sentence.

After `</s>` the next `<s>` is given, not searched, and after the last sentence `<eod>`; a sentence at its length limit
is closed. Such forced symbols have log-probability 0 and do not count in the length normalisation (in Bao et al. 2021
they do count). Without a frame (the plain document system) any word or sentence mark may follow, up to a total limit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from docmt.decoding.config import SearchConfig
from docmt.text import SpecialTokens

WordIds = Sequence[Sequence[int]]  # a document: its sentences' token ids without marks


@dataclass
class Progress:
    """Where each row's hypothesis stands; all tensors [R]."""

    last: Tensor
    """its last token"""
    sentence: Tensor
    """number of its sentence in the document, from 0"""
    offset: Tensor
    """position of its last token in that sentence; `<s>` is at 0, so inside a sentence this is its length so far"""
    free: Tensor
    """tokens chosen rather than forced, so far"""

    @classmethod
    def start(cls, rows: int, specials: SpecialTokens, device: torch.device) -> Progress:
        """Every hypothesis has read the first `<s>`."""
        zeros = torch.zeros(rows, dtype=torch.int64, device=device)
        return cls(torch.full_like(zeros, specials.bos), zeros, zeros.clone(), zeros.clone())

    def select(self, rows: Tensor) -> Progress:
        """The hypotheses of the given rows."""
        return Progress(self.last[rows], self.sentence[rows], self.offset[rows], self.free[rows])

    def advance(self, tokens: Tensor, forced: Tensor, specials: SpecialTokens) -> Progress:
        """After one more token each (`forced` [R] bool: it was not chosen)."""
        opens = tokens == specials.bos
        offset = torch.where(opens, 0, self.offset + 1)
        return Progress(tokens, self.sentence + opens.long(), offset, self.free + (~forced).long())


class Frame:
    """Rules of the framed search: sentence counts and limits of each document."""

    def __init__(self, sources: Sequence[WordIds], config: SearchConfig, specials: SpecialTokens, device: torch.device):
        self.config, self.specials = config, specials
        longest = max(len(document) for document in sources)
        self.counts = torch.tensor([len(document) for document in sources], device=device)  # [D]
        self.limits = torch.zeros(len(sources), longest, dtype=torch.int64, device=device)  # [D, S]
        for i, document in enumerate(sources):
            limits = [config.sentence_limit(len(sentence)) for sentence in document]
            self.limits[i, : len(limits)] = torch.tensor(limits)
        never = [specials.bos, specials.pad, specials.eod]
        if not config.as_published:
            never += [specials.unk, specials.mask]
        self.never = torch.tensor(never, device=device)

    def keep(self, documents: Tensor) -> None:
        """Goes on with these documents only."""
        self.counts, self.limits = self.counts[documents], self.limits[documents]

    def forced(self, progress: Progress, document: Tensor) -> Tensor:
        """[R] the token that must come next, or -1 where there is a choice; document [R]."""
        closed = progress.last == self.specials.eos
        is_last = progress.sentence + 1 >= self.counts[document]
        after = torch.where(is_last, self.specials.eod, self.specials.bos)
        at_limit = progress.offset >= self.limits[document, progress.sentence]
        choice = torch.where(at_limit, self.specials.eos, -1)
        return torch.where(closed, after, choice)

    def restrict(self, logits: Tensor, progress: Progress, document: Tensor) -> None:
        """Sets what may not follow to minus infinity, in place; logits [R, V]."""
        logits.index_fill_(1, self.never, -torch.inf)
        too_short = (progress.offset < self.config.min_length).nonzero().flatten()
        logits[too_short, self.specials.eos] = -torch.inf


class OpenEnd:
    """Rules of the unframed search: anything up to a total length; then `<eod>` is the only choice."""

    def __init__(self, sources: Sequence[WordIds], config: SearchConfig, specials: SpecialTokens, device: torch.device):
        self.specials = specials
        never = [specials.pad]
        self.least = 0
        if config.as_published:
            words = [sum(map(len, document)) + 2 * len(document) for document in sources]
            longest, most = max(words), max(map(len, sources))
            totals = [int(config.max_length_ratio * longest + config.max_length_extra * most)] * len(sources)
            self.least = config.min_length
        else:
            # The marks of each sentence count as well.
            totals = [sum(config.sentence_limit(len(sentence)) + 2 for sentence in document) for document in sources]
            never += [specials.unk, specials.mask]
        self.limits = torch.tensor(totals, device=device)
        self.never = torch.tensor(never, device=device)

    def keep(self, documents: Tensor) -> None:
        """Goes on with these documents only."""
        self.limits = self.limits[documents]

    def forced(self, progress: Progress, document: Tensor) -> Tensor:
        """[R] -1: every token is chosen, the last `<eod>` at the limit too."""
        return torch.full_like(document, -1)

    def restrict(self, logits: Tensor, progress: Progress, document: Tensor) -> None:
        """Sets what may not follow to minus infinity, in place; logits [R, V]."""
        logits.index_fill_(1, self.never, -torch.inf)
        if self.least:
            too_short = (progress.free < self.least).nonzero().flatten()
            logits[too_short, self.specials.eod] = -torch.inf
        full = (progress.free >= self.limits[document]).nonzero().flatten()
        if len(full):
            ends = logits[full, self.specials.eod]
            logits[full] = -torch.inf
            logits[full, self.specials.eod] = ends
