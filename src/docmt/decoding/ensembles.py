"""Models of a translator: ensembles, and loading from directories.

At every step the probability of the next token is the mean over the members, p(w) = 1/n sum_i p_i(w): the arithmetic
mean, as in fairseq and (by default, "linear") Sockeye, not the mean of logarithms. A temperature divides the logits of
each member before its softmax, that is, before the mean.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from docmt.checkpoint.model_directory import choose_device, find_model, load_checked, read_tokenizer_and_languages
from docmt.checkpoint.model_names import warn_if_non_commercial
from docmt.core.errors import DocmtError
from docmt.model import ModelInput, TranslationModel
from docmt.model.contexts import Memory
from docmt.model.products import Precision, check_precision
from docmt.model.systems import ContextSpec
from docmt.text import Tokenizer

Memories = Mapping[str, Memory] | Sequence[Mapping[str, Memory]]
"""Memories of a model, or of each member of an ensemble."""


class Ensemble:
    """Models with the same vocabulary, decoding order and rules, which decode together.

    Search and scoring use it as one model. Members may differ in everything else: sizes, layers, positions, limits of
    instances (the smallest one holds). Raises DocmtError, naming the two models, where what they must share differs.
    """

    def __init__(self, members: Sequence[TranslationModel], names: Sequence[str] = ()) -> None:
        """names: of the members, for messages."""
        if not members:
            raise DocmtError("an ensemble needs at least one model")
        self.members = tuple(members)
        names = names or [f"model {number}" for number in range(1, len(members) + 1)]
        first = members[0]
        self.system, self.boundary_tokens, self.family = first.system, first.boundary_tokens, first.family
        for name, member in zip(names, members, strict=True):
            if problem := _find_difference(first, member):
                raise DocmtError(f"{names[0]} and {name} cannot form an ensemble: {problem}")

    @property
    def device(self) -> torch.device:
        """Device of the weights."""
        return self.members[0].device

    def compute_memories(self, inputs: ModelInput) -> Sequence[Mapping[str, Memory]]:
        """Compute the memories of each member for a model input."""
        return [member.compute_memories(inputs) for member in self.members]


Model = TranslationModel | Ensemble


def list_memories(memories: Memories) -> Sequence[Mapping[str, Memory]]:
    """Return the memories of each member."""
    return [memories] if isinstance(memories, Mapping) else memories


def list_members(model: Model) -> tuple[TranslationModel, ...]:
    """Return the members of an ensemble, or the one model."""
    return model.members if isinstance(model, Ensemble) else (model,)


def pair_members(model: Model, memories: Memories) -> Iterator[tuple[TranslationModel, Mapping[str, Memory]]]:
    """Return an iterator over the members of a model, each with its memories."""
    return zip(list_members(model), list_memories(memories), strict=True)


def combine_context_specs(model: Model) -> ContextSpec:
    """Return the context spec that covers all members.

    In the order "sentences" a member that needs fewer earlier sentences, or no drafts, reads more than it attends to.
    """
    specs = [member.system.context_spec() for member in list_members(model)]
    if all(spec == specs[0] for spec in specs):
        return specs[0]
    return ContextSpec(
        source_context=max(spec.source_context for spec in specs),
        joined_context=any(spec.joined_context for spec in specs),
        drafts=any(spec.drafts for spec in specs),
    )


def average_probabilities(log_probabilities: Sequence[Tensor]) -> Tensor:
    """Return log(1/n sum_i p_i) of n tensors of log p_i of equal shape [...], computed in log space."""
    if len(log_probabilities) == 1:
        return log_probabilities[0]
    return torch.stack(list(log_probabilities)).logsumexp(0) - math.log(len(log_probabilities))


def compute_next_logits(model: Model, states: Sequence[Tensor], temperature: float) -> Tensor:
    """Return the logits [n, V] of the next token after the states [n, d] of each member.

    Those of one model without temperature have the precision of its products, all others are float32.
    """
    logits = [member.project(x) for member, x in zip(list_members(model), states, strict=True)]
    if temperature != 1.0:
        logits = [x.float() / temperature for x in logits]
    return logits[0] if len(logits) == 1 else average_probabilities([x.float().log_softmax(-1) for x in logits])


def _find_difference(one: TranslationModel, other: TranslationModel) -> str:
    """Return why two models cannot be members of one ensemble, or nothing if they can."""
    systems = one.config.system, other.config.system
    for name in ("decoding_order", "rules"):
        first, second = getattr(one.system, name), getattr(other.system, name)
        if first != second:
            return (
                f"a {systems[0]} and a {systems[1]} model decode differently ({first} and {second}). Choose models of "
                "one system."
            )
    if one.system.decoding_order != "sentences" and one.system.context_spec() != other.system.context_spec():
        return "their contexts have other numbers of sentences, or other sides. Choose models with the same context."
    specs = [member.system.context_spec() for member in (one, other)]
    if any(spec.reads_instances for spec in specs) and any(spec.source_context for spec in specs):
        return "one reads whole instances, the other a few sentences before. Choose models with the same context."
    if one.boundary_tokens != other.boundary_tokens:
        return f"families {one.config.family} and {other.config.family} have other boundary tokens. Choose one family."
    sizes = one.config.vocabulary_size, other.config.vocabulary_size
    return "" if sizes[0] == sizes[1] else f"their vocabularies have {sizes[0]} and {sizes[1]} entries."


def load_members(
    paths: Sequence[Path], device: torch.device | str, precision: Precision
) -> tuple[Model, Tokenizer, tuple[str, str]]:
    """Load the model, or the members of an ensemble, ready to translate; with its tokenizer and language codes.

    Raises DocmtError for directories that are missing, incomplete or damaged, and for models with different tokenizers,
    languages, or ways of decoding.
    """
    device = choose_device(device)
    check_precision(precision, device)
    tokenizer, languages = read_tokenizer_and_languages(paths)
    models = [load_checked(path, device, precision, tokenizer) for path in paths]
    for path in paths:
        warn_if_non_commercial(find_model(path))
    return models[0] if len(models) == 1 else Ensemble(models, list(map(str, paths))), tokenizer, languages
