"""JSON: only strings at named paths change."""

import json
from dataclasses import replace

import pytest
from generated_files import check_files, read_mutants
from hypothesis import strategies as st

from docmt.core.errors import DocmtError
from docmt.formats.json_files import read, read_notebook
from docmt.formats.string_files import is_identifier
from docmt.formats.units import ReadConfig, Unit

MENU = """{
  "title" : "Main menu", "url":"https://example.org/a_b", "id": "main_menu",
  "items": [ {"name": "Open %s", "icon":"open.png"}, {"name": "Close\\nall", "icon": "#fff", "n": 1.50} ],
  "title": "Twice" , "x": [NaN, true, null, -1e5]
}
"""


def parse(text, *fields):
    return read(text.encode(), "x.json", ReadConfig(fields))


def texts(text, *fields):
    return [(unit.id, unit.text) for unit in parse(text, *fields).units]


def test_a_path_has_no_line_break():
    file = read(rb'{"a": "Copied to C:\\new now", "b": "One\\nTwo"}', "x.json", ReadConfig(fields=("a", "b")))
    assert [unit.text for unit in file.units] == ["Copied to now", "One Two"]
    path, line = (unit.codes[0].content for unit in file.units)
    assert (path.strip(), line) == (r"C:\new", r"\n")
    units = [Unit("Now in", (replace(file.units[0].codes[0], offset=6),)), file.units[1]]
    assert file.write(units) == rb'{"a": "Now in C:\\new", "b": "One\\nTwo"}'


def test_paths():
    assert texts(MENU, "title") == [("title", "Main menu"), ("title", "Twice")]
    assert texts(MENU, "items.*.name") == [("items.0.name", "Open"), ("items.1.name", "Close all")]
    assert texts(MENU, "items.1.name") == [("items.1.name", "Close all")]
    assert texts(MENU, "items") == [("items.0.name", "Open"), ("items.1.name", "Close all")]
    assert [text for _, text in texts(MENU, "*")] == ["Main menu", "Open", "Close all", "Twice"]
    assert [text for _, text in texts(MENU, "id")] == ["main_menu"]
    assert texts('{"menu.open": "Open it"}', "menu") == texts('{"menu.open": "Open it"}', "menu.open")
    assert texts('["One", ["Two"]]', "*") == [("0", "One"), ("1.0", "Two")]


def test_only_the_strings_change():
    file = parse(MENU, "*")
    assert file.write(file.units, "cs").decode() == MENU
    new = file.write([Unit(f'[Ťéxt] <&"\\ {unit.text}', ()) for unit in file.units]).decode()
    assert new.startswith('{\n  "title" : "[Ťéxt] <&\\"\\\\ Main menu", "url":"https://example.org/a_b", ')
    assert '"n": 1.50} ],' in new and "[NaN, true, null, -1e5]" in new
    assert [skipped.text for skipped in file.skipped] == ["https://example.org/a_b", "main_menu", "open.png", "#fff"]


def test_escapes():
    text = '{"a": "caf\\u00e9 \\ud83d\\ude00", "b": "one<\\/b> two"}'
    file = parse(text, "*")
    assert file.units[0].text == "café 😀"
    assert file.write(file.units).decode() == text
    new = file.write([Unit("tři 😀"), Unit("x</b> y")]).decode()
    assert new == '{"a": "t\\u0159i \\ud83d\\ude00", "b": "x<\\/b> y"}'
    raw = parse('{"a": "café \\u00e9"}', "a")
    assert raw.write([Unit("tři")]).decode() == '{"a": "tři"}'


def test_marks_and_encodings():
    for encoding in ("utf-8-sig", "utf-16"):
        data = '{\r\n"a": "One é"}\r\n'.encode(encoding)
        file = read(data, "x.json", ReadConfig(("a",)))
        assert file.write(file.units) == data
        assert file.write([Unit("ř")]).decode(encoding) == '{\r\n"a": "ř"}\r\n'


def test_messages_with_branches_are_skipped():
    file = parse('{"a": "{n, plural, one {a file} other {files}}", "b": "Yes"}', "*")
    assert [unit.text for unit in file.units] == ["Yes"]
    assert file.skipped[0].reason == "ICU messages"


@pytest.mark.parametrize(
    "text",
    [
        *[
            "https://x.y/z",
            "a@b.org",
            "/usr/bin",
            "../img/a.png",
            "a/b/c",
            "img/a.png",
            "a.png",
            "menu.file.open",
            "#fff0",
        ],
        *["rgb(1, 2, 3)", "12px", "2024-01-02", "2024-01-02T10:00:00Z", "1.2.2024", "some_id", "camelCase", "a-b-c"],
        *["550e8400-e29b-41d4-a716-446655440000", "PascalCase", "en-US"],
    ],
)
def test_identifiers(text):
    assert is_identifier(text)


@pytest.mark.parametrize("text", ["Open", "submit", "and/or", "well-known", "OK", "A sentence.", "e.g.", "Größe"])
def test_no_identifiers(text):
    assert not is_identifier(text)


@pytest.mark.parametrize(
    ("text", "fields", "message"),
    [
        (MENU, (), r"such as title, items\.\*\.name\. \*"),
        (MENU, ("titel",), "no string at titel.*title"),
        (MENU, ("items.*.n",), "no string at items"),
        ("[1]", ("x",), "no strings"),
        ("[1]", (), "--fields"),
        ('{"a": "\\ud83d x"}', ("a",), "line 1: a has half a character"),
        ('{"a": "\\x"}', ("a",), "escape"),
        ('{"a"\n "b"}', ("a",), "line 2: broken JSON .*':'"),
        ('{"a": "b",}', ("a",), "line 1: broken JSON .*(property name|trailing comma)"),
        ('["a" "b"]', ("a",), "line 1: broken JSON .*','"),
        ('["a"}', ("a",), "line 1: broken JSON .*','"),
        ("", ("a",), "line 1: broken JSON .*value"),
        ('{"a": "b"}\n{"a": "c"}', ("a",), "JSON Lines"),
        ('{"a": "b\nc"}', ("a",), "line 1: broken JSON .*control character"),
        ("[" * 5000, ("a",), "nested deeper"),
    ],
)
def test_broken_input(text, fields, message):
    with pytest.raises(DocmtError, match=message):
        parse(text, *fields)


def test_depth_that_the_stack_has_no_room_for_is_told():
    def parse_below(calls):
        return parse_below(calls - 1) if calls else parse("[" * 800 + '"One word"' + "]" * 800, "0")

    with pytest.raises(DocmtError, match="nested deeper"):
        parse_below(300)


def test_deep_and_long_numbers_are_read():
    text = "[" * 900 + '"One word"' + ", " + "9" * 10000 + "]" * 900
    file = parse(text, "0")
    assert file.write(file.units).decode() == text


TEXTS = st.text(st.characters(blacklist_categories=("Cs",)), max_size=8)
VALUES = st.recursive(
    st.one_of(TEXTS, st.sampled_from(["Two words", "a%sb c"]), st.integers(), st.booleans(), st.none()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXTS, inner, max_size=3)),
    max_leaves=10,
)


@check_files(VALUES, st.booleans())
def test_generated_files(value, is_ascii):
    text = json.dumps(["One word", value], ensure_ascii=is_ascii)
    file = parse(text, "*")
    assert file.write(file.units).decode() == text
    new = [Unit(f"[Ťéxt] {unit.text}", ()) for unit in file.units]
    again = parse(file.write(new).decode(), "*")
    assert [unit.text for unit in again.units][:1] == ["[Ťéxt] One word"]
    assert len(json.loads(file.write(new))) == 2


@pytest.mark.full
def test_mutants():
    assert list(read_mutants(lambda data: read(data, "x.json", ReadConfig(("*",))), MENU.encode()))


ARB = """{
  "@@locale": "en", "title": "The report",
  "@title": {"description": "Title of the page"},
  "hello": "Hello {name}", "@hello": {"placeholders": {"name": {}}},
  "count": "{n, plural, one{One vote} other{{n} votes}}", "color": "#ff0000"
}
"""


def test_messages_of_arb_need_no_fields():
    file = read(ARB.encode(), "app_en.arb", ReadConfig())
    assert [(unit.id, unit.text) for unit in file.units] == [("title", "The report"), ("hello", "Hello")]
    assert [each.reason for each in file.skipped] == ["ICU messages", "identifiers"]
    assert file.write(file.units) == ARB.encode()
    new = file.write([Unit("Le rapport"), file.units[1]], "fr-CA").decode()
    assert new == ARB.replace("The report", "Le rapport").replace('"en"', '"fr_CA"')
    assert [unit.id for unit in read(ARB.encode(), "a.arb", ReadConfig(("title",))).units] == ["title"]


CELLS = [
    {
        "cell_type": "markdown",
        "metadata": {"a": "The"},
        "source": ["# The report\n", "\n", "See `x`, é.\n", "\n", "End"],
    },
    {"cell_type": "code", "outputs": [{"text": ["The House\n"]}], "source": ["print('The House')"], "x": 1e5},
    {"cell_type": "markdown", "source": "One string."},
    {"cell_type": "markdown", "source": []},
    {"cell_type": "raw", "source": ["The raw text"]},
]


@pytest.mark.parametrize("indent", [1, None, "\t"])
@pytest.mark.parametrize("is_ascii", [True, False])
def test_only_markdown_cells_of_a_notebook_change(indent, is_ascii):
    text = json.dumps({"cells": CELLS, "nbformat": 4}, indent=indent, ensure_ascii=is_ascii)
    file = read_notebook(text.encode(), "a.ipynb", ReadConfig())
    assert [unit.text for unit in file.units] == ["The report", "See , é.", "End", "One string."]
    assert [each.reason for each in file.skipped] == ["code", "code"]
    assert file.write(file.units) == text.encode()
    new = [replace(unit, text=unit.text.replace("The report", "À la").replace("One", "Un")) for unit in file.units]
    expected = text.replace("The report\\n", f"{json.dumps('À', ensure_ascii=is_ascii)[1:-1]} la\\n")
    assert file.write(new) == expected.replace("One string", "Un string").encode()
