"""Pretrained models of the library transformers as docmt models, read without that library.

What there is to know about a family is in `docmt.model.families`; here is what all of them have in common.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from docmt.documents.corpus import read_documents
from docmt.errors import DocmtError
from docmt.files import read_json
from docmt.interop.fairseq_files import renamed
from docmt.interop.huggingface_encoder import PretrainedEncoder
from docmt.interop.huggingface_files import CONFIG_FILE, Weights, open_weights, read_config
from docmt.interop.huggingface_tokenizer import read_tokenizer
from docmt.interop.loading import load_renamed
from docmt.model import ModelConfig, TranslationModel
from docmt.model.families import FAMILIES
from docmt.model.families.family import HuggingFace
from docmt.model.frame import MARKS
from docmt.model.positions import sinusoids
from docmt.model_directory import ModelCard, save_model
from docmt.settings import shown
from docmt.text import PretrainedTokenizer
from docmt.text.pruning import kept
from docmt.text.tokenizer import SIDES, Side, SideSentence

_TOKENIZER_CONFIG, _START = "tokenizer_config.json", "decoder_start_token_id"
HEAD, SOFTMAX, BIAS, _MASK = "lm_head", "softmax", "head_bias.vector", "<mask>"
_BEFORE = 2  # positions that M2M100's tables have before the first, one of them zero
_KINDS = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}


def convert_huggingface(
    directory: Path,
    output: Path,
    *,
    source_language: str = "",
    target_language: str = "",
    prefix: str = "",
    keep_vocabulary: Sequence[Path] = (),
    layout: Literal["own", "published"] = "own",
    instance_tokens: int = 512,
) -> TranslationModel | None:
    """Writes the model in a directory of transformers as a docmt model directory, whose logits are the same.

    Languages: of the pair that is to be translated, by the codes of the model's tokenizer, where it has many; prefix:
    what a T5 model is told before each sentence; keep_vocabulary: texts of both sides, besides whose tokens only single
    characters are kept; layout: of sentences, that of the model, or of mBART that in which Bao et al. (2021) went on
    with it: as docmt's own models, where the symbol of the target language ends a document. The model translates
    sentence by sentence; any other system can be trained from it. Of an encoder (BERT), which is no model yet, nothing
    is returned. Raises DocmtError for files that are missing or damaged, and for anything in the architecture that
    docmt's model does not have, by the name of the entry.
    """
    if output.exists():
        raise DocmtError(f"{output} exists already: choose another directory, or remove it")
    values = read_config(directory)
    family = family_of(directory, values)
    if prefix and "t5" not in about_family(family).types:
        raise DocmtError("--prefix is for T5 models: leave it out")
    if layout == "published" and family != "mbart":
        raise DocmtError("--layout published is for mBART models of 25 languages: leave it out")
    pretrained: Pretrained | PretrainedEncoder
    if FAMILIES[family].encoder is None:
        pretrained = Pretrained.of(directory, values)
    else:
        about = about_family(family)
        pretrained = PretrainedEncoder.of(directory, family, about, read_sizes(directory, values, about))
    whole = tokenizer = read_tokenizer(directory, values, pretrained.rows)
    if isinstance(pretrained, Pretrained):
        check_start(directory, values, family, tokenizer)
    if keep_vocabulary:
        tokenizer = kept(whole, _sentences(keep_vocabulary, prefix))
    card = ModelCard(
        source_language=source_language,
        target_language=target_language,
        training={"converted_from": f"{directory.name}, a {values['model_type']} model of transformers"},
    )
    if isinstance(pretrained, PretrainedEncoder):
        pretrained.save(output, tokenizer, whole, card)
        return None
    languages = source_language, target_language
    options: dict[str, Any] = dict(marks_of(family, tokenizer, languages, prefix))
    if layout == "published":
        tokenizer, options = _as_published(tokenizer, target_language, directory), {"family": "docmt"}
    rows = {side: tokenizer.rows(side) for side in SIDES}
    model = pretrained.model(rows, {**options, "instance_tokens": instance_tokens})
    save_model(output, model, tokenizer, card)
    return model.eval()


def _as_published(tokenizer: PretrainedTokenizer, target: str, directory: Path) -> PretrainedTokenizer:
    """The tokenizer of an mBART model in the published layout. Raises DocmtError for a damaged one."""
    try:
        return tokenizer.ending_in(tokenizer.language_marks()[target], _MASK)
    except ValueError as error:
        raise DocmtError(f"the tokenizer in {directory} has no symbol {_MASK}: copy it again") from error


def _sentences(paths: Sequence[Path], prefix: str) -> Iterator[SideSentence]:
    """All that a source and a target text ask a tokenizer for. Raises DocmtError for what cannot be read."""
    yield "source", prefix
    for side, path in zip(SIDES, paths, strict=True):
        for _, sentences in read_documents(path, side):
            yield from ((side, sentence) for sentence in sentences)


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
    def of(cls, directory: Path, values: Mapping[str, Any]) -> Pretrained:
        """What the directory has; values: its config.json. Raises DocmtError for what docmt's model cannot be."""
        family = family_of(directory, values)
        about = about_family(family)
        sizes, weights = read_sizes(directory, values, about), open_weights(directory)
        tables = find_tables(weights, about, tied=values.get("tie_word_embeddings") is not False)
        for name, table in (("source_vocabulary_size", "source_tokens"), ("vocabulary_size", "target_tokens")):
            wanted, has = sizes.pop(name, None), weights.shapes[tables.get(table, tables.get("tokens", ""))][0]
            if wanted not in (None, has):
                raise DocmtError(
                    f"{directory} has {has} rows in {tables.get(table, 'its table of tokens')}, but {CONFIG_FILE} says "
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
        shapes, tables = self.weights.shapes, self.tables
        source, target = (shapes[tables.get(f"{side}_tokens", tables.get("tokens", ""))][0] for side in SIDES)
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
    path = directory / _TOKENIZER_CONFIG
    tokenizer = values.get("tokenizer_class") or (read_json(path).get("tokenizer_class") if path.is_file() else None)
    start, pad = (_id_in_generation(directory, values, entry) for entry in (_START, "pad_token_id"))
    pad_begins = None in (start, pad) or start == pad
    told = [name for name in fitting if tokenizer in known[name].tokenizers or known[name].pad_begins is pad_begins]
    return (told or fitting)[0]


def check_start(directory: Path, values: Mapping[str, Any], family: str, tokenizer: PretrainedTokenizer) -> None:
    """Raises DocmtError where translations begin with another token than in the model's family."""
    start = _id_in_generation(directory, values, _START)
    rows, first = tokenizer.rows("target"), FAMILIES[family].target.split()[0]
    fits = start == rows[MARKS[first]] if first in MARKS else start != rows[MARKS["<s>"]]
    if start is not None and not fits:
        raise DocmtError(
            f"{directory} says {_START} {shown(start)}, where models of family {family} begin with {first}: if docmt "
            "exported it, use the model that it was made from"
        )


def _id_in_generation(directory: Path, values: Mapping[str, Any], entry: str) -> Any:
    """An id that matters in translation: what generation_config.json says, or else config.json (`values`)."""
    path = directory / "generation_config.json"
    found = read_json(path).get(entry) if path.is_file() else None
    return values.get(entry) if found is None else found


def _types(*, encoders: bool) -> str:
    """The types of model that are read, of encoders or of others."""
    families = [own for own in FAMILIES.values() if (own.encoder is not None) == encoders]
    return ", ".join(sorted({kind for own in families if own.huggingface for kind in own.huggingface.types}))


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
            raise DocmtError(f"{path} has {entry} = {shown(found)}, which docmt's model does not have")
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
        raise DocmtError(f"{weights.directory} has no weights for {about.tables['tokens'][0]}: copy it again, complete")
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


def marks_of(
    family: str, tokenizer: PretrainedTokenizer, languages: tuple[str, str], prefix: str
) -> dict[str, list[int]]:
    """The settings of a model that name its languages. Raises DocmtError for a language that it does not know."""
    known, marks = tokenizer.language_marks(), dict[str, list[int]]()
    for side, language in zip(SIDES, languages, strict=True):
        if not known or not FAMILIES[family].names(side) or (prefix and side == "target"):
            continue
        if not language:
            raise DocmtError(
                f"this model translates between many languages: add --{side}_language, one of {_some(known)}"
            )
        if language not in known:
            near = difflib.get_close_matches(language, known, n=1, cutoff=0.0)[0]
            raise DocmtError(f"--{side}_language is {language!r}, which this model does not know: did you mean {near}?")
        stands: Side = "source" if side.upper() in FAMILIES[family].source.split() else "target"
        mark = tokenizer.id_of(known[language], stands)
        assert mark is not None
        marks[f"{side}_mark"] = [mark]
    if prefix:
        marks["target_mark"] = tokenizer.encode(prefix, "source")
    return marks


def _some(names: Iterable[str]) -> str:
    """A few of many names."""
    first = sorted(names)
    return ", ".join(first[:8]) + (f", ... ({len(first)} in all)" if len(first) > 8 else "")
