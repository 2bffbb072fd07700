"""Sentences longer than a chunk of linear attention, documents of one sentence, empty lines, too long windows."""

import pytest
import torch

from docmt.decoding import SearchConfig, score_documents, translate_documents
from docmt.model import ModelConfig, TranslationModel
from docmt.model.linear_kernels import CHUNK
from docmt.model.model_config import Linear
from docmt.model.systems import Concat, Group
from docmt.text import SpecialTokens
from variants import in_tiers

SPECIALS = SpecialTokens(40)
SIZES = {"width": 16, "feed_forward": 32, "heads": 2, "encoder_layers": 1, "decoder_layers": 1, "dropout": 0.0}
LINEAR = Linear(features=6, cross_features=8, gate="decay", gate_bias=0.0)
SYSTEMS = {
    "group": {"group": Group(encoder_layers=1, decoder_layers=1, cross_layers=1)},
    "group, linear": {"group": Group(global_attention="linear"), "linear": LINEAR},
    "concat, linear": {"system": "concat", "concat": Concat(sentences=15, attention="linear"), "linear": LINEAR},
    "concat, linear, prefix": {
        "system": "concat",
        "concat": Concat(sentences=15, attention="linear", window_decoding="prefix"),
        "linear": LINEAR,
    },
}
LONG = [5 + number % 30 for number in range(2 * CHUNK)]
DOCUMENTS = [[[], LONG, [7], [], [], [8, 9], LONG[:CHUNK], []], [[6]], [LONG], [[]], [[5, 6], [7]]]


@pytest.mark.parametrize("instance_tokens", [pytest.param(60, marks=pytest.mark.full), 2000])
@pytest.mark.parametrize("name", in_tiers(SYSTEMS, ["concat, linear, prefix"]))
def test_scores_equal_the_search_and_documents_are_independent(name, instance_tokens):
    torch.manual_seed(4)
    model = TranslationModel(
        ModelConfig(vocabulary_size=40, instance_tokens=instance_tokens, **SIZES, **SYSTEMS[name])
    ).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    config = SearchConfig(beam=2, max_length_ratio=0.6, max_length_extra=3, min_length=2)
    translations = [ranks[0] for ranks in translate_documents(model, DOCUMENTS, SPECIALS, config)]
    scored = score_documents(
        model, DOCUMENTS, [translation.sentences for translation in translations], SPECIALS, config
    )
    for document, translation, scores in zip(DOCUMENTS, translations, scored, strict=True):
        assert [bool(sentence) for sentence in translation.sentences] == [bool(sentence) for sentence in document]
        assert translation.sentence_scores == pytest.approx(scores.sentence_scores, rel=1e-4, abs=1e-4)
        (alone,) = translate_documents(model, [document], SPECIALS, config)
        assert alone[0].sentences == translation.sentences
    assert max(len(sentence) for translation in translations for sentence in translation.sentences) > CHUNK
