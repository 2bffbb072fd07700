"""The fused loss against torch's own."""

from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F

from docmt.core.errors import DocmtError
from docmt.model import ModelConfig, ModelInput, TranslationModel, pack
from docmt.text import BpeTokenizer
from docmt.training import objective
from docmt.training.objective import BatchLoss, find_word_tokens, smoothed_cross_entropy
from docmt.training.train_config import ObjectiveConfig


def reference_cross_entropy(states, embedding, labels, smoothing):
    """The same written out with the whole [T, V] in memory."""
    log_p = F.log_softmax(F.linear(states, embedding).float(), dim=-1)
    nll = F.nll_loss(log_p, labels, reduction="sum")
    loss = (1 - smoothing) * nll - smoothing / len(embedding) * log_p.sum()
    return loss, nll.detach()


@pytest.fixture
def tensors():
    torch.manual_seed(0)
    states = torch.randn(45, 24, requires_grad=True)
    embedding = torch.randn(70, 24, requires_grad=True)
    return states, embedding, torch.randint(0, 70, (45,))


def outcome(function, states, embedding, labels, smoothing):
    loss, nll = function(states, embedding, labels, smoothing)
    gradients = torch.autograd.grad(3 * loss, (states, embedding))
    return loss, nll, *gradients


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.9])
@pytest.mark.parametrize("chunk", [7, 45, 512])
def test_values_and_gradients_are_those_of_torch(tensors, smoothing, chunk, monkeypatch):
    monkeypatch.setattr(objective, "MIN_CHUNK_TOKENS", chunk)
    monkeypatch.setattr(objective, "_GRADIENT_ROWS", 32 if chunk == 7 else 2**16)
    states, embedding, labels = tensors
    loss, nll, *gradients = outcome(smoothed_cross_entropy, *tensors, smoothing)
    logits = F.linear(states, embedding)
    expected = F.cross_entropy(logits, labels, label_smoothing=smoothing, reduction="sum")
    torch.testing.assert_close(loss, expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(nll, F.cross_entropy(logits, labels, reduction="sum"), rtol=1e-5, atol=1e-5)
    expected_gradients = torch.autograd.grad(3 * expected, (states, embedding))
    for gradient, expected_gradient in zip(gradients, expected_gradients, strict=True):
        torch.testing.assert_close(gradient, expected_gradient, rtol=1e-4, atol=1e-5)


def test_a_bias_counts_and_is_not_trained(tensors):
    states, embedding, labels = tensors
    bias = torch.randn(70)
    loss, nll = smoothed_cross_entropy(states, embedding, labels, 0.1, bias)
    gradients = torch.autograd.grad(loss, (states, embedding))
    logits = F.linear(states, embedding, bias)
    expected = F.cross_entropy(logits, labels, label_smoothing=0.1, reduction="sum")
    torch.testing.assert_close(loss, expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(nll, F.cross_entropy(logits, labels, reduction="sum"), rtol=1e-5, atol=1e-5)
    for gradient, expected_gradient in zip(gradients, torch.autograd.grad(expected, (states, embedding)), strict=True):
        torch.testing.assert_close(gradient, expected_gradient, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("chunk", [7, 512])
def test_weights_multiply_the_losses_of_tokens(tensors, chunk, monkeypatch):
    """Whole numbers: as if a token came several times, or not at all. The log-likelihood has no weights."""
    monkeypatch.setattr(objective, "MIN_CHUNK_TOKENS", chunk)
    states, embedding, labels = tensors
    times = torch.arange(45) % 4
    loss, nll = smoothed_cross_entropy(*tensors, 0.1, weights=times)
    copies = torch.arange(45).repeat_interleave(times)
    expected, _ = smoothed_cross_entropy(states[copies], embedding, labels[copies], 0.1)
    torch.testing.assert_close(loss, expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(nll, smoothed_cross_entropy(*tensors, 0.1)[1], rtol=1e-6, atol=1e-5)
    gradients = (torch.autograd.grad(each, (states, embedding)) for each in (loss, expected))
    for gradient, expected_gradient in zip(*gradients, strict=True):
        torch.testing.assert_close(gradient, expected_gradient, rtol=1e-4, atol=1e-5)


def test_tokens_of_words_are_found_in_any_case_and_place():
    tokenizer = BpeTokenizer.train(["elle Elle d'elle dit elle a"] * 20, 272)
    found = find_word_tokens(tokenizer, ["elle", "a"])
    assert {text.strip() for text in tokenizer.decode_batch([[number] for number in found])} == {
        "elle",
        "Elle",
        "a",
        "A",
    }
    assert find_word_tokens(tokenizer, []) == []
    with pytest.raises(DocmtError, match=r"no token of the target language is 'elles', 'ils'\. Weight"):
        find_word_tokens(tokenizer, ["elle", "elles", "ils"])


def test_the_plain_version_is_the_same(tensors):
    for gradient, expected_gradient in zip(
        outcome(smoothed_cross_entropy, *tensors, 0.1), outcome(reference_cross_entropy, *tensors, 0.1), strict=True
    ):
        torch.testing.assert_close(gradient, expected_gradient, rtol=1e-4, atol=1e-5)


def test_bfloat16_is_close_and_its_gradients_stay_float32(tensors):
    exact = outcome(reference_cross_entropy, *tensors, 0.1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        reference = outcome(reference_cross_entropy, *tensors, 0.1)
        fused = outcome(smoothed_cross_entropy, *tensors, 0.1)

    def error(outcomes):
        return torch.stack([(a - b).norm() / b.norm() for a, b in zip(outcomes, exact, strict=True)])

    assert all(tensor.dtype == torch.float32 for tensor in fused)
    assert (error(fused) > 0).all(), "autocast had no effect"
    assert (error(fused) < 1.5 * error(reference) + 1e-4).all()
    assert (error(fused) < 0.02).all()


def test_the_smoothing_covers_the_whole_vocabulary():
    states, embedding = torch.zeros(1, 4), torch.zeros(10, 4)
    loss, nll = smoothed_cross_entropy(states, embedding, torch.tensor([3]), 0.1)
    assert loss.item() == pytest.approx(nll.item()) == pytest.approx(2.302585)
    embedding[:, 0] = torch.arange(10.0)
    states[0, 0] = 1.0
    loss, nll = smoothed_cross_entropy(states, embedding, torch.tensor([9]), 0.1)
    assert nll.item() == pytest.approx(0.458630, abs=1e-5)
    assert loss.item() == pytest.approx(0.458630 + 0.1 * 4.5, abs=1e-5)


def test_no_gradients_are_computed_in_validation(tensors):
    with torch.no_grad():
        loss, nll = smoothed_cross_entropy(*tensors, 0.1)
    assert not loss.requires_grad
    assert not nll.requires_grad


@pytest.mark.parametrize("frozen", [0, 1])
def test_a_frozen_side_leaves_the_gradients_of_the_other_as_they_are(tensors, frozen):
    *sides, labels = tensors
    loss, _ = smoothed_cross_entropy(*sides, labels, 0.1)
    expected = torch.autograd.grad(loss, sides)[1 - frozen]
    sides[frozen] = sides[frozen].detach()
    loss, _ = smoothed_cross_entropy(*sides, labels, 0.1)
    assert torch.equal(torch.autograd.grad(loss, sides[1 - frozen])[0], expected)


def test_huge_logits_stay_finite():
    states = torch.full((2, 4), 1e4, requires_grad=True)
    embedding = torch.eye(4).repeat(3, 1)
    loss, nll = smoothed_cross_entropy(states, embedding, torch.tensor([0, 1]), 0.1)
    loss.backward()
    assert torch.isfinite(loss)
    assert torch.isfinite(nll)
    assert torch.isfinite(states.grad).all()


def test_weights_of_words_count_in_training_only():
    """So the dev loss chooses the best model as without weights."""
    torch.manual_seed(1)
    model = TranslationModel(ModelConfig(vocabulary_size=20, width=16, feed_forward=16, heads=2, dropout=0.0))
    text = pack([[[0, 5, 6, 2], [0, 7, 2]]])
    batch = SimpleNamespace(inputs=ModelInput(text, torch.arange(2), text), labels=torch.arange(4, 11), tokens=7)
    plain = BatchLoss(model, ObjectiveConfig(), [])
    weighted = BatchLoss(model, ObjectiveConfig(weighted_words=["x"], word_weight=3.0), [5, 6])
    training = [loss(lambda: batch)[0].item() for loss in (plain, weighted)]
    model.eval()
    validation = [loss(lambda: batch)[0].item() for loss in (plain, weighted)]
    assert training[0] < training[1]
    assert validation[0] == validation[1]
