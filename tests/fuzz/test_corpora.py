"""Documents and corpora: what is read is what was written, and what is prepared or left out is all there was."""

import json

import pytest
from harness import keeps_to_the_contract
from texts import broken, random_sentence, random_text

from docmt.core.errors import DocmtError
from docmt.data import PreparedStore
from docmt.documents import Document, ParallelDocument, SkipReport, read_input, read_parallel
from docmt.documents.corpus_files import write_jsonl, write_parallel


def test_a_document_is_its_text(cases, tmp_path):
    path = tmp_path / "a.txt"
    for chance in cases(150, "documents"):
        text = random_text(chance, 12)
        path.write_bytes(text.encode())
        language = chance.choice(["en", "de", "zh", "ja", "hi", "ar", "xx", ""])
        document = Document.read(path, language=language or "en", join_lines=chance.random() < 0.3)
        assert document.text() == text
        assert len(document.gaps) == len(document.sentences) + 1
        assert all(sentence == sentence.strip() != "" for sentence in document.sentences)
        try:
            documents = read_input(path, layout="lines").documents
        except DocmtError as error:
            assert "<d>" in str(error)  # a mark in a file that does not begin with one
            continue
        assert "".join(document.text() for document in documents) == text


def random_documents(chance):
    """Parallel documents whose sentences have no space around them; some are empty on one side."""
    for number in range(chance.randint(1, 5)):
        pairs = [
            (random_sentence(chance).strip(), random_sentence(chance).strip()) for _ in range(chance.randint(1, 5))
        ]
        kept = [pair for pair in pairs if all(pair)]
        yield ParallelDocument(f"d{number}", *(tuple(side) for side in zip(*kept, strict=True))) if kept else None


def test_a_corpus_is_what_was_written(cases, tmp_path):
    for chance in cases(80, "corpora written and read"):
        documents = [document for document in random_documents(chance) if document is not None]
        if chance.random() < 0.5:
            files = [tmp_path / "a.jsonl"]
            write_jsonl(documents, *files)
        else:
            files = [tmp_path / "a.en", tmp_path / "a.de"]
            try:
                write_parallel(documents, *files)
            except DocmtError:
                continue  # sentences that text files of lines cannot hold, such as one that begins a document
        skipped = SkipReport()
        read = list(read_parallel(*files, skipped=skipped))
        assert [(one.source, one.target) for one in read] == [(one.source, one.target) for one in documents]
        assert not skipped.counts


def random_lines(chance):
    """A source and a target file: pairs of sentences, empty lines, sentences of one side alone, marks, a stray line."""
    marks = chance.random() < 0.2
    lines = [("<d>", "<d>")] if marks else []
    for _ in range(chance.randint(1, 25)):
        kind = chance.random()
        pair = random_sentence(chance).replace("\n", " "), random_sentence(chance)
        if kind < 0.15:
            pair = ("<d>", "<d>") if marks else ("", "")
        elif kind < 0.25:
            pair = chance.choice([(pair[0], ""), ("", pair[1]), (" ", "\u3000"), (pair[0], " ")])
        lines.append(pair)
    sides = [list(side) for side in zip(*lines, strict=True)]
    if chance.random() < 0.1:
        chance.choice(sides).append("one line more")
    files = ["".join(f"{line}\n" for line in side).encode() for side in sides]
    return [broken(chance, data) if chance.random() < 0.05 else data for data in files]


@pytest.mark.full
def test_what_is_prepared_and_what_is_left_out_is_all(cases, run, tmp_path):
    for number, chance in enumerate(cases(25, "corpora prepared")):
        files = [tmp_path / name for name in ("a.en", "a.de")]
        for file, data in zip(files, random_lines(chance), strict=True):
            file.write_bytes(data)
        place = tmp_path / f"store{number}"
        ready = ["--tokenizer", run / "model"]
        outcome = keeps_to_the_contract("prepare", "--store", place, "--train", *files, *ready)
        assert place.exists() == (outcome.status == 0)
        if outcome.status == 2:
            continue
        split = PreparedStore.open(place).statistics.splits["train"]
        sides = [file.read_bytes().decode().removeprefix("\ufeff").split("\n") for file in files]
        rows = [tuple(side.strip() for side in row) for row in zip(*sides, strict=True)]
        marked = rows[0] == ("<d>", "<d>")  # then an empty line is a pair as well, one without sentences
        left = sum((any(row) or marked) and row != ("<d>", "<d>") for row in rows[:-1])
        pairs = sum(count for reason, count in split.skipped.items() if reason.startswith("pair"))
        assert split.sentences + pairs == left, (rows, split.skipped)


@pytest.mark.full
def test_jsonl_of_any_shape(cases, tmp_path):
    path = tmp_path / "a.jsonl"
    values = [
        None,
        True,
        5,
        -1e400,
        "x",
        "",
        " ",
        [],
        ["a"],
        ["a", ""],
        [1],
        {"a": 1},
        "\ud800",
        [[]],
        ["a"] * 2,
        "a\nb",
    ]
    for chance in cases(40, "JSON lines of any shape"):
        rows = [
            {name: chance.choice(values) for name in ("id", "source", "target", "more") if chance.random() < 0.8}
            for _ in range(chance.randint(1, 4))
        ]
        data = "".join(json.dumps(row) + "\n" for row in rows).encode()
        path.write_bytes(chance.choice([data, data[:-3], b"[]\n" + data, b"[" * 5000 + b"\n", broken(chance, data)]))
        keeps_to_the_contract("evaluate", "--model", "none", "--source", path)
