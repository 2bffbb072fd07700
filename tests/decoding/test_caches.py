"""Attention to two parts of the keys, joined."""

import math

import pytest
import torch

from docmt.decoding import caches


class Elsewhere(torch.Tensor):
    """A tensor that says it is not on the CPU, so that it is computed as on other devices."""

    device = torch.device("meta")


@pytest.mark.parametrize("device", [torch.Tensor, Elsewhere])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("length", [1, 9, 600])
def test_parts_are_joined_by_their_exponentials(device, dtype, length):
    """Also where a query sees nothing of a part, with masks in any layout."""
    torch.manual_seed(length)
    query, keys, values = (torch.randn(2, 3, n, 8, dtype=dtype) for n in (4, 2 * length, 2 * length))
    visible = torch.rand(2, 4, 1, 2 * length) < 0.7
    visible[..., 0] = True  # every query sees a key of the first part
    visible[0, 1, :, length:] = visible[1, :, :, length:] = False  # some see none of the second
    bias = caches.build_bias(visible, dtype).transpose(1, 2)  # [G, 1, n, L], not contiguous
    wanted = torch.nn.functional.scaled_dot_product_attention(query, keys, values, attn_mask=bias)
    (one, first), (other, second) = (
        caches.attend_part(query.as_subclass(device), keys[:, :, part], values[:, :, part], bias[..., part])
        for part in (slice(length), slice(length, None))
    )
    assert one.isfinite().all() and other.isfinite().all() and second.isfinite().all()
    second = torch.where(visible[..., length:].any(-1).transpose(1, 2), second, -math.inf)
    joined = torch.lerp(one, other, (second - first).sigmoid()[..., None].to(dtype))
    tolerance = 0.02 if dtype == torch.bfloat16 else 1e-5 if dtype == torch.float32 else 1e-12
    torch.testing.assert_close(joined.as_subclass(torch.Tensor), wanted, atol=tolerance, rtol=tolerance)
