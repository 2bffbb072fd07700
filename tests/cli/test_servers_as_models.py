"""Commands with a server in place of a model: `endpoint:PROFILE`."""

import json
import re
import signal
import sys
import threading
import time
from pathlib import Path

import docx
import pytest
from commands import call, fails, start

from docmt.engines import http_client

sys.path.insert(0, str(Path(__file__).parents[1] / "engines"))
from fake_server import serving, translate_words, write_profile


@pytest.fixture(autouse=True)
def short_waits(monkeypatch):
    """Requests are sent again at once."""
    monkeypatch.setattr(http_client, "_FIRST_WAIT", 0.001)
    monkeypatch.setattr(http_client, "_LONGEST_WAIT", 0.002)


@pytest.fixture
def fake():
    """A server."""
    with serving() as server:
        yield server


@pytest.fixture
def model(fake, tmp_path):
    """The MODEL of the server."""
    return write_profile(tmp_path / "far.yaml", fake.url)


HTML = (
    '<html lang="en"><head><title>A title</title></head><body>\n<p class=x>A <b>small</b> house. It has '
    '<a href="/x?a=1&amp;b=2">two doors</a>.</p><pre>code here</pre><ul><li>One<li><i>Two</i></ul></body></html>\n'
)
NEW_HTML = (
    '<html lang="fr"><head><title>Ao titleo</title></head><body>\n<p class=x>Ao <b>smallo</b> houseo. Ito haso '
    '<a href="/x?a=1&amp;b=2">twoo doorso</a>.</p><pre>code here</pre><ul><li>Oneo<li><i>Twoo</i></ul></body></html>\n'
)
FILES = {
    "page.html": (HTML, NEW_HTML),
    "page.md": (
        "# A title\n\n- A **small** house\n- See [two doors](http://a.org)\n\n```\ncode here\n```\n",
        "# Ao titleo\n\n- Ao **smallo** houseo\n- Seeo [twoo doorso](http://a.org)\n\n```\ncode here\n```\n",
    ),
    "film.srt": (
        "1\n00:00:01,000 --> 00:00:02,000\n<i>A house</i> fell.\n\n2\n00:00:03,000 --> 00:00:04,000\nWho was?\n",
        "1\n00:00:01,000 --> 00:00:02,000\n<i>Ao houseo</i> fello.\n\n2\n00:00:03,000 --> 00:00:04,000\nWhoo waso?\n",
    ),
    "text.txt": ("One house fell.\nIt was old. Very old.\n", "Oneo houseo fello.\nIto waso oldo. Veryo oldo.\n"),
}


@pytest.mark.parametrize("name", FILES)
def test_files_keep_their_structure_and_markup_stands_on_the_right_words(name, model, tmp_path, caplog):
    source, target = FILES[name]
    path, out = tmp_path / name, tmp_path / f"out-{name}"
    path.write_text(source)
    outcome = call("translate", model, path, "-o", out)
    assert outcome.status == 0, outcome.err
    assert out.read_text() == target
    assert "far: " in outcome.err and " requests" in outcome.err
    assert ("markup is placed by the order of words" in caplog.text) is (name != "text.txt")


def test_messages_of_a_program_keep_their_placeholders(model, fake, tmp_path):
    path, out = tmp_path / "a.po", tmp_path / "b.po"
    head = 'msgid ""\nmsgstr ""\n"Language: fr\\n"\n"Content-Type: text/plain; charset=UTF-8\\n"\n\n'
    path.write_text(f'{head}msgid "Open %s files"\nmsgstr ""\n\nmsgid "Close"\nmsgstr "Fermer"\n')
    outcome = call("translate", model, path, "-o", out)
    assert outcome.status == 0, outcome.err
    assert 'msgid "Open %s files"\nmsgstr "Openo %s fileso"' in out.read_text()
    assert 'msgstr "Fermer"' in out.read_text()
    assert fake.texts() == ["Open %s files"]


def write_docx(path):
    """Write a document with runs, a table and a heading."""
    document = docx.Document()
    document.add_heading("A title", 1)
    paragraph = document.add_paragraph("A ")
    paragraph.add_run("small").bold = True
    paragraph.add_run(" house. It has ")
    paragraph.add_run("two doors").italic = True
    paragraph.add_run(".")
    cell = document.add_table(1, 2).rows[0].cells
    cell[0].text, cell[1].text = "A cell", "12.5"
    document.save(path)


def runs(path):
    """Return the texts of runs with their style."""
    document = docx.Document(path)
    cells = [paragraph for table in document.tables for cell in table._cells for paragraph in cell.paragraphs]
    return [
        (run.text, bool(run.bold), bool(run.italic))
        for paragraph in [*document.paragraphs, *cells]
        for run in paragraph.runs
        if run.text
    ]


def test_a_word_document(model, tmp_path):
    write_docx(tmp_path / "a.docx")
    assert call("translate", model, tmp_path / "a.docx", "-o", tmp_path / "b.docx").status == 0
    styles = [(text.strip(), *style) for text, *style in runs(tmp_path / "b.docx")]
    assert ("smallo", True, False) in styles and ("twoo doorso", False, True) in styles
    assert "".join(text for text, *_ in runs(tmp_path / "b.docx")) == (
        "Ao titleoAo smallo houseo. Ito haso twoo doorso.Ao cello12.5"
    )
    assert [style for _, *style in runs(tmp_path / "b.docx")] == [style for _, *style in runs(tmp_path / "a.docx")]


FRENCH = {
    "The red house is old.": "La maison rouge est vieille.",
    "We bought a white car.": "Nous avons acheté une voiture blanche.",
    "The European Union needs new rules.": "L'Union européenne a besoin de nouvelles règles.",
}


@pytest.mark.full
def test_a_model_of_docmt_puts_markup_on_the_right_words(tmp_path):
    (tmp_path / "a.html").write_text(
        "<p>The <b>red</b> house is old. We bought a <i>white</i> car.</p>"
        "<p>The <u>European Union</u> needs new rules.\n"
    )
    with serving(lambda text, number: FRENCH[text]) as fake:
        model = write_profile(tmp_path / "far.yaml", fake.url, aligner="en-fr-sentence")
        outcome = call("translate", model, tmp_path / "a.html", "-o", tmp_path / "b.html")
        assert outcome.status == 0, outcome.err
        assert (tmp_path / "b.html").read_text() == (
            "<p>La maison <b>rouge</b> est vieille. Nous avons acheté une voiture <i>blanche</i>.</p>"
            "<p>L'<u>Union européenne</u> a besoin de nouvelles règles.\n"
        )


def records(path):
    """Return the rows of a JSONL file."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_records_say_where_a_translation_comes_from(model, fake, tmp_path):
    out = tmp_path / "a.jsonl"
    assert call("translate", model, "--format", "jsonl", "-o", out, "--alignments", stdin=b"A house. 12.\n").status == 0
    rows = records(out)
    assert [row["target"] for row in rows] == ["Ao houseo.", "12."]
    assert rows[0]["origin"] == "engine" and rows[0].get("score") is None
    assert rows[0]["engine"]["name"] == "far" and rows[0]["engine"]["requests"] == 1
    assert rows[0]["alignment"] == [[0, 1, 0, 2], [2, 7, 3, 9], [7, 8, 9, 10]]
    assert rows[1].get("origin") != "engine"


def test_a_report_of_terms(model, tmp_path):
    (tmp_path / "terms.tsv").write_text("house\thouseo\ndoor\tporte\n")
    report, out = tmp_path / "report.tsv", tmp_path / "out.txt"
    outcome = call(
        *("translate", model, "-o", out, "--terms", tmp_path / "terms.tsv", "--terms-report", report),
        stdin=b"A house has a door.\n",
    )
    assert outcome.status == 0, outcome.err
    assert out.read_text() == "Ao houseo haso ao dooro.\n"
    rows = [line.split("\t") for line in report.read_text().splitlines()]
    assert any("house" in row and "met" in row for row in rows) and any("door" in row and "lost" in row for row in rows)


def test_an_earlier_version_is_reused(model, fake, tmp_path):
    for name, text in (
        ("old", "A house. A door.\n"),
        ("old-fr", "Une maison. Une porte.\n"),
        ("new", "A house. A cat.\n"),
    ):
        (tmp_path / f"{name}.txt").write_text(text)
    out = tmp_path / "new-fr.txt"
    outcome = call(
        "translate", model, tmp_path / "new.txt", "-o", out, "--reuse", tmp_path / "old.txt", tmp_path / "old-fr.txt"
    )
    assert outcome.status == 0, outcome.err
    assert out.read_text() == "Une maison. Ao cato.\n"
    assert fake.texts() == ["A cat."]


@pytest.mark.parametrize("suffix", ["xlf", "tmx", "html"])
def test_both_sides_side_by_side(suffix, model, tmp_path):
    (tmp_path / "a.html").write_text(HTML)
    both = tmp_path / f"both.{suffix}"
    assert call("translate", model, tmp_path / "a.html", "-o", tmp_path / "b.html", "--bilingual", both).status == 0
    text = re.sub("<[^>]*>", "", both.read_text())
    assert "houseo" in text and "house" in text and "twoo doorso" in text


def test_extract_fills_in_targets(model, tmp_path):
    (tmp_path / "a.html").write_text(HTML)
    outcome = call("extract", tmp_path / "a.html", "-o", tmp_path / "a.xlf", "--model", model)
    assert outcome.status == 0, outcome.err
    assert "houseo" in (tmp_path / "a.xlf").read_text()
    outcome = call("merge", tmp_path / "a.xlf", "-o", tmp_path / "b.html")
    assert outcome.status == 0, outcome.err
    assert (tmp_path / "b.html").read_text() == NEW_HTML


TEXT = "".join(f"House number {word} is old. Its door is {word}.\n\n" for word in "abcdefghij")


def going_away(after):
    """Return a function that answers so many requests, and no more until it is called with None."""
    left = [after]

    def answer(text, number):
        left[0] -= 1
        return translate_words(text) if left[0] >= 0 else lambda handler: handler.send(503, "")

    return answer, left


@pytest.mark.parametrize("suffix", [".txt", ".html", ".jsonl"])
def test_a_server_that_goes_away_ends_the_command_and_resume_goes_on(suffix, tmp_path):
    source = tmp_path / f"a{'.txt' if suffix == '.jsonl' else suffix}"
    source.write_text(TEXT if suffix != ".html" else "".join(f"<p>{each}</p>\n" for each in TEXT.split("\n\n")))
    with serving() as fake:
        model = write_profile(tmp_path / "far.yaml", fake.url)
        whole = tmp_path / f"whole{suffix}"
        assert call("translate", model, source, "-o", whole).status == 0
        asked = list(map(json.dumps, fake.requests))
    answer, left = going_away(7)
    with serving(answer) as fake:
        model = write_profile(tmp_path / "far.yaml", fake.url, limits={"attempts": 2})
        out = tmp_path / f"out{suffix}"
        outcome = call("translate", model, source, "-o", out)
        assert outcome.status == 2 and not out.exists()
        lines = outcome.err.splitlines()
        assert lines[-1] == "docmt: error: far does not answer after 2 attempts: it answers 503: look after the server"
        assert any("run the same command with --resume to continue" in line for line in lines)
        left[0] = 10**6
        outcome = call("translate", model, source, "-o", out, "--resume")
        assert outcome.status == 0, outcome.err
        assert out.read_text() == whole.read_text()
        good = [body for number, body in enumerate(map(json.dumps, fake.requests)) if number not in (7, 8)]
        assert good == asked  # none twice, and each as if nothing had happened
        assert not list(tmp_path.glob("*.partial"))


def test_a_failed_sentence_keeps_its_source_and_is_told(tmp_path):
    with serving(lambda text, number: "" if "door is c" in text else translate_words(text)) as fake:
        model = write_profile(tmp_path / "far.yaml", fake.url)
        (tmp_path / "a.html").write_text("".join(f"<p>{each}</p>\n" for each in TEXT.split("\n\n") if each))
        outcome = call("translate", model, tmp_path / "a.html", "-o", tmp_path / "b.html")
        assert outcome.status == 2
        assert "far gives no translation of it in 3 requests: it is empty" in outcome.err
        assert "far: 22 requests" in outcome.err
        assert "1 of 1 documents are not wholly translated" in outcome.err
        new = (tmp_path / "b.html").read_text()
        assert new.count("<p>") == 10 and "Its door is c." in new and new.count("Itso dooro iso") == 9
        fake.answer = lambda text, number: translate_words(text)
        asked = len(fake.requests)
        outcome = call("translate", model, tmp_path / "a.html", "-o", tmp_path / "b.html", "--resume")
        assert outcome.status == 0, outcome.err
        assert (tmp_path / "b.html").read_text().count("Itso dooro iso") == 10
        assert len(fake.requests) == asked + 20


def test_resuming_needs_the_same_profile(tmp_path):
    answer, left = going_away(3)
    with serving(answer) as fake:
        (tmp_path / "a.txt").write_text(TEXT)
        arguments = ("translate", f"endpoint:{tmp_path / 'far.yaml'}", tmp_path / "a.txt", "-o", tmp_path / "b.txt")
        write_profile(tmp_path / "far.yaml", fake.url, limits={"attempts": 1})
        assert call(*arguments).status == 2
        left[0] = 10**6
        write_profile(tmp_path / "far.yaml", fake.url, temperature=0.5)
        fails(*arguments, "--resume", message="profile")
        write_profile(tmp_path / "far.yaml", fake.url, limits={"requests": 9})
        assert call(*arguments, "--resume").status == 0


@pytest.mark.full
def test_a_command_that_is_killed_goes_on_with_the_same_bytes(tmp_path):
    source = tmp_path / "a.txt"
    source.write_text(TEXT)
    with serving() as fake:
        model = write_profile(tmp_path / "far.yaml", fake.url)
        assert call("translate", model, source, "-o", tmp_path / "whole.txt").status == 0
    gate = threading.Event()

    def answer(text, number):
        if number > 6:
            gate.wait(60)
        return translate_words(text)

    with serving(answer) as fake:
        model = write_profile(tmp_path / "far.yaml", fake.url)
        for sign in (signal.SIGKILL, signal.SIGTERM):
            before, out = len(fake.requests), tmp_path / f"{sign.name}.txt"
            process = start("translate", model, source, "-o", out)
            deadline = time.monotonic() + 120
            while len(fake.requests) - before < (7 if sign is signal.SIGKILL else 1) and time.monotonic() < deadline:
                time.sleep(0.02)
            process.send_signal(sign)
            _, err = process.communicate(timeout=60)  # it waits for no answer
            assert process.returncode == (130 if sign is signal.SIGTERM else -9)
            assert "Traceback" not in err and not out.exists()
        gate.set()
        for name in ("SIGKILL", "SIGTERM"):
            out = tmp_path / f"{name}.txt"
            outcome = call("translate", model, source, "-o", out, "--resume")
            assert outcome.status == 0, outcome.err
            assert out.read_bytes() == (tmp_path / "whole.txt").read_bytes()


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("--search.beam=3", "--search.beam has no effect on a server"),
        ("--search.n-best=2", "--search.n-best"),
        ("--batch-tokens=99", "--batch-tokens has no effect on a server"),
        ("--device=cuda", "--device has no effect on a server"),
        ("--precision=int8", "--precision has no effect on a server"),
        ("--context.sentences=2", "--context.sentences"),
        ("--consistent", "cannot be made consistent"),
    ],
)
def test_options_without_effect_are_refused(option, message, model, fake, tmp_path):
    (tmp_path / "a.txt").write_text("A house.\n")
    fails("translate", model, tmp_path / "a.txt", "-o", tmp_path / "b.txt", option, message=message)
    assert not fake.requests


@pytest.mark.parametrize(
    "arguments",
    [
        ("score", "MODEL", "a.txt", "a.txt"),
        ("probe", "MODEL", "--source", "a.txt", "--reference", "a.txt"),
        ("inspect", "MODEL"),
        ("export", "ctranslate2", "MODEL", "-o", "out"),
        ("average", "MODEL", "MODEL", "-o", "out"),
        ("convert", "MODEL", "out"),
        ("translate", "en-fr,MODEL", "a.txt", "-o", "out"),
        ("translate", "MODEL,en-fr", "a.txt", "-o", "out"),
        ("serve", "en-fr,MODEL"),
    ],
)
def test_what_needs_a_model_refuses_a_server(arguments, model, fake, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text("A house.\nA door.\n")
    fails(*(each.replace("MODEL", model) for each in arguments), message="a server|models of docmt|checkpoint|convert")
    assert not fake.requests


def test_a_profile_with_errors_is_told_before_files_are_read(fake, tmp_path):
    model = write_profile(tmp_path / "far.yaml", fake.url, tempo=3)
    fails("translate", model, tmp_path / "a.txt", "-o", tmp_path / "b.txt", message="far.yaml.*tempo")


@pytest.mark.parametrize(
    ("aligner", "languages", "message"),
    [
        ("nowhere", ("en", "fr"), "nowhere"),
        ("en-fr-sentence", ("fr", "en"), "aligner en-fr-sentence is for en-fr, not"),
    ],
)
def test_a_model_that_cannot_link_words_is_told_before_anything_is_asked(aligner, languages, message, fake, tmp_path):
    codes = dict(zip(("source_language", "target_language"), languages, strict=True))
    model = write_profile(tmp_path / "far.yaml", fake.url, aligner=aligner, **codes)
    (tmp_path / "a.html").write_text(HTML)
    fails("translate", model, tmp_path / "a.html", "-o", tmp_path / "b.html", message=message)
    assert not fake.requests


SIDES = "A house is here.\nIt is old.\n\nA door is there.\nIt is red.\n"


@pytest.mark.full
def test_evaluation_beside_a_model(model, run, tmp_path):
    (tmp_path / "a.en").write_text(SIDES)
    (tmp_path / "a.fr").write_text("\n".join(map(translate_words, SIDES.split("\n"))))
    own = tmp_path / "own"
    own.symlink_to(run / "model")
    outcome = call(
        *("evaluate", "--systems", own, model, "--source", tmp_path / "a.en", "--reference", tmp_path / "a.fr"),
        *("--json", tmp_path / "o.json", "--search.beam=1"),
    )
    assert outcome.status == 0, outcome.err
    assert "far" in outcome.out and "own" in outcome.out
    assert re.search(r"far.yaml +100.00 ± 0.00  p 0\.\d+ ", outcome.out)
    assert "far: 4 requests" in outcome.err
