"""Attention entropy on known distributions, and that measuring it leaves the model alone."""

import math

import pytest
import torch

from docmt.analysis import KINDS, EntropyMeter, attention_entropy, measure_entropy
from docmt.analysis.attention_analysis import block_entropies
from docmt.data import Batch
from docmt.model import ModelConfig, ModelInput, Spans, TranslationModel, attention_weights, pack
from docmt.model.attention_weights import MAX_SCORES, weight_blocks
from docmt.model.kernels import AttentionPattern
from docmt.model.systems import Context, Group

SOURCE = [[[0, 5, 6, 7, 2], [0, 8, 2]], [[0, 9, 10, 2]]]
TARGET = [[[0, 5, 6, 2], [0, 8, 9, 10, 2]], [[0, 9, 2]]]


def make_model(**settings):
    torch.manual_seed(1)
    sizes = {"width": 16, "feed_forward": 32, "heads": 2, "encoder_layers": 3, "decoder_layers": 2, "dropout": 0.0}
    sizes["vocabulary_size"] = 20
    if settings.get("system", "group") == "group":
        group = {
            "encoder_layers": 1,
            "decoder_layers": 1,
            "cross_layers": 1,
            "top_attention": settings.pop("top_attention", "combined"),
        }
        sizes["group"] = Group(**group)
    return TranslationModel(ModelConfig(**(sizes | settings)))


def make_batch(source=SOURCE, target=TARGET):
    packed = pack(target)
    return Batch(ModelInput(pack(source), torch.arange(len(packed.sentences)), packed), packed.tokens)


def random_attention(q_lengths, k_lengths, heads=3, width=4, scale=3.0):
    generator = torch.Generator().manual_seed(2)
    queries, keys = Spans.tile(q_lengths), Spans.tile(k_lengths)
    query = scale * torch.randn(sum(q_lengths), heads, width, generator=generator)
    return query, torch.randn(sum(k_lengths), heads, width, generator=generator), queries, keys


def one_by_one(query, key, queries, keys, causal):
    """The definition, query by query, in float64."""
    entropies = []
    for q_start, q_length, k_start, k_length in zip(
        queries.starts.tolist(), queries.lengths.tolist(), keys.starts.tolist(), keys.lengths.tolist(), strict=True
    ):
        for offset in range(q_length):
            visible = key[k_start : k_start + (offset + 1 if causal else k_length)].double()
            scores = torch.einsum("hk,lhk->hl", query[q_start + offset].double(), visible) / math.sqrt(query.shape[-1])
            p = scores.softmax(1).mean(0)
            entropies.append(-sum(x * math.log2(x) for x in p.tolist() if x > 0))
    return torch.tensor(entropies)


def query_entropies(query, key, queries, keys, causal=False):
    """Entropy in bits [Tq] of the weights of each query, averaged over the heads first."""
    entropies = torch.zeros(len(query))
    for block in weight_blocks(query, key, AttentionPattern(queries, keys, causal, len(key)), None):
        entropies[block.queries[block.is_query]] = block_entropies(block)[block.is_query]
    return entropies


Q_LENGTHS, K_LENGTHS = [1, 9, 2, 30, 5, 31, 1], [4, 8, 1, 33, 30, 2, 7]


@pytest.mark.parametrize("causal", [False, True])
def test_the_definition(causal):
    attention = random_attention(Q_LENGTHS, Q_LENGTHS if causal else K_LENGTHS)
    torch.testing.assert_close(
        query_entropies(*attention, causal), one_by_one(*attention, causal), atol=2e-6, rtol=0, check_dtype=False
    )


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("max_scores", [1, 100, 1000, 5000])
def test_the_size_of_blocks_changes_nothing(causal, max_scores, monkeypatch):
    attention = random_attention(Q_LENGTHS, Q_LENGTHS if causal else K_LENGTHS)
    usual = query_entropies(*attention, causal)
    monkeypatch.setattr(attention_weights, "MAX_SCORES", max_scores)
    torch.testing.assert_close(query_entropies(*attention, causal), usual, atol=1e-6, rtol=0)


def test_who_reads_blocks_keeps_the_precision_of_its_own():
    """Products of weights are float32, but those of the caller were, too, as long as it read."""
    query, key, queries, keys = random_attention(Q_LENGTHS, K_LENGTHS)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        blocks = weight_blocks(query, key, AttentionPattern(queries, keys, False, len(key)), None)
        assert {(block.weights.dtype, torch.is_autocast_enabled("cpu")) for block in blocks} == {(torch.float32, True)}


def test_blocks_hold_no_more_scores_than_allowed(monkeypatch):
    sizes = []
    original = torch.Tensor.softmax
    monkeypatch.setattr(torch.Tensor, "softmax", lambda x, dim: sizes.append(x.numel()) or original(x, dim))
    monkeypatch.setattr(attention_weights, "MAX_SCORES", 10_000)
    query_entropies(*random_attention([700, 3, 4], [700, 5, 3]), causal=False)
    assert max(sizes) <= 10_000
    assert sum(sizes) < 1.01 * 3 * (700 * 700 + 4 * 5 * 2)
    sizes.clear()
    monkeypatch.setattr(attention_weights, "MAX_SCORES", MAX_SCORES)
    query_entropies(*random_attention([7] * 100, [7] * 100), causal=True)
    assert sizes == [100 * 3 * 7 * 7]  # short sentences share one product
    sizes.clear()
    monkeypatch.setattr(attention_weights, "MAX_SCORES", 1000)
    query_entropies(*random_attention([7] * 100, [7] * 100), causal=True)
    assert max(sizes) <= 1000


def test_key_spans_may_lie_anywhere():
    query, key, queries, _ = random_attention([3, 4, 2], [9, 0, 0])
    windows = Spans(torch.tensor([0, 2, 1]), torch.tensor([5, 7, 8]))
    torch.testing.assert_close(
        query_entropies(query, key, queries, windows),
        one_by_one(query, key, queries, windows, False),
        atol=2e-6,
        rtol=0,
        check_dtype=False,
    )
    empty = Spans(torch.tensor([0, 2, 1]), torch.tensor([5, 0, 8]))
    assert query_entropies(query, key, queries, empty)[3:7].tolist() == [0.0] * 4


def test_heads_are_averaged_before_the_entropy():
    """Two heads that each look at one token of their own: half and half is 1 bit, though each head has 0."""
    query = torch.tensor([[[100.0], [-100.0]]])
    key = torch.tensor([[[1.0], [1.0]], [[-1.0], [-1.0]]])
    assert query_entropies(query, key, Spans.tile([1]), Spans.tile([2])).tolist() == [1.0]


def test_even_attention_has_the_logarithm_of_what_it_sees():
    model = make_model()
    for module in model.modules():
        if hasattr(module, "query"):
            torch.nn.init.zeros_(module.query.weight)
            torch.nn.init.zeros_(module.query.bias)
    entropies = attention_entropy(model, [make_batch()])
    source, target = [[5, 3], [4]], [[4, 5], [3]]

    def mean(counts):
        return pytest.approx(sum(map(math.log2, counts)) / len(counts), abs=1e-6)

    assert list(entropies) == list(KINDS)
    assert entropies["encoder_self_local"] == mean([n for d in source for n in d for _ in range(n)])
    assert entropies["encoder_self_global"] == mean([sum(d) for d in source for _ in range(sum(d))])
    assert entropies["decoder_self_local"] == mean([i + 1 for d in target for n in d for i in range(n)])
    assert entropies["decoder_self_global"] == mean([i + 1 for d in target for i in range(sum(d))])
    pairs = [pair for s, t in zip(source, target, strict=True) for pair in zip(s, t, strict=True)]
    assert entropies["decoder_cross_local"] == mean([s for s, t in pairs for _ in range(t)])
    assert entropies["decoder_cross_global"] == mean(
        [sum(s) for s, t in zip(source, target, strict=True) for _ in range(sum(t))]
    )


def test_one_token_is_seen_with_certainty():
    entropies = attention_entropy(make_model(), [make_batch([[[5]]], [[[6]]])])
    assert entropies == dict.fromkeys(KINDS, 0.0)


def test_the_mean_is_over_tokens_whatever_the_batches():
    model = make_model()
    together = attention_entropy(model, [make_batch()])
    separate = attention_entropy(model, [make_batch([s], [t]) for s, t in zip(SOURCE, TARGET, strict=True)])
    assert together == pytest.approx(separate, abs=1e-6)
    first = attention_entropy(model, [make_batch(SOURCE[:1], TARGET[:1])])
    assert first != pytest.approx(together, abs=1e-3)


@pytest.mark.parametrize(
    ("settings", "missing"),
    [
        ({"system": "document"}, "local"),
        ({"system": "concat"}, "local"),
        ({"system": "sentence"}, "global"),
        ({"top_attention": "group"}, "global"),
    ],
)
def test_only_what_the_model_has_is_reported(settings, missing):
    entropies = attention_entropy(make_model(**settings), [make_batch()])
    assert list(entropies) == [kind for kind in KINDS if not kind.endswith(missing)]
    assert all(value > 0 for value in entropies.values())


@pytest.mark.parametrize("side", ["both", "encoder", "decoder"])
def test_attention_to_another_memory_has_its_own_kind(side):
    entropies = attention_entropy(make_model(system="context", context=Context(side=side)), [make_batch()])
    looking = ["encoder_context_local"] * (side != "decoder") + ["decoder_context_local"] * (side != "encoder")
    sentence_kinds = ["encoder_self_local", "decoder_self_local", "decoder_cross_local"]
    assert set(entropies) == {*sentence_kinds, *looking, "context_self_local"}
    assert list(entropies)[:3] == sentence_kinds


def test_a_kind_that_met_no_query_is_left_out():
    meter = EntropyMeter(["decoder_cross_local", "encoder_self_local"])
    meter.add("decoder_cross_local", torch.tensor([1.0, 2.0]))
    meter.add("decoder_cross_local", torch.tensor([6.0]))
    assert meter.means() == {"decoder_cross_local": 3.0}
    assert attention_entropy(make_model(), []) == {}


def test_mode_and_hooks_are_as_before():
    model = make_model(dropout=0.5).train()
    entropies = attention_entropy(model, [make_batch()])
    assert model.training
    assert entropies == attention_entropy(model.eval(), [make_batch()])
    assert not model.training
    with pytest.raises(ZeroDivisionError), measure_entropy(model):
        raise ZeroDivisionError
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def gradients(model, batch, measured, precision):
    model.zero_grad()
    with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bfloat16"):
        if measured:
            with measure_entropy(model) as meter:
                states = model(batch.inputs)
            assert all(0 < bits < 4 for bits in meter.means().values())
        else:
            states = model(batch.inputs)
    states.float().square().mean().backward()
    return [states.detach(), *(p.grad.clone() for p in model.parameters() if p.grad is not None)]


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_measured_training_step_is_the_same_bit_for_bit(precision):
    model, batch = make_model(attention_dropout=0.0).train(), make_batch()
    expected = gradients(model, batch, False, precision)
    measured = gradients(model, batch, True, precision)
    assert len(expected) == len(measured) > 50
    assert all(torch.equal(one, other) for one, other in zip(expected, measured, strict=True))


def test_the_precision_of_the_model_changes_little():
    model, batch = make_model(), make_batch()
    exact = attention_entropy(model, [batch])
    with torch.autocast("cpu", torch.bfloat16):
        assert attention_entropy(model, [batch]) == pytest.approx(exact, abs=0.02)
