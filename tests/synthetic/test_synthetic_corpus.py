import gzip
import json
import re
from collections import Counter
from collections.abc import Callable
from importlib import resources
from itertools import islice
from pathlib import Path
from random import Random

import pytest

from docmt.core.errors import DocmtError
from docmt.documents.corpus_files import ParallelDocument, read_parallel
from docmt.synthetic import SyntheticDocument, read_pronouns, score_pronouns, write_corpus, write_phenomena
from docmt.synthetic.grammar import Gender, stream_documents
from docmt.synthetic.phenomena import make_documents
from docmt.synthetic.synthetic_corpus import make_phenomenon_items, make_pronoun_items

SIZES = {"train": 2400, "dev": 48, "test": 288}
CANDIDATES = {"pronoun": 3, "sense": 2, "address": 2, "ellipsis": 4, "address-free": 2, "name": 2}
SEED = 5_303  # of the shipped test sets, not one that anybody is likely to make a training corpus with


def generate(count: int, seed: int) -> list[SyntheticDocument]:
    return list(islice(stream_documents(Random(seed), name=f"synthetic-{seed}"), count))


@pytest.mark.parametrize("name", ["pronouns", "phenomena"])
def test_shipped_test_sets_are_those_of_the_generator(name: str) -> None:
    expected = {
        "pronouns": [{**item, "phenomenon": "pronoun"} for item in make_pronoun_items(generate(150, SEED))],
        "phenomena": make_phenomenon_items(make_documents(288, f"synthetic-{SEED}", str(SEED), set())),
    }[name]
    packed = resources.files("docmt.evaluation").joinpath("test_sets", f"{name}.en-de.jsonl.gz").read_bytes()
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
        "test.pronouns.jsonl",
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

    documents = read_pronouns(directory / "test.pronouns.jsonl")
    assert [item.document.source for item in documents] == [document.source for document in splits["test"]]
    assert [item.document.target for item in documents] == [document.target for document in splits["test"]]
    lines = (directory / "test.contrastive.jsonl").read_text(encoding="utf-8").splitlines()
    items = make_pronoun_items(documents)
    assert len(lines) == len(items)
    for line, item in zip(lines, items, strict=True):
        record = json.loads(line)
        assert set(record) == {"id", "source", "candidates", "correct", "sentence", "distance"}
        assert list(map(tuple, record["candidates"])) == item["candidates"]
        assert (record["id"], record["correct"]) == (item["id"], item["correct"])


@pytest.mark.parametrize("write", [write_corpus, write_phenomena])
def test_writing_twice_gives_the_same_bytes(write: Callable[..., None], tmp_path: Path) -> None:
    for name in ("one", "two"):
        write(tmp_path / name, train=24, dev=24, test=24, seed=1)
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
    training = (tmp_path / "corpus" / "train.de").read_text(encoding="utf-8").replace(".", " ").split()
    nouns = {
        pronoun.antecedent
        for item in read_pronouns(tmp_path / "corpus" / "test.pronouns.jsonl")
        for pronoun in item.pronouns
    }
    assert nouns <= set(training)


def test_an_empty_split_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DocmtError, match="dev=0"):
        write_corpus(tmp_path / "corpus", train=3, dev=0, test=3, seed=1)
    assert not (tmp_path / "corpus").exists()


@pytest.mark.parametrize("damage", ["{", "[]", '{"id": "a"}', "DROP"])
def test_a_damaged_pronoun_file_is_named_with_its_line(tmp_path: Path, damage: str) -> None:
    write_corpus(tmp_path / "corpus", train=3, dev=1, test=3, seed=1)
    path = tmp_path / "corpus" / "test.pronouns.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines()
    lines[1] = lines[1].replace('"distance"', '"range"') if damage == "DROP" else damage
    path.write_text("\n".join(lines), encoding="utf-8")
    with pytest.raises(DocmtError, match="line 2"):
        read_pronouns(path)


def test_a_missing_pronoun_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DocmtError, match="nowhere"):
        read_pronouns(tmp_path / "nowhere.jsonl")


def test_candidates_score_as_they_are_right() -> None:
    documents = generate(100, seed=4)
    assert score_pronouns(documents, [item.document.target for item in documents]) == 1.0
    items = iter(make_pronoun_items(documents))
    for item in documents:
        for _ in item.pronouns:
            contrastive = next(items)
            for index, candidate in enumerate(contrastive["candidates"]):
                wrong = (index != contrastive["correct"]) / len(item.pronouns)
                assert score_pronouns([item], [candidate]) == pytest.approx(1 - wrong)


def test_hits_inside_words_and_double_hits_do_not_count() -> None:
    item = next(item for item in generate(50, seed=4) if item.pronouns[0].form in ("er", "Er"))
    pronoun = item.pronouns[0]

    def right(sentence: str) -> bool:
        hypothesis = ["Das ist alles."] * len(item.document.target)
        hypothesis[pronoun.sentence] = sentence
        return score_pronouns([item], [hypothesis]) > 0

    assert right("Er ist schwer.") and right("Leider ist er, so Anna, schwer.") and right("ER!")
    assert not right("Der Herr ist hier.")
    assert not right("Er oder sie ist schwer.")
    assert not right("Es ist schwer.") and not right("")


def test_no_pronouns_score_zero() -> None:
    assert score_pronouns([], []) == 0.0


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
        assert len(set(candidates)) == CANDIDATES[record["phenomenon"]]
        for candidate in candidates:
            differing = [i for i, pair in enumerate(zip(candidate, document.target, strict=True)) if len(set(pair)) > 1]
            assert differing == ([] if candidate == document.target else [record["sentence"]])
        cells[record["phenomenon"], record["distance"]] += 1
    assert len(cells) == 24 and set(cells.values()) == {12}


@pytest.mark.full
def test_phenomenon_candidates_are_shuffled_in_a_fixed_way() -> None:
    documents = make_documents(5760, "synthetic-3", "3", set())
    items = make_phenomenon_items(documents)
    assert items == make_phenomenon_items(documents)
    assert items[100:] == make_phenomenon_items(documents[100:])
    for name, candidates in CANDIDATES.items():
        # Unshuffled, the first answer would always come first.
        positions = Counter(
            item["correct"]
            for item, document in zip(items, documents, strict=True)
            if item["phenomenon"] == name and document.correct == 0
        )
        shares = [positions[index] / positions.total() for index in range(candidates)]
        assert all(0.5 / candidates < share < 1.5 / candidates for share in shares), name


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
