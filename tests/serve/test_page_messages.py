"""The page in English, German and French."""

import json
import re
from importlib.resources import files

from lxml import html

PAGE = files("docmt.serve") / "page"
LANGUAGES = ("de", "fr")
MESSAGES = json.loads((PAGE / "messages.json").read_text(encoding="utf-8"))
NAMES = {"docmt", "XLIFF", "XLIFF 1.2", "TMX", "Deutsch", "English", "Français", "title, items.text"}
LITERAL = r'"((?:[^"\\]|\\.)*)"'


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
    for text, translations in MESSAGES.items():
        assert tuple(translations) == LANGUAGES, text
        assert all(translations.values()), text


def test_messages_have_the_values_of_the_english_ones():
    for text, translations in MESSAGES.items():
        values = [sorted(re.findall(r"{\w+}", each)) for each in (text, *translations.values())]
        assert values[0] == values[1] == values[2], text
