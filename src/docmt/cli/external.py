"""Metrics of other processes (COMET) in `docmt evaluate`."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from docmt.core.errors import DocmtError
from docmt.documents import ParallelDocument, read_documents
from docmt.documents.corpus import read_hypothesis, read_reference
from docmt.evaluation.external import Documents, ExternalConfig, ExternalScore, score_externally

_log = logging.getLogger(__name__)


def check_external(options: Any) -> None:
    """Raises DocmtError for options of an external metric that do not go with the others."""
    if not options.external.command:
        if options.external != ExternalConfig():
            raise DocmtError("--external.hypothesis_context has no meaning without --external.command: leave it out")
        return
    options.external.check_start()
    if options.suite or options.context_usage or options.systems:
        other = "--suite" if options.suite else "--context_usage" if options.context_usage else "several systems"
        raise DocmtError(f"--external.command scores the translations of one system, not {other}: call it for itself")
    if options.hypothesis and not options.source:
        raise DocmtError("--external.command needs --source beside --hypothesis: name the file that was translated")


def score_files(options: Any) -> ExternalScore | None:
    """The score of a file of translations in the external metric, if there is one."""
    if not options.external.command:
        return None
    references = read_reference(Path(options.reference))
    hypotheses = read_hypothesis(Path(options.hypothesis), Path(options.reference), references)
    sources = list(read_documents(Path(options.source)))
    return _scored(options, [text for _, text in sources], hypotheses, references, [id for id, _ in sources])


def score_documents(
    options: Any, corpus: Sequence[ParallelDocument], hypotheses: Documents, kept: Sequence[int]
) -> ExternalScore | None:
    """The score of those documents of a corpus that are `kept` in the external metric, if there is one."""
    if not options.external.command:
        return None
    chosen = [corpus[number] for number in kept]
    sources, references = [document.source for document in chosen], [document.target for document in chosen]
    return _scored(options, sources, [hypotheses[n] for n in kept], references, [document.id for document in chosen])


def _scored(
    options: Any, sources: Documents, hypotheses: Documents, references: Documents, ids: list[str]
) -> ExternalScore:
    found = score_externally(sources, hypotheses, references, ids, options.external)
    if found.too_long:
        _log.warning(found.warning())
    return found
