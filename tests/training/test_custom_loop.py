"""A loop around `batches` and `loss` trains as `train` does."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from runs import metrics

from docmt.core.errors import DocmtError
from docmt.data import PreparedStore
from docmt.model import TranslationModel
from docmt.training import batches, drop_words, loss, train
from docmt.training.loop import resolve_model_config
from docmt.training.optimizer import derive_seed, inverse_square_root


def test_a_loop_repeats_the_losses_of_train_to_the_last_digit(change):
    config = change(log_every=1, stop__max_steps=4)
    train(config)
    store, settings = PreparedStore.open(config.store), config.optimizer
    torch.manual_seed(derive_seed(config.seed))
    model = TranslationModel(resolve_model_config(config, store)).train()
    optimizer = torch.optim.Adam(model.parameters(), betas=(0.9, settings.beta2), eps=settings.epsilon, fused=True)
    losses = []
    for update, batch in zip(range(1, 5), batches(store, config), strict=False):
        torch.manual_seed(derive_seed(config.seed, update, 0, 0))
        mean = loss(model, drop_words(batch, config.objective.word_dropout, model), config.objective.label_smoothing)
        mean.backward()
        losses.append(mean.item())
        optimizer.param_groups[0]["lr"] = inverse_square_root(update, settings.learning_rate, settings.warmup)
        optimizer.step()
        optimizer.zero_grad()
    expected = [float(np.float32(line["loss"])) for line in metrics(config.run) if "loss" in line]
    assert losses == expected and len(set(losses)) == 4


def test_the_gradients_are_those_of_the_logits(change):
    config = change(model__dropout=0.0)
    store = PreparedStore.open(config.store)
    model = TranslationModel(resolve_model_config(config, store)).train()
    batch = next(batches(store, config))
    logits = model.project(model(batch.inputs))
    expected = torch.nn.functional.cross_entropy(logits, batch.labels, label_smoothing=0.2)
    weights = list(model.parameters())
    own, reference = (torch.autograd.grad(value, weights) for value in (loss(model, batch, 0.2), expected))
    assert loss(model, batch, 0.2).item() == pytest.approx(expected.item(), rel=1e-6)
    for one, other in zip(own, reference, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)
    assert max(gradient.abs().max() for gradient in own) > 1e-3


def test_a_model_that_does_not_fit_the_store_is_refused(change):
    config = change()
    config = replace(config, model=replace(config.model, vocabulary_size=7))
    with pytest.raises(DocmtError, match=r"model\.vocabulary_size is 7, but the store"):
        next(batches(PreparedStore.open(config.store), config))
