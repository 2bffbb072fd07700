"""HTML pages: units, codes, attributes, charsets, languages, and pages that browsers forgive."""

import re

import pytest
from generated_files import check_files, read_mutants
from hypothesis import strategies as st
from real_files import NEEDS_FILES, find_files

from docmt.core.errors import DocmtError
from docmt.formats.html_pages import read, read_fragment
from docmt.formats.projection import Passage, project_codes
from docmt.formats.units import ReadConfig, Skipped, TagRules, Unit

ACCENTS = str.maketrans("aeiouAEIOU", "áéíóúÁÉÍÓÚ")


def read_page(page, **config):
    data = page if isinstance(page, bytes) else page.encode()
    file = read(data, "x.html", ReadConfig(**config))
    assert file.write(file.units) == data
    return file


def texts(page, **config):
    return [unit.text for unit in read_page(page, **config).units]


def write(page, *new, language="", **config):
    """Write a page with other texts: their codes go to the same characters."""
    file = read_page(page, **config)
    units = [Unit(text, unit.codes, unit.id) for text, unit in zip(new, file.units, strict=True)]
    return file.write(units, language).decode()


def accent(unit):
    return Unit(unit.text.translate(ACCENTS), unit.codes, unit.id)


def check_pseudo(file):
    new = [accent(unit) for unit in file.units]
    again = read(file.write(new), "x.html", ReadConfig())
    assert [unit.text for unit in again.units] == [unit.text for unit in new]


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ("<p>One <b>two</b>\n  three</p><p>Four", ["One two three", "Four"]),
        ("<ul><li>One<li>Two <ul><li>Three</ul>Four</ul>", ["One", "Two", "Three", "Four"]),
        ("<table><tr><td>A<td>B<tr><td>C</table>D", ["A", "B", "C", "D"]),
        ("</p>One</div>Two<p>", ["One", "Two"]),
        ("a < b and 1<2 &amp c", ["a < b and 1<2 & c"]),
        ("Tom &amp; Jerry&#39;s &eacute;&nbsp;x", ["Tom & Jerry's é\xa0x"]),
        ("<script>if (a < b) x = '<p>no</p>'</script><p>Yes", ["Yes"]),
        ("<style>p > a {}</style><!-- <p>no --><p>Yes", ["Yes"]),
        ("<title>A <b> & c</title><p>Yes", ["A <b> & c", "Yes"]),
        ("<!doctype html><?php x ?><p>Yes<![CDATA[no]]>", ["Yes"]),
        ("<p>one<!-- never closed <p>two", ["one"]),
        ("<p>one <a href='x", ["one"]),
        ("<p>one</p", ["one"]),
        ("<p>One<!-->two<!--->three", ["Onetwothree"]),
        ("<p>One<!--a--!>two", ["Onetwo"]),
        ("<script/>no</script><p>Yes", ["Yes"]),
        ("<script>no</script x><p>Yes", ["Yes"]),
        ("<p>1 2 3</p><p>&nbsp;</p><p>---", []),
        ("<button>Save</button><select><option>A<option>B</select>", ["Save", "A", "B"]),
        ("<details><summary>More</summary>Text</details>", ["More", "Text"]),
        ("<svg><title/><text>no</text></svg><p>Yes", ["Yes"]),
        ("<svg/><p>Yes", ["Yes"]),
        ("<p>one<![foo]>two", ["onetwo"]),
        ("", []),
        ("<", []),
        ("</>x<>y", ["x<>y"]),
        ("a &# b &#; c &#y <b>d</b>&#<p>e &am", ["a &# b &#; c &#y d&#", "e &am"]),
    ],
)
def test_units_end_at_blocks(page, expected):
    assert texts(page) == expected


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ("One sentence that goes on<br>over more than one line of a page.", 1),
        ("Roses are red,<br>violets are blue", 1),
        ("A<br>\n<br/>B", 2),
        ("Mr Smith<br>12 Long Street<br>Townsville", 3),
        ("A<br><!-- c --> <br>B", 2),
        ("<b>One</b><br>", 1),
        ("<br>One long line of more than forty characters<br>two", 1),
        ("<a href=a>Home</a> | <a href=b>About us</a> | <a href=c>Help</a>", 3),
        ("<a href=a>Home</a> <a href=b>About us</a>", 2),
        ("See <a href=a>one</a>, <a href=b>two</a>", 1),
        ("<a href=a>Home</a> &gt; <a href=b>About</a> &gt; Shoes", 3),
        ("<a href=a>Home</a> / <a href=b>About</a>", 2),
        ("<a href=a>One</a> and <a href=b>two</a> > three", 1),
        ("You are here: <a href=a>Home</a> » <a href=b>About</a>", 2),
        ("<span><a href=a>Home</a></span> <span><a href=b>About</a></span>", 2),
    ],
)
def test_line_breaks_and_menus(page, expected):
    file = read_page(page)
    assert len(file.units) == expected
    assert len(read_page(file.write([accent(unit) for unit in file.units])).units) == expected


def test_separators_of_menus_stay():
    page = "[ <b><a href=a>Home</a></b> | <a href=b>About <i>us</i></a> ]"
    assert texts(page) == ["Home", "About us"]
    assert write(page, "Haus", "About us") == page.replace("Home", "Haus")


def test_codes():
    (unit,) = read_page(
        "<p>A <b>bold <i>x</i></b> <a href='u'>link</a>,<br>see <img src=i> and <code>f()</code>."
    ).units
    assert unit.text == "A bold x link, see and ."
    codes = [(code.kind, code.content, code.can_copy, code.is_space) for code in unit.codes]
    assert codes == [
        ("open", "<b>", True, False),
        ("open", "<i>", True, False),
        ("close", "</i>", True, False),
        ("close", "</b>", True, False),
        ("open", "<a href='u'>", False, False),
        ("close", "</a>", False, False),
        ("single", "<br>", True, True),
        ("single", "<img src=i> ", True, False),
        ("single", "<code>f()</code>", True, False),
    ]


@pytest.mark.parametrize(
    "page",
    [
        "<p>a <b>b <i>c</b> d</i> e</p>",
        "<p>a <b>b<p>c</b> d",
        "<b><p>a</p></b>c</i>",
        "a <b>b<br><br>c</b> d",
        "a <!--[if IE]><b>x</b><![endif]--> b",
        "<p>a</br>b</p>",
        "<a name=x /><a href=y>a</a> c",
        "<em>a <em>b</em> c</em> d",
    ],
)
def test_tags_that_are_not_nested_stay(page):
    file = read_page(page)
    check_pseudo(file)
    written = file.write([accent(unit) for unit in file.units]).decode()
    assert re.findall("<.*?>", written) == re.findall("<.*?>", page)
    assert re.sub("<.*?>", "", written) != re.sub("<.*?>", "", page)


def test_spaces_after_tags_without_text_stay():
    """Icons of web pages touched the words after them."""
    page = "<p><i class=a></i> One <a><img></a> <b></b> two<i></i> three</p>"
    (unit,) = read_page(page).units
    assert unit.text == "One two three"
    (new, _) = project_codes(unit, [Passage(0, len(unit.text), "Jedna dvě tři")])
    written = read_page(page).write([new]).decode()
    assert written == "<p><i class=a></i> Jedna <a><img></a> <b></b> dvě<i></i> tři</p>"


def test_text_is_escaped():
    assert write("<p>One</p>", 'a <b> & "c"\r') == '<p>a &lt;b&gt; &amp; "c"&#13;</p>'
    assert write("<p>One&nbsp;two</p>", "Un\xa0deux") == "<p>Un&nbsp;deux</p>"
    assert write("<p>One&#160;two</p>", "Un\xa0deux") == "<p>Un&#160;deux</p>"
    assert write("<p>One</p>", "Un\xa0deux") == "<p>Un\xa0deux</p>"
    assert write("<p> One  <b>two</b>\n</p>", "Uno dos") == "<p> Uno <b>dos</b>\n</p>"


@pytest.mark.parametrize(
    ("page", "new", "expected"),
    [
        ('<img alt="A cat">', 'a "b" <c>', '<img alt="a &quot;b&quot; &lt;c&gt;">'),
        ("<img alt='A cat'>", "l'a", "<img alt='l&#39;a'>"),
        ("<img alt=Cat src=x>", "a b", '<img alt="a b" src=x>'),
        ("<img alt=Cat src=x>", "", '<img alt="" src=x>'),
        ('<img alt = " Cat ">', "a", '<img alt = " a ">'),
        ("<div title='Cat'>", "a", "<div title='a'>"),
        ("<input placeholder='Cat'>", "a", "<input placeholder='a'>"),
        ("<nav aria-label='Cat'>", "a", "<nav aria-label='a'>"),
        ("<nav aria-description='Cat'>", "a", "<nav aria-description='a'>"),
        ("<th abbr='Cat'>", "a", "<th abbr='a'>"),
        ("<option label='Cat'>", "a", "<option label='a'>"),
        ("<video><track label='Cat'></video>", "a", "<video><track label='a'></video>"),
        ("<table summary='Cat'>", "a", "<table summary='a'>"),
        ("<input type=submit value='Cat'>", "a", "<input type=submit value='a'>"),
        ("<meta content='Cat' name=Description>", "a", "<meta content='a' name=Description>"),
        ("<meta property='og:title' content='Cat'>", "a", "<meta property='og:title' content='a'>"),
        ("<textarea placeholder='Cat'>no</textarea>", "a", "<textarea placeholder='a'>no</textarea>"),
        (
            "<picture><source srcset=x><img alt='Cat'></picture>",
            "a",
            "<picture><source srcset=x><img alt='a'></picture>",
        ),
    ],
)
def test_attributes(page, new, expected):
    assert write(page, new) == expected


@pytest.mark.parametrize(
    "page",
    [
        "<input value='Cat'>",
        "<input type=hidden value='Cat'>",
        "<meta name=viewport content='width'>",
        "<a href='Cat' class=Cat data-title=Cat>",
        "<img alt>",
        "<img alt=''>",
        "<p translate=no title='Cat'>",
        "<link title='Cat' rel=stylesheet>",
    ],
)
def test_other_attributes_stay(page):
    assert texts(page) == []


def test_attributes_within_text_are_written_with_it_and_without_it():
    page = "<p><img alt='Cat' src=x> See <a title=Dog href=y>it</a> now</p>"
    assert texts(page) == ["See it now", "Cat", "Dog"]
    assert write(page, "Óne ïs now", "C'", "D D") == (
        "<p><img alt='C&#39;' src=x> Óne <a title=\"D D\" href=y>ïs</a> now</p>"
    )
    assert write(page, "See it now", "C", "D") == "<p><img alt='C' src=x> See <a title=\"D\" href=y>it</a> now</p>"
    assert write(page, "Öee it now", "Cat", "Dog") == page.replace("See", "Öee")


def test_what_is_not_translated():
    page = (
        "<pre>a\n b</pre><p>Run <code>x</code> now<p><kbd>Ctrl</kbd><p translate=no>Brand"
        "<p>by <span class='a notranslate'>Brand</span> here<textarea>text</textarea><script>js</script>"
    )
    file = read_page(page)
    assert [unit.text for unit in file.units] == ["Run now", "by here"]
    assert file.skipped == [
        Skipped("code", "a b"),
        Skipped("code", "Ctrl"),
        Skipped('translate="no"', "Brand"),
        Skipped('translate="no"', "Brand"),
        Skipped("text fields", "text"),
    ]


def test_translate_yes_ends_translate_no():
    page = "<div translate=no>One <p translate=yes>Two <b>three</b></p>Four</div><code translate=yes>five</code>"
    file = read_page(page)
    assert [unit.text for unit in file.units] == ["Two three", "five"]
    assert file.skipped == [Skipped('translate="no"', "One"), Skipped('translate="no"', "Four")]


def test_passages_in_other_languages_stay():
    page = "<html lang=en><p>One <i lang=fr>deux</i> three<p lang='de-DE'>Vier<p lang=en-GB>Five</html>"
    file = read_page(page)
    assert [unit.text for unit in file.units] == ["One three", "Five"]
    assert [each.text for each in file.skipped] == ["deux", "Vier"]
    assert file.write(file.units, "cs").decode() == page.replace("lang=en>", 'lang="cs">').replace(
        "lang=en-GB", 'lang="cs"'
    )
    assert len(texts("<p lang=de>Eins<p lang=fr>Deux", source_language="de")) == 1


def test_languages_of_tags_in_changed_text_are_set():
    page = "<html lang=en><p>One <i lang=en title='Tip'>two</i> three"
    assert write(page, "Óne two three", "Tipp", language="de") == (
        '<html lang="de"><p>Óne <i lang="de" title=\'Tipp\'>two</i> three'
    )


@pytest.mark.parametrize(
    ("page", "language", "expected"),
    [
        ("<html><p>x", "cs", '<html lang="cs"><p>x'),
        ("<html class=a>x", "pt_BR", '<html lang="pt-BR" class=a>x'),
        ("<HTML lang='en' xml:lang='en'>x", "cs", "<HTML lang='cs' xml:lang='cs'>x"),
        ("<html lang>x", "cs", '<html lang="cs">x'),
        ('<html lang="en">x', "ar", '<html dir="rtl" lang="ar">x'),
        ('<html lang="ar" dir="rtl">x', "en", '<html lang="en" dir="ltr">x'),
        ('<html lang="en" dir=ltr><body dir="ltr">x', "he-IL", '<html lang="he-IL" dir="rtl"><body dir="rtl">x'),
        ('<html lang="en" dir="auto">x', "ar", '<html lang="ar" dir="auto">x'),
        ('<body lang="en-US"><p lang="en-US">x', "cs", '<body lang="cs"><p lang="cs">x'),
        ("<p>fragment", "cs", "<p>fragment"),
    ],
)
def test_the_language_is_set(page, language, expected):
    file = read_page(page)
    assert file.write(file.units, language).decode() == expected


@pytest.mark.parametrize(
    ("head", "encoding"),
    [
        ("", "utf-8"),
        ("", "utf-8-sig"),
        ("", "utf-16"),
        ("<meta charset=iso-8859-2>", "iso-8859-2"),
        ("<meta charset='ISO-8859-1'>", "cp1252"),
        ("<meta http-equiv='Content-Type' content='text/html; charset=windows-1250'>", "cp1250"),
        ("<!-- <meta charset=koi8-r> --><meta charset=utf-8>", "utf-8"),
        ("<?xml version='1.0' encoding='iso-8859-2'?>", "iso-8859-2"),
        ("<meta charset=utf-16>", "utf-8"),
    ],
)
def test_charsets(head, encoding):
    data = f"{head}<p>ä—".replace("—", "–" if encoding == "cp1252" else "").encode(encoding)
    file = read_page(data)
    assert file.units[0].text.startswith("ä")
    (again,) = read_page(file.write([Unit("ö日")])).units
    assert again.text == "ö日"


def test_bytes_without_characters_are_kept():
    data = b"<meta charset=latin1><p>a\x81\x93b"
    assert read_page(data).units[0].text == "a\x81“b"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"<p>\xff\xe9", "x.html is not text in utf-8"),
        (b"<meta charset=nonsense><p>x", "does not know the charset 'nonsense'"),
        (b"<meta charset=rot13><p>x", "does not know the charset 'rot13'"),
        (b"\xff\xfe<", "x.html is not text in utf-16"),
        (b"<meta charset=iso-2022-jp><p>\x1b(B\x1b(Bx", "would not write"),
    ],
)
def test_broken_charsets_are_refused(data, message):
    with pytest.raises(DocmtError, match=message):
        read(data, "x.html", ReadConfig())


@pytest.mark.full
def test_long_and_deep_pages_are_read_quickly():
    assert len(texts("<b>" * 10_000 + "x" + "</i>" * 10_000)) == 1
    assert len(texts("<div>" * 10_000 + "x")) == 1
    assert len(texts("<p>" + "<a <b " * 3_000)) == 0
    assert len(texts("<b translate=no><i translate=yes>x" * 3_000)) < 100


PIECES = (
    "One |two|\n|&amp;|&nbsp;|é.|<b>|</b>|<i class='x'>|</i>|<a href=x>|</a>|<br>|<p>|</p>|<li>|<td>|<img alt='Cat'>|"
    "<img alt=Dog>|<code>f</code>|<!-- c -->|<span translate=no>No</span>|<script>a<b</script>|<div title='Tip'>|"
    "</div>|<|&|<svg></svg>| "
)


@check_files(st.lists(st.sampled_from(PIECES.split("|")), max_size=25).map("".join))
def test_any_markup_is_kept(page):
    file = read_page(page)
    check_pseudo(file)


@NEEDS_FILES
@pytest.mark.parametrize("path", find_files("html"), ids=lambda path: path.name)
def test_real_pages(path):
    data = path.read_bytes()
    if "MisleadingCharset" in path.name:  # Windows-1256 that says UTF-8
        with pytest.raises(DocmtError, match="is not text in utf-8"):
            read(data, path.name, ReadConfig())
        return
    check_pseudo(read_page(data))


@pytest.mark.full
def test_mutants_are_read_or_refused():
    page = (
        b"<!doctype html><html lang=en><meta charset=windows-1252><title>A title</title><body><p title='Tip'>One <b>two"
        b"</b>,<br>three &amp; <a href='x' title=Tip>four</a>.<!-- c --><script>x</script><svg><g/></svg><ul><li>Five "
        b'<img alt="Cat"><li translate=no>Six</ul><p lang=fr>Deux<pre>code</pre></html>'
    )
    for file in read_mutants(lambda data: read(data, "x.html", ReadConfig()), page):
        check_pseudo(file)


def test_marks_of_notes_are_not_words():
    page = read(
        b'<p>Our question.<sup>1</sup> See this<a href="#n">[2]</a>, or <a href="#m">3</a>.</p>', "x.html", ReadConfig()
    )
    assert [unit.text for unit in page.units] == ["Our question. See this, or."]


def test_texts_of_drawings_are_reported():
    page = "<p>See <svg><style>a {}</style><title>Sales</title><text>First <tspan>year</tspan></text></svg> now.</p>"
    file = read(page.encode(), "x", ReadConfig())
    assert [unit.text for unit in file.units] == ["See now."]
    assert file.skipped == [Skipped("texts of drawings", text) for text in ("Sales", "First", "year")]


@pytest.mark.parametrize(("tag", "can_copy"), [("em", True), ("a", False), ("q", False), ("g", False), ("x-y", False)])
def test_only_formats_are_copied(tag, can_copy):
    units = read_page(f"<p>He <{tag}>saw it there</{tag}></p>").units
    assert [code.can_copy for code in units[0].codes] == [can_copy, can_copy]


def test_the_title_of_a_line_break():
    file = read_page("<p>We waited for him all day,<br title='Tip'>and he came late.</p>")
    assert [unit.text for unit in file.units] == ["We waited for him all day, and he came late.", "Tip"]
    check_pseudo(file)


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ("<p><span>Budget</span><span>Vote</span><span>Report</span>", ["Budget", "Vote", "Report"]),
        ("<p><span>budget</span><span>vote</span>", ["budget", "vote"]),
        ("<p><strong>Date:</strong><span>Monday</span><strong>Place:</strong>", ["Date:", "Monday", "Place:"]),
        ("<p>Tags: <span>Budget</span><span>Vote</span> and more", ["Tags: Budget Vote and more"]),
        ("<p>A <del>bad</del><ins>good</ins> day", ["A good day", "bad"]),
        ("<p>A <ins>good</ins> <s>bad</s> day", ["A good day", "bad"]),
        ("<a href=x><b><span>One</span><span>The second</span></b></a>", ["One", "The second"]),
        ("<p><a href=a>Home</a> / <a href=b>Chairs</a> / <b>Red</b>", ["Home", "Chairs", "Red"]),
        ("<p><a href=a>Home</a> / <a href=b>Chairs</a> / Red", ["Home", "Chairs", "Red"]),
        ("<p>Dear <%= a > b %>, <?php if ($a > 1): ?>you<?php endif ?>", ["Dear , you"]),
        ("<pre translate=yes>A\tB &amp; C\nThe table\n  is\n - one</pre>", ["A", "B & C", "The table is one"]),
        ("<p><b>Note</b>The report <b>it</b>self", ["Note The report itself"]),
        ("<p>See <b>Chapter</b><span>1</span> now", ["See Chapter 1 now"]),
        ("<p><span>First.</span><span>Second.</span>", ["First.", "Second."]),
        ("<p>House<img src=x>Vote <b>to</b><svg/>day", ["House", "Vote to day"]),
        ("<label>Name</label><input><label>Country</label><select><option>x y", ["Name", "Country", "x y"]),
        ("<p>Go <input> and <button>Save</button> it", ["Go", "and", "Save", "it"]),
        ("<p><output>One</output><meter>Two</meter><progress>Three</progress>", ["One", "Two", "Three"]),
        ("<x-item>One</x-item><x-item>Two</x-item>", ["One", "Two"]),
        ("<p>See the <x-tip>big <b>red</b></x-tip> house", ["See the big red house"]),
        ("<x-a>Text <x-list><x-i>one</x-i> <x-i>two</x-i></x-list></x-a>", ["Text", "one", "two"]),
        ("<p translate=no>no<input>no</p>Yes", ["Yes"]),
    ],
)
def test_elements_that_touch_are_apart(page, expected):
    assert texts(page) == expected


@pytest.mark.parametrize(
    "page",
    [
        "<p>H<sub>2</sub>O",
        "<p><i>CO</i><sub>2</sub>",
        "<p><span>T</span>he un<b>believ</b>able <b>Euro</b><i>pean</i> <span>W</span><span>o</span><b>rd</b>",
        "<p><b>Mc</b>Donald J.<b>R</b>. <b>i</b>Phone e.<i>g.</i> <i>w</i><span>ww</span>.<b>eu</b>",
        "<p>at 1<b>2</b>3 <span>12</span><span>30</span>",
        "<p>東京<span>大阪</span><span>京都</span>",
        "<p>Bud<!-- -->get wo<wbr>rd",
    ],
)
def test_parts_of_words_are_not_apart(page):
    assert texts(page) == [re.sub("<!.*?>|<.*?>", "", page)]


@pytest.mark.parametrize(
    "sign",
    [
        '<i class="material-icons">home</i>',
        '<span class="material-symbols-outlined">arrow_forward</span>',
        "<mat-icon>delete</mat-icon>",
        '<span aria-hidden="true">chevron-right</span>',
        '<i class="icon x">×</i>',
        '<a class="anchor" href="#x">#</a>',
        '<a href="/x">¶</a>',
        '<a href="#r1">1</a>',
        '<a href="#r1">[12]</a>',
        '<a href="#r1"><sup>a</sup></a>',
        '<sup><a href="#fn:iv">iv</a></sup>',
        '<a epub:type="noteref" href="n.html#1">3</a>',
        "<sup>*</sup>",
    ],
)
def test_signs_are_codes(sign):
    for page in (f"<p>{sign} The report is good.</p>", f"<p>The report {sign} is good.</p>"):
        (unit,) = read_page(page).units
        assert unit.text == "The report is good."
        assert "".join(code.content for code in unit.codes).strip() == sign


def test_words_that_look_like_signs_are_text():
    page = (
        '<p>In <a href="/y">2019</a> and <a href="#y">2020</a>, <a class="icon" href="x">go</a> <i>home</i> '
        '<span class="icons">Two words</span> <span aria-hidden="true">Read it</span> '
        "<sup>1</sup>/<sub>2</sub> <sup>th</sup>"
    )
    assert texts(page) == ["In 2019 and 2020, go home Two words Read it 1/2 th"]


def test_texts_that_stay_are_reported():
    page = (
        "<meta property=og:site_name content='The site'><template><p>One text</p></template><noframes>Two</noframes>"
        "<object>Three</object><math><mtext>Four</mtext></math><iframe>Five</iframe><video>Six</video><meta name=x>"
    )
    assert [(each.reason, each.text) for each in read_page(page).skipped] == [
        ("names of sites", "The site"),
        ("templates and texts for old browsers", "One text"),
        ("templates and texts for old browsers", "Two"),
        ("fallback texts", "Three"),
        ("formulas", "Four"),
        ("fallback texts", "Five"),
        ("fallback texts", "Six"),
    ]


def read_xml(text, **tags):
    file = read_fragment(text.encode(), "x", ReadConfig(tags=TagRules(**tags)))
    assert file.write(file.units) == text.encode()
    return [unit.text for unit in file.units]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<menu><item>Open</item><item>The report</item><item>No</item></menu>", ["Open", "The report", "No"]),
        ("<doc>\n<title>One</title> <sec><s>Two.</s><s>Three.</s></sec></doc>", ["One", "Two.", "Three."]),
        ("<par>It is <i>a <b>big</b></i> <x id='2'/>thing.</par>", ["It is a big thing."]),
        ("A <g><g>big</g> <g>red</g></g> <title>house</title>", ["A big red house"]),
        ("<par>See: <list><li>One</li><li>Two</li></list></par>", ["See:", "One", "Two"]),
        ("<sec>Head<par>First.</par><par>Second.</par></sec>", ["Head", "First.", "Second."]),
        ("<b>One</b> <i>two</i>", ["One", "two"]),
        ("<source>One</source><link>Two</link><td>Three</td><script>Four</script>", ["One", "Two", "Three", "Four"]),
        ("<x>One <![CDATA[two > <b>]]> three</x>", ["One two > <b> three"]),
        ("<_x>One</_x><été>Two</été><a><b>Three</a>&", ["One", "Two", "Three"]),
        ("Tom & <i/> Jerry <x", ["Tom & Jerry"]),
    ],
)
def test_elements_of_xml_are_units_outside_of_running_text(text, expected):
    assert read_xml(text) == expected


def test_rules_of_tags():
    assert read_xml("<p>One <t>two</t> three</p>", splitting={"t"}) == ["One", "two", "three"]
    assert read_xml("<p>One</p> <p>Two</p>", non_splitting={"p"}) == ["One Two"]
    assert read_xml("<p>One</p> <p>Two</p>", outline=False) == ["One Two"]
    assert read_xml("<d><p>One</p><q>a</q> <q>b</q></d>", outline=False, splitting={"p"}) == ["One", "a b"]


def test_attributes_and_data_that_stay_are_reported():
    page = (
        "<meta name=author content='A name'><meta itemprop=headline content='The vote'><input value='Your name'>"
        "<input type=hidden value=key><p data-tip='Help for you' data-x='{a: b c}'>Text"
        '<script type=\'application/ld+json\'>{"a": "b"}</script>'
    )
    file = read_page(page)
    assert [unit.text for unit in file.units] == ["The vote", "Text"]
    reasons = ["authors", "text fields", "data attributes", "data for search engines"]
    assert [each.reason for each in file.skipped] == reasons


def test_long_attributes_and_templates_take_linear_time():
    assert texts(f'<p data-x="{"a b " * 25_000}=">A lamp.</p>') == ["A lamp."]
    assert len(texts("<p>A lamp. " + "<% " * 30_000 + "</p>")) == 1
    assert texts("<p>A <% if a < b %>lamp.</p>") == ["A lamp."]


@pytest.mark.parametrize(
    ("start", "end"),
    [
        ("{{#if a}}", "{{/if}}"),
        ("{{^a.b}}", "{{/a.b}}"),
        ("{{range .Items}}", "{{end}}"),
        ("{%- if a > 3 -%}", "{%- endif -%}"),
        ("{% for x in y %}", "{% endfor %}"),
        ("<% if a > 3 %>", "<% end %>"),
        ("<% items.each do |x| %>", "<% end %>"),
        ("<% if (a) { %>", "<% } %>"),
        ("<?php while ($a) { ?>", "<?php } ?>"),
        ("[% IF a %]", "[% END %]"),
        ("*|IF:MEMBER|*", "*|END:IF|*"),
    ],
)
def test_tags_of_templates_enclose_what_they_enclosed(start, end):
    file = read_page(f"<p>The {start}old <b>house</b>{end} {{{{ name }}}} is good.</p>")
    (unit,) = file.units
    assert unit.text == "The old house {{ name }} is good."
    links = [(0, 3, 0, 2), (4, 7, 10, 16), (8, 13, 3, 9), (14, 24, 17, 27), (25, 27, 28, 31)]
    passage = Passage(0, len(unit.text), "La maison vieille {{ name }} est bonne.", links)
    (new,), _ = zip(project_codes(unit, [passage]), strict=False)
    assert f">La {start}<b>maison</b> vieille{end} {{{{ name }}}} est bonne.<" in file.write([new]).decode()


@pytest.mark.parametrize(
    "page",
    [
        '<a href="{{ f(\'a\', b="c") }}" title="The house {{ x|d("y") }}">The house</a>',
        "<a href={{ a > b }} {% if a > b %}class=x{% endif %}>The house</a>",
        "<option {{#if a>b}}selected{{/if}} value={{ a }}>The house</option>",
        '<img {{ a }} alt="The house" {% if b %}hidden{% endif %}><img {% if a > b %}title="The house"{% endif %}>',
        '<img {{{a}}} class={% if a %}"x"{% else %}"y"{% endif %} alt="The house"><p{{ a }}>The house</p>',
        '<img alt="{% if a > "b" %}The house{% endif %}"><b {# a > b #}>The house</b>',
        """<img alt='<%= a['b'] %> house'><img title='The "house" {{ a &amp; 'b' }} &lt;'>""",
        "<p>{{ a > b && c }} house is &lt; 5</p><option <?php if ($a > 1) ?>selected>The house</option>",
        '<p title="{{ a &amp; b }}, &lt;% c %&gt; house">&lt;%= x %&gt; house, &lt;?= y ?&gt; and <%= z < 1 %></p>',
    ],
)
def test_tags_of_templates_stay_where_they_stand_in_tags_and_texts(page):
    file = read_page(page)
    units = [Unit(unit.text.replace("house", "HOUSE"), unit.codes, unit.id) for unit in file.units]
    assert file.write(units).decode() == page.replace("house", "HOUSE")


def test_tags_of_templates_without_partner_stay_alone():
    assert texts("<p>{{#if a}}</p><p>It {% include 'x' %} is.</p>") == ["It is."]
