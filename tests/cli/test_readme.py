"""What the README tells people to type works, at a size that takes seconds."""

import shutil

import pytest
from pages import ROOT, blocks, check, lines, make_folder, parse_page, write_nllb

README = ROOT / "README.md"


@pytest.fixture
def folder(corpus, store, run, short_suites, home, package, tmp_path, monkeypatch):
    """A working directory with the files that the README speaks of, and a model in the package."""
    make_folder(tmp_path, corpus, store, run)
    shutil.copytree(run / "model", package / "en-fr")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_every_command_has_its_options(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    parse_page(README)


@pytest.mark.full
def test_every_command_can_be_typed(folder):
    typed = set()
    write_nllb(folder)
    for line in lines(README):
        needs_network = any(word in line.text for word in ("hub", "docmt pull", "en-de"))
        assert line.run or needs_network or "serve" in line.text  # a server runs until it is stopped
        if check(line):
            typed.add(line.text.split()[1])
    assert typed >= {"demo", "pull", "convert", "prepare", "train", "translate", "evaluate", "probe"}
    assert (folder / "bericht.txt").read_text().count("\n") == 2
    assert (folder / "buch.md").read_text().count("\n") == (folder / "book.md").read_text().count("\n")


def test_the_python_example_runs(folder):
    (code,) = (text for kind, text in blocks(README) if kind == "python")
    exec(compile(code, "README.md", "exec"), {})
    assert (folder / "bericht.txt").read_text().count("\n") == 2


def test_it_is_short():
    assert README.read_text().count("\n") <= 120
