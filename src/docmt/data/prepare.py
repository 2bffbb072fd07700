"""From corpus files to a prepared store: learn a tokenizer, encode, count."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Literal

from docmt.data.instances import DEFAULT_LIMIT, MARKS, cut
from docmt.data.statistics import STATISTICS_FILE, CorpusStatistics, SplitStatistics
from docmt.data.store import SPLITS, TOKENIZER_FOLDER, ParallelStore, PreparedStore, StoreWriter
from docmt.documents.corpus import ParallelDocument, Skipped, read_parallel
from docmt.errors import DocmtError
from docmt.files import atomic_directory
from docmt.model.systems import Needs
from docmt.progress import progress
from docmt.text import SentencePieceTokenizer, Side, Tokenizer, load_tokenizer, train_tokenizer
from docmt.text.moses import moses_language

BATCH_DOCUMENTS = 256
"""Documents encoded at a time: some thousand sentences, enough to keep all cores busy."""


@dataclass(frozen=True)
class PrepareConfig:
    """What to prepare from which files."""

    store: Path
    """The directory to write."""
    train: list[Path]
    """Training corpus: one JSONL file, or the source and the target text file."""
    dev: list[Path] = field(default_factory=list)
    """Development corpus, like `train`; without one there is no validation."""
    test: list[Path] = field(default_factory=list)
    """Test corpus, like `train`."""
    source_language: str = ""
    """Code of the source language, such as "en"; written into the store and later into the model card."""
    target_language: str = ""
    """Code of the target language."""
    tokenizer: Literal["bpe", "sentencepiece", "moses-bpe"] = "bpe"
    """Kind of the tokenizer that is learned from both sides of `train`; moses-bpe is the published pipeline (Moses
    tokens, truecased, joint BPE), which changes quotes and spaces and needs both language codes."""
    vocabulary_size: int = 0
    """Size of the vocabulary to learn, the six special tokens included (0: 16,000, or 30,000 for moses-bpe); of no
    effect with a ready tokenizer."""
    tokenizer_directory: Path | None = None
    """Use the tokenizer of this model directory (or folder `tokenizer` of a store) instead of learning one."""
    sentencepiece_model: Path | None = None
    """Use this SentencePiece `.model` file instead of learning a tokenizer."""
    instance_tokens: int = DEFAULT_LIMIT
    """The limit of an instance, for the statistics: the store itself is not cut into instances."""
    overwrite: bool = False
    """Replace the store if there is one already."""

    def __post_init__(self) -> None:
        for name in SPLITS:
            files = getattr(self, name)
            if len(files) not in ((1, 2) if name == "train" else (0, 1, 2)):
                raise DocmtError(
                    f"--{name} names {len(files)} files; give one JSONL file, or a source and a target file"
                )
        if self.tokenizer_directory is not None and self.sentencepiece_model is not None:
            raise DocmtError("--tokenizer_directory and --sentencepiece_model both name a tokenizer; give one of them")
        if self.tokenizer == "moses-bpe" and self.tokenizer_directory is None and self.sentencepiece_model is None:
            self._check_languages()
        if self.instance_tokens <= MARKS:
            raise DocmtError(f"--instance_tokens is {self.instance_tokens}; it must be over {MARKS}")

    def _check_languages(self) -> None:
        if not (self.source_language and self.target_language):
            raise DocmtError(
                "--tokenizer moses-bpe depends on the languages; add --source_language and --target_language with "
                "their codes, such as en and de"
            )
        moses_language(self.source_language, "--source_language ")
        moses_language(self.target_language, "--target_language ")

    def files(self, split: str) -> list[Path]:
        """The corpus files of "train", "dev" or "test"; empty if that split is not there."""
        return [Path(path) for path in getattr(self, split)]


def prepare(config: PrepareConfig) -> PreparedStore:
    """Reads the corpora, learns (or takes) the tokenizer, writes the store, and opens it.

    The corpora are read as streams, the training corpus twice. The store appears complete or not at all.
    Raises DocmtError for a store that is there already, and for corpora that are missing, broken or empty.
    """
    _check_store(config)
    for split in SPLITS:
        if config.files(split):
            next(_read(config, split, Skipped()))  # a wrong path or an empty file shows now, not after minutes
    tokenizer = _tokenizer(config)
    with atomic_directory(config.store) as directory:
        tokenizer.save(directory / TOKENIZER_FOLDER)
        splits = {
            split: _prepare_split(config, split, tokenizer, directory / split)
            for split in SPLITS
            if config.files(split)
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
            raise DocmtError(f"the store {store} exists already; add --overwrite true to replace it, or choose another")
    elif store.exists() and not store.is_dir():
        raise DocmtError(f"{store} is a file; choose a directory for the store")
    for split in SPLITS:
        for path in config.files(split):
            if path.resolve().is_relative_to(store.resolve()):
                raise DocmtError(f"{path} lies inside of the store {store} that would replace it; move it elsewhere")


def _tokenizer(config: PrepareConfig) -> Tokenizer:
    languages = (config.source_language, config.target_language)
    if config.tokenizer_directory is not None:
        tokenizer = load_tokenizer(config.tokenizer_directory)
        if tokenizer.languages not in (None, languages):
            raise DocmtError(
                f"the tokenizer in {config.tokenizer_directory} is for {' to '.join(tokenizer.languages or ())}; set "
                "--source_language and --target_language to these codes, or learn another tokenizer"
            )
        return tokenizer
    if config.sentencepiece_model is not None:
        return SentencePieceTokenizer.from_model(config.sentencepiece_model)
    return train_tokenizer(config.tokenizer, _training_sentences(config), config.vocabulary_size or None, languages)


def _training_sentences(config: PrepareConfig) -> Iterator[tuple[Side, str]]:
    for document in _read(config, "train", Skipped()):
        for sentence in document.source:
            yield "source", sentence
        for sentence in document.target:
            yield "target", sentence


def _read(config: PrepareConfig, split: str, skipped: Skipped) -> Iterator[ParallelDocument]:
    """The documents of a split. Raises DocmtError if there are none."""
    files = config.files(split)
    empty = True
    for document in read_parallel(*files, skipped=skipped):
        empty = False
        yield document
    if empty:
        raise _empty(files, split)


def _empty(files: Sequence[Path], split: str) -> DocmtError:
    names = " and ".join(map(str, files))
    return DocmtError(f"the {split} corpus {names} holds no sentence pairs; give files with parallel sentences")


def _prepare_split(config: PrepareConfig, split: str, tokenizer: Tokenizer, directory: Path) -> SplitStatistics:
    skipped = Skipped()
    written = 0
    documents = _read(config, split, skipped)
    with StoreWriter(directory, tokenizer.vocabulary_size) as writer, progress(f"encoding {split}") as bar:
        while batch := list(islice(documents, BATCH_DOCUMENTS)):
            written += _write_batch(batch, tokenizer, writer, skipped)
            bar.advance(sum(len(document.source) for document in batch), "sentences")
        if not written:
            raise _empty(config.files(split), split)
    store = ParallelStore.open(directory)
    return SplitStatistics.count(
        store.source_lengths,
        store.target_lengths,
        store.document_offsets,
        store.document_ids,
        cut(
            store.source_lengths,
            store.target_lengths,
            store.document_offsets,
            Needs(),
            limit=config.instance_tokens,
        ),
        config.instance_tokens,
        skipped.counts,
        skipped.examples,
    )


def _write_batch(
    documents: Sequence[ParallelDocument], tokenizer: Tokenizer, writer: StoreWriter, skipped: Skipped
) -> int:
    """Encodes and writes documents; returns how many of them had sentences left."""
    source_sentences = [sentence for document in documents for sentence in document.source]
    target_sentences = [sentence for document in documents for sentence in document.target]
    sources = iter(tokenizer.encode_batch(source_sentences, "source"))
    targets = iter(tokenizer.encode_batch(target_sentences, "target"))
    written = 0
    for document in documents:
        pairs = []
        for number in range(1, len(document.source) + 1):
            pair = next(sources), next(targets)
            if all(pair):
                pairs.append(pair)
            else:  # a tokenizer that normalises may leave nothing of a sentence of odd characters
                skipped.add("pair of which the tokenizer leaves nothing", f"document {document.id}, sentence {number}")
        if pairs:
            writer.add(document.id, [source for source, _ in pairs], [target for _, target in pairs])
            written += 1
    return written
