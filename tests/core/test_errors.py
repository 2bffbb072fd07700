"""Control characters of strangers in messages."""

import sys
import unicodedata

import pytest

from docmt.core.errors import printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain, Grüße, 你好, 😀, \u0627\u0644", "plain, Grüße, 你好, 😀, \u0627\u0644"),
        ("\x1b]0;owned\x07", r"\x1b]0;owned\x07"),
        ("a\nb\r\tc\0", r"a\nb\r\tc\x00"),
        ("\x7f\x9b2J", r"\x7f\x9b2J"),
        ("abc\u202edcb", r"abc\u202edcb"),
        ("\u2028\u2066", r"\u2028\u2066"),
    ],
)
def test_controls_are_escaped(text, shown):
    assert printable(text) == shown


def test_no_control_of_unicode_is_left():
    turns = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
    for number in range(sys.maxunicode + 1):
        character = chr(number)
        if unicodedata.category(character) == "Cc" or unicodedata.bidirectional(character) in turns:
            assert printable(character).isascii()
            assert len(printable(character)) > 1


def test_what_is_kept():
    assert printable("a\n\tb\x1b", allowed="\n\t") == "a\n\tb\\x1b"
