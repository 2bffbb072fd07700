"""Front matter: strings at named paths of YAML and TOML are units, and all else keeps its bytes."""

import tomllib

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from test_markdown_texts import VOWELS, parse, texts

from docmt.core.errors import DocmtError
from docmt.formats.front_matter import find_front_strings
from docmt.formats.units import Unit

YAML = """\
---
title: A title  # a comment
"quoted key": 'It''s'
double: "A \\"b\\" \\u00e9"
plain: one
  two
folded: >-
  First line
  goes on.

  Second
    - as it
    - stands
literal: |2+
  First line
  second line


nested:
  list: [one two, 'b', {key: a value}]
  items:
  - &name An item
  - *name
  - name: !!str a name
date: 2024-01-01
draft: true
---

12
"""
TOML = '''\
+++
title = "A \\"b\\"" # a "comment"
literal = 'one'
date = 2024-01-01
"quoted key" = """
First line
second line\\t"""
[nested]
list = ["one two", 'b', {key = "a value"}]
[[items]]
name = \'\'\'a
name\'\'\'
+++

12
'''
STRINGS = {
    "title": ["A title"],
    "quoted key": ["It's"],
    "double": ['A "b" é'],
    "plain": ["one two"],
    "folded": ["First line goes on.", "Second as it stands"],
    "literal": ["First line second line"],
    "nested.list": ["one two", "b", "a value"],
    "nested.list.*.key": ["a value"],
    "nested.items": ["An item", "a name"],
    "nested.items.*.name": ["a name"],
    "nested": ["one two", "b", "a value", "An item", "a name"],
}


@pytest.mark.parametrize("field", STRINGS)
def test_strings_of_yaml(field):
    assert texts(YAML, field) == STRINGS[field]
    file = parse(YAML, field)
    new = file.write([Unit(unit.render().translate(VOWELS), unit.codes[:0]) for unit in file.units]).decode()
    assert [unit.text for unit in parse(new, field).units] == [text.translate(VOWELS) for text in STRINGS[field]]
    old_lines, lines = YAML.splitlines(), new.splitlines()
    changed = [old for old in old_lines if old not in lines]
    assert len(changed) <= 4 and lines[-5:] == old_lines[-5:]
    assert yaml.safe_load(new.split("---")[1]).keys() == yaml.safe_load(YAML.split("---")[1]).keys()


@pytest.mark.parametrize(
    ("field", "strings"),
    [
        ("title", ['A "b"']),
        ("literal", ["one"]),
        ("quoted key", ["First line second line "]),
        ("nested.list", ["one two", "b", "a value"]),
        ("nested.list.*.key", ["a value"]),
        ("items.*.name", ["a name"]),
    ],
)
def test_strings_of_toml(field, strings):
    file = parse(TOML, field)
    assert [unit.text for unit in file.units] == strings
    new = file.write([Unit(unit.render() + "'\"\\") for unit in file.units]).decode()
    again = parse(new, field)
    assert [unit.render() for unit in again.units] == [unit.render() + "'\"\\" for unit in file.units]
    assert tomllib.loads(new.split("+++")[1])["date"] == tomllib.loads(TOML.split("+++")[1])["date"]


@pytest.mark.parametrize(
    ("line", "new", "written"),
    [
        ("title: Plain text", "a: b", 'title: "a: b"'),
        ("title: Plain text", "a #b", "title: a #b".replace("a #b", '"a #b"')),
        ("title: Plain text", "Ťéxt", "title: Ťéxt"),
        ("title: Plain text", "non", "title: non"),
        ("title: Plain text", "on", 'title: "on"'),
        ("title: Plain text", "a, b", "title: a, b"),
        ("title: [Plain text]", "a, b", 'title: ["a, b"]'),
        ('title: "A \\"b\\""', 'x"y', 'title: "x\\"y"'),
        ("title: 'It''s'", "x'y", "title: 'x''y'"),
        ("title: Two\n  lines", "One line", "title: One line"),
        ("title: >\n  Two\n  lines", "One: line", "title: >\n  One: line"),
    ],
)
def test_strings_are_written_in_their_syntax(line, new, written):
    for line_end in ("\n", "\r\n"):
        source = f"---\n{line}\ndate: 2024-01-01\n---\n\n12\n".replace("\n", line_end)
        file = parse(source, "title")
        assert len(file.units) == 1
        assert file.write([Unit(new)]).decode() == source.replace(*(s.replace("\n", line_end) for s in (line, written)))


def test_what_is_not_named_is_reported():
    file = parse(YAML)
    assert file.units == []
    assert [each.reason for each in file.skipped] == ["front matter"]
    assert [each.text for each in parse("---\ntags: [one two, a-b-c]\n---\n", "tags").skipped] == ["a-b-c"]
    assert parse("---\n---\nText.\n").units[0].text == "Text."


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("---\ntitle: x\n---\n", "front matter: no string at titel. Strings are at title: name one of these"),
        ("---\ntitle: x\nsub:\n  titles: [y]\n---\n", r"no string at titel\. Strings are at title"),
        ("Text.\n", "front matter: no string at titel. It has no strings"),
        ("---\na: b\ntitel: x: y\n---\n", "broken front matter .*at line 3"),
        ("+++\na = 1\ntitel = x\n+++\n", "broken front matter .*at line 3"),
        ("---\n" + "[" * 5000 + "\n---\n", "broken front matter"),
    ],
)
def test_unknown_fields_and_broken_front_matter_are_refused(text, message):
    with pytest.raises(DocmtError, match=message):
        parse(text, "titel")


def test_aliases_are_read_once():
    text = "---\na: &a [x y]\n" + "".join(f"b{n}: &b{n} [*a, *a]\n" for n in range(50)) + "---\n"
    assert texts(text, "*") == ["x y"]


@given(
    st.lists(st.sampled_from([*"ab:-[]{}'\"#&*!|>,.\\ \n", "\n  ", "key: ", "'''", '"""', " = "]), max_size=30).map(
        "".join
    )
)
def test_generated_front_matter(body):
    for mark in ("---", "+++"):
        text = f"{mark}\n{body}\n{mark}\n"
        try:
            strings = find_front_strings(text, "x.md")
        except DocmtError:
            continue
        for each in strings:
            assert 0 <= each.value.start <= each.value.end <= len(text)
