"""Instances that are translated at the same time say what they say one after the other."""

import pytest
import torch
from test_abreast import SHORT, VOCABULARY, build, documents, same

from docmt.core.errors import DocmtError
from docmt.decoding import SearchConfig, at_once, orders, translate_documents
from docmt.decoding.ensemble import Ensemble
from docmt.model.systems import Concat, Group, Hierarchical
from docmt.text import SpecialTokens

SYSTEMS = {
    "windows after their translations": ({"system": "concat", "concat": Concat(keep="prefix")}, {}),
    "windows chosen by the search": ({"system": "concat", "concat": Concat(sentences=3)}, {"keep": "prefix"}),
    "with linear attention": ({"system": "concat", "concat": Concat(keep="prefix", attention="linear")}, {}),
    "what was said before": ({"system": "hierarchical", "hierarchical": Hierarchical(side="decoder", sentences=2)}, {}),
    "on both sides": ({"system": "hierarchical", "hierarchical": Hierarchical(side="both", sentences=2)}, {}),
    "sentences that are carried": ({"system": "group"}, {"carry": 2, "instance_tokens": 30}),
    "linear attention with carry": ({"group": Group(global_attention="linear")}, {"carry": 1, "instance_tokens": 25}),
}
SEARCHES = [{"beam": 1}, {"beam": 2, "n_best": 2, "batch_tokens": 40}]


def opened(model):
    """The same where what begins closed lets others through."""
    torch.manual_seed(5)
    with torch.no_grad():
        for weights in model.parameters():
            if not weights.any():
                weights.normal_(std=0.5)
    return model


def both(model, given, **settings):
    """Every rank of every document, at once and one after the other."""
    configs = [SearchConfig(abreast=abreast, **SHORT, **settings) for abreast in (True, False)]
    return [translate_documents(model, given, SpecialTokens(VOCABULARY), config) for config in configs]


@pytest.fixture
def rounds(monkeypatch):
    """How many translations of instances each round of each search at once took, and how many were left."""
    found, real = [], orders.translate_at_once

    def recorded(task, translate, count):
        sizes = []

        def noted(some, numbers, number_of_round):
            if number_of_round > len(sizes):
                sizes.append(0)
            sizes[number_of_round - 1] += len(numbers)
            translate(some, numbers, number_of_round)

        left = real(task, noted, count)
        own = [n for i in left for n in range(int(task.instances.own[i]), int(task.instances.last[i]))]
        assert not any(task.start + n in task.said for n in own), "a draft stayed"
        found.append((sizes, len(left)))
        return left

    monkeypatch.setattr(orders, "translate_at_once", recorded)
    return found


@pytest.mark.parametrize(("risk", "search"), [(100.0, SEARCHES[0]), (100.0, SEARCHES[1]), (1.0, SEARCHES[1])], ids=str)
@pytest.mark.parametrize("system", SYSTEMS)
def test_the_same_for_every_rank(system, search, risk, rounds, monkeypatch):
    settings, also = SYSTEMS[system]
    monkeypatch.setattr(at_once, "RISK", risk)
    for seed in range(2):
        for ours, theirs in zip(*both(opened(build(seed, **settings)), documents(seed), **search, **also), strict=True):
            same(ours, theirs)
    if risk == 100.0:
        assert all(left == 0 for _, left in rounds)
        assert max(len(sizes) for sizes, _ in rounds) > 1, "no draft ever changed"


def test_some_are_left_where_too_little_stays(rounds, monkeypatch):
    """Found one after the other from where it stopped, and everything counted once."""
    monkeypatch.setattr(at_once, "RISK", 0.35)
    settings, also = SYSTEMS["what was said before"]
    given, counted = documents(3, sentences=12), []
    config = SearchConfig(beam=2, abreast=True, **also)
    ranked = translate_documents(opened(build(3, **settings)), given, SpecialTokens(VOCABULARY), config, counted.append)
    assert sum(counted) == sum(map(len, given))
    ((sizes, left),) = rounds
    found = [number for ranks in ranked for number in ranks[0].rounds]
    assert found.count(0) == left
    assert max(found) == len(sizes)
    assert len(sizes) > 1
    assert 0 < left < sum(map(len, given))


@pytest.mark.parametrize("error", [DocmtError("a draft"), MemoryError()], ids=["draft", "memory"])
def test_what_fails_at_once_is_tried_one_by_one(error, rounds, monkeypatch):
    """No draft stays where its instance failed: what comes after it sees the same as ever."""
    monkeypatch.setattr(at_once, "RISK", 100.0)
    failed, real = [], orders.search

    def failing(model, memories, rows, *others):
        if len(failed) < 2 and any(row.prefix for row in rows) and len(rows) > 1:
            failed.append(rows)
            raise error
        return real(model, memories, rows, *others)

    for system in ("windows after their translations", "on both sides"):
        settings, also = SYSTEMS[system]
        model, given = opened(build(2, **settings)), documents(2)
        expected = translate_documents(model, given, SpecialTokens(VOCABULARY), SearchConfig(beam=2, **also))
        failed.clear()
        with monkeypatch.context() as patch:
            patch.setattr(orders, "search", failing)
            failed.append(0)
            config = SearchConfig(beam=2, abreast=True, **also)
            found = translate_documents(model, given, SpecialTokens(VOCABULARY), config)
        for ours, theirs in zip(found, expected, strict=True):
            same(ours, theirs)
        assert len(failed) == 2
        assert rounds[-1][1] == sum(map(len, given))


def test_nothing_is_risked_where_it_cannot_gain(rounds):
    """Short documents side by side have rows enough."""
    settings, also = SYSTEMS["windows after their translations"]
    given = documents(1, count=60, sentences=2)
    same_as(both(build(1, **settings), given, beam=5, **also))
    assert rounds == [([], sum(map(len, given)))]


def same_as(pair):
    for ours, theirs in zip(*pair, strict=True):
        same(ours, theirs)


def test_an_ensemble_and_empty_sentences(rounds, monkeypatch):
    monkeypatch.setattr(at_once, "RISK", 100.0)
    settings, also = SYSTEMS["windows after their translations"]
    members = Ensemble([opened(build(seed, **settings)) for seed in range(2)])
    same_as(both(members, [*documents(2), [[], [7], [], [8, 9], []], []], beam=2, **also))
    assert rounds


@pytest.mark.parametrize(
    ("settings", "search", "sentence"),
    [
        ({"system": "sentence"}, {"beam": 1}, "search.abreast is for systems that see their own earlier translations"),
        (
            {"system": "concat"},
            {"beam": 1},
            "is for search.keep prefix with this concat model: choose that, or leave it out",
        ),
        ({"system": "document"}, {"beam": 1}, "not for this document model: leave it out"),
        ({"system": "group"}, {"beam": 2}, "choose beam 1, or add one of the others"),
    ],
    ids=str,
)
def test_what_it_is_not_for_is_refused(settings, search, sentence):
    from docmt.decoding.task import check_instances

    with pytest.raises(DocmtError, match=sentence):
        check_instances(build(1, **settings).config, SearchConfig(abreast=True, **search))
