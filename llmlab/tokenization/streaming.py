"""Streaming: text as its tokens arrive, and never half a character.

A token may end in the middle of a character: 遥 is three bytes, and they may come with two tokens.
    Decoding token by token would show the replacement character for the first. The detokenizer
    holds such bytes back until the rest of the character is there.
"""

import codecs
from typing import SupportsIndex

from llmlab.tokenization.base import Tokenizer


class StreamingDetokenizer:
    """Turns token ids into text one by one.

    All pushed pieces and the flushed one, joined, are what `decode` gives for all ids at once.

    skip_special_tokens: leave out control tokens.
    """

    def __init__(self, tokenizer: Tokenizer, *, skip_special_tokens: bool = False):
        self._tokenizer = tokenizer
        self._skip_special_tokens = skip_special_tokens
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._first = True

    def push(self, token_id: SupportsIndex) -> str:
        """The text that this token completes; empty while a character is incomplete.

        Raises ValueError for an id outside the vocabulary; what was pushed before is kept.
        """
        data = self._tokenizer.token_bytes(token_id, first=self._first)
        if self._skip_special_tokens and self._tokenizer.is_special(token_id):
            return ""
        self._first = False
        return self._decoder.decode(data)

    def flush(self) -> str:
        """The end of the text: bytes held back, as U+FFFD. The next push begins a new text."""
        rest = self._decoder.decode(b"", final=True)
        self._decoder.reset()
        self._first = True
        return rest

    def __repr__(self) -> str:
        held_back = len(self._decoder.getstate()[0])
        return f"StreamingDetokenizer({self._tokenizer!r}, bytes held back: {held_back})"
