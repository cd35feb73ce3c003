"""One description of a decoder for every family, read from a Hugging Face `config.json`."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from numbers import Integral, Real
from pathlib import Path
from typing import Any

from llmlab.json_file import local_path, read_json

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

# What a config.json means that leaves these keys out: transformers' defaults where they are not
# simply "none" or "as many as heads". A key that is there and null is another matter.
FAMILY_DEFAULTS: Mapping[str, Mapping[str, int]] = {
    "mistral": {"num_key_value_heads": 8, "sliding_window": 4096},
    "qwen2": {"num_key_value_heads": 32, "sliding_window": 4096},
    "qwen3": {"num_key_value_heads": 32, "sliding_window": 4096, "head_dim": 128},
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
            whole = field.name == "original_max_positions"
            _require_positive(self, field.name, whole=whole, what=f"rope_scaling.{field.name}")
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
            _require_positive(self, name, whole=True)
        for name in ("intermediate_size", "max_positions"):
            _require_positive(self, name, whole=True)
        _require_positive(self, "norm_epsilon")
        _require_positive(self, "rope_theta")
        if self.sliding_window is not None:
            _require_positive(self, "sliding_window", whole=True)
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
        `rope_scaling`. A key that is left out means what it means to transformers, except that
        begin and end ids are only those that the config names.

        Raises:
            ValueError: an unknown family, a setting that llmlab does not compute, a missing key, or
                a value that is none for its key, such as text where a number belongs.
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
        settings = {**FAMILY_DEFAULTS.get(family, {}), **settings}
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


def _require_positive(
    config: Any, name: str, *, whole: bool = False, what: str | None = None
) -> None:
    """Checks one field, and makes a NumPy number a plain one."""
    value = getattr(config, name)
    kind = "a positive whole number" if whole else "a positive number"
    if not _KINDS[kind](value):
        raise ValueError(f"{what or name} must be {kind}; got {value!r}")
    object.__setattr__(config, name, int(value) if whole else float(value))


def _is_number(value: Any, kind: type) -> bool:
    if not isinstance(value, kind) or isinstance(value, bool):
        return False
    return isinstance(value, Integral) or math.isfinite(value)


# What a value can have to be, in words and as a test.
_KINDS = {
    "a positive whole number": lambda value: _is_number(value, Integral) and value > 0,
    "a positive number": lambda value: _is_number(value, Real) and value > 0,
    "a whole number": lambda value: _is_number(value, Integral),
    "true or false": lambda value: isinstance(value, bool),
    "text": lambda value: isinstance(value, str),
    "a list": lambda value: isinstance(value, list | tuple),
    "an object": lambda value: isinstance(value, Mapping),
}


def _get(settings: Mapping[str, Any], key: str, kind: str, *default: Any, inside: str = "") -> Any:
    """The value of a key, known to be of its kind; the default where the key is absent or null.

    inside: the beginning of the key's full name, where `settings` is only a part of the config.

    Raises KeyError where there is neither a value nor a default, ValueError for another kind.
    """
    value = settings.get(key)
    if value is None and default:
        return default[0]
    if key not in settings:
        raise KeyError(inside + key)
    if not _KINDS[kind](value):
        raise ValueError(f"{inside + key} must be {kind}; got {value!r} (in config.json)")
    return int(value) if isinstance(value, Integral) and kind != "true or false" else value


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
    path = local_path(config)
    if path.is_dir():
        path = path / "config.json"
    if not path.is_file():
        raise FileNotFoundError(f"no config.json at {path}")
    return read_json(path)


def _activation(settings: Mapping[str, Any], key: str, default: str) -> str:
    name = _get(settings, key, "text", default)
    if name not in ACTIVATION_NAMES:
        raise ValueError(
            f"llmlab does not know the activation {name!r}; it knows {', '.join(ACTIVATION_NAMES)}"
        )
    return ACTIVATION_NAMES[name]


def _special_ids(settings: Mapping[str, Any]) -> dict[str, Any]:
    """`bos_id` and `eos_ids`; a config gives one end id, a list of them, or none."""
    eos = settings.get("eos_token_id")
    ends = eos if isinstance(eos, list | tuple) else () if eos is None else (eos,)
    return {
        "bos_id": _get(settings, "bos_token_id", "a whole number", None),
        "eos_ids": tuple(
            _get({"eos_token_id": end}, "eos_token_id", "a whole number") for end in ends
        ),
    }


def _gpt2_values(settings: Mapping[str, Any]) -> dict[str, Any]:
    if not _get(settings, "scale_attn_weights", "true or false", True):
        raise ValueError(
            "llmlab always scales attention scores; 'scale_attn_weights' is false here"
        )
    for key in ("scale_attn_by_inverse_layer_idx", "add_cross_attention"):
        if settings.get(key):
            raise ValueError(f"llmlab does not compute GPT-2's option {key!r}, which is on here")
    hidden_size = _get(settings, "n_embd", "a positive whole number")
    heads = _get(settings, "n_head", "a positive whole number")
    return {
        "vocab_size": _get(settings, "vocab_size", "a positive whole number"),
        "hidden_size": hidden_size,
        "layers": _get(settings, "n_layer", "a positive whole number"),
        "heads": heads,
        "kv_heads": heads,
        "head_dim": _equal_parts(hidden_size, heads),
        "intermediate_size": _get(settings, "n_inner", "a positive whole number", 4 * hidden_size),
        "max_positions": _get(settings, "n_positions", "a positive whole number"),
        "norm": "layer",
        "norm_epsilon": _get(settings, "layer_norm_epsilon", "a positive number", 1e-5),
        "activation": _activation(settings, "activation_function", "gelu_new"),
        "positions": "learned",
        "qkv_bias": True,
        "output_bias": True,
        "mlp_bias": True,
        "tied_embeddings": _get(settings, "tie_word_embeddings", "true or false", True),
        **_special_ids(settings),
    }


def _rotary_family_values(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Llama, Mistral, Qwen2 and Qwen3 share their keys and differ in biases, norms and windows."""
    family = settings["model_type"]
    hidden_size = _get(settings, "hidden_size", "a positive whole number")
    heads = _get(settings, "num_attention_heads", "a positive whole number")
    head_dim = _get(settings, "head_dim", "a positive whole number", None)
    attention_bias = _get(settings, "attention_bias", "true or false", False)
    attention_bias = attention_bias and family in ("llama", "qwen3")
    mlp_bias = _get(settings, "mlp_bias", "true or false", False)
    return {
        "vocab_size": _get(settings, "vocab_size", "a positive whole number"),
        "hidden_size": hidden_size,
        "layers": _get(settings, "num_hidden_layers", "a positive whole number"),
        "heads": heads,
        "kv_heads": _get(settings, "num_key_value_heads", "a positive whole number", heads),
        "head_dim": head_dim or _equal_parts(hidden_size, heads),
        "intermediate_size": _get(settings, "intermediate_size", "a positive whole number"),
        "max_positions": _get(settings, "max_position_embeddings", "a positive whole number"),
        "norm": "rms",
        "norm_epsilon": _get(settings, "rms_norm_eps", "a positive number", 1e-6),
        "activation": _activation(settings, "hidden_act", "silu"),
        "positions": "rotary",
        **_rope_values(settings),
        **_window_values(settings),
        "qkv_bias": attention_bias or family == "qwen2",
        "output_bias": attention_bias,
        "mlp_bias": family == "llama" and mlp_bias,
        "query_key_norm": family == "qwen3",
        "tied_embeddings": _get(settings, "tie_word_embeddings", "true or false", False),
        **_special_ids(settings),
    }


def _equal_parts(hidden_size: int, heads: int) -> int:
    """The head_dim of a config that gives none."""
    if hidden_size % heads:
        raise ValueError(
            f"hidden_size ({hidden_size}) must be a multiple of heads ({heads}) "
            "where no head_dim is given"
        )
    return hidden_size // heads


def _rope_values(settings: Mapping[str, Any]) -> dict[str, Any]:
    """`rope_theta` and `rope_scaling`, from the present or the older spelling."""
    name = "rope_parameters" if settings.get("rope_parameters") else "rope_scaling"
    rope, inside = _get(settings, name, "an object", {}), f"{name}."

    def number(key: str, *default: Any) -> float:
        return float(_get(rope, key, "a positive number", *default, inside=inside))

    theta = number("rope_theta", _get(settings, "rope_theta", "a positive number", 10_000.0))
    kind = _get(rope, "type", "text", "default", inside=inside)
    kind = _get(rope, "rope_type", "text", kind, inside=inside)
    outside = _get(settings, "partial_rotary_factor", "a positive number", 1.0)
    partial = number("partial_rotary_factor", outside)
    if partial != 1.0:
        raise ValueError(
            f"llmlab rotates whole heads; this config's partial_rotary_factor is {partial}"
        )
    if kind == "default":
        return {"rope_theta": theta}
    if kind != "llama3":
        raise ValueError(
            f"llmlab does not know the rotary scaling {kind!r}; it knows default, llama3"
        )
    scaling = RopeScaling(
        factor=number("factor"),
        low_frequency_factor=number("low_freq_factor"),
        high_frequency_factor=number("high_freq_factor"),
        original_max_positions=_get(
            rope,
            "original_max_position_embeddings",
            "a positive whole number",
            settings["max_position_embeddings"],
            inside=inside,
        ),
    )
    return {"rope_theta": theta, "rope_scaling": scaling}


def _window_values(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The sliding window, and the layers that do without it."""
    family, layers = settings["model_type"], settings["num_hidden_layers"]
    window = _get(settings, "sliding_window", "a positive whole number", None)
    if family == "llama" or window is None:
        return {}
    if family == "mistral":
        return {"sliding_window": window}
    if not _get(settings, "use_sliding_window", "true or false", False):
        return {}
    # Qwen keeps full attention in its lower layers: named one by one, or all below a bound.
    bound = _get(settings, "max_window_layers", "a whole number", 28)
    by_bound = [
        "full_attention" if layer < bound else "sliding_attention" for layer in range(layers)
    ]
    kinds = _get(settings, "layer_types", "a list", by_bound)
    known = all(kind in ("full_attention", "sliding_attention") for kind in kinds)
    if not known or len(kinds) != layers:
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
