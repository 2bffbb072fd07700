"""`docmt bulk`: every document once, whoever translates it, and a document that fails stops nothing."""

import json
import shutil

import pytest
from bulk_jobs import QUICK, bulk, is_clean, read_parts, read_records, write_rows
from commands import call, fails
from tiny_model import save_tiny_model

import docmt
from docmt.bulk import worker
from docmt.bulk.job_directory import JobDirectory, read_status
from docmt.bulk.shards import ShardRows
from docmt.cli.app import load_command
from docmt.cli.options import EveryCommand
from docmt.core.settings import format_flag
from docmt.decoding import Translation, Translator
from docmt.documents import Document, read_parallel


def test_every_document_is_translated_as_alone(model, corpus, tmp_path):
    bulk(model, corpus, "-o", tmp_path / "job")
    records, rows = read_records(tmp_path / "job"), [json.loads(line) for line in corpus.read_text().splitlines()]
    assert [(record["id"], record["url"]) for record in records] == [(row["id"], row["url"]) for row in rows]
    assert len(read_parts(tmp_path / "job")) > 2
    translator = Translator(model, search=docmt.SearchConfig(beam=1, max_length_extra=4))
    for row, record in zip(rows, records, strict=True):
        translation = translator.translate(Document.from_text(row["text"]))
        assert record["target"] == list(translation.document.sentences)
        assert record["translation"] == translation.text()
        assert record["scores"] == pytest.approx([sentence.score for sentence in translation], abs=1e-3)
    pairs = [pair for part in sorted((tmp_path / "job" / "output").iterdir()) for pair in read_parallel(part)]
    assert [pair.id for pair in pairs if pair.id != "d2"] == [row["id"] for row in rows if row["id"] != "d2"]
    assert is_clean(tmp_path / "job")


def test_another_start_of_a_complete_job_changes_nothing(model, corpus, tmp_path):
    bulk(model, corpus, "-o", tmp_path / "job")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "job" / "output").iterdir()}
    corpus.unlink()
    bulk(model, "-o", tmp_path / "job")
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "job" / "output").iterdir()} == before


def test_shares_are_disjoint_and_together_the_whole(model, corpus, tmp_path):
    bulk(model, corpus, "-o", tmp_path / "whole")
    for number in (2, 1):
        outcome = call("bulk", model, corpus, "-o", tmp_path / "job", "--shard", f"{number}/2", *QUICK[:-1])
        assert outcome.status == 0
        assert ("docmt bulk status" in outcome.err) == (number == 2)
    assert read_parts(tmp_path / "job") == read_parts(tmp_path / "whole")


def test_planning_alone(model, corpus, tmp_path):
    outcome = call("bulk", model, corpus, "-o", tmp_path / "job", "--plan-only", *QUICK[:-1])
    assert (outcome.status, outcome.err) == (0, f"docmt: {tmp_path / 'job'} is planned: 12 documents, shards: 3\n")
    outcome = call("bulk", "status", tmp_path / "job")
    assert outcome.out.startswith(f"{tmp_path / 'job'}: 0 of 12 documents are translated\n")
    assert "0 done, 0 claimed" in outcome.out
    bulk(model, corpus, "-o", tmp_path / "job")
    outcome = call("bulk", "status", tmp_path / "job")
    assert outcome.out.startswith(f"{tmp_path / 'job'}: 12 of 12 documents are translated\n")
    assert "a second for each worker" in outcome.out
    assert "left" not in outcome.out


def test_status_as_json(model, corpus, tmp_path):
    bulk(model, corpus, "-o", tmp_path / "job", "--shard", "1/3", "--json", tmp_path / "status.json")
    status = json.loads((tmp_path / "status.json").read_text())
    assert (status["shards"], status["done"], status["documents"], status["failed"]) == (3, 1, 12, 0)
    assert status["workers"] == 1  # itself
    printed = json.loads(call("bulk", "status", tmp_path / "job", "--json", "-").out)
    assert printed == {**status, "workers": 0, "seconds_left": None}
    bulk(model, "-o", tmp_path / "job")
    complete = json.loads(call("bulk", "status", tmp_path / "job", "--json", "-").out)
    assert complete["is_complete"] and complete["seconds_left"] == 0


def test_every_option_that_changes_results_is_in_the_plan(model, corpus, tmp_path):
    """So that no worker can bring another value unnoticed."""
    bulk(model, corpus, "-o", tmp_path / "job", "--plan-only")
    free = {*EveryCommand.__dataclass_fields__, *["output", "device", "shard", "plan_only", "ray", "json"]}
    names = {
        format_flag(option.name)
        for option in load_command("bulk")[0].options
        if option.name not in free and option.flags
    }
    assert names | {"model", "input"} == JobDirectory(tmp_path / "job").read_plan().settings.keys()


def test_a_document_that_fails_stops_nothing(model, corpus, tmp_path, monkeypatch):
    """Errors of any class are found by halving; the others are translated as without it."""
    bulk(model, corpus, "-o", tmp_path / "sound")
    translate = Translator.translate_all

    def fail(self, documents, **options):
        if any(document.id == "d4" for document in documents):
            raise IndexError("list index out of range")
        return translate(self, documents, **options)

    monkeypatch.setattr(Translator, "translate_all", fail)
    lines = corpus.read_text().splitlines()
    lines[6:6] = ['{"id": "broken", "text": "a few', '{"id": "number", "text": 7}', '{"id": "none"}', '["text"]']
    corpus.write_text("\n".join([*lines, '{"id": "surrogate", "text": "\\ud800"}']))
    outcome = bulk(model, corpus, "-o", tmp_path / "job", status=2)
    assert outcome.err == f"docmt: error: {tmp_path / 'job'}: 11 of 17 documents are translated; 6 failed, see " + (
        f"{tmp_path / 'job'}/failed\n"
    )
    assert read_records(tmp_path / "job") == [each for each in read_records(tmp_path / "sound") if each["id"] != "d4"]
    parts = read_parts(tmp_path / "job")
    failed = [json.loads(line) for path, data in parts.items() if "failed" in path for line in data.splitlines()]
    errors = {record.get("id"): (record["location"].rpartition(", ")[2], record["error"]) for record in failed}
    assert errors["d4"] == ("line 5", "IndexError: list index out of range")
    assert errors["number"][1] == "`text` is neither a text nor a list of sentences"
    assert {line for line, _ in errors.values()} == {"line 5", "line 10", "line 8", "line 9", "line 17"}
    assert sorted(record["error"].partition(" (")[0] for record in failed if "id" not in record) == [
        "not a JSON object",
        "not valid JSON",
    ]
    assert call("bulk", "status", tmp_path / "job").out.startswith(outcome.err[len("docmt: error: ") : -1])


def test_a_worker_that_cannot_translate_blames_no_document(model, corpus, tmp_path, monkeypatch):
    bulk(model, corpus, "-o", tmp_path / "job", "--plan-only")

    def fail(self, documents, **options):
        raise RuntimeError("CUDA error: the device is gone")

    with monkeypatch.context() as patch:
        patch.setattr(Translator, "translate_all", fail)
        arguments = ["bulk", model, corpus, "-o", tmp_path / "job", *QUICK]
        fails(*arguments, message=r"cannot translate any more \(CUDA error: the device is gone\): start it again")
    assert len(list((tmp_path / "job" / "state" / "waiting").iterdir())) > 1
    bulk(model, corpus, "-o", tmp_path / "job")
    assert len(read_records(tmp_path / "job")) == 12


def test_scores_that_are_no_numbers_are_failures(model, corpus, tmp_path, monkeypatch):
    monkeypatch.setattr(Translation, "has_finite_scores", property(lambda self: self.document.id != "d4"))
    bulk(model, corpus, "-o", tmp_path / "job", status=2)
    assert len(read_records(tmp_path / "job")) == 11
    monkeypatch.setattr(Translation, "has_finite_scores", False)
    fails("bulk", model, corpus, "-o", tmp_path / "other", *QUICK, message="scores are not finite numbers")


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_an_interrupted_worker_releases_its_claim(model, corpus, tmp_path, monkeypatch, error):
    bulk(model, corpus, "-o", tmp_path / "whole")
    finish, calls = JobDirectory.finish, []

    def interrupt(*arguments):
        calls.append(arguments)
        if len(calls) == 2:
            raise error
        finish(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(JobDirectory, "finish", interrupt)
        outcome = call("bulk", model, corpus, "-o", tmp_path / "job", *QUICK)
    if error is KeyboardInterrupt:
        assert outcome.status == 130
        advice = (
            f"docmt: finished shards are kept; to go on, start a worker again (docmt bulk status {tmp_path / 'job'})"
        )
        assert outcome.err.splitlines() == [advice, "docmt: interrupted"]
    state = tmp_path / "job" / "state"
    assert [list((state / name).iterdir()) for name in ("claimed", "workers")] == [[], []]
    assert len(list((state / "done").iterdir())) == 1
    bulk(model, corpus, "-o", tmp_path / "job")
    assert read_parts(tmp_path / "job") == read_parts(tmp_path / "whole")


def test_other_models_and_settings_are_refused(model, corpus, tmp_path):
    bulk(model, corpus, "-o", tmp_path / "job", "--plan-only")
    other = save_tiny_model(tmp_path / "other", seed=1)
    job = ["-o", tmp_path / "job", *QUICK]
    fails("bulk", other, corpus, *job, message=r"job was planned with another model: use the same, or choose another")
    fails(
        "bulk", model, *job, "--length-penalty", 2, message=r"with another --search.length-penalty \(.*\): use the same"
    )
    beam = ["--beam", 3, *QUICK[2:]]
    fails("bulk", model, *job[:2], *beam, message=r"was planned with another --search.beam \(1\): use the same")
    fails("bulk", model, *job, "--id-column", "url", message=r"planned with another --id-column \(.id.\): use the same")
    content = corpus.read_bytes()
    for changed in (content + b'{"text": "more"}\n', content.replace(b"words", b"sword", 1), content[::-1]):
        corpus.write_bytes(changed)
        fails("bulk", model, corpus, *job, message=r"planned with another input: use the same")


def test_a_column_of_ids_that_is_not_there_is_refused(model, corpus, tmp_path):
    job = ["-o", tmp_path / "job", *QUICK, "--id-column"]
    fails("bulk", model, corpus, *job, "nope", message=r"has no column nope: check --id-column \(there are")


def test_what_is_no_job(model, corpus, tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").touch()
    (tmp_path / "empty.jsonl").touch()
    url = write_rows(tmp_path / "other.jsonl", [{"url": "x"}])
    fails("bulk", model, corpus, "-o", tmp_path / "full", message=r"full holds something else, such as mine: choose")
    fails("bulk", model, "-o", tmp_path / "none", message=r"none holds no bulk job yet: name the input as well")
    fails("bulk", "status", tmp_path / "full", message=r"full holds no bulk job")
    fails("bulk", "status", message=r"needs one directory")
    fails("bulk", model, corpus, message=r"-o is missing: name the directory of the job")
    fails("bulk", model, tmp_path / "none.jsonl", "-o", "x", message=r"none.jsonl: there is no such file")
    fails("bulk", model, tmp_path / "a.txt", "-o", "x", message=r"a.txt: there is no such file")
    fails("bulk", model, tmp_path / "empty.jsonl", "-o", tmp_path / "a", message=r"there are no documents in the input")
    fails("bulk", model, url, "-o", tmp_path / "b", message=r"line 1 has no column source, .* \(there are url\)")
    fails("bulk", model, corpus, "-o", "x", "--shard", "3/2", message=r"--shard is '3/2': give I/N with I from 1 to N")
    fails("bulk", model, corpus, "-o", "x", "--samples", "2", message=r"--samples has no effect without --search.sa")
    fails("bulk", model, corpus, url.with_suffix(".parquet"), "-o", "x", message=r"no such file")


@pytest.mark.full
def test_damage_and_loss_are_noticed(model, corpus, tmp_path, monkeypatch):
    monkeypatch.setattr(worker, "POLL_SECONDS", 0.01)
    bulk(model, corpus, "-o", tmp_path / "job", "--plan-only")
    waiting = sorted((tmp_path / "job" / "state" / "waiting").iterdir())
    waiting[0].write_bytes(waiting[1].read_bytes())
    arguments = ["bulk", model, corpus, "-o", tmp_path / "job", *QUICK]
    fails(*arguments, message=r"shard 000001 of .* is damaged: start the job again")
    waiting[0].unlink()
    fails(*arguments, message=r"shard 000001 of .* is missing: start the job again")


def test_a_worker_that_seemed_dead_leaves_its_shard_to_the_other(model, corpus, tmp_path, monkeypatch):
    bulk(model, corpus, "-o", tmp_path / "whole")
    finish, returned = Translator.translate_all, []

    def stall(self, documents, **options):
        job = JobDirectory(tmp_path / "job")
        for name, owner in job.list_claimed().items() if not returned else ():
            (job.claimed / f"{name}.{owner}").rename(job.waiting / name)
            returned.append(name)
        return finish(self, documents, **options)

    monkeypatch.setattr(Translator, "translate_all", stall)
    bulk(model, corpus, "-o", tmp_path / "job")
    assert returned == ["000001"]
    assert read_parts(tmp_path / "job") == read_parts(tmp_path / "whole")
    assert is_clean(tmp_path / "job")


def test_time_left_is_that_of_the_living_workers(model, corpus, tmp_path, monkeypatch):
    bulk(model, corpus, "-o", tmp_path / "job", "--shard", "1/2")
    job = JobDirectory(tmp_path / "job")
    assert read_status(job).seconds_left is None
    monkeypatch.setattr(JobDirectory, "count_workers", lambda self: 2)
    status = read_status(job)
    rate = status.done_tokens / status.seconds
    assert status.seconds_left == pytest.approx((status.tokens - status.done_tokens) / (2 * rate))
    assert "2 workers, 0:0" in status.format()


def test_a_planner_that_seemed_dead_leaves_the_plan_to_the_other(model, corpus, tmp_path, monkeypatch):
    job = JobDirectory.create(tmp_path / "job")
    split = ShardRows.split

    def stall(self, count, limit):
        yield from split(self, count, limit)
        monkeypatch.setattr(ShardRows, "split", split)
        ((name, owner),) = job.list_claimed().items()
        (job.claimed / f"{name}.{owner}").rename(job.waiting / name)
        assert call("bulk", model, corpus, "-o", job.path, "--plan-only", *QUICK[:-2], "20", "-q").status == 0

    monkeypatch.setattr(ShardRows, "split", stall)
    fails("bulk", model, corpus, "-o", job.path, *QUICK, message=r"was planned with another --shard-tokens")
    assert job.read_plan().settings["--shard-tokens"] == 20
    bulk_options = [*QUICK[:-2], "20"]
    assert call("bulk", model, corpus, "-o", job.path, *bulk_options).status == 0
    assert len(read_records(job.path)) == 12


def test_names_that_another_machine_shows_late(model, corpus, tmp_path, monkeypatch):
    """On NFS, one folder may still be shown as it was when another is shown as it is."""
    monkeypatch.setattr(worker, "POLL_SECONDS", 0.001)
    bulk(model, corpus, "-o", tmp_path / "job", "--plan-only")
    job, looks = JobDirectory(tmp_path / "job"), []
    claim = job.claim(f"1-{'0' * 8}-{'0' * 8}", ["000002"])
    (job.workers / claim.path.name.partition(".")[2]).touch()

    def list_claimed(self):
        looks.append(1)
        if len(looks) == 60:
            claim.path.rename(job.waiting / claim.name)
        return {}

    monkeypatch.setattr(JobDirectory, "list_claimed", list_claimed)
    bulk(model, corpus, "-o", job.path)
    assert len(read_records(job.path)) == 12


def test_notes_in_a_job_are_left_alone(model, corpus, tmp_path):
    (tmp_path / "job").mkdir()
    for name in (".DS_Store", ".nfs0001"):
        (tmp_path / "job" / name).write_text("theirs")
    bulk(model, corpus, "-o", tmp_path / "job", "--plan-only")
    (tmp_path / "job" / "slurm-1.out").write_text("theirs")
    bulk(model, corpus, "-o", tmp_path / "job")
    assert len(read_records(tmp_path / "job")) == 12
    left = {path.name for path in (tmp_path / "job").iterdir() if path.is_file()}
    assert left == {".DS_Store", ".nfs0001", "slurm-1.out", "plan.json"}


def test_results_of_an_earlier_job_are_not_mixed_with_others(model, corpus, tmp_path):
    bulk(model, corpus, "-o", tmp_path / "job")
    before = read_parts(tmp_path / "job")
    (tmp_path / "job" / "plan.json").unlink()
    shutil.rmtree(tmp_path / "job" / "state")
    fails(
        "bulk", model, corpus, "-o", tmp_path / "job", *QUICK, message=r"job has the results of an earlier job: choose"
    )
    assert read_parts(tmp_path / "job") == before
