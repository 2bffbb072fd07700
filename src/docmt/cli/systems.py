"""Systems that are evaluated: files of translations and models, by name, and what models make of a corpus."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from docmt.cli.corpora import each_alone
from docmt.cli.results import Report
from docmt.core.errors import DocmtError
from docmt.decoding import ContextConfig, SearchConfig
from docmt.documents import Document, ParallelDocument
from docmt.evaluation import Evaluation, MetricConfig, evaluate_documents, group_by_unit
from docmt.evaluation.metrics import Documents, Ranges

if TYPE_CHECKING:
    from docmt.decoding import Translation, Translator


@dataclass(frozen=True)
class ScoredSystem:
    """Something that is scored: a file of translations, or a model."""

    path: str
    is_model: bool
    name: str = ""
    """as much of the end of its path as tells it from the others; of a single system its path"""

    def parts(self) -> list[str]:
        """The models of an ensemble, which have commas between them; else the path alone."""
        return [self.path] if Path(self.path).exists() else self.path.split(",")


def is_model(path: str) -> bool:
    """Whether a path names a directory, or an ensemble of directories with commas between them."""
    return all(Path(part).is_dir() for part in ScoredSystem(path, True).parts())


def check_once(paths: Sequence[str], option: str) -> None:
    """Raise DocmtError for a path that is there twice."""
    resolved = [os.path.realpath(path) for path in paths]  # (unlike `Path.resolve`, whatever the links are)
    for number, path in enumerate(paths):
        if resolved[number] in resolved[:number]:
            raise DocmtError(f"{option} has {path} twice: name it once")


def short_names(paths: Sequence[str]) -> list[str]:
    """Return the ends of paths, as long as it takes to tell them apart; of a single path its last part."""
    parts = [[Path(part).parts for part in ScoredSystem(path, True).parts()] for path in paths]
    names = list(paths)
    for length in range(1, max(len(part) for own in parts for part in own) + 1):
        names = [",".join(str(Path(*part[-length:])) for part in own) for own in parts]
        if len(set(names)) == len(names):
            break
    return names


def check_models(models: Sequence[str], context: ContextConfig, search: SearchConfig) -> dict[str, tuple[str, str]]:
    """Check models before any of them is used, without reading their weights. Return their language codes.

    Raises DocmtError for a model that is missing or damaged, or that does not go with the options: now, not after the
    hours that the models before it take.
    """
    from docmt.checkpoint.model_directory import find_model, load_model_config
    from docmt.checkpoint.weights import WEIGHTS_FILE, read_shapes
    from docmt.decoding.models import parse_model_paths, read_tokenizer_and_languages
    from docmt.decoding.scheduler import check_context

    languages = {}
    for model in models:
        paths = parse_model_paths(model)
        for path in paths:
            if path.is_file():
                raise DocmtError(f"{path} is a file, and files cannot translate: name models alone")
            check_context(search, context, load_model_config(path))
            read_shapes(find_model(path) / WEIGHTS_FILE)
        _, languages[model] = read_tokenizer_and_languages(paths)
    return languages


@dataclass(frozen=True)
class Translations:
    """What one system makes of a corpus of D documents.

    hypotheses: [D] of sentences, empty ones where the system failed. instances: [D], what a model translated by itself.
    miscounted: [D], the instances of a document for which a model gave another number of sentences.
    """

    hypotheses: Documents
    instances: Ranges | None = None
    miscounted: Sequence[int] = ()
    failed: frozenset[int] = frozenset()
    """the documents that have no translation"""
    report: Report = field(default_factory=Report)
    """what went wrong on the way"""

    def evaluate(self, references: Sequence[Documents], kept: Sequence[int], metrics: MetricConfig) -> Evaluation:
        """Score the documents that are `kept`; references: of each [D]."""
        hypotheses, first, *more = ([side[number] for number in kept] for side in (self.hypotheses, *references))
        instances = None
        if metrics.unit == "instance" and self.instances is not None:
            instances = [self.instances[number] for number in kept]
        miscounted = sum(self.miscounted[number] for number in kept) if self.miscounted else 0
        return evaluate_documents(hypotheses, first, metrics, instances, more_references=more, miscounted=miscounted)


def translate_corpus(
    translator: Translator, corpus: Sequence[ParallelDocument], unit: str, names: Sequence[str]
) -> Translations:
    """Translate every document; one that cannot be translated does not stop the others.

    unit: what is translated by itself, an instance or a document. names: of the documents, for messages.
    """
    if unit == "instance":
        instances = [translator.cut_instances(document.source, document.target) for document in corpus]
    else:
        instances = [[(0, len(document.source))] for document in corpus]
    sources = [group_by_unit([document.source], [ranges]) for document, ranges in zip(corpus, instances, strict=True)]
    report = Report()
    found = each_alone(sources, names, partial(_translate, translator), report.failures)
    hypotheses, miscounted = [], []
    for name, document, units, ranges in zip(names, corpus, found, instances, strict=True):
        if units is None:
            hypotheses.append([""] * len(document.source))
            miscounted.append(0)
            continue
        hypotheses.append([sentence for unit in units for sentence in unit.document.sentences])
        miscounted.append(sum(len(unit.miscounted) for unit in units))
        for translation, (first, _) in zip(units, ranges, strict=True):
            report.collect(name, translation, first)
    failed = frozenset(number for number, units in enumerate(found) if units is None)
    return Translations(hypotheses, instances, miscounted, failed, report)


def _translate(translator: Translator, documents: Sequence[Sequence[Sequence[str]]]) -> list[list[Translation]]:
    """The translations of the units of every document, all searched together."""
    units = [Document.from_sentences(unit) for document in documents for unit in document]
    translations = iter(translator.translate_all(units))
    return [[next(translations) for _ in document] for document in documents]
