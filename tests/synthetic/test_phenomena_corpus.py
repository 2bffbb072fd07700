import json
import re
from collections import Counter
from pathlib import Path

import pytest

from docmt.core.errors import DocmtError
from docmt.documents.corpus_files import ParallelDocument, read_parallel
from docmt.synthetic import PHENOMENA, generate_phenomena, make_phenomenon_items, write_corpus, write_phenomena

SIZES = {"train": 2400, "dev": 48, "test": 288}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("phenomena") / "corpus"
    write_phenomena(directory, **SIZES, seed=7)
    return directory


@pytest.fixture(scope="module")
def splits(corpus: Path) -> dict[str, list[ParallelDocument]]:
    return {name: list(read_parallel(corpus / f"{name}.en", corpus / f"{name}.de")) for name in SIZES}


def test_the_files_hold_the_documents_asked_for(corpus: Path, splits: dict[str, list[ParallelDocument]]) -> None:
    texts = {f"{name}.{language}" for name in SIZES for language in ("en", "de")}
    assert {path.name for path in corpus.iterdir()} == texts | {"test.contrastive.jsonl"}
    assert {name: len(documents) for name, documents in splits.items()} == SIZES
    pairs = [(document.source, document.target) for documents in splits.values() for document in documents]
    assert len(set(pairs)) == len(pairs)


def test_no_source_document_stands_in_two_splits(splits: dict[str, list[ParallelDocument]]) -> None:
    train, dev, test = ({document.source for document in documents} for documents in splits.values())
    assert not train & dev and not train & test and not dev & test


def test_every_word_was_seen_in_training(splits: dict[str, list[ParallelDocument]]) -> None:
    def vocabulary(name: str, side: str) -> set[str]:
        sentences = (sentence for document in splits[name] for sentence in getattr(document, side))
        return {word for sentence in sentences for word in re.findall(r"\w+", sentence)}

    for side in ("source", "target"):
        known = vocabulary("train", side)
        assert len(known) < 600
        assert vocabulary("dev", side) | vocabulary("test", side) <= known


def test_the_contrastive_items_are_the_test_documents(corpus: Path, splits: dict[str, list[ParallelDocument]]) -> None:
    lines = (corpus / "test.contrastive.jsonl").read_text(encoding="utf-8").splitlines()
    cells: Counter[tuple[str, int]] = Counter()
    for number, (line, document) in enumerate(zip(lines, splits["test"], strict=True)):
        record = json.loads(line)
        assert record.keys() == {"id", "phenomenon", "distance", "source", "candidates", "correct", "sentence"}
        assert record["id"] == f"test-{number}"
        assert tuple(record["source"]) == document.source
        candidates = [tuple(candidate) for candidate in record["candidates"]]
        assert candidates[record["correct"]] == document.target
        assert len(set(candidates)) == PHENOMENA[record["phenomenon"]].candidates
        for candidate in candidates:
            differing = [i for i, pair in enumerate(zip(candidate, document.target, strict=True)) if len(set(pair)) > 1]
            assert differing == ([] if candidate == document.target else [record["sentence"]])
        cells[record["phenomenon"], record["distance"]] += 1
    assert len(cells) == 24 and set(cells.values()) == {12}


@pytest.mark.full
def test_candidates_are_shuffled_in_a_fixed_way() -> None:
    documents = generate_phenomena(5760, seed=3)
    items = make_phenomenon_items(documents)
    assert items == make_phenomenon_items(documents)
    assert items[100:] == make_phenomenon_items(documents[100:])
    for name, phenomenon in PHENOMENA.items():
        # Unshuffled, the first answer would always come first.
        positions = Counter(
            item.correct
            for item, document in zip(items, documents, strict=True)
            if item.phenomenon == name and document.correct == 0
        )
        shares = [positions[index] / positions.total() for index in range(phenomenon.candidates)]
        assert all(0.5 * phenomenon.chance < share < 1.5 * phenomenon.chance for share in shares), name


def test_writing_twice_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_phenomena(tmp_path / name, train=24, dev=24, test=24, seed=1)
    for path in (tmp_path / "one").iterdir():
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes()


def test_splits_keep_their_documents_when_another_grows(tmp_path: Path) -> None:
    for train in (24, 48):
        write_phenomena(tmp_path / str(train), train=train, dev=24, test=24, seed=1)
    for file in ("dev.en", "test.de"):
        assert (tmp_path / "24" / file).read_bytes() == (tmp_path / "48" / file).read_bytes()


def test_one_kind_of_corpus_replaces_the_other_whole(tmp_path: Path) -> None:
    directory = tmp_path / "corpus"
    write_corpus(directory, train=3, dev=1, test=1, seed=1)
    write_phenomena(directory, train=24, dev=24, test=24, seed=1)
    assert not (directory / "test.pronouns.jsonl").exists()
    write_corpus(directory, train=3, dev=1, test=1, seed=1)
    assert (directory / "test.pronouns.jsonl").exists()


def test_a_split_that_is_too_small_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DocmtError, match="dev would have 10 documents, too few"):
        write_phenomena(tmp_path / "corpus", train=24, dev=10, test=24, seed=1)
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "thesis.tex").write_text("all of it")
    with pytest.raises(DocmtError, match=r"it contains thesis\.tex"):
        write_phenomena(tmp_path / "thesis", train=24, dev=24, test=24, seed=1)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["thesis", "thesis.tex"]
