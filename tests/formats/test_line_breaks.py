"""Line breaks within a paragraph end a sentence where its line looks complete, in all formats alike."""

import pytest
import test_open_documents
import test_presentations
import test_word_documents

from docmt.formats import html_pages, json_files, markdown_texts
from docmt.formats.unit_documents import SentenceTranslation, UnitDocuments
from docmt.formats.units import ReadConfig


def make_docx(lines):
    texts = "<w:br/>".join(f"<w:t>{line}</w:t>" for line in lines)
    return test_word_documents.read_docx(test_word_documents.make(f"<w:p><w:r>{texts}</w:r></w:p>"))


def make_odt(lines):
    return test_open_documents.load(test_open_documents.pack(f"<text:p>{'<text:line-break/>'.join(lines)}</text:p>"))


def make_pptx(lines):
    runs = "<a:br><a:rPr/></a:br>".join(f"<a:r><a:t>{line}</a:t></a:r>" for line in lines)
    return test_presentations.read_pptx(test_presentations.make([f"<a:p>{runs}</a:p>"]))


def make_html(lines):
    return html_pages.read(f"<p>{'<br>'.join(lines)}</p>".encode(), "x.html", ReadConfig())


@pytest.mark.parametrize("make", [make_docx, make_odt, make_pptx, make_html])
@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["Mr Smith", "12 Long Street", "Townsville"], ["Mr Smith", "12 Long Street", "Townsville"]),
        (["Annual Report", "Results of the Year"], ["Annual Report", "Results of the Year"]),
        (["The end of one", "", "and all after it"], ["The end of one", "and all after it"]),
        (["One sentence that", "goes on over lines"], ["One sentence that goes on over lines"]),
        (["Dear Sir,", "We write"], ["Dear Sir, We write"]),
        (["A line that someone has broken by hand, where", "Paris is"], None),
    ],
)
def test_a_break_ends_a_sentence_after_a_line_that_looks_complete(make, lines, expected):
    (document,) = UnitDocuments(make(lines), "en").documents
    assert list(document.sentences) == (expected or [" ".join(lines)])


@pytest.mark.parametrize("make", [make_docx, make_odt, make_pptx])
def test_a_break_between_sentences_stays(make):
    documents = UnitDocuments(make(["Mr Smith", "Townsville"]), "en")
    (unit,) = documents.translate([[SentenceTranslation("Herr Schmied"), SentenceTranslation("Stadt")]]).units
    (offset,) = [code.offset for code in unit.codes if "br" in code.content]
    assert (unit.text, offset) == ("Herr Schmied Stadt", len("Herr Schmied"))


def make_docx_row(cells):
    texts = "<w:tab/>".join(f"<w:t>{cell}</w:t>" for cell in cells)
    return test_word_documents.read_docx(test_word_documents.make(f"<w:p><w:r>{texts}</w:r></w:p>"))


def make_odt_row(cells, gap="<text:tab/>"):
    return test_open_documents.load(test_open_documents.pack(f"<text:p>{gap.join(cells)}</text:p>"))


def make_odt_wide_row(cells):
    return make_odt_row(cells, '<text:s text:c="5"/>')


def make_pptx_row(cells):
    return test_presentations.read_pptx(
        test_presentations.make(["<a:p><a:r><a:t>" + "\t".join(cells) + "</a:t></a:r></a:p>"])
    )


def make_markdown_row(cells):
    return markdown_texts.read("\t".join(cells).encode(), "x.md", ReadConfig())


def make_json_row(cells):
    return json_files.read(('{"a": "' + "\\t".join(cells) + '"}').encode(), "x.json", ReadConfig(("a",)))


@pytest.mark.parametrize(
    "make", [make_docx_row, make_odt_row, make_odt_wide_row, make_pptx_row, make_markdown_row, make_json_row]
)
def test_a_tab_ends_a_sentence_and_stays_in_its_place(make):
    file = make(["The seller", "X", "the buyer"])
    documents = UnitDocuments(file, "en")
    assert list(documents.documents[0].sentences) == ["The seller", "the buyer"]
    (old,) = file.units
    (unit,) = documents.translate([[SentenceTranslation("Le vendeur"), SentenceTranslation("un acheteur")]]).units
    assert unit.render() == old.render().replace("The seller", "Le vendeur").replace("the buyer", "un acheteur")
