"""The cache that is allocated once: every step writes its new positions in place."""

import torch
from jaxtyping import Float
from torch import Tensor

from llmlab.cache.base import KVCache, read_size
from llmlab.config import ModelConfig


class StaticKVCache(KVCache):
    """Room for `max_length` positions, taken at the start; nothing is ever copied.

    It needs the final length in advance, and holds all that memory from the first step. `update`
    gives back views of it, good until those positions are written again.

    What is stored is detached from autograd: a cache serves inference, not training.

    Args:
        config: of the model to serve.
        batch_size: rows.
        max_length: positions, those of the prompt and of padding included.
        dtype, device: those of the model.

    Raises:
        ValueError: if batch_size or max_length is less than 1.
        TypeError: if one of them is no whole number, or config or dtype is none.
    """

    def __init__(
        self,
        config: ModelConfig,
        *,
        batch_size: int,
        max_length: int,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ):
        batch_size = read_size(batch_size, "batch_size")
        max_length = read_size(max_length, "max_length")
        super().__init__(
            config, batch_size=batch_size, dtype=dtype, device=device, capacity=max_length
        )
        shape = (self.layers, batch_size, self.kv_heads, max_length, self.head_dim)
        # Plain tensors even where the caller is in inference mode, as the cache may outlive it.
        with torch.inference_mode(False):
            self._keys = torch.zeros(shape, dtype=dtype, device=device).unbind(0)
            self._values = torch.zeros(shape, dtype=dtype, device=device).unbind(0)
        self.device = self._keys[0].device  # "cuda" has become "cuda:0"

    def update(
        self, layer: int, key: Float[Tensor, "B Hkv T D"], value: Float[Tensor, "B Hkv T D"]
    ) -> tuple[Float[Tensor, "B Hkv S D"], Float[Tensor, "B Hkv S D"]]:
        """Write T new positions of one layer in place; see `KVCache.update`."""
        self.check_update(layer, key, value)
        start, end = self.length, self.length + key.shape[2]
        keys, values = self._keys[layer], self._values[layer]  # each [B, Hkv, max_length, D]
        keys[:, :, start:end] = key.detach()
        values[:, :, start:end] = value.detach()
        return keys[:, :, :end], values[:, :, :end]  # [B, Hkv, length + T, D]

    @property
    def nbytes(self) -> int:
        """Bytes of the whole preallocation, used or not."""
        return sum(tensor.nbytes for tensor in self._keys + self._values)
