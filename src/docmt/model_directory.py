"""A model on disk: weights, configuration, tokenizer and model card in one self-contained directory."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, load_file, save_file
from torch import Tensor
from torch.overrides import TorchFunctionMode

from docmt.errors import DocmtError
from docmt.files import atomic_directory, check_regular, read_json
from docmt.model import ModelConfig, TranslationModel
from docmt.settings import MANY, check_number
from docmt.text import Tokenizer, load_tokenizer
from docmt.text.tokenizer import SpecialTokens

WEIGHTS_FILE = "model.safetensors"
CONFIG_FILE = "config.json"
CARD_FILE = "README.md"
DOCMT_VERSION = version("docmt")
RUN_MODEL = "model"
"""Where a run directory keeps its final model."""


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
        lines = [*front, "---", "", f"# {self.title}", "", f"System `{config.system}`, {size}, {pair}.", ""]
        lines += ["Use it with `docmt translate DIRECTORY FILE`.", ""]
        for heading, facts in (("Data", self.data), ("Training", self.training)):
            if facts:
                lines += [f"## {heading}", "", *(f"- {_readable(key)}: {value}" for key, value in facts.items()), ""]
        if self.scores:
            lines += ["## Scores", "", "| metric | score | signature |", "|---|---|---|"]
            for score in self.scores:
                signature = str(score.get("signature", "")).replace("|", "\\|")  # a bar would end the cell
                lines.append(f"| {score['name']} | {score['score']:.2f} | `{signature}` |")
            lines.append("")
        if self.recipe:
            recipe = json.dumps(self.recipe, indent=2, ensure_ascii=False)
            lines += ["## Recipe", "", "```json", recipe, "```", ""]
        return "\n".join(lines)


def save_model(
    directory: Path, model: TranslationModel, tokenizer: Tokenizer, card: ModelCard | Mapping[str, Any] | None = None
) -> None:
    """Writes a model directory, complete or not at all; one that is there is replaced.

    `card` may be a mapping with the fields of ModelCard. Raises DocmtError when it cannot be written.
    """
    if not isinstance(card, ModelCard):
        card = ModelCard(**(card or {}))
    parameters = sum(parameter.numel() for parameter in model.parameters())
    with atomic_directory(directory) as temporary:
        save_tensors(temporary / WEIGHTS_FILE, model.state_dict())
        config = {
            "docmt_version": DOCMT_VERSION,
            "source_language": card.source_language,
            "target_language": card.target_language,
            "model": asdict(model.config),
        }
        (temporary / CONFIG_FILE).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
        tokenizer.save(temporary)
        text = card.markdown(model.config, parameters).encode("utf-8", "backslashreplace")  # names of files are in it
        (temporary / CARD_FILE).write_bytes(text)


def load_model(directory: Path | str, device: torch.device | str = "cpu") -> TranslationModel:
    """The model of a model directory (or of a run directory's `model`), ready to translate (eval mode).

    Raises DocmtError when files are missing, damaged, or do not fit together, and for a device that is not there.
    """
    check_device(device)
    directory = find_model(directory)
    config = load_model_config(directory)
    # No memory, no random numbers and no time for weights that are replaced at once.
    with torch.device("meta"), _Unfilled():
        model = TranslationModel(config)
    model.to_empty(device=device)
    load_weights(model, directory / WEIGHTS_FILE)
    return model.eval()


class _Unfilled(TorchFunctionMode):
    """Leaves weights as they are where random numbers would be drawn: on "meta" that loads half of torch (1 s)."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in (Tensor.normal_, Tensor.uniform_) or getattr(func, "__module__", "") == "torch.nn.init":
            return kwargs["tensor"] if "tensor" in kwargs else args[0]
        return func(*args, **kwargs)


def check_device(device: torch.device | str) -> None:
    """Raises DocmtError for a device that is not there."""
    try:
        torch.zeros(1, device=device).tolist()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        no_gpu = str(device).startswith("cuda") and not torch.cuda.is_available()
        reason = "PyTorch sees no GPU" if no_gpu else "no such device"
        raise DocmtError(f"device {device} cannot be used here ({reason}): choose cpu") from error


def load_model_tokenizer(directory: Path | str) -> Tokenizer:
    """The tokenizer of a model directory. Raises DocmtError if it is missing or damaged."""
    return load_tokenizer(find_model(directory))


def load_model_config(directory: Path | str) -> ModelConfig:
    """The architecture stored in a model directory. Raises DocmtError if the file is missing or not understood."""
    path = find_model(directory) / CONFIG_FILE
    values = read_json(path)
    if not isinstance(values.get("model"), dict):
        raise DocmtError(f'{path} has no entry "model": copy the model directory again')
    try:
        config = ModelConfig.from_dict(values["model"])
        check_number("model.vocabulary_size", config.vocabulary_size, (SpecialTokens.count, MANY))
        return config
    except (DocmtError, TypeError, ValueError) as error:
        written_by = values.get("docmt_version", "an unknown version")
        raise DocmtError(
            f"{path} is not understood ({error}; written by docmt {written_by}, read by {DOCMT_VERSION}): "
            "copy the model directory again, or use the docmt that wrote it"
        ) from error


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


def find_model(directory: Path | str) -> Path:
    """The model directory meant: `directory` itself, or `model` inside of a run directory.

    Raises DocmtError saying what was looked for.
    """
    directory = Path(directory)
    for candidate in (directory, directory / RUN_MODEL):
        if (candidate / CONFIG_FILE).is_file() or (candidate / WEIGHTS_FILE).is_file():
            return candidate
    if not directory.exists():
        raise DocmtError(f"there is no directory {directory}: give a model directory or a run directory")
    if (directory / "checkpoints").is_dir():
        raise DocmtError(
            f"the run {directory} has no finished model yet ({directory / RUN_MODEL} is missing): "
            "resume the training to its end"
        )
    raise DocmtError(
        f"{directory} is not a model directory: neither {CONFIG_FILE} and {WEIGHTS_FILE} nor "
        f"a folder '{RUN_MODEL}' with them is in it"
    )


def load_weights(model: TranslationModel, path: Path) -> None:
    """Copies the tensors of a safetensors file into `model`.

    Raises DocmtError if the file is missing or damaged, or has other names or shapes than the model.
    """
    tensors = read_tensors(path)
    expected = model.state_dict()
    for name, tensor in expected.items():
        if name not in tensors:
            raise DocmtError(f"{path} has no weights for {name}: it belongs to another model, copy the directory again")
        if tensors[name].shape != tensor.shape:
            raise DocmtError(
                f"{path} has {name} of shape {list(tensors[name].shape)} where the config asks for "
                f"{list(tensor.shape)}: it belongs to another model, copy the directory again"
            )
    unknown = sorted(set(tensors) - set(expected))
    if unknown:
        raise DocmtError(
            f"{path} has weights for {unknown[0]}, which the config does not: "
            "it belongs to another model, copy the directory again"
        )
    model.load_state_dict(tensors)


def save_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Writes a safetensors file (not atomic: for use inside of `atomic_path` and `atomic_directory`).

    Raises OSError when the system refuses.
    """
    try:
        save_file({name: tensor.detach().contiguous() for name, tensor in tensors.items()}, path)
    except SafetensorError as error:  # how the library reports a full disk, among others
        number = re.search(r"os error (\d+)", str(error))
        raise OSError(int(number[1]), os.strerror(int(number[1]))) if number else OSError(str(error)) from error


def read_tensors(path: Path) -> dict[str, Tensor]:
    """All tensors of a safetensors file, on the CPU. Raises DocmtError if it is missing or damaged."""
    check_regular(path)
    try:
        # The library opens no file whose name is not UTF-8.
        return load_file(path) if _is_text(str(path)) else load(path.read_bytes())
    except FileNotFoundError as error:
        raise DocmtError(f"{path} is missing: copy the directory again, complete") from error
    except (SafetensorError, OSError) as error:
        raise DocmtError(f"{path} is damaged ({error}): copy it again from where it came") from error


def _is_text(name: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in name)


def _readable(key: str) -> str:
    return key.replace("_", " ")
