"""Translations of a corpus, from files or made by a model, and how good they are, for the commands that score them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from docmt.cli.corpora import each_alone
from docmt.cli.options import changed, translator_options
from docmt.cli.results import Report
from docmt.core.errors import INTERRUPTED, DocmtError
from docmt.decoding import ContextConfig, SearchConfig
from docmt.decoding.config import BATCH_TOKENS
from docmt.documents import Document, ParallelDocument
from docmt.evaluation import Evaluation, MetricConfig, evaluate_documents, in_units
from docmt.evaluation.metrics import Documents, Ranges

if TYPE_CHECKING:
    from docmt.decoding import Translation, Translator

_log = logging.getLogger(__name__)

Made = TypeVar("Made")


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
        """The scores of the documents that are `kept`; references: of each [D]."""

        def chosen(documents: Documents) -> Documents:
            return [documents[number] for number in kept]

        instances = None
        if metrics.unit == "instance" and self.instances is not None:
            instances = [self.instances[number] for number in kept]
        return evaluate_documents(
            chosen(self.hypotheses),
            chosen(references[0]),
            metrics,
            instances,
            more_references=[chosen(reference) for reference in references[1:]],
            miscounted=sum(self.miscounted[number] for number in kept) if self.miscounted else 0,
        )


def check_models(options: Any, models: Sequence[str], task: str = "translate") -> dict[str, tuple[str, str]]:
    """The languages of models, each loaded for a moment; task: what they are to do, for messages.

    Raises DocmtError for one that is missing, damaged or does not go with the options: now, not after the hours that
    those before it take.
    """
    from docmt.decoding import Translator
    from docmt.decoding.models import model_paths

    for path in (path for model in models for path in model_paths(model)):
        if path.is_file():
            raise DocmtError(f"{path} is a file, and files cannot {task}: name models alone")
    return {model: Translator(model, **translator_options(options)).languages for model in models}


@dataclass(frozen=True)
class Asked(Generic[Made]):
    """What was made of several models, one after the other."""

    made: dict[str, Made]
    """by model; of those that could be asked"""
    failures: Sequence[str]
    """a sentence for each of the others"""
    missing: Sequence[str] = ()
    """models that were not asked to the end, as somebody interrupted it"""

    def tell(self) -> int:
        """Tells what failed and what is missing; to be called after all else is told. Returns the status."""
        for failure in self.failures:
            _log.error(failure)
        if self.missing:
            _log.warning(f"interrupted: {', '.join(self.missing)} {'is' if len(self.missing) == 1 else 'are'} missing")
            return INTERRUPTED
        return 2 if self.failures else 0


def ask_models(models: Sequence[str], work: Callable[[str], Made]) -> Asked[Made]:
    """What `work` makes of each model; one that fails, and Ctrl-C, do not lose what the others took hours for.

    Raises KeyboardInterrupt where there is nothing to lose yet.
    """
    made: dict[str, Made] = {}
    failures: list[str] = []
    for number, model in enumerate(models):
        try:
            own = attempted(model, partial(work, model), failures)
        except KeyboardInterrupt:
            if not (made or failures):
                raise
            return Asked(made, failures, models[number:])
        if own is not None:
            made[model] = own
    return Asked(made, failures)


def attempted(name: str, work: Callable[[], Made], failures: list[str]) -> Made | None:
    """What `work` makes; where it fails (see `map_or_error`) None, and a sentence in `failures`."""
    return each_alone([work], [name], lambda items: [each() for each in items], failures)[0]


def check_no_model(options: Any) -> None:
    """Raises DocmtError for options of models and of their search, where no model translates."""
    unused = changed(options.search, SearchConfig(), "search") + changed(options.context, ContextConfig(), "context")
    usual = {"batch_tokens": BATCH_TOKENS, "device": "auto", "precision": "float32"}
    unused += [name for name, value in usual.items() if getattr(options, name) != value]
    if unused:
        raise DocmtError(f"--{unused[0]} has no meaning where no model translates: leave it out, or name a model")


def translate_corpus(
    translator: Translator, corpus: Sequence[ParallelDocument], unit: str, names: Sequence[str]
) -> Translations:
    """Translates every document; one that cannot be translated does not stop the others.

    unit: what is translated by itself, an instance or a document. names: of the documents, for messages. Raises
    DocmtError for options of the search that mean nothing to such a unit.
    """
    instances = [_instances(translator, document, unit) for document in corpus]
    sources = [in_units([document.source], [ranges]) for document, ranges in zip(corpus, instances, strict=True)]
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


def _instances(translator: Translator, document: ParallelDocument, unit: str) -> list[tuple[int, int]]:
    """What is translated by itself: the instances of a document, or (of another unit) all of it."""
    if unit == "instance":
        return translator.instances(document.source, document.target)
    return [(0, len(document.source))]


def _translate(translator: Translator, documents: Sequence[Sequence[Sequence[str]]]) -> list[list[Translation]]:
    """The translations of the units of every document, all searched together."""
    units = [Document.from_sentences(unit) for document in documents for unit in document]
    translations = iter(translator.translate_all(units))
    return [[next(translations) for _ in document] for document in documents]
