"""Drafts of all sentences of some documents, and what a full pass over them tells.

What searches have in common that find sentences of a document at the same time, or one by one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from docmt.data.config import MARKS
from docmt.decoding.config import SearchConfig
from docmt.decoding.ensemble import Memories, Model, members_of, of_members
from docmt.decoding.frame import Row
from docmt.decoding.hypothesis import Hypothesis, not_numbers
from docmt.decoding.output import Output
from docmt.decoding.past import Past, RecordingView, Shown
from docmt.decoding.rules import marks_of
from docmt.model import Packed, TranslationModel, pack
from docmt.model.attention import Attention
from docmt.model.spans import Spans
from docmt.text import SpecialTokens

Kept = Sequence[Mapping[Attention, Shown]]
"""Of each member what its attentions were shown in a pass."""


def has_pasts(model: TranslationModel) -> bool:
    """Whether what is said can be read in one pass and gone on from."""
    return model.system.rules == "frame" and not model.parts.frame.joined


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
class DraftedSentence:
    """One sentence of one of the rows."""

    row: int
    source: int
    """number in the packed source"""
    words: list[int] = field(default_factory=list)
    """its draft, and `</s>`"""
    final: bool = False
    """whether it is what a search of one sentence after the other finds"""
    given: bool = False
    score: float = 0.0
    """log-probability (nats) of what was chosen of it"""
    tokens: int = 0
    """how many tokens were"""
    round: int = 0
    """in which it was found"""


class Drafts:
    """The sentences of D documents, the rows of a search, with drafts of their translations."""

    def __init__(
        self, model: Model, memories: Memories, rows: Sequence[Row], specials: SpecialTokens, config: SearchConfig
    ) -> None:
        """See `search.search`."""
        self.model, self.memories, self.config, self.specials = model, memories, config, specials
        self.members, self.marks, self.device = members_of(model), marks_of(model, specials), model.device
        self.rows, self.work = rows, Work()
        eos = specials.eos
        self.sentences = [
            DraftedSentence(number, source) for number, row in enumerate(rows) for source in row.sentences
        ]
        lengths = [length for row in rows for length in row.lengths]
        firsts = [0]
        for row in rows:
            firsts.append(firsts[-1] + len(row.sentences))
        self.firsts = firsts
        for first, row in zip(firsts[:-1], rows, strict=True):
            for own, words in zip(self.sentences[first:], row.prefix, strict=False):
                own.words, own.final, own.given = [*words, eos], True, True
        self.lengths = [length + MARKS for length in lengths]  # of each sentence, till it is final as of its source
        self.read: tuple[Packed, list[Tensor], Kept] | None = None  # what was read last
        self.units = [Row([own.source], [length]) for own, length in zip(self.sentences, lengths, strict=True)]
        self.output = Output(model, [rows[own.row].candidates for own in self.sentences])  # of the units

    def of_row(self, row: int) -> list[DraftedSentence]:
        """Its sentences."""
        return self.sentences[self.firsts[row] : self.firsts[row + 1]]

    def next_ones(self) -> list[int]:
        """Of each document the number of the first sentence that is not final."""
        firsts: dict[int, int] = {}
        for number, own in enumerate(self.sentences):
            if not own.final:
                firsts.setdefault(own.row, number)
        return list(firsts.values())

    def guessed_starts(self, going: Sequence[int]) -> list[int]:
        """Of each of these sentences how many tokens are before it in its document, if those that are not given are as
        long as their sources."""
        frame, starts = self.marks.frame, list[int]()
        for number, row in enumerate(self.rows):
            reached = 0
            for own, length in zip(self.of_row(number), row.lengths, strict=True):
                starts.append(reached)
                words = len(own.words) - 1 if own.given else length
                reached += len(frame.target_opens) + words + frame.target_closes
        return [starts[number] for number in going]

    def read_drafts(self, of_all: bool = True) -> tuple[Packed, list[Tensor], Kept]:
        """The drafts as decoder input, what each member makes of them [T, d], and what its attentions kept.

        of_all: also those of documents that are finished.
        """
        frame = self.marks.frame
        closing = [self.specials.eos] if frame.target_closes else []
        going = {own.row for own in self.sentences if of_all or not own.final}
        drafts = [
            [[*frame.target_opens, *(own.words[:-1] if row in going else ()), *closing] for own in self.of_row(row)]
            for row in range(len(self.rows))
        ]
        target = pack(drafts).to(self.device)
        self.work.passes += len(target.tokens)
        aligned = self._aligned()
        states, kept = [], list[Mapping[Attention, Shown]]()
        for member, memories in zip(self.members, of_members(self.memories), strict=True):
            view = RecordingView(target, memories, aligned, self._documents())
            states.append(member.decode(member.embed("target", target), view))
            kept.append(view.kept)
        self.read = target, states, kept
        return self.read

    def _aligned(self) -> Tensor:
        """[S] the number in the packed source of each sentence."""
        return torch.tensor([own.source for own in self.sentences])

    def _documents(self) -> Tensor:
        """[D] the number in the memories of the document that each row is of."""
        for memory in of_members(self.memories)[0].values():
            if memory.documents is not None:
                starts = memory.sentences.starts[torch.tensor([row.sentences[0] for row in self.rows])]
                return memory.documents.holding(starts)
        return torch.arange(len(self.rows))

    def nothing(self, numbers: Sequence[int]) -> Past:
        """What the first drafts see of other sentences."""
        rows = torch.tensor([self.sentences[number].row for number in numbers])
        sentences, documents, own = (Spans.tile([0] * len(x)) for x in (self.sentences, self.rows, numbers))
        aligned, sources = self._aligned(), self._documents()
        return Past({}, sentences, aligned, documents, rows, torch.zeros_like(rows), own, sources)

    def pasts(
        self, target: Packed, states: object, kept: Kept, going: Sequence[int], read: Sequence[int]
    ) -> list[Past]:
        """What these sentences see, which go on after so many of their own tokens, read in the pass."""
        rows = torch.tensor([self.sentences[number].row for number in going], dtype=torch.int64)
        starts = target.sentences.starts[torch.tensor(going, dtype=torch.int64)]
        own, limit = Spans(starts, torch.tensor(read, dtype=torch.int64)), starts - target.documents.starts[rows]
        read_by_all = (target.sentences, self._aligned(), target.documents, rows, limit, own, self._documents())
        return [Past(each, *read_by_all) for each in kept]

    def settle(self, number: int, found: int) -> None:
        """It stays as it was found in this round (0: one by one)."""
        own = self.sentences[number]
        if not own.final:
            own.final, own.round, self.lengths[number] = True, found, len(own.words) + 1

    def hypotheses(self) -> list[list[Hypothesis]]:
        """What `run` found, as `search.search` has it. Raises DocmtError where the model's scores are no numbers."""
        return [self.hypothesis(row) for row in range(len(self.rows))]

    def hypothesis(self, row: int) -> list[Hypothesis]:
        """That of a row whose sentences are final."""
        own = self.of_row(row)
        scores, counts = [sentence.score for sentence in own], [sentence.tokens for sentence in own]
        if not all(map(math.isfinite, scores)):
            raise not_numbers()
        score = self.config.normalized(sum(scores), sum(counts))
        rounds, words = [sentence.round for sentence in own], [sentence.words[:-1] for sentence in own]
        return [Hypothesis(words, scores, counts, score, sum(counts), rounds)]
