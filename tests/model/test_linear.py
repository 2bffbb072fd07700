"""Linear attention: chunk by chunk, token by token and with every weight written out it is one thing."""

import pytest
import torch
import torch.nn.functional as F

from docmt.model.kernels import AttentionPattern
from docmt.model.linear import GateDecay, attend_linear, states_after, step_linear
from docmt.model.linear_attention import SCALE, LearnedFeatures, RandomFeatures, draw
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
    made = [torch.randn(total, HEADS, n, generator=generator, dtype=torch.float64) for n in shapes]
    return [x.requires_grad_() for x in made]


def faded(kind, gates, sentences, documents, key):
    """The keys and the fading that a kind of gate makes."""
    if kind == "none":
        return key, None
    fading = GateDecay.of(gates, sentences, documents, averaging=kind == "average")
    return (key if fading.fresh is None else key * fading.fresh[..., None]), fading.fading


def reference_linear(query, key, value, queries, keys, causal=False, fading=None, salience=None):
    """`attend_linear` with every weight written out, one segment after the other."""
    found = []
    for at, length, begin, seen in zip(
        queries.starts.tolist(), queries.lengths.tolist(), keys.starts.tolist(), keys.lengths.tolist(), strict=True
    ):
        weights = torch.einsum("qhf,shf->hqs", query[at : at + length], key[begin : begin + seen])
        if causal:
            weights = weights.tril()
        if fading is not None:
            own = fading[at : at + length].T  # [H, q]
            weights = weights * (own[:, :, None] - own[:, None]).clamp(max=0).exp().to(weights.dtype)
        if salience is not None:
            own = salience[begin : begin + seen].T  # [H, s]
            weights = weights * (own - own.detach().amax(dim=1, keepdim=True)).exp()[:, None]
        found.append(torch.einsum("hqs,shk->qhk", weights, F.pad(value[begin : begin + seen], (0, 1), value=1.0)))
    sums = torch.cat(found)
    return sums[..., :-1] / sums[..., -1:].clamp(min=FLOOR)


def by_steps(query, key, value, documents, fading):
    found = []
    for first, last in zip(documents.starts.tolist(), documents.ends.tolist(), strict=True):
        state = query.new_zeros(1, HEADS, FEATURES, WIDTH + 1)
        for at in range(first, last):
            left = (fading[at] - fading[at - 1]).exp()[None] if fading is not None and at > first else None
            row, state = step_linear(state, query[None, at], key[None, at], value[None, at], left, FLOOR)
            found.append(row)
    return torch.cat(found)


@pytest.mark.parametrize("kind", ["none", "decay", "average"])
@pytest.mark.parametrize("name", LAYOUTS)
def test_chunks_steps_and_the_quadratic_form_agree(name, kind):
    sentences, documents = layout(name)
    gates = torch.randn(len(sentences), HEADS, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    gates.requires_grad_()
    found = {}
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
            sizes = {"chunk": int(way.split()[2]), "block": int(way.split()[-1]), "floor": FLOOR}
            result = attend_linear(query, keys, value, pattern, fading=fading, **sizes)
        wanted = [*leaves, *([] if kind == "none" else [gates])]
        weighted = (result * torch.arange(result.numel()).view_as(result).cos()).sum()
        found[way] = [result, *torch.autograd.grad(weighted, wanted, materialize_grads=True)]
    reference = found.pop("reference")
    for way, values in found.items():
        for ours, theirs in zip(values, reference, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9, msg=way)
    if kind != "none" and len(sentences) > len(documents):
        plain = reference_linear(*inputs(int(documents.lengths.sum())), documents, documents, causal=True)
        assert (plain - reference[0]).abs().max() > 0.01


@pytest.mark.parametrize("kind", ["none", "decay", "average"])
def test_states_in_the_middle_of_what_was_read_are_those_of_steps(kind):
    """After whole sentences, inside of one, and before anything was read."""
    sentences, documents = layout("many chunks")
    gates = torch.randn(len(sentences), HEADS, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    query, key, value = (x.detach() for x in inputs(int(documents.lengths.sum())))
    faded = GateDecay.of(gates, sentences, documents, averaging=kind == "average")
    fading, fresh = (None, None) if kind == "none" else (faded.fading, faded.fresh)
    weighed = key if fresh is None else key * fresh[..., None]
    rows = [(first, number, read) for first, number in ((0, 0), (0, 2), (4, 4), (4, 7), (8, 8)) for read in (0, 1)]
    seen = torch.tensor([[first <= other < number for other in range(len(sentences))] for first, number, _ in rows])
    own = Spans(sentences.starts[[number for _, number, _ in rows]], torch.tensor([read for *_, read in rows]))
    found = states_after(key, value, sentences, seen, own, fading=fading, fresh=fresh)
    for row, (first, number, read) in enumerate(rows):
        state = torch.zeros(1, HEADS, FEATURES, WIDTH + 1, dtype=torch.float64)
        begin = int(sentences.starts[first])
        for at in range(begin, int(sentences.starts[number]) + read):
            left = None if fading is None or at == begin else (fading[at] - fading[at - 1]).exp()[None]
            state = step_linear(state, *(x[None, at] for x in (query, weighed, value)), left, FLOOR)[1]
        torch.testing.assert_close(found[row], state[0], rtol=1e-9, atol=1e-9)


def test_attention_to_another_sequence_sees_its_own_spans_only():
    queries, keys = Spans.tile([5, 1, 9]), Spans(torch.tensor([4, 0, 3]), torch.tensor([6, 3, 11]))
    query, key, value = (x.detach() for x in inputs(15))
    pattern = AttentionPattern(queries, keys, False, 15)
    expected = reference_linear(query, key, value, queries, keys)
    for chunk in (4, 64):
        torch.testing.assert_close(attend_linear(query, key, value, pattern, chunk=chunk, floor=FLOOR), expected)
    changed = key.clone()
    changed[3] += 1.0  # no segment but the last sees it
    other = attend_linear(query, changed, value, pattern, chunk=4, floor=FLOOR)
    assert torch.equal(other[:6], attend_linear(query, key, value, pattern, chunk=4, floor=FLOOR)[:6])
    assert not torch.equal(other[6:], expected[6:])


def test_salient_keys_weigh_more_by_span():
    queries, keys = Spans.tile([5, 1, 9]), Spans(torch.tensor([4, 0, 3]), torch.tensor([6, 3, 11]))
    query, key, value = (x.detach() for x in inputs(15))
    pattern = AttentionPattern(queries, keys, False, 15)
    salience = 30 * torch.rand(15, HEADS, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    expected = reference_linear(query, key, value, queries, keys, salience=salience)
    for chunk in (4, 64):
        found = attend_linear(query, key, value, pattern, salience=salience, chunk=chunk, block=8, floor=FLOOR)
        torch.testing.assert_close(found, expected)


def test_causal_attention_is_of_a_sequence_to_itself():
    query, key, value = inputs(6)
    with pytest.raises(ValueError, match="the same spans twice"):
        attend_linear(
            query,
            key,
            value,
            AttentionPattern(Spans.tile([3]), Spans(torch.tensor([3]), torch.tensor([3])), True, 6),
            floor=FLOOR,
        )


@pytest.mark.parametrize("gated", [False, True])
def test_in_lower_precision(gated):
    """Products are in the precision of autocast, whatever the length; sums of chunks are not."""
    sentences, documents = Spans.tile([40] * 20), Spans.tile([300, 500])
    query, key, value = (x.detach().abs() for x in inputs(800))
    fading = GateDecay.of(torch.full((20, HEADS), 2.0), sentences, documents).fading if gated else None
    pattern = AttentionPattern(documents, documents, True, 800)
    exact = attend_linear(query, key, value, pattern, fading=fading, floor=FLOOR)
    with torch.autocast("cpu", torch.bfloat16):
        found = attend_linear(*(x.float() for x in (query, key, value)), pattern, fading=fading, floor=FLOOR)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), exact, rtol=0.02, atol=0.02)


def test_learned_features_are_positive_and_begin_with_the_dimensions():
    torch.manual_seed(0)
    features, x = LearnedFeatures(2, 4, 7), torch.randn(2, 5, 4)
    found = features(x, features.directions())
    assert found.shape == (2, 5, 14)
    assert (found > 0).all()
    torch.testing.assert_close(found[..., :7].sum(-1), torch.ones(2, 5))
    assert torch.equal(features.directions()[:, :4], torch.eye(4).expand(2, -1, -1))
    assert LearnedFeatures(2, 4, 3).directions().shape == (2, 3, 4)


def test_fading_over_a_book_stays_exact():
    sentences = Spans.tile([1] * 20_000)
    fading = GateDecay.of(torch.full((20_000, 1), -1.0), sentences, Spans.tile([20_000])).fading
    assert float((fading[-1] - fading[-2]).exp()) == pytest.approx(1 / (1 + torch.e), rel=1e-9)


@pytest.mark.parametrize("how", ["independent", "orthogonal", "quasi"])
def test_features_estimate_the_softmax_of_cosines(how):
    torch.manual_seed(0)
    features = RandomFeatures(2, 8, 4096, how, temperature=1.3).eval()
    x, y = torch.randn(2, 5, 2, 8)
    found = (
        (features(x.transpose(0, 1), features.directions()) * features(y.transpose(0, 1), features.directions()))
        .sum(-1)
        .T
    )
    u, v = (z / z.norm(dim=-1, keepdim=True) for z in (x, y))
    expected = SCALE**2 * 4096 * ((u * v).sum(-1).sub(1) / 1.3**2).exp()
    torch.testing.assert_close(found, expected, rtol=0.05, atol=0.05 * SCALE**2 * 4096)


@pytest.mark.parametrize("how", ["independent", "orthogonal", "quasi"])
def test_directions_are_normal_and_drawn_from_the_seed(how):
    found = draw(2, 2000, 8, how, torch.Generator().manual_seed(3))
    assert torch.equal(found, draw(2, 2000, 8, how, torch.Generator().manual_seed(3)))
    assert found.shape == (2, 2000, 8)
    assert found.mean(dim=(0, 1)).abs().max() < 0.06
    assert (found.std(dim=(0, 1)) - 1).abs().max() < 0.06
    if how == "orthogonal":
        products = found[0, :8] @ found[0, :8].T
        assert (products - products.diagonal().diag()).abs().max() < 1e-4


def test_training_draws_anew_and_evaluation_takes_what_the_checkpoint_has():
    torch.manual_seed(0)
    features = RandomFeatures(2, 4, 6)
    first, second = features.directions(), features.directions()
    assert not torch.equal(first, second)
    features.eval()
    assert torch.equal(features.directions(), features.directions())
    other = RandomFeatures(2, 4, 6, seed=1).eval()
    assert not torch.equal(other.directions(), features.directions())
    other.load_state_dict(features.state_dict())
    assert torch.equal(other.directions(), features.directions())


def test_where_sentences_fade_whose_first_token_ends_the_one_before():
    sentences, documents = Spans.tile([3, 2, 1, 4, 1, 2]), Spans.tile([5, 1, 7])
    assert sentences.borders_later(documents).lengths.tolist() == [4, 1, 1, 5, 1, 1]
    assert sentences.borders_later(sentences).same_as(sentences)
