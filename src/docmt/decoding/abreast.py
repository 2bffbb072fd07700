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
from itertools import pairwise

import torch
from torch import Tensor

from docmt.decoding.abreast_caches import Past, RecordingView
from docmt.decoding.config import SearchConfig
from docmt.decoding.ensemble import Memories, Model, members_of, of_members
from docmt.decoding.frame import Frame, Progress, Row
from docmt.decoding.hypothesis import Hypothesis, not_numbers
from docmt.decoding.rules import marks_of
from docmt.decoding.step import Steps, likeliest, next_logits, normalizers
from docmt.model import Packed, TranslationModel, pack
from docmt.model.attention import Attention
from docmt.model.linear_attention import LinearAttention
from docmt.model.spans import Spans
from docmt.text import SpecialTokens

_CHUNK = 256  # states that are projected to the vocabulary at a time
_PASS = 100  # tokens of a full pass that take about as long as one step
_ROWS = 60  # rows that make a step take twice as long as one row does
_LOSS = 0.1  # of the time of a search token after token: so much more may be lost before it takes over
_PADDING = 8  # times the tokens of the source: so many, with those that fill up short sentences, are looked at


def can_decode_abreast(model: Model, rows: Sequence[Row], config: SearchConfig) -> bool:
    """Whether the sentences of these rows can be decoded at the same time."""
    if not config.abreast or config.beam > 1 or config.compatibility != "none":
        return False
    lengths = [length for row in rows for length in row.lengths]
    if len(lengths) == len(rows) or len(lengths) * max(lengths) > _PADDING * sum(lengths):
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
    cost: float = 0.0
    """as many steps of one row"""
    passes: int = 0
    """tokens that were read in full passes"""
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
        self.units = [Row([own.source], [length]) for own, length in zip(self.sentences, lengths, strict=True)]
        self.rules = Frame(self.units, config, self.marks, self.device)
        # As long as a search token after token would take: the longest of the documents, by its source.
        self.usual = max(sum(row.lengths) + 2 * len(row.lengths) for row in rows)

    def run(self) -> bool:
        """Decodes; False where it was not worth going on, so that nothing is found."""
        going = [number for number, own in enumerate(self.sentences) if not own.final]
        self._step(going, [0] * len(going), self._guessed_starts(), None)
        while True:
            self.work.rounds += 1
            differs, pasts = self._verify()
            for first, last in pairwise(self.firsts):
                changed = next((number for number in range(first, last) if number in differs), last - 1)
                for own in self.sentences[first : changed + 1]:  # one that goes on from here sees what is final
                    own.final = True
            if not differs:
                return True
            if self._is_behind():
                self.work.gave_up = True
                return False
            for number, (place, token) in differs.items():
                self.sentences[number].words[place:] = [token]
            if going := [number for number in differs if self.sentences[number].words[-1] != self.specials.eos]:
                lengths = [len(self.sentences[number].words) for number in going]
                self._step(going, lengths, pasts[0].limit.tolist(), pasts)

    def _is_behind(self) -> bool:
        """Whether a search token after token would be further by now."""
        final = [sum(len(own.words) + 1 for own in self._of(row) if own.final) for row in range(len(self.rows))]
        one = _cost(len(self.rows))
        return self.work.cost + self.work.passes / _PASS > one * (min(final) + _LOSS * self.usual)

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
        rows_of, done = list(range(len(numbers))), torch.zeros_like(last, dtype=torch.bool)
        while not bool(done.all()):
            self.work.steps += 1
            self.work.cost += _cost(len(rows_of))
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
            logits = next_logits(self.members, [each[part] for each in states], self.config.temperature)
            normalizer = normalizers(logits)[:, 0]
            self.rules.restrict(logits, own, unit[part])
            best, token = (x[:, 0] for x in likeliest(logits, 1))
            worth = best if labels is None else logits.gather(1, labels[part, None])[:, 0]
            free = forced < 0
            found.append((torch.where(free, token, forced), torch.where(free, worth - normalizer, 0.0), ~free))
        tokens, scores, fixed = (torch.cat(column) for column in zip(*found, strict=True))
        return tokens, scores, fixed

    def _verify(self) -> tuple[dict[int, tuple[int, int]], list[Past]]:
        """For each sentence that would be another after the drafts before it: where, in words, and its token there; and
        what those see that go on from there."""
        target, states, kept = self._read_drafts()
        drafted = [own for own in self.sentences if not own.given]
        counts = torch.tensor([0 if own.given else len(own.words) for own in self.sentences])
        number = torch.arange(len(counts)).repeat_interleave(counts)
        offset = Spans.tile(counts).positions() + self.marks.inner
        index = (target.sentences.starts[number] + offset).to(self.device)
        labels = torch.tensor([word for own in drafted for word in own.words], device=self.device)
        number, offset = number.to(self.device), offset.to(self.device)
        zeros = torch.zeros_like(offset)
        progress = Progress(target.tokens[index], zeros, offset, zeros)
        found = self._choose([own[index] for own in states], progress, number, labels)
        said, scores, fixed = (each.tolist() for each in found)
        differs, reached = {}, 0
        for place, own in enumerate(self.sentences):
            if own.given:
                continue
            mine = slice(reached, reached + len(own.words))
            reached = mine.stop
            own.scores, own.forced = scores[mine], fixed[mine]
            if not own.final and said[mine] != own.words:
                first = next(n for n, pair in enumerate(zip(said[mine], own.words, strict=True)) if pair[0] != pair[1])
                differs[place] = first, said[mine][first]
        going = [place for place, (_, token) in sorted(differs.items()) if token != self.specials.eos]
        return differs, self._pasts(kept, target, going, [differs[place][0] for place in going])

    def _read_drafts(self) -> tuple[Packed, list[Tensor], list[Mapping[Attention, tuple[Tensor, Tensor]]]]:
        """The drafts as decoder input, what each member makes of them [T, d], and what its attentions kept."""
        frame = self.marks.frame
        closing = [self.specials.eos] if frame.target_closes else []
        drafts = [
            [[*frame.target_opens, *own.words[:-1], *closing] for own in self._of(row)] for row in range(len(self.rows))
        ]
        target = pack(drafts).to(self.device)
        self.work.passes += len(target.tokens)
        aligned = torch.tensor([own.source for own in self.sentences])
        states, kept = [], list[Mapping[Attention, tuple[Tensor, Tensor]]]()
        for member, memories in zip(self.members, of_members(self.memories), strict=True):
            view = RecordingView(target, memories, aligned, self._documents())
            states.append(member.decode(member.embed("target", target), view))
            kept.append(view.kept)
        return target, states, kept

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


def _cost(rows: int) -> float:
    """How long a step of so many rows takes, in steps of one."""
    return 1 + rows / _ROWS
