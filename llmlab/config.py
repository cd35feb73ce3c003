"""One description of a decoder for every family, read from a Hugging Face `config.json`."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

FAMILIES = ("gpt2", "llama", "mistral", "qwen2", "qwen3")


@dataclass(frozen=True)
class RopeScaling:
    """Llama-3's stretching of the rotary wavelengths (Llama 3 herd of models, section 3.2).

    Wavelengths shorter than `original_max_positions / high_frequency_factor` stay as they are, those
    longer than `original_max_positions / low_frequency_factor` are stretched by `factor`, and those
    between are blended.
    """

    factor: float
    low_frequency_factor: float
    high_frequency_factor: float
    original_max_positions: int


@dataclass(frozen=True)
class ModelConfig:
    """The shape of a decoder-only transformer.

    Sizes are counts of numbers, not bytes. `kv_heads` divides `heads`; query head h reads key and value
    head `h // (heads // kv_heads)`.
    """

    family: str
    vocab_size: int
    hidden_size: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate_size: int
    max_positions: int
    norm: str  # "layer" | "rms"
    norm_epsilon: float
    activation: str  # "gelu_tanh" | "gelu" | "silu" | "relu"
    positions: str  # "learned" | "rotary"
    rope_theta: float = 10_000.0
    rope_scaling: RopeScaling | None = None
    sliding_window: int | None = None
    qkv_bias: bool = False
    output_bias: bool = False  # of the projection after attention
    mlp_bias: bool = False
    query_key_norm: bool = False
    tied_embeddings: bool = False
    bos_id: int | None = None
    eos_ids: tuple[int, ...] = ()
