"""Every system trains: which weights move, where they start from, what does not fit is refused at once."""

import json
from dataclasses import replace

import pytest
import torch
from runs import copy_before

from docmt.checkpoint.model_directory import load_model
from docmt.core.errors import DocmtError
from docmt.data import PrepareConfig, prepare
from docmt.model import ModelConfig, TranslationModel
from docmt.model.builder import ModelBuilder
from docmt.model.linear_kernels import CHUNK
from docmt.model.model_config import Linear
from docmt.model.systems import Cadec, Concat, Context, Group, Hierarchical, MultiHop, Selective
from docmt.training import train
from docmt.training.distributed import start_fabric
from docmt.training.finetune import initialize_from
from docmt.training.optimizer import Updater
from docmt.training.training_corpus import TrainingCorpus, fit_model_config
from variants import in_tiers

SYSTEMS = {
    "group": {},
    "sentence": {"model__system": "sentence"},
    "document": {"model__system": "document"},
    "concat": {"model__system": "concat", "model__concat": Concat(sentences=2)},
    "concat, last sentence": {"model__system": "concat", "model__concat": Concat(sentences=2, loss="last")},
    "concat, padding windows": {"model__system": "concat", "model__concat": Concat(sentences=2, padding_windows=True)},
    "concat, rfa": {
        "model__family": "rfa",
        "model__system": "concat",
        "model__concat": Concat(sentences=2, attention="linear"),
        "model__linear": Linear(features=8, cross_features=8, gate="decay"),
    },
    "context": {"model__system": "context"},
    "context, as published": {"model__system": "context", "model__context": Context(fusion="published")},
    "context in the encoder": {"model__system": "context", "model__context": Context(side="encoder")},
    "context lstm": {"model__system": "context", "model__context": Context(representation="bilstm", gating="residual")},
    "context embeddings": {"model__system": "context", "model__context": Context(representation="embedding")},
    "context, two layers": {"model__system": "context", "model__context": Context(layers=2, side="decoder")},
    "multihop": {"model__system": "multihop"},
    "multihop, as published": {"model__system": "multihop", "model__multihop": MultiHop(fusion="published")},
    "multihop after references": {
        "model__system": "multihop",
        "model__multihop": MultiHop(sentences=2, target_context="references", direction="R2L"),
    },
    "multihop over the source": {
        "model__system": "multihop",
        "model__multihop": MultiHop(side="source", keys="output"),
    },
    "multihop, joined": {"model__system": "multihop", "model__multihop": MultiHop(context_attention="joined")},
    "multihop, hierarchical": {
        "model__system": "multihop",
        "model__multihop": MultiHop(context_attention="hierarchical"),
    },
    "hierarchical": {"model__system": "hierarchical"},
    "hierarchical, as published": {
        "model__system": "hierarchical",
        "model__hierarchical": Hierarchical(fusion="published", detach=True),
    },
    "hierarchical in the decoder": {
        "model__system": "hierarchical",
        "model__hierarchical": Hierarchical(side="decoder"),
    },
    "hierarchical on both sides": {
        "model__system": "hierarchical",
        "model__hierarchical": Hierarchical(side="both", sentences=2),
    },
    "flat": {"model__system": "flat"},
    "hybrid": {"model__system": "hybrid"},
    "selective": {"model__system": "selective"},
    "selective, as published": {
        "model__system": "selective",
        "model__selective": Selective(fusion="published", detach=True),
    },
    "selective in the decoder": {"model__system": "selective", "model__selective": Selective(side="decoder")},
    "selective on both sides, as published": {
        "model__system": "selective",
        "model__selective": Selective(side="both", fusion="published", detach=True),
    },
    "cadec": {"model__system": "cadec"},
    "cadec, as published": {"model__system": "cadec", "model__cadec": Cadec(sentences=1, fusion="published")},
}
HALVES = {"model__group": Group(fusion="heads")}


@pytest.fixture
def change(change, drafted, sentence_run):
    """As elsewhere, but the store has drafts, and there is a drafter, for the systems that read them.

    Systems with frozen layers start from the sentence model.
    """

    def changed(**settings):
        if settings.get("model__system") == "cadec":
            settings = {"initialize_from": sentence_run, **settings}
        config = change(**{"store": drafted.directory, **settings})
        return replace(config, drafter=sentence_run) if config.model.system_options.context_spec().drafts else config

    return changed


@pytest.mark.parametrize("name", in_tiers(SYSTEMS, ["group"]))
def test_every_system_trains_and_resumes_bit_for_bit(name, change, monkeypatch, tmp_path):
    settings = {**SYSTEMS[name], "checkpoints__every": 2, "stop__max_steps": 4}
    with monkeypatch.context() as patch:
        copy_before(patch, 3, tmp_path / "halves")
        train(change(run=tmp_path / "whole", **settings))
    train(change(run=tmp_path / "halves", **settings), resume=True)
    whole, halves = (load_model(tmp_path / run).state_dict() for run in ("whole", "halves"))
    assert all(torch.equal(whole[weight], halves[weight]) for weight in whole)
    records = [json.loads(line) for line in (tmp_path / "whole" / "metrics.jsonl").read_text().splitlines()]
    assert records


@pytest.mark.parametrize("name", SYSTEMS)
def test_label_tokens_are_known_before_collating(name, change, drafted):
    corpus = TrainingCorpus(drafted, change(**SYSTEMS[name]))
    total = 0
    for indices in corpus.train.plan.batches_in_epoch(0):
        assert corpus.train.build_batch(indices).tokens == corpus.train.count_label_tokens(indices)
        total += corpus.train.count_label_tokens(indices)
    words = len(drafted.split("train").target.tokens) + 2 * len(drafted.split("train").target.lengths)
    windows = name in ("concat", "concat, padding windows", "concat, rfa")
    assert (total > words) if windows else (total == words)  # in windows sentences are predicted more than once


PROMISED = {
    "group": (".gate.", ".global."),
    "context": ("context",),
    "context, as published": ("context",),
    "context in the encoder": ("context",),
    "context lstm": ("context",),
    "context embeddings": ("context",),
    "context, two layers": ("context",),
    "multihop": ("hops", "draft"),
    "multihop, as published": ("hops", "draft"),
    "multihop after references": ("hops", "draft"),
    "multihop over the source": ("hops",),
    "multihop, joined": ("hops", "draft"),
    "multihop, hierarchical": ("hops", "draft"),
    "hierarchical": ("above_encoder.",),
    "hierarchical, as published": ("above_encoder.",),
    "hierarchical in the decoder": ("above_decoder.",),
    "hierarchical on both sides": ("above_",),
    "flat": ("segments",),
    "hybrid": ("above_encoder.", ".relation."),
    "selective": ("above_encoder.",),
    "selective, as published": ("above_encoder.",),
    "selective in the decoder": (".context",),
    "selective on both sides, as published": (".context",),
    "cadec": (".cross.global.", ".draft"),
}


@pytest.mark.parametrize("name", PROMISED)
def test_with_the_rest_frozen_exactly_the_new_weights_move(name, change, sentence_run, drafted):
    """From one update to the next; before, some have no gradient, as what follows them is zero."""
    config = change(**SYSTEMS[name], initialize_from=sentence_run, freeze="pretrained", optimizer__warmup=0)
    config = replace(config, model=fit_model_config(config.model, drafted))
    torch.manual_seed(3)
    model, corpus = TranslationModel(config.model), TrainingCorpus(drafted, config)
    new = initialize_from(model, sentence_run, drafted.tokenizer)
    promised = {weight for weight in model.state_dict() if any(part in weight for part in PROMISED[name])}
    assert promised == set(new)
    assert promised == {weight for weight in model.state_dict() if model.system.initial_weight(weight) is None}
    updater, updates = Updater(start_fabric(config), config, model, new), corpus.iterate_updates(0, 0)
    for number in range(1, 5):
        before = {weight: tensor.clone() for weight, tensor in model.state_dict().items()}
        updater.update(number, *next(updates))
    loaded = load_model(sentence_run).state_dict()
    for weight, tensor in model.state_dict().items():
        if weight not in promised:
            assert torch.equal(tensor, loaded[model.system.initial_weight(weight)]), weight
        elif not weight.endswith("key.bias"):  # has no effect on anything
            assert not torch.equal(tensor, before[weight]), weight


def test_with_copies_only_gates_are_new(change, sentence_run, tmp_path):
    settings = {"initialize_from": sentence_run, "freeze": "pretrained", "model__group__global_start": "local"}
    train(change(run=tmp_path / "run", stop__max_steps=2, **settings))
    loaded = load_model(sentence_run).state_dict()
    for weight, tensor in load_model(tmp_path / "run").state_dict().items():
        if ".gate." not in weight:
            assert torch.equal(tensor, loaded[weight.replace(".global.", ".local.")]), weight


@pytest.mark.full
def test_a_frozen_run_resumes_bit_for_bit(change, sentence_run, monkeypatch, tmp_path):
    settings = {**SYSTEMS["context"], "initialize_from": sentence_run, "freeze": "pretrained"}
    settings |= {"checkpoints__every": 3, "stop__max_steps": 6}
    with monkeypatch.context() as patch:
        copy_before(patch, 4, tmp_path / "halves")
        train(change(run=tmp_path / "whole", **settings))
    train(change(run=tmp_path / "halves", **settings), resume=True)
    whole, halves = (load_model(tmp_path / run).state_dict() for run in ("whole", "halves"))
    assert all(torch.equal(whole[weight], halves[weight]) for weight in whole)


@pytest.mark.parametrize("name", ["sentence", "document", "concat"])
def test_freezing_everything_is_refused(name, change, sentence_run):
    with pytest.raises(DocmtError, match="freeze pretrained would freeze everything"):
        train(change(**SYSTEMS[name], initialize_from=sentence_run, freeze="pretrained"))


@pytest.mark.parametrize(
    "name", [name for name in SYSTEMS if name != "group" and not name.endswith(("as published", "rfa"))]
)
def test_a_new_model_says_what_the_sentence_model_says(name, change, sentence_run, store):
    """Bit for bit: of documents, where context is added at zero, or of documents of one sentence."""
    sentence = load_model(sentence_run)
    torch.manual_seed(3)
    model = TranslationModel(fit_model_config(change(**SYSTEMS[name]).model, store)).eval()
    initialize_from(model, sentence_run, store.tokenizer)
    one, two = ([0, 5, 6, 2], [0, 7, 2]), ([0, 8, 2], [0, 9, 10, 2])
    pairs = [([one[0], two[0]], [one[1], two[1]])]
    if not name.startswith(("sentence", "context", "multihop", "hierarchical", "selective", "cadec")):
        pairs = [([source], [target]) for source, target in (one, two)]
    drafts = [[[0, 11, 2] for _ in source] for source, _ in pairs] if model.system.context_spec().drafts else ()
    for logits, expected in zip(model.logits(pairs, drafts), sentence.logits(pairs), strict=True):
        assert torch.equal(logits, expected)


def test_halves_of_the_heads_start_from_a_sentence_model(change, sentence_run, store):
    sentence = load_model(sentence_run)
    model = TranslationModel(fit_model_config(change(**HALVES).model, store)).eval()
    assert initialize_from(model, sentence_run, store.tokenizer) == []
    pair = ([[0, 5, 6, 2]], [[0, 8, 2]])
    torch.testing.assert_close(model.logits([pair])[0], sentence.logits([pair])[0])


def test_models_without_a_place_are_refused(change, sentence_run, store, tmp_path):
    train(change(run=tmp_path / "group", stop__max_steps=1))
    for name in ("sentence", "document", "context"):
        model = TranslationModel(fit_model_config(change(**SYSTEMS[name]).model, store))
        with pytest.raises(
            DocmtError, match=r"is a group model of 2\+2 layers, and its \S+ has no counterpart in this \w+ model"
        ):
            initialize_from(model, tmp_path / "group", store.tokenizer)
    smaller = fit_model_config(change(**SYSTEMS["context"], model__encoder_layers=1).model, store)
    with pytest.raises(DocmtError, match=r"model.encoder_layers is 1, but 2 in .*sentence.* Set the same value"):
        initialize_from(TranslationModel(smaller), sentence_run, store.tokenizer)


def test_a_document_model_is_a_start_as_well(change, store, tmp_path):
    train(change(run=tmp_path / "document", stop__max_steps=1, **SYSTEMS["document"]))
    loaded = load_model(tmp_path / "document").state_dict()
    for name in ("concat", "sentence", "context"):
        model = TranslationModel(fit_model_config(change(**SYSTEMS[name]).model, store))
        new = initialize_from(model, tmp_path / "document", store.tokenizer)
        for weight, tensor in model.state_dict().items():
            if weight not in new:
                assert torch.equal(tensor, loaded[weight.replace(".local.", ".global.")])
        assert all("context" in weight for weight in new)


def test_a_joint_hierarchical_model_starts_from_one_of_the_encoder(change, store, tmp_path):
    """In the published code names differ, and what looks at the sentences before starts at random."""
    train(change(run=tmp_path / "encoder", stop__max_steps=1, **SYSTEMS["hierarchical"]))
    loaded = load_model(tmp_path / "encoder").state_dict()
    model = TranslationModel(fit_model_config(change(**SYSTEMS["hierarchical on both sides"]).model, store))
    new = initialize_from(model, tmp_path / "encoder", store.tokenizer)
    assert {name.partition(".")[0] for name in new} == {"above_decoder"}
    assert all(torch.equal(tensor, loaded[name]) for name, tensor in model.state_dict().items() if name not in new)


def test_learned_positions_must_hold_the_instances(change, store):
    learned = {"model__position_encoding": "learned", "model__positions": "document"}
    longest = int(max(TrainingCorpus(store, change()).train.plan.lengths))
    dev = int(max(TrainingCorpus(store, change()).dev.plan.lengths))
    enough = max(longest, dev)
    TrainingCorpus(store, change(**learned, model__max_positions=enough))
    message = (
        rf"instance that begins with sentence \d+ of document 'd\d+' in .* has {longest} tokens, but .*max_positions"
    )
    with pytest.raises(DocmtError, match=message):
        TrainingCorpus(store, change(**learned, model__max_positions=longest - 1))


def test_one_overlong_sentence_is_refused_at_the_start(tmp_path, change):
    lines = [{"id": "a", "source": ["bo ka"], "target": ["BO KA"]}]
    lines += [{"id": "b", "source": ["bo", "lu me " * 40, "ka"], "target": ["BO", "LU", "KA"]}]
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    prepared = prepare(PrepareConfig(store=tmp_path / "store", train=[tmp_path / "train.jsonl"], vocabulary_size=270))
    learned = {"store": tmp_path / "store", "model__position_encoding": "learned", "model__max_positions": 64}
    for settings in (SYSTEMS["sentence"], SYSTEMS["context"], {}):
        config = change(**settings, **learned)
        with pytest.raises(DocmtError, match=r"the sentence 2 of document 'b' in .* has \d+ tokens, but model.max_pos"):
            TrainingCorpus(prepared, config)
        with pytest.raises(DocmtError, match=r"the sentence 2 of document 'b' in "):
            train(config)
    for settings in ({"model__positions": "document"}, SYSTEMS["document"], SYSTEMS["concat"]):
        with pytest.raises(DocmtError, match=r"instance that begins with sentence 2 of document 'b' in "):
            train(change(**settings, **learned))


def test_contexts_longer_than_learned_positions_are_refused_at_the_start(change, store):
    split = store.split("train")
    longest = int(max(split.source.lengths.max(), split.target.lengths.max())) + 2
    learned = {"model__position_encoding": "learned", "model__max_positions": longest}
    TrainingCorpus(store, change(**SYSTEMS["sentence"], **learned))
    with pytest.raises(DocmtError, match=r"model.max_positions is"):
        TrainingCorpus(store, change(**SYSTEMS["context"], **learned))


@pytest.mark.parametrize("name", ["hierarchical", "hierarchical on both sides"])
def test_learned_positions_need_not_reach_through_sentences_that_are_seen_one_by_one(change, store, name):
    split = store.split("train")
    longest = int(max(split.source.lengths.max(), split.target.lengths.max())) + 2
    learned = {"model__position_encoding": "learned", "model__max_positions": longest}
    assert len(TrainingCorpus(store, change(**SYSTEMS[name], **learned)).train.instances)


@pytest.mark.full
def test_few_learned_positions_are_enough_for_short_instances(change, store):
    train(
        change(**SYSTEMS["sentence"], model__position_encoding="learned", model__max_positions=64, stop__max_steps=12)
    )


@pytest.mark.parametrize(
    ("setting", "value"),
    [("heads", 4), ("normalization", "pre"), ("activation", "gelu"), ("embedding_normalization", True)],
)
def test_weights_of_equal_shapes_that_mean_something_else_are_refused(change, sentence_run, store, setting, value):
    config = fit_model_config(change(**SYSTEMS["context"], **{f"model__{setting}": value}).model, store)
    with pytest.raises(DocmtError, match=rf"model.{setting} is {value!r}, but .*, the start model"):
        initialize_from(TranslationModel(config), sentence_run, store.tokenizer)


LINEAR_CONCAT = {"model__system": "concat", "model__concat": Concat(sentences=3, attention="linear")}
LINEAR = {"model__group": Group(encoder_layers=1, decoder_layers=1, cross_layers=1, global_attention="linear")}


@pytest.fixture(scope="module")
def linear_run(tiny_config, tmp_path_factory):
    """The run directory of a group model with linear attention and gates."""
    run = tmp_path_factory.mktemp("linear") / "run"
    linear = Linear(feature_map="random", features=4, cross_features=6, gate="decay")
    model = replace(tiny_config.model, group=LINEAR["model__group"], linear=linear)
    train(replace(tiny_config, run=run, model=model, stop=replace(tiny_config.stop, max_steps=2)))
    return run


@pytest.mark.parametrize(
    ("options", "redrawn"),
    [
        ({}, ()),
        ({"gate_bias": 0.0}, ()),
        ({"features": 5}, ("attention",)),
        ({"cross_features": 4}, ("cross",)),
        ({"feature_sampling": "quasi"}, ("attention", "cross")),
    ],
)
def test_random_features_are_no_weights_to_start_from(change, store, linear_run, options, redrawn):
    linear = Linear(**{"feature_map": "random", "features": 4, "cross_features": 6, "gate": "decay", **options})
    model = TranslationModel(fit_model_config(change(**LINEAR, model__linear=linear).model, store))
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    assert initialize_from(model, linear_run, store.tokenizer) == []
    pretrained = load_model(linear_run).state_dict()
    for name, tensor in model.state_dict().items():
        is_redrawn = name.endswith("matrices") and any(f".{block}." in name for block in redrawn)
        assert torch.equal(tensor, before[name] if is_redrawn else pretrained[name]), name


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"temperature_per": "dimension"},
            r"model.linear.temperature_per is 'dimension', but 'head' in .* Set the same value",
        ),
        ({"feature_map": "learned"}, r"model.linear.feature_map is 'learned', but 'random' in"),
        ({"rescale_keys": False}, r"model.linear.rescale_keys is False, but True in"),
        ({"gate": "average"}, r"model.linear.gate is 'average', but 'decay' in"),
        ({"gate": "none"}, r"model.linear.gate is 'none', but 'decay' in"),
        ({"gate_per": "layer"}, r"model.linear.gate_per is 'layer', but 'head' in"),
        (None, r"has linear attention, but this \w+ model has none. Set linear attention, or start from another"),
    ],
)
def test_linear_attention_starts_from_what_means_the_same(change, store, linear_run, settings, message):
    config = (
        change()
        if settings is None
        else change(**LINEAR, model__linear=Linear(**{"feature_map": "random", "gate": "decay", **settings}))
    )
    with pytest.raises(DocmtError, match=message):
        initialize_from(TranslationModel(fit_model_config(config.model, store)), linear_run, store.tokenizer)


@pytest.mark.full
def test_gates_may_be_new(change, store, tmp_path):
    train(change(run=tmp_path / "plain", stop__max_steps=1, **LINEAR))
    gated = change(**LINEAR, model__linear=Linear(gate="average", gate_per="layer"))
    model = TranslationModel(fit_model_config(gated.model, store))
    new = initialize_from(model, tmp_path / "plain", store.tokenizer)
    assert new
    assert all(".global.gate." in name for name in new)


@pytest.fixture(scope="module")
def unusual_store(tmp_path_factory):
    """Sentences longer than a chunk of linear attention and than an instance, and documents of one sentence."""
    folder = tmp_path_factory.mktemp("unusual")
    sources = [["bo " * 2 * CHUNK, "ka", "lu " * 40], ["me"], ["ni " * CHUNK], ["po"], ["ra su", "ta"]]
    lines = [json.dumps({"source": source, "target": [sentence.upper() for sentence in source]}) for source in sources]
    (folder / "train.jsonl").write_text("\n".join(lines), encoding="utf-8")
    return prepare(PrepareConfig(store=folder / "store", train=[folder / "train.jsonl"], vocabulary_size=280))


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({}, marks=pytest.mark.full),
        pytest.param({**LINEAR, "model__linear": Linear(gate="average")}, marks=pytest.mark.full),
        pytest.param({**LINEAR, "model__linear": Linear(gate="decay")}, marks=pytest.mark.full),
        {**LINEAR_CONCAT, "model__linear": Linear(gate="decay")},
    ],
)
def test_unusual_documents_train(change, unusual_store, settings):
    config = change(store=unusual_store.directory, stop__max_epochs=2, **settings)
    config = replace(config, validation=replace(config.validation, every=0), log_every=1)
    train(config)
    losses = [json.loads(line)["loss"] for line in (config.run / "metrics.jsonl").read_text().splitlines()]
    assert len(losses) >= 4
    assert all(0 < loss < 20 for loss in losses)


def test_global_attention_is_new_whatever_the_start_but_its_own_system(change, store, tmp_path):
    train(change(run=tmp_path / "document", stop__max_steps=1, **SYSTEMS["document"]))
    model = TranslationModel(fit_model_config(change().model, store))
    new = initialize_from(model, tmp_path / "document", store.tokenizer)
    assert {name for name in model.state_dict() if ".global." in name or ".gate." in name} == set(new)


def test_padding_windows_are_for_training_alone(change, store):
    config = change(**SYSTEMS["concat"])
    padded = replace(config, model=replace(config.model, concat=replace(config.model.concat, padding_windows=True)))
    usual, more = TrainingCorpus(store, config), TrainingCorpus(store, padded)
    assert len(more.train.instances) > len(usual.train.instances)
    assert len(more.dev.instances) == len(usual.dev.instances)


@pytest.mark.parametrize(
    "system", in_tiers(["sentence", "document", "group", "concat", "context", "hierarchical on both sides"], ["group"])
)
@pytest.mark.full
def test_validation_by_bleu_in_low_precision(change, tmp_path, system):
    """Caches took the precision of the weights, the projections that of autocast."""
    config = change(run=tmp_path / "run", stop__max_steps=2, precision="bfloat16", **SYSTEMS.get(system, {}))
    train(replace(config, validation=replace(config.validation, best_by="d_bleu", every=2)))
    assert system.startswith(load_model(tmp_path / "run").config.system)


def test_a_gate_joins_states_of_different_precision():
    """A norm under autocast on a GPU gives float32, a projection bfloat16."""
    model = ModelConfig(system="context", width=8, heads=2, vocabulary_size=20, context=Context(fusion="published"))
    branch = ModelBuilder(model.resolve()).build_gated_residual(additive=False)
    x, y = torch.randn(3, 8), torch.randn(3, 8)
    with torch.autocast("cpu", torch.bfloat16):
        joined = branch.add_output(x, y.bfloat16())
    torch.testing.assert_close(joined.float(), branch.add_output(x, y), atol=0.05, rtol=0.05)
