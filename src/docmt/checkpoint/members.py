"""Directories of the models of a translator: their names, their drafter, and whether they belong together."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from docmt.checkpoint.model_directory import (
    CARD_FILE,
    find_drafter,
    find_model,
    have_same_drafter,
    languages_differ,
    load_languages,
    load_model,
    load_model_config,
    load_model_tokenizer,
)
from docmt.checkpoint.model_names import find_named_model
from docmt.core.errors import DocmtError
from docmt.model import TranslationModel
from docmt.model.products import Precision, prepare_products
from docmt.text import Tokenizer


def parse_model_paths(model: Path | str | Sequence[Path | str]) -> list[Path]:
    """Return the directories in a path or name, in several with commas between them, or in a list.

    An existing path with a comma is one directory. Raises DocmtError for a comma without a name, and for values that
    are not paths.
    """
    for name in model if isinstance(model, list | tuple) else [model]:
        if not isinstance(name, str | Path):
            raise DocmtError(f"{name!r} is not a model. Give the path of a model or run directory, or a list of paths.")
    if isinstance(model, Path) or (isinstance(model, str) and ("," not in model or Path(model).exists())):
        return [_find_path(model)]
    names = [str(name).strip() for name in (model.split(",") if isinstance(model, str) else model)]
    if not names or not all(names):
        raise DocmtError(f"{str(model)!r} lacks the name of a model. Give directories separated by single commas.")
    return [_find_path(name) for name in names]


def _find_path(name: Path | str) -> Path:
    """Return the directory of a model that has a name, or the path as it is.

    It is looked up once, as another model of a pair may be pulled while this one is read.
    """
    path = Path(name)
    return path if path.exists() else find_named_model(str(name)) or path


def read_tokenizer_and_languages(paths: Sequence[Path]) -> tuple[Tokenizer, tuple[str, str]]:
    """Return the tokenizer and language codes of a model or of the members of an ensemble, without loading weights.

    Raises DocmtError for members with different tokenizers or languages.
    """
    tokenizer, languages = load_model_tokenizer(paths[0]), load_languages(paths[0])
    for number, path in enumerate(paths[1:], 1):
        languages = _merge_languages(paths[:number], path, tokenizer, languages)
    return tokenizer, languages


def _merge_languages(
    earlier_paths: Sequence[Path], path: Path, tokenizer: Tokenizer, languages: tuple[str, str]
) -> tuple[str, str]:
    """Return the languages of these members together, as far as any of them has them."""
    if not load_model_tokenizer(path).has_same_vocabulary(tokenizer):
        raise DocmtError(
            f"{earlier_paths[0]} and {path} cannot form an ensemble: their tokenizers differ. Choose models trained on "
            "one store."
        )
    member_languages = load_languages(path)
    if any(one and other and one != other for one, other in zip(languages, member_languages, strict=True)):
        raise DocmtError(
            f"{', '.join(map(str, earlier_paths))} and {path} cannot form an ensemble: they translate "
            f"{'-'.join(languages)} and {'-'.join(member_languages)}."
        )
    return languages[0] or member_languages[0], languages[1] or member_languages[1]


def load_checked(path: Path, device: torch.device, precision: Precision, tokenizer: Tokenizer) -> TranslationModel:
    """Load the model of a directory in this precision. Raises DocmtError if the tokenizer has another vocabulary."""
    model = prepare_products(load_model(path, device=device), precision)
    if tokenizer.vocabulary_size != model.config.vocabulary_size:
        raise DocmtError(
            f"the tokenizer in {path} has {tokenizer.vocabulary_size} entries but the model has "
            f"{model.config.vocabulary_size}. Copy the directory again."
        )
    return model


def check_drafter(directory: Path, tokenizer: Tokenizer) -> None:
    """Raise DocmtError unless the model translates without drafts, into the words of this tokenizer."""
    if load_model_config(directory).system_options.context_spec().drafts:
        raise DocmtError(f"{directory} reads drafts itself. Draft with a model that does not, like a sentence model.")
    if not load_model_tokenizer(directory).has_same_vocabulary(tokenizer):
        raise DocmtError(
            f"the drafting model {directory} has another tokenizer than the model that reads the drafts. Draft with a "
            "model trained on the same store, or prepare the data with its tokenizer (`docmt prepare --tokenizer "
            f"{directory}`)."
        )


def find_common_drafter(readers: Sequence[Path]) -> Path:
    """Return the model that drafts for these models, which read drafts.

    Raises DocmtError where it is missing or damaged, and for readers of the drafts of different models.
    """
    for path in readers[1:]:
        if not have_same_drafter(readers[0], path):
            raise DocmtError(
                f"{readers[0]} and {path} cannot form an ensemble: they read drafts of different models. Choose models "
                "trained on one store with the same drafts."
            )
    drafter_path = find_drafter(readers[0])
    if languages_differ(languages := load_languages(readers[0]), drafter_languages := load_languages(drafter_path)):
        raise DocmtError(
            f"the drafter {drafter_path} translates from {drafter_languages[0]} to {drafter_languages[1]}, but "
            f"{readers[0]} translates from {languages[0]} to {languages[1]}. Copy the model directory again."
        )
    return drafter_path


def list_model_files(paths: Sequence[Path], with_drafter: bool) -> list[Path]:
    """Return the files of these models, and of the drafter that some of them read, that determine translations."""
    folders = [find_model(path) for path in paths]
    if with_drafter:
        readers = [path for path in paths if load_model_config(path).system_options.context_spec().drafts]
        folders += [find_drafter(readers[0])]
    files = [path for folder in folders for path in sorted(folder.iterdir()) if path.is_file()]
    return [path for path in files if path.name != CARD_FILE]
