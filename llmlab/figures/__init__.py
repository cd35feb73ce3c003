"""Every static picture of the book, drawn by code.

    python -m llmlab.figures                 # draws all of them into figures/
    draw("05_attention_with_cache")          # one of them, in a notebook

To add a figure:

1. Write a function without arguments in `chapter_NN.py` that makes a `BookFigure` (its title is the
   finding, its `alt` says what a reader who cannot see it misses), puts things on it with
   `primitives` (cells, matrices, chips, arrows, a legend) or `figure.add_axes` (a chart), and
   returns it. Take every number from the package; write none by hand.
2. Enter it in `FIGURES` below, under the name of its file.
3. `make figures`, look at the picture (also in grey), and keep the SVG: a test draws it again and
   compares. A notebook shows it by `![alt text](../figures/NAME.svg)`, with the same alt text.

Colours and sizes come from `style`; `use_book_style()` gives charts in notebooks the same look.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from llmlab.figures.page import BookFigure

# The file's name without its ending -> the module and function that draw it. The modules are
# imported when a figure is drawn, since Matplotlib takes its time.
FIGURES = {
    "00_pipeline": "chapter_00.pipeline",
    "00_two_requests": "chapter_00.two_requests",
    "01_bpe_merges": "chapter_01.bpe_merges",
    "01_split_character": "chapter_01.split_character",
    "04_block": "chapter_04.block",
    "04_parameters": "chapter_04.parameters",
    "02_lookup": "chapter_02.lookup",
    "02_sinusoidal": "chapter_02.sinusoidal",
    "02_rotary": "chapter_02.rotary",
    "02_where_positions_enter": "chapter_02.where_positions_enter",
    "03_attention_steps": "chapter_03.attention_steps",
    "03_shared_heads": "chapter_03.shared_heads",
    "03_causal_alignment": "chapter_03.causal_alignment",
    "03_quadratic_scores": "chapter_03.quadratic_scores",
    "05_attention_without_cache": "chapter_05.attention_without_cache",
    "05_attention_with_cache": "chapter_05.attention_with_cache",
    "05_projected_tokens": "chapter_05_cost.projected_tokens",
    "05_cache_growth": "chapter_05_cost.cache_growth",
    "05_cache_bytes": "chapter_05_cost.cache_bytes",
    "06_roofline": "chapter_06.roofline",
    "07_six_trips": "chapter_07.six_trips",
    "07_online_softmax": "chapter_07_tiles.online_softmax",
    "07_hbm_theatre": "chapter_07_tiles.hbm_theatre",
    "07_loop_orders": "chapter_07.loop_orders",
    "08_causal_tiles": "chapter_08.causal_tiles",
}


def draw(name: str) -> "BookFigure":
    """Draws the figure of this name; in a notebook it shows itself.

    Raises ValueError for a name that is not in `FIGURES`.
    """
    from llmlab.figures.style import use_book_style

    if name not in FIGURES:
        raise ValueError(f"there is no figure {name!r}; there are {', '.join(FIGURES)}")
    module, function = FIGURES[name].split(".")
    with use_book_style():
        figure = getattr(import_module(f"{__name__}.{module}"), function)()
    figure.name = f"figure-{name}"
    return figure
