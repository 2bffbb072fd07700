"""`python -m benchmarks.selection`: the sentences whose tokens gain most from context, as documents for training."""

from types import SimpleNamespace

import pytest
from benchmarks.selection import cut_document, largest_token_gain, main, measure_token_gains
from tiny_model import save_tiny_model

import docmt
from docmt.documents import ParallelDocument, read_parallel
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


def test_files_have_the_sentences_that_gain_most(model, sides, tmp_path, capsys):
    outputs = tmp_path / "b.en", tmp_path / "b.fr"
    main([*map(str, (model, *sides, *outputs)), "--share", "0.5", "--before", "1"])
    printed = capsys.readouterr().out
    assert "selected 2 of 4 sentences: a token of each gains " in printed
    assert "tokens that gain most in many sentences: " in printed
    translator, corpus = docmt.Translator(model), list(read_parallel(*sides))
    gains = []
    for number, document in enumerate(corpus):
        for i in range(1, len(document)):
            pair = [docmt.Document.from_sentences(side[i - 1 : i + 1]) for side in (document.source, document.target)]
            scores = [translator.score_all([pair], context=visible)[0].sentences[-1] for visible in (True, False)]
            gains.append((*largest_token_gain(*scores), number, i))
    expected = [cut_document(corpus, *gain[2:], 1) for gain in sorted(sorted(gains)[-2:], key=lambda gain: gain[2:])]
    assert [(d.source, d.target) for d in read_parallel(*outputs)] == [(d.source, d.target) for d in expected]
    assert {len(each) for each in expected} == {2}


def test_selected_sentences_end_documents_and_later_ones_have_no_effect(model, sides):
    whole = ParallelDocument("a", tuple("abcd"), tuple("wxyz"))
    assert cut_document([whole], 0, 3, 2) == ParallelDocument("a-4", tuple("bcd"), tuple("xyz"))
    assert cut_document([whole], 0, 0, 2) == ParallelDocument("a-1", ("a",), ("w",))
    translator, corpus = docmt.Translator(model), list(read_parallel(*sides))
    start = ParallelDocument("", corpus[1].source[:3], corpus[1].target[:3])
    all_gains = list(measure_token_gains(translator, [corpus[1]], 2))
    gains = list(measure_token_gains(translator, [start], 2))
    assert [each.sentence for each in all_gains] == [1, 2, 3]
    assert [each.gain for each in gains] == pytest.approx([each.gain for each in all_gains[:2]], abs=1e-6)


def test_a_model_without_context_selects_nothing(sides, tmp_path, capsys):
    plain = save_tiny_model(tmp_path / "sentence")
    with pytest.raises(SystemExit):
        main([*map(str, (plain, *sides, tmp_path / "b.en", tmp_path / "b.fr"))])
    assert "no token gains from context: name a model" in capsys.readouterr().err
    assert not (tmp_path / "b.en").exists()
