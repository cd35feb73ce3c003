"""One description of a decoder for every family, read from a Hugging Face `config.json`."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from llmlab.json_file import read_json

FAMILIES = ("gpt2", "llama", "mistral", "qwen2", "qwen3")
NORMS = ("layer", "rms")
POSITIONS = ("learned", "rotary")

# Our name of each activation, and the name that `to_hugging_face` writes for it.
ACTIVATIONS = {"gelu_tanh": "gelu_new", "gelu": "gelu", "silu": "silu", "relu": "relu"}

# Every name that Hugging Face configs use for these activations.
ACTIVATION_NAMES = {
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu": "gelu",
    "silu": "silu",
    "swish": "silu",
    "relu": "relu",
}


@dataclass(frozen=True)
class RopeScaling:
    """Llama 3.1's stretching of the rotary wavelengths, for contexts longer than those trained on.

    Wavelengths shorter than `original_max_positions / high_frequency_factor` stay as they are,
    those longer than `original_max_positions / low_frequency_factor` are stretched by `factor`, and
    those between are blended. Source: Meta's Llama 3.1 reference code, `apply_scaling`.
    """

    factor: float
    low_frequency_factor: float
    high_frequency_factor: float
    original_max_positions: int

    def __post_init__(self):
        for field in fields(self):
            _require_positive(f"rope_scaling.{field.name}", getattr(self, field.name))
        if self.high_frequency_factor <= self.low_frequency_factor:
            raise ValueError(
                f"rope_scaling.high_frequency_factor ({self.high_frequency_factor}) must be larger "
                f"than rope_scaling.low_frequency_factor ({self.low_frequency_factor})"
            )


@dataclass(frozen=True)
class ModelConfig:
    """The shape of a decoder-only transformer.

    Sizes are counts of numbers, not bytes. `kv_heads` divides `heads`; query head h reads key and
    value head `h // (heads // kv_heads)`. `family` names the published design: it decides the kind
    of MLP (`gated_mlp`) and how weights are named in a Hugging Face folder.

    Raises ValueError where a size is not positive, a name is unknown, or sizes do not fit together.
    """

    family: str
    vocab_size: int
    hidden_size: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate_size: int
    max_positions: int
    norm: str  # "layer" | "rms"
    norm_epsilon: float
    activation: str  # "gelu_tanh" | "gelu" | "silu" | "relu"
    positions: str  # "learned" | "rotary"
    rope_theta: float = 10_000.0
    rope_scaling: RopeScaling | None = None
    sliding_window: int | None = None  # a query sees its own position and the window - 1 before it
    full_attention_layers: tuple[int, ...] = ()  # layers that ignore the sliding window
    qkv_bias: bool = False
    output_bias: bool = False  # of the projection after attention
    mlp_bias: bool = False
    query_key_norm: bool = False
    tied_embeddings: bool = False
    bos_id: int | None = None
    eos_ids: tuple[int, ...] = ()

    def __post_init__(self):
        _require_choice("family", self.family, FAMILIES)
        _require_choice("norm", self.norm, NORMS)
        _require_choice("activation", self.activation, tuple(ACTIVATIONS))
        _require_choice("positions", self.positions, POSITIONS)
        for name in ("vocab_size", "hidden_size", "layers", "heads", "kv_heads", "head_dim"):
            _require_positive(name, getattr(self, name), whole=True)
        for name in ("intermediate_size", "max_positions"):
            _require_positive(name, getattr(self, name), whole=True)
        _require_positive("norm_epsilon", self.norm_epsilon)
        _require_positive("rope_theta", self.rope_theta)
        if self.sliding_window is not None:
            _require_positive("sliding_window", self.sliding_window, whole=True)
        if self.heads % self.kv_heads:
            raise ValueError(
                f"heads ({self.heads}) must be a multiple of kv_heads ({self.kv_heads}), so that "
                "every key/value head serves the same number of query heads"
            )
        if self.positions == "rotary" and self.head_dim % 2:
            raise ValueError(
                f"head_dim ({self.head_dim}) must be even for rotary positions, which rotate pairs"
            )
        if self.full_attention_layers and self.sliding_window is None:
            raise ValueError("full_attention_layers means something only with a sliding_window")
        for layer in self.full_attention_layers:
            if not 0 <= layer < self.layers:
                raise ValueError(
                    f"full_attention_layers names layer {layer}, but the last layer is "
                    f"{self.layers - 1}"
                )

    @property
    def gated_mlp(self) -> bool:
        """Whether the MLP multiplies by a gate, as in every family but GPT-2."""
        return self.family != "gpt2"

    def window(self, layer: int) -> int | None:
        """How many positions, its own included, a query of this layer sees; None: all before it."""
        return None if layer in self.full_attention_layers else self.sliding_window

    @classmethod
    def from_hugging_face(cls, config: "Mapping[str, Any] | str | Path | Any") -> "ModelConfig":
        """Reads a Hugging Face config: a mapping, a transformers config object, or a path.

        A path is a folder that holds `config.json`, or that file itself. Both spellings of the
        rotary settings are read: `rope_parameters` (transformers 5) and `rope_theta` with
        `rope_scaling`.

        Raises:
            ValueError: an unknown family, a setting that llmlab does not compute, a missing key.
            FileNotFoundError: no such file or folder.
            TypeError: none of the three kinds of config.
        """
        settings = _as_mapping(config)
        family = settings.get("model_type")
        if family not in FAMILIES:
            raise ValueError(
                f"llmlab knows no model family {family!r}; it knows {', '.join(FAMILIES)}"
                " (the key 'model_type' of config.json)"
            )
        if settings.get("quantization_config"):
            raise ValueError(
                "this checkpoint is quantised ('quantization_config'); llmlab reads plain weights "
                "only: use the original, unquantised checkpoint"
            )
        try:
            values = _gpt2_values(settings) if family == "gpt2" else _rotary_family_values(settings)
        except KeyError as missing:
            raise ValueError(f"the {family} config lacks the key {missing}") from None
        return cls(family=family, **values)

    def to_hugging_face(self) -> dict[str, Any]:
        """The contents of a Hugging Face `config.json` that describes this model.

        Raises ValueError where the family cannot express these settings, as a Llama with LayerNorm.
        """
        write = _gpt2_settings if self.family == "gpt2" else _rotary_family_settings
        settings = write(self)
        read_back = ModelConfig.from_hugging_face(settings)
        lost = [
            f"{field.name}={getattr(self, field.name)!r}"
            for field in fields(self)
            if getattr(self, field.name) != getattr(read_back, field.name)
        ]
        if lost:
            raise ValueError(
                f"a Hugging Face config of the family {self.family!r} cannot say {', '.join(lost)}"
            )
        return settings


def _require_choice(name: str, value: Any, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}; got {value!r}")


def _require_positive(name: str, value: Any, *, whole: bool = False) -> None:
    number = isinstance(value, int if whole else int | float) and not isinstance(value, bool)
    if not (number and value > 0 and math.isfinite(value)):
        kind = "whole number" if whole else "number"
        raise ValueError(f"{name} must be a positive {kind}; got {value!r}")


def _as_mapping(config: Any) -> Mapping[str, Any]:
    """The settings as a mapping, from whichever of the accepted kinds."""
    if isinstance(config, Mapping):
        return config
    if hasattr(config, "to_dict"):
        return config.to_dict()
    if not isinstance(config, str | Path):
        raise TypeError(
            "a Hugging Face config is a mapping, a transformers config or the path of a "
            f"config.json; got {type(config).__name__}"
        )
    path = Path(config)
    if path.is_dir():
        path = path / "config.json"
    if not path.is_file():
        raise FileNotFoundError(f"no config.json at {path}")
    return read_json(path)


def _activation(name: str) -> str:
    if name not in ACTIVATION_NAMES:
        raise ValueError(
            f"llmlab does not know the activation {name!r}; it knows {', '.join(ACTIVATION_NAMES)}"
        )
    return ACTIVATION_NAMES[name]


def _special_ids(settings: Mapping[str, Any]) -> dict[str, Any]:
    """`bos_id` and `eos_ids`; a config gives one end id, a list of them, or none."""
    eos = settings.get("eos_token_id")
    if eos is None:
        eos = ()
    elif isinstance(eos, int):
        eos = (eos,)
    return {"bos_id": settings.get("bos_token_id"), "eos_ids": tuple(eos)}


def _gpt2_values(settings: Mapping[str, Any]) -> dict[str, Any]:
    if not settings.get("scale_attn_weights", True):
        raise ValueError(
            "llmlab always scales attention scores; 'scale_attn_weights' is false here"
        )
    for key in ("scale_attn_by_inverse_layer_idx", "add_cross_attention"):
        if settings.get(key):
            raise ValueError(f"llmlab does not compute GPT-2's option {key!r}, which is on here")
    hidden_size, heads = settings["n_embd"], settings["n_head"]
    _require_divides(hidden_size, heads)
    return {
        "vocab_size": settings["vocab_size"],
        "hidden_size": hidden_size,
        "layers": settings["n_layer"],
        "heads": heads,
        "kv_heads": heads,
        "head_dim": hidden_size // heads,
        "intermediate_size": settings.get("n_inner") or 4 * hidden_size,
        "max_positions": settings["n_positions"],
        "norm": "layer",
        "norm_epsilon": settings.get("layer_norm_epsilon", 1e-5),
        "activation": _activation(settings.get("activation_function", "gelu_new")),
        "positions": "learned",
        "qkv_bias": True,
        "output_bias": True,
        "mlp_bias": True,
        "tied_embeddings": _flag(settings, "tie_word_embeddings", default=True),
        **_special_ids(settings),
    }


def _rotary_family_values(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Llama, Mistral, Qwen2 and Qwen3 share their keys and differ in biases, norms and windows."""
    family = settings["model_type"]
    hidden_size, heads = settings["hidden_size"], settings["num_attention_heads"]
    head_dim = settings.get("head_dim")
    if head_dim is None:
        _require_divides(hidden_size, heads)
        head_dim = hidden_size // heads
    attention_bias = bool(settings.get("attention_bias")) and family in ("llama", "qwen3")
    return {
        "vocab_size": settings["vocab_size"],
        "hidden_size": hidden_size,
        "layers": settings["num_hidden_layers"],
        "heads": heads,
        "kv_heads": settings.get("num_key_value_heads") or heads,
        "head_dim": head_dim,
        "intermediate_size": settings["intermediate_size"],
        "max_positions": settings["max_position_embeddings"],
        "norm": "rms",
        "norm_epsilon": settings.get("rms_norm_eps", 1e-6),
        "activation": _activation(settings.get("hidden_act", "silu")),
        "positions": "rotary",
        **_rope_values(settings),
        **_window_values(settings),
        "qkv_bias": attention_bias or family == "qwen2",
        "output_bias": attention_bias,
        "mlp_bias": family == "llama" and bool(settings.get("mlp_bias")),
        "query_key_norm": family == "qwen3",
        "tied_embeddings": _flag(settings, "tie_word_embeddings", default=False),
        **_special_ids(settings),
    }


def _flag(settings: Mapping[str, Any], key: str, *, default: bool) -> bool:
    value = settings.get(key)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise ValueError(f"{key} must be true or false, got {value!r}")
    return value


def _require_divides(hidden_size: int, heads: int) -> None:
    _require_positive("hidden_size", hidden_size, whole=True)
    _require_positive("heads", heads, whole=True)
    if hidden_size % heads:
        raise ValueError(
            f"hidden_size ({hidden_size}) must be a multiple of heads ({heads}) "
            "where no head_dim is given"
        )


def _rope_values(settings: Mapping[str, Any]) -> dict[str, Any]:
    """`rope_theta` and `rope_scaling`, from the present or the older spelling."""
    rope = settings.get("rope_parameters") or settings.get("rope_scaling") or {}
    theta = rope.get("rope_theta") or settings.get("rope_theta") or 10_000.0
    kind = rope.get("rope_type") or rope.get("type") or "default"
    partial = rope.get("partial_rotary_factor") or settings.get("partial_rotary_factor") or 1.0
    if partial != 1.0:
        raise ValueError(
            f"llmlab rotates whole heads; this config's partial_rotary_factor is {partial}"
        )
    if kind == "default":
        return {"rope_theta": float(theta)}
    if kind != "llama3":
        raise ValueError(
            f"llmlab does not know the rotary scaling {kind!r}; it knows default, llama3"
        )
    scaling = RopeScaling(
        factor=float(rope["factor"]),
        low_frequency_factor=float(rope["low_freq_factor"]),
        high_frequency_factor=float(rope["high_freq_factor"]),
        original_max_positions=rope.get("original_max_position_embeddings")
        or settings["max_position_embeddings"],
    )
    return {"rope_theta": float(theta), "rope_scaling": scaling}


def _window_values(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The sliding window, and the layers that do without it."""
    family, layers = settings["model_type"], settings["num_hidden_layers"]
    window = settings.get("sliding_window")
    if family == "llama" or window is None:
        return {}
    if family == "mistral":
        return {"sliding_window": window}
    if not settings.get("use_sliding_window", False):
        return {}
    # Qwen keeps full attention in its lower layers: named one by one, or all below a bound.
    kinds = settings.get("layer_types")
    if kinds is None:
        bound = settings.get("max_window_layers", 28)
        kinds = [
            "full_attention" if layer < bound else "sliding_attention" for layer in range(layers)
        ]
    unknown = set(kinds) - {"full_attention", "sliding_attention"}
    if unknown or len(kinds) != layers:
        raise ValueError(
            f"layer_types must name 'full_attention' or 'sliding_attention' for each of the "
            f"{layers} layers; got {kinds}"
        )
    full = tuple(layer for layer, kind in enumerate(kinds) if kind == "full_attention")
    return {"sliding_window": window, "full_attention_layers": full} if len(full) < layers else {}


def _shared_settings(config: ModelConfig, architecture: str) -> dict[str, Any]:
    eos = list(config.eos_ids)
    return {
        "architectures": [architecture],
        "model_type": config.family,
        "vocab_size": config.vocab_size,
        "tie_word_embeddings": config.tied_embeddings,
        "bos_token_id": config.bos_id,
        "eos_token_id": eos[0] if len(eos) == 1 else eos or None,
    }


def _gpt2_settings(config: ModelConfig) -> dict[str, Any]:
    return {
        **_shared_settings(config, "GPT2LMHeadModel"),
        "n_positions": config.max_positions,
        "n_embd": config.hidden_size,
        "n_layer": config.layers,
        "n_head": config.heads,
        "n_inner": config.intermediate_size,
        "activation_function": ACTIVATIONS[config.activation],
        "layer_norm_epsilon": config.norm_epsilon,
    }


def _rotary_family_settings(config: ModelConfig) -> dict[str, Any]:
    settings = {
        **_shared_settings(config, f"{config.family.capitalize()}ForCausalLM"),
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.head_dim,
        "max_position_embeddings": config.max_positions,
        "hidden_act": ACTIVATIONS[config.activation],
        "rms_norm_eps": config.norm_epsilon,
        "rope_parameters": {"rope_type": "default", "rope_theta": config.rope_theta},
    }
    if config.rope_scaling is not None:
        settings["rope_parameters"] = {
            "rope_type": "llama3",
            "rope_theta": config.rope_theta,
            "factor": config.rope_scaling.factor,
            "low_freq_factor": config.rope_scaling.low_frequency_factor,
            "high_freq_factor": config.rope_scaling.high_frequency_factor,
            "original_max_position_embeddings": config.rope_scaling.original_max_positions,
        }
    if config.family in ("llama", "qwen3"):
        settings["attention_bias"] = config.output_bias
    if config.family == "llama":
        settings["mlp_bias"] = config.mlp_bias
    if config.family in ("mistral", "qwen2", "qwen3"):
        settings["sliding_window"] = config.sliding_window
    if config.family in ("qwen2", "qwen3"):
        settings["use_sliding_window"] = config.sliding_window is not None
        settings["layer_types"] = [
            "full_attention" if config.window(layer) is None else "sliding_attention"
            for layer in range(config.layers)
        ]
    return settings
