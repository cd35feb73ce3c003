"""Small random models whose answers depend on every position, for the tests of this folder."""

import torch

from llmlab.config import FAMILIES, ModelConfig
from llmlab.model import DecoderModel

__all__ = ["FAMILIES", "fed_tokens", "make_model", "model_config"]


def model_config(
    family: str,
    *,
    layers: int = 2,
    kv_heads: int = 2,
    groups: int = 2,
    head_dim: int = 4,
    vocab_size: int = 61,
    max_positions: int = 64,
    sliding_window: int | None = None,
    **options,
) -> ModelConfig:
    """A config of the family; GPT-2 has a key/value head for every query head."""
    gpt2 = family == "gpt2"
    heads = kv_heads * groups
    return ModelConfig(
        family=family,
        vocab_size=vocab_size,
        hidden_size=heads * (head_dim // 2 if family == "qwen3" else head_dim),
        layers=layers,
        heads=heads,
        kv_heads=heads if gpt2 else kv_heads,
        head_dim=head_dim,
        intermediate_size=24,
        max_positions=max_positions,
        norm="layer" if gpt2 else "rms",
        norm_epsilon=1e-5,
        activation="gelu_tanh" if gpt2 else "silu",
        positions="learned" if gpt2 else "rotary",
        sliding_window=sliding_window if family in ("mistral", "qwen2", "qwen3") else None,
        qkv_bias=family in ("gpt2", "qwen2"),
        output_bias=gpt2,
        mlp_bias=gpt2,
        query_key_norm=family == "qwen3",
        tied_embeddings=gpt2,
        **options,
    )


def make_model(
    config: ModelConfig, *, seed: int = 0, dtype: torch.dtype = torch.float64
) -> DecoderModel:
    """A model with wide random weights: one wrong position changes its greedy answer.

    In fp64, so that no order of rounding can flip the choice between two tokens.
    """
    model = DecoderModel(config).to(dtype).eval()
    stream = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=stream, dtype=dtype)
            if parameter.dim() == 2:
                parameter.copy_(noise * (1.0 if parameter.shape[0] > 40 else 0.4))
            else:
                parameter.add_(noise * 0.1)
    return model


def fed_tokens(model: DecoderModel) -> list[int]:
    """Counts from now on, forward by forward, the positions that the first block computes."""
    counts = []

    def count(block, arguments):
        batch, length, _ = arguments[0].shape
        counts.append(batch * length)

    model.blocks[0].register_forward_pre_hook(count)
    return counts
