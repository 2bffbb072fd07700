"""Metrics that run as a process of their own, in an environment of their own: COMET, and whatever speaks as it does.

The command is started once. On standard input it gets one JSON object a line for every sentence, in order, then the
input ends:

    {"document": "a", "sentence": 2, "src": "..", "mt": "..", "ref": "..",
     "src_context": [".."], "mt_context": [".."], "ref_context": [".."]}

The contexts are the sentences before, the nearest last, as many as were asked for and the document has. The last line
of its standard output is a JSON object; what it prints before is passed over, standard error is shown as it comes:

    {"name": "COMET", "signature": "model:..|version:..", "scores": [0.81, ..], "subwords": [37, ..], "limit": 512}

`scores` has a number for every line of the input. `subwords` (the length of the longest of the texts of a line) and
`limit` (what the metric reads of a text) may be missing. Any status but 0 is a failure.
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
from docmt.core.settings import check_fields, ranged, shown
from docmt.evaluation.metrics import Documents, count

ADAPTERS = Path(__file__).parent / "adapters"
_NEEDED = (("name", str, "a string"), ("signature", str, "a string"), ("scores", list, "a list of numbers"))


@dataclass(frozen=True)
class ExternalConfig:
    """A metric that is a process of its own; see docs/evaluation.md."""

    command: str = ""
    """what starts it, as in a shell but without one; {comet} stands for the path of the adapter for COMET that docmt
    has, to be run by the Python of an environment with unbabel-comet:
    "comet-env/bin/python {comet} --model Unbabel/wmt22-comet-da" """
    context: int = ranged(0, 0, 1000)
    """sentences before, of the same document, that the metric is given as well; 2 in Vernikos et al. (2022)"""
    hypothesis_context: Literal["reference", "hypothesis"] = "reference"
    """what stands before a translation: the reference, as in that paper, so that no sentence is punished for the errors
    of those before, or the translations themselves"""

    def __post_init__(self) -> None:
        check_fields(self, "external.")
        if self.command and not self.context and self.hypothesis_context != "reference":
            raise DocmtError(
                "external.hypothesis_context has no meaning without external.context: say how many sentences stand "
                "before, or leave it out"
            )
        if not self.command and self.context:
            raise DocmtError("external.context has no meaning without external.command: name a metric, or leave it out")

    def words(self) -> list[str]:
        """The command and its arguments. Raises DocmtError if there is none, or for quotes that do not end."""
        try:
            words = shlex.split(self.command)
        except ValueError as error:
            raise DocmtError(f"external.command cannot be understood ({error}): write it as in a shell") from error
        if not words:
            raise DocmtError("external.command is empty: name the command that starts the metric")
        return [word.replace("{comet}", str(ADAPTERS / "comet_adapter.py")) for word in words]

    def check_start(self) -> None:
        """Raises DocmtError for a command that is not there, before any work is done for it."""
        name = self.words()[0]
        if "\0" in name or shutil.which(name) is None:
            raise DocmtError(f"the metric {name} of external.command is no command that can be started: check its path")


@dataclass(frozen=True)
class ExternalScore:
    """The scores of a corpus in a metric of another process.

    scores: of each document those of its sentences. too_long: (document, sentence), both from 0, of inputs that are
    longer than what the metric reads.
    """

    name: str
    signature: str
    scores: Sequence[Sequence[float]]
    limit: int | None = None
    too_long: Sequence[tuple[int, int]] = ()

    @property
    def score(self) -> float:
        """The mean over sentences."""
        flat = [score for document in self.scores for score in document]
        return math.fsum(flat) / len(flat)

    def format(self) -> str:
        """A line as those of the other metrics."""
        sentences = count(sum(map(len, self.scores)), "sentence")
        return f"{self.name:<6}  {self.score:>6.4f}  {sentences}  {self.signature}"

    def warning(self) -> str:
        """What should be known of inputs that are too long; empty if there are none."""
        if not self.too_long:
            return ""
        document, sentence = self.too_long[0]
        return (
            f"{count(len(self.too_long), 'input')} longer than the {self.limit} subwords that {self.name} reads, "
            f"context included: what is beyond did not count (first: document {document + 1}, sentence "
            f"{sentence + 1}); give less context, if any"
        )

    def to_json(self) -> dict[str, Any]:
        """In types that `json.dumps` takes."""
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
    """Starts the command of the configuration, gives it all sentences and reads its scores.

    sources, hypotheses, references: documents of sentences, of equal shape; ids: names of the documents.
    Raises DocmtError for documents of unequal shape, a command that cannot be started or fails, and what it should
    not have answered.
    """
    shapes = [[len(document) for document in side] for side in (sources, hypotheses, references)]
    if shapes[0] != shapes[1] or shapes[0] != shapes[2] or len(ids) != len(shapes[0]):
        raise DocmtError(
            "the metric of external.command compares sentence with sentence, but source, translation and reference "
            "have other numbers of them: give files with one sentence for each of the others"
        )
    places = [(document, sentence) for document, size in enumerate(shapes[0]) for sentence in range(size)]
    if not places:
        raise DocmtError("there are no sentences, so nothing can be scored; give a corpus with text")
    lines = _inputs(sources, hypotheses, references, ids, config)
    answer = _answer(config, "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines), len(places))
    scores = iter(float(score) for score in answer["scores"])
    limit = answer.get("limit")
    too_long = [
        place
        for place, subwords in zip(places, answer.get("subwords") or [], strict=False)
        if limit is not None and subwords > limit
    ]
    before = f"context:{config.context}.{config.hypothesis_context}" if config.context else "context:0"
    by_document = [[next(scores) for _ in range(size)] for size in shapes[0]]
    return ExternalScore(answer["name"], f"{answer['signature']}|{before}", by_document, limit, too_long)


def _inputs(
    sources: Documents, hypotheses: Documents, references: Documents, ids: Sequence[str], config: ExternalConfig
) -> Iterator[dict[str, Any]]:
    """What the command is told of each sentence."""
    for id, source, hypothesis, reference in zip(ids, sources, hypotheses, references, strict=True):
        before_mt = reference if config.hypothesis_context == "reference" else hypothesis
        for number in range(len(source)):
            context = slice(max(0, number - config.context), number)
            yield {
                "document": id,
                "sentence": number + 1,
                "src": source[number],
                "mt": hypothesis[number],
                "ref": reference[number],
                "src_context": list(source[context]),
                "mt_context": list(before_mt[context]),
                "ref_context": list(reference[context]),
            }


def _answer(config: ExternalConfig, text: str, count: int) -> dict[str, Any]:
    """What the command answers to this input, checked."""
    words = config.words()
    name = words[0]
    try:
        process = subprocess.run(words, input=text.encode("utf-8", errors="replace"), stdout=subprocess.PIPE)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise DocmtError(f"the metric {name} cannot be started: {reason}; check external.command") from error
    if process.returncode < 0:
        number = -process.returncode
        how = next((each.name for each in signal.Signals if each == number), f"signal {number}")  # real-time: no name
        raise DocmtError(f"the metric {name} was ended by {how}; it may have had too little memory: start it again")
    if process.returncode:
        raise DocmtError(
            f"the metric {name} ended with status {process.returncode}; what it said stands above: mend that first"
        )
    return _checked(process.stdout, name, count)


def _is_number(value: Any, kind: Any) -> bool:
    """Whether a value of JSON is a finite number of this kind; true and false are none."""
    with suppress(OverflowError):  # a whole number beyond all decimal ones
        return isinstance(value, kind) and not isinstance(value, bool) and math.isfinite(value)
    return False


def _checked(output: bytes, name: str, count: int) -> dict[str, Any]:
    """The object in the last line of an output. Raises DocmtError for what is no answer."""
    lines = output.decode("utf-8", errors="replace").split("\n")
    last = next((line for line in reversed(lines) if line.strip()), "")
    wrong = f"the metric {name} gave no proper answer"
    advice = "the last line it prints must be an object as docs/evaluation.md says"
    try:
        answer = json.loads(last)
    except (ValueError, RecursionError) as error:
        raise DocmtError(f"{wrong}: {shown(last)} is not JSON; {advice}") from error
    if not isinstance(answer, dict):
        raise DocmtError(f"{wrong}: {shown(last)} is no JSON object; {advice}")
    for entry, kind, what in _NEEDED:
        if not isinstance(answer.get(entry), kind):
            raise DocmtError(f"{wrong}: `{entry}` is {shown(answer.get(entry))}, but must be {what}; {advice}")
    if len(answer["scores"]) != count:
        raise DocmtError(f"{wrong}: it has {len(answer['scores'])} scores for {count} sentences; {advice}")
    for number, score in enumerate(answer["scores"], 1):
        if not _is_number(score, int | float):
            raise DocmtError(f"{wrong}: score {number} is {shown(score)}, which is no number; {advice}")
    limit, subwords = answer.get("limit"), answer.get("subwords")
    if limit is not None and not _is_number(limit, int):
        raise DocmtError(f"{wrong}: `limit` is {shown(limit)}, but must be a whole number; {advice}")
    counted = isinstance(subwords, list) and len(subwords) == count and all(_is_number(n, int) for n in subwords)
    if subwords is not None and not counted:
        raise DocmtError(f"{wrong}: `subwords` is {shown(subwords)}, but must be {count} whole numbers; {advice}")
    return answer
