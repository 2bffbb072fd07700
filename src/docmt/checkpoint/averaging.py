"""The mean of the weights of several checkpoints as one model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

from torch import Tensor

from docmt.checkpoint.model_directory import (
    ModelCard,
    find_drafter,
    load_languages,
    load_model,
    load_model_config,
    load_model_tokenizer,
    load_model_weights,
    same_drafters,
    save_model,
)
from docmt.checkpoint.weights import read_weights
from docmt.core.errors import DocmtError
from docmt.core.settings import difference, plain

# What two models may have been trained with and still be of one architecture.
_NO_MATTER = ("preset", "dropout", "attention_dropout")


def average_models(models: Sequence[Path | str], output: Path) -> None:
    """Writes a model directory with the mean of the weights of these models, whose card says so.

    models: model directories, checkpoints, or runs, which stand for their models (see `find_model`).
    Raises DocmtError for models of another architecture or vocabulary than the first, and for an output that is there.
    """
    first, *others = models
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise DocmtError(f"{output} is there already: remove it, or choose another --output")
    for other in others:
        _check_alike(first, other)
    languages = {load_languages(model) for model in models}
    source, target = languages.pop() if len(languages) == 1 else ("", "")
    model = load_model(first)
    model.load_state_dict(_mean((str(model), load_model_weights(model)) for model in models))
    facts = {"weights": f"mean of those of {len(models)} models", "averaged": ", ".join(map(str, models))}
    card = ModelCard(output.resolve().name, source_language=source, target_language=target, training=facts)
    drafter = find_drafter(first) if model.system.context_spec().drafts else None
    save_model(output, model, load_model_tokenizer(first), card, drafter)


def _check_alike(first: Path | str, other: Path | str) -> None:
    ours, theirs = plain(load_model_config(first)), plain(load_model_config(other))
    for name, value, found in difference(ours, theirs):
        if name not in _NO_MATTER:
            raise DocmtError(
                f"model.{name} is {found!r} in {other}, but {value!r} in {first}: average models of one architecture"
            )
    if not load_model_tokenizer(first).same_words(load_model_tokenizer(other)):
        raise DocmtError(f"{other} has another vocabulary than {first}: average models of one tokenizer")
    if load_model_config(first).chosen.context_spec().drafts and not same_drafters(first, other):
        raise DocmtError(f"{other} reads drafts of another model than {first}: average models of one store")


def average_weights(paths: Sequence[Path]) -> dict[str, Tensor]:
    """The mean of the tensors of safetensors files with the same names, summed in float64.

    Raises DocmtError if a file is missing or damaged, or has other tensors than the first.
    """
    return _mean((str(path), read_weights(path)) for path in paths)


def _mean(models: Iterable[tuple[str, dict[str, Tensor]]]) -> dict[str, Tensor]:
    """The mean of the tensors of each model (what to call it, tensors by name), one model in memory at a time."""
    found = iter(models)
    first, weights = next(found)
    sums, count = {name: tensor.double() for name, tensor in weights.items()}, 1
    for other, tensors in found:
        for name in {**weights, **tensors}:
            if name not in tensors or name not in weights or tensors[name].shape != weights[name].shape:
                raise DocmtError(f"{other} and {first} are not of the same model (at {name}): copy the run again")
            sums[name] += tensors[name]
        count += 1
    return {name: (total / count).to(weights[name].dtype) for name, total in sums.items()}


def updates_to_average(
    measured: Sequence[tuple[int, float]], which: Literal["none", "last", "best"], count: int, higher_is_better: bool
) -> list[tuple[int, float]]:
    """Those of the (update, score) pairs, in order of time, whose weights belong to the average so far."""
    if which == "none":
        return []
    if which == "last":
        return list(measured[-count:])
    ranked = sorted(measured, key=lambda pair: -pair[1] if higher_is_better else pair[1])
    return sorted(ranked[:count])
