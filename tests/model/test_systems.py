"""What each system can see, and that ablations meet where they should."""

import gc
import importlib
import math
import weakref
from dataclasses import asdict
from types import SimpleNamespace

import pytest
import torch

from docmt.core.errors import DocmtError
from docmt.model import ModelConfig, ModelInput, Packed, Spans, TranslationModel, attend, pack
from docmt.model.contexts import FullContext
from docmt.model.embeddings import SentenceRotation
from docmt.model.model_config import Linear
from docmt.model.scope import AttentionScope, BoundaryTokens
from docmt.model.systems import SYSTEMS as KINDS
from docmt.model.systems import Concat, Context, Flat, Group
from docmt.training.finetune import cut_heads
from variants import SYSTEMS, context, hierarchical, in_tiers

SIZES = {"width": 16, "feed_forward": 32, "heads": 2, "encoder_layers": 2, "decoder_layers": 2, "vocabulary_size": 40}
SOURCE = [[0, 5, 6, 2], [0, 7, 8, 9, 2], [0, 10, 2]]
TARGET = [[0, 15, 2], [0, 16, 17, 2], [0, 18, 19, 20, 2]]


def build(seed: int = 0, **options) -> TranslationModel:
    torch.manual_seed(seed)
    model = TranslationModel(ModelConfig(**{**SIZES, "dropout": 0.0, **options}))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return model.eval()


def drafts_of(sources):
    """A first translation of every sentence, which depends on nothing but its words; marks stay."""
    return [[[0, *(10 + token for token in s[1:-1]), 2] for s in document] for document in sources]


def inputs(model: TranslationModel, sources, aligned=None, targets=None, predicted=None) -> ModelInput:
    """What the model reads of documents (`aligned` None: to translate all sentences), with drafts if it needs any."""
    source, drafts = pack(sources), pack(drafts_of(sources))
    aligned = torch.arange(len(source.sentences)) if aligned is None else torch.tensor(aligned)
    target = None if targets is None else pack(targets)
    return ModelInput(source, aligned, target, predicted, drafts if model.system.context_spec().drafts else None)


def logits(model: TranslationModel, pairs):
    """`model.logits` with drafts if the model needs any."""
    return model.logits(pairs, drafts_of([source for source, _ in pairs]) if model.system.context_spec().drafts else ())


def changed_rows(model: TranslationModel, source, target) -> list[bool]:
    """For each sentence of the target: do its logits differ from those of the original pair?"""
    before = logits(model, [(SOURCE, TARGET)])[0].split([len(s) for s in TARGET])
    after = logits(model, [(source, target)])[0].split([len(s) for s in target])
    return [one.shape != other.shape or not torch.equal(one, other) for one, other in zip(before, after, strict=True)]


def with_token(sentences, sentence: int, position: int, token: int):
    copy = [list(s) for s in sentences]
    copy[sentence][position] = token
    return copy


NO_LAYERS = {"encoder_layers": 0, "decoder_layers": 0, "cross_layers": 0}
GROUP_ONLY = {"group": Group(**NO_LAYERS)}


def test_group_only_sees_its_own_sentence_alone():
    model = build(**GROUP_ONLY)
    assert changed_rows(model, with_token(SOURCE, 0, 1, 30), TARGET) == [True, False, False]
    assert changed_rows(model, SOURCE, with_token(TARGET, 0, 1, 30)) == [True, False, False]


@pytest.mark.parametrize("site", ["encoder_layers", "cross_layers"])
def test_global_layers_see_the_whole_source(site):
    model = build(group=Group(**{**NO_LAYERS, site: 1}))
    assert changed_rows(model, with_token(SOURCE, 2, 1, 30), TARGET) == [True, True, True]


def test_global_decoder_layers_see_the_target_so_far():
    model = build(group=Group(**{**NO_LAYERS, "decoder_layers": 1}))
    assert changed_rows(model, SOURCE, with_token(TARGET, 1, 1, 30)) == [False, True, True]


@pytest.mark.parametrize("system", in_tiers(SYSTEMS, every=True))
def test_nothing_looks_ahead_in_the_target(system):
    model = build(**SYSTEMS[system])
    before = logits(model, [(SOURCE, TARGET)])[0]
    after = logits(model, [(SOURCE, with_token(TARGET, 2, 3, 30))])[0]
    assert torch.equal(before[:10], after[:10])
    assert not torch.equal(before[10:], after[10:])


def test_sentence_system_sees_its_own_sentence_alone():
    model = build(system="sentence")
    assert changed_rows(model, with_token(SOURCE, 0, 1, 30), TARGET) == [True, False, False]
    assert changed_rows(model, SOURCE, with_token(TARGET, 0, 1, 30)) == [True, False, False]


@pytest.mark.parametrize("system", ["document", "concat"])
def test_whole_instances_are_seen(system):
    model = build(system=system)
    assert changed_rows(model, with_token(SOURCE, 2, 1, 30), TARGET) == [True, True, True]
    assert changed_rows(model, SOURCE, with_token(TARGET, 1, 1, 30)) == [False, True, True]


@pytest.mark.parametrize("name", in_tiers(name for name in SYSTEMS if "context" in name))
def test_context_system_sees_the_source_sentences_before(name):
    model = build(**SYSTEMS[name])
    assert changed_rows(model, with_token(SOURCE, 2, 1, 30), TARGET) == [False, False, True]
    assert changed_rows(model, with_token(SOURCE, 1, 1, 30), TARGET) == [False, True, True]
    far = [True, True, model.system.sentences == 2]
    assert changed_rows(model, with_token(SOURCE, 0, 1, 30), TARGET) == far
    assert changed_rows(model, SOURCE, with_token(TARGET, 0, 1, 30)) == [True, False, False]


@pytest.mark.parametrize("representation", ["encoder", "bilstm"])
def test_order_within_a_context_counts_but_for_embeddings(representation):
    swapped = with_token(with_token(SOURCE, 0, 1, 6), 0, 2, 5)
    assert changed_rows(build(**context(representation=representation)), swapped, TARGET) == [True] * 3
    model = build(**context(representation="embedding"))
    before, after = (logits(model, [(source, TARGET)])[0] for source in (SOURCE, swapped))
    torch.testing.assert_close(before[3:], after[3:], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("gating", ["gate", "residual"])
@pytest.mark.parametrize("representation", ["encoder", "embedding", "bilstm"])
@pytest.mark.parametrize("side", ["both", "encoder", "decoder"])
@pytest.mark.parametrize("normalization", ["post", "pre"])
def test_exact_branches_begin_as_the_sentence_model_bit_for_bit(gating, representation, side, normalization):
    sentence = build(system="sentence", normalization=normalization)
    options = context(gating=gating, representation=representation, side=side)
    torch.manual_seed(5)
    model = TranslationModel(ModelConfig(**{**SIZES, "dropout": 0.0, "normalization": normalization, **options}))
    loaded, weights = sentence.state_dict(), model.state_dict()
    used = {model.system.initial_weight(name) for name in weights} - {None}
    assert used == set(loaded)
    model.load_state_dict(
        {name: loaded.get(model.system.initial_weight(name), tensor) for name, tensor in weights.items()}
    )
    model.eval()
    pairs = [(SOURCE, TARGET), (SOURCE[1:], TARGET[1:])]
    for one, other in zip(logits(model, pairs), sentence.logits(pairs), strict=True):
        assert torch.equal(one, other)


def test_published_branches_do_not():
    sentence, model = build(system="sentence"), build(**context(fusion="published"))
    loaded = sentence.state_dict()
    model.load_state_dict(
        {name: loaded.get(model.system.initial_weight(name), tensor) for name, tensor in model.state_dict().items()}
    )
    assert not torch.allclose(logits(model, [(SOURCE, TARGET)])[0], sentence.logits([(SOURCE, TARGET)])[0], atol=1e-3)


def test_on_one_document_concat_is_the_document_transformer():
    concat, document = build(system="concat"), build(system="document")
    assert torch.equal(concat.logits([(SOURCE, TARGET)])[0], document.logits([(SOURCE, TARGET)])[0])


def test_without_locality_the_group_system_is_the_document_transformer():
    group = build(system="group", group=Group(self_locality=False, cross_locality=False), positions="document")
    document = build(system="document")
    assert group.state_dict().keys() == document.state_dict().keys()
    assert torch.equal(group.logits([(SOURCE, TARGET)])[0], document.logits([(SOURCE, TARGET)])[0])


def test_group_only_on_one_sentence_is_the_sentence_transformer():
    group = build(system="group", **GROUP_ONLY)
    sentence = build(system="sentence")
    sentence.load_state_dict(group.state_dict())
    for source, target in zip(SOURCE, TARGET, strict=True):
        pair = ([source], [target])
        assert torch.equal(group.logits([pair])[0], sentence.logits([pair])[0])


@pytest.mark.parametrize("system", in_tiers(SYSTEMS, every=True))
def test_usual_positions_are_known_from_the_config_alone(system):
    """Sentences that a system cannot tell apart otherwise have positions that run on; a stored config says which."""
    config = build(**{**SYSTEMS[system], "positions": "auto"}).config
    assert config.positions == ("document" if config.system in ("document", "concat") else "sentence")
    assert config.restarts_positions == (config.positions == "sentence")
    assert ModelConfig.from_dict(asdict(config)) == config


def test_positions_by_sentence_make_group_only_independent_of_the_place_in_the_document():
    model = build(positions="sentence", **GROUP_ONLY)
    together = logits(model, [(SOURCE, TARGET)])[0]
    alone = torch.cat([logits(model, [([s], [t])])[0] for s, t in zip(SOURCE, TARGET, strict=True)])
    torch.testing.assert_close(together, alone)
    published = build(positions="document", **GROUP_ONLY)
    assert not torch.allclose(
        published.logits([(SOURCE, TARGET)])[0][3:], published.logits([(SOURCE[1:], TARGET[1:])])[0], atol=1e-4
    )


def test_flat_with_all_layers_on_top_is_the_sentence_model_bit_for_bit():
    sentence = build(system="sentence")
    flat = build(system="flat", flat=Flat(sentences=2, top_layers=2))
    flat.load_state_dict(sentence.state_dict() | {"segments.weight": torch.zeros(2, SIZES["width"])})
    assert torch.equal(flat.logits([(SOURCE, TARGET)])[0], sentence.logits([(SOURCE, TARGET)])[0])


@pytest.mark.parametrize("top_layers", [0, 1, 2])
def test_flat_reads_its_context_in_the_lower_layers_alone(top_layers):
    model = build(system="flat", flat=Flat(sentences=1, top_layers=top_layers))
    read = inputs(model, [SOURCE], [2])
    read.source.tokens[:] = torch.arange(5, 5 + len(read.source.tokens))  # each token once
    model.compute_memories(read)["source"].states.square().sum().backward()
    seen = model.tokens.weight.grad[read.source.tokens].abs().sum(-1) > 0
    first, context, last = seen.split([len(sentence) for sentence in SOURCE])
    assert not first.any() and last.all()
    assert context.all() if top_layers < 2 else not context.any()


def test_dropping_the_context_of_flat_equals_hiding_it():
    """The states of the current sentence are the same if context states go through the top layers, unseen."""
    model = build(system="flat", flat=Flat(sentences=2, top_layers=1))
    read = inputs(model, [SOURCE])
    windows, _, numbers = read.source.gather_windows(torch.arange(3), 2)
    assert numbers.tolist() == [0, 0, 1, 0, 1, 2]
    current = windows.sentences.select(torch.tensor([0, 2, 5])).indices()
    is_current = torch.zeros(len(windows.tokens), dtype=torch.int64).index_fill(0, current, 1)
    vectors = model.look_up_tokens("source", windows.tokens) + model.segments(is_current)
    hidden = model.run_encoder(model.add_packed_positions("source", vectors, windows), FullContext(windows))
    torch.testing.assert_close(model.compute_memories(read)["source"].states, hidden[current])


def start_halves(sentence: TranslationModel) -> TranslationModel:
    """Build a group model whose layers have one head within sentences and one over the document, from this model."""
    model = build(positions="sentence", group=Group(fusion="heads", global_start="random"))
    weights = sentence.state_dict()
    for name, tensor in model.state_dict().items():
        tensor.copy_(cut_heads(name, weights[model.system.initial_weight(name)], tensor.shape))
    return model


def test_halves_of_the_heads_are_all_heads_of_the_sentence_model():
    """Without new weights: on one sentence both attentions see the same."""
    sentence = build(system="sentence")
    halves, pair = start_halves(sentence), (SOURCE[:1], TARGET[:1])
    assert sum(map(torch.numel, halves.parameters())) == sum(map(torch.numel, sentence.parameters()))
    torch.testing.assert_close(halves.logits([pair])[0], sentence.logits([pair])[0])
    assert not torch.allclose(*(model.logits([(SOURCE, TARGET)])[0] for model in (halves, sentence)))


@pytest.mark.parametrize(("silent", "system"), [("global", "sentence"), ("local", "concat")])
def test_with_half_of_the_heads_silent_the_others_are_a_simpler_system(silent, system):
    """Heads over the document alone are the concat system, heads within sentences alone the sentence system."""
    sentence = build(system="sentence")
    silent_heads = slice(0, 8) if silent == "local" else slice(8, 16)
    with torch.no_grad():
        for name, tensor in sentence.state_dict().items():
            if name.endswith("output.weight"):
                tensor[:, silent_heads] = 0.0
    halves = start_halves(sentence)
    simpler = build(system=system, **({"concat": Concat(sentences=3)} if system == "concat" else {}))
    simpler.restarts_positions = True
    weights = sentence.state_dict()
    simpler.load_state_dict({name: weights[simpler.system.initial_weight(name)] for name in simpler.state_dict()})
    found, expected = (model.logits([(SOURCE, TARGET)])[0] for model in (halves, simpler))
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


def test_the_mean_of_group_and_global_attention_is_half_of_each():
    model = build(group=Group(fusion="mean"))
    x, context = torch.randn(len(pack([SOURCE]).tokens), 16), FullContext(pack([SOURCE]))
    block = model.encoder[0].attention
    torch.testing.assert_close(block(x, context), (block.local(x, context) + block.global_(x, context)) / 2)


@pytest.mark.parametrize("distances", [False, True])
def test_the_order_of_other_sentences_counts_with_sentence_distances_alone(distances):
    model = build(positions="sentence", group=Group(sentence_distances=distances))
    ordered, swapped = (model.encode(pack([[SOURCE[i] for i in order]]))[-3:] for order in ((0, 1, 2), (1, 0, 2)))
    assert torch.allclose(ordered, swapped, atol=1e-5) is not distances


def test_numbers_of_sentences_begin_anew_in_each_document():
    """States that are rotated by them are rounded, and must not depend on other documents of the batch."""
    model = build(group=Group(sentence_distances=True))
    both, alone = inputs(model, [SOURCE[:1], SOURCE], targets=[TARGET[:1], TARGET]), inputs(model, [SOURCE])
    memories = model.compute_memories(both)
    context = FullContext(both.target, memories, both.alignment)
    for memory, sentences in (("self", TARGET), ("source", SOURCE)):
        scope = AttentionScope(memory, "document", causal=memory == "self")
        queries, keys = context.find(
            SimpleNamespace(scope=scope), model.embed("target", both.target)
        ).pattern.sentence_numbers()
        for numbers, own in ((queries, TARGET), (keys, sentences)):
            expected = [number for number, sentence in enumerate(own) for _ in sentence]
            assert numbers.tolist() == [0] * len(own[0]) + expected
    together = model.encode(both.source)[len(SOURCE[0]) :].bfloat16()
    torch.testing.assert_close(together, model.encode(alone.source).bfloat16())


def test_rotated_scores_depend_on_the_distance_in_sentences_alone():
    rotation = SentenceRotation(8)
    query, key = torch.randn(2, 5, 3, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    numbers, others = torch.tensor([0, 1, 2, 7, 90]), torch.tensor([4, 1, 0, 3, 80])

    def rotate(x, numbers):
        return rotation.change_query(x, rotation.describe_queries(numbers, 1000, "cpu"))

    scores = (rotate(query, numbers) * rotate(key, others)).sum(-1)
    shifted = (rotate(query, numbers + 300) * rotate(key, others + 300)).sum(-1)
    torch.testing.assert_close(scores, shifted, atol=1e-4, rtol=1e-4)  # angles are float32
    unrotated = (query * key).sum(-1)
    assert [torch.allclose(one, other) for one, other in zip(scores, unrotated, strict=True)] == [
        number == other for number, other in zip(numbers, others, strict=True)
    ]


@pytest.mark.parametrize("system", in_tiers(SYSTEMS, every=True))
@pytest.mark.parametrize("normalization", ["post", "pre"])
def test_batched_equals_single(system, normalization):
    model = build(**{**SYSTEMS[system], "normalization": normalization})
    pairs = [(SOURCE, TARGET), (SOURCE[:1], TARGET[:1]), (SOURCE[1:], TARGET[1:])]
    for one, pair in zip(logits(model, pairs), pairs, strict=True):
        torch.testing.assert_close(one, logits(model, [pair])[0], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("options", "encoder", "cross"),
    [
        ({"encoder_layers": 1}, ["sentence", "both"], ["both", "both"]),
        ({"top_attention": "group"}, ["sentence", "sentence"], ["sentence", "sentence"]),
        ({"top_attention": "global", "cross_layers": 1}, ["document", "document"], ["sentence", "document"]),
        ({"self_locality": False, "cross_layers": 1}, ["document", "document"], ["sentence", "both"]),
        ({"cross_locality": False, "encoder_layers": 1}, ["sentence", "both"], ["document", "document"]),
        ("sentence", ["sentence", "sentence"], ["sentence", "sentence"]),
        ("context", ["sentence", "sentence"], ["sentence", "sentence"]),
        ("document", ["document", "document"], ["document", "document"]),
        ("concat", ["document", "document"], ["document", "document"]),
    ],
)
def test_scopes_of_the_ablations(options, encoder, cross):
    settings = {"system": options} if isinstance(options, str) else {"group": Group(**options)}
    model = build(**settings)
    assert [scope_of(layer.attention) for layer in model.encoder] == encoder
    assert [scope_of(layer.cross) for layer in model.decoder] == cross


def scope_of(attention):
    """What a layer sees, by the parts that it has and by what these look at."""
    parts = {"sentence": attention.local, "document": attention.global_}
    assert all(each is None or each.scope.extent == part for part, each in parts.items())
    assert (attention.gate is not None) == (None not in parts.values())
    return "both" if attention.gate is not None else next(part for part, each in parts.items() if each is not None)


def test_decoder_attention_has_layers_of_its_own_number():
    model = build(group=Group(encoder_layers=2, decoder_layers=1, cross_layers=0))
    assert [scope_of(layer.attention) for layer in model.decoder] == ["sentence", "both"]
    assert all(layer.attention.local.scope.causal and not layer.cross.local.scope.causal for layer in model.decoder)


def test_the_default_of_two_layers_is_all_of_fewer():
    one = {"encoder_layers": 1, "decoder_layers": 1}
    model = build(**one)
    for layer in (*model.encoder, *model.decoder):
        assert scope_of(layer.attention) == "both"
    assert scope_of(model.decoder[0].cross) == "both"
    explicit = build(**one, group=Group(encoder_layers=1, decoder_layers=1, cross_layers=1))
    assert torch.equal(logits(model, [(SOURCE, TARGET)])[0], explicit.logits([(SOURCE, TARGET)])[0])
    assert ModelConfig.from_dict(asdict(model.config)) == model.config
    with pytest.raises(DocmtError, match=r"model.group.decoder_layers is 3: choose from 0 to the 1 layers there are"):
        build(**one, group=Group(decoder_layers=3))


@pytest.mark.full
def test_published_number_of_parameters():
    """Six combined blocks add 9.45 M parameters to transformer-base: 1,575,424 each."""

    def count(**options):
        model = TranslationModel(ModelConfig(preset="base", vocabulary_size=100, **options))
        return sum(parameter.numel() for parameter in model.parameters())

    assert count(system="group") - count(system="document") == 6 * 1_575_424


@pytest.mark.full
def test_published_initialisation():
    torch.manual_seed(3)
    model = TranslationModel(ModelConfig(preset="base", vocabulary_size=2000))
    assert model.tokens.weight.std().item() == pytest.approx(512**-0.5, rel=0.02)
    assert not model.tokens.weight[1].any()
    attention = model.decoder[-1].cross.global_
    bound = (2**-0.5) * (6 / 1024) ** 0.5
    assert attention.query.weight.abs().max().item() == pytest.approx(bound, rel=0.01)
    assert attention.output.weight.abs().max().item() == pytest.approx((6 / 1024) ** 0.5, rel=0.01)
    assert not attention.output.bias.any()
    assert not model.decoder[-1].cross.gate.linear.bias.any()


def test_learned_positions_end_with_a_sentence_for_the_user():
    model = build(position_encoding="learned", max_positions=8, positions="document")
    with pytest.raises(DocmtError, match="12 tokens, but this model has only 8 learned positions"):
        logits(model, [(SOURCE, TARGET)])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"width": 15}, "model.width is 15: choose an even multiple of model.heads"),
        ({"dropout": 1.0}, "model.dropout is 1.0"),
        ({"group": Group(encoder_layers=3)}, "model.group.encoder_layers is 3"),
        ({"group": Group(cross_layers=-1)}, "model.group.cross_layers is -1"),
        (
            {"group": Group(top_attention="all")},
            "model.group.top_attention is 'all': choose one of combined, group, global",
        ),
        ({"group": Group(gate_bias=math.nan)}, "model.group.gate_bias is nan"),
        ({"group": Group(gate_bias=1.0, fusion="mean")}, "model.group.gate_bias is set, but fusion mean has no gate"),
        ({"group": Group(fusion="mean", top_attention="global")}, "model.group.fusion mean joins two attentions"),
        ({"group": Group(fusion="heads", global_start="local")}, "model.group.global_start has no effect"),
        ({"group": Group(fusion="heads"), "heads": 1}, "model.group.fusion heads gives half of the heads to each"),
        (
            {"group": Group(fusion="heads", global_attention="linear")},
            "model.group.fusion heads needs softmax attention",
        ),
        (
            {"group": Group(fusion="heads"), "position_encoding": "relative"},
            "model.group.fusion heads needs softmax attention, and no relative positions",
        ),
        (
            {"system": "sentence", "group": Group(top_attention="group")},
            "model.group.top_attention is set, but model.system is sentence",
        ),
        ({"concat": Concat(sentences=3)}, "model.concat.sentences is set, but model.system is group"),
        ({"system": "concat", "concat": Concat(sentences=0)}, "model.concat.sentences is 0: choose a number from 1 to"),
        (
            {"system": "concat", "concat": Concat(window_decoding="all")},
            "model.concat.window_decoding is 'all': choose one of last, prefix",
        ),
        (
            {"system": "concat", "concat": Concat(loss="last", padding_windows=True)},
            "model.concat.padding_windows has no effect with model.concat.loss last",
        ),
        (
            {"system": "concat", "concat": Concat(sentences=1, padding_windows=True)},
            "model.concat.padding_windows has no effect with model.concat.sentences 1",
        ),
        (context(sentences=0), "model.context.sentences is 0: choose a number from 1 to 10,000"),
        (context(layers=0), "model.context.layers is 0: choose a number from 1 to 1,000"),
        (context(side="none"), "model.context.side is 'none': choose one of both, encoder, decoder"),
        (hierarchical(sentences=0), "model.hierarchical.sentences is 0: choose a number from 1 to 10,000"),
        (hierarchical(side="all"), "model.hierarchical.side is 'all': choose one of encoder, decoder, both"),
        ({"instance_sentences": 0}, "model.instance_sentences is 0"),
        ({"system": "paragraph"}, "model.system is 'paragraph'"),
        ({"instance_tokens": 1}, "model.instance_tokens is 1"),
    ],
)
def test_bad_settings_are_named(options, message):
    with pytest.raises(DocmtError, match=message):
        ModelConfig(**{**SIZES, **options})


def test_sizes_come_from_the_preset_unless_given():
    config = ModelConfig(preset="tiny", heads=8, vocabulary_size=50).resolve()
    assert (config.width, config.feed_forward, config.heads, config.encoder_layers) == (256, 1024, 8, 6)
    assert ModelConfig.from_dict({"width": 16, "heads": 2}).width == 16
    with pytest.raises(DocmtError, match=r"unknown setting model\.wide"):
        ModelConfig.from_dict({"wide": 16})
    with pytest.raises(DocmtError, match=r"unknown setting model\.group\.wide"):
        ModelConfig.from_dict({"group": {"wide": 16}})
    with pytest.raises(DocmtError, match=r"model\.group\.self_locality is 1: choose true or false"):
        ModelConfig.from_dict({"group": {"self_locality": 1}})
    with pytest.raises(DocmtError, match=r"model.group in the configuration is not a group of settings"):
        ModelConfig.from_dict({"group": 1})


OTHER_OPTIONS = {
    "group": {
        "encoder_layers": 1, "decoder_layers": 0, "cross_layers": 1, "top_attention": "global", "self_locality": False,
        "cross_locality": False, "gate_bias": 1.5, "global_start": "local",
        "global_attention": "linear", "fusion": "identity",
    },
    "concat": {"sentences": 7, "loss": "last", "window_decoding": "prefix", "attention": "linear"},
    "context": {
        "sentences": 3, "layers": 1, "representation": "bilstm", "side": "decoder", "gating": "residual",
        "fusion": "published",
    },
    "multihop": {
        "sentences": 2, "direction": "R2L", "side": "target", "target_context": "references", "keys": "output",
        "sentence_encoders": "frozen", "fusion": "published",
    },
    "hierarchical": {"sentences": 2, "side": "both", "fusion": "published", "detach": True},
    "flat": {"sentences": 3, "top_layers": 0},
    "hybrid": {"history": 3, "farthest": 4, "fusion": "published"},
    "selective": {
        "side": "both", "reach": "before", "attention": "word", "words": "sparsemax", "fusion": "published",
        "detach": True,
    },
    "cadec": {"sentences": 2, "fusion": "published"},
}  # fmt: skip


@pytest.mark.parametrize("system", KINDS)
def test_all_options_survive_their_dictionary(system):
    options = OTHER_OPTIONS.get(system, {})
    default = KINDS[system]()
    # These go with the default loss, with softmax attention, and with the default direction only.
    without_value = set(vars(default)) - set(options) - {"padding_windows", "sentence_distances", "context_attention"}
    assert not without_value, f"give {without_value} of {system} other values than the defaults in OTHER_OPTIONS"
    same = {name for name, value in options.items() if getattr(default, name) == value}
    assert same <= {"layers"}, "goes with the default representation only; see below"
    settings = {system: KINDS[system](**options)} if options else {}
    if KINDS[system](**options).has_linear_attention:
        random = {"feature_map": "random", "feature_sampling": "quasi", "temperature_per": "dimension"}
        gated = {"gate": "decay", "gate_per": "layer", "gate_bias": 1.0}
        settings["linear"] = Linear(features=7, cross_features=9, rescale_keys=False, **random, **gated)
        assert all(value != getattr(Linear(), name) for name, value in vars(settings["linear"]).items())
    config = ModelConfig(**SIZES, system=system, **settings)
    assert config.system_options == KINDS[system](**options)
    assert ModelConfig.from_dict(asdict(config)) == config
    assert ModelConfig.from_dict(asdict(config.resolve())) == config.resolve()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"linear": Linear(features=3)}, "model.linear is set, but this group model has no linear attention"),
        ({"group": Group(sentence_distances=True), "heads": 16}, "needs heads of 2 dimensions or more"),
        (
            {"group": Group(global_attention="linear", sentence_distances=True)},
            "sentence_distances cannot be used with model.group.global_attention linear",
        ),
        (
            {"group": Group(global_attention="linear", top_attention="group")},
            "is linear, but no layer has global attention",
        ),
        (
            {"group": Group(global_attention="linear"), "linear": Linear(gate_bias=1.0)},
            "model.linear.gate_bias has no effect without model.linear.gate",
        ),
        (
            {"group": Group(global_attention="linear"), "linear": Linear(feature_sampling="quasi")},
            "model.linear.feature_sampling has no effect with model.linear.feature_map learned",
        ),
    ],
)
def test_options_of_linear_attention_that_would_do_nothing(settings, message):
    with pytest.raises(DocmtError, match=message):
        ModelConfig(**{**SIZES, **settings})


def test_context_layers_survive_their_dictionary():
    config = ModelConfig(**SIZES, system="context", context=Context(layers=2))
    assert ModelConfig.from_dict(asdict(config)) == config
    with pytest.raises(DocmtError, match=r"model.context.layers has no effect without .* encoder"):
        ModelConfig(**SIZES, system="context", context=Context(layers=2, representation="bilstm"))


def test_sentence_distances_survive_their_dictionary():
    config = ModelConfig(**SIZES, group=Group(sentence_distances=True))
    assert ModelConfig.from_dict(asdict(config)) == config


def test_padding_windows_survive_their_dictionary():
    config = ModelConfig(**SIZES, system="concat", concat=Concat(padding_windows=True))
    assert ModelConfig.from_dict(asdict(config)) == config
    assert ModelConfig.from_dict(asdict(config)).system_options.context_spec().padding_windows


def test_sentences_must_be_aligned():
    model = build()
    inputs = ModelInput(pack([SOURCE]), torch.arange(3), pack([TARGET[:2]]))
    with pytest.raises(ValueError, match="2 query segments but 3 key spans"):
        model(inputs)
    with pytest.raises(ValueError, match="set the target of the input"):
        model(ModelInput(pack([SOURCE]), torch.arange(3)))


@pytest.mark.parametrize("system", in_tiers([name for name in SYSTEMS if name != "document"], every=True))
def test_unequal_numbers_of_sentences_are_refused(system):
    with pytest.raises(ValueError, match="document 2 has 3 source but 2 target sentences"):
        build(**SYSTEMS[system]).logits([(SOURCE, TARGET), (SOURCE, TARGET[:2])])


@pytest.mark.parametrize("system", in_tiers(SYSTEMS, every=True))
def test_predicted_positions_alone_have_states(system):
    model = build(**SYSTEMS[system])
    documents, predicted = ([SOURCE, SOURCE[1:]], None, [TARGET, TARGET[1:]]), torch.tensor([0, 3, 9, 17])
    some = model(inputs(model, *documents, predicted))
    assert torch.equal(some, model(inputs(model, *documents))[predicted])


@pytest.mark.parametrize("system", in_tiers(SYSTEMS, every=True))
def test_filling_changes_nothing(system):
    model = build(**SYSTEMS[system])
    read = inputs(model, [SOURCE, SOURCE[1:]], None, [TARGET, TARGET[1:]])
    filled = read.pad_to_multiple(64, 1)
    assert len(filled.source.tokens) == len(filled.target.tokens) == 64
    assert read.drafts is None or len(filled.drafts.sentences) == len(filled.source.sentences)
    torch.testing.assert_close(model(filled)[: len(read.target.tokens)], model(read), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    "name",
    in_tiers(name for name in SYSTEMS if name == "sentence" or name.startswith(("context", "multihop", "cadec"))),
)
def test_sentences_that_are_only_looked_back_at_change_nothing_else(name):
    """A sentence translated alone, the others before it only read, has the states that it has among all."""
    model = build(**SYSTEMS[name])
    states = model(inputs(model, [SOURCE, SOURCE], None, [TARGET, TARGET]))
    alone = model(inputs(model, [SOURCE, SOURCE], [2, 4], [TARGET[2:], TARGET[1:2]]))
    sizes = [len(sentence) for sentence in TARGET] * 2
    parts = states.split(sizes)
    torch.testing.assert_close(alone, torch.cat((parts[2], parts[4])), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("system", in_tiers(SYSTEMS, every=True))
def test_every_parameter_has_a_gradient(system):
    """A parameter without one would make processes that exchange gradients wait for ever."""
    for source, target in ((SOURCE, TARGET), (SOURCE[:1], TARGET[:1])):
        model = build(**SYSTEMS[system]).train()
        model(inputs(model, [source], None, [target])).square().sum().backward()
        trained = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
        assert [name for name, parameter in trained.items() if parameter.grad is None] == []


@pytest.mark.parametrize("kernel", ["reference", "padded"])
def test_patterns_that_see_nothing_have_gradients_of_zero(kernel):
    q, k, v = (torch.randn(n, 2, 4, requires_grad=True) for n in (5, 3, 3))
    keys = Spans(torch.tensor([0, 3]), torch.tensor([0, 0]))
    output = attend(q, k, v, Spans.tile([2, 3]), keys, kernel=kernel)
    assert not output.any()
    output.sum().backward()
    assert all(x.grad is not None and not x.grad.any() for x in (q, k, v))


@pytest.mark.parametrize("system", in_tiers(SYSTEMS, ["group"], every=True))
def test_index_tensors_die_with_their_batch(system):
    """Without waiting for the collector of cycles, which may come late, and then takes its time."""
    model = build(**SYSTEMS[system]).train()
    if model.config.system_options.has_linear_attention:
        importlib.import_module("torch._dynamo")  # the first checkpoint would import it, whose frames are a cycle
    gc.disable()
    try:
        read = inputs(model, [SOURCE, SOURCE[1:]], None, [TARGET, TARGET[1:]])
        source, target = read.source, read.target
        context = FullContext(target, model.compute_memories(read), read.alignment)
        x = model.add_packed_positions("target", model.look_up_tokens("target", target.tokens), target)
        model.decode(x, context).sum().backward()
        patterns = list(context._patterns.values())
        assert patterns
        watched = [weakref.ref(each) for each in (context, read, source.sentences, *patterns) if _has_weakref(each)]
        watched += [weakref.ref(tensor) for pattern in patterns for tensor in _tensors(pattern)]
        assert len(watched) > 2 * len(patterns)
        del source, target, read, context, x, patterns
        assert [reference() for reference in watched if reference() is not None] == []
    finally:
        gc.enable()


def _has_weakref(value):
    return hasattr(value, "__weakref__")


def _tensors(value, depth=0):
    """All tensors within the attributes of a value."""
    if isinstance(value, torch.Tensor):
        yield value
    elif depth < 5:
        parts = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else None
        if parts is None:
            parts = getattr(value, "__dict__", {}).values()
            parts = [*parts, *(getattr(value, name) for name in getattr(type(value), "__slots__", ()))]
        for part in parts:
            yield from _tensors(part, depth + 1)


DOCMT, THUMT = BoundaryTokens(), BoundaryTokens.parse("w </s>", "<s> w")


def contexts_of(documents, count, boundary_tokens):
    packed = pack(documents)
    spans, index = packed.gather_contexts(count, boundary_tokens)
    assert spans.is_tiling(len(index))
    return [part.tolist() for part in packed.tokens[index].split(spans.lengths.tolist())]


def test_contexts_by_hand():
    one = [[0, 11, 2], [0, 12, 22, 2], [0, 13, 2], [0, 14, 2]]
    s1, s2, s3, s4 = one
    assert contexts_of([one], 2, DOCMT) == [[0], s1, s1 + s2, s2 + s3]
    assert contexts_of([one], 1, DOCMT) == [[0], s1, s2, s3]
    assert contexts_of([one], 9, DOCMT) == [[0], s1, s1 + s2, s1 + s2 + s3]
    assert contexts_of([one[:2], one[2:]], 2, DOCMT) == [[0], s1, [0], s3]
    assert contexts_of([one[:1], [], one[1:]], 2, DOCMT) == [[0], [0], s2, s2 + s3]
    assert s4 not in contexts_of([one], 1, DOCMT)


def test_contexts_of_sentences_that_only_close_by_hand():
    """Without opening marks a missing context is `</s>`, and only the last sentence of a context closes."""
    one = [[11, 2], [12, 22, 2], [13, 2], [14, 2]]
    assert contexts_of([one], 2, THUMT) == [[2], [11, 2], [11, 12, 22, 2], [12, 22, 13, 2]]
    assert contexts_of([one], 1, THUMT) == [[2], [11, 2], [12, 22, 2], [13, 2]]
    assert contexts_of([one[:2], one[2:]], 2, THUMT) == [[2], [11, 2], [2], [13, 2]]


def test_only_keeps_some_sentences():
    packed = pack([SOURCE[:2], SOURCE[2:]])
    selected, index = packed.select_sentences(torch.tensor([1, 2]))
    assert selected.tokens.tolist() == [*SOURCE[1], *SOURCE[2]] == packed.tokens[index].tolist()
    assert selected.sentences.equals(Spans.tile([5, 3])) and selected.documents.equals(Spans.tile([5, 3]))


def test_packing_lays_documents_end_to_end():
    packed = pack([SOURCE[:2], SOURCE[2:]])
    assert packed.tokens.tolist() == [0, 5, 6, 2, 0, 7, 8, 9, 2, 0, 10, 2]
    assert packed.sentences.equals(Spans.tile([4, 5, 3]))
    assert packed.documents.equals(Spans.tile([9, 3]))
    assert isinstance(packed.to("cpu"), Packed)


def test_dropout_drops_its_share_and_keeps_the_mean():
    model = build(dropout=0.3).train()
    torch.manual_seed(0)
    x = torch.ones(500, 401, requires_grad=True)
    y = model.dropout(x)
    assert (y == 0).float().mean().item() == pytest.approx(0.3, abs=0.005)
    assert y.mean().item() == pytest.approx(1.0, abs=0.01)
    (gradient,) = torch.autograd.grad(y.sum(), x)
    assert torch.equal(gradient, y)
