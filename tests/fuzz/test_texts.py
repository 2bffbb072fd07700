"""Texts through a model: nothing is lost, added or moved, whatever stands in the files."""

import json
import math

import pytest
from commands import QUICK
from harness import keeps_to_the_contract
from texts import broken, random_text

from docmt.documents import Document

pytestmark = pytest.mark.full

FILES = 8
LAYOUTS = [[], ["--input.layout=lines"], ["--input.join-lines=true"]]


def build_suite_rows(text):
    """The objects of JSON lines, which end with a line feed alone; no number in them may be NaN or Infinity."""
    return [json.loads(line, parse_constant=pytest.fail) for line in text.split("\n")[:-1]]


def gaps(text, spans):
    """What stands before, between and after the spans, which follow one another."""
    places = [0, *[place for span in spans for place in span], len(text)]
    assert places == sorted(places)
    return [text[start:end] for start, end in zip(places[::2], places[1::2], strict=True)]


@pytest.mark.parametrize("layout", range(len(LAYOUTS)))
def test_every_sentence_has_its_translation(layout, cases, run, tmp_path):
    for number, chance in enumerate(cases(4, "translations of eight texts")):
        folder = tmp_path / str(number)
        folder.mkdir()
        files = [folder / f"{place}.txt" for place in range(FILES)]
        for file in files:
            # Where lines are sentences, a mark of documents may stand only in files that begin with one.
            file.write_bytes(random_text(chance).replace("<d>", "<d >").encode())
        options = [*QUICK, *LAYOUTS[layout]]
        for format in ("text", "jsonl"):
            arguments = ["translate", run, *files, "-o", folder / format, "--format", format, *options]
            keeps_to_the_contract(*arguments, statuses=(0,))
        for file in files:
            source, target = (path.read_bytes().decode() for path in (file, folder / "text" / file.name))
            [found] = [path for path in (folder / "jsonl").iterdir() if path.name.startswith(file.name)]
            rows = build_suite_rows(found.read_bytes().decode())
            spans = [[row[f"{side}_span"] for row in rows] for side in ("source", "target")]
            assert gaps(source, spans[0]) == gaps(target, spans[1]), file
            for row in rows:
                assert source[slice(*row["source_span"])] == row["source"]
                assert target[slice(*row["target_span"])] == row["target"]
                assert math.isfinite(row["score"])
            if layout == 0:
                assert [row["source"] for row in rows] == list(Document.read(file, language="en").sentences)


def test_files_that_are_no_text_are_named_and_the_others_done(cases, run, tmp_path):
    for number, chance in enumerate(cases(3, "broken texts among others")):
        folder = tmp_path / str(number)
        folder.mkdir()
        files = {folder / f"{place}.txt": chance.random() < 0.5 for place in range(4)}
        for file, good in files.items():
            data = random_text(chance).encode()
            file.write_bytes(data if good else broken(chance, data))
        outcome = keeps_to_the_contract("translate", run, *files, "-o", folder / "out", *QUICK)
        suffixes = [""] if all(files.values()) else ["", ".partial"]
        outputs = {f"{file.name}{suffix}" for file, good in files.items() if good for suffix in suffixes}
        assert {path.name for path in (folder / "out").iterdir()} == outputs
        assert outcome.err.count("not UTF-8") == list(files.values()).count(False)


def test_standard_input_and_huge_lines(cases, run):
    for chance in cases(4, "texts from standard input"):
        text = random_text(chance, 3) + "word " * chance.choice([0, 50, 2000]) + random_text(chance, 2)
        outcome = keeps_to_the_contract("translate", run, "-", *QUICK, stdin=text.encode(), statuses=(0,))
        assert bool(outcome.out.strip()) <= bool(text.strip())


def test_scores_of_any_sentences(cases, run, tmp_path):
    for chance in cases(8, "scored texts"):
        sides = [tmp_path / name for name in ("a.txt", "b.txt")]
        texts = [random_text(chance) for _ in sides]
        if chance.random() < 0.7:
            texts[1] = texts[0]
        for path, text in zip(sides, texts, strict=True):
            path.write_bytes(text.encode())
        outcome = keeps_to_the_contract("score", run, *sides, "--format=jsonl")
        build_suite_rows(outcome.out)
