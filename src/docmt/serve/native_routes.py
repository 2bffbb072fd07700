"""The interface of docmt: texts with spans, scores and context of the caller, and documents as jobs."""

from __future__ import annotations

import asyncio
import json
import re
import secrets
import shutil
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, replace
from functools import partial
from io import BytesIO
from pathlib import Path, PurePosixPath
from typing import Any

from starlette.datastructures import UploadFile
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from docmt.core.files import writing
from docmt.decoding.term_report import count_statuses
from docmt.documents import Document
from docmt.documents.input_formats import FORMATS
from docmt.serve.file_process import RESULTS
from docmt.serve.http_requests import RequestError, RequestValues, answer_file, read_values
from docmt.serve.job_store import DocumentOptions, JobEvent, JobRecord, NoSuchDocument
from docmt.serve.job_translation import TermRequest
from docmt.serve.service_state import ServiceState, authorize, get_state, max_connections
from docmt.serve.text_translation import (
    SentenceResult,
    TextItem,
    TextOptions,
    choose_model,
    find_other_language,
    read_terms,
    translate_items,
    until_disconnected,
)
from docmt.serve.work_queue import MAX_ALTERNATIVES
from docmt.terms import Glossary
from docmt.terms.glossary import GlossaryBuilder
from docmt.terms.glossary_files import parse_entries
from docmt.terms.matching import TermMode

OPENAPI = Path(__file__).parent / "openapi.json"
_MAX_NAME = 120
_MAX_VERSION = 2**53
_DETECTED_SENTENCES = 200
"""Sentences of a document whose language is detected."""
_MAX_GLOSSARY_BYTES = 10 * 2**20
_TEXT_FORMATS = ("auto", "text", "jsonl")
RESULT_HEADERS = {"content-security-policy": "sandbox; default-src 'none'", "x-content-type-options": "nosniff"}
"""Of files that users sent: nothing in them runs, even where a browser shows them."""


async def translate(request: Request) -> Response:
    """Translate a text, or sentences."""
    state, owner = authorize(request)
    values = await read_values(request, state.config.max_body_bytes)
    values.check_names(
        "text sentences source target model context context_targets alternatives alignments glossary_id glossary_ids"
    )
    has_sentences = values.is_list("sentences")
    if not has_sentences and values.fields.get("text") is None:
        raise RequestError("text is missing: send a text, or sentences as a list")
    texts = values.texts("sentences") if has_sentences else [values.text("text")]
    context, targets = _texts(values, "context"), _texts(values, "context_targets")
    state.take_texts(request, [*texts, *context, *targets])
    count = values.whole("alternatives", 0, MAX_ALTERNATIVES)
    names = values.text("source"), values.text("target")
    chosen = choose_model(state.engine, *names, " ".join(texts), values.text("model"))
    model = chosen.name or state.engine.models.find(values.text("model"), target=chosen.target)
    if has_sentences:
        document = Document.from_sentences([" ".join(text.split()) for text in texts])
    else:
        document = await state.engine.segment(model, texts[0])
    item = TextItem(document)
    before = await _read_context(state, model, values, context, targets)
    align = values.switch("alignments")
    description = state.engine.models.describe_one(model)
    _, entries = await read_terms(state, values, owner, replace(chosen, name=model))
    terms = await state.engine.make_matcher(model, entries)
    options = TextOptions(before, targets, n_best=count + 1, align=align, terms=terms)
    rows = (await translate_items(request, state.engine, [model], [item], options))[0]
    head = {
        "model": model,
        "source_language": description.source_language or chosen.source,
        "target_language": description.target_language or chosen.target,
        "detected_language": _find_language(" ".join(texts), description.target_language, description.source_language),
    }
    return JSONResponse(head | _describe_rows(document, rows, align, count))


def _texts(values: RequestValues, name: str) -> list[str]:
    return values.texts(name) if values.fields.get(name) is not None else []


async def _read_context(
    state: ServiceState, model: str, values: RequestValues, context: Sequence[str], targets: Sequence[str]
) -> Document:
    """Return the context. Raises RequestError if its translations are not as many as its sentences."""
    if values.is_list("context"):
        document = Document.from_sentences([" ".join(text.split()) for text in context])
    else:
        document = await state.engine.segment(model, "".join(context))
    if targets and len(targets) != len(document):
        raise RequestError(
            f"context has {len(document)} sentences, and context_targets {len(targets)}: send one target for each, and "
            "context as a list to decide what a sentence is"
        )
    return document


def _describe_rows(document: Document, rows: Sequence[SentenceResult], align: bool, count: int) -> dict[str, Any]:
    """Return text and sentences of an answer. count: of alternatives."""
    translated = document.replace_sentences([row.sentence.target for row in rows])
    sentences = []
    for row, source_span, target_span in zip(rows, document.spans(), translated.spans(), strict=True):
        sentence: dict[str, Any] = {
            "source": row.sentence.source,
            "target": row.sentence.target,
            "source_span": source_span,
            "target_span": target_span,
            "score": row.sentence.score if row.sentence.has_score else None,
            "tokens": row.sentence.tokens,
            "warnings": row.warnings,
            "terms": [asdict(use) for use in row.sentence.terms],
        }
        if align:
            links = row.sentence.alignment or ()
            sentence["alignment"] = [[*link.source, *link.target] for link in links if link.mutual]
        if count:
            others: dict[str, float] = {}  # results of a document may differ in other sentences only
            for each in row.alternatives:
                others.setdefault(each.target, each.score)
            others.pop(row.sentence.target, None)
            sentence["alternatives"] = [{"target": target, "score": score} for target, score in others.items()]
        sentences.append(sentence)
    counts = count_statuses(use.status for row in rows for use in row.sentence.terms)
    return {"text": translated.text(), "sentences": sentences, "terms": counts}


async def list_models(request: Request) -> Response:
    """List the models."""
    state, _ = authorize(request)
    return JSONResponse({"models": list(map(asdict, state.engine.models.describe()))})


async def list_languages(request: Request) -> Response:
    """List the language pairs."""
    state, _ = authorize(request)
    pairs = [
        {"source": each.source_language, "target": each.target_language, "model": each.name}
        for each in state.engine.models.describe()
    ]
    return JSONResponse({"languages": pairs})


async def check_health(request: Request) -> Response:
    """Say that the server answers."""
    return JSONResponse({"status": "ok"})


async def check_readiness(request: Request) -> Response:
    """Say whether texts and documents can be translated: the status is 503 if something is in the way."""
    state = get_state(request)
    unloadable = state.engine.models.unloadable
    checks = {
        "engine": state.engine.is_alive,
        "data": await asyncio.to_thread(state.jobs.store.find_fault) is None,
        "models": {each.name: each.name not in unloadable for each in state.engine.models.describe()},
    }
    is_ready = checks["engine"] and checks["data"] and not unloadable
    return JSONResponse({"status": "ok" if is_ready else "failing"} | checks, 200 if is_ready else 503)


async def show_metrics(request: Request) -> Response:
    """Return the metrics for Prometheus."""
    state, _ = authorize(request)
    return Response(state.metrics.format(), media_type="text/plain; version=0.0.4; charset=utf-8")


async def show_description(request: Request) -> Response:
    """Return the OpenAPI description."""
    return answer_file(request, OPENAPI, media_type="application/json")


async def create_document(request: Request) -> Response:
    """Start the translation of a file or of a text."""
    state, owner = authorize(request)
    state.check_upload(request)
    values = await read_values(request, state.config.max_body_bytes)
    values.check_names("file text format source target model fields context name glossary_id glossary_ids")
    upload = values.files.get("file")
    format = values.choice("format", (*_TEXT_FORMATS, *FORMATS), "auto")
    text = values.text("text")
    if upload is None and not text:
        raise RequestError("there is no document: send a file (multipart/form-data, file=...), or text as JSON")
    chosen = choose_model(state.engine, values.text("source"), values.text("target"), text, values.text("model"))
    model = chosen.name or state.engine.models.find(values.text("model"), target=chosen.target)
    description, terms = state.engine.models.describe_one(model), values.files.get("terms")
    languages = description.source_language or chosen.source, description.target_language or chosen.target
    ids, entries = await read_terms(state, values, owner, replace(chosen, name=model))
    options = DocumentOptions(
        model=model,
        format=format,
        fields=tuple(name.strip() for text in _texts(values, "fields") for name in text.split(",") if name.strip()),
        context=values.text("context"),
        name=file_name(upload.filename if upload else values.text("name"), "text.txt"),
        terms=await read_glossary(terms, languages) if terms else None,
        glossary_ids=ids,
        entries=entries,
    )
    data = text.encode()
    status = await start_job(request, upload or UploadFile(BytesIO(data), size=len(data)), options, owner)
    sources = " ".join(state.jobs.sources(status.id, owner)[:_DETECTED_SENTENCES])
    language = _find_language(sources, status.facts.target_language, status.facts.source_language)
    answer = status.to_json() | {"detected_language": language}
    return JSONResponse(answer, 202, {"location": f"{state.config.root_path}/v1/documents/{status.id}"})


def _find_language(text: str, target: str, source: str) -> str:
    """Return the language of a text, if it clearly is not that of its model; else an empty text."""
    other = find_other_language(text, target, [source])
    return other.source if other else ""


def file_name(name: str | None, default: str) -> str:
    """Return a file name of a client without folders and control characters."""
    last = PurePosixPath((name or "").replace("\\", "/")).name
    text = "".join(character for character in last if character.isprintable())
    return text.encode(errors="replace").decode()[-_MAX_NAME:].strip() or default


async def start_job(request: Request, upload: UploadFile, options: DocumentOptions, owner: str) -> JobRecord:
    """Store a file and start its translation. Raises DocmtError if it cannot be read, or is too large."""
    state = get_state(request)
    state.check_file(request, upload.size or 0)
    state.arriving[owner] += 1
    try:
        async with _stored(upload, state) as path:
            status = await state.jobs.create(path, options, owner)
    finally:
        state.arriving[owner] -= 1
    state.take_document(request, status.id, owner)
    return status


@asynccontextmanager
async def _stored(upload: UploadFile, state: ServiceState) -> AsyncIterator[Path]:
    """Write a file of a request, for as long as it is needed. Raises DocmtError, such as for a full disk."""
    path = state.uploads / secrets.token_urlsafe(16)
    try:
        await asyncio.to_thread(_store, upload, path)
        yield path
    finally:
        path.unlink(missing_ok=True)


def _store(upload: UploadFile, path: Path) -> None:
    """Write a file. Raises DocmtError, such as for a full disk."""
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with path.open("xb") as file:
            shutil.copyfileobj(upload.file, file)


async def list_documents(request: Request) -> Response:
    """List the documents of a key. Without keys there is no list: who knows the id of a document may read it."""
    state, owner = authorize(request)
    return JSONResponse({"documents": [each.to_json() for each in state.jobs.list_documents(owner)] if owner else []})


async def show_status(request: Request) -> Response:
    """Return the state of a document."""
    state, owner, id = _identify(request)
    return JSONResponse(state.jobs.status(id, owner).to_json())


async def list_sentences(request: Request) -> Response:
    """Return all sentences, with their translations as far as there are any, and the id of the last event."""
    state, owner, id = _identify(request)
    last_event = state.jobs.last_event(id, owner)
    return JSONResponse({"sentences": state.jobs.sentences(id, owner), "last_event": last_event})


async def delete_document(request: Request) -> Response:
    """Cancel a document that is translated; delete one that is at its end, unless `keep` is in the query."""
    state, owner, id, values = await _read(request)
    return JSONResponse((await state.jobs.cancel(id, owner, values.switch("keep"))).to_json())


async def edit_sentence(request: Request) -> Response:
    """Replace a translation, and translate again what follows if that is asked for; or confirm the present one."""
    state, owner, id, values = await _read(request, "target retranslate confirmed version")
    number, versions = _number(request), _read_version(request, values)
    if "target" in values.fields:
        return await _edit(request, {number: values.text("target")}, values.switch("retranslate"), versions)
    if "confirmed" in values.fields:
        status = await state.jobs.confirm(id, owner, number, values.switch("confirmed"), versions)
        return _answer_change(request, status, [number])
    raise RequestError("target is missing: send the new translation of the sentence, or confirmed")


async def edit_sentences(request: Request) -> Response:
    """Replace the translations of several sentences, as one change that is undone at once."""
    *_, values = await _read(request, "targets retranslate versions")
    targets, versions = values.fields.get("targets"), values.fields.get("versions")
    if not targets or not isinstance(targets, dict):
        raise RequestError("targets is missing: send the new translations as an object, by the numbers of sentences")
    if versions is not None and (not isinstance(versions, dict) or versions.keys() != targets.keys()):
        raise RequestError("versions has other sentences than targets: send an object with the version of each")
    texts, numbers = RequestValues(targets), RequestValues(versions or {})
    edits = {_read_number(number): texts.text(number) for number in targets}
    bases = {_read_number(number): numbers.whole(number, 0, _MAX_VERSION) for number in versions or ()}
    return await _edit(request, edits, values.switch("retranslate"), bases)


def _read_version(request: Request, values: RequestValues) -> dict[int, int]:
    """Return the version that the client has seen of the sentence in the path, by its number; or nothing."""
    version = values.whole("version", 0, _MAX_VERSION, -1)
    return {} if version < 0 else {_number(request): version}


def _answer_change(request: Request, status: JobRecord, numbers: Iterable[int]) -> Response:
    """Return the state of a document, and sentences after a change of the user."""
    state, owner, id = _identify(request)
    return JSONResponse(status.to_json() | {"updated": state.jobs.sentences(id, owner, numbers)})


async def _edit(request: Request, targets: dict[int, str], retranslate: bool, versions: dict[int, int]) -> Response:
    """Replace translations. Spaces are joined, but no-break spaces stay."""
    state, owner, id = _identify(request)
    edits = {number: re.sub(r"[^\S\u00a0\u202f]+", " ", text).strip(" ") for number, text in targets.items()}
    for text in edits.values():
        state.check_texts([text])
    if retranslate:  # what the user writes is no translation
        state.take_characters(request, state.jobs.count_after(id, owner, min(edits), versions))
    return _answer_change(request, await state.jobs.edit(id, owner, edits, retranslate, versions), edits)


async def restore_sentence(request: Request) -> Response:
    """Give an edited sentence the machine's translation back."""
    state, owner, id, values = await _read(request, "version")
    number, versions = _number(request), _read_version(request, values)
    return _answer_change(request, await state.jobs.restore(id, owner, number, versions), [number])


async def undo_change(request: Request) -> Response:
    """Take the last change of the user back."""
    state, owner, id, values = await _read(request, "last_change")
    return JSONResponse((await state.jobs.undo(id, owner, values.whole("last_change", 0, _MAX_VERSION, -1))).to_json())


async def use_terms(request: Request) -> Response:
    """Search sentences again that lack a term, or terms of a glossary, as one change that is undone at once."""
    state, owner, id = _identify(request)
    facts, sources = state.jobs.status(id, owner).facts, state.jobs.sources(id, owner)
    values = await read_values(request, state.config.max_body_bytes)
    values.check_names("source target file")
    pair, upload = (values.text("source"), values.text("target")), values.files.get("file")
    if upload is None and not all(pair):
        raise RequestError("there is no term: send source and target, or a glossary (multipart/form-data, file=...)")
    if upload is not None and any(pair):
        raise RequestError("there are a term and a glossary: send one of them, not both")
    glossary = await read_glossary(upload, facts.languages) if upload else Glossary.from_pairs([pair], facts.languages)
    mode: TermMode = "prefer" if upload else "require"
    terms = await asyncio.to_thread(TermRequest.make, sources, glossary, mode)
    terms.check()
    work = state.jobs.use_terms(id, owner, terms, partial(state.take_characters, request))
    status, counts = await until_disconnected(request, work)
    return JSONResponse(status.to_json() | counts | {"skipped_rows": len(glossary.skipped)})


async def read_glossary(upload: UploadFile, languages: tuple[str, str]) -> Glossary:
    """Return the terms of a file. Raises DocmtError for one that is too large, damaged, or without terms."""
    name = file_name(upload.filename, "glossary.tsv")
    if (upload.size or 0) > _MAX_GLOSSARY_BYTES:
        raise RequestError(f"{name} is larger than {_MAX_GLOSSARY_BYTES:,} bytes: send the terms that you need", 413)
    builder = GlossaryBuilder(languages)
    await asyncio.to_thread(lambda data: builder.add(parse_entries(data, name, languages)), await upload.read())
    return builder.build()


async def review_document(request: Request) -> Response:
    """Take over the translations of a reviewed XLIFF file."""
    state, owner, id = _identify(request)
    try:
        state.jobs.status(id, owner)
    except NoSuchDocument as error:
        raise NoSuchDocument(f"{error} Or put the XLIFF into its original with docmt merge.") from error
    values = await read_values(request, state.config.max_body_bytes)
    values.check_names("file")
    if (upload := values.files.get("file")) is None:
        raise RequestError("there is no file: send the reviewed XLIFF (multipart/form-data, file=...)")
    async with _stored(upload, state) as path:
        status, report = await state.jobs.review(id, owner, path, file_name(upload.filename, "reviewed.xlf"))
    return JSONResponse(status.to_json() | report)


async def resume_document(request: Request) -> Response:
    """Go on with a document that was cancelled or failed."""
    state, owner, id = _identify(request)
    state.jobs.status(id, owner)  # a document that is not there is refused before its limits are looked at
    state.check_file(request, 0)
    return JSONResponse((await state.jobs.resume(id, owner)).to_json())


async def list_alternatives(request: Request) -> Response:
    """Return other translations of a sentence."""
    state, owner, id, values = await _read(request)
    count = values.whole("count", 1, MAX_ALTERNATIVES, 5)
    number = _number(request)
    state.take_characters(request, state.jobs.count_sentence(id, owner, number))
    work = state.jobs.alternatives(id, owner, number, count)
    return JSONResponse({"alternatives": await until_disconnected(request, work)})


async def show_alignment(request: Request) -> Response:
    """Return the linked words of a sentence."""
    state, owner, id = _identify(request)
    await request.body()
    work = state.jobs.alignment(id, owner, _number(request))
    return JSONResponse({"alignment": await until_disconnected(request, work)})


async def download_result(request: Request) -> Response:
    """Return the translated file."""
    state, owner, id = _identify(request)
    format = request.query_params.get("format", "original")
    if format not in RESULTS:
        raise RequestError(f"this is no format of results: choose one of {', '.join(RESULTS)}")
    return file_response(request, *await state.jobs.result(id, owner, format))


def file_response(request: Request, path: Path, name: str) -> Response:
    """Return a file of a user as an attachment, which no browser runs. The name is written as in RFC 5987."""
    return answer_file(request, path, filename=name, headers=RESULT_HEADERS)


def _identify(request: Request) -> tuple[ServiceState, str, str]:
    """Return what the routes share, the owner of the key, and the id of the document."""
    return *authorize(request), request.path_params["id"]


async def _read(request: Request, names: str = "") -> tuple[ServiceState, str, str, RequestValues]:
    """Return the same, and the values of the request. names: the only ones that it may have; empty: any."""
    identified = _identify(request)
    values = await read_values(request, identified[0].config.max_body_bytes)
    if names:
        values.check_names(names)
    return *identified, values


def _number(request: Request) -> int:
    """Return the number of the sentence in the path. Raises RequestError unless it is one."""
    return _read_number(request.path_params["number"])


def _read_number(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise RequestError("the number of the sentence is no whole number from 0", 404)
    return int(text)


async def stream_events(request: Request) -> Response:
    """Stream the changes of a document. `Last-Event-ID`, or `after` in the query, is the last event that was seen.

    With `stay` in the query, the stream goes on after the end of the translation, unless half of the connections do.
    """
    state, owner, id = _identify(request)
    seen = request.headers.get("last-event-id") or request.query_params.get("after", "0")
    after = int(seen) if seen.isascii() and seen.isdecimal() and len(seen) < 13 else 0
    state.jobs.status(id, owner)  # a document that is not there is refused before the stream begins
    stay = RequestValues(request.query_params).switch("stay") and state.staying < max_connections() // 2
    events = state.jobs.events(id, owner, after, stay)
    headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
    stream = _format_events(request, events, stay)
    return StreamingResponse(stream, media_type="text/event-stream", headers=headers)


async def _format_events(request: Request, events: AsyncIterator[JobEvent], stay: bool) -> AsyncIterator[str]:
    """Yield events as text, and a comment in between if there are none for a while. A key that is revoked ends them."""
    state, checked = get_state(request), time.monotonic()
    stopping: asyncio.Future[Any] = asyncio.ensure_future(state.stopping.wait())
    coming: asyncio.Future[Any] = asyncio.ensure_future(anext(events))
    state.staying += stay
    try:
        while not state.stopping.is_set():
            seconds = state.config.heartbeat_seconds
            await asyncio.wait({coming, stopping}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if time.monotonic() - checked >= seconds:
                checked = time.monotonic()
                state.find_owner(request)
            if coming.done():
                event: JobEvent = coming.result()
                coming = asyncio.ensure_future(anext(events))
                yield f"id: {event.id}\nevent: {event.name}\ndata: {json.dumps(event.data)}\n\n"
            else:
                yield ": still here\n\n"
    except (StopAsyncIteration, RequestError):
        return
    finally:
        state.staying -= stay
        stopping.cancel()
        coming.cancel()
        await asyncio.gather(stopping, coming, return_exceptions=True)


_DOCUMENT = "/v1/documents/{id}"
_SENTENCE = _DOCUMENT + "/sentences/{number}"
ROUTES = [
    Route("/v1/translate", translate, methods=["POST"]),
    Route("/v1/models", list_models),
    Route("/v1/languages", list_languages),
    Route("/health", check_health),
    Route("/health/ready", check_readiness),
    Route("/metrics", show_metrics),
    Route("/openapi.json", show_description),
    Route("/v1/documents", create_document, methods=["POST"]),
    Route("/v1/documents", list_documents),
    Route(_DOCUMENT, show_status),
    Route(_DOCUMENT, delete_document, methods=["DELETE"]),
    Route(_DOCUMENT + "/sentences", list_sentences),
    Route(_DOCUMENT + "/sentences", edit_sentences, methods=["POST"]),
    Route(_DOCUMENT + "/events", stream_events),
    Route(_DOCUMENT + "/result", download_result),
    Route(_DOCUMENT + "/xliff", review_document, methods=["POST"]),
    Route(_DOCUMENT + "/terms", use_terms, methods=["POST"]),
    Route(_DOCUMENT + "/undo", undo_change, methods=["POST"]),
    Route(_DOCUMENT + "/resume", resume_document, methods=["POST"]),
    Route(_SENTENCE, edit_sentence, methods=["POST"]),
    Route(_SENTENCE, restore_sentence, methods=["DELETE"]),
    Route(_SENTENCE + "/alternatives", list_alternatives),
    Route(_SENTENCE + "/alignment", show_alignment),
]
