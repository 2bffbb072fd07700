"""Every kernel computes the same attention, and computes nothing outside the pattern."""

from types import SimpleNamespace

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from docmt.model import Spans, attend
from docmt.model.embeddings import DistanceBiases
from docmt.model.kernels import AttentionPattern, attend_pattern, choose_kernel

HEADS, WIDTH = 3, 8


def tensors(queries: int, keys: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [
        torch.randn(n, HEADS, WIDTH, generator=generator, dtype=torch.float64).requires_grad_()
        for n in (queries, keys, keys)
    ]


def outputs_and_gradients(kernel, q, k, v, queries, keys, causal):
    result = attend(q, k, v, queries, keys, causal, kernel=kernel)
    weights = torch.linspace(-1, 1, result.numel(), dtype=result.dtype, device=result.device).view_as(result)
    return [result, *torch.autograd.grad((result * weights).sum(), (q, k, v))]


PATTERNS = {
    "self": (Spans.tile([5, 1, 9, 2, 5]), None, False),
    "self causal": (Spans.tile([5, 1, 9, 2, 5]), None, True),
    "cross": (Spans.tile([5, 1, 9, 2]), Spans.tile([3, 7, 1, 20]), False),
    "one segment": (Spans.tile([17]), None, True),
    "windows that overlap": (Spans.tile([4, 4, 4]), Spans(torch.tensor([0, 2, 4]), torch.tensor([8, 8, 8])), False),
    "causal after earlier keys": (Spans.tile([4, 2, 7]), Spans(torch.tensor([0, 0, 4]), torch.tensor([4, 6, 9])), True),
    "an empty key span": (Spans.tile([3, 4]), Spans.tile([0, 6]), False),
    "an empty segment": (Spans.tile([3, 0, 4]), Spans.tile([2, 5, 6]), False),
}


@pytest.mark.parametrize("name", PATTERNS)
def test_padded_kernel_equals_reference(name):
    queries, keys, causal = PATTERNS[name]
    keys = queries if keys is None else keys
    q, k, v = tensors(int(queries.lengths.sum()), int(keys.ends.max()))
    expected = outputs_and_gradients("reference", q, k, v, queries, keys, causal)
    output = outputs_and_gradients("padded", q, k, v, queries, keys, causal)
    for one, other in zip(expected, output, strict=True):
        torch.testing.assert_close(one, other, atol=1e-12, rtol=1e-10)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("causal", [True, False])
def test_long_segments_take_the_other_cpu_path_with_the_same_result(dtype, causal):
    queries = Spans.tile([1100, 40])  # longer than where plain products stop paying
    q, k, v = (x.detach().to(dtype) for x in tensors(1140, 1140))
    expected = attend(q.double(), k.double(), v.double(), queries, queries, causal, kernel="reference")
    output = attend(q, k, v, queries, queries, causal, kernel="padded")
    tolerance = 1e-5 if dtype == torch.float32 else 3e-2
    torch.testing.assert_close(output.double(), expected, atol=tolerance, rtol=tolerance)


def test_segments_do_not_see_each_other():
    queries = Spans.tile([4, 6])
    q, k, v = (x.detach() for x in tensors(10, 10))
    before = attend(q, k, v, queries, queries)
    k[5] += 1.0
    v[5] += 1.0
    after = attend(q, k, v, queries, queries)
    assert torch.equal(before[:4], after[:4])
    assert not torch.allclose(before[4:], after[4:])


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="the varlen kernel needs a CUDA device")
@pytest.mark.parametrize("name", PATTERNS)
def test_varlen_kernel_equals_reference(name):
    queries, keys, causal = PATTERNS[name]
    keys = queries if keys is None else keys
    q, k, v = tensors(int(queries.lengths.sum()), int(keys.ends.max()))
    expected = outputs_and_gradients("reference", q, k, v, queries, keys, causal)
    gpu = [x.detach().to("cuda", torch.bfloat16).requires_grad_() for x in (q, k, v)]
    output = outputs_and_gradients("varlen", *gpu, queries, keys, causal)
    for one, other in zip(expected, output, strict=True):
        torch.testing.assert_close(one, other.cpu().double(), atol=5e-2, rtol=5e-2)


def plain_varlen(query, key, value, query_ends, key_ends, longest_query, longest_key, window_size):
    """Stands in for the CUDA kernel, which leaves rows without keys undefined."""
    outputs = []
    for i in range(len(query_ends) - 1):
        q = query[query_ends[i] : query_ends[i + 1]].transpose(0, 1)
        k, v = (x[key_ends[i] : key_ends[i + 1]].transpose(0, 1) for x in (key, value))
        assert 0 < q.shape[1] <= longest_query and 0 < k.shape[1] <= longest_key
        mask = torch.ones(q.shape[1], k.shape[1], dtype=torch.bool)
        if window_size == (-1, 0):  # the last query sees all keys
            mask = mask.tril(k.shape[1] - q.shape[1])
        outputs.append(torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(0, 1))
    return torch.cat(outputs)


@pytest.mark.parametrize("name", PATTERNS)
def test_varlen_leaves_out_segments_with_an_empty_side(name, monkeypatch):
    monkeypatch.setattr("torch.nn.attention.varlen.varlen_attn", plain_varlen)
    queries, keys, causal = PATTERNS[name]
    keys = queries if keys is None else keys
    tensors_of = tensors(int(queries.lengths.sum()), int(keys.ends.max()))
    expected = outputs_and_gradients("reference", *tensors_of, queries, keys, causal)
    output = outputs_and_gradients("varlen", *tensors_of, queries, keys, causal)
    for one, other in zip(expected, output, strict=True):
        torch.testing.assert_close(one, other, atol=1e-12, rtol=1e-10)


def counting(monkeypatch, owner, name):
    """Counts the calls of a function."""
    calls, original = [], getattr(owner, name)
    monkeypatch.setattr(owner, name, lambda *arguments, **named: calls.append(1) or original(*arguments, **named))
    return calls


@pytest.mark.parametrize("longest", [9, 300], ids=["plain products", "one fused call"])
def test_distances_after_earlier_keys_count_from_the_first_of_them(longest):
    queries, keys = Spans.tile([4, longest]), Spans(torch.tensor([0, 1]), torch.tensor([4, longest + 3]))
    q, k, v = (x.detach().float() for x in tensors(longest + 4, longest + 4))
    distances = DistanceBiases(8, 20, HEADS, causal=True)
    torch.nn.init.normal_(distances.table.weight)
    expected, found = (
        attend(q, k, v, queries, keys, True, kernel=kernel, distances=distances) for kernel in ("reference", "padded")
    )
    torch.testing.assert_close(found, expected)
    scores = torch.einsum("hk,lhk->hl", q[5], k[1:6]) / WIDTH**0.5  # the second query: four keys are before it
    scores = scores + distances(torch.tensor([4]), 5)[:, 0]
    torch.testing.assert_close(found[5], torch.einsum("hl,lhk->hk", scores.softmax(-1), v[1:6]))


@pytest.mark.parametrize("longest", [9, 300], ids=["plain products", "one fused call"])
@pytest.mark.parametrize("causal", [True, False])
def test_layers_share_what_is_built_for_a_pattern(longest, causal, monkeypatch):
    spans = Spans.tile([longest, 3, longest - 2])
    pattern = AttentionPattern(spans, spans, causal, int(spans.lengths.sum()))
    q, k, v = (x.detach().float() for x in tensors(pattern.query_total, pattern.key_total))
    distances = DistanceBiases(8, 20, HEADS, causal=causal)
    torch.nn.init.normal_(distances.table.weight)
    bucketed, masks = (
        counting(monkeypatch, DistanceBiases, "find_buckets"),
        counting(monkeypatch, torch.Tensor, "triu_"),
    )
    results = [attend_pattern(q, k, v, pattern, distances=distances) for _ in range(3)]
    buckets = pattern.padded_layout(HEADS, q.device).buckets
    assert len(bucketed) == len(buckets)
    assert len(masks) == len(buckets) * causal
    assert all(bucket.mask_bias(torch.float32) is bucket.mask_bias(torch.float32) for bucket in buckets)
    assert all(torch.equal(result, results[0]) for result in results)
    expected = attend_pattern(q, k, v, pattern, kernel="reference", distances=distances)
    torch.testing.assert_close(results[0], expected, atol=1e-5, rtol=1e-5)


def test_varlen_indices_are_built_once(monkeypatch):
    monkeypatch.setattr("torch.nn.attention.varlen.varlen_attn", plain_varlen)
    pattern = AttentionPattern(Spans.tile([3, 0, 4]), Spans(torch.tensor([0, 2, 2]), torch.tensor([4, 5, 5])), False, 7)
    q, k, v = (x.detach() for x in tensors(7, 7))
    calls = counting(monkeypatch, Spans, "indices")
    for _ in range(3):
        attend_pattern(q, k, v, pattern, kernel="varlen")
    assert len(calls) == 1


class LargestTensor(TorchDispatchMode):
    """Remembers the largest number of elements any operation returned."""

    def __init__(self):
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, tuple | list) else [result]:
            if isinstance(tensor, torch.Tensor):
                self.elements = max(self.elements, tensor.numel())
        return result


def test_group_attention_makes_no_tensor_that_grows_with_the_square_of_the_document():
    largest = []
    for sentences in (40, 160):
        queries = Spans.tile([23] * sentences)
        q, k, v = (x.detach().float() for x in tensors(23 * sentences, 23 * sentences))
        with LargestTensor() as mode:
            attend(q, k, v, queries, queries, kernel="padded")
        largest.append(mode.elements)
    assert largest[1] <= 4.1 * largest[0]  # four times the tokens: linear
    assert largest[1] < (23 * 160) ** 2 / 10


def test_buckets_hold_similar_lengths():
    lengths = torch.tensor([3, 50, 7, 100, 8, 49, 4, 99, 51])
    pattern = AttentionPattern(Spans.tile(lengths), Spans.tile(lengths), causal=False, key_total=int(lengths.sum()))
    layout = pattern.padded_layout(1, torch.device("cpu"))
    assert sum(bucket.count for bucket in layout.buckets) == len(lengths)
    padded = sum(b.count * b.query_length * b.key_length for b in layout.buckets)
    assert padded < 1.8 * int((lengths**2).sum())


@pytest.mark.parametrize(
    ("queries", "keys", "causal", "message"),
    [
        (Spans.tile([2, 3]), Spans.tile([5]), False, "2 query segments but 1 key spans"),
        (Spans.tile([2, 3]), Spans.tile([3, 2]), True, "at least as long as"),
        (Spans(torch.tensor([0, 3]), torch.tensor([2, 2])), Spans.tile([2, 2]), False, "end to end"),
    ],
)
def test_spans_that_do_not_fit_are_refused(queries, keys, causal, message):
    q, k, v = tensors(5, 6)
    with pytest.raises(ValueError, match=message):
        attend(q, k, v, queries, keys, causal)


def test_unknown_kernel_is_refused():
    q, k, v = tensors(2, 2)
    with pytest.raises(ValueError, match="choose one of"):
        attend(q, k, v, Spans.tile([2]), Spans.tile([2]), kernel="magic")


def test_spans_describe_themselves():
    spans = Spans.tile([2, 3])
    assert spans.ends.tolist() == [2, 5]
    assert spans.positions().tolist() == [0, 1, 0, 1, 2]
    assert spans.indices().tolist() == [0, 1, 2, 3, 4]
    assert Spans(torch.tensor([4, 0, 3]), torch.tensor([2, 0, 3])).indices().tolist() == [4, 5, 3, 4, 5]
    assert spans.select(torch.tensor([1, 0, 1])).starts.tolist() == [2, 0, 2]
    assert spans.equals(Spans(torch.tensor([0, 2]), torch.tensor([2, 3])))
    assert not spans.equals(Spans.tile([3, 2]))
    assert spans != Spans.tile([2, 3]), "patterns are kept by identity"
    assert not spans.has_overlap()
    assert Spans(torch.tensor([3, 0]), torch.tensor([2, 4])).has_overlap()
    assert "0+2" in repr(spans)


@pytest.mark.parametrize("width", [10, 264])
def test_heads_that_flash_attention_cannot_take_use_the_padded_kernel(width):
    """Widths of no multiple of 8 have no gradients there; the widest are 256."""
    heads = SimpleNamespace(device=torch.device("cuda"), dtype=torch.bfloat16, shape=(3, 2, width))
    assert choose_kernel(heads, dropout=0.0)[0] == "padded"
    heads.shape = (3, 2, 16)
    assert choose_kernel(heads, dropout=0.0)[0] == "varlen"
