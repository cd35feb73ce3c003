"""The parts of a decoder block: normalisation, attention, MLP and the residual stream."""

from collections.abc import Callable

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from llmlab.attention import merge_heads, split_heads
from llmlab.config import ModelConfig
from llmlab.embedding import apply_rotary
from llmlab.model.context import ForwardContext


def _gelu_tanh(x: Tensor) -> Tensor:
    """GPT-2's GELU, by the tanh formula (Hendrycks and Gimpel 2016, section 2)."""
    return F.gelu(x, approximate="tanh")


ACTIVATION_FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu_tanh": _gelu_tanh,
    "gelu": F.gelu,
    "silu": F.silu,
    "relu": F.relu,
}


def make_norm(config: ModelConfig, width: int) -> nn.Module:
    """Normalises each token's vector by itself, whatever else is in the batch.

    LayerNorm: (x - mean) / sqrt(variance + epsilon) * weight + bias (Ba et al. 2016, section 3).
    RMSNorm: x / sqrt(mean of x^2 + epsilon) * weight (Zhang and Sennrich 2019, section 3).
    """
    norm = nn.LayerNorm if config.norm == "layer" else nn.RMSNorm
    return norm(width, eps=config.norm_epsilon)


class Attention(nn.Module):
    """Multi-head attention with as many key/value heads as the config says.

    One matrix makes query, key and value at once: its rows are those of W_query, then W_key, then
    W_value.
    """

    def __init__(self, config: ModelConfig, layer: int, *, attention: Callable[..., Tensor]):
        super().__init__()
        self.layer = layer
        self.heads, self.kv_heads = config.heads, config.kv_heads
        self.sliding = config.window(layer) is not None
        self.attend = attention
        query_width = config.heads * config.head_dim
        kv_width = config.kv_heads * config.head_dim
        self.widths = (query_width, kv_width, kv_width)
        self.query_key_value = nn.Linear(config.hidden_size, sum(self.widths), bias=config.qkv_bias)
        self.output = nn.Linear(query_width, config.hidden_size, bias=config.output_bias)
        self.query_norm = self.key_norm = None
        if config.query_key_norm:
            self.query_norm = make_norm(config, config.head_dim)
            self.key_norm = make_norm(config, config.head_dim)

    def forward(self, x: Float[Tensor, "B T C"], context: ForwardContext) -> Float[Tensor, "B T C"]:
        query, key, value = self.query_key_value(x).split(self.widths, dim=-1)  # [B, T, heads * D]
        query = split_heads(query, self.heads)  # [B, H, T, D]
        key = split_heads(key, self.kv_heads)  # [B, Hkv, T, D]
        value = split_heads(value, self.kv_heads)  # [B, Hkv, T, D]
        if self.query_norm is not None:
            query, key = self.query_norm(query), self.key_norm(key)
        if context.rotary is not None:
            query, key = apply_rotary(query, *context.rotary), apply_rotary(key, *context.rotary)
        # All three agree unless autocast is on, which computes projections in 16 bits, norms in 32.
        query, key = query.to(value.dtype), key.to(value.dtype)
        mixed = self._attend(query, key, value, context)  # [B, H, T, D]
        return self.output(merge_heads(mixed))  # [B, T, C]

    def _attend(
        self,
        query: Float[Tensor, "B H T D"],
        key: Float[Tensor, "B Hkv T D"],
        value: Float[Tensor, "B Hkv T D"],
        context: ForwardContext,
    ) -> Float[Tensor, "B H T D"]:
        if context.mixed_batch is not None:  # each token to its own sequence
            return context.mixed_batch.attend(self.layer, query, key, value, self.attend)
        if context.cache is not None:
            key, value = context.cache.update(self.layer, key, value)  # [B, Hkv, S, D]
        mask = context.window_mask if self.sliding else context.full_mask
        return self.attend(query, key, value, causal=True, mask=mask)


class MLP(nn.Module):
    """Two layers with an activation between: down(activation(up(x))), as in GPT-2."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.activation = ACTIVATION_FUNCTIONS[config.activation]
        self.up = nn.Linear(config.hidden_size, config.intermediate_size, bias=config.mlp_bias)
        self.down = nn.Linear(config.intermediate_size, config.hidden_size, bias=config.mlp_bias)

    def forward(self, x: Float[Tensor, "B T C"]) -> Float[Tensor, "B T C"]:
        return self.down(self.activation(self.up(x)))


class GatedMLP(nn.Module):
    """down(activation(gate(x)) * up(x)); with silu this is SwiGLU (Shazeer 2020, section 2).

    One matrix makes gate and up at once: the rows of the gate come first.
    """

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.activation = ACTIVATION_FUNCTIONS[config.activation]
        width = config.intermediate_size
        self.gate_up = nn.Linear(config.hidden_size, 2 * width, bias=config.mlp_bias)
        self.down = nn.Linear(width, config.hidden_size, bias=config.mlp_bias)

    def forward(self, x: Float[Tensor, "B T C"]) -> Float[Tensor, "B T C"]:
        gate, up = self.gate_up(x).chunk(2, dim=-1)  # [B, T, intermediate_size] each
        return self.down(self.activation(gate) * up)  # [B, T, C]


class Block(nn.Module):
    """One layer of the decoder: attention, then MLP, each adding to the residual stream.

    Both normalise what they read and leave the stream itself alone ("pre-norm", GPT-2's order).
    """

    def __init__(self, config: ModelConfig, layer: int, *, attention: Callable[..., Tensor]):
        super().__init__()
        self.attention_norm = make_norm(config, config.hidden_size)
        self.attention = Attention(config, layer, attention=attention)
        self.mlp_norm = make_norm(config, config.hidden_size)
        self.mlp = GatedMLP(config) if config.gated_mlp else MLP(config)

    def forward(self, x: Float[Tensor, "B T C"], context: ForwardContext) -> Float[Tensor, "B T C"]:
        x = x + self.attention(self.attention_norm(x), context)
        return x + self.mlp(self.mlp_norm(x))
