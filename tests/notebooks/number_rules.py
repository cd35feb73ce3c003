"""No orphan numbers: a number with a unit in the prose was printed by a cell, or is a cited fact.

The rule, in full. Prose is the markdown of a chapter, code spans and exercises included, without
code blocks. Without alt texts too, which must equal those of the figures, whose numbers have tests
of their own. Wherever a number is followed by a unit (see `UNITS`), the same number must stand in
a stored output of this notebook, or in the first column of the table in notebooks/FACTS.md. "The
same" means the same digits; the comma in 73,728 does not count, and with "thousand", "million" or
"billion" the printed number may be longer if it rounds to the one in the prose.

Three kinds of sentence are free: one that asks (guesses are offered in it), a claim in quotes at
the start of a line (it is there to be refuted), and how long the chapter takes, in the first cell.
"""

import re
from decimal import ROUND_HALF_UP, Decimal

from chapter_file import BOOK, Chapter
from form_rules import CLAIM, TIME_TO_READ

NUMBER = re.compile(r"(?<![\w.])\d{1,3}(?:,\d{3})+(?:\.\d+)?(?![\w])|(?<![\w.])\d+(?:\.\d+)?")
SCALES = {"thousand": 10**3, "million": 10**6, "billion": 10**9}
UNITS = (
    r"bytes?|bits?|[KMGT]i?B(?:/s)?|B(?=[\s.,;:)])"
    r"|ms|µs|us|s(?=[\s.,;:)])|seconds?|minutes?|hours?|tok(?:ens)?/s|tokens? (?:per|a) second"
    r"|%|percent|per cent"
    r"|parameters?|params|[KMGTP]?FLOPs?(?:/s)?|[GT]FLOP/s"
    # "2.4x" and "9 × fewer" compare; "2 x layers" multiplies.
    r"|times\b|-?fold|(?<=\d)[x×]|[x×](?= (?:fewer|more|less|faster|slower|as)\b)"
)
AMOUNT = re.compile(
    rf"(?P<number>{NUMBER.pattern})"
    rf"(?:[\s\u00a0]*(?P<scale>{'|'.join(SCALES)}))?"
    rf"(?:[\s\u00a0]|-(?=[a-z]))?(?P<unit>{UNITS})(?![\w])"
)
QUESTION = re.compile(r"[^.?!\n]*\?")
FACTS = BOOK / "FACTS.md"


def orphan_numbers(chapter: Chapter) -> list[str]:
    """A number with a unit is printed by a cell or cited in FACTS.md (the rule is above)."""
    known = {
        digits(number) for cell in chapter.code for number in NUMBER.findall(cell.printed)
    } | cited_numbers()
    problems = []
    for cell in chapter.markdown:
        prose = cell.prose
        if cell.number == 1:
            prose = TIME_TO_READ.sub("", prose)
        for amount in amounts(prose):
            if not is_known(amount, known):
                problems.append(f"{cell.name}: {amount[0]!r} is printed by no cell, nor a fact")
    return problems


def amounts(prose: str) -> list[re.Match]:
    """The numbers with units that must be known."""
    kept = QUESTION.sub(" ", CLAIM.sub(" ", _protect_decimals(prose)))
    return list(AMOUNT.finditer(kept.replace("\ue000", ".")))


def _protect_decimals(text: str) -> str:
    """So that the point in 3.5 does not end a sentence."""
    return re.sub(r"(?<=\d)\.(?=\d)", "\ue000", text)


def is_known(amount: re.Match, known: set[str]) -> bool:
    number = digits(amount["number"])
    if not amount["scale"]:
        return number in known
    step = Decimal(1).scaleb(-len(number.partition(".")[2]))
    scale = SCALES[amount["scale"]]
    rounded = {
        (Decimal(other) / scale).quantize(step, ROUND_HALF_UP) for other in known if len(other) < 20
    }
    return number in known or Decimal(number) in rounded


def digits(number: str) -> str:
    """73,728 and 73728 are one number."""
    return number.replace(",", "")


def cited_numbers() -> set[str]:
    """The numbers in the first column of the table of facts."""
    rows = FACTS.read_text(encoding="utf-8").splitlines()
    facts = [row.split("|")[1] for row in rows if row.startswith("|")]
    return {digits(number) for fact in facts for number in NUMBER.findall(fact)}


RULES = (orphan_numbers,)
