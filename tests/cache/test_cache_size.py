"""kv_cache_bytes against hand-worked numbers, real caches, and transformers' own caches."""

import pytest
import torch
from cache_tools import config_of, feed
from hypothesis import given, settings
from hypothesis import strategies as st

from llmlab.cache import DynamicKVCache, StaticKVCache, kv_cache_bytes

GPT2 = {"model_type": "gpt2", "n_layer": 12, "n_head": 12, "n_embd": 768}
LLAMA_2_7B = {"num_hidden_layers": 32, "num_attention_heads": 32, "hidden_size": 4096}
LLAMA_3_8B = LLAMA_2_7B | {"num_key_value_heads": 8}
QWEN_3 = {  # head_dim is not hidden_size / heads
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "hidden_size": 1024,
    "head_dim": 128,
}
ONE_SHARED_HEAD = {"n_layer": 40, "n_head": 48, "n_embd": 6144, "multi_query": True}


@pytest.mark.parametrize(
    ("config", "dtype", "bytes_per_token"),
    [
        (GPT2, torch.float32, 73_728),
        (LLAMA_2_7B, torch.float16, 524_288),
        (LLAMA_3_8B, torch.bfloat16, 131_072),
        (QWEN_3, torch.bfloat16, 114_688),
        (ONE_SHARED_HEAD, torch.bfloat16, 20_480),
    ],
)
def test_bytes_of_a_token(config, dtype, bytes_per_token):
    assert kv_cache_bytes(config, length=1, dtype=dtype) == bytes_per_token
    assert kv_cache_bytes(config, length=100, batch_size=3, dtype=dtype) == 300 * bytes_per_token
    assert kv_cache_bytes(config, length=0, dtype=dtype) == 0


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    layers=st.integers(1, 4),
    kv_heads=st.integers(1, 4),
    groups=st.integers(1, 3),
    head_dim=st.sampled_from([2, 8, 10]),
    batch_size=st.integers(1, 3),
    length=st.integers(1, 9),
)
def test_equals_real_caches(layers, kv_heads, groups, head_dim, batch_size, length):
    config = config_of(layers, kv_heads * groups, kv_heads, head_dim)
    dynamic = DynamicKVCache(config)
    feed(dynamic, config, length, batch_size)
    static = StaticKVCache(config, batch_size=batch_size, max_length=length)
    size = kv_cache_bytes(config, length=length, batch_size=batch_size, dtype=torch.float32)
    assert dynamic.nbytes == static.nbytes == size
    assert size == kv_cache_bytes(
        config.to_hugging_face(), length=length, batch_size=batch_size, dtype=torch.float32
    )


SIZES = {"vocab_size": 32, "bos_token_id": 0, "eos_token_id": 1}
ROTARY = SIZES | {
    "hidden_size": 32,
    "intermediate_size": 16,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}


@pytest.mark.parametrize(
    ("family", "settings"),
    [
        ("GPT2", SIZES | {"n_embd": 32, "n_layer": 3, "n_head": 4}),
        ("Llama", ROTARY),
        ("Mistral", ROTARY | {"sliding_window": None}),
        ("Qwen2", ROTARY),
        ("Qwen3", ROTARY | {"head_dim": 16}),
    ],
)
def test_equals_transformers_caches(family, settings):
    import transformers

    config = getattr(transformers, f"{family}Config")(**settings)
    model = transformers.AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        layers = model(torch.ones(2, 5, dtype=torch.int64), use_cache=True).past_key_values.layers
    stored = sum(layer.keys.nbytes + layer.values.nbytes for layer in layers)
    for form in (config, config.to_dict()):
        assert kv_cache_bytes(form, length=5, batch_size=2, dtype=torch.float32) == stored


def test_says_what_is_wrong():
    with pytest.raises(ValueError, match="length must be at least 0, got -1"):
        kv_cache_bytes(GPT2, length=-1)
    with pytest.raises(ValueError, match="num_hidden_layers, n_layer"):
        kv_cache_bytes({"n_head": 2, "n_embd": 8}, length=1)
    with pytest.raises(ValueError, match="compresses"):
        kv_cache_bytes(LLAMA_2_7B | {"kv_lora_rank": 512}, length=1)
    with pytest.raises(TypeError, match="int"):
        kv_cache_bytes(12, length=1)
