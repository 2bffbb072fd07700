"""Markdown: blocks stay, inline markup is codes, and text does not become markup."""

from collections import Counter

import pytest
from generated_files import check_files, read_mutants
from hypothesis import example, given
from hypothesis import strategies as st
from real_files import NEEDS_FILES, find_files

from docmt.core.errors import DocmtError
from docmt.documents import Document
from docmt.documents.segmentation import find_fenced_code
from docmt.formats.markdown_texts import find_blocks, read
from docmt.formats.projection import Passage, project_codes
from docmt.formats.units import ReadConfig, Unit

VOWELS = str.maketrans("aeiou", "áéíóú")


def parse(text, *fields):
    file = read(text.encode(), "x.md", ReadConfig(fields))
    assert file.write(file.units, "cs").decode() == text
    return file


def texts(text, *fields):
    return [unit.text for unit in parse(text, *fields).units]


def translate(text, *translations, fields=()):
    file = parse(text, *fields)
    units = [
        project_codes(unit, [Passage(0, len(unit.text), new)])[0]
        for unit, new in zip(file.units, translations, strict=True)
    ]
    return file.write(units).decode()


def contents(text):
    (unit,) = parse(text).units
    return unit.text, [code.content.strip() for code in unit.codes]


@pytest.mark.parametrize(
    ("source", "text", "codes"),
    [
        ("a *b* c", "a b c", ["*", "*"]),
        ("a **b** _c_ ~~d~~", "a b c d", ["**", "**", "_", "_", "~~", "~~"]),
        ("***a** b*", "a b", ["*", "**", "**", "*"]),
        ("***a***", "a", ["*", "**", "**", "*"]),
        ("snake_case_name 2 * 3 * 4", "snake_case_name 2 * 3 * 4", []),
        ("**a*", "*a", ["*", "*"]),
        ("run `a*b*` now", "run now", ["`a*b*`"]),
        ("``a`b`` c `d", "c `d", ["``a`b``"]),
        ("see [the *docs*](x.md '1').", "see the docs.", ["[", "*", "*", "](x.md '1')"]),
        ("[a](<b c>) [d](e(f)g)", "a d", ["[", "](<b c>)", "[", "](e(f)g)"]),
        ("[not a link] (x)", "[not a link] (x)", []),
        ("see ![](i.png) and [](b.md).", "see and .", ["![](i.png)", "[", "](b.md)"]),
        ("*a [b*](x)", "*a b*", ["[", "](x)"]),
        ("text[^1] and <https://a.b> <b>bold</b>", "text and <https://a.b> bold", ["[^1]", "<b>", "</b>"]),
        ("mass $a*b*c$ is", "mass is", ["$a*b*c$"]),
        ("costs $5 and $6", "costs $5 and $6", []),
        (r"\*a\* &amp; &lt;b \[x\]", "*a* & <b [x]", []),
        ("a<br>b", "a b", ["<br>"]),
    ],
)
def test_inline_markup(source, text, codes):
    found = contents(source)
    assert (" ".join(found[0].split()), found[1]) == (text, codes)


def test_titles_of_links_and_images():
    link = r"""See [a](<x y> "A \"title\" &amp; more"){.c}: ![pic](p.png 'Don\'t')"""
    text = link + "\n\n| [c](d (In cells)) |\n|--|\n"
    assert texts(text) == ["See a: ", "pic", 'A "title" & more', "Don't", "c", "In cells"]
    assert parse(text).write(parse(text).units).decode() == text
    new = translate(text, "Vid a: ", "obr", 'X "y" & z &amp;', "A'b", "c", "a | b (c)")
    assert new == (
        r"""Vid [a](<x y> "X \"y\" & z \&amp;"){.c}: ![obr](p.png 'A\'b')"""
        "\n\n"
        r"| [c](d (a \| b \(c\))) |"
        "\n|--|\n"
    )
    assert texts(new)[2:4] == ['X "y" & z &amp;', "A'b"]


def test_images_without_a_text_stay():
    assert texts("![](a b.png)\n") == ["![](a b.png)"]
    assert translate("![](pic.png)\n\n[![](i.png 'One')](b.c) ![](d.e)\n", "Jedna") == (
        "![](pic.png)\n\n[![](i.png 'Jedna')](b.c) ![](d.e)\n"
    )


def test_spaces_after_links_without_a_text_stay():
    source = "# One [![](x.svg)](y) [![](z.svg)](w) two **![](p.png)** [](q) three\n"
    assert translate(source, "Jedna dvě tři") == source.replace("One", "Jedna").replace("two", "dvě").replace(
        "three", "tři"
    )


def test_spaces_before_links_without_a_text_stay():
    assert translate("One ![](x.svg) [![](y.svg)](z)\n", "Jedna ") == "Jedna ![](x.svg) [![](y.svg)](z)\n"


def test_links_by_reference():
    text = "See [the page][Ref], [ref] and [ref][].\n\n[ref]: https://x.y 'Title'\n"
    assert texts(text) == ["See the page, ref and ref."]
    new = translate("[ref] here\n\n[ref]: x\n", "odkaz zde")
    assert new == "[odkaz][ref] zde\n\n[ref]: x\n"


def test_images_by_reference_keep_the_name_of_their_target():
    definition = "\n\n[The logo]: logo.png\n[ci]: https://x\n[Build]: b.svg\n"
    for source in ("See ![The logo][] here.", "See ![The logo] here.", "See [![Build]][ci] here."):
        written = translate(source + definition, "Hier zu sehen.")
        assert source[4:].removesuffix(" here.") in written, written
    assert texts("See ![a house][The logo]." + definition) == ["See .", "a house"]


def test_link_definitions_after_what_is_no_paragraph():
    for before in ("# A\n", "<!-- x -->\n", "```\nx\n```\n", "A\n===\n", "***\n", "\n"):
        text = f"{before}[a b]: https://x\n[c]: https://y\n\nSee [a b].\n"
        assert texts(text)[-1] == "See a b." and not any("https" in each for each in texts(text)), before
    assert texts("# Talk\n[Anna]: Where did you go?\nBen: Home.\n") == ["Talk", "[Anna]: Where did you go? Ben: Home."]
    (paragraph,) = texts("A text\n[a b]: https://x\n")
    assert paragraph.startswith("A text") and "https" in paragraph


def test_display_formulas_and_alerts_stay():
    text = "$$\np(w) = x\n$$\n\n$$ a = b $$\n\n> [!WARNING]\n> Take care.\n\nCosts $$ or less.\n"
    assert texts(text) == ["Take care.", "Costs $$ or less."]
    assert [(each.reason, each.text) for each in parse(text).skipped] == [
        ("formulas", "$$\np(w) = x\n$$"),
        ("formulas", "$$ a = b $$"),
    ]
    apart = "$$\na\n\nb\n$$\nwhere a is it and\n$$\nc\n$$\nThe end.\n"
    assert texts(apart) == ["where a is it and", "The end."]
    assert translate(text, "Achtung.", "Kosten.").startswith(text[: text.index("Take")] + "Achtung.")


def test_items_that_begin_in_the_next_line_and_notes_of_several_paragraphs():
    assert texts("-\n     five spaces\n") == ["five spaces"]
    text = "-\n  One.\n\n[^1]: Two.\n\n    Three.\n\n        code\n\nFour.\n"
    assert texts(text) == ["One.", "Two.", "Three.", "Four."]
    assert translate(text, "Eins.", "Zwei.", "Drei.", "Vier.") == text.replace("One", "Eins").replace(
        "Two", "Zwei"
    ).replace("Three", "Drei").replace("Four", "Vier")


def test_links_are_not_copied():
    (unit,) = parse("a [b](c) *d*").units
    assert [code.can_copy for code in unit.codes] == [False, False, True, True]


def test_images_hold_units():
    text = "An ![old *cat*](cat.png) sleeps.\n\n![Alone](x.png)\n"
    file = parse(text)
    assert [unit.text for unit in file.units] == ["An sleeps.", "old cat", "Alone"]
    new = file.write([file.units[0], Unit("[stará]"), Unit("Sám")]).decode()
    assert new == "An ![\\[stará\\]](cat.png) sleeps.\n\n![Sám](x.png)\n"
    changed = Unit(file.units[0].text.replace("sleeps", "spí"), file.units[0].codes)
    assert "![stará](cat.png) spí." in file.write([changed, Unit("stará"), Unit("Sám")]).decode()


SPACES = "  "
BLOCKS = """---
title: A title
tags: [one, two]
---

Title *here*
============

# Heading ##

Hard-wrapped
text.\\
After a break{SPACES}
and another.

> Quoted
> text
lazy

- [ ] item one
  goes on

  second paragraph
- item two

      code in a list

1. first
2) second

[^1]: A footnote
    of two lines

Term
:   Definition

    its second paragraph

```python
code = "text"
```

<div>
HTML block
</div>

| Head | Two |
|------|----:|
| a \\| b | `x` y |

***

[ref]: https://example.org
""".replace("{SPACES}", SPACES)


def test_blocks():
    assert texts(BLOCKS) == [
        "Title here",
        "Heading",
        "Hard-wrapped text. After a break and another.",
        "Quoted text lazy",
        "item one goes on",
        "second paragraph",
        "item two",
        "first",
        "second",
        "A footnote of two lines",
        "Term",
        "Definition",
        "its second paragraph",
        "Head",
        "Two",
        "a | b",
        "y",
    ]
    assert texts(BLOCKS, "title", "tags")[0] == "A title"
    reasons = [(each.reason, each.text.split("\n")[0]) for each in parse(BLOCKS).skipped]
    assert reasons == [
        ("front matter", "title: A title tags: [one, two]"),
        ("code", "code in a list"),
        ("code", "```python"),
        ("HTML", "<div>"),
    ]


def test_indented_code_is_skipped():
    file = parse("Text:\n\n    x = code\n\n\tmore\n\nText\n    goes on\n")
    assert [unit.text for unit in file.units] == ["Text:", "Text goes on"]
    assert [each.text for each in file.skipped] == ["x = code", "more"]


def test_changed_blocks():
    new = translate(BLOCKS, *(text.translate(VOWELS) for text in texts(BLOCKS)))
    for line in [
        "Títlé *héré*\n============\n",
        "# Héádíng ##\n",
        "Hárd-wráppéd téxt.\\\nAftér á bréák  \nánd ánóthér.\n",
        "> Qúótéd téxt lázy\n",
        "- [ ] ítém óné góés ón\n\n  sécónd párágráph\n",
        "[^1]: A fóótnóté óf twó línés\n",
        ":   Défínítíón\n",
        "| Héád | Twó |\n|------|----:|\n| á \\| b | `x` y |\n",
    ]:
        assert line in new


@pytest.mark.parametrize("text", ["1. x", "- x", "+ x", "* x", "# x", "> x", "---", "===", "~~~", "12) y", ": x", "#"])
def test_text_does_not_begin_a_block(text):
    new = translate("> - Some text\n", "Nový " + text)
    assert new == f"> - Nový {text}\n".replace("* x", "\\* x").replace("> x", "> x").replace("~~~", "\\~\\~\\~")
    file = parse("One text\n\nTwo\n")
    new = file.write([Unit(text + " slovo"), Unit("b")]).decode()
    assert texts(new) == [text + " slovo", "b"]


@pytest.mark.parametrize(
    "text", ["*a*", "_b_", "`c`", "[d](e)", "<b>", "&amp;", "\\*", "~~x~~", "$x$ $y$", "a_b", "![x](y)"]
)
def test_text_does_not_become_markup(text):
    file = parse("Some text\n")
    assert contents(file.write([Unit(f"x {text} y")]).decode()) == (f"x {text} y", [])
    table = parse("| a | b |\n|---|---|\n| c | d |\n")
    new = table.write([Unit(f"x | {text}"), *table.units[1:]]).decode()
    assert texts(new) == [f"x | {text}", "b", "c", "d"]


def test_a_mark_before_a_link_is_no_image():
    file = parse("Look [here](x)\n")
    codes = file.units[0].codes
    new = file.write([Unit("Ahoj!here", tuple(type(c)(c.offset, c.kind, c.id, c.content) for c in codes))]).decode()
    assert "\\![" in new or "![" not in new


def test_emphasis_does_not_take_the_space_before_a_code():
    assert translate("**Use** `x` **now**\n", "Použij teď") == "**Použij** `x` **teď**\n"


def test_emphasis_within_a_word_uses_stars():
    file = parse("_ab_ cd\n")
    start, end = file.units[0].codes
    assert file.write([Unit("abcd", (start, end))]).decode() == "*ab*cd\n"


def test_line_breaks_and_marks_are_kept():
    for encoding in ("utf-8-sig", "utf-16"):
        data = "# One\r\n\r\nTwo\r\nlines  \r\nmore\r\n".encode(encoding)
        file = read(data, "x.md", ReadConfig())
        assert [unit.text for unit in file.units] == ["One", "Two lines more"]
        assert file.write(file.units) == data
        new = file.write([file.units[0], Unit("Dvě řádky více", ())]).decode(encoding)
        assert new == "# One\r\n\r\nDvě řádky více\r\n"


def test_codes_over_line_breaks():
    text = "> A `code\n> span` and [a\n> link](x) end\\\n> hard.\n"
    new = translate(text, "Ten link konec hard.")
    assert "\\\n> " in new and "`code span`" in new


def test_other_encodings_are_refused():
    with pytest.raises(DocmtError, match="line 1"):
        read("caf\u00e9 au lait".encode("cp1252"), "x.md", ReadConfig())


@pytest.mark.parametrize(
    "piece", ["[", "![", "*a ", "**a_b~~", "`", "<a ", "> ", "- ", "$a", "[a](", "\\", "&", "_a* "]
)
def test_long_texts_take_linear_time(piece):
    parse(piece * 3000)


PIECES = st.sampled_from(
    [
        *"*_`~[]()<>!\\\n#-+|$&: ",
        "word",
        "two words",
        "\n\n",
        "\n> ",
        "\n- ",
        "\n1. ",
        "**",
        "](x)",
        "  \n",
        "[^1]",
        "<b>",
        "é",
    ]
)


@check_files(st.lists(PIECES, max_size=25).map("".join))
def test_generated_files(text):
    parse(text)


@check_files(
    st.lists(
        st.sampled_from([*"*_`~[]()<>!\\#-+|$&:. 1a", "word ", "&lt;", "https://a_b_c ", "**", "{.a}"]), max_size=15
    )
)
def test_written_texts_are_read_again(pieces):
    text = " ".join(("Ťéxt " + "".join(pieces)).split())
    file = parse("- Some text\n")
    assert texts(file.write([Unit(text)]).decode()) == [text]
    text = " ".join(("".join(pieces) + " Ťéxt").split())
    assert texts(file.write([Unit(text)]).decode()) == [text]


@NEEDS_FILES
@pytest.mark.parametrize("path", find_files("md"), ids=lambda path: path.name)
def test_real_files(path):
    data = path.read_bytes()
    file = read(data, str(path), ReadConfig())
    assert file.write(file.units) == data
    new = [project_codes(unit, [Passage(0, len(unit.text), unit.text.translate(VOWELS))])[0] for unit in file.units]
    again = read(file.write(new), str(path), ReadConfig())
    assert [unit.text for unit in again.units] == [unit.text for unit in new]


@pytest.mark.full
def test_mutants():
    for file in read_mutants(lambda data: read(data, "x.md", ReadConfig(("title",))), BLOCKS.encode()):
        file.write([Unit("Ťéxt <&*", unit.codes[:0]) for unit in file.units])


LINES = """\
---
title: A page
---
# The page

Before. After.
```python
print("no")
```

| Head | Line |
|------|:----:|
| cell | cell |
Text again | with a bar.

* A list.

  ~~~
  code
  ~~~
<!-- a
comment --> more
<div>
html

Text <b>with</b> tags. <https://example.org>

[name]: https://example.org "Title"
[^1]: A note.

~~~
open to the end
"""


def test_kinds_of_lines():
    lines = Counter()
    for block in find_blocks(LINES):
        lines[block.kind] += LINES.count("\n", block.start, block.end)
    assert lines == {"front matter": 3, "code": 8, "tables": 4, "HTML": 4, "link definitions": 1}
    document = Document.from_text(LINES, verbatim=[(block.start, block.end) for block in find_blocks(LINES)])
    assert document.text() == LINES
    assert document.sentences == (
        *("The page", "Before.", "After.", "A list.", "Text <b>with</b> tags.", "<https://example.org>"),
        "[^1]: A note.",
    )


@given(
    st.lists(
        st.sampled_from(
            ["```", "~~~", "````x", "> ```", "- ~~~", "|a|b|", "|-|-|", "<p>", "<!--", "-->", "[a]: b", "---", ""]
        )
        | st.text("ab|<>-`~ ", max_size=6),
        max_size=15,
    )
)
@example(["---", "a"])
@example(["|a|", "|-|"])
def test_blocks_are_whole_lines_in_order(lines):
    text = "\n".join(lines)
    for spans in (find_fenced_code(text), [(block.start, block.end) for block in find_blocks(text)]):
        position = 0
        for start, end in spans:
            assert position <= start < end <= len(text)
            assert start == 0 or text[start - 1] == "\n"
            assert end == len(text) or text[end - 1] == "\n"
            position = end
        document = Document.from_text(text, verbatim=spans)
        assert document.text() == text
        for start, end in document.spans():
            assert not any(start < after and before < end for before, after in spans)
