"""The hybrid system and its bricks: vectors by sentence distance, spans of recent sentences, the document layer."""

import pytest
import torch

from docmt.model import ModelConfig, ModelInput, TranslationModel, pack
from docmt.model.attention import Attention
from docmt.model.contexts import FullContext
from docmt.model.embeddings import SentenceVectors, Stack
from docmt.model.families import FAMILIES, TransformerConfig
from docmt.model.scope import AttentionScope
from docmt.model.systems import Hybrid

SIZES = {"width": 16, "feed_forward": 32, "heads": 2, "encoder_layers": 2, "decoder_layers": 2, "vocabulary_size": 60}
STACK = Stack(TransformerConfig(width=16, heads=2), FAMILIES["docmt"])
SOURCE = [[0, 5, 6, 2], [0, 7, 8, 9, 2], [0, 10, 2], [0, 11, 12, 2], [0, 13, 2]]
TARGET = [[0, 25, 2], [0, 26, 27, 2], [0, 28, 29, 30, 2], [0, 31, 2], [0, 32, 2]]


def build(seed=0, noise=0.2, system="hybrid", **options):
    torch.manual_seed(seed)
    if system == "hybrid":
        sizes = {name: options.pop(name) for name in tuple(options) if name in SIZES or name == "normalization"}
        options = {**sizes, "hybrid": Hybrid(**options)}
    model = TranslationModel(ModelConfig(**{**SIZES, "dropout": 0.0, "system": system, **options}))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(noise * torch.randn_like(parameter))
    return model.eval()


def attention_with(scope, vectors, seed=0):
    torch.manual_seed(seed)
    attention = Attention(STACK, scope, relation=vectors).double()
    for table in (vectors.keys, vectors.values):
        torch.nn.init.normal_(table)
    return attention


def plain_attention(attention, x, pairs):
    """Attention with vectors, one query and one head at a time. `pairs`: of each query, its visible keys and rows."""
    query, key, value = (attention.split_heads(layer(x)) for layer in (attention.query, attention.key, attention.value))
    vectors, outputs = attention.relation, torch.zeros_like(query)
    for number, visible in enumerate(pairs):
        for head in range(2):
            at = head if vectors.keys.shape[1] > 1 else 0
            keys = torch.stack([key[token, head] + vectors.keys[row, at] for token, row in visible])
            values = torch.stack([value[token, head] + vectors.values[row, at] for token, row in visible])
            weights = (keys @ query[number, head] / query.shape[-1] ** 0.5).softmax(0)
            outputs[number, head] = weights @ values
    return attention.output(outputs.flatten(-2))


@pytest.mark.parametrize("farthest", [1, 3, 20])
def test_vectors_over_the_document_are_those_of_a_plain_loop(farthest):
    packed = pack([SOURCE[:3], SOURCE[2:], SOURCE[:1]])
    attention = attention_with(AttentionScope(extent="document"), SentenceVectors(8, 1, None, farthest))
    x = torch.randn(len(packed.tokens), 16, dtype=torch.float64)
    number = packed.sentences.find_segments(torch.arange(len(x))).tolist()
    document = packed.documents.find_segments(torch.arange(len(x))).tolist()
    pairs = [
        [
            (key, max(-farthest, min(farthest, number[key] - number[query])) + farthest)
            for key in range(len(x))
            if document[key] == document[query]
        ]
        for query in range(len(x))
    ]
    torch.testing.assert_close(
        attention(x, FullContext(packed)), plain_attention(attention, x, pairs), atol=1e-10, rtol=1e-8
    )


@pytest.mark.parametrize("before", [1, 2, 9])
def test_vectors_over_recent_sentences_are_those_of_a_plain_loop(before):
    packed = pack([SOURCE, SOURCE[1:3]])
    scope = AttentionScope(extent="recent", offset=before, causal=True)
    attention = attention_with(scope, SentenceVectors(8, 2, before))
    x = torch.randn(len(packed.tokens), 16, dtype=torch.float64)
    number = packed.sentences.find_segments(torch.arange(len(x))).tolist()
    document = packed.documents.find_segments(torch.arange(len(x))).tolist()
    pairs = [
        [
            (key, number[query] - number[key])
            for key in range(query + 1)
            if document[key] == document[query] and number[query] - number[key] <= before
        ]
        for query in range(len(x))
    ]
    torch.testing.assert_close(
        attention(x, FullContext(packed)), plain_attention(attention, x, pairs), atol=1e-10, rtol=1e-8
    )


def test_vectors_of_zero_change_nothing():
    packed, scope = pack([SOURCE]), AttentionScope(extent="document")
    with_vectors = Attention(STACK, scope, relation=SentenceVectors(8, 1, None, 4)).double()
    without = Attention(STACK, scope).double()
    without.load_state_dict({k: v for k, v in with_vectors.state_dict().items() if not k.startswith("relation")})
    x = torch.randn(len(packed.tokens), 16, dtype=torch.float64)
    found, expected = (attention(x, FullContext(packed)) for attention in (with_vectors, without))
    torch.testing.assert_close(found, expected, atol=1e-12, rtol=1e-12)


def test_spans_reach_back_within_their_document():
    packed = pack([SOURCE[:3], SOURCE[3:]])
    spans = packed.sentences.join_preceding(packed.documents, 1, itself=True)
    assert list(zip(spans.starts.tolist(), spans.ends.tolist(), strict=True)) == [
        (0, 4), (0, 9), (4, 12), (12, 16), (12, 19)
    ]  # fmt: skip


@pytest.mark.parametrize("normalization", ["post", "pre"])
def test_without_history_it_starts_as_the_sentence_model_bit_for_bit(normalization):
    sentence = build(system="sentence", normalization=normalization)
    hybrid = build(noise=0.0, history=0, normalization=normalization)
    new = {name for name in hybrid.state_dict() if hybrid.system.initial_weight(name) is None}
    assert new and all(name.startswith("above_encoder.") for name in new)
    hybrid.load_state_dict(sentence.state_dict(), strict=False)
    assert torch.equal(hybrid.logits([(SOURCE, TARGET)])[0], sentence.logits([(SOURCE, TARGET)])[0])


def seen_target_sentences(model):
    """Which earlier target sentences change the logits of the last one."""
    last = len(TARGET[-1])
    usual = model.logits([(SOURCE, TARGET)])[0][-last:]
    changed = []
    for number in range(len(TARGET) - 1):
        target = [[0, 50, *sentence[2:]] if i == number else sentence for i, sentence in enumerate(TARGET)]
        changed.append(not torch.equal(model.logits([(SOURCE, target)])[0][-last:], usual))
    return changed


@pytest.mark.parametrize(
    ("history", "layers", "seen"),
    [(1, 2, [False, False, True, True]), (1, 1, [False] * 3 + [True]), (2, 2, [True] * 4), (0, 2, [False] * 4)],
)
def test_each_layer_reaches_further_back(history, layers, seen):
    assert seen_target_sentences(build(history=history, decoder_layers=layers)) == seen


def test_the_decoder_reads_its_own_source_sentence_alone():
    model = build()
    scopes = [module.scope for module in model.decoder.modules() if isinstance(module, Attention)]
    assert [scope for scope in scopes if scope.memory == "source"] == [AttentionScope("source")] * 2


@pytest.mark.parametrize("fusion", ["identity", "published"])
def test_the_document_layer_weighs_both_by_a_gate(fusion):
    model = build(fusion=fusion)
    (layer,) = model.above_encoder
    packed = pack([SOURCE])
    context, x = FullContext(packed), torch.randn(len(packed.tokens), 16)
    y = layer.layer(x, context)
    opening = torch.sigmoid(layer.gate.linear(torch.cat((x, y - x), dim=-1)))
    joined = opening * x + (1 - opening) * y
    assert (layer.norm is None) == (fusion == "identity")
    torch.testing.assert_close(layer(x, context), joined if layer.norm is None else layer.norm(joined))


def test_distances_in_the_encoder_begin_to_count_with_training():
    """Vectors start at zero and get gradients."""
    model = build(noise=0.0, fusion="published")
    target = pack([TARGET])
    inputs = ModelInput(pack([SOURCE]), torch.arange(5), target)
    model(inputs).square().sum().backward()
    gradients = {name: weights.grad for name, weights in model.named_parameters() if ".relation." in name}
    assert len(gradients) == 2 * 3  # keys and values of the document layer and of two decoder layers
    # One layer alone reads them first: products with keys of zero vectors have gradients, too.
    assert all(bool(gradient.abs().sum() > 0) for gradient in gradients.values())
