"""Both caches against plain tensors, and what they refuse."""

import pytest
import torch
from cache_tools import config_of, feed, make_cache, new_positions
from hypothesis import given, settings
from hypothesis import strategies as st

from llmlab.cache import DynamicKVCache, StaticKVCache

PROPERTY = settings(max_examples=60, deadline=None, derandomize=True)


both = pytest.mark.parametrize("kind", ["dynamic", "static"])


@both
@PROPERTY
@given(
    layers=st.integers(1, 3),
    kv_heads=st.integers(1, 3),
    head_dim=st.sampled_from([2, 6]),
    batch_size=st.integers(1, 3),
    # (positions to write, positions a failed forward writes before, how many to drop after)
    turns=st.lists(
        st.tuples(st.integers(1, 6), st.integers(0, 6), st.integers(0, 8)), min_size=1, max_size=5
    ),
)
def test_holds_what_was_written_and_kept(kind, layers, kv_heads, head_dim, batch_size, turns):
    config = config_of(layers, kv_heads * 2, kv_heads, head_dim)
    cache = make_cache(kind, config, batch_size, max_length=30)
    expected = [
        (new_positions(config, 0, batch_size), new_positions(config, 0, batch_size))
        for _ in range(layers)
    ]
    for count, failed, dropped in turns:
        if failed and cache.length + failed <= 30:  # writes layer 0, then dies: commits nothing
            ones = torch.ones(batch_size, kv_heads, failed, head_dim)
            cache.update(0, ones, ones)
        for layer in range(layers):
            key, value = (new_positions(config, count, batch_size) for _ in range(2))
            expected[layer] = (
                torch.cat([expected[layer][0], key], dim=2),
                torch.cat([expected[layer][1], value], dim=2),
            )
            before = cache.length
            keys, values = cache.update(layer, key, value)
            assert cache.length == before
            torch.testing.assert_close(keys, expected[layer][0], rtol=0, atol=0)
            torch.testing.assert_close(values, expected[layer][1], rtol=0, atol=0)
        cache.advance(count)
        kept = max(cache.length - dropped, 0)
        cache.truncate(kept)
        assert cache.length == kept
        expected = [(key[:, :, :kept], value[:, :, :kept]) for key, value in expected]


@both
def test_bytes(kind):
    config = config_of(layers=3, kv_heads=2, head_dim=4)
    cache = make_cache(kind, config, batch_size=2, max_length=10)
    position = 2 * 3 * 2 * 4 * 4 * 2  # keys and values, layers, heads, dim, fp32, rows
    assert cache.nbytes == (0 if kind == "dynamic" else 10 * position)
    feed(cache, config, 7, batch_size=2)
    assert cache.nbytes == (7 if kind == "dynamic" else 10) * position
    cache.truncate(3)
    assert cache.nbytes == (3 if kind == "dynamic" else 10) * position


def test_static_writes_in_place_and_dynamic_copies():
    config = config_of()
    for kind, shares in (("static", True), ("dynamic", False)):
        cache = make_cache(kind, config)
        key = new_positions(config, 3)
        first, _ = cache.update(0, key, key)
        feed(cache, config, 3)
        key = new_positions(config, 1)
        second, _ = cache.update(0, key, key)
        assert (first.data_ptr() == second.data_ptr()) == shares


@both
def test_does_not_keep_the_tensor_it_was_given(kind):
    config = config_of()
    cache = make_cache(kind, config)
    given_key = new_positions(config, 2)
    keys, _ = cache.update(0, given_key, given_key)
    before = keys.clone()
    given_key.zero_()
    torch.testing.assert_close(keys, before, rtol=0, atol=0)


@both
def test_is_detached_and_outlives_inference_mode(kind):
    config = config_of(layers=1)
    with torch.inference_mode():
        cache = make_cache(kind, config)
        feed(cache, config, 2)
    key = new_positions(config, 1, requires_grad=True)
    keys, _ = cache.update(0, key, key)
    assert not keys.requires_grad
    query = new_positions(config, 1, requires_grad=True)
    (query @ keys.mT).sum().backward()  # fails on tensors of inference mode
    assert query.grad is not None


@both
def test_refuses_what_does_not_fit_and_stays_as_it_was(kind):
    config = config_of()
    cache = make_cache(kind, config)
    feed(cache, config, 2)
    good = new_positions(config, 1)
    bad = [
        (2, good, good, "layer"),
        (-1, good, good, "layer"),
        (0, torch.randn(2, 2, 1, 4), torch.randn(2, 2, 1, 4), "batch"),
        (0, torch.randn(1, 4, 1, 4), torch.randn(1, 4, 1, 4), "kv_heads"),
        (0, torch.randn(1, 2, 1, 8), torch.randn(1, 2, 1, 8), "head_dim"),
        (0, good.double(), good.double(), "dtype"),
        (0, good.to("meta"), good.to("meta"), "device"),
    ]
    for layer, key, value, message in bad:
        with pytest.raises(ValueError, match=message):
            cache.update(layer, key, value)
    for length in (-1, 3):
        with pytest.raises(ValueError, match="truncate"):
            cache.truncate(length)
    assert cache.length == 2
    keys, _ = cache.update(0, good, good)
    assert keys.shape[2] == 3


def test_static_is_full_at_its_length():
    config = config_of()
    cache = StaticKVCache(config, batch_size=1, max_length=4)
    assert cache.capacity == 4
    feed(cache, config, 4)
    with pytest.raises(ValueError, match="full"):
        feed(cache, config, 1)
    cache.reset()
    assert cache.length == 0
    feed(cache, config, 4)


def test_dynamic_takes_another_batch_when_empty():
    config = config_of()
    cache = DynamicKVCache(config)
    assert (cache.batch_size, cache.dtype, cache.device) == (None, None, None)
    feed(cache, config, 3, batch_size=2)
    assert (cache.batch_size, cache.dtype, cache.capacity) == (2, torch.float32, None)
    cache.reset()
    assert (cache.batch_size, cache.nbytes) == (None, 0)
    key = new_positions(config, 2, batch_size=3)
    cache.update(0, key, key)  # a forward that fails after its first layer ...
    feed(cache, config, 1, batch_size=1)  # ... decides nothing for the next
    assert cache.length == 1


@pytest.mark.parametrize(
    "sizes", [{"batch_size": 0, "max_length": 4}, {"batch_size": 1, "max_length": 0}]
)
def test_static_refuses_empty_sizes(sizes):
    with pytest.raises(ValueError, match="at least 1, got 0"):
        StaticKVCache(config_of(), **sizes)
