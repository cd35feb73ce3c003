"""Figures of chapter 07, second part: online softmax, and flash attention in key frames."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from llmlab.attention import OnlineSoftmax
from llmlab.figures import style
from llmlab.figures.page import BookFigure, Points, write
from llmlab.figures.primitives import Box, arrow, cell, legend, panel
from llmlab.memory.ledger import AttentionShape, attention_traffic
from llmlab.memory.tile_machine import TileMachine
from llmlab.memory.tile_programs import flash
from llmlab.memory.traffic import Traffic

MUTED = style.LIGHT["muted"]

# Online softmax.
SCORES = (1.0, 3.0, 2.0)
UNIT = 72.0  # points for a sum of 1
FLOOR = 180.0  # where the bars stand
BAR = 34.0

# Key frames. All numbers are fp32, so that bytes and areas have one scale.
SHAPE = AttentionShape(n_q=256, n_k=256, head_dim=64, dtype_bytes=4, score_bytes=4)
SRAM_BYTES = 100_000
SCALE = 0.28  # points for a row or column
BLOCK = SHAPE.block_q * SCALE
FRAME = 121.5  # points from one frame to the next
KINDS = {
    "Q": "query",
    "K": "key",
    "V": "value",
    "S": "scores",
    "P": "weights",
    "O": "output",
}
HBM = ("Q", "K", "V", "O")


def online_softmax() -> BookFigure:
    """Three scores, one at a time: what was summed is rescaled, what is new is added."""
    figure = BookFigure(
        height=252,
        title="A new maximum rescales the whole sum by one factor",
        alt=(
            "Three steps, for the scores 1, 3 and 2. Each has two bars: the sum l before, and the "
            "sum l after, which is the old one rescaled, pale, with the new score's term on top, "
            "in full colour. Score 1 starts at l = 1. Score 3 is a new maximum: the old sum "
            "shrinks by 0.1353 and 1 is added. Score 2 is none: the old sum stays and 0.3679 is "
            "added, which makes 1.5032."
        ),
    )
    state = OnlineSoftmax.start()
    for index, score in enumerate(SCORES):
        state = _arrival(figure, 26 + 168 * index, state, score)
    entries = [
        ("weights", "computed", "e^(score - m), new"),
        ("weights", "reused", "the sum so far"),
    ]
    legend(figure, style.MARGIN, 238, entries)
    return figure


def _arrival(figure: BookFigure, x: Points, state: OnlineSoftmax, score: float) -> OnlineSoftmax:
    """One score arrives: the old bar, the factor, the new bar. Returns the new state."""
    after, rescale, weight = state.update(torch.tensor([score]))
    write(figure, x, 44, f"score {score:g} arrives", bold=True)
    before = "none" if state.maximum.isinf() else f"{state.maximum:g}"
    write(figure, x, 58, f"m: {before} → {after.maximum:g}", color=MUTED)
    old, kept, new = (UNIT * float(value) for value in (state.sum, state.sum * rescale, weight))
    right = x + 78
    if old:
        cell(figure, Box(x, FLOOR - old, BAR, old), kind="weights", state="reused")
        cell(figure, Box(right, FLOOR - kept, BAR, kept), kind="weights", state="reused")
        arrow(figure, [(x + BAR + 4, FLOOR - 6), (right - 4, FLOOR - 6)])
        write(figure, x + BAR + 22, FLOOR - 18, f"× {rescale:.4f}", align="center")
    top = Box(right, FLOOR - kept - new, BAR, new)
    cell(figure, top, kind="weights", label=f"{float(weight):.4f}")
    for left, total in ((x, state.sum), (right, after.sum)):
        write(figure, left + BAR / 2, FLOOR + 12, f"l = {total:.4f}", align="center")
    write(figure, x + BAR / 2, FLOOR + 26, "before", align="center", color=MUTED)
    write(figure, right + BAR / 2, FLOOR + 26, "after", align="center", color=MUTED)
    return after


@dataclass(frozen=True)
class Frame:
    """The machine just after a move: what has moved so far, and what SRAM holds."""

    kind: str  # "load" or "store"
    tensor: str
    row: int  # the first row of the tile
    moved: int  # bytes, so far
    held: tuple[tuple[str, int], ...]  # (name, bytes) of each tile in SRAM


class WatchedMachine(TileMachine):
    """A tile machine that keeps a frame of every move, and of every tile made in SRAM."""

    def __init__(self, sram_bytes: int):
        super().__init__(sram_bytes)
        self.frames: list[Frame] = []

    def load(self, name, *where):
        tile = super().load(name, *where)
        self._take()
        return tile

    def store(self, name, *where_and_data):
        super().store(name, *where_and_data)
        self._take()

    def allocate(self, name, data):
        tile = super().allocate(name, data)
        self._take()
        return tile

    def _take(self) -> None:
        event = self.trace.events[-1]
        held = tuple((tile.name, tile.nbytes) for tile in self.held)
        row = event.tile[2][0]
        self.frames.append(Frame(event.kind, event.tensor, row, self.trace.total, held))


def key_frames() -> dict[str, Frame]:
    """The first block of queries on a tile machine: four of its moments."""
    machine = WatchedMachine(SRAM_BYTES)
    size = (1, 1, SHAPE.n_q, SHAPE.head_dim)
    for name in HBM:
        machine.place(name, torch.zeros(size))
    flash(machine, SHAPE)
    end = next(i for i, frame in enumerate(machine.frames) if frame.kind == "store")
    *row, stored = machine.frames[: end + 1]
    met = [frame for frame in row if frame.held[-1][0] == "S"]  # a query block meets a key block
    return {
        "1  Q comes in": row[0],
        "2  first K and V": met[0],
        "3  last K and V": met[-1],
        "4  O goes out": stored,
    }


def hbm_theatre() -> BookFigure:
    """Four moments of flash attention, and the bytes of the whole run, to scale."""
    standard, tiled = (_traffic(name) for name in ("standard", "flash"))
    share = tiled.total / standard.total
    figure = BookFigure(
        height=330,
        title=f"{share:.0%} of standard attention's bytes, and no score leaves the chip",
        alt=(
            "Four moments of flash attention for its first block of queries, HBM above and SRAM "
            "below, to scale. First a block of Q comes in. Then the first blocks of K and V, and "
            "a tile of scores S is made in SRAM. After the last blocks of K and V again one tile "
            "of scores. Last, a block of O goes out. SRAM is never full. Below, two bars of all "
            "bytes moved: flash attention reads K and V again and again, standard attention "
            "writes and reads S and P, and its bar is twice as long."
        ),
    )
    write(figure, style.MARGIN, 68, "HBM", color=MUTED)
    for index, (name, frame) in enumerate(key_frames().items()):
        _frame(figure, style.MARGIN + FRAME * index, name, frame)
    write(figure, style.MARGIN, 226, "All bytes moved in the end, to scale", bold=True)
    for y, name, traffic in ((246, "flash", tiled), (278, "standard", standard)):
        _bar(figure, y, name, traffic, 380 / standard.total)
    size = f"N = {SHAPE.n_q}, d = {SHAPE.head_dim}, blocks of {SHAPE.block_q}, fp32"
    note = f"{size}; SRAM of {SRAM_BYTES:,} bytes. Full colour: on the move, or in SRAM."
    write(figure, style.MARGIN, 316, note, color=MUTED)
    return figure


def _traffic(name: str) -> Traffic:
    return attention_traffic(
        name,
        n_q=SHAPE.n_q,
        n_k=SHAPE.n_k,
        head_dim=SHAPE.head_dim,
        block_q=SHAPE.block_q,
        block_k=SHAPE.block_k,
        dtype_bytes=SHAPE.dtype_bytes,
    )


def _frame(figure: BookFigure, x: Points, name: str, frame: Frame) -> None:
    """One moment: HBM with the tiles at work in full colour, an arrow, SRAM with what it holds."""
    write(figure, x, 38, name, bold=True)
    tops = _rows_at_work(frame)
    for position, tensor in enumerate(HBM):
        left = x + 24 + position * (BLOCK + 5)
        for block in range(SHAPE.n_q // SHAPE.block_q):
            at_work = tops.get(tensor) == block * SHAPE.block_q
            at_rest = "idle" if tensor == "O" else "reused"  # no O is written before the last frame
            cell(
                figure,
                Box(left, 60 + block * BLOCK, BLOCK, BLOCK),
                kind=KINDS[tensor],
                state="computed" if at_work else at_rest,
                label=tensor if at_work or not block else "",
            )
        if tensor in tops:
            ends = [(left + BLOCK / 2, 60 + SHAPE.n_q * SCALE + y) for y in (3, 19)]
            arrow(figure, ends if frame.kind == "load" else ends[::-1])
    sram = Box(x, 156, SRAM_BYTES / SHAPE.dtype_bytes / SHAPE.block_q * SCALE, BLOCK)
    left = sram.x
    for tile, label in _tiles_in_sram(frame):
        cell(figure, Box(left, sram.y, tile, BLOCK), kind=KINDS[label], label=label)
        left += tile
    panel(figure, sram)
    used = sum(size for _, size in frame.held)
    write(figure, x, 184, f"SRAM {used / SRAM_BYTES:.0%} full", color=MUTED)
    write(figure, x, 198, f"moved {style.format_bytes(frame.moved)}", color=MUTED)


def _rows_at_work(frame: Frame) -> dict[str, int]:
    """First rows of the tiles that have just moved: K and V go together."""
    names = ("K", "V") if frame.tensor == "V" else (frame.tensor,)
    return dict.fromkeys(names, frame.row)


def _tiles_in_sram(frame: Frame) -> Iterator[tuple[Points, str]]:
    """Widths and names of the tiles that SRAM holds, all as high as a block; m and l are one
    column each, too thin to see, and left out."""
    for name, size in frame.held:
        if name in KINDS:
            yield size / SHAPE.dtype_bytes / SHAPE.block_q * SCALE, name


def _bar(figure: BookFigure, y: Points, name: str, traffic: Traffic, per_byte: float) -> None:
    """All that was moved: one piece for each tensor and direction, in the order of KINDS."""
    write(figure, style.MARGIN, y + 9, name)
    x = style.MARGIN + 54
    for tensor, kind in KINDS.items():
        for moved in (traffic.read, traffic.written):
            if tensor in moved:
                width = moved[tensor] * per_byte
                cell(figure, Box(x, y, width, 18), kind=kind, label=tensor)
                x += width
    write(figure, x + 4, y + 9, style.format_bytes(traffic.total), color=MUTED)
