"""Every way in which `flash_attention` launches its kernel, compiled for three GPUs."""

import pytest
import torch

from llmlab.attention.triton_attention import CAREFUL_BLOCKS, FLASH_BLOCKS, flash_block_sizes
from llmlab.attention.triton_compile import inspect_flash_attention

SHARED_LIMIT = {"sm_80": 163 * 1024, "sm_90": 227 * 1024, "sm_100": 227 * 1024}
TENSOR_CORES = {"sm_80": "mma.sync", "sm_90": "wgmma.mma_async", "sm_100": "tcgen05.mma"}


def assert_fits(head_dim, dtype, target, **variant):
    report = inspect_flash_attention(head_dim=head_dim, dtype=dtype, target=target, **variant)
    assert report.spill_bytes == 0
    assert 0 < report.shared_bytes <= SHARED_LIMIT[target]
    if dtype.itemsize == 2:
        assert report.matrix_instructions[TENSOR_CORES[target]] > 0


@pytest.mark.parametrize("target", SHARED_LIMIT)
@pytest.mark.parametrize(("size", "head_dim"), CAREFUL_BLOCKS)
def test_a_mask_fits_into_the_registers(size, head_dim, target):
    """A padded batch brings one, and its addresses need registers of their own."""
    dtype = torch.bfloat16 if size == 2 else torch.float32
    assert_fits(head_dim, dtype, target, causal=True, has_mask=True)


@pytest.mark.parametrize("target", SHARED_LIMIT)
@pytest.mark.parametrize("head_dim", [40, 120, 200])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=str)
def test_rows_that_are_no_multiple_of_16_fit(head_dim, dtype, target):
    assert_fits(head_dim, dtype, target, causal=True)


def test_the_table_that_is_taken():
    half = torch.float16
    assert flash_block_sizes(80, half) == FLASH_BLOCKS[2, 128]
    assert flash_block_sizes(80, half, has_mask=True) == CAREFUL_BLOCKS[2, 128]
    assert flash_block_sizes(40, half) == CAREFUL_BLOCKS[2, 64]
    assert FLASH_BLOCKS.keys() == CAREFUL_BLOCKS.keys()
