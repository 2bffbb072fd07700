"""Pulling: a model of the hub as a docmt model directory."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from docmt.checkpoint.hf_import import check_languages, convert_huggingface
from docmt.checkpoint.hub_repository import HubModel, download_model
from docmt.checkpoint.model_directory import (
    DRAFTER_FOLDER,
    ModelCard,
    check_not_existing,
    copy_model,
    load_languages,
    load_model,
)
from docmt.checkpoint.model_names import HUB_ID_KEY, HUB_REVISION_KEY, LICENSE_KEY, models_folder
from docmt.checkpoint.pickled_weights import check_pickle
from docmt.checkpoint.weights import CONFIG_FILE
from docmt.core.errors import DocmtError
from docmt.core.files import atomic_directory, lock, read_json, write_error

_PAIR_IN_NAME = re.compile(r"(?<![a-zA-Z_])(?=([a-z]{2,3})-([a-z]{2,3})(?![a-zA-Z]))")
_PREFIX = re.compile(r"^(opus-)?mt-(tc-)?(bible-)?((big|base|small|tiny)-)?")


def find_pair(name: str) -> tuple[str, str]:
    """Return the languages in the name of a model: en and de of opus-mt-tc-big-en-de; empty texts if it has none."""
    pairs = _PAIR_IN_NAME.findall(_PREFIX.sub("", name))
    return pairs[-1] if pairs else ("", "")


def choose_directory(model: HubModel, source_language: str = "", target_language: str = "") -> Path:
    """Return the directory of a model in the data home. Languages that were chosen are part of its name."""
    languages = "-".join(filter(None, (source_language, target_language)))
    return models_folder() / (f"{model.name}.{languages}" if languages else model.name)


def is_pulled(model: HubModel, directory: Path) -> bool:
    """Return whether a directory holds this model in this revision."""
    with suppress(DocmtError):
        config = read_json(directory / CONFIG_FILE)
        return (config.get(HUB_ID_KEY), config.get(HUB_REVISION_KEY)) == (model.hub_id, model.revision)
    return False


def pull_model(
    model: HubModel,
    directory: Path,
    *,
    source_language: str = "",
    target_language: str = "",
    prefix: str = "",
    keep_vocabulary: Sequence[Path] = (),
) -> None:
    """Download a model and write it as a docmt model directory.

    source_language, target_language, prefix, keep_vocabulary: see `convert_huggingface`; languages are by default those
    in the name of the model. Raises DocmtError for a directory that exists, a failed download and an unsupported model.
    Then no directory is written, and what has been downloaded is kept for the next time.
    """
    check_not_existing(directory)
    if model.is_docmt and (source_language or target_language or prefix or keep_vocabulary):
        raise DocmtError(f"{model.hub_id} is a docmt model. Leave out the languages, --prefix and --keep-vocabulary")
    languages = find_pair(model.name)
    source, target = source_language or languages[0], target_language or languages[1]
    card = ModelCard(model.name, license=model.licence, hub_id=model.hub_id, hub_revision=model.revision)
    with _download_folder(model, directory) as files:
        if model.is_docmt:
            download_model(model, files, lambda: None)
            _copy(model, files, directory)
            return
        download_model(model, files, lambda: check_languages(files, source, target, prefix))
        _check_pickles(files)
        convert_huggingface(
            files,
            directory,
            source_language=source,
            target_language=target,
            prefix=prefix,
            keep_vocabulary=keep_vocabulary,
            allow_pickle=True,
            card=card,
        )


@contextmanager
def _download_folder(model: HubModel, directory: Path) -> Iterator[Path]:
    """Yield a hidden folder beside a directory, locked for this process. It is removed unless the block fails.

    Raises DocmtError if another process pulls the model to a directory beside this one.
    """
    folder = directory.with_name(f".{model.name}.download")
    files = folder / model.name  # its name will be in the model card
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        with lock(directory.with_name(f".{model.name}.lock"), f"{model.hub_id} is being pulled", remove=True):
            files.mkdir(parents=True, exist_ok=True)
            check_not_existing(directory)
            yield files
            shutil.rmtree(folder, ignore_errors=True)
    except OSError as error:
        raise write_error(folder, error) from error


def _check_pickles(files: Path) -> None:
    """Check pickled weights. Raises DocmtError and removes one with anything but tensors."""
    for path in files.glob("*.bin"):
        try:
            check_pickle(path)
        except DocmtError:
            path.unlink()
            raise


def _copy(model: HubModel, files: Path, directory: Path) -> None:
    """Write a copy of a docmt model with its origin. Raises DocmtError if it is damaged."""
    load_model(files)
    load_languages(files)
    with atomic_directory(directory) as temporary:
        copy_model(files, temporary)
        if (files / DRAFTER_FOLDER).is_dir():
            copy_model(files / DRAFTER_FOLDER, temporary / DRAFTER_FOLDER)
        config = read_json(temporary / CONFIG_FILE)
        origin = {LICENSE_KEY: model.licence, HUB_ID_KEY: model.hub_id, HUB_REVISION_KEY: model.revision}
        config |= {key: value for key, value in origin.items() if value}
        (temporary / CONFIG_FILE).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
