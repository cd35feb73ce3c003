"""Figures of chapter 07: what standard attention carries, and the two orders of flash attention."""

from llmlab.figures import style
from llmlab.figures.page import BookFigure, Points, write
from llmlab.figures.primitives import Box, arrow, cell, legend
from llmlab.memory.ledger import attention_traffic

MUTED = style.LIGHT["muted"]
N, D = 256, 64  # the size that the matrices are drawn for
SCALE = 0.26  # points for a row or column
SLOT, GAP = 40.0, 6.0  # points: the least room of a matrix with its label, and between two
KINDS = {"Q": "query", "K": "key", "V": "value", "S": "scores", "P": "weights", "O": "output"}
PASSES = (("Q", "K", "S"), ("S", "P"), ("P", "V", "O"))  # the last of each is written
GRID = 4  # blocks of queries and of keys
TILE = 22.0


def six_trips() -> BookFigure:
    """Three kernels, and what each reads and writes, to scale."""
    traffic = attention_traffic("standard", n_q=N, n_k=N, head_dim=D)
    scores = sum(traffic.read[x] + traffic.written[x] for x in ("S", "P"))
    figure = BookFigure(
        height=250,
        title=f"{scores / traffic.total:.0%} of what standard attention moves are S and P",
        alt=(
            "Standard attention as three kernels between HBM and the chip: Q and K in, S out; S "
            f"in, P out; P and V in, O out. The matrices are drawn to scale for {N} tokens and {D} "
            f"numbers each: S and P are {N // D} times as large as Q, K, V and O, and each crosses "
            "twice."
        ),
    )
    names = ("S = Q K^T", "P = softmax(S)", "O = P V")
    write(figure, style.MARGIN, 40, "on the chip: three kernels", color=MUTED)
    x = style.MARGIN
    for name, tensors in zip(names, PASSES, strict=True):
        x = _kernel(figure, x, name, tensors, traffic) + 14
    write(figure, style.MARGIN, 238, f"in HBM, to scale: N = {N}, d = {D}, fp16", color=MUTED)
    return figure


def _kernel(figure: BookFigure, x: Points, name: str, tensors: tuple[str, ...], traffic) -> Points:
    """One kernel: its name in a frame on the chip, its operands below, arrows between.

    Returns the x of its right edge.
    """
    widths = [(N if tensor in "SP" else D) * SCALE for tensor in tensors]
    slots = [max(width, SLOT) for width in widths]
    chip = Box(x, 52, sum(slots) + GAP * (len(slots) - 1), 30)
    cell(figure, chip, kind="output", state="idle")
    write(figure, *chip.center, name, align="center", bold=True)
    for position, (tensor, width, slot) in enumerate(zip(tensors, widths, slots, strict=True)):
        written = position == len(tensors) - 1
        box = Box(x + (slot - width) / 2, 150, width, N * SCALE)
        cell(figure, box, kind=KINDS[tensor], label=tensor)
        middle = box.center[0]
        ends = [(middle, chip.bottom + 2), (middle, box.y - 16)]
        arrow(figure, ends if written else ends[::-1])
        size = (traffic.written if written else traffic.read)[tensor]
        write(figure, middle, box.y - 8, style.format_bytes(size), align="center")
        x += slot + GAP
    return chip.right


def loop_orders() -> BookFigure:
    """The grid of tiles, walked through by columns and by rows."""
    sizes = {"n_q": 1024, "n_k": 1024, "head_dim": 64}
    first, second = (attention_traffic(name, **sizes).total for name in ("flash1", "flash"))
    figure = BookFigure(
        height=236,
        title=f"Queries outside: {first / second:.2f} x fewer bytes at N = 1,024 with blocks of 64",
        alt=(
            "Two loop orders on the tile grid. Left, FlashAttention-1: key blocks outside; Q, O, l "
            "and m come in, and O, l and m go out again for each key block. Right, "
            "FlashAttention-2: query blocks outside; only K and V come in again, and O goes out "
            "once."
        ),
    )
    _order(figure, 20, "FlashAttention-1: keys outside", by_columns=True, total=first)
    _order(figure, 250, "FlashAttention-2: queries outside", by_columns=False, total=second)
    entries = [
        ("query", "computed", "Q"),
        ("key", "computed", "K"),
        ("value", "computed", "V"),
        ("output", "computed", "O, l, m"),
    ]
    legend(figure, style.MARGIN, 224, entries)
    return figure


def _order(figure: BookFigure, x: Points, name: str, *, by_columns: bool, total: int) -> None:
    write(figure, x, 44, name, bold=True)
    left, top = x + 46, 92
    for index in range(GRID):
        kinds = ("key", "value")
        for offset, kind in enumerate(kinds):
            box = Box(left + index * TILE, top - 26 + 12 * offset, TILE, 11)
            cell(figure, box, kind=kind, label="KV"[offset] if index == 0 else "")
        box = Box(left - 26, top + index * TILE, 11, TILE)
        cell(figure, box, kind="query", label="Q" if index == 0 else "")
        box = Box(left - 14, top + index * TILE, 11, TILE)
        cell(figure, box, kind="output", label="O" if index == 0 else "")
    for row in range(GRID):
        for column in range(GRID):
            order = column * GRID + row if by_columns else row * GRID + column
            box = Box(left + column * TILE, top + row * TILE, TILE, TILE)
            cell(figure, box, kind="scores", label=str(order + 1))
    lines = (
        ("a column: K, V stay", "a tile: Q, O, l, m in", "and O, l, m out")
        if by_columns
        else ("a row: Q, O stay", "a tile: K, V in", "a row's end: O out")
    )
    for index, line in enumerate(lines):
        write(figure, left + GRID * TILE + 10, top + 16 + 16 * index, line)
    write(figure, left, top + GRID * TILE + 16, f"moves {style.format_bytes(total)}", color=MUTED)
