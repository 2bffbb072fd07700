"""Translating in bfloat16: nearly the same numbers, the same guarantees."""

import copy

import pytest
import torch

from docmt.decoding import SearchConfig, score_documents, translate_documents
from docmt.decoding.precision import PackedLinear, computing_in, lower_precision
from docmt.model import ModelConfig, TranslationModel
from docmt.text import SpecialTokens

SPECIALS = SpecialTokens(vocabulary_size=40)
DOCUMENTS = [[[5, 6, 7], [8], [9, 10, 11, 12]], [[13, 14]]]


@pytest.mark.parametrize("system", ["group", "document"])
def test_bfloat16_scores_are_near_those_of_float32(system):
    torch.manual_seed(0)
    config = ModelConfig(
        system=system,
        width=32,
        feed_forward=64,
        heads=4,
        encoder_layers=2,
        decoder_layers=2,
        vocabulary_size=40,
        dropout=0.0,
    )
    exact = TranslationModel(config).eval()
    lowered = lower_precision(copy.deepcopy(exact), "bfloat16")
    assert lowered.tokens.weight.dtype == lowered.decoder[0].feed_forward.inner.weight.dtype == torch.bfloat16
    packs = PackedLinear.available(torch.device("cpu"))
    assert isinstance(lowered.projection, PackedLinear) == packs
    assert lowered.decoder[0].attention_residual.norm.weight.dtype == torch.float32
    search = SearchConfig(beam=3)
    with computing_in(lowered, "bfloat16"):
        translated = [found[0] for found in translate_documents(lowered, DOCUMENTS, SPECIALS, search)]
    targets = [hypothesis.sentences for hypothesis in translated]
    assert [len(target) for target in targets] == [3, 1]
    if not any(hypothesis.miscounted for hypothesis in translated):
        for own, wanted in zip(translated, score_documents(exact, DOCUMENTS, targets, SPECIALS, search), strict=True):
            assert own.score == pytest.approx(wanted.score, abs=0.05)


def test_float32_is_left_alone():
    model = TranslationModel(ModelConfig(preset="tiny", vocabulary_size=40))
    assert lower_precision(model, "float32") is model
    assert all(parameter.dtype == torch.float32 for parameter in model.parameters())


@pytest.mark.skipif(not PackedLinear.available(torch.device("cpu")), reason="no bfloat16 products on this processor")
@pytest.mark.parametrize("shape", [(1, 48), (5, 48), (300, 48), (2, 3, 48)])
@pytest.mark.parametrize("bias", [True, False])
def test_packed_weights_give_the_same_product(shape, bias):
    torch.manual_seed(1)
    linear = torch.nn.Linear(48, 31, bias=bias).bfloat16()
    x = torch.randn(shape)
    with torch.inference_mode():
        result = PackedLinear(linear.weight, linear.bias)(x)
        wanted = torch.nn.functional.linear(
            x.bfloat16().double(), linear.weight.double(), linear.bias.double() if bias else None
        )
    assert result.dtype == torch.bfloat16 and result.shape == (*shape[:-1], 31)
    assert torch.allclose(result.double(), wanted, rtol=2**-8, atol=2**-8)
