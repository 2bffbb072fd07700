"""A CUDA device computes what the processor does: states, gradients, translations and scores of every system."""

from copy import deepcopy

import pytest
import torch
from reference_search import DOCUMENTS, SPECIALS, build, make_inputs, score_documents, translate_documents

from docmt.decoding import SearchConfig
from docmt.model import kernels, pack
from variants import CONVENTIONS, FEW, JOINED, SYSTEMS, WIDE, in_tiers

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="compares a CUDA device with the processor"),
]
MODELS = {**SYSTEMS, **CONVENTIONS, **JOINED, **WIDE}
TARGETS = [[[7, 5], [9, 9, 4], [6]], [[11]], [[4], [20, 21], [22, 5, 6, 7, 8], [9], [10, 4]]]


def forward(model, dtype=None):
    """Return the decoder states of documents with their targets, and the gradients, float32, on the processor."""
    targets = pack([[[SPECIALS.bos, *sentence] for sentence in document] for document in TARGETS])
    inputs = make_inputs(model, DOCUMENTS, target=targets).to(model.device)
    for module in model.modules():
        module.train(isinstance(module, torch.nn.LSTM))  # the CUDA LSTM has gradients in training alone
    with torch.autocast(model.device.type, dtype, enabled=dtype is not None):
        states = model(inputs).float()
    weights = torch.linspace(-1, 1, states.numel(), device=states.device).view_as(states)
    model.zero_grad()
    (states * weights).sum().backward()
    gradients = {name: weight.grad.cpu() for name, weight in model.named_parameters() if weight.grad is not None}
    return states.detach().cpu(), gradients


def on_cuda(model):
    """Return a copy of the model on the device."""
    return deepcopy(model).to("cuda")


@pytest.fixture(autouse=True)
def exact_products():
    """Without TF32."""
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = False


@pytest.mark.parametrize("name", in_tiers(MODELS, FEW, every=True))
def test_states_and_gradients_equal_those_of_the_processor(name):
    model = build(**MODELS[name])
    states, gradients = forward(model)
    cuda_states, cuda_gradients = forward(on_cuda(model))
    torch.testing.assert_close(cuda_states, states, atol=1e-4, rtol=1e-4)
    assert cuda_gradients.keys() == gradients.keys()
    for weight, gradient in gradients.items():
        scale = max(float(gradient.abs().max()), 1.0)
        torch.testing.assert_close(cuda_gradients[weight] / scale, gradient / scale, atol=2e-4, rtol=0, msg=weight)


@pytest.mark.parametrize("name", in_tiers(MODELS, FEW, every=True))
def test_varlen_attention_in_bfloat16_stays_near_float32(name, monkeypatch):
    """Flash attention, with causal spans after earlier keys, rounds about as much as the padded kernel does."""
    model = build(**MODELS[name])
    states, gradients = forward(model)
    varlen = forward(on_cuda(model), torch.bfloat16)
    monkeypatch.setattr(kernels, "choose_kernel", lambda *tensors: ("padded", "by the test"))
    padded = forward(on_cuda(model), torch.bfloat16)
    assert (varlen[0] - states).norm() <= 2 * (padded[0] - states).norm() + 1e-2 * states.norm()
    whole = torch.stack([gradient.norm() for gradient in gradients.values()]).norm()
    for weight, exact in gradients.items():  # some, as those of the biases of keys, are zero but for rounding
        errors = [float((found[1][weight] - exact).norm()) for found in (varlen, padded)]
        assert errors[0] <= 2 * errors[1] + 1e-2 * float(exact.norm() + whole), (weight, *errors)


@pytest.mark.parametrize("name", in_tiers(MODELS, FEW, every=True))
@pytest.mark.parametrize("beam", [1, 3])
def test_translations_and_scores_equal_those_of_the_processor(name, beam):
    model = build(**MODELS[name])
    config = SearchConfig(beam=beam, max_length_ratio=1.2, max_length_extra=2.0)
    expected = [ranks[0] for ranks in translate_documents(model, DOCUMENTS, SPECIALS, config)]
    found = [ranks[0] for ranks in translate_documents(on_cuda(model), DOCUMENTS, SPECIALS, config)]
    assert [each.sentences for each in found] == [each.sentences for each in expected]
    for one, other in zip(found, expected, strict=True):
        assert one.score == pytest.approx(other.score, abs=1e-4)
        assert one.sentence_scores == pytest.approx(other.sentence_scores, abs=1e-3)
    whole = [number for number, each in enumerate(expected) if not each.miscounted]
    sources, targets = [DOCUMENTS[number] for number in whole], [expected[number].sentences for number in whole]
    if whole:
        scores = score_documents(on_cuda(model), sources, targets, SPECIALS, config)
        assert [each.score for each in scores] == pytest.approx([expected[number].score for number in whole], abs=1e-4)
