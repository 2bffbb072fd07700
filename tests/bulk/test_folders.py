"""Folders of files: each is written as `docmt translate` writes it, and one that fails stops no other."""

import json
import os
import shutil

import pytest
from bulk_jobs import QUICK, bulk, read_parts, write_rows
from commands import call, fails

from docmt.bulk.job_directory import JobDirectory
from docmt.formats import html_units

PAGE = "<html><body><p>a few <b>words</b></p><p>more words</p></body></html>"
FILES = {
    "a.txt": "a few words. more words\n\nfew more\n",
    "pages/one.html": PAGE,
    "pages/deep/two.html": PAGE.replace("more", "few"),
    "pages/three.md": "# few\n\nmore *words* at https://example.org/a\n",
    "film.srt": "1\n00:00:01,000 --> 00:00:02,000\nA few words.\n",
}


@pytest.fixture
def folder(tmp_path):
    """A folder of files, with one that docmt does not read, a damaged one, and hidden ones."""
    for name, text in {**FILES, "x.pdf": "%PDF-1.5", "y --z.docx": "PK", ".hidden": "a", ".git/b.txt": "a"}.items():
        path = tmp_path / "folder" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "folder"


def test_files_are_written_as_by_translate(model, folder, tmp_path):
    outcome = call("bulk", model, folder, "-o", tmp_path / "job", *QUICK)
    assert outcome.status == 2
    assert "5 of 7 documents are translated; 2 failed" in outcome.err
    parts = read_parts(tmp_path / "job")
    assert {path.removeprefix("output/") for path in parts if "output" in path} == set(FILES)
    for name in FILES:
        output = tmp_path / name.replace("/", "-")
        assert call("translate", model, folder / name, "-o", output, "-q", *QUICK[:4]).status == 0
        assert parts[f"output/{name}"] == output.read_bytes(), name
    failed = [json.loads(line) for path, data in parts.items() if "failed" in path for line in data.splitlines()]
    errors = {record["path"]: record["error"] for record in failed}
    assert sorted(errors) == ["x.pdf", "y --z.docx"]
    assert "is a PDF document" in errors["x.pdf"]
    assert errors["x.pdf"].endswith("--join-lines. (an option of docmt translate, which docmt bulk lacks)")
    assert "an option of" not in errors["y --z.docx"]
    assert len(list((tmp_path / "job" / "state" / "done").iterdir())) > 1


def test_a_file_that_cannot_be_put_together_is_a_failure(model, folder, tmp_path, monkeypatch):
    def fail(*_):
        raise ValueError("no such element")

    monkeypatch.setattr(html_units.MarkupFile, "write", fail)
    bulk(model, folder, "-o", tmp_path / "job", status=2)
    parts = read_parts(tmp_path / "job")
    assert {path for path in parts if "output" in path} == {f"output/{n}" for n in FILES if not n.endswith("html")}
    assert sum(data.count(b"ValueError: no such element") for data in parts.values()) == 2


def test_what_is_no_file_is_a_failure(model, tmp_path):
    """Links that lead nowhere or to folders, and pipes, which nobody may write to."""
    (tmp_path / "folder" / "real").mkdir(parents=True)
    (tmp_path / "folder" / "real" / "a.txt").write_text("a few words")
    (tmp_path / "folder" / "nowhere.txt").symlink_to("gone.txt")
    (tmp_path / "folder" / "link").symlink_to("real")
    os.mkfifo(tmp_path / "folder" / "pipe.txt")
    bulk(model, tmp_path / "folder", "-o", tmp_path / "job", status=2)
    parts = read_parts(tmp_path / "job")
    errors = {each["path"]: each["error"] for each in map(json.loads, parts.pop("failed/000001.jsonl").splitlines())}
    assert list(parts) == ["output/real/a.txt"]
    assert errors.keys() == {"nowhere.txt", "link", "pipe.txt"}
    assert "there is no such file" in errors["nowhere.txt"]
    assert "it is a directory" in errors["link"]
    assert "it is a pipe" in errors["pipe.txt"]


def test_a_file_that_fails_has_no_output(model, folder, tmp_path, monkeypatch):
    """An earlier worker, which had more memory, has written it and was killed before the shard was done."""
    arguments = ["bulk", model, folder, "-o", tmp_path / "job", *QUICK[:-2], "1000000", "-q"]  # one shard

    def die(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(JobDirectory, "finish", die)
        assert call(*arguments).status == 130
    assert (tmp_path / "job" / "output" / "pages" / "one.html").exists()

    def fail(*_):
        raise ValueError("no such element")

    monkeypatch.setattr(html_units.MarkupFile, "write", fail)
    assert call(*arguments).status == 2
    outputs = {path for path in read_parts(tmp_path / "job") if "output" in path}
    assert outputs == {f"output/{name}" for name in FILES if not name.endswith("html")}


def test_a_worker_may_have_the_folder_elsewhere(model, folder, tmp_path):
    bulk(model, folder, "-o", tmp_path / "whole", status=2)
    bulk(model, folder, "-o", tmp_path / "job", "--plan-only")
    shutil.move(folder, tmp_path / "elsewhere" / "folder")
    fails("bulk", model, "-o", tmp_path / "job", *QUICK, message=r"there is no folder .*folder: name the input as this")
    bulk(model, tmp_path / "elsewhere" / "folder", "-o", tmp_path / "job", status=2)
    names = [set(read_parts(tmp_path / name)) for name in ("whole", "job")]
    assert names[0] == names[1]
    (tmp_path / "elsewhere" / "folder" / "a.txt").write_text("another")
    fails("bulk", model, tmp_path / "elsewhere" / "folder", "-o", tmp_path / "job", *QUICK, message="another input")


def test_several_folders_and_what_is_refused(model, folder, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    (other / "a.txt").write_text("words\n")
    shutil.rmtree(folder / "pages")
    bulk(model, folder, other, "-o", tmp_path / "job", status=2)
    names = {path for path in read_parts(tmp_path / "job") if "output" in path}
    assert names == {"output/folder/a.txt", "output/folder/film.srt", "output/other/a.txt"}
    write_rows(other / "b.jsonl", [{"text": "a"}])
    fails("bulk", model, other, "-o", tmp_path / "b", *QUICK, message="b.jsonl has a document a row: name such files")
    fails("bulk", model, folder, "-o", folder / "job", *QUICK, message="folder/job is inside the input")
    fails("bulk", model, folder, folder, "-o", tmp_path / "c", *QUICK, message="two folders have one name")
    fails("bulk", model, folder, "-o", tmp_path / "c", *QUICK, "--swap", message="--swap is for JSONL and Parquet")
