"""The numbers in the figures of chapters 06 to 08, against what their code did not write."""

import re

import pytest
import torch

from llmlab.attention import causal_mask
from llmlab.figures import draw
from llmlab.figures.chapter_06 import LLAMA_8B, intensities
from llmlab.figures.chapter_08 import SHAPE, tile_states
from llmlab.memory.ledger import AttentionShape
from llmlab.memory.tile_programs import run_on_tiles


def shown(name):
    figure = draw(name)
    return [text.get_text() for text in figure.drawing.texts]


def test_intensities_by_hand():
    """Decode: 2 FLOPs a weight of 2 bytes, plus attention, over weights and cache."""
    weights = 32 * (4096 * (2 * 4096 + 2 * 1024) + 3 * 4096 * 14336) + 128256 * 4096
    attention = 32 * 4 * 32 * 128 * 1001  # layers, products, heads, head dim, keys
    row = 2 * 32 * 8 * 128 * 2  # bytes of cache a token
    for batch in (1, 8, 64):
        flops = batch * (2 * weights + attention)
        moved = 2 * weights + batch * (1001 + 1) * row
        assert intensities()[f"decode, batch {batch}"][1] == pytest.approx(flops / moved)
    assert LLAMA_8B.kv_heads == 8


def test_six_trips():
    q, k, v = torch.randn(3, 1, 1, 256, 64).half().unbind(0)
    trace = run_on_tiles("standard", q, k, v)[1].trace
    share = sum(trace.bytes(name) for name in "SP") / trace.total
    figure = draw("07_six_trips")
    assert f"{share:.0%} of what" in figure.title
    assert shown("07_six_trips").count("131 KB") == 4  # S and P, out and in: 256 * 256 * 2 bytes
    assert shown("07_six_trips").count("32.8 KB") == 4


def test_loop_orders():
    q, k, v = torch.randn(3, 1, 1, 1024, 64).half().unbind(0)
    first, second = (run_on_tiles(name, q, k, v)[1].trace.total for name in ("flash1", "flash"))
    assert f"{first / second:.2f} x fewer" in draw("07_loop_orders").title
    assert f"moves {first / 1e6:.2f} MB" in shown("07_loop_orders")
    assert f"moves {second / 1e6:.2f} MB" in shown("07_loop_orders")


@pytest.mark.parametrize("n_q", [160, 96, 40, 200])
def test_tiles_against_the_mask(n_q):
    """Whole: the mask allows all of the tile; skipped: none of it; diagonal: some."""
    shape = AttentionShape(n_q=n_q, n_k=160, head_dim=8, block_q=32, block_k=32, causal=True)
    mask = causal_mask(n_q, 160)
    for row, line in enumerate(tile_states(shape)):
        for column, state in enumerate(line):
            tile = mask[row * 32 : row * 32 + 32, column * 32 : column * 32 + 32]
            expected = "whole" if tile.all() else "diagonal" if tile.any() else "skipped"
            assert state == expected


def test_the_tiles_that_are_counted():
    visited, total = map(int, re.search(r"(\d+) of (\d+)", draw("08_causal_tiles").title).groups())
    assert (visited, total) == (15, 25)
    q = torch.randn(1, 1, SHAPE.n_q, 8)
    machine = run_on_tiles("flash", q, q, q, block_q=32, block_k=32, causal=True)[1]
    assert sum(event.tensor == "K" for event in machine.trace) == visited
