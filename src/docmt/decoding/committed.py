"""Beam search inside each sentence, the best translation committed before the next sentence begins.

One sentence after the other, or (abreast) all at the same time: at first each as if it were alone, then all that are
not final again, each after the drafts before it. What was searched after final sentences is final: the first of each
document, and all after it up to the first draft that changed. So what is found is what one sentence after the other
finds, but for near ties.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torch import Tensor

from docmt.decoding.beams import Beams
from docmt.decoding.drafts import Drafts, Kept, cost_of, has_pasts
from docmt.decoding.ensemble import Model, members_of
from docmt.decoding.hypothesis import Hypothesis
from docmt.errors import DocmtError
from docmt.model import Packed

_MOST_ROWS = 400  # hypotheses that are searched together


def check_can_commit(model: Model) -> None:
    """Raises DocmtError for models whose sentences are not found one by one."""
    for member in members_of(model):
        if member.system.order != "documents" or not has_pasts(member):
            raise DocmtError(
                f"search.commit sentence is not for this {member.config.system} model: it is for systems that "
                "translate whole instances sentence for sentence (group); leave it out"
            )


class Committed(Drafts):
    """One such search over rows of D documents; B hypotheses of each sentence."""

    def run(self) -> list[list[Hypothesis]]:
        """The translation of each row, as `search.search` has it."""
        abreast = self.config.abreast
        if abreast:
            self._search(self._going(), None)
            for own in (self.sentences[number] for number in self.next_ones()):
                own.final = not any(other.given for other in self.of_row(own.row))  # those were not looked at
        while going := self._going():
            self.work.rounds += 1
            if abreast and self.is_behind():
                abreast, self.work.gave_up = False, True
                for number in going:
                    self.sentences[number].words = []
            if not abreast:
                going = self.next_ones()
            before = {number: self.sentences[number].words for number in going}
            self._search(going, self.read_drafts(of_all=False))
            changed = set[int]()  # documents
            for number, words in before.items():
                own = self.sentences[number]
                own.final = own.row not in changed
                if own.words != words:
                    changed.add(own.row)
        return self.hypotheses()

    def _going(self) -> list[int]:
        """Numbers of the sentences that are not final."""
        return [number for number, own in enumerate(self.sentences) if not own.final]

    def _search(self, numbers: Sequence[int], read: tuple[Packed, list[Tensor], Kept] | None) -> None:
        """Searches these sentences after what was read, or as if each were alone."""
        starts = dict(zip(self._going(), self.guessed_starts(self._going()), strict=True)) if read is None else {}
        for group in self._groups(numbers):
            rows = [number for number in group for _ in range(self.config.beam)]
            if read is None:
                pasts, begins = [self.nothing(rows)] * len(self.members), [starts[number] for number in group]
            else:
                pasts = self.pasts(*read, rows, [0] * len(rows))
                begins = pasts[0].limit[:: self.config.beam].tolist()
            units = [self.units[number] for number in group]
            output = self.output.of(group)
            beams = Beams(self.model, self.memories, units, self.specials, self.config, pasts, begins, output)
            while beams.documents:
                self.work.steps += 1
                self.work.cost += cost_of(len(beams.documents) * self.config.beam, self.model)
                beams.step()
            for number, (best, *_) in zip(group, beams.best(), strict=True):
                own = self.sentences[number]
                own.words = [*best.sentences[0], self.specials.eos]
                own.score, own.tokens = best.sentence_scores[0], best.sentence_tokens[0]

    def _groups(self, numbers: Sequence[int]) -> Iterator[list[int]]:
        """Sentences of similar length, as many as are searched together, in order."""
        count = max(1, _MOST_ROWS // self.config.beam)
        by_length = sorted(numbers, key=lambda number: self.units[number].lengths[0])
        for first in range(0, len(numbers), count):
            yield sorted(by_length[first : first + count])
