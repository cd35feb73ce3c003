"""Figures of chapter 01: a token as a tree of merges, and characters that tokens cut in two."""

from dataclasses import dataclass
from itertools import pairwise

from llmlab.figures import style
from llmlab.figures.page import BookFigure, Points, write
from llmlab.figures.primitives import Box, arrow, cell, chip, panel
from llmlab.tokenization import (
    BPETokenizer,
    PreTokenizer,
    StreamingDetokenizer,
    Tokenizer,
    load_tokenizer,
)
from llmlab.tokenization.byte_alphabet import to_symbols

MUTED = style.LIGHT["muted"]

# The page of text from which chapter 01 learns its merges.
PAGE = """\
An archer shoots an arrow. The arrow flies, and the archer counts the time it flies.
Time after time she shoots, and time after time the arrow flies like the arrows before.
A fly sits on a banana and watches the arrow fly by. Fruit flies like a banana;
the archer likes a long flight. She times each flight, and her timing is like a timer.
When the light fades, she counts her arrows. Some arrows fly far, some fly near,
and some are lost in time."""
MERGES = 40
SENTENCE = " time flies like an arrow"

LEAF = 18.0  # the width of one byte in the tree
LEVEL = 35.0  # from one level of the tree to the next
NODE_HEIGHT = 25.0
WORD_GAP = 8.0
TREE_TOP = 58.0

GREETING = "你好，世界！"
BYTE = 22.0  # the width of one byte in the stream
STREAM_LEFT = 100.0


@dataclass(frozen=True)
class Node:
    """A token and how it came about: `rank` is the place of its merge, 0 for a byte."""

    token: str
    rank: int = 0
    parts: tuple["Node", ...] = ()

    @property
    def level(self) -> int:
        """Merges on the longest way down to a byte."""
        return 1 + max(part.level for part in self.parts) if self.parts else 0


def merge_tree(word: str, tokenizer: BPETokenizer) -> list[Node]:
    """One tree for each token of a word; ranks are counted from 1."""
    ranks = {pair: place for place, pair in enumerate(tokenizer.merges, start=1)}
    nodes = [Node(symbol) for symbol in to_symbols(word.encode("utf-8"))]
    while True:
        pairs = [(left.token, right.token) for left, right in pairwise(nodes)]
        known = [index for index, pair in enumerate(pairs) if pair in ranks]
        if not known:
            return nodes
        first = min(known, key=lambda index: ranks[pairs[index]])
        parts = tuple(nodes[first : first + 2])
        nodes[first : first + 2] = [Node("".join(pairs[first]), ranks[pairs[first]], parts)]


def bpe_merges() -> BookFigure:
    """The running sentence: from its bytes, at the bottom, to its tokens, at the top."""
    tokenizer = BPETokenizer.train([PAGE], vocab_size=256 + MERGES)
    words = PreTokenizer().split(SENTENCE)
    trees = [tree for word in words for tree in merge_tree(word, tokenizer)]
    size = len(SENTENCE.encode("utf-8"))
    bottom = TREE_TOP + max(tree.level for tree in trees) * LEVEL
    figure = BookFigure(
        height=bottom + 48,
        title=f"Merge by merge, {size} bytes become {len(trees)} tokens",
        alt=(
            f"The {size} bytes of '{SENTENCE}' stand at the bottom, the space written as Ġ. Over "
            "them, pairs are joined into longer and longer tokens, each marked with the place of "
            "its merge in the order of learning, until one token a word is left: "
            + ", ".join(tree.token for tree in trees)
            + "."
        ),
    )
    hint = f"#n: the n-th of {MERGES} merges learned from a page of text"
    write(figure, style.MARGIN, 40, hint, color=MUTED)
    x = style.MARGIN
    for tree in trees:
        _tree(figure, tree, x, bottom, is_token=True)
        x += len(tree.token) * LEAF + WORD_GAP
    write(figure, style.MARGIN, bottom + 33, "bytes (Ġ is the space)", color=MUTED)
    return figure


def _tree(figure: BookFigure, node: Node, x: Points, bottom: Points, *, is_token: bool) -> Box:
    """Draws a node over its parts, as wide as its bytes; a whole token is blue."""
    width = len(node.token) * LEAF
    if not node.parts:
        box = Box(x, bottom, width, LEAF)
        return cell(figure, box, kind="prefill", state="idle", label=node.token)
    box = Box(x + 1.5, bottom - node.level * LEVEL, width - 3, NODE_HEIGHT)
    for part in node.parts:
        below = _tree(figure, part, x, bottom, is_token=False)
        middle = below.center[0]
        arrow(figure, [(middle, below.y), (middle, box.bottom)], head=4)
        x += len(part.token) * LEAF
    chip(figure, box, "", kind="prefill" if is_token else None)
    ink, muted = (style.WHITE, style.WHITE) if is_token else (style.LIGHT["ink"], MUTED)
    write(figure, box.center[0], box.y + 7, node.token, align="center", color=ink, bold=True)
    write(figure, box.center[0], box.y + 18, f"#{node.rank}", align="center", color=muted)
    return box


@dataclass(frozen=True)
class Piece:
    """One token of a stream: its bytes, what it is alone, and what it lets a stream show."""

    token_id: int
    data: bytes
    alone: str
    shown: str


def stream(text: str, tokenizer: Tokenizer) -> list[Piece]:
    """The tokens of a text as they arrive one by one."""
    detokenizer = StreamingDetokenizer(tokenizer)
    return [
        Piece(
            token_id,
            tokenizer.token_bytes(token_id),
            tokenizer.decode([token_id]),
            detokenizer.push(token_id),
        )
        for token_id in tokenizer.encode(text)
    ]


def split_character() -> BookFigure:
    """A short text as characters, bytes and tokens, and what a reader sees of it meanwhile."""
    pieces = stream(GREETING, load_tokenizer())
    spread = {c: len(load_tokenizer().encode(c)) for c in GREETING}
    split = [f"{c} comes in {count} tokens" for c, count in spread.items() if count > 1]
    figure = BookFigure(
        height=238,
        title=f"{split[0]}: a stream has to wait for the last of them",
        alt=(
            f"The text {GREETING} in five rows: its {len(GREETING)} characters; their "
            f"{len(GREETING.encode('utf-8'))} bytes; the {len(pieces)} tokens, some of which hold "
            "only a part of a character; each token decoded alone, where such parts become "
            "replacement characters; and a stream that holds the bytes back and shows each "
            f"character with its last token. {'; '.join(split)}."
        ),
    )
    for row, name in enumerate(
        ("characters", "bytes", "tokens", "each token alone", "as a stream")
    ):
        write(figure, style.MARGIN, _row(row) + 9, name, bold=True)
    x = STREAM_LEFT
    for character in GREETING:
        data = character.encode("utf-8")
        chip(figure, Box(x + 1, _row(0), len(data) * BYTE - 2, 18), character)
        for place, byte in enumerate(data):
            box = Box(x + place * BYTE, _row(1), BYTE, 18)
            cell(figure, box, kind="decode", state="idle", label=f"{byte:02x}")
        x += len(data) * BYTE
    _stream_rows(figure, pieces)
    note = "numbers in the tokens are ids of the embedded model; dashed: bytes held back"
    write(figure, style.MARGIN, 224, note, color=MUTED)
    return figure


def _row(number: int) -> Points:
    return 36.0 + number * 36


def _stream_rows(figure: BookFigure, pieces: list[Piece]) -> None:
    """The tokens, and under each what it is alone and what a stream shows when it comes."""
    x = STREAM_LEFT
    for piece in pieces:
        width = len(piece.data) * BYTE
        token = chip(figure, Box(x + 1, _row(2), width - 2, 18), str(piece.token_id), kind="decode")
        write(figure, token.center[0], _row(3) + 9, piece.alone, align="center")
        seen = Box(token.x, _row(4), token.width, 18)
        if piece.shown:
            chip(figure, seen, piece.shown, kind="output")
        else:
            panel(figure, seen, dashed=True)
        x += width
