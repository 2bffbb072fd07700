"""Several models that translate as one.

At every step the probability of the next token is the mean of those that the members give it,
p(w) = 1/n sum_i p_i(w): the arithmetic mean, as fairseq and (by default, "linear") Sockeye compute it, not the mean of
logarithms. A temperature divides the logits of each member before its own softmax, that is, before the mean.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from docmt.core.errors import DocmtError
from docmt.model import Reading, TranslationModel
from docmt.model.attention import Memory
from docmt.model.systems import Needs

Memories = Mapping[str, Memory] | Sequence[Mapping[str, Memory]]
"""What a model's decoder can look at, or for an ensemble that of each member."""


class Ensemble:
    """Models that decode in the same order by the same rules and have the same vocabulary.

    To search and scoring it is one model: they ask it for what all members have in common. Members may differ in
    everything else: sizes, layers, how positions run, the limits of instances (the least of them holds).
    Raises DocmtError, naming the two that do not fit, where what they must have in common differs.
    """

    def __init__(self, members: Sequence[TranslationModel], names: Sequence[str] = ()) -> None:
        """names: of the members, for messages."""
        if not members:
            raise DocmtError("an ensemble needs at least one model: name some")
        self.members = tuple(members)
        names = names or [f"model {number}" for number in range(1, len(members) + 1)]
        first = members[0]
        self.system, self.parts = first.system, first.parts
        for name, member in zip(names, members, strict=True):
            if problem := _difference(first, member):
                raise DocmtError(f"{names[0]} and {name} cannot translate as one: {problem}")

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.members[0].device

    def memories(self, reading: Reading) -> Sequence[Mapping[str, Memory]]:
        """What the decoder of each member can look at, computed once for what is read."""
        return [member.memories(reading) for member in self.members]


Model = TranslationModel | Ensemble


def of_members(memories: Memories) -> Sequence[Mapping[str, Memory]]:
    """What each member can look at."""
    return [memories] if isinstance(memories, Mapping) else memories


def members_of(model: Model) -> tuple[TranslationModel, ...]:
    """The members of an ensemble, or the one model."""
    return model.members if isinstance(model, Ensemble) else (model,)


def common_needs(model: Model) -> Needs:
    """Which sentences all members read together.

    In the order of sentences a member that needs fewer sentences before one only reads more than it looks at, and so
    does one that needs no drafts.
    """
    needs = [member.system.needs() for member in members_of(model)]
    if all(own == needs[0] for own in needs):
        return needs[0]
    return Needs(
        before=max(own.before for own in needs),
        joined=any(own.joined for own in needs),
        drafts=any(own.drafts for own in needs),
    )


def mean_probability(log_probabilities: Sequence[Tensor]) -> Tensor:
    """log(1/n sum_i p_i) of n tensors of log p_i of the same shape [...], without leaving the logarithms."""
    if len(log_probabilities) == 1:
        return log_probabilities[0]
    return torch.stack(list(log_probabilities)).logsumexp(0) - math.log(len(log_probabilities))


def next_logits(model: Model, states: Sequence[Tensor], temperature: float) -> Tensor:
    """[n, V]: logits of the next token after states [n, d] of each member.

    Of an ensemble in float32, of one model in the precision of its product.
    """
    logits = [member.project(own) for member, own in zip(members_of(model), states, strict=True)]
    if temperature != 1.0:
        logits = [own.float() / temperature for own in logits]
    return logits[0] if len(logits) == 1 else mean_probability([own.float().log_softmax(-1) for own in logits])


def _difference(one: TranslationModel, other: TranslationModel) -> str:
    """Why two models cannot be members of one ensemble; nothing if they can."""
    systems = one.config.system, other.config.system
    for ours, theirs in ((one.system.order, other.system.order), (one.system.rules, other.system.rules)):
        if ours != theirs:
            return (
                f"a {systems[0]} and a {systems[1]} model decode differently ({ours} and {theirs}); choose models of "
                "one system"
            )
    if one.system.order != "sentences" and one.system.needs() != other.system.needs():
        return "they look at other numbers of sentences, or on other sides; choose models with the same windows"
    if one.parts.frame != other.parts.frame:
        return f"families {one.config.family} and {other.config.family} mark sentences differently; choose one family"
    sizes = one.config.vocabulary_size, other.config.vocabulary_size
    return "" if sizes[0] == sizes[1] else f"their vocabularies have {sizes[0]} and {sizes[1]} entries"
