"""docmt terms: what it reports of glossaries, and what it writes."""

import json
import re

import pytest
from commands import assert_one_sentence, call, fails

from docmt.terms import Glossary

TABLE = "cat\tchat\ten\tfr\ncat\tchat\ten\tfr\ncat\tKatze\ten\tde\n.\tpoint\ten\tfr\n'=x\ty\ten\tfr\n"
BASE = (
    '<tbx xmlns="urn:iso:std:iso:30042:ed-2"><text><body><conceptEntry><langSec xml:lang="en"><termSec><term>cat</term>'
    '</termSec></langSec><langSec xml:lang="fr"><termSec><term>chat</term></termSec></langSec></conceptEntry></body>'
    "</text></tbx>"
)


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A directory with two glossaries."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.tsv").write_text(TABLE)
    (tmp_path / "b.tbx").write_text(BASE)
    (tmp_path / "b.tmx").write_text('<tmx version="1.4"><header/><body/></tmx>')
    return tmp_path


def test_check_counts_terms_and_names_the_other_rows(here):
    outcome = call("terms", "check", "a.tsv", "b.tbx")
    assert outcome.status == 0, outcome.err
    assert outcome.out.splitlines() == [
        "a.tsv (TSV)",
        "  en to fr: 2 terms, 1 duplicate (first: 'cat → chat')",
        "  en to de: 1 term (first: 'cat → Katze')",
        "  skipped: 1",
        "    line 4: '.' has neither letters nor digits",
        "  looks wrong, but is used: 1",
        "    line 5: begins with an apostrophe, which a spreadsheet may have added; it is kept",
        "b.tbx (TBX)",
        "  en to fr: 1 term (first: 'cat → chat')",
    ]
    outcome = call("terms", "check", "a.tsv", "--from", "en", "--to", "de-AT", "--show", "1")
    assert "  en to de-AT: 1 term (first: 'cat → Katze')\n  skipped: 4\n" in outcome.out
    assert "... and 3 more (--show 4, --json)" in outcome.out
    assert (
        call("terms", "check", "b.tbx", "--to", "en").out == "b.tbx (TBX)\n  fr to en: 1 term (first: 'chat → cat')\n"
    )


def test_check_writes_json(here):
    outcome = call("terms", "check", "a.tsv", "none.tsv", "--json", "-")
    assert outcome.status == 2
    assert_one_sentence(outcome.err, r"cannot read none\.tsv")
    table, missing = json.loads(outcome.out)["files"]
    assert table["pairs"][0] == {"source": "en", "target": "fr", "terms": 2, "duplicates": 1, "first": "cat → chat"}
    assert table["skipped"] == [{"path": "a.tsv", "line": 4, "reason": "'.' has neither letters nor digits"}]
    assert not table["errors"]
    assert "none.tsv" in missing["errors"][0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["check", "a.tsv", "--from=en", "--to=ja"], r"no term for en to ja \(its languages are de, en, fr\)"),
        (["check", "c.csv"], r"c\.csv, line 3: 'cat' is also in c\.csv, line 2, but only one of them has 'case'"),
        (["check", "b.tbx", "d.csv", "--from=en", "--to=fr"], r"d\.csv, line 2: 'cat' is also in b\.tbx, line 1"),
        (["check", "empty.tsv"], r"empty\.tsv has no terms"),
        (["check", "b.tbx", "-o", "x.tsv"], "-o is for docmt terms convert"),
        (["convert", "b.tbx"], r"add -o FILE\.tsv or -o FILE\.tbx"),
        (["convert", "b.tbx", "-o", "x.csv"], r"x\.csv names no format to write: end it in \.tsv or \.tbx"),
        (["convert", "b.tbx", "-o", "x.tsv"], "for several pairs of languages, en to fr, fr to en: say which one"),
        (["convert", "a.tsv", "-o", "a.tsv", "--to", "de"], "is an input and would be overwritten"),
        (["convert", "c.csv", "-o", "x.tsv"], "only one of them has 'case'"),
        (["extract", "b.tbx"], r"add -o FILE\.tsv or -o FILE\.tbx"),
        (["extract", "en.txt", "-o", "x.tsv"], "en.txt has only one side"),
        (["extract", "en.txt", "a.tsv", "b.tbx", "-o", "x.tsv"], "reads a file and its translation, or one file"),
        (["extract", "en.txt", "en.txt", "-o", "x.tsv"], "repeats no noun or name with a known translation"),
        (["extract", "b.tmx", "-o", "x.tsv"], "b.tmx has several languages: add --from CODE and --to CODE"),
        (["convert", "b.tbx", "-o", "x.tsv", "--model", "m"], "--model is for docmt terms extract"),
        (["convert", "b.tbx", "-o", "x.tsv", "--json", "-"], "--json is for docmt terms check"),
        (["convert", "b.tbx", "-o", "x.tsv", "--show", "3"], "--show is for docmt terms check"),
        (["check"], "FILE"),
    ],
)  # fmt: skip
def test_what_is_refused(arguments, message, here):
    (here / "c.csv").write_text("source,target,case\ncat,chat,yes\ncat,matou,no\n")
    (here / "d.csv").write_text("source,target,case\ncat,chat,yes\n")
    (here / "empty.tsv").touch()
    (here / "en.txt").write_text("One sentence.\n")
    outcome = call("terms", *arguments)
    assert outcome.status == 2
    assert_one_sentence(outcome.err, message)
    assert not [path for path in here.iterdir() if path.name.startswith("x.")]


def test_convert_writes_the_terms_of_all_files(here):
    outcome = call("terms", "convert", "a.tsv", "b.tbx", "-o", "c.tbx", "--from", "en", "--to", "fr")
    assert outcome.status == 0
    assert "2 rows are skipped (first: a.tsv, line 4" in outcome.err
    assert call("terms", "convert", "c.tbx", "-o", "d.tsv", "--from", "en", "--to", "fr").status == 0
    assert (here / "d.tsv").read_text().splitlines() == [
        "source\ttarget\tsource_lang\ttarget_lang\tforbidden\tkeep\tcase\tnote",
        "cat\tchat\ten\tfr\t\t\t\t",
        "'=x\ty\ten\tfr\t\t\t\t",
    ]
    fails("terms", "convert", "none.tsv", "-o", "c.tsv", message=r"cannot read none\.tsv")


@pytest.mark.parametrize("option", ["--terms-report", "--report", "-o"])
def test_a_translation_does_not_overwrite_its_glossary(option, here):
    (here / "in.txt").write_text("A cat.\n")
    fails("translate", "MODEL", "in.txt", "--terms", "a.tsv", option, "a.tsv", message="is an input and would be overw")
    assert (here / "a.tsv").read_text() == TABLE


def test_terms_need_a_search_of_docmt(tmp_path):
    (tmp_path / "g.tsv").write_text("committee\tcomité\n")
    (tmp_path / "in.txt").write_text("The committee met.\n")
    arguments = ["translate", "en-fr-sentence", tmp_path / "in.txt", "--terms", tmp_path / "g.tsv"]
    sampling = ["--search.sampling", "--search.beam", "1"]
    fails(*arguments, *sampling, message="terms need the beam search of docmt, not search.sampling")
    published = ["--search.implementation", "huggingface"]
    fails(*arguments, *published, message="terms need the beam search of docmt, not search.implementation")


def test_a_title_above_the_names_of_columns_is_told(tmp_path):
    (tmp_path / "t.csv").write_text("Glossary of Agri;;\nsource;target;keep\npump;pompe;\nDocker;;oui\n")
    lines = call("terms", "check", tmp_path / "t.csv").out.splitlines()
    assert lines[1:] == [
        "  any languages: 2 terms (first: 'pump → pompe')",
        "  looks wrong, but is used: 1",
        "    line 1: stands above the names of the columns and is not used",
    ]


def test_translate_tells_what_looks_wrong_in_a_glossary(tmp_path, caplog):
    (tmp_path / "g.csv").write_text("source;target;colour\ncommittee;comité;red\ncat;;\n")
    (tmp_path / "in.txt").write_text("The committee met.\n")
    outcome = call("translate", "en-fr-sentence", tmp_path / "in.txt", "--beam=1", "--terms", tmp_path / "g.csv")
    assert outcome.status == 0, outcome.err
    told = [f"{tmp_path}/g.csv, line 1: the column 'colour' is not used"]
    told.append(f"{tmp_path}/g.csv, line 3: skipped: 'cat' has no translation: give one, or mark it with keep")
    assert caplog.messages[:2] == told


def write_documents(here):
    """Write two sides that say most words in one way, and "report" in two."""
    names = ["council", "member", "country", "budget", "citizen", "market", "treaty", "region"]
    others = ["conseil", "membre", "pays", "budget", "citoyen", "marché", "traité", "région"]
    pairs = list(zip(names, others, strict=True))
    rows = [(f"The {one} saw the {two}.", f"Le {a} a vu le {b}.") for one, a in pairs for two, b in pairs if one != two]
    for number in range(4):
        word = "rapport" if number else "bilan"
        rows += [(f"The report of the {one}.", f"Le {word} du {a}.") for one, a in pairs]
    for name, side in (("s.en", 0), ("s.fr", 1)):
        (here / name).write_text("\n".join(row[side] for row in rows) + "\n")
    (here / "s.jsonl").write_text("".join(
        json.dumps({"document": "a", "source": one, "target": other}) + "\n" for one, other in rows
    ))  # fmt: skip
    units = "".join(
        f'<tu><tuv xml:lang="en"><seg>{one}</seg></tuv><tuv xml:lang="fr"><seg>{other}</seg></tuv></tu>'
        for one, other in rows
    )
    (here / "s.tmx").write_text(f'<tmx version="1.4"><header/><body>{units}</body></tmx>')


def test_extract_proposes_what_is_translated_in_several_ways_first(here):
    write_documents(here)
    texts = []
    for files in (["s.en", "s.fr"], ["s.jsonl"], ["s.tmx"]):
        outcome = call("terms", "extract", *files, "-o", "out.tsv", "--from", "en", "--to", "fr")
        assert outcome.status == 0, outcome.err
        assert re.search(r"terms in out\.tsv: \d+; read them before use", outcome.err)
        texts.append((here / "out.tsv").read_text())
    assert texts[0] == texts[1] == texts[2]
    rows = [line.split("\t") for line in texts[0].splitlines()]
    assert rows[1] == ["report", "rapport", "en", "fr", "", "", "", "24 of 32; bilan (8)"]
    assert {row[0]: row[1] for row in rows[2:]}["treaty"] == "traité"
    glossary = Glossary.read(here / "out.tsv", languages=("en", "fr"))
    assert glossary.terms[0].targets == ("rapport",) and not glossary.skipped and not glossary.remarks


def test_extract_aligns_by_a_model(here):
    (here / "s.en").write_text(
        "The committee met.\nI thank the committee.\nHere is the committee.\nWe like a committee.\n"
    )
    (here / "s.fr").write_text(
        "La commission s'est réunie.\nJe remercie la commission.\nVoici le comité.\nNous aimons une commission.\n"
    )
    assert call("terms", "extract", "s.en", "s.fr", "-o", "out.tsv", "--model", "en-fr-sentence").status == 0
    assert (here / "out.tsv").read_text().splitlines()[1:] == [
        "committee\tcommission\ten\tfr\t\t\t\t3 of 4; comité (1)"
    ]


def test_a_consistent_translation_says_what_it_changed(here, monkeypatch):
    sentences = ["Mr Brok is here.", "I thank Mr Brok.", "We know Mr Brok.", "Mr Brok has left.", "He said that."]
    (here / "in.txt").write_text("\n".join(sentences) + "\n")
    common = ["translate", "en-fr-sentence", "in.txt", "--layout", "lines", "--beam", "1"]
    fails(*common, "--terms-mode", "require", message="--terms-mode has no effect without --terms: leave it out")
    fails(*common, "--terms-report", "r.tsv", message="--terms-report lists the terms of --terms or --consistent")
    fails(*common, "--consistent", "--search.sampling", message="terms need the beam search of docmt")
    outcome = call(*common, "--consistent", "-o", "out.txt", "--terms-report", "r.tsv")
    assert outcome.status == 0, outcome.err
    assert outcome.err.splitlines()[-1] == "docmt: terms: 0 asked, 0 met (r.tsv)"
    columns = "document sentence term wanted found status loss replaced dropped reason source translation"
    assert (here / "r.tsv").read_text() == columns.replace(" ", "\t") + "\n"
    assert len((here / "out.txt").read_text().splitlines()) == 5
