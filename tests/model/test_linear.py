"""Linear attention: chunk by chunk, token by token and with every weight written out it is one thing."""

import pytest
import torch
import torch.nn.functional as F

from docmt.model.kernels import AttentionPattern
from docmt.model.linear_attention import FEATURE_SCALE, LearnedFeatures, RandomFeatures, draw_directions
from docmt.model.linear_kernels import GateDecay, attend_linear, compute_states_after, step_linear
from docmt.model.spans import Spans

HEADS, FEATURES, WIDTH, FLOOR = 3, 10, 4, 0.1
LAYOUTS = {
    "one token": ([[1]],),
    "one chunk": ([[3, 2], [4]],),
    "many chunks": ([[3, 2, 7], [4], [1, 1, 30, 5], [16], [2]],),
}


def layout(name):
    documents = LAYOUTS[name][0]
    sentences = Spans.tile([length for document in documents for length in document])
    return sentences, Spans.tile([sum(document) for document in documents])


def inputs(total, seed=0):
    generator = torch.Generator().manual_seed(seed)
    shapes = (FEATURES, FEATURES, WIDTH)
    tensors = [torch.randn(total, HEADS, n, generator=generator, dtype=torch.float64) for n in shapes]
    return [x.requires_grad_() for x in tensors]


def faded(kind, gates, sentences, documents, key):
    """The keys and the fading that a kind of gate makes."""
    if kind == "none":
        return key, None
    fading = GateDecay.from_gates(gates, sentences, documents, averaging=kind == "average")
    return (key if fading.input_weights is None else key * fading.input_weights[..., None]), fading.log_decay


def reference_linear(query, key, value, queries, keys, causal=False, fading=None, salience=None):
    """`attend_linear` with every weight written out, one segment after the other."""
    found = []
    for at, length, begin, span_length in zip(
        queries.starts.tolist(), queries.lengths.tolist(), keys.starts.tolist(), keys.lengths.tolist(), strict=True
    ):
        weights = torch.einsum("qhf,shf->hqs", query[at : at + length], key[begin : begin + span_length])
        if causal:
            weights = weights.tril()
        if fading is not None:
            logs = fading[at : at + length].T  # [H, q]
            weights = weights * (logs[:, :, None] - logs[:, None]).clamp(max=0).exp().to(weights.dtype)
        if salience is not None:
            logs = salience[begin : begin + span_length].T  # [H, s]
            weights = weights * (logs - logs.detach().amax(dim=1, keepdim=True)).exp()[:, None]
        found.append(
            torch.einsum("hqs,shk->qhk", weights, F.pad(value[begin : begin + span_length], (0, 1), value=1.0))
        )
    sums = torch.cat(found)
    return sums[..., :-1] / sums[..., -1:].clamp(min=FLOOR)


def by_steps(query, key, value, documents, fading):
    rows = []
    for first, last in zip(documents.starts.tolist(), documents.ends.tolist(), strict=True):
        state = query.new_zeros(1, HEADS, FEATURES, WIDTH + 1)
        for at in range(first, last):
            retention = (fading[at] - fading[at - 1]).exp()[None] if fading is not None and at > first else None
            row, state = step_linear(state, query[None, at], key[None, at], value[None, at], retention, FLOOR)
            rows.append(row)
    return torch.cat(rows)


@pytest.mark.parametrize("kind", ["none", "decay", "average"])
@pytest.mark.parametrize("name", LAYOUTS)
def test_chunks_steps_and_the_quadratic_form_agree(name, kind):
    sentences, documents = layout(name)
    gates = torch.randn(len(sentences), HEADS, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    gates.requires_grad_()
    results = {}
    for way in (
        "chunks of 4 in blocks of 8",
        "chunks of 4 in blocks of 4096",
        "chunks of 64 in blocks of 4096",
        "steps",
        "reference",
    ):
        query, key, value = leaves = inputs(int(documents.lengths.sum()))
        keys, fading = faded(kind, gates, sentences, documents, key)
        if way == "steps":
            result = by_steps(query, keys, value, documents, fading)
        elif way == "reference":
            result = reference_linear(query, keys, value, documents, documents, causal=True, fading=fading)
        else:
            pattern = AttentionPattern(documents, documents, True, len(value))
            sizes = {"chunk": int(way.split()[2]), "block": int(way.split()[-1]), "min_denominator": FLOOR}
            result = attend_linear(query, keys, value, pattern, log_decay=fading, **sizes)
        wanted = [*leaves, *([] if kind == "none" else [gates])]
        weighted = (result * torch.arange(result.numel()).view_as(result).cos()).sum()
        results[way] = [result, *torch.autograd.grad(weighted, wanted, materialize_grads=True)]
    reference = results.pop("reference")
    for way, values in results.items():
        for actual, expected in zip(values, reference, strict=True):
            torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-9, msg=way)
    if kind != "none" and len(sentences) > len(documents):
        plain = reference_linear(*inputs(int(documents.lengths.sum())), documents, documents, causal=True)
        assert (plain - reference[0]).abs().max() > 0.01


@pytest.mark.parametrize("kind", ["none", "decay", "average"])
def test_states_in_the_middle_of_what_was_read_are_those_of_steps(kind):
    """After whole sentences, inside of one, and before anything was read."""
    sentences, documents = layout("many chunks")
    gates = torch.randn(len(sentences), HEADS, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    query, key, value = (x.detach() for x in inputs(int(documents.lengths.sum())))
    faded = GateDecay.from_gates(gates, sentences, documents, averaging=kind == "average")
    fading, fresh = (None, None) if kind == "none" else (faded.log_decay, faded.input_weights)
    weighed = key if fresh is None else key * fresh[..., None]
    rows = [(first, number, read) for first, number in ((0, 0), (0, 2), (4, 4), (4, 7), (8, 8)) for read in (0, 1)]
    visible = torch.tensor([[first <= other < number for other in range(len(sentences))] for first, number, _ in rows])
    prefixes = Spans(sentences.starts[[number for _, number, _ in rows]], torch.tensor([read for *_, read in rows]))
    states = compute_states_after(key, value, sentences, visible, prefixes, log_decay=fading, input_weights=fresh)
    for row, (first, number, read) in enumerate(rows):
        state = torch.zeros(1, HEADS, FEATURES, WIDTH + 1, dtype=torch.float64)
        begin = int(sentences.starts[first])
        for at in range(begin, int(sentences.starts[number]) + read):
            retention = None if fading is None or at == begin else (fading[at] - fading[at - 1]).exp()[None]
            state = step_linear(state, *(x[None, at] for x in (query, weighed, value)), retention, FLOOR)[1]
        torch.testing.assert_close(states[row], state[0], rtol=1e-9, atol=1e-9)


def test_attention_to_another_sequence_sees_its_own_spans_only():
    queries, keys = Spans.tile([5, 1, 9]), Spans(torch.tensor([4, 0, 3]), torch.tensor([6, 3, 11]))
    query, key, value = (x.detach() for x in inputs(15))
    pattern = AttentionPattern(queries, keys, False, 15)
    expected = reference_linear(query, key, value, queries, keys)
    for chunk in (4, 64):
        torch.testing.assert_close(
            attend_linear(query, key, value, pattern, chunk=chunk, min_denominator=FLOOR), expected
        )
    changed = key.clone()
    changed[3] += 1.0  # no segment but the last sees it
    other = attend_linear(query, changed, value, pattern, chunk=4, min_denominator=FLOOR)
    assert torch.equal(other[:6], attend_linear(query, key, value, pattern, chunk=4, min_denominator=FLOOR)[:6])
    assert not torch.equal(other[6:], expected[6:])


def test_salient_keys_weigh_more_by_span():
    queries, keys = Spans.tile([5, 1, 9]), Spans(torch.tensor([4, 0, 3]), torch.tensor([6, 3, 11]))
    query, key, value = (x.detach() for x in inputs(15))
    pattern = AttentionPattern(queries, keys, False, 15)
    salience = 30 * torch.rand(15, HEADS, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    expected = reference_linear(query, key, value, queries, keys, salience=salience)
    for chunk in (4, 64):
        output = attend_linear(
            query, key, value, pattern, log_weights=salience, chunk=chunk, block=8, min_denominator=FLOOR
        )
        torch.testing.assert_close(output, expected)


def test_causal_attention_is_of_a_sequence_to_itself():
    query, key, value = inputs(6)
    with pytest.raises(ValueError, match="the same spans twice"):
        attend_linear(
            query,
            key,
            value,
            AttentionPattern(Spans.tile([3]), Spans(torch.tensor([3]), torch.tensor([3])), True, 6),
            min_denominator=FLOOR,
        )


@pytest.mark.parametrize("gated", [False, True])
def test_in_lower_precision(gated):
    """Products are in the precision of autocast, whatever the length; sums of chunks are not."""
    sentences, documents = Spans.tile([40] * 20), Spans.tile([300, 500])
    query, key, value = (x.detach().abs() for x in inputs(800))
    fading = GateDecay.from_gates(torch.full((20, HEADS), 2.0), sentences, documents).log_decay if gated else None
    pattern = AttentionPattern(documents, documents, True, 800)
    exact = attend_linear(query, key, value, pattern, log_decay=fading, min_denominator=FLOOR)
    with torch.autocast("cpu", torch.bfloat16):
        output = attend_linear(
            *(x.float() for x in (query, key, value)), pattern, log_decay=fading, min_denominator=FLOOR
        )
    assert output.dtype == torch.float32
    torch.testing.assert_close(output.double(), exact, rtol=0.02, atol=0.02)


def test_learned_features_are_positive_and_begin_with_the_dimensions():
    torch.manual_seed(0)
    features, x = LearnedFeatures(2, 4, 7), torch.randn(2, 5, 4)
    mapped = features(x, features.get_directions())
    assert mapped.shape == (2, 5, 14)
    assert (mapped > 0).all()
    torch.testing.assert_close(mapped[..., :7].sum(-1), torch.ones(2, 5))
    assert torch.equal(features.get_directions()[:, :4], torch.eye(4).expand(2, -1, -1))
    assert LearnedFeatures(2, 4, 3).get_directions().shape == (2, 3, 4)


def test_fading_over_a_book_stays_exact():
    sentences = Spans.tile([1] * 20_000)
    fading = GateDecay.from_gates(torch.full((20_000, 1), -1.0), sentences, Spans.tile([20_000])).log_decay
    assert float((fading[-1] - fading[-2]).exp()) == pytest.approx(1 / (1 + torch.e), rel=1e-9)


@pytest.mark.parametrize("how", ["independent", "orthogonal", "quasi"])
def test_features_estimate_the_softmax_of_cosines(how):
    torch.manual_seed(0)
    features = RandomFeatures(2, 8, 4096, how, temperature=1.3).eval()
    x, y = torch.randn(2, 5, 2, 8)
    estimate = (
        (
            features(x.transpose(0, 1), features.get_directions())
            * features(y.transpose(0, 1), features.get_directions())
        )
        .sum(-1)
        .T
    )
    u, v = (z / z.norm(dim=-1, keepdim=True) for z in (x, y))
    expected = FEATURE_SCALE**2 * 4096 * ((u * v).sum(-1).sub(1) / 1.3**2).exp()
    torch.testing.assert_close(estimate, expected, rtol=0.05, atol=0.05 * FEATURE_SCALE**2 * 4096)


@pytest.mark.parametrize("how", ["independent", "orthogonal", "quasi"])
def test_directions_are_normal_and_drawn_from_the_seed(how):
    directions = draw_directions(2, 2000, 8, how, torch.Generator().manual_seed(3))
    assert torch.equal(directions, draw_directions(2, 2000, 8, how, torch.Generator().manual_seed(3)))
    assert directions.shape == (2, 2000, 8)
    assert directions.mean(dim=(0, 1)).abs().max() < 0.06
    assert (directions.std(dim=(0, 1)) - 1).abs().max() < 0.06
    if how == "orthogonal":
        products = directions[0, :8] @ directions[0, :8].T
        assert (products - products.diagonal().diag()).abs().max() < 1e-4


def test_training_draws_anew_and_evaluation_takes_what_the_checkpoint_has():
    torch.manual_seed(0)
    features = RandomFeatures(2, 4, 6)
    first, second = features.get_directions(), features.get_directions()
    assert not torch.equal(first, second)
    features.eval()
    assert torch.equal(features.get_directions(), features.get_directions())
    other = RandomFeatures(2, 4, 6, seed=1).eval()
    assert not torch.equal(other.get_directions(), features.get_directions())
    other.load_state_dict(features.state_dict())
    assert torch.equal(other.get_directions(), features.get_directions())


def test_where_sentences_fade_whose_first_token_ends_the_one_before():
    sentences, documents = Spans.tile([3, 2, 1, 4, 1, 2]), Spans.tile([5, 1, 7])
    assert sentences.shift_boundaries(documents).lengths.tolist() == [4, 1, 1, 5, 1, 1]
    assert sentences.shift_boundaries(sentences).equals(sentences)
