"""From corpus files to a prepared store: learn a tokenizer, encode, count."""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Iterator, Sequence
from itertools import count, islice
from pathlib import Path

import numpy as np

from docmt.core.errors import DocmtError
from docmt.core.files import atomic_directory, check_regular, file_checksums
from docmt.core.progress import progress
from docmt.data.instances import cut, place_of
from docmt.data.prepare_config import MARKS, SPLITS, Corpus, PrepareConfig
from docmt.data.statistics import STATISTICS_FILE, CorpusCounts, CorpusStatistics, SplitStatistics
from docmt.data.store import TOKENIZER_FOLDER, ParallelStore, PreparedStore, StoreWriter
from docmt.documents.corpus_files import ParallelDocument, SkipReport, read_parallel
from docmt.documents.segmentation import knows_language
from docmt.model.systems import ContextSpec
from docmt.text import PairTokenizer, SentencePieceTokenizer, Side, Tokenizer, load_tokenizer, train_tokenizer

BATCH_DOCUMENTS = 256
"""Documents encoded at a time: some thousand sentences, enough to keep all cores busy."""
ONE_DOCUMENT = 200
"""A corpus of one document with more sentences than this most likely lacks the borders of its documents."""
LONG_DOCUMENT = 2000
"""One of several documents with more sentences than this most likely is several. The longest of the corpora that this
was measured on (talks, news, parliament, manuals) has 1,575; whole novels have 2,700 to 9,600."""

_log = logging.getLogger(__name__)


def prepare(config: PrepareConfig) -> PreparedStore:
    """Reads the corpora, learns (or takes) the tokenizer, writes the store, and opens it.

    The corpora are read as streams, the training corpus twice. The store appears complete or not at all.
    Raises DocmtError for a store that is there already, and for corpora that are missing, broken or empty.
    """
    _check_store(config)
    ready = config.ready_tokenizer  # a wrong name shows before any corpus is read
    _warn_of_languages(config)
    if config.vocabulary_size and (ready is not None or config.sentencepiece_model is not None):
        _log.warning("--vocabulary-size has no effect, as the tokenizer is not learned: leave it out")
    for split in SPLITS:
        for corpus in config.corpora(split):
            for path in corpus.paths:
                check_regular(path, "it is read more than once, but is")
            next(_read(corpus, split, SkipReport()))  # a wrong path or an empty file shows now, not after minutes
    tokenizer = _tokenizer(config, ready)
    with atomic_directory(config.store) as directory:
        tokenizer.save(directory / TOKENIZER_FOLDER)
        splits = {
            split: _prepare_split(config, split, tokenizer, directory / split)
            for split in SPLITS
            if config.corpora(split)
        }
        statistics = CorpusStatistics(
            source_language=config.source_language,
            target_language=config.target_language,
            tokenizer=tokenizer.kind,
            vocabulary_size=tokenizer.vocabulary_size,
            instance_tokens=config.instance_tokens,
            splits=splits,
        )
        (directory / STATISTICS_FILE).write_text(statistics.to_json(), encoding="utf-8")
    return PreparedStore.open(config.store)


def _check_store(config: PrepareConfig) -> None:
    """Refuses to write over anything but, on request, a store; and over the corpora it is to be made of."""
    store = config.store
    if store.is_dir() and any(store.iterdir()):
        if not (store / STATISTICS_FILE).is_file():
            raise DocmtError(f"{store} exists and is not a prepared store; choose another directory for the store")
        if not config.overwrite:
            raise DocmtError(f"the store {store} exists already; add --overwrite to replace it, or choose another")
    elif store.exists() and not store.is_dir():
        raise DocmtError(f"{store} is a file; choose a directory for the store")
    for split in SPLITS:
        for path in (path for corpus in config.corpora(split) for path in corpus.paths):
            if Path(os.path.realpath(path)).is_relative_to(os.path.realpath(store)):
                raise DocmtError(f"{path} lies inside of the store {store} that would replace it; move it elsewhere")


def _tokenizer(config: PrepareConfig, ready: Path | None) -> Tokenizer:
    """That of both sides, or of the target where the source has another."""
    # That of the source first: learning the other one takes minutes.
    source = None if config.source_tokenizer is None else _ready_tokenizer(config, config.source_tokenizer)
    if ready is not None:
        usual = _ready_tokenizer(config, ready)
    elif config.sentencepiece_model is not None:
        usual = SentencePieceTokenizer.from_model(config.sentencepiece_model)
    else:
        languages, size = (config.source_language, config.target_language), config.vocabulary_size or None
        usual = train_tokenizer(config.tokenizer, _training_sentences(config), size, languages)
    return usual if source is None else PairTokenizer(source.for_side("source"), usual.for_side("target"))


def _ready_tokenizer(config: PrepareConfig, directory: Path) -> Tokenizer:
    """The tokenizer in a directory. Raises DocmtError where it is for other languages."""
    tokenizer = load_tokenizer(directory)
    if tokenizer.languages not in (None, (config.source_language, config.target_language)):
        raise DocmtError(
            f"the tokenizer in {directory} is for {' to '.join(tokenizer.languages or ())}; set "
            "--source-language and --target-language to these codes, or learn another tokenizer"
        )
    return tokenizer


def _training_sentences(config: PrepareConfig) -> Iterator[tuple[Side, str]]:
    for corpus in config.corpora("train"):
        for document in _read(corpus, "train", SkipReport()):
            for sentence in document.source if config.source_tokenizer is None else ():
                yield "source", sentence
            for sentence in document.target:
                yield "target", sentence


def _read(corpus: Corpus, split: str, skipped: SkipReport) -> Iterator[ParallelDocument]:
    """The documents of a corpus. Raises DocmtError if there are none."""
    empty = True
    for document in read_parallel(
        corpus.source, corpus.target, docids=corpus.docids, drafts=corpus.drafts, skipped=skipped
    ):
        empty = False
        yield document
    if empty:
        raise _empty(corpus, split)


def _empty(corpus: Corpus, split: str) -> DocmtError:
    return DocmtError(f"the {split} corpus {corpus} holds no sentence pairs; give files with parallel sentences")


def _prepare_split(config: PrepareConfig, split: str, tokenizer: Tokenizer, directory: Path) -> SplitStatistics:
    skipped = SkipReport()
    corpora = config.corpora(split)
    counts: dict[str, CorpusCounts] = {}
    with (
        StoreWriter(
            directory,
            max(tokenizer.vocabulary_size, tokenizer.source_vocabulary_size),
            drafts=any(corpus.drafts for corpus in corpora),
        ) as writer,
        progress(f"encoding {split}") as bar,
    ):
        for corpus in corpora:
            before = writer.documents, writer.sentences
            # Ids are those of a corpus: of several, each says which corpus it is from.
            prefix = f"{corpus.source.name}:" if len(corpora) > 1 else ""
            documents = _read(corpus, split, skipped)
            longest = (0, "")  # sentences and id
            while batch := list(islice(documents, BATCH_DOCUMENTS)):
                longest = max([longest, *((len(document.source), document.id) for document in batch)])
                _write_batch(batch, tokenizer, writer, skipped, prefix)
                bar.advance(sum(len(document.source) for document in batch), "sentences")
            own = CorpusCounts(writer.documents - before[0], writer.sentences - before[1])
            if not own.documents:
                raise _empty(corpus, split)
            _warn_of_long_documents(corpus, own, *longest)
            counts[_unused(str(corpus), counts)] = own
    sums = file_checksums(directory, [path.name for path in sorted(directory.iterdir())])
    return _count(ParallelStore(directory), config.instance_tokens, skipped, counts if len(counts) > 1 else {}, sums)


def _count(
    store: ParallelStore, limit: int, skipped: SkipReport, corpora: dict[str, CorpusCounts], sums: dict[str, str]
) -> SplitStatistics:
    """Count a split; limit: of its instances; sums: of its files."""
    source, target, borders = store.source.lengths, store.target.lengths, store.document_offsets
    costs = np.maximum(source, target) + MARKS
    longest = int(costs.argmax())
    document, place = place_of(longest, borders)
    return SplitStatistics(
        documents=len(store.document_ids),
        sentences=len(costs),
        instances=len(cut(source, target, borders, ContextSpec(), limit=limit)),
        source_tokens=int(source.sum()),
        target_tokens=int(target.sum()),
        cost=int(costs.sum()),
        longest_cost=int(costs[longest]),
        longest_document=store.document_ids[document],
        longest_sentence=place + 1,
        over_limit=int((costs >= limit).sum()),
        skipped=dict(skipped.counts),
        skipped_examples=dict(skipped.examples),
        corpora=corpora,
        crc32=sums,
    )


def _warn_of_long_documents(corpus: Corpus, counts: CorpusCounts, sentences: int, id: str) -> None:
    """A corpus of sentences without borders would teach a model that all of them are context of each other."""
    if corpus.target is None:
        remedy = "give each of its documents a line, or a `document` of its own"
    elif corpus.docids is not None:
        remedy = f"give each of its documents an id of its own in {corpus.docids}"
    else:
        remedy = (
            "put an empty line (or a line <d> before each) between its documents, or name the document of every line "
            "in a file for --train-docids (--dev-docids, --test-docids)"
        )
    if counts.documents == 1 and sentences > ONE_DOCUMENT:
        _log.warning("%s is a single document of %s sentences: if it is not, %s", corpus, f"{sentences:,}", remedy)
    elif sentences > LONG_DOCUMENT:
        _log.warning("%s: document %s has %s sentences: if it is several, %s", corpus, id, f"{sentences:,}", remedy)


def _warn_of_languages(config: PrepareConfig) -> None:
    """The source language goes into the model, and decides how `docmt translate` finds sentences in running text."""
    if config.source_language and not knows_language(config.source_language):
        _log.warning(
            "--source-language %s: the segmentation of running text has no rules for this language, and docmt "
            "translate will use those of English (files of one sentence a line need none)",
            config.source_language,
        )


def _unused(name: str, names: Collection[str]) -> str:
    """The name, with a number where it is taken: the same corpus may be there twice, to count double."""
    candidates = (f"{name} ({number})" for number in count(2))
    return name if name not in names else next(other for other in candidates if other not in names)


def _write_batch(
    documents: Sequence[ParallelDocument], tokenizer: Tokenizer, writer: StoreWriter, skipped: SkipReport, prefix: str
) -> None:
    """Encodes and writes the documents that have sentences left, with `prefix` before their ids."""
    sides: list[tuple[Side, list[Sequence[str]]]] = [
        ("source", [document.source for document in documents]),
        ("target", [document.target for document in documents]),
    ]
    if writer.has_drafts:
        sides.append(("target", [document.drafts for document in documents]))
    columns = [iter(tokenizer.encode_batch([text for texts in each for text in texts], side)) for side, each in sides]
    for document in documents:
        pairs = []
        for number in range(1, len(document.source) + 1):
            pair = [next(column) for column in columns]
            if all(pair[:2]):
                pairs.append(pair)
            else:  # a tokenizer that normalises may leave nothing of a sentence of odd characters
                skipped.add("pair of which the tokenizer leaves nothing", f"document {document.id}, sentence {number}")
        if pairs:
            writer.add(f"{prefix}{document.id}", *zip(*pairs, strict=True))
