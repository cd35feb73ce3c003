"""Attention by the Triton kernels: on the GPU, or in Triton's interpreter on the CPU.

Triton is imported by the first call and not before.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from llmlab.attention.reference import check_attention_inputs
from llmlab.attention.triton_operation import forward_only
from llmlab.attention.triton_runtime import import_triton, interpreting
from llmlab.memory.ledger import ceil_div, decode_splits

LOG2_E = math.log2(math.e)  # e^x = 2^(x log2 e), and powers of two are what the chip computes
DTYPES = (torch.float16, torch.bfloat16, torch.float32)
MAX_HEAD_DIM = 256
ROWS_OF_A_DOT = 16  # tensor cores take no tile with fewer


@dataclass(frozen=True)
class BlockSizes:
    """How a kernel is cut up: queries and keys in a tile; warps in a program; loads in flight."""

    block_q: int
    block_k: int
    num_warps: int = 4
    num_stages: int = 2


#: By bytes of a number and padded head dimension. Chosen from what the compiler reports for
#: sm_80, sm_90 and sm_100: no register spills, and shared memory that fits (chapter 08).
FLASH_BLOCKS: dict[tuple[int, int], BlockSizes] = {
    (2, 16): BlockSizes(128, 64, 4, 3),
    (2, 32): BlockSizes(128, 64, 4, 3),
    (2, 64): BlockSizes(128, 64, 4, 3),
    (2, 128): BlockSizes(128, 64, 8, 3),
    (2, 256): BlockSizes(64, 64, 8, 2),
    (4, 16): BlockSizes(64, 64, 4, 2),
    (4, 32): BlockSizes(64, 32, 4, 2),
    (4, 64): BlockSizes(64, 32, 4, 2),
    (4, 128): BlockSizes(32, 32, 4, 2),
    (4, 256): BlockSizes(16, 32, 4, 2),
}

#: Where addresses need registers too, and the tiles above would spill: with a mask, and for rows
#: that are no multiple of 16 numbers long, which are fetched in small pieces.
CAREFUL_BLOCKS: dict[tuple[int, int], BlockSizes] = {
    (2, 16): BlockSizes(128, 32, 8, 2),
    (2, 32): BlockSizes(128, 32, 8, 2),
    (2, 64): BlockSizes(128, 64, 8, 2),
    (2, 128): BlockSizes(64, 64, 8, 1),
    (2, 256): BlockSizes(64, 16, 8, 2),
    (4, 16): BlockSizes(32, 32, 4, 2),
    (4, 32): BlockSizes(32, 32, 4, 2),
    (4, 64): BlockSizes(32, 32, 8, 2),
    (4, 128): BlockSizes(16, 32, 8, 2),
    (4, 256): BlockSizes(16, 16, 8, 2),
}


def flash_block_sizes(head_dim: int, dtype: torch.dtype, *, has_mask: bool = False) -> BlockSizes:
    """The blocks that `flash_attention` takes for this head dimension and dtype.

    Raises ValueError for a head dimension above 256, TypeError for a dtype it does not take.
    """
    if dtype not in DTYPES:
        raise TypeError(
            f"the Triton kernels take float16, bfloat16 and float32, not {dtype}: convert with "
            ".to(dtype), or use tiled_attention"
        )
    if not 1 <= head_dim <= MAX_HEAD_DIM:
        raise ValueError(
            f"the Triton kernels take head dimensions from 1 to {MAX_HEAD_DIM}, not {head_dim}: "
            "use tiled_attention"
        )
    table = CAREFUL_BLOCKS if has_mask or head_dim % 16 else FLASH_BLOCKS
    return table[dtype.itemsize, padded_dim(head_dim)]


def padded_dim(head_dim: int) -> int:
    """The next power of two, at least 16: tiles have no other widths."""
    return max(16, 1 << (head_dim - 1).bit_length())


def flash_attention(
    q: Float[Tensor, "B H T D"],
    k: Float[Tensor, "B Hkv S D"],
    v: Float[Tensor, "B Hkv S D"],
    *,
    causal: bool = False,
    mask: Tensor | None = None,
    scale: float | None = None,
    block_q: int | None = None,
    block_k: int | None = None,
    return_log_sum_exp: bool = False,
) -> Float[Tensor, "B H T D"] | tuple[Float[Tensor, "B H T D"], Float[Tensor, "B H T"]]:
    """softmax(q k^T * scale) v by one kernel, which never writes the scores to memory.

    Takes any strides, any T and S, head dimensions up to 256, fp16, bf16 and fp32, and computes in
    fp32 inside. Forward only: for training use PyTorch's own.

    Args:
        causal, mask, scale: as in `reference_attention`.
        block_q, block_k: queries and keys in a tile, powers of two from 16 (None: those of
            `flash_block_sizes`).
        return_log_sum_exp: give also the log of the sum of e^score of each row (fp32; -inf where a
            query may attend to nothing).

    Raises:
        ImportError: Triton is not installed; `tiled_attention` does the same in PyTorch.
        TypeError, ValueError: as `reference_attention`; other dtypes, head dimensions above 256,
            block sizes that are no powers of two.

    Source: Dao 2023 (FlashAttention-2), algorithm 1.
    """
    check_attention_inputs(q, k, v, mask)
    blocks = _blocks(q, block_q, block_k, has_mask=mask is not None)
    sizes = (blocks.block_q, blocks.block_k, blocks.num_warps, blocks.num_stages)
    output, lse = _flash_attention(q, k, v, mask, causal, scale, *sizes, return_log_sum_exp)
    return (output, lse) if return_log_sum_exp else output


def _flash_outputs(q: Tensor, *others: Any) -> tuple[Tensor, Tensor]:
    with_lse = others[-1]
    lse_shape = q.shape[:3] if with_lse else (0,)
    return _empty(q, q.shape), _empty(q, lse_shape, torch.float32)


@forward_only(_flash_outputs)
def _flash_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    causal: bool,
    scale: float | None,
    block_q: int,
    block_k: int,
    num_warps: int,
    num_stages: int,
    with_lse: bool,
) -> tuple[Tensor, Tensor]:
    _check_device(q, k, v)
    output, lse = _flash_outputs(q, with_lse)  # [B, H, T, D] and [B, H, T], or [0]
    blocks = BlockSizes(block_q, block_k, num_warps, num_stages)
    options = {"causal": causal, "mask": mask, "scale": scale, "blocks": blocks}
    launch_flash(q, k, v, output, lse if with_lse else None, **options)
    return output, lse


def launch_flash(
    q: Float[Tensor, "B H T D"],
    k: Float[Tensor, "B Hkv S D"],
    v: Float[Tensor, "B Hkv S D"],
    output: Float[Tensor, "B H T D"],
    lse: Float[Tensor, "B H T"] | None,
    *,
    causal: bool,
    mask: Tensor | None,
    scale: float | None,
    blocks: BlockSizes,
) -> None:
    """Run the kernel into `output` and, where given, `lse`; both contiguous."""
    triton, _ = import_triton()
    from llmlab.attention.triton_kernels.flash import flash_kernel

    (batch, heads, queries, head_dim), (kv_heads, keys) = q.shape, k.shape[1:3]
    if output.numel() == 0:
        return
    given = q if mask is None else mask.expand(batch, heads, queries, keys).view(torch.uint8)
    grid = (triton.cdiv(queries, blocks.block_q), heads, batch)
    flash_kernel[grid](
        q,
        k,
        v,
        given,
        output,
        output if lse is None else lse,
        *q.stride(),
        *k.stride(),
        *v.stride(),
        *given.stride(),
        heads // kv_heads,
        queries,
        keys,
        (head_dim**-0.5 if scale is None else scale) * LOG2_E,
        HEAD_DIM=head_dim,
        PADDED_DIM=padded_dim(head_dim),
        BLOCK_Q=blocks.block_q,
        BLOCK_K=blocks.block_k,
        CAUSAL=causal,
        HAS_MASK=mask is not None,
        STORE_LSE=lse is not None,
        INTERPRETED=interpreting(),
        num_warps=blocks.num_warps,
        num_stages=blocks.num_stages,
    )


def naive_triton_attention(
    q: Float[Tensor, "B H T D"],
    k: Float[Tensor, "B Hkv S D"],
    v: Float[Tensor, "B Hkv S D"],
    *,
    causal: bool = False,
    scale: float | None = None,
    block_q: int = 64,
    block_k: int = 64,
    scores_dtype: torch.dtype | None = None,
) -> Float[Tensor, "B H T D"]:
    """The same by three kernels: S = q k^T to memory, P = softmax(S) to memory, O = P v.

    What flash attention is measured against. Twice T x S numbers a head are written and read back.

    Args:
        causal, scale: as in `reference_attention`. Masked scores are computed and thrown away.
        block_q, block_k: queries and keys in a tile, powers of two from 16.
        scores_dtype: in which S and P are kept (None: q's, as a plain implementation would).

    Raises: as `flash_attention`.
    """
    check_attention_inputs(q, k, v, None)
    blocks = _blocks(q, block_q, block_k)
    dtype = q.dtype if scores_dtype is None else scores_dtype
    return _naive_attention(q, k, v, causal, scale, blocks.block_q, blocks.block_k, dtype)


def _output_like_queries(q: Tensor, *others: Any) -> Tensor:
    return _empty(q, q.shape)


@forward_only(_output_like_queries)
def _naive_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    causal: bool,
    scale: float | None,
    block_q: int,
    block_k: int,
    scores_dtype: torch.dtype,
) -> Tensor:
    _check_device(q, k, v)
    size = (*q.shape[:3], k.shape[2])
    scores = _empty(q, size, scores_dtype)  # [B, H, T, S]
    weights = _empty(q, size, scores_dtype)  # [B, H, T, S]
    output = _empty(q, q.shape)  # [B, H, T, D]
    blocks = BlockSizes(block_q, block_k)
    launch_naive(q, k, v, scores, weights, output, causal=causal, scale=scale, blocks=blocks)
    return output


def launch_naive(
    q: Float[Tensor, "B H T D"],
    k: Float[Tensor, "B Hkv S D"],
    v: Float[Tensor, "B Hkv S D"],
    scores: Float[Tensor, "B H T S"],
    weights: Float[Tensor, "B H T S"],
    output: Float[Tensor, "B H T D"],
    *,
    causal: bool,
    scale: float | None,
    blocks: BlockSizes,
) -> None:
    """Run the three kernels, into scores, weights and output, all contiguous."""
    triton, _ = import_triton()
    from llmlab.attention.triton_kernels import naive

    (batch, heads, queries, head_dim), (kv_heads, keys) = q.shape, k.shape[1:3]
    if output.numel() == 0:
        return
    if keys == 0:
        output.zero_()
        return
    counts = (heads, heads // kv_heads, queries, keys)
    tile = {"HEAD_DIM": head_dim, "PADDED_DIM": padded_dim(head_dim)}
    tile |= {"BLOCK_Q": blocks.block_q, "BLOCK_K": blocks.block_k, "INTERPRETED": interpreting()}
    query_blocks = triton.cdiv(queries, blocks.block_q)
    scale = head_dim**-0.5 if scale is None else scale
    naive.scores_kernel[batch * heads, query_blocks, triton.cdiv(keys, blocks.block_k)](
        q, k, scores, *q.stride(), *k.stride(), *counts, scale, CAUSAL=causal, **tile
    )
    naive.softmax_kernel[(batch * heads * queries,)](
        scores,
        weights,
        keys,
        PADDED_KEYS=triton.next_power_of_2(keys),
        INTERPRETED=interpreting(),
    )
    naive.output_kernel[batch * heads, query_blocks](
        weights, v, output, *v.stride(), *counts, **tile
    )


def flash_decode(
    q: Float[Tensor, "B H T D"],
    k: Float[Tensor, "B Hkv S D"],
    v: Float[Tensor, "B Hkv S D"],
    *,
    mask: Tensor | None = None,
    scale: float | None = None,
    block_k: int = 64,
    splits: int | None = None,
) -> Float[Tensor, "B H T D"]:
    """Attention of one new token (T = 1) over a long cache, in splits of keys that run at once.

    Each split reads its keys and values once for all the query heads that share them, and their
    queries; it writes D + 1 fp32 numbers a query head. A second kernel reads those and writes the
    output: `llmlab.memory.ledger` counts it all as "decode".

    Args:
        mask: bool, broadcastable to [B, H, 1, S], True where the query may attend to the key.
        scale: 1 / sqrt(D) unless given.
        block_k: keys in a tile, a power of two from 16.
        splits: into how many the keys are cut at most (None: so that about 256 programs run).

    Raises: as `flash_attention`; ValueError for more than one query.

    Source: Dao, Haziza, Massa and Sizov 2023 (Flash-Decoding).
    """
    check_attention_inputs(q, k, v, mask)
    if q.shape[2] != 1:
        raise ValueError(f"flash_decode is for one query, not {q.shape[2]}: use flash_attention")
    if splits is not None and splits < 1:
        raise ValueError(f"splits must be above 0, not {splits}")
    _blocks(q, ROWS_OF_A_DOT, block_k)
    batch, kv_heads, keys = k.shape[:3]
    if keys == 0:
        return torch.zeros_like(q)
    wanted = max(256 // (batch * kv_heads), 1) if splits is None else splits
    _, keys_per_split = decode_splits(keys, block_k, wanted)
    scale = q.shape[3] ** -0.5 if scale is None else scale
    return _flash_decode(q, k, v, mask, scale, block_k, keys_per_split)


@forward_only(_output_like_queries)
def _flash_decode(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    scale: float,
    block_k: int,
    keys_per_split: int,
) -> Tensor:
    _check_device(q, k, v)
    batch, heads, _, head_dim = q.shape
    size = (batch, heads, ceil_div(k.shape[2], keys_per_split))
    partial = _empty(q, (*size, head_dim), torch.float32)  # [B, H, splits, D]
    partial_lse = _empty(q, size, torch.float32)  # [B, H, splits]
    output = _empty(q, q.shape)  # [B, H, 1, D]
    launch_decode(q, k, v, partial, partial_lse, output, mask, scale, block_k, keys_per_split)
    return output


def launch_decode(
    q: Float[Tensor, "B H 1 D"],
    k: Float[Tensor, "B Hkv S D"],
    v: Float[Tensor, "B Hkv S D"],
    partial: Float[Tensor, "B H splits D"],
    partial_lse: Float[Tensor, "B H splits"],
    output: Float[Tensor, "B H 1 D"],
    mask: Tensor | None,
    scale: float,
    block_k: int,
    keys_per_split: int,
) -> None:
    """Run both kernels: partial answers and their log-sum-exps, then the output."""
    triton, _ = import_triton()
    from llmlab.attention.triton_kernels.decode import combine_kernel, split_kernel

    (batch, heads, _, head_dim), (kv_heads, keys) = q.shape, k.shape[1:3]
    given = q if mask is None else mask.expand(batch, heads, 1, keys).view(torch.uint8)
    splits, group = partial.shape[2], heads // kv_heads
    shape = {"HEAD_DIM": head_dim, "PADDED_DIM": padded_dim(head_dim)}
    shape["INTERPRETED"] = interpreting()
    split_kernel[splits, kv_heads, batch](
        q,
        k,
        v,
        given,
        partial,
        partial_lse,
        *(q.stride(axis) for axis in (0, 1, 3)),
        *k.stride(),
        *v.stride(),
        *(given.stride(axis) for axis in (0, 1, 3)),
        group,
        keys,
        keys_per_split,
        scale * LOG2_E,
        ROWS=max(ROWS_OF_A_DOT, triton.next_power_of_2(group)),
        BLOCK_K=block_k,
        HAS_MASK=mask is not None,
        **shape,
    )
    combine_kernel[(batch * heads,)](
        partial, partial_lse, output, splits, PADDED_SPLITS=triton.next_power_of_2(splits), **shape
    )


def _empty(q: Tensor, shape: tuple[int, ...], dtype: torch.dtype | None = None) -> Tensor:
    """A contiguous tensor beside q, in q's dtype unless told otherwise."""
    return torch.empty(shape, dtype=q.dtype if dtype is None else dtype, device=q.device)


def _blocks(
    q: Tensor, block_q: int | None, block_k: int | None, *, has_mask: bool = False
) -> BlockSizes:
    """The table's block sizes, or those asked for."""
    usual = flash_block_sizes(q.shape[3], q.dtype, has_mask=has_mask)
    sizes = (block_q or usual.block_q, block_k or usual.block_k)
    for name, size in zip(("block_q", "block_k"), sizes, strict=True):
        if size < ROWS_OF_A_DOT or size & (size - 1):
            raise ValueError(f"{name} must be a power of two from {ROWS_OF_A_DOT}, not {size}")
    return BlockSizes(*sizes, usual.num_warps, usual.num_stages)


def _check_device(*tensors: Tensor) -> None:
    import_triton()
    if not interpreting() and any(tensor.device.type != "cuda" for tensor in tensors):
        raise ValueError(
            "there is a GPU here, so the Triton kernels run on it: move q, k and v there with "
            '.to("cuda")'
        )
