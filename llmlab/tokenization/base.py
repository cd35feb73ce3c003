"""What every tokenizer of the book can do: text to token ids and back."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Set
from typing import Any, SupportsIndex


class Tokenizer(ABC):
    """A vocabulary, and the way between text and its token ids.

    vocabulary: token to id, special tokens included.
    special_tokens: the control tokens among them, such as the start of a text. Text never becomes
        one of these unless the caller of `encode` allows it, and `decode` can leave them out.
    bos_token, eos_token: the tokens that begin and end a text, where the vocabulary has them.
    """

    def __init__(
        self,
        vocabulary: Mapping[str, int],
        special_tokens: Iterable[str],
        *,
        bos_token: str | None = None,
        eos_token: str | None = None,
    ):
        self.vocabulary = _plain_vocabulary(vocabulary)
        self.special_tokens = {token: self.vocabulary[token] for token in special_tokens}
        self.bos_id = self.vocabulary.get(bos_token) if bos_token is not None else None
        self.eos_id = self.vocabulary.get(eos_token) if eos_token is not None else None
        self._tokens = {index: token for token, index in self.vocabulary.items()}
        if len(self._tokens) < len(self.vocabulary):
            raise ValueError("two tokens of the vocabulary have the same id")
        self._special_ids = frozenset(self.special_tokens.values())

    @abstractmethod
    def encode(
        self, text: str, add_special_tokens: bool = False, allow_special: bool = False
    ) -> list[int]:
        """The token ids of `text`.

        add_special_tokens: add the tokens that a text begins and ends with, such as [CLS] or <s>.
        allow_special: read special tokens written in the text as the control tokens they name.
            Leave it off for text that comes from a user, or "</s>" typed into a prompt ends it.

        Raises TypeError where `text` is no str, ValueError where it cannot be written as UTF-8.
        """

    @abstractmethod
    def _bytes_of(self, token_id: int, *, first: bool) -> bytes:
        """`token_bytes` of an id that is known to be in the vocabulary."""

    def token_bytes(self, token_id: SupportsIndex, *, first: bool = False) -> bytes:
        """What one token adds to the text, in UTF-8; maybe only part of a character.

        first: whether the token begins the text. Raises ValueError for an unknown id.
        """
        return self._bytes_of(self._checked_ids([token_id])[0], first=first)

    def decode(self, ids: Iterable[SupportsIndex], skip_special_tokens: bool = False) -> str:
        """The text of these token ids, a list or a one-dimensional tensor.

        Bytes that form no character become U+FFFD, the replacement character.

        Raises ValueError for an id outside the vocabulary, TypeError for what is no list of ids.
        """
        kept = [
            token_id
            for token_id in self._checked_ids(ids)
            if not (skip_special_tokens and self.is_special(token_id))
        ]
        data = b"".join(
            self._bytes_of(token_id, first=position == 0) for position, token_id in enumerate(kept)
        )
        return data.decode("utf-8", errors="replace")

    @property
    def vocab_size(self) -> int:
        """How many tokens there are, special tokens included."""
        return len(self.vocabulary)

    def token_to_id(self, token: str) -> int | None:
        """The id of a token as the vocabulary writes it, or None if there is no such token."""
        return self.vocabulary.get(token)

    def id_to_token(self, token_id: SupportsIndex) -> str:
        """The token of an id, as the vocabulary writes it. Raises ValueError for an unknown id."""
        return self._tokens[self._checked_ids([token_id])[0]]

    def is_special(self, token_id: SupportsIndex) -> bool:
        """Whether the id is that of a control token."""
        return _whole_number(token_id) in self._special_ids

    def _checked_ids(self, ids: Iterable[SupportsIndex]) -> list[int]:
        ids = _without_library(ids)
        if isinstance(ids, str | bytes | Set | Mapping) or not isinstance(ids, Iterable):
            raise TypeError(
                f"token ids must come as a list of whole numbers, not as {type(ids).__name__}; "
                "write [7] for the single id 7"
            )
        numbers = [_whole_number(token_id) for token_id in ids]
        for number in numbers:
            if number not in self._tokens:
                raise ValueError(
                    f"token id {number} is not in the vocabulary, whose {self.vocab_size} ids "
                    f"lie between {min(self._tokens)} and {max(self._tokens)}"
                )
        return numbers


def _without_library(value: Any) -> Any:
    """A tensor or array as plain lists and numbers; all else as it is."""
    return value.tolist() if hasattr(value, "tolist") else value


def _whole_number(token_id: SupportsIndex) -> int:
    token_id = _without_library(token_id)
    if not isinstance(token_id, int) or isinstance(token_id, bool):
        raise TypeError(
            f"token ids must be whole numbers, not {token_id!r}, in a list or a one-dimensional "
            "tensor; decode the rows of a batch one by one"
        )
    return token_id


def _plain_vocabulary(vocabulary: Mapping[str, int]) -> dict[str, int]:
    plain = {token: _without_library(token_id) for token, token_id in vocabulary.items()}
    for token, token_id in plain.items():
        whole = isinstance(token_id, int) and not isinstance(token_id, bool) and token_id >= 0
        if not isinstance(token, str) or not whole:
            raise ValueError(
                "a vocabulary gives each token, a str, its id, a whole number from 0 on; "
                f"got {token!r}: {token_id!r}"
            )
    return plain


def check_text(text: str) -> None:
    """Raises TypeError if `text` is no str, ValueError if it holds a lone surrogate."""
    if not isinstance(text, str):
        hint = "; decode bytes first: data.decode('utf-8')" if isinstance(text, bytes) else ""
        raise TypeError(f"the text must be a str, not {type(text).__name__}{hint}")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValueError(
            f"the text holds half a character at position {error.start} (the lone surrogate "
            f"{text[error.start]!r}), which UTF-8 cannot write; was it read in the right encoding?"
        ) from None
