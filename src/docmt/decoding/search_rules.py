"""Rules of the search: which tokens may follow, so that every source sentence gets exactly one target sentence.

In a framed search the next `<s>` is supplied after `</s>`, and `<eod>` after the last sentence. A sentence at its
length limit is closed. Such forced tokens have log-probability 0 and do not count in the length normalisation (in Bao
et al. 2021 they do count). Where sentences are joined by one boundary token, it closes each but the last, which ends
with `</s>`; no opening token is forced. Other families have other boundary tokens: all tokens that open a sentence
are forced. In an open search (the plain document system) any word or boundary token may follow, up to a total limit.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from docmt.core.errors import DocmtError
from docmt.decoding.ensembles import Model, list_members
from docmt.decoding.logits import force_tokens
from docmt.decoding.search_config import ContextConfig, SearchConfig
from docmt.model.scope import BoundaryTokens
from docmt.model.systems import DecodingOrder
from docmt.text import SpecialTokens


class TargetBoundaries:
    """Boundary tokens of the target stream after its first token, which is supplied.

    `w .. </s> <s> w .. </s> <eod>` after `<s>`. In other families the last `</s>` ends the stream, and other tokens may
    open a sentence. Joined sentences (`BoundaryTokens`) are `w .. <s> w .. </s>` after `</s>`.
    """

    def __init__(self, specials: SpecialTokens, tokens: BoundaryTokens) -> None:
        self.specials, self.tokens = specials, tokens
        self.start = specials.eos if tokens.joined else tokens.target_opening[0]
        """first token of the stream"""
        self.end = specials.eod if tokens.predicts_boundary else specials.eos
        """last token of the stream"""
        self.separators = (specials.bos,) if tokens.joined else (specials.eos, *tokens.target_opening)
        """tokens between two sentences"""
        self.inner_openers = len(tokens.target_opening) - 1
        """number of opening tokens after the first one of a sentence"""

    def is_closed(self, last: Tensor, offset: Tensor) -> Tensor:
        """Return whether these tokens, at these offsets, closed their sentences: a boundary token must follow."""
        return (last == self.specials.eos) & (offset > self.inner_openers)

    def is_inside(self, last: Tensor, offset: Tensor) -> Tensor:
        """Return whether a word or the closing token must follow these tokens, at these offsets in their sentences."""
        return (offset >= self.inner_openers) & ~self.is_closed(last, offset)

    def opens_sentence(self, tokens: Tensor, last: Tensor, offset: Tensor) -> Tensor:
        """Return whether these tokens open a sentence; last, offset: the token before each, and its offset."""
        if self.tokens.target_starts_with_bos:
            return tokens == self.specials.bos
        return self.is_closed(last, offset)

    def split_sentences(self, tokens: Sequence[int], scores: Sequence[float]) -> tuple[list[list[int]], list[float]]:
        """Split a stream into sentences of word ids and their log-probabilities.

        A sentence ends at its closing token. The tokens that open the next one or end the stream belong to it too, as
        they are predicted inside it.
        """
        closing = {self.specials.eos, *self.separators[:1]}
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

    def count_chosen(self, tokens: Sequence[int], forced: Collection[int]) -> list[int]:
        """Count the tokens of each sentence that were chosen; forced: positions of the others."""
        chosen = [0.0 if position in forced else 1.0 for position in range(len(tokens))]
        return list(map(int, self.split_sentences(tokens, chosen)[1]))


WordIds = Sequence[Sequence[int]]  # a document: word ids of its sentences, without boundary tokens


@dataclass(frozen=True)
class SearchRow:
    """Sentences that are translated together as one search row: an instance, a window or a sentence."""

    sentences: Sequence[int]
    """numbers of its sentences in the packed source"""
    lengths: Sequence[int]
    """words of each sentence, without boundary tokens"""
    prefix: WordIds = ()
    """forced translations of its first sentences"""
    number: int = 0
    """which samples depend on, see `number_samples`"""
    opening: Sequence[int] = ()
    """word ids that the translation of the last sentence begins with, -1: any word; all count as chosen. `</s>` may be
    the last of them"""
    given: Mapping[int, Sequence[int]] = field(default_factory=dict)
    """word ids of the translations of some sentences, by their numbers in the row"""
    stops: bool = False
    """the translation of the last sentence ends after its opening"""

    def limits(self, config: SearchConfig) -> list[int]:
        """Return the most words of the translation of each sentence."""
        limits = [
            len(self.given[number]) if number in self.given else config.sentence_limit(length)
            for number, length in enumerate(self.lengths)
        ]
        return [*limits[:-1], len(self.opening)] if self.stops else limits

    def list_opening_words(self, specials: SpecialTokens) -> list[int]:
        """Return the words that the next sentence after the prefix begins with, up to the first free one."""
        words = self.opening if len(self.sentences) == len(self.prefix) + 1 else ()
        return list(takewhile(lambda word: word not in (-1, specials.eos), words))

    def after_prefix(self) -> SearchRow:
        """Return the row without its prefix and the sentences that this translates."""
        count = len(self.prefix)
        given = {number - count: words for number, words in self.given.items() if number >= count}
        return replace(self, sentences=self.sentences[count:], lengths=self.lengths[count:], prefix=(), given=given)


@dataclass
class BeamState:
    """State of each hypothesis; all tensors are [R], R = D * B hypotheses of D search rows."""

    last: Tensor
    """last token"""
    sentence: Tensor
    """number of its sentence in the search row, from 0"""
    offset: Tensor
    """position of the last token in its sentence, 0 for the token that opens it"""
    chosen: Tensor
    """number of tokens that were chosen, not forced"""

    @classmethod
    def start(
        cls, rows: Sequence[Sequence[int]], beams: int, boundaries: TargetBoundaries, device: torch.device
    ) -> BeamState:
        """Return the state of hypotheses of search rows, each after words of its first sentence."""
        last = torch.tensor([words[-1] if words else boundaries.start for words in rows])
        chosen = torch.tensor(list(map(len, rows)))
        offset = torch.where(chosen > 0, chosen + boundaries.inner_openers, 0)
        columns = last, torch.zeros_like(last), offset, chosen
        return cls(*(x.to(device).repeat_interleave(beams) for x in columns))

    def select(self, hypotheses: Tensor) -> BeamState:
        """Return the state of these hypotheses."""
        columns = (self.last, self.sentence, self.offset, self.chosen)
        return BeamState(*(x.index_select(0, hypotheses) for x in columns))

    def advance(self, tokens: Tensor, forced: Tensor, boundaries: TargetBoundaries, last_sentence: Tensor) -> BeamState:
        """Return the state after one more token of each hypothesis.

        forced [R] bool: the token was not chosen; last_sentence [R]: number of the last sentence of the search row.
        """
        is_opening = boundaries.opens_sentence(tokens, self.last, self.offset)
        offset = (self.offset + 1).masked_fill(is_opening, 0)
        sentence = torch.minimum(self.sentence + is_opening, last_sentence)
        return BeamState(tokens, sentence, offset, self.chosen + ~forced)


class FramedRules:
    """Rules of the framed search: number of sentences and length limits of each search row."""

    def __init__(
        self, rows: Sequence[SearchRow], config: SearchConfig, boundaries: TargetBoundaries, device: torch.device
    ):
        self.config, self.boundaries = config, boundaries
        self.counts = torch.tensor([len(row.sentences) for row in rows], device=device)  # [D]
        limits = [torch.tensor(row.limits(config)) for row in rows]
        self.limits = pad_sequence(limits, batch_first=True).to(device)  # [D, S]
        self.prefixes = build_prefixes(rows, boundaries, device)  # [D, P], -1: not forced
        openings = [torch.tensor(row.opening, dtype=torch.int64) for row in rows]
        self.openings = pad_sequence(openings, batch_first=True, padding_value=-1).to(device)  # [D, O]
        self.opening_lengths = torch.tensor(list(map(len, openings)), device=device)  # [D]
        self.given = _pad_given(rows, self.limits.shape[1]).to(device)  # [D, S, W], -1: not given
        specials = boundaries.specials
        never = [specials.bos, specials.pad, specials.eos, specials.eod]  # except the token that closes the sentence
        if config.implementation != "gtransformer":
            never += [specials.unk, specials.mask]
        self.never = torch.tensor(never, device=device)
        self._looked_up: tuple[Tensor, Tensor] | None = None  # of rows of one sentence

    @staticmethod
    def find_forced_labels(lengths: Sequence[int], limits: Sequence[int], boundary_labelled: bool) -> list[int]:
        """Return the positions of labels that the rules would force in a translation; lengths: words of its sentences.

        limits: of each sentence; boundary_labelled: the token after `</s>` is a label as well.
        """
        forced, position = [], -1
        for length, limit in zip(lengths, limits, strict=True):
            position += length + 1  # at `</s>`
            forced += [position] if length == limit else []
            if boundary_labelled:
                position += 1
                forced.append(position)
        return forced

    def find_at_limit(self, row: int, lengths: Sequence[int], chosen_tokens: int) -> list[int]:
        """Return the sentences of a search row that the length limit ended; lengths: words of its translation."""
        limits = self.limits[row].tolist()
        return [number for number, length in enumerate(lengths) if length >= limits[number]]

    def select_rows(self, rows: Tensor) -> None:
        """Keep these search rows only."""
        self.counts, self.limits = self.counts[rows], self.limits[rows]
        self.prefixes, self._looked_up = self.prefixes[rows], None
        self.openings, self.opening_lengths = self.openings[rows], self.opening_lengths[rows]
        self.given = self.given[rows]

    def find_forced(self, state: BeamState, rows: Tensor, step: int) -> Tensor:
        """Return the token [R] that must come next, or -1 where there is a choice.

        rows [R]: search row of each hypothesis. step: number of tokens so far.
        """
        boundaries, opening = self.boundaries, self.boundaries.tokens.target_opening
        limits, is_last = self._look_up(state, rows)
        words = self._count_words(state)
        forced = torch.where(words >= limits, self._closing_token(is_last), -1)
        if most := self.given.shape[2]:
            given = self.given[rows, state.sentence, words.clamp(0, most - 1)]
            forced = torch.where((words >= 0) & (words < most) & (given >= 0), given, forced)
        for index in range(1, len(opening)):
            forced = torch.where(state.offset == index - 1, opening[index], forced)
        if not boundaries.tokens.joined:
            following = torch.where(is_last, boundaries.end, opening[0])
            forced = torch.where(boundaries.is_closed(state.last, state.offset), following, forced)
        if step < self.prefixes.shape[1]:
            prefix = self.prefixes[rows, step]
            forced = torch.where(prefix >= 0, prefix, forced)
        return forced

    def restrict(self, logits: Tensor, state: BeamState, rows: Tensor) -> None:
        """Set logits [R, V] of tokens that may not follow to minus infinity, in place."""
        closing = self._closing_token(self._look_up(state, rows)[1])[:, None]
        closing_logits = logits.gather(1, closing)
        closing_logits.masked_fill_((self._count_words(state) < self.config.min_length)[:, None], -torch.inf)
        logits.index_fill_(1, self.never, -torch.inf).scatter_(1, closing, closing_logits)
        if self.openings.shape[1]:
            self._open(logits, state, rows)

    def _open(self, logits: Tensor, state: BeamState, rows: Tensor) -> None:
        """Let only the next token of the opening follow, in place."""
        words, is_last = self._count_words(state), self._look_up(state, rows)[1]
        inside = is_last & (words >= 0) & (words < self.opening_lengths[rows])
        tokens = self.openings[rows, words.clamp(0, self.openings.shape[1] - 1)]
        free = inside & (tokens < 0)
        logits[free.nonzero().flatten(), self._closing_token(is_last)[free]] = -torch.inf
        hypotheses = (inside & (tokens >= 0)).nonzero().flatten()
        force_tokens(logits, hypotheses, tokens[hypotheses])

    def _look_up(self, state: BeamState, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return the length limit of the current sentence [R], and whether it is the last of its search row [R]."""
        if self._looked_up is not None:
            return self._looked_up
        limits = self.limits[rows, state.sentence], state.sentence + 1 >= self.counts[rows]
        if self.limits.shape[1] == 1:
            self._looked_up = limits
        return limits

    def _count_words(self, state: BeamState) -> Tensor:
        """Return the number of words of the current sentence: [R]."""
        return state.offset - self.boundaries.inner_openers if self.boundaries.inner_openers else state.offset

    def _closing_token(self, is_last: Tensor) -> Tensor:
        """Return the token that closes the current sentence: [R]."""
        return torch.where(is_last, self.boundaries.specials.eos, self.boundaries.separators[0])


def _pad_given(rows: Sequence[SearchRow], sentences: int) -> Tensor:
    """Return the words of given translations [D, S, W], padded with -1."""
    most = max((len(words) for row in rows for words in row.given.values()), default=0)
    padded = torch.full((len(rows), sentences, most), -1, dtype=torch.int64)
    for index, row in enumerate(rows):
        for number, words in row.given.items():
            padded[index, number, : len(words)] = torch.tensor(words, dtype=torch.int64)
    return padded


def build_prefixes(rows: Sequence[SearchRow], boundaries: TargetBoundaries, device: torch.device) -> Tensor:
    """Return the forced tokens [D, P] of each search row after its first token, padded with -1."""
    # The first opening token was read already.
    opening = () if boundaries.tokens.joined else boundaries.tokens.target_opening[1:]
    streams = [
        [*opening, *(token for sentence in row.prefix for token in (*sentence, *boundaries.separators))]
        if row.prefix
        else []
        for row in rows
    ]
    prefixes = [torch.tensor(tokens, dtype=torch.int64) for tokens in streams]
    return pad_sequence(prefixes, batch_first=True, padding_value=-1).to(device)


class OpenRules:
    """Rules of the open search: any token up to a total length, then only `<eod>`."""

    def __init__(
        self, rows: Sequence[SearchRow], config: SearchConfig, boundaries: TargetBoundaries, device: torch.device
    ):
        self.specials = specials = boundaries.specials
        self.counts = torch.tensor([len(row.sentences) for row in rows], device=device)  # [D]
        never = [specials.pad]
        self.min_length = 0
        if config.implementation == "gtransformer":
            longest = max(sum(row.lengths) + 2 * len(row.lengths) for row in rows)
            most = max(len(row.lengths) for row in rows)
            totals = [int(config.max_length_ratio * longest + config.max_length_extra * most)] * len(rows)
            self.min_length = config.min_length
        else:
            # The boundary tokens of each sentence count as well.
            totals = [sum(config.sentence_limit(length) + 2 for length in row.lengths) for row in rows]
            never += [specials.unk, specials.mask]
        self.limits = torch.tensor(totals, device=device)
        self.never = torch.tensor(never, device=device)

    @staticmethod
    def find_forced_labels(lengths: Sequence[int], limits: Sequence[int], boundary_labelled: bool) -> list[int]:
        """Return no positions: every token is chosen."""
        return []

    def find_at_limit(self, row: int, lengths: Sequence[int], chosen_tokens: int) -> list[int]:
        """Return the last sentence of a search row if the total limit ended its translation.

        chosen_tokens: chosen tokens before the last one.
        """
        return [int(self.counts[row]) - 1] if chosen_tokens >= int(self.limits[row]) else []

    def select_rows(self, rows: Tensor) -> None:
        """Keep these search rows only."""
        self.counts, self.limits = self.counts[rows], self.limits[rows]

    def find_forced(self, state: BeamState, rows: Tensor, step: int) -> Tensor:
        """Return -1 [R]: every token is chosen, the last `<eod>` at the limit too."""
        return torch.full_like(rows, -1)

    def restrict(self, logits: Tensor, state: BeamState, rows: Tensor) -> None:
        """Set logits [R, V] of tokens that may not follow to minus infinity, in place."""
        logits.index_fill_(1, self.never, -torch.inf)
        if self.min_length:
            too_short = (state.chosen < self.min_length).nonzero().flatten()
            logits[too_short, self.specials.eod] = -torch.inf
        full = (state.chosen >= self.limits[rows]).nonzero().flatten()
        force_tokens(logits, full, self.specials.eod)


RFA_MAX_TOKENS = 1023
"""Most tokens of a search of Wu et al. (2022), prefix included: its models have as many positions."""


class RfaRules(OpenRules):
    """Rules of the published search of Wu et al. (2022), for agreement with its checkpoints.

    Any token up to a limit, then `</s>`. The token that joins sentences is an ordinary symbol, so a window may get more
    or fewer sentences than its source, or empty ones. One limit holds for the whole window. Tokens of a forced prefix
    count, in the log-probability and in the length.
    """

    def __init__(
        self, rows: Sequence[SearchRow], config: SearchConfig, boundaries: TargetBoundaries, device: torch.device
    ):
        self.specials, self.min_length = boundaries.specials, config.min_length
        self.counts = torch.tensor([len(row.sentences) for row in rows], device=device)  # [D]
        self.prefixes = build_prefixes(rows, boundaries, device)  # [D, P], -1: not forced
        self.limits = torch.tensor([self._limit(row, config) for row in rows], device=device)
        self.never = torch.tensor([self.specials.pad], device=device)

    @staticmethod
    def _limit(row: SearchRow, config: SearchConfig) -> int:
        """Return the limit of the window and its prefix together, computed in the order of the published code.

        Raises DocmtError for a prefix that leaves no room for a translation.
        """
        window = sum(row.lengths) + len(row.lengths)
        prefix_sentences = len(row.prefix)
        context = sum(row.lengths[:prefix_sentences]) + prefix_sentences
        prefix_tokens = sum(map(len, row.prefix)) + prefix_sentences
        if prefix_tokens >= RFA_MAX_TOKENS:
            raise DocmtError(
                f"the translations before a sentence have {prefix_tokens} tokens, and search.implementation rfa allows "
                f"{RFA_MAX_TOKENS} with the sentence. Choose docmt, or a smaller model.concat.sentences."
            )
        extra = config.max_length_extra + prefix_tokens - config.max_length_ratio * context
        return min(int(config.max_length_ratio * window + extra), RFA_MAX_TOKENS)

    def select_rows(self, rows: Tensor) -> None:
        """Keep these search rows only."""
        super().select_rows(rows)
        self.prefixes = self.prefixes[rows]

    def restrict(self, logits: Tensor, state: BeamState, rows: Tensor) -> None:
        """Set logits [R, V] of tokens that may not follow to minus infinity, in place."""
        logits.index_fill_(1, self.never, -torch.inf)
        full = state.chosen >= self.limits[rows]
        step = int(state.chosen.max())  # the same in all hypotheses
        prefix = torch.full_like(rows, -1)
        if step < self.prefixes.shape[1]:
            prefix = self.prefixes[rows, step]
        if step < self.min_length:
            logits[(prefix < 0) & ~full, self.specials.eos] = -torch.inf
        forced_token = torch.where(full, self.specials.eos, prefix)
        hypotheses = (forced_token >= 0).nonzero().flatten()
        force_tokens(logits, hypotheses, forced_token[hypotheses])


Rules = type[FramedRules] | type[OpenRules]
_RULES: dict[str, Rules] = {"frame": FramedRules, "open": OpenRules}
"""Rules by the name that a system has for them."""


def choose_order(model: Model, config: SearchConfig, context: ContextConfig) -> DecodingOrder:
    """Return the decoding order of this search. Raises DocmtError for a published search of another order."""
    order = model.system.decoding_orders.get(context.window_decoding, model.system.decoding_order)
    if config.implementation == "rfa" and order != "sequential":
        raise DocmtError(
            "search.implementation rfa needs a model that continues its earlier translations "
            "(context.window_decoding or model.concat.window_decoding prefix). Choose docmt."
        )
    return order


def choose_rules(model: Model, config: SearchConfig) -> Rules:
    """Return the rules of this search or scoring. Raises DocmtError for a published search of other models."""
    joined = model.boundary_tokens.joined
    if (config.implementation == "rfa") != joined and config.implementation != "docmt":
        family = list_members(model)[0].config.family
        choice = "docmt or rfa" if joined else "docmt"
        raise DocmtError(
            f"search.implementation {config.implementation} does not fit models of family {family}. Choose {choice}."
        )
    return RfaRules if config.implementation == "rfa" else _RULES[model.system.rules]
