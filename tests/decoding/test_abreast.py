"""Sentences that are decoded at the same time say what a search token after token says."""

import math
import random

import pytest
import torch

from docmt.decoding import SearchConfig, translate_documents
from docmt.decoding.abreast import Abreast
from docmt.decoding.ensemble import Ensemble
from docmt.model import ModelConfig, TranslationModel
from docmt.model.config import Linear
from docmt.model.systems import Group, Hierarchical, Needs
from docmt.text import SpecialTokens
from variants import CONVENTIONS

VOCABULARY = 60
SIZES = {"vocabulary_size": VOCABULARY, "width": 16, "feed_forward": 32, "heads": 2, "instance_tokens": 100}
LAYERS = {"encoder_layers": 2, "decoder_layers": 2}
SHORT = {"max_length_ratio": 1.0, "max_length_extra": 4.0}  # random models seldom end by themselves
LONG = {"linear, fading": {"max_length_extra": 10.0}}  # where sentences matter less to each other
VARIANTS = {
    "positions by sentence": {"positions": "sentence"},
    "positions through the document": {"positions": "document"},
    "one layer over the document": {"group": Group(decoder_layers=1, cross_layers=1)},
    "the document alone": {"group": Group(top="global"), "normalization": "pre"},
    "the document in all layers": {"group": Group(self_locality=False, cross_locality=False)},
    "learned positions": {"position_encoding": "learned", "max_positions": 400, "positions": "document"},
    "linear, fading": {"group": Group(global_attention="linear", top="global"), "linear": Linear(gate="decay")},
    "linear, averaging": {
        "group": Group(global_attention="linear", self_locality=False),
        "linear": Linear(map="random", features=5, cross_features=7, gate="average", gate_start=0.5),
    },
    **{name: own for name, own in CONVENTIONS.items() if own.get("system", "group") == "group"},
}


def build(seed, kind=ModelConfig, **settings):
    """A random model in float64 whose weights are so large that sentences matter to each other."""
    torch.manual_seed(seed)
    model = TranslationModel(kind(**{"system": "group", **SIZES, **LAYERS, **settings})).double().eval()
    with torch.no_grad():
        for name, weights in model.named_parameters():
            weights.mul_(random.Random(seed).choice([1.0, 2.0, 3.0]))
            if "distances" in name or name.endswith("whole.output.weight"):  # which begin at zero
                weights.normal_(std=0.5)
    return model


def documents(seed, count=3, sentences=7, words=8):
    generator = random.Random(seed)
    return [
        [
            [generator.randrange(5, VOCABULARY - 2) for _ in range(generator.randint(1, words))]
            for _ in range(generator.randint(1, sentences))
        ]
        for _ in range(count)
    ]


def recorded(kind, monkeypatch):
    """What every search of this kind takes; it never gives up."""
    monkeypatch.setattr(kind, "saved", lambda self, found: math.inf)
    monkeypatch.setattr(kind, "gained", lambda self, found: math.inf)
    done, run = [], kind.run

    def record(self):
        found = run(self)
        done.append(self.work)
        return found

    monkeypatch.setattr(kind, "run", record)
    return done


@pytest.fixture
def searched(monkeypatch):
    """What every search with sentences abreast took."""
    return recorded(Abreast, monkeypatch)


def both(model, given, **settings):
    """Translations abreast and token after token."""
    specials = SpecialTokens(VOCABULARY)
    configs = [SearchConfig(beam=1, abreast=abreast, **{**SHORT, **settings}) for abreast in (True, False)]
    return [[ranks[0] for ranks in translate_documents(model, given, specials, config)] for config in configs]


def same(found, expected):
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.sentences == theirs.sentences
        assert ours.sentence_tokens == theirs.sentence_tokens
        assert ours.sentence_scores == pytest.approx(theirs.sentence_scores, abs=1e-5)
        assert ours.score == pytest.approx(theirs.score, abs=1e-5)
        assert ours.at_limit == theirs.at_limit


@pytest.mark.parametrize("variant", VARIANTS)
def test_token_for_token(variant, searched):
    for seed in range(4):
        same(*both(build(seed, **VARIANTS[variant]), documents(seed), **LONG.get(variant, {})))
    assert max(work.rounds for work in searched) > 2, "sentences did not matter to each other"


class Whole(Hierarchical):
    """Attention to the target sentences before, one by one, in whole instances: as no system has it."""

    order, predicts = "documents", "all"

    def needs(self):
        return Needs()


class WithWhole(ModelConfig):
    chosen = property(lambda self: Whole(side="decoder", sentences=2, branch="published"))


def test_sentences_that_are_looked_at_one_by_one(searched):
    for seed in range(2):
        same(*both(build(seed, WithWhole), documents(seed)))
    assert max(work.rounds for work in searched) > 2


@pytest.mark.parametrize(
    "settings",
    [
        {"min_length": 4},
        {"max_length_ratio": 0, "max_length_extra": 3},
        {"temperature": 3.0},
        {"carry": 2, "instance_tokens": 40},
        {"batch_tokens": 1},
    ],
    ids=str,
)
def test_with_settings_of_the_search(settings, searched):
    for seed in range(4):
        same(*both(build(seed), documents(seed), **settings))
    assert searched


@pytest.mark.parametrize("other", [{"positions": "document"}, {"group": Group(global_attention="linear")}], ids=str)
def test_an_ensemble(other, searched):
    for seed in range(2):
        members = [build(seed), build(seed + 10, decoder_layers=1, **other)]
        same(*both(Ensemble(members), documents(seed)))
    assert searched


def test_empty_sentences_and_documents_of_one(searched):
    given = [[[7, 8], [], [9]], [[10, 11, 12]], [[], []]]
    same(*both(build(1), given))
    assert len(searched) == 1


def test_it_is_told_in_which_round_a_sentence_was_found(searched, monkeypatch):
    """Of sentences that were searched at the same time as others."""
    given = documents(3, count=1, sentences=12)
    (found,), (one_by_one,) = both(build(3), given, max_length_extra=10)
    assert len(found.rounds) == len(given[0])
    assert found.rounds == sorted(found.rounds)
    assert (min(found.rounds), max(found.rounds)) == (1, searched[0].rounds)
    assert one_by_one.rounds == []
    monkeypatch.setattr(Abreast, "saved", lambda self, found: math.inf if self.work.rounds < 2 else 0)
    (stopped,), _ = both(build(3), given, max_length_extra=10)
    assert stopped.rounds == [number if number <= 2 else 0 for number in found.rounds]
    assert 0 in stopped.rounds


def test_what_does_not_matter_is_not_done_again(searched):
    """Where the document is not seen, one pass confirms everything."""
    model = build(1, group=Group(decoder_layers=0, cross_layers=0))
    same(*both(model, documents(1)))
    assert [work.rounds for work in searched] == [1]


@pytest.mark.parametrize(
    "variant", ["positions by sentence", "the document in all layers", "linear, fading", *CONVENTIONS]
)
def test_what_is_final_stays_where_it_gives_up(variant, monkeypatch):
    """The rest is found token after token, after any number of rounds with any number of sentences."""
    settings, stopped = VARIANTS.get(variant), []
    if settings is None:
        pytest.skip("not a group model")

    def saved(self, found):
        """Worth it or not, by chance."""
        budget = chance.choice([math.inf, math.inf, 1.2 * max(self.lengths), 0]) + self.spent()
        stopped.append(sum(own.final for own in self.sentences) if budget == self.spent() else 0)
        return budget

    monkeypatch.setattr(Abreast, "saved", saved)
    for seed in range(1, 12):
        if seed > 3 and any(stopped):
            break
        chance = random.Random(seed)
        lengths = LONG.get(variant, {})
        same(*both(build(seed, **settings), documents(seed, sentences=9), **lengths))
        same(*both(build(seed, **settings), documents(seed, count=2), carry=2, instance_tokens=40, **lengths))
    assert any(stopped), "it never gave up after some were final"


def test_it_gives_up_where_little_is_kept():
    """Random models change their mind all the time: a search token after token takes over."""
    for seed in range(4):
        same(*both(build(seed), documents(seed, sentences=20)))


def test_one_long_sentence_does_not_make_all_others_as_long(searched):
    """All sentences would be filled up to it: rather token after token."""
    given = [[[7] * 60, *[[8, 9]] * 12]]
    same(*both(build(1), given, instance_tokens=200))
    assert not searched


def test_a_near_tie_does_not_throw_away_what_saw_final_sentences(searched, monkeypatch):
    """If a full pass says it were another, as it rounds otherwise: a search token after token said it, too."""
    verify = Abreast._verify

    def another(self):
        found = verify(self)
        first = self.next_ones()[0] if not all(own.final for own in self.sentences) else 0
        return found if self.sentences[first].final else {first: (0, 7), **found}

    expected, _ = both(build(3), documents(3, count=1))
    monkeypatch.setattr(Abreast, "_verify", another)
    found, _ = both(build(3), documents(3, count=1))
    assert found[0].sentences[0] == expected[0].sentences[0]
    assert found[0].rounds[0] == 1
