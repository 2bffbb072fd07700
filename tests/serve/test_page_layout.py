"""Where things stand on the page: nothing covers the sentence that is worked on, and menus are inside of the window."""

import pytest

pytest.importorskip("starlette", reason="starlette, which serves the page, is not installed")
pytest.importorskip("uvicorn", reason="uvicorn, which serves the page, is not installed")
from test_page import expect as see
from test_page import sentence
from test_page_editing import translate, until

pytestmark = [pytest.mark.browser, pytest.mark.usefixtures("files_here")]

TEXT = "\n".join(f"Dog {number} of many sleeps." for number in range(40))
GLOSSARY = "dog\tchien\nmany\tbeaucoup\nsleeps\tdort\n" + "".join(f"{number}\tn{number}\n" for number in range(40))
VIEWS = {
    "wide": {"viewport": {"width": 1280, "height": 800}},
    "low": {"viewport": {"width": 1000, "height": 560}},
    "narrow": {"viewport": {"width": 360, "height": 720}},
    "enlarged": {"viewport": {"width": 320, "height": 256}},
    "de": {"viewport": {"width": 820, "height": 700}, "locale": "de-DE"},
    "fr": {"viewport": {"width": 1000, "height": 700}, "locale": "fr-FR"},
}
SLOW = [pytest.param(view, marks=pytest.mark.full) for view in VIEWS if view != "de"]
IS_SEEN = """all => all.every(each => [...each.getClientRects()].every(box => [box.left + 3, box.right - 3].every(x => {
  const top = document.elementFromPoint(x, (box.top + box.bottom) / 2);
  return top && (each.contains(top) || top.contains(each) && !top.closest(".tools, #panel"));
})))"""
"""Whether both ends of each line of elements can be seen and clicked."""


def wait_until_seen(page, selector):
    until(page, f"selector => ({IS_SEEN})([...document.querySelectorAll(selector)])", selector)


@pytest.mark.parametrize("view", ["de", *SLOW[:2]])
def test_nothing_covers_the_sentence_that_is_worked_on(service, open_page, view):
    page = open_page(service.url, **VIEWS[view])
    page.set_input_files("#glossary", {"name": "a.tsv", "mimeType": "", "buffer": GLOSSARY.encode()})
    translate(page, TEXT)
    for last in ("39", "0"):
        page.focus(sentence(20))
        page.keyboard.press("Enter")
        for _ in range(20):
            page.keyboard.press("j" if last == "39" else "k")
        see(page, ".target .chosen .word")
        assert page.evaluate("document.activeElement.dataset.number") == last
        wait_until_seen(page, sentence(last))
        page.keyboard.press("e")
        see(page, "#panel textarea")
        wait_until_seen(page, sentence(last))
        page.keyboard.press("Escape")
        page.keyboard.press("Escape")
        if last == "39":
            page.click("#terms-button")
    page.focus(sentence(39))
    page.locator("#terms li button").first.click()
    assert page.evaluate("document.activeElement.dataset.number") == "0"
    wait_until_seen(page, sentence(0))


def test_the_search_below_a_narrow_page_covers_no_match(service, open_page):
    page = open_page(service.url, **VIEWS["narrow"])
    translate(page, TEXT)
    page.click("#search-button")
    page.fill("#search [name=query]", "dog 39")
    wait_until_seen(page, sentence(39))


@pytest.mark.parametrize("view", ["de", *SLOW])
def test_all_of_the_open_menu_can_be_seen(service, open_page, view):
    page = open_page(service.url, **VIEWS[view])
    translate(page, TEXT)
    page.click("#download summary")
    page.locator("#download div").scroll_into_view_if_needed()
    for number in range(page.locator("#download div > *").count()):
        entry = page.locator("#download div > *").nth(number)
        entry.scroll_into_view_if_needed()
        assert entry.evaluate(f"each => ({IS_SEEN})([each])"), number
