"""Translator: documents in, translated documents out."""

from __future__ import annotations

import logging
import os
from array import array
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import asdict, replace
from hashlib import blake2b
from itertools import repeat
from pathlib import Path
from typing import Any, NamedTuple, Self, get_args

import torch

from docmt.checkpoint.model_directory import AlignmentLayer, list_model_files, load_alignment_layer
from docmt.checkpoint.model_names import parse_model_paths
from docmt.core.errors import DocmtError
from docmt.core.files import file_checksum
from docmt.core.progress import hidden_progress, progress
from docmt.core.settings import MANY, check_choice, check_number, flatten, format_flag, quote
from docmt.data.instances import NUM_BOUNDARY_TOKENS
from docmt.decoding.alignment import align_documents, default_alignment_layer, link_sentences
from docmt.decoding.document_stream import DocumentStream, translate_next
from docmt.decoding.document_translator import Aligned, DocumentTranslator, Preparable, check_targets, describe_texts
from docmt.decoding.drafter import load_common_drafter
from docmt.decoding.ensembles import list_members, load_members
from docmt.decoding.logits import count_copies
from docmt.decoding.long_sentences import align_selected, cut_long_sentences
from docmt.decoding.openings import OpeningSearch
from docmt.decoding.scheduler import POOL_FACTOR, check_context, find_instance_limit, find_nonempty
from docmt.decoding.scoring import score_documents
from docmt.decoding.search_config import BATCH_TOKENS, ContextConfig, SearchConfig
from docmt.decoding.search_rules import WordIds
from docmt.decoding.second_search import complete_translations
from docmt.decoding.term_search import Scores, TermSearch
from docmt.decoding.translation_results import (
    Hypothesis,
    PartialTranslation,
    PreparedDocument,
    ResumePoint,
    TranslatedSentence,
    TranslatedSpan,
    Translation,
    check_documents,
    check_lengths,
    check_pairs,
)
from docmt.documents import Document, unwrap_lines
from docmt.documents.protected_text import Protection
from docmt.documents.words import WordLink, normalize_characters
from docmt.model import TranslationModel
from docmt.model.embeddings import ContextNoise
from docmt.model.products import Precision, precision_context
from docmt.terms.glossary import Terms
from docmt.terms.matching import TermMatcher, TermMode, make_matcher
from docmt.terms.memory import Memory
from docmt.text.tokenizer import SIDES, Side

__all__ = ["PartialTranslation", "ResumePoint", "TranslatedSentence", "Translation", "Translator"]

_BLOCK = 256  # sentences that a tokenizer is given at once
_log = logging.getLogger(__name__)
if hasattr(os, "register_at_fork"):
    # Threads of products do not survive a fork: the first product of the child would wait for them.
    os.register_at_fork(after_in_child=lambda: torch.set_num_threads(1))


class OpenDocument(NamedTuple):
    """A document that is translated in several calls (`Translator.translate_next`)."""

    prepared: PreparedDocument
    stream: DocumentStream

    @property
    def is_within_sentence(self) -> bool:
        """See `OpenTranslation`."""
        return self.stream.is_within_sentence

    def count_tokens(self) -> int:
        """See `OpenTranslation`."""
        return self.stream.count_tokens()


class Translator(DocumentTranslator):
    """Model, or several as an ensemble, ready to translate and score documents.

    Every document may also be a text, which is segmented by the rules of the model's language.
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
        protect: Sequence[str] | None = (),
    ) -> None:
        """Load the model.

        model: a model or run directory, or the name or language pair of a model that `docmt models` lists; a list of
        them, or a text with commas between them, is an ensemble. context: the part of a document that is read at once.
        batch_tokens: source tokens that are searched together, padding included. device: cpu, cuda, cuda:1, or auto for
        a GPU if a working one exists. protect: regular expressions of text that stays as it is, beside addresses,
        placeholders and the like; None: the model reads, and perhaps damages, all text. Raises DocmtError when a
        directory is missing, incomplete or damaged, and for a setting that has no effect with this model.
        """
        for name, value, kind in (("search", search, SearchConfig), ("context", context, ContextConfig)):
            if not isinstance(value, kind):
                raise DocmtError(f"{name} is {quote(value)}. Give a docmt.{kind.__name__}.")
        check_number("batch_tokens", batch_tokens, (1, MANY))
        self.search, self.context, self.batch_tokens, self.precision = search, context, batch_tokens, precision
        self._context_settings: dict[str, Any] = {"context": context, "batch_tokens": batch_tokens}
        self._paths = parse_model_paths(model)
        # languages: source and target code, empty where the model has none.
        self._model, self.tokenizer, self.languages = load_members(self._paths, device, precision)
        self.models = list_members(self._model)
        """the PyTorch modules: one, or all members of an ensemble"""
        self.device = self._model.device
        """device of the computation"""
        self.patterns = None if protect is None else tuple(protect)
        self.protection = None if self.patterns is None else Protection(self.languages, self.patterns)
        for member in self.models:
            check_context(search, context, member.config)
        self.terms: TermMatcher | None = None
        self.consistent = False
        drafter = load_common_drafter(self._paths, self._model, self.tokenizer, precision)
        self._drafter = drafter and replace(drafter, batch_tokens=batch_tokens)
        _log.info("%s", self._describe())

    def __repr__(self) -> str:
        return f"<Translator: {self._describe()}, {self.search}, {self.context}>"

    def _describe(self) -> str:
        """Return the models, the device (as chosen by `auto`) and the precision."""
        names, kinds = ",".join(map(str, self._paths)), " + ".join(member.config.system for member in self.models)
        return f"{names} ({kinds}) on {self.device} in {self.precision}"

    @property
    def model(self) -> TranslationModel:
        """The PyTorch module. Raises DocmtError for an ensemble, which has several."""
        if len(self.models) > 1:
            raise DocmtError(f"this translator has {len(self.models)} models. Use `models`.")
        return self.models[0]

    def checksums(self) -> list[str]:
        """Return the checksums of all files that determine translations, including those of the drafter."""
        return list(map(file_checksum, list_model_files(self._paths, with_drafter=self._drafter is not None)))

    @property
    def settings(self) -> dict[str, Any]:
        """What determines translations, by the names of options."""
        groups = {"search": asdict(self.search), "context": asdict(self.context)}
        protect = list(self.protection.patterns) if self.protection else "none"
        return {
            "model": self.checksums(),
            "--precision": self.precision,
            **describe_texts(protect, self.terms, self.memory),
            **{format_flag(name): value for name, value in flatten(groups).items()},
        }

    def translate_all(
        self, documents: Sequence[Document | str], *, copies: Sequence[int] | None = None
    ) -> list[Translation]:
        """Translate documents in their order, searched together in batches of similar length.

        copies: with `search.sampling`, numbers that give equal documents samples of their own. By default a document's
        number is how often it came before in this call.
        """
        prepared = list(map(self._prepare, check_documents(documents)))
        return self._complete(prepared, self._translate(prepared, copies))

    def _complete(self, sources: Sequence[PreparedDocument], made: Sequence[Translation]) -> list[Translation]:
        """Return the translations of whole sentences; missing text and numbers are searched again."""
        with hidden_progress():
            return complete_translations(self, sources, made, self._translate, self._align, self._read_sources)

    def _read_sources(self, sources: Sequence[PreparedDocument]) -> OpeningSearch:
        """Return a search of openings in these documents."""
        words = [each.words for each in sources]
        settings = {**self._context_settings, "drafts": self.draft_documents(words)}
        settings |= {"layers": self._alignment_layers, "precision": self.precision}
        return OpeningSearch(self._model, words, self.tokenizer.specials, self.search, **settings)

    def _translate(self, sources: Sequence[PreparedDocument], copies: Sequence[int] | None = None) -> list[Translation]:
        """Return the translations of what the model reads as sentences, pieces of long ones apart."""
        stream, total = self._make_stream(sources, {}, None, copies), sum(len(each.words) for each in sources)
        with precision_context(self._model, self.precision), progress(self._title("translating"), total) as bar:
            spans = [span for together in stream.translate(bar.advance) for span in together]
        return [self._make_translation(source, span.hypotheses) for source, span in zip(sources, spans, strict=True)]

    def count_copies(self, documents: Sequence[Preparable], earlier: Counter[int]) -> list[int] | None:
        """Return `copies` for one of several calls, None without sampling. earlier: their counts, updated."""
        samples = self.search.sampling
        return count_copies(lambda each: self.prepare(each).words, documents, earlier) if samples else None

    def stream_parts(
        self,
        documents: Sequence[Preparable],
        *,
        copies: Sequence[int] | None = None,
        resume_points: Mapping[int, ResumePoint] | None = None,
        look_ahead: int | None = None,
    ) -> Iterator[list[PartialTranslation]]:
        """Translate documents of any length part by part. Yield, in order, each list of parts translated together.

        Every sentence comes once, translated as by `translate`. copies: see `translate_all`. look_ahead: about how many
        source tokens are translated together (default: 4 times `batch_tokens`). Earlier translations stay in memory
        only while the model sees them. resume_points: progress of documents by number (from 0), the `resume_point` of
        their last part; only the rest is translated. A document that cannot be translated yields a part with an
        `error`, and stops no others. Raises DocmtError for values that are not documents.
        """
        if look_ahead is not None and (not isinstance(look_ahead, int) or look_ahead < 1):
            raise DocmtError(f"look_ahead is {look_ahead!r}. Choose at least 1 source token, or None.")
        prepared, resume_points = list(map(self._prepare, check_documents(documents))), resume_points or {}
        stream = self._make_stream(prepared, resume_points, look_ahead or POOL_FACTOR * self.batch_tokens, copies)
        return self._yield_parts(prepared, stream, sum(point.sentences for point in resume_points.values()))

    def open(self, document: Preparable, resume_point: ResumePoint | None = None, tokens: int = 512) -> OpenDocument:
        """Return a document, perhaps translated up to a point, for `translate_next`.

        tokens: about how many source tokens get their drafts together, where the model reads drafts.
        """
        prepared = self._prepare(document)
        return OpenDocument(prepared, self._make_stream([prepared], {0: resume_point} if resume_point else {}, tokens))

    def translate_next(self, documents: Sequence[OpenDocument], tokens: int) -> list[PartialTranslation]:
        """Translate the next parts of documents together, about so many source tokens of them all.

        For the results see `stream_parts`. Batches depend on the documents, so scores may differ in their last digits
        from those of an uninterrupted translation.
        """
        with precision_context(self._model, self.precision):
            spans = translate_next([document.stream for document in documents], tokens)
        return self._make_parts([(documents[n].prepared, replace(span, document=n)) for n, span in spans])

    def _make_stream(
        self,
        documents: Sequence[PreparedDocument],
        resume_points: Mapping[int, ResumePoint],
        tokens: int | None,
        copies: Sequence[int] | None = None,
    ) -> DocumentStream:
        """Return the translation of documents.

        tokens: see `look_ahead` of `stream_parts`, with errors as results; None: all together, and errors are raised.
        """
        words = [document.words for document in documents]
        return DocumentStream(
            self._model,
            words,
            self.tokenizer.specials,
            self.search,
            **self._context_settings,
            drafts=self._prepare_drafts(words, tokens),
            look_ahead=tokens,
            resume_points={number: documents[number].divide_point(point) for number, point in resume_points.items()},
            yield_errors=tokens is not None,
            copies=copies,
            numbers=[document.numbers for document in documents],
            given=[document.given for document in documents],
        )

    def prepare(self, document: Preparable) -> PreparedDocument:
        """Return a document with its tokens, for callers that translate it in several calls of `stream_parts`."""
        if isinstance(document, PreparedDocument):
            return document
        source = self.make_document(document)
        sentences = list(map(self.protection.hide, source.sentences)) if self.protection else source.sentences
        words = self.encode(sentences, "source")
        return cut_long_sentences(self, PreparedDocument(source, words, source, range(len(source))))

    def _prepare(self, document: Preparable) -> PreparedDocument:
        """Return a document with its tokens and what the memory has for it."""
        prepared = self.prepare(document)
        if not self.memory:
            return prepared
        return prepared.with_memory(self.memory, self._encode_targets)

    def _hide_pair(self, source: str, target: str) -> tuple[str, str]:
        """Return a sentence and its translation as the model reads them, without what is protected in both."""
        return self.protection.hide_pair(source, target) if self.protection else (source, target)

    def _encode_targets(self, sources: Sequence[str], targets: Sequence[str]) -> list[list[int]]:
        """Return the word ids of supplied translations of the first sentences, with what the model has hidden."""
        return self.encode([self._hide_pair(*pair)[1] for pair in zip(sources, targets, strict=False)], "target")

    def resume_after(self, document: PreparedDocument, targets: Sequence[str]) -> ResumePoint:
        """Return the point after the first sentences of a document, whose translations are supplied.

        `stream_parts` translates the rest, and sees them as it sees its own translations. Raises DocmtError for more
        translations than sentences.
        """
        check_targets(document, targets)
        encoded = document.divide_targets(self._encode_targets(document.whole.sentences, targets))
        pairs = zip(document.words, encoded, strict=False)
        return ResumePoint(len(targets), [[translation] for words, translation in pairs if words], is_supplied=True)

    def with_search(self, search: SearchConfig) -> Translator:
        """Return a translator with the same model, which is not copied, and other settings of the search."""
        for member in self.models:
            check_context(search, self.context, member.config)
        other = copy(self)
        other.search = search
        return other.with_terms(self.terms, consistent=self.consistent).with_memory(self.memory)

    def with_seed_for(self, name: str) -> Translator:
        """Return a translator whose samples, if it draws any, differ from those for another name."""
        if not self.search.sampling:
            return self
        digest = blake2b(f"{self.search.seed} {name}".encode(), digest_size=8).digest()
        return self.with_search(replace(self.search, seed=int.from_bytes(digest) >> 1))

    def with_terms(
        self, terms: Terms | TermMatcher | None, mode: TermMode = "prefer", consistent: bool = False
    ) -> Self:
        """Return a translator with the same model, which is not copied, whose translations have these terms.

        terms: a glossary, or a mapping as of `Glossary.from_pairs`. consistent: what a document repeats is translated
        as it mostly is there. Raises DocmtError for terms that cannot be used, and for another search.
        """
        check_choice("mode", mode, get_args(TermMode))
        self.search.check_terms(terms or consistent)
        other = copy(self)
        other.terms, other.consistent = make_matcher(terms, self.languages, mode), consistent
        return other

    def with_memory(self, memory: Memory | None) -> Self:
        """Return a translator with the same model, which is not copied, that reuses what a memory has for sentences."""
        self.search.check_terms(memory, "memories")
        return super().with_memory(memory)

    def search_terms(self, document: Document, targets: Sequence[str], scores: Scores) -> dict[int, TranslatedSentence]:
        """Search sentences of a translated document again for their terms; see `TermSearch.run_again`."""
        assert self.terms is not None
        search = TermSearch(self, self.terms, self._read_sources)
        return search.run_again(self.prepare(document), targets, scores)

    def _yield_parts(
        self, documents: Sequence[PreparedDocument], stream: DocumentStream, finished: int
    ) -> Iterator[list[PartialTranslation]]:
        """Yield partial translations with a progress bar; finished: sentences that were translated before."""
        with progress(self._title("translating"), sum(len(each.words) for each in documents), finished) as bar:
            spans = (stream.translate_whole if self.consistent else stream.translate)(bar.advance)
            while True:
                # The caller's code between two parts must not run in this precision.
                with precision_context(self._model, self.precision):
                    group = next(spans, None)
                if group is None:
                    return
                yield self._make_parts([(documents[span.document], span) for span in group])

    def _make_parts(self, spans: Sequence[tuple[PreparedDocument, TranslatedSpan]]) -> list[PartialTranslation]:
        """Return the partial translations of spans."""
        sources = [document.slice(span.first, span.last) for document, span in spans]
        done = [(source, span) for source, (_, span) in zip(sources, spans, strict=True) if not span.error]
        made = [self._make_translation(source, span.hypotheses) for source, span in done]
        translations = iter(self._complete([source for source, _ in done], made))
        return [document.make_part(span, None if span.error else next(translations)) for document, span in spans]

    def _prepare_drafts(
        self, sources: Sequence[WordIds], look_ahead: int | None
    ) -> Sequence[WordIds] | Callable[[int, int], Sequence[Sequence[int]]] | None:
        """Return the drafts that the model reads, or a function that translates them when they are needed.

        All are translated at once without `look_ahead`, and where documents can be cut only when the lengths of drafts
        are known.
        """
        has_limit = any(member.config.position_limit is not None for member in self.models)
        if self._drafter is None or look_ahead is None or has_limit:
            return self.draft_documents(sources)
        return self._drafter.stream_drafts(find_nonempty(sources)[1], look_ahead)

    def score(self, source: Document | str, target: Document | str | Translation) -> Translation:
        """Score the target sentence by sentence: return it with its log-probabilities.

        A text has the tokens that the tokenizer splits it into. A Translation has those that the search found, which
        may spell a word otherwise, and sees its source as the search did; one with a sentence in pieces, or of a
        server, is a text.
        """
        return self.score_all([(source, target)])[0]

    def score_all(
        self,
        pairs: Sequence[tuple[Document | str, Document | str | Translation]],
        free_at_limit: bool = False,
        context: bool = True,
        noise: ContextNoise | None = None,
    ) -> list[Translation]:
        """Score many documents (see `score`). Raises DocmtError where a pair has unequal numbers of sentences.

        free_at_limit: the end of a sentence at the length limit costs nothing, as in the search. context: without it no
        sentence sees another of its document, in the source or in the target, while all else (positions) is the same.
        noise: replaces what the model reads of all sentences but one of each document, whose scores alone have a
        meaning.
        """
        check_pairs(pairs)
        texts = [(source, target.document if isinstance(target, Translation) else target) for source, target in pairs]
        documents = [(self.make_document(one), self.make_document(other, self.languages[1])) for one, other in texts]
        check_lengths(documents)
        sources, targets = (
            [self.encode(sides[index].sentences, side) for sides in documents] for index, side in enumerate(SIDES)
        )
        for number, (document, translation) in enumerate(pairs):
            if isinstance(translation, Translation) and all(each.has_tokens for each in translation):
                sources[number] = [list(ids) for ids in self.prepare(document).words]
                targets[number] = [list(sentence.token_ids) for sentence in translation]
        drafts, total = self.draft_documents(sources), sum(map(len, sources))
        with precision_context(self._model, self.precision), progress(self._title("scoring"), total) as bar:
            scored = score_documents(
                self._model,
                sources,
                targets,
                self.tokenizer.specials,
                self.search,
                **self._context_settings,
                on_sentences=bar.advance,
                drafts=drafts,
                free_at_limit=free_at_limit,
                without_context=not context,
                noise=noise,
            )
        return [
            self._add_scores(*pair, words, hypothesis)
            for pair, words, hypothesis in zip(documents, sources, scored, strict=True)
        ]

    def align(
        self, translations: Sequence[Aligned], sentences: Sequence[Collection[int]] | None = None
    ) -> list[Aligned]:
        """Return translations with the links of their words (`TranslatedSentence.alignment`), by the model's attention.

        One pass reads source and translation, as in scoring. translations: of this model, or supplied ones that it has
        scored; or parts of `stream_parts`, each of which is read as a document, so that its first sentences may lack
        context. Parts with an error stay as they are, and alternatives are not aligned. sentences: for each
        translation, the numbers (from 0) of the sentences to align (default: all); instances without any are not read.
        An ensemble averages the weights of its members. Raises DocmtError where weights are not numbers.
        """
        return align_selected(self._align, translations, sentences)

    def _align(
        self, translations: Sequence[Translation], wanted: Sequence[Collection[int]]
    ) -> list[dict[int, tuple[WordLink, ...]]]:
        """Return the links of these sentences of each translation, by number."""
        texts = [[self._hide_pair(sentence.source, sentence.target) for sentence in each] for each in translations]
        sources, targets = (
            [self.encode([pair[index] for pair in pairs], side) for pairs in texts] for index, side in enumerate(SIDES)
        )
        drafts = self.draft_documents(sources)
        total, title = sum(map(len, wanted)), self._title("aligning")
        with precision_context(self._model, self.precision), progress(title, total) as bar:
            weights = align_documents(
                *(self._model, sources, targets, self.tokenizer.specials, self.search),
                **self._context_settings,
                layers=self._alignment_layers,
                wanted=wanted,
                drafts=drafts,
                on_sentences=bar.advance,
            )
        linked = map(link_sentences, repeat(self.tokenizer), texts, sources, targets, weights)
        restore = self.protection.restore_links if self.protection else lambda links, source, target: tuple(links)
        return [
            {n: restore(links, each.sentences[n].source, each.sentences[n].target) for n, links in rows.items()}
            for each, rows in zip(translations, linked, strict=True)
        ]

    def draft_documents(self, sources: Sequence[WordIds]) -> list[list[list[int]]] | None:
        """Translate the drafts that the model reads, of documents of word ids; return None if it reads none."""
        if self._drafter is None:
            return None
        with progress(self._title("drafting"), sum(map(len, sources))) as bar:
            return self._drafter.draft_documents(sources, bar.advance)

    @property
    def _alignment_layers(self) -> list[AlignmentLayer]:
        """The layer of each member that alignments are read from."""
        members = zip(self._paths, self.models, strict=True)
        return [load_alignment_layer(path) or default_alignment_layer(member) for path, member in members]

    def _title(self, work: str) -> str:
        """Return the title of a progress bar, with the device and the precision."""
        return f"{work} on {self.device} in {self.precision} (sentences)"

    def encode(self, sentences: Sequence[str], side: Side) -> list[list[int]]:
        """Return the word ids of sentences, without boundary tokens."""
        # Hard-wrapped lines inside a sentence are one line to the model. A tokenizer needs many times the memory of the
        # ids, so a book is encoded in blocks.
        blocks = (sentences[first : first + _BLOCK] for first in range(0, len(sentences), _BLOCK))
        texts = (block if side == "target" else map(normalize_characters, block) for block in blocks)
        return [ids for each in texts for ids in self.tokenizer.encode_batch(list(map(unwrap_lines, each)), side)]

    def _make_translation(self, source: PreparedDocument, hypotheses: Sequence[Hypothesis]) -> Translation:
        """Return the best translation, with the others as its alternatives."""
        translations = []
        for each in hypotheses:
            texts = [unwrap_lines(text).strip() for text in self.tokenizer.decode_batch(each.sentences, "target")]
            if self.protection:
                texts = list(map(self.protection.restore, texts, source.document.sentences))
            target = source.document.replace_sentences(texts)
            translations.append(self._add_scores(source.document, target, source.words, each))
        return replace(translations[0], alternatives=tuple(translations[1:]))

    def _add_scores(self, source: Document, target: Document, words: WordIds, hypothesis: Hypothesis) -> Translation:
        """Return a translation with the scores of a hypothesis; words: ids of the source sentences."""
        token_scores: Sequence[Sequence[float]] = hypothesis.token_scores or [()] * len(source)  # a search keeps none
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
                [None] * len(source),  # not aligned
                [array("i", ids) for ids in hypothesis.sentences],
                token_scores,
                strict=True,
            )
        )
        limit = find_instance_limit(self._model, self.context) - NUM_BOUNDARY_TOKENS
        return Translation(
            target,
            sentences,
            hypothesis.score,
            miscounted=tuple(hypothesis.miscounted),
            at_limit=tuple(hypothesis.at_limit),
            overlong=tuple(number for number, ids in enumerate(words) if len(ids) >= limit),
        )
