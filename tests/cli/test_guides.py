"""The pages in docs/ are true: their commands can be typed, their links lead somewhere, and they are all listed."""

import re

import pytest
import yaml
from pages import ROOT, blocks, check, lines, make_folder, parse_page, write_recipes

from docmt import __version__

GUIDES = sorted(path for path in (ROOT / "docs").glob("*.md") if path.stem not in ("README", "architecture"))
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("benchmarks/*.md")]


@pytest.fixture
def folder(corpus, store, run, short_suites, tmp_path, monkeypatch):
    """A working directory with the files that the pages speak of."""
    make_folder(tmp_path, corpus, store, run)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_every_command_has_its_options(tmp_path, monkeypatch):
    for page in GUIDES:
        folder = tmp_path / page.stem
        folder.mkdir()
        monkeypatch.chdir(folder)
        parse_page(page)


@pytest.mark.full
@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.stem)
def test_every_command_can_be_typed(page, folder):
    write_recipes(page, folder)
    for line in lines(page):
        check(line)


@pytest.mark.full
@pytest.mark.parametrize("page", ["evaluation.md", "models.md"])
def test_every_python_example_runs(page, folder):
    for kind, text in blocks(ROOT / "docs" / page):
        if kind == "python":
            exec(compile(text, page, "exec"), names := {})
            for each in names.get("maps", {}).values():
                assert each.weights.shape[1:] == (len(each.queries), len(each.keys))
                assert abs(each.weights.sum(-1) - 1).max() < 1e-5


def test_links_lead_somewhere():
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8")):
            if not target.startswith("https://"):
                path = page.parent / target
                assert path.exists(), (page, target)


def test_every_page_is_listed():
    listed = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    for page in (ROOT / "docs").glob("*.md"):
        assert page.name == "README.md" or f"({page.name})" in listed, page.name


def test_the_version_is_the_same_everywhere():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    released = re.findall(r"^## (\d\S*) - ", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.M)
    pyproject = re.search(r'^version = "(.+)"', (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.M)
    assert pyproject is not None
    assert pyproject[1] == __version__ == citation["version"] == released[0]


def test_the_citation_is_whole():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["cff-version"] == "1.2.0" and citation["license"] == "Apache-2.0"
    assert {"message", "title", "authors", "references"} <= set(citation)
    assert len(citation["references"]) == 4
    for reference in citation["references"]:
        assert {"type", "title", "authors", "year"} <= set(reference)
        assert all({"family-names", "given-names"} <= set(author) for author in reference["authors"])
