"""A folder imports only from layers below its own, and `import llmlab` stays cheap."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "llmlab"

#: Lowest first; those in one row may not import each other, but for those named in WITHIN_A_ROW.
LAYERS = (
    {"json_file"},
    {"config", "tokenization", "memory"},
    {"embedding"},
    {"attention"},
    {"cache"},
    {"model"},
    {"decoding"},
    {"serving"},
    {"toyworld", "figures", "widgets", "teaching", "bench"},
    {"exercises"},
    {"doctor", "cli"},
)
WITHIN_A_ROW = {("cli", "doctor")}
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}


def imports(path: Path) -> set[str]:
    """The llmlab folders that a file imports, wherever in the file."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = (
                [f"{node.module}.{alias.name}" for alias in node.names]
                if node.module == "llmlab"
                else [node.module]
            )
        else:
            continue
        found |= {name.split(".")[1] for name in names if name.startswith("llmlab.")}
    return found


def folder_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


FILES = sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_point_downwards(path):
    here = folder_of(path)
    for other in imports(path) - {here, "__version__"}:
        assert LEVEL[other] < LEVEL[here] or (here, other) in WITHIN_A_ROW, (
            f"{path} imports llmlab.{other}"
        )


def test_every_folder_has_a_layer():
    folders = {folder_of(path) for path in FILES}
    assert folders - set(LEVEL) == set()


def test_heavy_libraries_are_imported_where_they_are_used():
    """Importing the whole core loads none of them; transformers alone would double the time."""
    modules = (
        "llmlab, llmlab.tokenization, llmlab.model, llmlab.cache, llmlab.decoding, llmlab.attention"
    )
    heavy = ("transformers", "triton", "matplotlib", "ipywidgets", "huggingface_hub", "jinja2")
    code = f"import torch, sys; before = set(sys.modules)\nimport {modules}\n"
    code += f"print([m for m in {heavy} if m in sys.modules and m not in before])"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"


def test_import_costs_little_more_than_torch():
    """Counted, not timed: how many modules come on top of torch's own."""
    code = "import torch, sys; n = len(sys.modules)\nimport llmlab, llmlab.model, llmlab.decoding\n"
    code += "print(n, len(sys.modules))"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    torch_modules, all_modules = map(int, result.stdout.split())
    assert all_modules < 1.15 * torch_modules
