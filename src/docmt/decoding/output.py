"""What a search may say next: all tokens, or the candidates of its rows alone.

Notation as in `caches`: D documents, the rows of the search, V vocabulary; C tokens that have logits, n states.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy

import torch
from torch import Tensor

from docmt.decoding.ensemble import Model, mean_probability, members_of
from docmt.decoding.precision import selected_head


class Output:
    """The logits of one search: of all C = V tokens, or of the candidates of any of its rows, in rising order.

    These are a small vocabulary of their own, with marks at the same ends (`CandidateTable`). What is no candidate of
    its own row has a logit of minus infinity, so that a translation does not depend on what else is searched.
    """

    def __init__(self, model: Model, candidates: Sequence[Tensor | None] = ()) -> None:
        """candidates: the ids of each of the D rows, rising; all tokens where there are none."""
        members, device = members_of(model), model.device
        self.size = members[0].config.vocabulary_size
        self.projections: list[Callable[[Tensor], Tensor]] = [member.project for member in members]
        self.ids: Tensor | None = None  # [C]
        self.outside: Tensor | None = None  # [sets, C]
        different = {id(own): own for own in candidates if own is not None}
        if not different:
            return
        numbers = {key: number for number, key in enumerate(different)}
        self.set_of = torch.tensor([numbers[id(own)] for own in candidates], device=device)  # [D]
        chosen = torch.zeros(self.size, dtype=torch.bool)
        chosen[torch.cat(list(different.values()))] = True
        ids = chosen.nonzero().flatten()
        self.ids, self.size = ids.to(device), len(ids)
        self.projections = [selected_head(member, self.ids) for member in members]
        if len(different) > 1:
            outside = torch.ones(len(different), self.size, dtype=torch.bool)
            for number, own in enumerate(different.values()):
                outside[number, torch.searchsorted(ids, own)] = False
            self.outside = outside.to(device)

    def of(self, rows: Sequence[int]) -> Output:
        """The same for a search over other rows, each with the candidates of one of these."""
        other = copy(self)
        if self.ids is not None:
            other.keep(torch.tensor(rows, device=self.ids.device))
        return other

    def keep(self, rows: Tensor) -> None:
        """Goes on with these rows only."""
        if self.ids is not None:
            self.set_of = self.set_of[rows]

    def logits(self, states: Sequence[Tensor], temperature: float, rows: Tensor) -> Tensor:
        """[n, C], whose softmax are the probabilities of the next token after states [n, d] of each member; rows [n].

        Of several members in float32, of one as its product gives them.
        """
        logits = [project(own) for project, own in zip(self.projections, states, strict=True)]
        if self.outside is not None:
            outside = self.outside[self.set_of[rows]]
            logits = [own.masked_fill_(outside, -torch.inf) for own in logits]
        if temperature != 1.0:
            logits = [own.float() / temperature for own in logits]
        return logits[0] if len(logits) == 1 else mean_probability([own.float().log_softmax(-1) for own in logits])

    def tokens(self, places: Tensor) -> Tensor:
        """The ids of tokens by their places among the C."""
        return places if self.ids is None else self.ids[places]

    def places(self, tokens: Tensor) -> Tensor:
        """The inverse of `tokens`, of candidates."""
        return tokens if self.ids is None else torch.searchsorted(self.ids, tokens)
