"""The page in a browser, with a server whose translations are canned."""

import re
import threading
from importlib.resources import files

import pytest

pytest.importorskip("starlette", reason="starlette, which serves the page, is not installed")
pytest.importorskip("uvicorn", reason="uvicorn, which serves the page, is not installed")
from fake_service import FakeService

from docmt.documents.input_formats import FORMATS

pytestmark = pytest.mark.browser

TEXT = "The cat sleeps. It is odd.\nNobody came. The 7 dogs left."
DONE = "#delete:not([hidden])"


@pytest.fixture
def service():
    service = FakeService()
    service.start()
    yield service
    service.stop()


def expect(page, selector, text=""):
    """Wait until an element is visible and has this text; return it."""
    found = page.locator(selector).filter(has_text=text).first
    found.wait_for()
    return found


def translate(page, text=TEXT, end=DONE):
    page.fill("#text", text)
    page.click("#start button.main")
    expect(page, end)


def sentence(number, side="target"):
    return f".{side} [data-number='{number}']"


def lit(page):
    return page.eval_on_selector_all(".sentence.lit", "all => all.map(each => each.textContent)")


@pytest.mark.browser(quick=True)
def test_a_text_stands_beside_its_translation_in_paragraphs(service, open_page):
    page = open_page(service.url)
    page.wait_for_selector("#model option", state="attached")
    assert page.locator("#model option").all_inner_texts() == ["English → French"]
    translate(page)
    columns = [page.locator(f"p.{side}").all_inner_texts() for side in ("source", "target")]
    assert columns[0] == TEXT.split("\n")
    assert columns[1] == ["fr The cat sleeps. fr It is odd.", "fr Nobody came. fr The 7 dogs left."]
    assert page.get_attribute("p.target", "lang") == "fr" and page.get_attribute("p.source", "dir") == "auto"
    expect(page, "#state", "4 sentences · 2 marked to look at")


def test_a_click_before_the_models_are_known_waits_for_them(service, open_page):
    service.models_known.clear()
    page = open_page(service.url)
    assert page.locator("#start button.main").is_disabled()
    threading.Timer(0.5, service.models_known.set).start()
    translate(page)


def test_a_model_that_is_another_server_is_called_so(service, open_page):
    service.systems = ["tiny", "endpoint"]
    page = open_page(service.url)
    page.wait_for_selector("#model option", state="attached")
    pairs = ["English → French (tiny)", "English → French (endpoint, another server)"]
    assert page.locator("#model option").all_inner_texts() == pairs
    notes = {"tiny": "Your text goes to this server only.", "endpoint": "This server sends your text to another one"}
    for model in ("tiny", "endpoint", "tiny"):
        page.select_option("#model", model)
        assert page.locator("#start p.note:visible").inner_text().startswith(notes[model])
    page.select_option("#model", "endpoint")
    translate(page)
    page.reload()
    page.click(".top .new")
    expect(page, "#start p.note", notes["endpoint"])


def test_hover_shows_the_partner_and_why_a_sentence_is_marked(service, open_page):
    page = open_page(service.url)
    translate(page)
    page.hover(sentence(0, "source"))
    assert lit(page) == ["The cat sleeps.", "fr The cat sleeps."]
    assert page.locator("#reason").is_hidden()
    page.hover(sentence(1))
    assert lit(page) == ["It is odd.", "fr It is odd."]
    expect(page, "#reason", "probability of 14% on average")
    page.hover(sentence(3))
    expect(page, "#reason", "Number: 7 is missing")


def test_click_aligns_words_on_both_sides(service, open_page):
    page = open_page(service.url)
    translate(page, "The 😀 cat sleeps.")
    page.click(sentence(0))
    expect(page, ".word")
    words = [page.locator(f".{side} .word").all_inner_texts() for side in ("source", "target")]
    assert words == [["The", "😀", "cat", "sleeps."]] * 2
    page.hover(".source .word >> text=cat")
    assert page.locator(".word.lit").all_inner_texts() == ["cat", "cat"]
    page.click("#panel [data-do=close]")
    assert page.locator(".word").count() == 0 and page.inner_text(sentence(0)) == "fr The 😀 cat sleeps."


def test_an_alternative_is_edited_and_what_follows_translated_again(service, open_page):
    page = open_page(service.url)
    translate(page)
    page.click(sentence(1))
    page.click("#panel [data-do=alternatives]")
    expect(page, ".alternative")
    assert page.locator(".alternative mark").all_inner_texts() == ["one", "two"]
    page.click(".alternative >> nth=1")
    assert page.input_value("#panel textarea") == "two fr It is odd."
    page.fill("#panel textarea", "C'est bizarre.")
    service.hold_after = 3
    page.click("#panel button[value=retranslate]")
    expect(page, sentence(2), "then fr Nobody came.")
    assert page.inner_text(sentence(0)) == "fr The cat sleeps." and page.inner_text(sentence(1)) == "C'est bizarre."
    assert "edited" in page.get_attribute(sentence(1), "class")
    service.hold_after = 10**9
    expect(page, sentence(3), "then fr The 7 dogs left.")
    page.locator(".stale").first.wait_for(state="detached")


def test_an_edit_alone_changes_nothing_else(service, open_page):
    page = open_page(service.url)
    translate(page)
    page.click(sentence(0))
    page.click("#panel [data-do=edit]")
    page.fill("#panel textarea", "")
    page.click("#panel button[value=keep]")
    expect(page, "#notice", "cannot be empty")
    page.fill("#panel textarea", "Le chat dort.")
    page.click("#panel button[value=keep]")
    expect(page, sentence(0), "Le chat dort.")
    page.locator("#notice").wait_for(state="hidden")
    assert page.inner_text("p.target >> nth=0") == "Le chat dort. fr It is odd."
    assert page.locator(".edited").count() == 1
    assert service.documents["id0"].sentences[0]["target"] == "Le chat dort."
    page.reload()
    expect(page, DONE)
    assert page.locator("p.target").all_inner_texts()[0] == "Le chat dort. fr It is odd."


def test_a_draft_waits_at_its_sentence(service, open_page):
    page = open_page(service.url)
    translate(page)
    page.focus(sentence(0))
    page.keyboard.press("e")
    page.fill("#panel textarea", "Le chat rêve.")
    page.click(sentence(2))
    expect(page, "#panel h2", "Sentence 3")
    assert page.locator("#panel textarea").is_hidden()
    assert page.inner_text(".draft") == "fr The cat sleeps."
    page.click("#panel [data-do=close]")
    page.click(sentence(0))
    assert page.input_value("#panel textarea") == "Le chat rêve."
    page.keyboard.press("Escape")  # the focus is on the sentence: nothing is given up
    page.click(sentence(0))
    page.click("#panel button[value=keep]")
    expect(page, sentence(0), "Le chat rêve.")
    assert page.locator(".draft").count() == 0


def test_a_draft_that_is_discarded_is_gone(service, open_page):
    page = open_page(service.url)
    translate(page)
    page.click(sentence(0))
    page.click("#panel [data-do=edit]")
    page.fill("#panel textarea", "Le chat rêve.")
    page.click("#panel [data-do=discard]")
    assert page.locator(".draft").count() == 0
    page.click("#panel [data-do=edit]")
    assert page.input_value("#panel textarea") == "fr The cat sleeps."


@pytest.mark.parametrize("reads_context", [True, False])
def test_what_follows_is_translated_again_by_a_model_that_reads_context(service, open_page, reads_context):
    service.reads_context = reads_context
    page = open_page(service.url)
    translate(page)
    page.click(sentence(0))
    page.click("#panel [data-do=edit]")
    assert page.is_visible("#panel button[value=retranslate]") == reads_context
    page.fill("#panel textarea", "Le chat rêve.")
    page.keyboard.press("Control+Shift+Enter")
    expect(page, sentence(0), "Le chat rêve.")
    page.locator("#panel").wait_for(state="hidden")
    expect(page, sentence(1), "then fr It is odd." if reads_context else "fr It is odd.")


@pytest.mark.browser(quick=True)
def test_a_dropped_file_is_translated_and_downloaded(service, open_page):
    page = open_page(service.url)
    drop = "data => { const all = new DataTransfer(); all.items.add(new File([data], 'ré port.txt')); return all; }"
    transfer = page.evaluate_handle(drop, "One. Two.")
    page.dispatch_event("body", "dragover", {"dataTransfer": transfer})
    expect(page, "#drop")
    page.dispatch_event("body", "drop", {"dataTransfer": transfer})
    expect(page, "#chosen", "ré port.txt")
    page.keyboard.press("Enter")
    expect(page, DONE)
    assert page.inner_text("#name") == "ré port.txt"
    page.click("#download summary")
    with page.expect_download() as download:
        page.click("[data-format=original]")
    assert download.value.suggested_filename == "ré port.txt"
    assert download.value.path().read_text() == "One. Two."


def test_of_several_dropped_files_none_is_taken_silently(service, open_page):
    page = open_page(service.url)
    files = "() => { const all = new DataTransfer(); [1, 2].map(n => all.items.add(new File([n], n))); return all; }"
    page.dispatch_event("body", "drop", {"dataTransfer": page.evaluate_handle(files)})
    expect(page, "#notice", "Please send one file after the other.")
    assert page.locator("#chosen").is_hidden()


def test_a_file_that_cannot_be_read_says_why(service, open_page):
    page = open_page(service.url, expected_errors="422")
    page.set_input_files("#file", {"name": "a.docx", "mimeType": "", "buffer": b"PK\0bad"})
    page.click("#start button.main")
    expect(page, "#notice", "a.docx is broken. Save it again.")
    page.click("#chosen button")
    expect(page, "#text")


def test_the_first_sentences_are_read_and_the_rest_is_cancelled(service, open_page):
    service.hold_after = 2
    page = open_page(service.url)
    translate(page, end=sentence(1))
    expect(page, "#state", "2 of 4 sentences")
    assert page.title().startswith("50% ") and page.get_attribute("#progress", "value") == "2"
    page.click("#stop")
    expect(page, "#state", "Stopped after 2 of 4 sentences")
    assert page.inner_text(sentence(1)) == "fr It is odd."
    page.once("dialog", lambda dialog: dialog.dismiss())
    page.click("#delete")
    assert len(service.documents) == 1
    page.once("dialog", lambda dialog: dialog.accept())
    page.click("#delete")
    expect(page, "#start")
    assert service.documents == {}


def test_the_server_restarts_while_the_page_waits(service, open_page):
    service.hold_after = 2
    page = open_page(service.url, expected_errors="ERR_")
    translate(page, end=sentence(1))
    service.stop()
    expect(page, "#state", "The server does not answer. Trying again…")
    service.hold_after = 10
    service.start()
    expect(page, DONE)
    assert page.locator(".target .sentence").count() == 4


def test_a_reload_and_another_tab_show_the_document(service, open_page):
    page = open_page(service.url)
    translate(page)
    assert page.url.endswith("#id0")
    page.reload()
    expect(page, sentence(3), "fr The 7 dogs left.")
    page.go_back()
    expect(page, "#start")
    missing = open_page(service.url + "#id9", expected_errors="404")
    expect(missing, "#notice", "There is no such document.")
    expect(missing, "#start")


def test_a_stream_that_is_held_back_is_replaced_by_requests(service, open_page):
    service.streams = False
    page = open_page(service.url)
    translate(page, end="#stop")
    document = service.documents["id0"]
    while document.status == "running":
        document.translate()
    expect(page, DONE)
    assert page.inner_text(sentence(3)) == "fr The 7 dogs left."


def test_a_key_is_asked_for_once(service, open_page):
    service.key = "open sesame"
    page = open_page(service.url, expected_errors="401")
    page.fill("#key-dialog input", "wrong")
    page.keyboard.press("Enter")
    expect(page, "#key-dialog h2", "The server does not know this key")
    page.fill("#key-dialog input", service.key)
    page.keyboard.press("Enter")
    expect(page, "#model")
    page.reload()
    page.wait_for_selector("#model option", state="attached")
    assert page.locator("#key-dialog").is_hidden()


def test_everything_by_keyboard(service, open_page):
    page = open_page(service.url)
    press = page.keyboard.press
    expect(page, "#start button.main:enabled")  # Tab does not stop at it before the models are known
    expect(page, "#text:focus")
    page.keyboard.type(TEXT.replace("\n", " "))
    for _ in range(3):  # the file, the languages, the button
        press("Tab")
    press("Enter")
    expect(page, DONE)
    press("j")
    assert lit(page) == ["The cat sleeps.", "fr The cat sleeps."]
    press("ArrowDown")
    press("k")
    press("n")
    assert lit(page) == ["It is odd.", "fr It is odd."]
    assert page.get_attribute(sentence(1), "aria-describedby") == "source-1 reason"
    press("Enter")
    expect(page, ".word")
    press("ArrowRight")
    press("ArrowRight")
    assert page.locator(".word.lit").all_inner_texts() == ["is", "is"]
    press("j")
    expect(page, "#panel h2", "Sentence 3")
    press("a")
    expect(page, ".alternative:focus", "one fr Nobody came.")
    press("ArrowDown")
    press("Enter")
    press("Control+a")
    page.keyboard.type("Personne ne vint.")
    press("Control+Enter")
    expect(page, sentence(2), "Personne ne vint.")
    press("e")
    press("Escape")
    press("Escape")
    assert page.locator("#panel").is_hidden() and lit(page) == ["Nobody came.", "Personne ne vint."]
    press("?")
    expect(page, "#help")
    press("Escape")
    assert page.locator("#help").is_hidden()


def test_a_thousand_sentences(service, open_page):
    page = open_page(service.url)
    text = "\n".join(" ".join(f"Sentence {row} {number} is here." for number in range(5)) for row in range(200))
    translate(page, text)
    expect(page, "#state", "1,000 sentences")
    assert page.locator(".target .sentence").count() == 1000
    assert page.text_content(sentence(999)) == "fr Sentence 199 4 is here."
    page.focus(sentence(500))
    page.keyboard.press("j")
    assert lit(page)[1] == "fr Sentence 100 1 is here."


def test_it_copies_the_translation(service, open_page):
    page = open_page(service.url, permissions=["clipboard-read", "clipboard-write"])
    translate(page, "- One.\n\n  1. Two.")
    page.click("#copy")
    expect(page, "#announcement", "The translation was copied.")
    assert page.evaluate("navigator.clipboard.readText()") == "fr - One.\n\n  1. Two."


def test_a_sentence_without_words_in_its_translation(service, open_page):
    page = open_page(service.url)
    service.hold_after = 0
    translate(page, "One. Two. Three.", end="#stop")
    first = service.documents["id0"].sentences[0]
    service.documents["id0"].log("sentence", first | {"target": ""})
    expect(page, sentence(0), "(not translated)")


@pytest.mark.parametrize(("data", "state"), [(b"", "There is no text to translate"), (b"One.", "1 sentence")])
def test_a_file_without_text_and_one_of_one_sentence(service, open_page, data, state):
    page = open_page(service.url)
    page.set_input_files("#file", {"name": "a.txt", "mimeType": "", "buffer": data})
    page.click("#start button.main")
    expect(page, DONE)
    assert page.inner_text("#state") == state


def test_a_narrow_page_needs_no_sideways_scrolling(service, open_page):
    page = open_page(service.url, viewport={"width": 340, "height": 700})
    translate(page, TEXT + "x" * 400)
    page.click(sentence(0))
    page.click("#panel [data-do=edit]")
    for box in ("document.documentElement", "document.querySelector('#panel')"):
        assert page.evaluate(f"{box}.scrollWidth <= {box}.clientWidth")


@pytest.mark.full
def test_a_short_text_is_translated_while_it_is_typed(service, open_page):
    page = open_page(service.url, while_typing="on")
    expect(page, "#text:focus")
    page.keyboard.type("The cat")
    page.keyboard.type(" sleeps.")
    expect(page, "#live output", "fr The cat sleeps.")
    assert service.typed[-1] == "The cat sleeps." and len(service.typed) < 3  # not each key
    assert page.get_attribute("#live output", "lang") == "fr"
    service.held.add("Slow")
    page.fill("#text", "Slow")
    while service.typed[-1] != "Slow":
        page.wait_for_timeout(20)
    assert page.locator("#live.waiting").count() == 1
    page.fill("#text", "Fast")
    expect(page, "#live output", "fr Fast")
    service.held.clear()  # the older request was given up
    page.wait_for_timeout(300)
    assert page.inner_text("#live output") == "fr Fast"
    page.fill("#text", "Slow" * 300)
    expect(page, "#live", "For longer texts, press Translate.")
    assert page.inner_text("#live output") == ""
    page.fill("#text", "Short")
    assert page.inner_text("#live p") == ""
    expect(page, "#live output", "fr Short")
    page.fill("#text", " ")
    page.locator("#live").wait_for(state="hidden")
    count = len(service.typed)
    page.uncheck("#while-typing")
    page.reload()
    page.fill("#text", "Quiet.")
    page.wait_for_timeout(1_000)
    assert page.locator("#live").is_hidden() and len(service.typed) == count


@pytest.mark.full
def test_a_text_that_is_typed_and_sent_is_a_document_only(service, open_page):
    page = open_page(service.url, while_typing="on")
    service.held.add(TEXT)
    translate(page)
    page.click(".top .new")
    page.wait_for_timeout(800)
    assert page.input_value("#text") == "" and page.locator("#live").is_hidden() and len(service.typed) < 2


@pytest.mark.browser(quick=True)  # it reads the file
def test_the_page_knows_the_formats_and_loads_no_script_or_style_of_its_text():
    html = (files("docmt.serve") / "page" / "index.html").read_text(encoding="utf-8")
    accepted = set(re.search(r'accept="([^"]*)"', html)[1].split(","))
    assert accepted == {suffix for each in FORMATS.values() for suffix in each.suffixes} | {".txt"}
    assert not re.search(r"<style|<script>|\sstyle=|\son\w+=|https?:", html)
