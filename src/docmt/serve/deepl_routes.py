"""The interface of DeepL (version 2), for the clients that speak it.

Codes are in upper case, and errors are {"message": sentence}. What would change the meaning of a request, and cannot be
done, is refused: formality, style rules, tags to ignore. Glossaries are in `glossary_routes`. Translation memories are
those of the server, which all texts reuse: who names one of them gets what is there without it.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import asdict
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from docmt.documents.input_formats import FORMATS, FileFormat
from docmt.formats.language_codes import is_same_language, primary_language
from docmt.formats.units import ALL_TAGS, TagRules
from docmt.serve.glossary_routes import read_terms
from docmt.serve.http_requests import RequestError, RequestValues, read_values
from docmt.serve.job_store import ACTIVE, DocumentOptions
from docmt.serve.model_pool import MemoryDescription, language_name, list_pairs
from docmt.serve.native_routes import file_name, file_response, start_job
from docmt.serve.service_state import FORBIDDEN, ServiceState, authorize
from docmt.serve.text_translation import (
    NO_CONTEXT,
    XML,
    ChosenModel,
    TextItem,
    TextOptions,
    choose_model,
    choose_models,
    make_item,
    make_sentence_item,
    translate_items,
)

_NO_LIMIT = 10**12
_REFUSED = ("style_id", "custom_instructions", "ignore_tags")
_MOST_MEMORIES = 25
"""Of a page."""
_KIND_WORDS = ("default", "prefer_more", "prefer_less")
_VARIANTS = {"EN": {"EN-GB": "British", "EN-US": "American"}, "PT": {"PT-BR": "Brazilian", "PT-PT": "European"}}
"""Targets for which clients demand a region, which a model of the bare language does not distinguish."""
_MARKUPS = {"html": FORMATS["html"], "xml": XML}
_STATES = {"queued": "queued", "running": "translating", "done": "done", "failed": "error", "cancelled": "error"}


async def _read(request: Request, is_upload: bool = False) -> tuple[ServiceState, RequestValues, str]:
    """Return what the routes share, the values of the request, and the owner of its key."""
    state, owner = authorize(request, FORBIDDEN)
    if is_upload:
        state.check_upload(request)
    return state, await read_values(request, state.config.max_body_bytes), owner


def _check_refused(state: ServiceState, values: RequestValues) -> None:
    """Raise RequestError for parameters that would change the translation, and cannot be honoured as they are."""
    for name in _REFUSED:
        if values.fields.get(name):
            raise RequestError(f"{name} is not supported here: leave it out")
    names_glossary = values.fields.get("glossary_id") or values.fields.get("glossary_ids")
    if names_glossary and not values.text("source_lang"):
        raise RequestError("source_lang is missing: a glossary needs it")
    values.choice("formality", _KIND_WORDS, "default")
    values.whole("translation_memory_threshold", 0, 100)
    if id := values.text("translation_memory_id"):
        memory, target = find_memory(state, id), values.text("target_lang")
        if not any(is_same_language(code, target) for code in memory.target_languages):
            raise RequestError(f"{memory.name} has no translations into {target}: leave translation_memory_id out")


def _choose(state: ServiceState, values: RequestValues, text: str) -> ChosenModel:
    target = values.text("target_lang")
    if not target:
        raise RequestError("target_lang is missing: send the code of a language, such as FR")
    return choose_model(state.engine, values.text("source_lang"), target, text)


async def translate(request: Request) -> Response:
    """Translate a list of texts, with the context that the caller gives."""
    state, values, owner = await _read(request)
    _check_refused(state, values)
    texts, context = values.texts("text"), values.text("context")
    state.take_texts(request, texts, context)
    handling = values.choice("tag_handling", (*_MARKUPS, "none"), "none")
    markup, tags = _MARKUPS.get(handling), _read_tags(values, handling)
    split = _read_split(values)
    chosen = choose_models(request, texts, lambda text: _choose(state, values, text))
    items = [await _make_item(state, *pair, markup, tags, split) for pair in zip(texts, chosen, strict=True)]
    named = [each.name for each in chosen if each.name]
    before = await state.engine.segment(named[0], context) if named and context else NO_CONTEXT
    _, entries = await read_terms(state, values, owner, chosen[0]) if named else ((), "")
    terms = await state.engine.make_matcher(chosen[0].name, entries) if entries else None
    options = TextOptions(before, terms=terms)
    rows = await translate_items(request, state.engine, [each.name for each in chosen], items, options)
    translations = [
        {
            "detected_source_language": primary_language(model.source).upper(),
            "text": item.render([each.sentence for each in row]),
            "billed_characters": len(text),
        }
        for text, model, item, row in zip(texts, chosen, items, rows, strict=True)
    ]
    return JSONResponse({"translations": translations})


def _read_split(values: RequestValues) -> str:
    """Return how plain text is cut into sentences: 0 (it is one), 1 (at marks and lines), nonewlines (at marks)."""
    value = values.fields.get("split_sentences")
    if isinstance(value, int) and value in (0, 1):  # also true and false
        return str(int(value))
    return values.choice("split_sentences", ("0", "1", "nonewlines"), "1")


def _read_tags(values: RequestValues, handling: str) -> TagRules:
    """Return which tags end a sentence. Raises RequestError for rules that would have no effect."""
    splitting, non_splitting = (
        frozenset(",".join(values.texts(name)).replace(" ", "").split(",")) - {""} if values.fields.get(name) else ()
        for name in ("splitting_tags", "non_splitting_tags")
    )
    rules = TagRules(frozenset(splitting), frozenset(non_splitting), values.switch("outline_detection", True))
    if rules != ALL_TAGS and handling != "xml":
        raise RequestError(
            "splitting_tags, non_splitting_tags and outline_detection are rules for XML: send tag_handling=xml, or "
            "leave them out"
        )
    return rules


async def _make_item(
    state: ServiceState, text: str, chosen: ChosenModel, markup: FileFormat | None, tags: TagRules, split: str
) -> TextItem:
    if chosen.name and markup is None and split == "0":
        return make_sentence_item(text)
    if split == "nonewlines" and markup is None:
        text = " ".join(text.splitlines())
    return await make_item(state.engine, text, chosen, markup, tags)


async def list_languages(request: Request) -> Response:
    """List the source languages, or the target languages (type=target)."""
    state, values, _ = await _read(request)
    kind = values.choice("type", ("source", "target"), "source")
    pairs = list_pairs(state.engine.models.describe())
    codes = list(pairs) if kind == "source" else [target for targets in pairs.values() for target in targets]
    rows = [row for code in dict.fromkeys(codes) for row in _describe_language(code, kind == "target")]
    return JSONResponse(rows)


def _describe_language(code: str, is_target: bool) -> list[dict[str, Any]]:
    """Return the entries of a language; two for a target whose region clients demand."""
    tag, name = code.upper(), language_name(code)
    if not is_target:
        return [{"language": primary_language(code).upper(), "name": name}]
    return [
        {"language": variant, "name": f"{name} ({region})" if region else name, "supports_formality": False}
        for variant, region in _VARIANTS.get(tag, {tag: ""}).items()
    ]


def find_memory(state: ServiceState, id: str) -> MemoryDescription:
    """Return a translation memory of the server. Raises RequestError for another one."""
    found = [each for each in state.engine.models.memories if each.translation_memory_id == id]
    if not found:
        raise RequestError("there is no such translation memory: list them, and name one of these, or none", 404)
    return found[0]


async def list_memories(request: Request) -> Response:
    """List the translation memories of the server, a page of them, or the one in the path."""
    state, values, _ = await _read(request)
    if id := request.path_params.get("id"):
        return JSONResponse(asdict(find_memory(state, id)))
    memories, size = state.engine.models.memories, values.whole("page_size", 1, _MOST_MEMORIES, _MOST_MEMORIES)
    first = values.whole("page", 0, 10**6) * size
    rows = [asdict(each) for each in memories[first : first + size]]
    return JSONResponse({"translation_memories": rows, "total_count": len(memories)})


async def show_usage(request: Request) -> Response:
    """Return the characters that the key has sent."""
    state, owner = authorize(request, FORBIDDEN)
    return JSONResponse({"character_count": state.characters[owner], "character_limit": _NO_LIMIT})


async def create_document(request: Request) -> Response:
    """Start the translation of a file."""
    state, values, owner = await _read(request, is_upload=True)
    _check_refused(state, values)
    upload = values.files.get("file")
    if upload is None:
        raise RequestError("file is missing: send it as multipart/form-data")
    name = file_name(values.text("filename") or upload.filename, "document.txt")
    if (format := values.text("output_format").lower()) and not name.lower().endswith(f".{format}"):
        raise RequestError(f"output_format is {format}, but the file keeps its format: leave it out")
    chosen = _choose(state, values, "")
    ids, entries = await read_terms(state, values, owner, chosen)
    options = DocumentOptions(model=chosen.name, name=name, glossary_ids=ids, entries=entries)
    status = await start_job(request, upload, options, owner)
    return JSONResponse({"document_id": status.id, "document_key": _document_key(status.id)})


def _document_key(id: str) -> str:
    """Return the key of a document. The id itself cannot be guessed; the key is what this interface demands."""
    return hashlib.sha256(f"document key {id}".encode()).hexdigest().upper()


async def _identify(request: Request) -> tuple[ServiceState, str, str]:
    """Return what the routes share, the owner and the id. Raises RequestError for a wrong document key."""
    state, values, owner = await _read(request)
    id = request.path_params["id"]
    if not hmac.compare_digest(_document_key(id).encode(), values.text("document_key").upper().encode()):
        raise RequestError("document_key does not belong to this document: send both as they were answered", 404)
    return state, owner, id


async def show_document(request: Request) -> Response:
    """Return the state of a document."""
    state, owner, id = await _identify(request)
    status = state.jobs.status(id, owner)
    answer: dict[str, Any] = {"document_id": id, "status": _STATES[status.status]}
    if status.status == "done":
        answer["billed_characters"] = state.jobs.count_characters(id, owner)
    if answer["status"] == "error":
        answer["error_message"] = status.error or f"the document is {status.status}"
    return JSONResponse(answer)


async def download_document(request: Request) -> Response:
    """Return the translated file; 503 before it is done, which clients take as "try again"."""
    state, owner, id = await _identify(request)
    if state.jobs.status(id, owner).status in ACTIVE:
        raise RequestError("the document is not translated yet: ask for its state", 503, {"retry-after": "5"})
    return file_response(request, *await state.jobs.result(id, owner))


_PATH = "/v2/document/{id}"
ROUTES = [
    Route("/v2/translate", translate, methods=["POST"]),
    Route("/v2/languages", list_languages, methods=["GET", "POST"]),
    Route("/v2/usage", show_usage, methods=["GET", "POST"]),
    Route("/v2/document", create_document, methods=["POST"]),
    Route(_PATH, show_document, methods=["GET", "POST"]),
    Route("/v3/translation_memories", list_memories),
    Route("/v3/translation_memories/{id}", list_memories),
    Route(_PATH + "/result", download_document, methods=["GET", "POST"]),
]
