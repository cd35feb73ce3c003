"""The flash kernel as the compiler sees it, for any GPU, without one."""

import torch

from llmlab.attention.triton_attention import BlockSizes, flash_block_sizes, padded_dim
from llmlab.attention.triton_runtime import compilable, import_triton
from llmlab.memory.compile import KernelReport, inspect_kernel

POINTER = {torch.float16: "*fp16", torch.bfloat16: "*bf16", torch.float32: "*fp32"}


def inspect_flash_attention(
    *,
    head_dim: int = 64,
    dtype: torch.dtype = torch.float16,
    causal: bool = True,
    has_mask: bool = False,
    target: str = "sm_90",
    blocks: BlockSizes | None = None,
) -> KernelReport:
    """Compile `flash_attention`'s kernel as it is launched on contiguous tensors.

    Args:
        blocks: how it is cut up (None: as `flash_attention` does).
        target: as in `llmlab.memory.compile.inspect_kernel`.

    Raises: as `flash_block_sizes` and `inspect_kernel`.
    """
    import_triton()
    from llmlab.attention.triton_kernels.flash import flash_kernel

    blocks = blocks or flash_block_sizes(head_dim, dtype, has_mask=has_mask)
    constexprs = {
        "HEAD_DIM": head_dim,
        "PADDED_DIM": padded_dim(head_dim),
        "BLOCK_Q": blocks.block_q,
        "BLOCK_K": blocks.block_k,
        "CAUSAL": causal,
        "HAS_MASK": has_mask,
        "STORE_LSE": False,
        "INTERPRETED": False,
    }
    signature = dict.fromkeys(("q", "k", "v", "o"), POINTER[dtype] + ":16")
    signature |= {"mask": "*u8:16", "lse": "*fp32:16", "scale": "fp32"}
    with compilable(flash_kernel) as kernel:
        for parameter in kernel.params:
            name = parameter.name
            if name.endswith("column_stride"):
                constexprs[name] = 1  # a launch fixes strides of 1, and the compiler uses it
            elif name.endswith("stride"):
                signature[name] = "i32:16" if head_dim % 16 == 0 else "i32"
            elif name not in constexprs and name not in signature:
                signature[name] = "i32"
        return inspect_kernel(
            kernel,
            signature=signature,
            constexprs=constexprs,
            target=target,
            num_warps=blocks.num_warps,
            num_stages=blocks.num_stages,
        )
