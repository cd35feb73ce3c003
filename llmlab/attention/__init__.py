"""Attention: q [B, H, T, D] with k, v [B, Hkv, S, D] gives [B, H, T, D]."""

from llmlab.attention.heads import merge_heads, repeat_key_value_heads, split_heads
from llmlab.attention.masks import causal_mask, combine_masks, padding_mask, sliding_window_mask
from llmlab.attention.reference import AttentionIntermediates, reference_attention
from llmlab.attention.registry import attention_function, sdpa_attention

__all__ = [
    "AttentionIntermediates",
    "attention_function",
    "causal_mask",
    "combine_masks",
    "merge_heads",
    "padding_mask",
    "reference_attention",
    "repeat_key_value_heads",
    "sdpa_attention",
    "sliding_window_mask",
    "split_heads",
]
