"""Rows of JSONL and Parquet: read and written in one form each, with one or several translations."""

import datetime
import gzip
import json

import pytest
import zstandard
from bulk_jobs import QUICK, TEXTS, bulk, read_parts, read_records, write_rows
from commands import call, fails

from docmt.core.errors import DocmtError
from docmt.core.plain_text import compress
from docmt.decoding import Translator
from docmt.documents import read_parallel

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")
OPEN = {"": open, ".gz": gzip.open, ".zst": zstandard.open}


@pytest.mark.parametrize("suffix", [*(pytest.param(each, marks=pytest.mark.full) for each in ("", ".gz")), ".zst"])
def test_compression_is_kept(model, corpus, tmp_path, suffix):
    bulk(model, corpus, "-o", tmp_path / "plain")
    path = tmp_path / f"again.jsonl{suffix}"
    path.write_bytes(compress(corpus.read_bytes(), suffix))
    bulk(model, path, "-o", tmp_path / "job")
    parts = sorted((tmp_path / "job" / "output").iterdir())
    assert [part.name for part in parts] == [f"part-00000{n}.jsonl{suffix}" for n in (1, 2, 3)]
    records = []
    for part in parts:
        with OPEN[suffix](part, "rt", encoding="utf-8") as file:
            records += map(json.loads, file)
    assert records == read_records(tmp_path / "plain")


def write_parquet(path, rows):
    parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    return path


def test_parquet_keeps_other_columns_and_their_types(model, corpus, tmp_path):
    bulk(model, corpus, "-o", tmp_path / "jsonl")
    when = datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)
    rows = [
        {"when": when, "raw": b"\xff", "url": f"u{n}", "id": f"d{n}", "text": TEXTS[n % 6], "score": "theirs"}
        for n in range(12)
    ]
    files = [write_parquet(tmp_path / f"{name}.parquet", part) for name, part in (("a", rows[:5]), ("b", rows[5:]))]
    bulk(model, *files, "-o", tmp_path / "job")
    parts = sorted((tmp_path / "job" / "output").iterdir())
    assert [part.suffix for part in parts] == [".parquet"] * 3
    records = [record for part in parts for record in parquet.read_table(part).to_pylist()]
    others = [{**record, "when": when, "raw": b"\xff"} for record in read_records(tmp_path / "jsonl")]
    assert records == others
    assert len({str(parquet.read_schema(part)) for part in parts}) == 1


def test_parquet_without_ids_of_sentences_with_a_row_that_fails(model, tmp_path):
    path = write_parquet(tmp_path / "a.parquet", [{"sentences": ["a few", "words"]}, {"sentences": None}])
    bulk(model, path, "-o", tmp_path / "job", status=2)
    (part,) = (tmp_path / "job" / "output").iterdir()
    (record,) = parquet.read_table(part).to_pylist()
    assert (record["id"], record["source"], len(record["target"])) == ("a.parquet:1", ["a few", "words"], 2)
    assert "translation" not in record
    (failed,) = map(json.loads, (tmp_path / "job" / "failed" / "000001.jsonl").read_text().splitlines())
    assert failed["location"] == f"{path}, row 2"
    assert failed["error"] == "`sentences` is neither a text nor a list of sentences"


def test_what_is_wrong_with_files_of_rows(model, corpus, tmp_path, monkeypatch):
    one, other = (write_parquet(tmp_path / f"{name}.parquet", [{"text": "a", name: 1}]) for name in "ab")
    fails("bulk", model, one, other, "-o", tmp_path / "a", *QUICK, message="b.parquet has other columns than .*a.parqu")
    fails("bulk", model, one, corpus, "-o", tmp_path / "b", *QUICK, message="are input of different kinds: translate")
    twice = pyarrow.Table.from_arrays([pyarrow.array(["a"])] * 2, names=["text", "text"])
    parquet.write_table(twice, tmp_path / "twice.parquet")
    fails("bulk", model, tmp_path / "twice.parquet", "-o", tmp_path / "e", *QUICK, message="two columns of one name")
    latin = pyarrow.array([b"\xfcber"]).view(pyarrow.string())
    parquet.write_table(pyarrow.table({"text": latin}), tmp_path / "latin.parquet")
    fails("bulk", model, tmp_path / "latin.parquet", "-o", tmp_path / "f", *QUICK, message="has text that is not UTF-8")
    other.write_text("PAR1")
    fails("bulk", model, other, "-o", tmp_path / "c", *QUICK, message="b.parquet is no Parquet file, or damaged")
    damaged = tmp_path / "a.jsonl.gz"
    damaged.write_bytes(gzip.compress(corpus.read_bytes())[:-9])
    fails("bulk", model, damaged, "-o", tmp_path / "d", *QUICK, message="a.jsonl.gz is damaged, truncated, or not com")


def test_several_translations_keep_the_id_of_their_source(model, corpus, tmp_path):
    options = [option for option in QUICK if option not in ("--beam", "1")]
    bulk_options = ["--beam", "3", "--n-best", "2", "-o", tmp_path / "best"]
    assert call("bulk", model, corpus, *bulk_options, *options).status == 0
    records = read_records(tmp_path / "best")
    assert [record["id"] for record in records[:4]] == ["d0-1", "d0-2", "d1-1", "d1-2"]
    assert [record["source_id"] for record in records[:4]] == ["d0", "d0", "d1", "d1"]
    assert records[0]["score"] > records[1]["score"]
    assert len(records) == 24


@pytest.mark.full
def test_samples_are_a_corpus_of_the_other_direction(model, corpus, tmp_path):
    sampling = ["--search.sampling", "--samples", "3", "--swap"]
    bulk(model, corpus, "-o", tmp_path / "a", *sampling, "--seed", 7)
    bulk(model, corpus, "-o", tmp_path / "b", *sampling, "--seed", 7, "--shard", "2/2")
    bulk(model, corpus, "-o", tmp_path / "b", *sampling, "--seed", 7)
    assert read_parts(tmp_path / "a") == read_parts(tmp_path / "b")
    records = read_records(tmp_path / "a")
    first = [record for record in records if record["source_id"] == "d1"]
    assert [record["id"] for record in first] == ["d1-1", "d1-2", "d1-3"]
    assert len({tuple(record["source"]) for record in first}) == 3
    assert {tuple(record["target"]) for record in first} == {("a few more words.", "more words")}
    part = tmp_path / "a" / "output" / "part-000001.jsonl"
    assert list(read_parallel(part))


@pytest.mark.full
def test_equal_documents_of_a_job_have_samples_of_their_own(model, tmp_path):
    path = write_rows(tmp_path / "a.jsonl", [{"text": "a few more words. more words"}] * 6)
    options = ["--search.sampling", "--samples", "2", *QUICK[:-2], "20", "-q"]
    assert call("bulk", model, path, "-o", tmp_path / "job", *options).status == 0
    assert len(list((tmp_path / "job" / "output").iterdir())) > 2
    assert len({tuple(record["target"]) for record in read_records(tmp_path / "job")}) == 12


@pytest.mark.parametrize("error", [DocmtError("no"), pytest.param(MemoryError(), marks=pytest.mark.full)])
def test_samples_do_not_depend_on_failures(model, tmp_path, monkeypatch, error):
    """Rows of equal text, and rows whose tokens alone are equal."""
    sentences = ["few words a word"], ["few", "words"], ["few words a word", ""], ["few\nwords a word"]
    rows = [{"id": f"d{number}", "source": row} for number, row in enumerate([*sentences, *sentences] * 2)]
    path = write_rows(tmp_path / "a.jsonl", rows)
    options = ["--search.sampling", "--samples", "2"]
    bulk(model, path, "-o", tmp_path / "whole", *options)
    translate_all = Translator.translate_all

    def fail(self, documents, **options):
        if any(document.id == "d1" for document in documents):
            raise error
        return translate_all(self, documents, **options)

    monkeypatch.setattr(Translator, "translate_all", fail)
    bulk(model, path, "-o", tmp_path / "job", *options, status=2)
    records = read_records(tmp_path / "whole")
    assert read_records(tmp_path / "job") == [record for record in records if record["source_id"] != "d1"]
    samples = {" ".join(record["target"]).strip() for record in records if "".join(record["source"]) != "fewwords"}
    assert len(samples) == 24


def test_equal_ids_are_refused(model, tmp_path):
    one = write_rows(tmp_path / "one.jsonl", [{"id": "x", "text": "words"}, {"id": 3, "text": "words"}])
    other = write_rows(tmp_path / "other.jsonl", [{"text": "words"}, {"id": "3", "text": "few words"}])
    message = r"one.jsonl, line 2 and .*other.jsonl, line 2 have the same id '3': .*--id-column ''"
    fails("bulk", model, one, other, "-o", tmp_path / "a", *QUICK, message=message)
    fails("bulk", model, one, one, "-o", tmp_path / "b", *QUICK, message="one.jsonl is named twice: name it once")
    missing = tmp_path / "missing.jsonl"
    missing.write_text('{"id": NaN, "text": "words"}\n' * 2)
    bulk(model, missing, "-o", tmp_path / "c")
    assert [record["id"] for record in read_records(tmp_path / "c")] == ["missing.jsonl:1", "missing.jsonl:2"]
    bulk(model, one, other, "-o", tmp_path / "job", "--id-column", "")
    ids = [record["id"] for record in read_records(tmp_path / "job")]
    assert ids == ["one.jsonl:1", "one.jsonl:2", "other.jsonl:1", "other.jsonl:2"]


def test_two_columns_of_text_are_refused(model, tmp_path):
    rows = [{"id": 1, "text": "a few"}, {"id": 2, "source": ["words"], "text": "a few words"}]
    path = write_rows(tmp_path / "a.jsonl", rows)
    message = r"a.jsonl, line 2 has the columns source and text: name that of the text with --text-column"
    fails("bulk", model, path, "-o", tmp_path / "a", *QUICK, message=message)
    bulk(model, path, "-o", tmp_path / "b", "--text-column", "text")
    assert [record["source"] for record in read_records(tmp_path / "b")] == [["a few"], ["a few words"]]


def test_columns_are_named_by_options(model, tmp_path):
    rows = [{"name": 3, "body": "a few words"}, {"name": "x", "body": ["a few", "words"], "text": "not this"}]
    path = write_rows(tmp_path / "a.jsonl", rows)
    bulk(model, path, "-o", tmp_path / "job", "--text-column", "body", "--id-column", "name")
    one, other = read_records(tmp_path / "job")
    assert (one["id"], one["source"]) == ("3", ["a few words"])
    assert (other["id"], other["source"], other["text"]) == ("x", ["a few", "words"], "not this")


def test_documents_without_text(model, tmp_path):
    rows = [{"text": ""}, {"text": " \n\n"}, {"source": []}, {"source": ["", "a few"]}]
    bulk(model, write_rows(tmp_path / "a.jsonl", rows), "-o", tmp_path / "job")
    records = read_records(tmp_path / "job")
    assert [record["source"] for record in records] == [[], [], [], ["", "a few"]]
    assert [record.get("translation") for record in records] == ["", " \n\n", None, None]
    assert (records[3]["target"][0], records[3]["scores"][0]) == ("", 0.0)


def test_a_lone_surrogate_in_another_column_is_kept(model, tmp_path):
    rows = [{"text": "a few words", "title": "\ud800"}, {"text": "words", "title": "ü"}]
    bulk(model, write_rows(tmp_path / "a.jsonl", rows), "-o", tmp_path / "job")
    assert [record["title"] for record in read_records(tmp_path / "job")] == ["\ud800", "ü"]


def test_the_translation_of_another_job_is_not_kept(model, tmp_path):
    bulk(model, write_rows(tmp_path / "a.jsonl", [{"text": "a few words"}]), "-o", tmp_path / "job")
    part = tmp_path / "job" / "output" / "part-000001.jsonl"
    bulk(model, part, "-o", tmp_path / "other", "--text-column", "target")
    (record,) = read_records(tmp_path / "other")
    assert "translation" not in record


@pytest.mark.parametrize("kind", ["string", "large_string", "dictionary", "string_view"])
def test_running_text_of_any_type(model, tmp_path, kind):
    text = pyarrow.array(["a few words"])
    column = text.dictionary_encode() if kind == "dictionary" else text.cast(getattr(pyarrow, kind)())
    parquet.write_table(pyarrow.table({"text": column}), tmp_path / "a.parquet")
    bulk(model, tmp_path / "a.parquet", "-o", tmp_path / "job")
    (record,) = parquet.read_table(tmp_path / "job" / "output" / "part-000001.parquet").to_pylist()
    assert record["source"] == ["a few words"]
    assert record["translation"]


@pytest.mark.parametrize(
    "column",
    [
        pyarrow.array([1], pyarrow.timestamp("ns")),
        pyarrow.array([10**14, None], pyarrow.timestamp("s", "Europe/Paris"))[:1],
        pyarrow.array([1], pyarrow.duration("ns")),
        pyarrow.array([1], pyarrow.time64("ns")),
    ],
    ids=str,
)
def test_times_that_python_has_not(model, tmp_path, column):
    table = pyarrow.table({"text": ["a few words"], "when": column})
    parquet.write_table(table, tmp_path / "a.parquet")
    bulk(model, tmp_path / "a.parquet", "-o", tmp_path / "job")
    written = parquet.read_table(tmp_path / "job" / "output" / "part-000001.parquet")
    assert written["when"].equals(parquet.read_table(tmp_path / "a.parquet")["when"])


def test_rows_without_ids_of_files_of_one_name(model, tmp_path):
    for folder in "ab":
        (tmp_path / folder).mkdir()
        write_rows(tmp_path / folder / "part.jsonl", [{"text": f"{folder} few words"}])
    paths = [tmp_path / folder / "part.jsonl" for folder in "ab"]
    bulk(model, *paths, "-o", tmp_path / "job")
    assert [record["id"] for record in read_records(tmp_path / "job")] == [f"{path}:1" for path in paths]


def test_ids_of_any_type(model, tmp_path):
    ids = ["a", 3, 4.5, "", None, ["b"]]
    bulk(model, write_rows(tmp_path / "a.jsonl", [{"id": id, "text": "words"} for id in ids]), "-o", tmp_path / "job")
    expected = ["a", "3", "4.5", "a.jsonl:4", "a.jsonl:5", "a.jsonl:6"]
    assert [record["id"] for record in read_records(tmp_path / "job")] == expected
