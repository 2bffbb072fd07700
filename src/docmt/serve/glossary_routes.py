"""Glossaries of clients: the routes of DeepL's interface for them, versions 2 and 3, and those that a request names.

Version 2 has glossaries of one dictionary, which it does not change; version 3 has all, and changes them.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
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
    GlossaryError,
    GlossaryStore,
    Pair,
    StoredGlossary,
    make_pair,
    parse_entries,
)
from docmt.serve.http_requests import RequestError, RequestValues, read_values
from docmt.serve.model_pool import list_pairs
from docmt.serve.service_state import FORBIDDEN, ServiceState, authorize, get_state
from docmt.serve.text_translation import ChosenModel

_MOST_IDS = 5
_MOST_ARRIVING = 16
"""Glossaries of a key that arrive at one time."""
Result = TypeVar("Result")


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
    if len(names) > 1 or len(ids) > _MOST_IDS:
        raise RequestError(f"send either glossary_id, or at most {_MOST_IDS} ids as glossary_ids")
    if not ids:
        return (), ""
    model = state.engine.models.describe_one(chosen.name)
    languages = model.source_language or chosen.source, model.target_language or chosen.target
    pair = primary_language(languages[0]), primary_language(languages[1])
    return ids, await asyncio.to_thread(state.glossaries.merge, owner, ids, pair)


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
        raise GlossaryError(message, 404)
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
    Route(f"/{version}{path}", route, methods=[method])
    for versions, method, path, route in _ROUTES
    for version in versions.split()
]
