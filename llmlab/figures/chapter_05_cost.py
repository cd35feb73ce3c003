"""Figures of chapter 05, second part: what a cache saves and what it costs, counted."""

from dataclasses import dataclass
from itertools import accumulate

import torch

from llmlab.cache import DynamicKVCache, KVCache, StaticKVCache, kv_cache_bytes
from llmlab.config import ModelConfig
from llmlab.decoding import generate
from llmlab.figures import style
from llmlab.figures.page import BookFigure, Points, write
from llmlab.figures.primitives import Box, arrow, cell, chart, legend
from llmlab.model import DecoderModel

MUTED = style.LIGHT["muted"]
TOKENS = ("<s>", "遥", "遥", "领")  # what is fed, one at a step
SLOT = 18.0  # side of a slot of the cache
STEP = 34.0  # from one step to the next
# The smallest model that decodes: what is counted does not depend on its size or its weights.
TINY = ModelConfig(
    family="llama",
    vocab_size=16,
    hidden_size=8,
    layers=1,
    heads=1,
    kv_heads=1,
    head_dim=8,
    intermediate_size=8,
    max_positions=128,
    norm="rms",
    norm_epsilon=1e-5,
    activation="silu",
    positions="rotary",
)
# What decides the size of the cache, from the config.json of each model on the Hugging Face Hub.
MODELS = {
    "GPT-2": (12, 12, 64),
    "Qwen2.5 7B": (28, 4, 128),
    "Llama 3.1 8B": (32, 8, 128),
    "Qwen3 8B": (36, 8, 128),
    "Llama 2 7B": (32, 32, 128),
}


def projected_per_step(new_tokens: int, *, cache: str | None) -> list[int]:
    """Tokens that `generate` sends through the layers at each step, after a prompt of one token."""
    with torch.random.fork_rng():  # drawing a picture must not change the reader's random numbers
        model = DecoderModel(TINY)
    return [step.projected_tokens for step in generate(model, [0], new_tokens, cache=cache).steps]


def projected_tokens() -> BookFigure:
    """The work of decoding, counted in tokens that are projected to queries, keys and values."""
    naive, cached = (projected_per_step(64, cache=cache) for cache in (None, "static"))
    figure = BookFigure(
        height=238,
        title=f"64 new tokens: {sum(naive):,} projections without a cache, {sum(cached)} with one",
        alt=(
            "Left: one square for each token projected in the first 8 steps. Without a cache step "
            "n projects n tokens, all but one of them again, which makes a staircase; with a cache "
            "every step projects one. Right: the sum over the steps, up to 64 new tokens. Without "
            f"a cache it grows as n(n + 1)/2, to {sum(naive)}; with one as n, to {sum(cached)}."
        ),
    )
    _staircase(figure, Box(10, 46, 104, 124), "no cache", naive[:8])
    _staircase(figure, Box(132, 46, 104, 124), "with a cache", cached[:8])
    _sums(figure, Box(286, 62, 130, 108), naive, cached)
    entries = [
        ("key", "computed", "projected for the first time"),
        ("key", "recomputed", "projected again"),
    ]
    x = legend(figure, style.MARGIN, 222, entries)
    write(figure, x, 222, "K shown, Q and V alike", color=MUTED)
    return figure


def _staircase(figure: BookFigure, box: Box, name: str, counts: list[int]) -> None:
    """One column a step, one square a projected token; all but the lowest were projected before."""
    size = box.width / len(counts)
    write(figure, box.x, box.y, f"{name}: {sum(counts)} tokens", bold=True)
    for step, count in enumerate(counts):
        for again in range(count):
            square = Box(box.x + step * size, box.bottom - (again + 1) * size, size, size)
            cell(figure, square, kind="key", state="recomputed" if again else "computed")
        middle = box.x + (step + 0.5) * size
        write(figure, middle, box.bottom + 10, str(step + 1), align="center", color=MUTED)
    write(figure, box.center[0], box.bottom + 24, "step", align="center", color=MUTED)


def _sums(figure: BookFigure, box: Box, naive: list[int], cached: list[int]) -> None:
    """The chart of the sums so far: the hatched area is work that had been done before."""
    axes = chart(figure, box, x_label="new tokens", y_label="tokens projected so far")
    steps = range(1, len(naive) + 1)
    upper, lower = list(accumulate(naive)), list(accumulate(cached))
    color = style.COLORS["key"]
    axes.fill_between(steps, lower, upper, color=color, alpha=style.RECOMPUTED_ALPHA, linewidth=0)
    axes.fill_between(
        steps, lower, upper, facecolor="none", edgecolor=color, hatch=style.HATCH, linewidth=0.8
    )
    axes.fill_between(steps, lower, color=color, linewidth=0)
    axes.set_xlim(0, len(naive))
    axes.set_ylim(0, upper[-1])
    axes.set_xticks([0, 16, 32, 48, 64])
    axes.set_yticks([0, 500, 1000, 1500, 2000])
    for y, total, formula, name in (
        (box.y, upper[-1], "= n(n + 1)/2", "no cache"),
        (box.bottom - 26, lower[-1], "= n", "with a cache"),
    ):
        write(figure, box.right + 8, y, f"{total:,}", bold=True)
        write(figure, box.right + 8, y + 13, formula)
        write(figure, box.right + 8, y + 26, name, color=MUTED)


@dataclass(frozen=True)
class Growth:
    """One step of a cache that takes one token at a time, in positions of one layer."""

    copied: int  # positions that moved to new memory
    held: int  # positions that memory is taken for


def growth(cache: KVCache, steps: int) -> list[Growth]:
    """Feeds `cache` one position a step and watches its memory: where it lies, and how much."""
    position_bytes = kv_cache_bytes(TINY, length=1, dtype=torch.float32)
    new = torch.zeros(1, TINY.kv_heads, 1, TINY.head_dim)  # [B, Hkv, 1, D]
    keys, history = None, []
    for _ in range(steps):
        before = keys
        keys, _ = cache.update(0, new, new)  # [B, Hkv, S, D]
        moved = before is not None and before.data_ptr() != keys.data_ptr()
        history.append(Growth(cache.length if moved else 0, cache.nbytes // position_bytes))
        cache.advance(1)
    return history


def cache_growth() -> BookFigure:
    """How the two caches of the chapter take one token after another."""
    dynamic = growth(DynamicKVCache(TINY), len(TOKENS))
    static = growth(StaticKVCache(TINY, batch_size=1, max_length=8), len(TOKENS))
    figure = BookFigure(
        height=246,
        title="Concatenating copies all that was there; preallocating copies nothing",
        alt=(
            "Four steps of two caches. Left, concatenated: each step makes a longer tensor, "
            "copies the old positions down into it and adds one, so it copies "
            f"{', '.join(str(now.copied) for now in dynamic)} positions. Right, preallocated: 8 "
            "slots are held from the start; each step writes the next one and copies nothing."
        ),
    )
    _growth(figure, Box(60, 74, 4 * SLOT, 4 * STEP), "concatenated: DynamicKVCache", dynamic)
    _growth(figure, Box(262, 74, 8 * SLOT, 4 * STEP), "preallocated: StaticKVCache", static)
    for step in range(len(TOKENS)):
        write(figure, style.MARGIN, 74 + step * STEP + SLOT / 2, f"step {step + 1}", bold=True)
    entries = [
        ("key", "computed", "new"),
        ("key", "reused", "was there before"),
        ("key", "idle", "reserved, empty"),
    ]
    x = legend(figure, style.MARGIN, 230, entries)
    write(figure, x, 230, "in positions; K shown, V alike", color=MUTED)
    return figure


def _growth(figure: BookFigure, area: Box, name: str, history: list[Growth]) -> None:
    """One row of slots a step; an arrow for each position that was copied."""
    write(figure, area.x, 42, name, bold=True)
    columns = {"copied": (area.right + 34, [now.copied for now in history])}
    columns["held"] = (area.right + 74, [now.held for now in history])
    for title, (x, counts) in columns.items():
        write(figure, x, 58, title, align="right", color=MUTED)
        for step, count in enumerate(counts):
            write(figure, x, area.y + step * STEP + SLOT / 2, str(count), align="right")
    x, copied = columns["copied"]
    write(figure, x, area.bottom, f"sum {sum(copied)}", align="right", bold=True)
    for step, now in enumerate(history):
        y = area.y + step * STEP
        for slot in range(now.held):
            state = "computed" if slot == step else "reused" if slot < step else "idle"
            box = Box(area.x + slot * SLOT, y, SLOT, SLOT)
            cell(figure, box, kind="key", state=state, label=TOKENS[slot] if slot <= step else "")
            if slot < now.copied:
                middle = box.center[0]
                arrow(figure, [(middle, y - STEP + SLOT + 1), (middle, y - 1)], head=4)


def cache_bytes() -> BookFigure:
    """Bytes of cache for one token: the formula in pictures, and real models."""
    sizes = {name: _token_bytes(*shape) for name, shape in MODELS.items()}
    grouped, full = sizes["Llama 3.1 8B"], sizes["Llama 2 7B"]
    figure = BookFigure(
        height=284,
        title=(
            f"Grouped heads cut the cache from {style.format_bytes(full)} to "
            f"{style.format_bytes(grouped)} a token"
        ),
        alt=(
            "Top: the bytes that one token takes in the cache of Llama 3.1 8B are 2 (K and V) x "
            f"32 layers x 8 kv heads x 128 head dim x 2 bytes = {grouped}. Bottom: bars to scale, "
            "in 16-bit numbers: "
            + ", ".join(f"{name} {style.format_bytes(size)}" for name, size in sizes.items())
            + "."
        ),
    )
    _formula(figure, MODELS["Llama 3.1 8B"], grouped)
    write(figure, style.MARGIN, 160, "one token, bfloat16", color=MUTED)
    write(figure, 120, 160, "layers × kv heads × head dim", color=MUTED)
    largest = max(sizes.values())
    for row, (name, size) in enumerate(sizes.items()):
        _model_bar(figure, 182 + row * 20, name, size, 180 * size / largest)
    return figure


def _token_bytes(layers: int, kv_heads: int, head_dim: int) -> int:
    config = {
        "num_hidden_layers": layers,
        "num_attention_heads": kv_heads,
        "num_key_value_heads": kv_heads,
        "head_dim": head_dim,
    }
    return kv_cache_bytes(config, length=1, dtype=torch.bfloat16)


def _formula(figure: BookFigure, shape: tuple[int, int, int], size: int) -> None:
    """Five factors, each drawn as that many marks, and their product."""
    layers, kv_heads, head_dim = shape
    write(figure, style.MARGIN, 40, "one token in the cache of Llama 3.1 8B", color=MUTED)
    # count, name, columns of the picture, width and height of one mark
    factors = [
        (2, "K and V", 2, 18.0, 18.0),
        (layers, "layers", 1, 50.0, 1.6),
        (kv_heads, "kv heads", kv_heads, 6.0, 18.0),
        (head_dim, "head dim", 16, 3.8, 3.8),
        (torch.bfloat16.itemsize, "bytes", 2, 10.0, 10.0),
    ]
    x = style.MARGIN
    for count, name, columns, mark_width, mark_height in factors:
        rows = count // columns
        left, top = x + 33 - columns * mark_width / 2, 80 - rows * mark_height / 2
        for mark in range(count):
            row, column = divmod(mark, columns)
            box = Box(left + column * mark_width, top + row * mark_height, mark_width, mark_height)
            if name == "K and V":
                cell(figure, box, kind=("key", "value")[mark], label="KV"[mark])
            else:
                cell(figure, box, kind="key", state="idle")
        write(figure, x + 33, 120, str(count), align="center", bold=True)
        write(figure, x + 33, 133, name, align="center", color=MUTED)
        write(figure, x + 74, 120, "=" if name == "bytes" else "×", align="center", color=MUTED)
        x += 82
    write(figure, x + 2, 120, f"{size:,} B", bold=True)
    write(figure, x + 2, 133, style.format_bytes(size), color=MUTED)


def _model_bar(figure: BookFigure, y: Points, name: str, size: int, width: Points) -> None:
    """One model: what its size depends on, and a bar as long as its bytes, half K and half V."""
    layers, kv_heads, head_dim = MODELS[name]
    write(figure, style.MARGIN, y, name)
    write(figure, 120, y, f"{layers} × {kv_heads} × {head_dim}", color=MUTED)
    cell(figure, Box(262, y - 6, width / 2, 12), kind="key", label="K" if width > 30 else "")
    cell(
        figure,
        Box(262 + width / 2, y - 6, width / 2, 12),
        kind="value",
        label="V" if width > 30 else "",
    )
    write(figure, 262 + width + 5, y, style.format_bytes(size))
