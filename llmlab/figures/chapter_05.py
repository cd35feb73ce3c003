"""Figures of chapter 05, first part: decoding 遥遥领先 without and with a cache, step by step."""

from collections.abc import Callable

import torch
from torch import Tensor

from llmlab.attention import AttentionIntermediates, reference_attention
from llmlab.figures import style
from llmlab.figures.page import BookFigure, Points, write
from llmlab.figures.primitives import Box, cell, chip, legend, matrix, panel

# What is fed, one more at each step, and what each step gives.
FED = ("<s>", "遥", "遥", "领")
GIVEN = "遥遥领先"
# One head of two numbers a token, small and whole so that a reader can follow with a pencil. The
# two 遥 have different ones: their positions and the tokens before them have gone in.
QUERY = torch.tensor([[1.0, 0.0], [1.0, 1.0], [0.0, 2.0], [2.0, 1.0]])  # [T, D]
KEY = torch.tensor([[1.0, 1.0], [0.0, 1.0], [2.0, 0.0], [1.0, 2.0]])  # [S, D]
VALUE = torch.tensor([[1.0, 0.0], [0.0, 2.0], [3.0, 1.0], [2.0, 2.0]])  # [S, D]

CELL = 17.0
# Of each matrix: its left edge, letter, shape, and columns at the last step.
MATRICES = {
    "query": (71.0, "Q", "[T, D]", 2),
    "key": (119.0, "Kᵀ", "[D, S]", 4),
    "scores": (201.0, "scores", "[T, S]", 4),
    "weights": (285.0, "weights", "[T, S]", 4),
    "value": (367.0, "V", "[S, D]", 2),
    "output": (415.0, "output", "[T, D]", 2),
}
OPERATORS = ("×", "=", "→", "×", "=")  # before the second matrix, the third, ...
RIGHT = style.PRINT_WIDTH - style.MARGIN
MUTED = style.LIGHT["muted"]


def attention_at(step: int, *, cached: bool) -> AttentionIntermediates:
    """Attention over the first `step` tokens: every row, or with a cache the last row only."""
    query = QUERY[step - 1 : step] if cached else QUERY[:step]  # [T, D]
    return reference_attention(
        query[None, None],
        KEY[None, None, :step],
        VALUE[None, None, :step],
        causal=True,
        return_intermediates=True,
    )


def attention_without_cache() -> BookFigure:
    """Steps 1 to 4 of decoding 遥遥领先, everything fed back at every step."""
    figure = BookFigure(
        height=379,
        title="Without a cache, every step computes all earlier rows again",
        alt=(
            "Four rows, one a step, each with the matrices Q, K transposed, scores, weights, V and "
            "output for the tokens fed so far: the start token, 遥, 遥, 领. The steps give 遥, 遥, "
            "领 and 先. At step n all n rows are computed; the first n - 1 are hatched, since the "
            "step before had the same numbers. Scores above the diagonal are masked. The tokens "
            "projected are 1, 2, 3 and 4: 10 in all."
        ),
    )
    bottom = _steps(figure, cached=False)
    y = bottom + 22
    x = _states(figure, style.MARGIN, y, tuple(MATRICES), "computed", "new")
    x = _states(figure, x, y, tuple(MATRICES), "recomputed", "computed again, same numbers")
    legend(figure, x, y, [("scores", "masked", "masked: a later token")])
    return figure


def attention_with_cache() -> BookFigure:
    """Steps 1 to 4 of decoding 遥遥领先, keys and values kept."""
    figure = BookFigure(
        height=379,
        title="With a cache, every step computes one row and reads K and V",
        alt=(
            "The same four steps with a cache. Only the newest token is fed (the start token, 遥, "
            "遥, 领): Q, scores, weights and output have one row. K and V of earlier tokens come "
            "from the cache, pale with an outline; only their newest column and row are computed. "
            "Dashed frames show the rows that are not needed. One token is projected at every "
            "step: 4 in all."
        ),
    )
    bottom = _steps(figure, cached=True)
    y = bottom + 22
    x = _states(figure, style.MARGIN, y, tuple(MATRICES), "computed", "new")
    x = _states(figure, x, y, ("key", "value"), "reused", "K and V, read from the cache")
    panel(figure, Box(x, y - 5.5, 11, 11), dashed=True)
    write(figure, x + 15, y, "not computed", color=MUTED)
    return figure


def _states(
    figure: BookFigure, x: Points, y: Points, kinds: tuple[str, ...], state: str, text: str
) -> Points:
    """A legend's entry for a state that matrices of several colours share; the x after it."""
    for kind in kinds:
        cell(figure, Box(x, y - 5.5, 11, 11), kind=kind, state=state)
        x += 11
    write(figure, x + 4, y, text, color=MUTED)
    return x + 17 + 0.6 * style.TEXT_SIZE * len(text)  # room for a wide font


def _steps(figure: BookFigure, *, cached: bool) -> Points:
    """Draws the four steps below one another; returns the y of the line under them."""
    for x, letter, shape, columns in MATRICES.values():
        shape = shape.replace("T", "1") if cached else shape
        write(figure, x + columns * CELL / 2, 42, letter, align="center", bold=True)
        write(figure, x + columns * CELL / 2, 55, shape, align="center", color=MUTED)
    write(figure, RIGHT, 42, "tokens", align="right", color=MUTED)
    write(figure, RIGHT, 55, "projected", align="right", color=MUTED)
    projected, y = 0, 82.0
    for step in range(1, len(FED) + 1):
        rows = attention_at(step, cached=cached).output.shape[2]
        projected += rows
        _step(figure, y, step, cached=cached)
        write(figure, RIGHT, y + (step - 0.5) * CELL, str(rows), align="right", bold=True)
        y += max(step, 2) * CELL + 18
    y += 7  # the last step has its label under it
    write(figure, RIGHT, y + 2, f"sum {projected}", align="right", bold=True)
    formulas = {
        "scores = Q Kᵀ": 10,
        "weights = softmax(scores / √D)": 96,
        "output = weights V": 268,
    }
    for formula, x in formulas.items():
        write(figure, x, y + 2, formula, color=MUTED)
    return y


def _step(figure: BookFigure, y: Points, step: int, *, cached: bool) -> None:
    """One step: six matrices in a row. Row r of what has T rows is at y + r * CELL."""
    stages = attention_at(step, cached=cached)
    first = step - 1 if cached else 0  # the rows before it are not computed
    newest_y = y + (step - 0.5) * CELL
    old = "reused" if cached else "recomputed"

    def rows(row: int, column: int) -> str:
        return "computed" if first + row == step - 1 else "recomputed"

    def square(row: int, column: int) -> str:
        return "masked" if column > first + row else rows(row, column)

    _numbers(figure, "query", y + first * CELL, QUERY[first:step], rows)
    _numbers(figure, "key", y, KEY[:step].T, lambda _, column: _new_or(old, column, step))
    _numbers(figure, "scores", y + first * CELL, stages.scores[0, 0], square)
    _numbers(figure, "weights", y + first * CELL, stages.weights[0, 0], square)
    _numbers(figure, "value", y, VALUE[:step], lambda row, _: _new_or(old, row, step))
    _numbers(figure, "output", y + first * CELL, stages.output[0, 0], rows)
    for kind, columns in {"query": 2, "scores": step, "weights": step, "output": 2}.items():
        if first:
            x = MATRICES[kind][0]
            panel(figure, Box(x, y, columns * CELL, first * CELL), dashed=True)
    _step_labels(figure, y, step, first)
    for (kind, (x, *_)), operator in zip(list(MATRICES.items())[1:], OPERATORS, strict=True):
        # Kᵀ is two cells high, at the top; the other matrices meet at the newest row.
        at = y + CELL if kind == "key" else newest_y
        write(figure, x - 7, at, operator, align="center", color=MUTED)


def _step_labels(figure: BookFigure, y: Points, step: int, first: int) -> None:
    """What the step is fed, the token that it gives, and whose column is whose."""
    newest_y = y + (step - 0.5) * CELL
    write(figure, style.MARGIN, newest_y, f"step {step}", bold=True)
    write(figure, style.MARGIN, newest_y + 13, f"gives {GIVEN[step - 1]}", color=MUTED)
    for row in range(first, step):
        box = Box(MATRICES["query"][0] - 23, y + row * CELL + 0.5, 20, CELL - 1)
        chip(figure, box, FED[row])
    for column in range(step):
        x = MATRICES["key"][0] + (column + 0.5) * CELL
        write(figure, x, y - 7, FED[column], align="center", color=MUTED)


def _new_or(old: str, index: int, step: int) -> str:
    return "computed" if index == step - 1 else old


def _numbers(
    figure: BookFigure,
    kind: str,
    y: Points,
    values: Tensor,
    state: Callable[[int, int], str],
) -> None:
    """The matrix `kind` with its numbers in the cells; what is masked has none."""
    decimals = 2 if kind == "weights" else 1
    labels = [[_short(value, decimals) for value in row] for row in values.tolist()]
    for row, line in enumerate(labels):
        for column in range(len(line)):
            if state(row, column) == "masked":
                line[column] = ""
    matrix(figure, MATRICES[kind][0], y, labels, kind=kind, state=state, cell_size=CELL)


def _short(value: float, decimals: int) -> str:
    """`0.67` as `.67` and `2.0` as `2`, so that it fits a cell."""
    if float(f"{value:.{decimals}f}").is_integer():
        return f"{value:.0f}"
    return f"{value:.{decimals}f}".removeprefix("0")
