"""Which weights of a model are trained, and how fast: by patterns on their names."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from torch import nn

from docmt.core.errors import DocmtError
from docmt.core.settings import shown
from docmt.model import TranslationModel
from docmt.training.config import OptimizerConfig

_NEAREST = 3  # names in the message on a pattern that fits none


def fitting(flag: str, pattern: str, names: Collection[str], what: str = "weight") -> list[str]:
    """Those of the names that a pattern (* ? [..]) fits. Raises DocmtError, with the nearest names, if there are none.

    what: the names are of, for the message.
    """
    found = [name for name in names if fnmatchcase(name, pattern)]
    if not found:
        nearest = difflib.get_close_matches(pattern, names, n=_NEAREST, cutoff=0)
        raise DocmtError(
            f"{flag} has {shown(pattern)}, which fits no {what} here: the nearest are {', '.join(nearest)}"
        )
    return found


def freeze(model: TranslationModel, words: Sequence[str], new_weights: Collection[str]) -> None:
    """Keeps the loaded weights that these words or patterns (`TrainConfig.frozen`) mean from being trained.

    What is new is random and always trained. Raises DocmtError where nothing would be, and for a pattern that fits
    nothing.
    """
    loaded = [name for name, _ in model.named_parameters() if name not in new_weights]
    frozen = {name for word in words for name in _meant(model, word, loaded)}
    if not any(own.requires_grad and name not in frozen for name, own in model.named_parameters()):
        raise DocmtError(
            f"freeze {','.join(words)} would freeze everything, as initialize_from has every weight of this model: "
            "freeze less, or choose a system with weights of its own"
        )
    for name in frozen:
        model.get_parameter(name).requires_grad_(False)


def _meant(model: TranslationModel, word: str, loaded: Sequence[str]) -> Iterable[str]:
    """The names of the loaded weights that a word of `freeze`, or a pattern, means."""
    if word == "loaded":
        return loaded
    modules = {
        "embeddings": (*model.parts.tables(), "source_positions", "target_positions"),
        "encoder": ("encoder", "encoder_norm"),
        "decoder": ("decoder", "decoder_norm"),
    }.get(word)
    if modules is None:
        return fitting("freeze", word, loaded, "loaded weight")
    return [name for name in loaded if name.startswith(tuple(f"{module}." for module in modules))]


def trained(model: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters that are not frozen, by name."""
    return {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}


def parameter_groups(
    parameters: Mapping[str, nn.Parameter],
    names: Sequence[str],
    settings: OptimizerConfig,
    new_weights: Collection[str],
) -> list[dict[str, Any]]:
    """What the optimiser trains, `parameters` by name, in groups with the factor (`scale`) of their learning rate.

    names: of all weights of the model, frozen ones too. Raises DocmtError for a pattern that fits none, and for
    settings without an effect on any that is trained.
    """
    loaded = [name for name in parameters if name not in new_weights] if settings.loaded_scale != 1 else []
    scales = dict.fromkeys(parameters, 1.0) | dict.fromkeys(loaded, settings.loaded_scale)
    if settings.loaded_scale != 1 and not loaded:
        raise DocmtError("optimizer.loaded_scale has no effect, as all loaded weights are frozen: leave it out")
    for name, factor in _factors(settings, names, parameters).items():
        scales[name] *= factor
    groups: dict[float, list[nn.Parameter]] = {}
    for name, scale in scales.items():
        groups.setdefault(scale, []).append(parameters[name])
    return [{"params": group, "scale": scale} for scale, group in groups.items()]


def _factors(settings: OptimizerConfig, names: Sequence[str], trained: Collection[str]) -> dict[str, float]:
    """The factor of each trained weight that a pattern fits, by name."""
    chosen: dict[str, int] = {}
    for number, (pattern, _) in enumerate(settings.factors):
        chosen |= {name: number for name in fitting("optimizer.rates", pattern, names) if name in trained}
    for number, rate in enumerate(settings.rates):
        if number not in chosen.values():
            raise DocmtError(
                f"optimizer.rates has {shown(rate)}, which has no effect: its weights are frozen, or a later pattern "
                "fits them; leave it out"
            )
    return {name: settings.factors[number][1] for name, number in chosen.items()}
