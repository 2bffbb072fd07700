"""Experiment files: the shipped ones can be run at both scales, wrong ones are named in one sentence."""

from pathlib import Path

import pytest

from docmt.checkpoint.model_directory import find_model
from docmt.core.errors import DocmtError
from docmt.data import PrepareConfig, prepare
from docmt.experiments import list_experiments, make_plan, read_experiment
from variants import in_tiers

SHIPPED = list_experiments()


def runs_of(plan):
    return [(run.variant, run.axis, run.point, run.seed) for run in plan.runs]


def test_shipped_experiments():
    assert set(SHIPPED) == {
        *("table2", "table3", "table5", "table6", "table7"),
        *("figure2", "figure3", "figure7", "figure7-synthetic", "figures4-5-8"),
        *(f"zhang2018-table{number}" for number in (1, 2, 7, 8, 9)),
        *(f"multihop-{about}" for about in ("window", "direction", "drafts", "context")),
        *("concat", "phenomena", "rfa-table1", "rfa-figure3", "systems"),
    }


@pytest.mark.full
@pytest.mark.parametrize("scale", ["cpu", pytest.param("full", marks=pytest.mark.full)])
@pytest.mark.parametrize("name", in_tiers(SHIPPED, ["systems", "rfa-table1"], every=True))
def test_every_shipped_experiment_can_be_planned(name, scale, store, tmp_path):
    if name == "systems":  # it starts from a model that is there
        files = {split: [store.parent / f"{split}.jsonl"] for split in ("train", "dev", "test")}
        tokenizer = {"tokenizer": str(find_model("en-fr-sentence")), "source_language": "en", "target_language": "fr"}
        store = prepare(PrepareConfig(store=tmp_path / "fitting", **tokenizer, **files)).directory
    plan = make_plan(SHIPPED[name], scale, store, tmp_path)
    directories = [run.config.run for run in plan.unique_runs()]
    assert len(directories) == len(set(directories)) > 1
    if name == "systems":  # one recipe for both scales, and one start, which is no run
        assert {run.config.initialize_from.name for run in plan.runs} == {"en-fr-sentence"}
        assert {run.config.stop.max_steps for run in plan.runs} == {1200}
        return
    assert all(scale in directory.name.split("-seed")[0].split("-") for directory in directories)
    for directory, run in zip(directories, plan.unique_runs(), strict=True):
        start = run.config.initialize_from
        # Loaded weights learn more slowly, or not at all; what begins as the sentence model may learn as a whole.
        apart = run.config.optimizer.pretrained_lr_scale != 1 or run.config.freeze == "pretrained"
        whole = run.config.model.system in ("concat", "multihop", "hierarchical")
        whole |= name == "phenomena" and run.variant not in ("start", "reverse")
        whole &= not (name.startswith("rfa") and scale == "full")  # as published, from random weights
        assert (start is not None) == (apart or whole)
        for other in (start, run.config.initialize_reverse_from):
            assert other is None or other in directories[: directories.index(directory)]
    for axis in SHIPPED[name].axes:
        assert axis.name or len(SHIPPED[name].axes) == 1
        assert scale == "cpu" or set(axis.published) <= set(axis.points[scale])


@pytest.mark.full
def test_experiments_share_what_they_have_in_common(store, tmp_path):
    plans = {}
    for name, experiment in SHIPPED.items():
        plans[name] = make_plan(experiment, "cpu", store, tmp_path)
        for planned in plans[name].runs:
            planned.config.run.mkdir(parents=True, exist_ok=True)
    directories = {name: {run.config.run for run in plan.runs} for name, plan in plans.items()}
    assert directories["figure3"] < directories["table2"]
    assert directories["figure2"] < directories["figure7"]
    assert len(directories["table3"] & directories["table2"]) == 2
    assert directories["figure3"] & directories["figures4-5-8"] == set()
    assert len(plans["figure7"].runs) == 28
    assert len(directories["figure7"]) == 24, "512 tokens, all data and 256 wide are one run"


def test_ablations(store, tmp_path):
    def settings(name):
        return [run.config for run in make_plan(SHIPPED[name], "full", store, tmp_path).runs]

    models = [config.model for config in settings("table3")][1:]
    assert [m.group.decoder_layers for m in models] == [2, 0, 0]
    assert [(m.group.encoder_layers, m.group.cross_layers) for m in models] == [(2, 2), (2, 2), (0, 0)]
    ablations = settings("table5")
    assert [config.objective.word_dropout for config in ablations] == [0.3, 0, 0, 0]
    assert [config.model.group.self_locality for config in ablations] == [True, True, False, False]
    assert [config.model.group.cross_locality for config in ablations] == [True, True, True, False]
    assert [config.model.group.top_attention for config in settings("table6")] == ["combined", "group", "global"]
    assert [config.model.width for config in settings("table7")] == [512, 1024, 1024]
    assert [config.model.encoder_layers for config in settings("table7")] == [6, 6, 12]
    assert all(config.validation.entropy for config in settings("figures4-5-8"))


WINDOWS = {
    "Transformer": ("softmax", "none", 2.0),
    "RFA": ("linear", "none", 2.0),
    "RFA-sgate": ("linear", "decay", 2.0),
    "RFA-sgate-avg": ("linear", "average", 0.0),
    "Learned features": ("linear", "none", 2.0),
}
PUBLISHED = {  # BLEU on IWSLT and OpenSubtitles
    "Transformer, L = 1": (31.7, 32.6),
    "Transformer, L = 4": (30.4, 33.1),
    "RFA, L = 1": (31.0, 32.9),
    "RFA, L = 4": (30.7, 33.2),
    "RFA-sgate-avg, L = 4": (30.8, 33.0),
    "RFA-sgate, L = 4": (31.2, 33.2),
}


@pytest.mark.parametrize("scale", ["cpu", pytest.param("full", marks=pytest.mark.full)])
def test_windows_of_linear_attention(scale, store, tmp_path):
    plan = make_plan(SHIPPED["rfa-table1"], scale, store, tmp_path)
    runs = [run for run in plan.runs if run.variant != "start"]
    # Gates have nothing to do in windows of one sentence.
    assert [run.variant for run in runs] == [
        f"{system}, L = {length}"
        for system, (_, gate, _) in WINDOWS.items()
        for length in range(1 + (gate != "none"), 5)
    ]
    for run in runs:
        system, length = run.variant.split(", L = ")
        model = run.config.model
        assert (model.concat.attention, model.linear.gate, model.linear.gate_bias) == WINDOWS[system]
        assert (model.concat.sentences, model.concat.window_decoding, model.concat.loss) == (int(length), "last", "all")
        linear = model.linear
        learned = system in ("Transformer", "Learned features")
        assert linear.feature_map == ("learned" if learned else "random")
        assert not (learned and (linear.features or linear.cross_features))  # as many as a head is wide
        if scale == "full":
            assert (model.width, model.feed_forward, model.heads, model.activation) == (512, 1024, 8, "gelu")
            if not learned:
                assert (linear.features, linear.cross_features, linear.gate_per) == (32, 256, "head")
            assert model.concat.padding_windows == (length != "1")
            optimizer, batches = run.config.optimizer, run.config.batches
            assert (optimizer.learning_rate, optimizer.warmup) == (1e-3, 8000)
            assert batches.batch_tokens * batches.gradient_accumulation == 16384
    starts = {run.config.initialize_from for run in runs}
    assert starts == ({None} if scale == "full" else {plan.runs[0].config.run})
    assert len({run.config.run for run in runs}) == 18
    figure_runs = {run.config.run for run in make_plan(SHIPPED["rfa-figure3"], scale, store, tmp_path).runs}
    assert figure_runs >= {run.config.run for run in runs}


def test_published_scores_of_windows():
    variants = SHIPPED["rfa-table1"].variants.items()
    assert {name: tuple(variant.published.values()) for name, variant in variants if variant.published} == PUBLISHED
    assert SHIPPED["rfa-figure3"].variants.keys() == SHIPPED["rfa-table1"].variants.keys()


def test_names_that_are_none():
    with pytest.raises(
        DocmtError, match=r"unknown experiment 'table9': choose one of concat, figure2, .*table7, .*or give"
    ):
        read_experiment("table9")
    with pytest.raises(DocmtError, match=r"cannot read none.yaml: there is no such file"):
        read_experiment("none.yaml")


def test_a_user_file(write_experiment, store, tmp_path):
    plan = make_plan(read_experiment(str(write_experiment())), "full", store, tmp_path / "out")
    assert runs_of(plan) == [
        ("sentence", "", "", 1),
        ("tuned", "", "", 1),
        ("sentence", "", "", 2),
        ("tuned", "", "", 2),
    ]
    assert [run.config.seed for run in plan.runs] == [1, 1, 2, 2]
    sentence, tuned = plan.runs[2:]
    assert tuned.config.initialize_from == sentence.config.run
    assert (sentence.config.initialize_from, sentence.config.model.system) == (None, "sentence")
    assert (tuned.config.stop.max_steps, tuned.config.optimizer.pretrained_lr_scale) == (20, 0.5)
    assert tuned.config.store == store


AXES = """
title: Grid
variants:
  one: {recipe: group-cpu.yaml}
  two: {recipe: group-cpu.yaml, start_from: one, settings: {model.dropout: 0.2}}
axes:
  - name: length
    points: {32: {model.instance_tokens: 32}, 64: {model.instance_tokens: 64}}
  - name: width
    cpu: {thin: {model.width: 8}, usual: {}}
    full: {wide: {model.width: 32}}
"""


def test_a_grid_is_every_combination(write_experiment, store, tmp_path):
    experiment = read_experiment(str(write_experiment(AXES)))
    plan = make_plan(experiment, "cpu", store, tmp_path, seeds=[5])
    points = [("length", "32"), ("length", "64"), ("width", "thin"), ("width", "usual")]
    assert runs_of(plan) == [(variant, *point, 5) for point in points for variant in ("one", "two")]
    by_key = {(run.variant, run.point): run.config for run in plan.runs}
    assert by_key["two", "thin"].initialize_from == by_key["one", "thin"].run
    assert by_key["two", "thin"].model.width == 8
    assert by_key["two", "64"].run == by_key["two", "usual"].run, "64 tokens is what the recipe has"
    assert len(plan.unique_runs()) == 6
    assert [run.point for run in make_plan(experiment, "full", store, tmp_path).runs][4:] == ["wide", "wide"]


def test_numbers_and_words_are_read_as_by_the_command_line(write_experiment, store, tmp_path):
    """5e-4 was text, for which a number was asked, and the name `no` was false."""
    path = write_experiment(
        "title: no\nvariants: {no: {recipe: r.yaml, settings: {optimizer: {beta2: 9e-1}}, published: {d-BLEU: 3e1}}}"
    )
    path.with_name("r.yaml").write_text("store: x\nrun: x\noptimizer.warmup: 7\noptimizer:\n  learning_rate: 5e-4\n")
    plan = make_plan(read_experiment(str(path)), "cpu", store, tmp_path)
    optimizer = plan.runs[0].config.optimizer
    assert (optimizer.learning_rate, optimizer.beta2, optimizer.warmup) == (5e-4, 0.9, 7)
    assert (plan.runs[0].variant, plan.experiment.title) == ("no", "no")
    assert plan.experiment.variants["no"].published == {"d-BLEU": 30}


LEVELS = [f"{new}: &{new} [{', '.join([f'*{old}'] * 9)}]" for old, new in zip("abcdefgh", "bcdefghi", strict=True)]
BOMB = "\n".join(["a: &a [x, x, x, x, x, x, x, x, x]", *LEVELS, "variants: {}", "title: *i"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", "small.yaml, line 1: not valid YAML"),
        ("title: x\ntitle: y", "small.yaml, line 2: title is set twice; remove one of the lines"),
        ("title: [x]\nvariants: {}", r"small.yaml: title is \['x'\]: give text"),
        pytest.param("title: x\na: " + "[" * 100_000, "small.yaml: too many nested levels", marks=pytest.mark.full),
        (BOMB, "small.yaml, line .*: the aliases .* expand to too many values"),
        ("title: x\nvariants: {a: {recipe: group-cpu.yaml, settings: {initialize_from: [5]}}}", "initialize_from is"),
        (
            "title: x\nvariants: {a: {recipe: r, published: {d-BLEU: high}}}",
            "published: could not convert string to float: 'high'. Use numbers",
        ),
        ("- a", "small.yaml is not a mapping"),
        ("title: x\nvariants: {}\ncolour: red", "small.yaml has the unknown setting colour: remove it"),
        ("title: x", "small.yaml: variants is not a mapping"),
        ("title: x\nvariants: [1]", "small.yaml: variants is not a mapping"),
        ("title: x\nvariants: {a: {settings: {}}}", "variant a has no setting recipe: add it"),
        ("variants: {}", "small.yaml has no setting title: add it"),
        ("title: x\nseeds: 3\nvariants: {}", "seeds is '3': give"),
        ("title: x\nvariants: {a: {recipe: r, scale: huge}}", "variant a: scale is 'huge': choose one of cpu, full"),
        (
            "title: x\nvariants: {a: {recipe: r, start_from: b}}",
            "variant a cannot start from 'b'. Name another variant",
        ),
        (
            "title: x\nvariants: {a: {recipe: r, start_from: b}, b: {recipe: r, start_from: a}}",
            "variant a cannot start from 'b'. .* avoid circular starts",
        ),
        ("title: x\nvariants: {a: {recipe: r}}\naxes: [{name: n, cpu: {p: {}}}]", "axis n has no points at scale full"),
        ("title: x\nvariants: {a: {recipe: none.yaml}}", "cannot read .*none.yaml: there is no such file; check"),
        (
            "title: x\nvariants: {a: {recipe: group-cpu.yaml, settings: {model.widht: 3}}}",
            "variant a with group-cpu.yaml has the unknown setting model.widht",
        ),
        (
            "title: x\nvariants: {a: {recipe: group-cpu.yaml, settings: {model.width: wide}}}",
            "variant a with group-cpu.yaml: model.width is 'wide': give a whole number",
        ),
        (
            "title: x\nvariants: {a: {recipe: group-cpu.yaml, settings: {log_every.x: 3}}}",
            "has the unknown setting log_every.x: check its spelling",
        ),
        ("title: x\nvariants: {a: {recipe: group-cpu.yaml, settings: {log_every: 0}}}", "log_every is 0: choose"),
    ],
)
def test_files_that_are_wrong(text, message, write_experiment, store, tmp_path):
    path = write_experiment(text)
    with pytest.raises(DocmtError, match=message) as caught:
        make_plan(read_experiment(str(path)), "cpu", store, tmp_path)
    assert "\n" not in str(caught.value)


def test_stores_that_cannot_be_used(write_experiment, tmp_path):
    experiment = read_experiment(str(write_experiment()))
    with pytest.raises(DocmtError, match="is not a prepared store"):
        make_plan(experiment, "cpu", Path("none"), tmp_path)
