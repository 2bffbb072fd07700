"""What can be counted of plain prose: short sentences, short paragraphs, lines that a diff can show."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CHANGELOG = ROOT / "CHANGELOG.md"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", CHANGELOG, *sorted(ROOT.glob("docs/**/*.md"))]
LONGEST_PARAGRAPH, LONGEST_SENTENCE, LONGEST_LINE = 60, 40, 120  # words, words, characters
LONGEST_RELEASE = 60  # lines
DECISIONS = sorted(ROOT.glob("docs/contributing/decisions/[0-9]*.md"))
LONGEST_DECISION = 250  # words as `wc -w` counts them, tables included


def read_newest():
    """What is unreleased, and the newest release: older ones stay as they are."""
    return re.split(r"^## ", CHANGELOG.read_text(encoding="utf-8"), flags=re.M)[1:3]


def paragraphs(page):
    """The paragraphs and list items of a page, without code, tables and headings, as lists of lines."""
    text = "## ".join(read_newest()) if page == CHANGELOG else page.read_text(encoding="utf-8")
    text = re.sub(r"^```.*?^```|^\$\$.*?\$\$", "", text, flags=re.S | re.M)
    for block in re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) )", text):
        if lines := [line for line in block.splitlines() if not line.lstrip().startswith(("|", "#"))]:
            yield lines


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_page_has_short_lines_sentences_and_paragraphs(page):
    for lines in paragraphs(page):
        text = " ".join(lines)
        assert len(text.split()) <= LONGEST_PARAGRAPH, text
        for sentence in re.split(r"(?<=[.!?])\s", text):
            assert len(sentence.split()) <= LONGEST_SENTENCE, sentence
        assert [line for line in lines if len(line) > LONGEST_LINE] == []


@pytest.mark.parametrize("page", DECISIONS, ids=lambda page: page.stem)
def test_a_decision_is_short(page):
    assert len(page.read_text(encoding="utf-8").split()) <= LONGEST_DECISION


def drawings():
    """Lines of the drawings of the architecture page: a file, and the names of what they say of it."""
    page = (ROOT / "docs" / "contributing" / "architecture.md").read_text(encoding="utf-8")
    for block in re.findall(r"^```text\n(.*?)^```", page, flags=re.S | re.M):
        for line in block.splitlines():
            if match := re.match(r"([a-z_]+(?:/[a-z_0-9]+)*\.py) +(.*)", line):
                yield match[1], re.findall(r"\b(?:[A-Z][a-z]+(?:[A-Z][a-z]+)+|[a-z]+(?:_[a-z]+)+)\b", match[2])


@pytest.mark.parametrize(("file", "names"), list(drawings()))
def test_a_drawing_names_code_that_exists(file, names):
    code = (ROOT / "src" / "docmt" / file).read_text(encoding="utf-8")
    assert [name for name in names if not re.search(rf"\b{name}\b", code)] == []


def test_the_newest_releases_can_be_read():
    for release in read_newest():
        assert release.strip().count("\n") < LONGEST_RELEASE
