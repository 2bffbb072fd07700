"""Options of the search and of the context that a model reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from docmt.core.errors import DocmtError
from docmt.core.settings import MANY, check_fields, ranged, short_repr

if TYPE_CHECKING:
    from torch import Tensor

BATCH_TOKENS = 8192
"""Source tokens that are searched together by default, padding included."""
USUAL_DRAFT_BEAM = 4
"""Beam size of drafts, first translations that other systems read."""
FOR_TRANSLATE = ("n_best", "sampling", "seed")
"""Settings of the search that `docmt translate` has, and no other command."""
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
    n_best: int = ranged(1, 1, 10_000)
    """translations returned for each instance, window or sentence; at most the beam"""
    sampling: bool = False
    """draw each token from the model's distribution instead of taking the best; needs beam 1"""
    seed: int = ranged(1, 0, 2**63 - 1)
    """seed of the samples, which do not depend on the batches"""

    def __post_init__(self) -> None:
        check_fields(self, "search.")
        if self.implementation == "thumt" and self.min_length > 1:
            raise DocmtError("search.min_length has no effect with search.implementation thumt. Leave it out.")
        if self.sequential and (self.sampling or self.implementation != "docmt"):
            other = "search.sampling" if self.sampling else f"search.implementation {self.implementation}"
            raise DocmtError(f"search.sequential has no effect with {other}. Leave it out.")
        self._check_sampling()
        if self.n_best > self.beam:
            raise DocmtError(f"search.n_best is {self.n_best} but the beam is {self.beam}. Choose at most the beam.")
        if self.implementation != "thumt" and self.max_length_extra < max(self.min_length, 1):
            raise DocmtError(
                f"search.max_length_extra is {self.max_length_extra}: choose at least {max(self.min_length, 1)}, "
                "the least number of tokens of a sentence"
            )

    def _check_sampling(self) -> None:
        """Raise DocmtError for settings that do not go together with sampling, or have no effect without it."""
        if not self.sampling and self.seed != SearchConfig.seed:
            raise DocmtError("search.seed has no effect without search.sampling. Leave it out, or add search.sampling.")
        if self.sampling and self.beam != 1:
            raise DocmtError(f"search.sampling needs search.beam 1, but the beam is {self.beam}. Set search.beam to 1.")
        if self.sampling and self.implementation != "docmt":
            raise DocmtError(
                f"search.sampling does not go together with search.implementation {self.implementation}. "
                "Leave one of them out."
            )

    def __repr__(self) -> str:
        return short_repr(self)

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

    def __repr__(self) -> str:
        return short_repr(self)

    def changes(self) -> dict[str, Any]:
        """Return the settings that differ from the defaults."""
        return {name: value for name, value in vars(self).items() if value != vars(ContextConfig())[name]}
