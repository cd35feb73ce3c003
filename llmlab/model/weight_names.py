"""Where each weight of a Hugging Face checkpoint lives in our model: one table per family.

Our attention makes query, key and value with one matrix, and the gated MLP gate and up with one;
most checkpoints keep them apart. So a checkpoint's tensor is a *view* of one of our parameters: all
of it, a band of its rows, or, in GPT-2, its transpose. Whoever copies into the views loads, whoever
copies them out saves.
"""

import re

from torch import Tensor

from llmlab.config import ModelConfig
from llmlab.model.decoder import DecoderModel

# Our module -> the checkpoint's modules that make up its rows, from top to bottom.
GPT2_NAMES = {
    "token_embedding": ("transformer.wte",),
    "position_embedding": ("transformer.wpe",),
    "blocks.#.attention_norm": ("transformer.h.#.ln_1",),
    "blocks.#.attention.query_key_value": ("transformer.h.#.attn.c_attn",),
    "blocks.#.attention.output": ("transformer.h.#.attn.c_proj",),
    "blocks.#.mlp_norm": ("transformer.h.#.ln_2",),
    "blocks.#.mlp.up": ("transformer.h.#.mlp.c_fc",),
    "blocks.#.mlp.down": ("transformer.h.#.mlp.c_proj",),
    "final_norm": ("transformer.ln_f",),
    "head": ("lm_head",),
}
LLAMA_NAMES = {
    "token_embedding": ("model.embed_tokens",),
    "blocks.#.attention_norm": ("model.layers.#.input_layernorm",),
    "blocks.#.attention.query_key_value": (
        "model.layers.#.self_attn.q_proj",
        "model.layers.#.self_attn.k_proj",
        "model.layers.#.self_attn.v_proj",
    ),
    "blocks.#.attention.output": ("model.layers.#.self_attn.o_proj",),
    "blocks.#.mlp_norm": ("model.layers.#.post_attention_layernorm",),
    "blocks.#.mlp.gate_up": ("model.layers.#.mlp.gate_proj", "model.layers.#.mlp.up_proj"),
    "blocks.#.mlp.down": ("model.layers.#.mlp.down_proj",),
    "final_norm": ("model.norm",),
    "head": ("lm_head",),
}
QWEN3_NAMES = {
    **LLAMA_NAMES,
    "blocks.#.attention.query_norm": ("model.layers.#.self_attn.q_norm",),
    "blocks.#.attention.key_norm": ("model.layers.#.self_attn.k_norm",),
}
FAMILY_NAMES = {
    "gpt2": GPT2_NAMES,
    "llama": LLAMA_NAMES,
    "mistral": LLAMA_NAMES,
    "qwen2": LLAMA_NAMES,
    "qwen3": QWEN3_NAMES,
}

# All names but the head's start so; a checkpoint of the body alone leaves the prefix out.
BODY_PREFIX = {
    family: names["token_embedding"][0].split(".")[0] + "."
    for family, names in FAMILY_NAMES.items()
}
HEAD_WEIGHT = "lm_head.weight"

# Not weights: masks and rotary frequencies that older versions of transformers stored.
STORED_BUFFERS = re.compile(r"\.attn\.(masked_)?bias$|\.rotary_emb\.inv_freq$")


def hugging_face_views(model: DecoderModel) -> dict[str, Tensor]:
    """Every tensor of the family's checkpoint by its name there, as a view of our parameters."""
    views = {}
    for name, parameter in model.named_parameters():
        module, kind = name.rsplit(".", 1)  # kind: "weight" or "bias"
        layer = "".join(re.findall(r"\d+", module))
        pattern = re.sub(r"\d+", "#", module)
        theirs = FAMILY_NAMES[model.config.family][pattern]
        data = parameter.detach()
        if model.config.family == "gpt2" and "blocks" in module and data.dim() == 2:
            data = data.T  # GPT-2 stores [in, out], a Linear holds [out, in]
        parts = data.split(_rows(model.config, pattern)) if len(theirs) > 1 else [data]
        for their_module, part in zip(theirs, parts, strict=True):
            views[f"{their_module.replace('#', layer)}.{kind}"] = part
    return views


def _rows(config: ModelConfig, pattern: str) -> list[int]:
    """How many rows each checkpoint tensor takes of a parameter that several of them make up."""
    if pattern.endswith("query_key_value"):
        heads = (config.heads, config.kv_heads, config.kv_heads)
        return [count * config.head_dim for count in heads]
    return [config.intermediate_size, config.intermediate_size]  # gate, up
