"""Terms of bulk jobs: rows have what became of each, and the status counts them, whoever translated the shards."""

import dataclasses
import json

import pytest
from bulk_jobs import QUICK, bulk, read_parts, read_records, write_rows
from commands import call

from docmt.bulk import worker
from docmt.decoding.translation_results import TermUse

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")


@pytest.fixture
def terms(tmp_path):
    path = tmp_path / "terms.tsv"
    path.write_text("word\tmore\nfew\tqqqq\n", encoding="utf-8")
    return ["--terms", path, "--terms-mode", "require"]


def read_counts(job):
    """Return the counts of the status."""
    return json.loads(call("bulk", "status", job, "--json", "-").out)["terms"]


def test_rows_and_status_tell_what_became_of_terms(model, corpus, terms, tmp_path):
    outcome = bulk(model, corpus, "-o", tmp_path / "job", *terms)
    records = read_records(tmp_path / "job")
    assert all(len(record["terms"]) == len(record["source"]) for record in records)
    uses = [use for record in records for row in record["terms"] for use in row]
    assert {use["term"] for use in uses} == {"word", "few"} and set(uses[0]) >= {"span", "wanted", "found", "status"}
    counts = read_counts(tmp_path / "job")
    assert sum(counts.values()) == len(uses) and counts.get("lost", 0) == sum(use["status"] == "lost" for use in uses)
    assert f"terms: {len(uses)} asked, " in call("bulk", "status", tmp_path / "job").out.splitlines()[0]
    plain = bulk(model, corpus, "-o", tmp_path / "plain")
    assert "terms" not in read_records(tmp_path / "plain")[0] and not read_counts(tmp_path / "plain")
    assert "terms:" not in outcome.out + plain.out


@pytest.mark.full
def test_parquet_has_the_same_terms(model, corpus, terms, tmp_path):
    rows = [json.loads(line) for line in corpus.read_text().splitlines()]
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "a.parquet")
    bulk(model, corpus, "-o", tmp_path / "jsonl", *terms)
    bulk(model, tmp_path / "a.parquet", "-o", tmp_path / "job", *terms)
    parts = sorted((tmp_path / "job" / "output").iterdir())
    records = [record for part in parts for record in parquet.read_table(part).to_pylist()]
    assert [record["terms"] for record in records] == [record["terms"] for record in read_records(tmp_path / "jsonl")]
    (schema,) = {str(parquet.read_schema(part)): parquet.read_schema(part) for part in parts}.values()
    names = [field.name for field in dataclasses.fields(TermUse)]
    assert sorted(names) == sorted(field.name for field in schema.field("terms").type.value_type.value_type)
    assert read_counts(tmp_path / "job") == read_counts(tmp_path / "jsonl")


def test_folders_are_counted(model, terms, tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("a few words. few more\n", encoding="utf-8")
    bulk(model, tmp_path / "in", "-o", tmp_path / "job", *terms)
    assert sum(read_counts(tmp_path / "job").values()) == 3


@pytest.mark.full
def test_a_resumed_and_a_broken_off_job_count_each_term_once(model, corpus, terms, tmp_path, monkeypatch):
    bulk(model, corpus, "-o", tmp_path / "whole", *terms)
    bulk(model, corpus, "-o", tmp_path / "job", *terms, "--shard", "1/3")
    some = read_counts(tmp_path / "job")
    with monkeypatch.context() as patch:
        patch.setattr(worker.JobDirectory, "finish", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        assert call("bulk", model, corpus, "-o", tmp_path / "job", *QUICK, *terms).status == 130
    assert read_counts(tmp_path / "job") == some
    bulk(model, corpus, "-o", tmp_path / "job", *terms)
    assert read_counts(tmp_path / "job") == read_counts(tmp_path / "whole")
    assert read_parts(tmp_path / "job") == read_parts(tmp_path / "whole")


def test_a_job_keeps_to_the_usual_word_of_a_document(tmp_path):
    sentences = [
        "The committee is here.",
        "I thank the committee.",
        "This committee is new.",
        "We must help the committee.",
    ]
    targets = ["La commission est ici.", "Je remercie la commission.", "Cette commission est nouvelle."]
    segments = "".join(
        f'<tu><tuv xml:lang="en"><seg>{one}</seg></tuv><tuv xml:lang="fr"><seg>{other}</seg></tuv></tu>'
        for one, other in zip(sentences, targets, strict=False)
    )
    (tmp_path / "m.tmx").write_text(f'<tmx version="1.4"><header/><body>{segments}</body></tmx>')
    rows = write_rows(tmp_path / "a.jsonl", [{"source": sentences}, {"source": sentences[3:]}])
    common = ("en-fr-sentence", rows, "--beam", "1", "--memory", tmp_path / "m.tmx")
    outcome = call("bulk", *common, "-o", tmp_path / "job", "--consistent")
    first, second = read_records(tmp_path / "job")
    assert outcome.status == 0 and "commission" in first["target"][3] and "comité" in second["target"][0]
    assert [use["status"] for row in first["terms"] for use in row] == ["consistent"] and second["terms"] == [[]]
    assert "1 made consistent" in outcome.err
    assert call("bulk", *common, "-o", tmp_path / "job").status == 2


def test_parquet_names_the_words_that_a_term_drops(tmp_path, monkeypatch):
    monkeypatch.setattr("docmt.decoding.term_search._MOST_CHECKED", 1)  # the best one for the model drops a word
    for name in ("_LIKELY", "_CLEAR"):  # without the old rest
        monkeypatch.setattr(f"docmt.decoding.term_openings.{name}", -1.0)
    (tmp_path / "terms.tsv").write_text("group\tcercle\n")
    rows = [{"source": text} for text in ("No.", "The steering group has a new chair.")]
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "a.parquet")
    options = ("--beam", "2", "--terms", tmp_path / "terms.tsv", "--terms-mode", "require", "-o", tmp_path / "job")
    assert call("bulk", "en-fr-sentence", tmp_path / "a.parquet", *options).status == 0
    (part,) = (tmp_path / "job" / "output").iterdir()
    none, ((use,),) = parquet.read_table(part).column("terms").to_pylist()
    assert (use["status"], use["dropped"], none) == ("second_search", "steering", [[]])
