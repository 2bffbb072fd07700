"""The interface of DeepL, for the clients that speak it.

Codes are in upper case, and errors are {"message": sentence}. What would change the meaning of a request, and cannot be
done, is refused: formality, style rules, tags to ignore. Translation memories are those of the server, which all texts
reuse: who names one of them gets what is there without it.

Glossaries have routes of two versions. Version 2 has glossaries of one dictionary, which it does not change; version 3
has all, and changes them.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from docmt.core.errors import DocmtError
from docmt.documents.input_formats import FORMATS
from docmt.documents.words import has_words
from docmt.formats.language_codes import is_same_language, primary_language
from docmt.formats.units import ALL_TAGS, TagRules
from docmt.serve.glossary_store import MAX_BYTES, Entries, GlossaryStore, Pair, StoredGlossary, make_pair, parse_entries
from docmt.serve.http_requests import RequestError, RequestValues, read_values
from docmt.serve.job_store import ACTIVE, DocumentOptions
from docmt.serve.model_pool import MemoryDescription, language_name, list_pairs
from docmt.serve.native_routes import file_name, file_response, start_job
from docmt.serve.service_state import FORBIDDEN, ServiceState, authorize, get_state
from docmt.serve.text_translation import (
    NO_CONTEXT,
    XML,
    ChosenModel,
    TextOptions,
    choose_model,
    choose_models,
    make_item,
    read_terms,
    translate_items,
)

_NO_LIMIT = 10**12
_REFUSED = ("style_id", "custom_instructions", "ignore_tags")
_MOST_MEMORIES = 25
"""Of a page."""
_MOST_ARRIVING = 16
"""Glossaries of a key that arrive at one time."""
_KIND_WORDS = ("default", "prefer_more", "prefer_less")
_VARIANTS = {"EN": {"EN-GB": "British", "EN-US": "American"}, "PT": {"PT-BR": "Brazilian", "PT-PT": "European"}}
"""Targets for which clients demand a region, which a model of the bare language does not distinguish."""
_MARKUPS = {"html": FORMATS["html"], "xml": XML}
_STATES = {"queued": "queued", "running": "translating", "done": "done", "failed": "error", "cancelled": "error"}
Result = TypeVar("Result")


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
    items = [await make_item(state.engine, *pair, markup, tags, split) for pair in zip(texts, chosen, strict=True)]
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
    """Return how plain text is cut into sentences, as `make_item` takes it."""
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


# Glossaries


async def _call(request: Request, work: Callable[..., Result], *arguments: object) -> Result:
    """Return the result of a method of the store for the owner of the key, and the id in the path if there is one."""
    state, owner = authorize(request, FORBIDDEN)
    return await asyncio.to_thread(work, state.glossaries, owner, *request.path_params.values(), *arguments)


async def _read_body(request: Request) -> RequestValues:
    """Return the values of a request with entries. Raises RequestError if too many arrive, as they are large."""
    state, owner = authorize(request, FORBIDDEN)
    arriving = f"glossaries of {owner}"
    if state.arriving[arriving] >= _MOST_ARRIVING:
        raise RequestError("too many glossaries arrive: try again later", 429, {"retry-after": "5"})
    state.arriving[arriving] += 1
    try:
        return await read_values(request, MAX_BYTES)
    finally:
        state.arriving[arriving] -= 1


def _check_languages(request: Request, pairs: Iterable[Pair]) -> None:
    """Raise RequestError where no model has any of these languages."""
    problems = []
    for pair in pairs:
        try:
            get_state(request).engine.models.find("", *pair)
        except DocmtError as error:
            problems.append(error)
        else:
            return
    if problems:
        raise RequestError(str(problems[0])) from problems[0]


async def _read_dictionary(request: Request, values: RequestValues) -> tuple[Pair, Entries]:
    """Return the languages and entries of a dictionary. Raises RequestError where no model has the languages."""
    _check_languages(request, [make_pair(values.text("source_lang"), values.text("target_lang"))])
    return await _read_entries(request, values)


async def _read_entries(request: Request, values: RequestValues) -> tuple[Pair, Entries]:
    pair = make_pair(values.text("source_lang"), values.text("target_lang"))
    is_csv = values.choice("entries_format", ("tsv", "csv"), "tsv") == "csv"
    entries = await asyncio.to_thread(parse_entries, values.text("entries"), is_csv, pair)
    request.state.terms = counts = getattr(request.state, "terms", Counter[str]())
    counts.update(entries=len(entries), usable=sum(map(has_words, entries)))
    return pair, entries


async def _read_dictionaries(request: Request, values: RequestValues) -> dict[Pair, Entries]:
    """Return the dictionaries of a request.

    Those of languages that no model has are kept beside others, as people export both directions. Raises RequestError.
    """
    rows = values.fields.get("dictionaries") or []
    if not (isinstance(rows, list) and all(isinstance(row, dict) for row in rows)):
        raise RequestError("dictionaries is no list of objects: send source_lang, target_lang and entries in each")
    dictionaries = dict([await _read_entries(request, RequestValues(row)) for row in rows])
    if len(dictionaries) < len(rows):
        raise RequestError("two dictionaries have the same languages: join them")
    _check_languages(request, dictionaries)
    return dictionaries


def _describe_dictionary(pair: Pair, size: int) -> dict[str, Any]:
    return {"source_lang": pair[0], "target_lang": pair[1], "entry_count": size}


def _describe(request: Request, glossary: StoredGlossary) -> dict[str, Any]:
    """Return a glossary in the shape of the version in the path."""
    dictionaries = [_describe_dictionary(*each) for each in glossary.sizes.items()]
    created = datetime.fromtimestamp(glossary.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    head = {"glossary_id": glossary.id, "name": glossary.name, "creation_time": created}
    if _is_version_3(request):
        return head | {"dictionaries": dictionaries}
    if len(dictionaries) != 1:
        message = f"version 2 has glossaries of one dictionary, and this one has {len(dictionaries)}: use version 3"
        raise RequestError(message, 404)
    return head | {"ready": True} | dictionaries[0]


def _is_version_3(request: Request) -> bool:
    return "/v3/" in request.url.path


def _read_pair(request: Request) -> Pair:
    """Return the languages in the query, after a check of the key."""
    authorize(request, FORBIDDEN)
    return make_pair(request.query_params.get("source_lang", ""), request.query_params.get("target_lang", ""))


async def create_glossary(request: Request) -> Response:
    """Store a glossary: of version 2 with one dictionary, of version 3 with several."""
    values = await _read_body(request)
    if not _is_version_3(request):
        dictionaries = dict([await _read_dictionary(request, values)])
    elif not (dictionaries := await _read_dictionaries(request, values)):
        raise RequestError("dictionaries is missing: send at least one")
    glossary = await _call(request, GlossaryStore.create, values.text("name"), dictionaries)
    return JSONResponse(_describe(request, glossary), 201)


async def list_glossaries(request: Request) -> Response:
    """List the glossaries of a key; version 2 has those of one dictionary."""
    owned = await _call(request, GlossaryStore.list_owned)
    rows = [_describe(request, each) for each in owned if _is_version_3(request) or len(each.sizes) == 1]
    return JSONResponse({"glossaries": rows})


async def show_glossary(request: Request) -> Response:
    """Return a glossary without its entries."""
    return JSONResponse(_describe(request, await _call(request, GlossaryStore.find)))


async def delete_glossary(request: Request) -> Response:
    """Delete a glossary. Documents that name it keep its terms."""
    await _call(request, GlossaryStore.delete)
    return Response(status_code=204)


async def list_entries(request: Request) -> Response:
    """Return the entries: of version 2 as tab-separated values, of version 3 those of the languages in the query."""
    glossary = await _call(request, GlossaryStore.find)
    _describe(request, glossary)
    pair = _read_pair(request) if _is_version_3(request) else next(iter(glossary.sizes))
    entries = await _call(request, GlossaryStore.read, pair)
    if not _is_version_3(request):
        return Response(entries, media_type="text/tab-separated-values")
    row = {"source_lang": pair[0], "target_lang": pair[1], "entries": entries, "entries_format": "tsv"}
    return JSONResponse({"dictionaries": [row]})


async def change_glossary(request: Request) -> Response:
    """Rename a glossary, or add entries to its dictionaries."""
    values = await _read_body(request)
    name = values.text("name") if values.fields.get("name") is not None else None
    dictionaries = await _read_dictionaries(request, values)
    return JSONResponse(_describe(request, await _call(request, GlossaryStore.change, dictionaries, name)))


async def replace_dictionary(request: Request) -> Response:
    """Put a dictionary in the place of the one of its languages."""
    pair, entries = await _read_dictionary(request, await _read_body(request))
    await _call(request, GlossaryStore.change, {pair: entries}, None, False)
    return JSONResponse(_describe_dictionary(pair, len(entries)))


async def delete_dictionary(request: Request) -> Response:
    """Delete the dictionary of the languages in the query."""
    await _call(request, GlossaryStore.delete, _read_pair(request))
    return Response(status_code=204)


async def list_glossary_languages(request: Request) -> Response:
    """List the pairs of languages of the models."""
    state, _ = authorize(request, FORBIDDEN)
    pairs = [(one, two) for one, others in list_pairs(state.engine.models.describe()).items() for two in others]
    named = dict.fromkeys((primary_language(one), primary_language(two)) for one, two in pairs)
    return JSONResponse({"supported_languages": [{"source_lang": one, "target_lang": two} for one, two in named]})


_ALL, _ONE = "/glossaries", "/glossaries/{id}"
_ENTRIES, _DICTIONARIES = f"{_ONE}/entries", f"{_ONE}/dictionaries"
_ROUTES = (
    ("v2", "POST", "/translate", translate),
    ("v2", "GET POST", "/languages", list_languages),
    ("v2", "GET POST", "/usage", show_usage),
    ("v2", "POST", "/document", create_document),
    ("v2", "GET POST", "/document/{id}", show_document),
    ("v2", "GET POST", "/document/{id}/result", download_document),
    ("v3", "GET", "/translation_memories", list_memories),
    ("v3", "GET", "/translation_memories/{id}", list_memories),
    ("v2 v3", "POST", _ALL, create_glossary),
    ("v2 v3", "GET", _ALL, list_glossaries),
    ("v2 v3", "GET", _ONE, show_glossary),
    ("v2 v3", "DELETE", _ONE, delete_glossary),
    ("v2 v3", "GET", _ENTRIES, list_entries),
    ("v3", "PATCH", _ONE, change_glossary),
    ("v3", "PUT", _DICTIONARIES, replace_dictionary),
    ("v3", "DELETE", _DICTIONARIES, delete_dictionary),
    ("v2", "GET", "/glossary-language-pairs", list_glossary_languages),
)
ROUTES = [
    Route(f"/{version}{path}", route, methods=methods.split())
    for versions, methods, path, route in _ROUTES
    for version in versions.split()
]
