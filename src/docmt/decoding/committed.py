"""Beam search inside each sentence, the best translation committed before the next sentence begins.

One sentence after the other, or (abreast) the next few of each document at the same time, each after the drafts before
it. What was searched after final sentences is final: the first of these, and all after it up to the first of which the
draft changed. All others came after a draft that changed, so they are among the next ones. So what is found is what one
sentence after the other finds, but for near ties. How many are searched at the same time is what may be risked: more
where drafts stay, one where they do not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise, zip_longest

from docmt.core.errors import DocmtError
from docmt.decoding.beams import Beams
from docmt.decoding.drafts import has_pasts
from docmt.decoding.ensemble import Model, members_of
from docmt.decoding.hypothesis import Hypothesis
from docmt.decoding.risk import RiskedDrafts, cost_of, cost_of_pass

_MOST_ROWS = 400  # hypotheses that are searched together


def check_can_commit(model: Model) -> None:
    """Raises DocmtError for models whose sentences are not found one by one."""
    for member in members_of(model):
        if member.system.order != "documents" or not has_pasts(member):
            raise DocmtError(
                f"search.commit sentence is not for this {member.config.system} model: it is for systems that "
                "translate whole instances sentence for sentence (group); leave it out"
            )


class Committed(RiskedDrafts):
    """One such search over rows of D documents; B hypotheses of each sentence."""

    def run(self) -> list[list[Hypothesis]]:
        """The translation of each row, as `search.search` has it."""
        while next_ones := self.next_ones():
            going = self._affordable() if self.config.abreast else next_ones
            together = len(going) > len(next_ones)
            self.work.rounds += together
            before = {number: self.sentences[number].words for number in going}
            self._search(going)
            changed = set[int]()  # documents
            for number, words in before.items():
                own = self.sentences[number]
                if own.row not in changed:
                    self.settle(number, self.work.rounds if together else 0)
                if own.words != words:
                    changed.add(own.row)
        return self.hypotheses()

    def _affordable(self) -> list[int]:
        """The next sentences of each document, as many as may be searched at the same time: if no draft stays, at most
        RISK of the time is lost that one after the other takes, and something is gained if all do.

        Drafts of others are forgotten.
        """
        waiting = [[n for n in range(*ends) if not self.sentences[n].final] for ends in pairwise(self.firsts)]
        reach, reached = max(map(len, waiting)), self._reached()
        budgets = [self.saved([n for own in waiting for n in own[:rounds]]) - self.spent() for rounds in (1, 2)]
        while reach:
            going = [number for numbers in waiting for number in numbers[:reach]]
            again = self._once_more(going)
            cost = self._cost(going, reached) + self._cost(again, reached)
            # (In each round one of each document is found.)
            if reach == 1 or (cost <= budgets[bool(again)] and cost <= self.gained(going)):
                break
            reach -= 1 + reach // 4
        for number in (number for numbers in waiting for number in numbers[reach:]):
            self.sentences[number].words = []
        return going

    def _once_more(self, going: Sequence[int]) -> list[int]:
        """Those of these that are searched again even if all drafts stay: there is no draft yet of one before them."""
        new = [number for number in going if not self.sentences[number].words]
        return [one for before, one in pairwise(new) if self.sentences[before].row == self.sentences[one].row]

    def _search(self, numbers: Sequence[int]) -> None:
        """Searches these sentences after what is said before them, or as if each were alone where nothing is said."""
        read = self.read_drafts(of_all=False) if any(own.words for own in self.sentences) else None
        starts = dict(zip(numbers, self.guessed_starts(numbers), strict=True))
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

    def _reached(self) -> list[int]:
        """For each sentence how many tokens its document has up to its end."""
        return [count for ends in pairwise(self.firsts) for count in accumulate(self.lengths[slice(*ends)])]

    def _cost(self, numbers: Sequence[int], reached: Sequence[int]) -> float:
        """Of searching these sentences, and of a pass over what is said then up to them; reached: see `_reached`."""
        last = {self.sentences[number].row: number for number in numbers}
        said = sum(reached[number] for number in last.values())
        branching = cost_of(self.config.beam, self.model) - 1
        lengths = [[self.lengths[number] for number in group] for group in self._groups(numbers)]
        # (Sentences leave the search as they end.)
        return sum(max(group) + branching * sum(group) for group in lengths) + cost_of_pass(said, self.model)

    def one_by_one(self, numbers: Sequence[int]) -> float:
        """See `RiskedDrafts`: the next ones of all documents are searched together."""
        by_row: dict[int, list[int]] = {}
        for number in numbers:
            by_row.setdefault(self.sentences[number].row, []).append(number)
        turns, reached = zip_longest(*by_row.values()), self._reached()
        return sum(self._cost([number for number in turn if number is not None], reached) for turn in turns)
