"""Documents in, translated documents out."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count, islice
from pathlib import Path
from typing import Any, Literal, TypedDict, overload

import torch

from docmt.checkpoint.model_directory import CARD_FILE, find_drafter, find_model
from docmt.core.errors import DocmtError, map_or_error
from docmt.core.files import checksum_of_file
from docmt.core.progress import progress
from docmt.core.settings import MANY, check_number, shown
from docmt.data.prepare_config import MARKS
from docmt.decoding.drafting import drafter_of
from docmt.decoding.models import Precision, computing_in, load_members, members_of, model_paths
from docmt.decoding.rules import WordIds
from docmt.decoding.scheduler import POOL, check_context, filled_places, instance_limit, packed_units
from docmt.decoding.scoring import score_documents
from docmt.decoding.search_config import BATCH_TOKENS, ContextConfig, SearchConfig
from docmt.decoding.stream import Stream, translate_documents
from docmt.decoding.translation import Hypothesis, Piece, ResumePoint, TranslatedSentence, TranslatedSpan, Translation
from docmt.documents import Document, unwrap_lines
from docmt.model import TranslationModel
from docmt.text import Side

__all__ = ["Piece", "ResumePoint", "TranslatedSentence", "Translation", "Translator"]

UNKNOWN_LANGUAGE = "en"
"""Whose segmentation serves for models that do not say what they translate from."""
UNREAD_FILES = {CARD_FILE, "candidates.safetensors"}
"""Files of a model directory that do not change translations; version 0.3.0 wrote tables of candidates."""
_BLOCK = 256  # sentences that a tokenizer is given at once
_log = logging.getLogger(__name__)


class _How(TypedDict):
    context: ContextConfig
    batch_tokens: int


class Translator:
    """A model, or several as an ensemble, ready to translate and score documents.

    Wherever a document is asked for, text will do: it is segmented by the rules of the model's language.
    """

    def __init__(
        self,
        model: Path | str | Sequence[Path | str],
        *,
        search: SearchConfig = SearchConfig(),
        context: ContextConfig = ContextConfig(),
        batch_tokens: int = BATCH_TOKENS,
        device: torch.device | str = "auto",
        precision: Precision = "float32",
    ) -> None:
        """Load the model.

        model: a model or run directory; a list of them, or a text with commas between them, is an ensemble. context:
        what of a document is read at once. batch_tokens: source tokens that are searched together, padding included.
        device: cpu, cuda, cuda:1, or auto for a GPU if there is one that works. Raises DocmtError when a directory is
        missing, incomplete or damaged, and for a setting that has no effect with this model.
        """
        for name, value, kind in (("search", search, SearchConfig), ("context", context, ContextConfig)):
            if not isinstance(value, kind):
                raise DocmtError(f"{name} is {shown(value)}: give a docmt.{kind.__name__}")
        check_number("batch_tokens", batch_tokens, (1, MANY))
        self.search, self.context, self.batch_tokens, self.precision = search, context, batch_tokens, precision
        self._paths = model_paths(model)
        self._model, self.tokenizer, self.languages = load_members(self._paths, device, precision)
        for member in self.models:
            check_context(search, context, member.config)
        drafter = drafter_of(self._paths, self._model, self.tokenizer, precision)
        self._drafter = drafter and replace(drafter, batch_tokens=batch_tokens)
        # The languages: codes of those it translates from and to, empty where the model does not say.
        _log.info("%s", self._summary())

    def __repr__(self) -> str:
        return f"<Translator: {self._summary()}, {self.search}, {self.context}>"

    def _summary(self) -> str:
        """What it computes with, and where, as `auto` chooses that."""
        names = ",".join(map(str, self._paths))
        kinds = " + ".join(member.config.system for member in self.models)
        return f"{names} ({kinds}) on {self.device} in {self.precision}"

    @property
    def models(self) -> tuple[TranslationModel, ...]:
        """The PyTorch modules: one, or all members of an ensemble."""
        return members_of(self._model)

    @property
    def model(self) -> TranslationModel:
        """The PyTorch module. Raises DocmtError for an ensemble, which has several."""
        if len(self.models) > 1:
            raise DocmtError(f"this translator has {len(self.models)} models: use `models`")
        return self.models[0]

    def checksums(self) -> list[str]:
        """Of the files that say what these models are, and the one whose drafts they read."""
        folders = [find_model(path) for path in self._paths]
        readers = [path for path, own in zip(self._paths, self.models, strict=True) if own.system.context_spec().drafts]
        folders += [find_drafter(path) for path in readers[:1]]
        files = [path for folder in folders for path in sorted(folder.iterdir()) if path.is_file()]
        return [checksum_of_file(path) for path in files if path.name not in UNREAD_FILES]

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        return self._model.device

    @overload
    def translate(self, given: str) -> str: ...
    @overload
    def translate(self, given: Document) -> Translation: ...
    @overload
    def translate(self, given: list[str] | tuple[str, ...]) -> list[str]: ...
    @overload
    def translate(self, given: list[Document] | tuple[Document, ...]) -> list[Translation]: ...
    def translate(self, given: Any) -> Any:
        """What is given, translated: text for text, a Translation for a Document, a list for a list or tuple.

        A text is a document of its own, of any number of sentences and paragraphs, and so is each text of a list; the
        sentences of one document are `Document.from_sentences([...])`. What may be wrong with a text (see
        `Translation.warnings`) is logged, as text has no place for it. Raises DocmtError for anything else.
        """
        if not isinstance(given, list | tuple):
            return self.translate([given])[0]
        translations = self.translate_all(given)
        _warn(own for own, text in zip(translations, given, strict=True) if isinstance(text, str))
        return [
            translation.text() if isinstance(own, str) else translation
            for own, translation in zip(given, translations, strict=True)
        ]

    def translate_all(self, documents: Sequence[Document | str]) -> list[Translation]:
        """Translations in the order of the documents, searched together in batches of similar length."""
        own = [self._document(document, "source") for document in _several(documents)]
        sources = [self._encode(document.sentences, "source") for document in own]
        drafts, total = self.drafts(sources), sum(map(len, sources))
        with computing_in(self._model, self.precision), progress(self._title("translating"), total) as bar:
            specials = self.tokenizer.specials
            found = translate_documents(
                self._model, sources, specials, self.search, **self._how, on_sentences=bar.advance, drafts=drafts
            )
        lengths = [[len(words) for words in source] for source in sources]
        return [self._best(*each) for each in zip(own, lengths, found, strict=True)]

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
        """Translations in the order of the documents, which are read as they are needed, `group` at a time.

        A document that cannot be translated does not stop the others: with errors="yield" its DocmtError comes in
        its place; with "raise" it is raised there, after all documents before it.
        """
        if errors not in ("raise", "yield"):
            raise DocmtError(f"errors is {errors!r}: choose raise or yield")
        if not isinstance(group, int) or group < 1:
            raise DocmtError(f"group is {group!r}: choose at least 1 document")
        return self._stream(iter(_several(documents)), group, errors)

    def _stream(
        self, documents: Iterator[Document | str], group: int, errors: str
    ) -> Iterator[Translation | DocmtError]:
        numbers = count(1)
        while items := list(islice(documents, group)):
            for item, number, found in zip(items, numbers, map_or_error(items, self.translate_all), strict=False):
                if isinstance(found, DocmtError):
                    id = f" ({item.id})" if isinstance(item, Document) and item.id else ""
                    found = DocmtError(f"document {number}{id}: {found}")
                    if errors == "raise":
                        raise found
                yield found

    def pieces(
        self,
        documents: Sequence[Document | str],
        *,
        done: Mapping[int, ResumePoint] | None = None,
        look_ahead: int | None = None,
    ) -> Iterator[list[Piece]]:
        """Translations of documents of any length, piece by piece: lists of what was translated together, in order.

        Every sentence comes once, translated as `translate` does it. look_ahead: about how many source tokens are
        worked on together (default: 4 times `batch_tokens`); of what was translated before only that is kept which the
        model still sees. done: by number of a document (from 0), how far it is translated already (`Piece.reached` of
        its last piece), so that only the rest of it comes. What cannot be translated is a piece with an `error`, and
        stops no others. Raises DocmtError for what is no document.
        """
        if look_ahead is not None and (not isinstance(look_ahead, int) or look_ahead < 1):
            raise DocmtError(f"look_ahead is {look_ahead!r}: choose at least 1 source token, or None")
        own = [self._document(document, "source") for document in _several(documents)]
        sources = [self._encode(document.sentences, "source") for document in own]
        tokens = look_ahead or POOL * self.batch_tokens
        drafts = self._drafts_in_order(sources, tokens)
        specials, done = self.tokenizer.specials, done or {}
        stream = Stream(
            self._model,
            sources,
            specials,
            self.search,
            **self._how,
            drafts=drafts,
            look_ahead=tokens,
            done=done,
            lenient=True,
        )
        lengths = [[len(words) for words in source] for source in sources]
        return self._pieces(own, lengths, stream, sum(reached.sentences for reached in done.values()))

    def _pieces(
        self, documents: Sequence[Document], lengths: Sequence[Sequence[int]], stream: Stream, done: int
    ) -> Iterator[list[Piece]]:
        with progress(self._title("translating"), sum(map(len, documents)), done) as bar:
            stretches = stream.stretches(bar.advance)
            while True:
                # What is done with the pieces in between is computed as ever.
                with computing_in(self._model, self.precision):
                    found = next(stretches, None)
                if found is None:
                    return
                yield [
                    self._piece(documents[each.document], lengths[each.document][each.first : each.last], each)
                    for each in found
                ]

    def _piece(self, document: Document, lengths: Sequence[int], stretch: TranslatedSpan) -> Piece:
        source, translation = document.slice(stretch.first, stretch.last), None
        if stretch.error is None:
            translation = self._best(source, lengths, stretch.ranks)
        return Piece(stretch.document, stretch.first, source, stretch.reached, translation, stretch.error)

    def _drafts_in_order(
        self, sources: Sequence[WordIds], look_ahead: int
    ) -> Sequence[WordIds] | Callable[[int, int], Sequence[Sequence[int]]] | None:
        """The drafts that the model reads, made when they are needed; all at once where their lengths must be known to
        cut documents."""
        if self._drafter is None or any(member.config.position_limit is not None for member in self.models):
            return self.drafts(sources)
        return self._drafter.stream(filled_places(sources)[1], look_ahead)

    def score(self, source: Document | str, target: Document | str) -> Translation:
        """The given translation, sentence by sentence, with its log-probabilities."""
        return self.score_all([(source, target)])[0]

    def score_all(
        self,
        pairs: Sequence[tuple[Document | str, Document | str]],
        limited: bool = False,
        context: bool = True,
    ) -> list[Translation]:
        """Like `score` for many documents. Raises DocmtError where a pair has unequal numbers of sentences.

        limited: as in the search, the end of a sentence at the length limit costs nothing; without `context` no
        sentence sees another of its document, in the source or in the target, while all else (positions) is the same.
        """
        for pair in pairs:
            if not isinstance(pair, tuple | list) or len(pair) != 2:
                raise DocmtError(f"{shown(pair)} is no pair: give (source, target) for each document")
        own = [(self._document(source, "source"), self._document(target, "target")) for source, target in pairs]
        for source, target in own:
            if len(source.sentences) != len(target.sentences):
                raise DocmtError(
                    f"document {source.id or '?'} has {len(source.sentences)} source but {len(target.sentences)} "
                    "target sentences: give one target sentence for each"
                )
        sources = [self._encode(source.sentences, "source") for source, _ in own]
        targets = [self._encode(target.sentences, "target") for _, target in own]
        drafts, total = self.drafts(sources), sum(map(len, sources))
        with computing_in(self._model, self.precision), progress(self._title("scoring"), total) as bar:
            specials = self.tokenizer.specials
            scored = score_documents(
                self._model,
                sources,
                targets,
                specials,
                self.search,
                **self._how,
                on_sentences=bar.advance,
                drafts=drafts,
                limited=limited,
                apart=not context,
            )
        return [
            self._with_scores(*pair, [len(words) for words in source], hypothesis)
            for pair, source, hypothesis in zip(own, sources, scored, strict=True)
        ]

    def drafts(self, sources: Sequence[WordIds]) -> list[list[list[int]]] | None:
        """The first translations that the model reads, of documents of word ids; None where it reads none."""
        if self._drafter is None:
            return None
        with progress(self._title("drafting"), sum(map(len, sources))) as bar:
            return self._drafter.drafts(sources, bar.advance)

    def instances(self, source: Sequence[str], target: Sequence[str]) -> list[tuple[int, int]]:
        """The instances (ranges of sentences) of a parallel document as in training: the published units of d-BLEU."""
        encoded = self._encode(source, "source"), self._encode(target, "target")
        source_lengths, target_lengths = ([len(ids) for ids in sentences] for sentences in encoded)
        configs = [member.config for member in self.models]
        least = replace(
            configs[0],
            instance_tokens=min(config.instance_tokens for config in configs),
            instance_sentences=min(config.instance_sentences for config in configs),
        )
        return packed_units(least, source_lengths, target_lengths, [0, len(source)])[0]

    @property
    def _how(self) -> _How:
        return {"context": self.context, "batch_tokens": self.batch_tokens}

    def _title(self, work: str) -> str:
        """Of the progress, which tells where the work is done."""
        return f"{work} on {self.device} in {self.precision} (sentences)"

    def _document(self, given: Document | str, side: Side) -> Document:
        """What is given as a document."""
        if isinstance(given, Document):
            return given
        if isinstance(given, str):
            language = self.languages[0 if side == "source" else 1]
            return Document.from_text(given, language=language or UNKNOWN_LANGUAGE)
        hint = "; Document.read reads a file" if isinstance(given, Path) else ""
        raise DocmtError(f"{type(given).__name__} is no document: give text, a Document, or a list of them{hint}")

    def _encode(self, sentences: Sequence[str], side: Side) -> list[list[int]]:
        # Hard-wrapped lines inside a sentence are one line to the model. While a tokenizer works on a sentence it takes
        # many times the room of its ids, so a book is done in blocks.
        blocks = (sentences[first : first + _BLOCK] for first in range(0, len(sentences), _BLOCK))
        return [ids for block in blocks for ids in self.tokenizer.encode_batch(list(map(unwrap_lines, block)), side)]

    def _best(self, document: Document, lengths: Sequence[int], hypotheses: Sequence[Hypothesis]) -> Translation:
        """The best translation, with the others as its alternatives."""
        best, *others = [self._translation(document, lengths, hypothesis) for hypothesis in hypotheses]
        return replace(best, alternatives=tuple(others))

    def _translation(self, document: Document, lengths: Sequence[int], hypothesis: Hypothesis) -> Translation:
        texts = [unwrap_lines(text).strip() for text in self.tokenizer.decode_batch(hypothesis.sentences, "target")]
        return self._with_scores(document, document.replace_sentences(texts), lengths, hypothesis)

    def _with_scores(
        self, source: Document, target: Document, lengths: Sequence[int], hypothesis: Hypothesis
    ) -> Translation:
        """lengths: words of the source sentences."""
        sentences = tuple(
            TranslatedSentence(*fields)
            for fields in zip(
                source.sentences,
                target.sentences,
                hypothesis.sentence_scores,
                source.spans(),
                target.spans(),
                hypothesis.rank_scores,
                hypothesis.sentence_tokens,
                strict=True,
            )
        )
        limit = instance_limit(self._model, self.context)
        return Translation(
            target,
            sentences,
            hypothesis.score,
            miscounted=tuple(hypothesis.miscounted),
            at_limit=tuple(hypothesis.at_limit),
            overlong=tuple(number for number, words in enumerate(lengths) if words + MARKS >= limit),
        )


def _warn(translations: Iterable[Translation]) -> None:
    """Logs what may be wrong with them, by the names that it has in `Translation.warnings`."""
    counts = Counter(name for own in translations for warnings in own.warnings() for name in warnings)
    if counts:
        found = ", ".join(f"{count} x {name}" for name, count in counts.items())
        _log.warning("%s: translate a Document to see where (Translation.warnings)", found)


def _several(documents: Iterable[Document | str]) -> Iterable[Document | str]:
    """The documents. Raises DocmtError for a single one, whose parts are no documents, and for what has no parts."""
    if isinstance(documents, str | Document):
        raise DocmtError("one document is no list of documents: put it into a list, or call translate")
    if not isinstance(documents, Iterable):
        raise DocmtError(f"{type(documents).__name__} is no list of documents: give texts or Documents")
    return documents
