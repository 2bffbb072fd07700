"""Word documents: what is text, what stays, and that changed paragraphs keep their formats."""

import io
import random
import re
from dataclasses import replace

import docx
import pytest
from generated_files import check_files
from hypothesis import strategies as st
from office_samples import (
    CHART,
    CORE,
    DATA,
    DC,
    DIAGRAM,
    DRAWN,
    MC,
    OFFICE,
    PIC,
    WP,
    A,
    C,
    M,
    R,
    W,
    check_mutants,
    check_round_trip,
    list_files,
    pack_parts,
    pseudo,
    read_part,
    relate,
)

from docmt.core.errors import DocmtError
from docmt.formats.projection import Passage, project_codes
from docmt.formats.units import ReadConfig, Unit
from docmt.formats.word_documents import read

SPACES = f'xmlns:w="{W}" xmlns:mc="{MC}" xmlns:a="{A}" xmlns:wp="{WP}" xmlns:pic="{PIC}" xmlns:m="{M}" xmlns:r="{R}"'
WORD_TYPE = OFFICE + "wordprocessingml."
RUN = "<w:r><w:t>{}</w:t></w:r>"


def make(body, parts=()):
    main = f"<w:document {SPACES}><w:body>{body}</w:body></w:document>"
    return pack_parts({"word/document.xml": (WORD_TYPE + "document.main+xml", main), **dict(parts)})


def read_docx(data):
    return read(data, "x.docx", ReadConfig())


def read_texts(body, parts=()):
    data = make(body, parts)
    check_round_trip(read_docx, data)
    return [unit.text for unit in read_docx(data).units]


def write_body(body, *texts, language="", parts=()):
    """Return the body after the texts of its units were replaced."""
    file = read_docx(make(body, parts))
    new = []
    for unit, text in zip(file.units, texts, strict=True):
        new.append(project_codes(unit, [Passage(0, len(unit.text), text)])[0])
    written = read_part(file.write(new, language), "word/document.xml")
    return written[written.index("<w:body>") + 8 : written.index("</w:body>")]


def mark(kind):
    return f'<w:r><w:fldChar w:fldCharType="{kind}"/></w:r>'


def make_field(code, result):
    instruction = f'<w:r><w:instrText xml:space="preserve"> {code} </w:instrText></w:r>'
    return f"{mark('begin')}{instruction}{mark('separate')}{result}{mark('end')}"


def test_runs_of_equal_format_are_one():
    body = (
        '<w:p><w:r w:rsidR="1"><w:rPr><w:lang w:val="de-DE"/></w:rPr><w:t xml:space="preserve">One </w:t></w:r>'
        '<w:proofErr w:type="spellStart"/><w:r><w:rPr/><w:t>tw</w:t></w:r><w:r><w:rPr><w:noProof/></w:rPr>'
        "<w:t>o</w:t></w:r></w:p>"
    )
    (unit,) = read_docx(make(body)).units
    assert unit.text == "One two"
    assert [code.kind for code in unit.codes] == ["open", "close"]
    assert "proofErr" not in write_body(body, "Eins zwei")


def test_a_changed_paragraph_keeps_its_formats():
    body = (
        '<w:p><w:pPr><w:jc w:val="right"/></w:pPr><w:r><w:t xml:space="preserve">The </w:t></w:r>'
        "<w:r><w:rPr><w:b/></w:rPr><w:t>house</w:t></w:r><w:r><w:t>.</w:t></w:r></w:p>"
    )
    bold = '<w:r><w:rPr><w:b/></w:rPr><w:t xml:space="preserve">house</w:t></w:r>'
    written = write_body(body, "<The> house.")
    assert written.startswith(
        '<w:p><w:pPr><w:jc w:val="right"/></w:pPr><w:r><w:t xml:space="preserve">&lt;The&gt; </w:t>'
    )
    assert written.endswith(f'{bold}<w:r><w:t xml:space="preserve">.</w:t></w:r></w:p>')


def test_text_outside_of_runs_gets_a_run():
    body = f"<w:p>{RUN.format('One')}<w:r><w:rPr><w:b/></w:rPr><w:t>two</w:t></w:r></w:p>"
    file = read_docx(make(body))
    written = read_part(file.write([Unit("bare")]), "word/document.xml")
    assert '<w:p><w:r><w:t xml:space="preserve">bare</w:t></w:r></w:p>' in written


def test_tabs_and_breaks_belong_to_their_run():
    body = "<w:p><w:r><w:t>One</w:t><w:tab/><w:t>two</w:t><w:br/></w:r></w:p>"
    (unit,) = read_docx(make(body)).units
    assert unit.text == "One two "
    written = write_body(body, "Eins zwei ")
    text = '<w:t xml:space="preserve">{}</w:t>'
    assert written == f"<w:p><w:r>{text.format('Eins')}<w:tab/>{text.format('zwei')}<w:br/></w:r></w:p>"


def test_hyphens_are_text_or_codes_within_words():
    body = "<w:p><w:r><w:t>co</w:t><w:{}/><w:t>op</w:t></w:r></w:p>"
    assert read_texts(body.format("softHyphen")) == ["coop"]
    assert read_texts(body.format("noBreakHyphen")) == ["co\u2011op"]
    written = write_body(body.format("noBreakHyphen"), "co-op")
    assert "<w:t" in written and "co-op" in written


def test_line_feeds_within_a_text_are_spaces():
    text = "The members\n      have discussed\tit."
    assert read_texts(f"<w:p>{RUN.format(text)}</w:p>") == ["The members have discussed it."]


def test_text_beside_the_marks_of_a_field_is_read():
    code = '<w:fldChar w:fldCharType="begin"/><w:instrText> PAGE </w:instrText><w:fldChar w:fldCharType="separate"/>'
    field = f'{code}<w:t>7</w:t><w:fldChar w:fldCharType="end"/>'
    body = f"<w:p><w:r><w:rPr><w:b/></w:rPr><w:t>Page </w:t>{field}<w:t>of this book</w:t></w:r></w:p>"
    assert read_texts(body) == ["Pageof this book"]
    written = write_body(body, "Seite dieses Buchs")
    assert written.count("<w:fldChar") == 3 and "<w:t>7</w:t>" in written and "PAGE" in written
    assert "Page" not in written and written.count("<w:b/>") >= 2


def test_a_field_over_several_paragraphs_keeps_what_stands_beside_its_end():
    begin = mark("begin") + "<w:r><w:instrText>DOCVARIABLE x</w:instrText></w:r>" + mark("separate")
    marked = f'<w:bookmarkStart w:id="0"/>{RUN.format("It is old.")}<w:bookmarkEnd w:id="0"/>'
    body = f"<w:p>{begin}{RUN.format('The house.')}</w:p><w:p>{marked}{mark('end')}</w:p>"
    written = write_body(body, "Das Haus.", "Es ist alt.")
    for each in ("<w:bookmarkStart", "<w:bookmarkEnd"):
        assert written.count(each) == 1
    assert written.count("<w:fldChar ") == 3 and written.index("Es ist alt.") < written.index('"end"')


def test_spaces_at_the_ends_count_only_where_they_are_kept():
    assert read_texts("<w:p><w:r><w:t> a </w:t></w:r><w:r><w:t>b</w:t></w:r></w:p>") == ["ab"]


def test_alternate_content_is_one_unit_in_two_places():
    box = f"<w:txbxContent><w:p>{RUN.format('Box text')}</w:p></w:txbxContent>"
    body = (
        f"<w:p>{RUN.format('Body')}<w:r><mc:AlternateContent><mc:Choice Requires='wps'>{box}</mc:Choice>"
        f"<mc:Fallback><w:pict>{box}</w:pict></mc:Fallback></mc:AlternateContent></w:r></w:p>"
    )
    assert read_texts(body) == ["Body", "Box text"]
    for texts in (("Leib", "Kasten"), ("Body", "Kasten")):
        written = write_body(body, *texts)
        assert written.count("Kasten") == 2
        assert "Box text" not in written


def test_alternative_texts_are_translated_once():
    drawing = (
        '<w:drawing><wp:docPr id="1" name="Picture 1" title="A title" descr="A red &quot;house&quot;"/>'
        '<pic:cNvPr name="x.png" descr="A red &quot;house&quot;"/></w:drawing>'
    )
    body = f"<w:p><w:r><w:t>Look</w:t>{drawing}</w:r></w:p><w:p><w:r>{drawing.replace('red', 'blue')}</w:r></w:p>"
    expected = ["Look", "A title", 'A red "house"', "A title", 'A blue "house"']
    assert read_texts(body) == expected
    written = write_body(body, "Sieh", "Titel", "'rotes' \"<Haus>\"", "Titel", "blau")
    assert written.count('descr="&apos;rotes&apos; &quot;&lt;Haus&gt;&quot;"') == 2
    assert 'name="Picture 1"' in written


def test_alternative_texts_of_older_drawings():
    shape = '<w:pict><v:shape xmlns:v="urn:schemas-microsoft-com:vml" alt="A house">{}</v:shape></w:pict>'
    body = f"<w:p><w:r>{shape.format('<w:p>' + RUN.format('In a box') + '</w:p>')}</w:r></w:p>"
    assert read_texts(body) == ["A house", "In a box"]
    assert 'alt="Ein Haus"' in write_body(body, "Ein Haus", "In a box")


def test_file_names_are_no_alternative_texts():
    assert read_texts('<w:p><w:r><w:drawing><wp:docPr descr="image1.png"/></w:drawing></w:r></w:p>') == []


def test_instructions_of_fields_are_kept_and_results_translated():
    body = f"<w:p>{RUN.format('See')}{make_field('HYPERLINK &quot;http://x&quot;', RUN.format('the page'))}</w:p>"
    assert read_texts(body) == ["Seethe page"]
    written = write_body(body, "Siehedie Seite")
    assert 'HYPERLINK "http://x"' in written.replace("&quot;", '"')
    assert written.count("fldChar ") == 3


@pytest.mark.parametrize("code", ["PAGE", "REF _Ref1 \\h", "SEQ Figure", "=SUM(A1)", "date"])
def test_computed_fields_stay(code):
    assert read_texts(f"<w:p>{RUN.format('Page')}{make_field(code, RUN.format('xyz'))}</w:p>") == ["Page"]
    simple = f'<w:p>{RUN.format("Page")}<w:fldSimple w:instr=" {code} ">{RUN.format("xyz")}</w:fldSimple></w:p>'
    assert read_texts(simple) == ["Page"]


def test_fields_within_fields():
    inner = make_field("PAGE", RUN.format("7x"))
    body = f"<w:p>{RUN.format('A')}{make_field('IF ' + inner, RUN.format('text' + 's'))}{RUN.format('b')}</w:p>"
    body = body.replace('<w:instrText xml:space="preserve"> IF <w:r>', "<w:instrText>IF</w:instrText></w:r><w:r>")
    body = body.replace("</w:r> </w:instrText></w:r>", "</w:r>")
    assert read_texts(body) == ["Atextsb"]


def test_tables_of_contents_stay_and_are_updated():
    settings = f'<w:settings {SPACES}><w:zoom/><w:compat/><w:themeFontLang w:val="en-US"/></w:settings>'
    parts = {"word/settings.xml": (WORD_TYPE + "settings+xml", settings)}
    entry = RUN.format("Entry one") + make_field("PAGEREF x", RUN.format("3"))
    body = (
        f"<w:p>{mark('begin')}<w:r><w:instrText>TOC \\o</w:instrText></w:r>{mark('separate')}"
        f"<w:hyperlink w:anchor='x'>{entry}</w:hyperlink></w:p>"
        f"<w:p>{RUN.format('Entry two')}</w:p><w:p>{mark('end')}</w:p><w:p>{RUN.format('Text')}</w:p>"
    )
    data = make(body, parts)
    file = read_docx(data)
    assert [unit.text for unit in file.units] == ["Text"]
    assert [(each.reason, each.text) for each in file.skipped] == [
        ("table of contents", "Entry one3"),
        ("table of contents", "Entry two"),
    ]
    written = read_part(file.write([pseudo(file.units[0])], "fr"), "word/settings.xml")
    assert '<w:zoom/><w:updateFields w:val="true"/><w:compat/><w:themeFontLang w:val="fr"/>' in written
    assert file.write(file.units) == data


def test_texts_about_links_tables_and_shapes():
    body = (
        f'<w:p><w:hyperlink w:tooltip="See it">{RUN.format("Link")}</w:hyperlink></w:p><w:tbl><w:tblPr>'
        '<w:tblCaption w:val="A table"/><w:tblDescription w:val="Of votes"/></w:tblPr></w:tbl>'
        '<w:p><w:r><w:pict><v:group alt="A group"><v:rect title="A box" alt="In it"/></v:group></w:pict></w:r></w:p>'
    ).replace("<v:group ", '<v:group xmlns:v="urn:schemas-microsoft-com:vml" ')
    assert read_texts(body) == ["See it", "Link", "A table", "Of votes", "A group", "A box", "In it"]


def test_what_word_shows_and_stays_is_reported():
    controls = (
        '<w:sdt><w:sdtPr><w:alias w:val="A name"/>'
        f"</w:sdtPr><w:sdtContent>{RUN.format('x')}</w:sdtContent></w:sdt><w:ffData><w:textInput>"
        '<w:default w:val="Your text"/></w:textInput></w:ffData>'
    )
    codes = ["MACROBUTTON x Click", 'IF 1 = 1 "so" "not"', 'ASK x "Who?"', 'XE "House"', 'HYPERLINK "a" \\o "Tip"']
    fields = "".join(make_field(code, RUN.format("y")) for code in [*codes, 'HYPERLINK "a"', 'DATE "MMMM"'])
    blocks = f"<w:glossaryDocument {SPACES}><w:p>{RUN.format('Click here')}</w:p></w:glossaryDocument>"
    parts = {
        "word/glossary/document.xml": (WORD_TYPE + "document.glossary+xml", blocks),
        "word/_rels/document.xml.rels": relate(("package", "embeddings/a.docx")),
        "word/embeddings/a.docx": ("x", "PK"),
    }
    skipped = read_docx(make(f"<w:p>{controls}{fields}</w:p>", parts)).skipped
    assert [(each.reason, each.text) for each in skipped] == [
        *(("field instructions", code) for code in codes),
        ("names of controls", "A name"),
        ("default texts of form fields", "Your text"),
        ("inserted files", "word/embeddings/a.docx"),
        ("building blocks", "Click here"),
    ]


def test_insertions_are_text_and_deletions_stay():
    deleted = '<w:del w:id="1"><w:r><w:delText>old</w:delText></w:r></w:del>'
    moved = f'<w:moveFrom w:id="3">{RUN.format("gone")}</w:moveFrom>'
    body = f'<w:p>{RUN.format("A ")}{deleted}{moved}<w:ins w:id="2">{RUN.format("new")}</w:ins></w:p>'
    assert read_texts(body) == ["Anew"]
    written = write_body(body, "Aneu")
    assert deleted in written
    assert moved in written
    assert '<w:ins w:id="2">' in written


def test_links_are_not_copied():
    body = f'<w:p>{RUN.format("A")}<w:hyperlink r:id="rId1">{RUN.format("link")}</w:hyperlink></w:p>'
    (unit,) = read_docx(make(body)).units
    assert [code.can_copy for code in unit.codes if "hyperlink" in code.content] == [False, False]


def test_formats_of_paragraphs_out_of_their_place_are_codes():
    assert read_texts(f"<w:p>{RUN.format('A')}<w:pPr><w:jc/></w:pPr>{RUN.format('b')}</w:p>") == ["Ab"]


def test_content_controls_are_pairs():
    control = "<w:sdt><w:sdtPr><w:alias/></w:sdtPr><w:sdtContent>{}</w:sdtContent></w:sdt>"
    body = f"<w:p>{RUN.format('A')}{control.format(RUN.format('b'))}</w:p>"
    assert read_texts(body + control.format(f"<w:p>{RUN.format('block')}</w:p>")) == ["Ab", "block"]


def test_formulas_stay():
    body = f"<w:p>{RUN.format('Where')}<m:oMath><m:r><m:t>x+y</m:t></m:r></m:oMath></w:p>"
    file = read_docx(make(body))
    assert [unit.text for unit in file.units] == ["Where"]
    assert [(each.reason, each.text) for each in file.skipped] == [("formulas", "x+y")]
    assert "<m:oMath><m:r><m:t>x+y</m:t></m:r></m:oMath>" in write_body(body, "Wo")


@pytest.mark.parametrize(("paragraph", "run"), [("Source Code", "Verbatim Char"), ("Preformatted Text", "Source Text")])
def test_code_and_hidden_text_stay(paragraph, run):
    styles = (
        f'<w:styles {SPACES}><w:style w:type="paragraph" w:styleId="a7"><w:name w:val="{paragraph}"/></w:style>'
        f'<w:style w:type="character" w:styleId="a8"><w:name w:val="{run}"/></w:style></w:styles>'
    )
    verbatim = '<w:r><w:rPr><w:rStyle w:val="a8"/></w:rPr><w:t>print</w:t></w:r>'
    hidden = "<w:r><w:rPr><w:vanish/></w:rPr><w:t>hidden</w:t></w:r>"
    shown = '<w:r><w:rPr><w:vanish w:val="0"/></w:rPr><w:t>shown</w:t></w:r>'
    body = (
        f'<w:p><w:pPr><w:pStyle w:val="a7"/></w:pPr>{RUN.format("x = 1")}</w:p>'
        f"<w:p>{RUN.format('Call')}{verbatim}{hidden}{shown}</w:p>"
    )
    parts = {"word/styles.xml": (WORD_TYPE + "styles+xml", styles)}
    assert read_texts(body, parts) == ["Callshown"]
    assert [(each.reason, each.text) for each in read_docx(make(body, parts)).skipped] == [
        ("code", "x = 1"),
        ("code", "print"),
    ]


def test_parts_are_read_in_their_order():
    story = f"<w:{{0}} {SPACES}><w:p>{RUN.format('{1}')}</w:p></w:{{0}}>"
    parts = {
        f"word/{name}.xml": (f"{WORD_TYPE}{kind}+xml", story.format(tag, text))
        for name, kind, tag, text in (
            ("header10", "header", "hdr", "Header ten"),
            ("header2", "header", "hdr", "Header two"),
            ("comments", "comments", "comments", "Comment"),
            ("footnotes", "footnotes", "footnotes", "Note"),
        )
    }
    paragraph = "<a:p><a:r><a:t>{}</a:t></a:r></a:p>"
    chart = f'<c:chart xmlns:c="{C}" xmlns:a="{A}"><c:numCache><c:v>#Kept</c:v></c:numCache>{{}}</c:chart>'
    parts["word/charts/chart1.xml"] = (CHART, chart.format(paragraph.format("Chart title")))
    parts["docProps/core.xml"] = (
        CORE,
        f'<cp xmlns:dc="{DC}"><dc:title>Title</dc:title><dc:creator>Me</dc:creator></cp>',
    )
    app = "<Properties><Template>My template</Template><Company>A company</Company></Properties>"
    parts["docProps/app.xml"] = (OFFICE + "extended-properties+xml", app)
    assert read_texts(f"<w:p>{RUN.format('Body')}</w:p>", parts) == [
        "Body",
        "Note",
        "Comment",
        "Header two",
        "Header ten",
        "Chart title",
        "Title",
    ]


def test_smart_art_is_translated_in_both_parts():
    text = (
        f'<d:x xmlns:d="{DIAGRAM}" xmlns:a="{A}"><a:p><a:r><a:rPr lang="en"{{}}/><a:t>Step one</a:t></a:r></a:p></d:x>'
    )
    parts = {
        "word/diagrams/data1.xml": (DATA, text.format("")),
        "word/diagrams/drawing1.xml": (DRAWN, text.format(' sz="9"')),
    }
    file = read_docx(make("", parts))
    assert [unit.text for unit in file.units] == ["Step one"]
    new = file.write([pseudo(file.units[0])], "fr")
    assert '<a:r><a:rPr lang="fr"/><a:t>[Stép' in read_part(new, "word/diagrams/data1.xml")
    assert '<a:r><a:rPr lang="fr" sz="9"/><a:t>[Stép' in read_part(new, "word/diagrams/drawing1.xml")


def test_the_language_is_set():
    lang = '<w:lang w:val="en-US" w:eastAsia="zh-CN"/>'
    styles = (
        f"<w:styles {SPACES}><w:docDefaults><w:rPrDefault><w:rPr>{lang}</w:rPr></w:rPrDefault></w:docDefaults>"
        "</w:styles>"
    )
    parts = {"word/styles.xml": (WORD_TYPE + "styles+xml", styles)}
    body = '<w:p><w:r><w:rPr><w:lang w:val="en-GB"/></w:rPr><w:t>One</w:t></w:r></w:p>'
    file = read_docx(make(body, parts))
    for language, expected in (("de", 'w:val="de" w:eastAsia="zh-CN"'), ("ja", 'w:val="en-US" w:eastAsia="ja"')):
        assert f"<w:lang {expected}/>" in read_part(file.write(file.units, language), "word/styles.xml")
    assert '<w:lang w:val="de"/>' in write_body(body, "Eins", language="de")


def test_right_to_left_languages_turn_changed_paragraphs():
    body = (
        f"<w:p>{RUN.format('One')}</w:p>"
        '<w:p><w:pPr><w:keepNext/><w:jc w:val="left"/></w:pPr><w:r><w:rPr><w:b/><w:lang w:bidi="en"/></w:rPr>'
        "<w:t>Two</w:t></w:r></w:p>"
    )
    assert write_body(body, "واحد", "اثنان", language="ar") == (
        '<w:p><w:pPr><w:bidi/></w:pPr><w:r><w:rPr><w:rtl/></w:rPr><w:t xml:space="preserve">واحد</w:t></w:r></w:p>'
        '<w:p><w:pPr><w:keepNext/><w:bidi/><w:jc w:val="left"/></w:pPr><w:r><w:rPr><w:b/><w:rtl/><w:lang w:bidi="ar"/>'
        '</w:rPr><w:t xml:space="preserve">اثنان</w:t></w:r></w:p>'
    )


def test_strict_files_are_read():
    data = make(f"<w:p>{RUN.format('Strict')}</w:p>")
    main = read_part(data, "word/document.xml").replace(W, "http://purl.oclc.org/ooxml/wordprocessingml/main")
    strict = pack_parts({"word/document.xml": (WORD_TYPE + "document.main+xml", main)})
    assert [unit.text for unit in read_docx(strict).units] == ["Strict"]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\xd0\xcf\x11\xe0" + bytes(100), "encrypted"),
        (b"no package", "not a zip package"),
        (pack_parts({}), "not a Word document"),
        (pack_parts({"word/vbaProject.bin": ("", "x")}), "macros"),
        (pack_parts({"word/document.xml": (WORD_TYPE + "document.main+xml", "<w:p>")}), "broken XML"),
        (make("<!DOCTYPE x>"), "x.docx"),
    ],
)
def test_what_is_no_word_document_is_refused(data, message):
    with pytest.raises(DocmtError, match=message):
        read_docx(data)


TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")), max_size=12)
RUNS = st.lists(st.tuples(TEXTS, st.booleans(), st.sampled_from(["", "\t", "\n"])), max_size=6)


@check_files(st.lists(RUNS, max_size=4), quick=0)
def test_documents_of_another_writer_are_kept(paragraphs):
    document = docx.Document()
    del document.styles.element[:]  # thousands of elements that take most of the time
    for runs in paragraphs:
        paragraph = document.add_paragraph()
        for text, bold, end in runs:
            paragraph.add_run(text + end).bold = bold
    buffer = io.BytesIO()
    document.save(buffer)
    check_round_trip(read_docx, buffer.getvalue())


@pytest.mark.parametrize("path", list_files(".docx", "docx", "transins"))
def test_real_documents_are_kept(path):
    new = check_round_trip(read_docx, path.read_bytes())
    if "strict" not in path.name:  # which python-docx does not read
        assert docx.Document(io.BytesIO(new))


def make_rich_document():
    box = f"<w:txbxContent><w:p>{RUN.format('Box text')}</w:p></w:txbxContent>"
    drawing = (
        f"<w:r><mc:AlternateContent><mc:Choice Requires='wps'><wp:docPr descr='A b'/>{box}</mc:Choice>"
        f"<mc:Fallback>{box}</mc:Fallback></mc:AlternateContent></w:r>"
    )
    return make(
        f"<w:p>{RUN.format('One ')}<w:r><w:rPr><w:b/></w:rPr><w:t>two</w:t><w:tab/></w:r>{drawing}"
        f"{make_field('HYPERLINK x', RUN.format('link'))}{make_field('PAGE', RUN.format('1'))}</w:p>"
        f"<w:p><w:pPr><w:jc/></w:pPr><w:hyperlink>{RUN.format('three')}</w:hyperlink><w:sdt><w:sdtContent>"
        f"{RUN.format('four')}</w:sdtContent></w:sdt></w:p>"
    )


@pytest.mark.full
def test_mutants_are_read_or_refused():
    data = make_rich_document()
    assert check_mutants(read_docx, data, ["word/document.xml", "[Content_Types].xml"], random.Random(0), 600) > 100


def test_the_rich_document_of_the_mutants_is_kept():
    written = check_round_trip(read_docx, make_rich_document())
    assert not re.search(r"<w:t [^>]*></w:t>", read_part(written, "word/document.xml"))


def test_raised_numbers_are_not_words(tmp_path):
    document = docx.Document()
    paragraph = document.add_paragraph("Our question.")
    paragraph.add_run("1").font.superscript = True
    paragraph.add_run(" It is the 1")
    paragraph.add_run("st").font.superscript = True
    document.save(tmp_path / "a.docx")
    file = read((tmp_path / "a.docx").read_bytes(), "a.docx", ReadConfig())
    texts = [unit.text for unit in file.units]
    assert "Our question. It is the 1st" in texts
    index = texts.index("Our question. It is the 1st")
    new = [*file.units]
    new[index] = replace(new[index], text="Our QUESTION. It is the 1st")
    (tmp_path / "b.docx").write_bytes(file.write(new))
    runs = docx.Document(tmp_path / "b.docx").paragraphs[0].runs
    raised = [run.text for run in runs if run.font.superscript]
    assert raised == ["1", "st"]
    assert "".join(run.text for run in runs) == "Our QUESTION.1 It is the 1st"


@pytest.mark.parametrize(
    ("body", "translation", "links", "expected"),
    [
        ("B |<w:i/>Second", "Deuxième", [(2, 8, 0, 8)], "<w:i/>Deuxième"),
        ("<w:b/>First|,", "D'abord", [(0, 5, 0, 1), (5, 6, 1, 2), (0, 5, 2, 7)], "<w:b/>D'abord"),
        ("<w:sz/>B |<w:sz/><w:i/>Second", "Deuxième", None, "<w:sz/><w:i/>Deuxième"),
    ],
)
def test_a_plain_run_that_finds_no_word_takes_no_format_away(body, translation, links, expected):
    def run(part):
        form, text = re.fullmatch("((?:<[^<]*/>)*)(.*)", part).groups()
        return f'<w:r><w:rPr>{form}</w:rPr><w:t xml:space="preserve">{text}</w:t></w:r>'

    file = read_docx(make(f"<w:p>{''.join(map(run, body.split('|')))}</w:p>"))
    new, missing = project_codes(file.units[0], [Passage(0, len(file.units[0].text), translation, links)])
    assert run(expected) in read_part(file.write([new]), "word/document.xml") and not missing


def test_a_field_keeps_apart_from_words():
    citation = make_field("ADDIN ZOTERO_ITEM", RUN.format("(Boer 2015)"))
    paragraph = f'<w:p><w:r><w:t xml:space="preserve">See two </w:t></w:r>{citation}<w:r><w:t>.</w:t></w:r></w:p>'
    texts = re.findall("<w:t[ >][^<]*", write_body(paragraph, "Voir deux."))
    assert "".join(text.partition(">")[2] for text in texts) == "Voir deux (Boer 2015)."


CUSTOM = "customXml/item1.xml"
BOUND = (
    "<w:sdt><w:sdtPr>{}<w:dataBinding w:xpath=\"/ns0:{}[1]\" w:storeItemID='{{A}}'/></w:sdtPr>"
    "<w:sdtContent>{}</w:sdtContent></w:sdt>"
)


def pack_data(body, custom="<c:page xmlns:c='x'><c:abstract>The text</c:abstract></c:page>", core=""):
    """Return a document with data that controls of it show."""
    parts = {CUSTOM: ("application/xml", custom)}
    if core:
        parts["docProps/core.xml"] = (
            CORE,
            f'<cp:coreProperties xmlns:cp="x" xmlns:dc="{DC}">{core}</cp:coreProperties>',
        )
    return make(body, parts)


@pytest.mark.parametrize(
    "body",
    [
        BOUND.format("", "page/ns0:abstract", f"<w:p>{RUN.format('The text')}</w:p>"),
        f"<w:p>{BOUND.format('', 'page/ns0:abstract', RUN.format('The text'))}</w:p>",
        f"<w:p>{BOUND.format('', 'page/ns0:abstract', RUN.format('The ') + RUN.format('text'))}</w:p>".replace(
            "<w:t>The <", '<w:t xml:space="preserve">The <'
        ),
    ],
)
def test_a_control_and_its_data_are_one_unit(body):
    data = pack_data(body * 2)
    file = read_docx(data)
    assert [unit.text for unit in file.units] == ["The text"]
    assert file.write(file.units) == data
    new = file.write([Unit("Le texte")], "fr")
    assert "<c:abstract>Le texte</c:abstract>" in read_part(new, CUSTOM)
    main = read_part(new, "word/document.xml")
    assert main.count("Le texte</w:t>") == 2 and "The" not in main
    assert [unit.text for unit in read_docx(new).units] == ["Le texte"]


def test_a_control_within_words_holds_a_unit():
    body = f"<w:p>{RUN.format('Title: ')}{BOUND.format('', 'coreProperties/dc:title', RUN.format('The text'))}</w:p>"
    data = pack_data(body, core="<dc:title>The text</dc:title><dc:creator>Ann</dc:creator>")
    file = read_docx(data)
    assert [unit.text for unit in file.units] == ["The text", "Title:"]
    new = file.write([pseudo(unit) for unit in file.units])
    assert [unit.text for unit in read_docx(new).units] == [pseudo(unit).text for unit in file.units]


@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("coreProperties/dc:creator", RUN.format("Ann")),
        ("page/ns0:abstract", RUN.format("Other text")),
        ("page/ns0:abstract", RUN.format("The ") + "<w:r><w:rPr><w:b/></w:rPr><w:t>text</w:t></w:r>"),
    ],
)
def test_what_cannot_be_translated_in_both_places_stays_in_both(path, content):
    file = read_docx(pack_data(f"<w:p>{BOUND.format('', path, content)}</w:p>", core="<dc:creator>Ann</dc:creator>"))
    assert file.units == [] and [each.reason for each in file.skipped] == ["controls that show data"]


def test_a_control_without_its_data_is_text():
    assert read_texts(BOUND.format("", "other/x", f"<w:p>{RUN.format('The text')}</w:p>")) == ["The text"]


def test_a_choice_is_one_unit_with_its_entry():
    entries = "".join(f'<w:listItem w:displayText="{text}" w:value="{text}"/>' for text in ("Open", "Closed"))
    control = (
        f"<w:sdt><w:sdtPr><w:dropDownList>{entries}</w:dropDownList></w:sdtPr><w:sdtContent>{{}}</w:sdtContent></w:sdt>"
    )
    data = make(f"<w:p>{RUN.format('State: ')}{control.format(RUN.format('Closed'))}</w:p>")
    file = read_docx(data)
    assert [unit.text for unit in file.units] == ["Open", "Closed", "State:"]
    main = read_part(file.write([Unit("Ouvert"), Unit("Clos"), file.units[2]]), "word/document.xml")
    assert 'w:displayText="Clos" w:value="Closed"' in main and "<w:t>Clos</w:t>" in main
    assert read_texts(f"<w:p>{control.format(RUN.format('Choose'))}</w:p>") == ["Open", "Closed", "Choose"]


def test_watermarks_and_words_of_numbers():
    shape = '<v:shape xmlns:v="urn:schemas-microsoft-com:vml"><v:textpath string="Draft"/></v:shape>'
    mark = f"<w:p><w:r><w:pict>{shape}</w:pict></w:r></w:p>"
    levels = "".join(
        f'<w:lvl><w:lvlText w:val="{text}"/></w:lvl>' for text in ("Article %1.", "%1.%2", "o", "Article %1.")
    )
    numbers = f'<w:numbering xmlns:w="{W}"><w:abstractNum>{levels}</w:abstractNum></w:numbering>'
    data = make(mark, {"word/numbering.xml": (WORD_TYPE + "numbering+xml", numbers)})
    file = read_docx(data)
    assert [unit.text for unit in file.units] == ["Draft", "Article %1."]
    new = file.write([replace(unit, text=unit.text.upper()) for unit in file.units])
    assert 'string="DRAFT"' in read_part(new, "word/document.xml")
    assert read_part(new, "word/numbering.xml").count('w:val="ARTICLE %1."') == 2


def test_parts_that_stay_are_reported():
    form = '<w:ffData><w:helpText w:val="Your name"/><w:ddList><w:listEntry w:val="Open"/></w:ddList></w:ffData>'
    body = f'<w:p><w:r><w:fldChar w:fldCharType="begin">{form}</w:fldChar></w:r></w:p><w:altChunk r:id="rId1"/>'
    parts = {
        "word/_rels/document.xml.rels": relate(("aFChunk", "chunk.html")),
        "word/chunk.html": ("text/html", "<p>x"),
    }
    assert [(each.reason, each.text) for each in read_docx(make(body, parts)).skipped] == [
        ("help texts of form fields", "Your name"),
        ("choices of form fields", "Open"),
        ("inserted files", "word/chunk.html"),
    ]


@pytest.mark.parametrize("field", ["MERGEFIELD Last_Name", " mergefield X \\* MERGEFORMAT", "GREETINGLINE"])
def test_fields_that_a_program_fills_are_codes(field):
    simple = f'<w:fldSimple w:instr="{field}">{RUN.format("«Name»")}</w:fldSimple>'
    assert read_texts(f"<w:p>{RUN.format('Dear ')}{simple}{RUN.format(', come.')}</w:p>") == ["Dear, come."]
