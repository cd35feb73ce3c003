"""The kernels as operations of PyTorch, compiled around and never differentiated; far addresses."""

import subprocess
import sys

import pytest
import torch

from llmlab.attention import (
    flash_attention,
    flash_decode,
    naive_triton_attention,
    reference_attention,
)

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"

COMPILED = """
import torch
from llmlab.attention import flash_attention, reference_attention
calls = 0
def backend(graph, inputs):
    global calls
    calls += 1
    return graph.forward
device = "cuda" if torch.cuda.is_available() else "cpu"
q = torch.randn(1, 2, 9, 16, device=device)
k, mask = q[:, :1], (torch.rand(9, 9, device=device) < 0.7)
def attend(q, k, mask):
    output, lse = flash_attention(q, k, k, mask=mask, return_log_sum_exp=True)
    return 2 * output + lse[..., None].exp() * 0
compiled = torch.compile(attend, backend=backend, fullgraph=True, dynamic=True)
for _ in range(2):  # with nothing run before, and again
    torch.testing.assert_close(compiled(q, k, mask), 2 * reference_attention(q, k, k, mask=mask))
    flash_attention(q, k, k)
print("graphs:", calls)
"""


def test_one_operation_to_the_compiler():
    """In a process of its own: the checking of shapes at run time cannot be compiled."""
    result = subprocess.run(
        [sys.executable, "-c", COMPILED], capture_output=True, text=True, check=False
    )
    assert result.stdout == "graphs: 1\n", result.stderr


@pytest.mark.parametrize("attention", [flash_attention, naive_triton_attention, flash_decode])
def test_backward_is_an_error_and_not_a_wrong_gradient(attention):
    q = torch.randn(1, 1, 1, 16, device=DEVICE, requires_grad=True)
    output = attention(q, q, q)
    assert output.requires_grad
    with pytest.raises(NotImplementedError, match="for training use another"):
        output.sum().backward()


@pytest.mark.parametrize("axis", [1, 2, 3], ids=["heads", "rows", "columns"])
def test_keys_further_apart_than_32_bits_count(axis):
    """The storage is 4 GB, but nothing is ever written to most of it, so it takes no memory."""
    q = torch.randn(1, 4, 4, 16).to(DEVICE, torch.float16)
    k = far_apart(q, axis)
    for attention in (flash_attention, naive_triton_attention):
        assert torch.equal(attention(q, k, k), attention(q, q, q))
    assert torch.equal(flash_decode(q[:, :, :1], k, k), flash_decode(q[:, :, :1], q, q))


def test_a_mask_whose_columns_are_far_apart():
    q = torch.randn(1, 1, 20, 16, device=DEVICE)
    mask = torch.rand(1, 1, 20, 20, device=DEVICE) < 0.6
    expected = reference_attention(q, q, q, mask=mask)
    torch.testing.assert_close(flash_attention(q, q, q, mask=far_apart(mask, 3)), expected)


def far_apart(values, axis):
    """The same numbers, so far apart on one axis that its last is beyond 2^31.

    The stride itself is below: beyond, Triton would count in 64 bits by itself.
    """
    strides = list(values.transpose(axis, 0).contiguous().transpose(axis, 0).stride())
    strides[axis] = 2**31 // (values.shape[axis] - 1) + 1
    elements = 1 + sum(
        (size - 1) * stride for size, stride in zip(values.shape, strides, strict=True)
    )
    storage = torch.empty(elements, dtype=values.dtype, device=values.device)
    return storage.as_strided(values.shape, strides).copy_(values)
