"""Preparation of a store from corpus files: the corpora, learn a tokenizer, encode, and count."""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from itertools import count, islice
from pathlib import Path

import numpy as np

from docmt.core.errors import DocmtError
from docmt.core.files import atomic_directory, check_regular, file_checksums
from docmt.core.progress import progress
from docmt.core.settings import MANY, CheckedSettings, option, quote, ranged
from docmt.data.instances import DEFAULT_LIMIT, NUM_BOUNDARY_TOKENS, cut_instances, locate_sentence
from docmt.data.store import (
    STATISTICS_FILE,
    TOKENIZER_FOLDER,
    CorpusCounts,
    CorpusStatistics,
    ParallelStore,
    PreparedStore,
    SplitStatistics,
    StoreWriter,
)
from docmt.documents.corpus_files import ParallelDocument, SkipReport, read_parallel
from docmt.documents.published_corpora import Columns, holds_both_sides, is_tsv
from docmt.documents.segmentation import knows_language
from docmt.documents.words import normalize_characters
from docmt.model.systems import ContextSpec
from docmt.text import PairTokenizer, SentencePieceTokenizer, Side, Tokenizer, load_tokenizer, train_tokenizer
from docmt.text.bpe import moses_language
from docmt.text.tokenizer import CONFIG_FILE as TOKENIZER_CONFIG

SPLITS = ("train", "dev", "test")
LARGEST_VOCABULARY = 1_000_000
"""Upper limit, as libraries overflow or do not finish for much larger vocabularies."""
NO_IDS = "-"
LEARNED_KINDS = ("bpe", "sentencepiece", "moses-bpe")
BATCH_DOCUMENTS = 256
"""Documents encoded at a time: some thousand sentences keep all cores busy."""
SINGLE_DOCUMENT_LIMIT = 200
"""A corpus of one document with more sentences probably lacks document boundaries."""
SHORT_DOCUMENTS, FEWEST_LINES = 0.9, 10
"""Share of lines with an id of their own from which on a TSV file of so many lines probably has other columns."""
LONG_DOCUMENT_LIMIT = 2000
"""One of several documents with more sentences probably is several. The longest in measured corpora (talks, news,
parliament, manuals) has 1,575; whole novels have 2,700 to 9,600.
"""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PrepareConfig(CheckedSettings):
    """Configuration of `docmt prepare`: corpora, tokenizer and store."""

    store: Path
    """directory to write"""
    train: list[Path] = option(metavar="FILE")
    """training corpora: source and target text files, or JSONL, Parquet, TSV or TMX with both; may be compressed"""
    dev: list[Path] = option([], metavar="FILE")
    """development corpora in the same form; none = no validation"""
    test: list[Path] = option([], metavar="FILE")
    """test corpora in the same form"""
    train_docids: list[Path] = option([], metavar="FILE")
    """files with the document id of each line, one per training corpus; - = none"""
    dev_docids: list[Path] = option([], metavar="FILE")
    """files with the document id of each line, one per development corpus"""
    test_docids: list[Path] = option([], metavar="FILE")
    """files with the document id of each line, one per test corpus"""
    drafts: list[Path] = option([], metavar="FILE")
    """first translations, for systems that read them (such as multihop): one file per --train, then per --dev corpus"""
    columns: list[str] = option([], metavar="NAME=COLUMN")
    """columns of rows, such as source=eng target=deu; also document, source_context, target_context"""
    source_language: str = ""
    """code of the source language, such as en"""
    target_language: str = ""
    """code of the target language"""
    tokenizer: str = "bpe"
    """kind to learn (bpe, sentencepiece, moses-bpe), or a model directory or SentencePiece file to take it from"""
    vocabulary_size: int = ranged(0, 0, LARGEST_VOCABULARY)
    """vocabulary size to learn, with special tokens; 0 = the default of the kind"""
    source_tokenizer: Path | None = None
    """model directory with another tokenizer for the source (a converted encoder)"""
    instance_tokens: int = ranged(DEFAULT_LIMIT, NUM_BOUNDARY_TOKENS + 1, MANY)
    """token limit of an instance, for the statistics only"""
    overwrite: bool = False
    """replace an existing store"""

    def __post_init__(self) -> None:
        super().__post_init__()
        parse_columns(self.columns)
        if not self.train:
            raise DocmtError("--train names 0 files; give one JSONL file, or a source and a target file")
        corpora = [corpus for split in SPLITS for corpus in self.corpora(split)]
        if self.columns and all(corpus.target for corpus in corpora):
            raise DocmtError("--columns has no effect on text files, a source and a target each: leave it out")
        count = len(self._pair_files("train")) + len(self._pair_files("dev"))
        if self.drafts and len(self.drafts) != count:
            raise DocmtError(
                f"--drafts names {len(self.drafts)} files for {count} corpora of --train and --dev: give one for "
                "each, in this order"
            )
        if self.tokenizer == "moses-bpe":
            self._check_languages()

    @property
    def ready_tokenizer(self) -> Path | None:
        """Path of a ready tokenizer, or None for a kind to learn. Raises DocmtError if it does not exist."""
        if self.tokenizer in LEARNED_KINDS:
            return None
        if not Path(self.tokenizer).exists():
            raise DocmtError(
                f"--tokenizer is {quote(self.tokenizer)}, and there is no such directory: choose one of "
                f"{', '.join(LEARNED_KINDS)}, or name a model, run or store"
            )
        return Path(self.tokenizer)

    def _check_languages(self) -> None:
        if not (self.source_language and self.target_language):
            raise DocmtError(
                "--tokenizer moses-bpe depends on the languages; add --source-language and --target-language with "
                "their codes, such as en and de"
            )
        moses_language(self.source_language, "--source-language ")
        moses_language(self.target_language, "--target-language ")

    def corpora(self, split: str) -> list[Corpus]:
        """Return the corpora of "train", "dev" or "test"; none if the split is not given.

        A file that holds both sides is a corpus, and so is a single file. Others are pairs of source and target.
        Raises DocmtError for a source file without target file.
        """
        corpora = self._add_docids(split, self._pair_files(split))
        if split == "test" or not self.drafts:
            return corpora
        first = 0 if split == "train" else len(self._pair_files("train"))
        drafts = self.drafts[first : first + len(corpora)]
        return [replace(corpus, drafts=Path(path)) for corpus, path in zip(corpora, drafts, strict=False)]

    def _pair_files(self, split: str) -> list[Corpus]:
        """Return the corpora that the files of a split name."""
        files = [Path(path) for path in getattr(self, split)]
        languages, columns = (self.source_language, self.target_language), parse_columns(self.columns)
        if len(files) == 1:
            return [Corpus(files[0], columns=columns, languages=languages)]
        corpora: list[Corpus] = []
        paths = iter(files)
        for source in paths:
            target = None if holds_both_sides(source) else next(paths, None)
            if not holds_both_sides(source) and (target is None or holds_both_sides(target)):
                raise DocmtError(
                    f"--{split} names {len(files)} files; give one JSONL file, or a source and a target file, for each "
                    f"corpus ({source} has no target file, and its name does not end in .jsonl, .parquet, .tsv or .tmx)"
                )
            corpora.append(Corpus(source, target, columns=columns, languages=languages))
        return corpora

    def _add_docids(self, split: str, corpora: list[Corpus]) -> list[Corpus]:
        """Return the corpora with their docids files. Raises DocmtError if the numbers of files differ."""
        files = [Path(path) for path in getattr(self, f"{split}_docids")]
        if not files:
            return corpora
        if len(files) != len(corpora):
            raise DocmtError(
                f"--{split}-docids names {len(files)} files for {len(corpora)} corpora of --{split}; give one for "
                f"each, in their order, and {NO_IDS} for one that has none"
            )
        pairs = zip(corpora, files, strict=True)
        return [replace(corpus, docids=None if str(ids) == NO_IDS else ids) for corpus, ids in pairs]


def parse_columns(pairs: Sequence[str]) -> Columns:
    """Return the columns of NAME=COLUMN options. Raises DocmtError for another form or name."""
    columns: dict[str, str] = {}
    names = [column.name for column in fields(Columns)]
    for pair in pairs:
        name, separator, column = pair.partition("=")
        if not separator or not column or name not in names or name in columns:
            raise DocmtError(f"--columns has {quote(pair)}: give NAME=COLUMN with a name of {', '.join(names)}")
        columns[name] = column
    return Columns(**columns)


@dataclass(frozen=True)
class Corpus:
    """Files of a parallel corpus, as arguments of `read_parallel`: two text files, or one file with both sides."""

    source: Path
    target: Path | None = None
    docids: Path | None = None
    """file with the document id of every line"""
    drafts: Path | None = None
    """file with first translations of the source sentences"""
    columns: Columns = Columns()
    """of a file with both sides"""
    languages: tuple[str, str] = ("", "")
    """codes of source and target"""

    @property
    def paths(self) -> list[Path]:
        return [path for path in (self.source, self.target, self.docids, self.drafts) if path is not None]

    def __str__(self) -> str:
        return str(self.source) if self.target is None else f"{self.source} and {self.target}"


def prepare(config: PrepareConfig) -> PreparedStore:
    """Read the corpora, learn or load the tokenizer, write the store, and open it.

    Corpora are read as streams, the training corpus twice. The store appears complete or not at all.
    Raises DocmtError for a store that exists already, and for corpora that are missing, broken or empty.
    """
    _check_store(config)
    ready = config.ready_tokenizer  # a wrong name fails before any corpus is read
    _warn_of_languages(config)
    if config.vocabulary_size and ready is not None:
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
    else:
        languages, size = (config.source_language, config.target_language), config.vocabulary_size or None
        tokenizer = train_tokenizer(config.tokenizer, _iterate_training_sentences(config), size, languages)
    return tokenizer if source is None else PairTokenizer(source.for_side("source"), tokenizer.for_side("target"))


def _load_ready_tokenizer(config: PrepareConfig, path: Path) -> Tokenizer:
    """Return the tokenizer of a model, run or store, or a SentencePiece file.

    Raises DocmtError if it is for other languages.
    """
    if path.is_file():
        return SentencePieceTokenizer.from_model(path)
    folders = (path, path / "model", path / TOKENIZER_FOLDER)
    tokenizer = load_tokenizer(next((folder for folder in folders if (folder / TOKENIZER_CONFIG).is_file()), path))
    if tokenizer.languages not in (None, (config.source_language, config.target_language)):
        raise DocmtError(
            f"the tokenizer in {path} is for {' to '.join(tokenizer.languages or ())}; set "
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
    for document in read_parallel(**vars(corpus), skipped=skipped):
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
            are_named = False
            while batch := list(islice(documents, BATCH_DOCUMENTS)):
                longest = max([longest, *((len(document.source), document.id) for document in batch)])
                are_named = are_named or any(document.id != str(document.number) for document in batch)
                _write_batch(batch, tokenizer, writer, skipped, prefix)
                bar.advance(sum(len(document.source) for document in batch), "sentences")
            corpus_counts = CorpusCounts(writer.documents - counts_before[0], writer.sentences - counts_before[1])
            if not corpus_counts.documents:
                raise _empty_corpus_error(corpus, split)
            _warn_of_long_documents(corpus, corpus_counts, *longest)
            if are_named:
                _warn_of_short_documents(corpus, corpus_counts)
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


def _warn_of_short_documents(corpus: Corpus, counts: CorpusCounts) -> None:
    """Warn of a TSV file whose third column has another content in nearly each line, and so hardly names documents."""
    share = counts.documents / counts.sentences
    is_usual = is_tsv(corpus.source) and corpus.target is None and not corpus.columns.document
    if is_usual and share >= SHORT_DOCUMENTS and counts.sentences >= FEWEST_LINES:
        _log.warning(
            f"{corpus}: {100 * share:.0f} % of the lines are documents of their own by column 3. If it does not name "
            "documents, say which column is which, such as --columns source=2 target=3 document=1"
        )


def _warn_of_languages(config: PrepareConfig) -> None:
    """Warn if docmt has no segmentation rules for the source language, which the model will store."""
    if config.source_language and not knows_language(config.source_language):
        _log.warning(
            f"--source-language {config.source_language}: docmt has no rules to split text of this language into "
            "sentences. docmt translate will use those of English (files with one sentence per line need none)"
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
