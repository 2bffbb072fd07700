"""A model on disk: weights, configuration, tokenizer and model card in one self-contained directory."""

from __future__ import annotations

import json
import logging
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from docmt.checkpoint.weights import (
    CONFIG_FILE,
    STATE_FILE,
    WEIGHTS_FILE,
    load_weights,
    model_on_meta,
    read_shapes,
    read_weights,
    save_tensors,
)
from docmt.core.errors import DocmtError
from docmt.core.files import (
    ENTRY,
    atomic_directory,
    check_regular,
    checksum_of,
    checksum_of_file,
    checksums,
    read_json,
    recorded,
    refuse_unconverted,
)
from docmt.core.plain_text import code_cell, escaped, table
from docmt.core.settings import MANY, check_number
from docmt.model import ModelConfig, TranslationModel
from docmt.text import Tokenizer, load_tokenizer
from docmt.text.tokenizer import SpecialTokens

CARD_FILE = "README.md"
DOCMT_VERSION = version("docmt")
RUN_MODEL = "model"
"""Where a run directory keeps its final model."""
RUN_CHECKPOINTS = "checkpoints"
"""Where it keeps the others."""
DRAFTER_FOLDER = "drafter"
"""In a run or model directory: the model whose drafts it reads."""
DRAFTING_FILE = "drafting.json"
"""In the directory of a model that drafts, by docmt 0.3.0: the settings of its search."""
FREE = frozenset({"dropout", "attention_dropout", "instance_tokens", "instance_sentences"})
"""Entries of a stored config that may be edited: they choose how much is read at once and how training goes on.

Every other one says what the weights mean. Many of those, such as the number of heads, leave all shapes as they are,
so that a config with another value would be loaded and translate badly: they have a checksum of their own."""
_ARCHITECTURE = "architecture"  # the name of that checksum
_STANDS_FOR = {"best": "its best model so far", "last": "its last checkpoint"}

_log = logging.getLogger(__name__)


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
            what, use = "An encoder", "Start a training from it with `docmt train --initialize-from DIRECTORY`."
        lines = [*front, "---", "", f"# {self.title}", "", f"{what}, {size}, {pair}.", "", use, ""]
        for heading, facts in (("Data", self.data), ("Training", self.training)):
            if facts:
                listed = [f"- {key.replace('_', ' ')}: {value}" for key, value in facts.items()]
                lines += [f"## {heading}", "", *listed, ""]
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


def save_model(
    directory: Path,
    model: TranslationModel,
    tokenizer: Tokenizer,
    card: ModelCard | Mapping[str, Any] | None = None,
    drafter: Path | None = None,
) -> None:
    """Writes a model directory, complete or not at all; one that is there is replaced.

    `card` may be a mapping with the fields of ModelCard; `drafter`: the model directory whose drafts the model reads.
    Raises DocmtError when it cannot be written.
    """
    if not isinstance(card, ModelCard):
        card = ModelCard(**(card or {}))
    with atomic_directory(directory) as temporary:
        save_tensors(temporary / WEIGHTS_FILE, model.state_dict())
        describe_model(temporary, model, tokenizer, card)
        if drafter is not None:
            copy_model(drafter, temporary / DRAFTER_FOLDER)


def check_new(output: Path) -> None:
    """Raises DocmtError where a conversion or an export would write over something."""
    if output.exists():
        raise DocmtError(f"{output} exists already: choose another directory, or remove it")


def save_encoder(
    directory: Path, config: ModelConfig, weights: Mapping[str, Tensor], tokenizer: Tokenizer, card: ModelCard
) -> None:
    """Writes a directory with an encoder alone, for trainings to start from, complete or not at all.

    config: with the sizes of the encoder, and without a vocabulary of the target. Raises DocmtError when it cannot be
    written.
    """
    with atomic_directory(directory) as temporary:
        save_tensors(temporary / WEIGHTS_FILE, weights)
        _describe(temporary, config, sum(tensor.numel() for tensor in weights.values()), tokenizer, card)


def copy_model(directory: Path, folder: Path) -> None:
    """Copies what a model directory consists of into a folder (not atomic), and how it drafts, if it does.

    Raises DocmtError where files are missing or damaged, and OSError when the system refuses to write.
    """
    found = find_model(directory)
    folder.mkdir(parents=True, exist_ok=True)
    for name in (WEIGHTS_FILE, CONFIG_FILE, CARD_FILE, DRAFTING_FILE):
        if name in (WEIGHTS_FILE, CONFIG_FILE) or (found / name).exists():
            check_regular(found / name)
            shutil.copyfile(found / name, folder / name)
    load_tokenizer(found).save(folder)


def describe_model(folder: Path, model: TranslationModel, tokenizer: Tokenizer, card: ModelCard) -> None:
    """Writes what makes a folder with weights a model directory: config, tokenizer and card (not atomic)."""
    _describe(folder, model.config, sum(parameter.numel() for parameter in model.parameters()), tokenizer, card)


def _describe(folder: Path, model: ModelConfig, parameters: int, tokenizer: Tokenizer, card: ModelCard) -> None:
    config: dict[str, Any] = {
        "docmt_version": DOCMT_VERSION,
        "source_language": card.source_language,
        "target_language": card.target_language,
        "model": asdict(model),
    }
    config[ENTRY] = {_ARCHITECTURE: _architecture(config["model"]), **checksums(folder, [WEIGHTS_FILE])}
    (folder / CONFIG_FILE).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    tokenizer.save(folder)
    text = card.markdown(model, parameters).encode("utf-8", "backslashreplace")  # names of files are in it
    (folder / CARD_FILE).write_bytes(text)


def load_model(directory: Path | str, device: torch.device | str = "cpu") -> TranslationModel:
    """The model of a model directory or of a run (see `find_model`), ready to translate (eval mode).

    Raises DocmtError when files are missing, damaged, or do not fit together, and for a device that is not there.
    """
    device = choose_device(device)
    found = find_model(directory)
    model = model_on_meta(load_model_config(found), read_shapes(found / WEIGHTS_FILE), found / WEIGHTS_FILE)
    load_weights(model, found / WEIGHTS_FILE, assign=True)
    tell_if_unfinished(Path(directory), found)
    return model.to(device).eval()


def choose_device(device: torch.device | str) -> torch.device:
    """The device of that name; "auto" is the GPU if there is one that works, and otherwise the CPU.

    Raises DocmtError for a device that is not there, or does not work.
    """
    if str(device) == "auto":
        try:
            return choose_device("cuda" if torch.cuda.is_available() else "cpu")
        except DocmtError as error:
            _log.warning("%s: going on with the CPU", str(error).partition(": ")[0])
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
    """The tokenizer of a model directory. Raises DocmtError if it is missing or damaged."""
    return load_tokenizer(find_model(directory))


def load_model_config(directory: Path | str, *, encoders: bool = False) -> ModelConfig:
    """The architecture stored in a model directory, if asked for also in that of an encoder alone (`is_encoder`).

    Raises DocmtError if the file is missing or not understood.
    """
    path = find_model(directory) / CONFIG_FILE
    values = read_json(path)
    if not isinstance(values.get("model"), dict):
        refuse_unconverted(path.parent)
        raise DocmtError(f'{path} has no entry "model": copy the model directory again')
    try:
        config = ModelConfig.from_dict(values["model"])
        if not config.is_encoder:
            check_number("model.vocabulary_size", config.vocabulary_size, (SpecialTokens.count, MANY))
    except (DocmtError, TypeError, ValueError) as error:
        written_by = values.get("docmt_version", "an unknown version")
        raise DocmtError(
            f"{path} is not understood ({error}; written by docmt {written_by}, read by {DOCMT_VERSION}): "
            "copy the model directory again, or use the docmt that wrote it"
        ) from error
    wanted = recorded(values, path).get(_ARCHITECTURE)
    if wanted is not None and wanted != _architecture(values["model"]):
        raise DocmtError(
            f"{path} was changed after the model was written, in what its weights mean (only {', '.join(sorted(FREE))} "
            f'may be): copy it again; if it was changed on purpose, remove "{ENTRY}" from it'
        )
    if config.is_encoder and not encoders:
        raise DocmtError(
            f"{directory} is an encoder alone, which translates nothing: start a training from it (`docmt train "
            f"--initialize-from {directory}`)"
        )
    return config


def _architecture(values: Mapping[str, Any]) -> str:
    """The checksum of a stored config without what may be edited."""
    return checksum_of({name: value for name, value in values.items() if name not in FREE})


def load_languages(directory: Path | str) -> tuple[str, str]:
    """Codes of the languages that a model translates from and to; empty where the directory does not say.

    Raises DocmtError if the file is missing or damaged.
    """
    path = find_model(directory) / CONFIG_FILE
    values = read_json(path)
    codes = [values.get(name, "") for name in ("source_language", "target_language")]
    for code in codes:
        if not isinstance(code, str):
            raise DocmtError(f'{path} names a language {code!r}: write a code such as "en", or copy the file again')
    return codes[0], codes[1]


def differ(ours: tuple[str, str], theirs: tuple[str, str]) -> bool:
    """Whether two pairs of languages are different ones, as far as they are known."""
    return any(one and other and one != other for one, other in zip(ours, theirs, strict=True))


def find_model(directory: Path | str) -> Path:
    """The model directory meant: `directory` itself, or the model of a run directory.

    That is `model` in it, or, while the run is not finished, its best checkpoint, or else its last.
    Raises DocmtError saying what was looked for.
    """
    if not isinstance(directory, str | os.PathLike):
        raise TypeError(f"a model directory is a path (str or Path), not {directory!r}")
    directory = Path(directory)
    if directory.is_file():
        raise DocmtError(f"{directory} is not a model directory but a file: name the model first, then the files")
    checkpoints = directory / RUN_CHECKPOINTS
    for place in (directory, directory / RUN_MODEL, *(checkpoints / name for name in _STANDS_FOR)):
        # A checkpoint without a config is one of earlier versions, which is no model directory.
        if (place / CONFIG_FILE).is_file() or (place.parent != checkpoints and (place / WEIGHTS_FILE).is_file()):
            return place
    if not directory.exists():
        raise DocmtError(f"there is no directory {directory}: give a model directory or a run directory")
    if checkpoints.is_dir():
        raise DocmtError(
            f"the run {directory} has no finished model yet ({directory / RUN_MODEL} is missing), nor a checkpoint "
            f"with a {CONFIG_FILE}: go on with the training"
        )
    raise DocmtError(
        f"{directory} is not a model directory: neither {CONFIG_FILE} and {WEIGHTS_FILE} nor "
        f"a folder '{RUN_MODEL}' with them is in it"
    )


def find_drafter(directory: Path | str) -> Path:
    """The model directory whose drafts a model reads: in its own directory or, of a checkpoint, in the run.

    Raises DocmtError if it is not there.
    """
    found = find_model(directory)
    places = [found / DRAFTER_FOLDER]
    if found.absolute().parent.name == RUN_CHECKPOINTS:
        places.append(found.absolute().parent.parent / DRAFTER_FOLDER)
    for place in places:
        if place.is_dir():
            return place
    raise DocmtError(
        f"{directory} reads drafts, but the model that writes them is missing ({places[-1]}): copy the "
        f"{'run' if len(places) > 1 else 'model'} directory again, complete"
    )


def same_drafters(one: Path | str, other: Path | str) -> bool:
    """Whether two models read drafts of the same model, made with the same search."""
    ours, theirs = find_drafter(one), find_drafter(other)
    searches = [read_json(path) if path.exists() else None for path in (ours / DRAFTING_FILE, theirs / DRAFTING_FILE)]
    same_weights = checksum_of_file(ours / WEIGHTS_FILE) == checksum_of_file(theirs / WEIGHTS_FILE)
    return same_weights and searches[0] == searches[1]


def tell_if_unfinished(asked: Path, found: Path) -> None:
    """Says, once for each model that is loaded, that it is that of a run which is not finished."""
    if found.parent != asked / RUN_CHECKPOINTS:
        return
    update = read_json(found / STATE_FILE).get("update")
    _log.warning("the run %s is not finished: taking %s (update %s)", asked, _STANDS_FOR[found.name], update)


def load_model_weights(directory: Path | str) -> dict[str, Tensor]:
    """The weights of a model directory or of a run, by name. Raises DocmtError if they are missing or damaged."""
    found = find_model(directory)
    weights = read_weights(found / WEIGHTS_FILE)
    tell_if_unfinished(Path(directory), found)
    return weights
