"""The interface of docmt itself: sentences with spans, scores, warnings, alignments, and context of the caller."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route

from docmt.documents import Document
from docmt.serve.request_values import RequestError, RequestValues, read_values
from docmt.serve.service_state import ServiceState, state_of
from docmt.serve.text_translation import (
    SentenceResult,
    TextItem,
    TextOptions,
    choose_model,
    make_plain_item,
    translate_items,
)
from docmt.serve.work_queue import MAX_ALTERNATIVES

OPENAPI = Path(__file__).parent / "openapi.json"


async def translate(request: Request) -> Response:
    """Translate a text, or sentences."""
    state = state_of(request)
    state.find_owner(request)
    values = await read_values(request, state.config.max_body_bytes)
    has_sentences = values.is_list("sentences")
    if not has_sentences and values.fields.get("text") is None:
        raise RequestError("text is missing: send a text, or sentences as a list")
    texts = values.texts("sentences") if has_sentences else [values.text("text")]
    context, targets = _texts(values, "context"), _texts(values, "context_targets")
    state.take_texts(request, [*texts, *context, *targets])
    count = values.whole("alternatives", 0, MAX_ALTERNATIVES)
    names = values.text("source"), values.text("target")
    chosen = choose_model(state.engine, *names, " ".join(texts), values.text("model"))
    model = chosen.name or state.engine.find_model(values.text("model"), target=chosen.target)
    if has_sentences:
        document = Document.from_sentences([" ".join(text.split()) for text in texts])
        item = TextItem(document, lambda sentences: "")
    else:
        item = await make_plain_item(state.engine, model, texts[0])
    before = await _read_context(state, model, values, context, targets)
    align = values.switch("alignments")
    options = TextOptions(before, targets, n_best=count + 1, align=align)
    rows = (await translate_items(request, state.engine, [model], [item], options))[0]
    description = state.engine.describe_model(model)
    head = {
        "model": model,
        "source_language": description.source_language or chosen.source,
        "target_language": description.target_language or chosen.target,
    }
    return JSONResponse(head | _describe_rows(item.document, rows, align, count))


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
        sentence = {
            "source": row.sentence.source,
            "target": row.sentence.target,
            "source_span": source_span,
            "target_span": target_span,
            "score": row.sentence.score,
            "tokens": row.sentence.tokens,
            "warnings": row.warnings,
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
    return {"text": translated.text(), "sentences": sentences}


async def list_models(request: Request) -> Response:
    """List the models."""
    state = state_of(request)
    state.find_owner(request)
    models = [
        {
            "name": each.name,
            "source_language": each.source_language,
            "target_language": each.target_language,
            "system": each.system,
            "parameters": each.parameters,
            "licence": each.licence,
            "loaded": each.is_loaded,
            "precision": each.precision,
            "same_in_batches": each.same_in_batches,
            "reads_context": each.reads_context,
        }
        for each in state.engine.describe_models()
    ]
    return JSONResponse({"models": models})


async def list_languages(request: Request) -> Response:
    """List the language pairs."""
    state = state_of(request)
    state.find_owner(request)
    pairs = [
        {"source": each.source_language, "target": each.target_language, "model": each.name}
        for each in state.engine.describe_models()
    ]
    return JSONResponse({"languages": pairs})


async def check_health(request: Request) -> Response:
    """Say that the server answers."""
    return JSONResponse({"status": "ok"})


async def show_metrics(request: Request) -> Response:
    """Return the metrics for Prometheus."""
    state = state_of(request)
    state.find_owner(request)
    return Response(state.metrics.format(), media_type="text/plain; version=0.0.4; charset=utf-8")


async def show_description(request: Request) -> Response:
    """Return the OpenAPI description."""
    return FileResponse(OPENAPI, media_type="application/json")


ROUTES = [
    Route("/v1/translate", translate, methods=["POST"]),
    Route("/v1/models", list_models),
    Route("/v1/languages", list_languages),
    Route("/health", check_health),
    Route("/metrics", show_metrics),
    Route("/openapi.json", show_description),
]
