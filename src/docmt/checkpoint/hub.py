"""Models of the Hugging Face hub: what a repository holds, its download, and its conversion to a model directory.

The library huggingface_hub (extra `hub`) does the work: cache, resumption, locks, tokens, HF_ENDPOINT, HF_HOME and
HF_HUB_OFFLINE are its. Offline, nothing but its cache is read.
"""

from __future__ import annotations

import fnmatch
import json
import logging
import os
import re
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import yaml

from docmt.checkpoint.hf_import import check_languages, convert_huggingface
from docmt.checkpoint.model_directory import (
    CARD_FILE,
    DOCMT_VERSION,
    DRAFTER_FOLDER,
    ModelCard,
    check_not_existing,
    copy_model,
    load_languages,
    load_model,
)
from docmt.checkpoint.model_names import HUB_ID_KEY, HUB_REVISION_KEY, describe_origin, models_folder
from docmt.checkpoint.weights import CONFIG_FILE, INDEX_SUFFIX, PICKLE_FILE, WEIGHTS_FILE, check_pickle, read_weight_map
from docmt.core.errors import DocmtError, missing_package_error, printable
from docmt.core.files import atomic_directory, lock, read_json, write_error, writing
from docmt.core.logging import is_quiet

_PAIR_IN_NAME = re.compile(r"(?<![a-zA-Z_])(?=([a-z]{2,3})-([a-z]{2,3})(?![a-zA-Z]))")
_PREFIX = re.compile(r"^(opus-)?mt-(tc-)?(bible-)?((big|base|small|tiny)-)?")
_LIBRARY = "docmt"
_IDENTITY = {"library_name": _LIBRARY, "library_version": DOCMT_VERSION}
_MODEL_FILES = (
    *(CARD_FILE, CONFIG_FILE, "generation_config.json", "special_tokens_map.json", "added_tokens.json"),
    *("tokenizer*", "*vocab*", "*.spm", "sentencepiece*", "spiece.model"),
)
_DOCMT_SUFFIXES = (".json", ".safetensors", ".model", ".txt", ".spm", ".md")
_WEIGHT_SUFFIXES = (".safetensors", ".bin")
# Of answers that are not the hub's (a login page of a network), and of hf_xet, which downloads large files.
_OTHER_ERRORS = (ValueError, KeyError, TypeError, AttributeError, RuntimeError)


@dataclass(frozen=True)
class HubModel:
    """A model in a repository of the hub."""

    hub_id: str
    revision: str
    """Its commit"""
    licence: str
    """As on its page, empty if it has none"""
    is_docmt: bool
    """True if it is a model directory of docmt already"""
    sizes: Mapping[str, int]
    """Bytes of the files that docmt needs"""

    @property
    def name(self) -> str:
        return self.hub_id.partition("/")[2]

    @property
    def size(self) -> int:
        """Bytes of all files that docmt needs."""
        return sum(self.sizes.values())


def open_repository(hub_id: str, revision: str = "") -> HubModel:
    """Return what a repository holds. Downloads nothing but its page, config and index of weights.

    revision: branch, tag or commit. Raises DocmtError for a repository that is missing, not accessible or without
    weights, and without network.
    """
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", hub_id):
        raise DocmtError(f"{hub_id} is no repository of the hub. Write it with its owner: Helsinki-NLP/opus-mt-en-de")
    with _library(hub_id, revision) as library:
        sizes, commit = _list_files(library, hub_id, revision or "main")
    if CONFIG_FILE not in sizes:
        raise DocmtError(f"{hub_id} has no {CONFIG_FILE}, so it is no model that docmt reads")
    # The first file is asked for by the revision's name, so that the cache knows the name offline.
    download_file(hub_id, revision or "main", CONFIG_FILE)
    card = _read_card(download_file(hub_id, commit, CARD_FILE)) if CARD_FILE in sizes else {}
    is_docmt = card.get("library_name") == _LIBRARY
    if is_docmt:
        names = {name for name in sizes if name.endswith(_DOCMT_SUFFIXES)}
    else:
        top = [name for name in sizes if "/" not in name]
        names = {name for name in top if any(fnmatch.fnmatchcase(name, pattern) for pattern in _MODEL_FILES)}
        names |= _weight_files(hub_id, commit, sizes)
    return HubModel(hub_id, commit, _read_licence(card), is_docmt, {name: sizes[name] for name in sorted(names)})


def download_model(model: HubModel, folder: Path, before_weights: Callable[[], None]) -> None:
    """Make the files of a model available in a folder, by links into the cache of the hub's library.

    before_weights: called when all other files are there. Pickled weights that are not in the cache yet are not put
    there, but into the folder itself. Raises DocmtError if the download fails. Whole files that have arrived are kept
    and not asked for again. On a terminal, the library shows the progress of each file.
    """
    weights = [name for name in model.sizes if name.endswith(_WEIGHT_SUFFIXES)]
    for name in [*sorted(model.sizes.keys() - set(weights)), *weights]:
        if weights and name == weights[0]:
            before_weights()
        size, path = model.sizes[name], folder / name
        source = download_file(model.hub_id, model.revision, name, folder if name.endswith(".bin") else None)
        if size and source.stat().st_size != size:
            raise DocmtError(
                f"{source} has {source.stat().st_size:,} bytes, not the {size:,} of {model.hub_id}. Remove it and "
                "pull again"
            )
        if source != path:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)
            path.symlink_to(source)


def download_file(hub_id: str, revision: str, name: str, folder: Path | None = None) -> Path:
    """Return the path of a file of a repository, in the cache or, if it is not there, in a folder.

    Raises DocmtError if it cannot be downloaded.
    """
    with _library(hub_id, revision) as library:
        cached = library.try_to_load_from_cache(hub_id, name, revision=revision)
        if isinstance(cached, str) and folder is not None:
            return Path(cached)
        return Path(library.hf_hub_download(hub_id, name, revision=revision, local_dir=folder, **_IDENTITY))


def _list_files(library: Any, hub_id: str, revision: str) -> tuple[dict[str, int], str]:
    """Return the sizes of all files of a repository and its commit; offline, of those in the cache."""
    if import_module("huggingface_hub.constants").HF_HUB_OFFLINE:
        cached = library.try_to_load_from_cache(hub_id, CONFIG_FILE, revision=revision)
        if not isinstance(cached, str):
            raise DocmtError(f"{hub_id} is not in the cache, and HF_HUB_OFFLINE is set. Pull it once without it")
        snapshot = Path(cached).parent
        paths = [path for path in snapshot.rglob("*") if path.is_file()]
        return {path.relative_to(snapshot).as_posix(): path.stat().st_size for path in paths}, snapshot.name
    info = library.HfApi(**_IDENTITY).model_info(hub_id, revision=revision, files_metadata=True)
    files = {file.rfilename: file.size or 0 for file in info.siblings or ()}
    return {name: size for name, size in files.items() if _is_safe(name)}, str(info.sha)


def _is_safe(name: str) -> bool:
    """Return whether the name of a file stays in its folder, is visible, and is at most one folder deep."""
    return bool(re.fullmatch(r"(?:[\w-][\w. -]*/)?[\w-][\w. -]*", name))


def _weight_files(hub_id: str, commit: str, names: Collection[str]) -> set[str]:
    """Return the files with weights: safetensors if there are any, or else pickled ones, in one file or in shards."""
    for name in (WEIGHTS_FILE, PICKLE_FILE):
        index = f"{name}{INDEX_SUFFIX}"
        if name in names:
            return {name}
        if index in names:
            shards = set(read_weight_map(download_file(hub_id, commit, index)).values())
            if missing := sorted(shards - set(names)):
                raise DocmtError(f"{hub_id} lacks {missing[0]}, which its {index} names")
            return {index, *shards}
    raise DocmtError(f"{hub_id} has neither {WEIGHTS_FILE} nor {PICKLE_FILE}, so docmt has no weights to convert")


def _read_card(path: Path) -> dict[str, Any]:
    """Return the front matter of a page, empty if there is none or it is damaged."""
    text = path.read_text(encoding="utf-8", errors="replace")
    match = re.match(r"---\s*\n(.*?)\n---\s*(?:\n|$)", text, re.DOTALL)
    try:
        card = yaml.safe_load(match[1]) if match else {}
    except (yaml.YAMLError, ValueError, RecursionError):
        return {}
    return card if isinstance(card, dict) else {}


def _read_licence(card: Mapping[str, Any]) -> str:
    licence = card.get("license") or ""
    if licence == "other":
        licence = card.get("license_name") or licence
    text = ", ".join(map(str, licence)) if isinstance(licence, list) else str(licence)
    return re.sub(r"[^\w.+, -]+", " ", text)[:100].strip()


@contextmanager
def _library(hub_id: str, revision: str = "") -> Iterator[Any]:
    """Yield the hub's library, without its messages while the block runs. Its errors become DocmtError."""
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")  # read when it is imported
    try:
        huggingface_hub = import_module("huggingface_hub")
        errors, constants = (import_module(f"huggingface_hub.{name}") for name in ("errors", "constants"))
    except ImportError as error:
        raise missing_package_error("docmt pull", "huggingface_hub", "hub") from error
    logger = logging.getLogger("huggingface_hub")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    if is_quiet():
        huggingface_hub.utils.disable_progress_bars()
    try:
        yield huggingface_hub
    except (errors.HTTPError, errors.EntryNotFoundError, OSError, *_OTHER_ERRORS) as error:
        raise _describe_error(error, hub_id, revision, constants.ENDPOINT) from error
    finally:
        logger.setLevel(level)


def _describe_error(error: Exception, hub_id: str, revision: str, endpoint: str) -> DocmtError:
    """Return the sentence for an error of the hub's library."""
    errors = import_module("huggingface_hub.errors")
    reason = printable(str(error).partition("\n")[0])[:200]
    if isinstance(error, errors.GatedRepoError):
        return DocmtError(
            f"{hub_id} is gated. Accept its terms on {endpoint}/{hub_id}, and log in with `hf auth login` or set "
            "HF_TOKEN"
        )
    if isinstance(error, errors.RevisionNotFoundError):
        return DocmtError(f"{hub_id} has no revision {revision}. Name a branch, a tag or a commit")
    status = getattr(getattr(error, "response", None), "status_code", None)
    if isinstance(error, errors.RepositoryNotFoundError) or status in (401, 403):
        return DocmtError(
            f"{endpoint} has no model {hub_id}, or it is private. Check its name, or log in with `hf auth login`"
        )
    if isinstance(error, errors.OfflineModeIsEnabled):
        return DocmtError(f"{hub_id} is not whole in the cache, and HF_HUB_OFFLINE is set. Pull it once without it")
    if isinstance(error, errors.LocalEntryNotFoundError) or (isinstance(error, errors.HTTPError) and status is None):
        cause = printable(str(error.__cause__ or error).partition("\n")[0])[:200]
        return DocmtError(f"{endpoint} cannot be reached for {hub_id} ({cause}). Check the network, and pull again")
    if isinstance(error, errors.HfHubHTTPError | errors.EntryNotFoundError):
        return DocmtError(f"{endpoint} does not give {hub_id} ({reason}). Pull again later")
    if isinstance(error, OSError) and error.errno is not None:
        return write_error(error.filename or "the cache of the hub", error)
    return DocmtError(f"{hub_id} was not downloaded ({reason}). Pull again")


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


def pull_model(model: HubModel, directory: Path, **conversion: Any) -> None:
    """Download a model and write it as a docmt model directory.

    conversion: source_language, target_language, prefix and keep_vocabulary as `convert_huggingface` takes them;
    languages are by default those in the name of the model. Raises DocmtError for a directory that exists, a failed
    download and an unsupported model. Then no directory is written, and what has been downloaded is kept for the next
    time.
    """
    check_not_existing(directory)
    if model.is_docmt and conversion:
        raise DocmtError(f"{model.hub_id} is a docmt model. Leave out the languages, --prefix and --keep-vocabulary")
    conversion = dict(zip(("source_language", "target_language"), find_pair(model.name), strict=True)) | conversion
    languages, prefix = (conversion["source_language"], conversion["target_language"]), conversion.get("prefix", "")
    card = ModelCard(model.name, license=model.licence, hub_id=model.hub_id, hub_revision=model.revision)
    with _download_folder(model, directory) as files:
        if model.is_docmt:
            download_model(model, files, lambda: None)
            _copy(model, files, directory)
            return
        download_model(model, files, lambda: check_languages(files, *languages, prefix))
        _check_pickles(files)
        convert_huggingface(files, directory, **conversion, allow_pickle=True, card=card)


@contextmanager
def _download_folder(model: HubModel, directory: Path) -> Iterator[Path]:
    """Yield a hidden folder beside a directory, locked for this process. It is removed unless the block fails.

    Raises DocmtError if another process pulls the model to a directory beside this one.
    """
    folder = directory.with_name(f".{model.name}.download")
    files = folder / model.name  # its name will be in the model card
    with writing(folder):
        directory.parent.mkdir(parents=True, exist_ok=True)
        with lock(directory.with_name(f".{model.name}.lock"), f"{model.hub_id} is being pulled", remove=True):
            files.mkdir(parents=True, exist_ok=True)
            check_not_existing(directory)
            yield files
            shutil.rmtree(folder, ignore_errors=True)


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
        config |= describe_origin(model.licence, model.hub_id, model.revision)
        (temporary / CONFIG_FILE).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
