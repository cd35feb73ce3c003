"""Naive = dynamic = static = fed in pieces = a row of a batch, on random models of every family."""

from itertools import pairwise

import pytest
import torch
from decoding_tools import FAMILIES, make_model, model_config
from hypothesis import given, settings
from hypothesis import strategies as st

from llmlab.cache import DynamicKVCache, StaticKVCache
from llmlab.decoding import generate

PROPERTY = settings(max_examples=12, deadline=None, derandomize=True)


def draw_model(data, family):
    draw = data.draw
    config = model_config(
        family,
        layers=draw(st.integers(1, 3)),
        kv_heads=draw(st.integers(1, 2)),
        groups=draw(st.integers(1, 3)),
        head_dim=draw(st.sampled_from([4, 8])),
        max_positions=draw(st.sampled_from([32, 50])),
        sliding_window=draw(st.sampled_from([None, 1, 3, 8])),
    )
    return make_model(config, seed=draw(st.integers(0, 1000)))


prompts = st.lists(st.integers(0, 60), min_size=1, max_size=20)


def greedy_by_hand(model, ids, count):
    """The whole text through the model for every token: no cache that could go wrong."""
    text = list(ids)
    with torch.no_grad():
        for _ in range(count):
            text.append(int(model(torch.tensor([text]))[0, -1].argmax()))
    return text[len(ids) :]


@pytest.mark.parametrize("family", FAMILIES)
@PROPERTY
@given(data=st.data())
def test_one_prompt(family, data):
    model = draw_model(data, family)
    ids = data.draw(prompts)
    count = data.draw(st.integers(1, 12))
    expected = greedy_by_hand(model, ids, count)
    for cache in (None, "dynamic", "static"):
        assert generate(model, ids, count, cache=cache).ids == expected

    # The prompt in pieces, into a cache that already holds what was fed.
    cuts = data.draw(st.sets(st.integers(1, max(len(ids) - 1, 1)), max_size=4))
    bounds = [0, *sorted(cut for cut in cuts if cut < len(ids)), len(ids)]
    pieces = [ids[start:end] for start, end in pairwise(bounds)]
    for cache in (
        DynamicKVCache(model.config),
        StaticKVCache(model.config, batch_size=1, max_length=32, dtype=torch.float64),
    ):
        with torch.no_grad():
            for piece in pieces[:-1]:
                model(torch.tensor([piece]), cache)
        assert generate(model, pieces[-1], count, cache=cache).ids == expected
        assert cache.length == len(ids) + count - 1


@pytest.mark.parametrize("family", FAMILIES)
@PROPERTY
@given(data=st.data())
def test_rows_of_a_batch(family, data):
    model = draw_model(data, family)
    rows = data.draw(st.lists(prompts, min_size=1, max_size=4))
    count = data.draw(st.integers(1, 8))
    stop_ids = data.draw(st.sets(st.integers(0, 60), max_size=20))
    alone = [generate(model, row, count, cache=None, stop_ids=stop_ids) for row in rows]
    for cache in (None, "dynamic", "static"):
        pad_id = data.draw(st.integers(0, 60))
        batch = generate(model, rows, count, cache=cache, stop_ids=stop_ids, pad_id=pad_id)
        assert batch.ids == [one.ids for one in alone]
        assert batch.finish_reason == [one.finish_reason for one in alone]


def test_the_models_feel_every_position():
    """Else the ladder would prove little: a shuffled or shifted text changes the answer."""
    for family in FAMILIES:
        model = make_model(model_config(family))
        ids = [3, 14, 15, 9, 26, 5]
        answers = {
            tuple(generate(model, text, 8).ids)
            for text in (ids, ids[::-1], [ids[1], ids[0], *ids[2:]], [0, *ids], ids[1:])
        }
        assert len(answers) == 5, family
