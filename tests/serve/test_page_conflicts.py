"""Two tabs that show the same document: each sees what the other changes, and neither overwrites it without a word."""

import pytest

pytest.importorskip("starlette", reason="starlette, which serves the page, is not installed")
pytest.importorskip("uvicorn", reason="uvicorn, which serves the page, is not installed")
from test_page import DONE, sentence
from test_page import expect as see
from test_page_editing import edit, targets, translate, until, wait_for_targets

pytestmark = [pytest.mark.browser, pytest.mark.usefixtures("files_here")]


@pytest.fixture
def tabs(service, open_page):
    """Two people's browsers at the same document."""
    page = open_page(service.url, expected_errors="409")
    translate(page, "One cat. Two cats. One cat.\nThree dogs.")
    other = open_page(page.url, expected_errors="409")
    see(other, DONE)
    return page, other


def write(page, number, text):
    page.click(sentence(number))
    page.click("#panel [data-do=edit]")
    page.fill("#panel textarea", text)


@pytest.mark.browser(quick=True)
def test_a_tab_shows_what_is_changed_in_another_one(tabs):
    page, other = tabs
    edit(other, 1, "Deux chatons.")
    see(page, sentence(1), "Deux chatons.")
    see(page, "#undo:enabled")
    other.click(sentence(3))
    other.keyboard.press("c")
    see(page, ".confirmed", "«Three dogs.»")
    questions = []
    page.once("dialog", lambda dialog: questions.append(dialog.message) or dialog.dismiss())
    page.click("#undo")
    see(page, "#notice", "Nothing was undone.")
    assert questions == ["The last change was made elsewhere. Undo it?"] and page.locator(".confirmed").count() == 1
    page.once("dialog", lambda dialog: dialog.accept())
    page.click("#undo")
    other.locator(".confirmed").wait_for(state="detached")


@pytest.mark.parametrize("choice", ["mine", "theirs"])
def test_of_two_edits_both_are_shown_and_the_user_chooses(tabs, choice):
    page, other = tabs
    page.on("dialog", lambda dialog: dialog.accept())
    write(page, 1, "Deux chatons gris.")
    edit(other, 1, "Deux chats gris.")
    see(page, sentence(1), "Deux chats gris.")
    page.click("#panel [value=keep]")
    dialog = see(page, "#conflict")
    assert dialog.locator("dt, dd").all_inner_texts() == [
        "Theirs, edited",
        "Deux chats gris.",
        "Yours",
        "Deux chatons gris.",
    ]
    assert dialog.locator("mark").all_inner_texts() == ["chats", "chatons"]
    page.keyboard.press("Escape")  # nothing is decided
    assert page.input_value("#panel textarea") == "Deux chatons gris." and targets(page)[1] == "Deux chats gris."
    page.click("#panel [value=keep]")
    page.click(f"#conflict [value={choice}]")
    page.locator("#panel").wait_for(state="hidden")
    last = {"mine": "Deux chatons gris.", "theirs": "Deux chats gris."}[choice]
    for tab in tabs:
        see(tab, sentence(1), last)
    assert page.locator(".draft").count() == 0
    page.click("#undo")
    see(page, sentence(1), {"mine": "Deux chats gris.", "theirs": "«Two cats.»"}[choice])


def test_a_draft_is_compared_with_what_it_was_written_for_also_in_a_new_tab(tabs):
    page, other = tabs
    write(page, 1, "Deux chatons.")
    tab = page.context.new_page()
    tab.expected_errors = "409"
    page.close()
    edit(other, 1, "Deux chats.")
    tab.goto(other.url)
    see(tab, sentence(1), "Deux chats.").click()
    assert tab.input_value("#panel textarea") == "Deux chatons."
    tab.click("#panel [value=keep]")
    see(tab, "#conflict dd", "Deux chats.")


@pytest.mark.full
def test_of_many_edits_those_that_are_late_are_asked_about(tabs):
    page, other = tabs
    write(page, 0, "Un chat noir.")
    edit(other, 2, "Un chaton.")
    see(page, sentence(2), "Un chaton.")
    edit(other, 0, "Un chat.")
    see(page, sentence(0), "Un chat.")
    page.click("#panel [value=equal]")  # the last sentence was seen as it is now
    assert see(page, "#conflict li").count() == 1
    page.click("#conflict [value=theirs]")
    page.locator("#panel").wait_for(state="hidden")
    assert [targets(page)[number] for number in (0, 2)] == ["Un chat.", "Un chat noir."]


@pytest.mark.full
def test_a_confirmation_and_an_undo_of_what_was_changed_elsewhere_do_nothing(tabs):
    page, other = tabs
    edit(page, 0, "Un chat.")
    see(other, sentence(0), "Un chat.")
    page.route("**/events*", lambda route: route.abort())  # a tab that hears nothing
    page.expected_errors = "Failed to load resource"
    page.reload()
    edit(other, 0, "Un autre chat.")
    page.click(sentence(0))
    page.click("#panel [data-do=confirm]")
    see(page, "#notice span", "Nothing was done: this was changed elsewhere meanwhile")
    see(page, sentence(0), "Un autre chat.")
    assert page.locator(".confirmed").count() == 0
    page.click("#undo")
    see(page, "#notice span", "Nothing was done")
    assert targets(other)[0] == "Un autre chat."


@pytest.mark.full
def test_edits_in_a_row_are_no_conflict(tabs):
    page, _ = tabs
    for text in ("Un.", "Un chat.", "Un chat gris."):
        edit(page, 0, text)
        page.focus(sentence(0))
        page.keyboard.press("c")
        see(page, "#panel h2", "Sentence 2")
    page.keyboard.press("Escape")
    for _ in range(6):
        page.keyboard.press("Control+z")
    wait_for_targets(page, ["«One cat.» ()", *targets(page)[1:]])
    until(page, "document.querySelector('#undo').disabled")
    assert page.locator("#notice").is_hidden()


@pytest.mark.full
def test_what_others_changed_is_undone_only_after_a_question_also_behind_an_own_change(tabs):
    page, other = tabs
    questions = []
    page.on("dialog", lambda dialog: questions.append(dialog.message) or dialog.dismiss())
    edit(page, 0, "Un.")
    edit(other, 1, "Deux.")
    see(page, sentence(1), "Deux.")
    edit(page, 3, "Trois.")
    page.keyboard.press("Control+z")
    page.keyboard.press("Control+z")
    see(page, "#notice", "Nothing was undone.")
    assert questions == ["The last change was made elsewhere. Undo it?"]
    assert [targets(page)[number] for number in (0, 1, 3)] == ["Un.", "Deux.", "«Three dogs.» (Two+One)"]
