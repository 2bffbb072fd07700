"""Greedy search in which all sentences of a document are decoded at the same time, with the same result.

At first each sentence is decoded as if it were alone. Then a full pass reads these drafts and tells, for every token,
whether it would have been chosen after the drafts before it. A sentence goes on from its first token that would not;
one whose tokens all stay is final as soon as all before it are, and so is the first one that goes on, as what it then
sees is final. So in every round at least one sentence more of each document is final, and what is found is what a
search token after token finds: but for near ties, as a full pass rounds otherwise than single steps. Only as many
sentences are begun as may be risked, more where drafts stay; where they do not, the rest of the document is searched
token after token.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import torch
from torch import Tensor

from docmt.decoding.config import SearchConfig
from docmt.decoding.drafts import has_pasts
from docmt.decoding.ensemble import Memories, Model, members_of
from docmt.decoding.frame import Frame, Progress, Row
from docmt.decoding.past import Past
from docmt.decoding.risk import RiskedDrafts, cost_of, cost_of_pass
from docmt.decoding.step import Steps, likeliest, normalizers
from docmt.model.spans import Spans
from docmt.text import SpecialTokens

_CHUNK = 256  # states that are projected to the vocabulary at a time
_PASTS = 1.5  # times as long a step takes in which rows see pasts: measured with a small model (docs/log.md)
_PADDING = 8  # times the tokens of the source: so many, with those that fill up short sentences, are looked at


def can_decode_abreast(model: Model, rows: Sequence[Row], config: SearchConfig) -> bool:
    """Whether the sentences of these rows can be decoded at the same time."""
    if not config.abreast or config.beam > 1 or config.compatibility != "none":
        return False
    lengths = [length for row in rows for length in row.lengths]
    if len(lengths) == len(rows) or len(lengths) * max(lengths) > _PADDING * sum(lengths):
        return False
    return all(member.system.order == "documents" and has_pasts(member) for member in members_of(model))


class Abreast(RiskedDrafts):
    """One such search over rows of D documents with S sentences in all."""

    def __init__(
        self, model: Model, memories: Memories, rows: Sequence[Row], specials: SpecialTokens, config: SearchConfig
    ) -> None:
        """See `search.search`."""
        super().__init__(model, memories, rows, specials, config)
        self.rules = Frame(self.units, config, self.marks, self.device)

    def run(self) -> bool:
        """Decodes while that is worth it; False where some sentences are left."""
        differs: dict[int, tuple[int, int]] = {}
        if any(own.given for own in self.sentences):
            self.read_drafts()
        while True:
            fresh = self._next(differs)
            if fresh is None:
                self.work.gave_up = True
                return False
            self.work.rounds += 1
            self._go_on(differs, fresh)
            differs = self._verify()
            for first, last in pairwise(self.firsts):
                for number in range(first, last):
                    if number in differs or not self.sentences[number].words:
                        break
                    self.settle(number, self.work.rounds)
            if all(own.final for own in self.sentences):
                return True

    def _next(self, differs: Mapping[int, tuple[int, int]]) -> list[int] | None:
        """Sentences to begin with as well, as many of each document as may be risked; None if not even those are worth
        it that would be others: if all goes for nothing, at most RISK of the time is lost that one after the other
        takes, and something is gained if everything stays."""
        waiting = [[n for n in range(*ends) if not self.sentences[n].words] for ends in pairwise(self.firsts)]
        begun = {n for n, own in enumerate(self.sentences) if own.words}
        reach = max(map(len, waiting))
        budget = self.saved(self.next_ones()) - self.spent()
        while reach > 1 or differs:  # (one alone would see what is final: nothing is gained)
            fresh = [number for numbers in waiting for number in numbers[:reach]]
            lengths = [self.lengths[number] for number in fresh]
            longest = max([*lengths, *(self.lengths[number] - place for number, (place, _) in differs.items()), 1])
            read = sum(self.lengths[n] for n in begun) + sum(lengths)
            cost = longest * self._cost_of_step(len(fresh) + len(differs)) + cost_of_pass(read, self.model)
            if cost <= min(budget, self.gained({*begun, *fresh})):
                return fresh
            if not reach:
                break
            reach //= 2
        return None

    def _cost_of_step(self, rows: int) -> float:
        return cost_of(rows, self.model) * (1 if self.read is None else _PASTS)

    def _go_on(self, differs: Mapping[int, tuple[int, int]], fresh: Sequence[int]) -> None:
        """Decodes those that would be others from there on, and those that are new."""
        next_ones = set(self.next_ones())
        for number, (place, token) in differs.items():
            self.sentences[number].words[place:] = [token]
        closed = {number for number in differs if self.sentences[number].words[-1] == self.specials.eos}
        if going := sorted({*differs, *fresh} - closed):
            words = [len(self.sentences[number].words) for number in going]
            if self.read is None:
                self._step(going, words, self.guessed_starts(going), None)
            else:
                pasts = self.pasts(*self.read, going, [count + self.marks.inner if count else 0 for count in words])
                self._step(going, words, pasts[0].limit.tolist(), pasts)
        for number in next_ones & {*differs, *fresh}:  # these saw what is final: no near tie makes them others
            self.settle(number, self.work.rounds)

    def _step(
        self, numbers: Sequence[int], places: Sequence[int], starts: Sequence[int], pasts: Sequence[Past] | None
    ) -> None:
        """Goes on with these sentences, of which so many words are there, until all are closed.

        starts: of each how many tokens are before it in its document.
        """
        device, marks = self.device, self.marks
        chosen = [self.sentences[number] for number in numbers]
        begin = torch.tensor(starts, device=device)
        unit = torch.tensor(numbers, device=device)
        if pasts is None:
            pasts = [self.nothing(numbers)] * len(self.members)
        rows = [self.units[number] for number in numbers]
        decoder = Steps(self.model, self.memories, rows, 1, pasts)
        sources = torch.tensor([own.source for own in chosen], device=device)
        offset = torch.tensor([place + marks.inner if place else 0 for place in places], device=device)
        last = torch.tensor(
            [own.words[-1] if place else marks.begins for own, place in zip(chosen, places, strict=True)], device=device
        )
        rows_of, done = list(range(len(numbers))), torch.zeros_like(last, dtype=torch.bool)
        while not bool(done.all()):
            self.work.steps += 1
            self.work.cost += self._cost_of_step(len(rows_of))
            states = decoder.read(last, offset, begin + offset, sources)
            progress = Progress(last, torch.zeros_like(last), offset, torch.zeros_like(last))
            token, _, _ = self._choose(states, progress, unit)
            said = ~done & (offset >= marks.inner)
            for place, word, is_said in zip(rows_of, token.tolist(), said.tolist(), strict=True):
                if is_said:
                    chosen[place].words.append(word)
            done = done | (said & (token == self.specials.eos))
            # What is closed stays for a while, as leaving copies what all others see.
            last, offset = torch.where(done, last, token), torch.where(done, offset, offset + 1)
            if len(rows_of) <= 4 * int(done.sum()) and not bool(done.all()):
                kept = (~done).nonzero().flatten()
                rows_of = [rows_of[n] for n in kept.tolist()]
                last, offset, begin, unit, sources, done = (x[kept] for x in (last, offset, begin, unit, sources, done))
                decoder.keep(kept, kept)

    def _choose(
        self, states: Sequence[Tensor], progress: Progress, unit: Tensor, labels: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The next token [n] after states [n, d] of each member, the log-probability of it (or of labels [n]), and
        whether there was no choice [n], where it is 0."""
        found = []
        for part in torch.arange(len(unit), device=self.device).split(_CHUNK):
            own = progress.select(part)
            forced = self.rules.forced(own, unit[part], 0)
            logits = self.output.logits([each[part] for each in states], self.config.temperature, unit[part])
            normalizer = normalizers(logits)[:, 0]
            self.rules.restrict(logits, own, unit[part])
            best, place = (x[:, 0] for x in likeliest(logits, 1))
            worth = best if labels is None else logits.gather(1, self.output.places(labels[part, None]))[:, 0]
            free = forced < 0
            token = torch.where(free, self.output.tokens(place), forced)
            found.append((token, torch.where(free, worth - normalizer, 0.0), ~free))
        tokens, scores, fixed = (torch.cat(column) for column in zip(*found, strict=True))
        return tokens, scores, fixed

    def _verify(self) -> dict[int, tuple[int, int]]:
        """For each sentence that would be another after the drafts before it: where, in words, and its token there."""
        target, states, _ = self.read_drafts()
        drafted = {n: own for n, own in enumerate(self.sentences) if own.words and not own.given}
        counts = torch.tensor([len(own.words) if n in drafted else 0 for n, own in enumerate(self.sentences)])
        number = torch.arange(len(counts)).repeat_interleave(counts)
        offset = Spans.tile(counts).positions() + self.marks.inner
        index = (target.sentences.starts[number] + offset).to(self.device)
        labels = torch.tensor([word for own in drafted.values() for word in own.words], device=self.device)
        number, offset = number.to(self.device), offset.to(self.device)
        zeros = torch.zeros_like(offset)
        progress = Progress(target.tokens[index], zeros, offset, zeros)
        found = self._choose([own[index] for own in states], progress, number, labels)
        said, scores, fixed = (each.tolist() for each in found)
        differs, reached = {}, 0
        for place, own in drafted.items():
            mine = slice(reached, reached + len(own.words))
            reached = mine.stop
            own.score, own.tokens = sum(scores[mine]), len(own.words) - sum(fixed[mine])
            if not own.final and said[mine] != own.words:
                first = next(n for n, pair in enumerate(zip(said[mine], own.words, strict=True)) if pair[0] != pair[1])
                differs[place] = first, said[mine][first]
        return differs
