import gzip
import json
from importlib import resources
from itertools import islice
from pathlib import Path
from random import Random

import pytest
from benchmarks.synthetic.grammar import NOUNS, Gender, SyntheticDocument, stream_documents
from benchmarks.synthetic.synthetic_corpus import make_pronoun_items, write_corpus

from docmt.core.errors import DocmtError
from docmt.documents.corpus_files import read_parallel

SEED = 5_303  # of the shipped test set, not one that anybody is likely to make a training corpus with


def generate(count: int, seed: int) -> list[SyntheticDocument]:
    return list(islice(stream_documents(Random(seed), name=f"synthetic-{seed}"), count))


def test_the_shipped_test_set_is_that_of_the_generator() -> None:
    expected = [{**item, "phenomenon": "pronoun"} for item in make_pronoun_items(generate(150, SEED))]
    packed = resources.files("docmt.evaluation").joinpath("test_sets", "pronouns.en-de.jsonl.gz").read_bytes()
    lines = gzip.decompress(packed).decode("utf-8").splitlines()
    assert [json.loads(line) for line in lines] == json.loads(json.dumps(expected))


def test_contrastive_candidates_differ_in_the_pronoun_alone() -> None:
    documents = generate(200, seed=3)
    items = make_pronoun_items(documents)
    pronouns = [(item.document, pronoun) for item in documents for pronoun in item.pronouns]
    assert len(items) == len(pronouns)
    assert len({item["id"] for item in items}) == len(items)
    for item, (document, pronoun) in zip(items, pronouns, strict=True):
        assert item["source"] == document.source
        assert item["candidates"][item["correct"]] == document.target
        assert (item["sentence"], item["distance"]) == (pronoun.sentence, pronoun.distance)
        assert len(set(item["candidates"])) == len(item["candidates"]) == len(pronoun.candidates)
        for candidate in item["candidates"]:
            assert candidate[: item["sentence"]] == document.target[: item["sentence"]]
            assert candidate[item["sentence"] + 1 :] == document.target[item["sentence"] + 1 :]
            changed, reference = candidate[item["sentence"]].split(), document.target[item["sentence"]].split()
            differing = [a for a, b in zip(changed, reference, strict=True) if a != b]
            assert len(differing) == (candidate != document.target)
            assert all(word.strip(".?,") in pronoun.candidates for word in differing)


def test_contrastive_candidates_are_shuffled_in_a_fixed_way() -> None:
    documents = generate(300, seed=3)
    items = make_pronoun_items(documents)
    assert items == make_pronoun_items(documents)
    # Unshuffled, the right candidate of a masculine pronoun would always come first.
    pronouns = [pronoun for item in documents for pronoun in item.pronouns]
    for gender in Gender:
        positions = [
            item["correct"]
            for item, pronoun in zip(items, pronouns, strict=True)
            if pronoun.gender == gender and len(item["candidates"]) == 3
        ]
        assert all(0.22 < positions.count(index) / len(positions) < 0.45 for index in range(3))


def test_write_corpus(tmp_path: Path) -> None:
    directory = tmp_path / "corpus"
    write_corpus(directory, train=300, dev=20, test=30, seed=7)
    assert sorted(path.name for path in directory.iterdir()) == [
        "dev.de",
        "dev.en",
        "test.contrastive.jsonl",
        "test.de",
        "test.en",
        "train.de",
        "train.en",
    ]
    splits = {
        name: list(read_parallel(directory / f"{name}.en", directory / f"{name}.de"))
        for name in ("train", "dev", "test")
    }
    assert [len(split) for split in splits.values()] == [300, 20, 30]
    sources = [document.source for split in splits.values() for document in split]
    assert len(set(sources)) == 350

    targets = {document.source: document.target for document in splits["test"]}
    lines = (directory / "test.contrastive.jsonl").read_text(encoding="utf-8").splitlines()
    records = [json.loads(line) for line in lines]
    assert {tuple(record["source"]) for record in records} == targets.keys()
    for record in records:
        assert set(record) == {"id", "source", "candidates", "correct", "sentence", "distance"}
        assert tuple(record["candidates"][record["correct"]]) == targets[tuple(record["source"])]


def test_writing_twice_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_corpus(tmp_path / name, train=24, dev=24, test=24, seed=1)
    for path in (tmp_path / "one").iterdir():
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes()


def test_only_a_corpus_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The current directory was, with everything in it."""
    directory = tmp_path / "corpus"
    for seed in (1, 2):
        write_corpus(directory, train=3, dev=1, test=1, seed=seed)
    (directory / "thesis.tex").write_text("all of it")
    with pytest.raises(DocmtError, match=r"corpus is not a synthetic corpus .*\(it contains thesis\.tex\)\. Name"):
        write_corpus(directory, train=3, dev=1, test=1, seed=1)
    assert (directory / "thesis.tex").read_text() == "all of it"
    (directory / "thesis.tex").unlink()
    monkeypatch.chdir(directory)
    with pytest.raises(DocmtError, match="it is the current directory"):
        write_corpus(Path(), train=3, dev=1, test=1, seed=1)


def test_test_nouns_were_seen_in_training(tmp_path: Path) -> None:
    # Few training documents, so that most nouns are missing from them.
    write_corpus(tmp_path / "corpus", train=12, dev=40, test=40, seed=2)
    training, test = (
        set((tmp_path / "corpus" / f"{name}.de").read_text(encoding="utf-8").replace(".", " ").split())
        for name in ("train", "test")
    )
    nouns = {noun.german for noun in NOUNS}
    assert test & nouns <= training & nouns < nouns


def test_an_empty_split_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DocmtError, match="dev=0"):
        write_corpus(tmp_path / "corpus", train=3, dev=0, test=3, seed=1)
    assert not (tmp_path / "corpus").exists()
