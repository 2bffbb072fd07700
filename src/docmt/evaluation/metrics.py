"""BLEU, chrF and TER of translated documents, computed by sacreBLEU and reported with its signatures.

A score keeps the sufficient statistics of each segment, so that segments can be resampled.
Notation: G segments of a metric (sentences, documents or instances), K sufficient statistics of a segment, * any shape.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray
from sacrebleu.metrics.bleu import BLEU, BLEUScore
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER

from docmt.core.errors import DocmtError
from docmt.core.progress import progress
from docmt.documents.corpus_files import Corpus, count_untranslated, read_hypothesis, read_reference
from docmt.evaluation.metric_config import METRIC_NAMES, SEGMENTS, TEXT_METRICS, Kind, MetricConfig, TextMetric
from docmt.evaluation.output_alignment import (
    AlignedOutput,
    AlignmentShares,
    Documents,
    Ranges,
    find_paragraphs,
    join_units,
    whole,
)

_log = logging.getLogger(__name__)
Sentence = TypeVar("Sentence")
"""Text or token ids of a sentence."""

Statistics: TypeAlias = NDArray[Any]
"""Integers, but floats for TER, which averages the lengths of several references."""
Scores: TypeAlias = NDArray[np.float64]

MAX_NGRAM_ORDER = 4
"""Longest n-grams of BLEU."""
BETA = 2
"""Weight of recall relative to precision in chrF."""
_TER_BATCH = 50
"""Sentences that TER scores between two updates of the progress bar, in one or two seconds."""


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
    digits: int = 2
    """decimal places in tables"""

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


def score_segments(
    metric: TextMetric, config: MetricConfig, sides: Sequence[Documents], ranges: Ranges | None, unit: str | None
) -> MetricScore:
    """Score ranges of sentences, each joined to one string, or all sentences.

    sides: hypotheses and references. unit: kind of the segments, if the name of the metric leaves it open (d-BLEU of
    documents or instances). Raises DocmtError for an unavailable tokenizer.
    """
    rows = sides if ranges is None else [join_units(side, ranges) for side in sides]
    hypotheses, *references = [list(chain.from_iterable(documents)) for documents in rows]
    scorer, formula = build_scorer(metric.kind, config)
    statistics = extract_statistics(metric.label, scorer, hypotheses, references)
    sums, signature = statistics.sum(axis=0), scorer.get_signature()
    # sacreBLEU does not know the text form and the unit, but scores that differ in them need different signatures.
    text = config.text_signature() if metric.kind == "bleu" else None
    for key, value in (("text", text), ("unit", unit)):
        if value is not None:
            signature.update(key, value)
    score = float(compute_bleu(sums).score if metric.kind == "bleu" else formula(sums))
    documents = np.repeat(np.arange(len(rows[0])), list(map(len, rows[0])))
    lower_is_better = metric.kind == "ter"
    return MetricScore(score, signature.format(), metric.label, statistics, documents, formula, lower_is_better)


def extract_statistics(
    name: str, metric: BLEU | CHRF | TER, hypotheses: Sequence[str], references: Sequence[Sequence[str]]
) -> Statistics:
    """Return [G, K]. TER shows a progress bar, since thousands of sentences take a minute."""
    # sacreBLEU has no public function for these statistics (its significance module calls this one).
    # A test compares their scores with its public corpus scores.
    extract = metric._extract_corpus_statistics
    if not isinstance(metric, TER):
        return np.array(extract(hypotheses, references))
    batches = []
    with progress(f"{name} (sentences)", len(hypotheses)) as bar:
        for first in range(0, len(hypotheses), _TER_BATCH):
            batch = slice(first, first + _TER_BATCH)
            batches.append(np.array(extract(hypotheses[batch], [reference[batch] for reference in references])))
            bar.advance(len(batches[-1]))
    return np.concatenate(batches)


def build_scorer(kind: Kind, config: MetricConfig) -> tuple[BLEU | CHRF | TER, Callable[[Statistics], Scores]]:
    """Return a metric of sacreBLEU and its formula. Raises DocmtError for an unavailable tokenizer of BLEU."""
    if kind == "ter":
        return TER(), ter_from_sums  # lower case is the default of sacreBLEU and Tercom
    if kind != "bleu":
        return CHRF(word_order=2 if kind == "chrf_pp" else 0, lowercase=config.lowercase), chrf_from_sums
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
    return metric, bleu_from_sums


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
    """Compute chrF2 (Popović 2016) or chrF2++ (Popović 2017) from summed statistics along the last axis.

    sums: [*, K = 18] hypothesis n-grams, reference n-grams and matched n-grams for each n = 1..6; for chrF++ [*, 24],
    with n-grams of words for n = 1..2.
    """
    hypothesis, reference, matched = (sums[..., column::3] for column in range(3))
    counts = (hypothesis > 0) & (reference > 0)
    orders = np.maximum(counts.sum(axis=-1), 1)
    # Sums of eight numbers by `sum` would differ from those of sacreBLEU in the last digit.
    precision = (counts * matched / np.maximum(hypothesis, 1)).cumsum(axis=-1)[..., -1] / orders
    recall = (counts * matched / np.maximum(reference, 1)).cumsum(axis=-1)[..., -1] / orders
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
    """Scores of one system on one corpus. `evaluation.chrf` is the score in chrF, and so on.

    Metrics of sentences and paragraphs need as many sentences as the reference has, or an alignment. Otherwise, or if
    the model miscounted sentences, they are None and `undefined` gives the reason.
    brevity_penalty and length_ratio (hypothesis to reference, in BLEU tokens) belong to d-BLEU.
    """

    config: MetricConfig
    documents: int
    sentences: int
    metrics: Mapping[str, MetricScore | None]
    """scores by the keys of `METRIC_NAMES` in table order, None if undefined"""
    brevity_penalty: float
    length_ratio: float
    undefined: str | None = None
    alignment: AlignmentShares | None = None
    """what the alignment with the source found, if there was one"""
    counted: ClassVar[str] = "sentence"
    """what `sentences` is the number of"""

    def __getattr__(self, name: str) -> MetricScore | None:
        """Return the score in a metric, None if it is undefined or was not asked for."""
        if name not in METRIC_NAMES:
            raise AttributeError(name)
        return self.metrics.get(name)

    def format(self) -> str:
        """Return a table with a line per metric (segments and signature), then the counts."""
        rows = {METRIC_NAMES[key]: ("-", "", "not defined") for key in self.metrics}
        for key, metric in self.metrics.items():
            if metric is not None:
                size = format_count(metric.segments, self.segment(key))
                rows[METRIC_NAMES[key]] = (f"{metric.score:.2f}", size, metric.signature)
        width, names = (max(map(len, each)) for each in ([size for _, size, _ in rows.values()], rows))
        lines = [f"{name:<{names}}  {score:>6}  {size:>{width}}  {text}" for name, (score, size, text) in rows.items()]
        lines.append(
            f"{format_count(self.documents, 'document')}, {format_count(self.sentences, 'sentence')}, "
            f"brevity penalty {self.brevity_penalty:.3f}, length ratio {self.length_ratio:.3f}"
        )
        if protocol := self.config.describe_protocol():
            lines.append(protocol)
        return "\n".join([*lines, *self.remarks()])

    def segment(self, key: str) -> str:
        """Return the kind of the segments of a metric."""
        return "instance" if key.startswith("d_") and self.config.unit == "instance" else SEGMENTS[key]

    def sentence_metrics(self) -> dict[str, MetricScore]:
        """Return the scores of text whose segments are the sentences of the reference; none after an alignment."""
        keys = [key for key, each in TEXT_METRICS.items() if each.segment == "sentence" and self.alignment is None]
        return {key: score for key in keys if (score := self.metrics.get(key))}

    def describe_missing_sentences(self) -> str:
        """Return why there are no `sentence_metrics`."""
        reason = self.undefined or ("its sentences were aligned" if self.alignment else "name some with --metrics")
        return f"has no scores of sentences, so none by position: {reason}"

    def remarks(self) -> Iterator[str]:
        """Yield which metrics are not defined and why, and what the alignment found."""
        if self.undefined and (names := [METRIC_NAMES[key] for key, score in self.metrics.items() if score is None]):
            text = f"{', '.join(names[:-1])} and {names[-1]} are" if names[1:] else f"{names[0]} is"
            yield f"{text} not defined: {self.undefined}. To align them, add --unit sentence and --source"
        if self.alignment is not None:
            yield self.alignment.format()

    def to_json(self) -> dict[str, Any]:
        """Return all but the sufficient statistics as JSON values."""
        scores = dict.fromkeys(TEXT_METRICS) | dict(self.metrics)
        return {
            **asdict(self.config),
            "documents": self.documents,
            "sentences": self.sentences,
            **{key: score.to_json() if score else None for key, score in scores.items()},
            "brevity_penalty": self.brevity_penalty,
            "length_ratio": self.length_ratio,
            "undefined": self.undefined,
            "alignment": asdict(self.alignment) if self.alignment else None,
        }


def evaluate_documents(
    hypotheses: Documents,
    references: Documents,
    config: MetricConfig = MetricConfig(),
    instances: Ranges | None = None,
    *,
    more_references: Sequence[Documents] = (),
    miscounted: int = 0,
    aligned: AlignedOutput | None = None,
) -> Evaluation:
    """Score translated documents against their references.

    Metrics of sentences are corpus scores over sentence pairs, those of documents over documents or instances
    (`config.unit`), whose sentences are joined by one blank (Bao et al. 2021). Metrics of paragraphs take the sentences
    between empty ones of the reference; in a document without any, each one. BLEU compares sentences in the form
    `config.text`, the other metrics compare plain text.
    more_references: further references with the document and sentence counts of the first.
    miscounted: number of instances for which the model generated another number of sentences than the source has
    (`Translation.miscounted`). If there are any, metrics of sentences are undefined.
    aligned: these hypotheses, aligned with the source, for metrics of sentences and paragraphs.

    Raises DocmtError if the corpus is empty, document counts differ, or the unit is the instance and the instances
    are missing or do not cover the documents.
    """
    check_document_counts(len(hypotheses), len(references))
    _check_references(references, more_references)
    undefined = _describe_unequal_counts(hypotheses, references)
    if config.unit == "instance" and undefined:
        raise DocmtError(f"d-BLEU over instances needs paired sentences, but {undefined}. Set metrics.unit to document")
    if miscounted:
        instance_count = format_count(miscounted, "instance")
        undefined = f"in {instance_count} the model generated another number of sentences than the source has"
    texts = [hypotheses, references, *more_references]
    units = _check_instances(references, instances) if config.unit == "instance" else whole(texts)
    sides: dict[str, tuple[Sequence[Documents], Ranges | None]] = {"document": (texts, units)}
    if aligned is not None:
        undefined, merged = None, aligned.merge(find_paragraphs(references))
        sides |= {"sentence": (aligned.pair(*texts[1:]), None), "paragraph": (merged.pair(*texts[1:]), None)}
    elif undefined is None:
        sides |= {"sentence": (texts, None), "paragraph": (texts, find_paragraphs(references))}
    convert, is_aligned = cache(config.convert), aligned is not None

    def score(metric: TextMetric) -> MetricScore:
        rows, ranges = sides[metric.segment]
        if metric.kind == "bleu":
            rows = [[list(map(convert, document)) for document in side] for side in rows]
        unit = "instance" if metric.segment == "document" and config.unit == "instance" else metric.segment
        is_named = is_aligned or metric.segment != "sentence"
        return score_segments(metric, config, rows, ranges, unit if is_named else None)

    wanted = {key: TEXT_METRICS.get(key) for key in config.keys}
    metrics = {key: score(metric) if metric and metric.segment in sides else None for key, metric in wanted.items()}
    d_bleu = metrics.get("d_bleu") or score(TEXT_METRICS["d_bleu"])
    lengths = compute_bleu(d_bleu.statistics.sum(axis=0))
    sizes, ratios = (len(references), sum(map(len, references))), (float(lengths.bp), float(lengths.ratio))
    return Evaluation(config, *sizes, metrics, *ratios, undefined, aligned.shares if aligned else None)


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
    check_document_counts(len(hypotheses), len(references))
    sides = hypotheses, references
    return score_segments(TEXT_METRICS["d_bleu"], MetricConfig(), sides, whole(sides), "document")


def evaluate_files(
    hypothesis_path: Path | str,
    reference_path: Path | str,
    config: MetricConfig = MetricConfig(),
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


def group_by_unit(documents: Sequence[Sequence[Sentence]], ranges: Ranges) -> list[Sequence[Sentence]]:
    """Return the sentences of all documents by unit, in order."""
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


def _check_instances(references: Documents, instances: Ranges | None) -> Ranges:
    """Return the instances of every document. Raises DocmtError if they are missing or do not cover the documents."""
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


def format_count(number: int, noun: str) -> str:
    """Format a count such as `1 document` or `2 documents`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
