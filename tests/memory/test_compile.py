"""Kernels compiled for GPUs that are not here."""

import pytest
import torch

from llmlab.attention import flash_attention
from llmlab.attention.triton_attention import FLASH_BLOCKS, BlockSizes
from llmlab.attention.triton_compile import inspect_flash_attention
from llmlab.attention.triton_runtime import compilable, import_triton
from llmlab.memory import hardware
from llmlab.memory.compile import inspect_kernel

triton, tl = import_triton()
SHARED_LIMIT = {"sm_80": 163 * 1024, "sm_90": 227 * 1024, "sm_100": 227 * 1024}
TENSOR_CORES = {"sm_80": "mma.sync", "sm_90": "wgmma.mma_async", "sm_100": "tcgen05.mma"}


@pytest.mark.parametrize("target", SHARED_LIMIT)
@pytest.mark.parametrize(("size", "head_dim"), FLASH_BLOCKS)
def test_every_configuration_that_ships(size, head_dim, target):
    """No spills, shared memory within the limit of a block, tensor cores for 16-bit numbers."""
    dtype = torch.float16 if size == 2 else torch.float32
    report = inspect_flash_attention(head_dim=head_dim, dtype=dtype, target=target)
    assert report.spill_bytes == 0
    assert 0 < report.shared_bytes <= SHARED_LIMIT[target]
    assert 0 < report.registers <= 255
    assert report.target == target
    if size == 2:
        assert TENSOR_CORES[target] in report.matrix_instructions
    copies = sum(report.ptx.count(f"cp.async.{kind}.shared") for kind in ("ca", "cg"))
    assert report.instructions["cp.async"] == copies > 0  # the next keys are on their way meanwhile


@pytest.mark.parametrize(("head_dim", "causal", "has_mask"), [(64, False, False), (80, True, True)])
def test_bfloat16_too(head_dim, causal, has_mask):
    report = inspect_flash_attention(
        head_dim=head_dim, dtype=torch.bfloat16, causal=causal, has_mask=has_mask
    )
    assert report.spill_bytes == 0
    assert report.matrix_instructions["wgmma.mma_async"] > 0


def test_too_large_blocks_are_seen():
    """256 queries in 4 warps: the registers do not suffice."""
    report = inspect_flash_attention(head_dim=128, target="sm_80", blocks=BlockSizes(128, 128))
    assert report.spill_bytes > 0
    assert report.registers == 255


@triton.jit
def scale_kernel(x, y, n, factor, BLOCK: tl.constexpr):
    lanes = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + lanes, tl.load(x + lanes, mask=lanes < n) * factor, mask=lanes < n)


def test_any_kernel_can_be_inspected():
    signature = {"x": "*fp32:16", "y": "*fp32:16", "n": "i32:16", "factor": "fp32"}
    with compilable(scale_kernel) as kernel:
        report = inspect_kernel(kernel, signature=signature, constexprs={"BLOCK": 1024})
        with pytest.raises(ValueError, match="names n, factor"):
            inspect_kernel(kernel, signature={"x": "*fp32", "y": "*fp32"}, constexprs={"BLOCK": 1})
        with pytest.raises(ValueError, match="sm_80, sm_86"):
            inspect_kernel(kernel, signature=signature, constexprs={"BLOCK": 16}, target="sm_20")
    assert (report.shared_bytes, report.spill_bytes, report.matrix_instructions) == (0, 0, {})
    assert report.instructions["ld.global"] > 0
    assert ".entry scale_kernel" in report.ptx
    assert report.programs_per_sm(hardware("H100")) == 64 // report.num_warps
    assert report.occupancy(hardware("H100")) == 1.0


def test_compiler_and_interpreter_do_not_disturb_each_other(monkeypatch, tmp_path):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))  # nothing compiled before is found
    q = torch.randn(1, 1, 20, 16)
    before = flash_attention(q, q, q, causal=True)
    for _ in range(2):
        inspect_flash_attention(head_dim=16, dtype=torch.float16, target="sm_80")
        assert torch.equal(flash_attention(q, q, q, causal=True), before)
    assert list(tmp_path.iterdir())


def test_occupancy_by_hand():
    report = inspect_flash_attention(head_dim=64, dtype=torch.float16, target="sm_90")
    h100 = hardware("H100")
    by_registers = 65_536 // (-(-report.registers * 32 // 256) * 256 * report.num_warps)
    by_shared = h100.shared_bytes_per_sm // (report.shared_bytes + 1024)
    assert report.programs_per_sm(h100) == min(by_registers, by_shared, 64 // report.num_warps)
