"""Attention as the formula has it, every intermediate in full: the yardstick for all others."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from llmlab.attention.heads import repeat_key_value_heads
from llmlab.attention.masks import causal_mask, combine_masks


@dataclass(frozen=True)
class AttentionIntermediates:
    """The five stages of attention. For 16-bit inputs all but `output` are fp32."""

    scores: Float[Tensor, "B H T S"]  # query . key
    scaled: Float[Tensor, "B H T S"]  # scores * scale
    masked: Float[Tensor, "B H T S"]  # -inf where the query may not attend
    weights: Float[Tensor, "B H T S"]  # softmax over the keys: rows sum to 1, or are all 0
    output: Float[Tensor, "B H T D"]  # the weighted sums of the values


def reference_attention(
    q: Float[Tensor, "B H T D"],
    k: Float[Tensor, "B Hkv S D"],
    v: Float[Tensor, "B Hkv S D"],
    *,
    causal: bool = False,
    mask: Tensor | None = None,
    scale: float | None = None,
    return_intermediates: bool = False,
) -> Float[Tensor, "B H T D"] | AttentionIntermediates:
    """softmax(q k^T * scale) v, with the whole [B, H, T, S] matrix of scores in memory.

    Args:
        causal: no query sees a later key, the last query being aligned with the last key.
        mask: bool, broadcastable to [B, H, T, S], True where the query may attend to the key.
            With `causal` too, both must allow it.
        scale: 1 / sqrt(D) unless given.
        return_intermediates: give all stages by name instead of the output alone.

    Query head h reads key and value head h // (H // Hkv). A query that may attend to nothing gets
    zeros. Half-precision inputs are computed in fp32 and the output is rounded once, as PyTorch's
    own plain path does.

    Raises:
        TypeError: a mask that is not boolean, or q, k and v of different dtypes.
        ValueError: shapes that do not fit together.

    Source: Vaswani et al. 2017, section 3.2.1.
    """
    check_attention_inputs(q, k, v, mask)
    heads, queries, keys = q.shape[1], q.shape[2], k.shape[2]
    precision = torch.promote_types(q.dtype, torch.float32)
    query, key, value = q.to(precision), k.to(precision), v.to(precision)
    key = repeat_key_value_heads(key, heads)  # [B, H, S, D]
    value = repeat_key_value_heads(value, heads)  # [B, H, S, D]

    scores = query @ key.transpose(-2, -1)  # [B, H, T, S]
    scaled = scores * (q.shape[-1] ** -0.5 if scale is None else scale)
    allowed = combine_masks(causal_mask(queries, keys, device=q.device) if causal else None, mask)
    masked = scaled if allowed is None else scaled.masked_fill(~allowed, -math.inf)
    weights = _softmax_or_zeros(masked, allowed)
    output = (weights @ value).to(q.dtype)  # [B, H, T, D]
    if return_intermediates:
        return AttentionIntermediates(scores, scaled, masked, weights, output)
    return output


def _softmax_or_zeros(
    masked: Float[Tensor, "B H T S"], allowed: Bool[Tensor, "..."] | None
) -> Float[Tensor, "B H T S"]:
    """Softmax over the keys; a row of nothing but -inf, which has no softmax, becomes zeros."""
    weights = masked.softmax(dim=-1)
    if allowed is None:
        return weights
    return weights.masked_fill(~allowed.any(dim=-1, keepdim=True), 0.0)


def check_attention_inputs(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> None:
    """What every attention function asks of its inputs; the errors say what to change."""
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        if tensor.dim() != 4:
            raise ValueError(
                f"{name} must have 4 dimensions, [batch, heads, length, head_dim]; "
                f"got {list(tensor.shape)}"
            )
        if not tensor.is_floating_point():
            raise TypeError(f"{name} must hold floating-point numbers; got {tensor.dtype}")
    if not q.dtype == k.dtype == v.dtype:
        raise TypeError(
            f"q, k and v must have one dtype; got {q.dtype}, {k.dtype}, {v.dtype}: "
            "convert with .to(dtype)"
        )
    if k.shape != v.shape:
        raise ValueError(f"k and v must have one shape; got {list(k.shape)} and {list(v.shape)}")
    if q.shape[0] != k.shape[0] or q.shape[3] != k.shape[3]:
        raise ValueError(
            f"q and k must agree in batch and head_dim; got q {list(q.shape)} and k {list(k.shape)}"
        )
    if k.shape[1] == 0 or q.shape[1] % k.shape[1]:
        raise ValueError(
            f"{q.shape[1]} query heads cannot share {k.shape[1]} key/value heads: "
            "the second number must divide the first"
        )
    if mask is not None:
        _check_mask(mask, (*q.shape[:3], k.shape[2]))


def _check_mask(mask: Tensor, shape: tuple[int, int, int, int]) -> None:
    if mask.dtype != torch.bool:
        raise TypeError(
            f"mask must be boolean, True where a query may attend; got {mask.dtype}. "
            "A mask of ones and zeros becomes one by .bool(); an additive mask (0 and -inf) by == 0"
        )
    sizes = zip(reversed(mask.shape), reversed(shape), strict=False)
    if mask.dim() > 4 or any(size not in (1, wanted) for size, wanted in sizes):
        raise ValueError(
            f"mask must be broadcastable to [B, H, T, S] = {list(shape)}; got {list(mask.shape)}"
        )
