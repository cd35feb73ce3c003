"""The cache that grows: every step makes larger tensors and copies the old ones into them."""

import torch
from jaxtyping import Float
from torch import Tensor

from llmlab.cache.base import KVCache
from llmlab.config import ModelConfig


class DynamicKVCache(KVCache):
    """Holds exactly what was written, by concatenation.

    It needs no guess of the final length, and pays for that: step n copies the n - 1 positions that
    were there already, so the bytes copied over a whole run grow with the square of its length.

    `batch_size`, `dtype` and `device` are None until the first forward decides them, and after
    `reset()`. What is stored is detached from autograd: a cache serves inference, not training.
    """

    def __init__(self, config: ModelConfig):
        super().__init__(config)
        self._keys: list[Tensor | None] = [None] * self.layers  # each [B, Hkv, S, D]
        self._values: list[Tensor | None] = [None] * self.layers

    def update(
        self, layer: int, key: Float[Tensor, "B Hkv T D"], value: Float[Tensor, "B Hkv T D"]
    ) -> tuple[Float[Tensor, "B Hkv S D"], Float[Tensor, "B Hkv S D"]]:
        """Append T new positions of one layer; see `KVCache.update`."""
        if layer == 0 and self.length == 0:
            self.reset()  # of what a failed first forward decided
        self.check_update(layer, key, value)
        self._keys[layer] = self._appended(self._keys[layer], key.detach())
        self._values[layer] = self._appended(self._values[layer], value.detach())
        return self._keys[layer], self._values[layer]

    def _appended(
        self, stored: Float[Tensor, "B Hkv _ D"] | None, new: Float[Tensor, "B Hkv T D"]
    ) -> Float[Tensor, "B Hkv S D"]:
        # What a failed forward left behind `length` is not kept.
        old = [] if stored is None else [stored[:, :, : self.length]]
        return torch.cat([*old, new], dim=2)  # [B, Hkv, length + T, D]

    def advance(self, count: int) -> None:
        """Commit `count` positions; the first ones decide batch size, dtype and device."""
        super().advance(count)
        key = self._keys[0]
        if key is not None:
            self.batch_size, self.dtype, self.device = key.shape[0], key.dtype, key.device

    def truncate(self, length: int) -> None:
        """Keep the first `length` positions, and give the memory of the others back."""
        super().truncate(length)
        if self.length == 0:
            self._keys = [None] * self.layers
            self._values = [None] * self.layers
            self.batch_size = self.dtype = self.device = None
            return
        self._keys = [key[:, :, :length].clone() for key in self._keys]
        self._values = [value[:, :, :length].clone() for value in self._values]

    @property
    def nbytes(self) -> int:
        """Bytes of the keys and values stored."""
        stored = [tensor for tensor in self._keys + self._values if tensor is not None]
        return sum(tensor.nbytes for tensor in stored)
