"""Small configs and caches for the tests of this folder."""

import torch

from llmlab.cache import DynamicKVCache, KVCache, StaticKVCache
from llmlab.config import ModelConfig


def config_of(layers: int = 2, heads: int = 4, kv_heads: int = 2, head_dim: int = 4) -> ModelConfig:
    return ModelConfig(
        family="llama",
        vocab_size=11,
        hidden_size=heads * head_dim,
        layers=layers,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        intermediate_size=8,
        max_positions=64,
        norm="rms",
        norm_epsilon=1e-6,
        activation="silu",
        positions="rotary",
    )


def make_cache(
    kind: str, config: ModelConfig, batch_size: int = 1, max_length: int = 32
) -> KVCache:
    if kind == "dynamic":
        return DynamicKVCache(config)
    return StaticKVCache(config, batch_size=batch_size, max_length=max_length)


def new_positions(config: ModelConfig, count: int, batch_size: int = 1, **options) -> torch.Tensor:
    return torch.randn(batch_size, config.kv_heads, count, config.head_dim, **options)


def feed(cache: KVCache, config: ModelConfig, count: int, batch_size: int = 1) -> None:
    for layer in range(config.layers):
        new = new_positions(config, count, batch_size)
        cache.update(layer, new, -new)
    cache.advance(count)
