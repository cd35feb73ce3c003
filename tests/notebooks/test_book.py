"""Every chapter keeps the rules of the book; each rule is one test a chapter."""

import form_rules
import link_rules
import number_rules
import output_rules
import pytest
from chapter_file import BOOK, Chapter

CHAPTERS = sorted(BOOK.glob("[0-9]*.ipynb"))
RULES = [
    *form_rules.RULES,
    *number_rules.RULES,
    *output_rules.RULES,
    *link_rules.RULES,
]


@pytest.fixture(scope="module", params=CHAPTERS, ids=lambda path: path.stem)
def chapter(request):
    return Chapter(request.param)


def test_there_are_chapters():
    assert [path.name[:2] for path in CHAPTERS] == [f"{n:02}" for n in range(len(CHAPTERS))]
    assert CHAPTERS


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_rule(chapter, rule):
    problems = rule(chapter)
    assert not problems, f"\n{chapter.path.name}, {rule.__doc__}\n  " + "\n  ".join(problems)
