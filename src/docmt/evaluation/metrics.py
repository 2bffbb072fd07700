"""BLEU, chrF and TER of translated documents, computed by sacreBLEU and reported with its signatures."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from docmt.core.errors import DocmtError
from docmt.documents.corpus_files import Corpus, count_untranslated, read_hypothesis, read_reference
from docmt.evaluation.scores import (
    MetricConfig,
    MetricScore,
    Segments,
    compute_bleu,
    document_numbers,
    score_bleu,
    score_chrf,
    score_ter,
)

_log = logging.getLogger(__name__)
Documents: TypeAlias = Sequence[Sequence[str]]
"""Documents of sentences."""
Ranges: TypeAlias = Sequence[Sequence[tuple[int, int]]]
"""Sentence ranges (start, end exclusive) of each document's instances, in order, without gaps."""
Sentence = TypeVar("Sentence")
"""Text or token ids of a sentence."""

METRIC_NAMES = {"s_bleu": "s-BLEU", "d_bleu": "d-BLEU", "chrf": "chrF", "d_chrf": "d-chrF", "ter": "TER"}
"""Printed names by the names in `Evaluation` and JSON, in table order."""
SENTENCE_METRICS = ("s_bleu", "chrf", "ter")
"""Metrics that compare sentence with sentence."""


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

    def scores(self) -> dict[str, MetricScore | None]:
        """Return the scores by name in table order, None if undefined. TER is included only if configured."""
        return {name: getattr(self, name) for name in METRIC_NAMES if name != "ter" or self.config.ter}

    def format(self) -> str:
        """Return a table with a line per metric (segments and signature), then the counts."""
        rows = []
        for key, metric in self.scores().items():
            if metric is None:
                rows.append((METRIC_NAMES[key], "-", "", "not defined"))
            else:
                segment = "sentence" if key in SENTENCE_METRICS else self.config.unit
                rows.append(
                    (METRIC_NAMES[key], f"{metric.score:.2f}", format_count(metric.segments, segment), metric.signature)
                )
        width = max(len(row[2]) for row in rows)
        lines = [f"{name:<6}  {score:>6}  {size:>{width}}  {text}" for name, score, size, text in rows]
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
        scores = {key: getattr(self, key) for key in METRIC_NAMES}
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
    sentences = sum(map(len, references))
    if sentences == 0:
        raise DocmtError("the reference has no sentences. Give a corpus with text")
    for number, other in enumerate(more_references, 2):
        if [len(document) for document in other] != [len(document) for document in references]:
            raise DocmtError(
                f"reference {number} and reference 1 differ in documents or sentence counts. "
                "All references must translate the same sentences"
            )
    undefined = _describe_unequal_counts(hypotheses, references)
    if config.unit == "instance" and undefined:
        raise DocmtError(f"d-BLEU over instances needs paired sentences, but {undefined}. Set metrics.unit to document")
    if miscounted:
        instance_count = format_count(miscounted, "instance")
        undefined = f"in {instance_count} the model generated another number of sentences than the source has"

    ranges = _unit_ranges(references, config, instances)
    texts = [hypotheses, references, *more_references]
    converted = [[list(map(config.convert, document)) for document in side] for side in texts]
    d_bleu = score_bleu("d-BLEU", _unit_segments(converted, ranges, config.unit), config)
    d_chrf = score_chrf("d-chrF", _unit_segments(texts, ranges, config.unit), config)
    s_bleu = chrf = ter = None
    if undefined is None:
        s_bleu = score_bleu("s-BLEU", _sentence_segments(converted), config)
        chrf = score_chrf("chrF", _sentence_segments(texts), config)
        ter = score_ter("TER", _sentence_segments(texts)) if config.ter else None

    lengths = compute_bleu(d_bleu.statistics.sum(axis=0))
    return Evaluation(
        config=config,
        documents=len(references),
        sentences=sentences,
        s_bleu=s_bleu,
        d_bleu=d_bleu,
        chrf=chrf,
        d_chrf=d_chrf,
        ter=ter,
        brevity_penalty=float(lengths.bp),
        length_ratio=float(lengths.ratio),
        undefined=undefined,
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
        boundaries = [0, *(end for _, end in ranges)]
        starts = [start for start, _ in ranges]
        if starts != boundaries[:-1] or boundaries != sorted(boundaries) or boundaries[-1] != len(reference):
            raise DocmtError(
                f"the instances of document {number} do not cover its {format_count(len(reference), 'sentence')} "
                "once, in order. Build them from the scored documents"
            )
    return instances


def _sentence_segments(sides: Sequence[Documents]) -> Segments:
    """Return the sentences of hypotheses and references as segments."""
    lines = [list(chain.from_iterable(documents)) for documents in sides]
    return Segments(lines[0], lines[1:], document_numbers(list(map(len, sides[0]))))


def _unit_segments(sides: Sequence[Documents], ranges: Ranges | None, unit: str) -> Segments:
    """Return the units of hypotheses and references as segments, each joined to one string."""
    lines = [[" ".join(sentences) for sentences in group_by_unit(documents, ranges)] for documents in sides]
    counts = [1] * len(sides[0]) if ranges is None else list(map(len, ranges))
    return Segments(lines[0], lines[1:], document_numbers(counts), unit)


def format_count(number: int, noun: str) -> str:
    """Format a count such as `1 document` or `2 documents`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
