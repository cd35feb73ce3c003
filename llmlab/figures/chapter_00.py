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
LOGIT = 10.0  # side of the square of one logit
# Of each stage: its left edge, width, name, shape, and the chapter that explains it.
STAGES = (
    (10, 50, "tokens", "[T]", "chapter 01"),
    (78, 28, "ids", "[T]", "chapter 01"),
    (124, 66, "embeddings", "[T, C]", "chapter 02"),
    (208, 84, "blocks", "[T, C]", "chapters 03, 04"),
    (308, 66, "hidden", "[T, C]", "chapter 04"),
    (396, 10, "logits", "[V]", "chapter 04"),
    (440, 54, "next token", "[1]", "chapter 05"),
)


def pipeline() -> BookFigure:
    """What happens to a prompt until it is longer by one token: the embedded model's own tokens."""
    tokenizer, model = load_tokenizer(), load_model()
    ids = tokenizer.encode(PROMPT)
    # The model was trained on texts that begin with the begin token; the picture leaves it out.
    next_token = tokenizer.decode(generate(model, [tokenizer.bos_id, *ids], 1).ids).strip()
    bottom = TOP + len(ids) * ROW  # below the last row of the prompt
    figure = BookFigure(
        height=bottom + 114,
        title="A model turns tokens into one more token, again and again",
        alt=(
            f"From left to right: the prompt '{PROMPT}' is cut into {len(ids)} tokens; each token "
            "becomes an id, each id a vector of C numbers; all vectors pass through the blocks of "
            "attention and MLP, which give a hidden vector for each token. Only the last of these "
            "is needed: it becomes a logit for each of the V tokens of the vocabulary. The token "
            f"with the largest, {next_token}, goes back to the start as the next input, alone, "
            "since a cache under the blocks keeps the keys (K) and values (V) of all earlier "
            "tokens."
        ),
    )
    write(figure, style.MARGIN, 38, f"prompt: “{PROMPT}”")
    for x, width, name, shape, chapter in STAGES:
        write(figure, x + width / 2, 56, name, align="center", bold=True)
        write(figure, x + width / 2, 68, shape, align="center", color=MUTED)
        write(figure, x + width / 2, bottom + 82, chapter, align="center", color=MUTED)
    for row, number in enumerate(ids):
        _token_row(figure, TOP + (row + 0.5) * ROW, tokenizer.decode([number]).strip(), number)
    blocks = _blocks(figure, _column("blocks", TOP + len(ids) * ROW / 2, len(ids) * ROW))
    _cache(figure, blocks, len(ids))
    _choice(figure, bottom - ROW / 2, next_token)
    entries = [
        ("prefill", "computed", "prefill: the whole prompt at once"),
        ("decode", "computed", "decode: one token at a time"),
    ]
    legend(figure, style.MARGIN, bottom + 102, entries)
    return figure


def _column(stage: str, y: Points, height: Points) -> Box:
    """The part of a stage's column that is `height` points high and centred on `y`."""
    x, width = next((x, width) for x, width, name, *_ in STAGES if name == stage)
    return Box(x, y - height / 2, width, height)


def _between(figure: BookFigure, before: Box, after: Box, y: Points) -> None:
    arrow(figure, [(before.right + 3, y), (after.x - 3, y)])


def _vector(figure: BookFigure, stage: str, y: Points) -> Box:
    box = _column(stage, y, VECTOR_CELL)
    for column in range(round(box.width / VECTOR_CELL)):
        number = Box(box.x + column * VECTOR_CELL, box.y, VECTOR_CELL, VECTOR_CELL)
        cell(figure, number, kind="prefill", state="idle")
    return box


def _token_row(figure: BookFigure, y: Points, token: str, number: int) -> None:
    """One token of the prompt on its way through the blocks: text, id, vector, hidden vector."""
    chip_box = chip(figure, _column("tokens", y, ROW - 4), token, kind="prefill")
    id_box, blocks = _column("ids", y, ROW), _column("blocks", y, ROW)
    write(figure, id_box.center[0], y, str(number), align="center")
    vector, hidden = _vector(figure, "embeddings", y), _vector(figure, "hidden", y)
    _between(figure, chip_box, id_box, y)
    _between(figure, id_box, vector, y)
    _between(figure, vector, blocks, y)
    _between(figure, blocks, hidden, y)


def _blocks(figure: BookFigure, box: Box) -> Box:
    """A stack of blocks: the first in full, the edges of two more behind it."""
    for depth in (8, 4, 0):
        frame = Box(box.x + depth, box.y + depth, box.width - 8, box.height - 8)
        panel(figure, frame, filled=True)
    for row, name in enumerate(("attention", "MLP")):
        middle = box.y + (box.height - 8) * (row + 0.5) / 2
        part = panel(figure, Box(box.x + 10, middle - 12, box.width - 28, 24))
        write(figure, *part.center, name, align="center")
    return box


def _cache(figure: BookFigure, blocks: Box, tokens: int) -> None:
    """Under the blocks: a key and a value of each token, written once and read at every step."""
    size = 13.0
    left, top = blocks.center[0] - tokens * size / 2, blocks.bottom + 17
    for row, kind in enumerate(("key", "value")):
        for column in range(tokens):
            box = Box(left + column * size, top + row * size, size, size)
            cell(figure, box, kind=kind, state="reused", label="KV"[row])
    write(figure, left - 6, top + size, "cache", align="right", bold=True)
    x, above, below = blocks.center[0], blocks.bottom + 2, top - 2
    arrow(figure, [(x - 10, above), (x - 10, below)], head=4.0)
    arrow(figure, [(x + 10, below), (x + 10, above)], head=4.0)


def _choice(figure: BookFigure, y: Points, next_token: str) -> None:
    """From the last hidden vector, at `y`, to the next token, and with it to the start."""
    hidden = _column("hidden", y, VECTOR_CELL)
    for line, text in enumerate(("only the last row", "is needed")):
        write(figure, hidden.center[0], y + 20 + 12 * line, text, align="center", color=MUTED)
    count, largest = 8, 3  # which logit is the largest depends on the text: here it is the fourth
    logits = _column("logits", TOP + 4 + count * LOGIT / 2, count * LOGIT)
    for row in range(count):
        box = Box(logits.x, logits.y + row * LOGIT, LOGIT, LOGIT)
        cell(figure, box, kind="decode", state="computed" if row == largest else "idle")
    _between(figure, hidden, logits, y)
    at = logits.y + (largest + 0.5) * LOGIT
    chosen = chip(figure, _column("next token", at, ROW - 4), next_token, kind="decode")
    _between(figure, logits, chosen, at)
    write(figure, (logits.right + chosen.x) / 2, at - 10, "largest", align="center", color=MUTED)
    again = chip(figure, _column("tokens", y + ROW, ROW - 4), next_token, kind="decode")
    x, loop_y, start = chosen.center[0], y + 62, again.center[0]
    around = [(x, chosen.bottom), (x, loop_y), (start, loop_y), (start, again.bottom + 3)]
    arrow(figure, around)
    text = "the next input: this token alone, since the cache keeps what the earlier ones gave"
    write(figure, (x + start) / 2, loop_y + 10, text, align="center", color=MUTED)


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
        height=298,
        title="The second request prefills while the first one decodes",
        alt=(
            f"A timeline of {steps} steps of one model, a row for each request; one cell is one "
            f"token computed. A computes its {len(REQUESTS[0].prompt)} prompt tokens in step 1, "
            f"then one token a step. B arrives before step {joined}: in that step its {batch[1]} "
            f"prompt tokens and {batch[0]} token of A are computed together, {sum(batch)} in all. "
            "Then both decode, until B is done. The words are made up, each drawn as one token."
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
    note = "Made-up requests and answers; one word or sign is drawn as one token."
    write(figure, style.MARGIN, 286, note, color=MUTED)
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
