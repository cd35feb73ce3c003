"""Helpers of the notebooks: show the package's own source, print numbers that hold anywhere."""

import inspect
from collections.abc import Sequence
from unicodedata import combining, east_asian_width

from torch import Tensor


def show_source(thing: object) -> None:
    """Print the source of a function or class of the package, as it stands in its file."""
    print(inspect.getsource(inspect.unwrap(thing)).rstrip())


def table(
    values: Tensor | Sequence[Sequence[float]],
    *,
    digits: int = 2,
    rows: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
) -> None:
    """Print a matrix [R, C] or a vector [C], rounded, with named rows and columns.

    The last bits of a float differ from one processor to another; `digits` keeps the others.

    Raises ValueError where the names do not fit the shape.
    """
    values = values.detach().cpu().tolist() if isinstance(values, Tensor) else [*values]
    if not values or not isinstance(values[0], Sequence):
        values = [values]
    text = [[_number(value, digits) for value in row] for row in values]
    if rows is not None:
        if len(rows) != len(text):
            raise ValueError(f"{len(rows)} row names for {len(text)} rows")
        text = [[name, *line] for name, line in zip(rows, text, strict=True)]
    if columns is not None:
        head = [*columns] if rows is None else ["", *columns]
        if any(len(head) != len(line) for line in text):
            raise ValueError(f"{len(columns)} column names do not fit {len(text[0])} columns")
        text = [head, *text]
    widths = [max(_width(line[i]) for line in text) for i in range(len(text[0]))]
    for line in text:
        cells = (
            " " * (width - _width(cell)) + cell for cell, width in zip(line, widths, strict=True)
        )
        print("  ".join(cells))


def _number(value: object, digits: int) -> str:
    if not isinstance(value, float):
        return str(value)
    text = f"{value:.{digits}f}"
    return text.lstrip("-") if float(text) == 0 else text  # no "-0.00"


def _width(text: str) -> int:
    """Columns on the screen: a Chinese character or an emoji takes two, a combining accent none."""
    return sum(
        0 if combining(character) else 2 if east_asian_width(character) in "FW" else 1
        for character in text
    )


def without_triton() -> tuple[object, object]:
    """In place of the modules `triton` and `triton.language` where there is none: kernels can be
    defined, and are not run."""

    class Triton:
        @staticmethod
        def jit(function):
            return function

    class Language:
        constexpr = int

    return Triton, Language


def replaced(what: str, instead: object) -> object:
    """Says that something which needs Triton was replaced, and gives what takes its place."""
    print(f"(no Triton to do this with: {what} was replaced by PyTorch or left out)")
    return instead
