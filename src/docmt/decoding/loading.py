"""Model directories as one model to translate with: a single one, or the members of an ensemble."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch

from docmt.checkpoint.model_directory import choose_device, load_languages, load_model, load_model_tokenizer
from docmt.core.errors import DocmtError
from docmt.decoding.ensemble import Ensemble, Model
from docmt.decoding.precision import Precision, check_precision, lower_precision
from docmt.model import TranslationModel
from docmt.text import Tokenizer


class Loaded(NamedTuple):
    """What translating needs of one or several model directories."""

    model: Model
    tokenizer: Tokenizer
    languages: tuple[str, str]
    """codes of the source and the target language, empty where no directory says"""


def model_paths(model: Path | str | Sequence[Path | str]) -> list[Path]:
    """The directories meant by a path, by several with commas between them, or by a list.

    What exists with a comma in its name is one directory. Raises DocmtError where there is a comma but no name, and
    for what is no path.
    """
    for name in model if isinstance(model, list | tuple) else [model]:
        if not isinstance(name, str | Path):
            raise DocmtError(f"{name!r} is no model: give the path of a model or run directory, or a list of such")
    if isinstance(model, Path) or (isinstance(model, str) and ("," not in model or Path(model).exists())):
        return [Path(model)]
    names = [str(name).strip() for name in (model.split(",") if isinstance(model, str) else model)]
    if not names or not all(names):
        raise DocmtError(f"{str(model)!r} lacks the name of a model: give directories, with one comma between two")
    return [Path(name) for name in names]


def load_members(paths: Sequence[Path], device: torch.device | str, precision: Precision) -> Loaded:
    """Loads the model, or the members of an ensemble, ready to translate.

    Raises DocmtError for directories that are missing, incomplete or damaged, and for models that do not belong
    together: of other tokenizers, other languages, or another way of decoding.
    """
    device = choose_device(device)
    check_precision(precision, device)
    tokenizer, languages = load_model_tokenizer(paths[0]), load_languages(paths[0])
    for number, path in enumerate(paths[1:], 1):
        languages = _check_same(paths[:number], path, tokenizer, languages)
    models = [load_checked(path, device, precision, tokenizer) for path in paths]
    return Loaded(
        models[0] if len(models) == 1 else Ensemble(models, [str(path) for path in paths]), tokenizer, languages
    )


def load_checked(path: Path, device: torch.device, precision: Precision, tokenizer: Tokenizer) -> TranslationModel:
    """The model of a directory in this precision. Raises DocmtError if the tokenizer is of another vocabulary."""
    model = lower_precision(load_model(path, device=device), precision)
    if tokenizer.vocabulary_size != model.config.vocabulary_size:
        raise DocmtError(
            f"the tokenizer in {path} has {tokenizer.vocabulary_size} entries, but the model "
            f"{model.config.vocabulary_size}: they do not belong together, copy the directory again"
        )
    return model


def _check_same(
    before: Sequence[Path], path: Path, tokenizer: Tokenizer, languages: tuple[str, str]
) -> tuple[str, str]:
    """The languages of the members before and of this one, as far as any of them says."""
    if not load_model_tokenizer(path).same_words(tokenizer):
        raise DocmtError(
            f"{before[0]} and {path} cannot translate as one: their tokenizers differ; choose models trained on one "
            "store"
        )
    theirs = load_languages(path)
    if any(one and other and one != other for one, other in zip(languages, theirs, strict=True)):
        raise DocmtError(
            f"{', '.join(map(str, before))} and {path} cannot translate as one: they are for {'-'.join(languages)} and "
            f"{'-'.join(theirs)}"
        )
    return languages[0] or theirs[0], languages[1] or theirs[1]
