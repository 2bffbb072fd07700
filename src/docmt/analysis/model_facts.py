"""What a model directory says of its model: sizes, system, languages, how it was trained, and how good it is."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

from docmt.analysis.figures import Curve, read_curves
from docmt.checkpoint.model_directory import (
    CARD_FILE,
    find_drafter,
    find_model,
    load_languages,
    load_model_config,
    load_model_tokenizer,
)
from docmt.checkpoint.weights import CONFIG_FILE, WEIGHTS_FILE, read_shapes
from docmt.core.errors import DocmtError
from docmt.core.files import read_bytes, read_json
from docmt.core.settings import plain
from docmt.model import ModelConfig
from docmt.model.linear_attention import DIRECTIONS

METRICS = "metrics.jsonl"
"""Where a run directory keeps its curves."""


@dataclass
class ModelFacts:
    """Facts of a model, as far as its directory says them."""

    place: Path
    config: ModelConfig
    languages: tuple[str, str]
    """codes, empty where they are not known"""
    tokenizer: str
    """its kind"""
    written_by: str
    """version of docmt"""
    parameters: dict[str, int]
    """by the first word of their names"""
    weights: dict[str, list[int]]
    """shapes by the names that patterns of `docmt train` fit"""
    card: dict[str, dict[str, str]] = field(default_factory=dict)
    """facts of the model card by its headings, Data and Training"""
    scores: list[dict[str, str]] = field(default_factory=list)
    """metric, score and signature"""
    recipe: dict[str, Any] = field(default_factory=dict)
    curves: dict[str, Curve] = field(default_factory=dict)
    """of its run, where that is what was given"""
    drafter: Path | None = None
    """the model whose drafts it reads"""

    @classmethod
    def of(cls, directory: Path | str) -> ModelFacts:
        """What a model directory or a run directory says. Raises DocmtError where it is none, or is damaged."""
        found, config = find_model(directory), load_model_config(directory)
        shapes = read_shapes(found / WEIGHTS_FILE).items()
        weights = {name: shape for name, shape in shapes if not name.endswith(DIRECTIONS)}  # which are drawn
        parameters: dict[str, int] = {}
        for name, shape in weights.items():
            part = name.partition(".")[0]
            parameters[part] = parameters.get(part, 0) + prod(shape)
        facts = cls(
            found,
            config,
            load_languages(directory),
            load_model_tokenizer(directory).kind,
            str(read_json(found / CONFIG_FILE).get("docmt_version", "")),
            parameters,
            weights,
        )
        facts._read_card()
        metrics = Path(directory, METRICS)
        if metrics.exists():
            facts.curves = read_curves(metrics)
        if config.chosen.needs().drafts:
            facts.drafter = find_drafter(directory)
        return facts

    def _read_card(self) -> None:
        """What the page beside the weights says; people may have written another one, which says less."""
        with suppress(DocmtError, UnicodeDecodeError):
            text = read_bytes(self.place / CARD_FILE, regular=True).decode("utf-8")
            sections = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", text, re.M | re.S))
            for heading in ("Data", "Training"):
                if facts := dict(re.findall(r"^- ([^:\n]+): (.*)$", sections.get(heading, ""), re.M)):
                    self.card[heading] = facts
            rows = re.findall(r"^\| (?!metric )(.+?) \| ([\d.]+) \| `(.*)` \|$", sections.get("Scores", ""), re.M)
            self.scores = [
                {"metric": metric, "score": score, "signature": signature.replace("\\|", "|")}
                for metric, score, signature in rows
            ]
            recipe = re.search(r"```json\n(.*?)\n```", sections.get("Recipe", ""), re.S)
            with suppress(ValueError, RecursionError):
                values = json.loads(recipe[1]) if recipe else {}
                self.recipe = values if isinstance(values, dict) else {}

    def progress(self) -> dict[str, float]:
        """How far its run has come: updates, the best dev loss and when that was."""
        return best_of(self.curves)

    def to_json(self) -> dict[str, Any]:
        """All of it."""
        return {
            "model": str(self.place),
            "system": self.config.system,
            "source_language": self.languages[0],
            "target_language": self.languages[1],
            "tokenizer": self.tokenizer,
            "docmt_version": self.written_by,
            "parameters": {"all": sum(self.parameters.values()), **self.parameters},
            "weights": self.weights,
            "config": plain(self.config),
            **{heading.lower(): facts for heading, facts in self.card.items()},
            "scores": self.scores,
            "run": self.progress(),
            "drafter": str(self.drafter or ""),
            "recipe": self.recipe,
        }

    def format(self) -> str:
        """For people."""
        config = self.config
        pair = " to ".join(self.languages) if all(self.languages) else "languages not recorded"
        parts = ", ".join(f"{name} {_millions(count)}" for name, count in self.parameters.items())
        encoder = ""
        if config.encoder_width:
            encoder = f"; encoder {config.encoder_width}, {config.encoder_feed_forward}, {config.encoder_heads} heads"
        family = "" if config.family == "docmt" else f" of family {config.family}"
        lines = [
            f"{self.place}: {config.system} model{family}, {pair}, written by docmt {self.written_by}",
            "",
            *_listed(
                {
                    "layers": f"{config.encoder_layers} + {config.decoder_layers}",
                    "width": f"{config.width}, feed-forward {config.feed_forward}, {config.heads} heads{encoder}",
                    "norms": f"{config.normalization}-norm, {config.activation}",
                    "positions": f"{config.position_encoding}, by {'sentence' if config.restarts else 'document'}",
                    "vocabulary": f"{config.vocabulary_size:,}, tokenizer {self.tokenizer}",
                    "reads at once": f"fewer than {config.instance_tokens:,} tokens, {_reads(config)}",
                    "parameters": f"{_millions(sum(self.parameters.values()))} ({parts})",
                }
            ),
        ]
        chosen: dict[str, object] = {f"Options of {config.system}": config.chosen}
        if config.chosen.linear:
            chosen["Options of linear attention"] = config.linear
        blocks: dict[str, Mapping[str, str]] = {
            **{heading: {name: str(value) for name, value in vars(own).items()} for heading, own in chosen.items()},
            **self.card,
        }
        if self.drafter is not None:
            blocks["Drafts"] = {"by": str(self.drafter)}
        if started := {name: str(self.recipe[name]) for name in _STARTS if self.recipe.get(name)}:
            blocks["Started from"] = started
        if run := self.progress():
            blocks["Run"] = {name.replace("_", " "): f"{value:,.5g}" for name, value in run.items()}
        if self.scores:
            blocks["Scores"] = {row["metric"]: f"{row['score']} ({row['signature']})" for row in self.scores}
        for heading, facts in blocks.items():
            if facts:
                lines += ["", heading, *_listed(facts)]
        return "\n".join(lines)


_STARTS = ("initialize_from", "initialize_reverse_from")


def best_of(curves: Mapping[str, Curve]) -> dict[str, float]:
    """The last update of a training, the best dev loss and when that was; what it does not have is left out."""
    found: dict[str, float] = {}
    if curves:
        found["updates"] = max(curve.updates[-1] for curve in curves.values())
    for name in ("loss", "seconds"):
        if name in curves:
            found[f"last_{name}" if name == "loss" else name] = curves[name].values[-1]
    if "valid_loss" in curves:
        own = curves["valid_loss"]
        place = min(range(len(own.values)), key=own.values.__getitem__)
        found |= {"best_dev_loss": own.values[place], "at_update": own.updates[place]}
    return found


def _reads(config: ModelConfig) -> str:
    needs = config.chosen.needs()
    sentences = "as many sentences as fit"
    if needs.sentences is not None:
        sentences = f"{needs.sentences} sentence{'' if needs.sentences == 1 else 's'}"
    more = [
        f"{count} {name}" for count, name in ((needs.before, "before"), (needs.shown, "translations before")) if count
    ]
    return ", ".join([sentences, *more])


def _millions(count: int) -> str:
    return f"{count / 1e6:.2f} million" if count >= 1e4 else f"{count:,}"


def _listed(facts: Mapping[str, str]) -> list[str]:
    width = max(map(len, facts), default=0)
    return [f"  {name:<{width}}  {value}" for name, value in facts.items()]
