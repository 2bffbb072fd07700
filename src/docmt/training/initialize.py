"""Starting from the weights of another model."""

from __future__ import annotations

import logging
from pathlib import Path

import torch

from docmt.errors import DocmtError
from docmt.model import TranslationModel
from docmt.model_directory import find_model, load_model, load_model_tokenizer
from docmt.text import Tokenizer

_log = logging.getLogger(__name__)


def initialize_from(
    model: TranslationModel,
    directory: Path,
    tokenizer: Tokenizer,
    global_from_local: bool = False,
    gate_bias: float = 0.0,
) -> list[str]:
    """Copies the weights that `model` shares with a model directory; returns the names of those that stay random.

    Weights are matched by name. Where a sentence or document model starts a group model, its attention becomes the
    attention within sentences, and attention over the document and gates stay random (Bao et al. 2021, section 4.1);
    with `global_from_local` attention over the document starts as a copy of it as well, and only gates are random.
    The bias of new gates becomes `gate_bias`: well above 0 they begin almost closed to the rest of the document, and
    the model begins with what the loaded one could do.
    Raises DocmtError for another vocabulary, and for weights of another shape.
    """
    directory = find_model(directory)
    _check_vocabulary(directory, tokenizer)
    pretrained = load_model(directory).state_dict()
    own = model.state_dict()
    new, used = [], set()
    with torch.no_grad():
        for name, tensor in own.items():
            origin = _origin(name, own, pretrained, global_from_local)
            if origin is None:
                new.append(name)
                continue
            if pretrained[origin].shape != tensor.shape:
                raise DocmtError(
                    f"{name} has shape {list(tensor.shape)} but {list(pretrained[origin].shape)} in {directory}: "
                    "choose the model sizes of the model to start from"
                )
            tensor.copy_(pretrained[origin])
            used.add(origin)
        for name in new:
            if name.endswith(".gate.linear.bias"):
                own[name].fill_(gate_bias)
    _report(directory, len(own), new, sorted(set(pretrained) - used))
    return new


def _origin(
    name: str, own: dict[str, torch.Tensor], pretrained: dict[str, torch.Tensor], global_from_local: bool
) -> str | None:
    """The pretrained weight that `name` starts from, if any."""
    for site in (".attention", ".cross"):
        local, whole = f"{site}.local.", f"{site}.whole."
        # A layer that had one attention only, whatever its scope, gives it to the attention within sentences.
        if local in name and name not in pretrained and name.replace(local, whole) in pretrained:
            return name.replace(local, whole)
        twin = name.replace(whole, local)
        if whole in name and twin in own and twin not in pretrained and not global_from_local:
            return None
        if whole in name and name not in pretrained and twin in pretrained and global_from_local:
            return twin
    return name if name in pretrained else None


def _check_vocabulary(directory: Path, tokenizer: Tokenizer) -> None:
    if not load_model_tokenizer(directory).same_words(tokenizer):
        raise DocmtError(
            f"{directory} has another vocabulary than the training data: prepare the data with its tokenizer "
            f"(`docmt prepare --tokenizer_directory {directory}`)"
        )


def _report(directory: Path, total: int, new: list[str], unused: list[str]) -> None:
    _log.info("took %d of %d weights from %s", total - len(new), total, directory)
    if new:
        _log.info("new weights, random: %s", ", ".join(new))
    if unused:
        _log.info("not used of %s: %s", directory, ", ".join(unused))
