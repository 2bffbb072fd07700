"""Options of the search and of the context that a model reads, and what a caller does between the steps of a search."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeVar

from docmt.core.errors import DocmtError
from docmt.core.settings import MANY, Excludes, Needs, OptionError, assigned, check_fields, ranged, short_repr

if TYPE_CHECKING:
    from torch import Tensor

BATCH_TOKENS = 8192
"""Source tokens that are searched together by default, padding included."""
USUAL_DRAFT_BEAM = 4
"""Beam size of drafts, first translations that other systems read."""
FOR_TRANSLATE = ("sentence_tokens", "n_best", "sampling", "seed")
"""Settings of the search that `docmt translate` has, and no other command."""
_PUBLISHED = ("gtransformer", "thumt", "rfa", "huggingface")  # implementations of others
_NOT_TOGETHER = "does not go together with {}: leave one of them out"
Number = TypeVar("Number", float, "Tensor")


@dataclass(frozen=True)
class SearchConfig:
    """Beam search (defaults as published: Bao et al. 2021, section 4)."""

    beam: int = ranged(5, 1, 10_000)
    """hypotheses kept for each instance, window or sentence; 1 is greedy search"""
    length_penalty: float = ranged(1.0, -20, 20)
    """score = log-probability / tokens ** penalty"""
    max_length_ratio: float = ranged(1.2, 0, 1000)
    """a target sentence has at most ratio * n + extra tokens; n: its source tokens"""
    max_length_extra: float = ranged(10.0, -1_000_000, 1_000_000)
    """extra tokens of a target sentence, see max_length_ratio"""
    min_length: int = ranged(1, 0, 1_000_000)
    """least number of tokens of a target sentence (document system: of a translation, only with gtransformer)"""
    temperature: float = ranged(1.0, 1e-3, 1000)
    """divisor of the logits before the softmax; above 1 flattens the distribution"""
    implementation: Literal["docmt", "gtransformer", "thumt", "rfa", "huggingface"] = "docmt"
    """follow the search rules of another implementation"""
    sequential: bool = False
    """translate the sentences of a document strictly one after the other, not side by side with later repairs (systems
    whose decoder sees earlier translations): for an exact comparison"""
    sentence_tokens: int = ranged(120, 8, MANY)
    """a sentence of more source tokens is translated in pieces of at most so many (not by a published search)"""
    n_best: int = ranged(1, 1, 10_000)
    """translations returned for each instance, window or sentence; at most the beam"""
    sampling: bool = False
    """draw each token from the model's distribution instead of taking the best; needs beam 1"""
    seed: int = ranged(1, 0, 2**63 - 1)
    """seed of the samples, which do not depend on the batches"""

    option_rules = (
        Excludes("sequential", "sampling"),
        *(Excludes("sequential", f"implementation {name}") for name in _PUBLISHED),
        Needs("seed", "sampling"),
        Needs("sampling", "beam 1", "needs {}: set it, or leave sampling out"),
        *(Excludes("sampling", f"implementation {name}", _NOT_TOGETHER) for name in _PUBLISHED),
    )

    def __post_init__(self) -> None:
        check_fields(self, "search.")
        if self.implementation == "thumt" and self.min_length > 1:  # it has no least length: 0 says so
            raise OptionError("search.min_length", "has no effect with {}: leave it out", "search.implementation thumt")
        if self.n_best > self.beam:
            raise OptionError("search.n_best", f"is {self.n_best} but the beam is {self.beam}: choose at most the beam")
        if self.implementation != "thumt" and self.max_length_extra < max(self.min_length, 1):
            raise OptionError(
                "search.max_length_extra",
                f"is {self.max_length_extra}: choose at least {max(self.min_length, 1)}, the least number of tokens of "
                "a sentence",
            )

    __repr__ = short_repr

    def check_terms(self, terms: object, name: str = "terms") -> None:
        """Raise DocmtError if there are terms, or what has this name, and they do not go with this search."""
        if terms and (self.sampling or self.implementation != "docmt"):
            other = "search.sampling" if self.sampling else f"search.implementation {self.implementation}"
            raise DocmtError(f"{name} need the beam search of docmt, not {other}: leave one of them out")

    def sentence_limit(self, source_tokens: int) -> int:
        """Return the most target tokens for a source sentence of `source_tokens` tokens, without boundary tokens."""
        if self.implementation in ("thumt", "rfa"):
            return int(self.max_length_ratio * (source_tokens + 1) + self.max_length_extra)
        if self.implementation == "gtransformer":
            return max(int(self.max_length_ratio * (source_tokens - 1) + self.max_length_extra), 1)
        return int(self.max_length_ratio * source_tokens + self.max_length_extra)

    def normalize_score(self, log_probability: Number, tokens: int) -> Number:
        """Return the length-normalised score of a translation; tokens: those that count."""
        length = (5 + tokens) / 6 if self.implementation == "thumt" else max(tokens, 1)
        return log_probability / length**self.length_penalty


@dataclass(frozen=True)
class ContextConfig:
    """Part of a document that a model reads at once, for systems that read several sentences."""

    instance_tokens: int = ranged(0, 0, MANY)
    """the model reads fewer source tokens than this at once; 0: as in training"""
    overlap: int = ranged(0, 0, 10_000)
    """earlier sentences that each instance sees again, with their translations (group only)"""
    window_decoding: Literal["auto", "last", "prefix"] = "auto"
    """translate each window and keep its last sentence, or continue a prefix; auto: as trained (concat)"""

    def __post_init__(self) -> None:
        check_fields(self, "context.")

    __repr__ = short_repr


_CALL: ContextVar[Callable[[], None]] = ContextVar("between_steps", default=lambda: None)


def calling_between_steps(call: Callable[[], None]) -> AbstractContextManager[None]:
    """Let searches, scoring and alignment in this context make a call between their steps and batches.

    The call may translate with the same model. An exception that is no DocmtError ends the search and is passed on.
    """
    return assigned(_CALL, call)


def between_steps() -> None:
    """Make the caller's call, if any."""
    _CALL.get()()
