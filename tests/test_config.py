"""Reading Hugging Face configs of every family, writing them back, and refusing what is wrong."""

import dataclasses
import json

import jaxtyping
import pytest

from llmlab.config import ModelConfig, RopeScaling

# The essential keys of configs as they stand on the Hub, in the spelling of their time.
GPT2 = {
    "model_type": "gpt2",
    "vocab_size": 50257,
    "n_positions": 1024,
    "n_embd": 768,
    "n_layer": 12,
    "n_head": 12,
    "activation_function": "gelu_new",
    "layer_norm_epsilon": 1e-5,
    "bos_token_id": 50256,
    "eos_token_id": 50256,
}
LLAMA_3_1_8B = {
    "model_type": "llama",
    "vocab_size": 128256,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 131072,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0,
    "rope_scaling": {
        "factor": 8.0,
        "high_freq_factor": 4.0,
        "low_freq_factor": 1.0,
        "original_max_position_embeddings": 8192,
        "rope_type": "llama3",
    },
    "attention_bias": False,
    "tie_word_embeddings": False,
    "bos_token_id": 128000,
    "eos_token_id": [128001, 128008, 128009],
}
MISTRAL_7B = {
    "model_type": "mistral",
    "vocab_size": 32000,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 32768,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "sliding_window": 4096,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
QWEN2_5_05B = {
    "model_type": "qwen2",
    "vocab_size": 151936,
    "hidden_size": 896,
    "intermediate_size": 4864,
    "num_hidden_layers": 24,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
    "max_position_embeddings": 32768,
    "max_window_layers": 24,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-6,
    "rope_theta": 1000000.0,
    "sliding_window": 32768,
    "use_sliding_window": False,
    "tie_word_embeddings": True,
}
QWEN3_06B = {
    "model_type": "qwen3",
    "vocab_size": 151936,
    "hidden_size": 1024,
    "head_dim": 128,
    "intermediate_size": 3072,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "max_position_embeddings": 40960,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-6,
    "rope_theta": 1000000,
    "rope_scaling": None,
    "sliding_window": None,
    "use_sliding_window": False,
    "attention_bias": False,
    "tie_word_embeddings": True,
}
ALL = [GPT2, LLAMA_3_1_8B, MISTRAL_7B, QWEN2_5_05B, QWEN3_06B]
every_family = pytest.mark.parametrize("settings", ALL, ids=lambda s: s["model_type"])


@pytest.fixture
def plain_errors():
    """Without the test run's type checks, so that our own messages can be read."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


def read(settings, **changes):
    return ModelConfig.from_hugging_face({**settings, **changes})


def test_gpt2():
    config = read(GPT2)
    assert (config.layers, config.heads, config.kv_heads, config.head_dim) == (12, 12, 12, 64)
    assert (config.hidden_size, config.intermediate_size) == (768, 3072)
    assert (config.norm, config.positions, config.activation) == ("layer", "learned", "gelu_tanh")
    assert config.qkv_bias
    assert config.output_bias
    assert config.mlp_bias
    assert config.tied_embeddings  # GPT-2 is tied unless told otherwise
    assert not config.gated_mlp
    assert config.eos_ids == (50256,)
    assert read(GPT2, n_inner=1000).intermediate_size == 1000
    assert read(GPT2, n_inner=None).intermediate_size == 3072


def test_llama():
    config = read(LLAMA_3_1_8B)
    assert (config.heads, config.kv_heads, config.head_dim) == (32, 8, 128)
    assert (config.norm, config.positions, config.activation) == ("rms", "rotary", "silu")
    assert config.rope_theta == 500_000.0
    assert config.rope_scaling == RopeScaling(8.0, 1.0, 4.0, 8192)
    assert config.eos_ids == (128001, 128008, 128009)
    biases = (config.qkv_bias, config.output_bias, config.mlp_bias)
    assert biases == (False, False, False)
    assert not config.tied_embeddings
    assert config.gated_mlp
    biased = read(LLAMA_3_1_8B, attention_bias=True, mlp_bias=True)
    assert biased.qkv_bias
    assert biased.output_bias
    assert biased.mlp_bias


def test_grouped_heads_absent_or_null_means_one_each():
    absent = {key: LLAMA_3_1_8B[key] for key in LLAMA_3_1_8B if key != "num_key_value_heads"}
    assert read(absent).kv_heads == 32
    assert read(absent, num_key_value_heads=None).kv_heads == 32


def test_both_spellings_of_rotary_settings():
    new = {key: LLAMA_3_1_8B[key] for key in LLAMA_3_1_8B if not key.startswith("rope")}
    new["rope_parameters"] = {**LLAMA_3_1_8B["rope_scaling"], "rope_theta": 500000.0}
    assert read(new) == read(LLAMA_3_1_8B)
    plain = read(new, rope_parameters={"rope_type": "default", "rope_theta": 7.0})
    assert (plain.rope_theta, plain.rope_scaling) == (7.0, None)
    assert read(MISTRAL_7B, rope_scaling={"type": "default"}).rope_scaling is None
    assert read(MISTRAL_7B, rope_theta=None).rope_theta == 10_000.0


@pytest.mark.parametrize("kind", ["yarn", "linear", "dynamic", "longrope"])
@pytest.mark.parametrize("key", ["rope_type", "type"])
def test_rotary_scaling_that_llmlab_does_not_compute(kind, key):
    with pytest.raises(ValueError, match=f"'{kind}'.*default, llama3"):
        read(QWEN3_06B, rope_scaling={key: kind, "factor": 4.0})


def test_partly_rotated_heads_are_refused():
    rope = {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}
    with pytest.raises(ValueError, match=r"whole heads.*0\.5"):
        read(LLAMA_3_1_8B, rope_parameters=rope)


def test_mistral_window_may_be_null():
    assert read(MISTRAL_7B).sliding_window == 4096
    assert read(MISTRAL_7B).window(31) == 4096
    assert read(MISTRAL_7B, sliding_window=None).window(0) is None


def test_qwen2():
    config = read(QWEN2_5_05B)
    assert config.head_dim == 64
    assert config.qkv_bias
    assert not config.output_bias
    assert config.sliding_window is None  # written down, but switched off
    assert read(QWEN2_5_05B, max_window_layers=0).sliding_window is None
    windowed = read(QWEN2_5_05B, use_sliding_window=True, max_window_layers=20)
    assert [windowed.window(layer) for layer in (0, 19, 20, 23)] == [None, None, 32768, 32768]
    assert read(QWEN2_5_05B, use_sliding_window=True).sliding_window is None  # no layer left


def test_layer_types_name_the_windows():
    kinds = ["sliding_attention", "full_attention"] * 12
    config = read(QWEN2_5_05B, use_sliding_window=True, layer_types=kinds)
    assert [config.window(layer) for layer in range(4)] == [32768, None, 32768, None]
    for bad in (["chunked_attention"] * 24, kinds[:5]):
        with pytest.raises(ValueError, match="each of the 24 layers"):
            read(QWEN2_5_05B, use_sliding_window=True, layer_types=bad)


def test_qwen3():
    config = read(QWEN3_06B)
    assert config.query_key_norm
    assert config.head_dim == 128  # not 1024 / 16
    assert not config.qkv_bias
    assert read(QWEN3_06B, attention_bias=True).qkv_bias


def transformers_config(settings):
    from transformers import AutoConfig

    return AutoConfig.for_model(**settings)


@every_family
def test_a_transformers_config_object(settings):
    assert ModelConfig.from_hugging_face(transformers_config(settings)) == read(settings)


@every_family
def test_a_folder_or_a_file(settings, tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(settings))
    for given in (tmp_path, path, str(tmp_path)):
        assert ModelConfig.from_hugging_face(given) == read(settings)


def test_bad_files(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"config\.json"):
        ModelConfig.from_hugging_face(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ValueError, match="not valid JSON"):
        ModelConfig.from_hugging_face(tmp_path)
    (tmp_path / "config.json").write_text("[]")
    with pytest.raises(ValueError, match="JSON object"):
        ModelConfig.from_hugging_face(tmp_path)
    with pytest.raises(TypeError, match="int"):
        ModelConfig.from_hugging_face(3)


@every_family
def test_written_configs_read_back_the_same_here_and_in_transformers(settings):
    config = read(settings)
    written = config.to_hugging_face()
    json.dumps(written)
    assert read(written) == config
    assert ModelConfig.from_hugging_face(transformers_config(written)) == config


def test_windows_and_biases_are_written_too():
    for config in (
        read(QWEN2_5_05B, use_sliding_window=True, max_window_layers=20),
        read(QWEN3_06B, use_sliding_window=True, sliding_window=8, max_window_layers=0),
        read(QWEN3_06B, attention_bias=True),
        read(LLAMA_3_1_8B, attention_bias=True, mlp_bias=True),
        read(MISTRAL_7B, sliding_window=None),
    ):
        assert read(config.to_hugging_face()) == config


def test_what_a_family_cannot_say_is_refused():
    mixed = dataclasses.replace(read(LLAMA_3_1_8B), norm="layer", query_key_norm=True)
    with pytest.raises(ValueError, match="norm='layer', query_key_norm=True"):
        mixed.to_hugging_face()


@pytest.mark.parametrize("family", ["bert", "gpt_neox", None])
def test_unknown_families_name_the_known_ones(family):
    with pytest.raises(ValueError, match=f"{family!r}.*gpt2, llama, mistral, qwen2, qwen3"):
        read(GPT2, model_type=family)


@every_family
def test_a_missing_key_is_named(settings):
    lacking = dict(settings)
    del lacking["vocab_size"]
    with pytest.raises(ValueError, match="vocab_size"):
        read(lacking)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("scale_attn_weights", False, "scale_attn_weights"),
        ("scale_attn_by_inverse_layer_idx", True, "scale_attn_by_inverse_layer_idx"),
        ("add_cross_attention", True, "add_cross_attention"),
        ("activation_function", "mish", "'mish'.*gelu_new"),
        ("n_head", 7, r"768.*multiple of heads \(7\)"),
        ("quantization_config", {"bits": 4}, "quantised"),
    ],
)
def test_gpt2_settings_that_are_not_computed(key, value, message):
    with pytest.raises(ValueError, match=message):
        read(GPT2, **{key: value})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"family": "bert"}, "family must be one of"),
        ({"norm": "batch"}, "norm must be one of layer, rms; got 'batch'"),
        ({"activation": "tanh"}, "activation must be one of"),
        ({"positions": "none"}, "positions must be one of"),
        ({"vocab_size": 0}, "vocab_size must be a positive whole number; got 0"),
        ({"layers": -1}, "layers must be a positive whole number"),
        ({"hidden_size": 64.0}, "hidden_size must be a positive whole number"),
        ({"heads": True}, "heads must be a positive whole number"),
        ({"max_positions": None}, "max_positions must be a positive whole number"),
        ({"intermediate_size": 0}, "intermediate_size must be"),
        ({"norm_epsilon": 0.0}, "norm_epsilon must be a positive number"),
        ({"rope_theta": float("inf")}, "rope_theta must be a positive number"),
        ({"kv_heads": 5}, r"heads \(32\) must be a multiple of kv_heads \(5\)"),
        ({"head_dim": 7}, r"head_dim \(7\) must be even"),
        ({"sliding_window": 0}, "sliding_window must be a positive whole number"),
        ({"full_attention_layers": (0,)}, "only with a sliding_window"),
        ({"sliding_window": 4, "full_attention_layers": (32,)}, "layer 32, but the last layer"),
    ],
)
@pytest.mark.usefixtures("plain_errors")
def test_values_are_checked(changes, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(read(LLAMA_3_1_8B), **changes)


@pytest.mark.parametrize(
    "scaling", [(0.0, 1.0, 4.0, 64), (8.0, 4.0, 1.0, 64), (8.0, 1.0, 4.0, 0), (8.0, 1.0, 1.0, 64)]
)
def test_scaling_is_checked(scaling):
    with pytest.raises(ValueError, match="rope_scaling"):
        RopeScaling(*scaling)
