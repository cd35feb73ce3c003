"""The numbers in the figures of chapter 04, against counts made elsewhere."""

import pytest
import torch
import transformers

from llmlab.config import ModelConfig
from llmlab.figures import draw
from llmlab.figures.chapter_04 import (
    GPT2_SMALL,
    LLAMA_8B,
    SEGMENTS,
    embedded_config,
    parameters_by_part,
)


def transformers_parameters(settings: dict) -> int:
    config = transformers.AutoConfig.for_model(**settings)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config)
    return model.num_parameters()


@pytest.mark.parametrize("settings", [GPT2_SMALL, LLAMA_8B], ids=["gpt2", "llama"])
def test_parts_add_up_to_what_transformers_counts(settings):
    parts = parameters_by_part(ModelConfig.from_hugging_face(settings))
    assert sum(parts.values()) == transformers_parameters(settings)


def test_the_parts_of_gpt2_small_by_hand():
    width, layers = 768, 12
    assert parameters_by_part(ModelConfig.from_hugging_face(GPT2_SMALL)) == {
        "tables": (50257 + 1024) * width,
        "norms": (2 * layers + 1) * 2 * width,
        "query": layers * (width * width + width),
        "key": layers * (width * width + width),
        "value": layers * (width * width + width),
        "output": layers * (width * width + width),
        "MLP": layers * (2 * width * 4 * width + 5 * width),
    }


def test_keys_are_narrower_than_queries_where_heads_are_grouped():
    parts = parameters_by_part(ModelConfig.from_hugging_face(LLAMA_8B))
    assert parts["query"] == 4 * parts["key"] == 4 * parts["value"]


def test_the_bars_are_to_scale():
    """A bar's segments stand side by side and are as wide as their shares."""
    parts = parameters_by_part(embedded_config())
    drawing = draw("04_parameters").drawing
    rows = sorted({patch.get_y() for patch in drawing.patches})
    bar = [patch for patch in drawing.patches if patch.get_y() == rows[1]]
    widths = [patch.get_width() for patch in bar]
    assert len(widths) == len(SEGMENTS)
    for width, (part, _) in zip(widths, SEGMENTS, strict=True):
        assert width / 484 == pytest.approx(parts[part] / sum(parts.values()))


def test_the_block_shows_one_layers_parameters():
    shown = [text.get_text() for text in draw("04_block").drawing.texts]
    for number in ("2,362,368", "4,722,432", "49,152", "196,608"):
        assert f"{number} parameters" in shown
    assert "block, × 12" in shown
    assert "block, × 4" in shown
