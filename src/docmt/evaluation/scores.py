"""Metric settings and sacreBLEU scores with the sufficient statistics of each segment.

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
from docmt.core.settings import check_choice
from docmt.text.moses import moses, moses_language

Statistics: TypeAlias = NDArray[Any]
"""Integers, but floats for TER, which averages the lengths of several references."""
Scores: TypeAlias = NDArray[np.float64]

MAX_NGRAM_ORDER = 4
"""Longest n-grams of BLEU."""
BETA = 2
"""Weight of recall relative to precision in chrF."""
_TER_BATCH = 50
"""Sentences that TER scores between two updates of the progress bar, in one or two seconds."""


DEFAULTS: Mapping[str, Any] = {"unit": "document", "text": "plain", "tokenize": "13a"}


@dataclass(frozen=True)
class Protocol:
    """Scoring settings of a published system."""

    paper: str
    settings: Mapping[str, Any]
    """the four fields of MetricConfig that it sets"""
    differences: str
    """differences from the paper, and facts that the paper does not report"""


PROTOCOLS: Mapping[str, Protocol] = {
    "gtransformer": Protocol(
        "Bao et al. 2021",
        {"unit": "instance", "text": "detokenized", "tokenize": "13a", "lowercase": False},
        "the paper's text was truecased and detokenized per instance",
    ),
    "zhang2018": Protocol(
        "Zhang et al. 2018",
        {"unit": "document", "text": "tokenized", "tokenize": "none", "lowercase": True},
        "the paper reports only s-BLEU, by multi-bleu.perl -lc: the same number wherever a 4-gram matches",
    ),
    "multihop": Protocol(
        "Zhang et al. 2021",
        {"unit": "document", "text": "tokenized", "tokenize": "none", "lowercase": False},
        "the paper reports only s-BLEU of truecased text, and names neither the tool nor the case",
    ),
    "rfa": Protocol(
        "Wu et al. 2022",
        {"unit": "document", "text": "tokenized-hyphens", "tokenize": "13a", "lowercase": False},
        "the paper's text was truecased; its signature has tok:none because 13a ran before",
    ),
}
"""Protocols by name."""


@dataclass(frozen=True)
class MetricConfig:
    """Settings of the metrics. Papers differ in all of them, so scores with different settings are not comparable.

    An empty setting takes the value of the protocol, or the default. In a finished object none is empty.
    """

    protocol: str = ""
    """score as a paper did: gtransformer, zhang2018, multihop or rfa (needs --language)"""
    unit: str = ""
    """segment of d-BLEU: document, or instance (packed as in training)"""
    text: str = ""
    """text form for BLEU: plain, detokenized, tokenized or tokenized-hyphens (Moses)"""
    language: str = ""
    """language code of the translations (for any text but plain)"""
    tokenize: str = ""
    """sacreBLEU tokenizer for BLEU: 13a, none, zh, char, intl, ja-mecab, flores200, ..."""
    lowercase: bool = False
    """compare in lower case (TER always does)"""
    ter: bool = False
    """also compute TER (about 25 ms a sentence)"""

    def __post_init__(self) -> None:
        if self.protocol:
            check_choice("metrics.protocol", self.protocol, tuple(PROTOCOLS))
        settings = PROTOCOLS[self.protocol].settings if self.protocol else DEFAULTS
        for name, value in settings.items():
            configured = getattr(self, name)
            if configured == "" or (name == "lowercase" and value):
                object.__setattr__(self, name, value)
            elif self.protocol and configured != value:
                raise DocmtError(
                    f"metrics.{name} is {_format_setting(configured)} but protocol {self.protocol} sets it to "
                    f"{_format_setting(value)}. Leave one of them out"
                )
        check_choice("metrics.unit", self.unit, ("document", "instance"))
        check_choice("metrics.text", self.text, ("plain", "detokenized", "tokenized", "tokenized-hyphens"))
        check_choice("metrics.tokenize", self.tokenize, tuple(BLEU.TOKENIZERS))
        if self.text != "plain":
            if not self.language:
                name = f"protocol {self.protocol}" if self.protocol else f"text {self.text}"
                models = "; it scores models, not files" if self.unit == "instance" else ""
                raise DocmtError(f"metrics.{name} needs metrics.language, a code such as de, for translations{models}")
            moses_language(self.language, "metrics.language ")

    def convert(self, sentence: str) -> str:
        """Return a sentence in the form that BLEU compares."""
        if self.text == "plain":
            return sentence
        scripts = moses(self.language)
        tokens = scripts.tokenize(sentence, split_hyphens=self.text == "tokenized-hyphens")
        return scripts.detokenize(tokens) if self.text == "detokenized" else " ".join(tokens)

    def text_signature(self) -> str | None:
        """Return the signature entry for the text form, None for plain text."""
        if self.text == "plain":
            return None
        return f"{self.text}.{moses_language(self.language)}.sacremoses-{version('sacremoses')}"

    def describe_protocol(self) -> str | None:
        """Return the protocol with its paper and the differences from it, None without a protocol."""
        if not self.protocol:
            return None
        protocol = PROTOCOLS[self.protocol]
        return f"protocol {self.protocol} ({protocol.paper}; {protocol.differences})"


def _format_setting(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@dataclass(frozen=True)
class MetricScore:
    """Score of a corpus in one metric, 0 to 100 (TER may exceed 100), with its sufficient statistics.

    statistics: [G, K], one row per segment. formula: scores of sums of rows, [*, K] -> [*].
    documents: [G], document number of each segment.
    """

    score: float
    signature: str
    name: str
    statistics: Statistics = field(repr=False, compare=False)
    documents: NDArray[np.int64] = field(repr=False, compare=False)
    formula: Callable[[Statistics], Scores] = field(repr=False, compare=False)
    lower_is_better: bool = False

    @property
    def segments(self) -> int:
        return len(self.statistics)

    def by_document(self, count: int, selected: NDArray[np.bool_] | slice = slice(None)) -> Statistics:
        """Return [D, K], the summed statistics of the (selected) segments of each document.

        count: D, since the last documents may be empty. selected: [G].
        """
        summed = np.zeros((count, self.statistics.shape[1]), self.statistics.dtype)
        np.add.at(summed, self.documents[selected], self.statistics[selected])
        return summed

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("name", "score", "signature", "segments")}


@dataclass(frozen=True)
class Segments:
    """Input of a metric: G hypotheses, and G segments of each reference.

    unit: kind of the segments, if the name of the metric leaves it open (d-BLEU of documents or instances).
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
        text_signature: str | None = None,
    ) -> MetricScore:
        """Score the segments with a sacreBLEU metric. text_signature: form of the text."""
        statistics = self._statistics(name, metric)
        sums = statistics.sum(axis=0)
        signature = metric.get_signature()
        # sacreBLEU does not know the text form and the unit, but scores that differ in them need different signatures.
        for key, value in (("text", text_signature), ("unit", self.unit)):
            if value is not None:
                signature.update(key, value)
        return MetricScore(
            score=float(compute_bleu(sums).score if isinstance(metric, BLEU) else formula(sums)),
            signature=signature.format(),
            name=name,
            statistics=statistics,
            documents=self.documents,
            formula=formula,
            lower_is_better=isinstance(metric, TER),
        )

    def _statistics(self, name: str, metric: BLEU | CHRF | TER) -> Statistics:
        """Return [G, K]. TER shows a progress bar, since thousands of sentences take a minute."""
        # sacreBLEU has no public function for these statistics (its significance module calls this one).
        # A test compares their scores with its public corpus scores.
        extract, count = metric._extract_corpus_statistics, len(self.hypotheses)
        if not isinstance(metric, TER):
            return np.array(extract(self.hypotheses, self.references))
        batches = []
        with progress(f"{name} (sentences)", count) as bar:
            for first in range(0, count, _TER_BATCH):
                batch = slice(first, first + _TER_BATCH)
                references = [reference[batch] for reference in self.references]
                batches.append(np.array(extract(self.hypotheses[batch], references)))
                bar.advance(len(batches[-1]))
        return np.concatenate(batches)


def score_bleu(name: str, segments: Segments, config: MetricConfig) -> MetricScore:
    """Score segments in the form `config.text` with BLEU. Raises DocmtError for an unavailable tokenizer."""
    try:
        # `force` silences the advice to detokenize: with "none" the text is tokenized on purpose.
        metric = BLEU(lowercase=config.lowercase, tokenize=config.tokenize, force=config.tokenize == "none")
    except (ImportError, RuntimeError, OSError) as error:
        package = re.search(r"pip install (\S+)", str(error))
        reason = re.split(r", but|\. ", " ".join(str(error).split()))[0].rstrip(".")
        advice = f"Run pip install '{package[1]}'" if package else "Install its dependencies"
        raise DocmtError(
            f"cannot use the tokenizer {config.tokenize}: {reason}. {advice}, or choose another tokenizer"
        ) from error
    return segments.score(name, metric, bleu_from_sums, config.text_signature())


def score_chrf(name: str, segments: Segments, config: MetricConfig) -> MetricScore:
    """Score segments of plain text with chrF2."""
    return segments.score(name, CHRF(lowercase=config.lowercase), chrf_from_sums)


def score_ter(name: str, segments: Segments) -> MetricScore:
    """Score segments of plain text with TER in lower case, the default of sacreBLEU and Tercom."""
    return segments.score(name, TER(), ter_from_sums)


def compute_bleu(sums: Statistics) -> BLEUScore:
    """Compute BLEU (Papineni et al. 2002, exponential smoothing) with sacreBLEU, with lengths and precisions.

    sums: [K = 10] hypothesis length, reference length, matched n-grams for n = 1..4, hypothesis n-grams for n = 1..4.
    """
    hypothesis_length, reference_length, *counts = sums.tolist()
    matched, total = counts[:MAX_NGRAM_ORDER], counts[MAX_NGRAM_ORDER:]
    return BLEU.compute_bleu(matched, total, hypothesis_length, reference_length, smooth_method="exp")


def bleu_from_sums(sums: Statistics) -> Scores:
    """Compute the score of `compute_bleu` along the last axis, equal up to the last digits."""
    hypothesis_length, reference_length = sums[..., 0], sums[..., 1]
    matched, total = sums[..., 2 : 2 + MAX_NGRAM_ORDER], sums[..., 2 + MAX_NGRAM_ORDER :]
    # The k-th order without a match counts as 1 / 2^k matches.
    smoothed = np.where(matched == 0, 0.5 ** np.cumsum(matched == 0, axis=-1), matched)
    logs = np.log(smoothed / np.maximum(total, 1))
    shorter = 1 - reference_length / np.maximum(hypothesis_length, 1)
    score = 100 * np.exp(np.minimum(shorter, 0) + logs.mean(axis=-1))
    return np.where(matched.any(axis=-1) & (total > 0).all(axis=-1), score, 0.0)


def chrf_from_sums(sums: Statistics) -> Scores:
    """Compute chrF2 (Popović 2016) from summed statistics along the last axis.

    sums: [*, K = 18] hypothesis n-grams, reference n-grams and matched n-grams for each n = 1..6.
    """
    hypothesis, reference, matched = (sums[..., column::3] for column in range(3))
    counts = (hypothesis > 0) & (reference > 0)
    orders = np.maximum(counts.sum(axis=-1), 1)
    precision = (counts * matched / np.maximum(hypothesis, 1)).sum(axis=-1) / orders
    recall = (counts * matched / np.maximum(reference, 1)).sum(axis=-1) / orders
    weighted = BETA**2 * precision + recall
    score: Scores = 100 * ((1 + BETA**2) * precision * recall / np.where(weighted > 0, weighted, 1))
    return score


def ter_from_sums(sums: Statistics) -> Scores:
    """Compute TER (Snover et al. 2006) from summed statistics along the last axis.

    sums: [*, K = 2] edits and reference words. Edits without any reference word are 100 %.
    """
    edits, words = sums[..., 0], sums[..., 1]
    return np.where(words > 0, 100 * (edits / np.where(words > 0, words, 1)), 100.0 * (edits > 0))


def document_numbers(segments: Sequence[int]) -> NDArray[np.int64]:
    """Return [G], the document number of each segment. segments: number of segments of each document."""
    return np.repeat(np.arange(len(segments)), segments)
