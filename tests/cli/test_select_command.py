"""`docmt select`: the sentences whose tokens gain most from context, as documents that training reads."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from commands import call, fails
from tiny_model import save_tiny_model

import docmt
from docmt.documents import ParallelDocument, read_parallel
from docmt.evaluation.context_selection import TokenGain, cut_selected, largest_token_gain, measure_token_gains
from docmt.model.systems import Group

SOURCE = "one two.\nit is.\n\nthree.\nit was four.\nfive it is.\nsix.\n\nseven\n"
TARGET = "un deux.\nil est.\n\ntrois.\nil fut quatre.\ncinq il est.\nsix.\n\nsept\n"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    group = Group(encoder_layers=1, decoder_layers=1, cross_layers=1)
    return save_tiny_model(tmp_path_factory.mktemp("model") / "group", system="group", group=group)


@pytest.fixture
def sides(tmp_path):
    (tmp_path / "a.en").write_text(SOURCE)
    (tmp_path / "a.fr").write_text(TARGET)
    return tmp_path / "a.en", tmp_path / "a.fr"


def test_the_gain_of_a_sentence_is_that_of_its_best_token():
    def translation(*scores):
        return [SimpleNamespace(token_ids=range(5, 5 + len(each)), token_scores=each) for each in scores]

    pairs = zip(translation([-1, -2], [], [-4, -4]), translation([-1, -5], [], [-3, -2]), strict=True)
    assert [largest_token_gain(*pair) for pair in pairs] == [(3, 6), None, (-1, 5)]


def test_selected_sentences_end_documents():
    whole = ParallelDocument("a", tuple("abcd"), tuple("wxyz"))
    gains = [TokenGain(2.0, 1, 0, 3), TokenGain(1.0, 1, 0, 0)]
    cut = list(cut_selected([whole], gains, 2))
    assert [(each.id, "".join(each.source), "".join(each.target)) for each in cut] == [
        ("a-1", "a", "w"),
        ("a-4", "bcd", "xyz"),
    ]


def test_files_have_the_sentences_that_gain_most(model, sides, tmp_path):
    texts, lines = (tmp_path / "b.en", tmp_path / "b.fr"), tmp_path / "b.jsonl"
    outcome = call("select", model, *sides, "-o", *texts, "--share", "0.5", "--before", 1)
    assert outcome.status == 0, outcome.err
    assert "selected 2 of 4 sentences: a token of each gains " in outcome.err
    assert "tokens that gain most in many sentences: " in outcome.err
    documents = list(read_parallel(*texts))
    translator, corpus = docmt.Translator(model), list(read_parallel(*sides))
    gains = []
    for number, document in enumerate(corpus):
        for i in range(1, len(document)):
            pair = [docmt.Document.from_sentences(side[i - 1 : i + 1]) for side in (document.source, document.target)]
            scores = [translator.score_all([pair], context=seen)[0].sentences[-1] for seen in (True, False)]
            gains.append(TokenGain(*largest_token_gain(*scores), number, i))
    gains = sorted(gains, reverse=True)[:2]
    assert all(len(each) == 2 for each in documents)
    assert [each.source for each in documents] == [each.source for each in cut_selected(corpus, gains, 1)]
    assert [each.target for each in documents] == [each.target for each in cut_selected(corpus, gains, 1)]
    assert call("select", model, *sides, "-o", lines, "--share", "0.5", "--before", 1).status == 0
    records = [json.loads(line) for line in lines.read_text().splitlines()]
    assert [tuple(record["source"]) for record in records] == [each.source for each in documents]
    assert all(Path(each).stat().st_size for each in texts)


@pytest.mark.parametrize(
    ("output", "more", "message"),
    [
        (["b.en"], [], "-o needs two files, for source and target, or one that ends in .jsonl"),
        (["b.jsonl", "b.fr"], [], "-o needs two files"),
        (["b.en", "b.en"], [], "two outputs would both be written to b.en"),
        (["b.jsonl"], ["--share", "0.1"], "no sentence was selected: give more sentences"),
        (["b.jsonl"], ["--share", "0"], "--share is 0: choose a number above 0, up to 1"),
    ],
)
def test_options_that_do_not_fit(model, sides, output, more, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fails("select", model, *sides, "-o", *output, *more, message=message)
    assert not Path("b.en").exists() and not Path("b.jsonl").exists()


def test_models_and_texts_without_context(sides, tmp_path):
    plain = save_tiny_model(tmp_path / "sentence")
    fails(
        "select",
        plain,
        *sides,
        "-o",
        tmp_path / "b.jsonl",
        message="reads no context: name a model that was trained to read it",
    )
    for side in sides:
        side.write_text("\n\n".join(side.read_text().split()))
    fails("select", plain, *sides, "-o", tmp_path / "b.jsonl", message="no document has two sentences")


def test_later_sentences_have_no_effect(model, sides):
    """They are cut off, so what they tell is no reason to select a sentence."""
    translator, corpus = docmt.Translator(model), list(read_parallel(*sides))
    [whole] = measure_token_gains(translator, [(7, corpus[1])], 2)
    start = ParallelDocument("", corpus[1].source[:3], corpus[1].target[:3])
    [part] = measure_token_gains(translator, [(7, start)], 2)
    assert [each.sentence for each in whole] == [1, 2, 3] and {each.document for each in whole} == {7}
    assert [each.gain for each in part] == pytest.approx([each.gain for each in whole[:2]], abs=1e-6)


def test_outputs_may_be_compressed(model, sides, tmp_path):
    plain, packed = (tmp_path / "b.en", tmp_path / "b.fr"), (tmp_path / "c.en.gz", tmp_path / "c.fr.gz")
    for names in (plain, packed, [tmp_path / "d.jsonl.zst"]):
        assert call("select", model, *sides, "-o", *names, "--share", "0.5").status == 0
    texts = [(each.source, each.target) for each in read_parallel(*plain)]
    assert packed[0].read_bytes().startswith(b"\x1f\x8b") and len(texts) == 2
    assert [(each.source, each.target) for each in read_parallel(*packed)] == texts
    assert [(each.source, each.target) for each in read_parallel(tmp_path / "d.jsonl.zst")] == texts
