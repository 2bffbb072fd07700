"""Corpora as they are published: both sides in one file of rows, memories, and ids of OPUS."""

from __future__ import annotations

import gzip
import json

import pytest
import zstandard

from docmt.core.errors import DocmtError
from docmt.documents import Columns, SkipReport, read_parallel

PAIRS = [("One.", "Eins."), ("Two.", "Zwei."), ("Three.", "Drei.")]


def read(path, *, languages=("", ""), **columns):
    """Return (id, pairs) of each document."""
    documents = read_parallel(path, columns=Columns(**columns), languages=languages)
    return [(document.id, list(document)) for document in documents]


def write_tsv(path, rows):
    path.write_text("".join("\t".join(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_tsv_by_numbers_and_by_names(tmp_path):
    rows = [(*pair, id) for pair, id in zip(PAIRS, "aab", strict=True)]
    expected = [("a", PAIRS[:2]), ("b", PAIRS[2:])]
    assert read(write_tsv(tmp_path / "a.tsv", rows)) == expected
    swapped = [(id, target, source) for source, target, id in rows]
    assert read(write_tsv(tmp_path / "b.tsv", swapped), source="3", target="2", document="1") == expected
    named = write_tsv(tmp_path / "c.tsv", [("de", "doc", "en"), *((target, id, source) for source, target, id in rows)])
    assert read(named, source="en", target="de", document="doc") == expected
    assert read(write_tsv(tmp_path / "d.tsv", PAIRS)) == [(str(n), [pair]) for n, pair in enumerate(PAIRS, 1)]
    compressed = tmp_path / "e.tsv.zst"
    compressed.write_bytes(zstandard.compress((tmp_path / "a.tsv").read_bytes()))
    assert read(compressed) == expected


@pytest.mark.parametrize(
    "names",
    [
        "source target",
        "ID en de",
        "docid source_text target_text",
        "English German",
        "Doc Sentences.src Sentences.trg",
        "en-GB de-DE x",
    ],
)
def test_names_of_columns_are_no_sentences(tmp_path, names):
    path = write_tsv(tmp_path / "a.tsv", [names.split(), ["One.", "Eins.", "a"]])
    message = r"a\.tsv, line 1: these are names of columns, not sentences \(.*\); name them with --columns, or remove"
    for columns in ({}, {"source": "2", "target": "1"}):
        with pytest.raises(DocmtError, match=message):
            read(path, languages=("en", "de"), **columns)


@pytest.mark.parametrize(
    "pair", [("Text", "Text"), ("Source", "Quelle"), ("Text-only", "Nur-Text"), ("Text 1", "Titel 1"), ("I", "en")]
)
def test_titles_are_sentences(tmp_path, pair):
    assert len(read(write_tsv(tmp_path / "a.tsv", [pair, ("One.", "Eins.")]), languages=("en", "de"))) == 2


def test_quotes_of_tsv_are_text(tmp_path):
    assert read(write_tsv(tmp_path / "a.tsv", [('"One', '"Eins"')])) == [("1", [('"One', '"Eins"')])]


@pytest.mark.parametrize("suffix", [".parquet", ".jsonl"])
def test_rows_of_any_shape(tmp_path, suffix):
    sources, targets = (list(side) for side in zip(*PAIRS, strict=True))
    shapes = {
        "lists": [{"en": sources, "de": targets, "document": "x"}],
        "lines": [{"en": "\n".join(sources), "de": "\n".join(targets), "document": "x"}],
        "pairs": [{"en": source, "de": target, "document": "x"} for source, target in PAIRS],
    }
    for name, rows in shapes.items():
        path = tmp_path / f"{name}{suffix}"
        if suffix == ".parquet":
            pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
            parquet.write_table(pyarrow.Table.from_pylist(rows), path)
        else:
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        assert read(path, source="en", target="de") == [("x", PAIRS)], name


def test_contexts_are_a_pair_before(tmp_path):
    rows = [("Be-\nfore it.", "Davor.", *PAIRS[0]), ("", "Davor.", *PAIRS[1])]
    path = tmp_path / "a.jsonl"
    names = ("eng_context", "deu_context", "eng", "deu")
    path.write_text("".join(json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in rows))
    documents = read(path, source="eng", target="deu", source_context="eng_context", target_context="deu_context")
    assert documents == [("1", [("Be- fore it.", "Davor."), PAIRS[0]]), ("2", [PAIRS[1]])]


TMX = """<?xml version="1.0" encoding="utf-8"?><!DOCTYPE tmx [<!ENTITY x SYSTEM "secret.txt">]>
<tmx version="1.4"><header/><body>
<tu><tuv xml:lang="en-GB"><seg>One <bpt i="1">{b}</bpt>two<ept i="1">{/b}</ept> <hi>three</hi>.</seg></tuv>
<tuv xml:lang="DE"><seg>Eins
zwei drei.</seg></tuv><tuv xml:lang="fr"><seg>Un.</seg></tuv></tu>
<tu><tuv xml:lang="en"><seg>No German.</seg></tuv></tu>
<tu><tuv xml:lang="en"><seg>Two&x;.</seg></tuv><tuv xml:lang="de"><seg>Zwei.</seg></tuv></tu>
</body></tmx>"""


def test_a_translation_memory(tmp_path):
    (tmp_path / "secret.txt").write_text("secret")
    (tmp_path / "a.tmx.gz").write_bytes(gzip.compress(TMX.encode()))
    pairs = [("One two three.", "Eins zwei drei."), ("Two.", "Zwei.")]
    assert read(tmp_path / "a.tmx.gz", languages=("en", "de")) == [("1", pairs)]
    assert read(tmp_path / "a.tmx.gz", languages=("fr", "en")) == [("1", [("Un.", "One two three.")])]


def test_ids_of_opus(tmp_path):
    for side, sentences in zip(("en", "de"), zip(*PAIRS, strict=True), strict=True):
        (tmp_path / f"a.{side}").write_text("\n".join(sentences))
    ids = [("en/1.xml.gz", "de/1.xml.gz", "1", "1 2"), ("en/1.xml.gz", "de/1.xml.gz", "4", "5"), ("en/2.xml.gz",) * 4]
    write_tsv(tmp_path / "a.ids", ids)
    documents = read_parallel(tmp_path / "a.en", tmp_path / "a.de", docids=tmp_path / "a.ids")
    assert [(document.id, list(document)) for document in documents] == [
        ("en/1.xml.gz\tde/1.xml.gz", PAIRS[:2]),
        ("en/2.xml.gz\ten/2.xml.gz", PAIRS[2:]),
    ]


def test_pairs_with_an_empty_side_are_counted(tmp_path):
    skipped = SkipReport()
    path = write_tsv(tmp_path / "a.tsv", [("One.", "Eins.", "a"), ("Two.", " ", "a")])
    assert [len(document) for document in read_parallel(path, skipped=skipped)] == [1]
    assert skipped.examples == {"pair with an empty side": [f"{path}, line 2"]}


@pytest.mark.parametrize(
    ("name", "text", "columns", "message"),
    [
        ("a.tsv", "One.\n", {}, r"a\.tsv, line 1: there is no column 2; name them with --columns \(there are 1\)"),
        ("a.tsv", "en\tde\nOne.\tEins.\n", {"source": "fr"}, r"line 2: there is no column fr; .* \(there are en, de\)"),
        (
            "a.jsonl",
            '{"en": ["a"], "de": []}',
            {"source": "en", "target": "de"},
            r"`en` has 1 sentences but `de` has 0",
        ),
        ("a.jsonl", '{"en": 1, "de": "b"}', {"source": "en", "target": "de"}, r"`en` is neither a text nor a list"),
        ("a.jsonl", '{"en": "a"', {"source": "en"}, r"a\.jsonl, line 1: not valid JSON"),
        ("a.tmx", "<tmx><tu></tmx>", {}, r"a\.tmx is no TMX file, or damaged \(.*\): export it again"),
        ("a.tmx", "<tmx></tmx>", {}, r"a\.tmx has no pairs of en and de: check the languages"),
        ("a.tmx.gz", "<tmx></tmx>", {}, r"a\.tmx\.gz is damaged, truncated, or not compressed by gzip"),
        ("a.parquet", "PAR1", {}, r"a\.parquet is no Parquet file, or damaged"),
    ],
)
def test_what_is_wrong_is_named(tmp_path, name, text, columns, message):
    (tmp_path / name).write_text(text)
    with pytest.raises(DocmtError, match=message):
        read(tmp_path / name, languages=("en", "de"), **columns)


def test_languages_of_a_memory_are_needed(tmp_path):
    (tmp_path / "a.tmx").write_text(TMX)
    with pytest.raises(DocmtError, match=r"a\.tmx may have many languages: add --source-language and --target-langu"):
        read(tmp_path / "a.tmx")
    with pytest.raises(DocmtError, match=r"a\.tmx contains document ids, or has none"):
        list(read_parallel(tmp_path / "a.tmx", docids=tmp_path / "ids"))
    with pytest.raises(DocmtError, match=r"none\.tmx: there is no such file"):
        read(tmp_path / "none.tmx", languages=("en", "de"))


def test_lines_that_are_empty_keep_their_place(tmp_path):
    """Texts of a document may begin or end with a sentence that has no translation."""
    path = tmp_path / "a.jsonl"
    for source, target, pairs in (
        ("\nTwo.\nThree.", "Eins.\nZwei.\n", [("Two.", "Zwei.")]),
        ("One.\nTwo.\n", "Eins.\nZwei.", [("One.", "Eins."), ("Two.", "Zwei.")]),
    ):
        path.write_text(json.dumps({"en": source, "de": target, "document": "x"}) + "\n")
        assert read(path, source="en", target="de") == [("x", pairs)]


def test_a_line_break_in_a_sentence_ends_no_document(tmp_path):
    rows = [("One.", "Eins.", "x"), ("Two.\nThree.", "Zwei.\nDrei.", "x"), ("One.", "Eins.", "x")]
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps(dict(zip(("en", "de", "document"), row, strict=True))) + "\n" for row in rows))
    assert read(path, source="en", target="de") == [("x", [*PAIRS, PAIRS[0]])]


def test_pairs_without_a_document_are_not_joined(tmp_path):
    rows = [(*pair, "") for pair in PAIRS]
    assert read(write_tsv(tmp_path / "a.tsv", rows)) == [(str(n), [pair]) for n, pair in enumerate(PAIRS, 1)]


def test_ids_of_opus_without_a_sentence_on_one_side(tmp_path):
    (tmp_path / "a.en").write_text("One.\nTwo.\nThree.")
    (tmp_path / "a.de").write_text("Eins.\n(zwei)\nDrei.")
    write_tsv(
        tmp_path / "a.ids", [("1.xml", "1.xml", "1", "1"), ("1.xml", "1.xml", "2", ""), ("1.xml",) * 2 + ("3", "2")]
    )
    (document,) = read_parallel(tmp_path / "a.en", tmp_path / "a.de", docids=tmp_path / "a.ids")
    assert len(document) == 3


def test_drafts_of_parquet(tmp_path):
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    rows = [{"source": f"größe {n * 7919}", "target": f"{n}", "document": "x"} for n in range(300)]
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "a.parquet")
    (tmp_path / "drafts.txt").write_text("".join(f"draft {n}\n" for n in range(300)))
    (document,) = read_parallel(tmp_path / "a.parquet", drafts=tmp_path / "drafts.txt")
    assert document.drafts == tuple(f"draft {n}" for n in range(300))
