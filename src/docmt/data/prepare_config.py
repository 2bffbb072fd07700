"""Configuration of data preparation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

from docmt.core.errors import DocmtError
from docmt.core.settings import MANY, check_fields, option, quote, ranged
from docmt.documents.published_corpora import Columns, holds_both_sides
from docmt.text.moses import moses_language

SPLITS = ("train", "dev", "test")
NUM_BOUNDARY_TOKENS = 2
"""Boundary tokens, <s> and </s>, that are counted for every sentence of a packed sequence."""
DEFAULT_LIMIT = 512
"""Default token limit of an instance."""
LARGEST_VOCABULARY = 1_000_000
"""Upper limit, as libraries overflow or do not finish for much larger vocabularies."""
NO_IDS = "-"
LEARNED_KINDS = ("bpe", "sentencepiece", "moses-bpe")


@dataclass(frozen=True)
class PrepareConfig:
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
    """kind to learn (bpe, sentencepiece, moses-bpe), or a model directory to take it from"""
    vocabulary_size: int = ranged(0, 0, LARGEST_VOCABULARY)
    """vocabulary size to learn, with special tokens; 0 = the default of the kind"""
    sentencepiece_model: Path | None = None
    """SentencePiece .model file to use instead of learning a tokenizer"""
    source_tokenizer: Path | None = None
    """model directory with another tokenizer for the source (a converted encoder)"""
    instance_tokens: int = ranged(DEFAULT_LIMIT, NUM_BOUNDARY_TOKENS + 1, MANY)
    """token limit of an instance, for the statistics only"""
    overwrite: bool = False
    """replace an existing store"""

    def __post_init__(self) -> None:
        check_fields(self, "")
        parse_columns(self.columns)
        for name in SPLITS:
            if not self.corpora(name) and name == "train":
                raise DocmtError("--train names 0 files; give one JSONL file, or a source and a target file")
        if self.columns and all(corpus.target for split in SPLITS for corpus in self.corpora(split)):
            raise DocmtError("--columns has no effect on text files, a source and a target each: leave it out")
        if self.drafts and len(self.drafts) != (corpora := len([*self._pair_files("train"), *self._pair_files("dev")])):
            raise DocmtError(
                f"--drafts names {len(self.drafts)} files for {corpora} corpora of --train and --dev: give one for "
                "each, in this order"
            )
        if self.tokenizer not in LEARNED_KINDS and self.sentencepiece_model is not None:
            raise DocmtError("--tokenizer and --sentencepiece-model both name a tokenizer; give one of them")
        if self.tokenizer == "moses-bpe" and self.sentencepiece_model is None:
            self._check_languages()

    @property
    def ready_tokenizer(self) -> Path | None:
        """Directory of a ready tokenizer, or None for a kind to learn. Raises DocmtError if it does not exist."""
        if self.tokenizer in LEARNED_KINDS:
            return None
        if not Path(self.tokenizer).is_dir():
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
    names = [each.name for each in fields(Columns)]
    for pair in pairs:
        name, separator, column = pair.partition("=")
        if not separator or not column or name not in names or name in columns:
            raise DocmtError(f"--columns has {quote(pair)}: give NAME=COLUMN with a name of {', '.join(names)}")
        columns[name] = column
    return Columns(**columns)


@dataclass(frozen=True)
class Corpus:
    """Files of a parallel corpus: two text files, or one file with both sides."""

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
