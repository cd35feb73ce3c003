"""The book's visual language: colours by meaning, fonts, sizes.

This is the one place that defines them. Python draws with these values, and `as_json()` hands the
same ones to the JavaScript of the widgets. The palette is Okabe and Ito's ("Color universal
design", 2008), which colour-blind readers can tell apart; a letter, a hatch or a shape always says
the same as the colour.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager

# What a thing is decides its colour, in every picture of the book.
COLORS = {
    "query": "#0072B2",
    "key": "#E69F00",
    "value": "#009E73",
    "scores": "#CC79A7",
    "weights": "#D55E00",
    "output": "#56B4E9",
    "prefill": "#0072B2",
    "decode": "#E69F00",
}
# Neutral colours turn with the reader's light or dark theme; the colours above do not.
LIGHT = {
    "paper": "#FFFFFF",
    "ink": "#1F2328",
    "muted": "#57606A",
    "line": "#8C959F",
    "masked": "#E5E7EB",
}
DARK = {
    "paper": "#15191E",
    "ink": "#E6EDF3",
    "muted": "#9DA7B3",
    "line": "#6E7681",
    "masked": "#2D333B",
}
# Text on a full colour must not turn with the theme, since the colour below it does not.
BLACK, WHITE = "#000000", "#FFFFFF"

REUSED_ALPHA = 0.35  # from a cache: its colour at 35%, with an outline
RECOMPUTED_ALPHA = 0.12  # computed again: hatched in its colour on a hint of it
HATCH = "//"

# Lengths are points (1/72 inch) on the printed page: 7 inches is the text width of A4 or letter.
PRINT_WIDTH = 504.0
MARGIN = 10.0
TEXT_SIZE = 9.0  # the smallest text of the book
TITLE_SIZE = 11.0
CAP_HEIGHT = 0.72  # height of a capital letter, as a share of the font size

FONT_STACK = (
    "-apple-system",
    "Segoe UI",
    "Roboto",
    "Arial",
    "Noto Sans",
    "DejaVu Sans",
    "Noto Sans CJK SC",
    "PingFang SC",
    "Microsoft YaHei",
    "sans-serif",
)
# Matplotlib measures with the font that it brings along, so a figure comes out the same on every
# machine. These only supply the Chinese glyphs of a raster picture, where one is installed.
MEASURING_FONT = "DejaVu Sans"
RASTER_CHINESE_FONTS = (
    "Noto Sans CJK SC",
    "Noto Sans CJK JP",  # the name under which Matplotlib sees the file that holds all of them
    "PingFang SC",
    "PingFang HK",
    "Hiragino Sans GB",
    "Microsoft YaHei",
    "WenQuanYi Zen Hei",
)


def as_json() -> str:
    """The visual language as a JSON object, for the widgets' JavaScript."""
    return json.dumps(
        {
            "colors": COLORS,
            "light": LIGHT,
            "dark": DARK,
            "reused_alpha": REUSED_ALPHA,
            "recomputed_alpha": RECOMPUTED_ALPHA,
            "text_size": TEXT_SIZE,
            "title_size": TITLE_SIZE,
            "font_stack": FONT_STACK,
        }
    )


def luminance(color: str) -> float:
    """Relative luminance of a `#RRGGBB` colour, 0 (black) to 1 (white), as WCAG 2.1 defines it."""
    channels = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def text_color_on(color: str) -> str:
    """Black or white: the one that has the higher contrast on `color` (WCAG 2.1)."""
    background = luminance(color) + 0.05
    return BLACK if background / 0.05 > 1.05 / background else WHITE


def format_bytes(count: int) -> str:
    """A count of bytes with three significant digits: 131072 gives "131 KB" (1 KB = 1000 B).

    Raises ValueError for a negative count.
    """
    if count < 0:
        raise ValueError(f"a count of bytes cannot be negative, but it is {count}")
    if count < 1000:
        return f"{count} B"
    size, units = count / 1000, ["KB", "MB", "GB", "TB"]
    while size >= 999.5 and len(units) > 1:  # 999.6 KB would round to "1000 KB": it is 1.00 MB
        size /= 1000
        units.pop(0)
    decimals = 2 if size < 9.995 else 1 if size < 99.95 else 0
    return f"{size:.{decimals}f} {units[0]}"


@contextmanager
def use_book_style() -> Iterator[None]:
    """Within this context, Matplotlib charts look like the book's.

    with use_book_style():
        figure, axes = plt.subplots()
    """
    import matplotlib

    with matplotlib.rc_context(_matplotlib_settings()):
        yield


def _matplotlib_settings() -> dict[str, object]:
    import matplotlib.font_manager
    from cycler import cycler

    installed = set(matplotlib.font_manager.get_font_names())
    chinese = [name for name in RASTER_CHINESE_FONTS if name in installed]
    ink, muted, line, paper = (LIGHT[name] for name in ("ink", "muted", "line", "paper"))
    # One marker a colour, so that lines can be told apart without it.
    order = ("query", "key", "value", "scores", "weights", "output")
    cycle = cycler(color=[COLORS[name] for name in order]) + cycler(marker=list("os^Dvx"))
    return {
        "font.family": [MEASURING_FONT, *chinese],
        "font.size": TEXT_SIZE,
        "axes.titlesize": TITLE_SIZE,
        "axes.titleweight": "bold",
        "axes.titlelocation": "left",
        "axes.labelsize": TEXT_SIZE,
        "xtick.labelsize": TEXT_SIZE,
        "ytick.labelsize": TEXT_SIZE,
        "legend.fontsize": TEXT_SIZE,
        "legend.frameon": False,
        "figure.figsize": (PRINT_WIDTH / 72, PRINT_WIDTH / 72 / 2),
        "figure.facecolor": paper,
        "axes.facecolor": paper,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.edgecolor": line,
        "axes.labelcolor": muted,
        "axes.titlecolor": ink,
        "text.color": ink,
        "xtick.color": line,
        "ytick.color": line,
        "xtick.labelcolor": muted,
        "ytick.labelcolor": muted,
        "axes.prop_cycle": cycle,
        "lines.markersize": 4,
        "lines.linewidth": 1.5,
        "hatch.linewidth": 0.8,
        "svg.fonttype": "none",  # text stays text: it can be searched, and any font can show it
        "svg.hashsalt": "llmlab",  # the same picture is the same file
    }
