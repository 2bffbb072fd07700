"""OpenDocument files: what is a unit, what is a code, what stays, and what a changed file holds."""

import io
import random
import re
import zipfile

import docx
import pytest
from generated_files import check_files, mutate
from hypothesis import strategies as st
from pptx import Presentation
from real_files import NEEDS_FILES, find_files

from docmt.core.errors import DocmtError
from docmt.documents.input_formats import FORMATS
from docmt.formats.open_documents import OpenDocumentFile, read
from docmt.formats.projection import Passage, project_codes
from docmt.formats.units import ReadConfig, Unit, UnitFile, read_units

OASIS = "urn:oasis:names:tc:opendocument:xmlns:"
SPACES = " ".join(
    [
        *(
            f'xmlns:{name}="{OASIS}{name}:1.0"'
            for name in ("office", "text", "table", "style", "presentation", "chart")
        ),
        f'xmlns:draw="{OASIS}drawing:1.0" xmlns:fo="{OASIS}xsl-fo-compatible:1.0"',
        f'xmlns:svg="{OASIS}svg-compatible:1.0" xmlns:dc="http://purl.org/dc/elements/1.1/"',
        'xmlns:xlink="http://www.w3.org/1999/xlink" xmlns:officeooo="http://openoffice.org/2009/office"',
    ]
)
ACCENTS = str.maketrans("aeiouAEIOU", "áéíóúÁÉÍÓÚ")


def content(body, kind="text", styles=""):
    automatic = f"<office:automatic-styles>{styles}</office:automatic-styles>"
    return (
        f'<?xml version="1.0" encoding="UTF-8"?>\n<office:document-content {SPACES}>{automatic}'
        f"<office:body><office:{kind}>{body}</office:{kind}></office:body></office:document-content>"
    )


def pack(body, kind="text", styles="", **members):
    """Return a package. members: further files, their names with __ for / and _ for a dot."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("mimetype", f"application/vnd.oasis.opendocument.{kind}", zipfile.ZIP_STORED)
        for name, data in members.items():
            file.writestr(name.replace("__", "/").replace("_", "."), data)
        file.writestr("content.xml", content(body, kind, styles))
        file.writestr("META-INF/manifest.xml", "<manifest/>")
    return buffer.getvalue()


def load(data, path="x.odt") -> UnitFile:
    return read(data, path, ReadConfig())


def texts(data):
    return [unit.text for unit in load(data).units]


def member(data, name="content.xml"):
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        assert file.testzip() is None
        return file.read(name).decode()


def pseudo(unit):
    return Unit(unit.text.translate(ACCENTS), unit.codes, unit.id)


def change(data, language=""):
    """Return the package with all units pseudo-translated."""
    file = load(data)
    return file.write([pseudo(unit) for unit in file.units], language)


def body_of(data):
    found = re.search(r"<office:body><office:\w+>(.*)</office:\w+></office:body>", member(data), re.DOTALL)
    assert found
    return found[1]


def skipped(data):
    return [(each.reason, each.text) for each in load(data).skipped]


SPAN = '<text:span text:style-name="{0}">{1}</text:span>'
BOLD = (
    '<style:style style:name="{0}" style:family="text">'
    '<style:text-properties fo:font-weight="bold" officeooo:rsid="{1}"/></style:style>'
)
PLAIN = (
    '<style:style style:name="{0}" style:family="text">'
    '<style:text-properties fo:language="en" officeooo:rsid="1"/></style:style>'
)


def test_paragraphs_and_headings_are_units_in_order():
    data = pack("<text:h>One</text:h><text:list><text:list-item><text:p>two</text:p></text:list-item></text:list>"
                "<text:section><text:p>12 %</text:p><text:p/><text:p>three</text:p></text:section>")  # fmt: skip
    assert texts(data) == ["One", "two", "three"]
    assert body_of(change(data)).startswith("<text:h>Óné</text:h>")


def test_white_space_collapses_and_markup_characters_are_escaped():
    data = pack("<text:p>\n  One &lt;\n two </text:p>")
    file = load(data)
    assert file.units[0].text == "One < two "
    assert body_of(file.write([Unit("a & b  c\td\n<e>")])) == (
        "<text:p>a &amp; b <text:s/>c<text:tab/>d<text:line-break/>&lt;e&gt;</text:p>"
    )


def test_spaces_tabs_and_breaks_separate_words():
    body = '<text:p><text:s text:c="4"/>One<text:tab/>two<text:line-break/>three<text:s/>four <text:s/>five</text:p>'
    assert texts(pack(body)) == ["One two three four five"]
    new = body_of(change(pack(body)))
    assert new == (
        '<text:p><text:s text:c="4"/>Óné<text:tab/>twó<text:line-break/>thréé<text:s/>fóúr <text:s/>fívé</text:p>'
    )


def test_a_space_on_both_sides_of_a_field_is_kept():
    body = "<text:p>See <text:chapter>chapter</text:chapter> for <text:page-number>3</text:page-number>.</text:p>"
    assert texts(pack(body)) == ["See for ."]
    assert body_of(change(pack(body))) == body.replace("See", "Séé").replace("for", "fór")
    unit = load(pack(body)).units[0]
    translated, missing = project_codes(unit, [Passage(0, len(unit.text), "Siehe für .")])
    assert not missing
    assert translated.render().startswith("Siehe <text:chapter>chapter</text:chapter> für <text:page-number>")


def test_labels_of_forms():
    button = f'<form:button xmlns:form="{OASIS}form:1.0" form:name="b1" form:label="{{}}"/>'
    data = pack(f"<office:forms>{button.format('Send &amp; close')}{button.format('12')}</office:forms>")
    assert texts(data) == ["Send & close"]
    new = load(data).write([Unit('"Weg" & zu')])
    assert 'form:name="b1" form:label="&quot;Weg&quot; &amp; zu"' in member(new)


def test_texts_about_tables_and_messages_of_rules_are_units():
    body = (
        '<table:content-validation><table:help-message table:title="Help"><text:p>Write it</text:p>'
        "</table:help-message></table:content-validation><table:table><table:title>A table</table:title>"
        "<table:desc>Of votes</table:desc>"
        "<table:table-row><table:table-cell><text:p>Open it</text:p></table:table-cell></table:table-row></table:table>"
        '<table:filter-condition table:value="Open it"/><table:filter-condition table:value="Gone"/>'
    )
    data = pack(body, "spreadsheet")
    assert texts(data) == ["Help", "Write it", "A table", "Of votes", "Open it"]
    assert [(each.reason, each.text) for each in load(data).skipped] == [("criteria of filters", "Gone")]
    file = load(data)
    new = member(file.write([*file.units[:4], Unit('Ouvrez "ça"')]))
    assert 'table:value="Ouvrez &quot;ça&quot;"' in new and 'table:value="Gone"' in new


def test_texts_of_fields_and_tips_are_reported():
    body = (
        '<text:p><text:a office:title="A tip">Link</text:a> <text:drop-down text:help="Choose">One way</text:drop-down>'
        '<text:conditional-text text:string-value-if-true="So it is">x</text:conditional-text>'
        '<text:toc-mark text:string-value="An entry"/></text:p>'
    )
    assert [(each.reason, each.text) for each in load(pack(body)).skipped] == [
        ("tips of links", "A tip"),
        ("help texts of form fields", "Choose"),
        ("texts of fields", "One way"),
        ("field instructions", "So it is"),
        ("texts of fields", "x"),
        ("entries of indexes", "An entry"),
    ]


def test_spans_are_pairs_and_equal_formats_are_one():
    styles = BOLD.format("T1", "0001") + BOLD.format("T2", "0002") + PLAIN.format("T3")
    spans = [SPAN.format(name, text) for name, text in (("T1", "Bo"), ("T2", "ld"), ("T3", "nd "), ("T2", "b"))]
    body = "<text:p>{}{} a{}{}</text:p>".format(*spans)
    unit = load(pack(body, styles=styles)).units[0]
    assert unit.text == "Bold and b"
    assert [(code.offset, code.kind, code.id) for code in unit.codes] == [
        (0, "open", "1"), (4, "close", "1"), (9, "open", "1"), (10, "close", "1")
    ]  # fmt: skip
    new = body_of(change(pack(body, styles=styles)))
    assert new == f"<text:p>{SPAN.format('T1', 'Bóld')} ánd {SPAN.format('T2', 'b')}</text:p>"


def test_a_span_in_one_of_equal_format_is_no_pair():
    body = f"<text:p>{SPAN.format('Emphasis', 'a ' + SPAN.format('Emphasis', 'b') + ' c')}</text:p>"
    assert len(load(pack(body)).units[0].codes) == 2
    assert body_of(change(pack(body))) == f"<text:p>{SPAN.format('Emphasis', 'á b c')}</text:p>"


def test_a_link_is_not_copied():
    unit = load(pack('<text:p>See <text:a xlink:href="http://x/?a&amp;b">our page</text:a>.</text:p>')).units[0]
    assert unit.text == "See our page."
    assert [code.can_copy for code in unit.codes] == [False, False]
    assert unit.codes[0].content == '<text:a xlink:href="http://x/?a&amp;b">'


@pytest.mark.parametrize(
    "mark",
    [
        '<text:bookmark text:name="b"/>', '<text:bookmark-start text:name="b"/>', '<text:reference-mark/>',
        '<text:change text:change-id="c"/>', '<text:change-start text:change-id="c"/>', "<text:date>Monday</text:date>",
        '<text:sequence text:formula="ooow:T+1">one</text:sequence>', "<text:expression>three</text:expression>",
        "<presentation:footer/>", '<draw:frame draw:name="Picture"><draw:image/></draw:frame>', "<!-- note -->",
    ],
)  # fmt: skip
def test_marks_and_fields_are_single_codes(mark):
    body = f"<text:p>One{mark} two</text:p>"
    unit = load(pack(body)).units[0]
    assert unit.text == "One two"
    assert [(code.kind, code.offset, code.content) for code in unit.codes] == [("single", 3, mark)]
    assert body_of(change(pack(body))) == f"<text:p>Óné{mark} twó</text:p>"


@pytest.mark.parametrize("mark", ["<text:soft-page-break/>", SPAN.format("T1", ""), "<text:span/>"])
def test_what_shows_nothing_is_dropped(mark):
    body = f"<text:p>un{mark}til</text:p>"
    assert load(pack(body)).units == [Unit("until")]
    assert load(pack(body)).write([Unit("until")]) == pack(body)
    assert body_of(change(pack(body))) == "<text:p>úntíl</text:p>"


NOTE = (
    '<text:note text:id="n"><text:note-citation>i</text:note-citation><text:note-body>{0}</text:note-body></text:note>'
)


@pytest.mark.parametrize(
    "nest",
    [
        NOTE,
        "<office:annotation><dc:creator>Jane</dc:creator>{0}</office:annotation>",
        "<draw:frame><draw:text-box>{0}</draw:text-box><svg:title>Alt</svg:title></draw:frame>",
        "<draw:custom-shape>{0}</draw:custom-shape>",
    ],
)
def test_notes_frames_and_comments_are_nested(nest):
    inner = nest.format(f"<text:p>inner {NOTE.format('<text:p>deep</text:p>')}</text:p>")
    data = pack(f"<text:p>One{inner} two</text:p>")
    file = load(data)
    assert [unit.text for unit in file.units[:3]] == ["One two", "inner ", "deep"]
    assert ("svg:title" in nest) == (len(file.units) == 4)
    assert body_of(change(data)) == (
        body_of(data).replace("One", "Óné").replace("two", "twó").replace("inner", "ínnér").replace("deep", "déép")
        .replace("Alt", "Ált")
    )  # fmt: skip
    only_deep = [pseudo(unit) if unit.text == "deep" else unit for unit in file.units]
    assert body_of(file.write(only_deep)) == body_of(data).replace("deep", "déép")


def test_a_note_in_a_paragraph_without_text_or_in_code_is_a_unit():
    note = NOTE.format("<text:p>note</text:p>")
    data = pack(f'<text:p>{note}</text:p><text:p text:style-name="Preformatted_20_Text">x = 1{note}</text:p>'
                f"<text:p>One {SPAN.format('Source_20_Text', 'f' + note)}</text:p>")  # fmt: skip
    assert texts(data) == ["note", "note", "One ", "note"]
    assert body_of(change(data)) == body_of(data).replace("<text:p>note", "<text:p>nóté").replace("One", "Óné")


def test_deleted_text_stays():
    changes = "<text:tracked-changes><text:changed-region><text:deletion><text:p>gone</text:p></text:deletion>"
    assert texts(pack(changes + "</text:changed-region></text:tracked-changes><text:p>kept</text:p>")) == ["kept"]


def test_a_table_of_contents_stays_and_is_counted():
    data = pack("<text:table-of-content><text:index-body><text:index-title><text:p>Contents"
                "</text:p></text:index-title><text:p>One<text:tab/>1</text:p></text:index-body></text:table-of-content>"
                "<text:h>One</text:h>")  # fmt: skip
    assert texts(data) == ["One"]
    assert skipped(data) == [("table of contents", "Contents"), ("table of contents", "One1")]


def test_code_styles_are_skipped():
    styles = (
        '<style:style style:name="P1" style:family="paragraph" style:parent-style-name="Preformatted_20_Text"/>'
        '<style:style style:name="T1" style:family="text" style:parent-style-name="Source_20_Text"/>'
    )
    data = pack('<text:p text:style-name="P1">int x;</text:p>'
                f"<text:p>Call {SPAN.format('T1', 'f()')} twice</text:p>", styles=styles)  # fmt: skip
    assert texts(data) == ["Call twice"]
    assert skipped(data) == [("code", "int x;"), ("code", "f()")]
    assert f"Cáll {SPAN.format('T1', 'f()')} twícé" in body_of(change(data))


def test_headers_and_footers_of_styles_are_units():
    styles = (
        f"<office:document-styles {SPACES}><office:master-styles><style:master-page><style:header><text:p>Head</text:p>"
        "</style:header><style:footer><text:p>Page <text:page-number>1</text:page-number></text:p></style:footer>"
        "</style:master-page></office:master-styles></office:document-styles>"
    )
    data = pack("<text:p>Body</text:p>", styles_xml=styles)
    assert texts(data) == ["Body", "Head", "Page "]
    assert member(change(data), "styles.xml") == styles.replace("Head", "Héád").replace(">Page ", ">Págé ")


def test_prompts_of_master_pages_stay():
    frame = '<draw:frame presentation:class="{0}"><draw:text-box><text:p>{1}</text:p></draw:text-box></draw:frame>'
    styles = (
        f"<office:document-styles {SPACES}><office:master-styles><style:master-page>{frame.format('title', 'Click')}"
        f"{frame.format('footer', 'Foot')}<draw:custom-shape><text:p>ACME Ltd</text:p></draw:custom-shape>"
        f"<presentation:notes>{frame.format('notes', 'Click for notes')}</presentation:notes></style:master-page>"
        "</office:master-styles></office:document-styles>"
    )
    slide = (
        '<presentation:footer-decl presentation:name="f">Our talk</presentation:footer-decl><draw:page draw:name="S1">'
        f"{frame.format('title', 'Title')}<presentation:notes>{frame.format('notes', 'Say')}</presentation:notes>"
        "</draw:page>"
    )
    data = pack(slide, "presentation", styles_xml=styles)
    assert texts(data) == ["Our talk", "Title", "Say", "Foot", "ACME Ltd"]
    assert skipped(data) == [("prompts of master pages", "Click"), ("prompts of master pages", "Click for notes")]
    assert ">Óúr tálk<" in body_of(change(data))


def test_facts_of_the_document_are_units():
    meta = (
        f"<office:document-meta {SPACES}><office:meta><dc:title>A &amp; B</dc:title><dc:subject/>"
        "<dc:creator>Jane</dc:creator><dc:description>About\nit</dc:description><dc:language>en</dc:language></office:meta></office:document-meta>"
    )
    data = pack("<text:p>Body</text:p>", meta_xml=meta)
    assert texts(data) == ["A & B", "About\nit", "Body"]
    new = member(change(data, "de"), "meta.xml")
    assert new == meta.replace("A &", "Á &").replace("About\nit", "Ábóút\nít").replace(">en<", ">de<")
    without = meta.replace("<dc:language>en</dc:language>", "")
    added = member(load(pack("", meta_xml=without)).write(load(pack("", meta_xml=without)).units, "de"), "meta.xml")
    assert re.search(r"<dc:language xmlns:dc=\S+>de</dc:language></office:meta>", added)


@pytest.mark.parametrize("suffix", ["docx", "pptx", "odt"])
@pytest.mark.parametrize(
    ("text", "is_program"),
    [
        *((each, True) for each in ("generated by python-docx", "Created with Example 1.2", "PowerPoint Presentation")),
        *((each, True) for each in ("Microsoft Word - a b.doc", "Automatically generated from a.md")),
        *((each, False) for each in ("The energy generated by wind is cheap.", "The report", "Unknown lands")),
    ],
)
@pytest.mark.full
def test_what_programs_write_into_properties_is_no_text(text, is_program, suffix, tmp_path):
    path = tmp_path / f"a.{suffix}"
    if suffix == "odt":
        meta = f"<office:meta><dc:description>{text}</dc:description></office:meta>"
        meta = f"<office:document-meta {SPACES}>{meta}</office:document-meta>"
        path.write_bytes(pack("", meta_xml=meta))
    else:
        new = Presentation() if suffix == "pptx" else docx.Document()
        new.core_properties.title, new.core_properties.comments = "", text
        new.save(path)
    file = read_units(FORMATS["odf" if suffix == "odt" else suffix], path.read_bytes(), str(path))
    assert [unit.text for unit in file.units] == [text] * (not is_program)
    assert [each.text for each in file.skipped] == [text] * is_program


CELL = '<table:table-cell office:value-type="{0}"{1}><text:p>{2}</text:p></table:table-cell>'


def sheet(*cells):
    rows = "".join(f"<table:table-row>{cell}</table:table-row>" for cell in cells)
    return pack(f'<table:table table:name="Sheet one">{rows}</table:table>', "spreadsheet")


def test_cells_with_strings_are_units():
    data = sheet(
        CELL.format("string", "", "Total sum"),
        CELL.format("string", "", "Total"),
        CELL.format("string", ' table:formula="of:=[.A1]"', "computed"),
        CELL.format("float", ' office:value="3"', "3 EUR"),
        CELL.format("string", "", "item_2"),
        CELL.format("string", "", "AB-12"),
        CELL.format("string", "", "Total"),
        '<table:table-cell table:formula="of:=1"><office:annotation><text:p>Why</text:p></office:annotation>'
        "</table:table-cell>",
    )
    assert texts(data) == ["Total sum", "Total", "Total", "Why"]
    assert skipped(data) == [
        ("formulas", "computed"), ("numbers and dates", "3 EUR"), ("codes and identifiers", "item_2"),
        ("codes and identifiers", "AB-12"),
    ]  # fmt: skip
    assert 'table:name="Sheet one"' in body_of(change(data))


def test_a_value_that_repeats_the_text_goes_with_it():
    data = sheet(CELL.format("string", ' office:string-value="Total"', "Total"))
    assert load(data).write(load(data).units) == data
    assert CELL.format("string", "", "Tótál") in body_of(change(data))


def test_lines_of_a_cell_are_units():
    data = sheet("<table:table-cell><text:p>One</text:p><text:p>two</text:p></table:table-cell>")
    assert texts(data) == ["One", "two"]


def test_charts_are_read_and_formulas_stay():
    chart = content(
        "<chart:chart><chart:title><text:p>Votes</text:p></chart:title><table:table><table:table-row>"
        '<table:table-cell office:value-type="string"><text:p>Region</text:p><draw:g><svg:desc>Votes.A1</svg:desc>'
        "</draw:g></table:table-cell></table:table-row></table:table></chart:chart>",
        "chart",
    )
    math = '<math xmlns="http://www.w3.org/1998/Math/MathML"><mi>alpha</mi></math>'
    frame = '<draw:frame><draw:object xlink:href="./{0}"/></draw:frame>'
    buffer = io.BytesIO(
        pack(f"<text:p>One {frame.format('Object 1')}{frame.format('Object 2')}</text:p><text:p>Two</text:p>")
    )
    with zipfile.ZipFile(buffer, "a") as file:
        file.writestr("Object 1/content.xml", chart)
        file.writestr("Object 2/content.xml", math)
    data = buffer.getvalue()
    assert texts(data) == ["One ", "Votes", "Region", "Two"]
    assert skipped(data) == [("formulas", "alpha")]
    new = change(data)
    assert member(new, "Object 1/content.xml") == chart.replace(">Votes<", ">Vótés<").replace("Region", "Régíón")
    assert member(new, "Object 2/content.xml") == math


STYLES = (
    f"<office:document-styles {SPACES}><office:styles><style:default-style style:family='paragraph'>"
    '<style:paragraph-properties style:writing-mode="page"/><style:text-properties fo:language="en" fo:country="US"/>'
    '</style:default-style><style:style style:name="Q"><style:text-properties fo:language="zxx" fo:country="none"/>'
    "</style:style></office:styles></office:document-styles>"
)


@pytest.mark.parametrize(
    ("language", "expected"),
    [
        ("de", 'fo:language="de" fo:country="none"'),
        ("pt-BR", 'fo:language="pt" fo:country="BR"'),
        ("zh", 'style:language-asian="zh"'),
        ("ar", 'style:language-complex="ar"'),
        ("ar", 'style:writing-mode="rl-tb"'),
    ],
)
def test_default_styles_name_the_language(language, expected):
    data = pack("<text:p>One</text:p>", styles=PLAIN.format("T1"), styles_xml=STYLES)
    new = load(data).write(load(data).units, language)
    styles = member(new, "styles.xml")
    assert expected in styles
    assert 'fo:language="zxx" fo:country="none"' in styles
    assert f'fo:language="{language[:2]}"' in member(new)
    assert texts(new) == ["One"]


def test_the_first_member_stays_stored():
    new = change(pack("<text:p>One</text:p>", Basic__Standard__Module1_xml="<module/>"))
    assert new[30:38] == b"mimetype"
    with zipfile.ZipFile(io.BytesIO(new)) as file:
        assert file.infolist()[0].compress_type == zipfile.ZIP_STORED
        assert file.read("Basic/Standard/Module1.xml") == b"<module/>"


def test_other_prefixes_are_read():
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        file.writestr(
            "content.xml", f'<o:doc xmlns:o="{OASIS}office:1.0" xmlns:t="{OASIS}text:1.0"><t:p>One</t:p></o:doc>'
        )
    data = buffer.getvalue()
    assert texts(data) == ["One"]
    assert "<t:p>a <t:s/>b</t:p>" in member(load(data).write([Unit("a  b")], "de"))


def test_encrypted_packages_are_refused():
    manifest = "<manifest:manifest><manifest:encryption-data/></manifest:manifest>"
    with pytest.raises(DocmtError, match=r"x\.odt is encrypted"):
        load(_pack_manifest(manifest))


def _pack_manifest(manifest):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        file.writestr("META-INF/manifest.xml", manifest)
        file.writestr("content.xml", b"\x8f\x01")
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not a zip package"),
        (pack("<text:p>"), r"x\.odt \(content\.xml\), line 2: broken XML"),
        (_pack_manifest(""), "broken XML"),
        (pack("", styles_xml="<a"), r"styles\.xml"),
        (pack("<text:section>" * 300 + "</text:section>" * 300), "nested deeper"),
    ],
)
def test_broken_files_are_refused(data, message):
    with pytest.raises(DocmtError, match=message):
        load(data)


def test_the_registry_reads_documents_of_odfdo(tmp_path):
    odfdo = pytest.importorskip("odfdo")
    document = odfdo.Document("text")
    document.body.append(odfdo.Header(1, "Heading"))
    paragraph = odfdo.Paragraph("One ")
    paragraph.append(odfdo.Span("two", style="Strong"))
    document.body.append(paragraph)
    document.save(tmp_path / "x.odt")
    data = (tmp_path / "x.odt").read_bytes()
    file = read_units(FORMATS["odf"], data, "x.odt")
    assert [unit.text for unit in file.units][-2:] == ["Heading", "One two"]
    (tmp_path / "y.odt").write_bytes(change(data, "cs"))
    again = odfdo.Document(tmp_path / "y.odt")
    assert str(again.body.get_headers()[0]).strip() == "Héádíng"


WORDS = st.text(st.sampled_from("abeé<&>\"'日ع ").filter(lambda each: each != " "), min_size=1, max_size=4)


def escaped(text):
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def wrap(children):
    joined = st.lists(children, min_size=1, max_size=4).map("".join)
    return st.one_of(
        st.tuples(st.sampled_from(["T1", "T2", "T3", "Emphasis"]), joined).map(lambda pair: SPAN.format(*pair)),
        joined.map(lambda text: f'<text:a xlink:href="u">{text}</text:a>'),
        joined.map(lambda text: NOTE.format(f"<text:p>{text}</text:p>")),
        joined.map(lambda text: f"<draw:frame><draw:text-box><text:p>{text}</text:p></draw:text-box></draw:frame>"),
    )


LEAVES = st.one_of(
    WORDS.map(escaped),
    st.sampled_from([" ", "\n ", "<text:tab/>", "<text:s text:c='3'/>", "<text:line-break/>", "<text:bookmark/>",
                     "<text:date>May</text:date>", "<text:soft-page-break/>"]),
)  # fmt: skip
INLINE = st.recursive(LEAVES, wrap, max_leaves=12)


@pytest.mark.full
@check_files(
    st.lists(st.lists(INLINE, max_size=5).map("".join), max_size=4), st.sampled_from(["text", "presentation"]), quick=30
)
def test_generated_files_keep_their_bytes_and_take_new_texts(paragraphs, kind):
    styles = BOLD.format("T1", "1") + BOLD.format("T2", "2") + PLAIN.format("T3")
    body = "".join(f"<text:p>{each}</text:p>" for each in paragraphs)
    if kind == "presentation":
        body = f"<draw:page><draw:frame><draw:text-box>{body}</draw:text-box></draw:frame></draw:page>"
    check_round_trip(pack(body, kind, styles), "x.odt" if kind == "text" else "x.odp")


def check_round_trip(data, path):
    file = load(data, path)
    assert isinstance(file, OpenDocumentFile)
    assert file.write(file.units) == data
    new = [pseudo(unit) for unit in file.units]
    again = load(file.write(new, "cs"), path)
    assert [unit.text for unit in again.units] == [unit.text for unit in new]
    kinds = [[(code.kind, code.offset) for code in unit.codes if code.kind == "single"] for unit in new]
    assert [[(code.kind, code.offset) for code in unit.codes if code.kind == "single"] for unit in again.units] == kinds


@pytest.mark.parametrize(
    "body",
    [
        SPAN.format("T1", " ") + " a",
        "a " + SPAN.format("T1", " ") + " b",
        SPAN.format("T1", SPAN.format("T2", " \n") + "<text:soft-page-break/>") + " a",
        SPAN.format("T1", "a") + SPAN.format("T1", " ") + SPAN.format("T1", "b"),
    ],
)
def test_spans_of_white_space_add_no_code(body):
    check_round_trip(pack(f"<text:p>{body}</text:p>", "text", BOLD.format("T1", "1") + BOLD.format("T2", "2")), "x.odt")


@NEEDS_FILES
@pytest.mark.parametrize("path", find_files("odt", "odp", "ods"), ids=lambda path: path.name)
def test_real_files_keep_their_bytes_and_take_new_texts(path):
    check_round_trip(path.read_bytes(), path.name)


def repack(data, name, generator):
    """Return the package with one mutated member."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(buffer, "w") as file:
        for each in old.namelist():
            file.writestr(each, mutate(old.read(each), generator) if each == name else old.read(each))
    return buffer.getvalue()


@pytest.mark.full
def test_damaged_files_are_read_or_refused():
    styles = BOLD.format("T1", "1") + PLAIN.format("T3")
    body = (
        f"<text:p>One {SPAN.format('T1', 'two')}{NOTE.format('<text:p>note</text:p>')} x<text:tab/>y &amp; z</text:p>"
    )
    table = f"<table:table><table:table-row>{CELL.format('string', '', 'cell')}</table:table-row></table:table>"
    data = pack(body + table, styles=styles, styles_xml=STYLES, meta_xml="<a/>")
    generator = random.Random(1)
    read_count = 0
    for number in range(2_000):
        names = ("", "content.xml", "content.xml", "styles.xml")
        name = names[number % len(names)]
        mutant = repack(data, name, generator) if name else mutate(data, generator)
        try:
            file = load(mutant)
            new = file.write([pseudo(unit) for unit in file.units], "zh-TW")
        except DocmtError:
            continue
        read_count += 1
        load(new)
        if name:
            assert file.write(file.units) == mutant
        else:
            file.write(file.units)
    assert read_count > 100
