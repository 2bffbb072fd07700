"""Sentences that are committed one after the other: what is found, one by one and all at the same time."""

import pytest
import torch
from test_abreast import VARIANTS, VOCABULARY, build, documents, recorded, same

from docmt.decoding import SearchConfig, score_documents, translate_documents
from docmt.decoding.beams import Beams
from docmt.decoding.committed import Committed
from docmt.decoding.ensemble import Ensemble
from docmt.decoding.frame import Row
from docmt.errors import DocmtError
from docmt.model import Reading, pack
from docmt.text import SpecialTokens

SPECIALS = SpecialTokens(VOCABULARY)


def committed(model, given, **settings):
    config = SearchConfig(**{"beam": 3, "commit": "sentence", **settings})
    return [ranks[0] for ranks in translate_documents(model, given, SPECIALS, config)]


@pytest.fixture
def searched(monkeypatch):
    """What every search with committed sentences took."""
    return recorded(Committed, monkeypatch)


def one_by_one(model, document, **settings):
    """Sentence by sentence with the search of whole documents, those before being given."""
    config, frame = SearchConfig(**{"beam": 3, **settings}), model.parts.frame
    source = pack([[[*frame.source_opens, *words, *frame.source_closes] for words in document]])
    said, scores = [], []
    with torch.inference_mode():
        memories = model.memories(Reading(source, torch.arange(len(document))))
        for count in range(1, len(document) + 1):
            row = Row(range(count), [len(words) for words in document[:count]], said)
            beams = Beams(model, memories, [row], SPECIALS, config)
            while beams.documents:
                beams.step()
            said = beams.best()[0][0].sentences
            scores.append(beams.best()[0][0].sentence_scores[-1])
    return said, scores


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_best_of_a_sentence_is_committed(variant, searched):
    differ = 0
    for seed in range(3):
        model, given = build(seed, **VARIANTS[variant]), documents(seed, count=2, sentences=5, words=6)
        found = committed(model, given)
        same(committed(model, given, abreast=True), found)
        for own, document in zip(found, given, strict=True):
            sentences, scores = one_by_one(model, document)
            assert own.sentences == sentences
            assert own.sentence_scores == pytest.approx(scores, abs=1e-5)
        whole = translate_documents(model, given, SPECIALS, SearchConfig(beam=3))
        differ += [ranks[0].sentences for ranks in whole] != [own.sentences for own in found]
    assert differ, "beams of documents find the same everywhere: nothing was tested"
    assert max(work.rounds for work in searched) > 2


@pytest.mark.parametrize(
    "settings",
    [
        {"beam": 5},
        {"length_penalty": 0.0},
        {"min_length": 4},
        {"max_length_ratio": 0, "max_length_extra": 3},
        {"temperature": 3.0},
        {"carry": 2, "instance_tokens": 40},
        {"batch_tokens": 1},
    ],
    ids=str,
)
def test_at_the_same_time(settings, searched, monkeypatch):
    monkeypatch.setattr("docmt.decoding.committed._MOST_ROWS", 12)
    for seed in range(3):
        model, given = build(seed), documents(seed)
        found = committed(model, given, **settings)
        same(committed(model, given, abreast=True, **settings), found)
        targets = [own.sentences for own in found]
        scored = score_documents(model, given, targets, SPECIALS, SearchConfig(**{"beam": 3, **settings}))
        for own, again in zip(found, scored, strict=True):
            assert own.sentence_scores == pytest.approx(again.sentence_scores, abs=1e-5)
            assert own.score == pytest.approx(again.score, abs=1e-5)
    assert searched


def test_an_ensemble(searched):
    for seed in range(2):
        members = [build(seed), build(seed + 10, positions="document", decoder_layers=1)]
        same(committed(Ensemble(members), documents(seed), abreast=True), committed(Ensemble(members), documents(seed)))
    assert searched


def test_it_goes_on_one_by_one_where_too_little_stays(monkeypatch):
    done, run = [], Committed.run
    monkeypatch.setattr(Committed, "is_behind", lambda self: self.work.rounds > 1)
    monkeypatch.setattr(Committed, "run", lambda self: (run(self), done.append(self.work))[0])
    for seed in range(3):
        same(committed(build(seed), documents(seed), abreast=True), committed(build(seed), documents(seed)))
    assert any(work.gave_up for work in done)


def test_greedy_search_commits_anyway():
    model, given = build(1), documents(1)
    same(committed(model, given, beam=1), committed(model, given, beam=1, commit="document"))


def test_one_sentence_is_a_document():
    model, given = build(1), [[[7, 8, 9]], [[], [10, 11], []]]
    same(committed(model, given), committed(model, given, commit="document"))


def test_refused():
    with pytest.raises(DocmtError, match=r"search\.n_best is 2, but search\.commit sentence leaves one translation"):
        SearchConfig(beam=2, n_best=2, commit="sentence")
    with pytest.raises(DocmtError, match=r"commit sentence has no meaning with search\.compatibility gtransformer"):
        SearchConfig(commit="sentence", compatibility="gtransformer")
    for name, message in {
        "sentence": r"search\.commit is for systems that translate whole instances",
        "document": r"search\.commit is for systems that translate whole instances",
        "concat": r"search\.commit is for systems that translate whole instances",
    }.items():
        with pytest.raises(DocmtError, match=message):
            committed(build(1, system=name).eval(), [[[7, 8], [9]]])
