"""Files of strings: only values change, in the escapes and the encoding of the file."""

from __future__ import annotations

from dataclasses import replace

import pytest

from docmt.formats.string_files import read
from docmt.formats.units import ReadConfig, Unit

PROPERTIES = """# title = The comment
! title = The comment
title = The report
  colon:The vote
space   The House
equals=
key\\ with\\:signs = Caf\\u00e9 \\ud83d\\ude00 is open\\nnow
long = The vote \\
    is today, \\\\ here
hello = Hello {0}, it isn''t new
plain = It isn't new
url = http://a.eu/b
"""
STRINGS = """/* "title" = "The comment"; */
"title" = "The \\"report\\"";
// "title" = "The comment";
"hello %@" = "Hello %@\\nand \\U00e9";
bare="It isn't";
"""


def load(text: str, name: str, encoding: str = "utf-8"):
    file = read(text.encode(encoding), name, ReadConfig())
    assert file.write(file.units) == text.encode(encoding)
    return file


def test_values_of_properties() -> None:
    file = load(PROPERTIES, "a.properties")
    assert [(unit.id, unit.text) for unit in file.units] == [
        ("title", "The report"),
        ("colon", "The vote"),
        ("space", "The House"),
        ("key\\ with\\:signs", "Café 😀 is open now"),
        ("long", "The vote is today, \\ here"),
        ("hello", "Hello, it isn't new"),
        ("plain", "It isn't new"),
    ]
    assert [each.text for each in file.skipped] == ["http://a.eu/b"]
    new = [replace(unit, text=f"{unit.text}é'") if unit.id in ("hello", "plain") else unit for unit in file.units]
    expected = PROPERTIES.replace("isn''t new", "isn''t new\\u00e9''").replace("isn't new", "isn't new\\u00e9'")
    assert file.write(new).decode() == expected


@pytest.mark.parametrize(
    ("encoding", "expected"), [("utf-8", "a=é\nb=Café à\n"), ("latin-1", "a=é\nb=Caf\\u00e9 \\u00e0\n")]
)
def test_encodings_of_properties(encoding: str, expected: str) -> None:
    file = load("a=é\nb=The\n", "x.properties", encoding)
    assert file.write([file.units[0], Unit("Café à")]).decode(encoding) == expected


def test_spaces_at_the_beginning_and_backslashes() -> None:
    file = load("a=\\ The\nb=The\n", "x.properties")
    assert file.write([Unit(" Le"), Unit('C:\\x "y"\n')]) == b'a=\\ Le\nb=C:\\\\x "y"\\n\n'


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_values_of_apple_strings(encoding: str) -> None:
    file = load(STRINGS, "a.strings", encoding)
    assert [(unit.id, unit.text) for unit in file.units] == [
        ('"title"', 'The "report"'),
        ('"hello %@"', "Hello and é"),
        ("bare", "It isn't"),
    ]
    new = file.write([Unit('Le "é"'), file.units[1], Unit("Non")])
    assert new.decode(encoding) == STRINGS.replace('The \\"report\\"', 'Le \\"é\\"').replace("It isn't", "Non")


def test_apple_strings_become_utf_8_where_their_encoding_lacks_a_letter() -> None:
    file = load('"a" = "The é";\n', "a.strings", "latin-1")
    assert file.write([Unit("Les é")]).decode("latin-1") == '"a" = "Les é";\n'
    assert file.write([Unit("Příloha")]).decode("utf-8-sig") == '"a" = "Příloha";\n'
