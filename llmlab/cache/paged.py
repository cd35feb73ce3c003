"""The cache in blocks: memory is taken as positions come, and sequences may share what is equal.

Source: Kwon et al. 2023 (PagedAttention), section 4.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from llmlab.cache.base import KVCache, read_size
from llmlab.cache.blocks import BlockPool
from llmlab.config import ModelConfig


class BlockStorage:
    """Keys and values of all blocks of a pool, in every layer.

    Position p of a sequence lies in slot p % block_size of block `block_table[p // block_size]`.

    Args:
        config: of the model to serve.
        num_blocks, block_size: see `BlockPool`.
        dtype, device: those of the model.
    """

    def __init__(
        self,
        config: ModelConfig,
        *,
        num_blocks: int,
        block_size: int = 16,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ):
        self.pool = BlockPool(num_blocks, block_size)
        self.block_size = block_size
        self.windows = tuple(config.window(layer) for layer in range(config.layers))
        # Heads before positions: what is read for one head then lies together.
        shape = (config.layers, num_blocks, config.kv_heads, block_size, config.head_dim)
        # Plain tensors even where the caller is in inference mode, as the storage may outlive it.
        with torch.inference_mode(False):
            self._keys = torch.zeros(shape, dtype=dtype, device=device).unbind(0)
            self._values = torch.zeros(shape, dtype=dtype, device=device).unbind(0)
        self.dtype, self.device = dtype, self._keys[0].device

    @property
    def nbytes(self) -> int:
        """Bytes of all blocks, used or not."""
        return sum(tensor.nbytes for tensor in self._keys + self._values)

    def slots(
        self, block_table: Sequence[int], positions: Int[Tensor, "T"]
    ) -> tuple[Int[Tensor, "T"], Int[Tensor, "T"]]:
        """Where these positions of a sequence lie: the block of each, and the place within it."""
        table = torch.tensor(block_table, device=self.device)
        return table[positions // self.block_size], positions % self.block_size

    def write(
        self,
        layer: int,
        slots: tuple[Int[Tensor, "N"], Int[Tensor, "N"]],
        key: Float[Tensor, "Hkv N D"],
        value: Float[Tensor, "Hkv N D"],
    ) -> None:
        """Puts each position's key and value of one layer into its slot (see `slots`)."""
        blocks, places = slots
        self._keys[layer][blocks, :, places] = key.transpose(0, 1)  # [N, Hkv, D]
        self._values[layer][blocks, :, places] = value.transpose(0, 1)

    def read(
        self, layer: int, block_tables: Int[Tensor, "B blocks"], length: int
    ) -> tuple[Float[Tensor, "B Hkv S D"], Float[Tensor, "B Hkv S D"]]:
        """Copies of the first `length` positions of some sequences, each one in order again."""
        _, kv_heads, block_size, head_dim = self._keys[layer].shape
        heads = torch.arange(kv_heads, device=self.device)[:, None]  # [Hkv, 1]
        pieces = block_tables[:, None] * kv_heads + heads  # [B, Hkv, blocks]
        both = []
        for stored in (self._keys[layer], self._values[layer]):
            stored = stored.view(-1, block_size * head_dim)  # a row for each block and head
            rows = stored.index_select(0, pieces.flatten())
            rows = rows.view(len(block_tables), kv_heads, -1, head_dim)
            both.append(rows[:, :, :length])  # [B, Hkv, S, D]
        return both[0], both[1]

    def copy(self, source: int, target: int) -> None:
        """The content of one block into another, in all layers."""
        for stored in self._keys + self._values:
            stored[target] = stored[source]


class PagedKVCache(KVCache):
    """A cache for `generate` and `model(...)` that takes its memory block by block.

    At most block_size - 1 positions a row lie idle, however long the sequence may become; and
    `fork` makes a second cache that shares all blocks with the first. Whichever of the two writes
    into a block first gets a copy of that block (copy on write).

    What is stored is detached from autograd: a cache serves inference, not training.

    Args:
        config: of the model to serve.
        batch_size: rows.
        max_length: positions a row. None: the model's context.
        block_size: positions a block.
        storage: blocks to share with other caches; then block_size, dtype and device are its own.
            None: storage of its own, with room for batch_size rows of max_length.
        dtype, device: those of the model.

    Raises ValueError for sizes below 1, TypeError for those that are no whole numbers.
    """

    def __init__(
        self,
        config: ModelConfig,
        *,
        batch_size: int = 1,
        max_length: int | None = None,
        block_size: int = 16,
        storage: BlockStorage | None = None,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ):
        max_length = config.max_positions if max_length is None else max_length
        batch_size = read_size(batch_size, "batch_size")
        max_length = read_size(max_length, "max_length")
        block_size = read_size(block_size, "block_size")
        if storage is None:
            storage = BlockStorage(
                config,
                num_blocks=batch_size * -(-max_length // block_size),
                block_size=block_size,
                dtype=dtype,
                device=device,
            )
        super().__init__(
            config,
            batch_size=batch_size,
            dtype=storage.dtype,
            device=storage.device,
            capacity=max_length,
        )
        self._config = config
        self.storage = storage
        self.block_tables: list[list[int]] = [[] for _ in range(batch_size)]

    def update(
        self, layer: int, key: Float[Tensor, "B Hkv T D"], value: Float[Tensor, "B Hkv T D"]
    ) -> tuple[Float[Tensor, "B Hkv S D"], Float[Tensor, "B Hkv S D"]]:
        """Write T new positions of one layer, taking blocks for them; see `KVCache.update`."""
        self.check_update(layer, key, value)
        end = self.length + key.shape[2]
        self._own_blocks(end)
        positions = torch.arange(self.length, end, device=self.device)
        for table, row_key, row_value in zip(self.block_tables, key, value, strict=True):
            slots = self.storage.slots(table, positions)
            self.storage.write(layer, slots, row_key.detach(), row_value.detach())
        tables = torch.tensor(self.block_tables, device=self.device)  # [B, blocks]
        return self.storage.read(layer, tables, end)

    def _own_blocks(self, end: int) -> None:
        """Blocks up to `end`, of which those that will be written are nobody else's."""
        pool = self.storage.pool
        for table in self.block_tables:
            for i in range(self.length // pool.block_size, len(table)):
                if pool.references(table[i]) > 1:
                    copy = pool.allocate()
                    self.storage.copy(table[i], copy)
                    pool.release(table[i])
                    table[i] = copy
            while len(table) < pool.blocks_for(end):
                table.append(pool.allocate())

    def fork(self) -> "PagedKVCache":
        """A second cache with the same content, for which nothing is copied yet."""
        other = PagedKVCache(
            self._config,
            batch_size=self.batch_size,
            max_length=self.capacity,
            storage=self.storage,
        )
        held = self.storage.pool.blocks_for(self.length)
        other.block_tables = [table[:held] for table in self.block_tables]
        for table in other.block_tables:
            for block in table:
                self.storage.pool.share(block)
        other._length = self.length
        return other

    def truncate(self, length: int) -> None:
        """Keep the first `length` positions, and give back the blocks that hold none of them."""
        super().truncate(length)
        held = self.storage.pool.blocks_for(self.length)
        for table in self.block_tables:
            self.storage.pool.release_all(table[held:])
            del table[held:]

    def check_room(self, count: int) -> None:
        """Raises ValueError where `count` more positions do not fit."""
        super().check_room(count)
        pool = self.storage.pool
        held = self.length // pool.block_size
        needed = 0  # blocks that are missing, and those that will be copied
        for table in self.block_tables:
            needed += max(pool.blocks_for(self.length + count) - len(table), 0)
            needed += sum(pool.references(block) > 1 for block in table[held:]) if count else 0
        if needed > pool.available:
            raise ValueError(
                f"the cache is full: {count} more positions need {needed} blocks and "
                f"{pool.available} are left; reset or truncate a cache that shares this storage, "
                "or make the storage larger"
            )

    @property
    def nbytes(self) -> int:
        """Bytes of the blocks that this cache refers to, shared ones included."""
        blocks = len({block for table in self.block_tables for block in table})
        return blocks * self.storage.nbytes // self.storage.pool.num_blocks
