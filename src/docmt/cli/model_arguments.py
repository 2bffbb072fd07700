"""Options that name models."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

Config = TypeVar("Config")


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
