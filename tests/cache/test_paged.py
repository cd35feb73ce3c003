"""Blocks come home, sharing never mixes contents, and a paged cache is a cache like the others."""

import random

import pytest
import torch
from cache_tools import config_of, feed, new_positions
from hypothesis import given, settings
from hypothesis import strategies as st

from llmlab.cache import (
    BlockPool,
    BlockStorage,
    DynamicKVCache,
    MixedBatch,
    OutOfBlocks,
    PagedKVCache,
    Span,
    block_key,
)
from llmlab.decoding import generate
from llmlab.model import load_model

PROPERTY = settings(max_examples=60, deadline=None, derandomize=True)


def test_lru_by_hand():
    pool = BlockPool(3, 2)
    a, b, c = pool.allocate(), pool.allocate(), pool.allocate()
    with pytest.raises(OutOfBlocks, match="all 3 blocks of 2"):
        pool.allocate()
    pool.publish(a, b"a")
    pool.publish(b, b"b")
    for block in (a, b, c):
        pool.release(block)
    assert pool.available == 3
    assert (pool.find(b"a"), pool.find(b"b"), pool.find(b"c")) == (a, b, None)
    pool.share(a)  # used again, so b is now the older one
    pool.release(a)
    assert pool.allocate() == c  # blank blocks go first
    assert pool.allocate() == b
    assert (pool.find(b"a"), pool.find(b"b")) == (a, None)
    assert pool.evictions == 1
    assert pool.allocate() == a
    assert pool.in_use == 3


def test_pool_refuses():
    pool = BlockPool(2, 4)
    block = pool.allocate()
    pool.release(block)
    with pytest.raises(ValueError, match="more often than it was taken"):
        pool.release(block)
    with pytest.raises(ValueError, match="holds nothing"):
        pool.share(block)
    with pytest.raises(ValueError, match="not in use"):
        pool.publish(block, b"x")
    for sizes in ((0, 4), (4, 0)):
        with pytest.raises(ValueError, match="at least 1, got 0"):
            BlockPool(*sizes)


def test_key_depends_on_all_that_precedes():
    keys = {block_key(parent, ids) for parent in (b"", b"x") for ids in ([1, 2], [2, 1], [12])}
    assert len(keys) == 6
    assert block_key(block_key(b"", [1, 2]), [3, 4]) == block_key(block_key(b"", (1, 2)), (3, 4))


def test_every_block_comes_home_over_thousands_of_sequences():
    """Sequences grow, share, publish and end at random, beside a model that is only a dict."""
    for seed in range(40):
        draw = random.Random(seed)
        pool = BlockPool(draw.randint(1, 12), draw.randint(1, 4))
        tables: list[list[int]] = []
        content: dict[int, bytes] = {}  # what the owner has put into a block, if it said so
        serial = 0
        for _ in range(300):
            action = draw.choice(["new", "grow", "grow", "fork", "publish", "find", "end"])
            if action == "new":
                tables.append([])
            elif action == "find" and content:
                key = draw.choice(list(content.values()))
                block = pool.find(key)
                if block is not None:
                    assert content[block] == key
                    pool.share(block)
                    tables.append([block])
            elif not tables:
                continue
            table = draw.choice(tables) if tables else []
            if action == "grow":
                if pool.available:
                    block = pool.allocate()
                    assert all(block not in other for other in tables)
                    content.pop(block, None)
                    table.append(block)
                else:
                    with pytest.raises(OutOfBlocks):
                        pool.allocate()
            elif action == "fork":
                for block in table:
                    pool.share(block)
                tables.append(list(table))
            elif action == "publish" and table and table[-1] not in content:
                serial += 1
                content[table[-1]] = b"%d" % serial
                pool.publish(table[-1], content[table[-1]])
            elif action == "end":
                tables.remove(table)
                pool.release_all(table)
            held = [block for other in tables for block in other]
            assert all(pool.references(b) == held.count(b) for b in range(pool.num_blocks))
            assert pool.in_use == len(set(held))
        for table in tables:
            pool.release_all(table)
        assert pool.available == pool.num_blocks
        assert len({pool.allocate() for _ in range(pool.num_blocks)}) == pool.num_blocks


@PROPERTY
@given(
    block_size=st.integers(1, 5),
    rows=st.integers(1, 3),
    turns=st.lists(
        st.tuples(st.integers(1, 6), st.integers(0, 6), st.integers(0, 8)), min_size=1, max_size=5
    ),
)
def test_holds_what_the_dynamic_cache_holds(block_size, rows, turns):
    config = config_of(layers=2)
    paged = PagedKVCache(config, batch_size=rows, max_length=30, block_size=block_size)
    dynamic = DynamicKVCache(config)
    for count, failed, dropped in turns:
        if failed and paged.length + failed <= 30:  # writes layer 0, then dies: commits nothing
            ones = torch.ones(rows, config.kv_heads, failed, config.head_dim)
            paged.update(0, ones, ones)
        for layer in range(2):
            key, value = (new_positions(config, count, rows) for _ in range(2))
            pairs = zip(
                paged.update(layer, key, value), dynamic.update(layer, key, value), strict=True
            )
            assert all(torch.equal(ours, theirs) for ours, theirs in pairs)
        kept = max(paged.length + count - dropped, 0)
        for cache in (paged, dynamic):
            cache.advance(count)
            cache.truncate(kept)
        pool = paged.storage.pool
        assert pool.in_use == rows * pool.blocks_for(kept)
        assert paged.nbytes == rows * pool.blocks_for(kept) * block_size * 2 * 2 * 2 * 4 * 4
    paged.reset()
    assert paged.storage.pool.in_use == 0


@PROPERTY
@given(
    block_size=st.integers(1, 4),
    start=st.integers(0, 9),
    # (which of the caches writes, how many positions; 0 positions: it forks)
    turns=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 3)), max_size=8),
)
def test_forks_share_until_one_of_them_writes(block_size, start, turns):
    config = config_of(layers=2)
    storage = BlockStorage(config, num_blocks=200, block_size=block_size)
    pairs = [(PagedKVCache(config, storage=storage), DynamicKVCache(config))]

    def write(pair, count):
        for layer in range(2):
            new = new_positions(config, count)
            ours, theirs = (cache.update(layer, new, -new) for cache in pair)
            assert torch.equal(ours[0], theirs[0])
            assert torch.equal(ours[1], theirs[1])
        for cache in pair:
            cache.advance(count)

    if start:
        write(pairs[0], start)
    for which, count in turns:
        ours, theirs = pairs[which % len(pairs)]
        if count:
            write((ours, theirs), count)
            continue
        before = storage.pool.in_use
        copy = DynamicKVCache(config)
        for layer in range(2 if ours.length else 0):
            copy.update(layer, theirs._keys[layer], theirs._values[layer])
        copy.advance(ours.length)
        pairs.append((ours.fork(), copy))
        assert storage.pool.in_use == before  # a fork costs nothing
    for pair in pairs:
        write(pair, 1)
    for ours, _ in pairs:
        ours.reset()
    assert storage.pool.in_use == 0


def test_copies_one_block_on_write():
    config = config_of()
    first = PagedKVCache(config, max_length=32, block_size=4)
    feed(first, config, 10)  # blocks of 4, 4 and 2
    second = first.fork()
    assert first.block_tables == second.block_tables
    feed(second, config, 1)
    assert first.block_tables[0][:2] == second.block_tables[0][:2]
    assert first.block_tables[0][2] != second.block_tables[0][2]
    assert first.storage.pool.in_use == 4


def test_generates_what_the_other_caches_generate():
    model = load_model()
    ids = [1, 40, 80, 120, 160, 200, 240]
    wanted = generate(model, ids, 30).ids
    for block_size in (1, 4, 16):
        cache = PagedKVCache(model.config, max_length=64, block_size=block_size)
        assert generate(model, ids, 30, cache=cache).ids == wanted
    rows = [ids, ids[:3]]
    cache = PagedKVCache(model.config, batch_size=2, max_length=64)
    assert generate(model, rows, 20, cache=cache).ids == generate(model, rows, 20).ids


def test_refuses_what_does_not_fit_and_stays_as_it_was():
    config = config_of()
    cache = PagedKVCache(config, max_length=6, block_size=4)
    feed(cache, config, 5)
    with pytest.raises(ValueError, match="the cache is full: 5 of 6"):
        cache.update(0, new_positions(config, 2), new_positions(config, 2))
    storage = BlockStorage(config, num_blocks=2, block_size=4)
    one, other = (PagedKVCache(config, storage=storage) for _ in range(2))
    feed(one, config, 5)
    with pytest.raises(ValueError, match="1 blocks and 0 are left"):
        other.update(0, new_positions(config, 1), new_positions(config, 1))
    with pytest.raises(ValueError, match="1 blocks and 0 are left"):
        one.fork().update(0, new_positions(config, 1), new_positions(config, 1))
    for sizes in ({"batch_size": 0}, {"max_length": 0}, {"block_size": 0}):
        with pytest.raises(ValueError, match="at least 1, got 0"):
            PagedKVCache(config, **sizes)


def test_mixed_batch_refuses():
    storage = BlockStorage(config_of(), num_blocks=4, block_size=4)
    for spans, message in (
        ([], "at least one"),
        ([Span([0], 0, 0)], "at least 1 new token"),
        ([Span([0], -1, 1)], "past of 0 or more"),
        ([Span([0], 0, 3), Span([1], 0, 1)], "must come first"),
        ([Span([0], 3, 2)], "cannot hold 3 \\+ 2"),
    ):
        with pytest.raises(ValueError, match=message):
            MixedBatch(storage, spans)
