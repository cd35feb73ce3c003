"""What is stored in a chapter: outputs that hold on any machine, and the package's own source."""

import ast
import contextlib
import importlib
import io
import re

from chapter_file import Cell, Chapter

MOST_BYTES = 6_000_000
MOST_DIGITS = 4
# What must stand in no chapter, by the name under which a reader would know it.
UNWANTED = {
    "a path of one machine": r"(?<![\w.:/])/(home|root|tmp|work|usr|Users|private|var|opt)/",
    "a path of one machine (Windows)": r"\b[A-Z]:\\\\?Users",
    "a memory address": r"\b0x[0-9a-f]{8,}\b",
    "a colour code of a terminal": r"\x1b\[",
}
UNWANTED_IN_OUTPUT = {
    "a warning": r"\b\w*Warning\b|\bWARNING\b",
    "a traceback": r"Traceback \(most recent call last\)",
    "a progress bar": r"\r|\d+%\|| it/s\b|\[\d\d:\d\d<",
    "a raw tensor of floats": r"tensor\([^)]*\d\.",
}
NETWORK = {
    "a web address": r"https?://",
    "a shell command": r"^\s*[!%](?!matplotlib|load_ext|config)",
    "a download": r"\b(urllib|httpx|wget|snapshot_download|hf_hub_download)\b|\bimport requests\b",
    "a name on a hub": r"from_pretrained\(\s*[\"'][^./~]|load_model\(\s*[\"'][^./~]",
}


def executed_in_order(chapter: Chapter) -> list[str]:
    """As after 'restart and run all'."""
    counts = [cell.node.execution_count for cell in chapter.code]
    if counts == list(range(1, len(counts) + 1)):
        return []
    return [f"execution counts are {counts}: execute the notebook from the top, and store it"]


def no_errors(chapter: Chapter) -> list[str]:
    """No cell failed, and nothing was written to the error stream."""
    problems = []
    for cell in chapter.code:
        for output in cell.outputs:
            if output.output_type == "error":
                problems.append(f"{cell.name}: ends in {output.ename}")
            elif output.get("name") == "stderr":
                problems.append(f"{cell.name}: wrote to stderr {output.text[:80]!r}")
    return problems


def joined_streams(chapter: Chapter) -> list[str]:
    """What a cell printed is one output: how it is cut depends on the time alone."""
    return [
        f"{cell.name}: its printed text is stored in pieces; execute with coalesce_streams=True"
        for cell in chapter.code
        if [output.output_type for output in cell.outputs].count("stream") > 1
    ]


def nothing_of_one_machine(chapter: Chapter) -> list[str]:
    """No paths, addresses, warnings, progress bars or raw tensors."""
    problems = []
    for cell in chapter.cells:
        for what, pattern in UNWANTED.items():
            found = re.search(pattern, cell.source + "\n" + (cell.printed if cell.is_code else ""))
            if found:
                problems.append(f"{cell.name}: {what}, {found[0]!r}")
        for what, pattern in UNWANTED_IN_OUTPUT.items():
            found = cell.is_code and re.search(pattern, cell.printed)
            if found:
                problems.append(f"{cell.name}: printed {what}, {found[0]!r}")
    return problems


def few_digits(chapter: Chapter) -> list[str]:
    """Compared outputs show the digits that every processor agrees on."""
    problems = []
    for cell in chapter.code:
        for whole, decimals in re.findall(r"(?<![\w.])(\d+)\.(\d+)(?![\w.])", cell.printed):
            leading = len(decimals) - len(decimals.lstrip("0")) if whole == "0" else 0
            if cell.is_strict and len(decimals) - leading > MOST_DIGITS:
                problems.append(
                    f"{cell.name}: {whole}.{decimals} has more than {MOST_DIGITS} decimals"
                )
    return problems


def package_source_is_current(chapter: Chapter) -> list[str]:
    """What `show_source` printed is what the package's file says today."""
    imported = _imports(chapter)
    problems = []
    for cell in chapter.code:
        for node in ast.walk(ast.parse(re.sub(r"(?m)^\s*[%!].*$", "", cell.source))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "show_source":
                problems += _check_source(cell, ast.unparse(node.args[0]), imported)
    return problems


def _check_source(cell: Cell, name: str, imported: dict[str, object]) -> list[str]:
    try:
        thing = eval(name, {**imported})
    except (NameError, AttributeError):
        return [f"{cell.name}: show_source({name}): give a name that the chapter imports"]
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        imported["show_source"](thing)
    if not thing.__module__.startswith("llmlab."):
        return [f"{cell.name}: {name} is no part of the package"]
    if printed.getvalue().strip() not in cell.printed:
        return [f"{cell.name}: the stored source of {name} is not the package's: execute it again"]
    return []


def _imports(chapter: Chapter) -> dict[str, object]:
    """The names that the chapter imports from the package."""
    names = {}
    for cell in chapter.code:
        for node in ast.walk(ast.parse(re.sub(r"(?m)^\s*[%!].*$", "", cell.source))):
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("llmlab"):
                for alias in node.names:
                    names[alias.asname or alias.name] = _imported(node.module, alias.name)
    return names


def _imported(module: str, name: str) -> object:
    """What `from module import name` gives: something in the module, or a module of its own."""
    found = importlib.import_module(module)
    return (
        getattr(found, name)
        if hasattr(found, name)
        else importlib.import_module(f"{module}.{name}")
    )


def works_offline(chapter: Chapter) -> list[str]:
    """No code asks the network for anything (test_threads.py watches it run, too)."""
    return [
        f"{cell.name}: {what}, {found[0]!r}"
        for cell in chapter.code
        for what, pattern in NETWORK.items()
        if (found := re.search(pattern, cell.source, re.MULTILINE))
    ]


def small_file(chapter: Chapter) -> list[str]:
    """A browser and GitHub can show it."""
    size = chapter.path.stat().st_size
    return (
        [f"the file has {size:,} bytes; {MOST_BYTES:,} are the most"] if size > MOST_BYTES else []
    )


RULES = (
    executed_in_order,
    no_errors,
    joined_streams,
    nothing_of_one_machine,
    few_digits,
    package_source_is_current,
    works_offline,
    small_file,
)
