"""Units and their builder."""

import pytest

from docmt.formats.units import UnitBuilder


@pytest.mark.parametrize(
    ("before", "inside", "text", "rendered"),
    [
        ("question.", "1", "question. Then", "question.<sup>1</sup> Then"),
        ("question.", "&", "question. Then", "question.<sup>&amp;</sup> Then"),
        ("the 1", "st", "the 1st Then", "the 1<sup>st</sup> Then"),
        ("see ", "12", "see 12 Then", "see <sup>12</sup> Then"),
    ],
)
def test_marks_of_notes_are_single_codes(before, inside, text, rendered):
    builder = UnitBuilder(escape=lambda piece: piece.replace("&", "&amp;"))
    builder.add_text(before)
    builder.open("1", "<sup>", is_mark=True)
    builder.add_text(inside)
    builder.close("1", "</sup>")
    builder.add_text(" Then")
    unit = builder.finish()
    assert unit.text == text
    assert unit.render() == rendered


def test_what_is_not_paired_is_single():
    builder = UnitBuilder(collapse=True)
    builder.add_text("  a\n ")
    builder.open("1", "<b>")
    builder.add_text(" b")
    builder.open("2", "<i>")
    builder.close("1", "</b>")
    builder.close("3", "</u>")
    builder.add_single("4", "<br>", is_space=True)
    builder.add_text(" c")
    unit = builder.finish()
    assert unit.text == "a b c"
    assert unit.render() == "a <b>b<i></b></u><br>c"
    assert [code.kind for code in unit.codes] == ["open", "single", "close", "single", "single"]
