"""Figures of chapter 00: from a prompt to text, and two requests that share a model."""

from dataclasses import dataclass

from llmlab.decoding import generate
from llmlab.figures import style
from llmlab.figures.page import BookFigure, Points, write
from llmlab.figures.primitives import Box, arrow, cell, chip, legend, panel
from llmlab.model import load_model
from llmlab.tokenization import load_tokenizer

MUTED = style.LIGHT["muted"]
PROMPT = "time flies like an"
ROW = 20.0  # of the pipeline: one token
STEP_WIDTH = 67.0  # of the timeline
TOKEN_HEIGHT = 15.0
LANES_LEFT = 92.0
TOP = 80.0
VECTOR_CELL = 11.0
# Of each stage: its left edge, width, name, shape, and the chapter that explains it.
STAGES = (
    (10, 50, "tokens", "[T]", "chapter 01"),
    (80, 44, "ids", "[T]", "chapter 01"),
    (144, 66, "embeddings", "[T, C]", "chapter 02"),
    (238, 84, "blocks", "[T, C]", "chapters 03, 04"),
    (344, 44, "logits", "[V]", "chapter 04"),
    (430, 62, "next token", "[1]", "chapter 05"),
)


def pipeline() -> BookFigure:
    """What happens to a prompt until it is longer by one token: the embedded model's own tokens."""
    tokenizer, model = load_tokenizer(), load_model()
    ids = tokenizer.encode(PROMPT)
    # The model was trained on texts that begin with the begin token; the picture leaves it out.
    next_token = tokenizer.decode(generate(model, [tokenizer.bos_id, *ids], 1).ids).strip()
    bottom = TOP + (len(ids) + 1) * ROW  # below the row of the token that is fed back
    figure = BookFigure(
        height=bottom + 58,
        title="A model turns tokens into one more token, again and again",
        alt=(
            f"From left to right: the prompt '{PROMPT}' is cut into {len(ids)} tokens; each token "
            "becomes an id, each id a vector of C numbers; all vectors pass through the blocks of "
            "attention and MLP; the last one becomes a logit for each of the V tokens of the "
            f"vocabulary; the token with the largest, {next_token}, goes back to the start as the "
            "next input."
        ),
    )
    write(figure, style.MARGIN, 40, f"prompt: “{PROMPT}”")
    for x, width, name, shape, chapter in STAGES:
        write(figure, x + width / 2, 62, f"{name} {shape}", align="center", bold=True)
        write(figure, x + width / 2, bottom + 24, chapter, align="center", color=MUTED)
    for row, number in enumerate(ids):
        _token_row(figure, TOP + (row + 0.5) * ROW, tokenizer.decode([number]).strip(), number)
    _blocks(figure, _column("blocks", TOP + len(ids) * ROW / 2, len(ids) * ROW))
    _choice(figure, TOP + (len(ids) - 0.5) * ROW, next_token)
    entries = [
        ("prefill", "computed", "prefill: the whole prompt at once"),
        ("decode", "computed", "decode: one token at a time"),
    ]
    legend(figure, style.MARGIN, bottom + 44, entries)
    return figure


def _column(stage: str, y: Points, height: Points) -> Box:
    """The part of a stage's column that is `height` points high and centred on `y`."""
    x, width = next((x, width) for x, width, name, *_ in STAGES if name == stage)
    return Box(x, y - height / 2, width, height)


def _between(figure: BookFigure, before: Box, after: Box, y: Points) -> None:
    arrow(figure, [(before.right + 3, y), (after.x - 3, y)])


def _token_row(figure: BookFigure, y: Points, token: str, number: int) -> None:
    """One token of the prompt on its way to the blocks: text, id, vector."""
    chip_box = chip(figure, _column("tokens", y, ROW - 4), token, kind="prefill")
    id_box, vector = _column("ids", y, ROW), _column("embeddings", y, VECTOR_CELL)
    write(figure, id_box.center[0], y, str(number), align="center")
    for column in range(round(vector.width / VECTOR_CELL)):
        box = Box(vector.x + column * VECTOR_CELL, vector.y, VECTOR_CELL, VECTOR_CELL)
        cell(figure, box, kind="prefill", state="idle")
    _between(figure, chip_box, id_box, y)
    _between(figure, id_box, vector, y)
    _between(figure, vector, _column("blocks", y, ROW), y)


def _blocks(figure: BookFigure, box: Box) -> None:
    """A stack of blocks: the first in full, the edges of two more behind it."""
    for depth in (8, 4, 0):
        frame = Box(box.x + depth, box.y + depth, box.width - 8, box.height - 8)
        panel(figure, frame, filled=True)
    for row, name in enumerate(("attention", "MLP")):
        middle = box.y + (box.height - 8) * (row + 0.5) / 2
        part = panel(figure, Box(box.x + 10, middle - 12, box.width - 28, 24))
        write(figure, *part.center, name, align="center")


def _choice(figure: BookFigure, y: Points, next_token: str) -> None:
    """From the vector of the last token, at `y`, to the next token, and with it to the start."""
    size, count = 10.0, 8
    logits = Box(_column("logits", y, size).center[0] - size / 2, y - size / 2, size, size)
    for above in range(1, count):
        box = Box(logits.x, logits.y - above * size, size, size)
        cell(figure, box, kind="output", state="idle")
    cell(figure, logits, kind="output")
    _between(figure, _column("blocks", y, ROW), logits, y)
    chosen = chip(figure, _column("next token", y, ROW - 4), next_token, kind="decode")
    _between(figure, logits, chosen, y)
    write(figure, (logits.right + chosen.x) / 2, y - 10, "largest", align="center", color=MUTED)
    again = chip(figure, _column("tokens", y + ROW, ROW - 4), next_token, kind="decode")
    x, loop_y = chosen.center[0], again.center[1]
    arrow(figure, [(x, chosen.bottom), (x, loop_y), (again.right + 3, loop_y)])
    write(figure, 290, loop_y + 10, "appended: the next input", align="center", color=MUTED)


@dataclass(frozen=True)
class Request:
    """A request as a scheduler sees it: tokens to compute, of which the prompt comes first."""

    name: str
    arrival: int  # the step before which it arrives, counted from 1
    prompt: tuple[str, ...]
    answer: tuple[str, ...]


# Sentences of our own, one word drawn as one token.
REQUESTS = (
    Request("A", 1, ("time", "flies", "like"), ("an", "arrow", "and", "fruit", "flies", "like")),
    Request("B", 4, ("the", "capital", "of", "France", "is"), ("Paris", ".")),
)


def schedule(request: Request) -> dict[int, tuple[str, ...]]:
    """The tokens of a request that each step computes: what there is, less what is computed.

    Step `arrival` computes the whole prompt (prefill) and gives the first token of the answer;
    every later step computes the token before (decode). The last token is given, never computed.
    """
    steps, computed, known = {}, 0, request.prompt
    for step, token in enumerate(request.answer, start=request.arrival):
        steps[step] = known[computed:]
        computed, known = len(known), (*known, token)
    return steps


def two_requests() -> BookFigure:
    """A second request arrives while the first one decodes, and joins the next step."""
    plans = {request: schedule(request) for request in REQUESTS}
    steps = max(max(plan) for plan in plans.values())
    joined = REQUESTS[1].arrival
    batch = [len(plans[request][joined]) for request in REQUESTS]
    figure = BookFigure(
        height=284,
        title="The second request prefills while the first one decodes",
        alt=(
            f"A timeline of {steps} steps of one model, a row for each request; one cell is one "
            f"token computed. A computes its {len(REQUESTS[0].prompt)} prompt tokens in step 1, "
            f"then one token a step. B arrives before step {joined}: in that step its {batch[1]} "
            f"prompt tokens and {batch[0]} token of A are computed together, {sum(batch)} in all. "
            "Then both decode, until B is done."
        ),
    )
    for step in range(1, steps + 1):
        x = LANES_LEFT + (step - 0.5) * STEP_WIDTH
        write(figure, x, 42, f"step {step}", align="center", bold=True)
        total = sum(len(plan.get(step, ())) for plan in plans.values())
        write(figure, x, 245, str(total), align="center", bold=True)
    write(figure, style.MARGIN, 245, "tokens computed")
    for (request, plan), bottom in zip(plans.items(), (104.0, 212.0), strict=True):
        _lane(figure, request, plan, bottom)
    frame_x = LANES_LEFT + (joined - 1) * STEP_WIDTH
    panel(figure, Box(frame_x, 50, STEP_WIDTH, 204), dashed=True)
    entries = [
        ("prefill", "computed", "prefill: tokens of the prompt"),
        ("decode", "computed", "decode: one token a step"),
    ]
    x = legend(figure, style.MARGIN, 270, entries)
    write(figure, x, 270, "→ the token that comes out", color=MUTED)
    return figure


def _lane(
    figure: BookFigure, request: Request, plan: dict[int, tuple[str, ...]], bottom: Points
) -> None:
    """One request: for each step a stack of computed tokens, and under it the token it gives."""
    write(figure, style.MARGIN, bottom - 25, f"request {request.name}", bold=True)
    write(figure, style.MARGIN, bottom - 11, f"arrives: step {request.arrival}", color=MUTED)
    for (step, tokens), given in zip(plan.items(), request.answer, strict=True):
        x = LANES_LEFT + (step - 1) * STEP_WIDTH + 2
        kind = "prefill" if step == request.arrival else "decode"
        top = bottom - len(tokens) * TOKEN_HEIGHT
        for row, token in enumerate(tokens):
            box = Box(x, top + row * TOKEN_HEIGHT, STEP_WIDTH - 4, TOKEN_HEIGHT)
            cell(figure, box, kind=kind, label=token)
        write(figure, x + STEP_WIDTH / 2 - 2, bottom + 8, f"→ {given}", align="center", color=MUTED)
