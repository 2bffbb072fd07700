"""Translating in bfloat16: nearly the same numbers, the same guarantees."""

import copy

import pytest
import reference_search
import torch

from docmt.core.errors import DocmtError
from docmt.decoding import SearchConfig, score_documents, translate_documents
from docmt.decoding.logits import log_normalizers, top_tokens
from docmt.model import ModelConfig, TranslationModel
from docmt.model.attention import Attention
from docmt.model.products import FloatLinear, Int8Linear, PackedLinear, precision_context, prepare_products
from docmt.text import SpecialTokens
from variants import SYSTEMS, in_tiers

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
    lowered = prepare_products(copy.deepcopy(exact), "bfloat16")
    assert lowered.tokens.weight.dtype == lowered.decoder[0].feed_forward.inner.weight.dtype == torch.bfloat16
    packs = PackedLinear.available(torch.device("cpu"))
    assert isinstance(lowered.projection, PackedLinear) == packs
    assert lowered.decoder[0].attention_residual.norm.weight.dtype == torch.float32
    search = SearchConfig(beam=3)
    with precision_context(lowered, "bfloat16"):
        translated = [ranks[0] for ranks in translate_documents(lowered, DOCUMENTS, SPECIALS, search)]
    targets = [hypothesis.sentences for hypothesis in translated]
    assert [len(target) for target in targets] == [3, 1]
    if not any(hypothesis.miscounted for hypothesis in translated):
        for hypothesis, wanted in zip(
            translated, score_documents(exact, DOCUMENTS, targets, SPECIALS, search), strict=True
        ):
            assert hypothesis.score == pytest.approx(wanted.score, abs=0.05)


def test_float32_keeps_its_weights():
    model = TranslationModel(ModelConfig(preset="tiny", vocabulary_size=40))
    before, stored = dict(model.named_parameters()), model.state_dict().keys()
    assert prepare_products(model, "float32") is model
    after = dict(model.named_parameters())
    assert model.state_dict().keys() == stored  # so that a translator's model can be saved
    assert after.keys() == before.keys() and all(after[name] is before[name] for name in before)


needs_integers = pytest.mark.skipif(
    not Int8Linear.available(torch.device("cpu")), reason="no products of 8-bit integers on this processor"
)


@pytest.mark.skipif(not FloatLinear.available(torch.device("cpu")), reason="torch was built without oneDNN")
@pytest.mark.parametrize("bias", [True, False])
def test_products_of_float32_are_the_same(bias):
    torch.manual_seed(1)
    for shape in ((1, 512), (3, 512), (4, 512), (31, 512), (32, 512), (2, 3, 512)):
        linear, x = torch.nn.Linear(512, 2048, bias=bias), torch.randn(shape)
        product = FloatLinear(linear.weight, linear.bias)
        with torch.inference_mode():
            assert torch.allclose(product(x), linear(x), rtol=1e-5, atol=1e-5)
            assert torch.allclose(product.double()(x.double()), linear.double()(x.double()))


def test_products_of_float32_have_gradients():
    linear = torch.nn.Linear(512, 2048)
    FloatLinear(linear.weight, linear.bias)(torch.randn(8, 512)).sum().backward()
    assert linear.weight.grad is not None and bool(linear.weight.grad.any())


@needs_integers
@pytest.mark.parametrize("bias", [True, False])
def test_a_row_in_integers_does_not_depend_on_other_rows(bias):
    torch.manual_seed(1)
    linear = torch.nn.Linear(48, 31, bias=bias)
    x = torch.randn(70, 48) * torch.logspace(-4, 4, 70)[:, None]
    x[3] = 0
    product = Int8Linear(linear.weight, linear.bias)
    with torch.inference_mode():
        result, wanted = product(x), linear(x)
        assert result.dtype == torch.float32
        assert torch.equal(result, torch.cat([product(row[None]) for row in x]))
        assert torch.equal(result.view(2, 35, 31), product(x.view(2, 35, 48)))
        # Of 127 steps, rounded on both sides.
        assert bool(((result - wanted).norm(dim=-1) <= 0.02 * wanted.norm(dim=-1)).all())
        assert torch.equal(result[3], wanted[3])
        x[5, 7] = torch.nan
        assert bool(product(x)[5].isnan().all()) and torch.equal(product(x)[6], result[6])


@needs_integers
@pytest.mark.parametrize("output", ["tied", pytest.param("untied", marks=pytest.mark.full)])
def test_scores_in_int8_are_near_those_of_float32(output):
    torch.manual_seed(0)
    sizes = {"width": 64, "feed_forward": 128, "heads": 4, "encoder_layers": 2, "decoder_layers": 2}
    config = ModelConfig(system="group", vocabulary_size=40, dropout=0.0, output=output, **sizes)
    exact = TranslationModel(config).eval()
    lowered = prepare_products(copy.deepcopy(exact), "int8")
    assert not any(isinstance(module, torch.nn.Linear) for module in lowered.modules())
    search = SearchConfig(beam=3)
    with precision_context(lowered, "int8"):
        translated = [ranks[0] for ranks in translate_documents(lowered, DOCUMENTS, SPECIALS, search)]
        targets = [hypothesis.sentences for hypothesis in translated]
        rescored = score_documents(lowered, DOCUMENTS, targets, SPECIALS, search)
    exactly = score_documents(exact, DOCUMENTS, targets, SPECIALS, search)
    for hypothesis, again, wanted in zip(translated, rescored, exactly, strict=True):
        assert hypothesis.score == pytest.approx(again.score, abs=1e-3)  # a value may lie on a border of rounding
        assert hypothesis.score == pytest.approx(wanted.score, abs=0.05)


def test_int8_is_refused_where_it_is_not_available(monkeypatch):
    monkeypatch.setattr(Int8Linear, "available", staticmethod(lambda device: False))
    model = TranslationModel(ModelConfig(preset="tiny", vocabulary_size=40))
    with pytest.raises(
        DocmtError, match=r"precision int8 is not available on this processor: .*\. Choose bfloat16 or float32"
    ):
        prepare_products(model, "int8")


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, marks=pytest.mark.full),
        {"family": "t5"},
        *(pytest.param({"system": name}, marks=pytest.mark.full) for name in ("hierarchical", "context")),
    ],
)
def test_joined_projections_give_the_same(options):
    torch.manual_seed(0)
    sizes = {"width": 32, "feed_forward": 64, "heads": 4, "encoder_layers": 2, "decoder_layers": 2, "dropout": 0.0}
    model = TranslationModel(ModelConfig(**{"system": "group", "vocabulary_size": 40, **sizes, **options})).double()
    joined = copy.deepcopy(model)
    count = 0
    for module in list(joined.modules()):
        if type(module) is Attention:
            module.join_projections()
            count += module.joint is not None
    assert count
    search = SearchConfig(beam=2)
    for one, other in zip(
        translate_documents(model.eval(), DOCUMENTS, SPECIALS, search),
        translate_documents(joined.eval(), DOCUMENTS, SPECIALS, search),
        strict=True,
    ):
        assert one[0].sentences == other[0].sentences
        assert one[0].score == pytest.approx(other[0].score, abs=1e-12)


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


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "int8"])
@pytest.mark.parametrize("family", ["docmt", "m2m_100", "t5", "thumt"])
def test_a_token_without_logit_is_never_generated(family, precision):
    if precision == "int8" and not Int8Linear.available(torch.device("cpu")):
        pytest.skip("no products of 8-bit integers on this processor")
    torch.manual_seed(0)
    sizes = {"width": 32, "feed_forward": 64, "heads": 4, "encoder_layers": 1, "decoder_layers": 1, "dropout": 0.0}
    exact = TranslationModel(ModelConfig(system="sentence", family=family, vocabulary_size=40, **sizes)).eval()
    lowered = prepare_products(copy.deepcopy(exact), precision)
    states = torch.randn(5, 32)
    with torch.inference_mode(), precision_context(lowered, precision):
        wanted, lowered_logits = exact.project(states).float(), lowered.project(states).float()
    assert torch.equal(lowered_logits.isneginf(), wanted.isneginf())
    has_logit = ~wanted.isneginf()
    assert torch.allclose(lowered_logits[has_logit], wanted[has_logit], atol=0.05)


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "int8"])
@pytest.mark.parametrize("name", in_tiers(SYSTEMS, ["group"]))
def test_every_system_translates_with_the_products_of_a_translator(name, precision):
    """Products replace the linear modules, which have other attributes. The scores are near those of the model."""
    if precision == "int8" and not Int8Linear.available(torch.device("cpu")):
        pytest.skip("no products of 8-bit integers on this processor")
    exact = reference_search.build(**{**SYSTEMS[name], "width": 32, "feed_forward": 64})
    lowered = prepare_products(copy.deepcopy(exact), precision)
    search = SearchConfig(beam=2, **reference_search.SHORT_LIMITS)
    documents, specials = reference_search.DOCUMENTS, reference_search.SPECIALS
    with precision_context(lowered, precision):
        translated = [ranks[0] for ranks in reference_search.translate_documents(lowered, documents, specials, search)]
    targets = [hypothesis.sentences for hypothesis in translated]
    exact_scores = reference_search.score_documents(exact, documents, targets, specials, search)
    for hypothesis, wanted in zip(translated, exact_scores, strict=True):
        if not hypothesis.miscounted:
            tolerance = {"float32": 1e-4, "bfloat16": 0.1, "int8": 0.2}[precision] * (1 + abs(wanted.score))
            assert hypothesis.score == pytest.approx(wanted.score, abs=tolerance)


@pytest.mark.parametrize("size", [40, 640, 1280, 3000, 70001])
@pytest.mark.parametrize("count", [1, 2, 10])
def test_top_tokens(size, count):
    torch.manual_seed(3)
    logits = torch.randn(30, size)
    logits[2] = -torch.inf
    logits[2, 7] = 1.0
    logits[4, -1] = 9.0
    ids = top_tokens(logits, count, torch.zeros(30, 1))
    assert torch.equal(logits.gather(1, ids), logits.topk(count, dim=-1).values)
    assert all(len(set(row)) == count for row in ids.tolist())
    offsets = torch.randn(10, 3)
    offsets[5, 1] = -torch.inf
    together = (logits.view(10, 3, size) + offsets[:, :, None]).flatten(1)
    index = top_tokens(logits, count, offsets)
    assert torch.equal(together.gather(1, index), together.topk(count, dim=-1).values)
    assert all(len(set(row)) == count for row in index.tolist())
    assert torch.allclose(log_normalizers(logits), logits.double().logsumexp(-1, keepdim=True).float())
