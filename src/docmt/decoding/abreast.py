"""Greedy search in which all sentences of a document are decoded at the same time, with the same result.

At first each sentence is decoded as if it were alone. Then a full pass reads these drafts and tells, for every token,
whether it would have been chosen after the drafts before it. A sentence goes on from its first token that would not;
one whose tokens all stay is final as soon as all before it are, and so is the first one that goes on, as what it then
sees is final. So in every round at least one sentence more of each document is final, and what is found is what a
search token after token finds: but for near ties, as a full pass rounds otherwise than single steps.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from docmt.decoding.abreast_caches import Past, RecordingView
from docmt.decoding.config import SearchConfig
from docmt.decoding.ensemble import Memories, Model, members_of, of_members
from docmt.decoding.frame import Frame, Progress, Row
from docmt.decoding.hypothesis import Hypothesis, not_numbers
from docmt.decoding.rules import marks_of
from docmt.decoding.step import Steps, next_logits
from docmt.model import Packed, TranslationModel, pack
from docmt.model.attention import Attention
from docmt.model.linear_attention import LinearAttention
from docmt.model.spans import Spans
from docmt.text import SpecialTokens

_CHUNK = 256  # states that are projected to the vocabulary at a time
_PASS = 100  # tokens of a full pass that take about as long as one step
_LOSS = 0.1  # of the steps of a search token after token: so many more may be lost before it takes over


def can_decode_abreast(model: Model, rows: Sequence[Row], config: SearchConfig) -> bool:
    """Whether the sentences of these rows can be decoded at the same time."""
    if config.beam > 1 or config.compatibility != "none" or all(len(row.sentences) == 1 for row in rows):
        return False
    return all(_fits(member) for member in members_of(model))


def _fits(model: TranslationModel) -> bool:
    """Whether what is said is seen by softmax attention to whole documents, and not otherwise."""
    if model.system.rules != "frame" or model.system.order != "documents" or model.parts.frame.joined:
        return False
    decoder = [*model.decoder.modules(), *model.above_decoder.modules()]
    attentions = [module for module in decoder if isinstance(module, Attention)]
    return not any(isinstance(own, LinearAttention) or own.sight.part == "before" for own in attentions)


@dataclass
class Work:
    """What decoding took."""

    rounds: int = 0
    steps: int = 0
    passes: int = 0
    said: int = 0
    """tokens that were chosen in steps"""
    kept: int = 0
    """tokens that are in the result"""
    gave_up: bool = False
    """whether a search token after token took over"""


@dataclass
class _Sentence:
    """One sentence of one of the rows."""

    row: int
    source: int
    """number in the packed source"""
    words: list[int] = field(default_factory=list)
    """its draft, and `</s>`"""
    final: bool = False
    given: bool = False
    scores: list[float] = field(default_factory=list)
    forced: list[bool] = field(default_factory=list)


class Abreast:
    """One such search over rows of D documents with S sentences in all."""

    def __init__(
        self, model: Model, memories: Memories, rows: Sequence[Row], specials: SpecialTokens, config: SearchConfig
    ) -> None:
        """See `search.search`."""
        self.model, self.memories, self.config, self.specials = model, memories, config, specials
        self.members, self.marks, self.device = members_of(model), marks_of(model, specials), model.device
        self.rows, self.work = rows, Work()
        eos = specials.eos
        self.sentences = [_Sentence(number, source) for number, row in enumerate(rows) for source in row.sentences]
        lengths = [length for row in rows for length in row.lengths]
        firsts = [0]
        for row in rows:
            firsts.append(firsts[-1] + len(row.sentences))
        self.firsts = firsts
        for first, row in zip(firsts[:-1], rows, strict=True):
            for own, words in zip(self.sentences[first:], row.prefix, strict=False):
                own.words, own.final, own.given = [*words, eos], True, True
        units = [Row([own.source], [length]) for own, length in zip(self.sentences, lengths, strict=True)]
        self.units = units
        self.rules = Frame(units, config, self.marks, self.device)
        # As long as a search token after token would take: the longest of the documents, by its source.
        self.usual = max(sum(row.lengths) + 2 * len(row.lengths) for row in rows)
        self.source_lengths = lengths

    def run(self) -> bool:
        """Decodes; False where it was not worth going on, so that nothing is found."""
        going = [number for number, own in enumerate(self.sentences) if not own.final]
        self._step(going, [0] * len(going), self._guessed_starts(), None)
        while True:
            self.work.rounds += 1
            differs, pasts = self._verify()
            going = sorted(differs)
            for first, last in zip(self.firsts, self.firsts[1:], strict=False):
                for own, number in zip(self.sentences[first:last], range(first, last), strict=True):
                    if number in differs:
                        own.final = True  # what it sees is final, and it goes on from there
                        break
                    own.final = True
            if not going:
                return True
            if self._is_behind():
                self.work.gave_up = True
                return False
            places = [differs[number][0] for number in going]
            for number in going:
                place, token = differs[number]
                own = self.sentences[number]
                own.words = [*own.words[:place], token]
            left = [n for n, number in enumerate(going) if self.sentences[number].words[-1] != self.specials.eos]
            if left:
                limits = pasts[0].limit.tolist()
                self._step([going[n] for n in left], [places[n] + 1 for n in left], limits, pasts)

    def _is_behind(self) -> bool:
        """Whether a search token after token would be further by now."""
        final = [sum(len(own.words) + 1 for own in self._of(row) if own.final) for row in range(len(self.rows))]
        spent = self.work.steps + self.work.passes / _PASS
        return spent > min(final) + _LOSS * self.usual

    def _of(self, row: int) -> list[_Sentence]:
        return self.sentences[self.firsts[row] : self.firsts[row + 1]]

    def _guessed_starts(self) -> list[int]:
        """Of each sentence that is not given how many tokens are before it in its document, if all are as long as
        their sources."""
        frame, starts = self.marks.frame, []
        for number, row in enumerate(self.rows):
            reached = 0
            for own, length in zip(self._of(number), row.lengths, strict=True):
                if not own.given:
                    starts.append(reached)
                words = len(own.words) - 1 if own.given else length
                reached += len(frame.target_opens) + words + frame.target_closes
        return starts

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
            pasts = [self._nothing(numbers)] * len(self.members)
        rows = [self.units[number] for number in numbers]
        decoder = Steps(self.model, self.memories, rows, 1, pasts)
        sources = torch.tensor([own.source for own in chosen], device=device)
        offset = torch.tensor([place + marks.inner if place else 0 for place in places], device=device)
        last = torch.tensor(
            [own.words[-1] if place else marks.begins for own, place in zip(chosen, places, strict=True)], device=device
        )
        alive = list(range(len(numbers)))
        while alive:
            self.work.steps += 1
            self.work.said += len(alive)
            states = decoder.read(last, offset, begin + offset, sources)
            progress = Progress(last, torch.zeros_like(last), offset, torch.zeros_like(last))
            token, _ = self._choose(states, progress, unit)
            closes = (token == self.specials.eos) & (offset >= marks.inner)
            opened = (offset >= marks.inner).tolist()
            for place, said, is_word in zip(alive, token.tolist(), opened, strict=True):
                if is_word:
                    chosen[place].words.append(said)
            last, offset = token, offset + 1
            if bool(closes.any()):
                kept = (~closes).nonzero().flatten()
                alive = [alive[n] for n in kept.tolist()]
                if alive:
                    last, offset, begin, unit, sources = (x[kept] for x in (last, offset, begin, unit, sources))
                    decoder.keep(kept, kept)

    def _choose(self, states: Sequence[Tensor], progress: Progress, unit: Tensor) -> tuple[Tensor, Tensor]:
        """The best next token after states [n, d] of each member, and its log-probability (forced: 0)."""
        forced = self.rules.forced(progress, unit, 0)
        logits = next_logits(self.members, states, self.config.temperature)
        normalizer = logits.logsumexp(-1)
        self.rules.restrict(logits, progress, unit)
        best, token = logits.max(-1)
        free = forced < 0
        return torch.where(free, token, forced), torch.where(free, best - normalizer, 0.0)

    def _verify(self) -> tuple[dict[int, tuple[int, int]], list[Past]]:
        """For each sentence that would be another after the drafts before it: the place and the token, in words; and
        what those that go on see."""
        frame, opens = self.marks.frame, self.marks.frame.target_opens
        closing = [self.specials.eos] if frame.target_closes else []
        documents = [[[*opens, *own.words[:-1], *closing] for own in self._of(row)] for row in range(len(self.rows))]
        target = pack(documents).to(self.device)
        self.work.passes += len(target.tokens)
        aligned = torch.tensor([own.source for own in self.sentences])
        kept, states = [], []
        for member, memories in zip(self.members, of_members(self.memories), strict=True):
            view = RecordingView(target, memories, aligned, self._documents())
            states.append(member.decode(member.embed("target", target), view))
            kept.append(view.kept)
        starts = target.sentences.starts
        counts = torch.tensor([0 if own.given else len(own.words) for own in self.sentences])
        number = torch.arange(len(self.sentences)).repeat_interleave(counts)
        place = Spans.tile(counts).positions()
        offset = place + self.marks.inner
        index = (starts[number] + offset).to(self.device)
        unit, offset = number.to(self.device), offset.to(self.device)
        zeros = torch.zeros_like(offset)
        tokens, scores, forced = [], [], []
        for part in range(0, len(index), _CHUNK):
            own = slice(part, part + _CHUNK)
            progress = Progress(target.tokens[index[own]], zeros[own], offset[own], zeros[own])
            found, worth = self._choose([each[index[own]] for each in states], progress, unit[own])
            tokens.append(found)
            scores.append(worth)
            forced.append(self.rules.forced(progress, unit[own], 0) >= 0)
        best, worth = torch.cat(tokens).tolist(), torch.cat(scores).tolist()
        is_forced = torch.cat(forced).tolist()
        differs: dict[int, tuple[int, int]] = {}
        reached = 0
        for number_, own in enumerate(self.sentences):
            if own.given:
                continue
            count = len(own.words)
            said = best[reached : reached + count]
            own.scores, own.forced = worth[reached : reached + count], is_forced[reached : reached + count]
            reached += count
            if not own.final and said != own.words:
                first = next(n for n, (a, b) in enumerate(zip(said, own.words, strict=True)) if a != b)
                differs[number_] = first, said[first]
        going = [n for n in sorted(differs) if differs[n][1] != self.specials.eos]
        return differs, self._pasts(kept, target, going, [differs[n][0] for n in going])

    def _documents(self) -> Tensor:
        """[D] the number in the memories of the document that each row is of."""
        for memory in of_members(self.memories)[0].values():
            if memory.documents is not None:
                starts = memory.sentences.starts[torch.tensor([row.sentences[0] for row in self.rows])]
                return memory.documents.holding(starts)
        return torch.arange(len(self.rows))

    def _nothing(self, numbers: Sequence[int]) -> Past:
        """What the first drafts see of other sentences."""
        none, rows = Spans.tile([0] * len(self.rows)), torch.tensor([self.sentences[number].row for number in numbers])
        empty = Spans.tile([0] * len(numbers))
        return Past({}, none, rows, torch.zeros_like(rows), empty, self._documents())

    def _pasts(
        self,
        kept: Sequence[Mapping[Attention, tuple[Tensor, Tensor]]],
        target: Packed,
        going: Sequence[int],
        places: Sequence[int],
    ) -> list[Past]:
        """What these sentences see, which keep so many words of what was read in the pass."""
        rows = torch.tensor([self.sentences[number].row for number in going], dtype=torch.int64)
        starts = target.sentences.starts[torch.tensor(going, dtype=torch.int64)]
        read = torch.tensor(places, dtype=torch.int64) + self.marks.inner + 1
        limit = starts - target.documents.starts[rows]
        return [Past(own, target.documents, rows, limit, Spans(starts, read), self._documents()) for own in kept]

    def hypotheses(self) -> list[list[Hypothesis]]:
        """What `run` found, as `search.search` has it. Raises DocmtError where the model's scores are no numbers."""
        found = []
        for row in range(len(self.rows)):
            own = self._of(row)
            if not all(math.isfinite(score) for sentence in own for score in sentence.scores):
                raise not_numbers()
            scores = [sum(sentence.scores) for sentence in own]
            counts = [len(sentence.forced) - sum(sentence.forced) for sentence in own]
            score = self.config.normalized(sum(scores), sum(counts))
            found.append([Hypothesis([sentence.words[:-1] for sentence in own], scores, counts, score, sum(counts))])
        return found
