"""Links lead somewhere, pictures exist and can be read by those who cannot see them."""

import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from urllib.parse import unquote

from chapter_file import FENCE, IMAGE, ROOT, Cell, Chapter

LINK = re.compile(r"(?<!!)\[[^\]]+\]\(([^)\s]+)\)")
FEWEST_WORDS = 8
README = ROOT / "README.md"


def links_resolve(chapter: Chapter) -> list[str]:
    """Relative links name a file of the project, anchors a heading of the notebook they name."""
    problems = []
    for cell in chapter.markdown:
        for target in LINK.findall(FENCE.sub("", cell.source)):
            if re.match(r"https?://", target):
                continue
            file, _, anchor = unquote(target).partition("#")
            path = (chapter.path.parent / file).resolve() if file else chapter.path
            if not path.is_relative_to(_project(chapter)) or not path.exists():
                problems.append(f"{cell.name}: the link {target!r} leads nowhere")
            elif anchor and anchor not in _anchors(path):
                problems.append(f"{cell.name}: {path.name} has no heading for {target!r}")
    return problems


def _project(chapter: Chapter) -> Path:
    return chapter.path.parent.parent.resolve()


def _anchors(path: Path) -> set[str]:
    """The anchors of a notebook's headings, as JupyterLab and nbconvert write them."""
    if path.suffix != ".ipynb":
        return set()
    headings = [
        heading
        for cell in Chapter(path).markdown
        for heading in re.findall(r"^#+ +(.+?) *$", FENCE.sub("", cell.source), re.MULTILINE)
    ]
    return {heading.replace(" ", "-") for heading in headings}


def cross_references_resolve(chapter: Chapter) -> list[str]:
    """'section 4' is a section of this chapter, unless a year stands before it: then of a paper."""
    count = len(chapter.numbered_sections)
    sources = chapter.section("Sources").cells
    problems = []
    for cell in chapter.markdown:
        if cell in sources:
            continue
        for found in re.finditer(r"\b[Ss]ections? (\d+)(?![.\d])", cell.prose):
            before, after = cell.prose[: found.start()], cell.prose[found.end() :]
            elsewhere = re.search(r"(19|20)\d\d[^.]{0,60}$", before) or re.match(
                r" (of|in) (chapter|\[)", after
            )
            if not elsewhere and not 1 <= int(found[1]) <= count:
                problems.append(f"{cell.name}: there is no {found[0]}; there are {count}")
    return problems


def pictures_have_words(chapter: Chapter) -> list[str]:
    """A picture is a file of the project, and its alt text says what is seen.

    A figure of the book carries its own words: the chapter gives the same ones.
    """
    problems = []
    for cell in chapter.markdown:
        for alt, target in IMAGE.findall(FENCE.sub("", cell.source)):
            path = (chapter.path.parent / target).resolve()
            if not path.is_file():
                problems.append(f"{cell.name}: there is no picture {target}")
            elif len(alt.split()) < FEWEST_WORDS:
                problems.append(f"{cell.name}: the alt text of {target} says too little: {alt!r}")
            elif path.suffix == ".svg" and _description(path) not in (None, alt):
                problems.append(f"{cell.name}: the alt text of {target} is not the figure's own")
        problems += _pictures_in_html(cell)
    return problems


def _description(path: Path) -> str | None:
    element = ElementTree.parse(path).getroot().find("{http://www.w3.org/2000/svg}desc")
    return None if element is None else element.text


def _pictures_in_html(cell: Cell) -> list[str]:
    tags = re.findall(r"<img\b[^>]*>", FENCE.sub("", cell.source))
    return [f"{cell.name}: write pictures as ![alt text](file), not {tag!r}" for tag in tags]


def listed_in_readme(chapter: Chapter) -> list[str]:
    """The README's table of chapters has a row that links it."""
    rows = [line for line in README.read_text(encoding="utf-8").splitlines() if "|" in line]
    if any(f"(notebooks/{chapter.path.name})" in row for row in rows):
        return []
    return [f"README.md has no row with a link (notebooks/{chapter.path.name})"]


RULES = (links_resolve, cross_references_resolve, pictures_have_words, listed_in_readme)
