"""From corpus files to a store, end to end."""

import json
import os
import random
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from docmt.core.errors import DocmtError
from docmt.data import PrepareConfig, PreparedStore, format_statistics, prepare
from docmt.text import SentencePieceTokenizer, train_tokenizer

DEV_SOURCE = [["the cat", "a dog sat here and there and then ran"], ["walk"]]
DEV_TARGET = [["le chat", "un chien"], ["marche bien"]]


def corpus(count: int, seed: int) -> list[list[str]]:
    """Documents of sentences of made-up words."""
    chance = random.Random(seed)
    syllables = ["ka", "to", "mi", "ré", "sol", "übe", "the", "cat", "dog"]
    words = ["".join(chance.choices(syllables, k=chance.randint(1, 3))) for _ in range(80)]
    return [
        [" ".join(chance.choices(words, k=chance.randint(1, 9))) + "." for _ in range(chance.randint(1, 6))]
        for _ in range(count)
    ]


def write_text(path: Path, documents: list[list[str]]) -> Path:
    path.write_text("\n\n".join("\n".join(document) for document in documents) + "\n", encoding="utf-8")
    return path


def write_jsonl(path: Path, source: list[list[str]], target: list[list[str]]) -> Path:
    rows = [{"id": f"doc{i}", "source": s, "target": t} for i, (s, t) in enumerate(zip(source, target, strict=True), 1)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.fixture
def config(tmp_path: Path) -> PrepareConfig:
    source = corpus(60, 1)
    target = [[sentence.upper() for sentence in document] for document in source]
    return PrepareConfig(
        store=tmp_path / "store",
        train=[write_text(tmp_path / "train.en", source), write_text(tmp_path / "train.fr", target)],
        dev=[write_jsonl(tmp_path / "dev.jsonl", DEV_SOURCE, DEV_TARGET)],
        source_language="en",
        target_language="fr",
        vocabulary_size=300,
    )


def changed(config: PrepareConfig, **changes: object) -> PrepareConfig:
    return PrepareConfig(**{**config.__dict__, **changes})


def test_end_to_end(config: PrepareConfig) -> None:
    store = prepare(config)
    assert store.splits == ("train", "dev")
    assert store.tokenizer.kind == "bpe" and store.tokenizer.vocabulary_size == 300
    train = store.split("train")
    expected = corpus(60, 1)
    assert train.document_ids == [str(number) for number in range(1, 61)]
    decode = store.tokenizer.decode
    sentences = [sentence for document in expected for sentence in document]
    assert [decode(words) for document in train.documents("source") for words in document] == sentences
    assert [decode(words) for document in train.documents("target") for words in document] == [
        sentence.upper() for sentence in sentences
    ]
    assert train.document_offsets[-1] == len(sentences)
    dev = store.split("dev")
    assert dev.document_ids == ["doc1", "doc2"] and dev.document_offsets.tolist() == [0, 2, 3]
    with pytest.raises(DocmtError, match=r"no split 'test', only train, dev.*--test"):
        store.split("test")
    again = PreparedStore.open(config.store)
    assert again.statistics == store.statistics
    assert sorted(path.name for path in config.store.parent.iterdir()) == ["dev.jsonl", "store", "train.en", "train.fr"]


def test_statistics_by_hand(config: PrepareConfig, tmp_path: Path) -> None:
    """With a tokenizer of single bytes every token is a character: sentences have one more for the space in front."""
    train_tokenizer("bpe", ["x"], 262).save(tmp_path / "bytes")
    source = [["aaa", "", "b"], ["cccccc"], [""]]
    target = [["aa", "x", "bbbbb"], ["ccccccc"], [""]]
    (tmp_path / "small.jsonl").write_text(
        "".join(
            json.dumps({"id": id, "source": s, "target": t}) + "\n"
            for id, s, t in zip("uvw", source, target, strict=True)
        )
    )
    store = prepare(
        changed(config, train=[tmp_path / "small.jsonl"], dev=[], tokenizer=str(tmp_path / "bytes"), instance_tokens=10)
    )
    split = store.statistics.splits["train"]
    # words: u: 4|3 and 2|6, v: 7|8; costs 6, 8 and 10; 6 + 8 is not below 10, so every sentence is an instance
    assert (split.documents, split.sentences, split.instances) == (2, 3, 3)
    assert (split.source_tokens, split.target_tokens, split.cost) == (4 + 2 + 7, 3 + 6 + 8, 24)
    assert (split.longest_cost, split.longest_document, split.longest_sentence, split.over_limit) == (10, "v", 1, 1)
    assert split.sentences / split.instances == 1.0 and split.cost / split.instances == 8.0
    assert sum(split.skipped.values()) == 3  # an empty side, an empty pair, and the document that had only that
    assert split.skipped.keys() == split.skipped_examples.keys()
    assert json.loads((config.store / "statistics.json").read_text())["splits"]["train"]["sentences"] == 3
    assert store.statistics.instance_tokens == 10
    text = format_statistics(store.statistics)
    lines = {line.rsplit("  ", 1)[0].strip(): line.rsplit("  ", 1)[-1] for line in text.splitlines()}
    assert lines["documents"].strip() == "2" and lines["tokens per instance"].strip() == "8.0"
    assert lines["sentences of 10 tokens or more"].strip() == "1"
    assert "en to fr, bpe vocabulary of 262" in text
    assert "longest is sentence 1 of document v" in text
    assert f"skipped 2 x pair with an empty side ({tmp_path / 'small.jsonl'}, line 1;" in text


def test_the_longest_sentence_is_counted_within_its_document(config: PrepareConfig) -> None:
    split = prepare(config).statistics.splits["dev"]
    assert (split.longest_document, split.longest_sentence) == ("doc1", 2)


@pytest.mark.parametrize("kind", ["bpe", "sentencepiece"])
def test_the_tokenizer_sees_both_sides_of_train_only(config: PrepareConfig, kind: str) -> None:
    documents = corpus(60, 1)
    both = [s for document in documents for side in (document, [x.upper() for x in document]) for s in side]
    expected = train_tokenizer(kind, both, 340)
    store = prepare(changed(config, tokenizer=kind, vocabulary_size=340))
    assert store.tokenizer.kind == kind
    assert store.tokenizer.encode_batch(both) == expected.encode_batch(both)


def test_a_tokenizer_that_is_there_already(
    config: PrepareConfig, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = prepare(config)
    assert "no effect" not in caplog.text
    again = prepare(changed(config, store=tmp_path / "two", tokenizer=str(config.store / "tokenizer")))
    assert "--vocabulary-size has no effect, as the tokenizer is not learned: leave it out" in caplog.text
    assert again.split("dev").source.tokens.tolist() == first.split("dev").source.tokens.tolist()
    spm = SentencePieceTokenizer.train([s for document in corpus(60, 1) for s in document], 320)
    spm.save(tmp_path / "spm")
    third = prepare(changed(config, store=tmp_path / "three", tokenizer=str(tmp_path / "spm" / "tokenizer.model")))
    assert third.tokenizer.kind == "sentencepiece" and third.statistics.vocabulary_size == 320
    # a store can be replaced with its own tokenizer
    replaced = prepare(changed(config, tokenizer=str(config.store / "tokenizer"), overwrite=True))
    assert replaced.statistics == first.statistics


def test_sentences_of_which_the_tokenizer_leaves_nothing(config: PrepareConfig, tmp_path: Path) -> None:
    import sentencepiece

    with (tmp_path / "nfkc.model").open("wb") as file:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(s for document in corpus(60, 1) for s in document),
            model_writer=file,
            vocab_size=80,
            minloglevel=3,
        )
    dev = write_jsonl(tmp_path / "odd.jsonl", [["\u200b", "the cat"], ["\u200b"]], [["a", "the dog"], ["b"]])
    store = prepare(changed(config, dev=[dev], tokenizer=str(tmp_path / "nfkc.model")))
    split = store.statistics.splits["dev"]
    assert (split.documents, split.sentences) == (1, 1)
    assert split.skipped == {"pair of which the tokenizer leaves nothing": 2}
    assert split.skipped_examples["pair of which the tokenizer leaves nothing"][0] == "document doc1, sentence 1"


def test_an_existing_directory_is_not_overwritten(config: PrepareConfig) -> None:
    config.store.mkdir()
    first = prepare(config)  # an empty directory is fine
    with pytest.raises(DocmtError, match="exists already; add --overwrite"):
        prepare(config)
    (config.store / "extra").write_text("of the old store")
    again = prepare(changed(config, overwrite=True))
    assert again.statistics == first.statistics and not (config.store / "extra").exists()


def test_only_stores_are_ever_replaced(config: PrepareConfig, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "thesis.tex").write_text("years of work")
    with pytest.raises(DocmtError, match="is not a prepared store"):
        prepare(changed(config, store=home, overwrite=True))
    assert (home / "thesis.tex").read_text() == "years of work"
    with pytest.raises(DocmtError, match="is a file"):
        prepare(changed(config, store=home / "thesis.tex", overwrite=True))
    prepare(config)
    inside = config.store / "train.jsonl"
    write_jsonl(inside, DEV_SOURCE, DEV_TARGET)
    with pytest.raises(DocmtError, match="is inside the store"):
        prepare(changed(config, train=[inside], overwrite=True))
    assert inside.exists()


def test_a_failure_leaves_nothing_behind(config: PrepareConfig, tmp_path: Path) -> None:
    (tmp_path / "dev.jsonl").write_text(
        json.dumps({"source": ["a"], "target": ["b"]}) + '\n{"source": ["a"], "target": []}\n'
    )
    before = sorted(tmp_path.iterdir())
    with pytest.raises(DocmtError, match=r"dev\.jsonl, line 2"):
        prepare(config)
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize("split", ["train", "dev"])
def test_empty_and_missing_corpora(config: PrepareConfig, split: str, tmp_path: Path) -> None:
    (tmp_path / "empty.en").write_text("\n\n")
    (tmp_path / "empty.fr").write_text("")
    with pytest.raises(DocmtError, match=rf"the {split} corpus .*empty\.en and .* holds no sentence pairs"):
        prepare(changed(config, **{split: [tmp_path / "empty.en", tmp_path / "empty.fr"]}))
    with pytest.raises(DocmtError, match=r"gone\.jsonl"):
        prepare(changed(config, **{split: [tmp_path / "gone.jsonl"]}))
    assert not config.store.exists()


def test_impossible_configurations(config: PrepareConfig, tmp_path: Path) -> None:
    with pytest.raises(DocmtError, match="--train names 0 files"):
        changed(config, train=[])
    with pytest.raises(DocmtError, match="--test names 3 files"):
        changed(config, test=[tmp_path] * 3)
    with pytest.raises(DocmtError, match="instance_tokens is 2"):
        changed(config, instance_tokens=2)
    for size in (-1, 1_000_001, 10**30):
        with pytest.raises(DocmtError, match=rf"vocabulary_size is {size}: choose a number from 0 to 1,000,000"):
            changed(config, vocabulary_size=size)
    with pytest.raises(DocmtError, match="Set --vocabulary-size to at most"):
        prepare(changed(config, vocabulary_size=100_000))


def test_several_corpora_are_all_taken(config: PrepareConfig, tmp_path: Path) -> None:
    """Text pairs and JSONL files in any number; ids say where a document comes from, counts what came from where."""
    more = [write_text(tmp_path / f"more.{side}", [["walk on"], ["a dog", "ran"]]) for side in ("en", "fr")]
    files = [config.train[0], config.train[1], config.dev[0], *more]
    store = prepare(changed(config, train=files))
    train, statistics = store.split("train"), store.statistics.splits["train"]
    assert len(train.document_ids) == 60 + 2 + 2
    assert train.document_ids[::61] == ["train.en:1", "dev.jsonl:doc2"]
    assert train.document_ids[-1] == "more.en:2"
    assert store.tokenizer.decode(train.documents("target")[-1][-1]) == "ran"
    counts = {name: (counts.documents, counts.sentences) for name, counts in statistics.corpora.items()}
    assert list(counts) == [f"{files[0]} and {files[1]}", str(files[2]), f"{more[0]} and {more[1]}"]
    assert list(counts.values())[1:] == [(2, 3), (2, 3)]
    assert sum(sentences for _, sentences in counts.values()) == statistics.sentences
    assert f"train: 2 documents, 3 sentences from {files[2]}" in format_statistics(store.statistics)
    assert PreparedStore.open(config.store).statistics == store.statistics
    assert store.statistics.splits["dev"].corpora == {}
    twice = prepare(changed(config, store=tmp_path / "twice", train=[*more, *more], vocabulary_size=262))
    assert list(twice.statistics.splits["train"].corpora) == [
        f"{more[0]} and {more[1]}",
        f"{more[0]} and {more[1]} (2)",
    ]
    for odd in ([more[0], files[2], more[1]], [*more, more[0]], [files[2], more[0]]):
        with pytest.raises(DocmtError, match=r"--train names \d files; give one JSONL .*more\.\w\w has no target file"):
            changed(config, train=odd)


def test_a_pipe_is_refused_as_corpora_are_read_more_than_once(config: PrepareConfig, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for files in ([config.train[0], tmp_path / "pipe"], [tmp_path / "pipe"]):
        with pytest.raises(DocmtError, match=r"cannot read \S+pipe: it is read more than once, but is a pipe; give a"):
            prepare(changed(config, dev=files))
    assert not config.store.exists()


def test_a_corpus_without_borders_is_told(
    config: PrepareConfig, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pair = [write_text(tmp_path / f"one.{side}", [["walk on"] * 201]) for side in ("en", "fr")]
    prepare(changed(config, train=pair, vocabulary_size=263))
    (message,) = caplog.messages
    assert message.startswith(f"{pair[0]} and {pair[1]} is one document of 201 sentences. If it is several, put an")
    caplog.clear()
    for path in pair:
        path.write_text("walk on\n" * 200)
    prepare(changed(config, train=pair, vocabulary_size=263, store=tmp_path / "two"))
    assert not caplog.messages


def set_value(*keys: str, value: object) -> Callable[[Path], object]:
    """Damage: another value in a JSON file."""

    def change(path: Path) -> None:
        values = inner = json.loads(path.read_text())
        for key in keys[:-1]:
            inner = inner[key]
        inner[keys[-1]] = value
        path.write_text(json.dumps(values))

    return change


@pytest.mark.parametrize(
    "damage",
    [
        set_value("source_language", value={"a": 1}),
        set_value("vocabulary_size", value="300"),
        set_value("splits", value=5),
        set_value("splits", "train", "sentences", value=True),
        set_value("splits", "train", "skipped", value=[1]),
        set_value("splits", "train", "skipped", value={"why": "3"}),
        set_value("splits", "train", "corpora", value={"a": 3}),
        lambda path: path.write_bytes(b"[" * 100_000),
        lambda path: path.write_bytes(b"\xff"),
    ],
)
def test_statistics_of_the_wrong_types(config: PrepareConfig, damage: Callable[[Path], object]) -> None:
    """Found when the store is opened, not when the model is saved hours later."""
    prepare(config)
    damage(config.store / "statistics.json")
    with pytest.raises(DocmtError, match=r"statistics\.json is missing or damaged.*`docmt prepare`"):
        PreparedStore.open(config.store)


@pytest.mark.parametrize("damage", ["missing", "truncated", "other"])
def test_damaged_statistics(config: PrepareConfig, damage: str) -> None:
    prepare(config)
    path = config.store / "statistics.json"
    text = path.read_text()
    if damage == "missing":
        path.unlink()
    else:
        path.write_text(text[:50] if damage == "truncated" else '{"splits": {"train": {}}}')
    with pytest.raises(DocmtError, match=r"statistics\.json.*`docmt prepare`"):
        PreparedStore.open(config.store)


def test_opening_checks_every_split_and_the_tokenizer(config: PrepareConfig) -> None:
    prepare(config)
    path = config.store / "dev" / "target_tokens.npy"
    data = path.read_bytes()
    path.write_bytes(data[:-4])
    with pytest.raises(DocmtError, match=r"dev/target_tokens\.npy is missing or damaged"):
        PreparedStore.open(config.store)
    path.write_bytes(data)
    train_tokenizer("bpe", ["x"], 262).save(config.store / "tokenizer")
    with pytest.raises(DocmtError, match="another tokenizer"):
        PreparedStore.open(config.store)


def test_ids_of_documents_beside_the_corpora(config: PrepareConfig, tmp_path: Path) -> None:
    lines = [f"{word} {word}" for word in ("the", "cat", "dog", "walk", "ran")]
    more = [tmp_path / "more.en", tmp_path / "more.fr"]
    for path in more:
        path.write_text("".join(f"{line}\n" for line in lines))
    ids = tmp_path / "more.ids"
    ids.write_text("x\nx\ny\ny\ny\n")
    store = prepare(changed(config, train=[*config.train, *more], train_docids=[Path("-"), ids]))
    train = store.split("train")
    assert train.document_ids[-3:] == ["train.en:60", "more.en:x", "more.en:y"]
    assert (train.document_offsets[-2:] - train.document_offsets[-3:-1]).tolist() == [2, 3]
    for files, message in (
        ([ids], "--train-docids names 1 files for 2 corpora of --train; give one for each, in their order, and -"),
        ([ids, ids], r"more\.ids ends after line 5 but \S+train\.en has text"),
    ):
        with pytest.raises(DocmtError, match=message):
            prepare(changed(config, store=tmp_path / "two", train=[*config.train, *more], train_docids=files))
    with pytest.raises(DocmtError, match=r"--dev-docids names 1 files for 0 corpora"):
        changed(config, dev=[], dev_docids=[ids])
    with pytest.raises(DocmtError, match=r"dev\.jsonl is JSONL, which contains document ids\. Give - instead of"):
        prepare(changed(config, store=tmp_path / "two", dev_docids=[ids]))
    assert not (tmp_path / "two").exists()


def test_several_development_corpora_are_counted_by_name(config: PrepareConfig, tmp_path: Path) -> None:
    for split in ("dev", "test"):
        files = [
            config.dev[0],
            *(write_text(tmp_path / f"{split}.{side}", [["a dog", "ran"]]) for side in ("en", "fr")),
        ]
        store = prepare(changed(config, overwrite=True, **{split: files}))
        corpora = store.statistics.splits[split].corpora
        assert {name: (counts.documents, counts.sentences) for name, counts in corpora.items()} == {
            str(files[0]): (2, 3),
            f"{files[1]} and {files[2]}": (1, 2),
        }
        assert f"{split}: 2 documents, 3 sentences from {files[0]}" in format_statistics(store.statistics)


@pytest.mark.parametrize(
    ("documents", "kind", "message"),
    [
        ([201], "text", r"en and \S+fr is one document of 201 sentences. .*empty line.* for --train-docids"),
        ([201], "jsonl", r"long\.jsonl is one document of 201 sentences. .* a line of its own, or its own `document`"),
        ([201], "ids", r"is one document of 201 sentences. .* an id of its own in \S+ids"),
        ([2, 2001], "text", r": document 2 has 2,001 sentences. If it is several, put an empty line"),
        ([2001, 2], "jsonl", r"long\.jsonl: document doc1 has 2,001 sentences. If it is several, give each"),
        ([2, 2001], "ids", r": document d1 has 2,001 sentences. If it is several, give each"),
        ([200], "text", ""),
        ([200, 2000], "jsonl", ""),
    ],
)
def test_implausibly_long_documents_are_told(
    config: PrepareConfig,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    documents: list[int],
    kind: str,
    message: str,
) -> None:
    sentences = [["the cat"] * count for count in documents]
    ids: list[Path] = []
    if kind == "jsonl":
        train = [write_jsonl(tmp_path / "long.jsonl", sentences, sentences)]
    else:
        train = [write_text(tmp_path / f"long.{side}", sentences) for side in ("en", "fr")]
    if kind == "ids":
        for path in train:
            path.write_text(path.read_text().replace("\n\n", "\n"))
        ids = [tmp_path / "ids"]
        ids[0].write_text("".join(f"d{number}\n" * count for number, count in enumerate(documents)))
    prepare(changed(config, train=train, train_docids=ids, vocabulary_size=262))
    (warning,) = [record.getMessage() for record in caplog.records] or [""]
    assert re.search(message, warning) and bool(message) == bool(warning)


def test_a_language_without_rules_is_told_once(config: PrepareConfig, caplog: pytest.LogCaptureFixture) -> None:
    prepare(changed(config, source_language="xx"))
    (warning,) = [record.getMessage() for record in caplog.records]
    assert warning.startswith("--source-language xx: docmt has no rules to split text of this language into sentences")
    caplog.clear()
    prepare(changed(config, source_language="de-AT", overwrite=True))
    assert not caplog.records


def test_a_name_with_gz_is_a_jsonl_corpus_too(config: PrepareConfig, tmp_path: Path) -> None:
    import gzip

    dev = tmp_path / "dev.jsonl.gz"
    dev.write_bytes(gzip.compress(config.dev[0].read_bytes()))
    store = prepare(changed(config, dev=[config.dev[0], dev]))
    assert [counts.sentences for counts in store.statistics.splits["dev"].corpora.values()] == [3, 3]


def test_corpora_as_they_are_published(config: PrepareConfig, tmp_path: Path) -> None:
    sides = ([sentence for document in side for sentence in document] for side in (DEV_SOURCE, DEV_TARGET))
    units = "".join(
        f'<tu><tuv xml:lang="en"><seg>{one}</seg></tuv><tuv xml:lang="fr"><seg>{other}</seg></tuv></tu>'
        for one, other in zip(*sides, strict=True)
    )
    (tmp_path / "dev.tmx").write_text(f"<tmx><body>{units}</body></tmx>", encoding="utf-8")
    pairs = [("the cat", "le chat", "a"), ("walk", "marche", "a"), ("a dog", "un chien", "b")]
    (tmp_path / "train.tsv").write_text("".join("\t".join(row) + "\n" for row in pairs), encoding="utf-8")
    published = {"train": [tmp_path / "train.tsv"] * 2, "dev": [tmp_path / "dev.tmx"], "vocabulary_size": 270}
    store = prepare(changed(config, **published))
    assert store.split("train").document_ids == ["train.tsv:a", "train.tsv:b"] * 2
    assert store.statistics.splits["dev"].sentences == 3
    other = changed(config, store=tmp_path / "b", columns=["source=2", "target=1"], **published)
    assert prepare(other).tokenizer.vocabulary_size == 270
    reversed_text = prepare(changed(other, overwrite=True)).split("train").documents("source")[0]
    assert PreparedStore.open(tmp_path / "b").tokenizer.decode(reversed_text[0]) == "le chat"


@pytest.mark.parametrize(
    ("order", "columns", "is_told"),
    [((2, 0, 1), [], True), ((0, 1, 2), [], False), ((2, 0, 1), ["source=2", "target=3", "document=1"], False)],
)
def test_documents_of_a_line_each_are_told(
    config: PrepareConfig, tmp_path: Path, caplog: pytest.LogCaptureFixture, order, columns, is_told
) -> None:
    rows = [(f"the cat {number}", f"le chat {number}", f"d{number // 5}") for number in range(20)]
    text = "".join("\t".join(row[index] for index in order) + "\n" for row in rows)
    (tmp_path / "train.tsv").write_text(text, encoding="utf-8")
    prepare(changed(config, train=[tmp_path / "train.tsv"], dev=[], vocabulary_size=270, columns=columns))
    wanted = f"{tmp_path / 'train.tsv'}: 100 % of the lines are documents of their own by column 3. If it does not name"
    assert [message.startswith(wanted) for message in caplog.messages] == [True] * is_told


@pytest.mark.parametrize("column", ["source", "source=", "sauce=a", "=a"])
def test_columns_that_are_none(config: PrepareConfig, column: str) -> None:
    with pytest.raises(DocmtError, match=rf"--columns has '{column}': give NAME=COLUMN with a name of source, target"):
        changed(config, columns=[column])
    with pytest.raises(DocmtError, match=r"--columns has 'source=b'"):
        changed(config, columns=["source=a", "source=b"])


def test_columns_without_effect(config: PrepareConfig) -> None:
    with pytest.raises(DocmtError, match="--columns has no effect on text files"):
        changed(config, dev=[], columns=["source=b"])
