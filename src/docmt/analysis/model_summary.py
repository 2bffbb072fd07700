"""Summary of a model directory or run directory: configuration, parameters, model card and training."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

from docmt.analysis.figures import METRICS_FILE, Curve, read_curves, summarize_run
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
from docmt.core.files import parse_json_or_none, read_bytes, read_json
from docmt.core.settings import to_mapping
from docmt.model import ModelConfig
from docmt.model.linear_attention import DIRECTIONS_SUFFIX


@dataclass
class ModelSummary:
    """Summary of a model, as far as its directory describes it."""

    directory: Path
    config: ModelConfig
    languages: tuple[str, str]
    """language codes, empty if unknown"""
    tokenizer: str
    """kind of the tokenizer"""
    docmt_version: str
    """version of docmt that wrote the model"""
    parameters: Counter[str]
    """parameter counts by the first part of their names"""
    weights: dict[str, list[int]]
    """shapes by parameter name"""
    card: dict[str, dict[str, str]] = field(default_factory=dict)
    """entries of the model card by heading, Data and Training"""
    scores: list[dict[str, str]] = field(default_factory=list)
    """metric, score and signature"""
    recipe: dict[str, Any] = field(default_factory=dict)
    curves: dict[str, Curve] = field(default_factory=dict)
    """training curves, for a run directory"""
    drafter: Path | None = None
    """model whose drafts it reads"""

    @classmethod
    def from_directory(cls, path: Path | str) -> ModelSummary:
        """Summarize a model directory or run directory. Raises DocmtError if it is invalid."""
        directory, config = find_model(path), load_model_config(path)
        shapes = read_shapes(directory / WEIGHTS_FILE).items()
        weights = {name: shape for name, shape in shapes if not name.endswith(DIRECTIONS_SUFFIX)}  # random, not trained
        parameters = Counter[str]()
        for name, shape in weights.items():
            parameters[name.partition(".")[0]] += prod(shape)
        languages, tokenizer = load_languages(path), load_model_tokenizer(path).kind
        version = str(read_json(directory / CONFIG_FILE).get("docmt_version", ""))
        summary = cls(directory, config, languages, tokenizer, version, parameters, weights)
        summary._read_card()
        metrics = Path(path, METRICS_FILE)
        if metrics.exists():
            summary.curves = read_curves(metrics)
        if config.system_options.context_spec().drafts:
            summary.drafter = find_drafter(path)
        return summary

    def _read_card(self) -> None:
        """Read the model card. A hand-written one may lack entries."""
        with suppress(DocmtError, UnicodeDecodeError):
            text = read_bytes(self.directory / CARD_FILE, regular=True).decode("utf-8")
            sections = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", text, re.M | re.S))
            for heading in ("Data", "Training"):
                items = re.findall(r"^- ([^:\n]+): (.*(?:\n  .*)*)$", sections.get(heading, ""), re.M)
                if items:
                    self.card[heading] = {name: " ".join(value.split()) for name, value in items}
            rows = re.findall(r"^\| (?!metric )(.+?) \| ([\d.]+) \| `(.*)` \|$", sections.get("Scores", ""), re.M)
            self.scores = [
                {"metric": metric, "score": score, "signature": signature.replace("\\|", "|")}
                for metric, score, signature in rows
            ]
            recipe = re.search(r"```json\n(.*?)\n```", sections.get("Recipe", ""), re.S)
            values = parse_json_or_none(recipe[1]) if recipe else None
            self.recipe = values if isinstance(values, dict) else {}

    def to_json(self) -> dict[str, Any]:
        """Return the summary as JSON values."""
        return {
            "model": str(self.directory),
            "system": self.config.system,
            "source_language": self.languages[0],
            "target_language": self.languages[1],
            "tokenizer": self.tokenizer,
            "docmt_version": self.docmt_version,
            "parameters": {"all": self.parameters.total(), **self.parameters},
            "weights": self.weights,
            "config": to_mapping(self.config),
            **{heading.lower(): entries for heading, entries in self.card.items()},
            "scores": self.scores,
            "run": summarize_run(self.curves),
            "drafter": str(self.drafter or ""),
            "recipe": self.recipe,
        }

    def format(self) -> str:
        """Return the summary as text."""
        config = self.config
        pair = " to ".join(self.languages) if all(self.languages) else "languages not recorded"
        parts = ", ".join(f"{name} {_millions(count)}" for name, count in self.parameters.items())
        width = f"{config.width}, feed-forward {config.feed_forward}, {config.heads} heads"
        if config.encoder_width:
            width += f"; encoder {config.encoder_width}, {config.encoder_feed_forward}, {config.encoder_heads} heads"
        family = "" if config.family == "docmt" else f" of family {config.family}"
        extent = "sentence" if config.restarts_positions else "document"
        facts = {
            "layers": f"{config.encoder_layers} + {config.decoder_layers}",
            "width": width,
            "norms": f"{config.normalization}-norm, {config.activation}",
            "positions": f"{config.position_encoding}, by {extent}",
            "vocabulary": f"{config.vocabulary_size:,}, tokenizer {self.tokenizer}",
            "instances": f"fewer than {config.instance_tokens:,} tokens, {_describe_context(config)}",
            "parameters": f"{_millions(self.parameters.total())} ({parts})",
        }
        title = f"{self.directory}: {config.system} model{family}, {pair}, written by docmt {self.docmt_version}"
        lines = [title, "", *_aligned_entries(facts)]
        run, starts = summarize_run(self.curves).items(), ("initialize_from", "initialize_reverse_from")
        blocks: dict[str, Mapping[str, object]] = {
            f"Options of {config.system}": vars(config.system_options),
            "Options of linear attention": vars(config.linear) if config.system_options.has_linear_attention else {},
            **self.card,
            "Drafts": {"by": self.drafter} if self.drafter else {},
            "Started from": {name: value for name in starts if (value := self.recipe.get(name))},
            "Run": {name.replace("_", " "): f"{value:,.5g}" for name, value in run},
            "Scores": {row["metric"]: f"{row['score']} ({row['signature']})" for row in self.scores},
        }
        for heading, entries in blocks.items():
            if entries:
                lines += ["", heading, *_aligned_entries(entries)]
        return "\n".join(lines)


def _describe_context(config: ModelConfig) -> str:
    spec = config.system_options.context_spec()
    parts = ["as many sentences as fit"]
    if spec.sentences is not None:
        parts = [f"{spec.sentences} sentence{'' if spec.sentences == 1 else 's'}"]
    if spec.source_context:
        parts.append(f"{spec.source_context} before")
    if spec.target_context:
        parts.append(f"{spec.target_context} translations before")
    return ", ".join(parts)


def _millions(count: int) -> str:
    return f"{count / 1e6:.2f} million" if count >= 1e4 else f"{count:,}"


def _aligned_entries(entries: Mapping[str, object]) -> list[str]:
    width = max(map(len, entries))
    return [f"  {name:<{width}}  {value}" for name, value in entries.items()]
