"""The parts of which figures are made, and the SVG that comes of them."""

import re
import warnings
import xml.etree.ElementTree as ElementTree

import pytest
from matplotlib.patches import Circle, Rectangle

from llmlab.figures import style
from llmlab.figures.page import BookFigure, write
from llmlab.figures.primitives import (
    STATES,
    Box,
    arrow,
    cell,
    chart,
    chip,
    legend,
    matrix,
    panel,
)
from llmlab.figures.svg import to_svg

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def figure():
    with style.use_book_style():
        return BookFigure(height=100, title="A finding", alt="A picture & what it shows")


def shapes(figure, kind):
    return [patch for patch in figure.drawing.patches if type(patch) is kind]


@pytest.mark.parametrize(("title", "alt"), [("", "alt"), ("title", " ")])
def test_a_figure_needs_a_title_and_an_alt_text(title, alt):
    with pytest.raises(ValueError, match="needs a title"):
        BookFigure(height=50, title=title, alt=alt)


def test_a_page_is_in_points_from_the_top_left_corner(figure):
    with style.use_book_style():
        cell(figure, Box(10, 20, 30, 40), kind="key")
    path = next(p for p in paths(to_svg(figure)) if "#e69f00" in p.get("style"))
    assert path.get("d") == "M 10 20 L 40 20 L 40 60 L 10 60 z"


def paths(svg):
    return ElementTree.fromstring(svg).findall(f".//{SVG}path")


def test_each_state_of_a_cell_looks_different():
    looks = set()
    for state in STATES:
        figure = BookFigure(height=50, title="t", alt="a")
        cell(figure, Box(0, 0, 17, 17), kind="value", state=state, label="1")
        rectangle, *rest = shapes(figure, Rectangle)
        hatch = {patch.get_hatch() for patch in rest} - {None}
        dots = len(shapes(figure, Circle))
        looks.add((rectangle.get_facecolor(), rectangle.get_edgecolor(), tuple(hatch), dots))
        assert (hatch == {style.HATCH}) == (state == "recomputed")
        assert (dots == 1) == (state == "masked")
    assert len(looks) == len(STATES)


def test_a_reused_cell_is_its_colour_at_35_percent_with_an_outline(figure):
    cell(figure, Box(0, 0, 17, 17), kind="key", state="reused")
    style_of_cell = paths(to_svg(figure))[-1].get("style")
    assert "fill: #e69f00; fill-opacity: 0.35; stroke: #e69f00" in style_of_cell


@pytest.mark.parametrize("draw", [cell, chip])
def test_an_unknown_kind_is_named(figure, draw):
    arguments = ("x",) if draw is chip else ()
    with pytest.raises(ValueError, match=r"'quary' has no colour .* query, key"):
        draw(figure, Box(0, 0, 9, 9), *arguments, kind="quary")


def test_an_unknown_state_is_named(figure):
    with pytest.raises(ValueError, match=r"'cached' is no state .* reused"):
        cell(figure, Box(0, 0, 9, 9), kind="key", state="cached")


def test_a_matrix_is_drawn_to_scale_with_its_numbers(figure):
    box = matrix(
        figure,
        5,
        6,
        [["1", "2", ""], ["3", "4", "5"]],
        kind="scores",
        state=lambda row, column: "masked" if column > row + 1 else "computed",
        cell_size=10,
    )
    assert box == Box(5, 6, 30, 20)
    assert (box.right, box.bottom, box.center) == (35, 26, (20, 16))
    assert len(shapes(figure, Rectangle)) == 6
    assert len(shapes(figure, Circle)) == 1
    assert [text.get_text() for text in figure.drawing.texts][1:] == ["1", "2", "3", "4", "5"]


def test_an_arrow_ends_where_it_is_told(figure):
    arrow(figure, [(10, 10), (50, 10), (50, 40)], head=5)
    (line,), tip = figure.drawing.lines, figure.drawing.patches[-1].get_xy()
    assert line.get_xydata().tolist() == [[10, 10], [50, 10], [50, 35]]
    assert tip[0].tolist() == [50, 40]
    assert sorted(tip[1:3, 0].tolist()) == pytest.approx([47.75, 52.25])


def test_a_chart_fills_its_box(figure):
    axes = chart(figure, Box(252, 25, 126, 50), x_label="n", y_label="bytes")
    assert axes.get_position().bounds == pytest.approx((0.5, 0.25, 0.25, 0.5))


def test_svg_text_stays_text_in_any_script(figure):
    write(figure, 10, 50, "遥遥领先 <b> & $x$")
    root = ElementTree.fromstring(to_svg(figure))
    assert [text.text for text in root.iter(f"{SVG}text")] == ["A finding", "遥遥领先 <b> & $x$"]
    for font in ("Segoe UI", "Noto Sans CJK SC", "PingFang SC", "Microsoft YaHei"):
        assert font in root.get("font-family")


def test_a_glyph_that_no_font_here_has_is_passed_on_in_silence(figure):
    write(figure, 10, 50, "\U0010fffd")
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        assert "\U0010fffd" in to_svg(figure)
    assert seen == []


def test_text_is_centred_on_y_by_its_size_alone(figure):
    write(figure, 10, 50, "Q", size=10)
    write(figure, 10, 50, "遥", size=10)
    latin, chinese = list(ElementTree.fromstring(to_svg(figure)).iter(f"{SVG}text"))[1:]
    assert float(latin.get("y")) == float(chinese.get("y")) == pytest.approx(53.6)


def test_svg_speaks_to_screen_readers(figure):
    figure.name = "figure-x"
    root = ElementTree.fromstring(to_svg(figure))
    assert root.get("role") == "img"
    by_id = {element.get("id"): element for element in root.iter() if element.get("id")}
    title, description = (by_id[name] for name in root.get("aria-labelledby").split())
    assert (title.tag, title.text) == (f"{SVG}title", "A finding")
    assert (description.tag, description.text) == (f"{SVG}desc", "A picture & what it shows")


def test_svg_is_the_same_twice_and_has_no_date(figure):
    cell(figure, Box(0, 0, 9, 9), kind="key", state="recomputed")
    assert to_svg(figure) == to_svg(figure)
    assert "date" not in to_svg(figure).lower()
    assert "matplotlib" not in to_svg(figure).lower()


def test_svg_in_a_page_leaves_the_page_alone(figure):
    """Its style rules are for its own id only: an inlined SVG's rules reach the whole page."""
    figure.name = "figure-x"
    (sheet,) = ElementTree.fromstring(to_svg(figure)).iter(f"{SVG}style")
    rules = re.match(r"@media \(prefers-color-scheme: dark\) \{ (.*) \}$", sheet.text)[1]
    selectors = [part for rule in re.findall(r"([^{}]+)\{", rules) for part in rule.split(",")]
    assert selectors
    assert all(selector.strip().startswith("#figure-x ") for selector in selectors)


def test_dark_theme_turns_neutral_colours_and_no_others(figure):
    (sheet,) = ElementTree.fromstring(to_svg(figure)).iter(f"{SVG}style")
    for name, light in style.LIGHT.items():
        assert f'path[style*="fill: {light.lower()}"]' in sheet.text
        assert f"fill: {style.DARK[name]} !important" in sheet.text
    assert not any(color.lower() in sheet.text.lower() for color in style.COLORS.values())
    # White text stands on blue, which stays blue.
    assert 'text[style*="fill: #ffffff"]' not in sheet.text


def test_a_figure_shows_itself_in_a_notebook(figure):
    assert figure._repr_svg_() == to_svg(figure)
    png = figure._repr_png_()
    assert png.startswith(b"\x89PNG")
    width, height = (int.from_bytes(png[i : i + 4], "big") for i in (16, 20))
    assert (width, height) == (1008, 200)  # twice the points


def test_small_parts(figure):
    assert chip(figure, Box(0, 0, 20, 15), "领") == Box(0, 0, 20, 15)
    assert panel(figure, Box(0, 0, 9, 9), dashed=True) == Box(0, 0, 9, 9)
    end = legend(figure, 10, 50, [("key", "reused", "cached"), ("key", "idle", "free")])
    words = {text.get_text(): text.get_position()[0] for text in figure.drawing.texts}
    assert words["cached"] == 25
    assert 25 + 6 * 5.4 < words["free"] < end
