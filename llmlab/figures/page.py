"""A figure of the book: a page of points with a title, and words for those who cannot see it."""

import io
import warnings

from matplotlib.figure import Figure

from llmlab.figures import style

Points = int | float  # a length: 1/72 inch on the printed page


class BookFigure(Figure):
    """A Matplotlib figure as wide as the printed text, drawn in points from the top left corner.

    `drawing` is an axes that covers the page: x runs to the right, y runs down, one unit is one
    point (1/72 inch). `title` states the finding, `alt` tells a reader who cannot see the picture
    what it shows, `name` keeps the ids inside its SVG apart from those of other figures on a page.
    In a notebook the figure shows itself.

    Raises ValueError where `title` or `alt` is missing.
    """

    def __init__(self, *, height: Points, title: str, alt: str) -> None:
        if not title.strip() or not alt.strip():
            raise ValueError("a figure needs a title (its finding) and an alt text (what it shows)")
        super().__init__(figsize=(style.PRINT_WIDTH / 72, height / 72))
        self.title = title
        self.alt = alt
        self.name = "figure"
        self.height = height
        self.drawing = self.add_axes((0, 0, 1, 1))
        self.drawing.set_axis_off()
        self.drawing.set_xlim(0, style.PRINT_WIDTH)
        self.drawing.set_ylim(height, 0)
        write(self, style.MARGIN, 17, title, size=style.TITLE_SIZE, bold=True)

    def rendered(self, format: str, *, dpi: int) -> bytes:
        """The figure as Matplotlib writes it, with no word about glyphs that this machine lacks."""
        buffer = io.BytesIO()
        with style.use_book_style(), warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=r"Glyph .* missing from font")
            self.savefig(buffer, format=format, dpi=dpi)
        return buffer.getvalue()

    def _repr_svg_(self) -> str:
        from llmlab.figures.svg import to_svg

        return to_svg(self)

    def _repr_png_(self) -> bytes:
        # For what cannot show SVG: some viewers of notebooks, and LaTeX.
        return self.rendered("png", dpi=144)


def write(
    figure: BookFigure,
    x: Points,
    y: Points,
    text: str,
    *,
    align: str = "left",
    size: Points = style.TEXT_SIZE,
    color: str = style.LIGHT["ink"],
    bold: bool = False,
) -> None:
    """Writes one line of text whose capital letters are centred on `y` (points).

    The baseline is found from the font size alone, so that the picture does not depend on the
    metrics of the fonts that are installed.
    """
    figure.drawing.text(
        x,
        y + size * style.CAP_HEIGHT / 2,
        text,
        ha=align,
        va="baseline",
        fontsize=size,
        color=color,
        fontweight="bold" if bold else "normal",
        parse_math=False,
    )
