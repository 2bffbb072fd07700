"""Schedule, word dropout, early stopping, averages, configuration, accumulation."""

import math
import threading
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from docmt.checkpoint.weights import average_weights
from docmt.core.errors import DocmtError
from docmt.model import ModelConfig, TranslationModel
from docmt.text import SpecialTokens
from docmt.training import ObjectiveConfig, StopConfig, TrainConfig, optimizer
from docmt.training.distributed import is_main_process, start_fabric
from docmt.training.objective import drop_tokens
from docmt.training.optimizer import Updater, _row_norms, constant_with_warmup, derive_seed, inverse_square_root
from docmt.training.run_directory import BestValidation, select_updates
from docmt.training.train_config import first_difference
from docmt.training.training_corpus import BatchedSplit, TrainingCorpus, UpdatePlan, fit_model_config, prefetch


def test_norms_of_large_gradients_are_exact():
    random = torch.Generator().manual_seed(1)
    gradient = torch.randn(8000, 1024, generator=random) * torch.randn(8000, 1024, generator=random).mul(2).exp()
    norm = torch.nn.utils.get_total_norm([_row_norms(gradient)])
    assert norm.item() == pytest.approx(gradient.double().norm().item(), rel=1e-6)


def test_the_learning_rate_rises_and_falls():
    rates = [inverse_square_root(update, 5e-4, 4000) for update in (1, 2000, 4000, 16000)]
    assert rates == pytest.approx([1.25e-7, 2.5e-4, 5e-4, 2.5e-4])
    assert inverse_square_root(1, 1.0, 0) == 1.0
    assert [constant_with_warmup(update, 8.0, 4) for update in (1, 2, 4, 400)] == [2.0, 4.0, 8.0, 8.0]
    assert constant_with_warmup(1, 1.0, 0) == 1.0
    assert inverse_square_root(4, 1.0, 0) == 0.5


def test_word_dropout_hides_words_only_at_its_rate():
    specials = SpecialTokens(20)
    torch.manual_seed(0)
    tokens = torch.arange(20).repeat(5000)
    everywhere = torch.arange(len(tokens))
    dropped = drop_tokens(tokens, 0.3, specials, everywhere)
    changed = dropped != tokens
    assert (dropped[changed] == specials.mask).all()
    counts = changed.view(5000, 20).float().mean(0)
    assert (counts[:4] == 0).all()
    assert (counts[18:] == 0).all()
    assert counts[4:18].min() > 0.27
    assert counts[4:18].max() < 0.33
    assert not torch.equal(dropped, drop_tokens(tokens, 0.3, specials, everywhere)), "draws must be independent"


def test_word_dropout_is_a_step(tiny, monkeypatch):
    _, corpus, updater = tiny
    rates, batch = [], corpus.train.build_batch(np.array([0]))
    monkeypatch.setattr(optimizer, "drop_words", lambda batch, rate, model: rates.append(rate) or batch)
    dropping = updater(objective=ObjectiveConfig(word_dropout=0.3, word_dropout_epochs=2))
    for epoch in range(4):
        dropping.update(1, UpdatePlan([(np.array([0]), 1.0)], batch.tokens, epoch), [batch])
    assert rates == [0.3, 0.3]


def test_best_so_far_counts_validations_without_improvement():
    best = BestValidation(higher_is_better=False)
    assert [best.add_score(score, update) for update, score in enumerate([3.0, 2.0, 2.0, math.nan, 2.5], 1)] == [
        True,
        True,
        False,
        False,
        False,
    ]
    assert (best.score, best.update, best.since) == (2.0, 2, 3)
    assert best.exceeds_patience(3)
    assert not best.exceeds_patience(4)
    assert not best.exceeds_patience(0)
    higher = BestValidation(higher_is_better=True)
    assert [higher.add_score(score, 1) for score in (math.nan, 1.0, 2.0, 1.5)] == [False, True, True, False]


def test_which_updates_are_averaged():
    measured = [(1, 5.0), (2, 3.0), (3, 4.0), (4, 6.0)]
    assert select_updates(measured, "none", 2, False) == []
    assert select_updates(measured, "last", 2, False) == [(3, 4.0), (4, 6.0)]
    assert select_updates(measured, "best", 2, False) == [(2, 3.0), (3, 4.0)]
    assert select_updates(measured, "best", 2, True) == [(1, 5.0), (4, 6.0)]


def test_averages_are_means(tmp_path):
    paths = []
    for number, values in enumerate(([1.0, 2.0], [2.0, 4.0], [6.0, 0.0])):
        paths.append(tmp_path / f"{number}.safetensors")
        save_file({"a": torch.tensor(values)}, paths[-1])
    assert average_weights(paths)["a"].tolist() == [3.0, 2.0]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"batches__batch_tokens": 0}, "batches.batch_tokens is 0: choose a number from 1 to 1,000,000,000"),
        ({"objective__label_smoothing": 1.0}, "objective.label_smoothing is 1.0: choose a number from 0"),
        ({"objective__word_dropout_epochs": 0}, "objective.word_dropout is 0.2 but .*_epochs is 0"),
        ({"optimizer__learning_rate": 0}, "optimizer.learning_rate is 0: choose a number from 1e-12 to 1,000"),
        ({"optimizer__learning_rate": math.nan}, "optimizer.learning_rate is nan"),
        ({"optimizer__beta2": 1.0}, "optimizer.beta2 is 1.0"),
        ({"validation__best_by": "bleu"}, "validation.best_by is 'bleu': choose one of loss, d_bleu"),
        ({"checkpoints__average": "all"}, "checkpoints.average is 'all'"),
        ({"checkpoints__every": 0}, "checkpoints.every is 0"),
        ({"checkpoints__keep": -1}, "checkpoints.keep is -1: choose a number from 0"),
        ({"tensorboard": "yes"}, "tensorboard is 'yes': choose one of auto, true, false"),
        ({"precision": "float16"}, "precision is 'float16': choose one of float32, bfloat16"),
        ({"device": "tpu"}, "device is 'tpu'"),
        ({"log_every": 0}, "log_every is 0"),
        ({"optimizer__pretrained_lr_scale": 0.2}, "optimizer.pretrained_lr_scale is set but initialize_from is not"),
        ({"model__group__global_start": "local"}, "model.group.global_start is set but initialize_from is not"),
        ({"model__group__gate_bias": 101.0}, "model.group.gate_bias is 101.0: choose a number from -100 to 100"),
        ({"model__group__gate_bias": math.nan}, "model.group.gate_bias is nan"),
        ({"model__system": "cadec"}, "model.system cadec is set but initialize_from is not: name the model to start"),
        ({"freeze": "pretrained"}, "freeze is set but initialize_from is not"),
        (
            {"freeze": "none,encoder", "initialize_from": Path("m")},
            "freeze is 'none,encoder': choose none, pretrained, or any of embeddings, enc",
        ),
        ({"freeze": "encoder,,decoder", "initialize_from": Path("m")}, "freeze is 'encoder,,decoder': choose"),
        (
            {"freeze": "pretrained", "initialize_from": Path("m"), "optimizer__pretrained_lr_scale": 0.5},
            "optimizer.pretrained_lr_scale has no effect on frozen weights",
        ),
        (
            {"optimizer__pretrained_lr_scale": 0},
            "optimizer.pretrained_lr_scale is 0: choose a number from 1e-06 to 1,000",
        ),
        ({"batches__train_share": 0}, "batches.train_share is 0: choose a number from 1e-09 to 1"),
        ({"batches__train_share": 1.5}, "batches.train_share is 1.5: choose"),
    ],
)
def test_bad_values_are_named(change, settings, message):
    with pytest.raises(DocmtError, match=message):
        change(**settings)


def test_a_training_must_have_an_end():
    with pytest.raises(DocmtError, match=r"never end: set one of stop.max_steps"):
        StopConfig(patience=0)


def test_a_configuration_survives_its_dictionary(change):
    config = change(initialize_from=Path("other/model"))
    assert TrainConfig.from_dict(config.to_dict()) == config
    with pytest.raises(DocmtError, match=r"recipe.yaml has the unknown setting optimizer.momentum"):
        TrainConfig.from_dict({**config.to_dict(), "optimizer": {"momentum": 1}}, "recipe.yaml")
    with pytest.raises(DocmtError, match=r"has no setting run: add it"):
        TrainConfig.from_dict({"store": "x"})
    with pytest.raises(DocmtError, match=r"r.yaml: optimizer.warmup is 'long': give a whole number"):
        TrainConfig.from_dict({"store": "x", "run": "y", "optimizer": {"warmup": "long"}}, "r.yaml")
    with pytest.raises(DocmtError, match=r"model.group.self_locality is 0: choose true or false"):
        TrainConfig.from_dict({"store": "x", "run": "y", "model": {"group": {"self_locality": 0}}})
    with pytest.raises(DocmtError, match="model in the recipe is not a group"):
        TrainConfig.from_dict({"store": "x", "run": "y", "model": 3})


def test_what_may_change_in_a_resumed_run(change, config):
    def difference(**settings):
        return first_difference(config.to_dict(), change(**settings).to_dict())

    assert difference(stop__max_steps=5, stop__patience=0, log_every=9, run=Path("moved"), store=Path("d")) is None
    assert difference(checkpoints__keep=3, tensorboard="false") is None
    assert difference(checkpoints__keep=3, checkpoints__every=6) == "checkpoints.every is 6 but was 5"
    assert difference(devices=2, strategy="fsdp", activation_checkpointing=True) is None
    assert difference(seed=8, model__dropout=0.5) == "model.dropout is 0.5 but was 0.1"


def test_where_the_model_to_start_from_is_does_not_count(change, tmp_path, monkeypatch):
    """Stored from the root on, given relative to the current folder: it is the same."""
    monkeypatch.chdir(tmp_path)
    stored = change(initialize_from=tmp_path / "models" / "first").to_dict()
    for start in ("models/first", "models/other/../first", "./models/first/", "/elsewhere/first"):
        assert first_difference(stored, change(initialize_from=Path(start)).to_dict()) is None, start
    monkeypatch.chdir(tmp_path.parent)
    here = change(initialize_from=Path(tmp_path.name)).to_dict()
    monkeypatch.chdir(tmp_path)
    assert first_difference(here, change(initialize_from=Path()).to_dict()) is None
    other = first_difference(stored, change(initialize_from=Path("models/second")).to_dict())
    assert other == "initialize_from is 'second' but was 'first'"


def test_seeds_are_stable_and_differ():
    assert derive_seed(1, 2, 3) == 12997252459554536576
    assert len({derive_seed(1, update, batch) for update in range(50) for batch in range(4)}) == 200


@pytest.fixture
def tiny(change, store):
    """Configuration, corpus and a function that makes an updater of a fixed model without dropout."""
    config = change(model__dropout=0.0, objective__word_dropout=0.0)
    config = change(model=fit_model_config(config.model, store), objective__word_dropout=0.0)

    def updater(**settings):
        torch.manual_seed(5)
        changed = replace(config, **settings)
        return Updater(start_fabric(changed), changed, TranslationModel(config.model))

    return config, TrainingCorpus(store, config), updater


def gradients(updater, corpus, batches):
    """Sums and gradients of one update."""
    total = sum(corpus.train.count_label_tokens(indices) for indices, weight in batches if weight)
    gradients = {}

    def keep():
        gradients.update({name: p.grad.clone() for name, p in updater.model.named_parameters()})

    updater.optimizer.zero_grad = keep
    laid_out = [corpus.train.build_batch(indices) for indices, _ in batches]
    sums, _ = updater.update(1, UpdatePlan(batches, total), laid_out)
    return sums, gradients


def test_accumulated_batches_are_one_big_batch(tiny):
    _, corpus, updater = tiny
    first, second = np.array([0, 3, 5]), np.array([1, 8])
    big_sums, big = gradients(updater(), corpus, [(np.concatenate((first, second)), 1.0)])
    sums, small = gradients(updater(), corpus, [(first, 1.0), (second, 1.0), (first, 0.0)])
    torch.testing.assert_close(sums, big_sums, rtol=1e-6, atol=1e-6)
    for name in big:
        torch.testing.assert_close(small[name], big[name], rtol=1e-4, atol=1e-6)


@pytest.mark.full
def test_gradients_of_weights_in_bfloat16_are_summed_in_float32(tiny):
    """They were summed in bfloat16, where what is small beside the sum is lost."""
    _, corpus, updater = tiny
    batches = [(np.array([number]), 1.0) for number in range(6)]
    tokens = sum(corpus.train.count_label_tokens(indices) for indices, _ in batches)

    def master_gradients(batches):
        bf16_updater, gradients = updater(precision="bfloat16-weights"), {}
        bf16_updater.optimizer.zero_grad = lambda: gradients.update(
            {name: p.grad.clone() for name, p in bf16_updater.weights.trainable.items()}
        )
        laid_out = [corpus.train.build_batch(indices) for indices, _ in batches]
        bf16_updater.update(1, UpdatePlan(batches, tokens), laid_out)
        return gradients

    together, single = master_gradients(batches), [master_gradients([batch]) for batch in batches]
    name = "decoder.1.feed_forward.inner.weight"
    assert together[name].dtype == torch.float32
    assert torch.equal(together[name], sum(gradients[name] for gradients in single))


@pytest.mark.parametrize("world", [1, 2, 3])
@pytest.mark.parametrize("gradient_accumulation", [1, 2])
def test_processes_share_an_epoch(change, store, world, gradient_accumulation):
    config = change(batches__gradient_accumulation=gradient_accumulation, batches__batch_tokens=40)
    ranks = [TrainingCorpus(store, config, rank, world) for rank in range(world)]
    planned = ranks[0].train.plan.batches_in_epoch(1)
    position, covered = 0, []
    while True:
        plans = [corpus.plan_update(1, position) for corpus in ranks]
        assert len({len(plan.batches) for plan in plans}) == 1, "every process must take part in every round"
        counted = [indices for plan in plans for indices, weight in plan.batches if weight]
        covered += [indices.tolist() for indices in counted]
        assert {plan.label_tokens for plan in plans} == {sum(map(ranks[0].train.count_label_tokens, counted))}
        position = plans[0].position
        if plans[0].ends_epoch:
            break
    assert sorted(covered) == sorted(indices.tolist() for indices in planned)


def test_updates_go_on_for_ever_and_from_anywhere(change, store):
    corpus = TrainingCorpus(store, change(batches__batch_tokens=40))

    def steps(epoch, position, count):
        updates = islice(corpus.iterate_updates(epoch, position), count)
        return [(plan.epoch, plan.position, plan.batches[0][0].tolist()) for plan, _ in updates]

    count = corpus.count_updates(0)
    expected = steps(0, 0, 2 * count + 1)
    assert [step[:2] for step in expected[: count + 1]] == [*((0, number + 1) for number in range(count)), (1, 1)]
    for start in range(count):
        assert steps(0, start, 3) == expected[start : start + 3]


@pytest.mark.parametrize(
    ("positions", "kind"), [("sentence", "the sentence"), ("document", "the instance that begins")]
)
def test_the_longest_text_is_named(change, store, positions, kind):
    learned = {"model__position_encoding": "learned", "model__positions": positions, "model__max_positions": 5}
    with pytest.raises(DocmtError, match=rf"{kind} .* has \d+ tokens"):
        TrainingCorpus(store, change(**learned))


def test_positions_need_not_hold_documents_that_are_not_used(change, store):
    split = store.split("train")
    sides = np.maximum(split.source.lengths, split.target.lengths) + 2
    share = 1 / split.num_documents
    longest = int(sides[: split.document_offsets[1]].max())
    assert longest < sides.max()
    learned = {"model__position_encoding": "learned", "model__max_positions": longest, "model__system": "sentence"}
    config = change(batches__train_share=share, **learned)
    assert BatchedSplit(split, config, store.tokenizer.specials, training=True).size[0] == 1
    with pytest.raises(DocmtError, match="max_positions"):
        BatchedSplit(split, change(**learned), store.tokenizer.specials, training=True)


def test_the_thread_that_lays_batches_out_ends(change, store):
    def updates():
        yield from islice(corpus.iterate_updates(0, 0), 3)
        raise RuntimeError("no more")

    corpus, before = TrainingCorpus(store, change(batches__batch_tokens=40)), set(threading.enumerate())
    plain = [plan.position for plan, _ in islice(corpus.iterate_updates(0, 0), 3)]
    ahead = prefetch(updates())
    assert [plan.position for plan, _ in islice(ahead, 3)] == plain
    assert len(set(threading.enumerate()) - before) == 1
    with pytest.raises(RuntimeError, match="no more"):
        next(ahead)
    assert set(threading.enumerate()) == before
    ahead = prefetch(corpus.iterate_updates(0, 0))
    next(ahead)
    ahead.close()
    assert set(threading.enumerate()) == before


def test_the_sentence_system_sees_single_sentences(change, store):
    config = change(model__system="sentence")
    corpus = TrainingCorpus(store, config)
    assert len(corpus.train.instances) == len(store.split("train").source.lengths)


def test_a_share_of_the_training_documents_is_its_first_documents(change, store):
    whole = TrainingCorpus(store, change())
    part = TrainingCorpus(store, change(batches__train_share=0.25))
    assert len(store.split("train").document_ids) == 24
    assert set(part.train.instances.document.tolist()) == set(range(6))
    some, every = part.train.instances, whole.train.instances
    for name in ("first", "last", "cost"):
        assert (getattr(some, name) == getattr(every, name)[: len(some)]).all()
    assert len(part.dev.instances) == len(whole.dev.instances)
    least = TrainingCorpus(store, change(batches__train_share=1e-9))
    assert set(least.train.instances.document.tolist()) == {0}


def test_the_vocabulary_is_that_of_the_store(store):
    assert fit_model_config(ModelConfig(), store).vocabulary_size == 300
    with pytest.raises(DocmtError, match=r"vocabulary_size is 99, but the store .* has 300"):
        fit_model_config(ModelConfig(vocabulary_size=99), store)


def test_missing_gpus_are_named(change):
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(DocmtError, match="no GPU here: choose --device cpu"):
        start_fabric(change(device="cuda"))


@pytest.mark.parametrize(
    ("environment", "leads"),
    [
        ({}, True),
        ({"RANK": "0", "LOCAL_RANK": "0"}, True),  # torchrun
        ({"RANK": "8", "LOCAL_RANK": "0"}, False),  # on the second machine
        ({"LOCAL_RANK": "1"}, False),  # started by Fabric
        ({"SLURM_PROCID": "3"}, False),
    ],
)
def test_one_process_of_several_leads(monkeypatch, environment, leads):
    """The others must not be refused by the lock that it holds."""
    for name in ("RANK", "LOCAL_RANK", "SLURM_PROCID"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert is_main_process() == leads
