"""Tokens that are matched in the text as a whole, before it is cut into words.

Such tokens are added to a vocabulary beside the learned ones. Most are special: control tokens,
such as the end of a turn. Some are plain ("special": false in `tokenizer.json`), such as runs of
spaces; a plain one is a token wherever it stands, since nothing hangs on it.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class AddedToken:
    """A token that is matched in the text as a whole. special: a control token.

    Raises ValueError for content that is empty or no str.
    """

    content: str
    id: int
    special: bool = True

    def __post_init__(self):
        if not isinstance(self.content, str):
            raise ValueError(f"an added token must be a str, not {self.content!r}")
        if self.content == "":
            raise ValueError(f"the added token with the id {self.id} is empty")


class AddedTokenSplitter:
    """Finds added tokens in a text, of two that begin at the same place the longer one."""

    def __init__(self, added_tokens: Iterable[AddedToken]):
        tokens = sorted(added_tokens, key=lambda token: len(token.content), reverse=True)
        self._ids = {token.content: token.id for token in tokens}
        self._all = _any_of([token.content for token in tokens])
        self._plain = _any_of([token.content for token in tokens if not token.special])

    def split(self, text: str, *, allow_special: bool) -> Iterator[str | int]:
        """Yields the text between added tokens, as str, and the ids of the added tokens, as int."""
        pattern = self._all if allow_special else self._plain
        if pattern is None:
            yield from [text] if text else []
            return
        # A pattern with one group makes re.split return the matches too, at the odd positions.
        for position, piece in enumerate(pattern.split(text)):
            if position % 2:
                yield self._ids[piece]
            elif piece:
                yield piece

    def __repr__(self) -> str:
        return f"AddedTokenSplitter({list(self._ids)})"


def _any_of(contents: list[str]) -> re.Pattern | None:
    return re.compile(f"({'|'.join(map(re.escape, contents))})") if contents else None
