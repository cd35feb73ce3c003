"""Flash decoding: one query against a long cache, whose keys are shared out among many programs.

One query makes one program for each head, far too few to keep a GPU busy. So the keys are cut into
splits. Each program answers for its split; a second kernel puts the answers together.

Source: Dao, Haziza, Massa and Sizov 2023 (Flash-Decoding).
"""

from llmlab.attention.triton_kernels.softmax import log_sum_exp, online_softmax_step
from llmlab.attention.triton_kernels.tiles import for_dot, load_tile, store_tile
from llmlab.attention.triton_runtime import import_triton

triton, tl = import_triton()


@triton.jit
def split_kernel(
    q,
    k,
    v,
    mask,  # True where the query may attend; read only if HAS_MASK
    partial,  # [B, H, splits, D] fp32, contiguous: the answer of each split
    partial_lse,  # [B, H, splits] fp32, contiguous: the log-sum-exp of each split
    q_batch_stride,
    q_head_stride,
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
    mask_column_stride,
    group,  # query heads that share a key head
    key_count,
    keys_per_split,
    scale,
    HEAD_DIM: tl.constexpr,
    PADDED_DIM: tl.constexpr,
    ROWS: tl.constexpr,  # at least `group`, and 16, the least that tensor cores take
    BLOCK_K: tl.constexpr,
    HAS_MASK: tl.constexpr,
    INTERPRETED: tl.constexpr,
):
    """One program: one split of the keys, for the query heads that share one key head."""
    split = tl.program_id(0)
    kv_head = tl.program_id(1).to(tl.int64)
    batch = tl.program_id(2).to(tl.int64)
    members = tl.arange(0, ROWS)  # the query heads of the group are the rows of the tile
    columns = tl.arange(0, PADDED_DIM)

    q += batch * q_batch_stride + kv_head * group * q_head_stride
    k += batch * k_batch_stride + kv_head * k_head_stride
    v += batch * v_batch_stride + kv_head * v_head_stride
    mask += batch * mask_batch_stride + kv_head * group * mask_head_stride
    query = load_tile(q, members, columns, q_head_stride, q_column_stride, group, HEAD_DIM)
    query = for_dot(query, INTERPRETED)

    maximum = tl.full([ROWS], float("-inf"), dtype=tl.float32)
    total = tl.zeros([ROWS], dtype=tl.float32)
    output = tl.zeros([ROWS, PADDED_DIM], dtype=tl.float32)
    first = split * keys_per_split
    for start in range(first, min(first + keys_per_split, key_count), BLOCK_K):
        keys = start + tl.arange(0, BLOCK_K)
        key = load_tile(k, keys, columns, k_row_stride, k_column_stride, key_count, HEAD_DIM)
        key = for_dot(key, INTERPRETED)
        scores = tl.dot(query, tl.trans(key), input_precision="ieee") * scale  # [ROWS, BLOCK_K]
        allowed = (keys < key_count)[None, :]
        if HAS_MASK:
            given = load_tile(
                mask, members, keys, mask_head_stride, mask_column_stride, group, key_count
            )
            allowed &= given != 0
        scores = tl.where(allowed, scores, float("-inf"))

        maximum, total, rescale, weights = online_softmax_step(scores, maximum, total)
        value = load_tile(v, keys, columns, v_row_stride, v_column_stride, key_count, HEAD_DIM)
        if not INTERPRETED:
            weights = weights.to(value.dtype)
        value = for_dot(value, INTERPRETED)
        output = output * rescale[:, None]
        output = tl.dot(weights, value, acc=output, input_precision="ieee")  # [ROWS, PADDED_DIM]

    total = tl.where(total == 0.0, 1.0, total)  # a split that saw nothing stays 0
    output /= total[:, None]
    splits = tl.num_programs(0)
    first_head = (batch * tl.num_programs(1) + kv_head) * group
    partial += (first_head * splits + split) * HEAD_DIM
    store_tile(
        partial, members, columns, splits * HEAD_DIM, 1, group, HEAD_DIM, output, INTERPRETED
    )
    partial_lse += first_head * splits + split
    tl.store(partial_lse + members * splits, log_sum_exp(maximum, total), mask=members < group)


@triton.jit
def combine_kernel(
    partial,  # [B * H, splits, D] fp32, contiguous
    partial_lse,  # [B * H, splits] fp32, contiguous
    o,  # [B * H, D], contiguous
    splits,
    HEAD_DIM: tl.constexpr,
    PADDED_DIM: tl.constexpr,
    PADDED_SPLITS: tl.constexpr,
    INTERPRETED: tl.constexpr,
):
    """One program: one head. Each split's answer counts as much as the sum of its weights did."""
    head = tl.program_id(0).to(tl.int64)
    rows = tl.arange(0, PADDED_SPLITS)
    columns = tl.arange(0, PADDED_DIM)
    lse = tl.load(partial_lse + head * splits + rows, mask=rows < splits, other=float("-inf"))
    maximum = tl.max(lse, axis=0)
    reference = tl.where(maximum == float("-inf"), 0.0, maximum)
    shares = tl.exp(lse - reference)  # [PADDED_SPLITS]
    total = tl.sum(shares, axis=0)
    shares /= tl.where(total == 0.0, 1.0, total)

    partial += head * splits * HEAD_DIM
    answers = load_tile(partial, rows, columns, HEAD_DIM, 1, splits, HEAD_DIM)
    output = tl.sum(answers * shares[:, None], axis=0)  # [PADDED_DIM]
    zero = tl.zeros([1], dtype=tl.int32)
    o += head * HEAD_DIM
    store_tile(o, zero, columns, HEAD_DIM, 1, 1, HEAD_DIM, output[None, :], INTERPRETED)
