"""XHTML pages: the rules of HTML, in XML."""

from dataclasses import replace

import pytest
from generated_files import check_files, read_mutants
from hypothesis import strategies as st

from docmt.core.errors import DocmtError
from docmt.formats.html_pages import read_xhtml as read
from docmt.formats.units import ReadConfig, Skipped, Unit

HEAD = '<?xml version="1.0" encoding="utf-8"?>\n<html xmlns="http://www.w3.org/1999/xhtml">'
ACCENTS = str.maketrans("aeiouAEIOU", "áéíóúÁÉÍÓÚ")


def read_page(page, **config):
    data = page if isinstance(page, bytes) else page.encode()
    file = read(data, "x.xhtml", ReadConfig(**config))
    assert file.write(file.units) == data
    return file


def check_pseudo(file):
    new = [Unit(unit.text.translate(ACCENTS), unit.codes, unit.id) for unit in file.units]
    again = read(file.write(new), "x.xhtml", ReadConfig())
    assert [unit.text for unit in again.units] == [unit.text for unit in new]


def test_units_and_codes():
    page = (
        f"{HEAD}<head><title>Title</title></head><body>"
        "<p>One <b>two</b><br/>\n and <img alt='Cat'/> <code>f</code>.</p>"
        "<p/><![CDATA[<Three>]]><!-- c --><?pi?><svg xmlns='http://www.w3.org/2000/svg'><text>no</text></svg>"
        "<br></br><h:p xmlns:h='http://www.w3.org/1999/xhtml'>Four</h:p><pre>code</pre></body></html>"
    )
    file = read_page(page)
    assert [unit.text for unit in file.units] == ["Title", "One two and .", "Cat", "<Three>", "Four"]
    kinds = [(code.kind, code.content) for code in file.units[1].codes]
    assert kinds == [
        ("open", "<b>"),
        ("close", "</b>"),
        ("single", "<br/>"),
        ("single", "<img alt='Cat'/> "),
        ("single", "<code>f</code>"),
    ]
    assert file.skipped == [Skipped("texts of drawings", "no"), Skipped("code", "code")]
    check_pseudo(file)


def test_text_is_escaped():
    file = read_page(f"{HEAD}<p title='Tip'>One&#160;two</p></html>")
    new = [Unit("it's <a> & \x0bb"), Unit('a\xa0"b" < c')]
    assert [unit.text for unit in file.units] == ["Tip", "One\xa0two"]
    assert file.write(new).decode() == (f"{HEAD}<p title='it&#39;s &lt;a&gt; &amp; b'>a&#160;\"b\" &lt; c</p></html>")


def test_signs_in_tags_of_templates_are_escaped_as_xml_needs_it():
    text = "<p title='{{ c &amp; d }} house'>{{ a &lt; b &amp;&amp; c }} is %s and &lt;%%= x %%&gt;</p></html>"
    file = read_page(HEAD + text % "one")
    new = [replace(unit, text=unit.text.replace("one", "two").replace("house", "home")) for unit in file.units]
    written = file.write(new)
    assert written.decode() == HEAD + (text % "two").replace("house", "home")
    assert len(read(written, "a.xhtml", ReadConfig()).units) == len(new)


def test_entities_of_the_doctype_of_xhtml_are_read():
    doctype = '<!DOCTYPE html PUBLIC "-//W3C//DTD XHTML 1.1//EN" "http://www.w3.org/TR/xhtml11/DTD/xhtml11.dtd">'
    file = read_page(f"{doctype}<html xmlns='http://www.w3.org/1999/xhtml'><p>a&nbsp;&eacute;</p></html>")
    assert [unit.text for unit in file.units] == ["a\xa0é"]
    assert b"<p>b&nbsp;c</p>" in file.write([Unit("b\xa0c")])


@pytest.mark.parametrize(
    ("attributes", "language", "expected"),
    [
        ("", "cs", ' xml:lang="cs"'),
        (' lang="en" xml:lang="en"', "cs", ' lang="cs" xml:lang="cs"'),
        (" xml:lang='en'", "ar", " dir=\"rtl\" xml:lang='ar'"),
    ],
)
def test_the_language_is_set(attributes, language, expected):
    file = read_page(f"<html{attributes}><p>x</p></html>")
    assert file.write(file.units, language).decode() == f"<html{expected}><p>x</p></html>"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"<html><p>One</html>", "x.xhtml, line 1: broken XML"),
        (b"<!DOCTYPE html [<!ENTITY a 'b'>]><html>&a;</html>", "DOCTYPE"),
        (b"<html>" + b"<b>" * 300 + b"</b>" * 300 + b"</html>", "nested deeper"),
        (b"", "broken XML"),
    ],
)
def test_broken_pages_are_refused(data, message):
    with pytest.raises(DocmtError, match=message):
        read(data, "x.xhtml", ReadConfig())


TREES = st.recursive(
    st.sampled_from(
        ["One ", "two", " ", "\n", "&amp;", "é.", "<br/>", "<img alt='Cat'/>", "<code>f</code>", "<!-- c -->", "<p/>"]
    ),
    lambda inner: st.tuples(
        st.sampled_from(["p", "b", "i", "a", "li", "div", "span translate='no'", "div title='Tip'"]),
        st.lists(inner, max_size=4),
    ).map(lambda pair: f"<{pair[0]}>{''.join(pair[1])}</{pair[0].split()[0]}>"),
    max_leaves=20,
)


@pytest.mark.full
@check_files(TREES)
def test_any_tree_is_kept(tree):
    check_pseudo(read_page(f"{HEAD}<body>{tree}</body></html>"))


@pytest.mark.full
def test_mutants_are_read_or_refused():
    page = f"{HEAD}<p title='Tip'>One <b>two</b>,<br/>three &amp; <a href='x'>four</a>.<!-- c --></p><p>é</p></html>"
    for file in read_mutants(lambda data: read(data, "x.xhtml", ReadConfig()), page.encode()):
        check_pseudo(file)
