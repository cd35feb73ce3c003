"""The text of a model's tokens as they come, where the model has more ids than its tokenizer."""

from typing import SupportsIndex

from llmlab.tokenization import StreamingDetokenizer, Tokenizer


class ModelText(StreamingDetokenizer):
    """A `StreamingDetokenizer` to which ids that the tokenizer does not know add no text.

    Many models have a table of more rows than their tokenizer has tokens, rounded up to a size that
    suits the hardware. Nothing ever trained the rows left over, so a model seldom chooses one; but
    sampled hot it may, and the answer should go on then.
    """

    def __init__(self, tokenizer: Tokenizer, *, skip_special_tokens: bool = False):
        super().__init__(tokenizer, skip_special_tokens=skip_special_tokens)
        self._known = frozenset(tokenizer.vocabulary.values())

    def push(self, token_id: SupportsIndex) -> str:
        """The text that this token completes; empty where it has none."""
        return super().push(token_id) if token_id in self._known else ""
