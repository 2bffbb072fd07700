"""External metrics, such as COMET, that run in a separate process with a separate Python environment.

The command is started once. Its standard input has one JSON object a line for every sentence, in order:

    {"document": "a", "sentence": 2, "src": "..", "mt": "..", "ref": "..",
     "src_context": [".."], "mt_context": [".."], "ref_context": [".."]}

The contexts are the previous sentences of the document, the nearest last, at most `external.context`. The last line of
its standard output is a JSON object. Earlier lines are ignored, and standard error is passed through:

    {"name": "COMET", "signature": "model:..|version:..", "scores": [0.81, ..], "subwords": [37, ..], "limit": 512}

`scores` has a number for every input line. `subwords` (length of the longest text of a line) and `limit` (longest text
that the metric reads) are optional. Any exit status but 0 is a failure.
"""

from __future__ import annotations

import json
import math
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

from docmt.core.errors import DocmtError
from docmt.core.settings import build, check_fields, quote, ranged
from docmt.evaluation.metrics import format_count
from docmt.evaluation.output_alignment import Documents

COMET_ADAPTER = Path(__file__).parent / "adapters" / "comet_adapter.py"


@dataclass(frozen=True)
class ExternalConfig:
    """Settings of a metric in a separate process; see docs/evaluation.md."""

    command: str = ""
    """command that starts the metric ({comet}: path of docmt's COMET adapter)"""
    context: int = ranged(0, 0, 1000)
    """previous sentences that the metric reads as context"""
    hypothesis_context: Literal["reference", "hypothesis"] = "reference"
    """context of a translation: previous references or previous translations"""

    def __post_init__(self) -> None:
        check_fields(self, "external.")
        for name, needed in (("context", "command"), ("hypothesis_context", "context")):
            if getattr(self, name) not in (0, "reference") and not getattr(self, needed):
                raise DocmtError(
                    f"external.{name} has no effect without external.{needed}. Set external.{needed}, or leave it out"
                )

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

    scores: sentence scores by document. too_long: (document, sentence), both from 0, of inputs longer than the limit of
    the metric.
    """

    name: str
    signature: str
    scores: Sequence[Sequence[float]]
    limit: int | None = None
    too_long: Sequence[tuple[int, int]] = ()

    @property
    def score(self) -> float:
        """Mean over sentences."""
        flat = [score for document in self.scores for score in document]
        return math.fsum(flat) / len(flat)

    def format(self) -> str:
        """Return a line for the table of metrics."""
        sentences = format_count(sum(map(len, self.scores)), "sentence")
        return f"{self.name:<6}  {self.score:>6.4f}  {sentences}  {self.signature}"

    def warning(self) -> str:
        """Return a warning about inputs that are too long, empty if there are none."""
        if not self.too_long:
            return ""
        document, sentence = self.too_long[0]
        return (
            f"{format_count(len(self.too_long), 'input')} longer than the limit of {self.name}, {self.limit} subwords "
            f"with context, were cut off (first: document {document + 1}, sentence {sentence + 1}). Reduce "
            "external.context"
        )

    def to_json(self) -> dict[str, Any]:
        """Return the score as JSON values, with document and sentence numbers from 1."""
        return {
            "name": self.name,
            "score": self.score,
            "signature": self.signature,
            "segments": sum(map(len, self.scores)),
            "scores": [list(document) for document in self.scores],
            "limit": self.limit,
            "too_long": [[document + 1, sentence + 1] for document, sentence in self.too_long],
        }


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
    locations, lines = list[tuple[int, int]](), list[str]()
    for document, sides in enumerate(zip(sources, hypotheses, references, strict=True)):
        source, hypothesis, reference = sides
        mt_context = reference if config.hypothesis_context == "reference" else hypothesis
        for number in range(len(source)):
            context = slice(max(0, number - config.context), number)
            row = {
                "document": ids[document],
                "sentence": number + 1,
                "src": source[number],
                "mt": hypothesis[number],
                "ref": reference[number],
                "src_context": list(source[context]),
                "mt_context": list(mt_context[context]),
                "ref_context": list(reference[context]),
            }
            lines.append(json.dumps(row, ensure_ascii=False) + "\n")
            locations.append((document, number))
    answer = _run_metric(config.arguments(), "".join(lines), len(lines))
    scores, limit, lengths = iter(answer.scores), answer.limit, answer.subwords or []
    too_long = [
        location for location, length in zip(locations, lengths, strict=False) if limit is not None and length > limit
    ]
    context_signature = f"{config.context}.{config.hypothesis_context}" if config.context else "0"
    signature = f"{answer.signature}|context:{context_signature}"
    by_document = [[next(scores) for _ in range(size)] for size in sizes]
    return ExternalScore(answer.name, signature, by_document, limit, too_long)


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
    try:
        values = json.loads(last)
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, dict):
        raise DocmtError(f"{location}, {quote(last)}, is not a JSON object. Print one as in docs/evaluation.md")
    answer = build(_Answer, {each.name: values[each.name] for each in fields(_Answer) if each.name in values}, location)
    for key, numbers in (("scores", answer.scores), ("subwords", answer.subwords)):
        if numbers is not None and len(numbers) != count:
            raise DocmtError(f"{location} has {len(numbers)} {key} for {count} sentences. Print one for each")
    if bad := [number for number, score in enumerate(answer.scores, 1) if not math.isfinite(score)]:
        raise DocmtError(f"{location} has no number as score {bad[0]}. Print finite numbers")
    return answer
