"""Ceilings, and what they predict."""

import math

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from llmlab.config import ModelConfig
from llmlab.memory.hardware import HARDWARE, hardware, listed_gpu, measure_cpu
from llmlab.memory.roofline import (
    attainable_flops,
    forward_cost,
    largest_batch,
    largest_context,
    matrix_parameters,
    predict,
    predict_forward,
)
from llmlab.model import DecoderModel

GPT2 = ModelConfig.from_hugging_face(
    {
        "model_type": "gpt2",
        "vocab_size": 50257,
        "n_embd": 768,
        "n_layer": 12,
        "n_head": 12,
        "n_positions": 1024,
    }
)
LLAMA_8B = ModelConfig.from_hugging_face(
    {
        "model_type": "llama",
        "vocab_size": 128256,
        "hidden_size": 4096,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "intermediate_size": 14336,
        "max_position_embeddings": 8192,
    }
)


def test_the_table():
    h100 = hardware("H100")
    assert (h100.peak("bfloat16"), h100.bandwidth, h100.sms) == (989e12, 3.35e12, 132)
    assert h100.shared_bytes_per_block == 227 * 1024
    assert hardware("a100 80gb") is hardware("A100") is HARDWARE["A100 80GB"]
    assert round(hardware("A100").ridge_point()) == 153  # 312 / 2.04
    assert (hardware("A100").l2_bytes, h100.l2_bytes) == (40 * 2**20, 50 * 2**20)
    for gpu in HARDWARE.values():
        assert all((gpu.source, gpu.memory_bytes, gpu.sms, gpu.target, gpu.max_warps_per_sm))
        assert gpu.peak("float32") < gpu.peak("bfloat16") == gpu.peak("float16")
    with pytest.raises(ValueError, match="A100 40GB, A100 80GB, H100"):
        hardware("H300")
    with pytest.raises(ValueError, match="bfloat16, float16"):
        h100.peak("float8")


@pytest.mark.parametrize(("sms", "cores", "ghz", "name"), [
    (108, 64, 1.410, "A100 80GB"), (132, 128, 1.980, "H100"),
    (84, 128, 1.800, "RTX A6000"), (128, 128, 2.520, "RTX 4090"),
])  # fmt: skip
def test_fp32_peaks_are_two_flops_a_core_and_clock(sms, cores, ghz, name):
    assert hardware(name).sms == sms
    assert math.isclose(hardware(name).peak("float32"), 2 * sms * cores * ghz * 1e9, rel_tol=2e-3)


@pytest.mark.parametrize(("driver_name", "name"), [
    ("NVIDIA A100-SXM4-80GB", "A100 80GB"), ("A100-SXM4-40GB", "A100 40GB"),
    ("NVIDIA H100 80GB HBM3", "H100"), ("NVIDIA H200", "H200"),
    ("NVIDIA RTX A6000", "RTX A6000"), ("NVIDIA GeForce RTX 4090", "RTX 4090"),
])  # fmt: skip
def test_a_gpu_is_known_by_its_drivers_name(driver_name, name):
    assert listed_gpu(driver_name) is HARDWARE[name]


@pytest.mark.parametrize("driver_name", [
    "NVIDIA RTX A1000", "NVIDIA GH200 480GB", "NVIDIA H100 PCIe", "NVIDIA H100 NVL",
    "NVIDIA A100 80GB PCIe", "NVIDIA GeForce RTX 4090 Laptop GPU", "NVIDIA GeForce RTX 4090 D",
    "NVIDIA A100-SXM4-40GB MIG 1g.5gb", "Tesla T4", "",
])  # fmt: skip
def test_a_gpu_with_other_ceilings_is_not_taken_for_one_of_the_table(driver_name):
    assert listed_gpu(driver_name) is None


def test_the_roof_slopes_and_is_flat():
    h100 = hardware("H100")
    assert attainable_flops(1.0, h100) == 3.35e12
    assert attainable_flops(1e6, h100) == 989e12
    ridge = h100.ridge_point()
    assert math.isclose(attainable_flops(ridge, h100), 989e12)
    assert predict(1, 1e12, h100).bound == "memory"
    assert predict(1e15, 1, h100).bound == "compute"
    assert predict(989e12, 3.35e12, h100).seconds == 1.0


def test_parameters_of_gpt2_by_hand():
    assert matrix_parameters(GPT2) == 12 * (4 * 768**2 + 2 * 768 * 3072) + 50257 * 768
    assert round(matrix_parameters(LLAMA_8B) / 1e9, 1) == 7.5  # 8.0 with the embedding table


@pytest.mark.parametrize("family", ["gpt2", "llama"])
@pytest.mark.parametrize(("batch", "past"), [(1, 0), (3, 7)])
def test_flops_are_those_that_pytorch_counts(family, batch, past):
    settings = {"model_type": family, "vocab_size": 50, "hidden_size": 24}
    names = ("n_layer", "n_head", "n_positions", "n_inner")
    if family == "llama":
        names = ("num_hidden_layers", "num_attention_heads", "max_position_embeddings",
                 "intermediate_size")  # fmt: skip
        settings["num_key_value_heads"] = 2
    settings |= dict(zip(names, (3, 4, 64, 48), strict=True))
    if family == "gpt2":
        settings["n_embd"] = settings.pop("hidden_size")
    config = ModelConfig.from_hugging_face(settings)
    from llmlab.cache import DynamicKVCache

    model, cache = DecoderModel(config, attention="reference").eval(), DynamicKVCache(config)
    with torch.inference_mode():
        if past:
            model(torch.zeros(batch, past, dtype=torch.long), cache=cache)
        with FlopCounterMode(display=False) as counter:
            model(torch.zeros(batch, 1, dtype=torch.long), cache=cache)
    cost = forward_cost(config, batch=batch, new_tokens=1, past=past)
    assert counter.get_total_flops() == cost.flops
    row = 2 * 3 * config.kv_heads * config.head_dim * 2
    assert (cost.cache_read_bytes, cost.cache_written_bytes) == (
        batch * (past + 1) * row,
        batch * row,
    )


def test_prefill_by_hand():
    """Two prompts of three tokens: every layer sees all six, the head the last of each prompt;
    queries 1, 2 and 3 see as many keys."""
    layers, head = 12 * (4 * 768**2 + 2 * 768 * 3072), 50257 * 768
    attention = 12 * 12 * 2 * 4 * 64 * (1 + 2 + 3)  # layers, heads, prompts, 4 d for each pair
    cost = forward_cost(GPT2, batch=2, new_tokens=3)
    assert cost.flops == 2 * (layers * 6 + head * 2) + attention
    assert cost.weight_bytes == 2 * (layers + head)
    assert cost.cache_written_bytes == 2 * 3 * 36_864  # half of fp32's 73,728 bytes a token


def test_decode_is_memory_bound_and_prefill_is_not():
    h100 = hardware("H100")
    decode = predict_forward(LLAMA_8B, h100, new_tokens=1, past=1000)
    prefill = predict_forward(LLAMA_8B, h100, new_tokens=1000)
    assert (decode.bound, prefill.bound) == ("memory", "compute")
    assert prefill.seconds < 20 * decode.seconds
    batched = predict_forward(LLAMA_8B, h100, batch=16, new_tokens=1, past=1000)
    assert batched.seconds < 1.2 * decode.seconds


def test_what_fits():
    h100 = hardware("H100")
    rows = largest_batch(LLAMA_8B, h100, context=8192)
    cache = rows * 8192 * 131_072  # bytes a token of Llama 3 8B: 2 * 32 * 8 * 128 * 2
    assert 80e9 - 8192 * 131_072 < cache + 2 * 8.03e9 < 80e9
    assert largest_batch(LLAMA_8B, hardware("RTX 4090"), context=2**20) == 0
    assert largest_context(LLAMA_8B, h100, batch=rows) // 8192 == 1
    assert largest_context(LLAMA_8B, h100, batch=1) == largest_batch(LLAMA_8B, h100, context=1)
    assert largest_context(LLAMA_8B, hardware("RTX 4090"), batch=10**6) == 0
    with pytest.raises(ValueError, match="batch must be above 0"):
        largest_context(LLAMA_8B, h100, batch=0)
    with pytest.raises(ValueError, match="context must be above 0"):
        largest_batch(LLAMA_8B, h100, context=0)
    with pytest.raises(ValueError, match="not known"):
        largest_batch(LLAMA_8B, measure_cpu(megabytes=8, size=64, tries=1), context=10)


def test_this_cpu_is_measured():
    cpu = measure_cpu(megabytes=32, size=256, tries=2)
    assert 1e8 < cpu.bandwidth < 1e13
    assert 1e8 < cpu.copy_bandwidth < 1e13
    assert 1e8 < cpu.peak("float32") < 1e14
    assert "measured" in cpu.source


def test_bad_numbers_are_refused():
    with pytest.raises(ValueError, match="above 0"):
        forward_cost(GPT2, batch=0, new_tokens=1)
