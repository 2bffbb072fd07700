"""The page in English, German and French."""

import json
import re
from importlib.resources import files

import pytest
from lxml import html

pytest.importorskip("starlette", reason="starlette, which serves the page, is not installed")
pytest.importorskip("uvicorn", reason="uvicorn, which serves the page, is not installed")
from fake_service import FakeService
from test_page import expect as see
from test_page import sentence, translate

from docmt.formats.markdown_inline import read_markup

PAGE = files("docmt.serve") / "page"
LANGUAGES = ("de", "fr")
MESSAGES = json.loads((PAGE / "messages.json").read_text(encoding="utf-8"))
NAMES = {"docmt", "XLIFF", "XLIFF 1.2", "TMX", "Deutsch", "English", "Français", "title, items.text"}
SERVER_MESSAGES = json.loads((PAGE / "server_messages.json").read_text(encoding="utf-8"))
LITERAL = r'"((?:[^"\\]|\\.)*)"'


@pytest.fixture
def service():
    service = FakeService()
    service.start()
    yield service
    service.stop()


def read_html():
    """The texts and labels of the page that have letters."""
    root = html.fromstring((PAGE / "index.html").read_text(encoding="utf-8"))
    texts = root.xpath(
        "//body//text()[not(ancestor::kbd) and not(ancestor::noscript)]|//body//@aria-label|//@placeholder"
    )
    texts = {" ".join(each.split()) for each in texts}
    return {each for each in texts if re.search(r"\w", each)} - NAMES


def read_scripts():
    """The messages of the scripts."""
    texts = set()
    for path in PAGE.iterdir():
        if path.name.endswith(".js"):
            code = path.read_text(encoding="utf-8")
            texts |= set(re.findall(rf"\bt\(\s*{LITERAL}", code))
            for one, many in re.findall(rf"\bplural\([^\"]*{LITERAL},\s*{LITERAL}", code):
                texts |= {one, many}
    return texts


def test_each_message_is_in_each_language_and_is_used():
    assert set(MESSAGES) == read_html() | read_scripts()
    for text, translations in (MESSAGES | SERVER_MESSAGES).items():
        assert tuple(translations) == LANGUAGES, text
        assert all(translations.values()), text


def test_messages_have_the_values_of_the_english_ones():
    for text, translations in (MESSAGES | SERVER_MESSAGES).items():
        values = [sorted(re.findall(r"{\w+}", each)) for each in (text, *translations.values())]
        assert values[0] == values[1] == values[2], text


def test_reasons_why_text_stays_are_in_each_language():
    """Those that the readers of formats name, as arguments or in tables of blocks."""
    texts = {each["kind"] for each in read_markup("blocks")}
    for path in (files("docmt") / "formats").iterdir():
        if path.name.endswith(".py"):
            code = path.read_text(encoding="utf-8")
            texts |= set(re.findall(rf"\b(?:skip|Skipped)\(\s*{LITERAL}", code))
    assert len(texts) > 30 and texts <= set(SERVER_MESSAGES)


@pytest.mark.full
@pytest.mark.browser
def test_findings_and_reasons_are_in_the_language_of_the_page(service, open_page):
    page = open_page(service.url, locale="de")
    translate(page, "The 7 dogs left.")
    page.hover(sentence(0))
    see(page, "#reason", "Zahl: 7 is missing")
    module = "import('./page/messages.js').then(({translateServerText: t}) => texts.map(t))"
    texts = ["formulas", "“7”, “8” not in the translation", "“a b” 3 times in a row", "other {x}"]
    known = page.evaluate(f"texts => {module}", texts)
    assert known == ["Formeln", "“7”, “8” fehlt in der Übersetzung", "„a b“ 3-mal hintereinander", "other {x}"]


@pytest.mark.full
@pytest.mark.browser
@pytest.mark.parametrize(
    ("locale", "texts"),
    [
        (
            "en-GB",
            ["en", "Translate", "English → French", "1,234 words", "1 sentence · 1 word · 4 characters", "2 Jan"],
        ),
        (
            "de-AT",
            [
                "de",
                "Übersetzen",
                "Englisch → Französisch",
                "1\u00a0234 Wörter",
                "1 Satz · 1 Wort · 4 Zeichen",
                "2. Jän.",
            ],
        ),
        (
            "fr",
            ["fr", "Traduire", "Anglais → français", "1\u202f234 mots", "1 phrase · 1 mot · 4 caractères", "2 janv."],
        ),
        ("it", ["en", "Translate", "English → French", "1,234 words", "1 sentence · 1 word · 4 characters", "Jan 2"]),
    ],
)
def test_the_page_is_in_the_language_of_the_browser(service, open_page, locale, texts):
    language, button, pair, words, size, date = texts
    page = open_page(service.url, locale=locale)
    see(page, "#start button.main", button)  # as soon as the messages are loaded
    assert page.get_attribute("html", "lang") == language
    page.fill("#text", "a " * 1234)
    see(page, "#count", words)
    page.wait_for_selector("#model option", state="attached")
    assert page.locator("#model option").all_inner_texts() == [pair]
    translate(page, "One.")
    see(page, ".heads", size)
    page.click(".top .new")
    see(page, "#my-documents li p", date)


@pytest.mark.full
@pytest.mark.browser
def test_another_language_is_chosen_and_the_text_stays(service, open_page):
    page = open_page(service.url, locale="de")
    page.fill("#text", "One cat.")
    page.select_option("#language", "fr")
    see(page, "h1", "Traduire un document")
    assert page.input_value("#text") == "One cat." and page.input_value("#language") == "fr"
    see(page, "#count", "2 mots · 8 caractères")
    translate(page, "One 7 odd cat.")
    page.hover(sentence(0))
    see(page, "#reason", "Le modèle hésitait")
    page.evaluate("location.hash = 'nobody'")
    page.expected_errors = "404"
    assert see(page, "#notice span", "There is no such document.").get_attribute("lang") == "en"
