"""Codes of languages: are two of them one language, and in what direction is it written?

Codes are BCP 47 tags (en-US, zh-Hans), locales (en_US) or those of models (eng_Latn of NLLB, en_XX of mBART).
"""

from __future__ import annotations

import re
from functools import cache, lru_cache

from docmt.core.settings import read_package_yaml

_TAG = re.compile(r"([A-Za-z]{2,3})(?:[-_][A-Za-z]{4})?(?:[-_](?:[A-Za-z]{2}|\d{3}))?")
_SCRIPTS_IN_USE = frozenset(["az", "bo", "ks", "ku", "ms", "pa", "sd", "sr", "tg", "ug", "uz", "yue", "zh"])
"""Languages that are written in several scripts, so that their tags name it."""
_RIGHT_TO_LEFT_SCRIPTS = frozenset(["adlm", "arab", "aran", "hebr", "mand", "nkoo", "rohg", "samr", "syrc", "thaa"])
_RIGHT_TO_LEFT_CODES = """
    acm acq aeb ajp apc apd ar arc ars ary bal bqi ckb dv fa glk he lrc mzn nqo prs ps sd skr syr ug ur yi
"""
_RIGHT_TO_LEFT = frozenset(_RIGHT_TO_LEFT_CODES.split())


@cache
def _short_codes() -> dict[str, str]:
    return read_package_yaml(__package__, "short_language_codes.yaml")


def _split(code: str) -> tuple[str, str, str]:
    """Return the language (short form), script and region of a code, each perhaps empty."""
    language, *others = re.split(r"[-_.@]", code.strip().lower())
    script = next((part for part in others if re.fullmatch("[a-z]{4}", part)), "")
    region = next((part for part in others if re.fullmatch(r"[a-z]{2}|\d{3}", part)), "")
    return _short_codes().get(language, language), script, "" if region == "xx" else region


def primary_language(code: str) -> str:
    """Return the primary language of a code in its shortest form: en of en-US and of eng_Latn."""
    return _split(code)[0]


def is_same_language(first: str, second: str) -> bool:
    """Return whether two codes name one language, whatever its region and script. An empty code is any language."""
    one, other = primary_language(first), primary_language(second)
    return one == other or not one or not other or "und" in (one, other)


@lru_cache(4096)
def language_distance(code: str, wanted: str) -> int | None:
    """Return how well a code fits a language that is wanted: 0 (same tag) to 2 (another region), None: not at all."""
    if not is_same_language(code, wanted):
        return None
    tags = format_language_tag(code), format_language_tag(wanted)
    return 0 if tags[0] == tags[1] or "und" in tags else 1 if tags[0] in tags[1] or tags[1] in tags[0] else 2


@cache
def language_names() -> dict[str, str]:
    """Return the English names of languages by their shortest codes."""
    return read_package_yaml(__package__, "language_names.yaml")


@lru_cache(4096)
def find_language(text: str) -> str:
    """Return the code that a text is (de, de-AT, ger), or that of the language it names; empty if it is none.

    Only codes of common languages count, as any short word might be one.
    """
    match = _TAG.fullmatch(text.strip())
    if match and (match[1].lower() in _short_codes() or match[1].lower() in language_names()):
        return text.strip()
    return _codes_of_names().get(text.partition("(")[0].strip().casefold(), "")


@cache
def _codes_of_names() -> dict[str, str]:
    others = read_package_yaml(__package__, "other_language_names.yaml")
    names = {name.casefold(): code for code, several in others.items() for name in several}
    return names | {name.casefold(): code for code, name in reversed(language_names().items())}


def format_language_tag(code: str) -> str:
    """Return the BCP 47 tag of a code: en of eng_Latn, zh-Hans of zho_Hans, pt-BR of pt_BR; und of an empty one."""
    language, script, region = _split(code)
    if not re.fullmatch("[a-z]{2,8}", language):
        return "und"
    named = script.title() if language in _SCRIPTS_IN_USE or "_" not in code else ""
    return "-".join(filter(None, (language, named, region.upper())))


def is_right_to_left(code: str) -> bool:
    """Return whether a language (or a script, if the code names one) is written from right to left."""
    language, script, _ = _split(code)
    return script in _RIGHT_TO_LEFT_SCRIPTS if script else language in _RIGHT_TO_LEFT


def text_direction(code: str) -> str:
    """Return "rtl" or "ltr", the direction of a language."""
    return "rtl" if is_right_to_left(code) else "ltr"
