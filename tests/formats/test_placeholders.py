"""Placeholders are codes, and the text has no doubled spaces without them."""

import re
from dataclasses import replace
from types import SimpleNamespace

import pytest
from generated_files import check_files
from hypothesis import strategies as st

from docmt.documents.input_formats import FORMATS
from docmt.formats.placeholders import hide_placeholders, is_icu_message, tidy_pieces, tidy_spaces
from docmt.formats.projection import Passage, project_codes
from docmt.formats.readable_units import make_readable
from docmt.formats.unit_documents import SentenceTranslation, UnitDocuments
from docmt.formats.units import Code, ReadConfig, Unit, read_units


def hide(text):
    unit = hide_placeholders(Unit(text))
    assert unit.render() == text
    return unit


@pytest.mark.parametrize(
    ("text", "visible", "contents"),
    [
        ("Deleted %s files", "Deleted files", ["%s "]),
        ("Hello %s", "Hello", [" %s"]),
        ("Hello %s!", "Hello!", [" %s"]),
        ("-%s or /{id}", "- or /", ["%s", "{id}"]),
        ("Hello {\" \"}, { 'a b' }", "Hello,", [' {" "}', " { 'a b' }"]),
        ("%d files", "files", ["%d "]),
        ("Size (%s)", "Size ()", ["%s"]),
        ("%1$s and %(name)s", "and", ["%1$s ", " %(name)s"]),
        ("At %.2f%% of {0} {name!r} {{ name }} ${x} %{y}", "At of", None),
        ("$t(key) is %name%.", "is.", ["$t(key) ", " %name%"]),
        ("100% sure, 50 % of us, 5%", "100% sure, 50 % of us, 5%", []),
        ("One<br/>two \n three\\nfour", "One two three four", ["<br/>", " \n ", "\\n"]),
        (r"Saved in C:\new\table.txt.", "Saved in.", [r" C:\new\table.txt"]),
        (r"\\host\new is full", "is full", [r"\\host\new "]),
        (r"Answer:\nyes or Q:\nWhat", "Answer: yes or Q: What", [r"\n", r"\n"]),
        ("Terms &amp; rules", "Terms rules", ["&amp; "]),
        ("a < b and 3 > 2", "a < b and 3 > 2", []),
        ("Run <file> now", "Run now", ["<file> "]),
        ("Deleted <b>%s</b> files", "Deleted  files", ["<b>", "%s", "</b>"]),
        ("The [b]new[/b] file[s], **bold** `code`", "The new file[s], bold", ["[b]", "[/b]", "**", "**", " `code`"]),
        ("Read `foo' and `bar' 2 ** 3", "Read `foo' and `bar' 2 ** 3", []),
    ],
)
def test_what_is_hidden(text, visible, contents):
    unit = hide(text)
    assert unit.text == visible
    assert contents is None or [code.content for code in unit.codes] == contents


def test_entities_of_letters_and_signs_are_text():
    unit = hide_placeholders(Unit("caf&eacute; in M&#252;nchen&nbsp;&ndash; it doesn&#39;t &lt;&quot;&bogus;&amp;"))
    assert unit.text == "café in München\u00a0– it doesn't"
    assert unit.render() == "café in München\u00a0– it doesn't &lt;&quot;&bogus;&amp;"
    names = "&notifications; &timestamp; &copyright; &#123;name&#125; &#37;s &#124; &#64;me &#92;n &ltr; &#1; &shy;"
    unit = hide_placeholders(Unit(f"All {names} of it"))
    assert unit.text == "All names me n of it" and unit.render() == f"All {names} of it"


def test_tags_are_pairs():
    unit = hide('Read <a href="x[0]">the <b>manual</b></a> or <0>ask</0>.')
    assert unit.text == "Read the manual or ask."
    pairs = [(code.kind, code.content, code.can_copy) for code in unit.codes]
    assert pairs[0] == ("open", '<a href="x[0]">', False)
    assert pairs[1] == ("open", "<b>", True)
    assert [kind for kind, _, _ in pairs] == ["open", "open", "close", "close", "open", "close"]


def test_many_tags_in_brackets_take_linear_time():
    assert hide("[b]" * 20_000).text.startswith("[b]")


def test_codes_of_the_unit_stay():
    unit = Unit(
        "a b", (Code(0, "open", "1", "*"), Code(1, "single", "2", "|", is_space=True), Code(3, "close", "1", "*"))
    )
    assert hide_placeholders(unit) == unit


def test_messages_with_branches():
    assert is_icu_message("{n, plural, one {# file} other {# files}}")
    assert is_icu_message("{ who ,select, other{x}}")
    assert not is_icu_message("{n, number} {0}")


@pytest.mark.parametrize(
    ("source", "target", "rendered"),
    [
        ("Deleted %s files", "Smazáno souborů", "Smazáno %s souborů"),
        ("Hello %s", "Ahoj", "Ahoj %s"),
        ("%s files", "souborů", "%s souborů"),
    ],
)
def test_translations_have_their_spaces(source, target, rendered):
    unit = hide(source)
    new, _ = project_codes(unit, [Passage(0, len(unit.text), target)])
    assert tidy_spaces(new).render() == rendered


def test_a_space_goes_to_the_side_that_needs_it():
    code = Code(0, "single", "1", "%s ")
    assert tidy_spaces(Unit("ab cd", (Code(5, "single", "1", "%s "),))).render() == "ab cd %s"
    assert tidy_spaces(Unit("ab cd", (Code(2, "single", "1", "%s "),))).render() == "ab %s cd"
    assert tidy_spaces(Unit("ab cd", (Code(3, "single", "1", " %s"),))).render() == "ab %s cd"
    assert tidy_spaces(Unit("", (code,))).render() == "%s"


PIECES = st.sampled_from(
    [
        *"ab .,!%{}<>&\\\n\t()",
        "word",
        "  ",
        "%s",
        "%%",
        "{0}",
        "{{x}}",
        "<b>",
        "</b>",
        "<a href='x'>",
        "</a>",
        "<br>",
        "\\n",
    ]
)


@check_files(st.lists(PIECES, max_size=15).map("".join))
def test_unchanged_units_render_exactly(text):
    hide(text)


def test_placeholders_side_by_side_stay_so():
    unit = hide("It is %d%% done")
    assert [code.content for code in unit.codes] == ["%d", "%% "]
    (first, last), text = unit.codes, "C'est fait"
    for offset, rendered in (
        (5, "C'est %d%% fait"),
        (6, "C'est %d%% fait"),
        (10, "C'est fait %d%%"),
        (0, "%d%% C'est fait"),
    ):
        codes = tuple(replace(code, offset=offset) for code in (first, last))
        assert tidy_spaces(Unit(text, codes)).render() == rendered
    codes = tuple(replace(code, offset=5) for code in hide("Copy %s to %s").codes)
    assert tidy_spaces(Unit("Copié", codes)).render() == "Copié %s %s"


@pytest.mark.parametrize(
    ("suffix", "source", "text", "offset", "expected"),
    [
        ("markdown", "Use `a` here.\n", "Hier nutzen.", 4, "Hier `a` nutzen.\n"),
        ("markdown", "It is `a`, and so.\n", "So, ist es.", 4, "So, `a` ist es.\n"),
        ("markdown", "Not the`a`s.\n", "Die s.", 4, "Die `a`s.\n"),
        ("html", "<p>It is <code>a</code>, so.</p>", "Es ist.", 3, "<p>Es <code>a</code> ist.</p>"),
        ("html", "<p>Use <code>a</code> here.</p>", "Hier. Nutzen", 5, "<p>Hier. <code>a</code> Nutzen</p>"),
    ],
)
def test_code_of_running_text_does_not_touch_words(suffix, source, text, offset, expected):
    file = read_units(FORMATS[suffix], source.encode(), "x")
    (unit,) = file.units
    moved = replace(unit, text=text, codes=(replace(unit.codes[0], offset=offset),))
    assert file.write([moved]).decode() == expected


def test_placeholders_touch_no_letter_where_the_source_has_none():
    source = hide_placeholders(Unit("Could not read “%s”: now"))
    moved = Unit("Illisible: n'a", codes=(replace(source.codes[0], offset=11),))
    assert tidy_pieces(source, moved).render() == "Illisible: %s n'a"


@pytest.mark.parametrize(
    ("text", "visible", "contents"),
    [
        ("Open @@A. B@@ now", "Open @@A. B@@ now", []),  # it is protected in its sentence
        ("Open @@A %s. <b>B</b>@@ now", "Open now", ["@@A %s. <b>B</b>@@ "]),
        ("Open @@A\\nB@@ %d", "Open", [r" @@A\nB@@ ", "%d"]),
        ("Open @@&eacute;@@ now", "Open now", ["@@&eacute;@@ "]),
    ],
)
def test_patterns_of_the_user_are_codes_if_they_have_placeholders_inside(text, visible, contents):
    unit = hide_placeholders(Unit(text), protect=["@@.*?@@"])
    assert unit.render() == text
    assert (unit.text, [code.content for code in unit.codes]) == (visible, contents)


@pytest.mark.parametrize(
    ("suffix", "data"),
    [
        ("po", 'msgid ""\nmsgstr ""\n\nmsgid "Open @@%s. A@@ now"\nmsgstr ""\n'),
        ("po", 'msgid ""\nmsgstr ""\n\n#: x.rst:1\nmsgid "Open @@%s. A@@ now"\nmsgstr ""\n'),
        ("xliff", '<xliff version="1.2"><file source-language="en" original="x" datatype="x"><body><trans-unit id="1">'
         "<source>Open @@%s. A@@ now</source></trans-unit></body></file></xliff>"),
        ("json", '{"a": "Open @@%s. A@@ now"}'),
        ("tsv", "a\nOpen @@%s. A@@ now\n"),
        ("strings", "a=Open @@%s. A@@ now\n"),
    ],
)  # fmt: skip
def test_formats_of_messages_know_the_patterns_of_the_user(suffix, data):
    name = {"strings": "x.properties"}.get(suffix, "x")
    file = read_units(FORMATS[suffix], data.encode(), name, ReadConfig(("a",), protect=("@@.*?@@",)))
    assert [code.content for unit in file.units for code in unit.codes] == ["@@%s. A@@ "]


@pytest.mark.parametrize(
    ("text", "forms"),
    [
        ("{0} No cars|{1} one car|[2,*] :count cars", ["No cars", "one car", "cars"]),
        ("[-Inf,0] none | [1,Inf[ many cars", ["none", "many cars"]),
        ("{0}none|{1}one car|[2,*]:count cars", ["none", "one car", "cars"]),
        ("one car|:count cars", ["one car", "cars"]),
        ("%count% car|%count% cars", ["%count% car", "%count% cars"]),
        ("No cars yet.|All the cars.", ["No cars yet.", "All the cars."]),
        ("It is {{ name | upper }} a|b", ["It is {{ name | upper }} a|b"]),
    ],
)
def test_plural_forms_are_sentences(text, forms):
    unit = hide(text)
    file = UnitDocuments(SimpleNamespace(units=[unit], document_starts=[0]), "en")
    assert list(file.documents[0].sentences) == forms
    new = [SentenceTranslation(re.sub(r"\b(?!count|name|upper)\w", "W", form)) for form in forms]
    assert re.findall(r"[|]|[{[][^a-z]*?[\]}[]|:count|%count%", file.translate([new]).units[0].render()) == re.findall(
        r"[|]|[{[][^a-z]*?[\]}[]|:count|%count%", text
    )


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("one: a day|many: %count% days", ["a day", "%count% days"]),
        ("zero:No day|one:One day|more:%count% days", ["No day", "One day", "%count% days"]),
        ("{0} no days|one: a day|]1,Inf[ %count% days", ["no days", "a day", "%count% days"]),
        ("no days|one day|many days", ["no days", "one day", "many days"]),
        ("This house is good.|These houses are good.", ["This house is good.", "These houses are good."]),
        ("Use |name| or P(a|b) here", ["Use |name| or P(a|b) here"]),
        ("Note: this|that", ["Note: this", "that"]),
    ],
)
def test_plural_forms_of_a_message_are_sentences_of_their_own(text, sentences):
    readable = make_readable(hide(text))
    assert [readable.unit.text[start:end] for start, end in readable.find_sentences("en")] == sentences


@pytest.mark.parametrize(
    ("text", "visible", "contents"),
    [
        ("It is {hours}:{minutes} now", "It is now", ["{hours}:{minutes} "]),
        ("Copy {a}/{b}/{c}", "Copy", [" {a}/{b}/{c}"]),
        ("Read {a}, {b}.", "Read,.", [" {a}", " {b}"]),
        ("A {n}-day trip", "A -day trip", ["{n}"]),
        ("The {a}red house{b} is", "The red house is", ["{a}", "{b}"]),
        ("A &lt;b&gt;red&lt;/b&gt; house", "A red house", ["&lt;b&gt;", "&lt;/b&gt;"]),
        ("The {name}'s item/{id} is the {n}th", "The's item/ is the th", [" {name}", "{id}", "{n}"]),
        ("&Open :name's %s", "Open's", ["&", " :name", " %s"]),
    ],
)
def test_placeholders_that_are_parts_of_words_or_belong_together(text, visible, contents):
    unit = hide(text)
    assert (unit.text, [code.content for code in unit.codes]) == (visible, contents)


@pytest.mark.parametrize("text", ["{a}-b ", "one: a|", "&lt;b ", "{a}:"])
def test_long_messages_take_linear_time(text):
    assert hide(text * 3_000).render() == text * 3_000
