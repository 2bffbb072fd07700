"""The hierarchical system: which sentences are seen, what happens where there is none, instances, gradients, starts."""

import pytest
import torch

from docmt.data import SentenceTokens, collate, cut_instances
from docmt.model import ModelConfig, TranslationModel, pack
from docmt.model.blocks import Hierarchy
from docmt.model.builder import ModelBuilder
from docmt.model.contexts import FullContext
from docmt.model.scope import AttentionScope
from docmt.text import SpecialTokens
from variants import SYSTEMS, hierarchical

SIZES = {"width": 16, "feed_forward": 32, "heads": 2, "encoder_layers": 2, "decoder_layers": 2, "vocabulary_size": 40}
SOURCE = [[5, 6], [7, 8, 9], [10], [11, 12], [13, 14, 15], [16, 17], [18], [19, 20]]
TARGET = [[15, 16], [17], [18, 19, 20], [21], [22, 23], [24, 25, 26], [27, 28], [29]]
NAMES = [name for name in SYSTEMS if name.startswith("hierarchical")]


def build(**options):
    torch.manual_seed(0)
    model = TranslationModel(ModelConfig(**{**SIZES, "dropout": 0.0, **options}))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return model.eval()


def marked(document):
    return [[0, *sentence, 2] for sentence in document]


def logits(model, source=SOURCE, target=TARGET):
    """Of each target sentence."""
    logits_of_document = model.logits([(marked(source), marked(target))])[0]
    return logits_of_document.split([len(sentence) + 2 for sentence in target])


def changed(model, side):
    """Which target sentences a word of the first sentence of a side has an effect on."""
    other = [[30, *SOURCE[0][1:]], *SOURCE[1:]], TARGET
    if side == "target":
        other = SOURCE, [[30, *TARGET[0][1:]], *TARGET[1:]]
    pairs = zip(logits(model), logits(model, *other), strict=True)
    return [number for number, (before, after) in enumerate(pairs) if not torch.equal(before, after)]


@pytest.mark.parametrize("name", NAMES)
def test_k_sentences_before_are_seen_and_no_more(name):
    model = build(**SYSTEMS[name])
    k, side = model.system.sentences, model.system.side
    # Earlier states of the decoder know their own source, and with both sides that source's own context.
    assert changed(model, "source") == list(range(min(1 + (2 * k if side == "both" else k), len(SOURCE))))
    assert changed(model, "target") == ([0] if side == "encoder" else list(range(1 + k)))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("limit", "most"), [(5, 1000), (11, 1000), (1000, 3)])
def test_logits_do_not_depend_on_the_borders_of_instances(name, limit, most):
    model = build(**SYSTEMS[name])
    source, target = (
        SentenceTokens.from_documents([SOURCE, SOURCE[:2]]),
        SentenceTokens.from_documents([TARGET, TARGET[:2]]),
    )
    lengths = source.lengths, target.lengths, [0, len(SOURCE), len(SOURCE) + 2]
    instances = cut_instances(*lengths, model.system.context_spec(), limit=limit, max_sentences=most)
    assert len(instances) > 3
    system = model.system
    batch = collate(
        source,
        target,
        instances,
        range(len(instances)),
        SpecialTokens(40),
        model.boundary_tokens,
        system.labelled_sentences,
    )
    whole = torch.cat([*logits(model), *logits(model, SOURCE[:2], TARGET[:2])])
    torch.testing.assert_close(model.project(model(batch.inputs)), whole, atol=1e-5, rtol=1e-5)


def test_what_instances_hold():
    lengths = [len(sentence) for sentence in SOURCE]
    columns = {}
    for side in ("encoder", "decoder", "both"):
        system = ModelConfig(**SIZES, **hierarchical(side=side, sentences=2)).system_options
        instances = cut_instances(lengths, lengths, [0, len(SOURCE)], system.context_spec(), max_sentences=3)
        columns[side] = [list(map(int, row)) for row in zip(*(vars(instances)[name] for name in FIELDS), strict=True)]
    assert columns["encoder"] == [[0, 0, 0, 3], [1, 3, 3, 6], [4, 6, 6, 8]]
    assert columns["decoder"] == [[0, 0, 0, 3], [1, 1, 3, 6], [4, 4, 6, 8]]
    assert columns["both"] == [[0, 0, 0, 3], [0, 1, 3, 6], [2, 4, 6, 8]]


FIELDS = ("before", "first", "first_output", "last")


@pytest.mark.parametrize("side", ["encoder", "decoder", "both"])
@pytest.mark.parametrize("normalization", ["post", "pre"])
def test_a_new_model_is_the_sentence_model_bit_for_bit(side, normalization):
    sentence = build(system="sentence", normalization=normalization)
    pairs = [(marked(SOURCE), marked(TARGET)), (marked(SOURCE[:1]), marked(TARGET[:1]))]
    for fusion in ("identity", "published"):
        config = ModelConfig(
            **SIZES, dropout=0.0, normalization=normalization, **hierarchical(side=side, fusion=fusion)
        )
        torch.manual_seed(5)
        model = TranslationModel(config).eval()
        loaded, weights = sentence.state_dict(), model.state_dict()
        assert {model.system.initial_weight(name) for name in weights} - {None} == set(loaded)
        model.load_state_dict(
            {name: loaded.get(model.system.initial_weight(name), tensor) for name, tensor in weights.items()}
        )
        found, wanted = model.logits(pairs), sentence.logits(pairs)
        assert torch.equal(found[0], wanted[0]) == (fusion == "identity")
        # Where no sentence is before, neither form changes anything.
        first = len(TARGET[0]) + 2
        torch.testing.assert_close(found[0][:first], wanted[0][:first], atol=1e-6, rtol=1e-6)
        assert torch.equal(found[1], wanted[1])


@pytest.mark.parametrize("side", ["encoder", "decoder"])
def test_heads_have_their_own_width_where_the_model_is_no_multiple_of_their_number(side):
    model = build(width=14, heads=5, head_width=11, **hierarchical(side=side))
    assert changed(model, "source" if side == "encoder" else "target") != []
    stack = {"encoder": "above_encoder", "decoder": "above_decoder"}[side]
    weights = model.get_submodule(stack).get_submodule("0.sentences").state_dict()
    assert weights["query.weight"].shape == (55, 14)
    assert weights["output.weight"].shape == (14, 55)


def module(k=2, trim=(1, 1), identity=False, detach=False):
    torch.manual_seed(1)
    scope = AttentionScope(extent="neighbour", offset=k, trim=trim)
    hierarchy = Hierarchy(ModelBuilder(ModelConfig(**SIZES)), scope, identity=identity, detach=detach)
    with torch.no_grad():
        for parameter in hierarchy.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return hierarchy.eval()


PACKED = pack([marked(SOURCE[:4]), marked([[], [], [7]])])  # sentences of 4, 5, 3, 4 and of 2, 2, 3 tokens
STATES = torch.randn(23, 16, generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize("trim", [(1, 1), (0, 1), (0, 0)])
def test_marks_of_the_sentences_before_are_not_seen(trim):
    hierarchy = module(trim=trim)
    before = hierarchy(STATES, FullContext(PACKED))
    for position in range(4):
        states = STATES.clone()
        states[position] += 1.0
        after = hierarchy(states, FullContext(PACKED))
        visible = trim[0] <= position < 4 - trim[1]
        differs = [
            not torch.equal(*pair) for pair in zip(before.split([4, 5, 3, 11]), after.split([4, 5, 3, 11]), strict=True)
        ]
        assert differs == [True, visible, visible, False]


@pytest.mark.parametrize("identity", [True, False])
def test_without_words_before_states_stay_as_they_are(identity):
    """First sentences of documents, and those after sentences without words."""
    output = module(identity=identity, k=9)(STATES, FullContext(PACKED))
    assert output.isfinite().all()
    assert torch.equal(output[:4], STATES[:4]) and torch.equal(output[16:], STATES[16:])
    assert not (output[4:16] == STATES[4:16]).all(-1).any()
    alone = pack([marked([[5]])])
    assert torch.equal(module(identity=identity)(STATES[:3], FullContext(alone)), STATES[:3])


def test_a_missing_sentence_changes_nothing():
    near, far = (module(k=k)(STATES, FullContext(PACKED)) for k in (1, 3))
    torch.testing.assert_close(near[4:9], far[4:9], atol=1e-6, rtol=1e-6)
    assert not torch.allclose(near[9:12], far[9:12], atol=1e-3)


def test_an_empty_sentence_changes_nothing():
    documents = [marked([[5, 6], [7]]), marked([[5, 6], [], [7]])]
    hierarchy, states = module(k=2), STATES[:7]
    plain = hierarchy(states, FullContext(pack(documents[:1])))
    between = hierarchy(torch.cat((states[:4], STATES[7:9], states[4:])), FullContext(pack(documents[1:])))
    torch.testing.assert_close(plain[4:], between[6:], atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("detach", [False, True])
def test_detached_states_have_no_gradient_through_what_looks_at_them(detach):
    hierarchy = module(detach=detach)
    states = STATES.clone().requires_grad_()
    hierarchy(states, FullContext(PACKED))[9:12].sum().backward()
    reached = states.grad.abs().sum(-1) > 0
    own_words = reached[9:12].all()
    words = reached[[1, 2, 5, 6, 7]]
    assert own_words and (not words.any() if detach else words.all())
    assert states.grad.isfinite().all()
    assert all(parameter.grad is not None for parameter in hierarchy.parameters())


@pytest.mark.parametrize("name", NAMES)
def test_gradients_are_numbers_where_nothing_is_seen(name):
    model = build(**SYSTEMS[name]).train()
    for source, target in ((SOURCE[:1], TARGET[:1]), (SOURCE, TARGET)):
        batch = collate(
            *(SentenceTokens.from_documents([side]) for side in (source, target)),
            cut_instances([1] * len(source), None, [0, len(source)], model.system.context_spec()),
            [0],
            SpecialTokens(40),
            model.boundary_tokens,
        )
        model(batch.inputs).square().sum().backward()
        assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
