"""Which tokens may follow in a search: the frame that gives every source sentence exactly one target sentence.

After `</s>` the next `<s>` is given, not searched, and after the last sentence `<eod>`; a sentence at its length limit
is closed. Such forced symbols have log-probability 0 and do not count in the length normalisation (in Bao et al. 2021
they do count). Where sentences are joined by one mark, that mark closes each but the last, which ends with `</s>`, and
nothing more is given. Other families have other marks: all that opens a sentence is given. Without a frame (the plain
document system) any word or sentence mark may follow, up to a total limit.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from docmt.core.errors import DocmtError
from docmt.decoding.models import Model, members_of
from docmt.decoding.search_config import ContextConfig, SearchConfig
from docmt.model.scope import BoundaryTokens
from docmt.model.systems import Order, System
from docmt.text import SpecialTokens


@dataclass(frozen=True)
class TargetBoundaries:
    """What comes after the first mark, which is given.

    `w .. </s> <s> w .. </s> <eod>` after `<s>`; in other families the last `</s>` ends all, and other marks may open a
    sentence; where sentences are joined (`BoundaryTokens`) it is `w .. <s> w .. </s>` after `</s>`.
    """

    specials: SpecialTokens
    frame: BoundaryTokens

    @property
    def begins(self) -> int:
        """The first mark."""
        return self.specials.eos if self.frame.joined else self.frame.target_opens[0]

    @property
    def ends(self) -> int:
        """The last mark of all."""
        return self.specials.eod if self.frame.goes_on else self.specials.eos

    @property
    def between(self) -> tuple[int, ...]:
        """The marks between two sentences."""
        return (self.specials.bos,) if self.frame.joined else (self.specials.eos, *self.frame.target_opens)

    @property
    def inner(self) -> int:
        """How many marks that open a sentence come after its first."""
        return len(self.frame.target_opens) - 1

    def opened(self, offset: Tensor) -> Tensor:
        """Whether all marks that open the sentence were read, of tokens at these offsets in it."""
        return offset >= self.inner

    def closed(self, last: Tensor, offset: Tensor) -> Tensor:
        """Whether these tokens, at these offsets in their sentences, closed them, so that another mark must follow."""
        return (last == self.specials.eos) & (offset > self.inner)

    def opens(self, tokens: Tensor, last: Tensor, offset: Tensor) -> Tensor:
        """Whether these tokens open a sentence; last, offset: the token before each, and its place."""
        if self.frame.opens_alike:
            return tokens == self.specials.bos
        return self.closed(last, offset)

    def split(self, tokens: Sequence[int], scores: Sequence[float]) -> tuple[list[list[int]], list[float]]:
        """Sentences of word ids and their log-probabilities.

        A sentence ends at the mark that closes it; what opens the next one or ends all belongs to it, as it is
        predicted inside it.
        """
        closing = {self.specials.eos, *self.between[:1]}
        sentences: list[list[int]] = []
        totals: list[float] = []
        words: list[int] = []
        total = 0.0
        for token, score in zip(tokens, scores, strict=True):
            total += score
            if token in closing:
                sentences.append(words)
                totals.append(total)
                words, total = [], 0.0
            elif token not in (self.specials.bos, self.specials.eod):
                words.append(token)
            elif sentences and not words:
                totals[-1] += total
                total = 0.0
        if words:
            sentences.append(words)
            totals.append(total)
        elif totals:
            totals[-1] += total
        return sentences, totals

    def chosen(self, tokens: Sequence[int], forced: Collection[int]) -> list[int]:
        """How many tokens of each sentence were chosen; forced: the places of the others."""
        chosen = [0.0 if place in forced else 1.0 for place in range(len(tokens))]
        return list(map(int, self.split(tokens, chosen)[1]))


WordIds = Sequence[Sequence[int]]  # a document: its sentences' token ids without marks
# Of the two last tokens, counted from the end.
_EOD, _MASK = -2, -1


@dataclass(frozen=True)
class SearchRow:
    """What a row of the search, a document of it, translates."""

    sentences: Sequence[int]
    """numbers of its sentences in the packed source"""
    lengths: Sequence[int]
    """words of each, marks not counted"""
    prefix: WordIds = ()
    """translations of the first of them, which are forced"""


@dataclass
class BeamState:
    """Where each row's hypothesis stands; all tensors [R]."""

    last: Tensor
    """its last token"""
    sentence: Tensor
    """number of its sentence in the document, from 0"""
    offset: Tensor
    """position of its last token in that sentence; what opens it is at 0"""
    free: Tensor
    """tokens chosen rather than forced, so far"""

    @classmethod
    def start(cls, rows: int, begins: int, device: torch.device) -> BeamState:
        """Every hypothesis has read the first mark, `begins`."""
        zeros = torch.zeros(rows, dtype=torch.int64, device=device)
        return cls(torch.full_like(zeros, begins), zeros, zeros.clone(), zeros.clone())

    def select(self, rows: Tensor) -> BeamState:
        """The hypotheses of the given rows."""
        return BeamState(self.last[rows], self.sentence[rows], self.offset[rows], self.free[rows])

    def advance(self, tokens: Tensor, forced: Tensor, marks: TargetBoundaries) -> BeamState:
        """After one more token each (`forced` [R] bool: it was not chosen)."""
        opens = marks.opens(tokens, self.last, self.offset)
        offset = torch.where(opens, 0, self.offset + 1)
        return BeamState(tokens, self.sentence + opens.long(), offset, self.free + (~forced).long())


class FramedRules:
    """Rules of the framed search: sentence counts and limits of each document."""

    def __init__(self, rows: Sequence[SearchRow], config: SearchConfig, marks: TargetBoundaries, device: torch.device):
        self.config, self.marks = config, marks
        self.counts = torch.tensor([len(row.sentences) for row in rows], device=device)  # [D]
        limits = [torch.tensor([config.sentence_limit(length) for length in row.lengths]) for row in rows]
        self.limits = pad_sequence(limits, batch_first=True).to(device)  # [D, S]
        self.prefixes = prefixes_of(rows, marks, device)  # [D, P], -1 where nothing is forced
        specials = marks.specials
        never = [specials.bos, specials.pad, specials.eos, _EOD]  # but for the mark that closes the sentence
        if config.implementation != "gtransformer":
            never += [specials.unk, _MASK]
        self.never = torch.tensor(never, device=device)

    @staticmethod
    def forced_labels(lengths: Sequence[int], limits: Sequence[int], goes_on: bool) -> list[int]:
        """Which labels of a given translation of sentences of these lengths (words) the rules would force.

        limits: of each sentence; goes_on: after `</s>` the mark that follows it is a label as well.
        """
        forced, position = [], -1
        for length, limit in zip(lengths, limits, strict=True):
            position += length + 1  # at `</s>`
            forced += [position] if length == limit else []
            if goes_on:
                position += 1
                forced.append(position)
        return forced

    @staticmethod
    def ended_by_limit(lengths: Sequence[int], limits: Sequence[int], free_tokens: int) -> list[int]:
        """Which of these sentences (words, limits) the limit ended."""
        return [i for i, (length, limit) in enumerate(zip(lengths, limits, strict=True)) if length >= limit]

    def keep(self, documents: Tensor) -> None:
        """Goes on with these documents only."""
        self.counts, self.limits = self.counts[documents], self.limits[documents]
        self.prefixes = self.prefixes[documents]

    def forced(self, progress: BeamState, document: Tensor, step: int) -> Tensor:
        """[R] the token that must come next, or -1 where there is a choice; document [R]; step: tokens so far."""
        at_limit = self._words(progress) >= self.limits[document, progress.sentence]
        forced = torch.where(at_limit, self._closing(progress, document), -1)
        opens = self.marks.frame.target_opens
        for place in range(1, len(opens)):
            forced = torch.where(progress.offset == place - 1, opens[place], forced)
        if not self.marks.frame.joined:
            after = torch.where(self._is_last(progress, document), self.marks.ends, opens[0])
            forced = torch.where(self.marks.closed(progress.last, progress.offset), after, forced)
        if step < self.prefixes.shape[1]:
            given = self.prefixes[document, step]
            forced = torch.where(given >= 0, given, forced)
        return forced

    def restrict(self, logits: Tensor, progress: BeamState, document: Tensor) -> None:
        """Sets what may not follow to minus infinity, in place; logits [R, V]."""
        closing = self._closing(progress, document)[:, None]
        worth = logits.gather(1, closing)
        worth[self._words(progress) < self.config.min_length] = -torch.inf
        logits.index_fill_(1, self.never, -torch.inf).scatter_(1, closing, worth)

    def _words(self, progress: BeamState) -> Tensor:
        """[R] words of the sentence so far."""
        return progress.offset - self.marks.inner

    def _is_last(self, progress: BeamState, document: Tensor) -> Tensor:
        """[R] whether the sentence is the last of its document [R]."""
        return progress.sentence + 1 >= self.counts[document]

    def _closing(self, progress: BeamState, document: Tensor) -> Tensor:
        """[R] the mark that closes the sentence."""
        return torch.where(self._is_last(progress, document), self.marks.specials.eos, self.marks.between[0])


def prefixes_of(rows: Sequence[SearchRow], marks: TargetBoundaries, device: torch.device) -> Tensor:
    """[D, P] the forced tokens of each document after its first mark, then -1."""
    # What opens the first sentence has been read but for its last marks.
    opens = () if marks.frame.joined else marks.frame.target_opens[1:]
    streams = [
        [*opens, *(token for sentence in row.prefix for token in (*sentence, *marks.between))] if row.prefix else []
        for row in rows
    ]
    prefixes = [torch.tensor(tokens, dtype=torch.int64) for tokens in streams]
    return pad_sequence(prefixes, batch_first=True, padding_value=-1).to(device)


class OpenRules:
    """Rules of the unframed search: anything up to a total length; then `<eod>` is the only choice."""

    def __init__(self, rows: Sequence[SearchRow], config: SearchConfig, marks: TargetBoundaries, device: torch.device):
        self.specials = specials = marks.specials
        never = [specials.pad]
        self.least = 0
        if config.implementation == "gtransformer":
            longest = max(sum(row.lengths) + 2 * len(row.lengths) for row in rows)
            most = max(len(row.lengths) for row in rows)
            totals = [int(config.max_length_ratio * longest + config.max_length_extra * most)] * len(rows)
            self.least = config.min_length
        else:
            # The marks of each sentence count as well.
            totals = [sum(config.sentence_limit(length) + 2 for length in row.lengths) for row in rows]
            never += [specials.unk, _MASK]
        self.limits = torch.tensor(totals, device=device)
        self.never = torch.tensor(never, device=device)

    @staticmethod
    def forced_labels(lengths: Sequence[int], limits: Sequence[int], goes_on: bool) -> list[int]:
        """None: every token is chosen."""
        return []

    @staticmethod
    def ended_by_limit(lengths: Sequence[int], limits: Sequence[int], free_tokens: int) -> list[int]:
        """The last sentence, where the limit of all ended the translation."""
        return [len(limits) - 1] if free_tokens > sum(limits) + 2 * len(limits) else []

    def keep(self, documents: Tensor) -> None:
        """Goes on with these documents only."""
        self.limits = self.limits[documents]

    def forced(self, progress: BeamState, document: Tensor, step: int) -> Tensor:
        """[R] -1: every token is chosen, the last `<eod>` at the limit too."""
        return torch.full_like(document, -1)

    def restrict(self, logits: Tensor, progress: BeamState, document: Tensor) -> None:
        """Sets what may not follow to minus infinity, in place; logits [R, V]."""
        logits.index_fill_(1, self.never, -torch.inf)
        if self.least:
            too_short = (progress.free < self.least).nonzero().flatten()
            logits[too_short, _EOD] = -torch.inf
        full = (progress.free >= self.limits[document]).nonzero().flatten()
        leave_only(logits, full, _EOD)


def leave_only(logits: Tensor, rows: Tensor, tokens: int | Tensor) -> None:
    """Leaves these rows [n] of the logits [R, V] one token each (the same, or [n] tokens), in place."""
    worth = logits[rows, tokens]
    logits[rows] = -torch.inf
    logits[rows, tokens] = worth


MOST = 1023
"""Tokens that their search says at most, those of a prefix counted in: it has positions for so many."""


class RfaRules(OpenRules):
    """The rules of the published search of Wu et al. (2022), for agreement with its checkpoints.

    Anything up to a limit, then `</s>`. The mark that joins sentences is a symbol like any other, so that a window may
    come out with more or fewer sentences than its source, or with empty ones; one limit holds for all of it; and the
    tokens of a forced prefix count, with their log-probabilities and in the length.
    """

    def __init__(self, rows: Sequence[SearchRow], config: SearchConfig, marks: TargetBoundaries, device: torch.device):
        self.specials, self.least = marks.specials, config.min_length
        self.prefixes = prefixes_of(rows, marks, device)  # [D, P], -1 where there is a choice
        self.limits = torch.tensor([self._limit(row, config) for row in rows], device=device)
        self.never = torch.tensor([self.specials.pad], device=device)

    @staticmethod
    def _limit(row: SearchRow, config: SearchConfig) -> int:
        """That of the window and its prefix together, in the order in which they add and multiply.

        Raises DocmtError for a prefix after which nothing may be said.
        """
        window = sum(row.lengths) + len(row.lengths)
        before = len(row.prefix)
        context = sum(row.lengths[:before]) + before
        said = sum(map(len, row.prefix)) + before
        if said >= MOST:
            raise DocmtError(
                f"the translations before a sentence have {said} tokens, but with search.implementation rfa all have "
                f"at most {MOST}: choose none, or a model of fewer sentences (model.concat.sentences)"
            )
        extra = config.max_length_extra + said - config.max_length_ratio * context
        return min(int(config.max_length_ratio * window + extra), MOST)

    ended_by_limit = staticmethod(FramedRules.ended_by_limit)

    def keep(self, documents: Tensor) -> None:
        """Goes on with these documents only."""
        super().keep(documents)
        self.prefixes = self.prefixes[documents]

    def restrict(self, logits: Tensor, progress: BeamState, document: Tensor) -> None:
        """Sets what may not follow to minus infinity, in place; logits [R, V]."""
        logits.index_fill_(1, self.never, -torch.inf)
        full = progress.free >= self.limits[document]
        step = int(progress.free.max())  # all rows have said as many tokens
        given = torch.full_like(document, -1)
        if step < self.prefixes.shape[1]:
            given = self.prefixes[document, step]
        if step < self.least:
            logits[(given < 0) & ~full, self.specials.eos] = -torch.inf
        only = torch.where(full, self.specials.eos, given)
        rows = (only >= 0).nonzero().flatten()
        leave_only(logits, rows, only[rows])


Rules = type[FramedRules] | type[OpenRules]
_RULES: dict[str, Rules] = {"frame": FramedRules, "open": OpenRules}
"""By the name that systems have for them."""


def order_of(model: Model, config: SearchConfig, context: ContextConfig) -> Order:
    """The order of this search. Raises DocmtError for a published search of another order."""
    order = model.system.orders.get(context.window_decoding, model.system.order)
    if config.implementation == "rfa" and order != "in turn":
        raise DocmtError(
            "search.implementation rfa is for models that translate after their own earlier translations "
            "(context.window_decoding or model.concat.window_decoding prefix): choose none for this one"
        )
    return order


def takes_rounds(context: ContextConfig, system: System) -> bool:
    """Return whether `search.rounds` has an effect: the system sees earlier translations, sentence for sentence."""
    return system.rules == "frame" and system.orders.get(context.window_decoding, system.order) in (
        "documents",
        "in turn",
    )


def rules_of(model: Model, config: SearchConfig) -> Rules:
    """The rules of this search or scoring. Raises DocmtError for a published search of other models."""
    joined = model.parts.frame.joined
    if (config.implementation == "rfa") != joined and config.implementation != "docmt":
        family = members_of(model)[0].config.family
        choice = "none or rfa" if joined else "none"
        raise DocmtError(
            f"search.implementation {config.implementation} is not for models of family {family}: choose {choice}"
        )
    return RfaRules if config.implementation == "rfa" else _RULES[model.system.rules]
