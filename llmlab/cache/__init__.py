"""Key/value caches: what a decoder need not compute twice, stored in different ways."""

from llmlab.cache.base import KVCache
from llmlab.cache.blocks import BlockPool, OutOfBlocks, block_key
from llmlab.cache.dynamic import DynamicKVCache
from llmlab.cache.mixed_batch import MixedBatch, Span
from llmlab.cache.paged import BlockStorage, PagedKVCache
from llmlab.cache.size import kv_cache_bytes
from llmlab.cache.static import StaticKVCache

__all__ = [
    "BlockPool",
    "BlockStorage",
    "DynamicKVCache",
    "KVCache",
    "MixedBatch",
    "OutOfBlocks",
    "PagedKVCache",
    "Span",
    "StaticKVCache",
    "block_key",
    "kv_cache_bytes",
]
