"""A directory of the library transformers: its config and its weights, read without that library.

Weights come from safetensors files alone, in one piece or in shards with an index; pickled ones are refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from docmt.checkpoint.hf_tokenizer import TOKENIZER_CONFIG, read_if_there
from docmt.checkpoint.model_directory import ModelCard, save_encoder
from docmt.checkpoint.weights import WEIGHTS_FILE, load_renamed, open_tensors, read_shapes, renamed
from docmt.core.errors import DocmtError
from docmt.core.files import read_json
from docmt.core.settings import shown
from docmt.model import ModelConfig, TranslationModel
from docmt.model.embeddings import sinusoids
from docmt.model.families import FAMILIES
from docmt.model.families.family import HuggingFace
from docmt.model.scope import MARKS
from docmt.text import PretrainedTokenizer
from docmt.text.tokenizer import SIDES, Side

_FIRST_POSITION = 2  # row of the first position in tables of M2M100; earlier rows are never read

CONFIG_FILE = "config.json"
INDEX_FILE = f"{WEIGHTS_FILE}.index.json"
_PICKLED = ("pytorch_model.bin", "pytorch_model.bin.index.json", "tf_model.h5", "flax_model.msgpack")
_NO_WEIGHTS, _BUFFER = ("I64",), "position_ids"  # some have numbers of positions beside their weights


@dataclass(frozen=True)
class Weights:
    """Weights by name, which are read from their files when they are asked for."""

    directory: Path
    shapes: Mapping[str, Sequence[int]]
    files: Mapping[str, Path]

    def tensor(self, name: str) -> Tensor:
        """The weights of this name, float32."""
        with open_tensors(self.files[name]) as file:
            found: Tensor = file.get_tensor(name)
        return found.float()

    def rows(self, name: str, wanted: Sequence[int]) -> Tensor:
        """These rows of a table [rows, d], float32; a row of -1 is zero."""
        return _rows(self.tensor(name), wanted)

    def same(self, one: str, other: str) -> bool:
        """Whether two tables are equal."""
        return self.shapes[one] == self.shapes[other] and torch.equal(self.tensor(one), self.tensor(other))


def _rows(table: Tensor, wanted: Sequence[int]) -> Tensor:
    """Return these rows of a table or vector; a row of -1 is zero."""
    numbers = torch.tensor(wanted)
    found = table[numbers.clamp(min=0)]
    found[numbers < 0] = 0.0
    return found


def read_config(directory: Path) -> dict[str, Any]:
    """What config.json says. Raises DocmtError where there is none."""
    if not directory.is_dir():
        raise DocmtError(
            f"there is no directory {directory}: give one with {CONFIG_FILE}, weights and tokenizer files (nothing is "
            "downloaded)"
        )
    if (directory / "snapshots").is_dir():
        raise DocmtError(f"{directory} is the folder of a cache: give the directory in its folder snapshots")
    if not (directory / CONFIG_FILE).is_file():
        raise DocmtError(
            f"{directory} has no {CONFIG_FILE}: give a directory of a pretrained model, as `save_pretrained` writes it"
        )
    return read_json(directory / CONFIG_FILE)


def open_weights(directory: Path) -> Weights:
    """The weights in a directory. Raises DocmtError where there are none in safetensors, or some are missing."""
    table: Any = {}
    if (directory / WEIGHTS_FILE).is_file():
        files = {WEIGHTS_FILE}
    elif (directory / INDEX_FILE).is_file():
        table = read_json(directory / INDEX_FILE).get("weight_map")
        if not isinstance(table, dict) or not all(isinstance(name, str) for name in table.values()):
            raise DocmtError(f"{directory / INDEX_FILE} has no weight_map: copy it again from where it came")
        files = {Path(name).name for name in table.values()}
    else:
        for name in _PICKLED:
            if (directory / name).is_file():
                raise DocmtError(
                    f"{directory} has its weights in {name}, which is not opened, as it may hold code: save it with "
                    f"`save_pretrained` of transformers, which writes {WEIGHTS_FILE}"
                )
        raise DocmtError(f"{directory} has neither {WEIGHTS_FILE} nor {INDEX_FILE}: copy it again, complete")
    shapes: dict[str, Sequence[int]] = {}
    places: dict[str, Path] = {}
    for path in (directory / name for name in sorted(files)):
        own = read_shapes(path, skipped=_NO_WEIGHTS)
        shapes |= own
        places |= dict.fromkeys(own, path)
    if missing := sorted(name for name in table.keys() - shapes.keys() if not name.endswith(_BUFFER)):
        raise DocmtError(f"{directory} lacks weights for {missing[0]}, which {INDEX_FILE} names: copy it again")
    return Weights(directory, shapes, places)


START = "decoder_start_token_id"
_KINDS = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}


def family_of(directory: Path, values: Mapping[str, Any]) -> str:
    """The name of the family that the directory's model is of. Raises DocmtError where docmt has none."""
    kind = values.get("model_type")
    known = {name: own.huggingface for name, own in FAMILIES.items() if own.huggingface is not None}
    fitting = [name for name, about in known.items() if kind in about.types]
    if not fitting:
        why = "" if values.get("is_encoder_decoder") else ", a model without an encoder and a decoder"
        raise DocmtError(
            f"{directory / CONFIG_FILE} has model_type {shown(kind)}{why}: docmt translates with encoder-decoder "
            f"models of the types {_types(encoders=False)}, and starts trainings from encoders of the types "
            f"{_types(encoders=True)}"
        )
    tokenizer = values.get("tokenizer_class") or read_if_there(directory / TOKENIZER_CONFIG).get("tokenizer_class")
    start, pad = (id_in_generation(directory, values, entry) for entry in (START, "pad_token_id"))
    pad_begins = None in (start, pad) or start == pad
    told = [name for name in fitting if tokenizer in known[name].tokenizers or known[name].pad_begins is pad_begins]
    return (told or fitting)[0]


def about_family(name: str) -> HuggingFace:
    """How transformers has a family."""
    about = FAMILIES[name].huggingface
    assert about is not None
    return about


def read_sizes(directory: Path, values: Mapping[str, Any], about: HuggingFace) -> dict[str, Any]:
    """The sizes that config.json says, by our names. Raises DocmtError, naming the entry, for what our model is not."""
    path = directory / CONFIG_FILE
    for entry, allowed in about.fixed.items():
        if (found := values.get(entry, about.usual.get(entry, allowed[0]))) not in allowed:
            raise DocmtError(
                f"{path} has {entry} = {shown(found)}, where docmt's model has {' or '.join(map(shown, allowed))}"
            )
    sizes = dict(about.sizes)
    for name, entries in about.entries.items():
        found = {entry: _entry(path, values, entry, about) for entry in entries}
        first, *others = entries
        if different := [entry for entry in others if found[entry] != found[first]]:
            raise DocmtError(
                f"{path} has {first} = {found[first]} and {different[0]} = {found[different[0]]}: docmt's model has "
                "one setting for both"
            )
        sizes[name] = found[first]
    return sizes


def _entry(path: Path, values: Mapping[str, Any], entry: str, about: HuggingFace) -> Any:
    """An entry of a config as our setting has it."""
    usual, value = about.usual[entry], values.get(entry)
    if isinstance(usual, str) and usual in about.usual:
        return _entry(path, values if value is None else {usual: value}, usual, about)
    value = usual if value is None else value
    kind = float if isinstance(usual, float) else type(usual)
    if isinstance(value, bool) != (kind is bool) or not isinstance(value, (int, float) if kind is float else kind):
        raise DocmtError(f"{path} has {entry} = {shown(value)}: give {_KINDS[kind]}")
    known = about.values.get(entry)
    if known is not None and str(value) not in known:
        raise DocmtError(f"{path} has {entry} = {shown(value)}, where docmt's model knows {', '.join(known)}")
    return value if known is None else known[str(value)]


def id_in_generation(directory: Path, values: Mapping[str, Any], entry: str) -> Any:
    """An id that matters in translation: what generation_config.json says, or else config.json (`values`)."""
    found = read_if_there(directory / "generation_config.json").get(entry)
    return values.get(entry) if found is None else found


def _types(*, encoders: bool) -> str:
    """The types of model that are read, of encoders or of others."""
    families = [own for own in FAMILIES.values() if (own.encoder is not None) == encoders]
    return ", ".join(sorted({kind for own in families if own.huggingface for kind in own.huggingface.types}))


def check_start(directory: Path, values: Mapping[str, Any], family: str, tokenizer: PretrainedTokenizer) -> None:
    """Raises DocmtError where translations begin with another token than in the model's family."""
    start = id_in_generation(directory, values, START)
    rows, first = tokenizer.rows("target"), FAMILIES[family].target.split()[0]
    fits = start == rows[MARKS[first]] if first in MARKS else start != rows[MARKS["<s>"]]
    if start is not None and not fits:
        raise DocmtError(
            f"{directory} says {START} {shown(start)}, where models of family {family} begin with {first}: if docmt "
            "exported it, use the model that it was made from"
        )


HEAD, SOFTMAX, BIAS = "lm_head", "softmax", "head_bias.vector"


@dataclass(frozen=True)
class Pretrained:
    """A model in a directory of transformers."""

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
            if name in sizes:
                check_rows(weights, _table(tables, side), about.entries[name][0], sizes.pop(name))
        scaled = values["model_type"] in about.scaled_types and values.get("tie_word_embeddings") is not False
        if values.get("scale_decoder_outputs", scaled) and scaled:
            sizes["output"] = "scaled"
        if SOFTMAX in tables:
            sizes["output"] = "own"
        return cls(family, sizes, weights, tables)

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
        return load_renamed(config, self._renamed(config, rows), self.weights.directory)

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
        target_rows = self.rows[1]
        bias = found.pop(BIAS, torch.zeros(1, target_rows)).flatten()
        if len(bias) != target_rows:
            raise DocmtError(
                f"{self.weights.directory} has a bias of {len(bias)} logits, but {target_rows} rows: copy it again"
            )
        if family.head_bias:
            found[BIAS] = _rows(bias, predicted)
        elif bias.any():
            raise DocmtError(f"{self.weights.directory} has a bias of logits, which family {config.family} has not")
        return found

    def _check_positions(self, name: str) -> None:
        """Raise DocmtError for a table of positions that differs from the one that docmt computes."""
        table, family = self.weights.tensor(name)[_FIRST_POSITION:], FAMILIES[self.family]
        computed = sinusoids(*table.shape, _FIRST_POSITION, frequencies=family.frequencies)
        if not torch.allclose(table, computed, atol=0.01):  # it may have been rounded
            raise DocmtError(
                f"{self.weights.directory} has positions of its own in {name}, but models of family {self.family} "
                "compute them: if docmt exported it, use the model that it was made from"
            )


def _table(tables: Mapping[str, str], side: str) -> str:
    """The name of their table of tokens of a side."""
    return tables.get("tokens") or tables[f"{side}_tokens"]


def check_rows(weights: Weights, table: str, entry: str, rows: int) -> None:
    """Raise DocmtError where a table of tokens has other rows than an entry of config.json says."""
    if (has := weights.shapes[table][0]) != rows:
        raise DocmtError(
            f"{weights.directory} has {has} rows in {table}, but {CONFIG_FILE} says {entry} = {rows}: copy it again, "
            "complete"
        )


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


_TABLE, _POSITIONS, _TYPES = "source_tokens.weight", "source_positions.table.weight", "types.weight"
_MASKS = ("[MASK]", "<mask>")


@dataclass(frozen=True)
class PretrainedEncoder:
    """An encoder in a directory of transformers."""

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
        check_rows(weights, names[_TABLE], "vocab_size", sizes["source_vocabulary_size"])
        own = {**sizes, "max_positions": sizes["max_positions"] - about.first_position}
        config = ModelConfig.from_dict({"system": "sentence", "family": family, **own})
        return cls(config, weights, names)

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
        load_renamed(config, weights, self.weights.directory, ("its config.json asks for", "copy it again, complete"))
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
        first = about_family(self.config.family).first_position
        found[_POSITIONS] = found[_POSITIONS][first:] + found.pop(_TYPES)[0]
        return found
