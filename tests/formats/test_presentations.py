"""Presentations: slides in their order with all that belongs to them."""

import io
import random

import pptx
import pytest
from generated_files import check_files
from hypothesis import strategies as st
from office_samples import (
    CHART,
    CORE,
    DATA,
    DC,
    DRAWN,
    OFFICE,
    A,
    C,
    P,
    R,
    check_mutants,
    check_round_trip,
    list_files,
    pack_parts,
    pseudo,
    read_part,
    relate,
)

from docmt.core.errors import DocmtError
from docmt.formats.presentations import read
from docmt.formats.units import ReadConfig, Unit

SLIDE_TYPE = OFFICE + "presentationml."
SPACES = f'xmlns:p="{P}" xmlns:a="{A}" xmlns:r="{R}"'
PARAGRAPH = "<a:p><a:r><a:rPr lang='en-US'/><a:t>{}</a:t></a:r></a:p>"


def make_slide(body, tag="sld", kind="slide"):
    return SLIDE_TYPE + kind + "+xml", f"<p:{tag} {SPACES}><p:cSld>{body}</p:cSld></p:{tag}>"


def make(slides, parts=()):
    """Return a package. slides: bodies in the order of their parts; they are shown in the opposite order."""
    count = len(slides)
    ids = "".join(f'<p:sldId id="{256 + n}" r:id="rId{n}"/>' for n in range(count, 0, -1))
    main = f"<p:presentation {SPACES}><p:sldIdLst>{ids}</p:sldIdLst></p:presentation>"
    members = {
        "ppt/presentation.xml": (SLIDE_TYPE + "presentation.main+xml", main),
        "ppt/_rels/presentation.xml.rels": relate(*[("slide", f"slides/slide{n}.xml") for n in range(1, count + 1)]),
    }
    members |= {f"ppt/slides/slide{n}.xml": make_slide(body) for n, body in enumerate(slides, 1)}
    return pack_parts({**members, **dict(parts)})


def read_pptx(data):
    return read(data, "x.pptx", ReadConfig())


def read_texts(data):
    check_round_trip(read_pptx, data)
    return [unit.text for unit in read_pptx(data).units]


def write_slide(body, texts, language=""):
    file = read_pptx(make([body]))
    new = [Unit(text, unit.codes) for text, unit in zip(texts, file.units, strict=True)]
    written = read_part(file.write(new, language), "ppt/slides/slide1.xml")
    return written[written.index("<p:cSld>") + 8 : written.index("</p:cSld>")]


def test_slides_are_read_in_their_order_with_their_parts():
    text = f"<x xmlns:a='{A}'>{PARAGRAPH.format('{}')}</x>"
    parts = {
        "ppt/slides/_rels/slide2.xml.rels": relate(
            ("comments", "../comments/comment1.xml"),
            ("diagramDrawing", "../diagrams/drawing1.xml"),
            ("diagramData", "../diagrams/data1.xml"),
            ("chart", "/ppt/charts/chart1.xml"),
            ("notesSlide", "../notesSlides/notesSlide1.xml"),
            ("slideLayout", "../slideLayouts/slideLayout1.xml"),
            ("image", "missing.png"),
        ),
        "ppt/notesSlides/notesSlide1.xml": make_slide(PARAGRAPH.format("Notes"), "notes", "notesSlide"),
        "ppt/slideLayouts/slideLayout1.xml": make_slide(PARAGRAPH.format("Click"), "sldLayout", "slideLayout"),
        "ppt/charts/chart1.xml": (CHART, f"<c:x xmlns:c='{C}'><c:v>Label</c:v>{text.format('Chart')}</c:x>"),
        "ppt/diagrams/data1.xml": (DATA, text.format("Step")),
        "ppt/diagrams/drawing1.xml": (DRAWN, text.format("Step").replace("'en-US'", "'en-US' sz='8'")),
        "ppt/comments/comment1.xml": (
            SLIDE_TYPE + "comments+xml",
            f"<p:cmLst {SPACES}><p:cm><p:text>A comment</p:text></p:cm></p:cmLst>",
        ),
        "docProps/core.xml": (CORE, f'<cp xmlns:dc="{DC}"><dc:title>Title</dc:title></cp>'),
    }
    data = make([PARAGRAPH.format("One"), PARAGRAPH.format("Two")], parts)
    assert read_texts(data) == ["Two", "Notes", "Chart", "Label", "Step", "A comment", "One", "Title"]
    file = read_pptx(data)
    new = file.write([pseudo(unit) for unit in file.units], "fr")
    assert "Stép" in read_part(new, "ppt/diagrams/data1.xml")
    assert "Stép" in read_part(new, "ppt/diagrams/drawing1.xml")


def test_breaks_fields_and_formats():
    body = (
        '<a:p><a:pPr lvl="1"/><a:r><a:rPr lang="en-US" dirty="0"/><a:t>One</a:t></a:r><a:r><a:rPr/><a:t>two</a:t></a:r>'
        '<a:br/><a:r><a:rPr b="1" lang="en-US"/><a:t>three</a:t></a:r><a:fld type="slidenum"><a:t>7x</a:t></a:fld>'
        '<a:endParaRPr lang="en-US"/></a:p>'
    )
    assert read_texts(make([body])) == ["Onetwo three"]
    assert write_slide(body, ["EinsXX dreie"], "de") == (
        '<a:p><a:pPr lvl="1"/><a:r><a:rPr lang="de" dirty="0"/><a:t>EinsXX</a:t></a:r><a:br/>'
        '<a:r><a:rPr b="1" lang="de"/><a:t>dreie</a:t></a:r><a:fld type="slidenum"><a:t>7x</a:t></a:fld>'
        '<a:endParaRPr lang="en-US"/></a:p>'
    )


def test_formats_of_paragraphs_out_of_their_place_are_codes():
    run = "<a:r><a:t>One</a:t></a:r>"
    assert read_texts(make([f"<a:p>{run}<a:pPr/><a:endParaRPr/>{run}</a:p>"])) == ["OneOne"]


def test_alternative_texts():
    body = '<p:cNvPr id="2" name="Picture 1" descr="A red house"/>' + PARAGRAPH.format("Text")
    assert read_texts(make([body])) == ["A red house", "Text"]
    assert 'name="Picture 1" descr="Ein &apos;Haus&apos;"' in write_slide(body, ["Ein 'Haus'", "Text"])


def test_tips_layouts_and_inserted_files():
    link = '<p:cNvPr id="1" descr="Alt text"><a:hlinkClick tooltip="A tip"/></p:cNvPr>'
    text = '<a:p><a:r><a:rPr><a:hlinkClick tooltip="Its tip"/></a:rPr><a:t>Text</a:t></a:r></a:p>'
    layout = f"<p:sp>{PARAGRAPH.format('Of us')}</p:sp><p:sp><p:ph/>{PARAGRAPH.format('Edit it')}</p:sp>"
    parts = {
        "ppt/slideLayouts/a.xml": make_slide(layout, "sldLayout", "slideLayout"),
        "ppt/slides/_rels/slide1.xml.rels": relate(("oleObject", "../a.bin")),
        "ppt/a.bin": ("x", ""),
    }
    file = read_pptx(make([link + text], parts))
    assert [unit.text for unit in file.units] == ["Alt text", "A tip", "Text"]
    assert [(each.reason, each.text) for each in file.skipped] == [
        ("tips of links", "Its tip"),
        ("inserted files", "ppt/a.bin"),
        ("layouts and masters", "Of us"),
    ]


def test_runs_get_the_language():
    body = "<a:p><a:r><a:t>One</a:t></a:r></a:p>"
    assert write_slide(body, ["Two"], "de") == '<a:p><a:r><a:rPr lang="de"/><a:t>Two</a:t></a:r></a:p>'
    assert write_slide(body, ["One"], "de") == body


def test_right_to_left_languages_turn_changed_paragraphs():
    body = "<a:p><a:r><a:t>One</a:t></a:r></a:p><a:p><a:pPr lvl='1'/><a:r><a:t>Two</a:t></a:r></a:p>"
    run = '<a:r><a:rPr lang="ar"/><a:t>{}</a:t></a:r></a:p>'
    assert write_slide(body, ["abc", "def"], "ar") == (
        '<a:p><a:pPr algn="r" rtl="1"/>'
        + run.format("abc")
        + '<a:p><a:pPr algn="r" rtl="1" lvl=\'1\'/>'
        + run.format("def")
    )


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"no package", "not a zip package"),
        (pack_parts({}), "not a presentation"),
        (pack_parts({"ppt/vbaProject.bin": ("", "x")}), "macros"),
        (make(["<a:p>"]), "broken XML"),
    ],
)
def test_what_is_no_presentation_is_refused(data, message):
    with pytest.raises(DocmtError, match=message):
        read_pptx(data)


TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")), max_size=12)


@check_files(st.lists(st.lists(st.tuples(TEXTS, st.booleans()), max_size=4), max_size=4), quick=0, full=40)
def test_presentations_of_another_writer_are_kept(slides):
    presentation = pptx.Presentation()
    for runs in slides:
        slide = presentation.slides.add_slide(presentation.slide_layouts[5])
        paragraph = slide.shapes.title.text_frame.paragraphs[0]
        for text, bold in runs:
            run = paragraph.add_run()
            run.text, run.font.bold = text, bold
    buffer = io.BytesIO()
    presentation.save(buffer)
    check_round_trip(read_pptx, buffer.getvalue())


@pytest.mark.parametrize("path", list_files(".pptx", "pptx"))
def test_real_presentations_are_kept(path):
    assert pptx.Presentation(io.BytesIO(check_round_trip(read_pptx, path.read_bytes())))


@pytest.mark.full
def test_mutants_are_read_or_refused():
    data = make(["<p:cNvPr descr='A b'/>" + PARAGRAPH.format("One"), PARAGRAPH.format("Two")])
    names = ["ppt/slides/slide1.xml", "ppt/presentation.xml", "ppt/_rels/presentation.xml.rels"]
    assert check_mutants(read_pptx, data, names, random.Random(0), 600) > 100
