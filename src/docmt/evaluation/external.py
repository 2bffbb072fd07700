"""External metrics, such as COMET, that run in a separate process with a separate Python environment.

The command is started once. Its standard input has one JSON object a line for every sentence, in order:

    {"document": "a", "sentence": 2, "src": "..", "mt": "..", "ref": "..",
     "src_context": [".."], "mt_context": [".."], "ref_context": [".."]}

The contexts are the previous sentences of the document, the nearest last, at most `external.context`. With
`external.window` a line has the joined sentences of a window, and `sentence` is its first one. The last line of
its standard output is a JSON object. Earlier lines are ignored, and standard error is passed through:

    {"name": "COMET", "signature": "model:..|version:..", "scores": [0.81, ..], "subwords": [37, ..], "limit": 512}

`scores` has a number for every input line. `subwords` (length of the longest text of a line) and `limit` (longest text
that the metric reads) are optional. Any exit status but 0 is a failure.
"""

from __future__ import annotations

import json
import math
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal

import numpy as np

from docmt.core.errors import DocmtError
from docmt.core.files import parse_json_or_none
from docmt.core.settings import CheckedSettings, Excludes, Needs, OptionError, build, option, quote, ranged
from docmt.documents.segmentation import UNSPACED_SCRIPT
from docmt.evaluation.metric_config import METRIC_NAMES
from docmt.evaluation.metrics import MetricScore, format_count
from docmt.evaluation.output_alignment import Documents
from docmt.evaluation.significance import ratio

_LIMITS = {"comet": 512, "bleurt": 512}
"""Subwords that metrics read, by their names, where they do not tell."""
_SUBWORDS = 1.4
"""Subwords of a word, about."""
COMET_ADAPTER = Path(__file__).parent / "adapters" / "comet_adapter.py"


@dataclass(frozen=True)
class ExternalConfig(CheckedSettings, prefix="external."):
    """Settings of a metric in a separate process; see docs/evaluation.md."""

    command: str = ""
    """command that starts the metric ({comet}: path of docmt's COMET adapter)"""
    context: int = ranged(0, 0, 1000)
    """previous sentences that the metric reads as context"""
    hypothesis_context: Literal["reference", "hypothesis"] = "reference"
    """context of a translation: previous references or previous translations"""
    window: str = option("", flags=("--external-window",), metavar="W:S")
    """score windows of W sentences that begin every S sentences (SLIDE)"""

    option_rules = (
        Needs("context", "command"),
        Needs("hypothesis_context", "context"),
        Needs("window", "command"),
        Excludes("window", "context"),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        size, stride = self.window_sizes()
        if self.window and not 1 <= stride <= size:
            problem = "give W:S, such as 6:3, with S from 1 to W"
            raise OptionError("external.window", f"is {quote(self.window)}: {problem}")

    def window_sizes(self) -> tuple[int, int]:
        """Return the sentences of a window, and those from its beginning to that of the next; 0, 0 if it is wrong."""
        match = re.fullmatch(r"(\d{1,6}):(\d{1,6})", self.window or "1:1")
        return (int(match[1]), int(match[2])) if match else (0, 0)

    def arguments(self) -> list[str]:
        """Return the command and its arguments. Raises DocmtError for a command that cannot be started."""
        try:
            arguments = shlex.split(self.command)
        except ValueError as error:
            raise DocmtError(f"external.command cannot be parsed ({error}). Quote it as in a shell") from error
        if not arguments:
            raise DocmtError("external.command is empty. Give the command that starts the metric")
        if "\0" in self.command or shutil.which(arguments[0]) is None:
            raise DocmtError(f"external.command names {arguments[0]}, which is not an executable. Check its path")
        return [argument.replace("{comet}", str(COMET_ADAPTER)) for argument in arguments]


@dataclass(frozen=True)
class ExternalScore:
    """Scores of a corpus in an external metric.

    scores: by document, of sentences or windows. length_ratio: characters of the translation to those of the reference;
    metrics have a bias for short texts (see docs/evaluation.md). too_long: (document, sentence), both from 0, of inputs
    longer than the limit of the metric.
    """

    name: str
    signature: str
    scores: Sequence[Sequence[float]]
    length_ratio: float
    limit: int | None = None
    too_long: Sequence[tuple[int, int]] = ()
    segment: str = "sentence"
    is_estimated: bool = False
    """whether lengths of inputs are guessed from words"""

    @property
    def score(self) -> float:
        """Mean over sentences or windows."""
        flat = [score for document in self.scores for score in document]
        return math.fsum(flat) / len(flat)

    def format(self) -> str:
        """Return a line for the table of metrics."""
        size = format_count(sum(map(len, self.scores)), self.segment)
        return f"{self.name:<6}  {self.score:>6.4f}  {size}  length ratio {self.length_ratio:.3f}  {self.signature}"

    def warning(self) -> str:
        """Return a warning about inputs that are too long, empty if there are none."""
        if not self.too_long:
            return ""
        document, sentence = self.too_long[0]
        guess = ", as estimated from their words," if self.is_estimated else ""
        return (
            f"{format_count(len(self.too_long), 'input')} longer than the limit of {self.name}, {self.limit} subwords "
            f"with context{guess} were cut off (first: document {document + 1}, sentence {sentence + 1}). Reduce "
            f"external.{'window' if self.segment == 'window' else 'context'}"
        )

    def to_metric(self) -> MetricScore:
        """Return the score as that of a metric whose segments can be resampled."""
        documents = np.repeat(np.arange(len(self.scores)), list(map(len, self.scores)))
        rows = np.array([(score, 1.0) for document in self.scores for score in document])
        signature = f"{self.name}|{self.signature}"
        return MetricScore(self.score, signature, METRIC_NAMES["external"], rows, documents, ratio, digits=4)

    def to_json(self) -> dict[str, Any]:
        """Return the score as JSON values, with document and sentence numbers from 1."""
        values = {**asdict(self), "score": self.score, "segments": sum(map(len, self.scores))}
        return values | {"too_long": [[document + 1, sentence + 1] for document, sentence in self.too_long]}


def score_externally(
    sources: Documents, hypotheses: Documents, references: Documents, ids: Sequence[str], config: ExternalConfig
) -> ExternalScore:
    """Score all sentences with the command of the configuration.

    sources, hypotheses, references: documents of sentences, of equal shape. ids: names of the documents.
    Raises DocmtError for documents of unequal shape, a command that cannot be started or fails, and an invalid answer.
    """
    sizes, *others = [list(map(len, side)) for side in (sources, hypotheses, references)]
    if others != [sizes, sizes]:
        raise DocmtError(
            "external.command needs one translation and one reference for each source sentence, but their numbers "
            "differ. Give files with equal sentence counts"
        )
    if not any(sizes):
        raise DocmtError("there are no sentences to score. Give a corpus with text")
    locations, rows = list[tuple[int, int]](), list[dict[str, Any]]()
    size, stride = config.window_sizes()
    for document, sides in enumerate(zip(sources, hypotheses, references, strict=True)):
        source, hypothesis, reference = sides
        mt_context = reference if config.hypothesis_context == "reference" else hypothesis
        # The last window ends with the document, and may have fewer sentences.
        for number in range(0, max(1, len(source) - size + stride) if source else 0, stride):
            window, context = slice(number, number + size), slice(max(0, number - config.context), number)
            texts = {name: " ".join(side[window]) for name, side in zip(("src", "mt", "ref"), sides, strict=True)}
            contexts = {"src_context": source, "mt_context": mt_context, "ref_context": reference}
            before = {name: list(side[context]) for name, side in contexts.items()}
            rows.append({"document": ids[document], "sentence": number + 1, **texts, **before})
            locations.append((document, number))
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    answer = _run_metric(config.arguments(), lines, len(rows))
    names = f"{answer.name} {config.command}".lower()
    limit = answer.limit or next((size for name, size in _LIMITS.items() if name in names), None)
    lengths = answer.subwords or map(_estimate_subwords, rows)
    too_long = [place for place, length in zip(locations, lengths, strict=True) if limit and length > limit]
    by_document: list[list[float]] = [[] for _ in sources]
    for (document, _), score in zip(locations, answer.scores, strict=True):
        by_document[document].append(score)
    made, reference_size = (sum(len(text) for each in side for text in each) for side in (hypotheses, references))
    context_signature = f"{config.context}.{config.hypothesis_context}" if config.context else "0"
    signature = f"{answer.signature}|context:{context_signature}{f'|window:{config.window}' if config.window else ''}"
    return ExternalScore(
        *(answer.name, signature, by_document, made / max(1, reference_size), limit, too_long),
        segment="window" if config.window else "sentence",
        is_estimated=answer.subwords is None,
    )


def _estimate_subwords(row: Mapping[str, Any]) -> int:
    """Return about how many subwords the longest text of an input has, with its context."""
    sides = (" ".join([*row[f"{side}_context"], row[side]]) for side in ("src", "mt", "ref"))
    return max(round(_SUBWORDS * len(text.split())) + len(UNSPACED_SCRIPT.findall(text)) for text in sides)


@dataclass(frozen=True)
class _Answer:
    """What a metric prints."""

    name: str
    signature: str
    scores: list[float]
    subwords: list[int] | None = None
    limit: int | None = None


def _run_metric(arguments: Sequence[str], text: str, count: int) -> _Answer:
    """Run the command on this input and return its answer for `count` sentences."""
    name = arguments[0]
    try:
        process = subprocess.run(arguments, input=text.encode("utf-8", errors="replace"), stdout=subprocess.PIPE)
    except OSError as error:
        raise DocmtError(f"the metric {name} cannot be started: {error.strerror}. Check external.command") from error
    if process.returncode < 0:
        raise DocmtError(f"the metric {name} was killed by signal {-process.returncode}, perhaps for lack of memory")
    if process.returncode:
        raise DocmtError(f"the metric {name} exited with status {process.returncode}. Its output is above")
    last = next(filter(str.strip, reversed(process.stdout.decode("utf-8", errors="replace").split("\n"))), "")
    location = f"the last line that the metric {name} prints"
    values = parse_json_or_none(last)
    if not isinstance(values, dict):
        raise DocmtError(f"{location}, {quote(last)}, is not a JSON object. Print one as in docs/evaluation.md")
    if missing := [key for key in ("name", "signature", "scores") if key not in values]:
        raise DocmtError(f'{location} has no "{missing[0]}": print an object as in docs/evaluation.md')
    answer = build(_Answer, {each.name: values[each.name] for each in fields(_Answer) if each.name in values}, location)
    for key, numbers in (("scores", answer.scores), ("subwords", answer.subwords)):
        if numbers is not None and len(numbers) != count:
            raise DocmtError(f"{location} has {len(numbers)} {key} for {count} sentences. Print one for each")
    if bad := [number for number, score in enumerate(answer.scores, 1) if not math.isfinite(score)]:
        raise DocmtError(f"{location} has no number as score {bad[0]}. Print finite numbers")
    return answer
