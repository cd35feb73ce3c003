"""What the book's figures are made of: cells, matrices, token chips, arrows, a legend, a chart.

Lengths are points, y runs down (see `BookFigure`). Every primitive returns the `Box` it fills, so
that the next one can be placed beside it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.patches import Circle, FancyBboxPatch, Polygon, Rectangle

from llmlab.figures import style
from llmlab.figures.page import BookFigure, Points, write

STATES = ("computed", "recomputed", "reused", "masked", "idle")


@dataclass(frozen=True)
class Box:
    """A rectangle on the page, in points: its top left corner and its size."""

    x: Points
    y: Points
    width: Points
    height: Points

    @property
    def right(self) -> Points:
        return self.x + self.width

    @property
    def bottom(self) -> Points:
        return self.y + self.height

    @property
    def center(self) -> tuple[Points, Points]:
        return self.x + self.width / 2, self.y + self.height / 2


def cell(
    figure: BookFigure,
    box: Box,
    *,
    kind: str,
    state: str = "computed",
    label: str = "",
) -> Box:
    """One cell of a matrix or one block of a timeline.

    `kind` is what it holds, a name in `style.COLORS`; `state` is what happens to it: computed (full
    colour), recomputed (hatched), reused (pale, outlined), masked (grey, a dot), idle (white).
    """
    if state not in STATES:
        raise ValueError(f"{state!r} is no state of a cell; the states are {', '.join(STATES)}")
    color, paper = _color(kind), style.LIGHT["paper"]
    face, edge, text_color = {
        "computed": (color, paper, style.text_color_on(color)),
        "recomputed": ((color, style.RECOMPUTED_ALPHA), color, style.LIGHT["ink"]),
        "reused": ((color, style.REUSED_ALPHA), color, style.LIGHT["ink"]),
        "masked": (style.LIGHT["masked"], paper, style.LIGHT["muted"]),
        "idle": (paper, style.LIGHT["line"], style.LIGHT["muted"]),
    }[state]
    # Outlines lie above their neighbours, so that all four sides of a cell show.
    layer = 2 if edge == color else 1
    _rectangle(figure, box, facecolor=face, edgecolor=edge, linewidth=0.8, zorder=layer)
    if state == "recomputed":
        # Drawn apart, since one opacity would hold for the tint and the hatch.
        hatched = {"facecolor": "none", "edgecolor": color, "hatch": style.HATCH}
        _rectangle(figure, box, **hatched, linewidth=0.8, zorder=layer)
    elif state == "masked":
        dot = Circle(box.center, 1.3, facecolor=style.LIGHT["muted"], linewidth=0, clip_on=False)
        figure.drawing.add_patch(dot)
        if label:  # a paler plate keeps the number readable
            width = 5.0 * len(label) + 1
            plate = Box(box.center[0] - width / 2, box.center[1] - 4.5, width, 9)
            _rectangle(figure, plate, facecolor=(paper, 0.8), linewidth=0, zorder=layer)
    if label:
        write(figure, *box.center, label, align="center", color=text_color)
    return box


def matrix(
    figure: BookFigure,
    x: Points,
    y: Points,
    labels: Sequence[Sequence[str]],
    *,
    kind: str,
    state: str | Callable[[int, int], str] = "computed",
    cell_size: Points = 17.0,
) -> Box:
    """A matrix drawn to scale, one square cell a number.

    `labels[row][column]` is written into the cell (`""`: nothing). `state` is one for all cells, or
    a function of row and column.
    """
    for row, row_labels in enumerate(labels):
        for column, label in enumerate(row_labels):
            cell(
                figure,
                Box(x + column * cell_size, y + row * cell_size, cell_size, cell_size),
                kind=kind,
                state=state if isinstance(state, str) else state(row, column),
                label=label,
            )
    return Box(x, y, len(labels[0]) * cell_size, len(labels) * cell_size)


def chip(figure: BookFigure, box: Box, token: str, *, kind: str | None = None) -> Box:
    """A token: its text in a rounded frame, in the colour of `kind` or white."""
    face = _color(kind) if kind else style.LIGHT["paper"]
    patch = FancyBboxPatch(
        (box.x, box.y),
        box.width,
        box.height,
        boxstyle=f"round,pad=0,rounding_size={min(4.0, box.height / 3)}",
        facecolor=face,
        edgecolor=face if kind else style.LIGHT["line"],
        linewidth=1.0,
        clip_on=False,
    )
    figure.drawing.add_patch(patch)
    color = style.text_color_on(face) if kind else style.LIGHT["ink"]
    write(figure, *box.center, token, align="center", color=color)
    return box


def panel(figure: BookFigure, box: Box, *, dashed: bool = False, filled: bool = False) -> Box:
    """A frame: around a group of things, or (dashed) where something could be and is not.

    A `filled` one hides what lies behind it.
    """
    _rectangle(
        figure,
        box,
        facecolor=style.LIGHT["paper"] if filled else "none",
        edgecolor=style.LIGHT["line"],
        linewidth=0.8,
        linestyle=(0, (2, 2)) if dashed else "solid",
    )
    return box


def arrow(
    figure: BookFigure,
    points: Sequence[tuple[Points, Points]],
    *,
    color: str = style.LIGHT["muted"],
    head: Points = 5.0,
) -> None:
    """An arrow along straight lines through `points`; `head` is the length of its tip."""
    (before_x, before_y), (tip_x, tip_y) = points[-2], points[-1]
    length = ((tip_x - before_x) ** 2 + (tip_y - before_y) ** 2) ** 0.5
    dx, dy = (tip_x - before_x) / length * head, (tip_y - before_y) / length * head
    base_x, base_y = tip_x - dx, tip_y - dy
    xs, ys = zip(*points[:-1], (base_x, base_y), strict=True)
    figure.drawing.plot(
        xs, ys, color=color, linewidth=1.0, marker="", clip_on=False, solid_capstyle="butt"
    )
    half_x, half_y = -dy * 0.45, dx * 0.45
    corners = [
        (tip_x, tip_y),
        (base_x + half_x, base_y + half_y),
        (base_x - half_x, base_y - half_y),
    ]
    figure.drawing.add_patch(Polygon(corners, facecolor=color, linewidth=0, clip_on=False))


def legend(
    figure: BookFigure, x: Points, y: Points, entries: Sequence[tuple[str, str, str]]
) -> Points:
    """A row of sample cells with their meaning: (kind, state, text) each; returns the x after."""
    for kind, state, text in entries:
        cell(figure, Box(x, y - 5.5, 11, 11), kind=kind, state=state)
        write(figure, x + 15, y, text, color=style.LIGHT["muted"])
        x += 28 + 0.6 * style.TEXT_SIZE * len(text)  # room for a wide font
    return x


def chart(figure: BookFigure, box: Box, *, x_label: str, y_label: str) -> Axes:
    """Axes for a chart whose plotting area is `box`, with its labels written level.

    The tick labels take about 35 points to the left of the box and 15 below it, `y_label` stands
    above the upper left corner, `x_label` below the middle.
    """
    left, bottom = box.x / style.PRINT_WIDTH, 1 - box.bottom / figure.height
    size = (box.width / style.PRINT_WIDTH, box.height / figure.height)
    axes = figure.add_axes((left, bottom, *size))
    write(figure, box.x, box.y - 10, y_label, color=style.LIGHT["muted"])
    write(
        figure, box.center[0], box.bottom + 24, x_label, align="center", color=style.LIGHT["muted"]
    )
    return axes


def _rectangle(figure: BookFigure, box: Box, **look: object) -> None:
    patch = Rectangle((box.x, box.y), box.width, box.height, clip_on=False, **look)
    figure.drawing.add_patch(patch)


def _color(kind: str) -> str:
    if kind not in style.COLORS:
        known = ", ".join(style.COLORS)
        raise ValueError(f"{kind!r} has no colour in the book's palette; it has {known}")
    return style.COLORS[kind]
