"""How translations are searched for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from docmt.core.errors import DocmtError
from docmt.core.settings import MANY, brief, check_fields, ranged

if TYPE_CHECKING:
    from torch import Tensor

BATCH_TOKENS = 8192
"""Source tokens that are searched together by default, padding included."""
USUAL_DRAFT_BEAM = 4
"""Of first translations, which other systems read."""
Number = TypeVar("Number", float, "Tensor")


@dataclass(frozen=True)
class SearchConfig:
    """Beam search over whole documents (the published settings are the defaults; Bao et al. 2021, section 4)."""

    beam: int = ranged(5, 1, 10_000)
    """hypotheses kept for each document; 1 is greedy search"""
    length_penalty: float = ranged(1.0, -20, 20)
    """score = log-probability / (free tokens ** length_penalty); see compatibility"""
    max_length_ratio: float = ranged(1.2, 0, 1000)
    """a target sentence has at most ratio * n + extra tokens, n = tokens of its source sentence"""
    max_length_extra: float = ranged(10.0, -1_000_000, 1_000_000)
    """see max_length_ratio"""
    min_length: int = ranged(1, 0, 1_000_000)
    """least tokens of a target sentence"""
    temperature: float = ranged(1.0, 1e-3, 1000)
    """logits are divided by it before the softmax: above 1 flattens the distribution"""
    implementation: Literal["docmt", "gtransformer", "thumt", "rfa", "huggingface"] = "docmt"
    """gtransformer: the published search's rules where ours are others: a sentence may have ratio * (n - 1) + extra
    tokens, forced marks count in the length, <unk> and <mask> may be said, and the plain document system's limit is
    that of the padded source; thumt: the search of Zhang et al. (2018), in which all sentences of a batch may have
    ratio * (n + 1) + extra tokens of its longest, and a score is divided by ((5 + tokens) / 6) ** length_penalty
    (published: beam 4, length_penalty 0.6, max_length_ratio 1, max_length_extra 50); rfa: the search of Wu et al.
    (2022), for models that go on after a prefix: ratio * (n + 1) + extra tokens, what is kept ends at the first mark,
    any symbol may be said, and the prefix counts, in the log-probability and in the length (published: beam 4,
    max_length_ratio 1.2, max_length_extra 70 or 1 and 50); huggingface: that of `generate` in transformers, sentence by
    sentence: what ended competes until nothing better can come, any symbol may be said, and marks that are given count
    in the length (as there by default: max_length_ratio 0, max_length_extra as max_new_tokens, min_length 0); none: the
    rules described here"""
    rounds: int = ranged(0, 0, 1000)
    """not 0: decode all sentences of a document at once, so many times, each time after the drafts of the time before
    (the first time without earlier target sentences). 3 come close to sequential search (0). On a CPU that is slower
    than sequential search. For systems that see earlier translations (group; concat with prefixes, hierarchical at the
    target). Beams are inside of sentences"""
    n_best: int = ranged(1, 1, 10_000)
    """translations returned for each part that is searched (instance, window or sentence), in the order of the search,
    which is that of its scores normalised by length, `rank_score` (at most beam)"""

    def __post_init__(self) -> None:
        check_fields(self, "search.")
        if self.implementation == "thumt" and self.min_length > 1:
            raise DocmtError("search.min_length has no effect with search.implementation thumt: leave it out")
        if self.rounds and self.implementation != "docmt":
            raise DocmtError(
                f"search.rounds has no effect with search.implementation {self.implementation}: leave one of them out"
            )
        if self.n_best > self.beam:
            raise DocmtError(f"search.n_best is {self.n_best}: choose at most the beam of {self.beam}")
        if self.implementation != "thumt" and self.max_length_extra < max(self.min_length, 1):
            raise DocmtError(
                f"search.max_length_extra is {self.max_length_extra}: choose at least {max(self.min_length, 1)}, "
                "the least number of tokens of a sentence"
            )

    def __repr__(self) -> str:
        return brief(self)

    def sentence_limit(self, source_tokens: int) -> int:
        """Most tokens of the translation of a sentence of `source_tokens` tokens (marks not counted)."""
        if self.implementation in ("thumt", "rfa"):
            return int(self.max_length_ratio * (source_tokens + 1) + self.max_length_extra)
        if self.implementation == "gtransformer":
            return max(int(self.max_length_ratio * (source_tokens - 1) + self.max_length_extra), 1)
        return int(self.max_length_ratio * source_tokens + self.max_length_extra)

    def normalized(self, log_probability: Number, tokens: int) -> Number:
        """The score of a translation with this log-probability and number of tokens that count."""
        length = (5 + tokens) / 6 if self.implementation == "thumt" else max(tokens, 1)
        return log_probability / length**self.length_penalty


@dataclass(frozen=True)
class ContextConfig:
    """What a model reads of a document at once, for systems that read more than one sentence."""

    instance_tokens: int = ranged(0, 0, MANY)
    """source tokens that are translated as one instance, fewer than which the model sees at once; 0: as many as in
    training (model.instance_tokens). With linear attention over the document an instance may be a whole one"""
    overlap: int = ranged(0, 0, 10_000)
    """systems that translate whole instances (group): sentences before an instance that the model sees again, with
    their translations, so that a long document has no seams; those that fit into half an instance. Instances of a
    document are then translated one after the other"""
    window_decoding: Literal["auto", "last", "prefix"] = "auto"
    """systems that translate windows (concat): translate each window anew and keep its last sentence (last), or
    translate only its last sentence, after the translations of the others (prefix); auto: as the model says
    (model.concat.window_decoding)"""

    def __post_init__(self) -> None:
        check_fields(self, "context.")

    def __repr__(self) -> str:
        return brief(self)

    def changes(self) -> dict[str, Any]:
        """Return the settings that differ from the defaults."""
        return {name: value for name, value in vars(self).items() if value != vars(ContextConfig())[name]}
