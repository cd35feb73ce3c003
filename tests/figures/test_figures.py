"""Every registered figure: as stored, complete, legible, in the book's colours."""

import itertools
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from llmlab.figures import FIGURES, draw, style
from llmlab.figures.__main__ import main
from llmlab.figures.svg import to_svg

STORED = Path(__file__).parents[2] / "figures"
SVG = "{http://www.w3.org/2000/svg}"
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e-?\d+)?")
TOLERANCE = 0.05  # points: no eye sees it, and Matplotlib's versions may differ by a last digit


@pytest.fixture(scope="module", params=FIGURES)
def drawn(request):
    figure = draw(request.param)
    return request.param, figure, to_svg(figure)


def normalised(svg: str) -> tuple[list[str], list[float]]:
    """What an SVG shows: its words and structure, and apart from them its numbers.

    The names of hatches, markers and clips are hashes that nobody sees: they are left out.
    """
    words, numbers = [], []
    for element in ElementTree.fromstring(svg).iter():
        words += [element.tag, element.text or ""]
        for attribute, value in sorted(element.attrib.items()):
            if attribute == "style" or not NUMBER.search(value):
                words += [attribute, re.sub(r"url\(#\w+\)", "url", value)]
            elif attribute != "id" and not attribute.endswith("href"):
                words += [attribute, NUMBER.sub("0", value)]
                numbers += map(float, NUMBER.findall(value))
    return words, numbers


def test_the_stored_figure_is_what_the_code_draws(drawn):
    name, _, svg = drawn
    path = STORED / f"{name}.svg"
    assert path.exists(), f"figures/{name}.svg is missing: run `make figures`"
    words, numbers = normalised(svg)
    stored_words, stored_numbers = normalised(path.read_text(encoding="utf-8"))
    advice = f"figures/{name}.svg is not what the code draws: run `make figures` and look at it"
    assert words == stored_words, advice
    assert numbers == pytest.approx(stored_numbers, abs=TOLERANCE), advice


def test_no_figure_is_left_over():
    assert {path.stem for path in STORED.glob("*.svg")} == set(FIGURES)


@pytest.mark.parametrize(
    ("before", "after", "same"),
    [
        ('x="10"', 'x="10.01"', True),
        ('x="10"', 'x="11"', False),
        (">1.2<", ">1.3<", False),
        ("fill: #0072b2", "fill: #e69f00", False),
        ("url(#h1)", "url(#h2)", True),
    ],
)
def test_what_counts_as_drift(before, after, same):
    svg = '<svg><text x="10" style="fill: #0072b2">1.2</text><path style="fill: url(#h1)"/></svg>'
    assert before in svg
    (words, numbers), (new_words, new_numbers) = map(normalised, (svg, svg.replace(before, after)))
    assert (words == new_words and numbers == pytest.approx(new_numbers, abs=TOLERANCE)) == same


def test_a_figure_drawn_twice_is_the_same_text():
    assert to_svg(draw("05_cache_growth")) == to_svg(draw("05_cache_growth"))


def test_title_and_words_for_those_who_cannot_see_it(drawn):
    _, figure, svg = drawn
    root = ElementTree.fromstring(svg)
    assert root.find(f"{SVG}title").text == figure.title
    assert root.find(f"{SVG}desc").text == figure.alt
    assert len(figure.title.split()) >= 5, "a title states the finding: a sentence, not a word"
    assert len(figure.alt.split()) >= 25
    assert figure.drawing.texts[0].get_text() == figure.title


def test_text_is_at_least_9_points_on_the_printed_page(drawn):
    _, _, svg = drawn
    root = ElementTree.fromstring(svg)
    assert root.get("viewBox").split()[2] == "504"  # points, 7 inches: what a page has
    sizes = [float(re.search(r"font-size: ([\d.]+)px", t.get("style"))[1]) for t in texts(root)]
    assert min(sizes) >= 9


def texts(root):
    return list(root.iter(f"{SVG}text"))


def test_colours_come_from_the_palette(drawn):
    _, _, svg = drawn
    root = ElementTree.fromstring(svg)
    root.remove(root.find(f"{SVG}style"))
    used = set(re.findall(r"#[0-9a-f]{6}\b", ElementTree.tostring(root, encoding="unicode")))
    palette = {*style.COLORS.values(), *style.LIGHT.values(), style.BLACK, style.WHITE}
    assert used <= {color.lower() for color in palette}


def visible_texts(figure):
    """Texts with their boxes in points, measured with a font that is wider than most."""
    canvas = FigureCanvasAgg(figure)
    with style.use_book_style():
        canvas.draw()
        renderer = canvas.get_renderer()
        found = [text for axes in figure.axes for text in axes.findobj(match=is_text)]
        scale = 72 / figure.dpi
        return [
            (t.get_text(), t.get_window_extent(renderer).transformed(scaled(scale))) for t in found
        ]


def is_text(artist):
    from matplotlib.text import Text

    return isinstance(artist, Text) and artist.get_visible() and bool(artist.get_text())


def scaled(factor):
    from matplotlib.transforms import Affine2D

    return Affine2D().scale(factor)


@pytest.mark.filterwarnings("ignore:Glyph .* missing from font")
def test_no_text_is_cut_or_covered(drawn):
    name, figure, _ = drawn
    boxes = visible_texts(figure)
    assert len(boxes) > 5
    for text, box in boxes:
        across = 4 <= box.x0 <= box.x1 <= style.PRINT_WIDTH - 4
        down = 3 <= box.y0 <= box.y1 <= figure.height - 3
        assert (across, down) == (True, True), f"{name}: {text!r} leaves the page"
    for (text, box), (other, other_box) in itertools.combinations(boxes, 2):
        across = min(box.x1, other_box.x1) - max(box.x0, other_box.x0)
        down = min(box.y1, other_box.y1) - max(box.y0, other_box.y0)
        assert across < 0.5 or down < 2, f"{name}: {text!r} and {other!r} overlap"


def test_an_unknown_figure_is_named():
    with pytest.raises(ValueError, match="no figure '99_nothing'; there are 00_pipeline"):
        draw("99_nothing")


def test_drawing_leaves_the_random_numbers_alone():
    import torch

    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    draw("05_projected_tokens")
    assert torch.rand(1) == expected


def test_command_line_draws_into_a_folder(tmp_path, capsys):
    main(["00_two_requests", "--output", str(tmp_path / "new")])
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["00_two_requests.svg"]
    assert "00_two_requests.svg" in capsys.readouterr().out


def test_command_line_lists_and_refuses(tmp_path, capsys):
    main(["--list"])
    assert capsys.readouterr().out.split() == list(FIGURES)
    with pytest.raises(SystemExit):
        main(["00_two_requests", "nonsense", "--output", str(tmp_path)])
    assert "no figure nonsense" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
