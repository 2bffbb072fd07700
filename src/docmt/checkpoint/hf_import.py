"""The converter of pretrained transformers models of all families. It does not use that library.

`docmt.model.families` describes the families.
"""

from __future__ import annotations

import difflib
import logging
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, cast

import torch
from torch import Tensor

from docmt.checkpoint.hf_tokenizer import TOKENIZER_CONFIG, read_optional_json, read_tokenizer
from docmt.checkpoint.model_directory import ModelCard, check_not_existing, save_encoder, save_model
from docmt.checkpoint.weights import CONFIG_FILE, Weights, apply_renames, build_from_weights, open_weights, select_rows
from docmt.core.errors import DocmtError
from docmt.core.files import read_json
from docmt.core.settings import quote
from docmt.documents.corpus_files import read_documents
from docmt.documents.words import normalize_characters
from docmt.formats.language_codes import format_language_tag, primary_language
from docmt.model import ModelConfig, TranslationModel
from docmt.model.embeddings import build_sinusoids
from docmt.model.families import FAMILIES, HuggingFace
from docmt.model.scope import SPECIAL_TOKEN_IDS
from docmt.text import PretrainedTokenizer
from docmt.text.pretrained import restrict_vocabulary
from docmt.text.tokenizer import SIDES, Side, SideSentence

_MASK = "<mask>"
_log = logging.getLogger(__name__)

_FIRST_POSITION = 2  # row of the first position in tables of M2M100; earlier rows are never read


def convert_huggingface(
    directory: Path,
    output: Path,
    *,
    source_language: str = "",
    target_language: str = "",
    prefix: str = "",
    keep_vocabulary: Sequence[Path] = (),
    layout: Literal["native", "published"] = "native",
    instance_tokens: int = 512,
    allow_pickle: bool = False,
    card: ModelCard | None = None,
) -> TranslationModel | None:
    """Write the model in a transformers directory as a docmt model directory with the same logits.

    source_language, target_language: codes of the model's tokenizer, if it has several languages. prefix: instruction
    before each sentence, for T5 models. keep_vocabulary: texts of both sides; the vocabulary is restricted to their
    tokens and single characters. layout: boundary tokens of the model, or for mBART those of Bao et al. (2021), who end
    a document with the symbol of the target language. allow_pickle: see `open_weights`. card: further facts on the
    model. Returns a sentence model, from which any other system can be trained, or None for an encoder (BERT).
    Raises DocmtError for missing or damaged files, and for an unsupported architecture, naming the entry.
    """
    check_not_existing(output)
    values = read_config(directory)
    family = detect_family(directory, values)
    _check_prefix(family, prefix)
    if layout == "published" and family != "mbart":
        raise DocmtError("--layout published is for mBART models of 25 languages. Remove it")
    pretrained_class = Pretrained if FAMILIES[family].encoder is None else PretrainedEncoder
    pretrained = pretrained_class.open(directory, family, values, allow_pickle)
    whole = tokenizer = read_tokenizer(directory, values, pretrained.rows)
    if isinstance(pretrained, Pretrained):
        check_start_token(directory, values, family, tokenizer)
    if keep_vocabulary:
        tokenizer = restrict_vocabulary(whole, _read_sentences(keep_vocabulary, prefix))
        counts = [sum(row >= 0 for row in vocabulary.rows("target")) for vocabulary in (tokenizer, whole)]
        _log.info("kept %s of %s tokens", *(f"{count:,}" for count in counts))
    origin = {"converted_from": f"{directory.name}, a {values['model_type']} model of transformers"}
    card = replace(card or ModelCard(), source_language=source_language, target_language=target_language)
    card = replace(card, training=origin)
    if isinstance(pretrained, PretrainedEncoder):
        pretrained.save(output, tokenizer, whole, card)
        return None
    languages = source_language, target_language
    options: dict[str, Any] = dict(language_settings(family, tokenizer, languages, prefix))
    if layout == "published":
        tokenizer, options = _use_published_layout(tokenizer, target_language, directory), {"family": "docmt"}
    rows = {side: tokenizer.rows(side) for side in SIDES}
    model = pretrained.build_model(rows, {**options, "instance_tokens": instance_tokens})
    save_model(output, model, tokenizer, card)
    return model.eval()


def _use_published_layout(tokenizer: PretrainedTokenizer, target: str, directory: Path) -> PretrainedTokenizer:
    """Return the tokenizer of an mBART model in the published layout. Raises DocmtError if it is damaged."""
    marks = tokenizer.language_marks()
    try:
        return tokenizer.with_last_symbols(marks[find_language(target, marks)], _MASK)
    except ValueError as error:
        raise DocmtError(f"the tokenizer in {directory} has no symbol {_MASK}. Copy it again") from error


def _read_sentences(paths: Sequence[Path], prefix: str) -> Iterator[SideSentence]:
    """Yield the prefix and all sentences of a source and a target text. Raises DocmtError for unreadable files."""
    yield "source", prefix
    for side, path in zip(SIDES, paths, strict=True):
        empty = True
        for _, sentences in read_documents(path, side):
            yield from ((side, normalize_characters(text) if side == "source" else text) for text in sentences)
            empty = False
        if empty:
            raise DocmtError(f"{path} has no text. Use a corpus with the tokens to keep")


def _check_prefix(family: str, prefix: str) -> None:
    """Raise DocmtError for a prefix of another model than T5."""
    if prefix and "t5" not in get_hf_format(family).model_types:
        raise DocmtError("--prefix is for T5 models. Remove it")


def check_languages(directory: Path, source_language: str, target_language: str, prefix: str) -> None:
    """Check languages and prefix for a model before its weights are there. See `convert_huggingface`.

    Raises DocmtError for a missing or unknown language or a useless prefix. The conversion finds other faults.
    """
    values = read_config(directory)
    family = detect_family(directory, values)
    _check_prefix(family, prefix)
    sizes = values.get("vocab_size"), values.get("decoder_vocab_size") or values.get("vocab_size")
    if FAMILIES[family].encoder is not None or not all(isinstance(size, int) for size in sizes):
        return
    try:
        tokenizer = read_tokenizer(directory, values, cast(tuple[int, int], sizes))
    except DocmtError:
        return
    language_settings(family, tokenizer, (source_language, target_language), prefix)


def language_settings(
    family: str, tokenizer: PretrainedTokenizer, languages: tuple[str, str], prefix: str
) -> dict[str, list[int]]:
    """Return the model settings that name its languages. Raises DocmtError for an unknown language."""
    known, settings = tokenizer.language_marks(), dict[str, list[int]]()
    for side, language in zip(SIDES, languages, strict=True):
        if not known or not FAMILIES[family].has_language_token(side) or (prefix and side == "target"):
            continue
        if not language:
            raise DocmtError(
                f"this model translates between many languages. Add --{side}-language, one of {_list_some(known)}"
            )
        code = find_language(language, known)
        if not code:
            beginning = sorted(name for name in known if name.startswith(language))
            nearest = (beginning or difflib.get_close_matches(language, known, n=1, cutoff=0.0))[0]
            raise DocmtError(
                f"--{side}-language is {language!r}, which this model does not know. Did you mean {nearest}? "
                f"It knows {_list_some(known)}"
            )
        mark_side: Side = "source" if side.upper() in FAMILIES[family].source.split() else "target"
        mark = tokenizer.find_id(known[code], mark_side)
        assert mark is not None
        settings[f"{side}_language_ids"] = [mark]
    if family == "t5" and not prefix and not settings:
        _log.warning("most T5 models need an instruction before each sentence. Add it with --prefix")
    if prefix:
        settings["target_language_ids"] = tokenizer.encode(prefix, "source")
    return settings


def find_language(language: str, known: Collection[str]) -> str:
    """Return the code that a model has for a language, or an empty text.

    It is the code itself. For a BCP 47 tag it is the only one with the same language and script, or for a language
    alone the only one with this language: deu_Latn for de, zho_Hans for zh-Hans. zh is both zho_Hans and zho_Hant, so
    it has none.
    """
    if language in known or "_" in language:  # a code of a model with a typing error must not become another one
        return language if language in known else ""
    for normalize in (format_language_tag, *([primary_language] if language.isalpha() else [])):
        matches = [code for code in known if normalize(code) == normalize(language)]
        if len(matches) == 1:
            return matches[0]
    return ""


def _list_some(names: Iterable[str]) -> str:
    """Return a list of the first names."""
    ordered = sorted(names)
    return ", ".join(ordered[:8]) + (f", ... ({len(ordered)} in all)" if len(ordered) > 8 else "")


def read_config(directory: Path) -> dict[str, Any]:
    """Return the entries of config.json. Raises DocmtError if it is missing."""
    if not directory.is_dir():
        raise DocmtError(
            f"there is no directory {directory}. Name one with {CONFIG_FILE}, weights and tokenizer files (nothing is "
            "downloaded)"
        )
    if (directory / "snapshots").is_dir():
        raise DocmtError(f"{directory} is the folder of a cache. Name the directory in its folder snapshots")
    if not (directory / CONFIG_FILE).is_file():
        raise DocmtError(
            f"{directory} has no {CONFIG_FILE}. Name a directory of a pretrained model, as `save_pretrained` writes it"
        )
    return read_json(directory / CONFIG_FILE)


START_TOKEN_ENTRY = "decoder_start_token_id"
_VALUE_TYPES = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}


def detect_family(directory: Path, values: Mapping[str, Any]) -> str:
    """Return the family of the directory's model. Raises DocmtError if docmt has none for it."""
    model_type = values.get("model_type")
    formats = {name: family.huggingface for name, family in FAMILIES.items() if family.huggingface is not None}
    matches = {name: each for name, each in formats.items() if model_type in each.model_types}
    if not matches:
        note = "" if values.get("is_encoder_decoder") else ", not an encoder-decoder model"
        raise DocmtError(
            f"{directory / CONFIG_FILE} has model_type {quote(model_type)}{note}. docmt reads encoder-decoder models "
            f"of the types {_model_types(encoders=False)}, and encoders of the types {_model_types(encoders=True)}"
        )
    tokenizer = values.get("tokenizer_class") or read_optional_json(directory / TOKENIZER_CONFIG).get("tokenizer_class")
    start, pad = (read_generation_id(directory, values, entry) for entry in (START_TOKEN_ENTRY, "pad_token_id"))
    pad_begins = None in (start, pad) or start == pad
    for name, each in matches.items():
        if tokenizer in each.tokenizers or each.starts_with_padding is pad_begins:
            return name
    return next(iter(matches))


def get_hf_format(name: str) -> HuggingFace:
    """Return the layout of a family in transformers directories."""
    hf_format = FAMILIES[name].huggingface
    assert hf_format is not None
    return hf_format


def read_sizes(directory: Path, values: Mapping[str, Any], hf_format: HuggingFace) -> dict[str, Any]:
    """Return the sizes in config.json under docmt's names. Raises DocmtError for an unsupported entry."""
    path = directory / CONFIG_FILE
    for entry, allowed in hf_format.supported_values.items():
        if (value := values.get(entry, hf_format.defaults.get(entry, allowed[0]))) not in allowed:
            raise DocmtError(
                f"{path} has {entry} = {quote(value)}. docmt's model needs {' or '.join(map(quote, allowed))}"
            )
    sizes = dict(hf_format.fixed_sizes)
    for name, entries in hf_format.entries.items():
        settings = {entry: _read_entry(path, values, entry, hf_format) for entry in entries}
        first, *copies = entries
        if different := [entry for entry in copies if settings[entry] != settings[first]]:
            raise DocmtError(
                f"{path} has {first} = {settings[first]} and {different[0]} = {settings[different[0]]}. docmt's model "
                "has one setting for both"
            )
        sizes[name] = settings[first]
    return sizes


def _read_entry(path: Path, values: Mapping[str, Any], entry: str, hf_format: HuggingFace) -> Any:
    """Return an entry of config.json, or its default, as the value of docmt's setting."""
    default, value = hf_format.defaults[entry], values.get(entry)
    if isinstance(default, str) and default in hf_format.defaults:
        return _read_entry(path, values if value is None else {default: value}, default, hf_format)
    value = default if value is None else value
    kind = float if isinstance(default, float) else type(default)
    if isinstance(value, bool) != (kind is bool) or not isinstance(value, (int, float) if kind is float else kind):
        raise DocmtError(f"{path} has {entry} = {quote(value)}. It must be {_VALUE_TYPES[kind]}")
    known = hf_format.value_names.get(entry)
    if known is not None and str(value) not in known:
        raise DocmtError(f"{path} has {entry} = {quote(value)}. docmt's model supports {', '.join(known)}")
    return value if known is None else known[str(value)]


def read_generation_id(directory: Path, values: Mapping[str, Any], entry: str) -> Any:
    """Return a token id that translation needs, from generation_config.json or else config.json (`values`)."""
    value = read_optional_json(directory / "generation_config.json").get(entry)
    return values.get(entry) if value is None else value


def _model_types(*, encoders: bool) -> str:
    """Return a list of the supported model types, of encoders or of encoder-decoders."""
    formats = [family.huggingface for family in FAMILIES.values() if (family.encoder is not None) == encoders]
    return ", ".join(sorted({kind for each in formats if each for kind in each.model_types}))


def check_start_token(directory: Path, values: Mapping[str, Any], family: str, tokenizer: PretrainedTokenizer) -> None:
    """Raise DocmtError if translations begin with another token than in the model's family."""
    start = read_generation_id(directory, values, START_TOKEN_ENTRY)
    rows, first = tokenizer.rows("target"), FAMILIES[family].target.split()[0]
    if first in SPECIAL_TOKEN_IDS:
        is_expected = start == rows[SPECIAL_TOKEN_IDS[first]]
    else:
        is_expected = start != rows[SPECIAL_TOKEN_IDS["<s>"]]
    if start is not None and not is_expected:
        raise DocmtError(
            f"{directory} has {START_TOKEN_ENTRY} {quote(start)}, but models of family {family} begin with {first}. "
            "Use another model"
        )


HEAD, SOFTMAX, BIAS = "lm_head", "softmax", "head_bias.vector"


@dataclass(frozen=True)
class Pretrained:
    """An encoder-decoder model in a transformers directory."""

    family: str
    sizes: Mapping[str, Any]
    """Sizes by docmt's names"""
    weights: Weights
    tables: Mapping[str, str]
    """Weight names in the directory by docmt's table names, and by `softmax` if it has a separate matrix"""

    @classmethod
    def open(cls, directory: Path, family: str, values: Mapping[str, Any], allow_pickle: bool = False) -> Pretrained:
        """Open a directory. values: its config.json. allow_pickle: see `open_weights`.

        Raises DocmtError for an unsupported architecture.
        """
        hf_format = get_hf_format(family)
        sizes, weights = read_sizes(directory, values, hf_format), open_weights(directory, allow_pickle)
        tables = find_tables(weights, hf_format, tied=values.get("tie_word_embeddings") is not False)
        for name, side in (("source_vocabulary_size", "source"), ("vocabulary_size", "target")):
            if name in sizes:
                check_rows(weights, _table_name(tables, side), hf_format.entries[name][0], sizes.pop(name))
        scaled = values["model_type"] in hf_format.scaled_types and values.get("tie_word_embeddings") is not False
        if values.get("scale_decoder_outputs", scaled) and scaled:
            sizes["output"] = "scaled"
        if SOFTMAX in tables:
            sizes["output"] = "untied"
        return cls(family, sizes, weights, tables)

    @property
    def rows(self) -> tuple[int, int]:
        """Return the numbers of embeddings of source and target."""
        source, target = (self.weights.shapes[_table_name(self.tables, side)][0] for side in SIDES)
        return source, target

    def build_model(self, rows: Mapping[Side, Sequence[int]], options: Mapping[str, Any]) -> TranslationModel:
        """Return the model with tokens in docmt's order.

        rows: for each docmt id of a side its row in the directory's table, or -1. options: further model settings.
        Raises DocmtError for weights that do not match the config.
        """
        source_size = len(rows["source"]) if "source_tokens" in self.tables else 0
        vocabulary = {"vocabulary_size": len(rows["target"]), "source_vocabulary_size": source_size}
        values = {"system": "sentence", "family": self.family, **vocabulary, **self.sizes, **options}
        config = ModelConfig.from_dict(values)
        return build_from_weights(config, self._rename_weights(config, rows), self.weights.directory)

    def _rename_weights(self, config: ModelConfig, rows: Mapping[Side, Sequence[int]]) -> dict[str, Tensor]:
        """Return the weights under docmt's names."""
        hf_format, result = get_hf_format(self.family), dict[str, Tensor]()
        family = FAMILIES[config.family]
        first, last = family.ids_without_logits
        predicted = rows["target"][first : len(rows["target"]) - last]
        for table, name in self.tables.items():
            side: Side = "source" if table == "source_tokens" else "target"
            result[f"{table}.weight"] = self.weights.read_rows(name, predicted if table == SOFTMAX else rows[side])
        tables = {f"{name}.weight" for names in hf_format.token_tables.values() for name in names}
        for name in self.weights.shapes:
            if name in tables:
                continue
            if re.search(hf_format.ignored_weights, name):
                self._check_positions(name)
                continue
            docmt_name, tensor = apply_renames(name, hf_format.weight_names), self.weights.read_tensor(name)
            if docmt_name.endswith("_positions.table.weight"):
                tensor = tensor[hf_format.first_position :]
            result[docmt_name] = tensor
        target_rows = self.rows[1]
        bias = result.pop(BIAS, torch.zeros(1, target_rows)).flatten()
        if len(bias) != target_rows:
            raise DocmtError(
                f"{self.weights.directory} has a bias of {len(bias)} logits but {target_rows} embeddings. Copy it again"
            )
        if family.head_bias:
            result[BIAS] = select_rows(bias, predicted)
        elif bias.any():
            raise DocmtError(f"{self.weights.directory} has a bias of logits. Family {config.family} has none")
        return result

    def _check_positions(self, name: str) -> None:
        """Raise DocmtError if a table of positions differs from docmt's computed one."""
        table, family = self.weights.read_tensor(name)[_FIRST_POSITION:], FAMILIES[self.family]
        computed = build_sinusoids(*table.shape, _FIRST_POSITION, frequencies=family.frequencies)
        if not torch.allclose(table, computed, atol=0.01):  # a loose tolerance, because it may have been rounded
            raise DocmtError(
                f"{self.weights.directory} has learned positions in {name}, but models of family {self.family} "
                "compute them. Use another model"
            )


def _table_name(tables: Mapping[str, str], side: str) -> str:
    """Return the weight name of a side's embeddings."""
    return tables.get("tokens") or tables[f"{side}_tokens"]


def check_rows(weights: Weights, table: str, entry: str, rows: int) -> None:
    """Raise DocmtError if a table of embeddings has another size than config.json says in `entry`."""
    if (actual := weights.shapes[table][0]) != rows:
        raise DocmtError(
            f"{weights.directory} has {actual} rows in {table}, but {CONFIG_FILE} has {entry} = {rows}. Copy the whole "
            "directory again"
        )


def find_tables(weights: Weights, hf_format: HuggingFace, *, tied: bool) -> dict[str, str]:
    """Return the weight names by docmt's table names, and by `softmax` if it has a separate matrix.

    tied: config.json allows that the softmax shares the embeddings. Raises DocmtError if copies of one table differ.
    """
    result: dict[str, str] = {}
    stored = {table: [f"{name}.weight" for name in names] for table, names in hf_format.token_tables.items()}
    stored = {table: [name for name in names if name in weights.shapes] for table, names in stored.items()}
    embeddings = [name for name in stored["tokens"] if not name.startswith(HEAD)]
    if not embeddings:
        name = hf_format.token_tables["tokens"][0]
        raise DocmtError(f"{weights.directory} has no weights for {name}. Save a whole {hf_format.architecture}")
    are_equal = all(weights.are_equal(embeddings[0], name) for name in embeddings[1:])
    has_two_tables = len(hf_format.token_tables) > 1 and not are_equal
    for table, names in stored.items():
        if (table == "tokens") == has_two_tables:
            continue
        first, *copies = names
        result[table] = first
        for name in copies:
            if weights.are_equal(first, name):
                continue
            if not name.startswith(HEAD) or (tied and not hf_format.scaled_types):
                raise DocmtError(
                    f"{weights.directory} has {name} that differs from {first}, of which it should be a copy. Save the "
                    "model again, or untie them (tie_word_embeddings false)"
                )
            result[SOFTMAX] = name
    return result


_TABLE, _POSITIONS, _TYPES = "source_tokens.weight", "source_positions.table.weight", "types.weight"
_MASKS = ("[MASK]", "<mask>")


@dataclass(frozen=True)
class PretrainedEncoder:
    """An encoder in a transformers directory."""

    config: ModelConfig
    """Sizes of the encoder alone"""
    weights: Weights
    names: Mapping[str, str]
    """Weight names in the directory by docmt's names"""

    @classmethod
    def open(
        cls, directory: Path, family: str, values: Mapping[str, Any], allow_pickle: bool = False
    ) -> PretrainedEncoder:
        """Open a directory. values: its config.json. allow_pickle: see `open_weights`.

        Raises DocmtError for incomplete files.
        """
        hf_format = get_hf_format(family)
        sizes, weights = read_sizes(directory, values, hf_format), open_weights(directory, allow_pickle)
        read = [name for name in weights.shapes if not re.search(hf_format.ignored_weights, name)]
        names = {apply_renames(name, hf_format.weight_names): name for name in read}
        if missing := [name for name in (_TABLE, _POSITIONS, _TYPES) if name not in names]:
            name = missing[0].partition(".")[0]
            raise DocmtError(f"{directory} has no weights for {name}. Copy the whole directory again")
        check_rows(weights, names[_TABLE], "vocab_size", sizes["source_vocabulary_size"])
        sizes["max_positions"] -= hf_format.first_position
        return cls(ModelConfig.from_dict({"system": "sentence", "family": family, **sizes}), weights, names)

    @property
    def rows(self) -> tuple[int, int]:
        """Return the number of embeddings twice, as if for source and target."""
        return (self.config.source_vocabulary_size,) * 2

    def save(self, output: Path, tokenizer: PretrainedTokenizer, whole: PretrainedTokenizer, card: ModelCard) -> None:
        """Write a directory to start a training from.

        tokenizer: with the ids of the result, possibly restricted. whole: with the whole vocabulary. Raises DocmtError
        for weights that do not match the config.
        """
        config = replace(self.config, source_vocabulary_size=tokenizer.source_vocabulary_size)
        weights = self._rename_weights(tokenizer, whole)
        mismatch = "its config.json needs", "Copy the whole directory again"
        build_from_weights(config, weights, self.weights.directory, mismatch)
        save_encoder(output, config, weights, tokenizer, card)

    def _rename_weights(self, tokenizer: PretrainedTokenizer, whole: PretrainedTokenizer) -> dict[str, Tensor]:
        """Return the weights under docmt's names."""
        rows = tokenizer.rows("source")
        for mask in (whole.find_id(text, "source") for text in _MASKS):
            if mask is not None:  # word dropout then uses the mask of pretraining
                rows[-1] = whole.rows("source")[mask]
        result = {name: self.weights.read_tensor(stored) for name, stored in self.names.items() if name != _TABLE}
        result[_TABLE] = self.weights.read_rows(self.names[_TABLE], rows)
        # All tokens are of the first type, so its vector is added to the positions.
        first = get_hf_format(self.config.family).first_position
        result[_POSITIONS] = result[_POSITIONS][first:] + result.pop(_TYPES)[0]
        return result
