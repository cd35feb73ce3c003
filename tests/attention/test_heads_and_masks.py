"""Splitting heads, sharing key/value heads, and who may attend to whom."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from llmlab.attention import (
    causal_mask,
    combine_masks,
    merge_heads,
    padding_mask,
    repeat_key_value_heads,
    sliding_window_mask,
    split_heads,
)

few = settings(max_examples=50, deadline=None, derandomize=True)
lengths = st.integers(1, 12)


def test_split_heads_by_hand():
    x = torch.arange(12.0).view(1, 2, 6)  # two tokens, 6 columns
    heads = split_heads(x, 3)
    assert heads.shape == (1, 3, 2, 2)
    assert heads[0, 1].tolist() == [[2, 3], [8, 9]]  # columns 2 and 3 of each token
    assert torch.equal(merge_heads(heads), x)
    assert heads.data_ptr() == x.data_ptr()  # a view


def test_split_heads_refuses_what_does_not_divide():
    for heads in (4, 0, -1):
        with pytest.raises(ValueError, match="cannot be cut"):
            split_heads(torch.zeros(1, 2, 6), heads)


def test_key_value_heads_are_interleaved():
    x = torch.tensor([0.0, 1.0]).view(1, 2, 1, 1)
    assert repeat_key_value_heads(x, 4).flatten().tolist() == [0, 0, 1, 1]
    with pytest.raises(ValueError, match="3 query heads cannot share 2"):
        repeat_key_value_heads(x, 3)


def test_causal_mask_by_hand():
    assert causal_mask(1, 3).tolist() == [[True, True, True]]
    assert causal_mask(2, 3).int().tolist() == [[1, 1, 0], [1, 1, 1]]
    assert causal_mask(3, 2).int().tolist() == [[0, 0], [1, 0], [1, 1]]


@few
@given(queries=lengths, keys=lengths, window=lengths)
def test_masks_by_definition(queries, keys, window):
    causal = causal_mask(queries, keys)
    sliding = sliding_window_mask(queries, keys, window)
    for t in range(queries):
        position = t + keys - queries
        for s in range(keys):
            assert causal[t, s] == (s <= position)
            assert sliding[t, s] == (s > position - window)


@few
@given(keys=lengths, window=lengths, data=st.data())
def test_a_chunk_sees_what_the_last_rows_of_the_whole_see(keys, window, data):
    queries = data.draw(st.integers(1, keys))
    assert torch.equal(causal_mask(queries, keys), causal_mask(keys, keys)[-queries:])
    whole = sliding_window_mask(keys, keys, window)
    assert torch.equal(sliding_window_mask(queries, keys, window), whole[-queries:])


def test_a_window_of_nothing_is_refused():
    with pytest.raises(ValueError, match="at least the query's own position"):
        sliding_window_mask(3, 3, 0)


@pytest.mark.parametrize("dtype", [torch.bool, torch.long, torch.int32])
def test_padding_mask(dtype):
    real = torch.tensor([[0, 0, 1], [1, 1, 1]], dtype=dtype)
    mask = padding_mask(real)
    assert mask.shape == (2, 1, 1, 3)
    assert mask.dtype == torch.bool
    assert mask[:, 0, 0].int().tolist() == [[0, 0, 1], [1, 1, 1]]


def test_an_additive_padding_mask_is_refused():
    with pytest.raises(ValueError, match="nothing else"):
        padding_mask(torch.tensor([[0, -10000]]))


def test_combined_masks_all_have_to_allow():
    assert combine_masks() is None
    assert combine_masks(None, None) is None
    padding = padding_mask(torch.tensor([[0, 1, 1]]))
    assert combine_masks(None, padding) is padding
    both = combine_masks(causal_mask(3, 3), None, padding)
    assert both.shape == (1, 1, 3, 3)
    assert both[0, 0].int().tolist() == [[0, 0, 0], [0, 1, 0], [0, 1, 1]]
