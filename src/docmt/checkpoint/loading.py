"""What readers of other toolkits' checkpoints share: vocabularies, and weights under docmt's names into a model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from docmt.checkpoint.model_directory import model_on_meta
from docmt.checkpoint.weights import check_numbers
from docmt.core.errors import DocmtError
from docmt.core.files import read_bytes
from docmt.model import ModelConfig, TranslationModel


def read_symbols(path: Path, what: str) -> list[str]:
    """The lines of a vocabulary. Raises DocmtError, saying `what` it is, where it cannot be read or is no text."""
    data = read_bytes(path, what, advice="give that of the checkpoint")
    try:
        lines = data.decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise DocmtError(f"{path} is no text in UTF-8 ({error}): give {what} of the checkpoint") from error
    return lines[:-1] if lines[-1] == "" else lines


def load_renamed(config: ModelConfig, weights: Mapping[str, Tensor], checkpoint: Path) -> TranslationModel:
    """The model with these weights. Raises DocmtError where names or shapes are not those that it has, before it takes
    memory, or where weights are not numbers."""
    asks, advice = "its arguments ask for", "they belong to another checkpoint"
    model = model_on_meta(config, weights, f"{checkpoint} has", asks, advice)
    check_renamed(model.state_dict(), weights, checkpoint)
    model.load_state_dict(_apart(weights), assign=True)
    return model


def check_renamed(expected: Mapping[str, Tensor], weights: Mapping[str, Tensor], checkpoint: Path) -> None:
    """Raises DocmtError for weights of other names or shapes than expected, or that are not numbers."""
    if missing := sorted(set(expected) - set(weights)):
        raise DocmtError(f"{checkpoint} lacks weights for {missing[0]}: its arguments belong to another checkpoint")
    if surplus := sorted(set(weights) - set(expected)):
        raise DocmtError(f"{checkpoint} has weights {surplus[0]}, for which docmt's model has no place")
    for name, tensor in expected.items():
        if weights[name].shape != tensor.shape:
            raise DocmtError(
                f"{checkpoint} has {name} of shape {list(weights[name].shape)} where its arguments ask for "
                f"{list(tensor.shape)}: "
                "they belong to another checkpoint"
            )
    check_numbers(checkpoint, weights)


def _apart(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The same, each in memory of its own: some are one tensor in the checkpoint, but several in ours."""
    found: dict[str, Tensor] = {}
    places = set()
    for name, tensor in weights.items():
        found[name] = tensor.clone() if tensor.data_ptr() in places else tensor
        places.add(tensor.data_ptr())
    return found
