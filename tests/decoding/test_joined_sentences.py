"""Models whose sentences are joined by one token, and the published search of such models."""

from contextlib import nullcontext

import pytest
import torch
from reference_search import (
    DOCUMENTS,
    SHORT_LIMITS,
    SPECIALS,
    build,
    make_inputs,
    score_documents,
    shift_joined,
    translate_documents,
)
from test_beam_search import check_steps

from docmt.core.errors import DocmtError
from docmt.decoding import ContextConfig, SearchConfig
from docmt.decoding.beam_search import BeamSearch
from docmt.decoding.search_rules import SearchRow
from docmt.model.systems import Concat
from variants import JOINED


def test_an_empty_sentence_between_joined_ones_fades_in_steps_as_in_a_whole_pass():
    """Its token ends it right after the previous sentence ended: both gates apply."""
    for name in ("softmax, keep last, rfa", "linear, gates, keep prefix, rfa"):
        model = build(**JOINED[name])
        streams = [shift_joined([[20, 21], [], [23, 10 + beam], [], []]) for beam in range(3)]
        inputs = make_inputs(model, [DOCUMENTS[2]])
        check_steps(model, inputs, SearchRow(range(5), [1] * 5), streams, alike_until=4)


@pytest.mark.parametrize(
    ("family", "keep", "implementation", "message"),
    [
        ("rfa", "prefix", "thumt", r"thumt does not fit models of family rfa\. Choose docmt or rfa"),
        ("rfa", "last", "gtransformer", r"gtransformer does not fit models of family rfa\. Choose docmt or rfa"),
        ("docmt", "prefix", "rfa", r"rfa does not fit models of family docmt\. Choose docmt"),
        (
            "rfa",
            "last",
            "rfa",
            r"rfa needs a model that continues its earlier translations .*model\.concat\.window_decoding prefix",
        ),
    ],
)
def test_published_searches_of_other_models_are_refused(family, keep, implementation, message):
    model = build(family=family, system="concat", concat=Concat(window_decoding=keep))
    with pytest.raises(DocmtError, match=message):
        translate_documents(model, DOCUMENTS, SPECIALS, SearchConfig(implementation=implementation))


def test_the_published_search_of_windows_keeps_one_sentence_each():
    """Models that like the joining token generate empty sentences, and more than one."""
    config, empty = SearchConfig(beam=3, n_best=2, implementation="rfa", **SHORT_LIMITS), 0
    for seed in range(2):
        model = build(seed, **JOINED["linear, gates, keep prefix, rfa"])
        with torch.no_grad():
            model.target_tokens.weight[SPECIALS.bos] *= 2
        for document, ranks in zip(DOCUMENTS, translate_documents(model, DOCUMENTS, SPECIALS, config), strict=True):
            for hypothesis in ranks:
                assert len(hypothesis.sentences) == len(document)
                assert not hypothesis.miscounted
                empty += sum(not sentence for sentence in hypothesis.sentences[1:])
                scored = score_documents(model, [document], [hypothesis.sentences], SPECIALS, config)[0]
                assert hypothesis.score == pytest.approx(scored.score, abs=1e-5)
    assert empty


def test_the_published_search_of_a_model_with_another_window_mode():
    """Scores do not depend on the window mode."""
    config, context = (
        SearchConfig(beam=2, implementation="rfa", **SHORT_LIMITS),
        ContextConfig(window_decoding="prefix"),
    )
    model = build(2, **{**JOINED["linear, gates, keep prefix, rfa"], "concat": Concat(sentences=3, attention="linear")})
    n_best = translate_documents(model, DOCUMENTS, SPECIALS, config, context=context)
    for document, ranks in zip(DOCUMENTS, n_best, strict=True):
        scored = score_documents(model, [document], [ranks[0].sentences], SPECIALS, config)[0]
        assert ranks[0].score == pytest.approx(scored.score, abs=1e-5)


def test_a_prefix_that_leaves_no_room_in_the_published_search_is_refused(monkeypatch):
    monkeypatch.setattr("docmt.decoding.search_rules.RFA_MAX_TOKENS", 33)
    model = build(**JOINED["linear, gates, keep prefix, rfa"])
    inputs, config = make_inputs(model, DOCUMENTS[:1]), SearchConfig(implementation="rfa")
    for words, message in (
        (31, ""),
        (32, r"before a sentence have 33 tokens, .* allows 33 with the sentence\. Choose docmt"),
    ):
        rows = [SearchRow(range(3), [3, 1, 4], [[5] * words])]
        with pytest.raises(DocmtError, match=message) if message else nullcontext():
            beams = BeamSearch(model, model.compute_memories(inputs), rows, SPECIALS, config)
            with torch.inference_mode():
                while beams.unfinished:
                    beams.step()
            hypothesis = max(beams.finished[0], key=lambda hypothesis: hypothesis.score)
            assert (hypothesis.sentences[0], hypothesis.chosen_tokens) == ([5] * words, 34)
