"""Drafts: first translations that `prepare` reads from text and JSONL into the store."""

import json
from dataclasses import replace

import numpy as np
import pytest

from docmt.core.errors import DocmtError
from docmt.data import PrepareConfig, PreparedStore, prepare
from docmt.documents import read_parallel

SOURCE = [["ka bo", "bo"], ["lu", "", "ka lu"]]
TARGET = [["KA BO", "BO"], ["LU", "NI", "KA LU"]]
DRAFTS = [["KA", ""], ["BO LU", "KA", "LU"]]
"""Of two documents; the pair with an empty side is left out, and one draft has no words."""
STORED = [["KA", ""], ["BO LU", "LU"]]


def texts(store, name="train"):
    """The drafts of a split, as text."""
    split = store.split(name)
    documents = split.drafts.to_documents(split.document_offsets)
    return [store.tokenizer.decode_batch(document, "target") for document in documents]


def marked(documents):
    return "".join(f"<d>\n{''.join(line + chr(10) for line in document)}" for document in documents)


@pytest.fixture
def corpora(tmp_path):
    """The corpus in several forms: the files of --train, those of --train_docids, and the drafts that belong to it."""
    parted = ["\n\n".join("\n".join(document) for document in side) + "\n" for side in (SOURCE, TARGET, DRAFTS)]
    parted[0] = parted[0].replace("lu\n\n", "lu\nlu\n")  # an empty line would be a border
    ids = ["a\na\nb\nb\nb\n"]
    lines = ["\n".join(line for document in side for line in document) + "\n" for side in (SOURCE, TARGET, DRAFTS)]
    records = [
        {"id": f"d{number}", "source": source, "target": target, "draft": draft}
        for number, (source, target, draft) in enumerate(zip(SOURCE, TARGET, DRAFTS, strict=True))
    ]
    sentences = [
        {"document": f"d{number}", "target": text} for number, document in enumerate(DRAFTS) for text in document
    ]
    files = {
        "marked.en": marked(SOURCE),
        "marked.de": marked(TARGET),
        "marked.draft": marked(DRAFTS),
        "lines.en": lines[0],
        "lines.de": lines[1],
        "lines.draft": lines[2],
        "ids": ids[0],
        "both.jsonl": "".join(json.dumps(record) + "\n" for record in records),
        "translated.jsonl": "".join(json.dumps(record) + "\n" for record in sentences),
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    paths = {name: tmp_path / name for name in files}
    return {
        "marks": ([paths["marked.en"], paths["marked.de"]], [], paths["marked.draft"]),
        "ids": ([paths["lines.en"], paths["lines.de"]], [paths["ids"]], paths["lines.draft"]),
        "JSONL with drafts": ([paths["both.jsonl"]], [], paths["both.jsonl"]),
        "JSONL beside JSONL": ([paths["both.jsonl"]], [], paths["translated.jsonl"]),
        "JSONL beside text": ([paths["marked.en"], paths["marked.de"]], [], paths["translated.jsonl"]),
        "text beside JSONL": ([paths["both.jsonl"]], [], paths["marked.draft"]),
    }


FORMS = ["marks", "ids", "JSONL with drafts", "JSONL beside JSONL", "JSONL beside text", "text beside JSONL"]


@pytest.mark.parametrize("form", FORMS)
def test_drafts_are_read_beside_every_form_of_a_corpus(corpora, form, tmp_path, caplog):
    train, ids, drafts = corpora[form]
    config = PrepareConfig(tmp_path / "store", train=train, train_docids=ids, vocabulary_size=263)
    without = prepare(config)
    assert without.split("train").drafts is None
    store = prepare(replace(config, drafts=[drafts], overwrite=True))
    assert texts(store) == STORED
    assert "train: 1 of 4 drafts are empty" in caplog.messages
    assert store.split("train").drafts.tokens.dtype == np.uint16
    for side in ("source", "target"):
        assert np.array_equal(getattr(store.split("train"), side).tokens, getattr(without.split("train"), side).tokens)
    assert np.array_equal(store.split("train").document_offsets, without.split("train").document_offsets)
    assert store.split("train").reversed().drafts is None


def test_each_corpus_of_train_and_dev_has_its_drafts(corpora, tmp_path):
    train, _, drafts = corpora["marks"]
    other = tmp_path / "other"
    other.write_text(drafts.read_text().replace("BO LU", "NI"))
    config = PrepareConfig(
        tmp_path / "store",
        train=[*train, *train],
        dev=train,
        test=train,
        drafts=[drafts, other, other],
        vocabulary_size=263,
    )
    store = prepare(config)
    assert texts(store) == [*STORED, STORED[0], ["NI", "LU"]]
    assert texts(store, "dev") == [STORED[0], ["NI", "LU"]]
    assert store.split("test").drafts is None
    with pytest.raises(
        DocmtError, match="--drafts names 2 files for 3 corpora of --train and --dev: give one for each"
    ):
        replace(config, drafts=[drafts, other])


@pytest.mark.parametrize(
    ("form", "change", "message"),
    [
        ("marks", lambda text: text.removesuffix("LU\n"), r"draft ends before line 7 of .*en\. Give a draft for each"),
        ("marks", lambda text: text + "MORE\n", r"draft has text after the end of .*en \(line 8\)"),
        ("JSONL beside JSONL", lambda text: text.replace("d1", "d0"), r"has 2 sentences in .* but 5 in .*translated"),
        ("JSONL beside JSONL", lambda text: text.replace('"KA"', "7", 1), r"translated.jsonl, line 1"),
    ],
)
def test_drafts_that_do_not_fit(corpora, form, change, message, tmp_path):
    train, ids, drafts = corpora[form]
    drafts.write_text(change(drafts.read_text()))
    with pytest.raises(DocmtError, match=message):
        prepare(PrepareConfig(tmp_path / "store", train=train, train_docids=ids, drafts=[drafts], vocabulary_size=263))
    assert not (tmp_path / "store").exists()


def read_with_drafts(folder, drafts, *corpus):
    """Read a corpus with these drafts; each is text, or the records of a JSONL file."""
    paths = []
    for number, content in enumerate((*corpus, drafts)):
        is_text = isinstance(content, str)
        paths.append(folder / (f"{number}.txt" if is_text else f"{number}.jsonl"))
        paths[-1].write_text(content if is_text else "".join(json.dumps(record) + "\n" for record in content))
    return [document.drafts for document in read_parallel(*paths[:-1], drafts=paths[-1])]


BORDERS = "a1\na2\n\n\nb1\nb2\n\nc1\n"
MARKS = "<d>\na1\na2\n<d>\nb1\n<d>\n"


@pytest.mark.parametrize(
    ("source", "drafts", "line"),
    [
        (BORDERS, "da1\nda2\ndb1\ndb2\nx\ny\nz\ndc1\n", 3),
        (BORDERS, "da1\n\nda2\n\ndb1\ndb2\n\ndc1\n", 3),
        (MARKS, "da1\nda2\ndb1\nx\ny\n<d>\n", 1),
        (MARKS, "<d>\nda1\n<d>\nda2\ndb1\n<d>\n", 3),
    ],
)
def test_text_drafts_that_are_shifted(source, drafts, line, tmp_path):
    with pytest.raises(DocmtError, match=rf"2\.txt, line {line}: .*0\.txt.*: translate .* with --layout lines"):
        read_with_drafts(tmp_path, drafts, source, source.upper().replace("<D>", "<d>"))


def test_text_drafts_with_the_borders_of_the_source(tmp_path):
    drafts = [("da1", "da2"), ("db1", "")]
    assert read_with_drafts(tmp_path, "da1\nda2\n\n\ndb1\n\n\ndc1\n", BORDERS, BORDERS) == [*drafts, ("dc1",)]
    assert read_with_drafts(tmp_path, "<d>\nda1\nda2\n<d>\ndb1\n<d>\n", MARKS, MARKS) == [drafts[0], ("db1",)]


PAIRS = [{"id": "a", "source": ["s1"], "target": ["t1"]}, {"id": "b", "source": ["s2"], "target": ["t2"]}]


@pytest.mark.parametrize(
    ("drafts", "expected"),
    [
        ([{"target": ['say "draft"']}, {"target": ["y"]}], ['say "draft"', "y"]),
        ([{"note": "draft", "target": ["x"]}, {"target": ["y"]}], ["x", "y"]),
        ([{"target": ["t"], "draft": ["x"]}, {"draft": ["y"]}], ["x", "y"]),
        ([{"id": "a", "source": [" s1"], "draft": ["x"]}, {"id": "b", "source": ["s2"], "draft": [""]}], ["x", ""]),
        (
            [{"document": "a", "source": "s1", "target": "x"}, {"document": "b", "source": "s2", "target": "y"}],
            ["x", "y"],
        ),
    ],
)
def test_the_entries_of_an_object_say_where_its_drafts_are(drafts, expected, tmp_path):
    assert [draft for (draft,) in read_with_drafts(tmp_path, drafts, PAIRS)] == expected


@pytest.mark.parametrize(
    ("drafts", "message"),
    [
        ([{"target": ["x"]}, {"draft": ["y"]}], r"1\.jsonl, line 2: .*`draft`.*`target`.* Use .* in all objects"),
        ([{"draft": ["x"]}, {"target": ["y"]}], r"1\.jsonl, line 2: .*`target`.*`draft`.* Use .* in all objects"),
        (
            [{"id": "b", "draft": ["x"]}, {"id": "a", "draft": ["y"]}],
            r"document 1 is 'a' in .*0\.jsonl.* 'b' in .*1\.js",
        ),
        ([{"id": "a", "draft": ["x"]}, {"document": "c", "draft": "y"}], r"document 2 is 'b' in .*0\.jsonl.* 'c' in "),
        ([{"source": ["s1"], "draft": ["x"]}, {"source": ["no"], "draft": ["y"]}], r"1\.jsonl: .*document 2 \('b'\)"),
        ([{"source": ["s1"], "draft": ["x", "y"]}], r"`source` has 1 sentences but `draft` has 2"),
        (
            [{"document": "a", "target": "x"}, {"document": "b", "sentence": 1, "error": "too long"}],
            r"1\.jsonl, line 2: .*an error instead of a draft.*too long",
        ),
        (
            [{"draft": ["x"]}, {"document": "b", "error": "failed"}],
            r"1\.jsonl, line 2: .*an error instead of a draft.*failed",
        ),
    ],
)
def test_jsonl_drafts_that_do_not_fit(drafts, message, tmp_path):
    with pytest.raises(DocmtError, match=message):
        read_with_drafts(tmp_path, drafts, PAIRS)


def test_references_are_no_drafts(tmp_path):
    corpus, link, text = tmp_path / "corpus.jsonl", tmp_path / "link.jsonl", tmp_path / "target.txt"
    corpus.write_text("".join(json.dumps(record) + "\n" for record in PAIRS))
    link.symlink_to(corpus)
    text.write_text("t1\n\nt2\n")
    for files in ((corpus, None, corpus), (corpus, None, link), (corpus, text, text), (text, text, text)):
        with pytest.raises(DocmtError, match=f"{files[2].name} is a file of the corpus.* Give"):
            list(read_parallel(*files[:2], drafts=files[2]))


@pytest.mark.parametrize("name", ["draft_tokens.npy", "draft_offsets.npy"])
@pytest.mark.parametrize("damage", ["missing", "changed", "short"])
def test_damaged_drafts_are_told(corpora, name, damage, tmp_path):
    train, _, drafts = corpora["marks"]
    prepare(PrepareConfig(tmp_path / "store", train=train, drafts=[drafts], vocabulary_size=263))
    path = tmp_path / "store" / "train" / name
    content = path.read_bytes()
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]) if damage == "changed" else content[:-2])
    with pytest.raises(DocmtError, match=rf"{name}.*run `docmt prepare` again"):
        PreparedStore.open(tmp_path / "store")
