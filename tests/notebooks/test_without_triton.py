"""Chapters 07 and 08 where Triton cannot be installed, as on macOS: they run, and say what changed.

Triton is made unimportable in the kernel's process, and the cells are executed one after another.
"""

import os
import subprocess
import sys

import pytest
from chapter_file import BOOK, Chapter

RUN = """
import sys
sys.modules["triton"] = None  # importing it now raises ImportError
import nbformat
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
for cell in nbformat.read(sys.argv[1], 4).cells:
    if cell.cell_type == "code":
        result = shell.run_cell(cell.source)
        result.raise_error()
print("every cell ran")
"""
REPLACED = {
    "07_attention_and_memory": 0,
    "08_flash_attention_in_triton": 10,  # cells that must say so, at least
}


@pytest.mark.parametrize("name", REPLACED)
def test_a_chapter_runs_without_triton(name, tmp_path):
    environment = {**os.environ, "MPLBACKEND": "agg", "IPYTHONDIR": str(tmp_path)}
    process = subprocess.run(
        [sys.executable, "-c", RUN, str(BOOK / f"{name}.ipynb")],
        capture_output=True,
        text=True,
        cwd=BOOK,
        env=environment,
        timeout=300,
        check=False,
    )
    assert "every cell ran" in process.stdout, (process.stdout + process.stderr)[-3000:]
    said = process.stdout.count("no Triton to do this with")
    assert said >= REPLACED[name]
    assert (said > 0) == ("No Triton here" in process.stdout)


def test_with_triton_nothing_is_replaced():
    for name in REPLACED:
        chapter = Chapter(BOOK / f"{name}.ipynb")
        assert not any("no Triton" in cell.printed for cell in chapter.code)
