"""docmt serve: models for other programs and for people with a browser."""

from __future__ import annotations

import logging
import os
import re
import socket
import time
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from docmt.cli.model_arguments import DeviceOptions, ProtectOptions, TermOptions
from docmt.core.errors import DocmtError, missing_package_error
from docmt.core.files import user_folder
from docmt.core.logging import show_times
from docmt.core.settings import MANY, Needs, option
from docmt.decoding.search_config import FOR_TRANSLATE, SearchConfig
from docmt.serve.access_keys import AccessKeys, KeyLimits
from docmt.serve.glossary_store import GlossaryStore
from docmt.serve.job_store import JobStore

if TYPE_CHECKING:
    from docmt.serve.application import ServiceServer
    from docmt.serve.engine import Engine

_log = logging.getLogger(__name__)

_PACKAGES = {"starlette", "uvicorn", "python_multipart", "prometheus_client"}
_ROOT_PATH = re.compile(r"(https?://[\w.:\[\]-]+)?((?:/[\w~-][\w.~-]*)*)/?")
_ORIGIN = re.compile(r"\*|null|[a-z][a-z+.-]*://[^/\s]+")
_MEBIBYTE = 2**20
_UNIT = Path("/", "etc", "systemd", "system", "docmt.service")
"""Where docs/serving.md puts the service."""


@dataclass(frozen=True, kw_only=True)
class ServeOptions(DeviceOptions, ProtectOptions, TermOptions):
    """docmt serve [MODEL ...]

    Serve models to other programs and to people with a browser. The page is at the address that is shown. Clients of
    LibreTranslate and DeepL work with this address as their server, and docs/serving.md lists the paths. Only this
    machine can reach the server, unless --host names another address, together with --open or keys.

    usage:
        [MODEL ...] [options]
        --create-key NAME [options]
        --list-jobs [--data DIR]

    examples:
        docmt serve en-fr
        docmt serve en-de de-en --port 8000 --memory-mb 4000
        docmt serve --create-key anna --characters-per-minute 100000
        docmt serve en-fr --host 0.0.0.0

    common:
        host port data open create_key memory_mb search.beam
    """

    models: list[str] = option([], positional=True, metavar="MODEL")
    """model directories, names, pairs, or endpoint:PROFILE (default: all models of docmt models)"""
    host: str = option("127.0.0.1", metavar="ADDRESS")
    """address to listen on; 0.0.0.0: all of this machine; unix:PATH: a unix socket"""
    port: int = option(5000, range=(0, 65_535))
    """port; 0: a free one"""
    data: str = option("", metavar="DIR")
    """directory of documents, results and keys (default: docmt/serve in the user's state directory)"""
    root_path: str = option("", metavar="PATH")
    """prefix of all paths behind a proxy (/mt), or the address that clients see (https://tool.example/mt)"""
    open: bool = False
    """let everybody who reaches the address use the server, without a key"""
    cors: list[str] = option([], metavar="ORIGIN")
    """origins of pages elsewhere that may call the server (https://tool.example)"""
    keep_hours: float = option(24.0, range=(0.01, MANY))
    """hours after which a finished document is deleted"""
    max_file_mb: int = option(50, range=(1, 10_000))
    """largest file in MiB"""
    memory_mb: int = option(0, range=(0, MANY))
    """MiB of the weights of models that stay loaded; 0: no bound"""
    create_key: str | None = option(None, metavar="NAME")
    """print a new key for a person or program, and exit"""
    characters_per_minute: int = option(0, range=(0, MANY))
    """limit of the new key; 0: none"""
    concurrent_jobs: int = option(20, range=(0, MANY))
    """documents of the new key that wait or are translated at one time; 0: no limit"""
    list_keys: bool = False
    """list ids, dates, last uses, limits and names of the keys, and exit"""
    revoke_key: str | None = option(None, metavar="ID")
    """delete a key and its glossaries, stop its documents, and exit"""
    list_jobs: bool = False
    """list documents (id, name, state, progress, key, age), also of a server that runs, and exit"""
    cancel_job: str | None = option(None, metavar="ID")
    """stop the translation of a document, also of a server that runs, and exit"""
    search: SearchConfig = option(SearchConfig(), skip=FOR_TRANSLATE)
    """beam search"""

    option_rules = (
        Needs("characters_per_minute", "create_key", "is a limit of a new key: add {}, or leave it out"),
        Needs("concurrent_jobs", "create_key", "is a limit of a new key: add {}, or leave it out"),
    )


def run_serve(options: ServeOptions) -> int:
    """Serve until the process is asked to stop, or manage keys."""
    data = Path(options.data).absolute() if options.data else default_data()
    if options.create_key is not None or options.list_keys or options.revoke_key is not None:
        return _manage_keys(options, data)
    if options.list_jobs or options.cancel_job is not None:
        return _manage_jobs(options, data)
    try:
        return _serve(options, data)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in _PACKAGES:
            raise
        raise missing_package_error("docmt serve", package, "serve") from error


def default_data() -> Path:
    """Return the directory of the service: in DOCMT_HOME, or in the user's state directory (XDG_STATE_HOME)."""
    return user_folder("serve", "XDG_STATE_HOME", ".local/state")


def _manage_keys(options: ServeOptions, data: Path) -> int:
    _check_service(options, data)
    keys = AccessKeys(data)
    if options.create_key is not None:
        limits = KeyLimits(options.characters_per_minute, options.concurrent_jobs, options.max_file_mb * _MEBIBYTE)
        secret, key = keys.create(options.create_key, limits)
        _log.info(f"key {key.id} of {key.name}, in {data}; it is shown only now:")
        print(secret)
    if options.revoke_key is not None:
        keys.revoke(options.revoke_key)
        GlossaryStore(data).delete(options.revoke_key)
        if (data / "jobs.sqlite").exists():
            with closing(JobStore(data, 0.0)) as store:
                store.attach()
                store.ask_to_cancel_all(options.revoke_key)
    if options.list_keys:
        for key in keys.list_keys():
            dates = (f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d}" if at else "never" for at in (key.created, key.used))
            print(key.id, *dates, key.limits.describe(), key.name, sep="\t")
    return 0


def _check_service(options: ServeOptions, data: Path) -> None:
    """Raise DocmtError where the service would not see a key, or could not read it, as far as that can be known."""
    user = os.geteuid() if hasattr(os, "geteuid") else -1  # on Windows
    if not options.data and user == 0 and ("SUDO_USER" in os.environ or _UNIT.exists()):
        raise DocmtError(f"a service does not read the keys of root ({data}): name its directory with --data")
    with suppress(OSError):  # a directory that does not exist, or that AccessKeys refuses
        keys, jobs = data / "keys.sqlite", data / "jobs.sqlite"
        owner = (jobs if jobs.exists() else data).stat().st_uid
        if user >= 0 and owner != (keys.stat().st_uid if keys.exists() else user):
            raise DocmtError(f"user {owner} of {data} could not read the keys: run docmt serve as that user")


def _manage_jobs(options: ServeOptions, data: Path) -> int:
    store = JobStore(data, 0.0)
    store.attach()
    if options.cancel_job is not None:
        store.ask_to_cancel(options.cancel_job)
    for job in store.list_jobs() if options.list_jobs else ():
        age = timedelta(seconds=round(time.time() - job.created))
        state = "cancelled" if job.unwanted else job.status
        progress = f"{job.finished}/{job.facts.sentences}"
        print(job.id, job.facts.name, state, progress, job.owner or "-", age, sep="\t")
    store.close()
    return 0


def _serve(options: ServeOptions, data: Path) -> int:
    from docmt.serve.application import format_url, is_loopback, open_socket

    engine = make_engine(options)  # first: without its models nothing is written
    with open_socket(options.host, options.port) as listener:
        keys = None if options.open else AccessKeys(data)
        is_private = keys is not None and not keys.list_keys()
        if is_private and not is_loopback(listener):
            raise DocmtError(
                f"{options.host} can be reached from elsewhere: make a key with docmt serve --create-key NAME, or add "
                "--open to let everybody use the server"
            )
        server = make_server(options, engine, data, keys, local_names(listener) if is_private else frozenset())
        logging.getLogger("docmt.serve").setLevel(logging.INFO)
        logging.getLogger("python_multipart").setLevel(logging.ERROR)  # forms that cannot be read are answered
        message = f"the page is at {format_url(listener)} (Ctrl-C stops the server)"

        def announce() -> None:
            show_times()
            _log.info(message)

        server.serve_forever(listener, announce)
    return 0


def local_names(listener: socket.socket) -> frozenset[str]:
    """Return the names of this machine that `Host` may have: the usual ones, and the address of the socket."""
    from docmt.serve.application import format_url
    from docmt.serve.service_state import LOCAL_NAMES

    return frozenset((*LOCAL_NAMES, format_url(listener).removeprefix("http://").rpartition(":")[0]))


def make_engine(options: ServeOptions) -> Engine:
    """Return the engine of a server, which does not run yet. Raises DocmtError for models."""
    from docmt.serve.engine import Engine
    from docmt.serve.model_pool import ModelPool

    models = ModelPool(
        [str(Path(name).absolute()) if Path(name).is_dir() else name for name in options.models],  # see hide_folders
        search=options.search,
        device=options.device,
        precision=options.precision,
        max_bytes=options.memory_mb * _MEBIBYTE,
        terms=options.terms,
        terms_mode=options.terms_mode,
        memory=options.memory,
        protect=options.patterns,
    )
    return Engine(models)


def make_server(
    options: ServeOptions, engine: Engine, data: Path, keys: AccessKeys | None, hosts: frozenset[str]
) -> ServiceServer:
    """Return a server that does not run yet. hosts: see `ServiceConfig`. Raises DocmtError for paths and origins."""
    from docmt.serve.application import ServiceServer, create_app
    from docmt.serve.document_jobs import DocumentJobs, JobConfig
    from docmt.serve.http_requests import ServiceConfig

    public = _ROOT_PATH.fullmatch(options.root_path)
    if public is None:
        raise DocmtError(f"--root-path {options.root_path} is no path: write /mt, or https://tool.example/mt")
    for origin in options.cors:
        if not _ORIGIN.fullmatch(origin):
            raise DocmtError(f"--cors {origin} is no origin: write https://tool.example, without a path")
    max_file_bytes = options.max_file_mb * _MEBIBYTE
    job_config = JobConfig(options.keep_hours, max_file_bytes, protect=engine.models.patterns)
    jobs = DocumentJobs(engine, data, job_config)
    address, cors = public[1] or "", tuple(options.cors)
    config = ServiceConfig(max_file_bytes=max_file_bytes, cors=cors, hosts=hosts, root_path=public[2], address=address)
    return ServiceServer(create_app(engine, jobs, keys, data, config))
