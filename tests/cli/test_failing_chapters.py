"""A chapter of a book that cannot be translated keeps its text, is named and tried again; the others are translated."""

import io
import math
import re
import zipfile
from dataclasses import replace

import pytest
import torch
from commands import call, fails
from lxml import etree
from test_unfinished_translations import SEARCH, save

import docmt
from docmt.checkpoint.model_directory import load_model_tokenizer
from docmt.core.errors import DocmtError
from docmt.decoding import Translator, document_stream

CONTAINER = """<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>
<rootfile full-path="b.opf" media-type="application/oebps-package+xml"/></rootfiles></container>"""
PACKAGE = """<package xmlns="http://www.idpf.org/2007/opf"><metadata/><manifest>
{}</manifest><spine>{}</spine></package>"""
ITEM = '<item id="c{0}" href="{0}.xhtml" media-type="application/xhtml+xml"/>'
PAGE = '<html xmlns="http://www.w3.org/1999/xhtml"><body><p>{} <b>Anna</b> is here.</p></body></html>'


def pack_book(*sentences, page=PAGE):
    """Return a book with a chapter for each of these sentences."""
    numbers = range(1, len(sentences) + 1)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        file.writestr("mimetype", "application/epub+zip")
        file.writestr("META-INF/container.xml", CONTAINER)
        spine = "".join(f'<itemref idref="c{number}"/>' for number in numbers)
        file.writestr("b.opf", PACKAGE.format("".join(map(ITEM.format, numbers)), spine))
        for number, sentence in zip(numbers, sentences, strict=True):
            file.writestr(f"{number}.xhtml", page.format(sentence))
    return buffer.getvalue()


def read_chapters(path):
    with zipfile.ZipFile(path) as file:
        assert file.testzip() is None
        pages = [file.read(name).decode() for name in sorted(file.namelist()) if name.endswith(".xhtml")]
    for page in pages:
        etree.fromstring(page)
        assert page.count("<b>") == page.count("</b>") == 1
    return pages


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return save(tmp_path_factory.mktemp("models") / "sentence", "sentence")


@pytest.fixture
def book(tmp_path):
    path = tmp_path / "book.epub"
    path.write_bytes(pack_book("It is one.", "BAD.", "It is three."))
    return path


@pytest.fixture
def spoil(model, monkeypatch):
    """Makes documents with the sentence BAD. fail: with this error, or with this change of their first sentence."""

    def spoil(error=None, **change):
        search, make = document_stream.search_task, Translator._make_translation
        (bad,) = load_model_tokenizer(model).encode_batch(["BAD."], "source")

        def searching(task, on_sentences):
            if error and bad in task.words.to_documents([0, len(task.words.lengths)])[0]:
                raise error
            return search(task, on_sentences)

        def making(self, source, hypotheses):
            made, document = make(self, source, hypotheses), source.document
            if not change or "BAD." not in document.sentences:
                return made
            sentences = (replace(made.sentences[0], **change), *made.sentences[1:])
            target = document.replace_sentences([each.target for each in sentences])
            return replace(made, sentences=sentences, document=target)

        monkeypatch.setattr(document_stream, "search_task", searching)
        monkeypatch.setattr(Translator, "_make_translation", making)

    return spoil


FAILURES = {
    "no positions": (
        {"error": DocmtError("sentence 1 may need 700 positions: split it")},
        "sentence 1 may need 700 positions",
    ),
    "memory": ({"error": MemoryError()}, "out of memory: split its long sentences"),
    "GPU memory": ({"error": torch.OutOfMemoryError("CUDA out of memory")}, "out of memory: split its long"),
    "NaN": ({"score": math.nan}, "the score of sentence 1 is not a number"),
    "infinity": ({"score": -math.inf}, "the score of sentence 1 is not a number"),
}


@pytest.mark.parametrize("failure", FAILURES)
def test_a_chapter_that_fails_keeps_its_text(model, book, tmp_path, spoil, monkeypatch, failure):
    changes, message = FAILURES[failure]
    command = ["translate", model, book, "-o", tmp_path / "out.epub", *SEARCH]
    assert call(*command[:4], tmp_path / "whole.epub", *SEARCH).status == 0
    whole = read_chapters(tmp_path / "whole.epub")
    spoil(**changes)
    for resume in ([], ["--resume"]):
        outcome = call(*command, *resume, "--report", tmp_path / "left.tsv")
        assert outcome.status == 2 and "Traceback" not in outcome.err
        errors = [line for line in outcome.err.splitlines() if line.startswith("docmt: error: ")]
        assert re.match(rf"docmt: error: {book}, document 2, sentence 1: {message}", errors[0])
        summary = f"1 of 3 documents are not wholly translated: {tmp_path}/out.epub has the source text there"
        assert errors[1:] == [f"docmt: error: {summary}"]
        first, second, third = read_chapters(tmp_path / "out.epub")
        assert (first, third) == (whole[0], whole[2])
        assert "<p>BAD. " in second and second != PAGE.format("BAD.")
        assert f"{book}\tsentences that failed\tBAD.\n" in (tmp_path / "left.tsv").read_text()
    monkeypatch.undo()
    outcome = call(*command, "--resume")
    assert outcome.status == 0
    assert "out.epub lacks documents that failed: translating it again" in outcome.err
    assert (tmp_path / "out.epub").read_bytes() == (tmp_path / "whole.epub").read_bytes()
    assert {path.name for path in tmp_path.iterdir()} == {"book.epub", "out.epub", "whole.epub", "left.tsv"}


def test_where_every_chapter_fails_there_is_no_book(model, tmp_path, spoil):
    book = tmp_path / "book.epub"
    book.write_bytes(pack_book("BAD.", "BAD.", "BAD.", page=PAGE.replace(" <b>Anna</b> is here.", "")))
    spoil(error=DocmtError("it is bad"))
    both = ["--bilingual", tmp_path / "both.xlf"]
    outcome = call("translate", model, book, "-o", tmp_path / "out.epub", *both, *SEARCH)
    assert outcome.status == 2
    assert outcome.err.count("it is bad") == 3
    assert [path.name for path in tmp_path.iterdir()] == ["book.epub"]


def test_bilingual_files_show_what_failed(model, book, tmp_path, spoil):
    spoil(error=DocmtError("it is bad"))
    for name in ("both.xlf", "both.tmx"):
        command = ["translate", model, book, "-o", tmp_path / "out.epub", "--bilingual", tmp_path / name, *SEARCH]
        assert call(*command).status == 2
    segments = etree.parse(tmp_path / "both.xlf").iter("{*}segment")
    states = {"".join(segment.find("{*}source").itertext()): segment.get("state") for segment in segments}
    assert states == {**dict.fromkeys(states, "translated"), "BAD.": "initial"}
    assert "BAD." not in (tmp_path / "both.tmx").read_text()
    assert call("merge", tmp_path / "both.xlf", "-o", tmp_path / "merged.epub").status == 0
    assert read_chapters(tmp_path / "merged.epub") == read_chapters(tmp_path / "out.epub")


def test_a_fault_of_the_program_leaves_no_half_book(model, book, tmp_path, spoil):
    spoil(error=ZeroDivisionError("a fault of ours"))
    command = ["translate", model, book, "-o", tmp_path / "out.epub", *SEARCH]
    with pytest.raises(ZeroDivisionError):
        call(*command)
    assert not (tmp_path / "out.epub").exists()


def test_an_empty_translation_keeps_the_codes(model, book, tmp_path, spoil):
    spoil(target="")
    outcome = call("translate", model, book, "-o", tmp_path / "out.epub", *SEARCH)
    assert outcome.status == 0
    pages = read_chapters(tmp_path / "out.epub")
    assert "BAD." not in pages[1] and "<b>" in pages[1]


def test_python_writes_no_half_book(model, book, tmp_path, spoil):
    spoil(score=math.nan)
    translator = docmt.Translator(model)
    with pytest.raises(DocmtError, match="not finite numbers"):
        translator.translate_file(book, tmp_path / "out.epub", bilingual=str(tmp_path / "both.xlf"))
    assert [path.name for path in tmp_path.iterdir()] == ["book.epub"]
    fails("translate", model, book, "-o", tmp_path / "no" / "out.epub", *SEARCH, message=r"no/out\.epub")
