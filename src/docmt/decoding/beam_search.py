"""Beam search over a batch of search rows; a search row is an instance, a window or a single sentence.

Notation as in `caches`: D search rows, B beams, R = D * B hypotheses, V vocabulary. All search rows advance together. A
search row is done when B of its hypotheses have ended, and leaves the batch at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from docmt.core.errors import DocmtError
from docmt.decoding.caches import can_synchronize
from docmt.decoding.ensembles import Memories, Model, compute_next_logits, list_members
from docmt.decoding.incremental import IncrementalDecoder, can_read_prefixes, log_normalizers, read_prefixes, top_tokens
from docmt.decoding.output_cache import CacheReader, split_states
from docmt.decoding.published_searches import GenerateSearch, PooledSearch, ThumtSearch
from docmt.decoding.sampling import draw_tokens, draw_uniform
from docmt.decoding.search_config import SearchConfig
from docmt.decoding.search_rules import BeamState, SearchRow, TargetBoundaries, WordIds, choose_rules
from docmt.decoding.translation_results import Hypothesis, non_finite_error
from docmt.text import SpecialTokens

_SHARE_EVERY = 16  # steps between two checks for positions that all beams share; these are moved in such blocks


class BeamSearch:
    """State of one search: the tokens and scores of all hypotheses."""

    def __init__(
        self, model: Model, memories: Memories, rows: Sequence[SearchRow], specials: SpecialTokens, config: SearchConfig
    ) -> None:
        """See `search`."""
        device = model.device
        self.model = model
        self.specials, self.boundaries, self.config = (
            specials,
            TargetBoundaries(specials, model.parts.boundary_tokens),
            config,
        )
        in_one_pass = any(row.prefix for row in rows) and config.implementation == "docmt" and can_read_prefixes(model)
        prefixes = read_prefixes(model, memories, rows, specials, config.beam) if in_one_pass else []
        self.decoder = IncrementalDecoder(model, memories, rows, config.beam, prefixes)
        begins = prefixes[0].lengths if prefixes else torch.zeros(len(rows), dtype=torch.int64)
        self.begins = begins.to(device).repeat_interleave(config.beam)  # [R] tokens before the first step
        self.cache = CacheReader([row.cache for row in rows], config) if config.cache_weight else None
        forced_rows = [replace(row, prefix=()) for row in rows] if prefixes else rows
        self.rules = choose_rules(model, config)(forced_rows, config, self.boundaries, device)
        self.unfinished = list(range(len(rows)))  # search rows, by their number in the batch
        self.finished: list[list[Hypothesis]] = [[] for _ in rows]
        labels = 1 + self.boundaries.tokens.predicts_boundary  # labels of a sentence besides its words
        self.prefix_tokens = [sum(len(sentence) + labels for sentence in row.prefix) for row in rows]
        self.limits = [[config.sentence_limit(length) for length in row.lengths] for row in rows]
        self.counts = torch.tensor([len(row.sentences) for row in rows], device=device)  # [D] sentences
        self.row_numbers = torch.tensor([row.number for row in rows], device=device)  # [D] see `SearchRow`
        # [D, S] index in the packed source of each sentence of a search row
        self.numbers = pad_sequence([torch.tensor(row.sentences) for row in rows], batch_first=True).to(device)
        hypotheses = len(rows) * config.beam
        self.state = BeamState.start(hypotheses, self.boundaries.start, device)
        self.generated = torch.zeros(hypotheses, 0, dtype=torch.int64, device=device)  # [R, n] the last tokens
        self.log_probs = torch.zeros(hypotheses, 0, device=device)  # [R, n] of each of these tokens
        # Earlier tokens and scores of each search row, the same in all beams: they are not copied at every step.
        self.shared_tokens: list[tuple[list[int], list[float]]] = [([], []) for _ in rows]
        self.steps = 0  # tokens generated so far
        # All beams begin alike, so only the first of each search row may branch.
        self.total = torch.full((len(rows), config.beam), -torch.inf, device=device)  # [D, B]
        self.total[:, 0] = 0.0
        self.shared = 0  # positions of the decoder's caches that are stored once for all beams
        tokens = self.boundaries.tokens
        self.opening_is_labelled = tokens.predicts_boundary or tokens.joined  # opening tokens are labels in training
        if prefixes:
            self._start_after_prefixes([row.prefix for row in rows])

    def _start_after_prefixes(self, prefixes: Sequence[WordIds]) -> None:
        """Begin after the prefix of each search row, which the decoder has read."""
        opening = self.boundaries.tokens.target_opening
        rest, next_first = ([*opening[1:]], [opening[0]]) if self.opening_is_labelled else ([], [])
        for (tokens, scores), prefix in zip(self.shared_tokens, prefixes, strict=True):
            tokens += [token for words in prefix for token in (*rest, *words, self.specials.eos, *next_first)]
            scores += [0.0] * len(tokens)
        counts = torch.tensor([len(prefix) for prefix in prefixes], device=self.generated.device)
        self.state.sentence = counts.repeat_interleave(self.config.beam)

    def step(self) -> None:
        """Add one token to every hypothesis; finished search rows leave the batch."""
        beam = self.config.beam
        scores, tokens, forced = self._find_candidates()  # [R, C], [R, C], [R]
        # 2 B candidates a search row: even if B of them end, B go on (a single beam ends with its best).
        totals = (self.total.flatten()[:, None] + scores).view(len(self.unfinished), -1)  # [D, B * C]
        best, index = totals.topk(min(2 * beam, totals.shape[1]), dim=1)
        flat = index + torch.arange(len(index), device=index.device)[:, None] * totals.shape[1]
        parents = flat // scores.shape[1]  # [D, 2B] hypotheses
        chosen, log_probs = tokens.flatten()[flat], scores.flatten()[flat]
        ends = (chosen == self.boundaries.end) & self._may_end()[parents]
        ended = (ends & best.isfinite())[:, :beam]
        # The first B candidates that do not end go on, in order of their totals.
        goes_on = ends.long().argsort(dim=1, stable=True)[:, :beam]
        self.total = best.masked_fill(ends, -torch.inf).gather(1, goes_on)
        # Each value that is read on the host makes it wait for a GPU: this is the only one here.
        changes = bool(ended.any() | ~self.total.isfinite().any(dim=1).all())
        if changes:
            self._collect_finished(ended, parents, best, log_probs, forced)
        hypotheses, added, log_probs = (x.gather(1, goes_on).flatten() for x in (parents, chosen, log_probs))
        before = self.state.select(hypotheses)
        self.state = before.advance(added, forced[hypotheses], self.boundaries)
        self.state.sentence = torch.minimum(self.state.sentence, (self.counts - 1)[self._hypothesis_rows()])
        new_tokens = added
        if not self.opening_is_labelled:
            # Opening tokens may equal closing tokens: only the latter are kept.
            boundaries = self.boundaries
            is_opening = boundaries.is_closed(before.last, before.offset) | ~boundaries.is_opened(before.offset)
            new_tokens = torch.where(is_opening, self.specials.pad, added)
        self.generated = torch.cat((self.generated[hypotheses], new_tokens[:, None]), dim=1)
        self.log_probs = torch.cat((self.log_probs[hypotheses], log_probs[:, None]), dim=1)
        self.steps += 1
        if self.cache is not None:
            self.cache.advance(hypotheses)
        if beam > 1:
            self.decoder.reorder(hypotheses)
        if self.steps % _SHARE_EVERY == 0:
            self._share_positions() if beam > 1 else self._move_to_shared(self.generated.shape[1])
        if changes:
            self._drop_finished()

    def _may_end(self) -> Tensor:
        """Return whether the end token, generated next, ends the translation: [R]."""
        state = self.state
        if self.opening_is_labelled:
            return torch.ones_like(state.last, dtype=torch.bool)
        is_last = state.sentence + 1 >= self.counts[self._hypothesis_rows()]
        inside = self.boundaries.is_opened(state.offset) & ~self.boundaries.is_closed(state.last, state.offset)
        return is_last & inside

    def _hypothesis_rows(self) -> Tensor:
        """Return the search row of each hypothesis, numbered among the unfinished ones: [R]."""
        return torch.arange(len(self.unfinished), device=self.generated.device).repeat_interleave(self.config.beam)

    def _find_candidates(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return log-probabilities and ids of each hypothesis's C best next tokens [R, C], and which are forced [R]."""
        state, rows = self.state, self._hypothesis_rows()
        step = self.steps
        sentences = self.numbers[rows, state.sentence]
        states = self.decoder.step(state.last, state.offset, self.begins + step, sentences)  # [R, d] of each member
        if self.cache is not None:
            self.cache.read_states(states)
        forced_token = self.rules.find_forced(state, rows, step)
        forced = forced_token >= 0
        # A single beam needs no second candidate: when its best one ends the translation, the search is over.
        size = list_members(self.model)[0].config.vocabulary_size
        count = min(2 * self.config.beam if self.config.beam > 1 else 1, size)
        scores = torch.full((len(forced), count), -torch.inf, device=forced.device)
        tokens = torch.full_like(scores, self.specials.pad, dtype=torch.int64)
        scores[:, 0] = 0.0
        tokens[:, 0] = forced_token
        if not can_synchronize(forced.device):
            logits = self._compute_logits(states)
            normalizer = log_normalizers(logits)
            self.rules.restrict(logits, state, rows)
            values, ids = self._choose_tokens(logits, state, rows, count)
            fixed = forced[:, None]
            return torch.where(fixed, scores, values - normalizer), torch.where(fixed, tokens, ids), forced
        free = (~forced).nonzero().flatten()
        if len(free):  # forced hypotheses need no projection to the vocabulary
            logits = self._compute_logits(states, free)
            normalizer = log_normalizers(logits)
            free_state, free_rows = state.select(free), rows[free]
            self.rules.restrict(logits, free_state, free_rows)
            values, tokens[free] = self._choose_tokens(logits, free_state, free_rows, count)
            scores[free] = values - normalizer
        return scores, tokens, forced

    def _choose_tokens(self, logits: Tensor, state: BeamState, rows: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """Return logits and ids of the best next tokens, or of a sampled one: [R, count] each; logits: [R, V]."""
        if not self.config.sampling:
            return top_tokens(logits, count)
        return draw_tokens(logits, draw_uniform(self.config.seed, self.row_numbers[rows], state.free))

    def _compute_logits(self, states: Sequence[Tensor], hypotheses: Tensor | slice = slice(None)) -> Tensor:
        """Return the logits [n, V] of the next token of these hypotheses; states: [R, d] of each member."""
        logits = compute_next_logits(self.model, [x[hypotheses] for x in states], self.config.temperature)
        return logits if self.cache is None else self.cache.mix(logits, hypotheses)

    def _collect_finished(self, ends: Tensor, parents: Tensor, best: Tensor, log_probs: Tensor, forced: Tensor) -> None:
        """Add the hypotheses that end here; ends [D, B], the others as in `step`."""
        states = None if self.cache is None else self.cache.trace_states(parents[:, : ends.shape[1]][ends])
        for number, (i, j) in enumerate(ends.nonzero().tolist()):
            finished = self.finished[self.unfinished[i]]
            if len(finished) == self.config.beam:
                continue
            hypothesis = int(parents[i, j])
            tokens, scores = self.shared_tokens[self.unfinished[i]]
            tokens = [*tokens, *self.generated[hypothesis].tolist(), self.boundaries.end]
            scores = [*scores, *self.log_probs[hypothesis].tolist(), float(log_probs[i, j])]
            stream = tokens
            if not self.opening_is_labelled:
                labels = [position for position, token in enumerate(tokens) if token != self.specials.pad]
                tokens, scores = [tokens[position] for position in labels], [scores[position] for position in labels]
            chosen_before = int(self.state.free[hypothesis])
            free = chosen_before + (0 if bool(forced[hypothesis]) else 1)
            if self.config.implementation == "gtransformer":
                free = len(tokens) - self.prefix_tokens[self.unfinished[i]]
            sentences, sentence_scores = self.boundaries.split_sentences(tokens, scores)
            # Forced labels of a prefix do not matter: its sentences are dropped.
            limits, lengths = self.limits[self.unfinished[i]], list(map(len, sentences))
            boundary_labelled = self.boundaries.tokens.predicts_boundary
            forced_labels = self.rules.find_forced_labels(lengths, limits, boundary_labelled)
            counts = self.boundaries.count_chosen(tokens, set(forced_labels))
            score = self.config.normalize_score(float(best[i, j]), free)
            at_limit = self.rules.find_at_limit(i, lengths, chosen_before)
            keys = [] if states is None else split_states(states[number], stream, sentences, self.specials)
            finished.append(Hypothesis(sentences, sentence_scores, counts, score, free, at_limit, word_states=keys))

    def _share_positions(self) -> None:
        """Move positions that are the same in all beams of every search row to shared storage."""
        generated = self.generated.view(len(self.unfinished), self.config.beam, -1)
        same = (generated == generated[:, :1]) | self.total.isinf()[:, :, None]
        agreed = self.steps - generated.shape[2] + int(same.all(dim=1).long().cumprod(dim=1).sum(dim=1).min())
        # The decoder has read the first token and all generated tokens but the last.
        common = (min(agreed + 1, self.steps) - self.shared) // _SHARE_EVERY * _SHARE_EVERY
        if common:
            self.decoder.share_positions(common)
            self.shared += common
            self._move_to_shared(self.shared - 1 - (self.steps - generated.shape[2]))

    def _move_to_shared(self, count: int) -> None:
        """Move the first `count` tokens, the same in all beams of a search row, out of what each step copies."""
        beam = self.config.beam
        columns = (x[::beam, :count].tolist() for x in (self.generated, self.log_probs))
        for number, tokens, scores in zip(self.unfinished, *columns, strict=True):
            self.shared_tokens[number][0].extend(tokens)
            self.shared_tokens[number][1].extend(scores)
        self.generated, self.log_probs = self.generated[:, count:], self.log_probs[:, count:]

    def _drop_finished(self) -> None:
        """Remove finished search rows from the batch."""
        beam = self.config.beam
        alive = self.total.isfinite().any(dim=1).tolist()
        remaining = [i for i, number in enumerate(self.unfinished) if alive[i] and len(self.finished[number]) < beam]
        if len(remaining) == len(self.unfinished):
            return
        self.unfinished = [self.unfinished[i] for i in remaining]
        if not remaining:
            return
        rows = torch.tensor(remaining, device=self.generated.device)
        hypotheses = (rows[:, None] * beam + torch.arange(beam, device=rows.device)).flatten()
        self.state, self.begins = self.state.select(hypotheses), self.begins[hypotheses]
        self.generated, self.log_probs = self.generated[hypotheses], self.log_probs[hypotheses]
        self.total = self.total[rows]
        self.counts, self.numbers, self.row_numbers = self.counts[rows], self.numbers[rows], self.row_numbers[rows]
        self.rules.select_rows(rows)
        self.decoder.select_rows(hypotheses, rows)
        if self.cache is not None:
            self.cache.select_rows(hypotheses, rows)


_POOLED: dict[str, type[PooledSearch]] = {"thumt": ThumtSearch, "huggingface": GenerateSearch}


@torch.inference_mode()
def search(
    model: Model, memories: Memories, rows: Sequence[SearchRow], specials: SpecialTokens, config: SearchConfig
) -> list[list[Hypothesis]]:
    """Return the best `config.n_best` translations of each search row, best first; the rows are searched as one batch.

    memories: from `compute_memories` of the source that contains the rows' sentences. Raises DocmtError where the
    model's scores are not numbers.
    """
    if config.implementation in _POOLED:
        if any(len(row.sentences) > 1 for row in rows):
            raise DocmtError(
                f"search.implementation {config.implementation} needs a system that translates sentence by sentence. "
                "Choose docmt for this model."
            )
        results = _POOLED[config.implementation](model, memories, rows, specials, config).run()
    else:
        beams = BeamSearch(model, memories, rows, specials, config)
        while beams.unfinished:
            beams.step()
        results = [
            sorted(hypotheses, key=lambda hypothesis: -hypothesis.score)[: config.n_best]
            for hypotheses in beams.finished
        ]
    if not all(results):  # some next token is always possible, so scores are not finite
        raise non_finite_error()
    return results
