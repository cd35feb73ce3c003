"""Draws the book's figures: `python -m llmlab.figures [NAME ...] [--output FOLDER] [--list]`."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from tqdm import tqdm

from llmlab.figures import FIGURES, draw


def main(arguments: Sequence[str] | None = None) -> None:
    """Draws the figures named (all of them where none is) as SVG files into a folder."""
    parser = argparse.ArgumentParser(
        prog="python -m llmlab.figures", description="Draw the book's figures as SVG files."
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="which figures (default: all)")
    parser.add_argument("--output", type=Path, default=Path("figures"), help="folder to write into")
    parser.add_argument("--list", action="store_true", help="print the names and stop")
    options = parser.parse_args(arguments)
    if options.list:
        print("\n".join(FIGURES))
        return
    unknown = [name for name in options.names if name not in FIGURES]
    if unknown:
        parser.error(f"no figure {', '.join(unknown)}; --list prints the names")
    # Here, after the arguments are known to be good: it brings Matplotlib.
    from llmlab.figures.svg import to_svg

    options.output.mkdir(parents=True, exist_ok=True)
    for name in tqdm(options.names or FIGURES, unit="figure", leave=False, delay=2, disable=None):
        path = options.output / f"{name}.svg"
        path.write_text(to_svg(draw(name)), encoding="utf-8")
        tqdm.write(str(path))


if __name__ == "__main__":
    main()
