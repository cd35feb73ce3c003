"""Figures of chapter 02: a table of vectors, and three ways to say where a token stands."""

import math

import torch
from matplotlib.patches import Circle, Rectangle
from torch import Tensor

from llmlab.embedding import (
    apply_rotary,
    rotary_frequencies,
    rotary_tables,
    sinusoidal_positions,
)
from llmlab.figures import style
from llmlab.figures.page import BookFigure, Points, write
from llmlab.figures.primitives import Box, arrow, cell, chart, chip, panel
from llmlab.tokenization import load_tokenizer

INK, MUTED, LINE = (style.LIGHT[name] for name in ("ink", "muted", "line"))
SENTENCE = "time flies like an arrow"
TABLE_ROWS, TABLE_WIDTH = 30_522, 768  # of bert-base-uncased
POSITIONS, WIDTH = 28, 16  # of the drawn table of sinusoidal positions
# One pair of numbers for a query and one for a key, as in the chapter's cells.
QUERY, KEY = (2.0, 1.0), (1.0, 2.0)
DIALS = ((3, 1), (5, 3), (9, 7), (9, 6))  # (query position, key position)


def lookup() -> BookFigure:
    """The ids of the running sentence as places in BERT's table, which is drawn to scale."""
    tokenizer = load_tokenizer("bert-base-uncased")
    ids = tokenizer.encode(SENTENCE)
    figure = BookFigure(
        height=226,
        title="An id is a place in the table, and the row there is the token's vector",
        alt=(
            f"The tokens of '{SENTENCE}' with their ids {', '.join(map(str, ids))}. From each an "
            f"arrow points to its place in a table of {TABLE_ROWS} rows of {TABLE_WIDTH} numbers, "
            "a long thin strip when drawn to scale; an arrow from there leads to the row of "
            "numbers that stands for the token. Three of the ids lie close together near the "
            "start of the table, because its rows are ordered by how common a token is."
        ),
    )
    strip = Box(style.MARGIN, 104, style.PRINT_WIDTH - 2 * style.MARGIN, 12.2)
    panel(figure, strip)
    label = f"the table, [{TABLE_ROWS}, {TABLE_WIDTH}], drawn to scale and lying on its side"
    write(figure, strip.right - 6, strip.center[1], label, align="right", color=MUTED)
    for index, (token, number) in enumerate(zip(SENTENCE.split(), ids, strict=True)):
        x = 52 + index * 100
        chip(figure, Box(x - 28, 36, 56, 17), token)
        write(figure, x, 64, str(number), align="center", color=MUTED)
        place = strip.x + strip.width * number / TABLE_ROWS
        if abs(x - place) > 1:
            arrow(figure, [(x, 73), (place, strip.y - 1)], head=4)
        arrow(figure, [(place, strip.bottom + 1), (x, 158)], head=4)
        for column in range(6):
            cell(
                figure,
                Box(x - 33 + column * 11, 160, 11, 11),
                kind="query",
                state="idle",
                label="…" if column == 5 else "",
            )
    write(
        figure,
        style.PRINT_WIDTH / 2,
        190,
        f"five rows of {TABLE_WIDTH} numbers: [1, {len(ids)}, {TABLE_WIDTH}]   (not to scale)",
        align="center",
        bold=True,
    )
    write(
        figure,
        style.PRINT_WIDTH / 2,
        208,
        "the same token always gets the same row, wherever it stands",
        align="center",
        color=MUTED,
    )
    return figure


def sinusoidal() -> BookFigure:
    """The table of sinusoidal positions as waves and as a map of its numbers."""
    table = sinusoidal_positions(POSITIONS, WIDTH)  # [T, C]
    figure = BookFigure(
        height=296,
        title="Each pair of columns is a wave, from fast to slow",
        alt=(
            f"Above: three sine waves over positions 0 to {POSITIONS - 1}, the fast first column "
            "with a wavelength of 6.3 positions, a slower and a hardly moving one; a mark at each "
            f"whole position. Below: the whole table, {POSITIONS} positions from left to right by "
            f"{WIDTH} columns from top to bottom, dark where the number is 1 and white where it "
            "is -1. The upper pairs alternate quickly, the lower ones stay as they are. No two "
            "positions have the same numbers."
        ),
    )
    step = 13.0
    area = Box(62, 58, POSITIONS * step, 62)
    axes = chart(figure, area, x_label="", y_label="three of the columns")
    for row, (column, look) in enumerate(((0, "-"), (4, "--"), (8, ":"))):
        fine = torch.linspace(-0.5, POSITIONS - 0.5, 200)
        wave = torch.sin(fine * rotary_frequencies(WIDTH)[column // 2])
        axes.plot(fine, wave, color=INK, linestyle=look, linewidth=1.0, marker="")
        axes.plot(range(POSITIONS), table[:, column], color=INK, linestyle="", marker="o", ms=2)
        write(figure, area.right + 8, area.y + 14 + 13 * row, f"column {column}")
    axes.set_xlim(-0.5, POSITIONS - 0.5)
    axes.set_ylim(-1.1, 1.1)
    axes.set_xticks([])
    axes.set_yticks([-1, 0, 1])
    _map(figure, table, Box(62, 150, POSITIONS * step, WIDTH * 7.0))
    return figure


def _map(figure: BookFigure, table: Tensor, area: Box) -> None:
    """The table on its side: a row for each column, darker for larger numbers."""
    write(
        figure,
        area.x,
        area.y - 10,
        "the whole table, on its side (full: 1, empty: -1)",
        color=MUTED,
    )
    write(figure, area.right + 8, area.y - 10, "wavelength", color=MUTED)
    width, height = area.width / table.shape[0], area.height / table.shape[1]
    for column, numbers in enumerate(table.T.tolist()):
        for position, number in enumerate(numbers):
            patch = Rectangle(
                (area.x + position * width, area.y + column * height),
                width,
                height,
                facecolor=(INK, round((number + 1) / 2, 2)),
                linewidth=0,
            )
            figure.drawing.add_patch(patch)
    panel(figure, area)
    for pair, frequency in enumerate(rotary_frequencies(table.shape[1]).tolist()):
        middle = area.y + (2 * pair + 1) * height
        write(figure, area.x - 8, middle, f"pair {pair}", align="right")
        wavelength = 2 * math.pi / frequency
        digits = 1 if wavelength < 10 else 0
        write(figure, area.right + 8, middle, f"{wavelength:,.{digits}f}")
    for position in range(0, table.shape[0], 4):
        x = area.x + (position + 0.5) * width
        write(figure, x, area.bottom + 9, str(position), align="center", color=MUTED)
    write(figure, area.center[0], area.bottom + 23, "position", align="center", color=MUTED)


def rotated(pair: tuple[float, float], position: int) -> tuple[float, float]:
    """A head of two numbers at this position, turned by the package's own function."""
    x = torch.tensor(pair).view(1, 1, 1, 2)  # [B, H, T, D]
    cos, sin = rotary_tables(torch.tensor([[position]]), 2)
    return tuple(apply_rotary(x, cos, sin).flatten().tolist())


def rotary() -> BookFigure:
    """A key that turns with its position, and the score of turned queries and keys."""
    scores = [_score(*positions) for positions in DIALS]
    figure = BookFigure(
        height=298,
        title="Turn a query and a key by their positions: distance alone sets their score",
        alt=(
            "Above: one key of two numbers, drawn as an arrow on a dial, at positions 0 to 6; it "
            "turns by one radian from each position to the next and keeps its length. Below: a "
            "query and a key on four dials. Query at 3 and key at 1, query at 5 and key at 3, "
            f"query at 9 and key at 7: the same angle between them and the same score, "
            f"{scores[0]:.2f}. Query at 9 and key at 6: another distance, another score, "
            f"{scores[3]:.2f}."
        ),
    )
    write(figure, style.MARGIN, 42, "one key at seven positions, one radian further at each")
    for position in range(7):
        center = 50 + position * 67, 82
        _dial(figure, center, 26, {"key": rotated(KEY, position)})
        write(figure, center[0], 120, str(position), align="center", color=MUTED)
    write(figure, style.MARGIN, 148, "a query and a key, each turned by its own position")
    for index, ((query_at, key_at), score) in enumerate(zip(DIALS, scores, strict=True)):
        center = 68 + index * 123, 200
        _dial(figure, center, 38, {"query": rotated(QUERY, query_at), "key": rotated(KEY, key_at)})
        lines = (f"q at {query_at}, k at {key_at}", f"distance {query_at - key_at}")
        for line, text in enumerate(lines):
            write(figure, center[0], 253 + 13 * line, text, align="center", color=MUTED)
        write(figure, center[0], 280, f"q · k = {score:.2f}", align="center", bold=True)
    return figure


def _score(query_at: int, key_at: int) -> float:
    pairs = zip(rotated(QUERY, query_at), rotated(KEY, key_at), strict=True)
    return sum(query * key for query, key in pairs)


def _dial(
    figure: BookFigure,
    center: tuple[Points, Points],
    radius: Points,
    hands: dict[str, tuple[float, float]],
) -> None:
    """A circle with a hand for each vector, whose length is to scale; y points up."""
    figure.drawing.add_patch(
        Circle(center, radius, facecolor="none", edgecolor=LINE, linewidth=0.8, clip_on=False)
    )
    x, y = center
    for name, hand in hands.items():
        length = math.hypot(*hand)
        dx, dy = hand[0] / length, -hand[1] / length
        arrow(
            figure,
            [(x, y), (x + radius * dx, y + radius * dy)],
            color=style.COLORS[name],
            head=6,
        )
        label_x, label_y = x + (radius - 13) * dx - 6 * dy, y + (radius - 13) * dy + 6 * dx
        write(figure, label_x, label_y, name[0], align="center", bold=True)


def where_positions_enter() -> BookFigure:
    """Learned and sinusoidal positions are added once; rotary ones turn every layer's q and k."""
    figure = BookFigure(
        height=214,
        title="Positions are added once to the vectors, or turn q and k in every layer",
        alt=(
            "Two pipelines. Left, learned or sinusoidal: the token's row plus the position's row "
            "gives the vector that enters the first block, and query, key and value are all made "
            "from it. Right, rotary: the token's row alone enters the first block; in every "
            "layer, query and key are turned by the position before they meet, and the value is "
            "not turned."
        ),
    )
    _pipeline(figure, style.MARGIN, "learned, sinusoidal: added", added=True)
    _pipeline(figure, 262, "rotary: turned, in every layer", added=False)
    return figure


def _pipeline(figure: BookFigure, left: Points, name: str, *, added: bool) -> None:
    """One way of telling positions, from the token at the top to q, k and v at the bottom."""
    write(figure, left, 40, name, bold=True)
    token = panel(figure, Box(left, 56, 84, 22))
    write(figure, *token.center, "token's row", align="center")
    if added:
        position = panel(figure, Box(left + 112, 56, 96, 22))
        write(figure, *position.center, "position's row", align="center")
        write(figure, left + 98, 67, "+", align="center", bold=True)
        arrow(figure, [(position.center[0], 78), (position.center[0], 96), (left + 88, 96)])
    block = panel(figure, Box(left, 86, 84, 22))
    arrow(figure, [(token.center[0], 78), (token.center[0], 86)], head=4)
    write(figure, *block.center, "vector x", align="center")
    for index, kind in enumerate(("query", "key", "value")):
        x = left + 28 + index * 78
        arrow(figure, [(left + 42, 108), (left + 42, 120), (x, 120), (x, 132)], head=4)
        cell(figure, Box(x - 26, 132, 52, 18), kind=kind, label=kind)
        turned = not added and kind != "value"
        if turned:
            arrow(figure, [(x, 150), (x, 160)], head=4)
            frame = panel(figure, Box(x - 36, 160, 72, 18), dashed=True)
            write(figure, *frame.center, "turn by position", align="center")
        arrow(figure, [(x, 178 if turned else 150), (x, 190)], head=4)
    write(figure, left + 106, 201, "to attention", align="center", color=MUTED)
