"""Names of strangers in Markdown: shown as they are."""

import pytest

from docmt.core.plain_text import code_cell, escape_markdown, markdown_table


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("a|b_c*", r"a\|b\_c\*"),
        ("`x` \\ ~~y~~", r"\`x\` \\ \~\~y\~\~"),
        ("<b>bold</b> <!-- x", r"\<b>bold\</b> \<!-- x"),
        ("p < 0.05, p <0.0001", "p < 0.05, p <0.0001"),
        ("[a](http://b) [1.0, 2.0]", r"[a\](http://b) [1.0, 2.0]"),
        ("&lt; &#60; R&D", r"\&lt; \&#60; R&D"),
        ("two\nlines\x1b\u202e", r"two\\nlines\\x1b\\u202e"),
        ("  indented ", "&nbsp;&nbsp;indented"),
        ("", ""),
    ],
)
def test_what_would_be_a_mark_is_text(text, written):
    assert escape_markdown(text) == written


def test_a_table():
    assert code_cell("nrefs:1|a") == r"`nrefs:1\|a`"
    assert markdown_table([["", "b", "c"], ["x", "1", "2"]]) == ["|  | b | c |", "| --- | --: | --: |", "| x | 1 | 2 |"]
    assert markdown_table([["", "b", "c"]], left_columns=3) == ["|  | b | c |", "| --- | --- | --- |"]
