"""`docmt roundtrip`: corpora of sampled round trips, whole or none, the same after an interruption; and the repair."""

import gzip
import json
from random import Random
from unittest.mock import Mock

import pytest
from commands import TINY, assert_one_sentence, call, fails
from tiny_model import save_tiny_model

import docmt
from docmt.checkpoint.model_directory import find_model
from docmt.cli.commands import roundtrip
from docmt.core import resumable_file
from docmt.documents import Document, read_parallel
from docmt.documents.words import list_words, replace_words

TEXT = "un deux.\nil est.\n\ntrois.\nil fut quatre.\ncinq il est.\nsix.\n\nsept\n"
DOCUMENTS = [("un deux.", "il est."), ("trois.", "il fut quatre.", "cinq il est.", "six."), ("sept",)]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A model from French to English, and one back."""
    folder = tmp_path_factory.mktemp("models")
    reverse = save_tiny_model(folder / "fr-en", source="fr", target="en", seed=1)
    return reverse, save_tiny_model(folder / "en-fr", seed=2)


@pytest.fixture
def command(models, tmp_path):
    """A command that makes a corpus; its output comes next."""
    (tmp_path / "mono.fr").write_text(TEXT)
    return ["roundtrip", *models, tmp_path / "mono.fr", "-q", "-o"]


def make(command, output, *options):
    outcome = call(*command, output, *options)
    assert outcome == (0, "", ""), outcome.err
    return read_rows(output)


def read_rows(path):
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return list(map(json.loads, data.splitlines()))


def test_the_corpus_has_round_trips_and_the_documents(command, models, tmp_path):
    rows = make(command, tmp_path / "a.jsonl", "--samples", 2, "--word-noise", 0)
    assert [tuple(row["target"]) for row in rows] == [document for document in DOCUMENTS for _ in range(2)]
    assert [row["id"] for row in rows] == ["1-1", "1-2", "2-1", "2-2", "3-1", "3-2"]
    assert all(one["source"] != other["source"] for one, other in zip(rows[::2], rows[1::2], strict=True))
    assert all(len(row["source"]) == len(row["target"]) for row in rows)
    reverse = docmt.Translator(models[0], search=docmt.SearchConfig(beam=4))
    sources = [each.document for each in reverse.translate_all(list(map(Document.from_sentences, DOCUMENTS)))]
    search = docmt.SearchConfig(beam=1, sampling=True, temperature=0.5, seed=1)
    repeated = [source for source in sources for _ in range(2)]
    sampled = docmt.Translator(models[1], search=search).translate_all(repeated, copies=range(6))
    assert [row["source"] for row in rows] == [list(each.document.sentences) for each in sampled]
    assert list(read_parallel(tmp_path / "a.jsonl"))


def test_equal_documents_in_other_groups_have_other_samples(command, models, monkeypatch, tmp_path):
    from docmt.cli.commands import roundtrip

    monkeypatch.setattr(roundtrip, "_GROUP_SENTENCES", 1)
    text = "\n\n".join(["un deux trois"] * 5)
    (tmp_path / "equal.txt").write_text(text + "\n")
    rows = make([*command[:3], tmp_path / "equal.txt", "-q", "-o"], tmp_path / "a.jsonl", "--word-noise", 0)
    assert len({str(row["source"]) for row in rows}) > 1


def test_seeds_noise_and_compression(command, tmp_path):
    rows = make(command, tmp_path / "a.jsonl")
    assert make(command, tmp_path / "b.jsonl.gz") == rows
    assert make(command, tmp_path / "b.jsonl", "--seed", 2) != rows
    assert make(command, tmp_path / "b.jsonl", "--batch-tokens", 1) == rows
    noisy = make(command, tmp_path / "b.jsonl", "--word-noise", 1)
    words = set(list_words(sentence for document in DOCUMENTS for sentence in document))
    assert words == {"un", "deux", "il", "est", "trois", "fut", "quatre", "cinq", "six", "sept"}
    assert {word for row in noisy for word in list_words(row["source"])} <= words


def test_greedy_round_trips_are_translations_of_translations(command, models, tmp_path):
    rows = make(command, tmp_path / "a.jsonl", "--word-noise", 0, "--temperature", 0.001, "--beam", 2)
    lines = ["--layout", "lines", "-q"]
    call("translate", models[0], tmp_path / "mono.fr", "-o", tmp_path / "en", *lines, "--beam", 2)
    outcome = call("translate", models[1], tmp_path / "en", "-o", tmp_path / "fr", *lines, "--beam", 1)
    assert outcome.status == 0, outcome.err
    expected = [line for line in (tmp_path / "fr").read_text().split("\n") if line]
    assert [sentence for row in rows for sentence in row["source"] if sentence] == expected


def test_a_share_of_the_words_is_replaced_and_all_else_stays():
    chance, sentence = Random(1), "Anna, the 2nd: it's  good (very).\t今日"
    assert replace_words(sentence, 0, ["x"], chance) == replace_words(sentence, 1, [], chance) == sentence
    assert replace_words(sentence, 1, ["x"], chance) == "x, x x: x'x  x (x).\txx"
    changed = [replace_words("a b c d e f g h i j", 0.1, ["x", "y"], chance) for _ in range(500)]
    counts = {word: sum(text.count(word) for text in changed) for word in "xy"}
    assert 4000 / 10 < sum(counts.values()) < 6000 / 10 and min(counts.values()) > 200


def test_any_interruption_can_be_continued_to_the_same_bytes(command, tmp_path, monkeypatch):
    monkeypatch.setattr(roundtrip, "_GROUP_SENTENCES", 2)
    expected, output, partial = tmp_path / "a.jsonl", tmp_path / "b.jsonl", tmp_path / "b.jsonl.partial"
    make(command, expected, "--samples", 3)
    append, calls = resumable_file._append, []

    def stop(file, data):
        calls.append(data)
        if len(calls) == 3:  # the header and the first group are written
            raise KeyboardInterrupt
        append(file, data)

    monkeypatch.setattr(resumable_file, "_append", stop)
    outcome = call(*command, output, "--samples", 3)
    assert outcome.status == 130 and not output.exists()
    assert f"finished parts are in {partial}: run the same command with --resume to continue" in outcome.err
    monkeypatch.setattr(resumable_file, "_append", append)
    fails(*command, output, "--samples", 3, message="is unfinished: continue it with --resume")
    fails(*command, output, "--samples", 2, "--resume", message="it was started with another --samples")
    assert call(*command, output, "--samples", 3, "--resume", "--batch-tokens", 9).status == 0
    assert output.read_bytes() == expected.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.jsonl", "b.jsonl", "mono.fr"]


def test_a_finished_corpus_is_kept(command, tmp_path):
    """--resume made it again."""
    output = tmp_path / "a.jsonl"
    make(command, output)
    output.write_text(output.read_text() + "edited")
    spoken = [argument for argument in command if argument != "-q"]
    outcome = call(*spoken, output, "--resume")
    said = f"docmt: {output} is finished and stays as it is; without --resume it is made again\n"
    assert outcome == (0, "", said)
    assert output.read_text().endswith("edited")
    make(command, output)
    assert not output.read_text().endswith("edited")


def test_ctrl_c_before_the_first_part_says_how_to_go_on(command, tmp_path, monkeypatch):
    monkeypatch.setattr(resumable_file, "_append", Mock(side_effect=KeyboardInterrupt))
    outcome = call(*command, tmp_path / "a.jsonl")
    assert outcome == (130, "", "docmt: no part is finished yet: run the same command again\ndocmt: interrupted\n")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mono.fr"]


def test_documents_that_fail_are_left_out_and_named(models, tmp_path):
    short = save_tiny_model(tmp_path / "short", source="fr", target="en", max_positions=40, position_encoding="learned")
    (tmp_path / "mono.fr").write_text(f"un deux.\n\n{'trois ' * 30}\n\nsix.\n")
    command = ["roundtrip", short, models[1], tmp_path / "mono.fr", "-q", "-o", tmp_path / "a.jsonl"]
    outcome = call(*command)
    assert outcome.status == 2
    assert_one_sentence(outcome.err, "mono.fr, document 2: sentence 1 of the document may need")
    assert [row["target"] for row in read_rows(tmp_path / "a.jsonl")] == [["un deux."], ["six."]]
    (tmp_path / "mono.fr").write_text("trois " * 30)
    (tmp_path / "a.jsonl").unlink()
    fails(*command, message="no document could be translated: .*may need")
    assert not list(tmp_path.glob("*.jsonl*"))


@pytest.mark.parametrize(
    ("order", "output", "text", "message"),
    [
        ([1, 1], "a.jsonl", TEXT, "en-fr translates en-fr and .*en-fr en-fr: name two models of opposite directions"),
        ([0, 1], "a.txt", TEXT, "a.txt is not the name of a JSONL file: add -o FILE.jsonl"),
        ([0, 1], "-", TEXT, "- is not the name of a JSONL file"),
        ([0, 1], "a.jsonl", "\n\n", "mono.fr has no sentences: name a file with documents of the target language"),
        ([0, 1], "mono.jsonl", '{"target": ["un"]}', "is an input and would be overwritten"),
    ],
)
def test_what_does_not_fit(models, order, output, text, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    documents = "mono.jsonl" if text.startswith("{") else "mono.fr"
    (tmp_path / documents).write_text(text)
    fails("roundtrip", *(models[n] for n in order), documents, "-o", output, message=message)
    assert [path.name for path in tmp_path.iterdir()] == [documents]


def test_models_in_the_wrong_order_are_noticed(models, tmp_path):
    (tmp_path / "mono.fr").write_text("Le chat est dans la maison et le chien est sur la route avec les enfants.\n" * 3)
    outcome = call("roundtrip", *reversed(models), tmp_path / "mono.fr", "-o", tmp_path / "a.jsonl")
    assert "mono.fr looks like fr, but" in outcome.err and "translates from en: the first model" in outcome.err


def test_a_model_that_repairs_translations(command, models, tmp_path):
    """The corpus trains a document model, which repairs a translation sentence by sentence."""
    make(command, tmp_path / "a.jsonl", "--samples", 4)
    corpora = ["--train", tmp_path / "a.jsonl", "--dev", tmp_path / "a.jsonl"]
    same = ["--source-language", "fr", "--target-language", "fr"]
    tokenizer = ["--tokenizer", find_model(models[1])]
    outcome = call("prepare", "--store", tmp_path / "store", *corpora, *same, *tokenizer)
    assert outcome.status == 0, outcome.err
    run = ["--run", tmp_path / "run", "--store", tmp_path / "store", *TINY, "--stop.max-steps=4"]
    assert call("train", *run).status == 0
    (tmp_path / "draft.fr").write_text("un deux.\nil.\n\nsept\n")
    outcome = call("translate", tmp_path / "run", tmp_path / "draft.fr", "--layout", "lines")
    assert outcome.status == 0 and len(outcome.out.split("\n")) == 5, outcome
