"""The demonstrations: a document of the package, and trainings at a size that takes seconds."""

import os
import subprocess
from pathlib import Path

import docx
import pytest
from commands import call, fails
from forked import forking_commands

SCRIPT = Path(__file__).parents[2] / "recipes" / "demo-training.sh"


@pytest.mark.full
def test_the_trainings_in_small(tmp_path):
    """A second time, nothing is trained again."""
    sizes = {"DOCUMENTS": "60", "TESTS": "3", "STEPS": "2", "OUT": "demo"}
    models = [tmp_path / "demo" / system / "model" / "model.safetensors" for system in ("sentence", "group")]
    written = []
    for number in range(2):
        with forking_commands() as commands:
            environment = {**os.environ, **sizes, "PATH": f"{commands}:{os.environ['PATH']}"}
            process = subprocess.run(["sh", SCRIPT], cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert process.returncode == 0, process.stderr
        assert "d-BLEU" in process.stdout and "try: docmt translate demo/group" in process.stdout
        assert process.stdout.count("is trained") == 2 * number
        written.append([model.stat().st_mtime_ns for model in models])
    assert written[0] == written[1]


def test_the_document_of_the_package_is_translated(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    outcome = call("demo")
    assert outcome.status == 0, outcome.err
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in outcome.out.splitlines() if "│" in line]
    french = {row[0]: row[1:] for row in rows}
    assert french["They are supported by all political groups."] == [
        "[Ils] sont [soutenus] par tous les groupes politiques.",
        ">Elles< sont >soutenues< par tous les groupes politiques.",
    ]
    assert french["The measures are simple."] == ["Les mesures sont simples.", ""]
    assert "The directive replaces the rules of 1980." in french, "the footnote"
    assert "docmt-demo/directive.fr.docx" in outcome.out and "translate en-fr YOUR_FILE.docx" in outcome.out
    assert sorted(path.name for path in (tmp_path / "docmt-demo").iterdir()) == ["directive.docx", "directive.fr.docx"]
    document = docx.Document(tmp_path / "docmt-demo" / "directive.fr.docx")
    assert next(each.text for each in document.paragraphs if each.style.name == "Heading 1") == "La proposition"
    assert next(run.text for each in document.paragraphs for run in each.runs if run.bold) == "Elle est brève"
    assert [cell.text for cell in document.tables[0].rows[0].cells] == ["Les mesures", "La date", "Le budget"]
    (link,) = [link for each in document.paragraphs for link in each.hyperlinks]
    assert (link.text, link.address) == ("notre site web", "https://example.org/water")
    assert call("demo").status == 0, "a second time"
    assert "the translated file is out[bold]/directive.fr.docx" in call("demo", "-o", "out[bold]").out


def test_a_package_without_models(home, package, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fails("demo", message="has no model en-fr in its package: get one with `docmt pull Helsinki-NLP/opus")
    assert [path.name for path in tmp_path.iterdir()] == []
    (tmp_path / "file").touch()
    fails("demo", "-o", "file", message="-o file is a file: name a directory")
