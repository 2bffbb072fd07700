"""How many times as fast one model of an experiment translates windows as another, both timed in one run."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import torch

from docmt.analysis import Point, draw_points
from docmt.core.errors import DocmtError
from docmt.core.files import read_json, write_text
from docmt.core.markdown import escaped, table
from docmt.core.options import MANY
from docmt.core.progress import progress
from docmt.data import PreparedStore
from docmt.decoding import Translator, translate_documents
from docmt.decoding.models import computing_in
from docmt.experiments.experiment import Speed
from docmt.experiments.plan import Plan, PlannedRun
from docmt.experiments.runner import state_of
from docmt.experiments.scores import EvaluationConfig, device_of
from docmt.training.corpus import in_direction

KINDS = {"whole": "whole time", "forward": "forward passes alone", "processor": "processor time"}
"""What is timed: translating, search included; encoder and decoder alone, as in the paper; and the first again, by the
clock of this process, which stands still while others have the processor."""
Row = dict[str, Any]
"""What the JSON file has for a window: `of` and `to` with the positions that the decoder computed and the seconds of
each round, by kind; `ratios`, by kind, of each round."""


@dataclass(frozen=True)
class SpeedTest:
    """What an experiment file says of speed, with the runs that it means."""

    speed: Speed
    path: Path
    """the JSON file of the result"""
    runs: Mapping[str, PlannedRun]
    """`of` and `to`, those of the first seed"""
    facts: Mapping[str, Any]
    """what the result depends on"""

    @classmethod
    def of(cls, plan: Plan, evaluation: EvaluationConfig) -> SpeedTest | None:
        """That of a plan, if its experiment has one."""
        speed = plan.experiment.speed
        if speed is None:
            return None
        named = {"of": speed.of, "to": speed.to}
        runs = {side: next(run for run in plan.runs if run.variant == name) for side, name in named.items()}
        facts = {
            "runs": {side: run.config.run.name for side, run in runs.items()},
            "speed": {name: value for name, value in asdict(speed).items() if name != "published"},
            "search": asdict(evaluation.search),
            "context": asdict(evaluation.context),
            "device": device_of(runs["of"].config),
            "threads": torch.get_num_threads(),
        }
        path = plan.place(evaluation.context, "-speed.json")
        return cls(speed, path, runs, json.loads(json.dumps(facts)))

    def stored(self) -> list[Row] | None:
        """What was measured, if that is there, whole, and of the same."""
        try:
            found = read_json(self.path)
        except DocmtError:
            return None
        rows: list[Row] | None = found.get("rows")
        return rows if found.get("facts") == self.facts else None

    def documents(self, store: PreparedStore) -> list[list[list[int]]]:
        """The sentences of the test split, end to end, as documents of the length that is asked for.

        Raises DocmtError where they are too few for one.
        """
        documents, length = store.split("test").documents("source"), self.speed.sentences
        sentences = [sentence for document in documents for sentence in document if sentence]
        if len(sentences) < length:
            raise DocmtError(
                f"speed asks for documents of {length} sentences, but the test split has {len(sentences)}: take a "
                "larger one, or another number in the experiment file"
            )
        count = min(self.speed.documents, len(sentences) // length)
        return [sentences[number * length : (number + 1) * length] for number in range(count)]


def measure_speed(plan: Plan, evaluation: EvaluationConfig, tell: Callable[[str], object]) -> None:
    """Times what the experiment file asks for, unless that is done or one of its runs is not.

    Raises DocmtError where the test split is shorter than one of the documents.
    """
    test = SpeedTest.of(plan, evaluation)
    if test is None or test.stored() is not None:
        return
    if any(state_of(run, evaluation) != "done" for run in test.runs.values()):
        tell("speed is not measured: one of the two runs is not done")
        return
    speed = test.speed
    tell(f"timing {speed.of} and {speed.to} (other work on this machine makes both slower, and all of it uncertain)")
    documents = {side: test.documents(in_direction(plan.store, run.config)) for side, run in test.runs.items()}
    models = {side: _Timed(run, evaluation) for side, run in test.runs.items()}
    seconds: dict[int, dict[str, list[dict[str, float]]]] = {
        window: {side: [] for side in models} for window in speed.windows
    }
    for side, model in models.items():
        model.translate(documents[side][:1], speed.windows[0])  # the first time is slower
    # All of a round before the next: what slows the machine down for a while slows both models and every window.
    with progress("timing (translations)", speed.rounds * len(speed.windows) * len(models)) as bar:
        for _ in range(speed.rounds):
            for window in speed.windows:
                for side, model in models.items():
                    seconds[window][side].append(model.translate(documents[side], window))
                    bar.advance()
    rows = [_row(window, found) for window, found in seconds.items()]
    write_text(test.path, json.dumps({"facts": test.facts, "rows": rows}, indent=2) + "\n")


class _Timed:
    """A model that is timed while it translates."""

    def __init__(self, run: PlannedRun, evaluation: EvaluationConfig) -> None:
        self.precision, self.search = run.config.products, evaluation.search
        self.context = replace(evaluation.context_of(run.config), instance_tokens=0)
        device = device_of(run.config)
        self.translator = Translator(
            run.config.run, search=self.search, context=self.context, device=device, precision=self.precision
        )
        model = self.model = self.translator.model
        # Whatever fits into a window is to be in it.
        model.config = replace(model.config, instance_tokens=MANY)
        self.forward, self.positions = 0.0, 0
        for name in ("memories", "decode", "project"):
            setattr(model, name, self._timed(getattr(model, name), counted=name == "decode"))

    def translate(self, documents: Sequence[list[list[int]]], window: int) -> dict[str, float]:
        """Seconds by kind, and positions computed by the decoder."""
        system: Any = self.model.system
        if hasattr(system, "sentences"):
            system = self.model.system = replace(system, sentences=window)
            changed: dict[str, Any] = {self.model.config.system: system}
            self.model.config = replace(self.model.config, **changed)
        self.forward, self.positions = 0.0, 0
        processor, whole = time.process_time(), self._now()
        with computing_in(self.model, self.precision):
            specials = self.translator.tokenizer.specials
            translate_documents(self.model, documents, specials, self.search, context=self.context)
        whole = self._now() - whole
        processor = time.process_time() - processor
        return {"whole": whole, "forward": self.forward, "processor": processor, "positions": self.positions}

    def _timed(self, work: Callable[..., Any], counted: bool) -> Callable[..., Any]:
        def timed(*given: Any) -> Any:
            started = self._now()
            found = work(*given)
            self.forward += self._now() - started
            if counted:
                self.positions += len(given[0])
            return found

        return timed

    def _now(self) -> float:
        if self.model.device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()


def _row(window: int, found: Mapping[str, Sequence[Mapping[str, float]]]) -> Row:
    """Speeds are positions of the decoder a second, so that it does not matter which model says more."""
    speeds = {
        side: {kind: [each["positions"] / each[kind] for each in rounds] for kind in KINDS}
        for side, rounds in found.items()
    }
    ratios = {kind: [of / to for of, to in zip(speeds["of"][kind], speeds["to"][kind], strict=True)] for kind in KINDS}
    return {"window": window, **found, "ratios": ratios}


def speed_lines(plan: Plan, evaluation: EvaluationConfig) -> list[str]:
    """The table in Markdown; nothing where nothing is measured."""
    test = SpeedTest.of(plan, evaluation)
    rows = None if test is None else test.stored()
    if test is None or rows is None:
        return []
    speed, facts = test.speed, test.facts
    columns = list(dict.fromkeys(name for row in speed.published.values() for name in row))
    heads = ["sentences of a window", f"{speed.to}, positions/s", f"{speed.of}, positions/s", *KINDS.values()]
    shown = [[escaped(head) for head in (*heads, *(f"published {column}" for column in columns))]]
    for row in rows:
        published = speed.published.get(str(row["window"]), {})
        shown.append(
            [
                str(row["window"]),
                *(f"{max(each['positions'] / each['whole'] for each in row[side]):,.0f}" for side in ("to", "of")),
                *(_ratio(row["ratios"][kind]) for kind in KINDS),
                *(f"{published[column]:.2f}" if column in published else "" for column in columns),
            ]
        )
    asked = "".join(f", {name} {value}" for name, value in evaluation.context.changes().items())
    documents = f"documents of {speed.sentences} sentences, {speed.documents} together (or as many as the split has)"
    return [
        f"## Speed: {escaped(speed.of)} against {escaped(speed.to)}",
        "",
        *table(shown),
        "",
        f"- how many times as many positions of the decoder it computes a second: the median of {speed.rounds} rounds "
        "and, in brackets, the least and the most; each round has both models and all windows in turn",
        f"- {documents}, beam {evaluation.search.beam}{asked}, {facts['threads']} threads, {facts['device']}; the "
        "sentences of a window are those of translation alone",
        "- whole time has the search in it, forward passes are encoder and decoder alone, and processor time leaves "
        "out what other programs took",
        "",
    ]


def _ratio(ratios: Sequence[float]) -> str:
    return f"{median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


def write_speed_figure(plan: Plan, evaluation: EvaluationConfig) -> Path:
    """Draws how many times as fast over the sentences of a window; returns the file.

    Raises DocmtError when nothing is measured or matplotlib is missing.
    """
    test = SpeedTest.of(plan, evaluation)
    rows = None if test is None else test.stored()
    if test is None or rows is None:
        raise DocmtError("there is nothing to draw: speed is not measured yet; let the runs finish")
    lines = {
        name: [Point(str(row["window"]), median(row["ratios"][kind])) for row in rows] for kind, name in KINDS.items()
    }
    for window, published in test.speed.published.items():
        for column, value in published.items():
            lines.setdefault(f"published, {column}", []).append(Point(window, value))
    figure = plan.place(evaluation.context, "-speed.png")
    draw_points({f"{test.speed.of} against {test.speed.to}": lines}, "times as fast", figure)
    return figure
