"""Averages of the weights of several checkpoints."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

from torch import Tensor

from docmt.checkpoint.model_directory import (
    CARD_FILE,
    ModelCard,
    find_drafter,
    find_model,
    have_same_drafter,
    load_alignment_layer,
    load_languages,
    load_model,
    load_model_config,
    load_model_tokenizer,
    load_model_weights,
    save_model,
)
from docmt.checkpoint.model_names import is_non_commercial, load_licence
from docmt.checkpoint.weights import StoredType, read_weights
from docmt.core.errors import DocmtError
from docmt.core.files import write_text
from docmt.core.settings import find_differences, to_mapping

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
    model.load_state_dict(_average((str(model), load_model_weights(model)) for model in models))
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


def average_weights(paths: Sequence[Path]) -> dict[str, Tensor]:
    """Return the mean of the tensors of safetensors files, summed in float64.

    Raises DocmtError if a file is missing or damaged, or has other tensors than the first.
    """
    return _average((str(path), read_weights(path)) for path in paths)


def _average(models: Iterable[tuple[str, dict[str, Tensor]]]) -> dict[str, Tensor]:
    """Return the mean of named models, given as (model name, tensors by name). Keeps one model in memory at a time."""
    iterator = iter(models)
    first, weights = next(iterator)
    sums, count = {name: tensor.double() for name, tensor in weights.items()}, 1
    for model_name, tensors in iterator:
        for name in {**weights, **tensors}:
            if name not in tensors or name not in weights or tensors[name].shape != weights[name].shape:
                raise DocmtError(f"{model_name} and {first} are different models (at {name}). Copy the run again")
            sums[name] += tensors[name]
        count += 1
    return {name: (total / count).float() for name, total in sums.items()}


def select_updates(
    scores: Sequence[tuple[int, float]], policy: Literal["none", "last", "best"], count: int, higher_is_better: bool
) -> list[tuple[int, float]]:
    """Return the (update, score) pairs, in order of time, whose weights belong to the average so far."""
    if policy == "none":
        return []
    if policy == "last":
        return list(scores[-count:])
    ranked = sorted(scores, key=lambda pair: -pair[1] if higher_is_better else pair[1])
    return sorted(ranked[:count])
