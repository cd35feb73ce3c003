"""The rules of the book on made-up chapters: each accepts a good one and rejects a bad one."""

import inspect
import re

import form_rules
import link_rules
import nbformat
import number_rules
import output_rules
import pytest
from chapter_file import TAG, Chapter
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from llmlab.embedding import token_embedding

RULES = {
    rule.__name__: rule
    for module in (form_rules, number_rules, output_rules, link_rules)
    for rule in module.RULES
}
GOOD = """
=== markdown
# 03 A title

What is the question? This chapter answers it in about 40 minutes and builds on
[another](02_other.ipynb).
=== code
import math

from llmlab.cache import kv_cache_bytes
from llmlab.embedding import token_embedding
from llmlab.teaching import show_source
=== markdown
## 1. A first thing

Something to know; it takes 2 bytes a number.

![Two boxes side by side, of which the left one is empty](../figures/boxes.svg)

**Predict.** Will it be 10 bytes or 20 bytes?
=== code
print("tokens 1,024 bytes 2")
--- out
tokens 1,024 bytes 2
=== markdown
**What it showed.** It took 1,024 tokens a second, see section 2 and
[there](02_other.ipynb#1.-The-start).
=== markdown
## 2. The second thing

**Predict.** What next?
=== code
show_source(token_embedding)
--- out
SOURCE
=== code TAGGED
math.sin(1.0)
--- picture
=== markdown
**Explain.** So it is (Someone 2020, section 9).

**Predict.** And now?
=== code
print(round(math.pi, 2))
--- out
3.14
=== markdown
**What it showed.** So it is too.
=== markdown
## What people get wrong

**"It takes 77 bytes, always."**
=== code
print(kv_cache_bytes)
--- out
no
=== markdown
It does not.

*"It is the other way round."*
=== code
print("no")
--- out
no
=== markdown
It is not.
=== markdown
## What was measured

All of it.
=== code
print("1 2 3")
--- out
1 2 3
=== markdown
## Exercises

1. One. Check it in a cell.
2. Two. Check it as well.
3. Three. Check it.
4. Four.

```python
assert "12 GB of something" and math
```
=== markdown
## Where the code lives

| idea | file | name |
|---|---|---|
| look-up | [embedding.py](../llmlab/embedding.py) | `token_embedding` |
=== markdown
## Sources

- Someone 2020, section 9.
"""
BOXES = "Two boxes side by side, of which the left one is empty"


def chapter(folder, text=None, *, name="03_made_up.ipynb") -> Chapter:
    """A notebook file from the text above, in a book of two chapters and a picture."""
    notebooks = folder / "notebooks"
    notebooks.mkdir(exist_ok=True)
    (folder / "figures").mkdir(exist_ok=True)
    (folder / "llmlab").mkdir(exist_ok=True)
    (folder / "llmlab" / "embedding.py").touch()
    (folder / "figures" / "boxes.svg").write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg"><desc>{BOXES}</desc></svg>', encoding="utf-8"
    )
    other = new_notebook(cells=[new_markdown_cell("## 1. The start")])
    nbformat.write(other, notebooks / "02_other.ipynb")
    nbformat.write(new_notebook(cells=list(cells(text or GOOD))), notebooks / name)
    return Chapter(notebooks / name)


def cells(text):
    count = 0
    for part in re.split(r"^=== ", text.lstrip(), flags=re.MULTILINE)[1:]:
        kind, _, rest = part.partition("\n")
        source, *outputs = re.split(r"^--- (\w+)\n", rest, flags=re.MULTILINE)
        if kind == "markdown":
            yield new_markdown_cell(source.strip())
            continue
        count += 1
        cell = new_code_cell(source.strip(), execution_count=count)
        cell.metadata["tags"] = [TAG] if "TAGGED" in kind else []
        cell.outputs = [
            output(kind, text) for kind, text in zip(outputs[::2], outputs[1::2], strict=True)
        ]
        yield cell


def output(kind, text):
    if kind == "picture":
        return new_output("display_data", data={"image/png": "AAAA", "text/plain": "<Figure>"})
    if kind == "error":
        return new_output("error", ename="ValueError", evalue="no", traceback=[])
    return new_output("stream", name={"out": "stdout", "err": "stderr"}[kind], text=text)


@pytest.fixture(autouse=True)
def made_up_book(tmp_path, monkeypatch):
    source = inspect.getsource(inspect.unwrap(token_embedding)).rstrip()
    monkeypatch.setattr(f"{__name__}.GOOD", GOOD.replace("SOURCE", source))
    (tmp_path / "FACTS.md").write_text(
        "| fact | source |\n|---|---|\n| a wire moves 3.35 TB/s | page 7 |\n", encoding="utf-8"
    )
    (tmp_path / "README.md").write_text(
        "| [03](notebooks/03_made_up.ipynb) | what it is |\n", encoding="utf-8"
    )
    monkeypatch.setattr(number_rules, "FACTS", tmp_path / "FACTS.md")
    monkeypatch.setattr(link_rules, "README", tmp_path / "README.md")


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_a_good_chapter_passes(tmp_path, rule):
    assert rule(chapter(tmp_path)) == []


LONG = "\n".join(f"x{number} = {number}" for number in range(26))
# Rule, what is replaced in the good chapter, by what, and a piece of the message.
BAD = [
    ("opening", "# 03 A title", "# 04 A title", "cell 1 "),
    ("opening", "# 03 A title", "## 03 A title", "'# 03 Title'"),
    ("opening", "and builds on", "\n\nIt builds on", "one paragraph"),
    ("opening", "about 40 minutes", "some time", "how long"),
    ("opening", "02_other.ipynb", "02_other.html", "link the chapters"),
    ("opening", "import math\n", "x = 1\n", "cell 2 "),
    ("unused_imports", "import math", "import math, json", "json is imported and not used"),
    ("unused_imports", "import math", "import json as math_json, math", "math_json"),
    ("headings", "## 2. The second", "## 3. The second", "the 2. section"),
    ("headings", "## 2. The second", "## The second", "the 2. section"),
    ("headings", "## What was measured", "## What we measured", "the last sections are"),
    ("headings", "## Exercises", "## Sources", "the last sections are"),
    ("predict_run_explain", "**What it showed.** It took", "It took", "'1. A first thing'"),
    ("predict_run_explain", "**Predict.** What next?", "What next?", "code explain"),
    ("predict_run_explain", "**Explain.** So", "So", "'2. The second thing'"),
    ("predict_run_explain", "**Predict.** What next?", "**Predict.** What?\n\nNow:", "ends with"),
    ("predict_run_explain", "**What it showed.** So it is too.", "", "'2. The second thing'"),
    ("short_cells", "print(round", f"{LONG}\nprint(round", "27 lines"),
    ("claims_refuted", '*"It is the other way round."*', "It is not.", "two claims"),
    ("claims_refuted", '=== code\nprint("no")\n--- out\nno\n', "", "has a code cell"),
    ("claims_refuted", "\nIt is not.\n=== markdown", "\n=== markdown", "has a code cell"),
    ("measured_table", "--- out\n1 2 3\n", "", "a table of numbers"),
    ("measured_table", "\nAll of it.\n", "\n", "introduction"),
    ("exercises", "\n4. Four.", "\nFour.", "four to six"),
    ("exercises", "3. Three.", "5. Three.", "four to six"),
    ("exercises", "Check it as well.", "Easy.", "exercise 2"),
    ("code_map", "| idea |", "| what |", "columns idea"),
    ("code_map", "../llmlab/embedding.py", "../llmlab/embeddings.py", "no link"),
    ("code_map", "| `token_embedding` |", "| `token_embeddings` |", "defines no token_embeddings"),
    ("code_map", "| `token_embedding` |", "| the look-up |", "no name"),
    ("sources_listed", "- Someone 2020, section 9.", "", "a list"),
    ("sources_listed", "- Someone 2020, section 9.", "- Someone.", "no year"),
    ("strict_outputs", "=== code TAGGED", "=== code", "needs the tag"),
    ("strict_outputs", '=== code\nprint("1 2 3")', '=== code TAGGED\nprint("1 2 3")', "can vary"),
    ("strict_outputs", "=== code\nimport", "=== code TAGGED\nimport", "no output"),
    ("strict_outputs", "print(round", "# NBVAL_SKIP\nprint(round", "only tag"),
    ("orphan_numbers", "2 bytes a", "8 bytes a", "cell 3 "),
    ("orphan_numbers", "It took 1,024 tokens a", "It took 1,025 tokens a", "1,025"),
    ("orphan_numbers", "4. Four.", "4. Four of 4096 bytes.", "4096 bytes"),
    ("executed_in_order", "=== code\nprint(round", "=== code\n=== code\nprint(round", ""),
    ("no_errors", "--- out\n3.14", "--- error\n", "ends in ValueError"),
    ("no_errors", "--- out\n3.14", "--- err\nfailed", "wrote to stderr"),
    ("joined_streams", "--- out\n3.14", "--- out\n3\n--- out\n.14", "in pieces"),
    ("nothing_of_one_machine", "3.14", "/home/me/x", "a path of one machine"),
    ("nothing_of_one_machine", "It does not.", "See `/tmp/x`.", "a path of one machine"),
    ("nothing_of_one_machine", "3.14", "<f at 0x7f3a2b1c9d00>", "a memory address"),
    ("nothing_of_one_machine", "3.14", "\x1b[31mred", "a colour code"),
    ("nothing_of_one_machine", "3.14", "x: UserWarning: y", "a warning"),
    ("nothing_of_one_machine", "3.14", "Traceback (most recent call last)", "a traceback"),
    ("nothing_of_one_machine", "3.14", "10%|#   | 1/9", "a progress bar"),
    ("nothing_of_one_machine", "3.14", "tensor([3.1416])", "a raw tensor"),
    ("few_digits", "3.14", "3.14159", "more than 4"),
    ("package_source_is_current", "return table[ids]", "return ids[table]", "not the package's"),
    ("package_source_is_current", "show_source(token_embedding)", "show_source(x)", "imports"),
    ("works_offline", "print(round", "import requests\nprint(round", "a download"),
    ("works_offline", "print(round", "!pip list\nprint(round", "a shell command"),
    ("works_offline", "print(round", 'from_pretrained("gpt2")\nprint(round', "a name on a hub"),
    ("works_offline", "print(round", 'get("https://x.org")\nprint(round', "a web address"),
    ("links_resolve", "(02_other.ipynb#", "(02_others.ipynb#", "leads nowhere"),
    ("links_resolve", "#1.-The-start", "#2.-The-start", "no heading"),
    ("links_resolve", "(02_other.ipynb#", "(../../../etc/hosts#", "leads nowhere"),
    ("cross_references_resolve", "see section 2", "see section 3", "no section 3"),
    ("pictures_have_words", "boxes.svg", "circles.svg", "there is no picture"),
    ("pictures_have_words", f"![{BOXES}]", "![Two boxes]", "says too little"),
    ("pictures_have_words", f"![{BOXES}]", f"![{BOXES} now]", "not the figure's own"),
    ("pictures_have_words", f"![{BOXES}]", '<img src="x.png">![', "write pictures as"),
]


@pytest.mark.parametrize(("rule", "old", "new", "message"), BAD)
def test_a_bad_chapter_is_rejected(tmp_path, rule, old, new, message):
    assert old in GOOD, "the good chapter has changed: so must this case"
    text = GOOD.replace(old, new, 1)
    made = chapter(tmp_path, text)
    if rule == "executed_in_order":
        made.code[3].node.execution_count = 9
    problems = RULES[rule](made)
    assert problems
    assert message in " ".join(problems)
    assert re.search(r"cell \d+ \(|section", " ".join(problems)) or rule in WITHOUT_A_CELL


WITHOUT_A_CELL = ("executed_in_order", "strict_outputs")

# Rule and a change that it must put up with.
ALSO_GOOD = [
    ("opening", "about 40 minutes", "about an hour"),
    ("unused_imports", "print(round", "print(json.dumps, math, round"),
    ("predict_run_explain", "**Explain.** So it is", "**What it showed.** So it is"),
    ("predict_run_explain", "=== code TAGGED", "=== markdown\nBy the way.\n=== code TAGGED"),
    ("exercises", "1. One.", "**1. One.**"),
    ("orphan_numbers", "2 bytes a", "3.35 TB/s a"),
    ("orphan_numbers", "1,024 tokens a", "1024 tokens a"),
    ("package_source_is_current", "import math", "import math\nfrom llmlab.figures import page"),
    ("few_digits", "3.14", "0.00001234"),
    ("few_digits", "--- out\n3.14", "--- out\n5.12.25"),
    ("works_offline", "print(round", 'from_pretrained("./folder")\nprint(round'),
    ("links_resolve", "(02_other.ipynb#1.-The-start)", "(#2.-The-second-thing)"),
    ("links_resolve", "(02_other.ipynb#1.-The-start)", "(../figures/boxes.svg)"),
    ("cross_references_resolve", "see section 2", "see section 7 of chapter 02"),
    ("nothing_of_one_machine", "It does not.", "See `../figures/home.svg` and and/or."),
]


@pytest.mark.parametrize(("rule", "old", "new"), ALSO_GOOD)
def test_a_rule_is_not_too_strict(tmp_path, rule, old, new):
    assert old in GOOD, "the good chapter has changed: so must this case"
    assert RULES[rule](chapter(tmp_path, GOOD.replace(old, new, 1))) == []


def test_every_rule_has_a_bad_case():
    others = {"small_file", "listed_in_readme"}  # have tests of their own below
    assert {rule for rule, *_ in BAD} | others == set(RULES)


def test_too_little_is_compared(tmp_path):
    made = chapter(tmp_path)
    for cell in made.code[4:]:
        cell.node.metadata["tags"] = [TAG]
    problems = " ".join(RULES["strict_outputs"](made))
    assert "only 2 of 7 outputs" in problems


def test_a_large_file(tmp_path):
    made = chapter(tmp_path)
    with made.path.open("ab") as file:
        file.truncate(output_rules.MOST_BYTES + 1)
    assert "6,000,001" in RULES["small_file"](made)[0]


def test_a_chapter_that_the_readme_does_not_list(tmp_path):
    made = chapter(tmp_path, GOOD.replace("# 03", "# 07"), name="07_made_up.ipynb")
    assert "notebooks/07_made_up.ipynb" in RULES["listed_in_readme"](made)[0]


@pytest.mark.parametrize(
    ("prose", "printed", "known"),
    [
        ("It holds 73,728 bytes.", "73728", True),
        ("It holds 73728 bytes.", "x = 73,728", True),
        ("It holds 73,729 bytes.", "73,728", False),
        ("It holds 72 KB.", "73,728", False),
        ("Each takes `512 bytes` more.", "", False),
        ("That is 45.5% of it.", "45.5", True),
        ("That is 45.5% of it.", "45.52", False),
        ("That is 46% of it.", "45.5", False),
        ("That is 3.5 times as much.", "5", False),
        ("It is 2.4x faster.", "2.4", True),
        ("It is 2.4x faster.", "", False),
        ("Flash moves 9 × fewer bytes.", "", False),
        ("At 12 tok/s it is slow.", "", False),
        ("At 989 TFLOP/s it is fast.", "", False),
        ("It needs 40 ms.", "4.0", False),
        ("It has 124 million parameters.", "124,439,808", True),
        ("It has 124 million parameters.", "125,439,808", False),
        ("It has 8.03 billion parameters.", "8,030,261,248", True),
        ("It has 1.2 million parameters.", "1,180,800", True),
        ("It has 1.3 million parameters.", "1,180,800", False),
        ("A 24-layer model, 12 heads, 5 tokens, 2 x 3.", "", True),
        ("It is 2 x layers x heads.", "", True),
        ("Is it 10 bytes, 100 bytes or 3.5 GB?", "", True),
        ("Is it so? It is 10 bytes.", "", False),
        ("**Predict.** Say how many: 10 bytes.", "", False),
        ('"It is 10 bytes."', "", True),
        ("They say it is 10 bytes.", "", False),
        ("![A bar of 10 bytes](x.svg)", "", True),
        ("```python\nx = '10 GB'\n```", "", True),
        ("It moves 3.35 TB/s.", "", True),
    ],
)
def test_numbers_with_units(tmp_path, prose, printed, known):
    text = f"=== markdown\n# 03 A\n=== markdown\n{prose}\n=== code\nx\n--- out\n{printed}\n"
    assert (RULES["orphan_numbers"](chapter(tmp_path, text)) == []) == known
