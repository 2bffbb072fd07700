"""The interface of LibreTranslate, for the clients that speak it.

Bodies may be JSON, a form, or fields in the query, as its clients send them. Errors are {"error": sentence}.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from docmt.checking.languages import FUNCTION_WORDS
from docmt.core.errors import DocmtError
from docmt.documents.input_formats import FORMATS
from docmt.formats.language_codes import format_language_tag
from docmt.serve.http_requests import RequestError, RequestValues, read_values
from docmt.serve.job_store import DocumentOptions
from docmt.serve.model_pool import language_name, list_pairs
from docmt.serve.native_routes import file_name, file_response, start_job
from docmt.serve.service_state import FORBIDDEN, ServiceState, find_secret, get_state, make_url
from docmt.serve.text_translation import (
    SentenceResult,
    TextItem,
    TextOptions,
    choose_model,
    choose_models,
    detect_source,
    make_item,
    translate_items,
    until_disconnected,
)
from docmt.serve.work_queue import MAX_ALTERNATIVES

_MAX_DOWNLOADS = 10_000
_PAGE_SECONDS = 500


async def _read(request: Request, is_upload: bool = False) -> tuple[ServiceState, RequestValues, str]:
    """Return what the routes share, the values of the request, and the owner of its key."""
    state = get_state(request)

    def check(values: RequestValues) -> str:
        owner = state.find_owner(request, values.text("api_key"), FORBIDDEN)
        if is_upload:
            state.check_upload(request)
        return owner

    head = RequestValues(request.query_params)
    if not state.has_keys() or find_secret(request) or head.text("api_key"):
        check(head)
    values = await read_values(request, state.config.max_body_bytes, check)
    return state, values, check(values)


def _read_pair(values: RequestValues) -> tuple[str, str]:
    """Return the codes of source (perhaps auto) and target. Raises RequestError if there is no target."""
    target = values.text("target")
    if not target:
        raise RequestError("target is missing: send the code of a language, such as fr")
    return values.text("source", "auto"), target


async def translate(request: Request) -> Response:
    """Translate a text or a list of texts."""
    state, values, _ = await _read(request)
    texts, is_list = values.texts("q"), values.is_list("q")
    source, target = _read_pair(values)
    markup = FORMATS.get(values.choice("format", ("text", "html"), "text"))
    count = values.whole("alternatives", 0, MAX_ALTERNATIVES)
    state.take_texts(request, texts)
    chosen = choose_models(request, texts, lambda text: choose_model(state.engine, source, target, text))
    items = [await make_item(state.engine, *pair, markup) for pair in zip(texts, chosen, strict=True)]
    options = TextOptions(n_best=count + 1)
    rows = await translate_items(request, state.engine, [each.name for each in chosen], items, options)
    translations = [item.render([each.sentence for each in row]) for item, row in zip(items, rows, strict=True)]
    answer: dict[str, Any] = {"translatedText": translations}
    if source == "auto":
        answer["detectedLanguage"] = [_describe_detection(each.source, each.confidence) for each in chosen]
    if count:
        pairs = zip(items, rows, translations, strict=True)
        answer["alternatives"] = [_render_alternatives(item, row, count, best) for item, row, best in pairs]
    return JSONResponse(answer if is_list else {name: value[0] for name, value in answer.items()})


def _render_alternatives(item: TextItem, rows: Sequence[SentenceResult], count: int, best: str) -> list[str]:
    """Return other translations of an item; a sentence with fewer keeps its last."""
    choices = [[row.sentence, *row.alternatives] for row in rows]
    texts = [item.render([each[min(rank, len(each) - 1)] for each in choices]) for rank in range(1, count + 1)]
    return [text for text in dict.fromkeys(texts) if text != best]


def _describe_detection(source: str, confidence: int | None) -> dict[str, Any]:
    return {"confidence": confidence or 0, "language": format_language_tag(source)}


async def detect(request: Request) -> Response:
    """Detect the language of a text by its function words."""
    state, values, _ = await _read(request)
    texts = values.texts("q")
    state.take_texts(request, texts)
    models = state.engine.models.describe()
    languages = [each.source_language for each in models if each.source_language] + sorted(FUNCTION_WORDS)
    return JSONResponse([_describe_detection(*detect_source(" ".join(texts), languages))])


async def list_languages(request: Request) -> Response:
    """List the source languages, each with its targets, and the languages that are targets only."""
    pairs = list_pairs(get_state(request).engine.models.describe())
    codes = dict.fromkeys([*pairs, *(target for targets in pairs.values() for target in targets)])
    return JSONResponse([{"code": code, "name": language_name(code), "targets": pairs.get(code, [])} for code in codes])


async def show_settings(request: Request) -> Response:
    """Return the settings for a page."""
    state = get_state(request)
    pairs = list_pairs(state.engine.models.describe())
    source = next(iter(pairs), "")
    target = next(iter(pairs.get(source, [])), "")
    return JSONResponse(
        {
            "apiKeys": state.has_keys(),
            "keyRequired": state.has_keys(),
            "charLimit": state.config.max_characters,
            "filesTranslation": True,
            "supportedFilesFormat": [".txt", *(suffix for each in FORMATS.values() for suffix in each.suffixes)],
            "frontendTimeout": _PAGE_SECONDS,
            "language": {
                "source": {"code": "auto", "name": "Auto Detect"},
                "target": {"code": target, "name": language_name(target)},
            },
            "suggestions": False,
        }
    )


async def translate_file(request: Request) -> Response:
    """Translate a file, and answer with the URL of its translation. It is cancelled if the client goes away."""
    state, values, owner = await _read(request, is_upload=True)
    upload = values.files.get("file")
    if upload is None:
        raise RequestError("file is missing: send it as multipart/form-data")
    model = choose_model(state.engine, *_read_pair(values)).name
    options = DocumentOptions(model=model, name=file_name(upload.filename, "document.txt"))
    id = (await start_job(request, upload, options, owner)).id
    try:
        await until_disconnected(request, _wait_for_job(state, id, owner))
        _, name = await state.jobs.result(id, owner)
    except BaseException:
        await state.jobs.cancel(id, owner)
        raise
    if len(state.downloads) >= _MAX_DOWNLOADS:
        del state.downloads[next(iter(state.downloads))]
    state.downloads[id] = owner
    return JSONResponse({"translatedFileUrl": make_url(request, f"/download_file/{id}/{quote(name, safe='')}")})


async def _wait_for_job(state: ServiceState, id: str, owner: str) -> None:
    """Wait for the end of a job. Raises DocmtError if it has no result."""
    async for _ in state.jobs.events(id, owner):
        pass
    status = state.jobs.status(id, owner)
    if status.status != "done":
        raise DocmtError(status.error or f"the translation of the file is {status.status}")


async def download_file(request: Request) -> Response:
    """Return a translated file. Its id, which cannot be guessed, is enough: clients fetch the URL without a key."""
    state, id = get_state(request), request.path_params["id"]
    if id not in state.downloads:
        raise RequestError("there is no such file: it may have expired", 404)
    return file_response(request, *await state.jobs.result(id, state.downloads[id]))


ROUTES = [
    Route("/translate", translate, methods=["POST"]),
    Route("/detect", detect, methods=["POST"]),
    Route("/languages", list_languages),
    Route("/frontend/settings", show_settings),
    Route("/translate_file", translate_file, methods=["POST"]),
    Route("/download_file/{id}/{name}", download_file),
]
