"""Systems to evaluate: files of translations and models, their names, and translation of a corpus by a model."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from docmt.cli.corpus_io import map_or_report
from docmt.cli.output import Report
from docmt.core.errors import DocmtError
from docmt.data.instances import cut_dbleu_units
from docmt.decoding import ContextConfig, SearchConfig
from docmt.documents import Document, ParallelDocument
from docmt.evaluation import Evaluation, MetricConfig, evaluate_documents, group_by_unit
from docmt.evaluation.metrics import Documents, Ranges

if TYPE_CHECKING:
    from docmt.decoding import Translation, Translator


@dataclass(frozen=True)
class ScoredSystem:
    """A file of translations, or a model, to score."""

    path: str
    is_model: bool
    name: str = ""
    """shortest unique end of its path; the whole path of a single system"""

    def members(self) -> list[str]:
        """Return the models of an ensemble (a path with commas), or the path alone."""
        return [self.path] if Path(self.path).exists() else self.path.split(",")


def is_model_path(path: str) -> bool:
    """Return whether a path is a directory or the name of a model, or an ensemble of them separated by commas."""
    from docmt.checkpoint.model_names import is_model_name

    return all(Path(member).is_dir() or is_model_name(member) for member in ScoredSystem(path, True).members())


def check_unique(paths: Sequence[str], option: str) -> None:
    """Raise DocmtError for a repeated path."""
    resolved = [os.path.realpath(path) for path in paths]  # `Path.resolve` would fail for a cycle of links
    for number, path in enumerate(paths):
        if resolved[number] in resolved[:number]:
            raise DocmtError(f"{option} has {path} twice: name it once")


def short_names(paths: Sequence[str]) -> list[str]:
    """Return the shortest ends of paths that are unique, and the last part of a single path."""
    members = [[Path(member).parts for member in ScoredSystem(path, True).members()] for path in paths]
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
        paths = parse_model_paths(model)
        for path in paths:
            if path.is_file():
                raise DocmtError(f"{path} is a file, not a model: name model directories only")
            check_context(search, context, load_model_config(path))
            read_shapes(find_model(path) / WEIGHTS_FILE)
        _, languages[model] = read_tokenizer_and_languages(paths)
    return languages


@dataclass(frozen=True)
class CorpusTranslations:
    """Translations of a corpus of D documents by one system.

    hypotheses: [D], sentences of each document, empty if the system failed. instances: [D], sentence ranges that the
    model translated separately. miscounted: [D], number of instances with a wrong number of sentences.
    """

    hypotheses: Documents
    instances: Ranges | None = None
    miscounted: Sequence[int] = ()
    failed: frozenset[int] = frozenset()
    """indices of the documents without translation"""
    report: Report = field(default_factory=Report)
    """warnings and failures"""

    def evaluate(self, references: Sequence[Documents], documents: Sequence[int], metrics: MetricConfig) -> Evaluation:
        """Score some documents, given by index. references: [D] documents for each reference."""
        hypotheses, first, *more = ([texts[number] for number in documents] for texts in (self.hypotheses, *references))
        instances = None
        if metrics.unit == "instance" and self.instances is not None:
            instances = [self.instances[number] for number in documents]
        miscounted = sum(self.miscounted[number] for number in documents) if self.miscounted else 0
        return evaluate_documents(hypotheses, first, metrics, instances, more_references=more, miscounted=miscounted)


def cut_units(translator: Translator, document: ParallelDocument) -> list[tuple[int, int]]:
    """Cut a document into instances as in training: ranges of sentences, the published units of d-BLEU."""
    sides = translator.encode(document.source, "source"), translator.encode(document.target, "target")
    source_lengths, target_lengths = (list(map(len, side)) for side in sides)
    configs = [member.config for member in translator.models]
    limits = replace(
        configs[0],
        instance_tokens=min(config.instance_tokens for config in configs),
        instance_sentences=min(config.instance_sentences for config in configs),
    )
    return cut_dbleu_units(limits, source_lengths, target_lengths, [0, len(document.source)])[0]


def translate_corpus(
    translator: Translator, corpus: Sequence[ParallelDocument], unit: str, names: Sequence[str]
) -> CorpusTranslations:
    """Translate every document. Failed documents are added to the report.

    unit: "instance" or "document", which is translated separately. names: names of the documents for messages.
    """
    if unit == "instance":
        instances = [cut_units(translator, document) for document in corpus]
    else:
        instances = [[(0, len(document.source))] for document in corpus]
    sources = [group_by_unit([document.source], [ranges]) for document, ranges in zip(corpus, instances, strict=True)]
    report = Report()
    results = map_or_report(sources, names, partial(_translate_units, translator), report.failures)
    hypotheses, miscounted = [], []
    for name, document, units, ranges in zip(names, corpus, results, instances, strict=True):
        if units is None:
            hypotheses.append([""] * len(document.source))
            miscounted.append(0)
            continue
        hypotheses.append([sentence for unit in units for sentence in unit.document.sentences])
        miscounted.append(sum(len(unit.miscounted) for unit in units))
        for translation, (first, _) in zip(units, ranges, strict=True):
            report.add_warnings(name, translation, first)
    failed = frozenset(number for number, units in enumerate(results) if units is None)
    return CorpusTranslations(hypotheses, instances, miscounted, failed, report)


def _translate_units(translator: Translator, documents: Sequence[Sequence[Sequence[str]]]) -> list[list[Translation]]:
    """Return the translations of the units of every document, decoded together."""
    units = [Document.from_sentences(unit) for document in documents for unit in document]
    translations = iter(translator.translate_all(units))
    return [[next(translations) for _ in document] for document in documents]
