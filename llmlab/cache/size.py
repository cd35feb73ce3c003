"""How many bytes of keys and values a model keeps: the formula, for any decoder config."""

from collections.abc import Mapping
from typing import Any

import torch

from llmlab.cache.base import read_size
from llmlab.config import ModelConfig


def kv_cache_bytes(
    config: ModelConfig | Mapping[str, Any] | Any,
    *,
    length: int,
    batch_size: int = 1,
    dtype: torch.dtype = torch.bfloat16,
) -> int:
    """Bytes of a cache: 2 x layers x kv_heads x head_dim x bytes a number x length x batch.

    The 2 stands for keys and values. It is kv_heads that count, not query heads: with grouped heads
    (Ainslie et al. 2023, section 2.2) or one shared head (Shazeer 2019) the cache is smaller by
    heads / kv_heads. Every position is kept, whatever a sliding window lets the queries see.

    Args:
        config: a `ModelConfig`, a Hugging Face config as a mapping (only the keys that decide the
            size are needed, so families that llmlab does not run work as well) or as an object.
        length: positions a row.
        batch_size: rows.
        dtype: what the cache stores.

    Raises:
        ValueError: a negative length or batch size, a key that is missing or below 1, or a config
            whose cache does not follow this formula (compressed keys and values).
        TypeError: not a config, not a dtype, or a size that is no whole number.
    """
    length = read_size(length, "length", least=0)
    batch_size = read_size(batch_size, "batch_size", least=0)
    if not isinstance(dtype, torch.dtype):
        raise TypeError(f"dtype must be one of torch's, such as torch.bfloat16; got {dtype!r}")
    layers, kv_heads, head_dim = _cache_shape(config)
    return 2 * layers * kv_heads * head_dim * dtype.itemsize * length * batch_size


def _cache_shape(config: ModelConfig | Mapping[str, Any] | Any) -> tuple[int, int, int]:
    """layers, kv_heads, head_dim."""
    if isinstance(config, ModelConfig):
        return config.layers, config.kv_heads, config.head_dim
    if hasattr(config, "to_dict"):
        config = config.to_dict()
    if not isinstance(config, Mapping):
        raise TypeError(
            f"config must be a ModelConfig or a Hugging Face config, got {type(config).__name__}"
        )
    if config.get("kv_lora_rank"):
        raise ValueError("this config compresses keys and values (kv_lora_rank): no formula for it")
    layers = _first(config, "num_hidden_layers", "n_layer")
    heads = _first(config, "num_attention_heads", "n_head")
    kv_heads = heads
    if config.get("multi_query"):
        kv_heads = 1
    elif config.get("num_key_value_heads") is not None:
        kv_heads = _first(config, "num_key_value_heads")
    if config.get("head_dim") is not None:
        return layers, kv_heads, _first(config, "head_dim")
    width = _first(config, "hidden_size", "n_embd")
    if width % heads:
        raise ValueError(f"{heads} heads do not divide a width of {width}: give head_dim")
    return layers, kv_heads, width // heads


def _first(config: Mapping[str, Any], *names: str) -> int:
    """The value under the first of these names that the config has."""
    for name in names:
        if config.get(name) is not None:
            return read_size(config[name], name)
    raise ValueError(f"the config has neither of {', '.join(names)}: the cache's size needs one")
