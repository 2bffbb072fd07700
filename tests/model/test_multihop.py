"""The Multi-Hop Transformer: what hops see in which order, what missing context does, what gradients reach."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from docmt.core.errors import DocmtError
from docmt.model import ModelConfig, ModelInput, Spans, TranslationModel, pack
from docmt.model.blocks import HierarchicalAttention, Hops, SentenceEncoder
from docmt.model.contexts import FullContext, Memory
from docmt.model.scope import AttentionScope
from docmt.model.systems import MultiHop

SIZES = {"width": 16, "feed_forward": 32, "heads": 2, "encoder_layers": 2, "decoder_layers": 2, "vocabulary_size": 60}
DOCUMENT = [[0, 5 + i, 15 + i, 2] for i in range(6)]
TARGET = [[0, 25 + i, 2] for i in range(6)]
DRAFTS = [[0, 35 + i, 45 + i, 2] for i in range(6)]
OTHER = [[0, 50, 51, 2], [0, 52, 2]]


def build(seed: int = 0, normalization: str = "post", **options) -> TranslationModel:
    torch.manual_seed(seed)
    config = ModelConfig(
        **SIZES, dropout=0.0, normalization=normalization, system="multihop", multihop=MultiHop(**options)
    )
    model = TranslationModel(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return model.eval()


def logits(model, source=DOCUMENT, target=TARGET, drafts=DRAFTS, references=None):
    """Logits [tokens, V] of each sentence of one document, with another document before it."""
    both = [[OTHER, side] for side in (source, target, drafts)]
    packed = [pack(side) for side in both]
    inputs = ModelInput(packed[0], torch.arange(len(packed[0].sentences)), packed[1], drafts=packed[2])
    if references is not None:
        inputs = replace(inputs, references=pack([OTHER, references]))
    with torch.no_grad():
        return model.project(model(inputs)).split(packed[1].sentences.lengths.tolist())[len(OTHER) :]


def changed(sentences, number):
    copy = [list(sentence) for sentence in sentences]
    copy[number][1] = 58
    return copy


def rows_that_differ(before, after):
    return [not torch.equal(one, other) for one, other in zip(before, after, strict=True)]


VARIANTS = {
    "both": {},
    "R2L": {"direction": "R2L"},
    "source": {"side": "source"},
    "target": {"side": "target"},
    "whole layers as keys": {"keys": "output"},
    "published": {"fusion": "published"},
    "two sentences": {"sentences": 2},
    "pre-norm": {"normalization": "pre"},
    "joined": {"context_attention": "joined"},
    "joined, over the target": {"context_attention": "joined", "side": "target", "sentences": 2},
    "hierarchical": {"context_attention": "hierarchical"},
    "hierarchical, as published": {"context_attention": "hierarchical", "fusion": "published", "sentences": 2},
}


@pytest.mark.parametrize("name", VARIANTS)
def test_source_context_reaches_as_far_as_there_are_hops(name):
    model = build(**VARIANTS[name])
    system = model.system
    reach = system.sentences if system.side != "target" else 0
    differing = rows_that_differ(logits(model), logits(model, source=changed(DOCUMENT, 1)))
    assert differing == [1 <= row <= 1 + reach for row in range(6)]


@pytest.mark.parametrize("name", VARIANTS)
def test_a_draft_is_seen_by_its_sentence_and_those_behind_it(name):
    model = build(**VARIANTS[name])
    differing = rows_that_differ(logits(model), logits(model, drafts=changed(DRAFTS, 1)))
    reach = -1 if model.system.side == "source" else model.system.sentences
    assert differing == [1 <= row <= 1 + reach for row in range(6)]


@pytest.mark.parametrize("name", VARIANTS)
def test_the_target_itself_is_seen_by_its_own_sentence_alone(name):
    model = build(**VARIANTS[name])
    differing = rows_that_differ(logits(model), logits(model, target=changed(TARGET, 1)))
    assert differing == [row == 1 for row in range(6)]


def test_references_stand_for_the_drafts_before_but_not_for_the_own_one():
    model = build(target_context="references")
    plain = logits(model)
    same = logits(model, references=DRAFTS)
    assert all(torch.allclose(one, other, atol=1e-6) for one, other in zip(plain, same, strict=True))
    assert rows_that_differ(same, logits(model, references=changed(DRAFTS, 1))) == [2 <= row <= 4 for row in range(6)]
    differing = rows_that_differ(same, logits(model, references=DRAFTS, drafts=changed(DRAFTS, 1)))
    assert differing == [row == 1 for row in range(6)]


@pytest.mark.parametrize(("direction", "order"), [("L2R", [3, 2, 1]), ("R2L", [1, 2, 3])])
def test_hops_go_from_the_farthest_sentence_to_the_nearest_or_back(direction, order):
    model = build(direction=direction)
    for stack in (model.encoder, model.decoder):
        for number, layer in enumerate(stack):
            scopes = [hop.scope for hop in layer.hops.hops]
            assert [scope.offset for scope in scopes] == order
            assert {scope.layer for scope in scopes} == {number}


def test_the_fifth_sentence_hops_over_the_second_third_and_fourth_and_the_second_over_the_first_alone():
    sentences = Spans.tile([3, 4, 5, 6, 7, 8])
    memory = Memory(torch.zeros(33, 1), sentences, Spans.tile([33]))
    context = FullContext(memory, {"context": memory})
    hops = [SimpleNamespace(scope=AttentionScope("context", "neighbour", back)) for back in (3, 2, 1)]
    spans = [context.find(hop, memory.states).pattern.keys for hop in hops]
    assert [(int(span.starts[4]), int(span.lengths[4])) for span in spans] == [(3, 4), (7, 5), (12, 6)]
    assert [int(span.lengths[1]) for span in spans] == [0, 0, 3]
    assert [int(span.starts[1]) for span in spans][-1] == 0


def test_sentences_before_never_lie_in_another_document():
    sentences, documents = Spans.tile([2, 3, 4, 5]), Spans.tile([5, 0, 9])
    assert sentences.select_preceding(documents, 1).lengths.tolist() == [0, 2, 0, 4]
    assert sentences.select_preceding(documents, 2).lengths.tolist() == [0, 0, 0, 0]
    assert sentences.select_preceding(Spans.tile([14]), 2).starts.tolist()[2:] == [0, 2]
    assert sentences.select_preceding(documents, -1).lengths.tolist() == [3, 0, 5, 0]


def test_a_joined_span_has_the_sentences_before_in_the_document():
    sentences, documents = Spans.tile([2, 3, 4, 5, 6]), Spans.tile([9, 0, 11])
    two, all_before = sentences.join_preceding(documents, 2), sentences.join_preceding(documents, 100)
    assert (two.starts.tolist(), two.lengths.tolist()) == ([0, 0, 0, 9, 9], [0, 2, 5, 0, 5])
    assert all_before.equals(two)
    one, neighbour = sentences.join_preceding(documents, 1), sentences.select_preceding(documents, 1)
    assert one.lengths.equal(neighbour.lengths) and one.starts[[1, 2, 4]].equal(neighbour.starts[[1, 2, 4]])


def test_one_sentence_is_the_same_for_one_hop_and_a_joined_one():
    hops, joined = build(sentences=1), build(sentences=1, context_attention="joined")
    assert hops.state_dict().keys() == joined.state_dict().keys()
    joined.load_state_dict(hops.state_dict())
    for one, other in zip(logits(hops), logits(joined), strict=True):
        assert torch.equal(one, other)
    more = build(sentences=2, context_attention="joined")
    more.load_state_dict(hops.state_dict())
    assert rows_that_differ(logits(hops), logits(more)) == [row >= 2 for row in range(6)]


def test_of_one_sentence_the_hierarchy_keeps_the_hop_if_it_changes_no_summary():
    hops, hierarchical = build(sentences=1), build(sentences=1, context_attention="hierarchical")
    weights = {name.replace("hops.hops", "hops.words"): tensor for name, tensor in hops.state_dict().items()}
    new = {name: tensor for name, tensor in hierarchical.state_dict().items() if name not in weights}
    assert new and all(".hops.sentences." in name for name in new)
    for name, tensor in new.items():
        weights[name] = torch.eye(len(tensor)) if name.endswith("weight") else torch.zeros_like(tensor)
    hierarchical.load_state_dict(weights)
    for one, other in zip(logits(hops), logits(hierarchical), strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("context_attention", ["hops", "joined", "hierarchical"])
@pytest.mark.parametrize("normalization", ["post", "pre"])
def test_without_context_hops_add_nothing_whatever_their_weights(normalization, context_attention):
    model = build(normalization=normalization, fusion="published", context_attention=context_attention)
    added = {}
    for name, module in model.named_modules():
        if isinstance(module, Hops | HierarchicalAttention):
            module.register_forward_hook(lambda module, inputs, output, name=name: added.__setitem__(name, output))
    model.logits([(DOCUMENT[:2], TARGET[:2])], [DRAFTS[:2]])
    for name, output in added.items():
        first = len(DOCUMENT[0] if name.startswith("encoder") else TARGET[0])
        assert torch.equal(output[:first], torch.zeros_like(output[:first])), name
        assert bool((output[first:] != 0).any()), name


def test_each_sentence_is_encoded_once_whoever_looks_at_it():
    model, read = build(), []
    for module in model.modules():
        if isinstance(module, SentenceEncoder):
            module.register_forward_hook(lambda module, inputs, output: read.append(len(output.states)))
    logits(model)
    tokens = sum(map(len, [*DOCUMENT, *OTHER]))
    assert read == [tokens, sum(map(len, [*DRAFTS, *OTHER]))]


def test_sentences_that_are_only_read_are_context_like_any_other():
    model = build()
    whole = logits(model)
    source, drafts = pack([DOCUMENT]), pack([DRAFTS])
    aligned = torch.arange(3, 6)
    with torch.no_grad():
        states = model(ModelInput(source, aligned, pack([TARGET[3:]]), drafts=drafts))
    parts = model.project(states).split([3, 3, 3])
    for one, other in zip(parts, whole[3:], strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("normalization", ["post", "pre"])
@pytest.mark.parametrize(
    "options",
    [{}, {"side": "source"}, {"side": "target"}, {"keys": "output"}]
    + [{"context_attention": name} for name in ("joined", "hierarchical")],
)
def test_exact_branches_begin_as_the_sentence_model_bit_for_bit(normalization, options):
    torch.manual_seed(1)
    config = ModelConfig(**SIZES, dropout=0.0, normalization=normalization, system="sentence")
    sentence = TranslationModel(config).eval()
    model = TranslationModel(replace(config, system="multihop", multihop=MultiHop(**options))).eval()
    loaded, weights = sentence.state_dict(), model.state_dict()
    assert {model.system.initial_weight(name) for name in weights} - {None} == set(loaded)
    model.load_state_dict(
        {name: loaded.get(model.system.initial_weight(name), tensor) for name, tensor in weights.items()}
    )
    pair = (DOCUMENT, TARGET)
    assert torch.equal(model.logits([pair], [DRAFTS])[0], sentence.logits([pair])[0])


def test_published_branches_do_not():
    torch.manual_seed(1)
    config = ModelConfig(**SIZES, dropout=0.0, system="sentence")
    sentence = TranslationModel(config).eval()
    model = TranslationModel(replace(config, system="multihop", multihop=MultiHop(fusion="published"))).eval()
    loaded = sentence.state_dict()
    model.load_state_dict({n: loaded.get(model.system.initial_weight(n), w) for n, w in model.state_dict().items()})
    pair = (DOCUMENT, TARGET)
    assert not torch.allclose(model.logits([pair], [DRAFTS])[0], sentence.logits([pair])[0], atol=1e-3)


@pytest.mark.parametrize("context_attention", ["hops", "joined", "hierarchical"])
@pytest.mark.parametrize("sentence_encoders", ["tuned", "frozen"])
def test_gradients_reach_the_sentence_encoders_unless_they_are_frozen(sentence_encoders, context_attention):
    model = build(sentence_encoders=sentence_encoders, context_attention=context_attention).train()
    source, target, drafts = (pack([side]) for side in (DOCUMENT, TARGET, DRAFTS))
    model(ModelInput(source, torch.arange(6), target, drafts=drafts)).square().sum().backward()
    for name, parameter in model.named_parameters():
        frozen = "_sentences." in name and sentence_encoders == "frozen"
        assert (parameter.grad is None) == frozen, name
        if not frozen and not name.endswith("key.bias"):  # which has no effect on anything
            assert bool(parameter.grad.any()), name


def test_what_reads_drafts_starts_from_a_reverse_model():
    system = build().system
    assert system.initial_reverse_weight("target_sentences.layers.1.attention.local.query.weight") == (
        "encoder.1.attention.local.query.weight"
    )
    assert system.initial_reverse_weight("target_sentences.embeddings.tokens.weight") == "tokens.weight"
    assert system.initial_reverse_weight("source_sentences.layers.1.attention.local.query.weight") is None
    assert system.initial_reverse_weight("encoder.0.attention.local.query.weight") is None


def test_two_embedding_tables_have_their_names_in_what_reads_drafts():
    config = ModelConfig(
        **{**SIZES, "vocabulary_size": 80}, source_vocabulary_size=60, family="marian", system="multihop"
    )
    torch.manual_seed(0)
    model = TranslationModel(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    before, after = ([[3, 0], [4, 0], [70, 0]] for _ in range(2))
    after[0] = [71, 0]  # an id that the source does not have
    logits_of_drafts = [
        logits(model, target=DRAFTS[:3], source=DOCUMENT[:3], drafts=drafts) for drafts in (before, after)
    ]
    assert rows_that_differ(*logits_of_drafts) == [True] * 3
    table = "target_sentences.embeddings.source_tokens.weight"
    assert model.state_dict()[table].shape == (80, 16)
    assert model.system.initial_weight(table) == "target_tokens.weight"
    assert model.system.initial_reverse_weight(table) == "source_tokens.weight"


def test_references_are_refused_where_no_target_is_read():
    with pytest.raises(DocmtError, match=r"model\.multihop\.target_context has no effect with .*side source"):
        build(side="source", target_context="references")


@pytest.mark.parametrize("context_attention", ["joined", "hierarchical"])
def test_a_direction_without_hops_is_refused(context_attention):
    with pytest.raises(DocmtError, match=r"model\.multihop\.direction has no effect without .*context_attention hops"):
        build(direction="R2L", context_attention=context_attention)


def test_without_drafts_the_reading_is_refused():
    with pytest.raises(ValueError, match="drafts"):
        build().logits([(DOCUMENT, TARGET)])
    assert len(build(side="source").logits([(DOCUMENT, TARGET)])) == 1
