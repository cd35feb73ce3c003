"""Attention: q [B, H, T, D] with k, v [B, Hkv, S, D] gives [B, H, T, D]."""

from llmlab.attention.heads import merge_heads, repeat_key_value_heads, split_heads
from llmlab.attention.masks import causal_mask, combine_masks, padding_mask, sliding_window_mask
from llmlab.attention.online_softmax import OnlineSoftmax, online_softmax
from llmlab.attention.reference import AttentionIntermediates, reference_attention
from llmlab.attention.registry import attention_function, sdpa_attention
from llmlab.attention.tiled import tiled_attention
from llmlab.attention.triton_attention import (
    flash_attention,
    flash_decode,
    naive_triton_attention,
)

__all__ = [
    "AttentionIntermediates",
    "OnlineSoftmax",
    "attention_function",
    "causal_mask",
    "combine_masks",
    "flash_attention",
    "flash_decode",
    "merge_heads",
    "naive_triton_attention",
    "online_softmax",
    "padding_mask",
    "reference_attention",
    "repeat_key_value_heads",
    "sdpa_attention",
    "sliding_window_mask",
    "split_heads",
    "tiled_attention",
]
