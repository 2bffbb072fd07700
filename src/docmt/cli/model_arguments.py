"""Options that name models."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from docmt.core.errors import DocmtError
from docmt.decoding.search_config import FOR_TRANSLATE, ContextConfig, SearchConfig

Config = TypeVar("Config")
SEARCH_DETAILS = (*FOR_TRANSLATE, "length_penalty", "min_length", "temperature", "implementation", "sequential")
"""Settings of the search that commands do not have where a translation is not what they are for."""


def resolve_model_names(config: Config, *fields: str) -> Config:
    """Return a configuration with paths of models in the place of their names or pairs.

    fields: those that may name a model. Existing paths and unknown names stay.
    """
    values = {name: value for name in fields if (value := getattr(config, name)) and not Path(value).exists()}
    if not values:
        return config
    from docmt.checkpoint.model_names import find_named_model  # imported here because torch loads slowly

    paths: dict[str, Any] = {}
    for name, value in values.items():
        if (path := find_named_model(str(value))) is not None:
            paths[name] = type(value)(str(path))
    return replace(config, **paths)  # type: ignore[type-var]


def read_languages(model: str) -> tuple[str, str]:
    """Return the language codes of a model, whose weights are not loaded. Raises DocmtError as `Translator` does."""
    from docmt.checkpoint.model_directory import read_tokenizer_and_languages  # torch takes seconds
    from docmt.checkpoint.model_names import parse_model_paths

    return read_tokenizer_and_languages(parse_model_paths(model))[1]


def split_ensemble(path: str) -> list[str]:
    """Return the models of an ensemble (a path with commas), or the path alone."""
    return [path] if Path(path).exists() else path.split(",")


def is_model_path(path: str) -> bool:
    """Return whether a path is a directory or the name of a model, or an ensemble of them separated by commas."""
    from docmt.checkpoint.model_names import is_model_name

    return all(Path(member).is_dir() or is_model_name(member) for member in split_ensemble(path))


def check_unique(paths: Sequence[str], option: str) -> None:
    """Raise DocmtError for a repeated path."""
    resolved = [os.path.realpath(path) for path in paths]  # `Path.resolve` would fail for a cycle of links
    for number, path in enumerate(paths):
        if resolved[number] in resolved[:number]:
            raise DocmtError(f"{option} has {path} twice: name it once")


def short_names(paths: Sequence[str]) -> list[str]:
    """Return the shortest ends of paths that are unique, and the last part of a single path."""
    members = [[Path(member).parts for member in split_ensemble(path)] for path in paths]
    names = list(paths)
    for length in range(1, max(len(parts) for system in members for parts in system) + 1):
        names = [",".join(str(Path(*parts[-length:])) for parts in system) for system in members]
        if len(set(names)) == len(names):
            break
    return names


def check_models(models: Sequence[str], context: ContextConfig, search: SearchConfig) -> dict[str, tuple[str, str]]:
    """Check models before using any of them, without reading their weights. Return their language codes.

    Raises DocmtError for a model that is missing, damaged, or incompatible with the options. An error after hours of
    work with other models would be too late.
    """
    from docmt.checkpoint.model_directory import find_model, load_model_config, read_tokenizer_and_languages
    from docmt.checkpoint.model_names import parse_model_paths
    from docmt.checkpoint.weights import WEIGHTS_FILE, read_shapes
    from docmt.decoding.scheduler import check_context

    languages = {}
    for model in models:
        paths = parse_model_paths(model)
        for path in paths:
            if path.is_file():
                raise DocmtError(f"{path} is a file, not a model: name model directories only")
            check_context(search, context, load_model_config(path))
            read_shapes(find_model(path) / WEIGHTS_FILE)
        _, languages[model] = read_tokenizer_and_languages(paths)
    return languages
