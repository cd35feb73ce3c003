"""The visual language: its values, its text on colour, and what it leaves alone."""

import json
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmlab.figures import style


def contrast(one: str, other: str) -> float:
    lighter, darker = sorted([style.luminance(one), style.luminance(other)], reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def test_luminance_of_the_ends_and_of_a_hand_worked_colour():
    assert style.luminance("#000000") == 0
    assert style.luminance("#FFFFFF") == pytest.approx(1)
    # #777777 on white is WCAG's well-known near miss: 4.48 : 1.
    assert contrast("#777777", "#FFFFFF") == pytest.approx(4.48, abs=0.005)


@pytest.mark.parametrize("kind", style.COLORS)
def test_text_on_a_colour_is_readable(kind):
    color = style.COLORS[kind]
    assert contrast(style.text_color_on(color), color) >= 4.5  # WCAG 2.1 AA


@pytest.mark.parametrize("theme", [style.LIGHT, style.DARK], ids=["light", "dark"])
def test_text_on_paper_is_readable_in_both_themes(theme):
    assert contrast(theme["ink"], theme["paper"]) >= 7
    assert contrast(theme["muted"], theme["paper"]) >= 4.5
    assert contrast(theme["muted"], theme["masked"]) >= 3  # the dot in a masked cell


def test_both_themes_name_the_same_colours():
    assert style.LIGHT.keys() == style.DARK.keys()
    everything = [*style.COLORS.values(), *style.LIGHT.values(), *style.DARK.values()]
    assert all(len(color) == 7 and int(color[1:], 16) >= 0 for color in everything)


def test_the_colours_are_those_of_the_book():
    book = {
        "query": "#0072B2",
        "key": "#E69F00",
        "value": "#009E73",
        "scores": "#CC79A7",
        "weights": "#D55E00",
        "output": "#56B4E9",
        "prefill": "#0072B2",
        "decode": "#E69F00",
    }
    assert book == style.COLORS
    assert json.loads(style.as_json())["colors"] == book


def test_json_has_what_a_widget_needs():
    values = json.loads(style.as_json())
    assert values["reused_alpha"] == 0.35
    assert values["dark"]["paper"] == style.DARK["paper"]
    assert "Noto Sans CJK SC" in values["font_stack"]


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.00 KB"),
        (9_994, "9.99 KB"),
        (9_996, "10.0 KB"),
        (73_728, "73.7 KB"),
        (99_960, "100 KB"),
        (131_072, "131 KB"),
        (999_499, "999 KB"),
        (999_500, "1.00 MB"),
        (2_147_483_648, "2.15 GB"),
        (40_300_000_000, "40.3 GB"),
        (5 * 10**15, "5000 TB"),
    ],
)
def test_bytes_in_words(count, text):
    assert style.format_bytes(count) == text


@given(st.integers(1000, 10**14))
@settings(deadline=None, derandomize=True, max_examples=200)
def test_bytes_in_words_keep_three_digits(count):
    number, unit = style.format_bytes(count).split()
    scale = {"KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}[unit]
    assert len(number.replace(".", "")) == 3
    assert float(number) * scale == pytest.approx(count, rel=0.00501)


def test_negative_bytes_are_refused():
    with pytest.raises(ValueError, match="cannot be negative"):
        style.format_bytes(-1)


def test_book_style_holds_inside_its_context_only():
    import matplotlib

    before = dict(matplotlib.rcParams)
    with style.use_book_style():
        assert matplotlib.rcParams["font.size"] == 9
        assert matplotlib.rcParams["svg.fonttype"] == "none"
    assert dict(matplotlib.rcParams) == before


def test_importing_the_figures_does_not_import_matplotlib():
    code = (
        "import sys, llmlab.figures, llmlab.figures.style, llmlab.figures.__main__\n"
        "sys.exit('matplotlib' in sys.modules or 'torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
