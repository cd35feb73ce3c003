"""Figures of chapter 06: where prefill and decode lie under the roof."""

import numpy as np

from llmlab.config import ModelConfig
from llmlab.figures import style
from llmlab.figures.page import BookFigure
from llmlab.figures.primitives import Box, chart
from llmlab.memory.hardware import hardware
from llmlab.memory.roofline import attainable_flops, forward_cost

MUTED = style.LIGHT["muted"]
# The shape of Llama 3.1 8B, from its config.json on the Hugging Face Hub.
LLAMA_8B = ModelConfig.from_hugging_face(
    {
        "model_type": "llama",
        "vocab_size": 128256,
        "hidden_size": 4096,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "intermediate_size": 14336,
        "max_position_embeddings": 131072,
        "tie_word_embeddings": False,
    }
)
PAST = 1000  # tokens


def intensities() -> dict[str, tuple[str, float]]:
    """Label: (phase, FLOPs a byte), for prefill and for decode in batches."""
    points = {
        f"decode, batch {batch}": (
            "decode",
            forward_cost(LLAMA_8B, batch=batch, new_tokens=1, past=PAST).arithmetic_intensity,
        )
        for batch in (1, 8, 64)
    }
    prefill = forward_cost(LLAMA_8B, batch=1, new_tokens=PAST).arithmetic_intensity
    return points | {f"prefill, {PAST:,} tokens": ("prefill", prefill)}


def roofline() -> BookFigure:
    """The roofline of an H100 with the phases of one model on it."""
    h100, points = hardware("H100"), intensities()
    one = points["decode, batch 1"][1]
    figure = BookFigure(
        height=240,
        title=f"Decode does {one:.1f} FLOPs a byte where the H100 could do "
        f"{h100.ridge_point():.0f}",
        alt=(
            "The roofline of an H100 on logarithmic axes, TFLOP/s against FLOPs a byte: a slope of "
            f"{h100.bandwidth / 1e12:.2f} TB/s that meets the flat roof of "
            f"{h100.peak() / 1e12:.0f} TFLOP/s at {h100.ridge_point():.0f} FLOPs a byte. "
            "Predictions for Llama 3.1 8B lie on it: "
            + "; ".join(f"{name} at {value:.1f}" for name, (_, value) in points.items())
            + "."
        ),
    )
    axes = chart(figure, Box(56, 50, 430, 150), x_label="FLOPs a byte", y_label="TFLOP/s at most")
    x = np.geomspace(0.5, 4000, 200)
    roof = [attainable_flops(float(value), h100) / 1e12 for value in x]
    axes.plot(x, roof, color=style.LIGHT["ink"], marker="")
    axes.axvline(h100.ridge_point(), color=style.LIGHT["line"], linestyle=":", marker="")
    axes.text(h100.ridge_point() * 1.08, 1.3, "ridge", color=MUTED)
    for name, (phase, value) in points.items():
        y = attainable_flops(value, h100) / 1e12
        color, marker = style.COLORS[phase], "o" if phase == "decode" else "s"
        axes.plot(
            [value], [y], marker=marker, color=color, fillstyle="none", markersize=7, linestyle=""
        )
        above = phase == "prefill"
        axes.annotate(
            name,
            (value, y),
            textcoords="offset points",
            xytext=(-4, -16) if above else (10, -4),
            ha="center" if above else "left",
        )
    axes.set(xscale="log", yscale="log", xlim=(0.5, 4000), ylim=(1, 2000))
    axes.set_xticks([1, 10, 100, 1000], ["1", "10", "100", "1,000"])
    axes.set_yticks([1, 10, 100, 1000], ["1", "10", "100", "1,000"])
    axes.minorticks_off()
    return figure
