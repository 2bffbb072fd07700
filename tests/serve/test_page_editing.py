"""A translator's day at the page, with the whole service around an engine without a model."""

import threading
import time

import pytest

pytest.importorskip("starlette", reason="starlette, which serves the page, is not installed")
pytest.importorskip("uvicorn", reason="uvicorn, which serves the page, is not installed")
import uvicorn
from service_fixtures import ServiceEngine, expect
from test_page import DONE, sentence
from test_page import expect as see
from test_page import translate as send_text

from docmt.serve.access_keys import AccessKeys
from docmt.serve.application import create_app
from docmt.serve.document_jobs import DocumentJobs
from docmt.serve.http_requests import ServiceConfig

pytestmark = [pytest.mark.browser, pytest.mark.usefixtures("files_here")]

TEXT = "One cat. Two cats.\nThree dogs. Four dogs."
SOURCES = ["One cat.", "Two cats.", "Three dogs.", "Four dogs."]


class PageService:
    """The service in a thread. Its engine can be held, and keys may be asked for."""

    def __init__(self, data, keys=None):
        self.engine = ServiceEngine(step=1)
        app = create_app(self.engine, DocumentJobs(self.engine, data), keys, data, ServiceConfig())
        config = uvicorn.Config(app, port=0, log_level="critical", timeout_graceful_shutdown=1)
        self.server = uvicorn.Server(config)
        self.thread = threading.Thread(target=self.server.run, daemon=True)
        self.thread.start()
        while not self.server.started:
            time.sleep(0.01)
        port = self.server.servers[0].sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{port}/"

    def stop(self):
        self.engine.hold = 10_000
        self.server.should_exit = True
        self.thread.join()


@pytest.fixture
def service_with_key(tmp_path):
    keys = AccessKeys(tmp_path)
    key, _ = keys.create("anna")
    service = PageService(tmp_path, keys)
    service.key = key
    yield service
    service.stop()


def translate(page, text=TEXT, end=DONE):
    send_text(page, text, end)


def targets(page):
    return page.locator(".target .sentence").all_text_contents()


def until(page, script, argument=None):
    """Wait until a script is true. The page allows no eval, which Playwright's own function needs."""
    for _ in range(1000):
        if page.evaluate(script, argument):
            return
        time.sleep(0.02)
    raise AssertionError(script)


def wait_for_targets(page, expected):
    script = "all => [...document.querySelectorAll('.target .sentence')].map(e => e.textContent).join('|') === all"
    until(page, script, "|".join(expected))


def edit(page, number, text, then="keep"):
    page.click(sentence(number))
    page.click("#panel [data-do=edit]")
    page.fill("#panel textarea", text)
    page.click(f"#panel button[value={then}]")
    see(page, sentence(number), text)
    page.locator("#panel").wait_for(state="hidden")


@pytest.mark.browser(quick=True)
def test_edits_are_undone_by_the_button_and_by_the_keyboard(service, open_page):
    page = open_page(service.url)
    translate(page)
    before = targets(page)
    assert before == expect(*SOURCES) and page.is_disabled("#undo")
    edit(page, 0, "Un chat.")
    edit(page, 1, "Deux chats.", then="retranslate")
    after = ["Un chat.", "Deux chats.", *expect(*SOURCES[2:], context=("Un chat.", "Deux chats."))]
    wait_for_targets(page, after)
    see(page, DONE)
    page.keyboard.press("Control+z")
    wait_for_targets(page, ["Un chat.", *before[1:]])
    until(page, "document.activeElement.dataset.number === '1'")
    page.click("#undo")
    wait_for_targets(page, before)
    until(page, "document.querySelector('#undo').disabled")
    assert page.locator(".edited").count() == 0
    page.keyboard.press("Control+z")
    see(page, "#notice", "There is no change to undo")
    page.expected_errors = "409"


def test_a_sentence_gets_the_machines_version_back(service, open_page):
    page = open_page(service.url)
    translate(page)
    before = targets(page)
    edit(page, 1, "Deux.")
    page.click(sentence(0))
    assert page.locator("#panel [data-do=restore]").is_hidden()
    page.click(sentence(1))
    page.click("#panel [data-do=restore]")
    wait_for_targets(page, before)
    page.locator("#panel [data-do=restore]").wait_for(state="hidden")
    assert page.inner_text("#panel h2") == "Sentence 2"


def test_a_draft_survives_escape_and_a_closed_tab(service, open_page):
    page = open_page(service.url)
    translate(page)
    page.focus(sentence(1))
    page.keyboard.press("e")
    page.fill("#panel textarea", "Deux chatons.")
    page.keyboard.press("Escape")
    assert page.locator("#panel textarea").is_hidden() and page.locator(".draft").count() == 1
    page.select_option("#filter", "draft")
    assert page.locator(".target .sentence:not(.aside)").all_inner_texts() == [expect(*SOURCES)[1]]
    other = page.context.new_page()
    other.expected_errors = ""
    page.close()
    other.goto(page.url)
    see(other, ".draft")
    other.click(sentence(1))
    assert other.input_value("#panel textarea") == "Deux chatons."
    other.click("#panel button[value=keep]")
    see(other, sentence(1), "Deux chatons.")
    assert other.locator(".draft").count() == 0
    assert other.evaluate("Object.keys(localStorage).filter(name => name.includes('draft'))") == []


def test_the_source_is_there_before_its_translation(service, open_page):
    service.engine.hold = 0
    page = open_page(service.url)
    translate(page, end=".source .sentence")
    assert page.locator(".source .sentence").all_inner_texts() == SOURCES
    assert page.locator(".pending").count() == 4
    page.click(sentence(2))
    assert page.locator("#panel").is_hidden()  # there is nothing to mend yet
    service.engine.hold = 1000
    wait_for_targets(page, expect(*SOURCES))
    assert page.locator(".pending").count() == 0


def test_a_document_is_stopped_mended_downloaded_and_goes_on(service, open_page):
    service.engine.hold = 2
    page = open_page(service.url)
    translate(page, end=".target .sentence:not(.pending)")
    until(page, "document.querySelectorAll('.pending').length === 2")
    page.click("#stop")
    see(page, "#state", "Stopped after 2 of 4 sentences")
    edit(page, 0, "Un chat.")
    page.click("#download summary")
    with page.expect_download() as download:
        page.click("[data-format=original]")
    first, second = download.value.path().read_text().split("\n")
    assert first.startswith("Un chat. «Two cats.»") and second == "Three dogs. Four dogs."
    page.reload()
    see(page, "#state", "Stopped after 2 of 4 sentences")
    service.engine.hold = 1000
    page.click("#resume")
    until(page, "!document.querySelector('.pending')")
    see(page, DONE)
    assert page.locator("#resume").is_hidden() and targets(page)[0] == "Un chat."


@pytest.mark.parametrize("name", ["", "a.txt", "a.md"])
def test_copying_keeps_the_layout(service, open_page, name):
    page = open_page(service.url, permissions=["clipboard-read", "clipboard-write"])
    text = "- One cat.\n- Two cats.\n\n  Three dogs.\n\n1. Four dogs."
    if name:
        page.set_input_files("#file", {"name": name, "mimeType": "", "buffer": text.encode()})
        page.click("#start button.main")
        see(page, DONE)
    else:
        translate(page, text)
    page.click("#copy")
    see(page, "#announcement", "The translation was copied.")
    copied = page.evaluate("navigator.clipboard.readText()").split("\n")
    assert [line[: line.index("«")] if line else "" for line in copied] == ["- ", "- ", "", "  ", "", "1. "]


def test_my_documents_are_listed_opened_and_deleted(service, open_page):
    page = open_page(service.url)
    assert page.locator("#my-documents").is_hidden()
    for text in ("One cat. It sleeps.", "Two dogs. They sleep."):
        translate(page, text)
        page.click(".top .new")
        see(page, "#start")
    until(page, "document.querySelectorAll('#my-documents li').length === 2")
    see(page, "#my-documents li", "2 sentences")
    names = page.locator("#my-documents a")
    assert sorted(names.all_inner_texts()) == ["One cat It sleeps.txt", "Two dogs They sleep.txt"]
    page.once("dialog", lambda dialog: dialog.accept())
    page.click("#my-documents li:has-text('One cat') button")
    see(page, "#announcement", "deleted")
    until(page, "document.querySelectorAll('#my-documents li').length === 1")
    page.click("#my-documents a")
    see(page, sentence(0), "«Two dogs.»")
    with_another_browser = open_page(service.url)
    with_another_browser.wait_for_selector("#model option", state="attached")
    assert with_another_browser.locator("#my-documents").is_hidden()


def test_a_key_is_kept_for_other_tabs_and_lists_its_documents(service_with_key, open_page):
    def give_key(page):
        page.fill("#key-dialog input", service_with_key.key)
        page.keyboard.press("Enter")
        see(page, "#start")

    page = open_page(service_with_key.url, expected_errors="401")
    give_key(page)
    translate(page, "One cat.")
    tab = page.context.new_page()
    tab.expected_errors = ""
    tab.goto(service_with_key.url)
    see(tab, "#my-documents a", "One cat.txt")
    assert tab.locator("#key-dialog").is_hidden()
    other = open_page(service_with_key.url, expected_errors="401")  # another computer
    give_key(other)
    other.reload()
    see(other, "#my-documents a", "One cat.txt")
    other.click("#help-button")
    other.click("#forget-key")
    other.reload()
    see(other, "#key-dialog")


def test_another_document_shows_all_sentences(service, open_page):
    page = open_page(service.url)
    translate(page)
    page.select_option("#filter", "confirmed")
    page.locator(".paragraph").first.wait_for(state="hidden")
    page.click(".top .new")
    translate(page, "One dog.")
    see(page, sentence(0), "One dog.")
    assert page.input_value("#filter") == "all"


def test_sentences_are_confirmed_one_after_the_other_and_filtered(service, open_page):
    page = open_page(service.url)
    translate(page)
    edit(page, 1, "Deux chats.")
    page.click(sentence(0))
    page.keyboard.press("c")
    see(page, "#panel h2", "Sentence 3")  # the second one is edited
    see(page, ".confirmed", "«One cat.»")
    page.click("#panel [data-do=close]")
    assert page.locator("#filter option").all_inner_texts() == [
        "All sentences (4)", "Open (2)", "Edited (1)", "Confirmed (1)", "Marked (2)", "Drafts (0)",
    ]  # fmt: skip
    page.select_option("#filter", "open")
    assert page.locator(".paragraph:not([hidden])").count() == 1
    page.select_option("#filter", "confirmed")
    assert page.locator(".paragraph:not([hidden]) .aside").all_inner_texts() == ["Two cats.", "Deux chats."]
    page.select_option("#filter", "all")
    page.click(sentence(0))
    see(page, "#panel [data-do=confirm]", "Remove confirmation").click()
    page.locator(".confirmed").wait_for(state="detached")
    page.focus(sentence(1))
    page.keyboard.press("o")
    assert page.evaluate("document.activeElement.dataset.number") == "2"
    page.keyboard.press("Control+z")  # it is confirmed again
    see(page, ".confirmed", "«One cat.»")


def test_letters_can_be_switched_off(service, open_page):
    page = open_page(service.url)
    translate(page)
    page.click("#help-button")
    page.click("#letters")
    page.keyboard.press("Escape")
    page.reload()
    page.focus(sentence(0))
    for key in "jneac?":
        page.keyboard.press(key)
    assert page.locator("#panel").is_hidden() and page.locator("#help").is_hidden()
    assert page.evaluate("document.activeElement.dataset.number") == "0"
    page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement.dataset.number") == "1"


@pytest.mark.parametrize("width", [760, 1000, 1200])
def test_all_buttons_of_a_sentence_are_seen_where_their_names_are_long(service, open_page, width):
    page = open_page(service.url, locale="de-DE", viewport={"width": width, "height": 800})
    translate(page, TEXT)
    edit(page, 0, "Le chat.")
    page.click(sentence(0))
    page.keyboard.press("c")
    see(page, "#panel h2", "Satz 2")
    page.click(sentence(0))
    see(page, "#panel [data-do=restore]")
    assert page.evaluate("document.querySelector('#panel').scrollWidth") == width
    assert page.locator("#panel").bounding_box()["height"] < 200


def test_at_four_times_the_size_the_sentence_is_seen_while_it_is_edited(service, open_page):
    page = open_page(service.url, viewport={"width": 320, "height": 256})
    translate(page, TEXT + "\nFive birds. " * 10)
    page.click(sentence(2))
    page.click("#panel [data-do=edit]")
    for box in ("document.documentElement", "document.querySelector('#panel')"):
        assert page.evaluate(f"{box}.scrollWidth <= {box}.clientWidth")
    box = page.locator(sentence(2)).bounding_box()
    assert box["y"] >= 0
    shown = "([x, y]) => document.elementFromPoint(x, y)?.closest('[data-number]')?.dataset.number"
    assert page.evaluate(shown, [box["x"] + 5, box["y"] + 5]) == "2"
    page.fill("#panel textarea", "Trois.")
    page.click("#panel button[value=keep]")
    see(page, sentence(2), "Trois.")
    page.click(".top .new")
    see(page, "#start")
    translate(page, "One cat.")  # the panel was not lost with the paragraphs
    page.click(sentence(0))
    see(page, "#panel h2", "Sentence 1")


def test_a_source_sentence_is_named_with_its_translation(service, open_page):
    page = open_page(service.url)
    translate(page, "One cat.")
    (target,) = expect("One cat.")
    assert page.get_by_role("note", name=f"One cat. {target}").count() == 1
    assert page.get_by_role("button", name=target, description="One cat.").count() == 1


@pytest.mark.parametrize("address", ["#%E0%A4%A", "#a/b/../c", "#Nobody-has-this-id"])
def test_a_wrong_address_says_one_clear_sentence(service, open_page, address):
    page = open_page(service.url, expected_errors="404")
    translate(page)
    page.evaluate(f"location.hash = '{address}'")
    notice = see(page, "#notice").inner_text()
    assert "ocument" in notice and "URI" not in notice and "openapi" not in notice
    assert page.locator(".sentence").count() == 0 and page.is_visible("#start")


def test_a_new_translation_forgets_the_last_file(service, open_page):
    page = open_page(service.url)
    page.set_input_files("#file", {"name": "a.txt", "mimeType": "", "buffer": b"One cat. It sleeps."})
    see(page, "#count", "4 words · 19 characters")
    page.click("#start button.main")
    see(page, DONE)
    page.click(".top .new")
    see(page, "#text")
    assert page.locator("#chosen").is_hidden() and page.inner_text("#count") == ""


def test_words_and_characters_are_counted_before_they_are_sent(service, open_page):
    page = open_page(service.url)
    page.fill("#text", "It's a cat – 😀 1,200 times!")
    see(page, "#count", "5 words · 27 characters")
    page.fill("#text", "")
    until(page, "!document.querySelector('#count').textContent")


def test_a_text_in_another_language_is_translated_only_if_it_is_meant(service, open_page):
    page = open_page(service.url)
    page.wait_for_selector("#model option", state="attached")
    page.select_option("#model", "fake")
    german = "Die Katze ist nicht auf dem Tisch und der Hund ist nicht in dem Haus, aber wir haben eine Maus."
    questions = []
    page.once("dialog", lambda dialog: questions.append(dialog.message) or dialog.dismiss())
    page.fill("#text", german)
    page.click("#start button.main")
    until(page, "!document.querySelector('#start button.main').disabled")
    assert questions == ["The text seems to be in German, but this model translates from English. Translate it anyway?"]
    assert page.is_visible("#start") and page.input_value("#text") == german
    page.once("dialog", lambda dialog: dialog.accept())
    page.click("#start button.main")
    see(page, DONE)


def search(page, text, replacement=None):
    if page.locator("#search").is_hidden():
        page.keyboard.press("/")
    page.fill("#search [type=search]", text)
    if replacement is not None:
        page.fill("#search .replace input", replacement)


def matches(page):
    """The marked texts, and the one that is the current match."""
    texts = "name => [...CSS.highlights.get(name)].map(range => `${range}`)"
    return [page.evaluate(texts, name) for name in ("match", "current-match")]


@pytest.mark.full
def test_matches_are_found_one_after_the_other(service, open_page):
    page = open_page(service.url)
    translate(page, "A cat's CAT. Two cat?\nA cat (7\u00a0%). No dog.")
    page.focus(sentence(0))
    search(page, "cat")
    assert matches(page) == [["cat", "CAT", "cat", "cat"], ["cat"]]
    see(page, "#search [role=status]", "1 of 4")
    page.keyboard.press("Enter")
    assert matches(page)[1] == ["CAT"]
    for _ in range(2):
        page.keyboard.press("Shift+Enter")
    see(page, "#search [role=status]", "4 of 4")
    assert lit_number(page) == 2
    page.click("#search [data-do=next]")
    see(page, "#search [role=status]", "1 of 4")
    page.check("#search [type=checkbox]")
    assert matches(page)[0] == ["cat"] * 3
    for text, found in (("CAT", 1), ("7 %)", 1), ("cat’s", 1), ("(7", 1), ("x*", 0), ("[", 0)):
        search(page, text)
        assert len(matches(page)[0]) == found, text
    page.click("#search [data-do=next]")
    page.click("#search [data-do=replaceAll]")  # there is nothing
    search(page, "two CAT")
    page.uncheck("#search [type=checkbox]")
    page.click(sentence(1))  # its words are aligned, and the match goes over two of them
    see(page, ".word")
    until(page, "[...CSS.highlights.get('match')].join() === 'Two cat'")
    page.select_option("#search select", "source")
    search(page, "dog")
    assert matches(page)[0] == ["dog"] and page.locator("#search .replace").is_hidden()
    page.keyboard.press("Escape")
    assert page.locator("#search").is_hidden() and matches(page)[0] == []


def lit_number(page):
    return int(page.get_attribute(".target .lit", "data-number"))


@pytest.mark.full
def test_matches_are_replaced_one_by_one_and_all_at_once(service, open_page):
    page = open_page(service.url)
    translate(page, "Cat, cat, cat. One cat. Two dogs.")
    before = targets(page)
    search(page, "cat", "$& chat cat")
    page.click("#search [data-do=replace]")
    replaced = before[0].replace("Cat", "$& chat cat")
    wait_for_targets(page, [replaced, *before[1:]])
    see(page, "#search [role=status]", "2 of 6")  # the first is in what was written
    assert page.locator(".edited").count() == 1
    page.check("#search [type=checkbox]")
    search(page, "cat", "chat")
    page.click("#search [data-do=replaceAll]")
    wait_for_targets(page, [text.replace("cat", "chat") for text in (replaced, *before[1:])])
    see(page, "#announcement", "4 matches replaced.")
    page.click("#undo")
    wait_for_targets(page, [replaced, *before[1:]])
    page.click("#undo")
    wait_for_targets(page, before)
    search(page, before[2], "")
    page.click("#search [data-do=replaceAll]")
    see(page, "#notice", "A translation cannot be empty.")


@pytest.mark.full
def test_only_the_sentences_that_are_shown_are_searched(service, open_page):
    page = open_page(service.url)
    translate(page)
    edit(page, 1, "Deux cat.")
    search(page, "cat", "chat")
    assert matches(page)[0] == ["cat"] * 2
    page.select_option("#filter", "edited")
    until(page, "CSS.highlights.get('match').size === 1")
    page.click("#search [data-do=replaceAll]")
    see(page, sentence(1), "Deux chat.")
    assert targets(page)[0] == "«One cat.» ()"


@pytest.mark.full
def test_an_edit_is_kept_for_all_equal_sentences(service, open_page):
    page = open_page(service.url)
    translate(page, "The House rises. One cat. The House rises.\nThe House rises.")
    before = targets(page)
    page.click(sentence(1))
    page.click("#panel [data-do=edit]")
    assert page.locator("#panel [value=equal]").is_hidden()
    page.click(sentence(2))
    page.click("#panel [data-do=edit]")
    page.fill("#panel textarea", "La séance\u00a0est levée.")
    see(page, "#panel [value=equal]", "Keep for all 3 equal sentences").click()
    same = "La séance\u00a0est levée."
    wait_for_targets(page, [same, before[1], same, same])
    page.click("#undo")
    wait_for_targets(page, before)


@pytest.mark.full
def test_the_size_of_a_document_is_shown_and_a_long_one_is_asked_for(service, open_page):
    page = open_page(service.url)
    translate(page, "One cat. Two cats!")
    see(page, ".heads", "English · 2 sentences · 4 words · 18 characters")
    questions = []
    page.once("dialog", lambda dialog: questions.append(dialog.message) or dialog.dismiss())
    page.click(".top .new")
    service.engine.hold = 0
    text = "It is good. " * 1001
    page.set_input_files("#file", {"name": "a.md", "mimeType": "", "buffer": text.encode()})
    page.click("#start button.main")
    until(page, "!document.querySelector('#start button.main').disabled")
    size = "1,001 sentences · 3,003 words · 12,011 characters"
    assert questions == [f"a.md has {size}. Translate all of it?"]
    assert page.is_visible("#chosen")
    assert len(page.evaluate("JSON.parse(localStorage['docmt-documents'])")) == 1


@pytest.mark.full
def test_a_reviewed_file_on_the_start_page_is_taken_over_in_its_document(service, open_page):
    page = open_page(service.url)
    page.on("dialog", lambda dialog: dialog.accept())
    translate(page)
    edit(page, 0, "Mine.")
    page.click("#download summary")
    with page.expect_download() as download:
        page.click("[data-format=xlf12]")
    data = download.value.path().read_bytes()
    edit(page, 0, "Mine, better.")
    page.click(".top .new")
    file = {"name": "reviewed.xlf", "mimeType": "application/xml", "buffer": data}
    page.set_input_files("#file", file)
    page.click("#start button.main")
    see(page, "#notice span", "Sentences with another translation: 0; confirmed: 0.")
    assert targets(page)[0] == "Mine, better."
    page.click(".top .new")
    page.set_input_files("#file", file | {"buffer": data.replace(b"Mine.", b"Theirs.")})
    page.click("#start button.main")
    text = see(page, "#notice span", "“One cat.” was changed since this file was downloaded").inner_text()
    assert "Left out: 1\n" in text and text.endswith("; the file has “Theirs.”")
    assert targets(page)[0] == "Mine, better."
    page.click(".top .new")
    page.set_input_files("#file", file | {"buffer": data.replace(b"original=", b'original="other.txt" id=')})
    page.click("#start button.main")
    see(page, "#notice span", "All of this XLIFF is translated already.")
    assert page.locator("#start").is_visible() and page.locator("#my-documents li").count() == 1
