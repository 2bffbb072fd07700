"""s-BLEU, d-BLEU and chrF of translated documents, computed by sacreBLEU and reported with its signatures.

Notation: G segments of a metric (sentences, documents or instances), K sufficient statistics of a segment.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray
from sacrebleu.metrics.bleu import BLEU, BLEUScore
from sacrebleu.metrics.chrf import CHRF

from docmt.errors import DocmtError
from docmt.evaluation.aligned_files import read_hypothesis, read_reference
from docmt.evaluation.config import MetricConfig

Documents: TypeAlias = Sequence[Sequence[str]]
"""Documents of sentences."""
Ranges: TypeAlias = Sequence[Sequence[tuple[int, int]]]
"""For each document the sentence ranges (start, end exclusive) of its instances, in order, without holes."""
Statistics: TypeAlias = NDArray[np.int64]
Sentence = TypeVar("Sentence")
"""Text, or ids."""


@dataclass(frozen=True)
class MetricScore:
    """The score of a corpus in one metric, 0 to 100, and what it was computed from.

    statistics: [G, K], a row for each segment; `from_sums` scores any sum of rows.
    """

    score: float
    signature: str
    name: str
    statistics: Statistics = field(repr=False, compare=False)
    from_sums: Callable[[Statistics], float] = field(repr=False, compare=False)

    @property
    def segments(self) -> int:
        return len(self.statistics)

    def of_segments(self, segments: NDArray[np.int64]) -> float:
        """The score of the corpus made of these segments (indices, repetitions allowed), to resample."""
        return self.from_sums(self.statistics[segments].sum(axis=0))

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "score": self.score,
            "signature": self.signature,
            "segments": self.segments,
        }


@dataclass(frozen=True)
class Evaluation:
    """The scores of one system on one corpus.

    s_bleu and chrf compare sentence with sentence; where the hypothesis has another number of sentences than the
    reference, or the model gave another one, both are None and `undefined` says where.
    brevity_penalty and length_ratio (hypothesis to reference, in BLEU's tokens) are those of d-BLEU.
    """

    config: MetricConfig
    documents: int
    sentences: int
    s_bleu: MetricScore | None
    d_bleu: MetricScore
    chrf: MetricScore | None
    brevity_penalty: float
    length_ratio: float
    undefined: str | None = None

    def format(self) -> str:
        """A table for people: a line for each metric with its segments and signature, then the counts."""
        rows = []
        for name, metric, segment in (
            ("s-BLEU", self.s_bleu, "sentence"),
            ("d-BLEU", self.d_bleu, self.config.unit),
            ("chrF", self.chrf, "sentence"),
        ):
            if metric is None:
                rows.append((name, "-", "", "not defined"))
            else:
                rows.append((name, f"{metric.score:.2f}", _count(metric.segments, segment), metric.signature))
        wide = max(len(row[2]) for row in rows)
        lines = [f"{name:<6}  {score:>6}  {size:>{wide}}  {text}" for name, score, size, text in rows]
        lines.append(
            f"{_count(self.documents, 'document')}, {_count(self.sentences, 'sentence')}, "
            f"brevity penalty {self.brevity_penalty:.3f}, length ratio {self.length_ratio:.3f}"
        )
        if protocol := self.config.describe_protocol():
            lines.append(protocol)
        if self.undefined is not None:
            lines.append(f"s-BLEU and chrF are not defined: {self.undefined}")
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """Everything but the statistics, in types that `json.dumps` takes."""
        return {
            **asdict(self.config),
            "documents": self.documents,
            "sentences": self.sentences,
            "s_bleu": self.s_bleu.to_json() if self.s_bleu else None,
            "d_bleu": self.d_bleu.to_json(),
            "chrf": self.chrf.to_json() if self.chrf else None,
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
    """Scores translated documents against their references.

    s-BLEU and chrF are corpus scores over sentence pairs; d-BLEU is corpus BLEU over documents or instances
    (`config.unit`), their sentences joined by one blank (Bao et al. 2021). BLEU compares the sentences in the form
    `config.text`, chrF as they are given. Further references have the documents and sentence counts of the first.
    miscounted: the instances whose sentences were joined or left empty to fit, because the model gave another number
    of them (`Translation.miscounted`): with any of these no sentence score is defined.

    Raises DocmtError when the corpus is empty, the numbers of documents differ, or the unit is the instance
    and the instances are missing or do not fit.
    """
    config = config or MetricConfig()
    check_documents(len(hypotheses), len(references))
    sentences = sum(map(len, references))
    if sentences == 0:
        raise DocmtError("the reference has no sentences, so nothing can be scored; give a corpus with text")
    for number, other in enumerate(more_references, 2):
        if [len(document) for document in other] != [len(document) for document in references]:
            raise DocmtError(
                f"reference {number} has other documents or sentence counts than reference 1; "
                "every reference must translate the same sentences"
            )
    undefined = _unpaired(hypotheses, references)
    if config.unit == "instance" and undefined:
        raise DocmtError(f"d-BLEU over instances needs paired sentences, but {undefined}; use unit document")
    if miscounted:
        undefined = f"the model gave {_count(miscounted, 'instance')} another number of sentences than the source has"

    ranges = _unit_ranges(references, config, instances)
    all_references = (references, *more_references)
    bleu_hypotheses = _convert(hypotheses, config)
    bleu_references = [_convert(reference, config) for reference in all_references]
    d_hypotheses = _join_units(bleu_hypotheses, ranges)
    d_references = [_join_units(reference, ranges) for reference in bleu_references]
    d_bleu = _bleu("d-BLEU", d_hypotheses, d_references, config, unit=config.unit)
    s_bleu = chrf = None
    if undefined is None:
        s_bleu = _bleu("s-BLEU", _sentences(bleu_hypotheses), list(map(_sentences, bleu_references)), config)
        chrf = _chrf(_sentences(hypotheses), list(map(_sentences, all_references)), config)

    lengths = _bleu_score(d_bleu.statistics.sum(axis=0))
    return Evaluation(
        config=config,
        documents=len(references),
        sentences=sentences,
        s_bleu=s_bleu,
        d_bleu=d_bleu,
        chrf=chrf,
        brevity_penalty=float(lengths.bp),
        length_ratio=float(lengths.ratio),
        undefined=undefined,
    )


def evaluate_files(
    hypothesis_path: Path | str,
    reference_path: Path | str,
    config: MetricConfig | None = None,
    instances: Ranges | None = None,
) -> Evaluation:
    """`evaluate_documents` for two files of one sentence a line with document marks.

    A hypothesis that runs parallel to the reference line by line takes the reference's document borders, so
    that a sentence translated as nothing is not taken for a border; any other is read by its own borders.
    """
    references = read_reference(Path(reference_path))
    hypotheses = read_hypothesis(Path(hypothesis_path), Path(reference_path), references)
    check_documents(len(hypotheses), len(references), str(hypothesis_path), str(reference_path))
    if not any(chain.from_iterable(hypotheses)):
        raise DocmtError(f"{hypothesis_path} holds no text, so nothing can be scored; give translations")
    return evaluate_documents(hypotheses, references, config, instances)


def in_units(documents: Sequence[Sequence[Sentence]], ranges: Ranges | None) -> list[Sequence[Sentence]]:
    """The sentences of all documents by unit, in order; without ranges each document is one."""
    if ranges is None:
        return list(documents)
    return [document[start:end] for document, own in zip(documents, ranges, strict=True) for start, end in own]


def in_documents(units: Sequence[Sequence[Sentence]], ranges: Ranges | None) -> list[Sequence[Sentence]]:
    """The opposite of `in_units`: the sentences by document again."""
    if ranges is None:
        return list(units)
    rest = iter(units)
    return [[sentence for _ in own for sentence in next(rest)] for own in ranges]


def check_documents(
    hypotheses: int,
    references: int,
    hypothesis_name: str = "the hypothesis",
    reference_name: str = "the reference",
) -> None:
    """Raises DocmtError unless both sides have the same number of documents, at least one."""
    if references == 0:
        raise DocmtError(f"{reference_name} has no documents, so nothing can be scored; give a corpus with text")
    if hypotheses != references:
        raise DocmtError(
            f"{hypothesis_name} has {_count(hypotheses, 'document')} and {reference_name} has {references}; "
            "they must be the same documents in the same order"
        )


def bleu_from_sums(sums: Statistics) -> float:
    """BLEU (Papineni et al. 2002, exponential smoothing) from summed statistics.

    sums: [K = 10] hypothesis length, reference length, then for n = 1..4 the matched n-grams, then for
    n = 1..4 the hypothesis n-grams.
    """
    return float(_bleu_score(sums).score)


def chrf_from_sums(sums: Statistics) -> float:
    """chrF2 (Popović 2016) from summed statistics.

    sums: [K = 18] for n = 1..6 the hypothesis n-grams, the reference n-grams and the matched ones.
    """
    return float(CHRF()._compute_score_from_stats(sums.tolist()).score)


def _bleu_score(sums: Statistics) -> BLEUScore:
    hypothesis_length, reference_length, *counts = sums.tolist()
    return BLEU.compute_bleu(counts[:4], counts[4:], hypothesis_length, reference_length, smooth_method="exp")


def _bleu(
    name: str,
    hypotheses: list[str],
    references: list[list[str]],
    config: MetricConfig,
    unit: str | None = None,
) -> MetricScore:
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
    statistics = _segment_statistics(metric, hypotheses, references)
    signature = metric.get_signature()
    if (text := config.text_signature()) is not None:
        signature.update("text", text)
    if unit is not None:
        # The two kinds of d-BLEU are not comparable, and sacreBLEU cannot know which one it was given.
        signature.update("unit", unit)
    score = bleu_from_sums(statistics.sum(axis=0))
    return MetricScore(score, signature.format(), name, statistics, bleu_from_sums)


def _chrf(hypotheses: list[str], references: list[list[str]], config: MetricConfig) -> MetricScore:
    metric = CHRF(lowercase=config.lowercase)
    statistics = _segment_statistics(metric, hypotheses, references)
    score = chrf_from_sums(statistics.sum(axis=0))
    return MetricScore(score, metric.get_signature().format(), "chrF", statistics, chrf_from_sums)


def _segment_statistics(metric: BLEU | CHRF, hypotheses: list[str], references: list[list[str]]) -> Statistics:
    """Sufficient statistics [G, K]; references: one list of G segments for each reference."""
    # sacreBLEU has no public call for these (its own significance module uses this one); a test compares
    # the scores made of them with its public corpus scores.
    return np.array(metric._extract_corpus_statistics(hypotheses, references), dtype=np.int64)


def _unpaired(hypotheses: Documents, references: Documents) -> str | None:
    """None if every document has as many sentences as its reference, else which do not, in words."""
    pairs = [(len(h), len(r)) for h, r in zip(hypotheses, references, strict=True)]
    unequal = [number for number, (ours, theirs) in enumerate(pairs, 1) if ours != theirs]
    if not unequal:
        return None
    ours, theirs = pairs[unequal[0] - 1]
    return (
        f"{len(unequal)} of {_count(len(pairs), 'document')} differ from the reference in the number of "
        f"sentences, first document {unequal[0]} with {_count(ours, 'sentence')} for {theirs}"
    )


def _unit_ranges(references: Documents, config: MetricConfig, instances: Ranges | None) -> Ranges | None:
    """The checked instances of every document for the unit instance, None for whole documents."""
    if config.unit == "document":
        return None
    if instances is None:
        raise DocmtError("d-BLEU over instances needs the instances of every document; give them or use unit document")
    if len(instances) != len(references):
        raise DocmtError(
            f"instances are given for {_count(len(instances), 'document')} and the corpus has "
            f"{len(references)}; give the instances of the same documents in the same order"
        )
    for number, (ranges, reference) in enumerate(zip(instances, references, strict=True), 1):
        borders = [0, *(end for _, end in ranges)]
        starts = [start for start, _ in ranges]
        if starts != borders[:-1] or borders != sorted(borders) or borders[-1] != len(reference):
            raise DocmtError(
                f"the instances of document {number} do not cover its {_count(len(reference), 'sentence')} "
                "once, in order; pack the documents that are scored"
            )
    return instances


def _convert(documents: Documents, config: MetricConfig) -> Documents:
    """The documents in the form that BLEU compares."""
    return [[config.convert(sentence) for sentence in document] for document in documents]


def _sentences(documents: Documents) -> list[str]:
    return list(chain.from_iterable(documents))


def _join_units(documents: Documents, ranges: Ranges | None) -> list[str]:
    """One string for each unit, its sentences joined by one blank."""
    return [" ".join(unit) for unit in in_units(documents, ranges)]


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
