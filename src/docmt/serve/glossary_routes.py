"""Glossaries of clients: the routes of DeepL's interface for them, versions 2 and 3, and those that a request names.

Version 2 has glossaries of one dictionary, which it does not change; version 3 has all, and changes them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from docmt.core.errors import DocmtError
from docmt.documents.words import has_words
from docmt.formats.language_codes import primary_language
from docmt.serve.glossary_store import (
    MAX_BYTES,
    Entries,
    NoSuchDictionary,
    NoSuchGlossary,
    Pair,
    StoredGlossary,
    make_pair,
    parse_entries,
)
from docmt.serve.http_requests import RequestError, RequestValues, read_values
from docmt.serve.model_pool import list_pairs
from docmt.serve.service_state import ServiceState, get_state

_FORBIDDEN = 403
_MOST_IDS = 5
_MOST_ARRIVING = 4
"""Large glossaries of a key that arrive at one time."""
_TSV = "text/tab-separated-values"
Result = TypeVar("Result")


def read_ids(values: RequestValues) -> tuple[str, ...]:
    """Return the glossaries that a request names: glossary_id, or glossary_ids, a list or with commas between them."""
    names = [name for name in ("glossary_id", "glossary_ids") if values.fields.get(name)]
    if len(names) > 1:
        raise RequestError("glossary_id and glossary_ids do not go together: leave one of them out")
    texts = values.texts(names[0]) if names else []
    ids = tuple(dict.fromkeys(id.strip() for text in texts for id in text.split(",") if id.strip()))
    if len(ids) > _MOST_IDS:
        raise RequestError(f"glossary_ids has {len(ids)} ids: send at most {_MOST_IDS}")
    return ids


async def read_terms(state: ServiceState, ids: tuple[str, ...], owner: str, source: str, target: str) -> str:
    """Return the entries of glossaries for a pair of languages (`GlossaryStore.merge`); of none, an empty text.

    Raises RequestError where one has no entries for it, and NoSuchGlossary.
    """
    if not ids:
        return ""
    pair = primary_language(source), primary_language(target)
    try:
        return await asyncio.to_thread(state.glossaries.merge, owner, ids, pair)
    except NoSuchDictionary as error:
        raise RequestError(str(error)) from error


async def _call(request: Request, work: Callable[..., Result], *arguments: Any) -> Result:
    """Return the result of a call of the store for the owner of the key."""
    return await asyncio.to_thread(work, get_state(request).find_owner(request, status=_FORBIDDEN), *arguments)


async def _read_body(request: Request) -> RequestValues:
    """Return the values of a request with entries. Raises RequestError if too many large ones arrive."""
    state = get_state(request)
    owner = state.find_owner(request, status=_FORBIDDEN)
    length, small = request.headers.get("content-length", ""), state.config.max_body_bytes
    if length.isdecimal() and int(length) <= small:
        return await read_values(request, small)
    arriving = f"glossaries of {owner}"
    if state.arriving[arriving] >= _MOST_ARRIVING:
        raise RequestError("too many large glossaries arrive: try again later", 429, {"retry-after": "5"})
    state.arriving[arriving] += 1
    try:
        return await read_values(request, MAX_BYTES)
    finally:
        state.arriving[arriving] -= 1


async def _read_dictionary(request: Request, values: RequestValues) -> tuple[Pair, Entries]:
    """Return the languages and entries of a dictionary. Raises RequestError where no model has the languages."""
    pair = make_pair(values.text("source_lang"), values.text("target_lang"))
    try:
        get_state(request).engine.find_model("", *pair)
    except DocmtError as error:
        raise RequestError(str(error)) from error
    is_csv = values.choice("entries_format", ("tsv", "csv"), "tsv") == "csv"
    entries = await asyncio.to_thread(parse_entries, values.text("entries"), is_csv, pair)
    usable = await asyncio.to_thread(lambda: sum(map(has_words, entries)))
    request.state.terms = {"entries": len(entries), "usable": usable}
    return pair, entries


async def _read_dictionaries(request: Request, values: RequestValues) -> dict[Pair, Entries]:
    """Return the dictionaries of a request. Raises RequestError for two of the same languages."""
    rows, dictionaries = values.fields.get("dictionaries") or [], dict[Pair, Entries]()
    if not (isinstance(rows, list) and all(isinstance(row, dict) for row in rows)):
        raise RequestError("dictionaries is no list of objects: send source_lang, target_lang and entries in each")
    for row in rows:
        pair, entries = await _read_dictionary(request, RequestValues(row))
        if pair in dictionaries:
            raise RequestError(f"there are two dictionaries for {' to '.join(pair)}: join them")
        dictionaries[pair] = entries
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
        raise NoSuchGlossary(
            f"version 2 has glossaries of one dictionary, and this one has {len(dictionaries)}: use version 3"
        )
    return head | {"ready": True} | dictionaries[0]


def _is_version_3(request: Request) -> bool:
    return "/v3/" in request.url.path


async def create_glossary(request: Request) -> Response:
    """Store a glossary: of version 2 with one dictionary, of version 3 with several."""
    values = await _read_body(request)
    if _is_version_3(request):
        dictionaries = await _read_dictionaries(request, values)
        if not dictionaries:
            raise RequestError("dictionaries is missing: send at least one")
    else:
        dictionaries = dict([await _read_dictionary(request, values)])
    made = await _call(request, get_state(request).glossaries.create, values.text("name"), dictionaries)
    return JSONResponse(_describe(request, made), 201)


async def list_glossaries(request: Request) -> Response:
    """List the glossaries of a key; version 2 has those of one dictionary."""
    listed = await _call(request, get_state(request).glossaries.list_owned)
    shown = [each for each in listed if _is_version_3(request) or len(each.sizes) == 1]
    return JSONResponse({"glossaries": [_describe(request, each) for each in shown]})


async def show_glossary(request: Request) -> Response:
    """Return a glossary without its entries."""
    found = await _call(request, get_state(request).glossaries.find, request.path_params["id"])
    return JSONResponse(_describe(request, found))


async def delete_glossary(request: Request) -> Response:
    """Delete a glossary. Documents that name it keep its terms."""
    await _call(request, get_state(request).glossaries.delete, request.path_params["id"])
    return Response(status_code=204)


async def list_entries(request: Request) -> Response:
    """Return the entries: of version 2 as tab-separated values, of version 3 those of the languages in the query."""
    store, id = get_state(request).glossaries, request.path_params["id"]
    glossary = await _call(request, store.find, id)
    if _is_version_3(request):
        pair = _read_pair(request)
        entries = await _call(request, store.read_entries, id, pair)
        row = {"source_lang": pair[0], "target_lang": pair[1], "entries": entries, "entries_format": "tsv"}
        return JSONResponse({"dictionaries": [row]})
    _describe(request, glossary)
    return Response(await _call(request, store.read_entries, id, *glossary.sizes), media_type=_TSV)


def _read_pair(request: Request) -> Pair:
    get_state(request).find_owner(request, status=_FORBIDDEN)
    return make_pair(request.query_params.get("source_lang", ""), request.query_params.get("target_lang", ""))


async def change_glossary(request: Request) -> Response:
    """Rename a glossary, or add entries to its dictionaries."""
    values = await _read_body(request)
    name = values.text("name") if values.fields.get("name") is not None else None
    dictionaries = await _read_dictionaries(request, values)
    changed = await _call(request, get_state(request).glossaries.update, request.path_params["id"], name, dictionaries)
    return JSONResponse(_describe(request, changed))


async def replace_dictionary(request: Request) -> Response:
    """Put a dictionary in the place of the one of its languages."""
    pair, entries = await _read_dictionary(request, await _read_body(request))
    changed = await _call(request, get_state(request).glossaries.replace, request.path_params["id"], pair, entries)
    return JSONResponse(_describe_dictionary(pair, changed.sizes[pair]))


async def delete_dictionary(request: Request) -> Response:
    """Delete the dictionary of the languages in the query."""
    await _call(request, get_state(request).glossaries.delete, request.path_params["id"], _read_pair(request))
    return Response(status_code=204)


async def list_glossary_languages(request: Request) -> Response:
    """List the pairs of languages of the models."""
    state = get_state(request)
    state.find_owner(request, status=_FORBIDDEN)
    pairs = list_pairs(state.engine.describe_models()).items()
    rows = [(source, target) for source, targets in pairs for target in targets]
    named = dict.fromkeys((primary_language(source), primary_language(target)) for source, target in rows)
    return JSONResponse({"supported_languages": [{"source_lang": one, "target_lang": two} for one, two in named]})


_GLOSSARIES, _GLOSSARY = "/{}/glossaries", "/{}/glossaries/{{id}}"
ROUTES = [
    Route("/v2/glossary-language-pairs", list_glossary_languages),
    *(
        Route(path.format(version), route, methods=[method])
        for version in ("v2", "v3")
        for path, method, route in (
            (_GLOSSARIES, "POST", create_glossary),
            (_GLOSSARIES, "GET", list_glossaries),
            (_GLOSSARY, "GET", show_glossary),
            (_GLOSSARY, "DELETE", delete_glossary),
            (_GLOSSARY + "/entries", "GET", list_entries),
        )
    ),
    Route("/v3/glossaries/{id}", change_glossary, methods=["PATCH"]),
    Route("/v3/glossaries/{id}/dictionaries", replace_dictionary, methods=["PUT"]),
    Route("/v3/glossaries/{id}/dictionaries", delete_dictionary, methods=["DELETE"]),
]
