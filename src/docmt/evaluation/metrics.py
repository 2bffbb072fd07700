"""BLEU, chrF and TER of translated documents, computed by sacreBLEU and reported with its signatures.

A score keeps the sufficient statistics of each segment, so that segments can be resampled.
Notation: G segments of a metric (sentences, documents or instances), K sufficient statistics of a segment, * any shape.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray
from sacrebleu.metrics.bleu import BLEU, BLEUScore
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER

from docmt.core.errors import DocmtError
from docmt.core.progress import progress
from docmt.core.settings import check_choice
from docmt.documents.corpus_files import Corpus, count_untranslated, read_hypothesis, read_reference
from docmt.text.bpe import moses, moses_language

_log = logging.getLogger(__name__)
Documents: TypeAlias = Sequence[Sequence[str]]
"""Documents of sentences."""
Ranges: TypeAlias = Sequence[Sequence[tuple[int, int]]]
"""Sentence ranges (start, end exclusive) of each document's instances, in order, without gaps."""
Sentence = TypeVar("Sentence")
"""Text or token ids of a sentence."""

TEXT_METRICS = {"s_bleu": "s-BLEU", "d_bleu": "d-BLEU", "chrf": "chrF", "d_chrf": "d-chrF", "ter": "TER"}
TERM_METRICS = {
    "terms": "terms",
    "terms_listed": "as listed",
    "terms_base": "first form",
    "consistency": "consistency",
    "repeated": "repeated",
}
METRIC_NAMES = {**TEXT_METRICS, "chrf_pp": "chrF++", **TERM_METRICS}
"""Printed names by the names in `Evaluation` and JSON, in table order."""
SENTENCE_METRICS = ("s_bleu", "chrf", "ter", "chrf_pp", "terms", "terms_listed", "terms_base", "repeated")
"""Metrics that compare sentence with sentence."""
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
    reference: float | None = None
    """score of the reference itself, of metrics of terms"""

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
        names = ("name", "score", "signature", "segments", *["reference"] * (self.reference is not None))
        return {name: getattr(self, name) for name in names}


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


@dataclass(frozen=True)
class Evaluation:
    """Scores of one system on one corpus.

    s_bleu, chrf and ter compare sentence with sentence. If sentence counts differ from the reference, or the model
    miscounted sentences, they are None and `undefined` gives the reason. ter is also None if it is not configured.
    d_bleu and d_chrf compare documents or instances.
    brevity_penalty and length_ratio (hypothesis to reference, in BLEU tokens) belong to d-BLEU.
    """

    config: MetricConfig
    documents: int
    sentences: int
    s_bleu: MetricScore | None
    d_bleu: MetricScore
    chrf: MetricScore | None
    d_chrf: MetricScore
    ter: MetricScore | None
    brevity_penalty: float
    length_ratio: float
    undefined: str | None = None
    terms: Mapping[str, MetricScore | None] = field(default_factory=dict)
    """scores of terms, with a glossary"""

    def scores(self) -> dict[str, MetricScore | None]:
        """Return the scores by name in table order, None if undefined. TER is included only if configured."""
        names = [name for name in TEXT_METRICS if name != "ter" or self.config.ter]
        return {name: getattr(self, name) for name in names} | dict(self.terms)

    def format(self) -> str:
        """Return a table with a line per metric (segments and signature), then the counts."""
        rows = {METRIC_NAMES[key]: ("-", "", "not defined") for key in self.scores()}
        for key, metric in self.scores().items():
            if metric is not None:
                size = format_count(metric.segments, "sentence" if key in SENTENCE_METRICS else self.config.unit)
                rows[METRIC_NAMES[key]] = (f"{metric.score:.2f}", size, metric.signature)
        width, names = (max(map(len, each)) for each in ([size for _, size, _ in rows.values()], rows))
        lines = [f"{name:<{names}}  {score:>6}  {size:>{width}}  {text}" for name, (score, size, text) in rows.items()]
        lines.append(
            f"{format_count(self.documents, 'document')}, {format_count(self.sentences, 'sentence')}, "
            f"brevity penalty {self.brevity_penalty:.3f}, length ratio {self.length_ratio:.3f}"
        )
        if protocol := self.config.describe_protocol():
            lines.append(protocol)
        if self.undefined is not None:
            lines.append(f"{self.undefined_names()} are not defined: {self.undefined}")
        return "\n".join(lines)

    def undefined_names(self) -> str:
        """Return the names of the sentence metrics, such as `s-BLEU and chrF`."""
        *first, last = [METRIC_NAMES[key] for key in self.scores() if key in SENTENCE_METRICS]
        return f"{', '.join(first)} and {last}"

    def to_json(self) -> dict[str, Any]:
        """Return all but the sufficient statistics as JSON values. `ter` is the score, not the setting."""
        scores = {key: getattr(self, key) for key in TEXT_METRICS} | dict(self.terms)
        return {
            **asdict(self.config),
            "documents": self.documents,
            "sentences": self.sentences,
            **{key: score.to_json() if score else None for key, score in scores.items()},
            "brevity_penalty": self.brevity_penalty,
            "length_ratio": self.length_ratio,
            "undefined": self.undefined,
        }


def evaluate_documents(
    hypotheses: Documents,
    references: Documents,
    config: MetricConfig | None = None,
    instances: Ranges | None = None,
    *,
    more_references: Sequence[Documents] = (),
    miscounted: int = 0,
) -> Evaluation:
    """Score translated documents against their references.

    s-BLEU, chrF and TER are corpus scores over sentence pairs. d-BLEU and d-chrF are corpus scores over documents or
    instances (`config.unit`), whose sentences are joined by one blank (Bao et al. 2021). BLEU compares sentences in the
    form `config.text`, the other metrics compare plain text.
    more_references: further references with the document and sentence counts of the first.
    miscounted: number of instances for which the model generated another number of sentences than the source has
    (`Translation.miscounted`). If there are any, sentence scores are undefined.

    Raises DocmtError if the corpus is empty, document counts differ, or the unit is the instance and the instances
    are missing or do not cover the documents.
    """
    config = config or MetricConfig()
    check_document_counts(len(hypotheses), len(references))
    _check_references(references, more_references)
    undefined = _describe_unequal_counts(hypotheses, references)
    if config.unit == "instance" and undefined:
        raise DocmtError(f"d-BLEU over instances needs paired sentences, but {undefined}. Set metrics.unit to document")
    if miscounted:
        instance_count = format_count(miscounted, "instance")
        undefined = f"in {instance_count} the model generated another number of sentences than the source has"

    ranges = _unit_ranges(references, config, instances)
    texts = [hypotheses, references, *more_references]
    converted = [[list(map(config.convert, document)) for document in side] for side in texts]
    chrf_metric = CHRF(lowercase=config.lowercase)
    d_bleu = score_bleu("d-BLEU", _unit_segments(converted, ranges, config.unit), config)
    d_chrf = _unit_segments(texts, ranges, config.unit).score("d-chrF", chrf_metric, chrf_from_sums)
    s_bleu = chrf = ter = None
    if undefined is None:
        s_bleu = score_bleu("s-BLEU", _sentence_segments(converted), config)
        chrf = _sentence_segments(texts).score("chrF", chrf_metric, chrf_from_sums)
        # Lower case is the default of sacreBLEU and Tercom.
        ter = _sentence_segments(texts).score("TER", TER(), ter_from_sums) if config.ter else None

    lengths = compute_bleu(d_bleu.statistics.sum(axis=0))
    return Evaluation(
        config=config,
        documents=len(references),
        sentences=sum(map(len, references)),
        s_bleu=s_bleu,
        d_bleu=d_bleu,
        chrf=chrf,
        d_chrf=d_chrf,
        ter=ter,
        brevity_penalty=float(lengths.bp),
        length_ratio=float(lengths.ratio),
        undefined=undefined,
    )


def _check_references(references: Documents, more_references: Sequence[Documents]) -> None:
    """Raise DocmtError for references without sentences, and for further ones of another shape."""
    if not any(map(len, references)):
        raise DocmtError("the reference has no sentences. Give a corpus with text")
    for number, other in enumerate(more_references, 2):
        if [len(document) for document in other] != [len(document) for document in references]:
            raise DocmtError(
                f"reference {number} and reference 1 differ in documents or sentence counts. "
                "All references must translate the same sentences"
            )


def document_bleu(hypotheses: Documents, references: Documents) -> MetricScore:
    """Return d-BLEU over documents with default settings, in a seventh of the time of `evaluate_documents`."""
    config = MetricConfig()
    check_document_counts(len(hypotheses), len(references))
    return score_bleu("d-BLEU", _unit_segments([hypotheses, references], None, config.unit), config)


def evaluate_files(
    hypothesis_path: Path | str,
    reference_path: Path | str,
    config: MetricConfig | None = None,
    instances: Ranges | None = None,
    *,
    more_references: Sequence[Path | str] = (),
) -> Evaluation:
    """Score files of one sentence a line with `evaluate_documents`. See `read_aligned_documents` for boundaries."""
    references = read_reference(Path(reference_path))
    hypotheses = read_aligned_documents(hypothesis_path, reference_path, references)
    more = [read_aligned_documents(path, reference_path, references) for path in more_references]
    return evaluate_documents(hypotheses, references, config, instances, more_references=more)


def read_aligned_documents(path: Path | str, reference_path: Path | str, references: Corpus) -> Corpus:
    """Return the documents of a hypothesis file, or of a further reference, aligned with the reference.

    A file with the reference's lines takes the reference's document boundaries, so that an empty translation is no
    boundary. Any other file is read by the boundaries it has.
    Sentences that were not translated are logged. Raises DocmtError for a file that cannot be read, has no text, or has
    other documents.
    """
    if failed := count_untranslated(Path(path)):
        _log.warning(f"{path}: {format_count(failed, 'sentence')} not translated (error), scored as empty translations")
    documents = read_hypothesis(Path(path), Path(reference_path), references)
    if len(documents) != len(references) and sum(map(len, documents)) == sum(map(len, references)):
        raise DocmtError(
            f"{path} has as many sentences as {reference_path}, but {format_count(len(documents), 'document')} instead "
            f"of {len(references)}. Separate its documents as there, by an empty line or a line <d>"
        )
    check_document_counts(len(documents), len(references), str(path), str(reference_path))
    if not any(chain.from_iterable(documents)):
        raise DocmtError(f"{path} has no text. Give a file with translations")
    return documents


def group_by_unit(documents: Sequence[Sequence[Sentence]], ranges: Ranges | None) -> list[Sequence[Sentence]]:
    """Return the sentences of all documents by unit, in order. Without ranges each document is a unit."""
    if ranges is None:
        return list(documents)
    pairs = zip(documents, ranges, strict=True)
    return [document[start:end] for document, instances in pairs for start, end in instances]


def group_by_document(units: Sequence[Sequence[Sentence]], ranges: Ranges) -> list[Sequence[Sentence]]:
    """Return the sentences by document. Inverse of `group_by_unit`."""
    remaining = iter(units)
    return [[sentence for _ in instances for sentence in next(remaining)] for instances in ranges]


def check_document_counts(
    hypotheses: int, references: int, hypothesis_name: str = "the hypothesis", reference_name: str = "the reference"
) -> None:
    """Raise DocmtError unless both sides have the same number of documents, at least one."""
    if references == 0:
        raise DocmtError(f"{reference_name} has no documents. Give a corpus with text")
    if hypotheses != references:
        raise DocmtError(
            f"{hypothesis_name} has {format_count(hypotheses, 'document')} but {reference_name} has {references}. "
            "Both must contain the same documents in the same order"
        )


def _describe_unequal_counts(hypotheses: Documents, references: Documents) -> str | None:
    """Describe the documents whose sentence counts differ from the reference. Return None if there are none."""
    pairs = [(len(hypothesis), len(reference)) for hypothesis, reference in zip(hypotheses, references, strict=True)]
    unequal = [number for number, (hypothesis, reference) in enumerate(pairs, 1) if hypothesis != reference]
    if not unequal:
        return None
    hypothesis, reference = pairs[unequal[0] - 1]
    return (
        f"{len(unequal)} of {format_count(len(pairs), 'document')} differ from the reference in the number of "
        f"sentences (first: document {unequal[0]} with {format_count(hypothesis, 'sentence')} for {reference})"
    )


def _unit_ranges(references: Documents, config: MetricConfig, instances: Ranges | None) -> Ranges | None:
    """Check and return the instances of every document if they are the unit. Return None for whole documents."""
    if config.unit == "document":
        return None
    if instances is None or len(instances) != len(references):
        raise DocmtError(
            "d-BLEU over instances needs the instances of every document. Give them, or set metrics.unit to document"
        )
    for number, (ranges, reference) in enumerate(zip(instances, references, strict=True), 1):
        if [sentence for bounds in ranges for sentence in range(*bounds)] != list(range(len(reference))):
            raise DocmtError(
                f"the instances of document {number} do not cover its {format_count(len(reference), 'sentence')} "
                "once, in order. Build them from the scored documents"
            )
    return instances


def _sentence_segments(sides: Sequence[Documents]) -> Segments:
    """Return the sentences of hypotheses and references as segments."""
    lines = [list(chain.from_iterable(documents)) for documents in sides]
    return Segments(lines[0], lines[1:], np.repeat(np.arange(len(sides[0])), list(map(len, sides[0]))))


def _unit_segments(sides: Sequence[Documents], ranges: Ranges | None, unit: str) -> Segments:
    """Return the units of hypotheses and references as segments, each joined to one string."""
    lines = [[" ".join(sentences) for sentences in group_by_unit(documents, ranges)] for documents in sides]
    counts = 1 if ranges is None else list(map(len, ranges))
    return Segments(lines[0], lines[1:], np.repeat(np.arange(len(sides[0])), counts), unit)


def format_count(number: int, noun: str) -> str:
    """Format a count such as `1 document` or `2 documents`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
