"""The page against the rules of axe-core: in light and dark, wide and narrow, and in each language."""

import pytest

pytest.importorskip("starlette", reason="starlette, which serves the page, is not installed")
pytest.importorskip("uvicorn", reason="uvicorn, which serves the page, is not installed")
pytest.importorskip("axe_playwright_python", reason="axe-core (axe-playwright-python) is not installed")
from axe_playwright_python.sync_playwright import Axe
from test_page import expect as see
from test_page import sentence
from test_page_editing import edit, translate

pytestmark = [pytest.mark.full, pytest.mark.browser, pytest.mark.usefixtures("files_here")]

VIEWS = {
    "wide": {},
    "dark": {"color_scheme": "dark", "locale": "fr-FR"},
    "narrow": {"viewport": {"width": 360, "height": 720}, "locale": "de-DE"},
    "enlarged": {"viewport": {"width": 320, "height": 256}},
}


def check(page, state):
    """Fail if axe finds a violation, with what it says."""
    response = Axe().run(page).response
    faults = [
        (each["id"], node["html"], node["failureSummary"]) for each in response["violations"] for node in each["nodes"]
    ]
    assert faults == [], state
    box = "document.documentElement"
    assert page.evaluate(f"{box}.scrollWidth <= {box}.clientWidth"), state


@pytest.mark.parametrize("view", VIEWS)
def test_the_states_of_the_page_break_no_rule(service, open_page, view):
    page = open_page(service.url, while_typing="on", **VIEWS[view])
    page.wait_for_selector("#model option", state="attached")
    check(page, "empty")
    page.fill("#text", "The cat is on the table.")
    see(page, "#live button")
    check(page, "typed")
    translate(page, "The cat is on the table. It sleeps.\nThe cat is on the table.")
    check(page, "document")
    edit(page, 0, "Le chat.")
    page.click(sentence(0))
    page.keyboard.press("c")
    see(page, ".confirmed")
    page.click(sentence(2))
    page.click("#panel [data-do=alternatives]")
    see(page, ".alternative")
    check(page, "alternatives")
    page.click("#panel [data-do=term]")
    page.fill("#term [name=source]", "table")
    page.fill("#term [name=target]", "tableau")
    page.click("#term button")
    see(page, "#notice.good")
    page.click("#terms-button")
    see(page, "#terms li")
    check(page, "terms")
    page.click("#panel [data-do=edit]")
    check(page, "edited")
    page.fill("#panel textarea", "Le chat est là.")
    id = page.url.split("#")[1]
    page.request.post(f"{service.url}v1/documents/{id}/sentences/2", data={"target": "Le chat est ici."})
    page.click("#panel [value=keep]")
    see(page, "#conflict")
    check(page, "conflict")
    page.keyboard.press("Escape")
    page.keyboard.press("Escape")
    page.click("#search-button")
    page.fill("#search [type=search]", "cat")
    check(page, "searched")
    page.keyboard.press("Escape")
    page.select_option("#filter", "confirmed")
    check(page, "filtered")
    page.click("#help-button")
    check(page, "shortcuts")
    page.keyboard.press("Escape")
    page.click(".top .new")
    see(page, "#my-documents li")
    check(page, "list")
    page.evaluate("location.hash = 'nobody'")
    page.expected_errors = "Failed to load resource"
    see(page, "#notice")
    check(page, "error")
