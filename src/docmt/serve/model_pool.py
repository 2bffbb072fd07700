"""The models of a service: described from their files, loaded when first asked for, unloaded by a bound of memory.

Their languages have English names, and terms: glossaries of the server, and those of requests beside them.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import uuid
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from math import prod
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from docmt.checkpoint.model_directory import find_model, load_model_config
from docmt.checkpoint.model_names import InstalledModel, describe_installed, join_pair, list_models
from docmt.checkpoint.weights import WEIGHTS_FILE, read_shapes
from docmt.core.errors import DocmtError
from docmt.core.grouping import group_pairs
from docmt.decoding import SearchConfig, Translator
from docmt.decoding.document_translator import DocumentTranslator
from docmt.engines import EndpointTranslator, EngineProfile, is_endpoint, read_profile
from docmt.formats.language_codes import format_language_tag, language_names, primary_language
from docmt.model.products import Precision
from docmt.terms.glossary import Glossary, GlossaryBuilder
from docmt.terms.glossary_files import read_entries
from docmt.terms.glossary_tables import Entry, EntryFile, EntryWord, split_alternatives
from docmt.terms.matching import TermMatcher, TermMode
from docmt.terms.memory import Memory

_LAYER_BYTES: dict[Precision, int] = {"float32": 4, "bfloat16": 2, "int8": 1}
"""Bytes of a value of a linear layer."""
_OTHER_BYTES: dict[Precision, int] = {"float32": 4, "bfloat16": 4, "int8": 5}
"""Bytes of another value, such as of the token embeddings, with its copy for the output projection."""
_KEPT_TERMS = 200_000
"""Terms that stay in memory though no text has them (about 1.5 kB each)."""
_MOST_TERMS = 1_000_000
"""Terms of all texts that are translated; others wait."""
_WAIT_SECONDS = 0.1
_log = logging.getLogger(__name__)


class UnknownModel(DocmtError):  # noqa: N818 - not a fault, an answer
    """No model of the service has this name or these languages."""


class ModelNotLoaded(DocmtError):  # noqa: N818 - a state, which may end
    """A model cannot be loaded. `retry_after` is in seconds, and `status` that of HTTP."""

    retry_after, status = 60, 503


@dataclass(frozen=True)
class ModelDescription:
    """A model of the service."""

    name: str
    source_language: str
    """language code, empty if unknown"""
    target_language: str
    system: str
    parameters: int
    licence: str
    """identifier such as apache-2.0, empty if unknown"""
    loaded: bool
    precision: str
    same_in_batches: bool
    """whether a sentence is translated the same alone and beside others (up to ties of equal probability)"""
    reads_context: bool
    """whether it reads other sentences of the document with a sentence"""


@dataclass(frozen=True)
class MemoryDescription:
    """A file of translations that the service reuses, from one language."""

    translation_memory_id: str
    name: str
    source_language: str
    target_languages: tuple[str, ...]
    segment_count: int
    """different sources"""


class ModelPool:
    """Models by name. Only the thread that translates may call `load`."""

    def __init__(
        self,
        names: Sequence[str] = (),
        *,
        search: SearchConfig = SearchConfig(),
        device: str = "auto",
        precision: Precision = "float32",
        max_bytes: int = 0,
        protect: Sequence[str] | None = (),
        terms: Sequence[str] = (),
        terms_mode: TermMode = "prefer",
        memory: Sequence[str] = (),
    ) -> None:
        """Describe the models, without loading them.

        names: directories, names or pairs; none: all that are installed. max_bytes: of loaded weights, 0: no bound.

        terms, memory: paths of glossaries and memories, for the models of their languages. The other settings are those
        of `docmt.Translator`.

        Raises DocmtError for a model that is missing or damaged, for two of one name, if there is none, and for
        glossaries (see `TermMatchers`) and memories that have nothing for any, also where the search has no terms.
        """
        self._settings: dict[str, Any] = {"search": search, "device": device, "protect": protect}
        self.search, self._precision, self._max_bytes = search, precision, max_bytes
        self.patterns = None if protect is None else tuple(protect)
        """of text that stays as it is"""
        self._models: dict[str, InstalledModel] = {}
        self._profiles: dict[str, EngineProfile] = {}
        for model in [self._describe(name) for name in names] or list_models():
            other = model if model.is_encoder else self._models.setdefault(model.name, model)
            if names and other is not model:
                raise DocmtError(f"{other.path} and {model.path} have one name. Rename one of them.")
        if not self._models:
            raise DocmtError("there is no model to serve. Name a model directory, or get one with docmt pull.")
        self._reads_context = {
            name: self._profiles[name].context.sentences > 0
            if name in self._profiles
            else load_model_config(model.path).system_options.context_spec().reads_context
            for name, model in self._models.items()
        }
        search.check_terms(terms)
        search.check_terms(memory, "memories")
        languages = {name: (model.source_language, model.target_language) for name, model in self._models.items()}
        self.terms = TermMatchers(terms, terms_mode, languages)
        self._memories, self.memories = _read_memories(memory, dict.fromkeys(languages.values()))
        self._loaded: OrderedDict[str, DocumentTranslator] = OrderedDict()
        self.failed_loads = 0
        self.unloadable: set[str] = set()
        """names of the models that could not be loaded when they were last needed"""

    def _describe(self, name: str) -> InstalledModel:
        """Return the facts of a model by directory, name, pair or profile. The name of a run is that of its folder."""
        if is_endpoint(name):
            profile = read_profile(name)
            self._profiles.setdefault(profile.name, profile)
            return InstalledModel(profile.name, Path(name), *profile.languages, "endpoint", 0, 0, "", "")
        path = find_model(name)
        is_same_folder = not Path(name).exists() or Path(name).resolve() == path.resolve()
        model = describe_installed(path)
        return model if is_same_folder else replace(model, name=Path(name).resolve().name)

    def describe(self) -> list[ModelDescription]:
        """Return the models in the order in which they are preferred."""
        return list(map(self.describe_one, self._models))

    def find(self, name: str = "", source: str = "", target: str = "") -> str:
        """Return the first model with this name or pair and these languages. Raises UnknownModel if there is none."""
        for model in self._models.values():
            is_named = not name or name in (model.name, model.pair, model.hub_id)
            if is_named and _agrees(source, model.source_language) and _agrees(target, model.target_language):
                return model.name
        request = " ".join(filter(None, [name, f"from {source}" if source else "", f"to {target}" if target else ""]))
        raise UnknownModel(f"there is no model {request}. The service has {self._list_models()}.")

    def describe_one(self, name: str) -> ModelDescription:
        """Return a model by its name. Raises UnknownModel."""
        if (model := self._models.get(name)) is None:
            advice = f"The service has {self._list_models()}: translate the document again, or tell who runs the server"
            raise UnknownModel(f"the model {name} of this document is not served any more. {advice}.")
        facts = model.source_language, model.target_language, model.system, model.parameters, model.licence
        precision = "" if name in self._profiles else self._precision
        state = self.is_loaded(name), precision, precision == "float32", self._reads_context[name]
        return ModelDescription(name, *facts, *state)

    def is_loaded(self, name: str) -> bool:
        """Return whether a model is loaded."""
        return name in self._loaded

    def has_room(self, name: str) -> bool:
        """Return whether a model is loaded, or can be beside the loaded ones."""
        is_bounded = self._max_bytes and name not in self._loaded
        return not is_bounded or self.loaded_bytes() + self._bytes(name) <= self._max_bytes

    def load(self, name: str) -> DocumentTranslator:
        """Return the translator of a model, and unload those used least recently that need too much memory with it.

        Raises ModelNotLoaded, whose reason is in the log.
        """
        if name in self._loaded:
            self._loaded.move_to_end(name)
            return self._loaded[name]
        try:
            while self._loaded and not self.has_room(name):
                unloaded, _ = self._loaded.popitem(last=False)
                gc.collect()
                _log.info("unloaded %s", unloaded)
            translator: DocumentTranslator
            if name in self._profiles:
                translator = EndpointTranslator(self._profiles[name], protect=self._settings["protect"])
            else:
                translator = Translator(self._models[name].path, precision=self._precision, **self._settings)
            languages = self._models[name].source_language, self._models[name].target_language
            translator = translator.with_terms(self.terms.find(name)).with_memory(self._memories.get(languages))
        except Exception as error:  # the service must outlive any fault
            self.failed_loads += 1
            self.unloadable.add(name)
            is_known = isinstance(error, DocmtError | MemoryError | RuntimeError)
            reason = str(error) or "there is not enough memory"
            _log.error("the model %s cannot be loaded: %s", name, reason, exc_info=None if is_known else error)
            message = f"the model {name} cannot be loaded now. Try again later, or tell who runs the server."
            raise ModelNotLoaded(message) from error
        self.unloadable.discard(name)
        self._loaded[name] = translator
        return translator

    def loaded_bytes(self) -> int:
        """Return the bytes of the weights of all loaded models, about."""
        return sum(map(self._bytes, list(self._loaded)))

    def _bytes(self, name: str) -> int:
        return 0 if name in self._profiles else estimate_bytes(self._models[name].path, self._precision)

    def _list_models(self) -> str:
        names = [f"{each.name} ({each.pair})" if each.pair else each.name for each in self._models.values()]
        return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")


class TermMatchers:
    """Matchers by languages of models and entries of requests. Each is made once, and dropped when it is not used."""

    def __init__(self, paths: Sequence[str], mode: TermMode, languages: Mapping[str, tuple[str, str]]) -> None:
        """paths: glossaries of the server. languages: of the models, by name.

        Raises DocmtError for files that cannot be read, that have no term for any model, or that contradict each other.
        """
        self._languages, self._mode = languages, mode
        self._made: WeakValueDictionary[tuple[tuple[str, str], str], TermMatcher] = WeakValueDictionary()
        self._recent: list[TermMatcher] = []  # the last one first
        self._lock = asyncio.Lock()
        builders = {pair: GlossaryBuilder(pair) for pair in languages.values()}
        for path in paths:
            file, problems = _read_file(path, list(builders)), []
            for builder in builders.values():
                try:
                    builder.add(file)
                except DocmtError as error:  # it is for other languages
                    problems.append(error)
            if len(problems) == len(builders):
                raise problems[0]
        glossaries = {pair: builder.build() for pair, builder in builders.items() if builder.terms}
        for pair, glossary in glossaries.items():
            replace(glossary, skipped=tuple(builders[pair].skipped)).log_problems()  # rows of other languages are usual
        self._server = {pair: TermMatcher(glossary, mode) for pair, glossary in glossaries.items()}

    def find(self, model: str) -> TermMatcher | None:
        """Return the matcher of the server's terms, if there are any for a model."""
        return self._server.get(self._languages[model])

    async def make(self, model: str, entries: str) -> TermMatcher:
        """Return the matcher of entries of a request, which win over the server's terms.

        entries: lines of a source, a tab and its target, perhaps several with | between them.
        """
        key = self._languages[model], entries
        async with self._lock:  # one at a time, as it takes seconds of a large glossary
            while (matcher := self._made.get(key)) is None and _count(self._made.values()) > _MOST_TERMS:
                await asyncio.sleep(_WAIT_SECONDS)
            if matcher is None:
                glossary = await asyncio.to_thread(_read_terms, *key)
                matcher = self._made[key] = await asyncio.to_thread(TermMatcher, glossary, self._mode, self.find(model))
            self._recent = [matcher, *(each for each in self._recent if each is not matcher)]
            while len(self._recent) > 1 and _count(self._recent) > _KEPT_TERMS:
                self._recent.pop()
        return matcher


def _read_file(path: str, pairs: Sequence[tuple[str, str]]) -> EntryFile:
    """Return the entries of a file. In Windows-1252, its letters must be those of a pair of languages."""
    for pair in pairs[:-1]:
        with suppress(DocmtError):
            return read_entries(path, pair)
    return read_entries(path, pairs[-1])


def _count(matchers: Iterable[TermMatcher]) -> int:
    """Return the number of terms."""
    return sum(len(each.glossary.terms) for each in matchers)


def _read_terms(languages: tuple[str, str], entries: str) -> Glossary:
    """Return the terms of entries. One without letters and digits is no term."""
    file, builder = EntryFile("the glossary", "TSV"), GlossaryBuilder(languages)
    for line, row in enumerate(entries.split("\n"), 1):
        source, target = row.split("\t")
        words = [EntryWord(text) for text in (source, *(split_alternatives(target) or [target]))]
        file.entries.append(Entry(line, words, directed=True))
    with suppress(DocmtError):  # it has no term
        builder.add(file)
    return builder.build()


def _read_memories(
    paths: Sequence[str], pairs: Iterable[tuple[str, str]]
) -> tuple[dict[tuple[str, str], Memory], list[MemoryDescription]]:
    """Return the memory of each pair of languages that files have, and the files.

    Raises DocmtError for a file that has nothing for any pair.
    """
    memories, described = dict[tuple[str, str], Memory](), list[MemoryDescription]()
    for path in paths:
        sizes, problems = dict[str, dict[str, int]](), []
        for pair in pairs:
            try:
                memory = Memory.read(path, languages=pair)
            except DocmtError as error:
                problems.append(error)
                continue
            memories[pair] = memories.get(pair, Memory(pair)).join(memory)
            sizes.setdefault(pair[0], {})[pair[1]] = len(memory)
        if not sizes:
            raise problems[0]
        for source, targets in sizes.items():
            id = str(uuid.uuid5(uuid.NAMESPACE_OID, f"{Path(path).absolute()} {source}"))
            described.append(MemoryDescription(id, Path(path).name, source, tuple(targets), max(targets.values())))
    return memories, described


@cache
def estimate_bytes(path: Path, precision: Precision) -> int:
    """Return the bytes of the loaded weights of a model directory, about. Raises DocmtError if it is damaged."""
    shapes = read_shapes(path / WEIGHTS_FILE)
    in_layers = sum(
        prod(shape) for name, shape in shapes.items() if len(shape) == 2 and name.startswith(("encoder.", "decoder."))
    )
    others = sum(map(prod, shapes.values())) - in_layers
    return in_layers * _LAYER_BYTES[precision] + others * _OTHER_BYTES[precision]


def _agrees(language: str, code: str) -> bool:
    """Return whether a language was not asked for, or is that of the model; unknown languages of models agree."""
    return not language or not code or join_pair(language, language) == join_pair(code, code)


def language_name(code: str) -> str:
    """Return the English name of a language; its code if none is known."""
    return language_names().get(primary_language(code), code)


def list_pairs(models: Sequence[ModelDescription]) -> dict[str, list[str]]:
    """Return the tags of the target languages for each source language; models without languages are left out."""
    known = [each for each in models if each.source_language and each.target_language]
    tags = ((format_language_tag(each.source_language), format_language_tag(each.target_language)) for each in known)
    return group_pairs(dict.fromkeys(tags))
