"""The config and the weights that a docmt model has in transformers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from docmt.checkpoint.fairseq_files import renamed
from docmt.checkpoint.huggingface_config import about_family
from docmt.checkpoint.huggingface_model import BIAS, HEAD, SOFTMAX
from docmt.core.errors import DocmtError
from docmt.core.settings import shown
from docmt.model import ModelConfig
from docmt.model.embeddings import sinusoids
from docmt.model.families import FAMILIES
from docmt.model.families.family import HuggingFace
from docmt.model.layers import GATED
from docmt.text.tokenizer import Side, SpecialTokens

OWN_FORMS = {("post", False): "marian", ("post", True): "bart", ("pre", False): "m2m_100", ("pre", True): "mbart"}
"""The family whose class computes what docmt's own models do, by normalization and embedding_normalization. All but
M2M100's, which computes positions as docmt does, read tables of positions, Marian's too."""
_VOCABULARIES: dict[str, Side] = {"vocabulary_size": "target", "source_vocabulary_size": "source"}


@dataclass(frozen=True)
class Form:
    """What a docmt model is in transformers."""

    config: ModelConfig
    about: HuggingFace
    own: bool
    """whether it is a model of docmt's own, in the form of a family that computes the same"""

    @classmethod
    def of(cls, config: ModelConfig) -> Form:
        """Raises DocmtError, naming the setting, for a model that no type of transformers is."""
        own = config.family == "docmt"
        family = OWN_FORMS[config.normalization, config.embedding_normalization] if own else config.family
        if FAMILIES[family].huggingface is None or FAMILIES[family].encoder is not None:
            raise no_form(config, "family")
        form = cls(config, about_family(family), own)
        form._check()
        return form

    def _check(self) -> None:
        config, about = self.config, self.about
        for name, wanted in about.sizes.items():
            if getattr(config, name) != wanted and not (self.own and name == "position_encoding"):
                raise no_form(config, name)
        kinds = ("sinusoidal",) if about.any_length else ("sinusoidal", "learned")
        if self.own and config.position_encoding not in kinds:
            raise no_form(config, "position_encoding")
        if "head_width" not in about.entries and config.attention_width != config.width:
            raise no_form(config, "head_width")
        if config.output == "scaled" and not about.scaled_types:
            raise no_form(config, "output")
        for name, (entry, *_) in about.entries.items():
            known = about.values.get(entry)
            if known is not None and getattr(config, name) not in known.values():
                raise no_form(config, name)

    @property
    def begins_with_pad(self) -> bool:
        """Whether it is a model of our own whose translations begin with `<pad>` there; their first position, which no
        other token has, then holds the embedding of `<s>`."""
        return self.own and self.about.begins_with_pad

    @property
    def _unties(self) -> bool:
        """Whether the softmax gets a matrix, maybe a copy of the table."""
        output, scales = self.config.output, bool(self.about.scaled_types)
        return output == "own" or (scales and output != "scaled")

    def entries(self, rows: Mapping[Side, Sequence[int]]) -> dict[str, Any]:
        """config.json, but for special tokens."""
        config, about = self.config, self.about
        counts = {name: max(rows[side]) + 1 for name, side in _VOCABULARIES.items()}
        counts["head_width"] = config.attention_width // config.heads
        values: dict[str, Any] = {"model_type": about.types[0], "architectures": [about.architecture]}
        values |= {"is_encoder_decoder": True, "dtype": "float32", "tie_word_embeddings": not self._unties}
        values |= about.facts
        for name, entries in about.entries.items():
            value = counts[name] if name in counts else getattr(config, name)
            for theirs, ours in about.values.get(entries[0], {}).items():
                if ours == value:
                    value = theirs
                    break
            values |= dict.fromkeys(entries, value)
        if "source_tokens" in about.tables:
            values["share_encoder_decoder_embeddings"] = not config.source_vocabulary_size
        if about.scaled_types:
            values["scale_decoder_outputs"] = not self._unties
        if about.tokenizers:
            values["tokenizer_class"] = about.tokenizers[0]
        return values

    def weights(self, state: Mapping[str, Tensor], rows: Mapping[Side, Sequence[int]]) -> dict[str, Tensor]:
        """All weights by their names in transformers; state: by ours."""
        config, about, found = self.config, self.about, dict[str, Tensor]()
        left = dict(state)
        for ours, theirs in about.tables.items():
            if (table := left.pop(f"{ours}.weight", None)) is None:
                continue
            placed = _placed(table, rows["source" if ours == "source_tokens" else "target"])
            # Without a tie each copy of a table is read by its own name.
            found[f"{theirs[0]}.weight"] = placed
            found |= {f"{name}.weight": placed.clone() for name in theirs[1:] if self._unties}
        first, last = FAMILIES[config.family].unpredicted
        predicted = rows["target"][first : len(rows["target"]) - last]
        if (softmax := left.pop(f"{SOFTMAX}.weight", None)) is not None:
            found[f"{HEAD}.weight"] = _placed(softmax, predicted)
        if (bias := left.pop(BIAS, None)) is not None:
            left[BIAS] = _placed(bias[:, None], predicted).T
        if self.own and not about.any_length:
            left |= self._positions(state)
        names = about.written + (about.gated if config.activation.startswith(GATED) else ())
        for ours, tensor in left.items():
            if ours.endswith("_positions.table.weight"):
                tensor = torch.cat((torch.zeros(about.first_position, tensor.shape[1]), tensor))
            name = renamed(ours, names)
            if renamed(name, about.names) != ours:
                raise no_form(config, "system")
            found[name] = tensor
        return found

    def _positions(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Tables of positions of a model of our own, computed where none were learned; state: all its weights."""
        config, family = self.config, FAMILIES[self.config.family]
        computed = sinusoids(config.max_positions, config.width, family.first_position, frequencies=family.frequencies)
        names = [f"{side}_positions.table.weight" for side in ("source", "target")]
        found = {name: state.get(name, computed).clone() for name in names}
        if self.begins_with_pad:
            table, scale = state["tokens.weight"], config.width**0.5 if config.scale_embeddings else 1.0
            found[names[1]][0] += scale * (table[SpecialTokens.bos] - table[SpecialTokens.pad])
        return found


def _placed(table: Tensor, rows: Sequence[int]) -> Tensor:
    """The rows [ids, d] where they belong: row i of the table at rows[i], or nowhere."""
    places = torch.tensor(rows)
    made = torch.zeros(max(rows) + 1, *table.shape[1:])
    made[places[places >= 0]] = table[places >= 0]
    return made


def no_form(config: ModelConfig, name: str, toolkit: str = "transformers") -> DocmtError:
    """The error for a setting that a toolkit has no model for."""
    return DocmtError(
        f"the model has model.{name} {shown(getattr(config, name))}: with its other settings, that is no model of "
        f"{toolkit} that docmt can write"
    )
