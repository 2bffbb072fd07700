"""What translates documents: the base of `docmt.Translator` and of engines behind an address."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from itertools import count, islice
from pathlib import Path
from typing import Any, Literal, Protocol, Self, TypeVar, overload

from docmt.core.errors import DocmtError, map_or_error
from docmt.core.settings import MANY, check_choice, check_number
from docmt.decoding.term_search import Scores
from docmt.decoding.translation_results import (
    EngineUse,
    PartialTranslation,
    PreparedDocument,
    ResumePoint,
    TranslatedSentence,
    Translation,
    check_documents,
    log_warnings,
)
from docmt.documents import Document
from docmt.documents.segmentation import DEFAULT_LANGUAGE
from docmt.terms.glossary import Terms
from docmt.terms.matching import TermMatcher, TermMode
from docmt.terms.memory import Memory

TOKEN_CHARACTERS = 4
"""Characters of a token, about, where no tokenizer counts."""
Preparable = Document | str | PreparedDocument
Aligned = TypeVar("Aligned", Translation, PartialTranslation)


def describe_texts(protect: list[str] | str, terms: TermMatcher | None, memory: Memory | None) -> dict[str, Any]:
    """Return what is done with protected text, terms and memories, by the names of options; empty values: nothing."""
    checksum, mode = (terms.glossary.checksum(), terms.mode) if terms else ("", "")
    return {
        "--protect": protect,
        "--terms": checksum,
        "--terms-mode": mode,
        "--memory": memory.checksum() if memory else "",
    }


def check_targets(document: PreparedDocument, targets: Sequence[str]) -> None:
    """Raise DocmtError for more translations than sentences."""
    if len(targets) > len(document.whole):
        raise DocmtError(f"{len(document.whole)} sentences cannot have {len(targets)} translations. Give fewer.")


class OpenTranslation(Protocol):
    """A document that is translated in several calls of `translate_next`."""

    @property
    def is_within_sentence(self) -> bool:
        """Whether pieces of a sentence are translated, and others are not."""

    def count_tokens(self) -> int:
        """Return the source tokens still to translate, about."""


class DocumentTranslator(ABC):
    """Translates documents. Files, bulk jobs, the service and evaluation need no more of it than this.

    Every document may also be a text, which is segmented by the rules of the source language.
    """

    languages: tuple[str, str]
    """source and target code, empty where unknown"""
    patterns: tuple[str, ...] | None
    """regular expressions of text that stays as it is; None: the model reads all text"""
    use: EngineUse | None = None
    """what a server took so far"""
    memory: Memory | None = None

    @property
    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """What determines translations, by the names of options; with other settings no translation is resumed."""

    @abstractmethod
    def prepare(self, document: Preparable) -> PreparedDocument:
        """Return a document with the lengths of its sentences, for callers that translate it in several calls."""

    @abstractmethod
    def resume_after(self, document: PreparedDocument, targets: Sequence[str]) -> ResumePoint:
        """Return the point after the first sentences of a document, whose translations are supplied.

        The rest sees them as it sees its own translations. Raises DocmtError for more translations than sentences.
        """

    @abstractmethod
    def open(self, document: Preparable, resume_point: ResumePoint | None = None, tokens: int = 512) -> Any:
        """Return a document, perhaps translated up to a point, for `translate_next`: an `OpenTranslation`.

        tokens: about how many source tokens are translated in a call.
        """

    @abstractmethod
    def translate_next(self, documents: Sequence[Any], tokens: int) -> list[PartialTranslation]:
        """Translate the next parts of opened documents together, about so many source tokens of them all."""

    @abstractmethod
    def translate_all(
        self, documents: Sequence[Document | str], *, copies: Sequence[int] | None = None
    ) -> list[Translation]:
        """Translate documents in their order, together. Raises DocmtError if one cannot be translated.

        copies: with sampling, numbers that give equal documents samples of their own. By default a document's number is
        how often it came before in this call.
        """

    @abstractmethod
    def stream_parts(
        self,
        documents: Sequence[Preparable],
        *,
        copies: Sequence[int] | None = None,
        resume_points: Mapping[int, ResumePoint] | None = None,
    ) -> Iterator[list[PartialTranslation]]:
        """Translate documents of any length part by part. Yield, in order, each list of parts translated together.

        Every sentence comes once. copies: see `translate_all`. resume_points: progress of documents by number (from 0),
        the `resume_point` of their last part; only the rest is translated. A document or part that cannot be translated
        yields a part with an `error`, and stops no others.
        """

    @abstractmethod
    def align(
        self, translations: Sequence[Aligned], sentences: Sequence[Collection[int]] | None = None
    ) -> list[Aligned]:
        """Return translations, or parts, with the links of their words (`TranslatedSentence.alignment`).

        sentences: for each translation, the numbers (from 0) of the sentences to align; None: all.
        """

    @abstractmethod
    def with_terms(
        self, terms: Terms | TermMatcher | None, mode: TermMode = "prefer", consistent: bool = False
    ) -> Self:
        """Return a translator of the same kind, whose translations have these terms.

        terms: a glossary, or a mapping as of `Glossary.from_pairs`. consistent: what a document repeats is translated
        as it mostly is there. Raises DocmtError for terms that cannot be used.
        """

    def with_memory(self, memory: Memory | None) -> Self:
        """Return a translator of the same kind that reuses what a memory has for sentences."""
        other = copy(self)
        other.memory = memory
        return other

    @abstractmethod
    def search_terms(self, document: Document, targets: Sequence[str], scores: Scores) -> dict[int, TranslatedSentence]:
        """Return sentences of a translated document that were translated again for their terms, by number.

        targets: translations of all sentences. scores: of those that are looked at. Sentences without terms are left
        out.
        """

    def count_copies(self, documents: Sequence[Preparable], earlier: Counter[int]) -> list[int] | None:
        """Return `copies` for one of several calls, None without sampling. earlier: their counts, updated."""
        return None

    def with_seed_for(self, name: str) -> Self:
        """Return a translator whose samples, if it draws any, differ from those for another name."""
        return self

    @overload
    def translate(self, source: str, *, terms: Terms | None = None) -> str: ...
    @overload
    def translate(self, source: Document, *, terms: Terms | None = None) -> Translation: ...
    @overload
    def translate(self, source: list[str] | tuple[str, ...], *, terms: Terms | None = None) -> list[str]: ...
    @overload
    def translate(
        self, source: list[Document] | tuple[Document, ...], *, terms: Terms | None = None
    ) -> list[Translation]: ...
    def translate(self, source: Any, *, terms: Terms | None = None) -> Any:
        """Translate a source: text for text, a Translation for a Document, a list for a list or tuple.

        A text is one document of any number of sentences and paragraphs, and so is each text of a list. The sentences
        of one document are `Document.from_sentences([...])`. Warnings about a text (see `Translation.warnings`) are
        logged. terms: see `with_terms`, in place of those of this translator. Raises DocmtError for any other type.
        """
        if terms is not None:
            return self.with_terms(terms, consistent=getattr(self, "consistent", False)).translate(source)
        if not isinstance(source, list | tuple):
            return self.translate([source])[0]
        pairs = list(zip(source, self.translate_all(source), strict=True))
        log_warnings(translation for text, translation in pairs if isinstance(text, str))
        return [translation.text() if isinstance(text, str) else translation for text, translation in pairs]

    def translate_file(
        self,
        source: Path | str,
        target: Path | str,
        *,
        format: str = "auto",
        fields: Sequence[str] = (),
        bilingual: str = "",
    ) -> list[Translation]:
        """Translate a file to another one of the same format (docs/files.md). Return the translations of its documents.

        format: name of the format; auto: by name and content. fields: JSON paths, columns or front-matter keys to
        translate. bilingual: path of a file with both sides (x.html, x.xlf, x.tmx). Raises DocmtError for a file that
        cannot be read or written, and for a target that is the source.
        """
        from docmt.decoding.file_translation import FileConfig, translate_file  # imported here: text needs no formats

        language = self.languages[0] or DEFAULT_LANGUAGE
        config = FileConfig(*self.languages, language, tuple(fields), bilingual, protect=self.patterns)
        return translate_file(str(source), str(target), format, config, self.translate_all, self.align)

    @overload
    def stream(
        self, documents: Iterable[Document | str], *, group: int = 64, errors: Literal["raise"] = "raise"
    ) -> Iterator[Translation]: ...
    @overload
    def stream(
        self, documents: Iterable[Document | str], *, group: int = 64, errors: Literal["yield"]
    ) -> Iterator[Translation | DocmtError]: ...
    def stream(
        self, documents: Iterable[Document | str], *, group: int = 64, errors: Literal["raise", "yield"] = "raise"
    ) -> Iterator[Translation | DocmtError]:
        """Yield translations in the order of the documents, which are read as they are needed, `group` at a time.

        A document that cannot be translated does not stop the others. With errors="yield" its DocmtError is yielded
        instead. With "raise" it is raised there, after all earlier documents.
        """
        check_choice("errors", errors, ("raise", "yield"))
        check_number("group", group, (1, MANY))
        return self._stream_groups(iter(check_documents(documents)), group, errors)

    def _stream_groups(
        self, documents: Iterator[Document | str], size: int, errors: str
    ) -> Iterator[Translation | DocmtError]:
        """See `stream`."""

        def translate_pairs(pairs: Sequence[tuple[Document | str, int]]) -> list[Translation]:
            texts, copies = zip(*pairs, strict=True)
            return self.translate_all(texts, copies=copies)

        numbers, earlier = count(1), Counter[int]()
        while group := list(islice(documents, size)):
            copies = self.count_copies(group, earlier) or [0] * len(group)
            results = map_or_error(list(zip(group, copies, strict=True)), translate_pairs)
            for document, number, result in zip(group, numbers, results, strict=False):
                if isinstance(result, DocmtError):
                    id = f" ({document.id})" if isinstance(document, Document) and document.id else ""
                    result = DocmtError(f"document {number}{id}: {result}")
                    if errors == "raise":
                        raise result
                yield result

    def make_document(self, document: Document | str, language: str = "") -> Document:
        """Return a document, or a text as one. language: of its segmentation rules; empty: the source language."""
        if isinstance(document, Document):
            return document
        if isinstance(document, str):
            language = language or self.languages[0] or DEFAULT_LANGUAGE
            return Document.from_text(document, language=language, protect=self.patterns or ())
        hint = " Document.read reads a file." if isinstance(document, Path) else ""
        raise DocmtError(
            f"{type(document).__name__} is not a document. Give text, a Document, or a list of them.{hint}"
        )
