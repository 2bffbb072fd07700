"""Translations that are given are read in one pass, and say what they say where they are read token after token."""

import random

import pytest
import torch

from docmt.decoding import ContextConfig, SearchConfig, beam_search, translate_documents
from docmt.decoding.models import Ensemble
from docmt.model import ModelConfig, TranslationModel
from docmt.model.model_config import Linear
from docmt.model.systems import Concat, Group
from docmt.text import SpecialTokens
from variants import CONVENTIONS, SYSTEMS, in_tiers

VOCABULARY = 60
SIZES = {"vocabulary_size": VOCABULARY, "width": 16, "feed_forward": 32, "heads": 2, "instance_tokens": 100}
LAYERS = {"encoder_layers": 2, "decoder_layers": 2}
SHORT = {"max_length_ratio": 1.0, "max_length_extra": 4.0}  # random models seldom end by themselves
VARIANTS = {
    "positions by sentence": {"positions": "sentence"},
    "positions through the document": {"positions": "document"},
    "one layer over the document": {"group": Group(decoder_layers=1, cross_layers=1)},
    "the document alone": {"group": Group(top_attention="global"), "normalization": "pre"},
    "the document in all layers": {"group": Group(self_locality=False, cross_locality=False)},
    "learned positions": {"position_encoding": "learned", "max_positions": 400, "positions": "document"},
    "linear, fading": {
        "group": Group(global_attention="linear", top_attention="global"),
        "linear": Linear(gate="decay"),
    },
    "linear, averaging": {
        "group": Group(global_attention="linear", self_locality=False),
        "linear": Linear(feature_map="random", features=5, cross_features=7, gate="average", gate_bias=0.5),
    },
    **{name: own for name, own in CONVENTIONS.items() if own.get("system", "group") == "group"},
}
CARRIED = {"overlap": 2, "instance_tokens": 40}
MODELS = {name: (settings, CARRIED) for name, settings in VARIANTS.items()}
MODELS["windows"] = ({"system": "concat", "concat": Concat(window_decoding="prefix", sentences=3)}, {})
MODELS["windows, distances"] = ({**MODELS["windows"][0], "position_encoding": "relative"}, {})
MODELS["linear windows"] = (SYSTEMS["concat, linear, gates"], {})
MODELS["what was said before"] = ({"family": "marian", **SYSTEMS["hierarchical on both sides"]}, {})


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


def same(found, expected):
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.sentences == theirs.sentences
        assert ours.sentence_tokens == theirs.sentence_tokens
        assert ours.sentence_scores == pytest.approx(theirs.sentence_scores, abs=1e-5)
        assert ours.score == pytest.approx(theirs.score, abs=1e-5)
        assert ours.at_limit == theirs.at_limit


def opened(model):
    """The same where what begins closed lets others through."""
    torch.manual_seed(5)
    with torch.no_grad():
        for weights in model.parameters():
            if not weights.any():
                weights.normal_(std=0.5)
    return model


QUICK = {
    "one layer over the document",
    "linear, fading",
    "relative positions, gated",
    "linear windows",
    "what was said before",
}


def translated(model, given, config, context):
    return translate_documents(model, given, SpecialTokens(VOCABULARY), config, context=context)


@pytest.mark.parametrize("search", [{"beam": 1}, {"beam": 3, "n_best": 2}], ids=str)
@pytest.mark.parametrize("name", in_tiers(MODELS, QUICK))
def test_the_same_for_every_rank(name, search, monkeypatch):
    settings, also = MODELS[name]
    config, context, read = SearchConfig(**search, **SHORT), ContextConfig(**also), []
    model, given = opened(build(0, **settings)), documents(0, sentences=8 if also else 6)
    if config.beam > 1:
        model = Ensemble([model, opened(build(7, **settings))])
    with monkeypatch.context() as patch:
        patch.setattr(
            beam_search, "read_prefixes", lambda *given, real=beam_search.read_prefixes: read.append(1) or real(*given)
        )
        ours = translated(model, given, config, context)
    with monkeypatch.context() as patch:
        patch.setattr(beam_search, "can_read_prefixes", lambda model: False)
        theirs = translated(model, given, config, context)
    for one, other in zip(ours, theirs, strict=True):
        same(one, other)
    assert read
