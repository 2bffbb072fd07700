"""Model directories (weights, configuration, tokenizer and model card together), and the mean of several models."""

from __future__ import annotations

import json
import logging
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from docmt.checkpoint.model_names import (
    count_parameters,
    describe_origin,
    find_named_model,
    is_non_commercial,
    load_licence,
    suggest_pull,
)
from docmt.checkpoint.weights import (
    CONFIG_FILE,
    STATE_FILE,
    WEIGHTS_FILE,
    StoredType,
    average_tensors,
    build_on_meta,
    convert_weights,
    load_weights,
    read_shapes,
    read_weights,
    save_tensors,
)
from docmt.core.errors import DocmtError
from docmt.core.files import (
    CHECKSUMS_KEY,
    atomic_directory,
    check_converted,
    check_regular,
    file_checksum,
    json_checksum,
    read_json,
    stored_checksums,
    write_text,
)
from docmt.core.plain_text import code_cell, escape_markdown, markdown_table
from docmt.core.settings import MANY, check_number, find_differences, to_mapping
from docmt.model import ModelConfig, TranslationModel
from docmt.model.products import Precision, prepare_products
from docmt.text import Tokenizer, load_tokenizer
from docmt.text.tokenizer import SpecialTokens

CARD_FILE = "README.md"
DOCMT_VERSION = version("docmt")
RUN_MODEL = "model"
"""Folder of the final model in a run directory."""
RUN_CHECKPOINTS = "checkpoints"
"""Folder of the checkpoints in a run directory."""
RUN_RECIPE = "recipe.yaml"
"""File with the configuration of a run, in its directory."""
DRAFTER_FOLDER = "drafter"
"""Folder of the model that writes drafts, in a run or model directory."""
ALIGNMENT_KEY = "alignment"
"""Entry of a config with the layer that aligns words."""
EDITABLE_ENTRIES = frozenset({"dropout", "attention_dropout", "instance_tokens", "instance_sentences"})
"""Entries of a stored config that may be edited.

All others determine the meaning of the weights. Some, such as the number of heads, do not change any shape, so a config
with another value would load and translate badly. A checksum protects them."""
_ARCHITECTURE_ENTRY = "architecture"  # name of this checksum
_UNFINISHED_MODELS = {"best": "its best model so far", "last": "its last checkpoint"}

_log = logging.getLogger(__name__)


class AlignmentLayer(NamedTuple):
    """The decoder layer whose attention to the source aligns words."""

    layer: int
    """from 1"""
    shifted: bool = True
    """weights are read where the target token is the decoder's input, not where it is predicted"""


@dataclass(frozen=True)
class ModelCard:
    """Facts about a model for its users, written as the README.md of its directory."""

    title: str = "A docmt translation model"
    source_language: str = ""
    """Language code, empty if unknown"""
    target_language: str = ""
    """Language code, empty if unknown"""
    data: Mapping[str, Any] = field(default_factory=dict)
    """Names and sizes of the training data"""
    recipe: Mapping[str, Any] = field(default_factory=dict)
    """The full training configuration"""
    training: Mapping[str, Any] = field(default_factory=dict)
    """Facts of the run: updates, epochs, time, losses"""
    scores: Sequence[Mapping[str, Any]] = ()
    """One mapping for each score: name, score, signature"""
    license: str = ""
    """Identifier of the licence as on the hub, such as apache-2.0; empty if unknown"""
    hub_id: str = ""
    """Repository on the hub that the model comes from"""
    hub_revision: str = ""
    """Its commit"""

    def markdown(self, config: ModelConfig, parameters: int) -> str:
        """Return the card as Markdown, with the front matter that model hubs read."""
        languages = [code for code in (self.source_language, self.target_language) if code]
        front = ["---", "library_name: docmt", "pipeline_tag: translation"]
        if self.license:
            front.append(f"license: {self.license}")
        if languages:
            front += ["language:", *(f"- {code}" for code in dict.fromkeys(languages))]
        pair = " to ".join(languages) if len(languages) == 2 else "languages not recorded"
        size = f"{parameters / 1e6:.1f} million parameters"
        kind, usage = f"System `{config.system}`", "Use it with `docmt translate DIRECTORY FILE`."
        if config.is_encoder:
            kind, usage = "An encoder", "Start a training from it with `docmt train --initialize-from DIRECTORY`."
        lines = [*front, "---", "", f"# {self.title}", "", f"{kind}, {size}, {pair}.", "", usage, ""]
        if self.license:
            limit = ", which forbids commercial use" if is_non_commercial(self.license) else ""
            lines += [f"Licence: {self.license}{limit}.", ""]
        if self.hub_id:
            revision = f", revision {self.hub_revision}" if self.hub_revision else ""
            lines += [f"It comes from the repository {self.hub_id}{revision}.", ""]
        for heading, facts in (("Data", self.data), ("Training", self.training)):
            if facts:
                bullets = [f"- {key.replace('_', ' ')}: {value}" for key, value in facts.items()]
                lines += [f"## {heading}", "", *bullets, ""]
        if self.scores:
            rows = [["metric", "score", "signature"]]
            for score in self.scores:
                name, signature = escape_markdown(str(score["name"])), code_cell(str(score.get("signature", "")))
                rows.append([name, f"{score['score']:.2f}", signature])
            lines += ["## Scores", "", *markdown_table(rows, left_columns=3), ""]
        if self.recipe:
            recipe = json.dumps(self.recipe, indent=2, ensure_ascii=False)
            lines += ["## Recipe", "", "```json", recipe, "```", ""]
        return "\n".join(lines)


def save_model(
    directory: Path,
    model: TranslationModel,
    tokenizer: Tokenizer,
    card: ModelCard | Mapping[str, Any] | None = None,
    drafter: Path | None = None,
    alignment: AlignmentLayer | None = None,
    stored: StoredType | None = None,
) -> None:
    """Write a model directory atomically, replacing an existing one.

    card: may be a mapping with the fields of ModelCard. drafter: directory of the model that writes drafts. alignment:
    the layer that aligns words, if it was chosen. stored: type of the weights in the file (None: their own).
    Raises DocmtError if it cannot be written, and for weights beyond the range of float16.
    """
    if not isinstance(card, ModelCard):
        card = ModelCard(**(card or {}))
    weights = model.state_dict()
    if stored is not None:
        weights = convert_weights(directory, weights, stored)
    with atomic_directory(directory) as temporary:
        save_tensors(temporary / WEIGHTS_FILE, weights)
        describe_model(temporary, model.config, tokenizer, card, alignment)
        if drafter is not None:
            copy_model(drafter, temporary / DRAFTER_FOLDER)


def save_variant(directory: Path, model: TranslationModel, original: Path) -> None:
    """Write a model that was made from another one, with its languages, licence, tokenizer and alignment layer."""
    source, target = load_languages(original)
    card = ModelCard(source_language=source, target_language=target, license=load_licence(original))
    save_model(directory, model, load_model_tokenizer(original), card, alignment=load_alignment_layer(original))


def check_not_existing(output: Path) -> None:
    """Raise DocmtError if the output of a conversion or an export exists."""
    if output.exists():
        raise DocmtError(f"{output} exists already. Choose another directory, or remove it")


def save_encoder(
    directory: Path, config: ModelConfig, weights: Mapping[str, Tensor], tokenizer: Tokenizer, card: ModelCard
) -> None:
    """Write a directory with an encoder alone, atomically. Trainings can start from it.

    config: with the sizes of the encoder and no target vocabulary. Raises DocmtError if it cannot be written.
    """
    with atomic_directory(directory) as temporary:
        save_tensors(temporary / WEIGHTS_FILE, weights)
        describe_model(temporary, config, tokenizer, card)


def copy_model(directory: Path, folder: Path) -> None:
    """Copy the files of a model directory into a folder (not atomic).

    Raises DocmtError if files are missing or damaged, and OSError if the system refuses to write.
    """
    model_path = find_model(directory)
    folder.mkdir(parents=True, exist_ok=True)
    for name in (WEIGHTS_FILE, CONFIG_FILE, CARD_FILE):
        if name in (WEIGHTS_FILE, CONFIG_FILE) or (model_path / name).exists():
            check_regular(model_path / name)
            shutil.copyfile(model_path / name, folder / name)
    load_tokenizer(model_path).save(folder)


def describe_model(
    folder: Path, model: ModelConfig, tokenizer: Tokenizer, card: ModelCard, alignment: AlignmentLayer | None = None
) -> None:
    """Write config, tokenizer and card beside the weights in a folder (not atomic)."""
    config: dict[str, Any] = {
        "docmt_version": DOCMT_VERSION,
        "source_language": card.source_language,
        "target_language": card.target_language,
        "model": asdict(model),
    }
    config |= describe_origin(card.license, card.hub_id, card.hub_revision)
    if alignment is not None:
        config[ALIGNMENT_KEY] = alignment._asdict()
    architecture = {_ARCHITECTURE_ENTRY: _architecture_checksum(config["model"])}
    config[CHECKSUMS_KEY] = architecture | {WEIGHTS_FILE: file_checksum(folder / WEIGHTS_FILE)}
    (folder / CONFIG_FILE).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    tokenizer.save(folder)
    parameters = count_parameters(folder)
    text = card.markdown(model, parameters).encode("utf-8", "backslashreplace")  # for file names that are not UTF-8
    (folder / CARD_FILE).write_bytes(text)


def load_model(directory: Path | str, device: torch.device | str = "cpu") -> TranslationModel:
    """Load the model of a model directory or of a run (see `find_model`) in eval mode.

    Raises DocmtError if files are missing, damaged or inconsistent, and for an unavailable device.
    """
    device = choose_device(device)
    model_path = find_model(directory)
    weights = model_path / WEIGHTS_FILE
    model = build_on_meta(load_model_config(model_path), read_shapes(weights), weights)
    load_weights(model, weights, assign=True)
    warn_if_unfinished(Path(directory), model_path)
    return model.to(device).eval()


def choose_device(device: torch.device | str) -> torch.device:
    """Return the device of a name. "auto" is the GPU if one works, and otherwise the CPU.

    Raises DocmtError for a device that is missing or does not work.
    """
    if str(device) == "auto":
        try:
            return choose_device("cuda" if torch.cuda.is_available() else "cpu")
        except DocmtError as error:
            _log.warning("%s. Using the CPU", str(error).partition(": ")[0])
            return torch.device("cpu")
    try:
        tensor = torch.zeros(1, device=device)
        tensor.tolist()
    except (RuntimeError, AssertionError, NotImplementedError, TypeError) as error:
        no_gpu = str(device).startswith("cuda") and not torch.cuda.is_available()
        reason = "PyTorch sees no GPU" if no_gpu else "no such device"
        raise DocmtError(f"device {device} cannot be used here ({reason}): choose cpu") from error
    return tensor.device


def load_model_tokenizer(directory: Path | str) -> Tokenizer:
    """Load the tokenizer of a model directory. Raises DocmtError if it is missing or damaged."""
    return load_tokenizer(find_model(directory))


def load_model_config(directory: Path | str, *, encoders: bool = False) -> ModelConfig:
    """Load the architecture of a model directory. encoders: also accept an encoder alone (`is_encoder`).

    Raises DocmtError if the file is missing or invalid.
    """
    path = find_model(directory) / CONFIG_FILE
    values = read_json(path)
    if not isinstance(values.get("model"), dict):
        check_converted(path.parent)
        raise DocmtError(f'{path} has no entry "model". Copy the model directory again')
    try:
        config = ModelConfig.from_dict(values["model"])
        if not config.is_encoder:
            check_number("model.vocabulary_size", config.vocabulary_size, (SpecialTokens.count, MANY))
    except (DocmtError, TypeError, ValueError) as error:
        written_by = values.get("docmt_version", "an unknown version")
        raise DocmtError(
            f"{path} is not valid ({error}; written by docmt {written_by}, read by {DOCMT_VERSION}). "
            "Copy the model directory again, or use the docmt that wrote it"
        ) from error
    checksum = stored_checksums(values, path).get(_ARCHITECTURE_ENTRY)
    if checksum is not None and checksum != _architecture_checksum(values["model"]):
        raise DocmtError(
            f"{path} was changed after the model was written (only {', '.join(sorted(EDITABLE_ENTRIES))} may be). "
            f'Copy it again. If the change is intended, remove "{CHECKSUMS_KEY}" from it'
        )
    if config.is_encoder and not encoders:
        raise DocmtError(
            f"{directory} is an encoder alone, which cannot translate. Start a training from it with `docmt train "
            f"--initialize-from {directory}`"
        )
    return config


def _architecture_checksum(values: Mapping[str, Any]) -> str:
    """Return the checksum of a stored config without its editable entries."""
    return json_checksum({name: value for name, value in values.items() if name not in EDITABLE_ENTRIES})


def load_languages(directory: Path | str) -> tuple[str, str]:
    """Return the codes of a model's source and target language, empty if unknown.

    Raises DocmtError if the file is missing or damaged.
    """
    path = find_model(directory) / CONFIG_FILE
    values = read_json(path)
    codes = [values.get(name, "") for name in ("source_language", "target_language")]
    for code in codes:
        if not isinstance(code, str):
            raise DocmtError(f'{path} has a language {code!r}. Write a code such as "en", or copy the file again')
    return codes[0], codes[1]


def load_alignment_layer(directory: Path | str) -> AlignmentLayer | None:
    """Return the layer that aligns words, or None for a model without a chosen one.

    Raises DocmtError if the file is missing or damaged.
    """
    path = find_model(directory) / CONFIG_FILE
    values = read_json(path).get(ALIGNMENT_KEY)
    if values is None:
        return None
    layer, shifted = (values.get(name) if isinstance(values, dict) else None for name in AlignmentLayer._fields)
    if type(layer) is not int or type(shifted) is not bool:
        raise DocmtError(
            f'{path} has the entry "{ALIGNMENT_KEY}": {json.dumps(values)}. Write {{"layer": 1, "shifted": true}} with '
            "the number of a decoder layer, or remove it"
        )
    return AlignmentLayer(layer, shifted)


def languages_differ(first: tuple[str, str], second: tuple[str, str]) -> bool:
    """Return whether two language pairs differ. Unknown languages do not count."""
    return any(code and other and code != other for code, other in zip(first, second, strict=True))


def find_model(directory: Path | str) -> Path:
    """Return a model directory: `directory` itself, the model of a run directory, or a model by its name or pair.

    An existing path counts before a name (see `find_named_model`). An unfinished run has no `model`, so its best or
    else its last checkpoint is returned. Raises DocmtError if there is no model.
    """
    if not isinstance(directory, str | os.PathLike):
        raise TypeError(f"a model directory is a path (str or Path), not {directory!r}")
    directory = Path(directory)
    if directory.is_file():
        raise DocmtError(f"{directory} is not a model directory but a file. Name the model first, then the files")
    checkpoints = directory / RUN_CHECKPOINTS
    for path in (directory, directory / RUN_MODEL, *(checkpoints / name for name in _UNFINISHED_MODELS)):
        if any((path / name).is_file() for name in (CONFIG_FILE, WEIGHTS_FILE)):
            return path
    if not directory.exists():
        if (named := find_named_model(str(directory))) is not None:
            return named
        if "endpoint:" in str(directory):
            raise DocmtError(f"{directory} names a server: name a model of docmt here")
        if str(directory).startswith(("http:", "https:")):
            raise DocmtError(f"{directory} is an address: write a profile with it, and name endpoint:PROFILE.yaml")
        command = suggest_pull(str(directory))
        if command and directory.name == str(directory):
            raise DocmtError(
                f"there is no model {directory} here. Get it with `{command}`, or name a model directory (docmt models "
                "lists what is there)"
            )
        other = "a model that `docmt models` lists; docmt pull gets one"
        if command:
            other = f"get a model of the hub with `{command}`"
        raise DocmtError(f"there is no directory {directory}. Name a model directory or a run directory, or {other}")
    if checkpoints.is_dir() or (directory / RUN_RECIPE).is_file():
        raise DocmtError(
            f"the run {directory} has no model yet: {directory / RUN_MODEL} and checkpoints with a {CONFIG_FILE} are "
            "missing. Continue the training"
        )
    raise DocmtError(
        f"{directory} is not a model directory. It has neither {CONFIG_FILE} and {WEIGHTS_FILE} nor a folder "
        f"'{RUN_MODEL}' with them. Name a model directory or a run directory"
    )


def find_drafter(directory: Path | str) -> Path:
    """Return the directory of the model that writes drafts for a model.

    It is in the model directory or, for a checkpoint, in the run directory. Raises DocmtError if it is missing.
    """
    model_path = find_model(directory)
    candidates = [model_path / DRAFTER_FOLDER]
    if model_path.absolute().parent.name == RUN_CHECKPOINTS:
        candidates.append(model_path.absolute().parent.parent / DRAFTER_FOLDER)
    for path in candidates:
        if path.is_dir():
            return path
    raise DocmtError(
        f"{directory} reads drafts, but the model that writes them is missing ({candidates[-1]}). Copy the whole "
        f"{'run' if len(candidates) > 1 else 'model'} directory again"
    )


def have_same_drafter(first: Path | str, second: Path | str) -> bool:
    """Return whether two models read drafts of the same model."""
    weights = [file_checksum(find_drafter(path) / WEIGHTS_FILE) for path in (first, second)]
    return weights[0] == weights[1]


def warn_if_unfinished(directory: Path, model_path: Path) -> None:
    """Log a warning if a model that was found in `directory` is a checkpoint of an unfinished run."""
    if model_path.parent != directory / RUN_CHECKPOINTS:
        return
    update = read_json(model_path / STATE_FILE).get("update")
    name = _UNFINISHED_MODELS[model_path.name]
    _log.warning("the run %s is not finished. Using %s (update %s)", directory, name, update)


def load_model_weights(directory: Path | str) -> dict[str, Tensor]:
    """Return the weights of a model directory or a run by name. Raises DocmtError if missing or damaged."""
    model_path = find_model(directory)
    weights = read_weights(model_path / WEIGHTS_FILE)
    warn_if_unfinished(Path(directory), model_path)
    return weights


def read_tokenizer_and_languages(paths: Sequence[Path]) -> tuple[Tokenizer, tuple[str, str]]:
    """Return the tokenizer and language codes of a model or of the members of an ensemble, without loading weights.

    Raises DocmtError for members with different tokenizers or languages.
    """
    tokenizer, languages = load_model_tokenizer(paths[0]), load_languages(paths[0])
    for number, path in enumerate(paths[1:], 1):
        if not load_model_tokenizer(path).has_same_vocabulary(tokenizer):
            raise DocmtError(
                f"{paths[0]} and {path} cannot form an ensemble: their tokenizers differ. Choose models trained on one "
                "store."
            )
        if languages_differ(languages, member_languages := load_languages(path)):
            raise DocmtError(
                f"{', '.join(map(str, paths[:number]))} and {path} cannot form an ensemble: they translate "
                f"{'-'.join(languages)} and {'-'.join(member_languages)}."
            )
        languages = languages[0] or member_languages[0], languages[1] or member_languages[1]
    return tokenizer, languages


def load_checked(path: Path, device: torch.device, precision: Precision, tokenizer: Tokenizer) -> TranslationModel:
    """Load the model of a directory in this precision. Raises DocmtError if the tokenizer has another vocabulary."""
    model = prepare_products(load_model(path, device=device), precision)
    if tokenizer.vocabulary_size != model.config.vocabulary_size:
        raise DocmtError(
            f"the tokenizer in {path} has {tokenizer.vocabulary_size} entries but the model has "
            f"{model.config.vocabulary_size}. Copy the directory again."
        )
    return model


def check_drafter(directory: Path, tokenizer: Tokenizer) -> None:
    """Raise DocmtError unless the model translates without drafts, into the words of this tokenizer."""
    if load_model_config(directory).system_options.context_spec().drafts:
        raise DocmtError(f"{directory} reads drafts itself. Draft with a model that does not, like a sentence model.")
    if not load_model_tokenizer(directory).has_same_vocabulary(tokenizer):
        raise DocmtError(
            f"the drafting model {directory} has another tokenizer than the model that reads the drafts. Draft with a "
            "model trained on the same store, or prepare the data with its tokenizer (`docmt prepare --tokenizer "
            f"{directory}`)."
        )


def find_common_drafter(readers: Sequence[Path]) -> Path:
    """Return the model that drafts for these models, which read drafts.

    Raises DocmtError where it is missing or damaged, and for readers of the drafts of different models.
    """
    for path in readers[1:]:
        if not have_same_drafter(readers[0], path):
            raise DocmtError(
                f"{readers[0]} and {path} cannot form an ensemble: they read drafts of different models. Choose models "
                "trained on one store with the same drafts."
            )
    drafter_path = find_drafter(readers[0])
    if languages_differ(languages := load_languages(readers[0]), drafter_languages := load_languages(drafter_path)):
        raise DocmtError(
            f"the drafter {drafter_path} translates from {drafter_languages[0]} to {drafter_languages[1]}, but "
            f"{readers[0]} translates from {languages[0]} to {languages[1]}. Copy the model directory again."
        )
    return drafter_path


def list_model_files(paths: Sequence[Path], with_drafter: bool) -> list[Path]:
    """Return the files of these models, and of the drafter that some of them read, that determine translations."""
    folders = [find_model(path) for path in paths]
    if with_drafter:
        readers = [path for path in paths if load_model_config(path).system_options.context_spec().drafts]
        folders += [find_drafter(readers[0])]
    files = [path for folder in folders for path in sorted(folder.iterdir()) if path.is_file()]
    return [path for path in files if path.name != CARD_FILE]


# Settings in which averaged models may differ.
_MAY_DIFFER = ("preset", "dropout", "attention_dropout", "group.gate_bias")


def average_models(models: Sequence[Path | str], output: Path, stored: StoredType | None = None) -> None:
    """Write a model directory with the mean of the weights of these models.

    models: model directories, checkpoints, or runs (see `find_model`). stored: type of the weights in
    the file (None: float32).
    Raises DocmtError for models of different architectures or vocabularies, and for an existing output.
    """
    first = models[0]
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise DocmtError(f"{output} exists already. Remove it, or choose another --output")
    for model_path in models[1:]:
        _check_compatible(first, model_path)
    languages = {load_languages(model) for model in models}
    source, target = languages.pop() if len(languages) == 1 else ("", "")
    model = load_model(first)
    model.load_state_dict(average_tensors((str(model), load_model_weights(model)) for model in models))
    facts = {"weights": f"mean of those of {len(models)} models", "averaged": ", ".join(map(str, models))}
    if len(models) == 1:
        facts = {"weights": f"those of {first}"}
    licences = sorted({load_licence(find_model(model)) for model in models})
    binding = [licence for licence in licences if is_non_commercial(licence)] or licences
    card = ModelCard(
        output.resolve().name,
        source_language=source,
        target_language=target,
        training=facts,
        license=binding[0] if len(binding) == 1 else "",
    )
    drafter = find_drafter(first) if model.system.context_spec().drafts else None
    save_model(output, model, load_model_tokenizer(first), card, drafter, load_alignment_layer(first), stored)
    card_file = find_model(first) / CARD_FILE
    if len(models) == 1 and card_file.is_file():  # the same model: its data and scores hold
        write_text(output / CARD_FILE, card_file.read_text(encoding="utf-8", errors="replace"))


def _check_compatible(first: Path | str, second: Path | str) -> None:
    configs = to_mapping(load_model_config(first)), to_mapping(load_model_config(second))
    for name, first_value, second_value in find_differences(*configs):
        if name not in _MAY_DIFFER:
            raise DocmtError(
                f"model.{name} is {second_value!r} in {second}, but {first_value!r} in {first}. Average models of one "
                "architecture"
            )
    if not load_model_tokenizer(first).has_same_vocabulary(load_model_tokenizer(second)):
        raise DocmtError(f"{second} has another vocabulary than {first}. Average models of one tokenizer")
    if load_model_config(first).system_options.context_spec().drafts and not have_same_drafter(first, second):
        raise DocmtError(f"{second} reads drafts of another model than {first}. Average models of one store")
