"""docmt inspect MODEL, docmt inspect MODEL SOURCE [TARGET], and docmt inspect --curves RUN RUN ...

Looks into a model. Of a model alone: what it is and how it was trained. With text: over how many tokens its
attentions spread, by layer and head, how far back they look, and how far its gates let context in. With --curves: how
trainings went, side by side.

usage:
    MODEL [options]
    MODEL SOURCE [TARGET] [options]
    --curves RUN RUN ... [--figure FILE]

examples:
    docmt inspect MODEL
    docmt inspect MODEL test.en test.de --json looks.json
    docmt inspect --curves runs/group runs/concat --figure curves.png
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from docmt.cli.corpora import attempt, check_outputs, document_name, each_alone, read_corpus
from docmt.cli.options import Parser, SearchOptions, changed, translator_of
from docmt.cli.results import Report, write_json
from docmt.core.errors import DocmtError, printable
from docmt.core.plain_text import STANDARD
from docmt.core.settings import flag_of, option
from docmt.documents import Document, ParallelDocument, read_documents

if TYPE_CHECKING:
    from docmt.analysis import AttentionReport
    from docmt.decoding import Translator


@dataclass(frozen=True, kw_only=True)
class InspectOptions(SearchOptions):
    """The options of the command."""

    model: str = option("", positional=True, metavar="MODEL")
    """model or run directory"""
    source: str = option("", positional=True, metavar="SOURCE")
    """source sentences: one a line, an empty line between documents, or the `source` of JSONL"""
    target: str | None = option(None, positional=True, metavar="TARGET")
    """their translations in the same form, which the decoder reads; without it, its own (JSONL with both sides is named
    twice)"""
    figure: Path | None = option(None, metavar="FILE")
    """picture of --curves (.png, .svg or .pdf); the numbers go to a file of the same name that ends in .json"""
    json: str | None = option(None, metavar="FILE")
    """where all numbers go as JSON (- for only that)"""
    curves: list[Path] = option([], metavar="RUN")
    """run directories, or their metrics.jsonl"""


def parser() -> Parser[InspectOptions]:
    """Return the parser of the command."""
    return Parser("inspect", InspectOptions, __doc__, common="figure json curves search.beam device")


def run(arguments: Sequence[str]) -> int:
    """Says what a model is, what it looks at, or how trainings went."""
    options = parser().parse(arguments)
    _check(options)
    if options.curves:
        return _compare_runs(options)
    from docmt.decoding.models import parse_model_paths  # torch takes a while to load

    if len(paths := parse_model_paths(options.model)) > 1:
        raise DocmtError(f"{options.model} is an ensemble: look into one model at a time, such as {paths[0]}")
    if not options.source:
        return _describe(options)
    return _look_at_text(options)


def _check(options: InspectOptions) -> None:
    """Raise DocmtError for options that do not go together and for outputs that cannot be written."""
    if options.curves and options.model:
        raise DocmtError("--curves and MODEL are both given: look at trainings, or at a model")
    if not options.curves and not options.model:
        raise DocmtError("MODEL is missing; name a model directory, or run directories with --curves")
    _check_unread(options)
    check_outputs(options.json)
    if options.figure is not None:
        from docmt.analysis.figures import figure_format

        if not options.curves:
            raise DocmtError("--figure draws learning curves: name run directories with --curves, or leave it out")
        figure_format(options.figure)
        check_outputs(str(_beside(options.figure)))


def _check_unread(options: InspectOptions) -> None:
    """Raises DocmtError for options of computing where nothing is computed, and of a search where there is none."""
    if not options.source and (computed := changed(options, "device", "precision")):
        raise DocmtError(
            f"{flag_of(computed[0])} has no meaning without text to look at, as nothing is computed: leave it out"
        )
    searched = changed(options, "search", *([] if options.source else ["context"]))
    if searched and (options.target or not options.source):
        why = "with TARGET, which is read and not translated" if options.target else "without text to translate"
        raise DocmtError(f"{flag_of(searched[0])} has no meaning {why}: leave it out")


def _describe(options: InspectOptions) -> int:
    """What a model is."""
    from docmt.analysis.model_summary import ModelSummary

    facts = ModelSummary.from_directory(options.model)
    _tell_all(options, facts.format(), facts.to_json())
    return 0


def _compare_runs(options: InspectOptions) -> int:
    """How several trainings went."""
    from docmt.analysis.figures import METRICS_FILE, draw_curves, read_curves, summarize_run

    places = {path: path / METRICS_FILE if path.is_dir() else path for path in options.curves}
    short = [path.parent.name if path.name == METRICS_FILE else path.name for path in places]
    clear = len(set(short)) == len(short) and all(short)
    runs = dict(zip(short if clear else map(str, places), places.values(), strict=True))
    found = {name: read_curves(path) for name, path in runs.items()}
    if options.figure:
        draw_curves(runs, options.figure)
    width = max(map(len, found))
    lines = []
    for name, curves in found.items():
        facts = ", ".join(f"{key.replace('_', ' ')} {value:,.5g}" for key, value in summarize_run(curves).items())
        lines.append(f"{name:<{width}}  {facts or 'nothing yet'}")
    # A name that is no UTF-8 stands escaped in the file, as it does in the table and in the picture.
    numbers = {printable(name): {key: vars(curve) for key, curve in own.items()} for name, own in found.items()}
    _tell_all(options, "\n".join(lines), {"runs": numbers})
    return 0


def _look_at_text(options: InspectOptions) -> int:
    """Print what the model looks at in a corpus. A document that cannot be read does not stop the others."""
    import torch  # takes a while to load

    from docmt.analysis import AttentionReport
    from docmt.core.progress import progress
    from docmt.decoding.models import precision_context
    from docmt.evaluation.metrics import format_count

    corpus, failures = _corpus(options), Report()
    translator = translator_of(options)
    documents = corpus if options.target else _translated(options, corpus, translator, failures)
    report, read = AttentionReport(), list[ParallelDocument]()
    with (
        torch.inference_mode(),
        precision_context(translator.model, translator.precision),
        progress(f"looking on {translator.device} (sentences)", sum(map(len, documents))) as bar,
    ):
        for document in documents:
            look = partial(_look_at, translator, document, report)
            if attempt(document_name(options.source, document), look, failures.failures):
                read.append(document)
            bar.advance(len(document))
    if report.attentions:
        whose = "given" if options.target else "own"
        counts = f"{format_count(len(read), 'document')}, {format_count(sum(map(len, read)), 'sentence')}"
        title = f"{counts}, {whose} translations"
        numbers: dict[str, Any] = {name: getattr(options, name) for name in ("model", "source", "target")}
        numbers |= {"documents": len(read), "sentences": sum(map(len, read)), **report.to_json()}
        _tell_all(options, f"{title}\n\n{report.format()}", numbers)
    return failures.print(len(corpus), len(read), "documents", "looked at")


def _corpus(options: InspectOptions) -> list[ParallelDocument]:
    """Return the documents, with empty translations if there is no TARGET."""
    if options.target:
        return read_corpus(options.source, options.target)
    corpus = []
    for number, (id, sentences) in enumerate(read_documents(Path(options.source)), 1):
        if filled := tuple(sentence for sentence in sentences if sentence):
            corpus.append(ParallelDocument(id, filled, ("",) * len(filled), number))
    if not corpus:
        raise DocmtError(f"{options.source} holds no sentences: give a file with text")
    return corpus


def _translated(
    options: InspectOptions, corpus: Sequence[ParallelDocument], translator: Translator, failures: Report
) -> list[ParallelDocument]:
    """Return the documents with the model's own translations, without those that cannot be translated."""
    sources = [Document.from_sentences(document.source, id=document.id) for document in corpus]
    names = [document_name(options.source, document) for document in corpus]
    translations = each_alone(sources, names, translator.translate_all, failures.failures)
    return [
        replace(document, target=tuple(translation.document.sentences))
        for document, translation in zip(corpus, translations, strict=True)
        if translation is not None
    ]


def _look_at(translator: Translator, document: ParallelDocument, report: AttentionReport) -> bool:
    """Add to the report what the model looks at when it scores the translation of a document. Return True."""
    from docmt.analysis import report_attention
    from docmt.decoding.scoring import iterate_scoring_inputs

    model, tokenizer = translator.model, translator.tokenizer
    source = tokenizer.encode_batch(list(document.source), "source")
    target = tokenizer.encode_batch(list(document.target), "target")
    passes = iterate_scoring_inputs(
        model,
        [source],
        [target],
        tokenizer.specials,
        translator.search,
        context=translator.context,
        batch_tokens=translator.batch_tokens,
        drafts=translator.draft_documents([source]),
    )
    report_attention(model, passes, report)
    return True


def _beside(figure: Path) -> Path:
    """Where the numbers of a picture go."""
    return figure.with_suffix(".json")


def _tell_all(options: InspectOptions, table: str, numbers: dict[str, Any]) -> None:
    """Prints the table and writes the numbers where they are wanted: beside the picture, and where --json says."""
    places = dict.fromkeys([*([str(_beside(options.figure))] if options.figure else []), *([options.json or ""])])
    for place in filter(None, places):
        write_json(place, numbers, indent=None)
    if options.json != STANDARD:
        print(printable(table, kept="\n"))
