"""What docmt inspect does with text: the attentions and the gates of a model, over a corpus or in one document."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from docmt.analysis.document_figure import draw_document
from docmt.analysis.report import Report, look_at_corpus, look_at_document
from docmt.cli.corpora import document_name, each_alone, read_corpus
from docmt.cli.parsing import translator_of
from docmt.cli.results import Report as Failures
from docmt.cli.results import tell_all
from docmt.core.errors import DocmtError
from docmt.core.progress import progress
from docmt.decoding import Translator
from docmt.decoding.frame import WordIds
from docmt.decoding.loading import model_paths
from docmt.decoding.passes import passes
from docmt.decoding.precision import computing_in
from docmt.documents import Document, ParallelDocument, read_documents
from docmt.evaluation.metrics import count
from docmt.text import Side, SpecialTokens, Tokenizer

_MARKS = {SpecialTokens.bos: "<s>", SpecialTokens.eos: "</s>", SpecialTokens.unk: "<unk>"}


def look_into(options: Any) -> int:
    """Prints what the model looks at in a corpus, or in one document, of which a picture may be drawn."""
    if len(paths := model_paths(options.model)) > 1:
        raise DocmtError(f"{options.model} is an ensemble: look into one model at a time, such as {paths[0]}")
    failures = Failures()
    corpus = _chosen(options, _corpus(options))
    translator = translator_of(options)
    _check_range(options, translator, len(corpus[0]))
    read = corpus if options.target else _translated(options, corpus, translator, failures)
    looking = _Looking(translator, read, [document_name(options.source, own) for own in read], failures.failures)
    report = looking.report()
    if not report.attentions:
        return failures.print(len(corpus), 0, "documents", "looked at")
    sentences, done = sum(map(len, looking.seen)), len(looking.seen)
    whose = "given" if options.target else "own"
    title = f"{count(done, 'document')}, {count(sentences, 'sentence')}, {whose} translations"
    numbers: dict[str, Any] = {name: getattr(options, name) for name in ("model", "source", "target")}
    numbers |= {"documents": done, "sentences": sentences, **report.to_json()}
    table = f"{title}\n\n{report.format()}"
    if options.document is not None or options.figure:
        numbers["document"], pairs = looking.document(options)
        table += f"\n\n{pairs}" if pairs else ""
    tell_all(options, table, numbers)
    return failures.print(len(corpus), done, "documents", "looked at")


def _corpus(options: Any) -> list[ParallelDocument]:
    """The documents, with empty translations if there is no TARGET."""
    if options.target:
        return read_corpus(options.source, options.target)
    corpus = []
    for number, (id, sentences) in enumerate(read_documents(Path(options.source)), 1):
        if filled := tuple(sentence for sentence in sentences if sentence):
            corpus.append(ParallelDocument(id, filled, ("",) * len(filled), number))
    if not corpus:
        raise DocmtError(f"{options.source} holds no sentences: give a file with text")
    return corpus


def _chosen(options: Any, corpus: Sequence[ParallelDocument]) -> list[ParallelDocument]:
    """The documents to look at. Raises DocmtError where the one that is asked for is not there."""
    if options.document is None:
        return list(corpus[:1]) if options.figure else list(corpus)
    found = [own for own in corpus if options.document in (own.id, str(own.number))]
    by_id = [own for own in found if own.id == options.document]
    if not found:
        first, last = corpus[0].id, corpus[-1].id
        known = f"it has {first}" if len(corpus) == 1 else f"its documents are {first} to {last} ({len(corpus)})"
        raise DocmtError(f"{options.source} has no document {options.document!r}: {known}")
    if len(by_id) > 1:
        others = ", ".join(str(own.number) for own in by_id)
        raise DocmtError(
            f"{options.source} has several documents {options.document!r}: give the number of one ({others})"
        )
    return (by_id or found)[:1]


def _check_range(options: Any, translator: Translator, sentences: int) -> None:
    """Raises DocmtError for a layer or a head that the model does not have, and a sentence that is not there."""
    config = translator.model.config
    layers = max(config.encoder_layers, config.decoder_layers)
    heads = min(config.heads, config.encoder_heads or config.heads)
    limits = (("layer", layers, "model"), ("head", heads, "model"), ("sentence", sentences, "document"))
    for name, limit, whose in limits:
        if (given := getattr(options, name)) is not None and given > limit:
            raise DocmtError(
                f"--{name} is {given}, but the {whose} has {count(limit, name)}: choose a number from 1 to that"
            )


def _translated(
    options: Any, corpus: Sequence[ParallelDocument], translator: Translator, failures: Failures
) -> list[ParallelDocument]:
    """The documents with the model's own translations, without those that cannot be translated."""
    sources = [Document.from_sentences(own.source, id=own.id) for own in corpus]
    names = [document_name(options.source, own) for own in corpus]
    found = each_alone(sources, names, translator.translate_all, failures.failures)
    return [
        replace(own, target=tuple(translation.document.sentences))
        for own, translation in zip(corpus, found, strict=True)
        if translation is not None
    ]


class _Looking:
    """A model and the documents that are looked at."""

    def __init__(
        self, translator: Translator, corpus: Sequence[ParallelDocument], names: Sequence[str], failures: list[str]
    ) -> None:
        """names: of the documents, in the messages in `failures` of those that cannot be read."""
        self.translator, self.corpus, self.names, self.failures = translator, corpus, names, failures
        self.seen: list[ParallelDocument] = []
        """those that could be looked at"""
        self.drafts = each_alone(corpus, names, self._drafted, failures)
        """of each document the first translations that the model reads (none, where it reads none); None: it failed"""

    def _drafted(self, corpus: Sequence[ParallelDocument]) -> Sequence[WordIds]:
        if not self.translator.model.system.needs().drafts:
            return [[] for _ in corpus]
        return self.translator.drafts([self._ids(own.source, "source") for own in corpus]) or []

    def _passes(self, number: int) -> Any:
        translator, document, drafts = self.translator, self.corpus[number], self.drafts[number]
        return passes(
            translator.model,
            [self._ids(document.source, "source")],
            [self._ids(document.target, "target")],
            translator.tokenizer.specials,
            translator.search,
            [drafts] if drafts else None,
        )

    def _ids(self, sentences: Sequence[str], side: Side) -> WordIds:
        return self.translator.tokenizer.encode_batch(list(sentences), side)

    def report(self) -> Report:
        """Of all documents together; one that cannot be read does not stop the others."""
        report, translator = Report(), self.translator
        with (
            torch.inference_mode(),
            computing_in(translator.model, translator.precision),
            progress(f"looking on {translator.device} (sentences)", sum(map(len, self.corpus))) as bar,
        ):
            for number, document in enumerate(self.corpus):

                def work(numbers: Sequence[int]) -> list[Report]:
                    return [look_at_corpus(translator.model, self._passes(own), report) for own in numbers]

                drafted = self.drafts[number] is not None
                if drafted and each_alone([number], [self.names[number]], work, self.failures)[0] is not None:
                    self.seen.append(document)
                bar.advance(len(document))
        return report

    def document(self, options: Any) -> tuple[dict[str, Any], str]:
        """Numbers and a table of the only document; draws its picture if there is to be one."""
        translator, document = self.translator, self.corpus[0]
        sentence = None if options.sentence is None else options.sentence - 1
        with torch.inference_mode(), computing_in(translator.model, translator.precision):
            looks = look_at_document(translator.model, self._passes(0), len(document), sentence)
        pieces = {
            side: [_pieces(translator.tokenizer, looks.tokens[side].get(i, []), side) for i in range(len(document))]
            for side in ("source", "target")
        }
        head = None if options.head is None else options.head - 1
        if options.figure:
            draw_document(looks, pieces, options.figure, options.layer, head, options.relative)
        shown = [
            {"source": source, "target": target, "source_tokens": own[0], "target_tokens": own[1]}
            for (source, target), own in zip(document, zip(*pieces.values(), strict=True), strict=True)
        ]
        return {"id": document.id, "sentences": shown, **looks.to_json()}, looks.format()


def _pieces(tokenizer: Tokenizer, ids: Sequence[int], side: Any) -> list[str]:
    """The text of each token."""
    texts = tokenizer.decode_batch([[id] for id in ids], side)
    return [_MARKS.get(id, text.strip() or text) for id, text in zip(ids, texts, strict=True)]
