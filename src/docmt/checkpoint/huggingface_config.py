"""What the config.json of a model of transformers says, in docmt's words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from docmt.checkpoint.huggingface_files import CONFIG_FILE
from docmt.core.errors import DocmtError
from docmt.core.files import read_json
from docmt.core.settings import shown
from docmt.model.families import FAMILIES
from docmt.model.families.family import HuggingFace

START = "decoder_start_token_id"
_TOKENIZER_CONFIG = "tokenizer_config.json"
_KINDS = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}


def family_of(directory: Path, values: Mapping[str, Any]) -> str:
    """The name of the family that the directory's model is of. Raises DocmtError where docmt has none."""
    kind = values.get("model_type")
    known = {name: own.huggingface for name, own in FAMILIES.items() if own.huggingface is not None}
    fitting = [name for name, about in known.items() if kind in about.types]
    if not fitting:
        why = "" if values.get("is_encoder_decoder") else ", a model without an encoder and a decoder"
        raise DocmtError(
            f"{directory / CONFIG_FILE} has model_type {shown(kind)}{why}: docmt translates with encoder-decoder "
            f"models of the types {_types(encoders=False)}, and starts trainings from encoders of the types "
            f"{_types(encoders=True)}"
        )
    path = directory / _TOKENIZER_CONFIG
    tokenizer = values.get("tokenizer_class") or (read_json(path).get("tokenizer_class") if path.is_file() else None)
    start, pad = (id_in_generation(directory, values, entry) for entry in (START, "pad_token_id"))
    pad_begins = None in (start, pad) or start == pad
    told = [name for name in fitting if tokenizer in known[name].tokenizers or known[name].pad_begins is pad_begins]
    return (told or fitting)[0]


def about_family(name: str) -> HuggingFace:
    """How transformers has a family."""
    about = FAMILIES[name].huggingface
    assert about is not None
    return about


def read_sizes(directory: Path, values: Mapping[str, Any], about: HuggingFace) -> dict[str, Any]:
    """The sizes that config.json says, by our names. Raises DocmtError, naming the entry, for what our model is not."""
    path = directory / CONFIG_FILE
    for entry, allowed in about.fixed.items():
        if (found := values.get(entry, about.usual.get(entry, allowed[0]))) not in allowed:
            raise DocmtError(f"{path} has {entry} = {shown(found)}, where docmt's model has {_among(allowed)}")
    sizes = dict(about.sizes)
    for name, entries in about.entries.items():
        found = {entry: _entry(path, values, entry, about) for entry in entries}
        first, *others = entries
        if different := [entry for entry in others if found[entry] != found[first]]:
            raise DocmtError(
                f"{path} has {first} = {found[first]} and {different[0]} = {found[different[0]]}: docmt's model has "
                "one setting for both"
            )
        sizes[name] = found[first]
    return sizes


def _entry(path: Path, values: Mapping[str, Any], entry: str, about: HuggingFace) -> Any:
    """An entry of a config as our setting has it."""
    usual, value = about.usual[entry], values.get(entry)
    if isinstance(usual, str) and usual in about.usual:
        return _entry(path, values if value is None else {usual: value}, usual, about)
    value = usual if value is None else value
    kind = float if isinstance(usual, float) else type(usual)
    if isinstance(value, bool) != (kind is bool) or not isinstance(value, (int, float) if kind is float else kind):
        raise DocmtError(f"{path} has {entry} = {shown(value)}: give {_KINDS[kind]}")
    known = about.values.get(entry)
    if known is not None and str(value) not in known:
        raise DocmtError(f"{path} has {entry} = {shown(value)}, where docmt's model knows {', '.join(known)}")
    return value if known is None else known[str(value)]


def id_in_generation(directory: Path, values: Mapping[str, Any], entry: str) -> Any:
    """An id that matters in translation: what generation_config.json says, or else config.json (`values`)."""
    path = directory / "generation_config.json"
    found = read_json(path).get(entry) if path.is_file() else None
    return values.get(entry) if found is None else found


def _among(values: Sequence[object]) -> str:
    return " or ".join(map(shown, values))


def _types(*, encoders: bool) -> str:
    """The types of model that are read, of encoders or of others."""
    families = [own for own in FAMILIES.values() if (own.encoder is not None) == encoders]
    return ", ".join(sorted({kind for own in families if own.huggingface for kind in own.huggingface.types}))
