"""Figures of chapter 08: which program does which tiles."""

from llmlab.figures import style
from llmlab.figures.page import BookFigure, Points, write
from llmlab.figures.primitives import Box, arrow, cell, legend
from llmlab.memory.ledger import AttentionShape

MUTED = style.LIGHT["muted"]
BLOCK = 32
SHAPE = AttentionShape(n_q=160, n_k=160, head_dim=64, block_q=BLOCK, block_k=BLOCK, causal=True)
TILE = 24.0


def tile_states(shape: AttentionShape) -> list[list[str]]:
    """For each query block and key block: "whole", "diagonal" (masked within) or "skipped"."""
    key_blocks = -(-shape.n_k // shape.block_k)
    states = []
    for start, stop in shape.query_blocks():
        whole = shape.visible_keys(start) // shape.block_k  # the first query sees all of these
        visited = shape.key_blocks(stop)
        states.append(
            ["whole"] * whole
            + ["diagonal"] * (visited - whole)
            + ["skipped"] * (key_blocks - visited)
        )
    return states


def causal_tiles() -> BookFigure:
    """The grid of one head: a program a row, a step of its loop a tile."""
    states = tile_states(SHAPE)
    visited = sum(state != "skipped" for row in states for state in row)
    total = sum(len(row) for row in states)
    figure = BookFigure(
        height=232,
        title=f"Causal: the flash kernel's programs visit {visited} of {total} tiles",
        alt=(
            f"The scores of one head as a grid of {len(states)} query blocks by {len(states[0])} "
            f"key blocks of {BLOCK}. Each row is one program, whose loop goes from left to right. "
            f"Tiles below the diagonal are computed whole, those on it are masked within, those "
            f"above are skipped: {visited} of {total} are visited. The naive kernel has a program "
            f"for each of the {total}."
        ),
    )
    left, top = 150.0, 64.0
    write(figure, left, top - 14, f"key blocks of {BLOCK}: the loop", color=MUTED)
    for row, line in enumerate(states):
        y = top + row * TILE
        write(figure, left - 12, y + TILE / 2, f"program {row}", align="right")
        for column, state in enumerate(line):
            _tile(figure, left + column * TILE, y, state)
        steps = sum(state != "skipped" for state in line)
        end = left + len(line) * TILE + 12
        write(figure, end, y + TILE / 2, f"{steps} step{'s' if steps > 1 else ''}", color=MUTED)
    arrow(figure, [(left + 118, top - 14), (left + 150, top - 14)])
    entries = [
        ("scores", "computed", "computed whole"),
        ("scores", "reused", "masked within"),
        ("scores", "idle", "skipped: neither loaded nor computed"),
    ]
    legend(figure, style.MARGIN, 214, entries)
    return figure


def _tile(figure: BookFigure, x: Points, y: Points, state: str) -> None:
    look = {"whole": "computed", "diagonal": "reused", "skipped": "idle"}[state]
    cell(figure, Box(x, y, TILE, TILE), kind="scores", state=look)
