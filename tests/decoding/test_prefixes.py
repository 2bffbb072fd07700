"""Supplied translations read in one pass give the results of reading them token by token."""

import random

import pytest
import torch

from docmt.decoding import ContextConfig, SearchConfig, beam_search, translate_documents
from docmt.decoding.ensembles import Ensemble
from docmt.model import ModelConfig, TranslationModel
from docmt.model.model_config import Linear
from docmt.model.systems import Concat, Group
from docmt.text import SpecialTokens
from variants import CONVENTIONS, SYSTEMS, in_tiers

VOCABULARY = 60
SIZES = {"vocabulary_size": VOCABULARY, "width": 16, "feed_forward": 32, "heads": 2, "instance_tokens": 100}
LAYERS = {"encoder_layers": 2, "decoder_layers": 2}
SHORT_LIMITS = {"max_length_ratio": 1.0, "max_length_extra": 4.0}  # random models seldom end by themselves
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
OVERLAP = {"overlap": 2, "instance_tokens": 40}
MODELS = {name: (settings, OVERLAP) for name, settings in VARIANTS.items()}
MODELS["windows"] = ({"system": "concat", "concat": Concat(window_decoding="prefix", sentences=3)}, {})
MODELS["windows, distances"] = ({**MODELS["windows"][0], "position_encoding": "relative"}, {})
MODELS["linear windows"] = (SYSTEMS["concat, linear, gates"], {})
MODELS["what was said before"] = ({"family": "marian", **SYSTEMS["hierarchical on both sides"]}, {})


def build(seed, kind=ModelConfig, **settings):
    """Build a random float64 model with weights so large that sentences influence each other."""
    torch.manual_seed(seed)
    model = TranslationModel(kind(**{"system": "group", **SIZES, **LAYERS, **settings})).double().eval()
    with torch.no_grad():
        for name, weights in model.named_parameters():
            weights.mul_(random.Random(seed).choice([1.0, 2.0, 3.0]))
            if "distances" in name or name.endswith("global.output.weight"):  # these begin at zero
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


def check_equal(results, expected):
    for result, reference in zip(results, expected, strict=True):
        assert result.sentences == reference.sentences
        assert result.sentence_tokens == reference.sentence_tokens
        assert result.sentence_scores == pytest.approx(reference.sentence_scores, abs=1e-5)
        assert result.score == pytest.approx(reference.score, abs=1e-5)
        assert result.at_limit == reference.at_limit


def open_gates(model):
    """Return the model with random weights where gates begin closed."""
    torch.manual_seed(5)
    with torch.no_grad():
        for weights in model.parameters():
            if not weights.any():
                weights.normal_(std=0.5)
    return model


def translate(model, sources, config, context):
    return translate_documents(model, sources, SpecialTokens(VOCABULARY), config, context=context)


@pytest.mark.parametrize(
    "search", [pytest.param({"beam": 1}, marks=pytest.mark.full), {"beam": 3, "n_best": 2}], ids=str
)
@pytest.mark.parametrize("name", in_tiers(MODELS, ["relative positions, gated"]))
def test_one_pass_equals_token_by_token_for_every_rank(name, search, monkeypatch):
    settings, context_settings = MODELS[name]
    config = SearchConfig(**search, **SHORT_LIMITS, sequential=True)
    context, calls = ContextConfig(**context_settings), []
    model, sources = open_gates(build(0, **settings)), documents(0, sentences=8 if context_settings else 6)
    if config.beam > 1:
        model = Ensemble([model, open_gates(build(7, **settings))])
    with monkeypatch.context() as patch:
        patch.setattr(
            beam_search,
            "read_prefixes",
            lambda *sources, real=beam_search.read_prefixes: calls.append(1) or real(*sources),
        )
        in_one_pass = translate(model, sources, config, context)
    with monkeypatch.context() as patch:
        patch.setattr(beam_search, "can_read_prefixes", lambda model: False)
        by_steps = translate(model, sources, config, context)
    for one, other in zip(in_one_pass, by_steps, strict=True):
        check_equal(one, other)
    assert calls
