"""Configs as docmt 0.3.0 stored them, with its names of settings, are read as today's."""

import pytest

from docmt.core.settings import flatten, to_mapping
from docmt.model import ModelConfig
from docmt.model.earlier_versions import with_current_names

COMMON = {"vocabulary_size": 30, "width": 8, "feed_forward": 8, "heads": 2, "encoder_layers": 1, "decoder_layers": 1}
STORED = [
    (
        {"system": "group", "group": {"top": "global", "join": "exact", "global_from": "local", "gate_bias": 3.0}},
        {"group.top_attention": "global", "group.fusion": "identity", "group.global_start": "local"},
    ),
    ({"system": "group", "group": {"join": "published"}}, {"group.fusion": "published"}),
    ({"system": "concat", "concat": {"keep": "prefix"}}, {"concat.window_decoding": "prefix"}),
    ({"system": "context", "context": {"branch": "published"}}, {"context.fusion": "published"}),
    ({"system": "context", "context": {"branch": "exact"}}, {"context.fusion": "identity"}),
    (
        {"system": "multihop", "multihop": {"branch": "exact", "context": "references"}},
        {"multihop.fusion": "identity", "multihop.target_context": "references"},
    ),
    ({"system": "hierarchical", "hierarchical": {"branch": "exact"}}, {"hierarchical.fusion": "identity"}),
    (
        {
            "system": "concat",
            "concat": {"attention": "linear"},
            "linear": {
                **{"map": "random", "drawing": "quasi", "temperature": "dimension"},
                **{"gate": "decay", "gates": "layer", "gate_start": 1.0, "rescale": False},
            },
        },
        {
            "linear.feature_map": "random",
            "linear.feature_sampling": "quasi",
            "linear.temperature_per": "dimension",
            "linear.gate_per": "layer",
            "linear.gate_bias": 1.0,
            "linear.rescale_keys": False,
        },
    ),
    ({"system": "sentence", "output": "own"}, {"output": "untied"}),
    (
        {"system": "sentence", "family": "m2m_100", "source_mark": [7], "target_mark": [8]},
        {"source_language_ids": [7], "target_language_ids": [8]},
    ),
]


@pytest.mark.parametrize(("stored", "expected"), STORED)
def test_settings_of_0_3_0_keep_their_meaning(stored, expected):
    config = ModelConfig.from_dict({**COMMON, **stored})
    values = flatten(to_mapping(config))
    assert {name: values[name] for name in expected} == expected
    assert ModelConfig.from_dict(to_mapping(config)) == config


@pytest.mark.parametrize(("stored", "expected"), [("none", "docmt"), ("thumt", "thumt"), ("rfa", "rfa")])
def test_search_settings_of_0_3_0_keep_their_meaning(stored, expected):
    current = with_current_names({"beam": 4, "compatibility": stored})
    assert current == {"beam": 4, "implementation": expected}
