"""Options of several commands: models, what they read, and terms."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from docmt import decoding
from docmt.core.errors import DocmtError
from docmt.core.settings import MANY, find_set, format_flag, option
from docmt.decoding.search_config import BATCH_TOKENS, FOR_TRANSLATE, ContextConfig, SearchConfig
from docmt.documents import Document, ParallelDocument, SkipReport, read_parallel
from docmt.documents.input_formats import is_jsonl
from docmt.documents.words import WordLink
from docmt.engines import is_endpoint
from docmt.terms.matching import TermMode

if TYPE_CHECKING:
    from docmt.decoding.document_translator import DocumentTranslator

_log = logging.getLogger(__name__)

Config = TypeVar("Config")
SEARCH_DETAILS = (*FOR_TRANSLATE, "length_penalty", "min_length", "temperature", "implementation", "sequential")
"""Settings of the search that commands do not have where a translation is not what they are for."""


def resolve_model_names(config: Config, *fields: str) -> Config:
    """Return a configuration with paths of models in the place of their names or pairs.

    fields: those that may name a model. Existing paths and unknown names stay.
    """
    values = {name: value for name in fields if (value := getattr(config, name)) and not Path(value).exists()}
    if not values:
        return config
    from docmt.checkpoint.model_names import find_named_model  # imported here because torch loads slowly

    paths: dict[str, Any] = {}
    for name, value in values.items():
        if (path := find_named_model(str(value))) is not None:
            paths[name] = type(value)(str(path))
    return replace(config, **paths)  # type: ignore[type-var]


def read_languages(model: str) -> tuple[str, str]:
    """Return the language codes of a model, whose weights are not loaded. Raises DocmtError as `Translator` does."""
    if is_endpoint(model):
        from docmt.engines import read_profile

        return read_profile(model).languages
    from docmt.checkpoint.model_directory import read_tokenizer_and_languages  # torch takes seconds
    from docmt.checkpoint.model_names import parse_model_paths

    return read_tokenizer_and_languages(parse_model_paths(model))[1]


def split_ensemble(path: str) -> list[str]:
    """Return the models of an ensemble (a path with commas), or the path alone."""
    return [path] if Path(path).exists() or is_endpoint(path) else path.split(",")


def is_model_path(path: str) -> bool:
    """Return whether a path is a directory or the name of a model, or an ensemble of them separated by commas."""
    from docmt.checkpoint.model_names import is_model_name

    members = split_ensemble(path)
    return all(is_endpoint(each) or Path(each).is_dir() or is_model_name(each) for each in members)


def document_name(file: str, document: ParallelDocument) -> str:
    """Return the name of a document for messages: file, number, and id if it differs from the number."""
    id = "" if document.id == str(document.number) else f" ({document.id!r})"
    return f"{file}, document {document.number}{id}"


def read_corpus(
    source: str, target: str | None, name: str = "--reference", keep_empty: bool = False
) -> list[ParallelDocument]:
    """Return the documents of a parallel corpus. Skipped sentence pairs are logged.

    name: option or argument of the target, which one JSONL file does not need. keep_empty: keep pairs with an empty
    side. Raises DocmtError for files that cannot be read, do not match each other, or have no sentence pair.
    """
    if target is None and Path(source).is_file() and not is_jsonl(source):
        raise DocmtError(f"{name} is missing: {source} is not JSONL with both sides, so name the other file")
    skipped = SkipReport()
    corpus = list(read_parallel(Path(source), Path(target) if target else None, skipped=skipped, keep_empty=keep_empty))
    if not corpus:
        names = f"{source} and {target} hold" if target else f"{source} holds"
        raise DocmtError(f"{names} no sentence pairs: name files with parallel sentences")
    for reason, count in skipped.counts.items():
        examples = "; ".join(skipped.examples[reason])
        _log.warning(f"left out {count} x {reason} ({examples}{', ...' if count > 3 else ''})")
    return corpus


def check_unique(paths: Sequence[str], option: str) -> None:
    """Raise DocmtError for a repeated path."""
    resolved = [os.path.realpath(path) for path in paths]  # `Path.resolve` would fail for a cycle of links
    for number, path in enumerate(paths):
        if resolved[number] in resolved[:number]:
            raise DocmtError(f"{option} has {path} twice: name it once")


def short_names(paths: Sequence[str]) -> list[str]:
    """Return the shortest ends of paths that are unique, and the last part of a single path."""
    members = [[Path(member).parts for member in split_ensemble(path)] for path in paths]
    names = list(paths)
    for length in range(1, max(len(parts) for system in members for parts in system) + 1):
        names = [",".join(str(Path(*parts[-length:])) for parts in system) for system in members]
        if len(set(names)) == len(names):
            break
    return names


def check_models(models: Sequence[str], context: ContextConfig, search: SearchConfig) -> dict[str, tuple[str, str]]:
    """Check models before using any of them, without reading their weights. Return their language codes.

    Raises DocmtError for a model that is missing, damaged, or incompatible with the options. An error after hours of
    work with other models would be too late.
    """
    from docmt.checkpoint.model_directory import find_model, load_model_config, read_tokenizer_and_languages
    from docmt.checkpoint.model_names import parse_model_paths
    from docmt.checkpoint.weights import WEIGHTS_FILE, read_shapes
    from docmt.decoding.scheduler import check_context

    languages = {}
    for model in models:
        if is_endpoint(model):
            languages[model] = read_languages(model)
            continue
        paths = parse_model_paths(model)
        for path in paths:
            if path.is_file():
                raise DocmtError(f"{path} is a file, not a model: name model directories only")
            check_context(search, context, load_model_config(path))
            read_shapes(find_model(path) / WEIGHTS_FILE)
        _, languages[model] = read_tokenizer_and_languages(paths)
    return languages


@dataclass(frozen=True, kw_only=True)
class DeviceOptions:
    """Where a model runs, and in which numbers."""

    device: str = "auto"
    """cpu, cuda, cuda:1 for the second GPU, or auto: a GPU if one works"""
    precision: Literal["float32", "bfloat16", "int8"] = "float32"
    """number format of matrix products; lower is faster where the processor has it, and less exact"""


@dataclass(frozen=True, kw_only=True)
class ModelOptions(DeviceOptions):
    """Where and how a model runs."""

    batch_tokens: int = option(BATCH_TOKENS, range=(1, MANY))
    """source tokens of a batch, padding included"""
    context: ContextConfig = ContextConfig()
    """context that a model reads"""


@dataclass(frozen=True, kw_only=True)
class ProtectOptions:
    """What a model does not read."""

    protect: str = option("", metavar="FILE")
    """text that stays as addresses do: regular expressions, one a line; none: the model reads all"""

    @property
    def patterns(self) -> tuple[str, ...] | None:
        """The patterns of the file, or None for none. Raises DocmtError if it cannot be read."""
        from docmt.documents.protected_text import read_patterns

        patterns = read_patterns(self.protect)
        return None if patterns is None else tuple(patterns)


@dataclass(frozen=True, kw_only=True)
class TermOptions:
    """Glossaries and memories."""

    terms: list[str] = option([], metavar="FILE")
    """glossaries (TSV, CSV, TBX, TMX, JSON)"""
    terms_mode: TermMode = "prefer"
    """prefer: refuse a term that spoils its sentence; require: take it"""
    memory: list[str] = option([], metavar="FILE")
    """memories (TMX, XLIFF): reuse what was translated"""


@dataclass(frozen=True, kw_only=True)
class SearchOptions(ModelOptions, ProtectOptions):
    """How a model runs and searches."""

    search: SearchConfig = option(SearchConfig(), skip=FOR_TRANSLATE)
    """beam search"""


def load_translator(options: Any, model: str | None = None) -> decoding.Translator:
    """Return what `load_engine` does. Raises DocmtError for an endpoint, which has neither scores nor weights."""
    name = options.model if model is None else model
    translator = None if is_endpoint(name) else load_engine(options, model)
    if not isinstance(translator, decoding.Translator):
        raise DocmtError(f"{name} is a server, whose scores and weights are not known: name a model of docmt here")
    return translator


def link_words(
    translator: decoding.Translator, pairs: Iterable[tuple[Sequence[str], Sequence[str]]]
) -> list[list[WordLink]]:
    """Return the links of the words of all sentences. pairs: sides of documents, with as many sentences."""
    documents = [(Document.from_sentences(source), Document.from_sentences(target)) for source, target in pairs]
    aligned = translator.align(translator.score_all(documents))
    return [links for translation in aligned for links in translation.alignments()]


def _check_endpoint_options(options: Any, model: str, names: Sequence[str], several: bool) -> None:
    """Raise DocmtError for an option that changes nothing of what a server does; of several models, only warn."""
    for name in names:
        for changed in find_set(options, name)[:1] if hasattr(options, name) else ():
            problem = f"{format_flag(changed)} has no effect on a server: leave it out, or set it in {model}"
            if not several:
                raise DocmtError(problem)
            _log.warning(problem)


def load_engine(options: Any, model: str | None = None) -> DocumentTranslator:
    """Return the translator that the options name, or another `model`; with commas between them several as one.

    Raises DocmtError for a glossary before the model is loaded.
    """
    from docmt.checking.languages import detect_language
    from docmt.core.progress import is_terminal
    from docmt.engines import EndpointTranslator
    from docmt.formats.language_codes import is_same_language
    from docmt.terms import Glossary, Memory
    from docmt.terms.memory import drop_misfits

    names = ("search", "context", "batch_tokens", "device", "precision")
    settings = {name: getattr(options, name) for name in names if hasattr(options, name)}
    if hasattr(options, "protect"):
        settings["protect"] = options.patterns
    name, search = options.model if model is None else model, settings.get("search", SearchConfig())
    paths, memories, reuse = (getattr(options, each, []) for each in ("terms", "memory", "reuse"))
    consistent = getattr(options, "consistent", False)
    search.check_terms(paths or consistent)
    search.check_terms(memories or reuse, "memories")
    if is_endpoint(name):
        _check_endpoint_options(options, name, (*names, "terms_mode"), model is not None)
    languages = read_languages(name) if paths or memories or reuse else ("", "")
    glossary = Glossary.read(*paths, languages=languages) if paths else None
    memory, versions = Memory.read(*memories, languages=languages), Memory(languages)
    if reuse:
        if len(reuse) != 2:
            raise DocmtError(f"--reuse needs two files, an earlier version and its translation, not {len(reuse)}")
        config = {"protect": options.patterns, "fields": options.fields, "join_lines": options.input.join_lines}
        config["layout"] = "lines" if options.input.layout == "lines" else "text"
        versions = Memory.from_versions(reuse[0], reuse[1], languages, **config)
        found = detect_language(versions.entries)
        if found and is_same_language(found, languages[1]) and not is_same_language(*languages):
            _log.warning(f"{reuse[0]} seems to be in {found}: name the earlier version first, then its translation")
    translator: DocumentTranslator
    if is_endpoint(name):
        translator = EndpointTranslator(name, protect=settings.get("protect"))
    else:
        translator = decoding.Translator(name, **settings)
        if versions.is_guessed:
            versions, count = drop_misfits(versions, translator)
            if count:
                _log.warning(
                    f"{reuse[1]}: sentences that may have the translation of another, and are not used: {count}"
                )
    translator = translator.with_memory(versions.join(memory) or None)
    if glossary is not None:
        glossary.log_problems()
    if glossary is not None or consistent:
        translator = translator.with_terms(glossary, options.terms_mode, consistent)
    # elsewhere standard error is for what is wrong, and lines of progress tell it
    if is_terminal() and isinstance(translator, decoding.Translator):
        _log.info(f"computing on {translator.device} in {translator.precision}")
    return translator


def log_use(translator: DocumentTranslator | None) -> None:
    """Log what a server took."""
    if translator is not None and translator.use is not None:
        _log.info("%s", translator.use)
