"""A browser for the tests of the page, and files without processes of their own."""

import asyncio
import json
import shutil
from dataclasses import asdict

import pytest

from docmt.core.errors import DocmtError
from docmt.serve.file_process import FileProcess
from docmt.serve.file_worker import FileTask, answer_task


@pytest.fixture
def files_here(monkeypatch):
    """Files are read and written in the process of the test, as another process takes a second to start."""

    async def run(self, task):
        answer = await asyncio.to_thread(answer_task, FileTask.from_json(json.dumps(asdict(task))))
        if answer:
            raise DocmtError(answer["error"])

    monkeypatch.setattr(FileProcess, "_run", run)


@pytest.fixture
def service(tmp_path):
    """The service of the page in a thread, with a data directory."""
    from test_page_editing import PageService

    service = PageService(tmp_path)
    yield service
    service.stop()


@pytest.fixture(scope="module")  # not longer: while it runs, no other test of the process can start an event loop
def chromium():
    """The browser of the system: nothing is downloaded."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright, which drives the browser, is not there")
    program = shutil.which("chromium")
    if not program:
        pytest.skip("chromium is not installed")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def open_page(chromium):
    """A function that opens an address. The page may write no error to the console and ask no other server."""
    contexts, faults = [], []

    def open_address(url, expected_errors="", while_typing="off", **settings):
        context = chromium.new_context(accept_downloads=True, reduced_motion="reduce", **settings)
        context.add_init_script(f"localStorage['docmt-while-typing'] ??= '{while_typing}'")
        context.set_default_timeout(120_000)  # a busy machine is slow, not wrong
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("console", lambda message: message.type == "error" and faults.append(message.text))
        page.on(
            "request",
            lambda request: request.url.startswith((url.split("#")[0], "blob:")) or faults.append(request.url),
        )
        page.goto(url)
        page.expected_errors = expected_errors
        return page

    yield open_address
    expected = [page.expected_errors for context in contexts for page in context.pages]
    for context in contexts:
        context.close()
    assert [fault for fault in faults if not any(text and text in fault for text in expected)] == []
