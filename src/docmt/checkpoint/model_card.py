"""What people should know about a model before they use it: the README.md of its directory."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from docmt.core.plain_text import code_cell, escaped, table
from docmt.model import ModelConfig


@dataclass(frozen=True)
class ModelCard:
    """What people should know about a model before they use it; becomes the README.md of its directory."""

    title: str = "A docmt translation model"
    source_language: str = ""
    """language code, empty if not known"""
    target_language: str = ""
    """language code, empty if not known"""
    data: Mapping[str, Any] = field(default_factory=dict)
    """what it was trained on: names, sizes"""
    recipe: Mapping[str, Any] = field(default_factory=dict)
    """the full training configuration"""
    training: Mapping[str, Any] = field(default_factory=dict)
    """facts of the run: updates, epochs, time, losses"""
    scores: Sequence[Mapping[str, Any]] = ()
    """one mapping for each score: name, score, and the signature that makes it comparable"""

    def markdown(self, config: ModelConfig, parameters: int) -> str:
        """The card as a page, with the front matter that model hubs read."""
        languages = [code for code in (self.source_language, self.target_language) if code]
        front = ["---", "library_name: docmt", "pipeline_tag: translation"]
        if languages:
            front += ["language:", *(f"- {code}" for code in dict.fromkeys(languages))]
        pair = " to ".join(languages) if len(languages) == 2 else "languages not recorded"
        size = f"{parameters / 1e6:.1f} million parameters"
        what, use = f"System `{config.system}`", "Use it with `docmt translate DIRECTORY FILE`."
        if config.is_encoder:
            what, use = "An encoder", "Start a training from it with `docmt train --initialize_from DIRECTORY`."
        lines = [*front, "---", "", f"# {self.title}", "", f"{what}, {size}, {pair}.", "", use, ""]
        for heading, facts in (("Data", self.data), ("Training", self.training)):
            if facts:
                lines += [f"## {heading}", "", *(f"- {_readable(key)}: {value}" for key, value in facts.items()), ""]
        if self.scores:
            rows = [
                [escaped(str(score["name"])), f"{score['score']:.2f}", code_cell(str(score.get("signature", "")))]
                for score in self.scores
            ]
            lines += ["## Scores", "", *table([["metric", "score", "signature"], *rows], left=3), ""]
        if self.recipe:
            recipe = json.dumps(self.recipe, indent=2, ensure_ascii=False)
            lines += ["## Recipe", "", "```json", recipe, "```", ""]
        return "\n".join(lines)


def _readable(key: str) -> str:
    return key.replace("_", " ")
