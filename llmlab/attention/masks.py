"""Who may attend to whom. Every mask is boolean: True means that the query may attend to the key.

Queries are the *last* T of S positions, so that query t stands at position t + S - T. That holds
for a whole prompt (T = S), for one new token after a cache (T = 1) and for a chunk of a prompt.
"""

import torch
from jaxtyping import Bool, Int
from torch import Tensor


def causal_mask(
    queries: int, keys: int, *, device: torch.device | str | None = None
) -> Bool[Tensor, "T S"]:
    """No query sees a later position. The last query sees every key.

    Where there are more queries than keys, the first queries may attend to nothing.
    """
    return torch.ones(queries, keys, dtype=torch.bool, device=device).tril(keys - queries)  # [T, S]


def sliding_window_mask(
    queries: int, keys: int, window: int, *, device: torch.device | str | None = None
) -> Bool[Tensor, "T S"]:
    """No query sees further back than its own position and the `window` - 1 before it.

    This bounds the past only: combine it with `causal_mask`.
    Source: Beltagy et al. 2020 (Longformer), section 3.1; Jiang et al. 2023 (Mistral), section 2.

    Raises ValueError where `window` is not positive.
    """
    if window <= 0:
        raise ValueError(f"a window must hold at least the query's own position; got {window}")
    everything = torch.ones(queries, keys, dtype=torch.bool, device=device)
    return everything.triu(keys - queries - window + 1)  # [T, S]


def padding_mask(
    attention_mask: Bool[Tensor, "B S"] | Int[Tensor, "B S"],
) -> Bool[Tensor, "B 1 1 S"]:
    """Nobody sees padding. `attention_mask` has 1 (or True) for a real token and 0 for padding.

    Raises ValueError where it holds anything but 0 and 1.
    """
    real = attention_mask.bool()
    if attention_mask.dtype != torch.bool and not torch.equal(real, attention_mask == 1):
        raise ValueError(
            "attention_mask must hold 1 for a real token and 0 for padding, nothing else "
            "(it is no additive mask)"
        )
    return real[:, None, None, :]  # [B, 1, 1, S]


def combine_masks(*masks: Bool[Tensor, "..."] | None) -> Bool[Tensor, "..."] | None:
    """May attend where every mask allows it; None allows all. Shapes are broadcast."""
    given = [mask for mask in masks if mask is not None]
    if not given:
        return None
    combined = given[0]
    for mask in given[1:]:
        combined = combined & mask
    return combined
