"""From token ids to vectors, and three ways to tell a model where each token stands.

Learned positions are a second look-up table. Sinusoidal positions are a formula, added to the token
vectors. Rotary positions turn queries and keys, whose scores then depend on distance only.
"""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor

from llmlab.config import RopeScaling


def token_embedding(ids: Int[Tensor, "B T"], table: Float[Tensor, "V C"]) -> Float[Tensor, "B T C"]:
    """Row `ids[b, t]` of the table for every token: a look-up, no arithmetic.

    The same as the one-hot matrix of the ids times the table, without the product. Positions that
    are learned are looked up in the same way, in a table of their own.

    Raises ValueError where an id is not a row of the table, TypeError where `ids` are no whole
    numbers or `table` is no tensor.
    """
    check_whole_numbers(ids, "ids")
    if not isinstance(table, Tensor):
        raise TypeError(
            f"table must be a tensor [V, C], such as the weight of an embedding layer; got "
            f"{type(table).__name__}"
        )
    rows = table.shape[0]
    if ids.numel() and not 0 <= int(ids.min()) <= int(ids.max()) < rows:
        raise ValueError(
            f"ids must lie in 0 .. {rows - 1}, the rows of the table; "
            f"got {int(ids.min())} .. {int(ids.max())}"
        )
    return table[ids]  # [B, T, C]


def check_whole_numbers(numbers: Tensor, name: str) -> None:
    """Raises TypeError where these are no tensor of int64 or int32; `name` names them in it.

    Other dtypes are refused, though some could index: to PyTorch uint8 and bool are masks.
    """
    if not isinstance(numbers, Tensor):
        raise TypeError(
            f"{name} must be a tensor of whole numbers, not {type(numbers).__name__}; "
            "torch.tensor makes one of lists: [[1, 2, 3]] is one row of three"
        )
    if numbers.dtype not in (torch.int64, torch.int32):
        raise TypeError(
            f"{name} must be whole numbers of dtype torch.long; got {numbers.dtype}: "
            "convert with .long()"
        )


def sinusoidal_positions(length: int, width: int) -> Float[Tensor, "T C"]:
    """The fixed position vectors of the first transformer, to be added to the token vectors.

    Columns 2i and 2i + 1 hold sin and cos of position / 10000^(2i / width): a clock with hands from
    fast (wavelength 2 pi) to slow (nearly 10000 times that).
    Source: Vaswani et al. 2017, section 3.5.

    Raises ValueError where `length` is negative or `width` is not a positive even number.
    """
    if length < 0 or width <= 0 or width % 2:
        raise ValueError(
            "length must not be negative, and width must be positive and even, for pairs of sin "
            f"and cos; got length {length}, width {width}"
        )
    positions = torch.arange(length, dtype=torch.float32)  # [T]
    angles = torch.outer(positions, rotary_frequencies(width))  # [T, C/2]
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1)  # [T, C]


def rotary_frequencies(
    head_dim: int,
    *,
    theta: float = 10_000.0,
    scaling: RopeScaling | None = None,
    device: torch.device | str | None = None,
) -> Float[Tensor, "D_half"]:
    """By how many radians each pair of a head turns from one position to the next, in fp32.

    Pair i turns by theta^(-2i / head_dim); `scaling` stretches the slow ones (see RopeScaling).
    Source: Su et al. 2021, section 3.2.2.

    Raises ValueError where `head_dim` is not a positive even number.
    """
    if head_dim <= 0 or head_dim % 2:
        raise ValueError(f"head_dim must be positive and even, to rotate pairs; got {head_dim}")
    exponents = torch.arange(0, head_dim, 2, dtype=torch.float32, device=device) / head_dim  # [D/2]
    frequencies = 1.0 / theta**exponents
    return frequencies if scaling is None else _stretch(frequencies, scaling)


def _stretch(frequencies: Float[Tensor, "D_half"], scaling: RopeScaling) -> Float[Tensor, "D_half"]:
    """Divides low frequencies by `scaling.factor`, keeps high ones, blends those between."""
    turns = scaling.original_max_positions * frequencies / (2 * math.pi)  # in the trained context
    low, high = scaling.low_frequency_factor, scaling.high_frequency_factor
    keep = ((turns - low) / (high - low)).clamp(0.0, 1.0)
    return keep * frequencies + (1.0 - keep) * frequencies / scaling.factor


def rotary_tables(
    position_ids: Int[Tensor, "B T"],
    head_dim: int,
    *,
    theta: float = 10_000.0,
    scaling: RopeScaling | None = None,
    dtype: torch.dtype = torch.float32,
) -> tuple[Float[Tensor, "B T D"], Float[Tensor, "B T D"]]:
    """cos and sin of every pair's angle at every position, each angle twice (see `apply_rotary`).

    Angles are computed in fp32 whatever the model's dtype, since bf16 cannot tell position 1000
    from 1001; only the finished tables are rounded to `dtype`.
    """
    frequencies = rotary_frequencies(
        head_dim, theta=theta, scaling=scaling, device=position_ids.device
    )
    angles = position_ids[..., None].float() * frequencies  # [B, T, D/2]
    angles = torch.cat((angles, angles), dim=-1)  # [B, T, D]
    return angles.cos().to(dtype), angles.sin().to(dtype)


def apply_rotary(
    x: Float[Tensor, "B H T D"], cos: Float[Tensor, "B T D"], sin: Float[Tensor, "B T D"]
) -> Float[Tensor, "B H T D"]:
    """Turns each pair of numbers of every head by its position's angle.

    A pair is (x[i], x[i + D/2]): the half-split layout of Hugging Face's checkpoints. The paper
    pairs neighbours, (x[2i], x[2i + 1]); both are the same rotation up to a fixed order of the
    columns, but weights trained for one layout are wrong in the other.
    Source: Su et al. 2021, section 3.4.2.
    """
    first, second = x.chunk(2, dim=-1)  # [B, H, T, D/2] each
    quarter_turn = torch.cat((-second, first), dim=-1)  # [B, H, T, D]
    return x * cos[:, None] + quarter_turn * sin[:, None]
