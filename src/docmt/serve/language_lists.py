"""Languages of the models, with their English names."""

from __future__ import annotations

from functools import cache

from docmt.core.settings import read_package_yaml
from docmt.formats.language_codes import format_language_tag, primary_language
from docmt.serve.engine import Engine


@cache
def _language_names() -> dict[str, str]:
    names: dict[str, str] = read_package_yaml(__package__, "language_names.yaml")
    return names


def language_name(code: str) -> str:
    """Return the English name of a language; its code if none is known."""
    return _language_names().get(primary_language(code), code)


def list_pairs(engine: Engine) -> dict[str, list[str]]:
    """Return the tags of the target languages for each source language; models without languages are left out."""
    pairs: dict[str, list[str]] = {}
    for each in engine.describe_models():
        if each.source_language and each.target_language:
            targets = pairs.setdefault(format_language_tag(each.source_language), [])
            if (target := format_language_tag(each.target_language)) not in targets:
                targets.append(target)
    return pairs
