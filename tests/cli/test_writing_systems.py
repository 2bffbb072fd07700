"""Right-to-left and Chinese text, emoji and combining characters, in files with markup: what goes in comes out."""

import io
import json
import re
from dataclasses import replace

import docx
import pytest
from commands import call
from lxml import etree
from test_unfinished_translations import SEARCH, save

from docmt.decoding import Translator
from docmt.decoding.file_translation import FileConfig, FileTranslation
from docmt.decoding.translation_results import WordLink
from docmt.documents.input_formats import FORMATS
from docmt.documents.words import find_words
from docmt.formats.units import ReadConfig, read_units

MARK = "\u2020"
"""What the marking translator writes before each sentence."""
TEXTS = {
    "ar": ("اشترت ", "آنا", " مصباحًا. إنه ", "رخيص", " جدًا، أليس كذلك؟"),
    "he": ("אנה ", "קנתה", " מְנוֹרָה. היא ", "זולה", " מאוד (100%)."),
    "zh": ("安娜", "买了", "一盏灯。它", "很便宜", "，对吗？"),
    "ja": ("アンナは", "ランプ", "を買いました。とても", "安い", "です。"),
    "hi": ("आना ने ", "दीपक", " खरीदा। यह ", "सस्ता", " है।"),
    "signs": ("👩\u200d👩\u200d👧 bought ", "𝔘🇩🇪", " lamps. Cafe\u0301 ", "n\u0303o\u0323\u0302", " 😀."),
    "both directions": ("Anna said ", "שלום", " to \u2067علي\u2069. It is ", "مصباح", " \u200f(1).\u200e"),
}
PAGE = '<html lang="de"><body><p>{}<b>{}</b>{}<a href="x">{}</a>{}</p></body></html>\n'
CUES = "1\n00:00:01,000 --> 00:00:04,000\n{}<i>{}</i>{}<b>{}</b>{}\n"


def make_docx(*parts):
    document = docx.Document()
    paragraph = document.add_paragraph()
    for number, part in enumerate(parts):
        paragraph.add_run(part).bold = number % 2 == 1 or None
    buffer = io.BytesIO()
    document.save(buffer)
    return buffer.getvalue()


WRITERS = {
    "html": lambda *parts: PAGE.format(*parts).encode(),
    "docx": make_docx,
    "srt": lambda *parts: CUES.format(*parts).encode(),
    "markdown": lambda *parts: "{}**{}**{}[{}](x){}\n".format(*parts).encode(),
}
SUFFIXES = {"markdown": "md"}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return save(tmp_path_factory.mktemp("models") / "sentence", "sentence")


@pytest.fixture(params=["", MARK])
def mark(request, monkeypatch):
    """Translators copy sentences after this mark, and know which words are which."""

    def make(self, source, hypotheses):
        document = source.document
        target = document.replace_sentences([request.param + sentence for sentence in document.sentences])
        return self._add_scores(document, target, source.words, hypotheses[0])

    def align(self, parts, sentences=None):
        shift = len(request.param)
        links = [
            [
                tuple(
                    WordLink((start, end), (start + shift, end + shift), 1.0, True) for start, end in find_words(text)
                )
                for text in part.source.sentences
            ]
            for part in parts
        ]
        return [
            replace(part, translation=part.translation.with_links(dict(enumerate(each))))
            for part, each in zip(parts, links, strict=True)
        ]

    monkeypatch.setattr(Translator, "_make_translation", make)
    monkeypatch.setattr(Translator, "align", align)
    return request.param


def read_texts(format, path, *fields):
    """Return the texts with their codes, without marks; lines of subtitles are cut anew."""
    units = read_units(FORMATS[format], path.read_bytes(), str(path), ReadConfig(fields)).units
    return [unit.render().replace(MARK, "").replace("\n", "" if format == "srt" else "\n") for unit in units]


@pytest.mark.parametrize("script", TEXTS)
@pytest.mark.parametrize("format", WRITERS)
def test_what_goes_in_comes_out(model, tmp_path, mark, format, script):
    suffix = SUFFIXES.get(format, format)
    source, target = tmp_path / f"in.{suffix}", tmp_path / f"out.{suffix}"
    source.write_bytes(WRITERS[format](*TEXTS[script]))
    outcome = call("translate", model, source, "-o", target, *SEARCH)
    assert outcome.status == 0, outcome.err
    assert read_texts(format, target) == read_texts(format, source)
    if format in ("html", "markdown"):
        assert target.read_bytes().replace(MARK.encode(), b"") == source.read_bytes()
    if format == "docx":
        runs = docx.Document(target).paragraphs[0].runs
        bold = ["".join(run.text for run in runs if bool(run.bold) == is_bold).replace(MARK, "") for is_bold in (0, 1)]
        assert bold == ["".join(TEXTS[script][::2]), "".join(TEXTS[script][1::2])]


@pytest.mark.parametrize("script", TEXTS)
def test_character_spans_of_a_page(model, tmp_path, mark, script):
    source = tmp_path / "in.html"
    source.write_bytes(WRITERS["html"](*TEXTS[script]) * 2)
    outcome = call("translate", model, source, "--format", "jsonl", *SEARCH)
    assert outcome.status == 0, outcome.err
    rows = [json.loads(line) for line in outcome.out.splitlines()]
    (document,) = FileTranslation(str(source), source.read_bytes(), FORMATS["html"], FileConfig()).documents
    texts = {"source": document.text(), "target": call("translate", model, source, "--format", "text", *SEARCH).out}
    for side, text in texts.items():
        assert [text[slice(*row[f"{side}_span"])] for row in rows] == [row[side] for row in rows]
    assert all(row["target"] == mark + row["source"] for row in rows)


@pytest.mark.parametrize("suffix", ["xlf", "tmx", "html"])
@pytest.mark.parametrize("script", TEXTS)
def test_bilingual_files_of_all_scripts(model, tmp_path, mark, script, suffix):
    source, both = tmp_path / "in.html", tmp_path / f"both.{suffix}"
    source.write_bytes(WRITERS["html"](*TEXTS[script]))
    outcome = call("translate", model, source, "-o", tmp_path / "out.html", "--bilingual", both, *SEARCH)
    assert outcome.status == 0, outcome.err
    if suffix == "xlf":
        assert call("merge", both, "-o", tmp_path / "merged.html").status == 0
        assert (tmp_path / "merged.html").read_bytes() == (tmp_path / "out.html").read_bytes()
    elif suffix == "tmx":
        segments = ["".join(each.itertext()) for each in etree.parse(both).iter("seg")]
        plain = [re.sub(r"<[^>]*>", "", each) for each in segments]
        assert [mark + text for text in plain[::2]] == plain[1::2]
    else:
        text = re.sub(r"<[^>]*>", "", both.read_text())
        assert text.count(TEXTS[script][0].split()[0]) >= 2


@pytest.mark.parametrize("script", ["ar", *(pytest.param(each, marks=pytest.mark.full) for each in ("he", "zh"))])
def test_the_direction_of_a_page_is_that_of_its_language(tmp_path, mark, script):
    model = save(tmp_path / "model", "sentence")
    config = model / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "target_language": script}))
    for format in WRITERS:
        suffix = SUFFIXES.get(format, format)
        source, target = tmp_path / f"in.{suffix}", tmp_path / f"out.{suffix}"
        source.write_bytes(WRITERS[format](*TEXTS[script]))
        assert call("translate", model, source, "-o", target, *SEARCH).status == 0
        written = [text.replace("<w:rtl/>", "") for text in read_texts(format, target)]
        assert [text.replace("<w:rPr></w:rPr>", "<w:rPr/>") for text in written] == read_texts(format, source)
    page = (tmp_path / "out.html").read_text()
    assert f'lang="{script}"' in page
    assert ('dir="rtl"' in page) == (script != "zh")
    runs = docx.Document(tmp_path / "out.docx").element.body.xpath(".//w:pPr/w:bidi")
    assert bool(runs) == (script != "zh" and bool(mark))  # a paragraph that did not change keeps its bytes


HALVES = {
    "json": r'{"a": "One \ud83d\ude00 word \u0301."}',
    "html": "<p>One &#xD83D; <b>word</b> &#xDC00;.</p>",
    "markdown": "One &#xD83D; **word** &#xDC00;.\n",
    "srt": "1\n00:00:01,000 --> 00:00:02,000\nOne &#xD83D; <i>word</i>.\n",
}


@pytest.mark.parametrize("format", HALVES)
def test_half_characters_stay(model, tmp_path, mark, format):
    suffix, fields = SUFFIXES.get(format, format), ["a"] if format == "json" else []
    source, target = tmp_path / f"in.{suffix}", tmp_path / f"out.{suffix}"
    source.write_text(HALVES[format])
    options = ["--fields", "a"] if fields else []
    outcome = call("translate", model, source, "-o", target, *options, *SEARCH)
    assert outcome.status == 0, outcome.err
    assert read_texts(format, target, *fields) == read_texts(format, source, *fields)
    assert (target.read_bytes() == source.read_bytes()) == (not mark)
