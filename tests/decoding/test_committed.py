"""Sentences that are committed one after the other: what is found, one by one and all at the same time."""

import math
import random

import pytest
import torch
from test_abreast import VARIANTS, VOCABULARY, build, documents, recorded, same

from docmt.core.errors import DocmtError
from docmt.decoding import SearchConfig, score_documents, translate_documents
from docmt.decoding.beams import Beams
from docmt.decoding.committed import Committed
from docmt.decoding.ensemble import Ensemble
from docmt.decoding.frame import Row
from docmt.model import Reading, pack
from docmt.model.systems import Group
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
    for seed in range(5):
        if seed > 1 and differ:
            break
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
    for seed in range(2):
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


@pytest.mark.parametrize("variant", ["positions through the document", "the document in all layers"])
def test_any_number_at_the_same_time(variant, monkeypatch):
    """However many are searched in a round, after rounds with more or fewer."""
    model, given = build(4, **VARIANTS[variant]), documents(4, count=3, sentences=6, words=4)
    expected, states = committed(model, given), []

    def saved(self, found):
        """Worth it or not, by chance."""
        states.append((sum(own.final for own in self.sentences), sum(map(bool, (own.words for own in self.sentences)))))
        return self.spent() + chance.choice([math.inf, self.one_by_one(range(5)), 0])

    monkeypatch.setattr(Committed, "saved", saved)
    monkeypatch.setattr(Committed, "gained", lambda self, found: math.inf)
    for seed in range(2):
        chance = random.Random(seed)
        same(committed(model, given, abreast=True), expected)
    assert any(0 < final < begun for final, begun in states), "it never went on with some"


def test_it_is_told_in_which_round_a_sentence_was_found(searched, monkeypatch):
    """Of sentences that were searched at the same time as others."""
    model, given = build(2), documents(3, count=1, sentences=12, words=5)
    (found,), (one_by_one,) = committed(model, given, abreast=True), committed(model, given)
    at_once = [number for number in found.rounds if number]
    assert at_once == sorted(at_once) == found.rounds[: len(at_once)]
    assert (min(at_once), max(at_once)) == (1, searched[0].rounds)
    assert searched[0].rounds > 2
    assert not any(one_by_one.rounds)
    monkeypatch.setattr(Committed, "saved", lambda self, found: math.inf if self.work.rounds < 2 else 0)
    (stopped,) = committed(model, given, abreast=True)
    same([stopped], [one_by_one])
    assert stopped.rounds == [number if number <= 2 else 0 for number in found.rounds]
    assert 0 in stopped.rounds


@pytest.fixture
def spent(monkeypatch):
    """Of every search with committed sentences what it took by its own estimate, and how often some were together."""
    done, run = [], Committed.run

    def record(self):
        found = run(self)
        done.append((self.spent(), self.work.rounds))
        return found

    monkeypatch.setattr(Committed, "run", record)
    return done


def of_three_words(count, sentences=16):
    """Such documents, and settings with which all translations have as many."""
    generator = random.Random(1)
    given = [
        [[generator.randrange(5, VOCABULARY - 2) for _ in range(3)] for _ in range(sentences)] for _ in range(count)
    ]
    return given, {"min_length": 3, "max_length_ratio": 0, "max_length_extra": 3}


@pytest.mark.parametrize(("free_rows", "count"), [(30, 1), (30, 2), (60, 2)])
def test_little_is_lost_and_much_gained(free_rows, count, spent, monkeypatch):
    """All drafts stay where the document is not seen, and few where it matters."""
    monkeypatch.setattr("docmt.decoding.risk._free_rows", lambda model: free_rows)
    given, settings = of_three_words(count)
    for seen in (False, True):
        group = Group(self_locality=False, cross_locality=False) if seen else Group(decoder_layers=0, cross_layers=0)
        model = build(0, group=group, positions="document" if seen else "sentence")
        same(committed(model, given, abreast=True, **settings), committed(model, given, **settings))
        (abreast, rounds), (one_by_one, _) = spent
        assert rounds > 1
        assert abreast < (1.1 if seen else 0.8) * one_by_one
        spent.clear()


def test_nothing_is_risked_where_it_cannot_gain(spent):
    """Documents side by side have rows enough."""
    given, settings = of_three_words(30, sentences=3)
    model = build(1, group=Group(decoder_layers=0, cross_layers=0))
    same(committed(model, given, abreast=True, **settings), committed(model, given, **settings))
    assert [rounds for _, rounds in spent] == [0, 0]


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
