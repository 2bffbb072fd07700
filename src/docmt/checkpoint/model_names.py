"""Models by name or language pair: those in the data home and in the package.

The data home is the directory in the environment variable DOCMT_HOME, or else `docmt` in the user's data directory
(XDG_DATA_HOME). `docmt pull` writes models to its folder `models`.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import prod
from pathlib import Path
from typing import Any

from docmt.checkpoint.weights import CONFIG_FILE, WEIGHTS_FILE, read_shapes
from docmt.core.errors import DocmtError
from docmt.core.files import read_json, user_folder
from docmt.formats.language_codes import primary_language

PACKAGE_MODELS = Path(__file__).parents[1] / "models"
"""Folder of the models in the package."""
LICENSE_KEY, HUB_ID_KEY, HUB_REVISION_KEY = "license", "hub_id", "hub_revision"
"""Entries of a config on the origin of a model."""
_OPUS_MT = re.compile(r"opus-mt-[\w-]+")
_PAIR = re.compile(r"[a-z]{2,3}-[a-z]{2,3}")
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")

_ENCODER = "encoder"
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class InstalledModel:
    """A model in the data home or in the package."""

    name: str
    path: Path
    source_language: str
    """Language code, empty if unknown"""
    target_language: str
    """Language code, empty if unknown"""
    system: str
    parameters: int
    size: int
    """Bytes of its files"""
    licence: str
    """Identifier such as apache-2.0, empty if unknown"""
    hub_id: str
    """Repository on the hub that it comes from, or empty"""

    @property
    def is_encoder(self) -> bool:
        """True if it is an encoder alone, which does not translate."""
        return self.system == _ENCODER

    @property
    def pair(self) -> str:
        """Its languages in their shortest form, such as en-de; empty if unknown."""
        return join_pair(self.source_language, self.target_language)


def models_folder() -> Path:
    """Return the folder of pulled models. It may not exist yet."""
    return user_folder("models", "XDG_DATA_HOME", ".local/share")


def list_models() -> list[InstalledModel]:
    """Return the models in the data home, the latest first, then those in the package.

    A model that cannot be read is left out with a warning.
    """
    models = []
    for path in _model_paths():
        try:
            models.append(describe_installed(path))
        except DocmtError as error:
            _log.warning("%s", error)
    return models


def find_named_model(name: str) -> Path | None:
    """Return the directory of a model by name, hub id or language pair, or None.

    Names count before pairs, but the name of a model in the package may be a pair: then pulled models of the pair come
    first. Of several models of a pair, the one pulled last counts. This is logged once.
    """
    entries = [(path, _read_facts(path)) for path in _model_paths()]
    for path, facts in entries:
        is_pair = path.parent == PACKAGE_MODELS and name == join_pair(*_languages(facts))
        if name and name in (path.name, facts.get(HUB_ID_KEY)) and not is_pair:
            return path
    pairs = {_normalize_pair(name, number) for number in range(name.count("-"))}
    matches = [path for path, facts in entries if join_pair(*_languages(facts)) in pairs]
    others = [path.name for path in matches[1:] if path.parent != PACKAGE_MODELS]
    others += [f"{path} of the package" for path in matches[1:] if path == PACKAGE_MODELS / name]
    if others:
        _log_choice(name, matches[0].name, ", ".join(others))
    return matches[0] if matches else None


def parse_model_paths(model: Path | str | Sequence[Path | str]) -> list[Path]:
    """Return the directories in a path or name, in several with commas between them, or in a list.

    An existing path with a comma is one directory. Raises DocmtError for a comma without a name, and for values that
    are not paths.
    """
    for name in model if isinstance(model, list | tuple) else [model]:
        if not isinstance(name, str | Path):
            raise DocmtError(f"{name!r} is not a model. Give the path of a model or run directory, or a list of paths.")
    if isinstance(model, Path) or (isinstance(model, str) and ("," not in model or Path(model).exists())):
        return [find_path(model)]
    names = [str(name).strip() for name in (model.split(",") if isinstance(model, str) else model)]
    if not names or not all(names):
        raise DocmtError(f"{str(model)!r} lacks the name of a model. Give directories separated by single commas.")
    return [find_path(name) for name in names]


def find_path(name: Path | str) -> Path:
    """Return the directory of a model that has a name, or the path as it is.

    It is looked up once, as another model of a pair may be pulled while this one is read.
    """
    path = Path(name)
    return path if path.exists() else find_named_model(str(name)) or path


def find_package_model(name: str) -> Path | None:
    """Return the directory of a model in the package by name, even if a pulled model has that pair, or None."""
    return path if (path := PACKAGE_MODELS / name).is_dir() else None


def is_model_name(name: str) -> bool:
    """Return whether a text names a model that is there, or looks like a language pair. Existing paths do not count."""
    return not Path(name).exists() and (bool(_PAIR.fullmatch(name)) or find_named_model(name) is not None)


def suggest_pull(name: str) -> str:
    """Return the command that gets a missing model of this name, or an empty text if it looks like a path."""
    if _PAIR.fullmatch(name):
        return f"docmt pull Helsinki-NLP/opus-mt-{name}"
    if _OPUS_MT.fullmatch(name):
        return f"docmt pull Helsinki-NLP/{name}"
    return f"docmt pull {name}" if _HUB_ID.fullmatch(name) and not Path(name).parent.exists() else ""


def is_non_commercial(licence: str) -> bool:
    """Return whether a licence (an identifier as on the hub) forbids commercial use."""
    return "nc" in re.split(r"[^a-z0-9]+", licence.lower())


@cache
def warn_if_non_commercial(path: Path) -> None:
    """Log once, at the use of a model directory, that its licence forbids commercial use."""
    if is_non_commercial(licence := load_licence(path)):
        name = path.parent.name if path.name == "model" else path.name  # the folder of a run
        _log.warning("the licence of %s, %s, forbids commercial use", name, licence)


def load_licence(path: Path) -> str:
    """Return the licence of a model directory, empty if unknown. Raises DocmtError if the config is damaged."""
    return _text(read_json(path / CONFIG_FILE), LICENSE_KEY)


def describe_origin(licence: str, hub_id: str, revision: str) -> dict[str, str]:
    """Return the entries of a config on the origin of a model, as far as it is known."""
    entries = {LICENSE_KEY: licence, HUB_ID_KEY: hub_id, HUB_REVISION_KEY: revision}
    return {key: value for key, value in entries.items() if value}


def join_pair(source: str, target: str) -> str:
    """Return a language pair, such as en-de for eng_Latn and deu_Latn, or an empty text if a language is unknown."""
    return f"{primary_language(source)}-{primary_language(target)}" if source and target else ""


def _normalize_pair(name: str, number: int) -> str:
    """Return the pair that a name is if it is split at this hyphen."""
    parts = name.split("-")
    return join_pair("-".join(parts[: number + 1]), "-".join(parts[number + 1 :]))


@cache
def _log_choice(name: str, chosen: str, others: str) -> None:
    _log.warning("%s is the pair of several models. Using %s, pulled last; the others are %s", name, chosen, others)


def _model_paths() -> Iterator[Path]:
    """Yield model directories: of the data home, the latest first, then of the package."""
    for folder, key in ((models_folder(), _time), (PACKAGE_MODELS, str)):
        if folder.is_dir():
            visible = [path for path in folder.iterdir() if not path.name.startswith(".")]
            yield from sorted((path for path in visible if (path / CONFIG_FILE).is_file()), key=key)


def _time(path: Path) -> tuple[float, str]:
    """Return a sorting key that is lower for a later model."""
    return -(path / CONFIG_FILE).stat().st_mtime, path.name


def _read_facts(path: Path) -> Mapping[str, Any]:
    """Return the config of a model directory, empty if it is damaged."""
    try:
        return read_json(path / CONFIG_FILE)
    except DocmtError:
        return {}


def _languages(facts: Mapping[str, Any]) -> tuple[str, str]:
    return _text(facts, "source_language"), _text(facts, "target_language")


def _text(facts: Mapping[str, Any], name: str) -> str:
    value = facts.get(name)
    return value if isinstance(value, str) else ""


def count_parameters(path: Path) -> int:
    """Return the number of weights in a model directory. Raises DocmtError if they are missing or damaged."""
    return sum(map(prod, read_shapes(path / WEIGHTS_FILE).values()))


def describe_installed(path: Path) -> InstalledModel:
    """Return the facts of a model directory. Raises DocmtError if it is damaged."""
    facts = read_json(path / CONFIG_FILE)
    model = facts.get("model")
    is_encoder = isinstance(model, dict) and model.get("vocabulary_size") == 0
    return InstalledModel(
        path.name,
        path,
        *_languages(facts),
        system=_ENCODER if is_encoder else _text(model if isinstance(model, dict) else {}, "system"),
        parameters=count_parameters(path),
        size=sum(file.stat().st_size for file in path.rglob("*") if file.is_file()),
        licence=_text(facts, LICENSE_KEY),
        hub_id=_text(facts, HUB_ID_KEY),
    )
