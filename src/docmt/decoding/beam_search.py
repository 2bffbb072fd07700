"""Beam search over a batch of documents (of whatever a row is: a document, a window, a single sentence).

Notation as in `caches`: D documents, B beams, R = D * B rows, V vocabulary. All documents advance together; a
document is done when B of its hypotheses have ended, and leaves the batch at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from docmt.core.errors import DocmtError
from docmt.decoding.caches import answers_at_once
from docmt.decoding.incremental import IncrementalDecoder, can_read_prefixes, likeliest, normalizers, read_prefixes
from docmt.decoding.models import Memories, Model, members_of, next_logits
from docmt.decoding.published import GenerateSearch, PooledSearch, ThumtSearch
from docmt.decoding.rules import BeamState, SearchRow, TargetBoundaries, WordIds, rules_of
from docmt.decoding.search_config import SearchConfig
from docmt.decoding.translation import Hypothesis, not_numbers
from docmt.text import SpecialTokens

_SHARE_EVERY = 16  # steps between two looks for positions that all beams have in common, which move by as many


class BeamSearch:
    """The state of one search: what every row has said so far and what it is worth."""

    def __init__(
        self,
        model: Model,
        memories: Memories,
        rows: Sequence[SearchRow],
        specials: SpecialTokens,
        config: SearchConfig,
    ) -> None:
        """See `search.search`."""
        device = model.device
        self.model = model
        self.specials, self.marks, self.config = specials, TargetBoundaries(specials, model.parts.frame), config
        in_one_pass = any(row.prefix for row in rows) and config.implementation == "docmt" and can_read_prefixes(model)
        prefixes = read_prefixes(model, memories, rows, specials, config.beam) if in_one_pass else []
        self.decoder = IncrementalDecoder(model, memories, rows, config.beam, prefixes)
        begins = prefixes[0].lengths if prefixes else torch.zeros(len(rows), dtype=torch.int64)
        self.begins = begins.to(device).repeat_interleave(config.beam)  # [R] tokens before the first step
        forced_rows = [replace(row, prefix=()) for row in rows] if prefixes else rows
        self.rules = rules_of(model, config)(forced_rows, config, self.marks, device)
        self.documents = list(range(len(rows)))  # those still searched, by their number in the batch
        self.found: list[list[Hypothesis]] = [[] for _ in rows]
        labels = 1 + self.marks.frame.goes_on  # of a sentence besides its words
        self.given = [sum(len(sentence) + labels for sentence in row.prefix) for row in rows]  # tokens of prefixes
        self.limits = [[config.sentence_limit(length) for length in row.lengths] for row in rows]
        self.counts = torch.tensor([len(row.sentences) for row in rows], device=device)  # [D] sentences
        # [D, S] of the sentences in the packed source
        self.numbers = pad_sequence([torch.tensor(row.sentences) for row in rows], batch_first=True).to(device)
        count = len(rows) * config.beam
        self.progress = BeamState.start(count, self.marks.begins, device)
        self.said = torch.zeros(count, 0, dtype=torch.int64, device=device)  # [R, n] the last tokens, and
        self.worth = torch.zeros(count, 0, device=device)  # [R, n] the log-probability of each
        # Of each row of the batch, what all beams said before these: it is not copied at every step.
        self.settled: list[tuple[list[int], list[float]]] = [([], []) for _ in rows]
        self.steps = 0  # tokens said so far
        # All beams begin alike, so only the first of each document may branch.
        self.total = torch.full((len(rows), config.beam), -torch.inf, device=device)  # [D, B]
        self.total[:, 0] = 0.0
        self.shared = 0  # positions in the decoder's caches that are known to be the same in all beams
        frame = self.marks.frame
        self.labels_open = frame.goes_on or frame.joined  # marks that open a sentence are labels in training
        if prefixes:
            self._go_on_after([row.prefix for row in rows])

    def _go_on_after(self, prefixes: Sequence[WordIds]) -> None:
        """Begin after the prefix of each document, which the decoder has read."""
        opens = self.marks.frame.target_opens
        before, after = ([*opens[1:]], [opens[0]]) if self.labels_open else ([], [])
        for (tokens, scores), prefix in zip(self.settled, prefixes, strict=True):
            tokens += [token for words in prefix for token in (*before, *words, self.specials.eos, *after)]
            scores += [0.0] * len(tokens)
        counts = torch.tensor([len(prefix) for prefix in prefixes], device=self.said.device)
        self.progress.sentence = counts.repeat_interleave(self.config.beam)

    def step(self) -> None:
        """One more token for every row; documents that are done leave."""
        beam = self.config.beam
        scores, tokens, forced = self._candidates()  # [R, C], [R, C], [R]
        # 2 B candidates a document: even if B of them end, B go on (a single beam ends with its best).
        totals = (self.total.flatten()[:, None] + scores).view(len(self.documents), -1)  # [D, B * C]
        best, index = totals.topk(min(2 * beam, totals.shape[1]), dim=1)
        flat = index + torch.arange(len(index), device=index.device)[:, None] * totals.shape[1]
        parents = flat // scores.shape[1]  # [D, 2B] rows
        chosen, worth = tokens.flatten()[flat], scores.flatten()[flat]
        ends = (chosen == self.marks.ends) & self._may_end()[parents]
        ended = (ends & best.isfinite())[:, :beam]
        # The first B candidates that do not end go on, in order of their totals.
        goes_on = ends.long().argsort(dim=1, stable=True)[:, :beam]
        self.total = best.masked_fill(ends, -torch.inf).gather(1, goes_on)
        # The one question of a step: each makes the host wait for a GPU.
        changes = bool(ended.any() | ~self.total.isfinite().any(dim=1).all())
        if changes:
            self._collect(ended, parents, best, worth, forced)
        rows, added, worth = (x.gather(1, goes_on).flatten() for x in (parents, chosen, worth))
        before = self.progress.select(rows)
        self.progress = before.advance(added, forced[rows], self.marks)
        self.progress.sentence = torch.minimum(self.progress.sentence, (self.counts - 1)[self._document()])
        said = added
        if not self.labels_open:
            # Marks that open a sentence may be the same as those that close one: only these are kept.
            opens = self.marks.closed(before.last, before.offset) | ~self.marks.opened(before.offset)
            said = torch.where(opens, self.specials.pad, added)
        self.said = torch.cat((self.said[rows], said[:, None]), dim=1)
        self.worth = torch.cat((self.worth[rows], worth[:, None]), dim=1)
        self.steps += 1
        if beam > 1:
            self.decoder.reorder(rows)
        if self.steps % _SHARE_EVERY == 0:
            self._share() if beam > 1 else self._settle(self.said.shape[1])
        if changes:
            self._drop_finished()

    def _may_end(self) -> Tensor:
        """[R] whether the last mark of all, if it is said next, ends the document."""
        progress = self.progress
        if self.labels_open:
            return torch.ones_like(progress.last, dtype=torch.bool)
        is_last = progress.sentence + 1 >= self.counts[self._document()]
        inside = self.marks.opened(progress.offset) & ~self.marks.closed(progress.last, progress.offset)
        return is_last & inside

    def _document(self) -> Tensor:
        """[R] the document of each row, numbered among those still searched."""
        return torch.arange(len(self.documents), device=self.said.device).repeat_interleave(self.config.beam)

    def _candidates(self) -> tuple[Tensor, Tensor, Tensor]:
        """Log-probabilities and ids [R, C] of each row's C best next tokens, and which rows are forced [R]."""
        progress, document = self.progress, self._document()
        step = self.steps
        sentences = self.numbers[document, progress.sentence]
        states = self.decoder.read(
            progress.last, progress.offset, self.begins + step, sentences
        )  # [R, d] of each member
        forced_token = self.rules.forced(progress, document, step)
        forced = forced_token >= 0
        # A single beam needs no second candidate: when its best one ends the document, the search is over.
        size = members_of(self.model)[0].config.vocabulary_size
        count = min(2 * self.config.beam if self.config.beam > 1 else 1, size)
        scores = torch.full((len(forced), count), -torch.inf, device=forced.device)
        tokens = torch.full_like(scores, self.specials.pad, dtype=torch.int64)
        scores[:, 0] = 0.0
        tokens[:, 0] = forced_token
        if not answers_at_once(forced.device):
            logits = next_logits(self.model, states, self.config.temperature)
            normalizer = normalizers(logits)
            self.rules.restrict(logits, progress, document)
            values, places = likeliest(logits, count)
            fixed = forced[:, None]
            return torch.where(fixed, scores, values - normalizer), torch.where(fixed, tokens, places), forced
        free = (~forced).nonzero().flatten()
        if len(free):  # forced rows need no projection to the vocabulary
            logits = next_logits(self.model, [own[free] for own in states], self.config.temperature)
            normalizer = normalizers(logits)
            self.rules.restrict(logits, progress.select(free), document[free])
            values, tokens[free] = likeliest(logits, count)
            scores[free] = values - normalizer
        return scores, tokens, forced

    def _collect(self, ends: Tensor, parents: Tensor, best: Tensor, worth: Tensor, forced: Tensor) -> None:
        """Keeps the hypotheses that end here; ends [D, B], the others as in `step`."""
        for i, j in ends.nonzero().tolist():
            found = self.found[self.documents[i]]
            if len(found) == self.config.beam:
                continue
            row = int(parents[i, j])
            tokens, scores = self.settled[self.documents[i]]
            tokens = [*tokens, *self.said[row].tolist(), self.marks.ends]
            scores = [*scores, *self.worth[row].tolist(), float(worth[i, j])]
            if not self.labels_open:
                kept = [place for place, token in enumerate(tokens) if token != self.specials.pad]
                tokens, scores = [tokens[place] for place in kept], [scores[place] for place in kept]
            free = int(self.progress.free[row]) + (0 if bool(forced[row]) else 1)
            if self.config.implementation == "gtransformer":
                free = len(tokens) - self.given[self.documents[i]]
            sentences, sentence_scores = self.marks.split(tokens, scores)
            # (Not those of a forced prefix, of which nothing is kept.)
            limits, goes_on = self.limits[self.documents[i]], self.marks.frame.goes_on
            given = self.rules.forced_labels(list(map(len, sentences)), limits, goes_on)
            counts = self.marks.chosen(tokens, set(given))
            score = self.config.normalized(float(best[i, j]), free)
            found.append(Hypothesis(sentences, sentence_scores, counts, score, free))

    def _share(self) -> None:
        """Tells the decoder how many more positions are the same in all beams of every document."""
        said = self.said.view(len(self.documents), self.config.beam, -1)
        same = (said == said[:, :1]) | self.total.isinf()[:, :, None]
        agreed = self.steps - said.shape[2] + int(same.all(dim=1).long().cumprod(dim=1).sum(dim=1).min())
        # The decoder has read the first mark and all but the last token said.
        common = (min(agreed + 1, self.steps) - self.shared) // _SHARE_EVERY * _SHARE_EVERY
        if common:
            self.decoder.share(common)
            self.shared += common
            self._settle(self.shared - 1 - (self.steps - said.shape[2]))

    def _settle(self, count: int) -> None:
        """Moves the first `count` tokens, the same in all beams of each document, out of what every step copies."""
        beam = self.config.beam
        columns = (x[::beam, :count].tolist() for x in (self.said, self.worth))
        for number, tokens, scores in zip(self.documents, *columns, strict=True):
            self.settled[number][0].extend(tokens)
            self.settled[number][1].extend(scores)
        self.said, self.worth = self.said[:, count:], self.worth[:, count:]

    def _drop_finished(self) -> None:
        beam = self.config.beam
        alive = self.total.isfinite().any(dim=1).tolist()
        kept = [i for i, number in enumerate(self.documents) if alive[i] and len(self.found[number]) < beam]
        if len(kept) == len(self.documents):
            return
        self.documents = [self.documents[i] for i in kept]
        if not kept:
            return
        documents = torch.tensor(kept, device=self.said.device)
        rows = (documents[:, None] * beam + torch.arange(beam, device=documents.device)).flatten()
        self.progress, self.begins = self.progress.select(rows), self.begins[rows]
        self.said, self.worth, self.total = self.said[rows], self.worth[rows], self.total[documents]
        self.counts, self.numbers = self.counts[documents], self.numbers[documents]
        self.rules.keep(documents)
        self.decoder.keep(rows, documents)


_POOLED: dict[str, type[PooledSearch]] = {"thumt": ThumtSearch, "huggingface": GenerateSearch}


@torch.inference_mode()
def search(
    model: Model,
    memories: Memories,
    rows: Sequence[SearchRow],
    specials: SpecialTokens,
    config: SearchConfig,
) -> list[list[Hypothesis]]:
    """The best `config.n_best` translations of each row, best first; the rows are searched as one batch.

    memories: what `model.memories` has computed for the source in which the rows' sentences lie. Raises DocmtError
    where the model's scores are not numbers.
    """
    if config.implementation in _POOLED:
        if any(len(row.sentences) > 1 for row in rows):
            raise DocmtError(
                f"search.implementation {config.implementation} is for systems that translate sentence by sentence: "
                "choose none for this model"
            )
        found = _POOLED[config.implementation](model, memories, rows, specials, config).run()
    else:
        beams = BeamSearch(model, memories, rows, specials, config)
        while beams.documents:
            beams.step()
        found = [sorted(own, key=lambda each: -each.score)[: config.n_best] for own in beams.found]
    if not all(found):  # whatever the weights, some next token is possible, so this is never for want of one
        raise not_numbers()
    return found
