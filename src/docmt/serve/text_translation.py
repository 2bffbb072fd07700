"""Translation of the texts of one request: all are submitted together, awaited together, and cancelled together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect, Request

from docmt.checking.languages import FUNCTION_WORDS, rank_languages
from docmt.core.errors import DocmtError
from docmt.decoding.file_translation import FileConfig, FileTranslation
from docmt.decoding.term_report import count_statuses
from docmt.decoding.translation_results import PartialTranslation, ResumePoint, TranslatedSentence, Translation
from docmt.documents import Document
from docmt.documents.input_formats import FileFormat
from docmt.documents.segmentation import unwrap_lines
from docmt.formats.language_codes import is_same_language, primary_language
from docmt.formats.units import ALL_TAGS, TagRules
from docmt.serve.engine import Engine
from docmt.serve.http_requests import RequestError, RequestValues
from docmt.serve.model_pool import language_name
from docmt.serve.service_state import ServiceState
from docmt.serve.work_queue import Work
from docmt.terms.matching import TermMatcher

Result = TypeVar("Result")

_DOCUMENT_HEADER = "x-docmt-document"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_LEAST_WORDS, _CLEAR_WORDS, _CLEAR_RATIO = 2, 4, 1.5
"""Different function words: least to tell a language, and least to call a text foreign; ratio to those of the source
languages that makes another language clear."""
NO_CONTEXT = Document((), ("",))
XML = FileFormat("xml", (), "html_pages.read_fragment", "a piece of XML")
_MOST_GLOSSARIES = 5
"""That a request names."""
_TEXT_GAP = "\n\n"
"""Between the texts of one document."""


@dataclass(frozen=True)
class ChosenModel:
    """The model for a text."""

    name: str
    """empty: the text is in the target language already, or in a language of no model, and stays as it is"""
    source: str
    """language of the text: as asked for, or detected; perhaps empty"""
    target: str
    confidence: int | None = None
    """percent, if the language was detected"""


class ForeignTextError(RequestError):
    """A text is clearly in a language of no model.

    chosen: no model, with the language of the text. sources: the languages of the models.
    """

    def __init__(self, chosen: ChosenModel, sources: Sequence[str]) -> None:
        self.chosen, code = chosen, chosen.source
        names = ", ".join(f"{language_name(each)} ({primary_language(each)})" for each in sources)
        super().__init__(
            f"the text seems to be in {language_name(code)} ({code}), but the models translate from {names}: "
            "name the source language if it is one of these"
        )


@dataclass(frozen=True)
class TextItem:
    """A text of a request."""

    document: Document
    """its sentences"""
    file: FileTranslation | None = None
    """a piece of HTML or XML as a file, whose markup is kept"""

    def render(self, sentences: Sequence[TranslatedSentence]) -> str:
        """Return the translation. Its layout is kept."""
        if self.file is None:
            return self.document.replace_sentences([sentence.target for sentence in sentences]).text()
        translation = Translation(self.document, tuple(sentences), 0.0)
        part = PartialTranslation(0, 0, self.document, ResumePoint(len(self.document)), translation)
        return self.file.render([self.file.to_records(part)]).removeprefix(_BYTE_ORDER_MARK).decode()

    def needs_alignment(self, number: int) -> bool:
        """Return whether the text needs the word alignment of a sentence."""
        return self.file is not None and self.file.units.needs_alignment(0, number)


@dataclass(frozen=True)
class SentenceResult:
    """A translated sentence of a request."""

    sentence: TranslatedSentence
    warnings: Sequence[str]
    alternatives: Sequence[TranslatedSentence]
    """further translations, best first"""


@dataclass(frozen=True)
class TextOptions:
    """How the texts of a request are translated."""

    context: Document = NO_CONTEXT
    """sentences before each text, which are not returned"""
    context_targets: Sequence[str] = ()
    """their translations; empty: they are translated, too"""
    n_best: int = 1
    align: bool = False
    terms: TermMatcher | None = None
    """of glossaries that the request names"""


def is_one_document(request: Request) -> bool:
    """Return whether the texts of a request, in order, are one document, which a header says.

    Otherwise they do not know each other.
    """
    return request.headers.get(_DOCUMENT_HEADER, "") == "1"


def choose_model(engine: Engine, source: str, target: str, text: str = "", name: str = "") -> ChosenModel:
    """Return the model for a language pair. Raises RequestError if there is none.

    source: "" or "auto" is detected from the text among the languages of the models for the target. A text without
    enough function words is taken to be in the first of these languages. Raises ForeignTextError for another language.
    """
    source = "" if source.lower() == "auto" else source
    models = [each for each in engine.models.describe() if is_same_language(each.target_language, target)]
    languages = list(dict.fromkeys(each.source_language for each in models if not name or each.name == name))
    confidence = None
    if not source and languages:
        other = None if name else find_other_language(text, target, languages)  # a name: the caller knows the language
        if other is not None:
            if not target or not is_same_language(other.source, target):
                raise ForeignTextError(other, languages)
            return other
        source, confidence = detect_source(text, languages)
    try:
        return ChosenModel(engine.models.find(name, source, target), source, target, confidence)
    except DocmtError as error:
        raise RequestError(str(error)) from error


def choose_models(request: Request, texts: Sequence[str], choose: Callable[[str], ChosenModel]) -> list[ChosenModel]:
    """Return the model of each text; of texts that are one document, that of all. choose: returns it for a text.

    A foreign text of a list stays as it is. Raises ForeignTextError if all are.
    """
    if is_one_document(request):
        return [choose(" ".join(texts))] * len(texts)
    chosen, foreign = list[ChosenModel](), list[ForeignTextError]()
    for text in texts:
        try:
            chosen.append(choose(text))
        except ForeignTextError as error:
            chosen.append(error.chosen)
            foreign.append(error)
    if foreign and len(foreign) == len(texts):
        raise foreign[0]
    return chosen


def detect_source(text: str, languages: Sequence[str]) -> tuple[str, int]:
    """Return the language of a text among some, and the confidence in percent.

    0: there is not enough evidence, and the first language is taken.
    """
    ranking = rank_languages([text], different=True)
    for count, code in ranking:
        for language in languages:
            if count >= _LEAST_WORDS and is_same_language(code, language):
                return language, _compute_confidence(code, ranking)
    return languages[0], 0


def _compute_confidence(code: str, ranking: Sequence[tuple[int, str]]) -> int:
    """Return the share of a language in the function words of the two best languages, and one that is unknown."""
    counts = {another: count for count, another in ranking}
    others = max((count for another, count in counts.items() if another != code), default=0)
    return round(100 * counts[code] / (counts[code] + others + 1))


def find_other_language(text: str, target: str, sources: Sequence[str]) -> ChosenModel | None:
    """Return no model for a text that is clearly in the target language, or in a language of no model.

    With a source language whose function words are not known, no text is foreign.
    """
    ranking = rank_languages([text], different=True)
    known = max((count for count, code in ranking if any(is_same_language(code, each) for each in sources)), default=0)
    are_known = all(primary_language(source) in FUNCTION_WORDS for source in sources)
    for count, code in ranking:
        is_target = bool(target) and is_same_language(code, target)
        least = _LEAST_WORDS if is_target else _CLEAR_WORDS
        if count >= max(least, _CLEAR_RATIO * known) and (is_target or are_known):
            return ChosenModel("", target if is_target else code, target, _compute_confidence(code, ranking))
    return None


def _make_sentence_item(text: str) -> TextItem:
    """Return the item of a text that is one sentence. White space around it is kept."""
    core = text.strip()
    if not core:
        return TextItem(Document((), (text,)))
    start, _, end = text.partition(core)
    return TextItem(Document((unwrap_lines(core),), (start, end)))


async def make_item(
    engine: Engine, text: str, model: ChosenModel, markup: FileFormat | None, tags: TagRules = ALL_TAGS, split: str = ""
) -> TextItem:
    """Return the item of running text, or of a piece of HTML or XML; without a model, the text stays as it is.

    markup: FORMATS["html"] or XML; None for text. tags: rules of XML. split: how text is cut into sentences: 0 (it is
    one), nonewlines (at marks), or at marks and lines. Raises DocmtError for text that HTML cannot hold.
    """
    if split == "nonewlines" and markup is None:
        text = " ".join(text.splitlines())
    if not model.name:
        return TextItem(Document((), (text,)))
    if markup is None:
        return _make_sentence_item(text) if split == "0" else TextItem(await engine.segment(model.name, text))
    language = engine.models.describe_one(model.name).source_language or model.source or "en"
    languages = model.source, model.target, primary_language(language)
    config = FileConfig(*languages, tags=tags, protect=engine.models.patterns)
    content = text.encode() if markup is XML else _BYTE_ORDER_MARK + text.encode()
    file = await asyncio.to_thread(FileTranslation, "the text", content, markup, config)
    return TextItem(file.documents[0], file)


async def read_terms(
    state: ServiceState, values: RequestValues, owner: str, chosen: ChosenModel
) -> tuple[tuple[str, ...], str]:
    """Return the ids of the glossaries that a request names, and their entries for the languages of a model.

    The fields are glossary_id, or glossary_ids, a list or with commas between them. Raises RequestError and
    GlossaryError.
    """
    names = [name for name in ("glossary_id", "glossary_ids") if values.fields.get(name)]
    texts = values.texts(names[0]) if names else []
    ids = tuple(dict.fromkeys(id.strip() for text in texts for id in text.split(",")))
    if len(names) > 1 or len(ids) > _MOST_GLOSSARIES:
        raise RequestError(f"send either glossary_id, or at most {_MOST_GLOSSARIES} ids as glossary_ids")
    if not ids:
        return (), ""
    model = state.engine.models.describe_one(chosen.name)
    languages = model.source_language or chosen.source, model.target_language or chosen.target
    pair = primary_language(languages[0]), primary_language(languages[1])
    return ids, await asyncio.to_thread(state.glossaries.merge, owner, ids, pair)


async def _collect(items: Sequence[TextItem], work: Work | None) -> list[list[SentenceResult]]:
    """Return the translated sentences of each item. Raises DocmtError if one cannot be translated."""
    if work is None:
        return [[] for _ in items]
    rows, last = list[SentenceResult](), 0
    for part in await work.result():
        if part.translation is None:
            raise part.error or DocmtError("the text could not be translated")
        last = part.resume_point.sentences
        columns = [part.translation, *part.translation.alternatives]
        for warnings, (best, *others) in zip(part.translation.warnings(), zip(*columns, strict=True), strict=True):
            rows.append(SentenceResult(best, warnings, others))
    if last != len(work.document):
        raise DocmtError("the server stops: send the text again in a minute")
    sizes = [len(item.document) for item in items]
    results = iter(rows[len(rows) - sum(sizes) :])
    return [list(islice(results, size)) for size in sizes]


async def translate_items(
    request: Request, engine: Engine, models: Sequence[str], items: Sequence[TextItem], options: TextOptions
) -> list[list[SentenceResult]]:
    """Return the translated sentences of each item; models: of each.

    Everything waits for translation at once, so that it meets in batches. It is cancelled if the client goes away.
    Counts of terms are kept as `request.state.terms`, for a header of the answer.
    Raises DocmtError if a sentence cannot be translated, and Overloaded.
    """
    groups = [items] if is_one_document(request) and items else [[item] for item in items]
    works: list[Work | None] = []
    owner = getattr(request.state, "owner", "")

    async def collect() -> list[list[SentenceResult]]:
        # Not `gather`: where one fails, it would leave the others to wait for works that are cancelled then.
        return [rows for pair in zip(groups, works, strict=True) for rows in await _collect(*pair)]

    try:
        for model in {*models[: len(groups)]} - {""}:
            engine.check_room(model, owner)
        for model, group in zip(models, groups, strict=False):  # one document has one model
            works.append(_submit(engine, model, group, options, owner))
        translated = await until_disconnected(request, collect())
        statuses = [use.status for rows in translated for row in rows for use in row.sentence.terms]
        if statuses or options.terms:
            request.state.terms = count_statuses(statuses)
        return translated
    finally:
        for work in filter(None, works):
            work.cancel()


def _submit(engine: Engine, model: str, items: Sequence[TextItem], options: TextOptions, owner: str) -> Work | None:
    """Start the translation of items that are one document, if there is anything to translate.

    A context that the model does not read is left out, which saves its translation.
    """
    if not any(len(item.document) for item in items):
        return None
    if options.context and not engine.models.describe_one(model).reads_context:
        options = replace(options, context=NO_CONTEXT, context_targets=())
    document = _join([options.context, *(item.document for item in items)])
    aligned = [False] * len(options.context)
    aligned += [options.align or item.needs_alignment(number) for item in items for number in range(len(item.document))]
    targets, terms = options.context_targets, options.terms
    work = Work(model, document, n_best=options.n_best, targets=targets, owner=owner, terms=terms)
    work.align = aligned.__getitem__
    return engine.submit(work)


def _join(documents: Sequence[Document]) -> Document:
    """Return one document of all sentences."""
    sentences: list[str] = []
    gaps = [""]
    for number, document in enumerate(documents):
        gaps[-1] += _TEXT_GAP * (number > 0) + document.gaps[0]
        sentences += document.sentences
        gaps += document.gaps[1:]
    marked = (text for document in documents for text in document.marked or document.sentences)
    return Document(tuple(sentences), tuple(gaps), marked=tuple(marked))


async def until_disconnected(request: Request, work: Coroutine[Any, Any, Result]) -> Result:
    """Return the result of some work. If the client goes away first, cancel it and raise ClientDisconnect.

    The body of the request must have been read.
    """
    task, watcher = asyncio.ensure_future(work), asyncio.ensure_future(_wait_for_disconnect(request))
    try:
        await asyncio.wait({task, watcher}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientDisconnect
        return task.result()
    finally:
        task.cancel()
        watcher.cancel()
        await asyncio.gather(task, watcher, return_exceptions=True)


async def _wait_for_disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
