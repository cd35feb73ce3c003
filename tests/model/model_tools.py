"""Small random checkpoints of every family, made by transformers, and small models of our own."""

import torch

from llmlab.config import FAMILIES, ModelConfig
from llmlab.model import DecoderModel

VOCAB_SIZE = 97

_SIZES = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "bos_token_id": None,
    "eos_token_id": None,
}
_LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 5_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}
_GPT2 = {
    "model_type": "gpt2",
    "vocab_size": VOCAB_SIZE,
    "n_embd": 32,
    "n_layer": 3,
    "n_head": 4,
    "n_positions": 64,
    "bos_token_id": None,
    "eos_token_id": None,
}

# What differs between families, and within them: heads, biases, windows, ties, scaling.
CHECKPOINTS = {
    "gpt2": _GPT2,
    "gpt2-untied-narrow": {**_GPT2, "tie_word_embeddings": False, "n_inner": 20},
    "llama": {"model_type": "llama", **_SIZES},
    "llama-scaled": {"model_type": "llama", **_SIZES, "rope_parameters": _LLAMA3},
    "llama-biased-one-kv-head": {
        "model_type": "llama",
        **_SIZES,
        "num_key_value_heads": 1,
        "attention_bias": True,
        "mlp_bias": True,
        "tie_word_embeddings": True,
        "hidden_act": "gelu",
    },
    "mistral-window": {"model_type": "mistral", **_SIZES, "sliding_window": 5},
    "mistral-no-window-eleven-layers": {
        "model_type": "mistral",
        **_SIZES,
        "sliding_window": None,
        "head_dim": 6,
        "num_hidden_layers": 11,
    },
    "qwen2": {"model_type": "qwen2", **_SIZES, "tie_word_embeddings": True},
    "qwen2-window": {
        "model_type": "qwen2",
        **_SIZES,
        "use_sliding_window": True,
        "sliding_window": 4,
        "max_window_layers": 1,
    },
    "qwen3": {
        "model_type": "qwen3",
        **_SIZES,
        "head_dim": 12,
        "rope_parameters": {"rope_type": "default", "rope_theta": 100.0},
    },
    "qwen3-window-biased": {
        "model_type": "qwen3",
        **_SIZES,
        "head_dim": 12,
        "attention_bias": True,
        "use_sliding_window": True,
        "sliding_window": 6,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
    },
}


def randomise(model: torch.nn.Module, seed: int = 0) -> None:
    """Wide weights, biases and norms: a wrong part shows far above rounding."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator) * 0.25
            norm = parameter.dim() == 1 and name.endswith("weight")
            parameter.copy_(1.0 + noise if norm else noise)


def hugging_face_model(name: str):
    """The transformers model of one of CHECKPOINTS, random."""
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    config = transformers.AutoConfig.for_model(**CHECKPOINTS[name])
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    randomise(model)
    return model


def small_config(family: str = "llama", **changes) -> ModelConfig:
    """The config of the family's first checkpoint above, with changes to the Hugging Face keys."""
    name = next(name for name in CHECKPOINTS if name.startswith(family))
    return ModelConfig.from_hugging_face({**CHECKPOINTS[name], **changes})


def small_model(family: str = "llama", *, dtype: torch.dtype = torch.float64, **changes):
    """A random model of ours; in fp64, so that only mistakes differ."""
    model = DecoderModel(small_config(family, **changes)).eval()
    randomise(model)
    return model.to(dtype)


def random_ids(batch: int, length: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, VOCAB_SIZE, (batch, length), generator=generator)


__all__ = [
    "CHECKPOINTS",
    "FAMILIES",
    "VOCAB_SIZE",
    "hugging_face_model",
    "random_ids",
    "randomise",
    "small_config",
    "small_model",
]
