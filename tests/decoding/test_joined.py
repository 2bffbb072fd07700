"""Models whose sentences are joined by one mark, and the published search of such models."""

from contextlib import nullcontext

import pytest
import torch
from plain_search import DOCUMENTS, SHORT, SPECIALS, build, inputs_of, score_documents, shifted, translate_documents
from test_search import check_steps

from docmt.core.errors import DocmtError
from docmt.decoding import ContextConfig, SearchConfig
from docmt.decoding.beam_search import search
from docmt.decoding.rules import SearchRow
from docmt.model.systems import Concat
from variants import JOINED


def test_an_empty_sentence_between_joined_ones_fades_in_steps_as_in_a_whole_pass():
    """Its mark ends it and the one before has just ended: both gates act."""
    for name in JOINED:
        model = build(**JOINED[name])
        streams = [shifted([[20, 21], [], [23, 10 + beam], [], []]) for beam in range(3)]
        inputs = inputs_of(model, [DOCUMENTS[2]])
        check_steps(model, inputs, SearchRow(range(5), [1] * 5), streams, share_at=4)


@pytest.mark.parametrize(
    ("family", "keep", "implementation", "message"),
    [
        ("rfa", "prefix", "thumt", r"thumt is not for models of family rfa: choose none or rfa"),
        ("rfa", "last", "gtransformer", r"gtransformer is not for models of family rfa: choose none or rfa"),
        ("docmt", "prefix", "rfa", r"rfa is not for models of family docmt: choose none"),
        ("rfa", "last", "rfa", r"rfa is for models that translate after .*model\.concat\.keep prefix"),
    ],
)
def test_published_searches_of_other_models_are_refused(family, keep, implementation, message):
    model = build(family=family, system="concat", concat=Concat(window_decoding=keep))
    with pytest.raises(DocmtError, match=message):
        translate_documents(model, DOCUMENTS, SPECIALS, SearchConfig(implementation=implementation))


def test_the_published_search_of_windows_keeps_one_sentence_each_whatever_is_said():
    """Models that like the mark between sentences, and so say empty ones and more than one."""
    config, empty = SearchConfig(beam=3, n_best=2, implementation="rfa", **SHORT), 0
    for seed in range(4):
        model = build(seed, **JOINED["linear, gates, keep prefix, rfa"])
        with torch.no_grad():
            model.target_tokens.weight[SPECIALS.bos] *= 2
        for document, ranks in zip(DOCUMENTS, translate_documents(model, DOCUMENTS, SPECIALS, config), strict=True):
            for found in ranks:
                assert len(found.sentences) == len(document)
                assert not found.miscounted
                empty += sum(not sentence for sentence in found.sentences[1:])
                scored = score_documents(model, [document], [found.sentences], SPECIALS, config)[0]
                assert found.score == pytest.approx(scored.score, abs=1e-5)
    assert empty


def test_the_published_search_of_a_model_that_was_made_for_the_other_way():
    """Scores do not depend on the way."""
    config, context = SearchConfig(beam=2, implementation="rfa", **SHORT), ContextConfig(window_decoding="prefix")
    model = build(2, **{**JOINED["linear, gates, keep prefix, rfa"], "concat": Concat(sentences=3, attention="linear")})
    found = translate_documents(model, DOCUMENTS, SPECIALS, config, context=context)
    for document, ranks in zip(DOCUMENTS, found, strict=True):
        scored = score_documents(model, [document], [ranks[0].sentences], SPECIALS, config)[0]
        assert ranks[0].score == pytest.approx(scored.score, abs=1e-5)


def test_a_prefix_that_leaves_no_room_in_the_published_search_is_told(monkeypatch):
    monkeypatch.setattr("docmt.decoding.rules.MOST", 33)
    model = build(**JOINED["linear, gates, keep prefix, rfa"])
    inputs, config = inputs_of(model, DOCUMENTS[:1]), SearchConfig(implementation="rfa")
    for words, message in ((31, ""), (32, r"before a sentence have 33 tokens, .* at most 33: choose none")):
        rows = [SearchRow(range(3), [3, 1, 4], [[5] * words])]
        with pytest.raises(DocmtError, match=message) if message else nullcontext():
            [found] = search(model, model.memories(inputs), rows, SPECIALS, config)[0]
            assert (found.sentences[0], found.free_tokens) == ([5] * words, 34)
