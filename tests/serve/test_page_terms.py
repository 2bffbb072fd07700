"""Terms at the page: a word that is used everywhere, glossaries, and where terms stand."""

import pytest

pytest.importorskip("starlette", reason="starlette, which serves the page, is not installed")
pytest.importorskip("uvicorn", reason="uvicorn, which serves the page, is not installed")
from test_page import DONE, sentence
from test_page import expect as see
from test_page_editing import edit, targets, translate, until, wait_for_targets

pytestmark = [pytest.mark.browser, pytest.mark.usefixtures("files_here")]


def test_a_word_is_used_everywhere_and_undone(service, open_page):
    page = open_page(service.url)
    translate(page)
    before = targets(page)
    edit(page, 3, "Quatre toutous.")
    page.click(sentence(2))
    word = see(page, ".source .chosen .word", "dogs.")
    word.click()
    assert page.input_value("#term [name=source]") == "dogs."
    page.fill("#term [name=source]", "dog")
    page.fill("#term [name=target]", "chien")
    page.click("#term button")
    wait_for_targets(page, [*before[:2], f"{before[2]} chien", "Quatre toutous."])
    see(page, "#notice.good span", "Sentences with the term now: 1; yours, which stay: 1; without it: 0.")
    assert service.engine.searches == [(["Three dogs."], "require")]
    page.click("#undo")
    wait_for_targets(page, [*before[:3], "Quatre toutous."])


def test_a_long_search_shows_its_state_and_can_be_stopped(service, open_page):
    page = open_page(service.url)
    translate(page)
    before = targets(page)
    service.engine.hold = 0
    page.focus(sentence(2))
    page.keyboard.press("Enter")
    see(page, ".target .chosen .word")
    page.keyboard.press("t")
    page.fill("#term [name=source]", "dog")
    page.fill("#term [name=target]", "chien")
    page.click("#term button")
    see(page, "#stop")
    assert page.get_attribute("#download", "inert") is not None and page.is_disabled("#copy")
    page.click("#stop")
    page.wait_for_selector("#stop", state="hidden")
    assert see(page, "#notice span").inner_text().startswith("Sentences with the term now: 0;")
    service.engine.hold = 10_000
    assert targets(page) == before


def test_selected_words_and_the_keyboard_fill_the_term(service, open_page):
    page = open_page(service.url)
    translate(page)
    page.focus(sentence(0))
    page.keyboard.press("Enter")  # no mouse rests on a word
    see(page, ".target .chosen .word")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("t")
    assert page.evaluate("document.activeElement.name") == "target"
    first = page.input_value("#term [name=source]"), page.input_value("#term [name=target]")
    assert first == ("One", "«One")
    page.keyboard.press("Escape")
    assert page.locator("#term").is_hidden() and page.locator("#panel").is_visible()
    box = see(page, ".target .chosen .word", "cat.").bounding_box()
    page.mouse.dblclick(box["x"] + box["width"] / 3, box["y"] + box["height"] / 2)
    assert page.input_value("#term [name=target]") == "cat"
    assert page.input_value("#term [name=source]") == "cat."


def test_a_term_that_no_sentence_has_says_so(service, open_page):
    page = open_page(service.url, expected_errors="422")
    translate(page)
    page.click(sentence(0))
    page.click("#panel [data-do=term]")
    page.fill("#term [name=source]", "zebra")
    page.fill("#term [name=target]", "zèbre")
    page.keyboard.press("Enter")
    see(page, "#notice span", "No sentence of the document has the term zebra")
    assert "4 sentences" in page.inner_text("#state")


GLOSSARY = {"name": "words.csv", "mimeType": "text/csv", "buffer": b"en;fr\ndog;chien\nbird;oiseau\n;x\n"}


def test_a_glossary_is_added_before_a_document_is_translated(service, open_page):
    page = open_page(service.url, expected_errors="422")
    page.set_input_files("#glossary", GLOSSARY | {"buffer": b"no columns"})
    page.fill("#text", "A bird.\nThree dogs.")
    page.click("#start button.main")
    see(page, "#notice span", "words.csv has no columns: separate a term and its translation by")
    page.set_input_files("#glossary", GLOSSARY)
    see(page, "#glossary-name", "words.csv")
    page.click("#start button.main")
    see(page, DONE)
    see(page, "#terms-button", "Terms (2)")  # this engine obeys in a second search alone
    assert page.is_disabled("#undo")
    page.click(".top .new")
    page.click("#no-glossary")
    translate(page, "Three dogs.")
    assert targets(page) == ["«Three dogs.» ()"]


def test_a_glossary_is_used_in_a_document_that_is_translated(service, open_page):
    page = open_page(service.url, expected_errors="422")
    translate(page)
    before = targets(page)
    page.click("#terms-button")
    page.set_input_files("#terms input", GLOSSARY | {"name": "words.tbx"})
    see(page, "#notice span", "words.tbx is broken XML")
    page.set_input_files("#terms input", GLOSSARY)
    wait_for_targets(page, [*before[:2], *(f"{each} chien" for each in before[2:])])
    see(page, "#notice.good span", "Rows of the glossary that were left out: 1")
    page.click("#undo")
    wait_for_targets(page, before)


def test_words_that_a_term_leaves_out_are_told(service, open_page):
    page = open_page(service.url)
    translate(page, "One brown dog. Two dogs. A brown dog.")
    page.click("#terms-button")
    page.set_input_files("#terms input", GLOSSARY)
    row = see(page, "#terms li", "3 met")
    assert " ".join(row.inner_text().split()) == "dog chien 3 met · leaves out: brown"
    for number in (0, 2):
        edit(page, number, "Un chien brun.")
    until(page, "document.querySelector('#terms li').innerText.endsWith('3 met')")


def test_terms_are_listed_led_to_and_marked(service, open_page):
    def count(name):
        return page.evaluate("name => CSS.highlights.get(name)?.size", name)

    page = open_page(service.url)
    page.set_input_files("#glossary", GLOSSARY)
    translate(page, "One dog. Two cats.\nA bird. Two dogs.")
    page.click("#terms-button")
    rows = page.locator("#terms li")
    assert [" ".join(each.split()) for each in rows.all_inner_texts()] == [
        "dog chien 2 not met",
        "bird oiseau 1 not met",
    ]
    assert (count("term"), count("unmet-term")) == (0, 3)
    for number in ("3", "0"):
        rows.first.locator("button").click()
        assert page.evaluate("document.activeElement.dataset.number") == number
    edit(page, 0, "Un chien.")
    see(page, "#terms [role=status]", "1 met · 2 not met")
    assert (count("term"), count("unmet-term")) == (2, 2)
    marked = page.evaluate("[...CSS.highlights.get('term')].map(each => each.toString())")
    assert marked == ["dog", "chien"]
    page.click("#terms [data-do=close]")
    assert count("term") == 0 and rows.first.is_hidden()
