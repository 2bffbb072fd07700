"""What of a pretrained model is trained, how fast, and with how much memory."""

import json
from collections import Counter
from copy import deepcopy
from dataclasses import replace

import pytest
import torch
from runs import assert_equal_runs, assert_equal_weights, metrics
from safetensors.torch import load_file

from docmt.checkpoint.model_directory import average_models, load_model
from docmt.cli.app import main
from docmt.cli.commands.train import make_train_parser
from docmt.core.errors import DocmtError
from docmt.model import TranslationModel
from docmt.model.layers import FeedForward
from docmt.model.model_config import Linear
from docmt.model.systems import Concat, Context, Hierarchical
from docmt.training import OptimizerConfig, TrainConfig, train
from docmt.training.distributed import start_fabric
from docmt.training.finetune import find_adapters, initialize_from
from docmt.training.optimizer import Updater
from docmt.training.run_directory import select_snapshots
from docmt.training.training_corpus import fit_model_config


@pytest.fixture
def tune(change, sentence_run, tmp_path):
    """A function that trains a group model from the sentence model into a run of this name, and returns its weights.

    Without dropout, and at the full learning rate from the first update on.
    """

    def tuned(name="run", resume=False, **settings):
        usual = {"initialize_from": sentence_run, "optimizer__warmup": 0, "model__dropout": 0.0, "stop__max_steps": 1}
        train(change(run=tmp_path / name, **{**usual, **settings}), resume)
        return load_model(tmp_path / name).state_dict()

    return tuned


@pytest.fixture
def start(sentence_run):
    """The weights of the sentence model."""
    return load_model(sentence_run).state_dict()


def assert_resumes_exactly(tune, tmp_path, **settings):
    """A run that is interrupted is the run that is not, bit for bit."""
    settings = {"checkpoints__average": "last", "checkpoints__average_count": 2, **settings}
    tune("whole", stop__max_steps=6, **settings)
    tune("halves", stop__max_steps=3, **settings)
    tune("halves", stop__max_steps=6, resume=True, **settings)
    for run in ("whole", "halves"):  # the end of the first half was validated, too
        lines = [json.loads(line) for line in (tmp_path / run / "metrics.jsonl").read_text().splitlines()]
        remaining = [line for line in lines if line["update"] != 3 and "best" not in line]
        (tmp_path / run / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in remaining))
    assert_equal_runs(tmp_path / "whole", tmp_path / "halves")


def moved(weights, start):
    """How far each weight that was loaded has moved: the median over its numbers."""
    return {name: (weights[name] - tensor).abs().median().item() for name, tensor in start.items()}


def test_the_last_pattern_that_fits_a_weight_is_its_rate(tune, start, config):
    """One update of Adam from zero moments moves every weight by its learning rate."""
    rate = config.optimizer.learning_rate
    lr_factors = ["encoder.*=0.5", "encoder.1.*=0", "*.inner.bias=0.25", "tokens*=0"]
    changes = moved(tune(optimizer__lr_factors=lr_factors, optimizer__pretrained_lr_scale=0.5), start)
    assert changes["encoder.0.feed_forward.outer.weight"] == pytest.approx(0.25 * rate, rel=0.01)
    assert changes["decoder.0.feed_forward.outer.weight"] == pytest.approx(0.5 * rate, rel=0.01)
    assert changes["encoder.1.feed_forward.outer.weight"] == changes["tokens.weight"] == 0
    for layer in ("encoder.0", "encoder.1", "decoder.1"):
        assert changes[f"{layer}.feed_forward.inner.bias"] == pytest.approx(0.125 * rate, rel=0.01)


@pytest.mark.full
def test_rates_without_a_start_and_after_a_resumption(tune, tmp_path):
    assert_resumes_exactly(tune, tmp_path, initialize_from=None, optimizer__lr_factors=["encoder.*=0.1", "tokens.*=3"])
    assert "lr_factors:\n  - encoder.*=0.1\n" in (tmp_path / "whole" / "recipe.yaml").read_text()


@pytest.mark.parametrize(
    ("lr_factors", "message"),
    [
        (
            ["encodr.0.feed*=2"],
            r"optimizer.lr_factors has 'encodr.0.feed\*', which matches no weight. The nearest names: enc",
        ),
        (
            ["encoder.0.*=2", "encoder.*=2"],
            r"optimizer.lr_factors has 'encoder.0.\*=2', which has no effect: its weights are",
        ),
    ],
)
def test_rates_of_no_weights(tune, lr_factors, message, tmp_path):
    with pytest.raises(DocmtError, match=message):
        tune(optimizer__lr_factors=lr_factors)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("rate", "message"),
    [
        ("encoder.*", r"optimizer.lr_factors has 'encoder.\*': give pattern=factor, such as encoder.\*=0.1"),
        ("=1", "optimizer.lr_factors has '=1': give pattern"),
        ("a=much", "optimizer.lr_factors has 'a=much': give pattern"),
        ("a=1001", "optimizer.lr_factors, factor of 'a', is 1001.0: choose a number from 0 to 1,000"),
        ("a=nan", "optimizer.lr_factors, factor of 'a', is nan: choose"),
    ],
)
def test_rates_that_are_none(rate, message):
    with pytest.raises(DocmtError, match=message):
        OptimizerConfig(lr_factors=[rate])


@pytest.mark.parametrize(
    ("freeze", "parts"),
    [
        pytest.param("embeddings", ("tokens.",), marks=pytest.mark.full),
        pytest.param("encoder", ("encoder",), marks=pytest.mark.full),
        pytest.param("decoder", ("decoder",), marks=pytest.mark.full),
        pytest.param("*.key.*, embeddings", (".key.", "tokens."), marks=pytest.mark.full),
        pytest.param("tokens*,encoder.*", ("tokens.", "encoder"), marks=pytest.mark.full),
        ("pretrained", ("",)),
    ],
)
def test_what_is_frozen_stays_and_the_rest_moves(tune, start, freeze, parts, tmp_path):
    """What is new is always trained: group attention has weights that the sentence model lacks."""
    one, two = tune("one", freeze=freeze), tune("two", freeze=freeze, stop__max_steps=2)
    frozen = {name for name in start if any(part in name for part in parts)}
    for name in two:
        if not name.endswith("key.bias"):  # has no effect on anything
            assert torch.equal(one[name], two[name]) == (name in frozen), name
    assert all(torch.equal(two[name], start[name]) for name in frozen)
    saved = load_file(tmp_path / "two" / "checkpoints" / "last" / "optimizer.safetensors")
    assert {name.rpartition(".")[0] for name in saved} == two.keys() - frozen


@pytest.mark.full
def test_a_partly_frozen_run_resumes_exactly(tune, tmp_path):
    assert_resumes_exactly(tune, tmp_path, freeze="embeddings,encoder", optimizer__lr_factors=["decoder.*=0.5"])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"freeze": "encodr.0.feed*"}, r"freeze has 'encodr.0.feed\*', which matches no loaded weight. The nearest"),
        ({"freeze": "*.gate.*"}, r"freeze has '\*.gate.\*', which matches no loaded weight"),
        (
            {"freeze": "encoder", "optimizer__lr_factors": ["encoder.0.attention.local.*=2"]},
            "optimizer.lr_factors has .*, which has no effect: its weights are frozen",
        ),
        (
            {"freeze": "*", "optimizer__pretrained_lr_scale": 0.5},
            "optimizer.pretrained_lr_scale has no effect, as all loaded weights are frozen: leave it out",
        ),
        (
            {"freeze": "embeddings,encoder,decoder", "model__system": "sentence"},
            "freeze embeddings,encoder,decoder would freeze everything",
        ),
    ],
)
def test_freezing_that_makes_no_sense(tune, settings, message):
    with pytest.raises(DocmtError, match=message):
        tune(**settings)


ADAPTERS = {"adapters__rank": 2, "adapters__alpha": 8.0}


@pytest.fixture
def adapted(change, sentence_run, store):
    """A function that gives a group model from the sentence model before and after adapters of these settings."""

    def build(**settings):
        config = change(initialize_from=sentence_run, model__dropout=0.0, **{**ADAPTERS, **settings})
        config = replace(config, model=fit_model_config(config.model, store))
        torch.manual_seed(2)
        model = TranslationModel(config.model)
        new = initialize_from(model, sentence_run, store.tokenizer)
        unadapted = deepcopy(model)
        return unadapted, Updater(start_fabric(config), config, model, new)

    return build


PAIRS = [([[0, 5, 6, 2], [0, 7, 2]], [[0, 8, 2], [0, 9, 10, 2]])]


def test_adapters_begin_with_the_loaded_model_and_end_in_its_weights(adapted):
    unadapted, updater = adapted(adapters__modules="*.query, *.inner")
    model, [before] = updater.model, unadapted.logits(PAIRS)
    assert len(find_adapters(model)) == 2 + 2 * 2 + 4  # queries of encoder and decoder, feed-forwards; new ones are not
    assert torch.equal(model.logits(PAIRS)[0], before)
    with torch.no_grad():
        for module in find_adapters(model).values():
            module.up.normal_()
    [changed] = model.logits(PAIRS)
    assert not torch.allclose(changed, before, atol=0.1)
    updater.weights.finish()
    assert model.state_dict().keys() == unadapted.state_dict().keys()
    assert [type(module) for module in model.modules()] == [type(module) for module in unadapted.modules()]
    torch.testing.assert_close(model.logits(PAIRS)[0], changed)


def test_what_is_adapted_changes_by_a_small_rank(tune, start, tmp_path):
    weights = tune(**ADAPTERS, stop__max_steps=4, optimizer__lr_factors=["*.up=16"])
    last = load_model(tmp_path / "run" / "checkpoints" / "last").state_dict()
    for name, tensor in start.items():
        if name.endswith((".query.weight", ".value.weight")):
            assert torch.linalg.matrix_rank(weights[name] - tensor, rtol=1e-4) == 2
        else:
            assert torch.equal(weights[name], tensor) and torch.equal(last[name], tensor), name
    single = tune("once", **ADAPTERS, optimizer__lr_factors=["*.up=16"])
    for name in weights.keys() - start.keys():
        if not name.endswith("key.bias"):
            assert not torch.equal(weights[name], single[name]), name


@pytest.mark.full
def test_a_run_with_adapters_resumes_exactly(tune, tmp_path):
    settings = {**ADAPTERS, "model__dropout": 0.1, "checkpoints__keep": 2}
    settings |= {"checkpoints__average": "last", "checkpoints__average_count": 2}
    assert_resumes_exactly(tune, tmp_path, **settings)
    file = "checkpoints/last/adapters.safetensors"
    assert_equal_weights(tmp_path / "whole" / file, tmp_path / "halves" / file)
    average_models(select_snapshots(tmp_path / "whole", "last", 2), tmp_path / "mean")
    assert_equal_weights(tmp_path / "mean" / "model.safetensors", tmp_path / "whole" / "model" / "model.safetensors")
    assert main(["train", "--resume", str(tmp_path / "whole"), "--max-steps", "7", "-q"]) == 0  # its recipe is read
    (tmp_path / "halves" / file).unlink()
    with pytest.raises(DocmtError, match=r"adapters\.safetensors is missing\. Copy the whole directory again"):
        tune("halves", stop__max_steps=8, resume=True, **settings)


def test_adapters_alone(tune, start, tmp_path):
    """A model without any new weights."""
    weights = tune(**ADAPTERS, model__system="sentence")
    assert {name for name in start if not torch.equal(weights[name], start[name])} == {
        name for name in start if name.endswith((".query.weight", ".value.weight"))
    }
    assert "added adapters of rank 2 to 12 linear modules" in (tmp_path / "run" / "train.log").read_text()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"adapters__modules": "*.quer"}, r"adapters.modules has '\*.quer', which matches no linear module. The near"),
        ({"adapters__modules": "*.gate.*"}, r"adapters.modules has '\*.gate.\*', which matches no linear module"),
        ({"adapters__rank": 17}, r"adapters.rank is 17, but encoder.0.\S+ has 16 x 16 weights: choose at most 16"),
        ({"freeze": "encoder"}, "freeze is set, but so is adapters.rank, which freezes all loaded weights"),
        (
            {"optimizer__pretrained_lr_scale": 0.5},
            "optimizer.pretrained_lr_scale has no effect on frozen .* without adapters.rank",
        ),
        ({"initialize_from": None}, "adapters.rank is set but initialize_from is not: name the model to start from"),
        ({"adapters__rank": 0}, "adapters.alpha is set but adapters.rank is 0: choose a rank, or leave it out"),
        ({"adapters__rank": -1}, "adapters.rank is -1: choose a number from 0 to 65,536"),
        ({"adapters__modules": "a,"}, "adapters.modules is 'a,': give patterns separated by single commas"),
    ],
)
def test_adapters_that_make_no_sense(tune, settings, message):
    with pytest.raises(DocmtError, match=message):
        tune(**{**ADAPTERS, **settings})


SYSTEMS = [
    {"model__attention_dropout": 0.1},
    {"model__system": "multihop", "batches__gradient_accumulation": 2},
    {"model__system": "context", "model__context": Context(representation="bilstm", gating="residual")},
    {"model__system": "hierarchical", "model__hierarchical": Hierarchical(side="both", sentences=2)},
    {
        "model__family": "rfa",
        "model__system": "concat",
        "model__concat": Concat(sentences=2, attention="linear"),
        "model__linear": Linear(features=8, cross_features=8, gate="decay", feature_map="random"),
    },
]


def name_of(settings):
    return settings.get("model__system", "group")


def in_tiers(variants):
    """The variants as parameters; in `make test` one with features that are drawn."""
    return [one if name_of(one) == "concat" else pytest.param(one, marks=pytest.mark.full) for one in variants]


@pytest.mark.parametrize("settings", in_tiers([*SYSTEMS, {"precision": "bfloat16"}]), ids=name_of)
@pytest.mark.full
def test_layers_that_are_computed_again_give_the_same_numbers(
    change, drafted, sentence_run, settings, tmp_path, monkeypatch
):
    """With dropout and features that are drawn anew."""
    settings = {**({"drafter": sentence_run} if name_of(settings) == "multihop" else {}), **settings}
    settings = {"store": drafted.directory, "model__dropout": 0.3, "stop__max_steps": 4, **settings}
    computed, plainly = Counter(), FeedForward.forward

    def counted(self, x, context):
        computed[run] += torch.is_grad_enabled() and self.training
        return plainly(self, x, context)

    monkeypatch.setattr(FeedForward, "forward", counted)
    for run in ("kept", "again"):
        train(change(run=tmp_path / run, activation_checkpointing=run == "again", **settings))
    assert 1.5 * computed["kept"] < computed["again"] <= 2 * computed["kept"]  # what is in no layer is computed once
    assert_equal_runs(tmp_path / "kept", tmp_path / "again")


BF16 = {"precision": "bfloat16-weights"}


@pytest.mark.parametrize("freeze", ["none", "encoder"])
def test_weights_in_bfloat16_learn_in_float32(tune, start, tmp_path, freeze):
    """By steps that are far too small for bfloat16; what is frozen is not even rounded."""
    weights = tune(**BF16, freeze=freeze, optimizer__learning_rate=1e-6)
    for name, steps in moved(weights, start).items():
        if freeze == "encoder" and name.startswith("encoder"):
            assert torch.equal(weights[name], start[name])
        elif ".feed_forward.inner.weight" in name:
            assert steps == pytest.approx(1e-6, rel=0.1)
    for file in ("checkpoints/last/model.safetensors", "checkpoints/last/optimizer.safetensors"):
        assert {tensor.dtype for tensor in load_file(tmp_path / "run" / file).values()} == {torch.float32}


@pytest.mark.full
@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({}, marks=pytest.mark.full, id="all"),
        pytest.param(ADAPTERS, id="adapters"),
        pytest.param({"freeze": "pretrained"}, marks=pytest.mark.full, id="frozen"),
    ],
)
def test_a_run_with_weights_in_bfloat16_resumes_exactly(tune, tmp_path, settings):
    more = {"model__dropout": 0.1, "optimizer__clip_norm": 0.5, "batches__gradient_accumulation": 2}
    assert_resumes_exactly(tune, tmp_path, **BF16, **more, **settings)


@pytest.mark.full
@pytest.mark.parametrize("settings", in_tiers(SYSTEMS), ids=name_of)
def test_every_kind_of_weight_may_be_in_bfloat16(change, drafted, sentence_run, settings, tmp_path):
    """The same steps as with weights in float32, but for the rounding."""
    settings = {**({"drafter": sentence_run} if name_of(settings) == "multihop" else {}), **settings}
    settings = {"store": drafted.directory, "model__dropout": 0.0, "optimizer__clip_norm": 0.1, **settings}
    settings |= {"validation__best_by": "d_bleu", "validation__entropy": True}
    lines = []
    for precision in ("bfloat16", "bfloat16-weights"):
        train(change(run=tmp_path / precision, precision=precision, stop__max_steps=4, **settings))
        lines.append([line for line in metrics(tmp_path / precision) if "gradient_norm" in line])
    for wide, narrow in zip(*lines, strict=True):
        assert narrow["loss"] == pytest.approx(wide["loss"], rel=0.01)
        assert narrow["gradient_norm"] == pytest.approx(wide["gradient_norm"], rel=0.05)


def options(*arguments):
    return make_train_parser().parse(["--store", "s", "--run", "r", *arguments])


def test_options_are_flags_and_recipes(tmp_path):
    recipe = tmp_path / "recipe.yaml"
    start = "initialize_from: MODEL\nfreeze: decoder, *.key.*\n"
    recipe.write_text(f"{start}optimizer:\n  lr_factors: ['encoder.*=0.1', 'tokens*=0']\n")
    flags = ["--initialize-from", "MODEL", "--freeze", "decoder, *.key.*", "--lr-factors", "encoder.*=0.1", "tokens*=0"]
    for config in (options(*flags), options("--config", str(recipe))):
        assert config.optimizer.lr_factors == ["encoder.*=0.1", "tokens*=0"]
        assert config.freeze_patterns == ["decoder", "*.key.*"]
        assert TrainConfig.from_dict(config.to_dict()) == config
