"""`docmt translate`, `extract` and `merge` with files with markup."""

import gzip
import json
import re
import signal
from dataclasses import replace

import pytest
from commands import QUICK, call, fails, start, wait_for_lines

import docmt

PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>It is cheap.</title></head>
<body>
<p class=x>Anna bought a <b>lamp</b>. It is <a href="/x?a=1&amp;b=2">quite cheap</a>.</p>
<pre>It is code.</pre>
<ul><li>It is old.</li><li><i>It is new.</i></li></ul>
</body></html>
"""
PLAIN = ["It is cheap.", "Anna bought a lamp. It is quite cheap.", "It is old.", "It is new."]
SRT = "1\n00:00:01,000 --> 00:00:02,000\nAnna bought\n\n2\n00:00:02,100 --> 00:00:03,000\na lamp.\n"


def visible(page):
    """The text of a page without its tags, one line an element with text."""
    return re.sub(r"<[^>]*>", "", page).split("\n")


@pytest.fixture
def page(tmp_path):
    path = tmp_path / "page.html"
    path.write_text(PAGE)
    return path


def test_a_page_keeps_its_markup(run, page, tmp_path):
    out = tmp_path / "seite.html"
    outcome = call("translate", run, page, "-o", out, "--report", tmp_path / "left.tsv", *QUICK)
    assert outcome.status == 0, outcome.err
    new = out.read_text()
    assert '<html lang="de">' in new and "<pre>It is code.</pre>" in new
    assert new.count("<b>") == 1 and new.count('<a href="/x?a=1&amp;b=2">') == 1
    assert re.sub(r">[^<]+<", "><", new).count("<") == PAGE.count("<")
    assert "not translated: 1 x code" in outcome.err
    assert (tmp_path / "left.tsv").read_text() == f"{page}\tcode\tIt is code.\n"


def test_missing_text_is_told_wherever_a_translation_goes(run, tmp_path):
    """In the report of a file, in the record of its sentence, and on standard error."""
    page, long = tmp_path / "long.html", "It is " + "cheap, old and new, " * 12 + "for Anna."
    page.write_text(f"<p>It is new.</p><p>{long}</p>")
    report, records = tmp_path / "left.tsv", tmp_path / "a.jsonl"
    outcome = call("translate", run, page, "-o", tmp_path / "x.html", "--report", report, *QUICK)
    assert f"1 x sentences of which a part seems not to be translated ({page}, sentence 2)" in outcome.err
    assert f"{page}\tmissing text\t{long}\n" in report.read_text()
    call("translate", run, page, "-o", records, "--format", "jsonl", *QUICK)
    rows = [json.loads(line) for line in records.read_text().splitlines()]
    assert ["missing_text" in row["warnings"] for row in rows] == [False, True]


def test_markup_never_changes_the_words(run, page, tmp_path):
    call("translate", run, page, "-o", tmp_path / "a.jsonl", "--format", "jsonl", *QUICK)
    rows = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    document = docmt.Document.from_text("\n\n".join(PLAIN))
    search = docmt.SearchConfig(beam=1, max_length_ratio=0, max_length_extra=2)
    translation = docmt.Translator(run, search=search).translate(document)
    assert [row["target"] for row in rows] == list(translation.document.sentences)
    call("translate", run, page, "-o", tmp_path / "b.html", *QUICK)
    text = "".join(visible((tmp_path / "b.html").read_text()))
    assert [sentence for sentence in translation.document.sentences if sentence not in text] == []


def test_a_layout_of_text_for_a_page_is_warned_of(run, page, tmp_path):
    outcome = call("translate", run, page, "--layout", "lines", *QUICK)
    message = f"{page} is html, but --layout lines translates its markup like words: leave out --layout"
    assert outcome.status == 0 and message in outcome.err
    text = tmp_path / "x.txt"
    text.write_text("It is new.\n")
    assert "markup" not in call("translate", run, text, "--layout", "lines", *QUICK).err


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (b'# x\nmsgid "New"\nmsgstr ""\n', "po"),
        (b'{\n  "title": "New"\n}\n', "json"),
        (b"id,text\n1,It is new.\n", "tsv"),
        (b"It is [new].\n", ""),
    ],
)
def test_standard_input_that_looks_like_markup_is_warned_of(run, data, name):
    outcome = call("translate", run, *QUICK, stdin=data)
    warning = f"standard input looks like {name} but is translated as text: add --format {name}"
    assert outcome.status == 0 and (warning in outcome.err if name else "looks like" not in outcome.err)


@pytest.mark.parametrize("name", ["page.html", "page.md", "page.txt"])
def test_addresses_come_out_as_they_are(run, tmp_path, name):
    page, out = tmp_path / name, tmp_path / f"new-{name}"
    page.write_text("It is new: see https://example.org/a?b=SP.c_d or me@example.org.\n")
    assert call("translate", run, page, "-o", out, *QUICK).status == 0
    assert "https://example.org/a?b=SP.c_d" in out.read_text() and "me@example.org" in out.read_text()
    lines = call("translate", run, page, "--format", "jsonl", *QUICK).out
    assert lines.count("https://example.org") == 2  # also in the source
    lines = call("translate", run, page, "--format", "jsonl", "--protect", "none", *QUICK).out
    assert lines.count("https://example.org") == 1
    docmt.Translator(run).translate_file(page, tmp_path / f"python-{name}")
    assert "https://example.org/a?b=SP.c_d" in (tmp_path / f"python-{name}").read_text()


def test_a_model_that_reads_all_text_reads_no_placeholder_of_a_file(run, tmp_path):
    path, out = tmp_path / "a.json", tmp_path / "b.json"
    path.write_text('["It is new, {name}: {count} lamps", "It costs {price}. Anna bought %s."]')
    options = ["--fields", "*", "--protect", "none", *QUICK]
    rows = call("translate", run, path, "--format", "jsonl", *options).out.splitlines()
    assert [json.loads(row)["source"] for row in rows] == ["It is new,: lamps", "It costs.", "Anna bought."]
    assert call("translate", run, path, "-o", out, *options).status == 0
    docmt.Translator(run, protect=None).translate_file(path, tmp_path / "c.json", fields=["*"])
    for text in (out.read_text(), (tmp_path / "c.json").read_text()):
        assert sorted(re.findall(r"\{\w*\}|%\w*", text)) == ["%s", "{count}", "{name}", "{price}"]


def test_python_writes_the_same_file(run, page, tmp_path):
    assert call("translate", run, page, "-o", tmp_path / "a.html", *QUICK).status == 0
    search = docmt.SearchConfig(beam=1, max_length_ratio=0, max_length_extra=2)
    translator = docmt.Translator(run, search=search)
    (translation,) = translator.translate_file(page, tmp_path / "b.html")
    assert len(translation) == 5
    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()
    with pytest.raises(docmt.DocmtError, match="overwritten"):
        translator.translate_file(page, page)


def test_a_page_goes_to_standard_output(run, page, tmp_path):
    call("translate", run, page, "-o", tmp_path / "a.html", *QUICK)
    assert call("translate", run, page, *QUICK).out == (tmp_path / "a.html").read_text()
    assert call("translate", run, *QUICK, stdin=page.read_bytes()).out == (tmp_path / "a.html").read_text()
    piped = call("translate", run, "--format", "html", *QUICK, stdin=page.read_bytes())
    assert piped.out == (tmp_path / "a.html").read_text()


def test_several_formats_keep_their_names(run, page, tmp_path):
    (tmp_path / "film.srt").write_text(SRT)
    (tmp_path / "text.txt").write_text("It is cheap.\n")
    (tmp_path / "broken.docx").write_bytes(b"PK\3\4 nothing")
    files = [page, tmp_path / "film.srt", tmp_path / "text.txt", tmp_path / "broken.docx"]
    outcome = call("translate", run, *files, "-o", tmp_path / "out", *QUICK)
    assert outcome.status == 2
    assert "broken.docx" in outcome.err and "Traceback" not in outcome.err
    assert outcome.err.endswith(
        "page.html.partial (and 2 others) is for --resume, which translates only documents that failed: "
        "delete it otherwise\n"
    )
    names = {path.name for path in (tmp_path / "out").iterdir() if path.suffix != ".partial"}  # --resume reads those
    assert names == {"film.srt", "page.html", "text.txt"}
    times = re.findall(r".* --> .*", SRT)
    assert re.findall(r".* --> .*", (tmp_path / "out" / "film.srt").read_text()) == times


def test_extract_and_merge(run, page, tmp_path):
    call("translate", run, page, "-o", tmp_path / "a.html", *QUICK)
    outcome = call("extract", page, "-o", tmp_path / "a.xlf", "--model", run, *QUICK)
    assert outcome.status == 0, outcome.err
    assert call("merge", tmp_path / "a.xlf", "-o", tmp_path / "b.html").status == 0
    assert (tmp_path / "b.html").read_text() == (tmp_path / "a.html").read_text()
    call("translate", run, page, "-o", tmp_path / "c.html", "--bilingual", tmp_path / "c.xlf", *QUICK)
    assert (tmp_path / "c.xlf").read_bytes() == (tmp_path / "a.xlf").read_bytes()


def test_extract_without_a_model(page, tmp_path):
    arguments = ("-o", tmp_path / "a.xlf", "--source-language", "en", "--target-language", "de")
    assert call("extract", page, *arguments).status == 0
    outcome = call("merge", tmp_path / "a.xlf", "-o", tmp_path / "b.html")
    assert outcome.status == 0 and "translation" in outcome.err
    assert outcome.err.count("a.xlf") == 1
    assert (tmp_path / "b.html").read_text() == PAGE.replace('lang="en"', 'lang="de"')


@pytest.mark.parametrize("suffix", ["html", "tmx", "xlf"])
def test_bilingual_files(run, page, tmp_path, suffix):
    path = tmp_path / f"both.{suffix}"
    assert call("translate", run, page, "-o", tmp_path / "a.html", "--bilingual", path, *QUICK).status == 0
    text = path.read_text()
    assert "Anna bought a" in text and "src=" not in text


@pytest.mark.full
def test_a_killed_translation_goes_on(run, tmp_path):
    paragraphs = "".join(f"<p>Anna bought <b>lamp</b> {n}. It is <i>cheap</i>.</p>\n" for n in range(30))
    page = tmp_path / "long.html"
    page.write_text(f"<html><body>{paragraphs}</body></html>")
    options = [*QUICK, "--batch-tokens", 16]
    assert call("translate", run, page, "-o", tmp_path / "whole.html", *options).status == 0
    out = tmp_path / "out.html"
    process = start("translate", run, page, "-o", out, *options)
    wait_for_lines(tmp_path / "out.html.partial", 3, process)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert page.read_text().count("<p>") == 30
    assert not out.exists()
    message = "it was started with another --bilingual"
    fails("translate", run, page, "-o", out, "--resume", "--bilingual", tmp_path / "b.html", *options, message=message)
    outcome = call("translate", run, page, "-o", out, "--resume", *options)
    assert outcome.status == 0, outcome.err
    assert out.read_bytes() == (tmp_path / "whole.html").read_bytes()


def test_what_has_no_effect_is_refused(run, page, tmp_path):
    out, message = tmp_path / "out.html", "html, which has no fields"
    fails("translate", run, page, "-o", out, "--fields", "title", message=message)
    fails("translate", run, page, "-o", out, "--join-lines", message="leave out --join-lines")
    fails("translate", run, page, "-o", tmp_path / "out.docx", message="end it in .html or .htm")
    (tmp_path / "a.txt").write_text("It is cheap.\n")
    asked = ("translate", run, tmp_path / "a.txt", "-o")
    fails(*asked, tmp_path / "b.docx", message="a.txt is translated into text, but")
    assert not (tmp_path / "b.docx").exists()
    assert call(*asked, tmp_path / "b.md", *QUICK).status == 0
    fails("translate", run, page, "-o", out, "--bilingual", tmp_path / "x.doc", message="End the name in .html, .xlf")
    for suffix in ("txt", "jsonl"):
        message = "--bilingual needs output in html"
        fails(
            "translate", run, page, "-o", tmp_path / f"a.{suffix}", "--bilingual", tmp_path / "x.xlf", message=message
        )
    fails("translate", run, page, "-o", page, message="would be overwritten")
    fails("translate", run, page, "-o", out, "--bilingual", out, message="two outputs")
    old = tmp_path / "old.doc"
    old.write_bytes(b"\xd0\xcf")
    fails("translate", run, old, "-o", out, message="Save it as docx without macros, and translate that")
    for format in ("text", "jsonl"):
        message = f"is translated into {format}, but"
        fails("translate", run, page, "-o", tmp_path / "out.docx", "--format", format, message=message)
    text = tmp_path / "a.txt"
    text.write_text("It is cheap.\n")
    fails("translate", run, text, "-o", out, "--fields", "a", message="--fields is for files with markup")
    fails("extract", text, "-o", tmp_path / "a.xlf", message="is plain text or JSONL, without markup")
    fails("extract", page, "-o", tmp_path / "a.html", message="End the name in .xlf or .xliff")
    message = "--search.beam has no effect without --model: leave it out, or add --model"
    fails("extract", page, "-o", tmp_path / "a.xlf", "--beam", 3, message=message)
    fails("merge", page, "-o", out, message="page.html")


def test_files_and_options_are_checked_before_the_model_is_loaded(run, page, tmp_path, monkeypatch):
    def load(*_arguments, **_settings):
        raise AssertionError("the model was loaded")

    monkeypatch.setattr("docmt.decoding.translator.load_members", load)
    table = tmp_path / "a.csv"
    table.write_text("id,text\n1,It is new.\n")
    for arguments, message in (
        ((page, "-o", tmp_path / "a.docx"), r"but \S+ ends in \.docx: end it in \.html or \.htm"),
        ((page, "-o", tmp_path / "b.html", "--fields", "a"), "html, which has no fields"),
        ((page, "-o", tmp_path / "b.html", "--format", "docx"), "page.html"),
        ((table, "-o", tmp_path / "b.csv", "--fields", "b"), "has no column b"),
    ):
        fails("translate", run, *arguments, message=message)
    fails("translate", run, "--fields", "text", stdin=table.read_bytes(), message="add --format NAME for --fields")


def test_csv_on_standard_input(run):
    outcome = call("translate", run, "--format", "tsv", "--fields", "text", *QUICK, stdin=b'id,text\n"1","It, is."\n')
    assert outcome.status == 0, outcome.err
    assert re.fullmatch(r'id,text\n"1","[^"]*"\n', outcome.out) and "It, is." not in outcome.out


def test_a_page_with_the_name_of_a_text_stays_a_page(run, tmp_path):
    path, out = tmp_path / "a.txt", tmp_path / "out"
    out.mkdir()
    path.write_text(PAGE)
    outcome = call("translate", run, path, "-o", out, *QUICK)
    assert outcome.status == 0 and "a.txt is html by its content, and stays so" in outcome.err
    assert "<b>" in (out / "a.txt").read_text()
    assert call("translate", run, path, "-o", out, "--format", "text", *QUICK).status == 0
    assert "<b>" not in (out / "a.txt").read_text()


def test_format_text_reads_a_file_of_any_name(run, tmp_path):
    for name, content in (("a.rst", "It is new.\n"), ("a.txt", "<?xml version='1.0'?>\nIt is new.\n")):
        path = tmp_path / name
        path.write_text(content)
        fails("translate", run, path, "-o", tmp_path / "b.txt", message="docmt does not read")
        assert call("translate", run, path, "-o", tmp_path / "b.txt", "--format", "text", *QUICK).status == 0


@pytest.mark.parametrize("suffix", ["xlf", "xliff", "sdlxliff", "mqxliff", "mxliff", "txlf", "other"])
def test_every_name_of_xliff_is_read_and_written(run, tmp_path, suffix):
    unit = '<trans-unit id="1"><source>It is new.</source></trans-unit>'
    path, out = tmp_path / f"a.{suffix}", tmp_path / "out"
    out.mkdir()
    path.write_text(
        '<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2"><file original="a" source-language="en"'
        f' target-language="de" datatype="x"><body>{unit}</body></file></xliff>'
    )
    for output in (out, tmp_path / f"b.{suffix}"):
        outcome = call("translate", run, path, "-o", output, *QUICK)
        assert outcome.status == 0, outcome.err
    assert (out / path.name).read_bytes() == (tmp_path / f"b.{suffix}").read_bytes()
    assert b"<target>" in (out / path.name).read_bytes()


def test_compressed_pages(run, page, tmp_path):
    packed = tmp_path / "packed.html.gz"
    packed.write_bytes(gzip.compress(page.read_bytes()))
    assert call("translate", run, page, "-o", tmp_path / "a.html", *QUICK).status == 0
    assert call("translate", run, packed, "-o", tmp_path / "b.html.gz", *QUICK).status == 0
    assert gzip.decompress((tmp_path / "b.html.gz").read_bytes()) == (tmp_path / "a.html").read_bytes()


def test_python_refuses_other_suffixes(run, page, tmp_path):
    translator = docmt.Translator(run)
    with pytest.raises(docmt.DocmtError, match=r"end it in \.html or \.htm"):
        translator.translate_file(page, tmp_path / "out.txt")
    with pytest.raises(docmt.DocmtError, match="overwritten"):
        translator.translate_file(page, tmp_path / "out.html", bilingual=page)
    with pytest.raises(docmt.DocmtError):
        translator.translate_file(page, tmp_path / "out.html", bilingual=tmp_path / "out.html")
    assert page.read_text() == PAGE and not (tmp_path / "out.html").exists()


def test_scores_that_are_no_numbers_keep_the_source(run, page, tmp_path, monkeypatch):
    from docmt.decoding import translator as module

    make = module.Translator._make_translation

    def spoil(self, source, hypotheses):
        translation = make(self, source, hypotheses)
        sentences = (replace(translation.sentences[0], score=float("nan")), *translation.sentences[1:])
        return replace(translation, sentences=sentences) if "It is old." in source.document.sentences else translation

    monkeypatch.setattr(module.Translator, "_make_translation", spoil)
    other = tmp_path / "other.html"
    other.write_text("<p>It is <b>cheap</b>.</p>")
    outcome = call("translate", run, other, page, "-o", tmp_path / "out", *QUICK)
    assert outcome.status == 2
    assert "the score of sentence" in outcome.err
    assert "<b>" in (tmp_path / "out" / "other.html").read_text()
    written = tmp_path / "out" / "page.html"
    assert not written.exists() or "Anna bought a <b>lamp</b>" in written.read_text()


def test_merge_knows_the_fields(run, tmp_path):
    (tmp_path / "menu.json").write_text('{"items": [{"id": "It is", "title": "It is new."}]}')
    arguments = ("--fields", "items.*.title", *QUICK)
    assert call("translate", run, tmp_path / "menu.json", "-o", tmp_path / "a.json", *arguments).status == 0
    outcome = call("extract", tmp_path / "menu.json", "-o", tmp_path / "a.xlf", "--model", run, *arguments)
    assert outcome.status == 0, outcome.err
    assert call("merge", tmp_path / "a.xlf", "-o", tmp_path / "b.json").status == 0
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()
    assert '"id": "It is"' in (tmp_path / "b.json").read_text()


def test_extract_asks_for_a_language(page, tmp_path):
    outcome = call("extract", page, "-o", tmp_path / "a.xlf")
    assert outcome.status == 0 and "add --target-language CODE" in outcome.err


def test_a_python_program_is_told_to_read_jsonl_itself(run, tmp_path):
    (tmp_path / "a.jsonl").write_text('{"source": ["A few words."]}\n')
    with pytest.raises(docmt.DocmtError, match=r"a.jsonl is JSONL: translate its documents with `docmt translate`"):
        docmt.Translator(run).translate_file(tmp_path / "a.jsonl", tmp_path / "b.jsonl")
    assert not (tmp_path / "b.jsonl").exists()
