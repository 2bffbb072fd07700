"""Preparation of a store from corpus files: learn a tokenizer, encode, and count."""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from itertools import count, islice
from pathlib import Path

import numpy as np

from docmt.core.errors import DocmtError
from docmt.core.files import atomic_directory, check_regular, file_checksums
from docmt.core.progress import progress
from docmt.data.instances import cut_instances, locate_sentence
from docmt.data.prepare_config import NUM_BOUNDARY_TOKENS, SPLITS, Corpus, PrepareConfig
from docmt.data.statistics import STATISTICS_FILE, CorpusCounts, CorpusStatistics, SplitStatistics
from docmt.data.store import TOKENIZER_FOLDER, ParallelStore, PreparedStore, StoreWriter
from docmt.documents.corpus_files import ParallelDocument, SkipReport, read_parallel
from docmt.documents.segmentation import knows_language
from docmt.documents.words import normalize_characters
from docmt.model.systems import ContextSpec
from docmt.text import PairTokenizer, SentencePieceTokenizer, Side, Tokenizer, load_tokenizer, train_tokenizer
from docmt.text.tokenizer import CONFIG_FILE as TOKENIZER_CONFIG

BATCH_DOCUMENTS = 256
"""Documents encoded at a time: some thousand sentences keep all cores busy."""
SINGLE_DOCUMENT_LIMIT = 200
"""A corpus of one document with more sentences probably lacks document boundaries."""
LONG_DOCUMENT_LIMIT = 2000
"""One of several documents with more sentences probably is several. The longest in measured corpora (talks, news,
parliament, manuals) has 1,575; whole novels have 2,700 to 9,600.
"""

_log = logging.getLogger(__name__)


def prepare(config: PrepareConfig) -> PreparedStore:
    """Read the corpora, learn or load the tokenizer, write the store, and open it.

    Corpora are read as streams, the training corpus twice. The store appears complete or not at all.
    Raises DocmtError for a store that exists already, and for corpora that are missing, broken or empty.
    """
    _check_store(config)
    ready = config.ready_tokenizer  # a wrong name fails before any corpus is read
    _warn_of_languages(config)
    if config.vocabulary_size and (ready is not None or config.sentencepiece_model is not None):
        _log.warning("--vocabulary-size has no effect, as the tokenizer is not learned: leave it out")
    for split in SPLITS:
        for corpus in config.corpora(split):
            for path in corpus.paths:
                check_regular(path, "it is read more than once, but is")
            next(_read_corpus(corpus, split, SkipReport()))  # a wrong path or an empty file fails now
    tokenizer = _build_tokenizer(config, ready)
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
    """Raise DocmtError if the store would replace other files, its own corpora, or a store without `overwrite`."""
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
                raise DocmtError(f"{path} is inside the store {store}, which would be replaced; move it elsewhere")


def _build_tokenizer(config: PrepareConfig, ready: Path | None) -> Tokenizer:
    """Return the tokenizer of both sides, or a pair if the source has another."""
    # The source first, as learning the other tokenizer takes minutes.
    source = None if config.source_tokenizer is None else _load_ready_tokenizer(config, config.source_tokenizer)
    if ready is not None:
        tokenizer = _load_ready_tokenizer(config, ready)
    elif config.sentencepiece_model is not None:
        tokenizer = SentencePieceTokenizer.from_model(config.sentencepiece_model)
    else:
        languages, size = (config.source_language, config.target_language), config.vocabulary_size or None
        tokenizer = train_tokenizer(config.tokenizer, _iterate_training_sentences(config), size, languages)
    return tokenizer if source is None else PairTokenizer(source.for_side("source"), tokenizer.for_side("target"))


def _load_ready_tokenizer(config: PrepareConfig, directory: Path) -> Tokenizer:
    """Return the tokenizer of a model, run or store. Raises DocmtError if it is for other languages."""
    folders = (directory, directory / "model", directory / TOKENIZER_FOLDER)
    tokenizer = load_tokenizer(next((each for each in folders if (each / TOKENIZER_CONFIG).is_file()), directory))
    if tokenizer.languages not in (None, (config.source_language, config.target_language)):
        raise DocmtError(
            f"the tokenizer in {directory} is for {' to '.join(tokenizer.languages or ())}; set "
            "--source-language and --target-language to these codes, or learn another tokenizer"
        )
    return tokenizer


def _iterate_training_sentences(config: PrepareConfig) -> Iterator[tuple[Side, str]]:
    for corpus in config.corpora("train"):
        for document in _read_corpus(corpus, "train", SkipReport()):
            for sentence in filter(None, document.source if config.source_tokenizer is None else ()):
                yield "source", sentence
            for sentence in document.target:
                yield "target", sentence


def _read_corpus(corpus: Corpus, split: str, skipped: SkipReport) -> Iterator[ParallelDocument]:
    """Yield the documents of a corpus. Raises DocmtError if there are none."""
    empty = True
    for document in read_parallel(
        corpus.source,
        corpus.target,
        docids=corpus.docids,
        drafts=corpus.drafts,
        columns=corpus.columns,
        languages=corpus.languages,
        skipped=skipped,
    ):
        empty = False
        yield replace(document, source=tuple(map(normalize_characters, document.source)))
    if empty:
        raise _empty_corpus_error(corpus, split)


def _empty_corpus_error(corpus: Corpus, split: str) -> DocmtError:
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
            counts_before = writer.documents, writer.sentences
            # With several corpora, ids name the corpus, as they are unique only within one.
            prefix = f"{corpus.source.name}:" if len(corpora) > 1 else ""
            documents = _read_corpus(corpus, split, skipped)
            longest = (0, "")  # sentences and id
            while batch := list(islice(documents, BATCH_DOCUMENTS)):
                longest = max([longest, *((len(document.source), document.id) for document in batch)])
                _write_batch(batch, tokenizer, writer, skipped, prefix)
                bar.advance(sum(len(document.source) for document in batch), "sentences")
            corpus_counts = CorpusCounts(writer.documents - counts_before[0], writer.sentences - counts_before[1])
            if not corpus_counts.documents:
                raise _empty_corpus_error(corpus, split)
            _warn_of_long_documents(corpus, corpus_counts, *longest)
            counts[_unique_name(str(corpus), counts)] = corpus_counts
    crc32 = file_checksums(directory, [path.name for path in sorted(directory.iterdir())])
    store = ParallelStore(directory)
    if store.drafts is not None and (empty := int((store.drafts.lengths == 0).sum())):
        _log.warning("%s: %s of %s drafts are empty", split, f"{empty:,}", f"{writer.sentences:,}")
    return _count_split(store, config.instance_tokens, skipped, counts, crc32)


def _count_split(
    store: ParallelStore, limit: int, skipped: SkipReport, corpora: dict[str, CorpusCounts], crc32: dict[str, str]
) -> SplitStatistics:
    """Return the statistics of a split; limit: token limit of its instances."""
    source, target, borders = store.source.lengths, store.target.lengths, store.document_offsets
    costs = np.maximum(source, target) + NUM_BOUNDARY_TOKENS
    longest = int(costs.argmax())
    document, index = locate_sentence(longest, borders)
    return SplitStatistics(
        documents=store.num_documents,
        sentences=len(costs),
        instances=len(cut_instances(source, target, borders, ContextSpec(), limit=limit)),
        source_tokens=int(source.sum()),
        target_tokens=int(target.sum()),
        cost=int(costs.sum()),
        longest_cost=int(costs[longest]),
        longest_document=store.document_ids[document],
        longest_sentence=index + 1,
        over_limit=int((costs >= limit).sum()),
        skipped=dict(skipped.counts),
        skipped_examples=dict(skipped.examples),
        corpora=corpora if len(corpora) > 1 else {},
        crc32=crc32,
    )


def _warn_of_long_documents(corpus: Corpus, counts: CorpusCounts, sentences: int, id: str) -> None:
    """Warn of a corpus without document boundaries: the model would learn unrelated sentences as context."""
    if corpus.target is None:
        remedy = "give each of its documents a line of its own, or its own `document`"
    elif corpus.docids is not None:
        remedy = f"give each of its documents an id of its own in {corpus.docids}"
    else:
        remedy = (
            "put an empty line (or a line <d> before each) between its documents, or name the document of every line "
            "in a file for --train-docids (--dev-docids, --test-docids)"
        )
    if counts.documents == 1 and sentences > SINGLE_DOCUMENT_LIMIT:
        _log.warning("%s is one document of %s sentences. If it is several, %s", corpus, f"{sentences:,}", remedy)
    elif sentences > LONG_DOCUMENT_LIMIT:
        _log.warning("%s: document %s has %s sentences. If it is several, %s", corpus, id, f"{sentences:,}", remedy)


def _warn_of_languages(config: PrepareConfig) -> None:
    """Warn if docmt has no segmentation rules for the source language, which the model will store."""
    if config.source_language and not knows_language(config.source_language):
        _log.warning(
            "--source-language %s: docmt has no rules to split text of this language into sentences. docmt translate "
            "will use those of English (files with one sentence per line need none)",
            config.source_language,
        )


def _unique_name(name: str, names: Collection[str]) -> str:
    """Return the name, numbered if taken: a corpus may be listed twice to count double."""
    candidates = (f"{name} ({number})" for number in count(2))
    return name if name not in names else next(candidate for candidate in candidates if candidate not in names)


def _write_batch(
    documents: Sequence[ParallelDocument], tokenizer: Tokenizer, writer: StoreWriter, skipped: SkipReport, prefix: str
) -> None:
    """Encode documents and write those with sentences left, with `prefix` before their ids."""
    sides: list[tuple[Side, list[Sequence[str]]]] = [
        ("source", [document.source for document in documents]),
        ("target", [document.target for document in documents]),
    ]
    if writer.has_drafts:
        sides.append(("target", [document.drafts for document in documents]))
    columns = [iter(tokenizer.encode_batch([text for group in texts for text in group], side)) for side, texts in sides]
    for document in documents:
        pairs = []
        for number in range(1, len(document.source) + 1):
            pair = [next(column) for column in columns]
            if all(pair[:2]):
                pairs.append(pair)
            else:  # normalization may remove all characters of a sentence
                skipped.add("pair of which the tokenizer leaves nothing", f"document {document.id}, sentence {number}")
        if pairs:
            writer.add(f"{prefix}{document.id}", *zip(*pairs, strict=True))
