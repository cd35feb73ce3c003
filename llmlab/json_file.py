"""Paths as a reader gives them, and reading a JSON object from a file, with errors that name it."""

import json
import os
from pathlib import Path
from typing import Any


def local_path(path: str | os.PathLike[str]) -> Path:
    """The path, "~" and "~name" written out.

    Raises TypeError for what is no path, ValueError for an empty one, and FileNotFoundError for the
    home of a user that does not exist.
    """
    if not isinstance(path, str | os.PathLike):
        raise TypeError(f"a path must be a str or a Path, not {type(path).__name__}")
    if not os.fspath(path):
        raise ValueError("the path is empty; '.' is the folder that you are in")
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise FileNotFoundError(f"there is no path {str(path)!r}: {error}") from None


def read_json(path: str | Path) -> dict[str, Any]:
    """The object in a JSON file. Raises FileNotFoundError, or ValueError where it holds none."""
    path = local_path(path)
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    try:
        # Some editors put a mark (BOM) before the text, which "utf-8-sig" takes away.
        content = json.loads(path.read_text(encoding="utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not valid JSON: {error}") from None
    if not isinstance(content, dict):
        raise ValueError(f"{path} must hold a JSON object, not a {type(content).__name__}")
    return content
