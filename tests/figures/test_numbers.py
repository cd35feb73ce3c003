"""The numbers in the figures, against what the figures' code did not write."""

import functools
from importlib.resources import files

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer
from torch.nn.functional import scaled_dot_product_attention

from llmlab.cache import DynamicKVCache, StaticKVCache
from llmlab.figures import draw
from llmlab.figures.chapter_00 import PROMPT, REQUESTS, Request, schedule
from llmlab.figures.chapter_05 import KEY, QUERY, VALUE, _short, attention_at
from llmlab.figures.chapter_05_cost import TINY, Growth, growth, projected_per_step


@functools.cache
def shown(name):
    return [text.get_text() for text in draw(name).drawing.texts]


@pytest.mark.parametrize("step", [1, 2, 3, 4])
def test_the_small_attention_equals_pytorchs(step):
    q, k, v = QUERY[:step], KEY[:step], VALUE[:step]
    mask = torch.ones(step, step).tril().bool()
    expected = scaled_dot_product_attention(q[None], k[None], v[None], attn_mask=mask)[0]
    assert torch.allclose(attention_at(step, cached=False).output[0, 0], expected, atol=1e-6)
    assert torch.allclose(attention_at(step, cached=True).output[0, 0], expected[-1:], atol=1e-6)


def test_the_rows_called_computed_again_are_the_same_numbers():
    for step in (2, 3, 4):
        before, now = attention_at(step - 1, cached=False), attention_at(step, cached=False)
        for stage in ("scores", "weights"):
            old, new = getattr(before, stage)[0, 0], getattr(now, stage)[0, 0]
            assert torch.allclose(old.tril(), new[:-1, :-1].tril(), atol=1e-6)
        assert torch.allclose(before.output[0, 0], now.output[0, 0, :-1], atol=1e-6)


@pytest.mark.parametrize(
    ("value", "decimals", "text"),
    [
        (0.674, 2, ".67"),
        (1.0, 2, "1"),
        (0.0, 1, "0"),
        (2.12, 1, "2.1"),
        (0.999, 2, "1"),
        (3, 1, "3"),
    ],
)
def test_numbers_in_cells(value, decimals, text):
    assert _short(float(value), decimals) == text


def test_the_last_row_by_hand():
    """q = (2, 1): scores 3 1 4 4; exp((s - 4) / √2) = .493 .120 1 1; sum 2.613."""
    labels = shown("05_attention_with_cache")
    for number in (".19", ".05", ".38", "2.1", "1.2"):
        assert number in labels


def test_projected_tokens_in_the_step_figures():
    assert "sum 10" in shown("05_attention_without_cache")
    assert "sum 4" in shown("05_attention_with_cache")


@given(st.integers(1, 12))
@settings(deadline=None, derandomize=True, max_examples=6)
def test_projected_tokens_follow_the_closed_forms(n):
    naive = projected_per_step(n, cache=None)
    assert naive == list(range(1, n + 1))
    assert sum(naive) == n * (n + 1) // 2
    for cache in ("dynamic", "static"):
        assert projected_per_step(n, cache=cache) == [1] * n


def test_projected_tokens_as_shown():
    labels = shown("05_projected_tokens")
    assert "2,080" in labels  # 64 x 65 / 2
    assert "64" in labels
    assert "no cache: 36 tokens" in labels  # 8 x 9 / 2


def test_growth_of_the_caches_by_hand():
    dynamic = growth(DynamicKVCache(TINY), 4)
    assert dynamic == [Growth(0, 1), Growth(1, 2), Growth(2, 3), Growth(3, 4)]
    static = growth(StaticKVCache(TINY, batch_size=1, max_length=8), 4)
    assert static == [Growth(0, 8)] * 4


def test_bytes_of_one_token_by_hand():
    labels = shown("05_cache_bytes")
    assert "131,072 B" in labels
    # 2 x layers x kv heads x head dim x 2 bytes: 36,864; 57,344; 131,072; 147,456; 524,288
    bars = ["36.9 KB", "57.3 KB", "131 KB", "147 KB", "524 KB"]
    assert [label for label in labels if label in bars][-5:] == bars


def test_pipeline_shows_the_ids_of_the_embedded_tokenizer():
    """As the `tokenizers` library reads the same file."""
    folder = files("llmlab") / "assets" / "toyworld"
    encoded = Tokenizer.from_file(str(folder / "tokenizer.json")).encode(
        PROMPT, add_special_tokens=False
    )
    labels = shown("00_pipeline")
    for word, number in zip(PROMPT.split(), encoded.ids, strict=True):
        assert word in labels
        assert str(number) in labels
    assert labels.count("arrow") == 2  # the next token, and fed back


def test_schedule_by_hand():
    assert schedule(REQUESTS[1]) == {4: ("the", "capital", "of", "France", "is"), 5: ("Paris",)}
    labels = shown("00_two_requests")
    row = labels[labels.index("tokens computed") - 11 : labels.index("tokens computed")]
    assert [label for label in row if label.isdigit()] == ["3", "1", "1", "6", "2", "1"]


words = st.lists(st.text(min_size=1, max_size=3), min_size=1, max_size=6).map(tuple)


@given(st.integers(1, 9), words, words)
@settings(deadline=None, derandomize=True, max_examples=50)
def test_a_schedule_computes_every_token_but_the_last_once(arrival, prompt, answer):
    plan = schedule(Request("R", arrival, prompt, answer))
    computed = tuple(token for tokens in plan.values() for token in tokens)
    assert computed == prompt + answer[:-1]
    assert list(plan) == list(range(arrival, arrival + len(answer)))
    assert all(len(tokens) == 1 for tokens in list(plan.values())[1:])
