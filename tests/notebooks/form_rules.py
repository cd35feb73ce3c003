"""The agreed shape of a chapter. A rule takes a chapter and returns what is wrong, cell by cell."""

import ast
import re

from chapter_file import FENCE, LAST_SECTIONS, ROOT, TAG, Cell, Chapter

MOST_LINES = 25
STRICT_SHARE = 2 / 3
PREDICT = re.compile(r"^\*\*Predict\.\*\*", re.MULTILINE)
EXPLAIN = re.compile(r"^\*\*(What it showed|Explain)\.\*\*", re.MULTILINE)
CLAIM = re.compile(r"""^[*_]*["“].{8,}?["”]""", re.MULTILINE)
EXERCISE = re.compile(r"^\**(\d+)\.", re.MULTILINE)
TIME_TO_READ = re.compile(r"\babout (an hour|half an hour|\d+ minutes)\b")
# Words of a cell whose output may change with the time or the machine.
VARIES = re.compile(
    r"time|second|thread|version|device|hardware|random|memory|float16", re.IGNORECASE
)


def opening(chapter: Chapter) -> list[str]:
    """First a title and one paragraph that says how long it takes, then the imports."""
    problems = []
    first, second = chapter.cells[0], chapter.cells[1]
    number = chapter.path.name[:2]
    paragraphs = [part for part in re.split(r"\n\s*\n", first.source.strip()) if part.strip()]
    if not first.is_markdown or not re.match(rf"# {number} \S", first.source):
        problems.append(f"{first.name}: the first cell begins with '# {number} Title'")
    if len(paragraphs) != 2:
        problems.append(f"{first.name}: one paragraph after the title, not {len(paragraphs) - 1}")
    if not TIME_TO_READ.search(first.source):
        problems.append(f"{first.name}: say how long it takes ('about 40 minutes')")
    if number != "00" and not re.search(r"\]\(\d\d_\w+\.ipynb\)", first.source):
        problems.append(f"{first.name}: link the chapters it builds on")
    if not second.is_code or not re.match(r"(import|from) ", second.source):
        problems.append(f"{second.name}: the second cell is the imports")
    return problems


def unused_imports(chapter: Chapter) -> list[str]:
    """The imports are what the chapter uses, its exercises included."""
    problems = []
    fences = [fence for cell in chapter.markdown for fence in FENCE.findall(cell.source)]
    used = "\n".join([*fences, *(_without_imports(cell.source) for cell in chapter.code)])
    for cell in chapter.code:
        for node in ast.walk(_parse(cell.source)):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = [(alias.asname or alias.name).split(".")[0] for alias in node.names]
                unused = [name for name in names if not re.search(rf"\b{name}\b", used)]
                problems += [f"{cell.name}: {name} is imported and not used" for name in unused]
    return problems


def _parse(source: str) -> ast.Module:
    """Code without IPython's own lines, which Python cannot parse."""
    return ast.parse(re.sub(r"(?m)^\s*[%!].*$", "", source))


def _without_imports(source: str) -> str:
    tree = _parse(source)
    tree.body = [node for node in tree.body if not isinstance(node, ast.Import | ast.ImportFrom)]
    return ast.unparse(tree)


def headings(chapter: Chapter) -> list[str]:
    """'## 1. ...', '## 2. ...' in order, then the fixed last sections in theirs."""
    titles = [section.title for section in chapter.sections]
    count = len(titles) - len(LAST_SECTIONS)
    problems = []
    if tuple(titles[count:]) != LAST_SECTIONS:
        problems.append(f"the last sections are {', '.join(LAST_SECTIONS)}; got {titles[-5:]}")
    for number, title in enumerate(titles[: max(count, 0)], 1):
        if not title.startswith(f"{number}. "):
            problems.append(f"the {number}. section is called {title!r}, not '{number}. ...'")
    return problems if count >= 1 else [*problems, "there is no numbered section"]


def predict_run_explain(chapter: Chapter) -> list[str]:
    """In every numbered section: a question, then code, then what it showed; as often as needed.

    No code comes before the first question. A cell that explains may ask the next question.
    """
    problems = []
    for section in chapter.numbered_sections:
        beats = "".join(_beats(cell) for cell in section.cells)  # as "PCEPCCECE"
        if not re.fullmatch(r"(PC+E[CE]*)+", beats):
            problems.append(
                f"{section.name}: predict, code, explain is the order; here it is "
                + " ".join({"P": "predict", "C": "code", "E": "explain"}[beat] for beat in beats)
            )
        problems += [
            f"{cell.name}: a cell that asks ends with its question, a paragraph **Predict.**"
            for cell in section.cells
            if cell.is_markdown and PREDICT.search(cell.source) and not _ends_with_question(cell)
        ]
    return problems


def _beats(cell: Cell) -> str:
    if cell.is_code:
        return "C"
    explains, asks = EXPLAIN.search(cell.source), PREDICT.search(cell.source)
    return ("E" if explains else "") + ("P" if asks else "")


def _ends_with_question(cell: Cell) -> bool:
    return bool(PREDICT.match(re.split(r"\n\s*\n", cell.source.strip())[-1]))


def short_cells(chapter: Chapter) -> list[str]:
    """No code cell is longer than a reader can take in."""
    return [
        f"{cell.name}: {len(cell.source.splitlines())} lines; {MOST_LINES} are the most"
        for cell in chapter.code
        if len(cell.source.splitlines()) > MOST_LINES
    ]


def claims_refuted(chapter: Chapter) -> list[str]:
    """Two or more wrong claims in quotes, each with a cell of its own and words after it."""
    section = chapter.section("What people get wrong")
    marks = []  # as "QCW": a claim, code, words
    for cell in section.cells:
        if cell.is_code:
            marks.append("C")
            continue
        before, *rest = CLAIM.split(cell.source)
        if _words(before):
            marks.append("W")
        marks += ["Q"] * len(rest)
    text = "".join(marks)
    if len(re.findall("Q", text)) < 2:
        return [f"{section.name}: two claims in quotes at least, each at the start of a line"]
    if not re.fullmatch(r"W?(QW?C+W)+", text):
        return [f"{section.name}: each claim has a code cell, then a line on what it shows"]
    return []


def _words(text: str) -> bool:
    return bool(re.sub(r"^#.*$", "", text, flags=re.MULTILINE).strip(" *_\n"))


def measured_table(chapter: Chapter) -> list[str]:
    """An introduction and one cell that prints the chapter's numbers."""
    section = chapter.section("What was measured")
    code = [cell for cell in section.cells if cell.is_code]
    problems = []
    if len(code) != 1 or len(re.findall(r"\d", code[0].printed)) < 3:
        problems.append(f"{section.name}: one code cell that prints a table of numbers")
    if not any(_words(cell.source) for cell in section.cells if cell.is_markdown):
        problems.append(f"{section.name}: a line of introduction")
    return problems


def exercises(chapter: Chapter) -> list[str]:
    """Four to six, numbered, and each says how to check oneself."""
    section = chapter.section("Exercises")
    text = "\n\n".join(
        cell.source if cell.is_markdown else f"check:\n{cell.source}" for cell in section.cells
    )
    pieces = EXERCISE.split(text)
    numbers, bodies = [int(number) for number in pieces[1::2]], pieces[2::2]
    if numbers != list(range(1, len(numbers) + 1)) or not 4 <= len(numbers) <= 6:
        return [f"{section.name}: four to six, numbered 1. 2. 3. ...; found {numbers}"]
    return [
        f"{section.name}: exercise {number} does not say how to check oneself"
        for number, body in zip(numbers, bodies, strict=True)
        if not re.search(r"check|assert", body, re.IGNORECASE)
    ]


def code_map(chapter: Chapter) -> list[str]:
    """A table 'idea | file | name'; every name is defined in the file beside it."""
    section = chapter.section("Where the code lives")
    lines = [line for cell in section.cells for line in cell.source.splitlines() if "|" in line]
    if not lines or [part.strip() for part in lines[0].split("|")[1:4]] != ["idea", "file", "name"]:
        return [f"{section.name}: a table with the columns idea, file, name"]
    problems = [] if len(lines) > 2 else [f"{section.name}: the table is empty"]
    for line in lines[2:]:
        link = re.search(r"\]\(\.\./(llmlab/[\w/]+\.py)\)", line)
        if not link or not (ROOT / link[1]).is_file():
            problems.append(f"{section.name}: no link '../llmlab/...py' to a file in {line!r}")
            continue
        text = (ROOT / link[1]).read_text(encoding="utf-8")
        names = re.findall(r"`([\w.]+)`", line.rsplit("|", 2)[1])
        if not names:
            problems.append(f"{section.name}: no name in backticks in {line!r}")
        problems += [
            f"{section.name}: {link[1]} defines no {name}"
            for name in names
            if not all(
                re.search(rf"\b(def|class) {part}\b|^\s*{part}\b.*=", text, re.MULTILINE)
                for part in name.split(".")
            )
        ]
    return problems


def sources_listed(chapter: Chapter) -> list[str]:
    """A list of what the chapter stands on, each with its year or number."""
    section = chapter.section("Sources")
    items = [
        line for cell in section.cells for line in cell.source.splitlines() if line.startswith("- ")
    ]
    problems = [
        f"{section.name}: no year and no number in {item[:60]!r}"
        for item in items
        if not re.search(r"\d{4}|\d\.\d|\bRFC", item)
    ]
    return problems if items else [f"{section.name}: a list of sources"]


def strict_outputs(chapter: Chapter) -> list[str]:
    """Two thirds of the cells with output are compared; the others show a picture or vary."""
    problems = []
    with_output = [cell for cell in chapter.code if cell.outputs]
    strict = [cell for cell in with_output if cell.is_strict]
    if len(strict) < STRICT_SHARE * len(with_output):
        problems.append(f"only {len(strict)} of {len(with_output)} outputs are compared by nbval")
    for cell in chapter.code:
        other = [tag for tag in cell.tags if tag.startswith(("nbval", "raises")) and tag != TAG]
        if other or "NBVAL" in cell.source:
            problems.append(f"{cell.name}: the only tag of nbval in use is {TAG}; got {other}")
        if not cell.is_strict and not cell.outputs:
            problems.append(f"{cell.name}: has the tag {TAG}, and no output to ignore")
        elif not cell.is_strict and not cell.shows_picture:
            if not VARIES.search(cell.source + cell.printed):
                problems.append(f"{cell.name}: is not compared, though nothing in it can vary")
        elif cell.is_strict and cell.shows_picture:
            problems.append(f"{cell.name}: shows a picture, so it needs the tag {TAG}")
    return problems


RULES = (
    opening,
    unused_imports,
    headings,
    predict_run_explain,
    short_cells,
    claims_refuted,
    measured_table,
    exercises,
    code_map,
    sources_listed,
    strict_outputs,
)
