"""Flash attention as one kernel: a block of queries stays on the chip, the keys and values pass by.

Source: Dao 2023 (FlashAttention-2), algorithm 1.
"""

from llmlab.attention.triton_kernels.softmax import log_sum_exp, online_softmax_step
from llmlab.attention.triton_kernels.tiles import for_dot, load_tile, store_tile
from llmlab.attention.triton_runtime import import_triton

triton, tl = import_triton()


@triton.jit
def flash_kernel(
    q,
    k,
    v,
    mask,  # True where a query may attend; read only if HAS_MASK
    o,  # [B, H, T, D], contiguous
    lse,  # [B, H, T], contiguous; written only if STORE_LSE
    q_batch_stride,
    q_head_stride,
    q_row_stride,
    q_column_stride,
    k_batch_stride,
    k_head_stride,
    k_row_stride,
    k_column_stride,
    v_batch_stride,
    v_head_stride,
    v_row_stride,
    v_column_stride,
    mask_batch_stride,
    mask_head_stride,
    mask_row_stride,
    mask_column_stride,
    group,  # query heads that share a key head
    query_count,
    key_count,
    scale,
    HEAD_DIM: tl.constexpr,
    PADDED_DIM: tl.constexpr,  # the next power of two: tiles have no other sizes
    BLOCK_Q: tl.constexpr,
    BLOCK_K: tl.constexpr,
    CAUSAL: tl.constexpr,
    HAS_MASK: tl.constexpr,
    STORE_LSE: tl.constexpr,
    INTERPRETED: tl.constexpr,
):
    """One program: BLOCK_Q rows of the output of one head of one sequence."""
    block = tl.program_id(0)
    head = tl.program_id(1).to(tl.int64)
    batch = tl.program_id(2).to(tl.int64)
    queries = block * BLOCK_Q + tl.arange(0, BLOCK_Q)
    columns = tl.arange(0, PADDED_DIM)

    q += batch * q_batch_stride + head * q_head_stride
    k += batch * k_batch_stride + (head // group) * k_head_stride
    v += batch * v_batch_stride + (head // group) * v_head_stride
    mask += batch * mask_batch_stride + head * mask_head_stride
    query = load_tile(q, queries, columns, q_row_stride, q_column_stride, query_count, HEAD_DIM)
    query = for_dot(query, INTERPRETED)

    maximum = tl.full([BLOCK_Q], float("-inf"), dtype=tl.float32)  # of each row's scores so far
    total = tl.zeros([BLOCK_Q], dtype=tl.float32)  # of each row's weights so far
    output = tl.zeros([BLOCK_Q, PADDED_DIM], dtype=tl.float32)  # not yet divided by the total

    # How many keys the last and the first query of this block can see: the rest is skipped, and up
    # to the first query's last key nothing needs to be masked.
    offset = key_count - query_count  # the last query is aligned with the last key
    visible, unmasked = key_count, key_count
    if CAUSAL:
        last = min(block * BLOCK_Q + BLOCK_Q, query_count)
        visible = min(max(last + offset, 0), key_count)
        unmasked = min(max(block * BLOCK_Q + 1 + offset, 0), key_count)
    if HAS_MASK:
        unmasked = 0
    whole = unmasked // BLOCK_K * BLOCK_K

    for start in range(0, visible, BLOCK_K):
        keys = start + tl.arange(0, BLOCK_K)
        key = load_tile(k, keys, columns, k_row_stride, k_column_stride, key_count, HEAD_DIM)
        key = for_dot(key, INTERPRETED)
        # In powers of two, which is what the chip can do: `scale` has log2(e) in it.
        scores = tl.dot(query, tl.trans(key), input_precision="ieee") * scale  # [BLOCK_Q, BLOCK_K]
        if start >= whole:
            allowed = (keys < key_count)[None, :]
            if CAUSAL:
                allowed &= keys[None, :] <= queries[:, None] + offset
            if HAS_MASK:
                given = load_tile(
                    mask,
                    queries,
                    keys,
                    mask_row_stride,
                    mask_column_stride,
                    query_count,
                    key_count,
                )
                allowed &= given != 0
            scores = tl.where(allowed, scores, float("-inf"))

        maximum, total, rescale, weights = online_softmax_step(scores, maximum, total)
        value = load_tile(v, keys, columns, v_row_stride, v_column_stride, key_count, HEAD_DIM)
        if not INTERPRETED:
            weights = weights.to(value.dtype)  # tensor cores multiply equal dtypes
        value = for_dot(value, INTERPRETED)
        output = output * rescale[:, None]
        output = tl.dot(weights, value, acc=output, input_precision="ieee")  # [BLOCK_Q, PADDED_DIM]

    total = tl.where(total == 0.0, 1.0, total)  # a row that saw nothing stays 0
    output /= total[:, None]
    row = (batch * tl.num_programs(1) + head) * query_count
    o += row * HEAD_DIM
    store_tile(o, queries, columns, HEAD_DIM, 1, query_count, HEAD_DIM, output, INTERPRETED)
    if STORE_LSE:
        tl.store(lse + row + queries, log_sum_exp(maximum, total), mask=queries < query_count)
