"""Figures of chapter 03: attention in numbers, shared heads, aligned masks, the cost of scores."""

from dataclasses import replace

import torch
from torch import Tensor

from llmlab.attention import AttentionIntermediates, causal_mask, reference_attention
from llmlab.cache import kv_cache_bytes
from llmlab.config import ModelConfig
from llmlab.figures import style
from llmlab.figures.page import BookFigure, Points, write
from llmlab.figures.primitives import Box, arrow, cell, chip, legend, matrix
from llmlab.model.locate import EMBEDDED_MODEL

MUTED = style.LIGHT["muted"]
TOKENS = "time flies like an arrow".split()
# The chapter's numbers, small and whole so that a reader can follow with a pencil. The columns of a
# token's vector: how much it is a thing, an action, a small word.
EMBEDDINGS = torch.tensor(
    [[1.0, 0.0, 0.0], [1.0, 2.0, 0.0], [0.0, 1.0, 1.0], [0.0, 0.0, 2.0], [2.0, 0.0, 0.0]]
)  # [T, C]
W_QUERY = torch.tensor([[0.0, 1.0], [2.0, 0.0], [0.0, 1.0]])  # [C, D]
W_KEY = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]])  # [C, D]
W_VALUE = torch.tensor([[2.0, -1.0], [0.0, 2.0], [-1.0, 0.0]])  # [C, D]

CELL = 20.0
# The embedded model, whose heads the chapter looks at.
HEADS = ModelConfig.from_hugging_face(EMBEDDED_MODEL)


def stages() -> AttentionIntermediates:
    """Causal attention over the running sentence, every stage."""
    query, key, value = (EMBEDDINGS @ weight for weight in (W_QUERY, W_KEY, W_VALUE))  # [T, D]
    return reference_attention(
        query[None, None],
        key[None, None],
        value[None, None],
        causal=True,
        return_intermediates=True,
    )


def attention_steps() -> BookFigure:
    """The running sentence through the stages of attention, number by number."""
    figure = BookFigure(
        height=354,
        title="Five steps from vectors to a mixture: score, scale, mask, softmax, sum",
        alt=(
            "Attention over 'time flies like an arrow' with two numbers a head. Upper row: Q, five "
            "rows of two, times K transposed gives the five by five scores; divided by the square "
            "root of two they are the scaled scores. Lower row: scores above the diagonal are "
            "masked; softmax turns every row into weights that sum to one, the first row 1 for "
            "the token itself; weights times V, five rows of two, gives the output."
        ),
    )
    found = stages()
    query, key, value = (EMBEDDINGS @ weight for weight in (W_QUERY, W_KEY, W_VALUE))  # [T, D]
    top, below = 72.0, 212.0
    for row, token in enumerate(TOKENS):
        for y in (top, below):
            box = Box(style.MARGIN, y + row * CELL + 1, 54, CELL - 2)
            chip(figure, box, f"{row + 1} {token}")
    _numbers(figure, 72, top, "query", "Q [T, D]", query)
    # K transposed has two rows: they stand beside the middle of the five of Q.
    _numbers(figure, 134, top + 1.5 * CELL, "key", "Kᵀ [D, S]", key.T)
    _numbers(figure, 256, top, "scores", "scores", found.scores[0, 0])
    _numbers(figure, 378, top, "scores", "scaled", found.scaled[0, 0], decimals=1)
    _numbers(figure, 72, below, "scores", "masked", found.masked[0, 0], decimals=1)
    _numbers(figure, 194, below, "weights", "weights", found.weights[0, 0], decimals=2)
    _numbers(figure, 316, below, "value", "V [S, D]", value)
    _numbers(figure, 378, below, "output", "output", found.output[0, 0], decimals=1)
    signs = {top: ((123, "×"), (245, "="), (367, "→")), below: ((183, "→"), (305, "×"), (367, "="))}
    for y, row in signs.items():
        for x, sign in row:
            write(figure, x, y + 2.5 * CELL, sign, align="center", color=MUTED)
    write(figure, 428, below + 2 * CELL, "each row a mix", color=MUTED)
    write(figure, 428, below + 2 * CELL + 13, "of V's rows", color=MUTED)
    entries = [("scores", "masked", "a later token: no score, no weight")]
    x = legend(figure, style.MARGIN, 334, entries)
    write(figure, x, 334, "columns 1 to 5 are the tokens; scaled = scores / √2", color=MUTED)
    return figure


def _numbers(
    figure: BookFigure,
    x: Points,
    y: Points,
    kind: str,
    name: str,
    values: Tensor,
    *,
    decimals: int = 0,
) -> None:
    """A matrix with its numbers and name; what the causal mask takes away has none."""
    later = causal_mask(*values.shape).logical_not() & (name in ("masked", "weights"))
    labels = [
        ["" if hidden else _short(number, decimals) for number, hidden in zip(*row, strict=True)]
        for row in zip(values.tolist(), later.tolist(), strict=True)
    ]
    box = matrix(
        figure,
        x,
        y,
        labels,
        kind=kind,
        state=lambda row, column: "masked" if later[row, column] else "computed",
        cell_size=CELL,
    )
    write(figure, box.center[0], y - 20, name, align="center", bold=True)
    if values.shape[1] == len(TOKENS):
        for column in range(len(TOKENS)):
            middle = x + (column + 0.5) * CELL
            write(figure, middle, y - 7, str(column + 1), align="center", color=MUTED)


def _short(value: float, decimals: int) -> str:
    """`0.67` as `.67` and `2.0` as `2`, so that it fits a cell."""
    text = f"{value:.{decimals}f}"
    if float(text).is_integer():
        return f"{float(text) + 0.0:.0f}"  # + 0.0: no "-0"
    return text.replace("0.", ".", 1) if abs(value) < 1 else text


def shared_heads() -> BookFigure:
    """Multi-head, grouped-query and multi-query attention, and the cache each needs."""
    kinds = {"multi-head (MHA)": 4, "grouped-query (GQA)": 2, "multi-query (MQA)": 1}
    sizes = [
        kv_cache_bytes(replace(HEADS, kv_heads=kv_heads), length=1, dtype=torch.float32)
        for kv_heads in kinds.values()
    ]
    figure = BookFigure(
        height=232,
        title="Heads that share keys and values shrink the cache, not the queries",
        alt=(
            "Three panels, each with four query heads above. Multi-head: every query head has its "
            "own key and value head, four of each. Grouped-query: query heads 0 and 1 read key "
            "and value head 0, query heads 2 and 3 read head 1. Multi-query: all four read one. "
            "Bars below, to scale, give the cache bytes per token of a model of "
            f"{HEADS.layers} layers and head dim {HEADS.head_dim}: "
            f"{', '.join(map(str, sizes))}."
        ),
    )
    for panel_index, ((name, kv_heads), size) in enumerate(zip(kinds.items(), sizes, strict=True)):
        left = style.MARGIN + panel_index * 168
        write(figure, left, 42, name, bold=True)
        _heads(figure, left, kv_heads)
        write(figure, left, 172, "cache per token", color=MUTED)
        width = 148 * size / max(sizes) / 2
        for half, kind in enumerate(("key", "value")):
            cell(figure, Box(left + half * width, 180, width, 14), kind=kind, label="KV"[half])
        write(figure, left, 208, f"{size:,} bytes")
    return figure


def _heads(figure: BookFigure, left: Points, kv_heads: int) -> None:
    """Query heads above, key and value heads below, a line from each to the one it reads."""
    for head in range(HEADS.heads):
        x = left + head * 38 + 2
        cell(figure, Box(x, 56, 28, 20), kind="query", label=f"q{head}")
        shared = head // (HEADS.heads // kv_heads)
        target = _kv_left(left, shared, kv_heads) + 15
        arrow(figure, [(x + 14, 77), (target, 117)], head=4)
    for head in range(kv_heads):
        x = _kv_left(left, head, kv_heads)
        cell(figure, Box(x, 118, 30, 17), kind="key", label=f"k{head}")
        cell(figure, Box(x, 135, 30, 17), kind="value", label=f"v{head}")


def _kv_left(left: Points, head: int, kv_heads: int) -> Points:
    """Left edge of a key and value head, below the middle of its query heads."""
    group = HEADS.heads // kv_heads
    return left + (head * group + (group - 1) / 2) * 38 + 1


def causal_alignment() -> BookFigure:
    """The causal mask where queries and keys differ in number, aligned at either corner."""
    figure = BookFigure(
        height=262,
        title="Queries are the last tokens: the causal mask ends at the lower right corner",
        alt=(
            "Four masks. Two queries and five keys: aligned at the upper left, the queries see one "
            "and two keys, as if they were the first tokens; aligned at the lower right, they see "
            "four and five. Five queries and two keys: aligned at the upper left, the queries see "
            "1, 2, 2, 2 and 2 keys; aligned at the lower right, three queries see nothing and the "
            "last two see one and two."
        ),
    )
    cases = ((2, 5), (5, 2))
    for row, (queries, keys) in enumerate(cases):
        y = 84.0 if row == 0 else 148.0
        write(figure, style.MARGIN, y + 10, f"T = {queries}", bold=True)
        write(figure, style.MARGIN, y + 24, f"S = {keys}", bold=True)
        masks = (torch.ones(queries, keys).tril().bool(), causal_mask(queries, keys))
        for x, mask in zip((70.0, 300.0), masks, strict=True):
            _mask(figure, x, y, mask)
    write(figure, 70, 46, "first query at first key", bold=True)
    write(figure, 70, 60, "(PyTorch's is_causal)", color=MUTED)
    write(figure, 300, 46, "last query at last key", bold=True)
    write(figure, 300, 60, "(this book, a cache, a chunk)", color=MUTED)
    entries = [("scores", "computed", "may attend"), ("scores", "masked", "may not")]
    legend(figure, 70, 248, entries)
    return figure


def _mask(figure: BookFigure, x: Points, y: Points, mask: Tensor) -> None:
    """A mask as a matrix, with the number of keys that each query sees beside it."""
    size = 17.0
    labels = [[""] * mask.shape[1] for _ in range(mask.shape[0])]
    box = matrix(
        figure,
        x,
        y,
        labels,
        kind="scores",
        state=lambda row, column: "computed" if mask[row, column] else "masked",
        cell_size=size,
    )
    for row, seen in enumerate(mask.sum(dim=1).tolist()):
        text = f"q{row} sees {seen}" if seen else f"q{row} sees nothing"
        write(figure, box.right + 8, y + (row + 0.5) * size, text, color=MUTED)


def quadratic_scores() -> BookFigure:
    """Score matrices to scale, for sequences that double."""
    lengths = (64, 128, 256, 512)
    longest = lengths[-1]
    scores = {length: length * length for length in lengths}
    figure = BookFigure(
        height=268,
        title="Twice the tokens, four times the scores",
        alt=(
            "Four squares drawn to scale, the score matrices of one head for "
            + ", ".join(f"{n} tokens ({count:,} scores)" for n, count in scores.items())
            + ". Each square has twice the side of the one before and four times its area."
        ),
    )
    x, bottom = style.MARGIN, 226.0
    for length, count in scores.items():
        side = 176 * length / longest
        cell(figure, Box(x, bottom - side, side, side), kind="scores")
        write(figure, x, bottom + 12, f"{length} tokens", bold=True)
        write(figure, x, bottom + 26, style.format_bytes(4 * count), color=MUTED)
        x += max(side, 62) + 22
    write(figure, style.MARGIN, 46, "the scores of one head of one layer, in 4-byte numbers")
    return figure
