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
from dataclasses import dataclass
from string import ascii_uppercase
from typing import Any, Literal

import numpy as np

from docmt.core.errors import DocmtError
from docmt.core.files import json_checksum, parse_json, read_bytes
from docmt.evaluation.metric_config import HUMAN_METRICS, MetricConfig
from docmt.evaluation.metrics import Evaluation, MetricScore, Statistics, format_count
from docmt.evaluation.output_alignment import Documents, Sources
from docmt.evaluation.significance import Comparison, SignificanceConfig, compare_metrics, ratio

HumanProtocol = Literal["cESA", "ESA"]
_SEVERITIES = {"minor": 1, "major": 5}
"""Weights of errors (Freitag et al. 2021)."""
_RESET = "__RESET__"  # annotation by which Pearmut takes back all earlier ones of a user


def build_campaign(
    name: str, documents: Sources, systems: Mapping[str, Documents], protocol: HumanProtocol = "cESA", seed: int = 0
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
    placements = [{"document": id, "systems": order} for (id, _), order in zip(documents, orders, strict=True)]
    key = {"campaign_id": name, "protocol": protocol, "systems": list(systems), "documents": placements}
    screens = [letters] if protocol == "cESA" else [[letter] for letter in letters]
    tasks = [(number, each) for number in range(len(documents)) for each in screens]
    if protocol == "ESA":
        generator.shuffle(tasks)
    checksum, data = json_checksum(key), []
    for number, letters in tasks:
        source, names = documents[number][1], orders[number]
        targets = {letter: systems[names[letter]][number] for letter in letters}
        if any(len(systems[system][number]) != len(source) for system in systems):
            source, targets = ["\n".join(source)], {letter: ["\n".join(text)] for letter, text in targets.items()}
        items = []
        for index, sentence in enumerate(source):
            id = f"{documents[number][0]} {number + 1}.{index + 1} {''.join(letters)}"
            target = {letter: _without_tags(text[index]) for letter, text in targets.items()}
            location = {"key": checksum, "document": number, "segment": index}
            items.append({"item_id": id, "src": _without_tags(sentence), "tgt": target, **location})
        data.append(items)
    info = {"assignment": "single-stream", "protocol": protocol, "users": 1, "shuffle": False}
    return {"campaign_id": name, "info": info, "data": data}, {**key, "key": checksum}


def _without_tags(text: str) -> str:
    """Return a text that Pearmut shows as it is: with an invisible word joiner in what would be a tag."""
    return re.sub(r"<(?=[a-zA-Z/!])", "<\u2060", text)


@dataclass(frozen=True)
class HumanConfig(MetricConfig):
    """How people scored, in place of the settings of metrics."""

    annotation: str = ""
    """cESA or ESA"""
    annotators: int = 0
    left_out: int = 0
    """segments that lack the answer for a system"""

    def describe_protocol(self) -> str:
        """Return how many people scored, and what is missing."""
        left_out = format_count(self.left_out, "segment")
        return f"{self.annotation}: {format_count(self.annotators, 'annotator')}, {left_out} without answers for all"


class HumanEvaluation(Evaluation):
    """Points and errors of a system over the segments for which all systems have answers."""

    counted = "segment"

    def to_json(self) -> dict[str, Any]:
        """Return all but the sufficient statistics as JSON values."""
        settings = {name: getattr(self.config, name) for name in ("annotation", "annotators", "left_out")}
        scores = {key: score and score.to_json() for key, score in self.metrics.items()}
        return {**settings, "documents": self.documents, "segments": self.sentences, **scores}


Answers = dict[tuple[int, int], dict[str, dict[str, tuple[float, float]]]]
"""Points and errors by document and segment, then system, then annotator."""


def score_answers(paths: Sequence[str], config: SignificanceConfig = SignificanceConfig()) -> Comparison:
    """Return the scores of a campaign. paths: its key, in any place, and files of answers, the oldest first.

    Answers are what Pearmut's dashboard gives to download. The last answer of an annotator counts, and the mean over
    annotators. Items that are not of the campaign (tutorials) are left out.
    Raises DocmtError for other files, without a key or answers, and for answers of another campaign.
    """
    files = list(map(_read_file, paths))
    key, entries = next((key for key, _ in files if key), None), [entry for _, entries in files for entry in entries]
    if key is None:
        raise DocmtError("there is no key of the campaign: name the file .key.json that was written beside it, too")
    if not entries:
        raise DocmtError("there are no answers: name what Pearmut's dashboard gives to download, beside the key")
    answers, annotators = Answers(), set()
    try:
        for user, number, segment, letter, answer in _iterate_answers(entries, key):
            annotators.add(user)
            by_system = answers.setdefault((number, segment), defaultdict(dict))
            by_system[key["documents"][number]["systems"][letter]][user] = answer
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise DocmtError(f"the answers are damaged ({error!r}): get them from Pearmut again") from error
    names = key["systems"]
    complete = sorted(place for place, each in answers.items() if len(each) == len(names))
    if not complete:
        raise DocmtError("no segment has answers for all systems: let annotators finish a document")
    documents = {number: row for row, number in enumerate(dict.fromkeys(number for number, _ in complete))}
    sums = np.zeros((len(names), len(HUMAN_METRICS), len(documents), 2))
    for place in complete:
        for system, name in enumerate(names):
            means = np.mean(list(answers[place][name].values()), axis=0)
            sums[system, :, documents[place[0]]] += np.stack((means, np.ones(len(means))), axis=1)
    left_out = len(answers) - len(complete)
    settings = HumanConfig(annotation=key["protocol"], annotators=len(annotators), left_out=left_out)
    systems = {
        name: HumanEvaluation(settings, len(documents), len(complete), _build_scores(statistics), 1.0, 1.0)
        for name, statistics in zip(names, sums, strict=True)
    }
    return compare_metrics(systems, config)


def _build_scores(statistics: Statistics) -> dict[str, MetricScore | None]:
    """Return the scores by metric. statistics [2, D, 2]: sums over the segments of a document, and their number."""
    scores: dict[str, MetricScore | None] = {}
    for (key, name), rows in zip(HUMAN_METRICS.items(), statistics, strict=True):
        lower, value = key == "errors", float(ratio(rows.sum(axis=0)))
        signature = "major:5|minor:1|lower is better" if lower else "scale:0-100"
        scores[key] = MetricScore(value, signature, name, rows, np.arange(len(rows)), ratio, lower)
    return scores


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
                    points = float(answer["score"])
                    if not 0 <= points <= 100:
                        raise ValueError(f"{points} points")
                    yield str(user), item["document"], item["segment"], letter, (points, errors)
