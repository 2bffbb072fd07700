"""Translations that are given are read in one pass, and say what they say where they are read token after token."""

import importlib

import pytest
from test_abreast import SHORT, VARIANTS, VOCABULARY, build, documents, same
from test_at_once import opened

from docmt.decoding import SearchConfig, translate_documents
from docmt.decoding.ensemble import Ensemble
from docmt.model.systems import Concat
from docmt.text import SpecialTokens
from variants import SYSTEMS

search = importlib.import_module("docmt.decoding.search")
CARRIED = {"carry": 2, "instance_tokens": 40}
MODELS = {name: (settings, CARRIED) for name, settings in VARIANTS.items()}
MODELS["windows"] = ({"system": "concat", "concat": Concat(keep="prefix", sentences=3)}, {})
MODELS["windows, distances"] = ({**MODELS["windows"][0], "position_encoding": "relative"}, {})
MODELS["linear windows"] = (SYSTEMS["concat, linear, gates"], {})
MODELS["what was said before"] = ({"family": "marian", **SYSTEMS["hierarchical on both sides"]}, {})


def translated(model, given, config):
    return translate_documents(model, given, SpecialTokens(VOCABULARY), config)


@pytest.mark.parametrize("beams", [{"beam": 1}, {"beam": 3, "n_best": 2}], ids=str)
@pytest.mark.parametrize("name", MODELS)
def test_the_same_for_every_rank(name, beams, monkeypatch):
    settings, also = MODELS[name]
    config, read = SearchConfig(**beams, **also, **SHORT), []
    model, given = opened(build(0, **settings)), documents(0, sentences=8 if also else 6)
    if config.beam > 1:
        model = Ensemble([model, opened(build(7, **settings))])
    with monkeypatch.context() as patch:
        patch.setattr(search, "_one_by_one", lambda drafts, real=search._one_by_one: read.append(1) or real(drafts))
        ours = translated(model, given, config)
    with monkeypatch.context() as patch:
        patch.setattr(search, "has_pasts", lambda model: False)
        theirs = translated(model, given, config)
    for one, other in zip(ours, theirs, strict=True):
        same(one, other)
    assert read
