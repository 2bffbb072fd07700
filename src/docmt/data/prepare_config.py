"""What to prepare, and from which files."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from docmt.core.errors import DocmtError
from docmt.core.settings import MANY, check_fields, option, quote, ranged
from docmt.documents.input_formats import has_jsonl_name
from docmt.text.moses import moses_language

SPLITS = ("train", "dev", "test")
MARKS = 2
"""<s> and </s>, which every sentence of a packed sequence counts with."""
DEFAULT_LIMIT = 512
"""Tokens of an instance."""
LARGEST_VOCABULARY = 1_000_000
"""More cannot be learned from any text; asked for much more, the libraries overflow, or compute for ever."""
NO_IDS = "-"
LEARNED_KINDS = ("bpe", "sentencepiece", "moses-bpe")


@dataclass(frozen=True)
class PrepareConfig:
    """What to prepare from which files."""

    store: Path
    """the directory to write"""
    train: list[Path] = option(metavar="FILE")
    """training corpus: a source and a target text file (one sentence a line, an empty line between documents, or <d>
    lines before them), or one JSONL file (x.jsonl): a line is a document, {"id": "a", "source": ["One.", "Two."],
    "target": ["Eins.", "Zwei."]}, or a sentence of one, {"document": "a", "source": "One.", "target": "Eins."}; more
    pairs or .jsonl files are further corpora; all may be compressed (x.gz)"""
    dev: list[Path] = option([], metavar="FILE")
    """development corpora, in the same form; without one there is no validation"""
    test: list[Path] = option([], metavar="FILE")
    """test corpora, in the same form"""
    train_docids: list[Path] = option([], metavar="FILE")
    """text files that name the document of each line, one file beside each corpus of --train (- for a corpus with
    borders of its own); lines that follow each other with the same id are one document"""
    dev_docids: list[Path] = option([], metavar="FILE")
    """the same for --dev"""
    test_docids: list[Path] = option([], metavar="FILE")
    """the same for --test"""
    drafts: list[Path] = option([], metavar="FILE")
    """first translations for systems that read them (multihop), one file beside each corpus of --train and then of
    --dev: a text file with one line for each line of the source, as docmt translate writes it, or JSONL with an entry
    draft or target"""
    source_language: str = ""
    """code of the source language, such as "en"; written into the store and later into the model card"""
    target_language: str = ""
    """code of the target language"""
    tokenizer: str = "bpe"
    """kind of the tokenizer that is learned from both sides of `train` (bpe, sentencepiece or moses-bpe, which is the
    published pipeline of Moses tokens, truecased, joint BPE, changes quotes and spaces and needs both language codes),
    or a model directory (or folder `tokenizer` of a store) whose tokenizer is used"""
    vocabulary_size: int = ranged(0, 0, LARGEST_VOCABULARY)
    """size of the vocabulary to learn, the six special tokens included (0: 16,000, or 30,000 for moses-bpe); of no
    effect with a ready tokenizer"""
    sentencepiece_model: Path | None = None
    """use this SentencePiece `.model` file instead of learning a tokenizer"""
    source_tokenizer: Path | None = None
    """use the tokenizer of this model directory for the source, that of a converted encoder (BERT); what is said above
    is then of the target alone"""
    instance_tokens: int = ranged(DEFAULT_LIMIT, MARKS + 1, MANY)
    """the limit of an instance, for the statistics: the store itself is not cut into instances"""
    overwrite: bool = False
    """replace the store if there is one already"""

    def __post_init__(self) -> None:
        check_fields(self, "")
        for name in SPLITS:
            if not self.corpora(name) and name == "train":
                raise DocmtError("--train names 0 files; give one JSONL file, or a source and a target file")
        if self.drafts and len(self.drafts) != (corpora := len([*self._pairs("train"), *self._pairs("dev")])):
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
        """The directory that `tokenizer` names, if it is no kind. Raises DocmtError where there is none."""
        if self.tokenizer in LEARNED_KINDS:
            return None
        if not Path(self.tokenizer).is_dir():
            raise DocmtError(
                f"--tokenizer is {quote(self.tokenizer)}: choose one of {', '.join(LEARNED_KINDS)}, or give a model "
                "directory"
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
        """The corpora of "train", "dev" or "test"; none if that split is not there.

        A file named .jsonl is a corpus, as is a file that stands alone; others are pairs of source and target.
        Raises DocmtError where a file has no other side.
        """
        corpora = self._with_ids(split, self._pairs(split))
        if split == "test" or not self.drafts:
            return corpora
        first = 0 if split == "train" else len(self._pairs("train"))
        drafts = self.drafts[first : first + len(corpora)]
        return [replace(corpus, drafts=Path(path)) for corpus, path in zip(corpora, drafts, strict=False)]

    def _pairs(self, split: str) -> list[Corpus]:
        """The corpora of a split as its files name them."""
        files = [Path(path) for path in getattr(self, split)]
        if len(files) == 1:
            return [Corpus(files[0])]
        found: list[Corpus] = []
        rest = iter(files)
        for source in rest:
            target = None if has_jsonl_name(source) else next(rest, None)
            if not has_jsonl_name(source) and (target is None or has_jsonl_name(target)):
                raise DocmtError(
                    f"--{split} names {len(files)} files; give one JSONL file, or a source and a target file, for each "
                    f"corpus ({source} has no other side, and its name does not end in .jsonl)"
                )
            found.append(Corpus(source, target))
        return found

    def _with_ids(self, split: str, corpora: list[Corpus]) -> list[Corpus]:
        """The corpora with the files of their document ids. Raises DocmtError for another number of these."""
        files = [Path(path) for path in getattr(self, f"{split}_docids")]
        if not files:
            return corpora
        if len(files) != len(corpora):
            raise DocmtError(
                f"--{split}_docids names {len(files)} files for {len(corpora)} corpora of --{split}; give one for "
                f"each, in their order, and {NO_IDS} for one that has none"
            )
        pairs = zip(corpora, files, strict=True)
        return [replace(corpus, docids=None if str(ids) == NO_IDS else ids) for corpus, ids in pairs]


@dataclass(frozen=True)
class Corpus:
    """Where a parallel corpus is: two text files, or one JSONL file."""

    source: Path
    target: Path | None = None
    docids: Path | None = None
    """names the document of every line"""
    drafts: Path | None = None
    """first translations of its source sentences"""

    @property
    def paths(self) -> list[Path]:
        return [path for path in (self.source, self.target, self.docids, self.drafts) if path is not None]

    def __str__(self) -> str:
        return str(self.source) if self.target is None else f"{self.source} and {self.target}"
