"""The numbers in the figures of online softmax and of flash attention's key frames."""

import math

import pytest
import torch
from matplotlib.patches import Rectangle

from llmlab.figures import draw, style
from llmlab.figures.chapter_07_tiles import SCORES, SRAM_BYTES, UNIT, key_frames
from llmlab.memory.tile_programs import run_on_tiles

TILE = 64 * 64 * 4  # bytes of a block of Q, K, V, O or S


def shown(figure):
    return [text.get_text() for text in figure.drawing.texts]


def sizes(figure, color):
    """Width and height of every rectangle of one colour, pale or full, in points."""
    return [
        (patch.get_width(), patch.get_height())
        for patch in figure.drawing.patches
        if isinstance(patch, Rectangle)
        and patch.get_facecolor()[:3] == pytest.approx(tuple(_rgb(color)))
    ]


def _rgb(color):
    return [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]


def test_online_softmax_ends_where_softmax_begins():
    figure = draw("07_online_softmax")
    texts = shown(figure)
    for count in (1, 2, 3):
        seen = SCORES[:count]
        total = sum(math.exp(score - max(seen)) for score in seen)
        assert f"l = {total:.4f}" in texts
    assert f"× {math.exp(1 - 3):.4f}" in texts
    assert f"{math.exp(2 - 3):.4f}" in texts
    assert f"{float(torch.tensor(SCORES).exp().sum().log()):.6f}" == f"{3 + math.log(total):.6f}"


def test_online_softmax_bars_are_as_high_as_their_numbers():
    heights = [height for _, height in sizes(draw("07_online_softmax"), style.COLORS["weights"])]
    bars = [1, 1, math.exp(-2), 1, 1 + math.exp(-2), 1 + math.exp(-2), math.exp(-1)]
    legend = [11, 11]
    assert sorted(heights) == pytest.approx(sorted([UNIT * bar for bar in bars] + legend))


def test_key_frames_by_hand():
    """One block of queries: Q, then K and V four times, then O; m and l are 64 fp32 each."""
    first, met, last, out = key_frames().values()
    assert [frame.moved // TILE for frame in (first, met, last, out)] == [1, 3, 9, 10]
    assert (first.kind, first.tensor, first.row) == ("load", "Q", 0)
    assert (met.tensor, met.row, last.tensor, last.row) == ("V", 0, "V", 192)
    assert (out.kind, out.tensor, out.row) == ("store", "O", 0)
    statistics = 2 * 64 * 4
    used = [sum(size for _, size in frame.held) for frame in (first, met, last, out)]
    assert used == [TILE, 5 * TILE + statistics, 5 * TILE + statistics, 2 * TILE + statistics]
    texts = shown(draw("07_hbm_theatre"))
    for frame, held in zip((first, met, last, out), used, strict=True):
        assert f"moved {frame.moved / 1000:.3g} KB" in texts
        assert f"SRAM {held / SRAM_BYTES:.0%} full" in texts


def test_the_theatre_is_to_scale():
    """Areas of tiles and the SRAM frame go with bytes; lengths of the two bars too."""
    figure = draw("07_hbm_theatre")
    scores = sizes(figure, style.COLORS["scores"])
    tiles = [size for size in scores if size[0] == pytest.approx(size[1])]
    assert len(tiles) == 2  # one in each of two frames, and no more of S than that
    frames = [
        (patch.get_width(), patch.get_height())
        for patch in figure.drawing.patches
        if isinstance(patch, Rectangle) and patch.get_facecolor()[3] == 0
    ]
    assert len(frames) == 4
    for width, height in frames:
        assert width * height / math.prod(tiles[0]) == pytest.approx(SRAM_BYTES / TILE)
    q, k, v = torch.randn(3, 1, 1, 256, 64).unbind(0)
    traces = {name: run_on_tiles(name, q, k, v)[1].trace for name in ("standard", "flash")}
    share = traces["flash"].total / traces["standard"].total
    assert figure.title.startswith(f"{share:.0%} of standard")
    pieces = [width for width, height in sizes(figure, style.COLORS["key"]) if height == 18]
    expected = [trace.bytes("K") for trace in traces.values()]
    assert max(pieces) / min(pieces) == pytest.approx(max(expected) / min(expected))
    bars = [width for width, height in scores if height == 18]
    per_byte = min(pieces) / min(expected)
    assert bars == pytest.approx([traces["standard"].bytes("S") / 2 * per_byte] * 2)
    for trace in traces.values():
        assert style.format_bytes(trace.total) in shown(figure)
