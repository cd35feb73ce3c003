"""A chapter as the book-wide rules see it: cells with names, sections, prose, printed text."""

import re
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import nbformat
from nbformat import NotebookNode

ROOT = Path(__file__).parents[2]
BOOK = ROOT / "notebooks"
LAST_SECTIONS = (
    "What people get wrong",
    "What was measured",
    "Exercises",
    "Where the code lives",
    "Sources",
)
TAG = "nbval-ignore-output"
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
IMAGE = re.compile(r"!\[([^\]]*)\]\(([^)\s]+)\)")


@dataclass(frozen=True)
class Cell:
    """One cell; `name` says where it is, for messages."""

    number: int
    node: NotebookNode

    @property
    def name(self) -> str:
        first = next((line for line in self.source.splitlines() if line.strip()), "")
        return f"cell {self.number} ({first[:50]!r})"

    @property
    def source(self) -> str:
        return self.node.source

    @property
    def is_code(self) -> bool:
        return self.node.cell_type == "code"

    @property
    def is_markdown(self) -> bool:
        return self.node.cell_type == "markdown"

    @property
    def tags(self) -> list[str]:
        return self.node.metadata.get("tags", [])

    @property
    def is_strict(self) -> bool:
        """Whether nbval compares its outputs."""
        return TAG not in self.tags

    @property
    def outputs(self) -> list[NotebookNode]:
        return self.node.outputs if self.is_code else []

    @property
    def shows_picture(self) -> bool:
        kinds = {kind for output in self.outputs for kind in output.get("data", {})}
        return any(kind.startswith("image/") for kind in kinds)

    @cached_property
    def printed(self) -> str:
        """All text that the cell's stored outputs show."""
        texts = [output.get("text", "") for output in self.outputs]
        texts += [output.get("data", {}).get("text/plain", "") for output in self.outputs]
        return "\n".join(text for text in texts if text)

    @cached_property
    def prose(self) -> str:
        """Markdown without code blocks, and without pictures' alt texts."""
        return IMAGE.sub("", FENCE.sub("", self.source)) if self.is_markdown else ""


@dataclass(frozen=True)
class Section:
    """A level-two heading and the cells from it to the next one."""

    title: str
    cells: list[Cell] = field(default_factory=list)

    @property
    def name(self) -> str:
        return f"section {self.title!r}"


class Chapter:
    """A notebook file, read once."""

    def __init__(self, path: Path):
        self.path = path
        self.notebook = nbformat.read(path, as_version=4)
        self.cells = [Cell(number, node) for number, node in enumerate(self.notebook.cells, 1)]

    @property
    def code(self) -> list[Cell]:
        return [cell for cell in self.cells if cell.is_code]

    @property
    def markdown(self) -> list[Cell]:
        return [cell for cell in self.cells if cell.is_markdown]

    @cached_property
    def sections(self) -> list[Section]:
        sections = []
        for cell in self.cells:
            heading = cell.is_markdown and re.match(r"## +(.+)", cell.source)
            if heading:
                sections.append(Section(heading[1].strip()))
            if sections:
                sections[-1].cells.append(cell)
        return sections

    @property
    def numbered_sections(self) -> list[Section]:
        return [section for section in self.sections if section.title not in LAST_SECTIONS]

    def section(self, title: str) -> Section:
        """The section of that title, or an empty one."""
        found = [section for section in self.sections if section.title == title]
        return found[0] if found else Section(title)
