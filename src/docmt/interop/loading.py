"""What readers of other toolkits' checkpoints share: vocabularies, and weights under docmt's names into a model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from docmt.errors import DocmtError
from docmt.files import read_bytes
from docmt.model import TranslationModel


def read_symbols(path: Path, what: str) -> list[str]:
    """The lines of a vocabulary. Raises DocmtError, saying `what` it is, where it cannot be read or is no text."""
    data = read_bytes(path, what, advice="give that of the checkpoint")
    try:
        lines = data.decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise DocmtError(f"{path} is no text in UTF-8 ({error}): give {what} of the checkpoint") from error
    return lines[:-1] if lines[-1] == "" else lines


def load_renamed(model: TranslationModel, weights: Mapping[str, Tensor], checkpoint: Path) -> None:
    """Puts the weights into the model. Raises DocmtError where names or shapes are not those that it has."""
    expected = model.state_dict()
    if missing := sorted(set(expected) - set(weights)):
        raise DocmtError(f"{checkpoint} lacks weights for {missing[0]}: its arguments belong to another checkpoint")
    if surplus := sorted(set(weights) - set(expected)):
        raise DocmtError(f"{checkpoint} has weights {surplus[0]}, for which docmt's model has no place")
    for name, tensor in expected.items():
        if weights[name].shape != tensor.shape:
            raise DocmtError(
                f"{checkpoint} has {name} of shape {list(weights[name].shape)} where its arguments ask for "
                f"{list(tensor.shape)}: they belong to another checkpoint"
            )
    model.load_state_dict(weights)
