"""The attention functions that a model can be asked to use, by name."""

from collections.abc import Callable

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from llmlab.attention.masks import causal_mask, combine_masks
from llmlab.attention.reference import check_attention_inputs, reference_attention
from llmlab.attention.tiled import tiled_attention
from llmlab.attention.triton_attention import flash_attention


def sdpa_attention(
    q: Float[Tensor, "B H T D"],
    k: Float[Tensor, "B Hkv S D"],
    v: Float[Tensor, "B Hkv S D"],
    *,
    causal: bool = False,
    mask: Tensor | None = None,
    scale: float | None = None,
) -> Float[Tensor, "B H T D"]:
    """PyTorch's own fused attention, with this book's conventions (see `reference_attention`).

    PyTorch's `is_causal` aligns the *first* query with the first key. Where T = S that is the same;
    elsewhere a causal mask is built. One query (T = 1) sees every key, so it needs none.
    """
    check_attention_inputs(q, k, v, mask)
    queries, keys = q.shape[2], k.shape[2]
    causal = causal and queries > 1
    aligned = causal and queries == keys and mask is None
    if causal and not aligned:
        mask = combine_masks(causal_mask(queries, keys, device=q.device), mask)
    return F.scaled_dot_product_attention(
        q,
        k,
        v,
        attn_mask=mask,
        is_causal=aligned,
        scale=scale,
        enable_gqa=q.shape[1] != k.shape[1],
    )


ATTENTION_FUNCTIONS: dict[str, Callable[..., Tensor]] = {
    "reference": reference_attention,
    "sdpa": sdpa_attention,
    "tiled": tiled_attention,
    "flash": flash_attention,
}


def attention_function(name: str) -> Callable[..., Tensor]:
    """The attention function of that name; all take (q, k, v, *, causal, mask, scale).

    Raises ValueError for a name that is not registered.
    """
    if name not in ATTENTION_FUNCTIONS:
        raise ValueError(f"no attention named {name!r}; there are {', '.join(ATTENTION_FUNCTIONS)}")
    return ATTENTION_FUNCTIONS[name]
