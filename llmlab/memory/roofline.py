"""How fast could it be? At best as fast as the slower of two things: moving the bytes, and doing
the arithmetic.

Source: Williams, Waterman and Patterson 2009 (Roofline).
"""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from llmlab.memory.hardware import Hardware
from llmlab.memory.ledger import attention_traffic


@runtime_checkable
class ModelShape(Protocol):
    """What the cost of a forward depends on; a `ModelConfig` has all of it."""

    vocab_size: int
    hidden_size: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate_size: int
    tied_embeddings: bool

    @property
    def gated_mlp(self) -> bool: ...


@dataclass(frozen=True)
class Cost:
    """Work and traffic of one forward of a model, summed over its layers."""

    flops: int
    weight_bytes: int  # each weight is read once, whatever the batch
    cache_read_bytes: int
    cache_written_bytes: int

    @property
    def bytes(self) -> int:
        return self.weight_bytes + self.cache_read_bytes + self.cache_written_bytes

    @property
    def arithmetic_intensity(self) -> float:
        """FLOPs for each byte."""
        return self.flops / self.bytes


@dataclass(frozen=True)
class Prediction:
    """Two times, in seconds; the larger one is the prediction."""

    memory_seconds: float
    compute_seconds: float

    @property
    def seconds(self) -> float:
        return max(self.memory_seconds, self.compute_seconds)

    @property
    def bound(self) -> str:
        """What holds it back: "memory" or "compute"."""
        return "memory" if self.memory_seconds >= self.compute_seconds else "compute"


def attainable_flops(
    intensity: int | float, machine: Hardware, *, dtype: str = "bfloat16"
) -> float:
    """FLOP/s at most for work of this arithmetic intensity: the roof, sloping and then flat."""
    return min(machine.peak(dtype), intensity * machine.bandwidth)


def predict(
    flops: int | float, moved_bytes: int | float, machine: Hardware, *, dtype: str = "bfloat16"
) -> Prediction:
    """Bytes over bandwidth, FLOPs over peak.

    Left out: launching kernels, everything that happens between them, caches, the time until the
    first byte arrives, and that no kernel reaches either ceiling. A real run takes longer.
    """
    return Prediction(moved_bytes / machine.bandwidth, flops / machine.peak(dtype))


def matrix_parameters(config: ModelShape) -> int:
    """Weights that a token is multiplied with: projections, MLPs and the head.

    A gated MLP (SiLU) has three matrices, others two. Norms and biases are left out, and so is the
    embedding table, of which a token reads one row.
    """
    query_width, kv_width = config.heads * config.head_dim, config.kv_heads * config.head_dim
    attention = config.hidden_size * (2 * query_width + 2 * kv_width)
    matrices = 3 if config.gated_mlp else 2
    mlp = matrices * config.hidden_size * config.intermediate_size
    return config.layers * (attention + mlp) + config.vocab_size * config.hidden_size


def dtype_size(dtype: str) -> int:
    """Bytes of a number: "float32" has 4, "float64" 8, the 16-bit formats 2."""
    return {"float32": 4, "float64": 8}.get(dtype, 2)


def cache_bytes_per_token(config: ModelShape, dtype_bytes: int) -> int:
    """A key and a value, in each layer, for each key/value head."""
    return 2 * config.layers * config.kv_heads * config.head_dim * dtype_bytes


def forward_cost(
    config: ModelShape, *, batch: int, new_tokens: int, past: int = 0, dtype_bytes: int = 2
) -> Cost:
    """One forward of `new_tokens` tokens a sequence, `past` of each already in the cache.

    Prefill is new_tokens = the prompt's length, past = 0; a decode step is new_tokens = 1. FLOPs: 2
    for each weight and token, plus attention's; the head is applied to the last token of each
    sequence only. Activations are not counted as traffic: they are small, or stay on the chip.

    Raises ValueError for numbers below their least.
    """
    if batch < 1 or new_tokens < 1 or past < 0:
        raise ValueError(
            f"batch and new_tokens must be above 0 and past not below; got {batch}, "
            f"{new_tokens}, {past}"
        )
    head = config.vocab_size * config.hidden_size
    weights = matrix_parameters(config)
    attention = attention_traffic(
        "standard",
        n_q=new_tokens,
        n_k=past + new_tokens,
        head_dim=config.head_dim,
        heads=config.heads,
        causal=True,
        batch=batch,
    )
    tokens = batch * new_tokens
    flops = 2 * ((weights - head) * tokens + head * batch) + config.layers * attention.flops
    row = cache_bytes_per_token(config, dtype_bytes)
    return Cost(
        flops, weights * dtype_bytes, batch * (past + new_tokens) * row, batch * new_tokens * row
    )


def predict_forward(
    config: ModelShape,
    machine: Hardware,
    *,
    batch: int = 1,
    new_tokens: int,
    past: int = 0,
    dtype: str = "bfloat16",
) -> Prediction:
    """The roofline's time of one forward: time to first token where `past` is 0 and `new_tokens` is
    the prompt's length, time per output token where `new_tokens` is 1. See `predict` for what is
    left out."""
    size = dtype_size(dtype)
    cost = forward_cost(config, batch=batch, new_tokens=new_tokens, past=past, dtype_bytes=size)
    return predict(cost.flops, cost.bytes, machine, dtype=dtype)


def largest_batch(
    config: ModelShape, machine: Hardware, *, context: int, dtype_bytes: int = 2
) -> int:
    """How many sequences of `context` tokens fit beside the weights; 0 if the weights alone do not.

    Raises ValueError for a context below 1, or where the machine's memory is not known.
    """
    return _tokens_that_fit(config, machine, "context", context, dtype_bytes)


def largest_context(
    config: ModelShape, machine: Hardware, *, batch: int, dtype_bytes: int = 2
) -> int:
    """How many tokens each of `batch` sequences may have beside the weights; 0 if the weights alone
    do not fit. The positions that a model was trained on are another bound.

    Raises ValueError for a batch below 1, or where the machine's memory is not known.
    """
    return _tokens_that_fit(config, machine, "batch", batch, dtype_bytes)


def _tokens_that_fit(
    config: ModelShape, machine: Hardware, name: str, shared_by: int, dtype_bytes: int
) -> int:
    """Tokens of cache in the memory that the weights leave free, divided by batch or context."""
    if shared_by < 1:
        raise ValueError(f"{name} must be above 0, not {shared_by}")
    if machine.memory_bytes is None:
        raise ValueError(f"how much memory {machine.name} has is not known")
    row = cache_bytes_per_token(config, dtype_bytes)
    table = 0 if config.tied_embeddings else config.vocab_size * config.hidden_size
    free = machine.memory_bytes - (matrix_parameters(config) + table) * dtype_bytes
    return max(free // (row * shared_by), 0)
