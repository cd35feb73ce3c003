"""Attention in tiles, in plain PyTorch: exact, and no matrix of T x S numbers ever exists."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from llmlab.attention.online_softmax import OnlineSoftmax
from llmlab.attention.reference import check_attention_inputs


def tiled_attention(
    q: Float[Tensor, "B H T D"],
    k: Float[Tensor, "B Hkv S D"],
    v: Float[Tensor, "B Hkv S D"],
    *,
    causal: bool = False,
    mask: Tensor | None = None,
    scale: float | None = None,
    block_q: int = 64,
    block_k: int = 64,
    return_log_sum_exp: bool = False,
) -> Float[Tensor, "B H T D"] | tuple[Float[Tensor, "B H T D"], Float[Tensor, "B H T"]]:
    """What `reference_attention` computes, one block of queries and keys at a time.

    This is flash attention's order of work: a block of queries stays, the keys and values pass by
    in blocks, and an online softmax keeps the sums right. Beyond its inputs and output it holds
    B x H x block_q x block_k scores at a time. With `causal`, key blocks that a query block cannot
    see are skipped.

    Args:
        causal, mask, scale: as in `reference_attention`.
        block_q, block_k: queries and keys in a tile.
        return_log_sum_exp: give also the log of the sum of e^score of each row (fp32; -inf where a
            query may attend to nothing).

    Raises:
        TypeError, ValueError: as `reference_attention`; ValueError for a block size below 1.

    Source: Dao 2023 (FlashAttention-2), algorithm 1.
    """
    check_attention_inputs(q, k, v, mask)
    if block_q < 1 or block_k < 1:
        raise ValueError(f"block_q and block_k must be above 0, not {block_q} and {block_k}")
    (batch, heads, queries, head_dim), (kv_heads, keys) = q.shape, k.shape[1:3]
    grouped = q.unflatten(1, (kv_heads, heads // kv_heads))  # [B, Hkv, G, T, D]
    if mask is not None:
        mask = mask.expand(batch, heads, queries, keys).unflatten(1, grouped.shape[1:3])
    output = torch.empty(q.shape, dtype=q.dtype, device=q.device)  # [B, H, T, D]
    precision = torch.promote_types(q.dtype, torch.float32)
    log_sum_exp = torch.empty(q.shape[:3], dtype=precision, device=q.device)  # [B, H, T]
    scale = head_dim**-0.5 if scale is None else scale
    offset = keys - queries  # the last query is aligned with the last key
    for start in range(0, queries, block_q):
        rows = slice(start, min(start + block_q, queries))
        block = grouped[..., rows, :].to(precision) * scale  # [B, Hkv, G, rows, D]
        state = OnlineSoftmax.start(*block.shape[:-1], dtype=precision, device=q.device)
        summed = torch.zeros_like(block)  # [B, Hkv, G, rows, D], not divided yet
        visible = min(rows.stop + offset, keys) if causal else keys
        for first in range(0, visible, block_k):
            columns = slice(first, min(first + block_k, keys))
            scores = block @ _tile(k, columns, precision).transpose(-2, -1)
            scores = _masked(scores, rows, columns, offset if causal else None, mask)
            state, rescale, weights = state.update(scores)  # weights [B, Hkv, G, rows, columns]
            summed = summed * rescale.unsqueeze(-1) + weights @ _tile(v, columns, precision)
        output[:, :, rows] = (summed / state.divisor.unsqueeze(-1)).flatten(1, 2).to(q.dtype)
        log_sum_exp[:, :, rows] = state.log_sum_exp.flatten(1, 2)
    return (output, log_sum_exp) if return_log_sum_exp else output


def _tile(
    x: Float[Tensor, "B Hkv S D"], columns: slice, dtype: torch.dtype
) -> Float[Tensor, "B Hkv 1 columns D"]:
    """Some of the keys or values, once for all the query heads that share them."""
    return x[:, :, None, columns].to(dtype)


def _masked(
    scores: Float[Tensor, "B Hkv G rows columns"],
    rows: slice,
    columns: slice,
    offset: int | None,
    mask: Tensor | None,
) -> Float[Tensor, "B Hkv G rows columns"]:
    """-inf where a query may not attend: later keys, if `offset` is given, and the mask."""
    if offset is not None:
        positions = torch.arange(rows.start, rows.stop, device=scores.device) + offset  # [rows]
        keys = torch.arange(columns.start, columns.stop, device=scores.device)  # [columns]
        scores = scores.masked_fill(keys > positions[:, None], -math.inf)
    if mask is not None:
        scores = scores.masked_fill(~mask[..., rows, columns], -math.inf)
    return scores
