"""Reading Hugging Face configs of every family, writing them back, and refusing what is wrong."""

import dataclasses
import json

import jaxtyping
import numpy as np
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


def without(settings, *keys):
    return {key: settings[key] for key in settings if key not in keys}


def test_grouped_heads_absent_or_null_means_one_each():
    absent = without(LLAMA_3_1_8B, "num_key_value_heads")
    assert read(absent).kv_heads == 32
    assert read(absent, num_key_value_heads=None).kv_heads == 32


MAY_BE_LEFT_OUT = {
    "gpt2": ("n_inner", "activation_function", "layer_norm_epsilon"),
    "llama": ("num_key_value_heads", "hidden_act", "rms_norm_eps", "rope_theta", "attention_bias"),
    "mistral": ("num_key_value_heads", "sliding_window", "hidden_act", "rope_theta", "head_dim"),
    "qwen2": ("num_key_value_heads", "sliding_window", "max_window_layers", "use_sliding_window"),
    "qwen3": ("num_key_value_heads", "sliding_window", "head_dim", "rope_theta", "rms_norm_eps"),
}


@pytest.mark.parametrize("windowed", [False, True])
@every_family
def test_a_key_left_out_means_what_it_means_to_transformers(settings, windowed):
    settings = {**settings, "use_sliding_window": windowed, "max_window_layers": 3}
    if settings["model_type"] != "gpt2":  # a head count that the default of 32 divides
        settings["hidden_size"], settings["num_attention_heads"] = 4096, 64
    for key in MAY_BE_LEFT_OUT[settings["model_type"]]:
        absent = without(settings, key)
        assert read(absent) == ModelConfig.from_hugging_face(transformers_config(absent)), key


def test_defaults_as_transformers_writes_them_down():
    mistral = read(without(MISTRAL_7B, "num_key_value_heads", "sliding_window"))
    assert (mistral.kv_heads, mistral.sliding_window) == (8, 4096)
    qwen3 = read(without(QWEN3_06B, "head_dim"), hidden_size=4096, num_attention_heads=64)
    assert qwen3.head_dim == 128


LLAMA3_ROPE = {"rope_theta": 1e4, **LLAMA_3_1_8B["rope_scaling"]}
OF_WRONG_TYPES = [
    (LLAMA_3_1_8B, "vocab_size", "128256", "a positive whole number; got '128256'"),
    (LLAMA_3_1_8B, "num_hidden_layers", 32.0, "a positive whole number; got 32.0"),
    (LLAMA_3_1_8B, "num_hidden_layers", None, "a positive whole number; got None"),
    (LLAMA_3_1_8B, "num_hidden_layers", 0, "a positive whole number; got 0"),
    (LLAMA_3_1_8B, "num_attention_heads", True, "a positive whole number; got True"),
    (LLAMA_3_1_8B, "num_key_value_heads", [8], "a positive whole number"),
    (LLAMA_3_1_8B, "head_dim", "64", "a positive whole number"),
    (LLAMA_3_1_8B, "rms_norm_eps", "1e-5", "a positive number; got '1e-5'"),
    (LLAMA_3_1_8B, "hidden_act", ["silu"], "text"),
    (LLAMA_3_1_8B, "hidden_act", {}, "text"),
    (LLAMA_3_1_8B, "rope_theta", "1e4", "a positive number"),
    (LLAMA_3_1_8B, "rope_scaling", "llama3", "an object; got 'llama3'"),
    (LLAMA_3_1_8B, "rope_scaling", 8.0, "an object"),
    (LLAMA_3_1_8B, "rope_parameters", [8.0], "an object"),
    (LLAMA_3_1_8B, "attention_bias", "false", "true or false; got 'false'"),
    (LLAMA_3_1_8B, "mlp_bias", 0, "true or false"),
    (LLAMA_3_1_8B, "tie_word_embeddings", "no", "true or false"),
    (LLAMA_3_1_8B, "eos_token_id", "2", "a whole number; got '2'"),
    (LLAMA_3_1_8B, "eos_token_id", [2, "3"], "a whole number; got '3'"),
    (LLAMA_3_1_8B, "eos_token_id", {}, "a whole number"),
    (LLAMA_3_1_8B, "eos_token_id", 2.5, "a whole number"),
    (LLAMA_3_1_8B, "bos_token_id", [1], "a whole number"),
    (MISTRAL_7B, "sliding_window", "4096", "a positive whole number"),
    (MISTRAL_7B, "sliding_window", 0, "a positive whole number"),
    (QWEN2_5_05B, "use_sliding_window", "false", "true or false"),
    (GPT2, "n_layer", "12", "a positive whole number"),
    (GPT2, "n_inner", -1, "a positive whole number"),
    (GPT2, "activation_function", 3, "text"),
    (GPT2, "layer_norm_epsilon", float("nan"), "a positive number"),
    (GPT2, "scale_attn_weights", "yes", "true or false"),
    (GPT2, "tie_word_embeddings", 1, "true or false"),
]


@pytest.mark.parametrize(("settings", "key", "value", "kind"), OF_WRONG_TYPES)
def test_a_value_of_the_wrong_type_is_named_by_its_key(settings, key, value, kind):
    with pytest.raises(ValueError, match=f"^{key} must be {kind}"):
        read(settings, **{key: value})


@pytest.mark.parametrize(
    ("key", "value", "kind"),
    [
        ("rope_theta", "1e4", "a positive number"),
        ("rope_type", 3, "text"),
        ("partial_rotary_factor", "half", "a positive number"),
        ("factor", "8", "a positive number"),
        ("low_freq_factor", None, "a positive number"),
        ("high_freq_factor", {}, "a positive number"),
        ("original_max_position_embeddings", 8192.5, "a positive whole number"),
    ],
)
def test_a_rotary_setting_of_the_wrong_type_is_named_by_its_key(key, value, kind):
    for name in ("rope_parameters", "rope_scaling"):
        with pytest.raises(ValueError, match=rf"^{name}\.{key} must be {kind}"):
            read(LLAMA_3_1_8B, **{name: {**LLAMA3_ROPE, key: value}})


def test_a_missing_rotary_setting_is_named():
    with pytest.raises(ValueError, match=r"lacks the key 'rope_parameters\.factor'"):
        read(LLAMA_3_1_8B, rope_parameters=without(LLAMA3_ROPE, "factor"))


def test_windows_of_the_wrong_type_are_named():
    windowed = {**QWEN2_5_05B, "use_sliding_window": True}
    for key, value in (("max_window_layers", "20"), ("layer_types", "full_attention")):
        with pytest.raises(ValueError, match=f"^{key} must be a"):
            read(windowed, **{key: value})
    with pytest.raises(ValueError, match="each of the 24 layers"):
        read(windowed, layer_types=[["full_attention"]] * 24)


@pytest.mark.usefixtures("plain_errors")
def test_numpy_numbers_are_read_as_plain_ones():
    settings = {
        key: np.int64(value) if type(value) is int else value for key, value in MISTRAL_7B.items()
    }
    config = read(settings, rms_norm_eps=np.float32(1e-5), eos_token_id=[np.int32(2)])
    assert dataclasses.replace(config, norm_epsilon=1e-5) == read(MISTRAL_7B)
    json.dumps(config.to_hugging_face())
    changed = dataclasses.replace(config, layers=np.int64(3), rope_theta=np.float32(100.0))
    assert (type(changed.layers), type(changed.rope_theta)) == (int, float)
    with pytest.raises(ValueError, match="layers must be a positive whole number"):
        dataclasses.replace(config, layers=np.float64(3.0))


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


def test_paths_from_the_home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "config.json").write_text(json.dumps(GPT2), encoding="utf-8-sig")
    assert ModelConfig.from_hugging_face("~") == read(GPT2)
    assert ModelConfig.from_hugging_face("~/config.json") == read(GPT2)
    with pytest.raises(FileNotFoundError, match="'~no_such_user/x'"):
        ModelConfig.from_hugging_face("~no_such_user/x")
    with pytest.raises(ValueError, match="the path is empty"):
        ModelConfig.from_hugging_face("")


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
