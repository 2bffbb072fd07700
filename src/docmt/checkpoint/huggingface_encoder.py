"""Encoders of pretrained language models (BERT and its kind) as what a training can start from."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from docmt.checkpoint.fairseq_files import renamed
from docmt.checkpoint.huggingface_config import about_family, read_sizes
from docmt.checkpoint.huggingface_files import CONFIG_FILE, Weights, open_weights
from docmt.checkpoint.loading import check_renamed
from docmt.checkpoint.model_card import ModelCard
from docmt.checkpoint.model_directory import model_on_meta, save_encoder
from docmt.core.errors import DocmtError
from docmt.model import ModelConfig
from docmt.model.families.family import HuggingFace
from docmt.text import PretrainedTokenizer, SpecialTokens

_TABLE, _POSITIONS, _TYPES = "source_tokens.weight", "source_positions.table.weight", "types.weight"
_MASKS = ("[MASK]", "<mask>")


@dataclass(frozen=True)
class PretrainedEncoder:
    """An encoder in a directory of transformers."""

    about: HuggingFace
    config: ModelConfig
    """with the sizes of the encoder alone"""
    weights: Weights
    names: Mapping[str, str]
    """of its weights: by ours theirs"""

    @classmethod
    def of(cls, directory: Path, family: str, values: Mapping[str, Any]) -> PretrainedEncoder:
        """What the directory has; values: its config.json. Raises DocmtError for files that lack something."""
        about = about_family(family)
        sizes, weights = read_sizes(directory, values, about), open_weights(directory)
        names = {renamed(name, about.names): name for name in weights.shapes if not re.search(about.no_weights, name)}
        if missing := [name for name in (_TABLE, _POSITIONS, _TYPES) if name not in names]:
            raise DocmtError(f"{directory} has no weights for {missing[0].partition('.')[0]}: copy it again, complete")
        has, says = weights.shapes[names[_TABLE]][0], sizes["source_vocabulary_size"]
        if has != says:
            raise DocmtError(
                f"{directory} has {has} rows in {names[_TABLE]}, but {CONFIG_FILE} says vocab_size = {says}: copy it "
                "again, complete"
            )
        own = {**sizes, "max_positions": sizes["max_positions"] - about.first_position}
        config = ModelConfig.from_dict({"system": "sentence", "family": family, **own})
        return cls(about, config, weights, names)

    @property
    def rows(self) -> tuple[int, int]:
        """How many entries its vocabulary has, as for a source and a target."""
        return (self.config.source_vocabulary_size,) * 2

    def save(self, output: Path, tokenizer: PretrainedTokenizer, whole: PretrainedTokenizer, card: ModelCard) -> None:
        """Writes it as a directory to start a training from.

        tokenizer: with the ids that it will have; whole: the same with all of the vocabulary, also of marks. Raises
        DocmtError for weights that do not fit.
        """
        config = replace(self.config, source_vocabulary_size=tokenizer.source_vocabulary_size)
        weights = self._renamed(tokenizer, whole)
        directory, asks, advice = self.weights.directory, "its config.json asks for", "copy it again, complete"
        some = replace(config, vocabulary_size=SpecialTokens.count)  # a decoder, which a model cannot be without
        model = model_on_meta(some, weights, f"{directory} has", asks, advice, stacks=("encoder",))
        of_encoder = {
            name: tensor for name, tensor in model.state_dict().items() if name.startswith(("encoder.", "source_"))
        }
        check_renamed(of_encoder, weights, directory)
        save_encoder(output, config, weights, tokenizer, card)

    def _renamed(self, tokenizer: PretrainedTokenizer, whole: PretrainedTokenizer) -> dict[str, Tensor]:
        """The weights by docmt's names."""
        rows = tokenizer.rows("source")
        for mask in (whole.id_of(text, "source") for text in _MASKS):
            if mask is not None:  # words that word dropout hides look as those that it learned to find
                rows[-1] = whole.rows("source")[mask]
        found = {ours: self.weights.tensor(theirs) for ours, theirs in self.names.items() if ours != _TABLE}
        found[_TABLE] = self.weights.rows(self.names[_TABLE], rows)
        # All tokens are of the first type, so that its vector may as well be in those of positions.
        found[_POSITIONS] = found[_POSITIONS][self.about.first_position :] + found.pop(_TYPES)[0]
        return found
