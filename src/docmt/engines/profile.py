"""Profiles of engines: where a server is, how it is asked, and what it may cost. They are YAML files.

A file names a packaged profile (`profile: chat`) and sets what differs.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from importlib.resources import files
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import yaml

from docmt.core.errors import DocmtError
from docmt.core.files import json_checksum
from docmt.core.plain_text import read_text
from docmt.core.settings import MANY, CheckedSettings, Excludes, OptionError, build, quote, ranged, read_yaml
from docmt.formats.language_codes import language_names, primary_language

PREFIX = "endpoint:"
"""Beginning of a MODEL that is the path of a profile."""
ServiceKind = Literal["chat", "completion", "libretranslate", "deepl", "docmt"]
_KEYS = ("key", "api_key", "apikey", "token", "password", "authorization")
_MODEL_KINDS = ("chat", "completion")
_OF_MODELS = "prompt temperature seed stream log_probabilities context.source_characters limits.answer_tokens prices"
_WITHOUT_EFFECT = {
    "completion": "prompt.system prompt.document context log_probabilities",
    "libretranslate": f"{_OF_MODELS} context.sentences",
    "deepl": _OF_MODELS,
    "docmt": _OF_MODELS,
}
"""Options that change nothing, by kind."""


@dataclass(frozen=True)
class PromptConfig:
    """Texts of a request. {source_language} and {target_language} are names, {source_code} and {target_code} codes."""

    system: str = ""
    """system message; empty: none"""
    document: str = ""
    """follows the system message where the source is shown; {document}: the source"""
    turn: Any = "{text}"
    """message of the user for a sentence, {text}; text, or content of another shape"""
    terms: str = "\n\n{terms}"
    """follows the sentence, if it has terms of the glossary; {terms}: these"""
    term: str = "{source} = {target}"
    """a term; {source}: the source text, {target}: the translations that are allowed"""
    again: str = ""
    """follows the sentence when it is asked again; {fault}: what was wrong with the answer"""


@dataclass(frozen=True)
class EngineContext(CheckedSettings, prefix="context."):
    """What of a document the server sees with a sentence."""

    sentences: int = ranged(0, 0, 10_000)
    """earlier sentences with their translations; without any, sentences are asked side by side"""
    source_characters: int = ranged(0, 0, MANY)
    """longest source that is shown whole; of a longer document, a part of this length; 0: it is not shown"""


@dataclass(frozen=True)
class EngineLimits(CheckedSettings, prefix="limits."):
    """How much is asked, and for how long."""

    requests: int = ranged(4, 1, 1000)
    """requests at one time"""
    seconds: float = ranged(120.0, 0.1, 86_400)
    """longest time of a request"""
    attempts: int = ranged(6, 1, 100)
    """how often a request is sent that the server cannot answer at the moment"""
    answer_tokens: int = ranged(0, 0, MANY)
    """longest answer, thinking included; 0: by the length of the sentence"""


@dataclass(frozen=True)
class EnginePrices(CheckedSettings, prefix="prices."):
    """Prices of a million tokens."""

    input: float = ranged(0.0, 0, MANY)
    output: float = ranged(0.0, 0, MANY)
    currency: str = "USD"


@dataclass(frozen=True)
class EngineProfile(CheckedSettings):
    """A server that translates sentences, and how it is asked."""

    url: str
    """base address, such as http://localhost:11434/v1"""
    source_language: str
    target_language: str
    kind: ServiceKind = "chat"
    """chat, completion: servers with the interface of OpenAI; libretranslate, deepl, docmt: with these"""
    name: str = ""
    """name in messages and lists; empty: that of the file"""
    model: str = ""
    """name of the model on the server"""
    key_variable: str = ""
    """environment variable that has the key of the server; empty: it needs none"""
    aligner: str = "auto"
    """model of docmt that links words; auto: one of the same languages, if any is installed; none: by the order"""
    temperature: float = ranged(0.0, 0, 100)
    seed: int = ranged(1, 0, 2**31 - 1)
    stream: bool = False
    """ask for the answer in pieces as they are made"""
    log_probabilities: bool = False
    """ask for log-probabilities, which are the scores (chat)"""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """further fields of each request, as the server knows them"""
    prompt: PromptConfig = PromptConfig()
    context: EngineContext = EngineContext()
    limits: EngineLimits = EngineLimits()
    prices: EnginePrices = EnginePrices()

    option_rules = tuple(
        Excludes(name, f"kind {kind}") for kind, names in _WITHOUT_EFFECT.items() for name in names.split()
    )

    def __post_init__(self) -> None:
        """Check the fields."""
        super().__post_init__()
        if not all(self.languages):
            raise OptionError("source_language", "or target_language is empty: give the code of the language")
        for code, word in language_names().items():
            if word.casefold() in map(str.casefold, self.languages):
                raise OptionError("source_language", f"or target_language is {word}: give the code, {code}")
        try:
            parts = urlsplit(self.url)
            host, port = (parts.hostname or "").encode("idna"), parts.port
        except ValueError:
            host, port = b"", 0
        if not host or port == 0 or parts.scheme not in ("http", "https") or not re.fullmatch("[!-~]+", self.url):
            raise OptionError("url", f"is {quote(self.url)}: give an address such as http://localhost:11434/v1")
        if parts.username or parts.password or parts.query or parts.fragment:
            raise OptionError("url", "has more than host and path: name the variable of the key with key_variable")
        if self.is_of_model and not self.model:
            raise OptionError("model", "is empty: give the name of the model on the server")
        for name, place in (("turn", "text"), ("document", "document"), ("terms", "terms")):
            value = getattr(self.prompt, name)
            if (value or name == "turn") and f"{{{place}}}" not in json.dumps(value):
                raise OptionError(f"prompt.{name}", f"has no place for {place}: add {{{place}}}")

    @property
    def is_of_model(self) -> bool:
        """Whether a language model answers, which has a name and prompts."""
        return self.kind in _MODEL_KINDS

    @property
    def languages(self) -> tuple[str, str]:
        """Source and target code."""
        return self.source_language, self.target_language

    @property
    def is_local(self) -> bool:
        """Whether the server is on this machine."""
        host = urlsplit(self.url).hostname or ""
        try:
            return ip_address(host).is_loopback
        except ValueError:
            return host == "localhost"

    def read_key(self) -> str:
        """Return the key. Raises DocmtError if its variable is not set."""
        key = os.environ.get(self.key_variable, "") if self.key_variable else ""
        if self.key_variable and not key.strip():
            raise DocmtError(f"{self.name} needs a key: set the environment variable {self.key_variable}")
        if not re.fullmatch("[!-~]*", key.strip()):
            raise DocmtError(
                f"{self.name}: {self.key_variable} has characters that no key has: set it to the key alone"
            )
        return key.strip()

    def describe(self) -> dict[str, Any]:
        """Return what determines answers: not how much is asked at one time, nor where a model is that has a name."""
        settings = asdict(self)
        for name in ("name", "key_variable", "limits", "prices", "stream", *(["url"] if self.model else [])):
            del settings[name]
        return {"engine": self.name, "profile": json_checksum(settings), "answer_tokens": self.limits.answer_tokens}

    def fill(self, template: Any, **values: str) -> Any:
        """Return a template with names of languages, codes and values in it, whatever its shape."""
        if isinstance(template, list):
            return [self.fill(each, **values) for each in template]
        if isinstance(template, dict):
            return {name: self.fill(each, **values) for name, each in template.items()}
        names = [language_names().get(primary_language(code), code) for code in self.languages]
        known = {"source_language": names[0], "target_language": names[1]}
        known |= {"source_code": self.source_language, "target_code": self.target_language, **values}
        parts = str(template).split("{")
        # What is filled in may have braces, so that each place is looked at once.
        text = parts[0]
        for part in parts[1:]:
            name, brace, rest = part.partition("}")
            text += known[name] + rest if brace and name in known else "{" + part
        return text


def is_endpoint(model: str) -> bool:
    """Return whether a MODEL is a server, `endpoint:PROFILE`."""
    return model.startswith(PREFIX)


def list_profiles() -> list[str]:
    """Return the names of the packaged profiles."""
    folder = files("docmt.engines").joinpath("profiles")
    return sorted(each.name.removesuffix(".yaml") for each in folder.iterdir() if each.name.endswith(".yaml"))


def read_profile(model: str) -> EngineProfile:
    """Return the profile of a MODEL, `endpoint:PATH`.

    Raises DocmtError for a file that cannot be read, names no packaged profile, has wrong settings, or has a key in it.
    """
    path = model.removeprefix(PREFIX)
    if not path or "://" in path or (path in list_profiles() and not Path(path).exists()):
        base = path if path in list_profiles() else "chat"
        raise DocmtError(
            f"{model} names no profile: write a YAML file with profile: {base}, url, source_language and "
            "target_language, and name that"
        )
    if "," in path and not Path(path).exists():
        raise DocmtError(f"{model} is no profile: an ensemble with commas has models of docmt only")
    values = read_yaml(path)
    if not isinstance(values, dict):
        raise DocmtError(f"{path} is no profile: write `option: value` lines, such as url: http://localhost:11434/v1")
    for name in (*values, *(values["extra"] if isinstance(values.get("extra"), dict) else ())):
        if name.lower().replace("-", "_") in _KEYS:
            raise DocmtError(f"{path}: {name} does not belong in a file: set key_variable to the variable that has it")
    kind = values.get("kind")
    base = values.pop("profile", None) or (kind if kind in list_profiles() else "chat")
    if base not in list_profiles():
        raise DocmtError(f"{path}: profile is {quote(base)}: choose one of {', '.join(list_profiles())}")
    file = str(files("docmt.engines").joinpath("profiles", f"{base}.yaml"))
    packaged = read_yaml(file)
    merged = packaged | values
    for group, settings in packaged.items():
        if isinstance(settings, dict) and isinstance(values.get(group), dict):
            merged[group] = settings | values[group]
    extra = _read_extra(file) | _read_extra(path)
    merged.setdefault("name", Path(path).name.removesuffix(".yaml").removesuffix(".yml"))
    return build(EngineProfile, merged | {"extra": extra}, path)


def _read_extra(path: str) -> dict[str, Any]:
    """Return the further fields of a profile, with the types of YAML. Raises DocmtError for what is no JSON."""
    try:
        extra = yaml.safe_load(read_text(path)).get("extra") or {}
        json.dumps(extra, allow_nan=False)
    except (yaml.YAMLError, TypeError, ValueError):
        raise DocmtError(f"{path}: extra has a value that JSON does not have: write text in quotes") from None
    if not isinstance(extra, dict):
        raise DocmtError(f"{path}: extra is {quote(extra)}: give fields of the request, each with its value")
    return extra
