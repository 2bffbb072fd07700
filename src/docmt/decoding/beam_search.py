"""Beam search over a batch of search rows; a search row is an instance, a window or a single sentence.

Notation as in `caches`: D search rows, B beams, R = D * B hypotheses, V vocabulary. All search rows advance together. A
search row is done when B of its hypotheses have ended. Batches have few sizes, as what stays is copied, and products
are prepared once for each number of rows: a row that is done may stay until the next size is reached.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from array import array
from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from docmt.core.errors import DocmtError
from docmt.decoding.caches import FORGET_EVERY, can_synchronize
from docmt.decoding.ensembles import Memories, Model, compute_next_logits
from docmt.decoding.incremental import IncrementalDecoder, Prefixes, can_read_prefixes, read_prefixes, score_words
from docmt.decoding.logits import draw_tokens, draw_uniform, log_normalizers, top_tokens
from docmt.decoding.search_config import SearchConfig, between_steps
from docmt.decoding.search_rules import BeamState, SearchRow, TargetBoundaries, choose_rules
from docmt.decoding.translation_results import Hypothesis, non_finite_error
from docmt.model.kernels import round_up
from docmt.text import SpecialTokens


class Candidates(NamedTuple):
    """Continuations of the hypotheses of each search row by one token, best first; all tensors are [D, C]."""

    totals: Tensor
    """log-probability of each hypothesis with its new token"""
    parents: Tensor
    """the hypothesis that is continued"""
    tokens: Tensor
    log_probs: Tensor
    """of the new token; 0 if it is forced"""


class BeamSearch:
    """State of one search: the tokens and scores of all hypotheses."""

    def __init__(
        self,
        model: Model,
        memories: Memories,
        rows: Sequence[SearchRow],
        specials: SpecialTokens,
        config: SearchConfig,
        prefixes: Sequence[Prefixes] = (),
        words: Sequence[Sequence[int]] | None = None,
    ) -> None:
        """See `search`. words: of the first sentence of each row, which the prefixes have but for the last one."""
        device = model.device
        self.model, self.specials, self.config = model, specials, config
        self.boundaries = TargetBoundaries(specials, model.boundary_tokens)
        self.decoder = IncrementalDecoder(model, memories, rows, config.beam, prefixes)
        begins = prefixes[0].lengths if prefixes else torch.zeros(len(rows), dtype=torch.int64)
        self.begins = begins.to(device).repeat_interleave(config.beam)  # [R] tokens before the first step
        self.rules = choose_rules(model, config)(rows, config, self.boundaries, device)
        self.unfinished = list(range(len(rows)))  # search rows, by their number in the batch
        self.finished: list[list[Hypothesis]] = [[] for _ in rows]
        labels = 1 + self.boundaries.tokens.predicts_boundary  # labels of a sentence besides its words
        self.prefix_tokens = [sum(len(sentence) + labels for sentence in row.prefix) for row in rows]
        self.limits, self.stops = [row.limits(config) for row in rows], [row.stops for row in rows]
        self.counts = torch.tensor([len(row.sentences) for row in rows], device=device)  # [D] sentences
        self.row_numbers = torch.tensor([row.number for row in rows], device=device)  # [D] see `SearchRow`
        # [D, S] index in the packed source of each sentence of a search row
        self.numbers = pad_sequence([torch.tensor(row.sentences) for row in rows], batch_first=True).to(device)
        hypotheses = len(rows) * config.beam
        self.words = words or [()] * len(rows)
        self.word_scores = score_words(model, prefixes, self.words, config.temperature) if words else self.words
        self.state = BeamState.start(self.words, config.beam, self.boundaries, device)
        self.generated = torch.zeros(hypotheses, 0, dtype=torch.int64, device=device)  # [R, n] tokens so far
        self.log_probs = torch.zeros(hypotheses, 0, device=device)  # [R, n] of each of these tokens
        self.steps = 0  # tokens generated so far
        # All beams begin alike, so only the first of each search row may branch.
        self.total = torch.full((len(rows), config.beam), -torch.inf, device=device)  # [D, B]
        self.total[:, 0] = torch.tensor(list(map(sum, self.word_scores)), dtype=torch.float32)
        tokens = self.boundaries.tokens
        self.opening_is_labelled = tokens.predicts_boundary or tokens.joined  # opening tokens are labels in training
        self._number_hypotheses()

    def _number_hypotheses(self) -> None:
        """Set what follows from the search rows that are unfinished, such as the row [R] of each hypothesis."""
        numbers, beam = torch.arange(len(self.unfinished), device=self.total.device), self.config.beam
        self.rows, self.first_of_row = numbers.repeat_interleave(beam), (numbers * beam)[:, None]  # [R], [D, 1]
        self.in_order = torch.arange(len(self.rows), device=numbers.device)
        self.last_sentence = (self.counts - 1)[self.rows]  # [R]
        self.alive: Tensor | None = None  # [R] whether the search row is not done; None: all

    def step(self) -> None:
        """Add one token to every hypothesis; finished search rows leave the batch."""
        beam = self.config.beam
        # 1. The decoder reads the last token of each hypothesis. The best 2 B continuations of a search row are
        #    candidates: even if B of them end, B go on.
        forced, candidates = self._find_candidates()
        # 2. Those of the first B that end are finished.
        best, parents, chosen, log_probs = candidates
        ends = chosen == self.boundaries.end
        if not self.opening_is_labelled:  # the end token may also open a sentence
            may_end = self.boundaries.is_inside(self.state.last, self.state.offset)
            ends = ends & (may_end & (self.state.sentence >= self.last_sentence))[parents]
        ended = (ends & best.isfinite())[:, :beam]
        # 3. The first B that do not end go on, in order of their totals.
        goes_on = ends.long().argsort(dim=1, stable=True)[:, :beam]
        self.total = best.masked_fill(ends, -torch.inf).gather(1, goes_on)
        # Each value that is read on the host makes it wait for a GPU: this is the only one here.
        changes = bool(ended.any() | ~self.total.isfinite().any(dim=1).all())
        if changes:
            self._collect_finished(ended, parents, best, log_probs, forced)
        hypotheses, added, log_probs = (x.gather(1, goes_on).flatten() for x in (parents, chosen, log_probs))
        self._advance(hypotheses, added, log_probs, forced)
        # 4. What the decoder keeps follows the hypotheses.
        if beam > 1 and not (can_synchronize(hypotheses.device) and torch.equal(hypotheses, self.in_order)):
            self.decoder.reorder(hypotheses)
        if self.steps % FORGET_EVERY == 0:
            self.decoder.forget()
        # 5. Finished search rows leave.
        if changes:
            self._drop_finished()

    def _advance(self, hypotheses: Tensor, added: Tensor, log_probs: Tensor, forced: Tensor) -> None:
        """Let each hypothesis continue another one by a token with this log-probability; all [R]."""
        before = self.state.select(hypotheses)
        forced = forced.index_select(0, hypotheses)
        self.state = before.advance(added, forced, self.boundaries, self.last_sentence)
        if not self.opening_is_labelled:
            # Opening tokens may equal closing tokens: only the latter are kept.
            added = torch.where(self.boundaries.is_inside(before.last, before.offset), added, self.specials.pad)
        self.generated = torch.cat((self.generated.index_select(0, hypotheses), added[:, None]), dim=1)
        self.log_probs = torch.cat((self.log_probs.index_select(0, hypotheses), log_probs[:, None]), dim=1)
        self.steps += 1

    def _find_candidates(self) -> tuple[Tensor, Candidates]:
        """Return which hypotheses [R] have a forced token, and the best continuations of each search row."""
        state, rows = self.state, self.rows
        sentences = self.numbers[rows, state.sentence] if self.numbers.shape[1] > 1 else self.numbers[rows, 0]
        offsets, positions = state.offset, self.begins + self.steps
        if self.alive is not None:  # rows that are done have no positions of their own, which may be limited
            offsets, positions = offsets * self.alive, positions * self.alive
        states = self.decoder.step(state.last, offsets, positions, sentences)  # [R, d] each
        forced_token = self.rules.find_forced(state, rows, self.steps)
        forced = forced_token >= 0
        # A single beam needs no second candidate: when its best one ends the translation, the search is over.
        count = 2 * self.config.beam if self.config.beam > 1 else 1
        can_look = can_synchronize(forced.device)
        any_forced = bool(forced.any()) if can_look else True
        all_forced = bool(forced.all()) if can_look and any_forced else False
        parts = [] if all_forced else [self._score_tokens(states, forced, count)]
        if any_forced:
            beams = torch.arange(self.config.beam, device=forced.device).expand(len(self.unfinished), -1)
            log_probs = torch.zeros_like(self.total).masked_fill(~forced.view_as(self.total), -torch.inf)
            tokens = forced_token.clamp(min=0).view_as(beams)
            parts.append(Candidates(self.total + log_probs, beams, tokens, log_probs))
        candidates = parts[0]
        if len(parts) > 1:
            candidates = Candidates(*(torch.cat(columns, dim=1) for columns in zip(*parts, strict=True)))
        if any_forced:
            order = candidates.totals.topk(min(count, candidates.totals.shape[1]), dim=1).indices
            candidates = Candidates(*(column.gather(1, order) for column in candidates))
        return forced, candidates._replace(parents=candidates.parents + self.first_of_row)

    def _score_tokens(self, states: Sequence[Tensor], forced: Tensor, count: int) -> Candidates:
        """Return the best continuations of each search row by tokens that are not forced, or by a sampled one.

        states: decoder states [R, d] of each member; forced [R]: hypotheses that do not choose.
        """
        logits = compute_next_logits(self.model, states, self.config.temperature)  # [R, V]
        normalizers, size = log_normalizers(logits)[:, 0], logits.shape[1]
        self.rules.restrict(logits, self.state, self.rows)
        if self.config.sampling:
            uniform = draw_uniform(self.config.seed, self.row_numbers[self.rows], self.state.chosen)
            index = draw_tokens(logits, uniform)
        else:
            offsets = (self.total.flatten() - normalizers).masked_fill(forced, -torch.inf).view_as(self.total)
            index = top_tokens(logits, min(count, offsets.shape[1] * size), offsets)  # [D, C]
        parents, chosen = index // size, index % size
        hypotheses = parents + self.first_of_row
        log_probs = logits.flatten()[hypotheses * size + chosen].float() - normalizers[hypotheses]
        log_probs = log_probs.masked_fill(forced[hypotheses], -torch.inf)  # whose own logits stand in the totals
        return Candidates(self.total.gather(1, parents) + log_probs, parents, chosen, log_probs)

    def _collect_finished(self, ends: Tensor, parents: Tensor, best: Tensor, log_probs: Tensor, forced: Tensor) -> None:
        """Add the hypotheses that end here; ends [D, B], the others as in `step`."""
        for i, j in ends.nonzero().tolist():
            row = self.unfinished[i]
            if len(self.finished[row]) == self.config.beam:
                continue
            hypothesis = int(parents[i, j])
            tokens = [*self.words[row], *self.generated[hypothesis].tolist(), self.boundaries.end]
            scores = [*self.word_scores[row], *self.log_probs[hypothesis].tolist(), float(log_probs[i, j])]
            if not self.opening_is_labelled:
                labels = [position for position, token in enumerate(tokens) if token != self.specials.pad]
                tokens, scores = [tokens[position] for position in labels], [scores[position] for position in labels]
            chosen_before = int(self.state.chosen[hypothesis])
            count = chosen_before + (0 if bool(forced[hypothesis]) else 1)
            if self.config.implementation == "gtransformer":
                count = len(tokens) - self.prefix_tokens[row]
            sentences, sentence_scores = self.boundaries.split_sentences(tokens, scores)
            # Forced labels of a prefix do not matter: its sentences are dropped.
            lengths = list(map(len, sentences))
            boundary_labelled = self.boundaries.tokens.predicts_boundary
            forced_labels = self.rules.find_forced_labels(lengths, self.limits[row], boundary_labelled)
            counts = self.boundaries.count_chosen(tokens, set(forced_labels))
            score = self.config.normalize_score(float(best[i, j]), count)
            at_limit = self.rules.find_at_limit(i, lengths, chosen_before)
            made = Hypothesis(sentences, sentence_scores, counts, score, count, at_limit)
            if self.stops[row]:
                ids = {self.specials.bos, self.specials.eos, self.specials.pad, self.boundaries.end}
                of_words = [score for token, score in zip(tokens, scores, strict=True) if token not in ids]
                made.token_scores.append(array("d", of_words[len(of_words) - len(sentences[-1]) :]))
            self.finished[row].append(made)

    def _drop_finished(self) -> None:
        """Remove finished search rows from the batch, if they are enough."""
        beam = self.config.beam
        alive = self.total.isfinite().any(dim=1).tolist()
        remaining = [i for i, row in enumerate(self.unfinished) if alive[i] and len(self.finished[row]) < beam]
        done = sorted(set(range(len(alive))) - set(remaining))
        if not remaining:
            self.unfinished = []
        if not remaining or not done:
            return
        self.total.index_fill_(0, torch.tensor(done, device=self.total.device), -torch.inf)
        self.alive = self.total.isfinite().any(dim=1)[self.rows]
        size = round_up(len(remaining))
        if size >= len(alive):
            return
        rows = torch.tensor(sorted(remaining + done[: size - len(remaining)]), device=self.generated.device)
        hypotheses = (rows[:, None] * beam + torch.arange(beam, device=rows.device)).flatten()
        self.unfinished = [self.unfinished[i] for i in rows.tolist()]
        self.state, self.begins = self.state.select(hypotheses), self.begins[hypotheses]
        self.generated, self.log_probs = self.generated[hypotheses], self.log_probs[hypotheses]
        self.total = self.total[rows]
        self.counts, self.numbers, self.row_numbers = self.counts[rows], self.numbers[rows], self.row_numbers[rows]
        self.rules.select_rows(rows)
        self.decoder.select_rows(hypotheses, rows)
        self._number_hypotheses()
        if size > len(remaining):
            self.alive = self.total.isfinite().any(dim=1)[self.rows]


class PooledSearch(ABC):
    """Search of another toolkit over search rows of one sentence each, for agreement with it.

    It differs from docmt's in competition and stopping. Candidates that end compete, by their normalised scores, with
    the B best that ended before. The search goes on until no unended hypothesis could do better.
    """

    def __init__(
        self, model: Model, memories: Memories, rows: Sequence[SearchRow], specials: SpecialTokens, config: SearchConfig
    ) -> None:
        device, beam = model.device, config.beam
        self.model, self.specials, self.config = model, specials, config
        self.boundaries = TargetBoundaries(specials, model.boundary_tokens)
        self.decoder = IncrementalDecoder(model, memories, rows, beam)
        self.sentences = torch.tensor([row.sentences[0] for row in rows], device=device).repeat_interleave(beam)
        limits = [config.sentence_limit(row.lengths[0]) + self.boundaries.inner_openers for row in rows]
        self.limits = torch.tensor(limits, device=device)  # [D] tokens
        self.limit = max(*limits, 0)
        shape = (len(rows), beam)
        self.total = torch.full(shape, -torch.inf, device=device)  # [D, B] of unended hypotheses
        self.total[:, 0] = 0.0
        self.generated = torch.zeros(*shape, 0, dtype=torch.int64, device=device)  # [D, B, steps]
        self.ended = torch.full(shape, -torch.inf, device=device)  # [D, B] scores of ended hypotheses
        self.ended_total = torch.full(shape, -torch.inf, device=device)
        self.ended_tokens = torch.zeros(*shape, self.limit, dtype=torch.int64, device=device)
        self.ended_length = torch.zeros(shape, dtype=torch.int64, device=device)

    def run(self) -> list[list[Hypothesis]]:
        """Return the best hypotheses of each sentence, best first; unended ones only where none ended."""
        while self.generated.shape[2] < self.limit and not self._is_finished():
            between_steps()
            self._step()
        return [self._best_hypotheses(number)[: self.config.n_best] for number in range(len(self.total))]

    @abstractmethod
    def _is_finished(self) -> bool:
        """Return whether no better hypothesis can follow; finished sentences may be ended here."""

    @abstractmethod
    def _find_ends(self, chosen: Tensor, length: int) -> tuple[Tensor, Tensor]:
        """Return which candidates [D, 2 B], best first, stop, and which of these count as ended."""

    def _step(self) -> None:
        """Add one token to every hypothesis."""
        rows, beam, step = self.generated.shape
        last = self.generated[:, :, -1].flatten() if step else torch.full_like(self.sentences, self.boundaries.start)
        offsets = torch.full_like(last, step)
        states = self.decoder.step(last, offsets, step, self.sentences)
        scores = self._scores(states, step)
        totals = (self.total.flatten()[:, None] + scores).view(rows, -1)  # [D, B * V]
        index = top_tokens(totals, min(2 * beam, totals.shape[1]), totals.new_zeros(rows, 1))  # [D, 2 B]
        best = totals.gather(1, index)
        parents, chosen = index // scores.shape[1], index % scores.shape[1]
        generated = torch.cat(
            (self.generated.gather(1, parents[:, :, None].expand(-1, -1, step)), chosen[:, :, None]), dim=2
        )
        stop, ended = self._find_ends(chosen, step + 1)
        self._add_ended(best.masked_fill(~ended, -torch.inf), generated)
        self.total, indices = best.masked_fill(stop, -torch.inf).topk(beam, dim=1)  # [D, B]
        self.generated = generated.gather(1, indices[:, :, None].expand(-1, -1, step + 1))
        first = torch.arange(rows, device=indices.device)[:, None] * beam
        self.decoder.reorder((parents.gather(1, indices) + first).flatten())

    def _scores(self, states: Sequence[Tensor], step: int) -> Tensor:
        """Return log-probabilities of the next token [R, V]; 0 for a forced opening token."""
        scores = compute_next_logits(self.model, states, self.config.temperature).float().log_softmax(-1)
        if step < self.boundaries.inner_openers:
            scores = torch.full_like(scores, -torch.inf)
            scores[:, self.boundaries.tokens.target_opening[step + 1]] = 0.0
        return scores

    def _add_ended(self, totals: Tensor, tokens: Tensor) -> None:
        """Keep the B best ended hypotheses; totals [D, 2 B] (minus infinity: not ended), tokens [D, 2 B, n]."""
        length = tokens.shape[2]
        scores = torch.cat((self.ended, self.config.normalize_score(totals, length)), dim=1)  # [D, 3 B]
        self.ended, indices = scores.topk(self.config.beam, dim=1)
        padded = F.pad(tokens, (0, self.limit - length))
        all_tokens = torch.cat((self.ended_tokens, padded), dim=1)
        self.ended_tokens = all_tokens.gather(1, indices[:, :, None].expand(-1, -1, self.limit))
        self.ended_total = torch.cat((self.ended_total, totals), dim=1).gather(1, indices)
        lengths = torch.cat((self.ended_length, torch.full_like(totals, length, dtype=torch.int64)), dim=1)
        self.ended_length = lengths.gather(1, indices)

    def _best_hypotheses(self, number: int) -> list[Hypothesis]:
        """Return the best hypotheses of a sentence."""
        if bool(self.ended[number].isfinite().any()):
            totals, scores = self.ended_total[number], self.ended[number]
            pairs = zip(self.ended_tokens[number].tolist(), self.ended_length[number].tolist(), strict=True)
            token_lists = [tokens[:length] for tokens, length in pairs]
        else:
            token_lists, totals = self.generated[number].tolist(), self.total[number]
            scores = self.config.normalize_score(totals, self.generated.shape[2])
        results = zip(token_lists, totals.tolist(), scores.tolist(), strict=True)
        return [
            Hypothesis(
                [self._strip_boundaries(tokens)],
                [total],
                [len(tokens)],
                score,
                len(tokens),
                at_limit=[] if tokens[-1:] == [self.specials.eos] else [0],
            )
            for tokens, total, score in results
            if score > -torch.inf
        ]

    def _strip_boundaries(self, tokens: list[int]) -> list[int]:
        """Return the tokens without their boundary tokens."""
        closed = len(tokens) > self.boundaries.inner_openers and tokens[-1] == self.specials.eos
        return tokens[self.boundaries.inner_openers : len(tokens) - closed]


class ThumtSearch(PooledSearch):
    """Search of THUMT, whose rules Zhang et al. (2018) used.

    All sentences of a batch stop together: as soon as in each of them the worst ended hypothesis beats the best score
    that an unended one could still reach. The longest source limits all of them, so results can depend on the batch.
    """

    def _is_finished(self) -> bool:
        reachable = self.config.normalize_score(self.total.amax(1), self.limit)
        ended = self.ended.isfinite()
        worst = torch.where(ended, self.ended, torch.inf).amin(1)
        return bool((ended.any(1) & (worst > reachable)).all())

    def _find_ends(self, chosen: Tensor, length: int) -> tuple[Tensor, Tensor]:
        ends = chosen == self.specials.eos
        return ends, ends


class GenerateSearch(PooledSearch):
    """Search of `generate` in transformers (version 5), with its default early_stopping = False.

    Only candidates among the B best can end. A sentence is finished as soon as B hypotheses ended and the worst of
    these beats the score of the best unended one at its length. At the limit all end, without `</s>`.
    """

    def _is_finished(self) -> bool:
        best = self.config.normalize_score(self.total.amax(1), max(self.generated.shape[2], 1))
        # Unended hypotheses of a finished sentence no longer compete.
        self.total[self.ended.amin(1) >= best] = -torch.inf
        return bool(self.total.amax(1).isneginf().all())

    def _find_ends(self, chosen: Tensor, length: int) -> tuple[Tensor, Tensor]:
        stop = (chosen == self.specials.eos) & (length > self.boundaries.inner_openers)
        stop |= (length >= self.limits)[:, None]
        first = torch.arange(chosen.shape[1], device=chosen.device) < self.config.beam
        return stop, stop & first

    def _scores(self, states: Sequence[Tensor], step: int) -> Tensor:
        scores = super()._scores(states, step)
        if not self.model.family.can_generate_padding:
            scores[:, self.specials.pad] = -torch.inf
        if self.boundaries.inner_openers <= step < self.boundaries.inner_openers + self.config.min_length:
            scores[:, self.specials.eos] = -torch.inf
        return scores


_POOLED: dict[str, type[PooledSearch]] = {"thumt": ThumtSearch, "huggingface": GenerateSearch}


@torch.inference_mode()
def search(
    model: Model,
    memories: Memories,
    rows: Sequence[SearchRow],
    specials: SpecialTokens,
    config: SearchConfig,
    prefixes: Sequence[Prefixes] = (),
) -> list[list[Hypothesis]]:
    """Return the best `config.n_best` translations of each search row, best first; the rows are searched as one batch.

    memories: from `compute_memories` of the source that contains the rows' sentences. prefixes: what each member of the
    model has read before each row, if anything. Translations are without the prefixes of rows. Raises DocmtError where
    the model's scores are not numbers.
    """
    if config.implementation in _POOLED:
        if any(len(row.sentences) > 1 for row in rows):
            raise DocmtError(
                f"search.implementation {config.implementation} needs a system that translates sentence by sentence. "
                "Choose docmt for this model."
            )
        results = _POOLED[config.implementation](model, memories, rows, specials, config).run()
    else:
        words: list[list[int]] | None = None
        has_beginning = any(row.prefix or row.opening for row in rows)
        if has_beginning and config.implementation == "docmt" and can_read_prefixes(model):
            words = [row.list_opening_words(specials) for row in rows] if any(row.opening for row in rows) else None
            prefixes = read_prefixes(model, memories, rows, specials, *([words] if words else []))
            rows = [row.after_prefix() for row in rows]
        beams = BeamSearch(model, memories, rows, specials, config, prefixes, words)
        while beams.unfinished:
            between_steps()
            beams.step()
        results = [
            sorted(hypotheses, key=lambda hypothesis: -hypothesis.score)[: config.n_best]
            for hypotheses in beams.finished
        ]
        if config.implementation != "rfa":  # whose windows are as published, with their prefixes
            results = [
                [hypothesis.drop_prefix(len(row.prefix)) for hypothesis in hypotheses]
                for row, hypotheses in zip(rows, results, strict=True)
            ]
    if not all(results):  # some next token is always possible, so scores are not finite
        raise non_finite_error()
    return results
