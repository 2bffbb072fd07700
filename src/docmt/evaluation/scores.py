"""How text becomes scores: settings, and scores of sacreBLEU with the counts of each segment that they are made of.

Notation: G segments of a metric (sentences, documents or instances), K sufficient statistics of a segment, * any shape.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from sacrebleu.metrics.bleu import BLEU, BLEUScore
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER

from docmt.core.errors import DocmtError
from docmt.core.progress import progress
from docmt.core.settings import one_of
from docmt.text.moses import moses, moses_language

Statistics: TypeAlias = NDArray[Any]
"""Whole numbers; those of TER are decimal, as the lengths of several references are averaged."""
Scores: TypeAlias = NDArray[np.float64]

ORDERS = 4
"""of the n-grams of BLEU"""
BETA = 2
"""how much more recall weighs than precision in chrF"""
_AT_ONCE = 50
"""sentences of which TER counts the edits, in one or two seconds, before the next sign of progress"""


DEFAULTS: Mapping[str, Any] = {"unit": "document", "text": "plain", "tokenize": "13a"}


@dataclass(frozen=True)
class Protocol:
    """How a published system was scored."""

    paper: str
    settings: Mapping[str, Any]
    """the four settings of MetricConfig that it fixes"""
    differs: str
    """what the paper did and this does not do, or what the paper does not say"""


PROTOCOLS: Mapping[str, Protocol] = {
    "gtransformer": Protocol(
        "Bao et al. 2021",
        {"unit": "instance", "text": "detokenized", "tokenize": "13a", "lowercase": False},
        "the paper's text was truecased, and detokenized an instance at a time",
    ),
    "zhang2018": Protocol(
        "Zhang et al. 2018",
        {"unit": "document", "text": "tokenized", "tokenize": "none", "lowercase": True},
        "the paper reports s-BLEU alone, by multi-bleu.perl -lc: the same number wherever a 4-gram matches",
    ),
    "multihop": Protocol(
        "Zhang et al. 2021",
        {"unit": "document", "text": "tokenized", "tokenize": "none", "lowercase": False},
        "the paper reports s-BLEU alone, of truecased text, and names neither the tool nor the case it scored",
    ),
    "rfa": Protocol(
        "Wu et al. 2022",
        {"unit": "document", "text": "tokenized-hyphens", "tokenize": "13a", "lowercase": False},
        "the paper's text was truecased; its signature says tok:none, as it had run 13a before",
    ),
}
"""By name, after the paper."""


@dataclass(frozen=True)
class MetricConfig:
    """How text becomes scores. Papers differ in all of these, so no score is comparable without them.

    A setting left empty takes the value of the protocol, or the usual one; in a finished object none is empty.
    """

    protocol: str = ""
    """score as a published system was scored: gtransformer (Bao et al. 2021), zhang2018 (Zhang et al. 2018), multihop
    (Zhang et al. 2021) or rfa (Wu et al. 2022). Sets unit, text, tokenize and lowercase; needs the language"""
    unit: str = ""
    """the segment of d-BLEU: the whole document (usual), or the instance, packed from both sides as in training and
    translated on its own, as in G-Transformer (Bao et al. 2021), where it is at most 512 tokens"""
    text: str = ""
    """the form in which BLEU compares both sides: plain, as they are (usual); tokenized by the Moses scripts, with
    entities such as &apos;; tokenized-hyphens, with @-@ for hyphens as well; or detokenized again after that"""
    language: str = ""
    """code of the language of the translations, for any text but plain"""
    tokenize: str = ""
    """the sacreBLEU tokenizer of s-BLEU and d-BLEU: 13a for plain text (usual), none for text already tokenized, also
    zh, char, intl, ja-mecab, ko-mecab, flores200 and others. chrF and TER do without, and always take plain text"""
    lowercase: bool = False
    """compare in lower case; zhang2018 always does, and so does TER"""
    ter: bool = False
    """compute TER, too: slow, about 25 ms a sentence"""

    def __post_init__(self) -> None:
        if self.protocol:
            one_of("metrics.protocol", self.protocol, tuple(PROTOCOLS))
        settings = PROTOCOLS[self.protocol].settings if self.protocol else DEFAULTS
        for name, value in settings.items():
            given = getattr(self, name)
            if given == "" or (name == "lowercase" and value):
                object.__setattr__(self, name, value)
            elif self.protocol and given != value:
                raise DocmtError(
                    f"metrics.{name} is {_written(given)}, but the protocol {self.protocol} has {_written(value)}; "
                    "leave one of the two out"
                )
        one_of("metrics.unit", self.unit, ("document", "instance"))
        one_of("metrics.text", self.text, ("plain", "detokenized", "tokenized", "tokenized-hyphens"))
        one_of("metrics.tokenize", self.tokenize, tuple(BLEU.TOKENIZERS))
        if self.text != "plain":
            if not self.language:
                name = f"protocol {self.protocol}" if self.protocol else f"text {self.text}"
                raise DocmtError(
                    f"metrics.{name} needs the language of the translations; "
                    "set metrics.language to its code, such as de"
                )
            moses_language(self.language, "metrics.language ")

    def convert(self, sentence: str) -> str:
        """A sentence in the form that BLEU compares."""
        if self.text == "plain":
            return sentence
        scripts = moses(self.language)
        tokens = scripts.tokenize(sentence, split_hyphens=self.text == "tokenized-hyphens")
        return scripts.detokenize(tokens) if self.text == "detokenized" else " ".join(tokens)

    def text_signature(self) -> str | None:
        """What a signature must say about the form of the text, None for plain text."""
        if self.text == "plain":
            return None
        return f"{self.text}.{moses_language(self.language)}.sacremoses-{version('sacremoses')}"

    def describe_protocol(self) -> str | None:
        """The protocol in words, with what it cannot reproduce."""
        if not self.protocol:
            return None
        protocol = PROTOCOLS[self.protocol]
        return f"protocol {self.protocol} ({protocol.paper}; {protocol.differs})"


def _written(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@dataclass(frozen=True)
class MetricScore:
    """The score of a corpus in one metric, 0 to 100 (TER may be above), and what it was computed from.

    statistics: [G, K], a row for each segment; `from_many_sums` scores sums of rows ([*, K] -> [*]). documents: [G],
    the document of each segment.
    """

    score: float
    signature: str
    name: str
    statistics: Statistics = field(repr=False, compare=False)
    documents: NDArray[np.int64] = field(repr=False, compare=False)
    from_many_sums: Callable[[Statistics], Scores] = field(repr=False, compare=False)
    lower_is_better: bool = False

    @property
    def segments(self) -> int:
        return len(self.statistics)

    def by_document(self, count: int, chosen: NDArray[np.bool_] | slice = slice(None)) -> Statistics:
        """[D, K], the statistics of the (chosen) segments of each document summed.

        count: D, as a last one may be empty; chosen: [G].
        """
        summed = np.zeros((count, self.statistics.shape[1]), self.statistics.dtype)
        np.add.at(summed, self.documents[chosen], self.statistics[chosen])
        return summed

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("name", "score", "signature", "segments")}


@dataclass(frozen=True)
class Segments:
    """What a metric compares: G hypotheses, and G segments of each reference.

    unit: what the segments are where the metric itself could not tell (d-BLEU of documents or of instances).
    """

    hypotheses: list[str]
    references: list[list[str]]
    documents: NDArray[np.int64]
    unit: str | None = None

    def score(
        self,
        name: str,
        metric: BLEU | CHRF | TER,
        formula: Callable[[Statistics], Scores],
        more: str | None = None,
    ) -> MetricScore:
        """The score in a metric of sacreBLEU; `more`: the form of the text, for the signature."""
        statistics = self._statistics(name, metric)
        sums = statistics.sum(axis=0)
        signature = metric.get_signature()
        # Unlike scores must not look alike, and sacreBLEU cannot know what it was given.
        for key, value in (("text", more), ("unit", self.unit)):
            if value is not None:
                signature.update(key, value)
        return MetricScore(
            score=float(bleu_score(sums).score if isinstance(metric, BLEU) else formula(sums)),
            signature=signature.format(),
            name=name,
            statistics=statistics,
            documents=self.documents,
            from_many_sums=formula,
            lower_is_better=isinstance(metric, TER),
        )

    def _statistics(self, name: str, metric: BLEU | CHRF | TER) -> Statistics:
        """[G, K]. TER, which takes a minute for thousands of sentences, shows how far it is."""
        # sacreBLEU has no public call for these (its own significance module uses this one); a test compares
        # the scores made of them with its public corpus scores.
        extract, count = metric._extract_corpus_statistics, len(self.hypotheses)
        if not isinstance(metric, TER):
            return np.array(extract(self.hypotheses, self.references))
        parts = []
        with progress(f"{name} (sentences)", count) as bar:
            for first in range(0, count, _AT_ONCE):
                own = slice(first, first + _AT_ONCE)
                parts.append(np.array(extract(self.hypotheses[own], [side[own] for side in self.references])))
                bar.advance(len(parts[-1]))
        return np.concatenate(parts)


def bleu(name: str, segments: Segments, config: MetricConfig) -> MetricScore:
    """BLEU of segments in the form `config.text`. Raises DocmtError for a tokenizer that cannot be used."""
    try:
        # `force` silences the advice to detokenize: with "none" the text is meant to be tokenized.
        metric = BLEU(lowercase=config.lowercase, tokenize=config.tokenize, force=config.tokenize == "none")
    except (ImportError, RuntimeError, OSError) as error:
        package = re.search(r"pip install (\S+)", str(error))
        reason = re.split(r", but|\. ", " ".join(str(error).split()))[0].rstrip(".")
        advice = f"pip install '{package[1]}'" if package else "install what it needs"
        raise DocmtError(
            f"the tokenizer {config.tokenize} cannot be used: {reason}; {advice}, or choose another tokenizer"
        ) from error
    return segments.score(name, metric, bleu_from_many_sums, config.text_signature())


def chrf(name: str, segments: Segments, config: MetricConfig) -> MetricScore:
    """chrF2 of segments of plain text."""
    return segments.score(name, CHRF(lowercase=config.lowercase), chrf_from_many_sums)


def ter(name: str, segments: Segments) -> MetricScore:
    """TER of segments of plain text, in lower case, as sacreBLEU and Tercom have it."""
    return segments.score(name, TER(), ter_from_many_sums)


def bleu_score(sums: Statistics) -> BLEUScore:
    """BLEU (Papineni et al. 2002, exponential smoothing) as sacreBLEU scores it, with its lengths and precisions.

    sums: [K = 10] hypothesis length, reference length, then for n = 1..4 the matched n-grams, then for
    n = 1..4 the hypothesis n-grams.
    """
    hypothesis_length, reference_length, *counts = sums.tolist()
    return BLEU.compute_bleu(counts[:ORDERS], counts[ORDERS:], hypothesis_length, reference_length, smooth_method="exp")


def bleu_from_many_sums(sums: Statistics) -> Scores:
    """The score of `bleu_score` along the last axis, the same up to the last digits."""
    hypothesis_length, reference_length = sums[..., 0], sums[..., 1]
    matched, total = sums[..., 2 : 2 + ORDERS], sums[..., 2 + ORDERS :]
    # The k-th order without a match counts as 1 / 2^k matches.
    smoothed = np.where(matched == 0, 0.5 ** np.cumsum(matched == 0, axis=-1), matched)
    logs = np.log(smoothed / np.maximum(total, 1))
    shorter = 1 - reference_length / np.maximum(hypothesis_length, 1)
    score = 100 * np.exp(np.minimum(shorter, 0) + logs.mean(axis=-1))
    return np.where(matched.any(axis=-1) & (total > 0).all(axis=-1), score, 0.0)


def chrf_from_many_sums(sums: Statistics) -> Scores:
    """chrF2 (Popović 2016) from summed statistics, along the last axis.

    sums: [*, K = 18] for n = 1..6 the hypothesis n-grams, the reference n-grams and the matched ones.
    """
    ours, theirs, matched = (sums[..., place::3] for place in range(3))
    counts = (ours > 0) & (theirs > 0)
    orders = np.maximum(counts.sum(axis=-1), 1)
    precision = (counts * matched / np.maximum(ours, 1)).sum(axis=-1) / orders
    recall = (counts * matched / np.maximum(theirs, 1)).sum(axis=-1) / orders
    weighted = BETA**2 * precision + recall
    score: Scores = 100 * ((1 + BETA**2) * precision * recall / np.where(weighted > 0, weighted, 1))
    return score


def ter_from_many_sums(sums: Statistics) -> Scores:
    """TER (Snover et al. 2006) from summed statistics, along the last axis.

    sums: [*, K = 2] edits, and words of the reference. Edits where the reference has no word are 100 %.
    """
    edits, words = sums[..., 0], sums[..., 1]
    return np.where(words > 0, 100 * (edits / np.where(words > 0, words, 1)), 100.0 * (edits > 0))


def documents_of(segments: Sequence[int]) -> NDArray[np.int64]:
    """[G], the document of each segment; `segments`: how many each document has."""
    return np.repeat(np.arange(len(segments)), segments)
