"""Markdown of site generators, Pandoc and Obsidian: markup is codes or whole lines, and the text in it is read."""

import pytest
from test_markdown_texts import VOWELS, contents, parse, texts, translate

from docmt.formats.markdown_inline import read_markup
from docmt.formats.units import Unit


@pytest.mark.parametrize("entry", read_markup("singles"), ids=lambda entry: entry["name"])
def test_each_kind_of_code_finds_its_examples_and_nothing_that_looks_alike(entry):
    for example in entry["examples"]:
        for text in (f"The report {example} is *good*.", f"- See {example}"):
            assert example in [code.content.strip() for code in parse(text).units[0].codes], text
    for other in entry["others"]:
        assert not any(other in code.content for code in parse(f"The report {other} is.").units[0].codes), other


@pytest.mark.parametrize("entry", read_markup("blocks"), ids=lambda entry: f"{entry['kind']} {entry['example'][:9]}")
def test_each_kind_of_block_is_kept_and_reported(entry):
    text = f"One text.\n\n{entry['example']}\n\nTwo texts.\n"
    file = parse(text)
    assert [unit.text for unit in file.units] == ["One text.", "Two texts."]
    assert file.skipped[0].reason == entry["kind"]
    assert translate(text, "A", "B") == text.replace("One text.", "A").replace("Two texts.", "B")


@pytest.mark.parametrize(
    "address",
    [
        *("https://x.eu/~a/b", "https://x.eu/path_(x)", "https://x.eu/[x]", "https://x.eu/a_b_", "http://x.eu/*a*/y"),
        *("www.x.eu/~a", "https://x.eu/?a=1&copy=2&amp;b=3", "https://x.eu/\\~a", "https://x.eu/a==b==c^d^", "~/a_b/c"),
        *("_a_b@x.eu", "C:\\Users\\a.txt", "docs/__init__.py", "https://x.eu/{a}/$b$", "https://x.eu/@a/:smile:"),
    ],
)
def test_addresses_and_paths_have_no_backslashes(address):
    for text in (f"See {address} now.\n", f"- **See {address}**\n", f"| See ({address}). |\n|---|\n"):
        file = parse(text)
        assert address in file.units[0].text
        assert address in file.write([Unit(f"Viz {address} teď.")]).decode()


def test_marks_of_emphasis_around_addresses_are_no_part_of_them():
    assert contents("*https://x.eu/a_b* **https://x.eu/~a** [https://x.eu/c](https://x.eu/d)") == (
        "https://x.eu/a_b https://x.eu/~a https://x.eu/c",
        ["*", "*", "**", "**", "[", "](https://x.eu/d)"],
    )


@pytest.mark.parametrize(
    ("source", "text", "codes"),
    [
        ("a ==b== c == d", "a b c == d", ["==", "=="]),
        ("see [[Page|the page]] now", "see the page now", ["[[Page|", "]]"]),
        ("see [[Page]] and [[Page#part]]", "see Page and ", ["[[Page|", "]]", "[[Page#part]]"]),
        ("see ![[x.png|100]] now", "see now", ["![[x.png|100]]"]),
        ("see [[1]](x.md)", "see [1]", ["[", "](x.md)"]),
        ("5 m^2^ of CO~2~ or H~2~O", "5 m of CO or H2O", ["^2^", "~2~", "~", "~"]),
        (
            "good [@a; @b, p. 3] and [see @c] and [@anna](x)",
            "good and and @anna",
            ["[@a; @b, p. 3]", "[see @c]", "[", "](x)"],
        ),
        ("a {% if b %}c{% endif %} d", "a c d", ["{% if b %}", "{% endif %}"]),
        ("a {{< b >}}c{{< /b >}} {{< d >}} e", "a c e", ["{{< b >}}", "{{< /b >}}", "{{< d >}}"]),
        ("a <B c={d} e>f</B> g", "a f g", ["<B c={d} e>", "</B>"]),
        ('[a]({{< ref "b c.md" >}})', "a", ["[", ']({{< ref "b c.md" >}})']),
        ("a [due:: 2024] b", "a b", ["[due:: 2024]"]),
        ("{a.b}/{c.d} it {{ e }}:{{ f }}", "it", ["{a.b}/{c.d}", "{{ e }}:{{ f }}"]),
        ("Use %1$s/%2$s here", "Use %1$s/%2$s here", []),
    ],
)
def test_inline_markup(source, text, codes):
    found = contents(source + "\n")
    assert (" ".join(found[0].split()), found[1]) == (" ".join(text.split()), codes)


def test_links_to_pages_keep_their_target():
    assert translate("See [[The Page]].\n", "Viz Stránka.") == "Viz [[The Page|Stránka]].\n"
    table = "| [[The Page]] | [[a\\|The text]] | {{ x | y }} z |\n|---|---|---|\n"
    assert translate(table, "Stránka", "Text", "Ž") == (
        "| [[The Page\\|Stránka]] | [[a\\|Text]] | {{ x | y }} Ž |\n|---|---|---|\n"
    )


def test_notes_in_the_text_are_units():
    text = "One^[A note\n*of two* lines] two.\n"
    assert texts(text) == ["One two.", "A note of two lines"]
    assert translate(text, "Jedna dvě.", "Pozn o dvou") == "Jedna^[Pozn *o* dvou] dvě.\n"


BOXES = """\
Text before.

!!! note "A *title*"
    The first one.

    The second one.

        code

    ??? tip
        The inner one.

    - item

        of a list

The outer one.

    code

=== "A tab"

    In the tab.

:::tip[A label]
In the div.
:::

::: warning Words here
::::: {.columns}
In the columns.
:::::
:::

> [!NOTE]- A callout
> In the callout.

*[EU]: The meaning
*[UN]: Another one

<Tabs>
  <Tab name="x">
    In the tab too.
  </Tab>
</Tabs>
After it.
{: .lead}

(@) example
#. number

| A line
| of a poem

| a | b |
| c | d |
"""


def test_boxes_hold_paragraphs_and_titles():
    assert texts(BOXES) == [
        *("Text before.", "A title", "The first one.", "The second one.", "The inner one.", "item", "of a list"),
        *("The outer one.", "A tab", "In the tab.", "A label", "In the div.", "Words here", "In the columns."),
        *("A callout", "In the callout.", "The meaning", "Another one", "In the tab too.", "After it."),
        *("example", "number", "A line", "of a poem", "a", "b", "c", "d"),
    ]
    assert [each.text for each in parse(BOXES).skipped if each.reason == "code"] == ["code", "code"]
    new = translate(BOXES, *(text.translate(VOWELS) for text in texts(BOXES)))
    kept = ("!!! note", "??? tip", "=== ", ":::", "    code", "<", "{:", "*[", "> [!", "| ", "(@)", "#.")
    for old_line, line in zip(BOXES.splitlines(), new.splitlines(), strict=True):
        assert line.startswith(next((old_line[: len(mark)] for mark in kept if old_line.startswith(mark)), ""))
        assert len(line) == len(old_line)


@pytest.mark.parametrize(
    "text",
    ["!!! note", '=== "x"', "{{ x }}", "{x}", "a ==b== c", "a^b^", "++x++", "[[x]]", "\\cite{x}", "<% x %>", "| x"],
)
def test_text_does_not_become_markup(text):
    written = parse("- Some text\n").write([Unit(f"{text} slovo")]).decode()
    assert texts(written) == [f"{text} slovo"], written


def test_simple_tables_are_kept_and_reported():
    file = parse("  One    Two\n  -----  -----\n  three  four\n\nText.\n")
    assert [unit.text for unit in file.units] == ["Text."]
    assert [each.reason for each in file.skipped] == ["simple tables"]
    file = parse("One.\n\n-----  -----\nthree  four\n-----  -----\n\nText.\n")
    assert [unit.text for unit in file.units] == ["One.", "Text."]
