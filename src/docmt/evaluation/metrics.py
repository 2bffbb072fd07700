"""BLEU, chrF and TER of translated documents, computed by sacreBLEU and reported with its signatures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from docmt.core.errors import DocmtError
from docmt.documents.corpus_files import Corpus, read_hypothesis, read_reference
from docmt.evaluation.scores import MetricConfig, MetricScore, Segments, bleu, bleu_score, chrf, documents_of, ter

Documents: TypeAlias = Sequence[Sequence[str]]
"""Documents of sentences."""
Ranges: TypeAlias = Sequence[Sequence[tuple[int, int]]]
"""For each document the sentence ranges (start, end exclusive) of its instances, in order, without holes."""
Sentence = TypeVar("Sentence")
"""Text, or ids."""

NAMES: Mapping[str, str] = {"s_bleu": "s-BLEU", "d_bleu": "d-BLEU", "chrf": "chrF", "d_chrf": "d-chrF", "ter": "TER"}
"""The metrics, by their names in `Evaluation` and JSON, in the order of the tables."""
OF_SENTENCES = ("s_bleu", "chrf", "ter")
"""Those that compare sentence with sentence."""


@dataclass(frozen=True)
class Evaluation:
    """The scores of one system on one corpus.

    s_bleu, chrf and ter compare sentence with sentence; where the hypothesis has another number of sentences than the
    reference, or the model gave another one, all are None and `undefined` says where. ter is also None where it was
    not asked for. d_bleu and d_chrf compare whole documents, or instances.
    brevity_penalty and length_ratio (hypothesis to reference, in BLEU's tokens) are those of d-BLEU.
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
        """The scores by name, in the order of the tables; None for what is not defined. TER only if asked for."""
        return {name: getattr(self, name) for name in NAMES if name != "ter" or self.config.ter}

    def format(self) -> str:
        """A table for people: a line for each metric with its segments and signature, then the counts."""
        rows = []
        for key, metric in self.scores().items():
            if metric is None:
                rows.append((NAMES[key], "-", "", "not defined"))
            else:
                segment = "sentence" if key in OF_SENTENCES else self.config.unit
                rows.append((NAMES[key], f"{metric.score:.2f}", count(metric.segments, segment), metric.signature))
        wide = max(len(row[2]) for row in rows)
        lines = [f"{name:<6}  {score:>6}  {size:>{wide}}  {text}" for name, score, size, text in rows]
        lines.append(
            f"{count(self.documents, 'document')}, {count(self.sentences, 'sentence')}, "
            f"brevity penalty {self.brevity_penalty:.3f}, length ratio {self.length_ratio:.3f}"
        )
        if protocol := self.config.describe_protocol():
            lines.append(protocol)
        if self.undefined is not None:
            lines.append(f"{self.undefined_names()} are not defined: {self.undefined}")
        return "\n".join(lines)

    def undefined_names(self) -> str:
        """The metrics that compare sentences, in words."""
        *first, last = [NAMES[key] for key in self.scores() if key in OF_SENTENCES]
        return f"{', '.join(first)} and {last}"

    def to_json(self) -> dict[str, Any]:
        """Everything but the statistics, in types that `json.dumps` takes; `ter` is the score, not the setting."""
        scores = {key: getattr(self, key) for key in NAMES}
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
    """Scores translated documents against their references.

    s-BLEU, chrF and TER are corpus scores over sentence pairs; d-BLEU and d-chrF are corpus scores over documents or
    instances (`config.unit`), their sentences joined by one blank (Bao et al. 2021). BLEU compares the sentences in the
    form `config.text`, the others as they are given. Further references have the documents and sentence counts of the
    first.
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
        undefined = f"the model gave {count(miscounted, 'instance')} another number of sentences than the source has"

    ranges = _unit_ranges(references, config, instances)
    plain = [hypotheses, references, *more_references]
    converted = [[list(map(config.convert, document)) for document in side] for side in plain]
    d_bleu = bleu("d-BLEU", _units(converted, ranges, config.unit), config)
    d_chrf = chrf("d-chrF", _units(plain, ranges, config.unit), config)
    s_bleu = sentence_chrf = sentence_ter = None
    if undefined is None:
        s_bleu = bleu("s-BLEU", _sentences(converted), config)
        sentence_chrf = chrf("chrF", _sentences(plain), config)
        sentence_ter = ter("TER", _sentences(plain)) if config.ter else None

    lengths = bleu_score(d_bleu.statistics.sum(axis=0))
    return Evaluation(
        config=config,
        documents=len(references),
        sentences=sentences,
        s_bleu=s_bleu,
        d_bleu=d_bleu,
        chrf=sentence_chrf,
        d_chrf=d_chrf,
        ter=sentence_ter,
        brevity_penalty=float(lengths.bp),
        length_ratio=float(lengths.ratio),
        undefined=undefined,
    )


def document_bleu(hypotheses: Documents, references: Documents) -> MetricScore:
    """d-BLEU over documents alone, with the usual settings: a seventh of the work of `evaluate_documents`."""
    config = MetricConfig()
    check_documents(len(hypotheses), len(references))
    return bleu("d-BLEU", _units([hypotheses, references], None, config.unit), config)


def evaluate_files(
    hypothesis_path: Path | str,
    reference_path: Path | str,
    config: MetricConfig | None = None,
    instances: Ranges | None = None,
    *,
    more_references: Sequence[Path | str] = (),
) -> Evaluation:
    """`evaluate_documents` for files of one sentence a line with document marks; see `read_beside`."""
    references = read_reference(Path(reference_path))
    hypotheses = read_beside(hypothesis_path, reference_path, references)
    more = [read_beside(path, reference_path, references) for path in more_references]
    return evaluate_documents(hypotheses, references, config, instances, more_references=more)


def read_beside(path: Path | str, reference_path: Path | str, references: Corpus) -> Corpus:
    """The documents of a file of hypotheses, or of another reference, given those of the reference.

    A file that runs parallel to the reference line by line takes the reference's document borders, so that a sentence
    translated as nothing is not taken for a border; any other is read by its own borders.
    Raises DocmtError for a file that cannot be read, has no text, or has another number of documents.
    """
    found = read_hypothesis(Path(path), Path(reference_path), references)
    check_documents(len(found), len(references), str(path), str(reference_path))
    if not any(chain.from_iterable(found)):
        raise DocmtError(f"{path} holds no text, so nothing can be scored; give translations")
    return found


def in_units(documents: Sequence[Sequence[Sentence]], ranges: Ranges | None) -> list[Sequence[Sentence]]:
    """The sentences of all documents by unit, in order; without ranges each document is one."""
    if ranges is None:
        return list(documents)
    return [document[start:end] for document, own in zip(documents, ranges, strict=True) for start, end in own]


def in_documents(units: Sequence[Sequence[Sentence]], ranges: Ranges) -> list[Sequence[Sentence]]:
    """The opposite of `in_units`: the sentences by document again."""
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
            f"{hypothesis_name} has {count(hypotheses, 'document')} and {reference_name} has {references}; "
            "they must be the same documents in the same order"
        )


def _unpaired(hypotheses: Documents, references: Documents) -> str | None:
    """None if every document has as many sentences as its reference, else which do not, in words."""
    pairs = [(len(h), len(r)) for h, r in zip(hypotheses, references, strict=True)]
    unequal = [number for number, (ours, theirs) in enumerate(pairs, 1) if ours != theirs]
    if not unequal:
        return None
    ours, theirs = pairs[unequal[0] - 1]
    return (
        f"{len(unequal)} of {count(len(pairs), 'document')} differ from the reference in the number of "
        f"sentences, first document {unequal[0]} with {count(ours, 'sentence')} for {theirs}"
    )


def _unit_ranges(references: Documents, config: MetricConfig, instances: Ranges | None) -> Ranges | None:
    """The checked instances of every document for the unit instance, None for whole documents."""
    if config.unit == "document":
        return None
    if instances is None or len(instances) != len(references):
        raise DocmtError("d-BLEU over instances needs the instances of every document; give them or use unit document")
    for number, (ranges, reference) in enumerate(zip(instances, references, strict=True), 1):
        borders = [0, *(end for _, end in ranges)]
        starts = [start for start, _ in ranges]
        if starts != borders[:-1] or borders != sorted(borders) or borders[-1] != len(reference):
            raise DocmtError(
                f"the instances of document {number} do not cover its {count(len(reference), 'sentence')} "
                "once, in order; pack the documents that are scored"
            )
    return instances


def _sentences(sides: Sequence[Documents]) -> Segments:
    """The sentences of hypotheses and references as segments."""
    lines = [list(chain.from_iterable(documents)) for documents in sides]
    return Segments(lines[0], lines[1:], documents_of(list(map(len, sides[0]))))


def _units(sides: Sequence[Documents], ranges: Ranges | None, unit: str) -> Segments:
    """The units of hypotheses and references as segments: one string each, the sentences joined by one blank."""
    lines = [[" ".join(sentences) for sentences in in_units(documents, ranges)] for documents in sides]
    each = [1] * len(sides[0]) if ranges is None else list(map(len, ranges))
    return Segments(lines[0], lines[1:], documents_of(each), unit)


def count(number: int, noun: str) -> str:
    """`1 document`, `2 documents`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
