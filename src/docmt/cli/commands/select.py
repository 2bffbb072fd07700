"""docmt select MODEL SOURCE TARGET -o OUTPUT

Select the training data where a model gains most from its context (MaxPCXMI; Mąka et al. 2025). The gain of a sentence
is that of its token that gains most: its log-probability after the sentences before it, against without them. Each
selected sentence becomes a document of its own, after these sentences, so documents may overlap. First sentences of
documents are left out. Existing outputs are replaced.

usage:
    MODEL SOURCE TARGET -o SOURCE_OUTPUT TARGET_OUTPUT [options]
    MODEL SOURCE TARGET -o OUTPUT.jsonl [options]

examples:
    docmt select runs/group train.en train.de -o rich.en rich.de
    docmt select runs/group train.en train.de -o rich.jsonl --share 0.05 --before 1
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from docmt.cli.corpus_io import check_outputs, document_name, map_or_report, read_corpus
from docmt.cli.options import ModelOptions, Parser, translator_of
from docmt.core.errors import DocmtError
from docmt.core.progress import progress
from docmt.core.settings import option, ranged
from docmt.documents import ParallelDocument
from docmt.documents.corpus_files import write_jsonl, write_parallel
from docmt.documents.input_formats import is_jsonl
from docmt.evaluation.context_selection import TokenGain, cut_selected, measure_token_gains
from docmt.evaluation.context_usage import check_has_context

if TYPE_CHECKING:
    from docmt.decoding import Translator

_DOCUMENTS_AT_ONCE = 200
_SHOWN_TOKENS = 12
_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class SelectOptions(ModelOptions):
    """The options of the command."""

    model: str = option(positional=True, metavar="MODEL")
    """model or run directory that uses context"""
    source: str = option(positional=True, metavar="SOURCE")
    """source sentences, one a line, an empty line between documents, or JSONL"""
    target: str | None = option(None, positional=True, metavar="TARGET")
    """translations in the same format; not needed for JSONL with both sides"""
    output: list[str] = option(flags=("-o",), metavar="FILE")
    """two text files, for source and target, or one JSONL file"""
    share: float = ranged(0.15, 0, 1)
    """share of the sentences to select"""
    before: int = ranged(3, 1, 1000)
    """sentences before each one that are read, and kept"""


def parser() -> Parser[SelectOptions]:
    """Return the parser of the command."""
    return Parser("select", SelectOptions, __doc__, common="output share before batch_tokens device precision")


def run(arguments: Sequence[str]) -> int:
    """Write the sentences whose tokens gain most from context, with the sentences before them."""
    options = parser().parse(arguments)
    if len(options.output) != 2 - is_jsonl(options.output[0]):
        raise DocmtError("-o needs two files, for source and target, or one that ends in .jsonl")
    if not options.share:
        raise DocmtError("--share is 0: choose a number above 0, up to 1")
    check_outputs(*options.output, inputs=[options.source, options.target])
    corpus = read_corpus(options.source, options.target, "TARGET")
    check_has_context(max(map(len, corpus)))
    translator, failures = translator_of(options), list[str]()
    if not any(model.system.context_spec().reads_context for model in translator.models):
        raise DocmtError(f"{options.model} reads no context: name a model that was trained to read it")
    ranked = sorted(_measure(options, translator, corpus, failures), reverse=True)
    selected = ranked[: round(options.share * len(ranked))]
    if not selected:
        reason = "; ".join(failures[:1]) or "give more sentences, or a larger --share"
        raise DocmtError(f"no sentence was selected: {reason}")
    if selected[0].gain <= 0:
        raise DocmtError(f"no token gains from context in {options.model}: name a model that was trained to read it")
    documents = cut_selected(corpus, selected, options.before)
    if len(options.output) == 1:
        write_jsonl(documents, Path(options.output[0]))
    else:
        write_parallel(documents, *map(Path, options.output))
    least, median = selected[-1].gain, ranked[len(ranked) // 2].gain
    _log.info(
        f"selected {len(selected):,} of {len(ranked):,} sentences: a token of each gains {least:.3f} nats or more "
        f"(median of all: {median:.3f})"
    )
    counts = Counter(each.token for each in selected).most_common(_SHOWN_TOKENS)
    texts = translator.tokenizer.decode_batch([[token] for token, _ in counts], "target")
    _log.info(
        "tokens that gain most in many sentences: "
        + ", ".join(f"{text} {n:,}" for text, (_, n) in zip(texts, counts, strict=True))
    )
    for failure in failures:
        _log.error(failure)
    return 2 if failures else 0


def _measure(
    options: SelectOptions, translator: Translator, corpus: Sequence[ParallelDocument], failures: list[str]
) -> list[TokenGain]:
    """Return the gain of each sentence. Documents that fail are reported and left out."""
    gains = []
    with progress("measuring gains", len(corpus)) as bar:
        for first in range(0, len(corpus), _DOCUMENTS_AT_ONCE):
            documents = corpus[first : first + _DOCUMENTS_AT_ONCE]
            names = [document_name(options.source, document) for document in documents]
            measure = partial(measure_token_gains, translator, before=options.before)
            for found in map_or_report(list(enumerate(documents, first)), names, measure, failures):
                gains += found or []
            bar.advance(len(documents))
    return gains
