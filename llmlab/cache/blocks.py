"""Who owns which block of a paged cache: plain bookkeeping, without a single tensor."""

import hashlib
from array import array
from collections import OrderedDict
from collections.abc import Iterable, Sequence

from llmlab.cache.base import read_size


class OutOfBlocks(ValueError):
    """Every block is in use."""


def block_key(parent: bytes, ids: Sequence[int]) -> bytes:
    """The name of a full block's content: a hash of its ids and of all ids before it.

    What a block holds depends on everything before it, so the key of the block before (`parent`,
    b"" for the first) goes into it. 256 bits, because two texts with one key would silently get
    each other's keys and values.
    """
    return hashlib.sha256(parent + array("q", ids).tobytes()).digest()


class BlockPool:
    """Hands out blocks, counts references to them, and remembers what unreferenced blocks hold.

    A block is *in use* while anyone refers to it. When the last reference goes, the block becomes
    available again, but what it holds is kept, and found by `find`, until the block is needed for
    something else: of the available blocks the one unused for the longest time goes first (LRU),
    blocks without a published content before all others.

    Source: Kwon et al. 2023 (PagedAttention), sections 4.2 to 4.4.

    Args:
        num_blocks: how many there are; they are numbered from 0.
        block_size: positions in each.

    Raises ValueError for numbers below 1, TypeError for those that are not whole.
    """

    def __init__(self, num_blocks: int, block_size: int):
        self.num_blocks = read_size(num_blocks, "num_blocks")
        self.block_size = read_size(block_size, "block_size")
        self.evictions = 0
        self._references = [0] * num_blocks
        # Two queues, each oldest first, as the keys of a dict: any block can be taken out of them.
        self._blank: OrderedDict[int, None] = OrderedDict.fromkeys(range(num_blocks))
        self._remembered: OrderedDict[int, None] = OrderedDict()
        self._block_of: dict[bytes, int] = {}
        self._key_of: dict[int, bytes] = {}

    @property
    def available(self) -> int:
        """Blocks that nobody refers to, whatever they remember."""
        return len(self._blank) + len(self._remembered)

    @property
    def in_use(self) -> int:
        """Blocks that somebody refers to."""
        return self.num_blocks - self.available

    def blocks_for(self, positions: int) -> int:
        """How many blocks hold that many positions."""
        return -(-positions // self.block_size)

    def references(self, block: int) -> int:
        """How many refer to this block."""
        return self._references[block]

    def allocate(self) -> int:
        """A block for new content, with one reference. Raises OutOfBlocks."""
        if self._blank:
            block, _ = self._blank.popitem(last=False)
        elif self._remembered:
            block, _ = self._remembered.popitem(last=False)
            del self._block_of[self._key_of.pop(block)]
            self.evictions += 1
        else:
            raise OutOfBlocks(
                f"all {self.num_blocks} blocks of {self.block_size} positions are in use: free "
                "some, or make the pool larger"
            )
        self._references[block] = 1
        return block

    def share(self, block: int) -> None:
        """One more reference to a block, which may be one that was only remembered."""
        if self._references[block] == 0:
            if block not in self._remembered:
                raise ValueError(f"block {block} holds nothing that could be shared")
            del self._remembered[block]
        self._references[block] += 1

    def release(self, block: int) -> None:
        """One reference less. Raises ValueError where there is none."""
        if self._references[block] == 0:
            raise ValueError(f"block {block} is released more often than it was taken")
        self._references[block] -= 1
        if self._references[block] == 0:
            queue = self._remembered if block in self._key_of else self._blank
            queue[block] = None

    def release_all(self, blocks: Iterable[int]) -> None:
        """Releases a sequence's blocks, the last one first: beginnings are worth the most."""
        for block in reversed(list(blocks)):
            self.release(block)

    def publish(self, block: int, key: bytes) -> None:
        """Tells what a block in use holds. Where another block holds the same, that one stays."""
        if self._references[block] == 0:
            raise ValueError(f"block {block} is not in use")
        if key not in self._block_of and block not in self._key_of:
            self._block_of[key] = block
            self._key_of[block] = key

    def find(self, key: bytes) -> int | None:
        """The block with this content, in use or remembered; None: it must be computed."""
        return self._block_of.get(key)

    def is_remembered(self, block: int) -> bool:
        """Whether the block is available, and its content is known."""
        return block in self._remembered
