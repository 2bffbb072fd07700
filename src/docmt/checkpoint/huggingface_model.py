"""A translation model in a directory of transformers, its weights by docmt's names."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from docmt.checkpoint.fairseq_files import renamed
from docmt.checkpoint.huggingface_config import about_family, read_sizes
from docmt.checkpoint.huggingface_files import CONFIG_FILE, Weights, open_weights
from docmt.checkpoint.loading import load_renamed
from docmt.core.errors import DocmtError
from docmt.model import ModelConfig, TranslationModel
from docmt.model.embeddings import sinusoids
from docmt.model.families import FAMILIES
from docmt.model.families.family import HuggingFace
from docmt.text.tokenizer import SIDES, Side

HEAD, SOFTMAX, BIAS = "lm_head", "softmax", "head_bias.vector"
_BEFORE = 2  # positions that M2M100's tables have before the first, one of them zero


@dataclass(frozen=True)
class Pretrained:
    """A model in a directory of transformers."""

    directory: Path
    family: str
    sizes: Mapping[str, Any]
    """by the names that docmt's settings have for them"""
    weights: Weights
    tables: Mapping[str, str]
    """by the name of each of our tables of tokens, and of our matrix of the softmax if it has one: theirs"""

    @classmethod
    def of(cls, directory: Path, family: str, values: Mapping[str, Any]) -> Pretrained:
        """What the directory has; values: its config.json. Raises DocmtError for what docmt's model cannot be."""
        about = about_family(family)
        sizes, weights = read_sizes(directory, values, about), open_weights(directory)
        tables = find_tables(weights, about, tied=values.get("tie_word_embeddings") is not False)
        for name, side in (("source_vocabulary_size", "source"), ("vocabulary_size", "target")):
            table = _table(tables, side)
            wanted, has = sizes.pop(name, None), weights.shapes[table][0]
            if wanted not in (None, has):
                raise DocmtError(
                    f"{directory} has {has} rows in {table}, but {CONFIG_FILE} says "
                    f"{about.entries[name][0]} = {wanted}: copy it again, complete"
                )
        scaled = values["model_type"] in about.scaled_types and values.get("tie_word_embeddings") is not False
        if values.get("scale_decoder_outputs", scaled) and scaled:
            sizes["output"] = "scaled"
        if SOFTMAX in tables:
            sizes["output"] = "own"
        return cls(directory, family, sizes, weights, tables)

    @property
    def rows(self) -> tuple[int, int]:
        """How many entries the vocabularies of source and target have."""
        source, target = (self.weights.shapes[_table(self.tables, side)][0] for side in SIDES)
        return source, target

    def model(self, rows: Mapping[Side, Sequence[int]], options: Mapping[str, Any]) -> TranslationModel:
        """The model, its tokens in docmt's order: rows has for each id of a side the row that theirs has, or -1.

        options: further settings of the model. Raises DocmtError for weights that do not fit.
        """
        apart = "source_tokens" in self.tables
        config = ModelConfig.from_dict(
            {
                "system": "sentence",
                "family": self.family,
                "vocabulary_size": len(rows["target"]),
                "source_vocabulary_size": len(rows["source"]) if apart else 0,
                **self.sizes,
                **options,
            }
        )
        return load_renamed(config, self._renamed(config, rows), self.directory)

    def _renamed(self, config: ModelConfig, rows: Mapping[Side, Sequence[int]]) -> dict[str, Tensor]:
        """The weights by docmt's names."""
        about, found = about_family(self.family), dict[str, Tensor]()
        family = FAMILIES[config.family]
        first, last = family.unpredicted
        predicted = rows["target"][first : len(rows["target"]) - last]
        for ours, theirs in self.tables.items():
            side: Side = "source" if ours == "source_tokens" else "target"
            found[f"{ours}.weight"] = self.weights.rows(theirs, predicted if ours == SOFTMAX else rows[side])
        tables = {f"{name}.weight" for names in about.tables.values() for name in names}
        for name in self.weights.shapes:
            if name in tables:
                continue
            if re.search(about.no_weights, name):
                self._check_positions(name)
                continue
            ours, tensor = renamed(name, about.names), self.weights.tensor(name)
            if ours.endswith("_positions.table.weight"):
                tensor = tensor[about.first_position :]
            found[ours] = tensor
        bias = found.pop(BIAS, torch.zeros(1, max(predicted) + 1)).flatten()
        if family.head_bias:
            found[BIAS] = torch.tensor([float(bias[row]) if row >= 0 else 0.0 for row in predicted])
        elif bias.any():
            raise DocmtError(f"{self.directory} has a bias of logits, which family {config.family} has not")
        return found

    def _check_positions(self, name: str) -> None:
        """Raises DocmtError for a table of positions that holds others than those which docmt computes."""
        found, family = self.weights.tensor(name)[_BEFORE:], FAMILIES[self.family]
        computed = sinusoids(*found.shape, _BEFORE, frequencies=family.frequencies)
        if not torch.allclose(found, computed, atol=0.01):  # they may have been rounded
            raise DocmtError(
                f"{self.directory} has positions of its own in {name}, where models of family {self.family} compute "
                "them: if docmt exported it, use the model that it was made from"
            )


def _table(tables: Mapping[str, str], side: str) -> str:
    """The name of their table of tokens of a side."""
    return tables.get("tokens") or tables[f"{side}_tokens"]


def find_tables(weights: Weights, about: HuggingFace, *, tied: bool) -> dict[str, str]:
    """By the name of each of our tables (and of the softmax, if it is no table): the name of theirs.

    tied: config.json does not say that the softmax has a matrix of its own. Raises DocmtError where what should be
    copies of one table are not equal.
    """
    found: dict[str, str] = {}
    there = {ours: [f"{name}.weight" for name in names] for ours, names in about.tables.items()}
    there = {ours: [name for name in names if name in weights.shapes] for ours, names in there.items()}
    own = [name for name in there["tokens"] if not name.startswith(HEAD)]
    if not own:
        name = about.tables["tokens"][0]
        raise DocmtError(f"{weights.directory} has no weights for {name}: save a whole {about.architecture}")
    apart = len(about.tables) > 1 and not all(weights.same(own[0], name) for name in own[1:])
    for ours, names in there.items():
        if (ours == "tokens") == apart:
            continue
        first, *others = names
        found[ours] = first
        for name in others:
            if weights.same(first, name):
                continue
            if not name.startswith(HEAD) or (tied and not about.scaled_types):
                raise DocmtError(
                    f"{weights.directory} has {name} other than {first}, of which it should be a copy: save the model "
                    "again, or untie them (tie_word_embeddings false)"
                )
            found[SOFTMAX] = name
    return found
