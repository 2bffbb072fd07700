"""Files are read and written by a child process with limits: whatever it does, there is one clear error."""

import asyncio
import io
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from docmt.core.errors import DocmtError
from docmt.serve.file_process import FileProcess, JobFacts
from docmt.serve.file_worker import FileLimits

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no limits of processes")


def facts(name, format="auto", fields=()):
    return JobFacts(name, format, "m", "en", "fr", 0, fields)


def read(path, data, limits=None, format="auto", **values):
    path.write_bytes(data)
    output = path.with_name("contents.json")

    async def scenario():
        return await FileProcess(limits or FileLimits()).read(path, output, facts(path.name, format, **values))

    return asyncio.run(scenario())


@pytest.fixture
def bad_process(monkeypatch):
    """The next process is that of `bad_worker`."""
    monkeypatch.setattr(FileProcess, "module", "bad_worker")
    folders = [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(folders))


DEEDS = {"die": "damaged or too large", "loop": "takes more than 1 seconds"}
SLOW_DEEDS = {"sleep": DEEDS["loop"]}
SLOW_DEEDS |= dict.fromkeys(["flood", "garbage", "no_result", "bad_result", "nested", "silent"], DEEDS["die"])


@pytest.mark.parametrize(
    ("deed", "message"), [*DEEDS.items(), *(pytest.param(*each, marks=pytest.mark.full) for each in SLOW_DEEDS.items())]
)
def test_whatever_the_process_does_is_one_error(tmp_path, bad_process, deed, message):
    with pytest.raises(DocmtError, match=f"a.txt .*{message}"):
        read(tmp_path / "a.txt", b"One.", FileLimits(seconds=1), deed)


@pytest.mark.full
def test_a_zip_bomb_is_refused(tmp_path):
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as package:
        package.writestr("word/document.xml", b"\0" * (50 * 2**20))
        package.writestr("[Content_Types].xml", "<Types/>")
    assert len(data.getvalue()) < 100_000
    with pytest.raises(DocmtError, match=r"a\.docx"):
        read(tmp_path / "a.docx", data.getvalue())


@pytest.mark.full
def test_a_file_that_takes_too_much_memory(tmp_path):
    text = b"<p>one two.</p>" * 400_000
    with pytest.raises(DocmtError, match=r"a\.html (takes too much memory|is damaged or too large)"):
        read(tmp_path / "a.html", text, FileLimits(memory=120 * 2**20))


def test_a_result_that_has_no_folder(tmp_path):
    (tmp_path / "a.txt").write_text("One.")
    facts = JobFacts("a.txt", "text", "", "en", "fr", 1)
    work = FileProcess(FileLimits()).write(tmp_path / "a.txt", tmp_path / "none" / "result", facts, [], "txt")
    with pytest.raises(DocmtError, match="cannot write"):
        asyncio.run(work)


def test_a_file_of_too_many_sentences(tmp_path, files_here):
    with pytest.raises(DocmtError, match=r"a\.txt has 11 sentences, more than 10"):
        read(tmp_path / "a.txt", b"One.\n" * 11, FileLimits(sentences=10))


@pytest.mark.full
def test_contents_that_are_too_large(tmp_path):
    with pytest.raises(DocmtError, match=r"a\.txt cannot be translated: File too large"):
        read(tmp_path / "a.txt", b"One two three.\n" * 10_000, FileLimits(contents=2**16))


def test_a_file_of_units(tmp_path):
    contents = read(tmp_path / "a.html", b"<p>A <b>big</b> cat. Two.</p><p>Three.</p><script>x()</script>")
    assert contents.format == "html"
    assert [each.sentences for each in contents.documents] == [("A big cat.", "Two.", "Three.")]
    assert (contents.paragraphs, contents.aligned) == ((0, 0, 1), {0})
    assert all(count > 0 for count in contents.skipped.values())


def test_documents_share_no_paragraph(tmp_path, files_here):
    lines = b'{"id": "a", "text": "One. Two.\\nThree."}\n{"id": "b", "source": ["Four.", "Five."]}\n'
    contents = read(tmp_path / "a.jsonl", lines)
    assert (contents.format, contents.paragraphs) == ("jsonl", (0, 0, 1, 2, 3))


def test_fields_need_a_file_with_fields(tmp_path, files_here):
    with pytest.raises(DocmtError, match="fields are for files with markup"):
        read(tmp_path / "a.txt", b"One.", fields=("a",))


def test_a_name_decides_nothing_in_the_file_system(tmp_path, files_here):
    """The name of a user is in messages only; the process opens the path of the spool."""
    (tmp_path / "spool").write_bytes(b"One. Two.")

    async def scenario():
        process = FileProcess(FileLimits())
        return await process.read(tmp_path / "spool", tmp_path / "out", facts("/etc/passwd"))

    assert asyncio.run(scenario()).documents[0].sentences == ("One.", "Two.")


def test_results_of_text(tmp_path, files_here):
    source = tmp_path / "a.txt"
    source.write_bytes(b"One. Two.\n\nThree.\n")
    records = [{"document": 0, "target": text, "score": -1.0} for text in ("Un.", "Deux & deux.")]
    records.append({"document": 0, "error": "too long"})

    async def scenario(result):
        process, output = FileProcess(FileLimits()), tmp_path / f"result.{result}"
        await process.write(source, output, facts("a.txt", "text"), records, result)
        return output.read_text()

    assert asyncio.run(scenario("original")) == "Un. Deux & deux.\n\nThree.\n"
    assert asyncio.run(scenario("txt")) == "Un. Deux & deux.\n\nThree.\n"
    assert "Deux &amp; deux." in asyncio.run(scenario("html"))
    assert asyncio.run(scenario("tmx")).count("<tu ") == 2  # what failed is no translation
    assert asyncio.run(scenario("xlf")).count("<unit") == 2
    assert sorted(each.name for each in tmp_path.iterdir()) == [
        "a.txt", "result.html", "result.original", "result.tmx", "result.txt", "result.xlf"
    ]  # fmt: skip
    del records[0]
    with pytest.raises(DocmtError, match="read in another way"):
        asyncio.run(scenario("original"))


def test_the_process_imports_no_torch():
    code = "import docmt.serve.file_process, docmt.serve.file_worker as w, sys; import docmt.decoding.file_translation"
    modules = ["torch", "numpy", "sqlite3"]
    command = [sys.executable, "-c", f"{code}; print([m for m in {modules} if m in sys.modules])"]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert output.strip() == "[]"
