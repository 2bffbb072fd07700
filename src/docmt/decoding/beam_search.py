"""Beam search over a batch of search rows; a search row is an instance, a window or a single sentence.

Notation as in `caches`: D search rows, B beams, R = D * B hypotheses, V vocabulary. All search rows advance together. A
search row is done when B of its hypotheses have ended. Batches have few sizes, as what stays is copied, and products
are prepared once for each number of rows: a row that is done may stay until the next size is reached.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from docmt.core.errors import DocmtError
from docmt.decoding.caches import FORGET_EVERY, can_synchronize
from docmt.decoding.ensembles import Memories, Model, compute_next_logits
from docmt.decoding.incremental import IncrementalDecoder, Prefixes, can_read_prefixes, read_prefixes, score_words
from docmt.decoding.logits import draw_tokens, draw_uniform, log_normalizers, top_tokens
from docmt.decoding.published_searches import GenerateSearch, PooledSearch, ThumtSearch
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
        self.row_numbers = torch.tensor([row.number for row in rows], device=device)  # [D] see `SearchRow`
        # [D, S] index in the packed source of each sentence of a search row
        self.numbers = pad_sequence([torch.tensor(row.sentences) for row in rows], batch_first=True).to(device)
        hypotheses = len(rows) * config.beam
        self.words = words or [()] * len(rows)
        read = score_words(model, prefixes, rows, words, config.temperature) if words else [()] * len(rows)
        self.word_scores = [[score for score, _ in row] for row in read]
        self.word_losses = [[best - score for score, best in row] for row in read]
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
        self.last_sentence = (self.rules.counts - 1)[self.rows]  # [R]
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
                made.token_losses.append(array("d", self.word_losses[row]))
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
        self.numbers, self.row_numbers = self.numbers[rows], self.row_numbers[rows]
        self.rules.select_rows(rows)
        self.decoder.select_rows(hypotheses, rows)
        self._number_hypotheses()
        if size > len(remaining):
            self.alive = self.total.isfinite().any(dim=1)[self.rows]


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
        if config.implementation == "docmt" and can_read_prefixes(model):
            if any(row.opening for row in rows):
                words = [row.list_opening_words(specials) for row in rows]
            if words or (not prefixes and any(row.prefix for row in rows)):
                prefixes = read_prefixes(model, memories, rows, specials, words, prefixes)
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
