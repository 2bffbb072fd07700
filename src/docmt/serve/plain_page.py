"""The page for browsers without JavaScript: a form, a page that waits, and links to the results."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from html import escape
from string import Template

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from docmt.core.errors import DocmtError
from docmt.serve.document_jobs import DocumentOptions, JobStatus
from docmt.serve.document_routes import file_name, file_response, read_fields, start_job
from docmt.serve.job_store import ACTIVE
from docmt.serve.language_lists import language_name
from docmt.serve.request_guard import convert_error
from docmt.serve.request_values import RequestError, read_values
from docmt.serve.service_state import ServiceState, state_of

PAGE_POLICY = "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'"
"""Content security policy of all pages: nothing from elsewhere, and no scripts or styles in their text."""
_KEY = "docmt_key"
_SECONDS = 3
"""between two looks at a document that is not done"""
_RESULTS = {"original": "Same format", "html": "Both languages, as a page", "xlf": "XLIFF", "tmx": "TMX"}

# Addresses are relative, for proxies that add a prefix. up: from the page to the root of the service.
_PAGE = Template("""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
$refresh<title>docmt</title>
<link rel="icon" href="${up}page/icon.svg" type="image/svg+xml">
<link rel="stylesheet" href="${up}page/app.css">
</head>
<body>
<header class="top"><a class="brand" href="${up}documents">docmt</a></header>
<main class="plain">
$body
</main>
</body>
</html>
""")
_FORM = Template("""<h1>Translate a document</h1>
<form class="plain-form" method="post" action="documents" enctype="multipart/form-data">
<label>Text <textarea name="text" rows="8" dir="auto"></textarea></label>
<label>or a file <input type="file" name="file"></label>
<label>Fields to translate, of JSON and tables <input type="text" name="fields"></label>
<label>Languages <select name="model">$models</select></label>
$key<button class="main">Translate</button>
</form>""")
_KEY_FIELD = '<label>Key of this server <input type="password" name="key" autocomplete="off"></label>\n'

Handler = Callable[[Request], Awaitable[Response]]


def _with_error_page(handler: Handler) -> Handler:
    """Return a handler that answers errors of users with a page."""

    async def answer(request: Request) -> Response:
        try:
            return await handler(request)
        except DocmtError as error:
            # A file name at the beginning of a message stays as it is.
            message = re.sub("^[a-z](?=[a-z]* )", lambda letter: letter[0].upper(), str(error))
            up = "../" * (request.url.path.count("/") - 1)
            body = f'<p class="notice" role="alert">{escape(message)}</p>'
            link = f'<p><a href="{up}documents">Translate a document</a></p>'
            return _show(body + link, up, status=convert_error(error).status)

    return answer


def _show(body: str, up: str = "", refresh: bool = False, status: int = 200) -> HTMLResponse:
    """Return a page. body: HTML."""
    element = f'<meta http-equiv="refresh" content="{_SECONDS}">\n' if refresh else ""
    text = _PAGE.substitute(refresh=element, up=up, body=body)
    return HTMLResponse(text, status, {"content-security-policy": PAGE_POLICY})


def _identify(request: Request, key: str = "") -> tuple[ServiceState, str]:
    """Return what the routes share, and the owner of the key, which later requests have in a cookie."""
    state = state_of(request)
    return state, state.find_owner(request, key or request.cookies.get(_KEY, ""))


@_with_error_page
async def show_form(request: Request) -> Response:
    """Return the form."""
    state = state_of(request)
    models = "".join(
        f'<option value="{escape(each.name)}">{escape(_name_pair(each.source_language, each.target_language))}'
        f" ({escape(each.name)})</option>"
        for each in state.engine.describe_models()
    )
    return _show(_FORM.substitute(models=models, key=_KEY_FIELD if state.keys else ""))


def _name_pair(source: str, target: str) -> str:
    return f"{language_name(source) or 'any language'} → {language_name(target) or 'any language'}"


@_with_error_page
async def create(request: Request) -> Response:
    """Start the translation of the form's file or text, and lead to its page."""
    values = await read_values(request, state_of(request).config.max_body_bytes)
    key = values.text("key")
    state, owner = _identify(request, key)
    upload = values.files.get("file")
    text = values.text("text").replace("\r\n", "\n")
    if upload and not upload.filename:  # browsers send an empty file where none was chosen
        upload = None
    if not upload and not text.strip():
        raise RequestError("there is nothing to translate: write a text, or choose a file")
    name = file_name(upload.filename if upload else "", "text.txt")
    model = state.engine.find_model(values.text("model"))
    options = DocumentOptions(model=model, fields=read_fields(values), name=name)
    status = await start_job(request, upload or text.encode(), options, owner)
    response = RedirectResponse(f"documents/{status.id}", 303)
    if key:
        response.set_cookie(_KEY, key, httponly=True, samesite="strict", secure=request.url.scheme == "https")
    return response


@_with_error_page
async def show_document(request: Request) -> Response:
    """Return the state of a document; of one that is done, links to its results."""
    state, owner = _identify(request)
    status = state.jobs.status(request.path_params["id"], owner)
    is_active = status.status in ACTIVE
    body = f"<h1>{escape(status.name)}</h1>\n<p>{escape(_describe(status))}</p>\n"
    if status.status == "done":
        links = [
            f'<li><a href="{status.id}/result?format={format}">{label}</a></li>' for format, label in _RESULTS.items()
        ]
        body += f"<p>Download the translation:</p>\n<ul>{''.join(links)}</ul>\n"
    if not is_active:
        body += '<p><a href="../documents">Translate another document</a></p>'
    return _show(body, "../", refresh=is_active)


def _describe(status: JobStatus) -> str:
    """Return the state of a document in a sentence or two."""
    if status.status == "done" and not status.sentences:
        return "There is no text to translate."
    noun = "sentence is" if status.sentences == 1 else "sentences are"
    amount = f"{status.finished:,} of {status.sentences:,} {noun} translated."
    ends = {"done": "The translation is done.", "failed": "The translation failed.", "cancelled": "It was cancelled."}
    return f"{ends.get(status.status, 'This page looks again by itself.')} {amount} {status.error}".strip()


@_with_error_page
async def download(request: Request) -> Response:
    """Return a result."""
    state, owner = _identify(request)
    format = request.query_params.get("format", "original")
    return file_response(*await state.jobs.result(request.path_params["id"], owner, format))


ROUTES = [
    Route("/documents", show_form),
    Route("/documents", create, methods=["POST"]),
    Route("/documents/{id}", show_document),
    Route("/documents/{id}/result", download),
]
