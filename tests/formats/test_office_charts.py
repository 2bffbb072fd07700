"""Labels of charts, and the workbooks that charts are made of."""

import io
import zipfile

import pytest
import test_presentations
import test_word_documents
import test_workbooks
from office_samples import CHART, A, C, read_part, relate

from docmt.formats.units import Unit

SHEET_TYPE = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
SERIES = (
    "<c:ser><c:tx><c:strRef><c:strCache><c:pt><c:v>{}</c:v></c:pt></c:strCache></c:strRef></c:tx>"
    "<c:cat><c:strCache><c:pt><c:v>Apples</c:v></c:pt><c:pt><c:v>AB_12</c:v></c:pt></c:strCache></c:cat>"
    "<c:val><c:numCache><c:pt><c:v>#N/A</c:v></c:pt></c:numCache></c:val></c:ser>"
)
XML = f'<c:chart xmlns:c="{C}" xmlns:a="{A}">{SERIES.format("Sold")}{SERIES.format("Bought")}</c:chart>'


def make(format, workbook):
    """Return a package of a format with a chart, and the function that reads it."""
    folder = {"docx": "word", "pptx": "ppt"}[format]
    parts = {
        f"{folder}/charts/chart1.xml": (CHART, XML),
        f"{folder}/charts/_rels/chart1.xml.rels": relate(("package", "../book.xlsx")),
    }
    if format == "docx":
        data, read = test_word_documents.make("", parts), test_word_documents.read_docx
    else:
        parts["ppt/slides/_rels/slide1.xml.rels"] = relate(("chart", "../charts/chart1.xml"))
        data, read = test_presentations.make([""], parts), test_presentations.read_pptx
    buffer = io.BytesIO(data)
    with zipfile.ZipFile(buffer, "a") as file:
        file.writestr(f"{folder}/book.xlsx", workbook)
    return buffer.getvalue(), read, folder


@pytest.mark.parametrize("format", ["docx", "pptx"])
def test_labels_are_translated_once_in_chart_and_workbook(format):
    book = test_workbooks.make([test_workbooks.share(0, 1, 2)], ["Apples", "Sold", "Another text"])
    data, read, folder = make(format, book)
    file = read(data)
    assert [unit.text for unit in file.units] == ["Sold", "Apples", "Bought"]
    assert file.write(file.units) == data
    new = file.write([Unit("Verkauft"), Unit("Äpfel"), file.units[2]])
    chart = read_part(new, f"{folder}/charts/chart1.xml")
    assert chart == XML.replace("Sold", "Verkauft").replace("Apples", "Äpfel")
    with zipfile.ZipFile(io.BytesIO(new)) as package:
        book = package.read(f"{folder}/book.xlsx")
    assert test_workbooks.read_texts(book) == ["Äpfel", "Verkauft", "Another text"]


def test_a_workbook_that_cannot_be_read_stays():
    data, read, folder = make("pptx", b"broken")
    new = read(data).write([Unit("a1"), Unit("b1"), Unit("c1")])
    assert read_part(new, f"{folder}/book.xlsx") == "broken"
    assert "<c:v>b1</c:v>" in read_part(new, f"{folder}/charts/chart1.xml")
