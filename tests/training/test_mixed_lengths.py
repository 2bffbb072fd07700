"""Training at mixed instance lengths: every sentence once an epoch, the same wherever a run begins or goes on."""

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from runs import Killed, assert_equal_runs, kill_before

from docmt.cli.app import main
from docmt.core.errors import DocmtError
from docmt.core.settings import flatten
from docmt.data import BatchPlan, cut_instances, instance_lengths
from docmt.data.instances import cut_mixed_instances
from docmt.model import ModelConfig
from docmt.model.systems import ContextSpec
from docmt.training import train
from docmt.training.training_corpus import TrainingCorpus

LIMITS = [16, 64]
DOCUMENTS = st.lists(st.lists(st.integers(1, 20), max_size=30), min_size=1, max_size=8).filter(any)


def mixed_plan(documents, limits, seed=1, batch_tokens=50):
    """The lengths of all sentences, the mixed instances of the documents, and the plan of their batches."""
    lengths = np.array([length for document in documents for length in document])
    offsets = np.cumsum([0, *map(len, documents)])
    instances, mixture = cut_mixed_instances(lengths, lengths, offsets, ContextSpec(), limits, 1000)
    return instances, mixture, BatchPlan(instance_lengths(instances, lengths), batch_tokens, seed, mixture)


@given(DOCUMENTS, st.sets(st.sampled_from([8, 16, 30, 64]), min_size=1), st.integers(0, 3))
def test_an_epoch_has_every_sentence_once_and_batches_of_one_limit(documents, limits, epoch):
    instances, mixture, plan = mixed_plan(documents, list(limits))
    document_of = np.repeat(np.arange(len(documents)), list(map(len, documents)))
    covered = []
    for batch in plan.batches_in_epoch(epoch):
        (number,) = set(mixture.limit[batch].tolist())
        for first, last, cost, document in zip(
            *(each[batch] for each in (instances.first, instances.last, instances.cost, instances.document)),
            strict=True,
        ):
            assert cost < sorted(limits)[number] or last - first == 1
            assert set(document_of[first:last]) == {document}
            covered += range(first, last)
    assert sorted(covered) == list(range(sum(map(len, documents))))


def test_each_limit_has_its_share_of_the_text_also_of_one_long_document():
    instances, mixture, plan = mixed_plan([[4] * 4000], [16, 32, 64])
    shares = np.zeros(3)
    for epoch in range(3):
        for batch in plan.batches_in_epoch(epoch):
            shares[mixture.limit[batch[0]]] += instances.cost[batch].sum()
    assert shares / shares.sum() == pytest.approx([1 / 3] * 3, abs=0.04)
    sizes = [instances.cost[mixture.limit == number].mean() for number in range(3)]
    assert sizes == pytest.approx([12, 30, 60], rel=0.05)


def test_the_longest_instances_are_those_of_ordinary_training():
    documents = [[3, 9, 30, 2, 2, 2, 7], [5] * 9]
    instances, mixture, _ = mixed_plan(documents, [32, 8])
    lengths = np.array(documents[0] + documents[1])
    usual = cut_instances(lengths, lengths, [0, 7, 16], ContextSpec(), limit=32)
    for name in vars(usual):
        assert getattr(instances, name)[mixture.limit == 1].tolist() == getattr(usual, name).tolist(), name


def test_an_epoch_depends_on_seed_and_number_alone():
    """Written down once: a change here would make every interrupted training go on with other data."""
    documents = [[3] * 12, [3] * 4]

    def epoch(seed, number):
        instances, _, plan = mixed_plan(documents, LIMITS, seed, batch_tokens=20)
        return [
            [(int(instances.first[i]), int(instances.last[i])) for i in batch]
            for batch in plan.batches_in_epoch(number)
        ]

    assert len({str(epoch(seed, number)) for seed in range(4) for number in range(4)}) > 8
    assert epoch(4, 1) == [[(15, 16), (9, 12)], [(0, 3)], [(6, 9)], [(3, 6)], [(12, 15)]]


@pytest.mark.parametrize("killed_before", [8, *(pytest.param(update, marks=pytest.mark.full) for update in (3, 11))])
def test_a_killed_run_goes_on_bit_for_bit(change, tmp_path, monkeypatch, killed_before):
    settings = {"batches__instance_lengths": LIMITS, "batches__batch_tokens": 96}
    config = change(**settings)
    train(change(run=tmp_path / "whole", **settings))
    with monkeypatch.context() as patch, pytest.raises(Killed):
        kill_before(patch, killed_before)
        train(config)
    train(config, resume=True)
    assert_equal_runs(config.run, tmp_path / "whole")


@pytest.mark.parametrize("world", [1, 3])
def test_processes_share_an_epoch_and_its_tokens_are_known(change, store, world):
    config = change(batches__instance_lengths=LIMITS, batches__batch_tokens=40, batches__gradient_accumulation=2)
    ranks = [TrainingCorpus(store, config, rank, world) for rank in range(world)]
    assert len(ranks[0].dev.instances) == len(TrainingCorpus(store, change()).dev.instances)
    for epoch in range(3):
        position, tokens, updates, ends = 0, 0, 0, False
        while not ends:
            plans = [corpus.plan_update(epoch, position) for corpus in ranks]
            counted = [indices for plan in plans for indices, weight in plan.batches if weight]
            assert {plan.label_tokens for plan in plans} == {
                sum(ranks[0].train.build_batch(indices).tokens for indices in counted)
            }
            position, tokens, updates = plans[0].position, tokens + plans[0].label_tokens, updates + 1
            ends = plans[0].ends_epoch
        assert updates == ranks[0].count_updates(epoch)
        split = store.split("train")
        assert tokens == len(split.target.tokens) + 2 * len(split.target.lengths), "each sentence with two marks"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"batches__instance_lengths": [7]}, r"batches.instance_lengths is 7: choose a number from 8 to"),
        ({"batches__instance_lengths": [16, 64, 16]}, r"batches.instance_lengths has 16 twice: give each length once"),
        (
            {"batches__instance_lengths": [16, 65]},
            r"batches.instance_lengths has 65, but model.instance_tokens is 64: leave it out, or raise",
        ),
        *(
            (
                {"batches__instance_lengths": LIMITS, "model__system": system},
                rf"batches.instance_lengths has no effect on the {system} system, .*: leave it out, or choose",
            )
            for system in ("sentence", "concat", "context", "multihop", "hierarchical")
        ),
    ],
)
def test_lengths_that_would_do_nothing_are_refused(change, settings, message):
    with pytest.raises(DocmtError, match=message):
        change(**settings)
    change(batches__instance_lengths=LIMITS, model=ModelConfig(system="document"))


def test_on_the_command_line_and_in_recipes(change, monkeypatch, tmp_path, capsys):
    config = change(batches__instance_lengths=[16, 32, 64])
    scalars = (bool, int, float, str, list)
    values = {
        name: value for name, value in flatten(config.to_dict()).items() if value != "" and isinstance(value, scalars)
    }
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(values))
    assert main(["train", str(tmp_path / "recipe.yaml"), "--instance-lengths", "64", "16", "--max-steps", "1"]) == 0
    log = (config.run / "train.log").read_text()
    assert "each document segment draws a new length limit every epoch: 16, 64 tokens\n" in log
    assert "this epoch has " in log
    capsys.readouterr()
    assert main(["train", "--resume", str(config.run), "--max-steps", "2"]) == 0
    assert main(["train", "--resume", str(config.run), "--instance-lengths", "64"]) == 2
    assert "batches.instance_lengths is [64] but was [64, 16]; only" in capsys.readouterr().err
    assert main(["train", str(tmp_path / "recipe.yaml"), "--instance-lengths", "64", "many"]) == 2
    assert "--batches.instance-lengths is 'many': give a whole number" in capsys.readouterr().err
