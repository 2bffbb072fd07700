"""The application: all routes, errors, and what is started and stopped with them."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route

from docmt.core.errors import DocmtError
from docmt.serve import deepl_routes, document_routes, libretranslate_routes, native_routes, plain_page
from docmt.serve.access_keys import AccessKeys
from docmt.serve.document_jobs import DocumentJobs
from docmt.serve.engine import Engine
from docmt.serve.request_guard import GuardConfig, RequestGuard, answer_error, convert_error, error_response
from docmt.serve.request_values import RequestError
from docmt.serve.service_state import ServiceConfig, ServiceState, state_of

_FORM_BYTES = 100_000
"""Bytes of a form besides its file."""
_PAGE_TYPES = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
}
_CORS_HEADERS = ("Authorization", "Content-Type", "Last-Event-ID", "X-Docmt-Document")


def create_app(
    engine: Engine, jobs: DocumentJobs, keys: AccessKeys | None, data: Path, config: ServiceConfig
) -> Starlette:
    """Return the ASGI application. It starts and stops the engine and the jobs.

    keys: None if everybody may use the service. data: directory of the service.
    """
    state = ServiceState(engine, jobs, keys, data / "uploads", config)
    guard = GuardConfig(config.max_body_bytes, config.max_file_bytes + _FORM_BYTES, config.hosts)
    middleware = [Middleware(RequestGuard, config=guard, count=state.metrics.count_request)]
    if config.cors:
        origins = list(config.cors)
        middleware.append(
            Middleware(
                CORSMiddleware,
                allow_origins=origins,
                allow_methods=["GET", "POST", "DELETE"],
                allow_headers=_CORS_HEADERS,
                expose_headers=["Content-Disposition", "Retry-After"],
            )
        )
    modules = (native_routes, document_routes, libretranslate_routes, deepl_routes, plain_page)
    app = Starlette(
        routes=[route for module in modules for route in module.ROUTES] + _PAGE_ROUTES,
        middleware=middleware,
        exception_handlers={RequestError: answer_error, HTTPException: answer_error, DocmtError: _answer_docmt_error},
        lifespan=_run,
    )
    app.state.service, app.state.failure = state, None
    return app


@asynccontextmanager
async def _run(app: Starlette) -> AsyncIterator[None]:
    """Start the engine and the jobs; stop the jobs, which go on at the next start, and the engine."""
    state: ServiceState = app.state.service
    state.engine.start()
    try:
        await _start_jobs(app, state)
        try:
            yield
        finally:
            await state.jobs.stop()
    finally:
        await asyncio.to_thread(state.engine.stop)


async def _start_jobs(app: Starlette, state: ServiceState) -> None:
    """Start the jobs. A DocmtError is kept as `app.state.failure` for the command, and raised."""
    try:
        await state.jobs.start()
        shutil.rmtree(state.uploads, ignore_errors=True)  # of a server that was killed
    except DocmtError as error:
        app.state.failure = error
        raise


async def _answer_docmt_error(request: Request, error: Exception) -> Response:
    """Answer an error of the parts behind the routes."""
    assert isinstance(error, DocmtError)
    return error_response(request.url.path, convert_error(error))


async def _show_page(request: Request) -> Response:
    """Return a file of the page."""
    name = request.path_params.get("name", "index.html")
    path = state_of(request).config.page / name
    kind = _PAGE_TYPES.get(path.suffix)
    if kind is None or not path.is_file() or "/" in name:
        raise HTTPException(404)
    headers = {"content-security-policy": plain_page.PAGE_POLICY, "cache-control": "no-cache"}
    return FileResponse(path, media_type=kind, headers=headers)


_PAGE_ROUTES = [Route("/", _show_page), Route("/page/{name}", _show_page)]
