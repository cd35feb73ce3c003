"""What every key/value cache does, whatever way it stores: the model knows only this."""

import operator
from abc import ABC, abstractmethod
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from llmlab.config import ModelConfig


def read_whole_number(number: Any, what: str) -> int:
    """`number` as an int; TypeError for floats, booleans, text. `what` names it in the message."""
    if isinstance(number, bool):
        raise TypeError(f"{what} must be a whole number, got {number!r}")
    try:
        return operator.index(number)  # int, and the integers of NumPy and PyTorch
    except TypeError:
        raise TypeError(f"{what} must be a whole number, got {number!r}") from None


def read_size(size: Any, what: str, *, least: int = 1) -> int:
    """The same for a size; ValueError where it is below `least`."""
    read = read_whole_number(size, what)
    if read < least:
        raise ValueError(f"{what} must be at least {least}, got {read}")
    return read


class KVCache(ABC):
    """Keys and values of every position so far, for every layer, so that none is computed twice.

    A position is first written, by `update` in each layer, and then committed, by one `advance` at
    the end of the model's forward. A forward that fails half way has committed nothing: the cache
    is as it was, and the next update writes over the remains.

    Attributes:
        layers, kv_heads, head_dim: the sizes of the model that this cache serves.
        batch_size, dtype, device: what it stores; None where the first update decides.
        capacity: how many positions fit; None where it grows.

    Raises TypeError for a config or dtype that is none.
    """

    def __init__(
        self,
        config: ModelConfig,
        *,
        batch_size: int | None = None,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
        capacity: int | None = None,
    ):
        if not isinstance(config, ModelConfig):
            raise TypeError(
                f"config must be a ModelConfig, such as model.config; got {type(config).__name__}"
            )
        if dtype is not None and not isinstance(dtype, torch.dtype):
            raise TypeError(f"dtype must be one of torch's, such as torch.bfloat16; got {dtype!r}")
        self.layers = config.layers
        self.kv_heads = config.kv_heads
        self.head_dim = config.head_dim
        self.batch_size = batch_size
        self.dtype = dtype
        self.device = None if device is None else torch.device(device)
        self.capacity = capacity
        self._length = 0

    @property
    def length(self) -> int:
        """Positions committed so far, padding included."""
        return self._length

    @abstractmethod
    def update(
        self, layer: int, key: Float[Tensor, "B Hkv T D"], value: Float[Tensor, "B Hkv T D"]
    ) -> tuple[Float[Tensor, "B Hkv S D"], Float[Tensor, "B Hkv S D"]]:
        """Writes T new positions of one layer after the committed ones; gives all S = length + T.

        Does not move `length`. Raises ValueError where the tensors do not fit this cache.
        """

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Bytes of memory held for keys and values."""

    def advance(self, count: int) -> None:
        """Commits `count` positions that every layer has written."""
        count = operator.index(count)  # a whole number, or a TypeError with nothing changed
        if count < 0:
            raise ValueError(f"cannot advance by {count}; to drop positions, use truncate")
        self.check_room(count)
        self._length += count

    def truncate(self, length: int) -> None:
        """Keeps the first `length` positions and forgets the rest."""
        length = operator.index(length)
        if not 0 <= length <= self._length:
            raise ValueError(
                f"cannot truncate to {length} positions: the cache holds {self._length}"
            )
        self._length = length

    def reset(self) -> None:
        """Forgets every position."""
        self.truncate(0)

    def check_room(self, count: int) -> None:
        """Raises ValueError where `count` more positions do not fit."""
        if self.capacity is not None and self._length + count > self.capacity:
            raise ValueError(
                f"the cache is full: {self._length} of {self.capacity} positions are taken and "
                f"{count} more are asked for; make a longer cache, or truncate or reset this one"
            )

    def check_update(self, layer: int, key: Tensor, value: Tensor) -> None:
        """Raises ValueError where `key` and `value` are not new positions for this cache."""
        if not 0 <= layer < self.layers:
            raise ValueError(f"no layer {layer}: this cache has layers 0 to {self.layers - 1}")
        if key.dim() != 4 or key.shape != value.shape:
            raise ValueError(
                "key and value must have one shape [batch, kv_heads, new positions, head_dim]; "
                f"got {list(key.shape)} and {list(value.shape)}"
            )
        for what, got, wanted in (
            ("batch_size", key.shape[0], self.batch_size),
            ("kv_heads", key.shape[1], self.kv_heads),
            ("head_dim", key.shape[3], self.head_dim),
            ("dtype", key.dtype, self.dtype),
            ("dtype", value.dtype, self.dtype),
            ("device", key.device, self.device),
        ):
            if wanted is not None and got != wanted:
                raise ValueError(
                    f"key and value do not fit this cache: {what} is {got}, the cache has "
                    f"{wanted}; make a cache for this model and batch"
                )
        self.check_room(key.shape[2])
