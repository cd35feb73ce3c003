"""Between one wide vector per token and many narrow heads."""

from jaxtyping import Float
from torch import Tensor


def split_heads(x: Float[Tensor, "B T width"], heads: int) -> Float[Tensor, "B H T D"]:
    """Cuts every token's vector into `heads` pieces and puts the heads before the tokens.

    Head h gets columns h * D to (h + 1) * D. A view: nothing is copied.

    Raises ValueError where `heads` does not divide the width.
    """
    batch, length, width = x.shape
    if heads <= 0 or width % heads:
        raise ValueError(f"a width of {width} cannot be cut into {heads} heads of equal size")
    return x.view(batch, length, heads, width // heads).transpose(1, 2)  # [B, H, T, D]


def merge_heads(x: Float[Tensor, "B H T D"]) -> Float[Tensor, "B T width"]:
    """The inverse of `split_heads`: every token's heads side by side again."""
    return x.transpose(1, 2).flatten(2)  # [B, T, H * D]


def repeat_key_value_heads(x: Float[Tensor, "B Hkv S D"], heads: int) -> Float[Tensor, "B H S D"]:
    """Gives each of `heads` query heads its key (or value) head: Hkv = 2, H = 4 becomes 0 0 1 1.

    Heads are interleaved, not tiled (0 1 0 1): query head h reads key head h // (H // Hkv).
    Source: Ainslie et al. 2023 (grouped-query attention), section 2.2.

    Raises ValueError where Hkv does not divide `heads`.
    """
    kv_heads = x.shape[1]
    if heads % kv_heads:
        raise ValueError(
            f"{heads} query heads cannot share {kv_heads} key/value heads: "
            "the number of key/value heads must divide the number of query heads"
        )
    return x.repeat_interleave(heads // kv_heads, dim=1)  # [B, H, S, D]
