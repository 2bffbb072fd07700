"""Human evaluation with Pearmut (Zouhar and Kocmi 2026, arXiv 2601.02933): a campaign to annotate, and its answers.

Annotators mark errors and give each sentence, in its document, 0 to 100 points: error span annotation (ESA, Kocmi et
al. 2024), of one output at a time or of all outputs side by side (cESA). They see letters instead of systems. The key
says which letter of which document is which system.
Notation: S systems, D documents with answers.
"""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from string import ascii_uppercase
from typing import Any, Literal

import numpy as np

from docmt.core.errors import DocmtError
from docmt.core.files import json_checksum, parse_json, read_bytes
from docmt.core.plain_text import align_columns, escape_markdown, markdown_table
from docmt.evaluation.metrics import MetricScore, Statistics, format_count
from docmt.evaluation.output_alignment import Documents
from docmt.evaluation.significance import (
    TEST_NAMES,
    Outcome,
    SignificanceConfig,
    compare_statistics,
    format_cell,
    ratio,
)

HumanProtocol = Literal["cESA", "ESA"]
COLUMNS = ("points", "errors")
"""What people give a sentence: points, and the weight of its marked errors."""
_SEVERITIES = {"minor": 1, "major": 5}
"""Weights of errors (Freitag et al. 2021)."""
_RESET = "__RESET__"  # annotation by which Pearmut takes back all earlier ones of a user


def build_campaign(
    name: str,
    documents: Sequence[tuple[str, Sequence[str]]],
    systems: Mapping[str, Documents],
    protocol: HumanProtocol = "cESA",
    seed: int = 0,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a campaign of whole documents, and its key. Both are JSON values.

    documents: ids and source sentences; systems: their translations by name. The order of systems is random in each
    document (cESA), and so is that of all outputs (ESA); both depend on `seed` alone. A document that some system
    translated by another number of sentences is one segment. Raises DocmtError for more than 26 systems.
    """
    if len(systems) > len(ascii_uppercase):
        raise DocmtError(f"a campaign has at most {len(ascii_uppercase)} systems, not {len(systems)}")
    generator, letters = random.Random(seed), list(ascii_uppercase[: len(systems)])
    orders = [dict(zip(letters, generator.sample(list(systems), len(systems)), strict=True)) for _ in documents]
    shown = [{"document": id, "systems": order} for (id, _), order in zip(documents, orders, strict=True)]
    key = {"campaign_id": name, "protocol": protocol, "systems": list(systems), "documents": shown}
    together = [letters] if protocol == "cESA" else [[letter] for letter in letters]
    tasks = [(number, each) for number in range(len(documents)) for each in together]
    if protocol == "ESA":
        generator.shuffle(tasks)
    checksum, data = json_checksum(key), []
    for number, letters in tasks:
        source, names = documents[number][1], orders[number]
        targets = {letter: systems[names[letter]][number] for letter in letters}
        if any(len(systems[system][number]) != len(source) for system in systems):
            source, targets = ["\n".join(source)], {letter: ["\n".join(text)] for letter, text in targets.items()}
        data.append(
            [
                {
                    "item_id": f"{documents[number][0]} {number + 1}.{index + 1} {''.join(letters)}",
                    "src": _without_tags(sentence),
                    "tgt": {letter: _without_tags(text[index]) for letter, text in targets.items()},
                    "key": checksum,
                    "document": number,
                    "segment": index,
                }
                for index, sentence in enumerate(source)
            ]
        )
    info = {"assignment": "single-stream", "protocol": protocol, "users": 1, "shuffle": False}
    return {"campaign_id": name, "info": info, "data": data}, {**key, "key": checksum}


def _without_tags(text: str) -> str:
    """Return a text that Pearmut shows as it is: with an invisible word joiner in what would be a tag."""
    return re.sub(r"<(?=[a-zA-Z/!])", "<\u2060", text)


@dataclass(frozen=True)
class HumanScores:
    """Points and errors of systems, the baseline first, over the segments for which all systems have answers."""

    protocol: str
    config: SignificanceConfig
    scores: Mapping[str, Mapping[str, MetricScore]]
    """by system and column; see `COLUMNS`"""
    outcomes: Mapping[str, Sequence[Outcome | None]]
    """by column and system; None with a single document"""
    segments: int
    annotators: int
    left_out: int
    """segments that lack the answer for a system"""

    def rows(self) -> list[list[str]]:
        """Return the table as text: a header, then a row for each system."""
        rows = [["", *COLUMNS]]
        for number, (name, scores) in enumerate(self.scores.items()):
            rows.append([name, *(format_cell(scores[key], self.outcomes[key][number]) for key in COLUMNS)])
        return rows

    def notes(self) -> list[str]:
        """Return explanations for a reader of the table, one sentence each."""
        baseline, documents = next((name, scores["points"].segments) for name, scores in self.scores.items())
        sizes = [(documents, "document"), (self.segments, "segment"), (self.annotators, "annotator")]
        counts = ", ".join(format_count(*size) for size in sizes)
        return [
            f"{self.protocol}: {counts}; {format_count(self.left_out, 'segment')} without answers for all systems",
            "points: 0 to 100; errors: major 5, minor 1, lower is better; means over segments",
            f"±: half of the 95 % bootstrap confidence interval over documents; p and * (p < 0.05): against "
            f"{baseline}, {TEST_NAMES[self.config.test]}; seed {self.config.seed}",
        ]

    def format(self) -> str:
        """Return the table and the notes as text."""
        return "\n".join([*align_columns(self.rows()), *self.notes()])

    def to_markdown(self) -> str:
        """Return the table and the notes as Markdown."""
        rows = [[escape_markdown(cell) for cell in row] for row in self.rows()]
        return "\n".join([*markdown_table(rows, len(rows[0])), "", *(f"- {note}" for note in self.notes())]) + "\n"

    def to_json(self) -> dict[str, Any]:
        """Return all but the sufficient statistics as JSON values."""
        outcomes = {key: [outcome and asdict(outcome) for outcome in each] for key, each in self.outcomes.items()}
        systems = [
            {
                "name": name,
                **{key: score.score for key, score in scores.items()},
                "outcomes": {key: each[number] for key, each in outcomes.items()},
            }
            for number, (name, scores) in enumerate(self.scores.items())
        ]
        counts = {"segments": self.segments, "annotators": self.annotators, "left_out": self.left_out}
        return {"protocol": self.protocol, "significance": asdict(self.config), **counts, "systems": systems}


Answers = dict[tuple[int, int], dict[str, dict[str, tuple[float, float]]]]
"""Points and errors by document and segment, then system, then annotator."""


def score_answers(paths: Sequence[str], config: SignificanceConfig | None = None) -> HumanScores:
    """Return the scores of a campaign. paths: its key, and files of answers, in any order.

    Answers are what Pearmut's dashboard gives to download. The last answer of an annotator counts, and the mean over
    annotators. Items that are not of the campaign (tutorials) are left out.
    Raises DocmtError for other files, without a key or answers, and for answers of another campaign.
    """
    config, files = config or SignificanceConfig(), list(map(_read_file, paths))
    key, entries = next((key for key, _ in files if key), None), [entry for _, entries in files for entry in entries]
    if key is None:
        raise DocmtError("there is no key of the campaign: name the file .key.json that was written beside it, too")
    answers, annotators = Answers(), set()
    try:
        for user, number, segment, letter, answer in _iterate_answers(entries, key):
            annotators.add(user)
            by_system = answers.setdefault((number, segment), defaultdict(dict))
            by_system[key["documents"][number]["systems"][letter]][user] = answer
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise DocmtError(f"the answers are damaged ({error!r}): get them from Pearmut again") from error
    names, complete = (
        key["systems"],
        sorted(place for place, each in answers.items() if len(each) == len(key["systems"])),
    )
    if not complete:
        raise DocmtError("no segment has answers for all systems: let annotators finish a document")
    documents = {number: row for row, number in enumerate(dict.fromkeys(number for number, _ in complete))}
    sums = np.zeros((len(COLUMNS), len(names), len(documents), 2))
    for place in complete:
        for system, name in enumerate(names):
            means = np.mean(list(answers[place][name].values()), axis=0)
            sums[:, system, documents[place[0]]] += np.stack((means, np.ones(len(COLUMNS))), axis=1)
    outcomes: dict[str, Sequence[Outcome | None]] = {}
    for column, statistics in zip(COLUMNS, sums, strict=True):
        lower = column == "errors"
        outcomes[column] = (
            compare_statistics(statistics, ratio, config, lower) if len(documents) > 1 else [None] * len(names)
        )
    scores = {
        name: {
            column: _build_score(column, statistics[system]) for column, statistics in zip(COLUMNS, sums, strict=True)
        }
        for system, name in enumerate(names)
    }
    counts = len(complete), len(annotators), len(answers) - len(complete)
    return HumanScores(key["protocol"], config, scores, outcomes, *counts)


def _build_score(column: str, statistics: Statistics) -> MetricScore:
    value = float(ratio(statistics.sum(axis=0)))
    return MetricScore(value, "", column, statistics, np.arange(len(statistics)), ratio, column == "errors")


def _read_file(path: str) -> tuple[Any, list[Any]]:
    """Return the key, or None, and the annotations in a file of either."""
    try:
        values = parse_json(read_bytes(path))
        if {"key", "documents", "systems"} <= values.keys():
            return values, []
        entries = [entry for part in values.values() for entry in part]
        if all("annotation" in entry for entry in entries):
            return None, entries
    except (AttributeError, TypeError, ValueError):
        pass
    raise DocmtError(f"{path} has no annotations: name what Pearmut's dashboard gives to download, or a key")


def _iterate_answers(
    entries: Sequence[Mapping[str, Any]], key: Mapping[str, Any]
) -> Iterator[tuple[str, int, int, str, tuple[float, float]]]:
    """Yield annotator, document, segment, letter, and points with errors of each answer that counts."""
    resets = {entry.get("user_id"): number for number, entry in enumerate(entries) if entry["annotation"] == _RESET}
    for number, entry in enumerate(entries):
        user = entry.get("user_id")
        if number <= resets.get(user, -1):
            continue
        for item, annotation in zip(entry.get("item", ()), entry["annotation"], strict=False):
            if "key" not in item or not annotation:
                continue
            if item["key"] != key["key"]:
                raise DocmtError(f"the answers belong to another campaign than the key of {key['campaign_id']}")
            for letter, answer in annotation.items():
                if answer.get("score") is not None:
                    errors = sum(_SEVERITIES.get(span.get("severity"), 0) for span in answer.get("error_spans") or ())
                    yield str(user), item["document"], item["segment"], letter, (float(answer["score"]), errors)
