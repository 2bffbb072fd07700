"""Memory that is estimated before a training starts, and what is refused."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from docmt.core.errors import DocmtError
from docmt.model import ModelConfig, TranslationModel
from docmt.training import BatchConfig, train, trained_weights
from docmt.training.train_config import AdapterConfig
from docmt.training.trained_weights import build_outline, choose_strategy, estimate
from docmt.training.training_corpus import fit_model_config

LARGE = ModelConfig(system="document", preset="large", vocabulary_size=32_000)
GIGABYTE = 10**9


@pytest.fixture
def limit(monkeypatch):
    """A function that sets the memory of a process."""
    return lambda gigabytes: monkeypatch.setattr(
        trained_weights, "available_memory", lambda *_: int(gigabytes * GIGABYTE)
    )


def outline(model, trainable=True):
    """The model without values, all of it trainable or frozen."""
    with torch.device("meta"):
        return TranslationModel(model).requires_grad_(trainable)


@pytest.fixture(scope="module")
def large():
    return outline(LARGE)


def test_what_saves_memory_saves_it(tiny_config, large):
    config = replace(tiny_config, model=LARGE, batches=BatchConfig(batch_tokens=4096))

    weights = sum(weight.numel() for weight in large.parameters())

    def need(kind="ddp", processes=2, on_gpu=True, **settings):
        return estimate(replace(config, **settings), large, kind, processes, on_gpu)

    assert need(processes=1).weights + need(processes=1).optimizer == 16 * weights
    assert need("fsdp").total < need().total
    assert need("fsdp", 8).optimizer == weights
    assert need("fsdp", 64).total < need("fsdp", 8).total
    offloaded = need("fsdp", 8, strategy="fsdp", cpu_offload=True)
    assert offloaded.optimizer == 0 and offloaded.total < need("fsdp", 8).total
    assert need(activation_checkpointing=True).activations < need().activations / 3
    assert need(precision="bfloat16").activations < need().activations
    assert need(batches=BatchConfig(batch_tokens=2048)).activations < need().activations


@pytest.mark.parametrize(
    ("settings", "gigabytes"),
    [
        ({}, 10.70),
        ({"strategy": "fsdp"}, 10.71),
        ({"strategy": "fsdp", "cpu_offload": True}, 5.93),
        ({"strategy": "fsdp", "cpu_offload": True, "activation_checkpointing": True}, 2.72),
    ],
)
def test_estimates_are_near_the_peaks_of_a_gpu(tiny_config, settings, gigabytes):
    """The peaks are of one process on an H200 (docs/contributing/benchmarks/scaling.md)."""
    model = ModelConfig(system="group", preset="large", vocabulary_size=8000)
    batches = BatchConfig(batch_tokens=4096)
    config = replace(tiny_config, model=model, batches=batches, precision="bfloat16", **settings)
    need = estimate(config, outline(model), settings.get("strategy", "ddp"), 1, True)
    assert need.total / GIGABYTE == pytest.approx(gigabytes, rel=0.2)


def test_auto_shards_what_does_not_fit(tiny_config, limit, large):
    config = replace(tiny_config, model=LARGE)
    need = estimate(config, large, "ddp", 2, False).total / GIGABYTE
    for gigabytes, processes, expected in ((need + 0.1, 2, "ddp"), (need - 0.1, 2, "fsdp"), (need, 1, "ddp")):
        limit(gigabytes)
        assert choose_strategy(config, processes, processes, False)[0] == expected
    limit(1000)
    assert choose_strategy(replace(config, strategy="ddp"), 2, 2, False)[0] == "ddp"
    assert choose_strategy(replace(config, strategy="fsdp"), 1, 1, False)[0] == "fsdp"


def test_auto_does_not_shard_what_would_then_need_more(tiny_config, limit, large):
    """The end of a sharded training has the whole model and its parts; with adapters, little else is divided."""
    config = replace(tiny_config, model=LARGE, precision="bfloat16-weights")
    config = replace(config, initialize_from=Path("start"), adapters=AdapterConfig(rank=4))
    frozen = outline(LARGE, trainable=False)
    need = [estimate(config, frozen, kind, 2, True).total for kind in ("ddp", "fsdp")]
    assert need[0] < need[1]
    limit(need[0] / GIGABYTE - 0.1)
    with pytest.raises(DocmtError, match="--strategy fsdp in several processes, a smaller model"):
        choose_strategy(config, 2, 2, True)


def test_what_the_end_needs_is_not_saved_by_other_updates(tiny_config, large, limit):
    """Neither smaller batches nor checkpointing help there."""
    config = replace(
        tiny_config, model=LARGE, strategy="fsdp", batches=BatchConfig(batch_tokens=512), precision="bfloat16"
    )
    need = estimate(config, large, "fsdp", 8, True)
    assert need.total == need.end > need.updates
    limit(0.9 * need.end / GIGABYTE)
    with pytest.raises(DocmtError, match=r"the whole model\), but has .* GB. What saves memory: more processes,"):
        choose_strategy(config, 8, 8, True)


def test_offloading_is_for_gpus(tiny_config):
    config = replace(tiny_config, strategy="fsdp", cpu_offload=True)
    with pytest.raises(DocmtError, match=r"cpu_offload is true, but this training runs on a CPU: set it to false"):
        train(config)
    assert not config.run.exists()


def test_a_training_that_does_not_fit_is_refused_with_what_saves_memory(change, limit, store):
    config = change(batches__batch_tokens=4096)
    fitted = replace(config, model=fit_model_config(config.model, store))
    train_split = store.split("train")
    tokens = len(train_split.source.tokens) + len(train_split.target.tokens)
    need = estimate(fitted, outline(fitted.model), "ddp", 1, False, tokens)
    assert need.total < estimate(fitted, outline(fitted.model), "ddp", 1, False).total, "no batch has more"
    limit(0.9 * need.total / GIGABYTE)
    with pytest.raises(DocmtError, match=r"would need about .* GB \(weights .*\), but has .* GB") as refused:
        train(config)
    assert str(refused.value).endswith(
        "What saves memory: --batch-tokens 2048 --gradient-accumulation 2, --activation-checkpointing true, "
        "--adapters.rank, --strategy fsdp in several processes, a smaller model"
    )
    assert not config.run.exists()


def test_it_is_refused_before_weights_take_memory(tiny_config, limit, monkeypatch):
    monkeypatch.setattr("docmt.training.loop.TranslationModel", None)  # no model can be built
    limit(0.001)
    with pytest.raises(DocmtError, match="each process would need about"):
        train(tiny_config)


@pytest.mark.parametrize("settings", [{"adapters__rank": 2}, {"freeze": "embeddings,encoder"}])
def test_frozen_weights_need_no_gradients(settings, change, limit, store, sentence_run):
    config = change(initialize_from=sentence_run / "model", model__system="sentence", **settings)
    fitted = replace(config, model=fit_model_config(config.model, store))
    less, full = (
        estimate(fitted, model, "ddp", 1, False, 1000).total for model in (build_outline(fitted), outline(fitted.model))
    )
    assert less < full
    limit((less + full) / 2 / GIGABYTE)
    choose_strategy(fitted, 1, 1, False, 1000)
