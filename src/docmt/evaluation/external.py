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
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from docmt.core.errors import DocmtError
from docmt.core.settings import check_fields, quote, ranged
from docmt.evaluation.metrics import Documents, format_count

ADAPTERS = Path(__file__).parent / "adapters"
_REQUIRED = (("name", str, "a string"), ("signature", str, "a string"), ("scores", list, "a list of numbers"))


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
        if self.command and not self.context and self.hypothesis_context != "reference":
            raise DocmtError(
                "external.hypothesis_context has no effect without external.context. Set external.context, or leave it "
                "out"
            )
        if not self.command and self.context:
            raise DocmtError(
                "external.context has no effect without external.command. Set external.command, or leave it out"
            )

    def arguments(self) -> list[str]:
        """Return the command and its arguments. Raises DocmtError for an empty command or an open quote."""
        try:
            arguments = shlex.split(self.command)
        except ValueError as error:
            raise DocmtError(f"external.command cannot be parsed ({error}). Quote it as in a shell") from error
        if not arguments:
            raise DocmtError("external.command is empty. Give the command that starts the metric")
        return [argument.replace("{comet}", str(ADAPTERS / "comet_adapter.py")) for argument in arguments]

    def check_command(self) -> None:
        """Raise DocmtError for a command that does not exist, before any work is done."""
        name = self.arguments()[0]
        if "\0" in name or shutil.which(name) is None:
            raise DocmtError(f"external.command names {name}, which is not an executable. Check its path")


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
    shapes = [[len(document) for document in side] for side in (sources, hypotheses, references)]
    if shapes[0] != shapes[1] or shapes[0] != shapes[2] or len(ids) != len(shapes[0]):
        raise DocmtError(
            "external.command needs one translation and one reference for each source sentence, but their numbers "
            "differ. Give files with equal sentence counts"
        )
    locations = [(document, sentence) for document, size in enumerate(shapes[0]) for sentence in range(size)]
    if not locations:
        raise DocmtError("there are no sentences to score. Give a corpus with text")
    lines = _input_lines(sources, hypotheses, references, ids, config)
    answer = _run_metric(config, "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines), len(locations))
    scores = iter(float(score) for score in answer["scores"])
    limit = answer.get("limit")
    too_long = [
        location
        for location, subwords in zip(locations, answer.get("subwords") or [], strict=False)
        if limit is not None and subwords > limit
    ]
    context = f"context:{config.context}.{config.hypothesis_context}" if config.context else "context:0"
    by_document = [[next(scores) for _ in range(size)] for size in shapes[0]]
    return ExternalScore(answer["name"], f"{answer['signature']}|{context}", by_document, limit, too_long)


def _input_lines(
    sources: Documents, hypotheses: Documents, references: Documents, ids: Sequence[str], config: ExternalConfig
) -> Iterator[dict[str, Any]]:
    """Yield the input object of each sentence."""
    for id, source, hypothesis, reference in zip(ids, sources, hypotheses, references, strict=True):
        mt_context = reference if config.hypothesis_context == "reference" else hypothesis
        for number in range(len(source)):
            context = slice(max(0, number - config.context), number)
            yield {
                "document": id,
                "sentence": number + 1,
                "src": source[number],
                "mt": hypothesis[number],
                "ref": reference[number],
                "src_context": list(source[context]),
                "mt_context": list(mt_context[context]),
                "ref_context": list(reference[context]),
            }


def _run_metric(config: ExternalConfig, text: str, count: int) -> dict[str, Any]:
    """Run the command on this input and return its checked answer."""
    arguments = config.arguments()
    name = arguments[0]
    try:
        process = subprocess.run(arguments, input=text.encode("utf-8", errors="replace"), stdout=subprocess.PIPE)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise DocmtError(f"the metric {name} cannot be started: {reason}. Check external.command") from error
    if process.returncode < 0:
        number = -process.returncode
        signal_name = next((known.name for known in signal.Signals if known == number), f"signal {number}")
        raise DocmtError(f"the metric {name} was killed by {signal_name}, perhaps for lack of memory. Start it again")
    if process.returncode:
        raise DocmtError(f"the metric {name} exited with status {process.returncode}. Its output is above")
    return _parse_answer(process.stdout, name, count)


def _is_number(value: Any, kind: Any) -> bool:
    """Return whether a JSON value is a finite number of this kind. Booleans are not."""
    with suppress(OverflowError):  # an integer beyond all floats
        return isinstance(value, kind) and not isinstance(value, bool) and math.isfinite(value)
    return False


def _parse_answer(output: bytes, name: str, count: int) -> dict[str, Any]:
    """Return the object in the last line of an output. Raises DocmtError if it is invalid."""
    lines = output.decode("utf-8", errors="replace").split("\n")
    last = next((line for line in reversed(lines) if line.strip()), "")
    problem = f"the metric {name} gave an invalid answer"
    advice = "The last line it prints must be an object as in docs/evaluation.md"
    try:
        answer = json.loads(last)
    except (ValueError, RecursionError) as error:
        raise DocmtError(f"{problem}: {quote(last)} is not JSON. {advice}") from error
    if not isinstance(answer, dict):
        raise DocmtError(f"{problem}: {quote(last)} is not a JSON object. {advice}")
    for key, kind, expected in _REQUIRED:
        if not isinstance(answer.get(key), kind):
            raise DocmtError(f"{problem}: `{key}` is {quote(answer.get(key))}, not {expected}. {advice}")
    if len(answer["scores"]) != count:
        raise DocmtError(f"{problem}: it has {len(answer['scores'])} scores for {count} sentences. {advice}")
    for number, score in enumerate(answer["scores"], 1):
        if not _is_number(score, int | float):
            raise DocmtError(f"{problem}: score {number} is {quote(score)}, not a number. {advice}")
    limit, subwords = answer.get("limit"), answer.get("subwords")
    if limit is not None and not _is_number(limit, int):
        raise DocmtError(f"{problem}: `limit` is {quote(limit)}, not an integer. {advice}")
    is_valid = isinstance(subwords, list) and len(subwords) == count and all(_is_number(n, int) for n in subwords)
    if subwords is not None and not is_valid:
        raise DocmtError(f"{problem}: `subwords` is {quote(subwords)}, not {count} integers. {advice}")
    return answer
