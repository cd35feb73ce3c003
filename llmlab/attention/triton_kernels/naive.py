"""Attention as three kernels. The scores S and the weights P make the whole trip to HBM and back.

Each kernel is a grid of programs. Heads of all sequences lie on the first axis of the grid, blocks
of rows on the others.
"""

from llmlab.attention.triton_kernels.tiles import for_dot, load_tile, store_tile
from llmlab.attention.triton_runtime import import_triton

triton, tl = import_triton()


@triton.jit
def scores_kernel(
    q,
    k,
    s,  # [B * H, T, S], contiguous
    q_batch_stride,
    q_head_stride,
    q_row_stride,
    q_column_stride,
    k_batch_stride,
    k_head_stride,
    k_row_stride,
    k_column_stride,
    heads,
    group,  # query heads that share a key head
    query_count,
    key_count,
    scale,
    HEAD_DIM: tl.constexpr,
    PADDED_DIM: tl.constexpr,  # the next power of two: tiles have no other sizes
    BLOCK_Q: tl.constexpr,
    BLOCK_K: tl.constexpr,
    CAUSAL: tl.constexpr,
    INTERPRETED: tl.constexpr,
):
    """One program: one tile [BLOCK_Q, BLOCK_K] of S = Q K^T * scale, -inf where masked."""
    batch_head = tl.program_id(0).to(tl.int64)
    batch, head = batch_head // heads, batch_head % heads
    queries = tl.program_id(1) * BLOCK_Q + tl.arange(0, BLOCK_Q)
    keys = tl.program_id(2) * BLOCK_K + tl.arange(0, BLOCK_K)
    columns = tl.arange(0, PADDED_DIM)

    q += batch * q_batch_stride + head * q_head_stride
    k += batch * k_batch_stride + (head // group) * k_head_stride
    query = load_tile(q, queries, columns, q_row_stride, q_column_stride, query_count, HEAD_DIM)
    key = load_tile(k, keys, columns, k_row_stride, k_column_stride, key_count, HEAD_DIM)
    query, key = for_dot(query, INTERPRETED), for_dot(key, INTERPRETED)
    scores = tl.dot(query, tl.trans(key), input_precision="ieee") * scale  # [BLOCK_Q, BLOCK_K]
    if CAUSAL:  # the last query is aligned with the last key
        seen = keys[None, :] <= queries[:, None] + (key_count - query_count)
        scores = tl.where(seen, scores, float("-inf"))

    s += batch_head * query_count * key_count
    store_tile(s, queries, keys, key_count, 1, query_count, key_count, scores, INTERPRETED)


@triton.jit
def softmax_kernel(
    s,  # [B * H * T, S], contiguous
    p,  # [B * H * T, S], contiguous
    key_count,
    PADDED_KEYS: tl.constexpr,
    INTERPRETED: tl.constexpr,
):
    """One program: one whole row of S in, its softmax out to P. A row of -inf becomes zeros."""
    row = tl.program_id(0).to(tl.int64)
    keys = tl.arange(0, PADDED_KEYS)
    there = keys < key_count
    scores = tl.load(s + row * key_count + keys, mask=there, other=float("-inf")).to(tl.float32)
    maximum = tl.max(scores, axis=0)
    reference = tl.where(maximum == float("-inf"), 0.0, maximum)
    weights = tl.exp(scores - reference)  # [PADDED_KEYS]
    total = tl.sum(weights, axis=0)
    weights /= tl.where(total == 0.0, 1.0, total)
    rows = tl.zeros([1], dtype=tl.int32)
    p += row * key_count
    store_tile(p, rows, keys, key_count, 1, 1, key_count, weights[None, :], INTERPRETED)


@triton.jit
def output_kernel(
    p,  # [B * H, T, S], contiguous
    v,
    o,  # [B * H, T, D], contiguous
    v_batch_stride,
    v_head_stride,
    v_row_stride,
    v_column_stride,
    heads,
    group,
    query_count,
    key_count,
    HEAD_DIM: tl.constexpr,
    PADDED_DIM: tl.constexpr,
    BLOCK_Q: tl.constexpr,
    BLOCK_K: tl.constexpr,
    INTERPRETED: tl.constexpr,
):
    """One program: one block of rows of O = P V, the keys passing by in blocks."""
    batch_head = tl.program_id(0).to(tl.int64)
    batch, head = batch_head // heads, batch_head % heads
    queries = tl.program_id(1) * BLOCK_Q + tl.arange(0, BLOCK_Q)
    columns = tl.arange(0, PADDED_DIM)

    p += batch_head * query_count * key_count
    v += batch * v_batch_stride + (head // group) * v_head_stride
    output = tl.zeros([BLOCK_Q, PADDED_DIM], dtype=tl.float32)
    for start in range(0, key_count, BLOCK_K):
        keys = start + tl.arange(0, BLOCK_K)
        weights = load_tile(p, queries, keys, key_count, 1, query_count, key_count)
        value = load_tile(v, keys, columns, v_row_stride, v_column_stride, key_count, HEAD_DIM)
        value = value.to(weights.dtype)
        weights = for_dot(weights, INTERPRETED)  # [BLOCK_Q, BLOCK_K]
        output += tl.dot(weights, for_dot(value, INTERPRETED), input_precision="ieee")

    o += batch_head * query_count * HEAD_DIM
    store_tile(o, queries, columns, HEAD_DIM, 1, query_count, HEAD_DIM, output, INTERPRETED)
