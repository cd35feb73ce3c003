"""Key/value caches: what a decoder need not compute twice, stored in different ways."""

from llmlab.cache.base import KVCache
from llmlab.cache.dynamic import DynamicKVCache
from llmlab.cache.size import kv_cache_bytes
from llmlab.cache.static import StaticKVCache

__all__ = ["DynamicKVCache", "KVCache", "StaticKVCache", "kv_cache_bytes"]
