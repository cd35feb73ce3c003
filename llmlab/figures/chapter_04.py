"""Figures of chapter 04: the block of two families side by side, and where the parameters are."""

from collections import Counter
from dataclasses import dataclass

import torch
from matplotlib.patches import Circle

from llmlab.config import ModelConfig
from llmlab.figures import style
from llmlab.figures.page import BookFigure, Points, write
from llmlab.figures.primitives import Box, arrow, cell, panel
from llmlab.model import DecoderModel
from llmlab.model.locate import EMBEDDED_MODEL

MUTED = style.LIGHT["muted"]
COLUMN_WIDTH = 237.0
NORM_WIDTH, PART_WIDTH, PART_HEIGHT = 60.0, 122.0, 50.0
BRANCH = 82.0  # from where a part reads the stream to where it reads the next one
STREAM_WIDTH = 7.0
BAR_LEFT, BAR_WIDTH, BAR_HEIGHT = 10.0, 484.0, 26.0
# From left to right in a bar: what is drawn in one colour, and its letter.
SEGMENTS = (
    ("tables", "tables"),
    ("query", "Q"),
    ("key", "K"),
    ("value", "V"),
    ("output", "O"),
    ("MLP", "MLP"),
)

# Published sizes: each model's config.json (for the Llama also Dubey et al. 2024, table 3).
GPT2_SMALL = {
    "model_type": "gpt2",
    "vocab_size": 50257,
    "n_embd": 768,
    "n_layer": 12,
    "n_head": 12,
    "n_positions": 1024,
}
LLAMA_8B = {
    "model_type": "llama",
    "vocab_size": 128256,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 131072,
}


def embedded_config() -> ModelConfig:
    """The model that llmlab brings along."""
    return ModelConfig.from_hugging_face(EMBEDDED_MODEL)


def parameters_by_part(config: ModelConfig) -> dict[str, int]:
    """How many parameters each part of a model has, all layers together, from the model itself."""
    with torch.device("meta"):  # shapes without memory
        model = DecoderModel(config)
    counts: Counter[str] = Counter()
    for name, parameter in model.named_parameters():
        if "query_key_value" in name:
            pieces = parameter.split(
                [count * config.head_dim for count in (config.heads, *[config.kv_heads] * 2)]
            )
            for kind, piece in zip(("query", "key", "value"), pieces, strict=True):
                counts[kind] += piece.numel()
        else:
            counts[_part(name)] += parameter.numel()
    return dict(counts)


def _part(name: str) -> str:
    """The part that a parameter belongs to, by its name in `DecoderModel`."""
    if "norm" in name:
        return "norms"
    if ".mlp." in name:
        return "MLP"
    return "output" if ".attention." in name else "tables"


@dataclass(frozen=True)
class Variant:
    """What one column of the block figure says about its family."""

    name: str
    config: ModelConfig
    start: str
    norm: str
    attention: str
    mlp: str


def block() -> BookFigure:
    """The pre-norm block: two branches that read the residual stream and add to it."""
    gpt2, llama = ModelConfig.from_hugging_face(GPT2_SMALL), embedded_config()
    variants = (
        Variant(
            "GPT-2 small",
            gpt2,
            "token row + position row",
            "LayerNorm",
            f"{gpt2.heads} heads",
            "up, GELU, down",
        ),
        Variant(
            "a Llama: the embedded model",
            llama,
            "token row",
            "RMSNorm",
            f"{llama.heads} heads, {llama.kv_heads} for K, V, RoPE",
            "up × SiLU(gate), down",
        ),
    )
    figure = BookFigure(
        height=376,
        title="A block reads the stream twice and adds to it twice; families differ in the parts",
        alt=(
            "Two columns, GPT-2 on the left and a Llama on the right, drawn alike. A thick "
            "vertical line is the residual stream: it starts as a row of the token table (GPT-2 "
            "adds a row of the position table). Inside a frame, the block, repeated "
            f"{gpt2.layers} times in GPT-2 small and {llama.layers} times in the embedded Llama, "
            "the stream passes straight through; twice a copy leaves it to the right, through a "
            "norm and then attention or the MLP, and is added back. Under the block come the "
            "final norm and the head, which give the logits. GPT-2 uses LayerNorm and a plain MLP "
            "with GELU, the Llama RMSNorm, rotary positions and a gated MLP with SiLU. Attention "
            "and MLP show how many parameters they have."
        ),
    )
    for column, variant in enumerate(variants):
        _column(figure, style.MARGIN + column * (COLUMN_WIDTH + 10), variant)
    return figure


def _column(figure: BookFigure, left: Points, variant: Variant) -> None:
    config = variant.config
    layer = {part: count // config.layers for part, count in parameters_by_part(config).items()}
    attention = sum(layer[name] for name in ("query", "key", "value", "output"))
    stream, top = left + 22, 104.0
    write(figure, left, 42, variant.name, bold=True)
    start = panel(figure, Box(left, 58, 140, 22))
    write(figure, *start.center, variant.start, align="center")
    write(figure, start.right + 8, start.center[1], "[T, C]", color=MUTED)
    frame = panel(figure, Box(left, top, COLUMN_WIDTH, 2 * BRANCH + 22), dashed=True)
    write(figure, frame.right - 6, top + 12, f"block, × {config.layers}", align="right", bold=True)
    _stream(figure, stream, start.bottom, frame.bottom + 18)
    for row, (name, detail, count) in enumerate(
        (("attention", variant.attention, attention), ("MLP", variant.mlp, layer["MLP"]))
    ):
        y = top + 22 + row * BRANCH
        _branch(figure, stream, y, variant.norm, (name, detail, f"{count:,} parameters"))
    final = panel(figure, Box(left, frame.bottom + 18, 84, 22), filled=True)
    write(figure, *final.center, f"final {variant.norm}", align="center")
    head = panel(figure, Box(final.right + 18, final.y, 94, 22))
    write(figure, *head.center, "head: token table", align="center")
    arrow(figure, [(final.right + 2, final.center[1]), (head.x - 2, final.center[1])])
    arrow(figure, [(head.center[0], head.bottom + 1), (head.center[0], head.bottom + 16)])
    write(
        figure, head.center[0], head.bottom + 26, f"logits [T, {config.vocab_size}]", align="center"
    )


def _stream(figure: BookFigure, x: Points, top: Points, bottom: Points) -> None:
    """The residual stream: C numbers a token, from the tables down to the final norm."""
    figure.drawing.plot(
        [x, x],
        [top, bottom],
        color=style.LIGHT["line"],
        linewidth=STREAM_WIDTH,
        marker="",
        clip_on=False,
        solid_capstyle="butt",
    )


def _branch(
    figure: BookFigure, stream: Points, y: Points, norm: str, lines: tuple[str, str, str]
) -> None:
    """A copy of the stream goes through a norm and a part, whose output is added to the stream."""
    norm_box = panel(figure, Box(stream + 20, y, NORM_WIDTH, 20))
    write(figure, *norm_box.center, norm, align="center")
    middle = norm_box.center[1]
    arrow(figure, [(stream + STREAM_WIDTH / 2, middle), (norm_box.x - 2, middle)])
    part = panel(figure, Box(norm_box.right + 9, y, PART_WIDTH, PART_HEIGHT))
    arrow(figure, [(norm_box.right + 1, middle), (part.x - 1, middle)], head=4.0)
    for row, text in enumerate(lines):
        write(
            figure,
            part.center[0],
            y + 10 + row * 15,
            text,
            align="center",
            bold=row == 0,
            color=MUTED if row == 2 else style.LIGHT["ink"],
        )
    plus = y + PART_HEIGHT + 14
    arrow(figure, [(part.center[0], part.bottom + 1), (part.center[0], plus), (stream + 10, plus)])
    circle = Circle(
        (stream, plus),
        7.5,
        facecolor=style.LIGHT["paper"],
        edgecolor=MUTED,
        zorder=3,
        clip_on=False,
    )
    figure.drawing.add_patch(circle)
    for dx, dy in ((3.5, 0), (0, 3.5)):
        figure.drawing.plot(
            [stream - dx, stream + dx],
            [plus - dy, plus + dy],
            color=style.LIGHT["ink"],
            linewidth=1.2,
            marker="",
            zorder=4,
            clip_on=False,
        )
    write(figure, stream + 24, plus - 9, "add", color=MUTED)


def parameters() -> BookFigure:
    """One bar a model: which share of its parameters each part has."""
    models = {
        "GPT-2 small": ModelConfig.from_hugging_face(GPT2_SMALL),
        "the embedded model": embedded_config(),
        "Llama 3.1 8B": ModelConfig.from_hugging_face(LLAMA_8B),
    }
    counts = {name: parameters_by_part(config) for name, config in models.items()}
    words = [
        f"{name}: tables {_percent(parts, 'tables')}, attention "
        f"{_percent(parts, 'query', 'key', 'value', 'output')}, MLP {_percent(parts, 'MLP')}"
        for name, parts in counts.items()
    ]
    figure = BookFigure(
        height=70 + 58 * len(models),
        title="The MLPs hold the largest share of the parameters, attention far less",
        alt=(
            "Three bars of the same length, one a model, cut to scale into the shares of its "
            f"parts. {'; '.join(words)}. Tables are those of tokens and positions, and the head "
            "where it is one of its own. Attention is cut once more into W_query (Q), W_key (K), "
            "W_value (V) and the output matrix (O); K and V are as wide as Q in GPT-2, narrower in "
            "the Llamas, which have fewer key/value heads. Norms are too thin to be seen."
        ),
    )
    for row, (name, parts) in enumerate(counts.items()):
        y = 46.0 + 58 * row
        write(figure, BAR_LEFT, y, name, bold=True)
        total = sum(parts.values())
        write(figure, BAR_LEFT + BAR_WIDTH, y, f"{total:,} parameters", align="right", color=MUTED)
        _bar(figure, y + 12, parts)
    note = "Q, K, V, O: the matrices of attention. Norms are too thin to be seen at this scale."
    write(figure, BAR_LEFT, figure.height - 22, note, color=MUTED)
    return figure


def _percent(parts: dict[str, int], *names: str) -> str:
    return f"{sum(parts[name] for name in names) / sum(parts.values()):.0%}"


def _bar(figure: BookFigure, y: Points, parts: dict[str, int]) -> None:
    """The shares to scale: attention in the colours of its matrices, the rest white and grey."""
    x, total = BAR_LEFT, sum(parts.values())
    for part, letter in SEGMENTS:
        box = Box(x, y, BAR_WIDTH * parts[part] / total, BAR_HEIGHT)
        text = letter if part in style.COLORS else f"{letter} {_percent(parts, part)}"
        fits = box.width > 6.2 * len(text)
        known = part in style.COLORS
        cell(
            figure,
            box,
            kind=part if known else "output",
            state="computed" if known else "idle",
            label=text if fits else "",
        )
        x = box.right
