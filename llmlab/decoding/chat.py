"""A conversation that keeps its cache: each turn computes only what is new."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from llmlab.cache import StaticKVCache
from llmlab.cache.base import read_size, read_whole_number
from llmlab.decoding.checks import check_functions, check_model, key_dtype, read_stop_ids
from llmlab.decoding.generation import Generation
from llmlab.decoding.loop import generate
from llmlab.decoding.sampling import SamplerFunction
from llmlab.decoding.text import ModelText
from llmlab.tokenization import BPETokenizer

# Tokens; a cache for the whole context of a large model might not fit into memory.
LONGEST_DEFAULT = 4096


class ConversationFull(ValueError):
    """The conversation leaves no room for an answer: `reset()` starts a new one."""


@dataclass(frozen=True)
class Reply:
    """What the model answered, and how much of the conversation had to be computed for it.

    Attributes:
        text: the answer, without special tokens.
        prompt_tokens: tokens of the whole conversation up to the answer.
        reused_tokens: those of them whose keys and values were in the cache already.
        prefilled_tokens: those that were fed to the model: prompt_tokens - reused_tokens.
        generation: the new tokens and the record of the work; its finish_reason is "length" where
            the answer was cut off.
    """

    text: str
    prompt_tokens: int
    reused_tokens: int
    prefilled_tokens: int
    generation: Generation


class Chat:
    """A conversation with a model, whose key/value cache lives as long as the conversation.

    Each turn writes out the whole conversation with the tokenizer's chat template, keeps of the
    cache what agrees with it token by token, and computes the rest. So the answer is right also
    where the text of an earlier turn, tokenized as part of the conversation, gives other tokens
    than the model generated.

    A token that the model knows and the tokenizer does not (see `ModelText`) adds no text.

    Args:
        model: a `DecoderModel`.
        tokenizer: with a chat template.
        system: an instruction that precedes the conversation, or None.
        sampler: as for `generate`.
        max_new_tokens: the longest answer, 1 or more tokens. An answer is also cut off where the
            conversation reaches max_length.
        stop_ids: tokens that end an answer. None: the end tokens of tokenizer and model config.
        max_length: how many tokens the conversation may have, for which the cache is allocated.
            None: the model's context, but no more than 4096.

    Raises:
        ValueError: for a max_new_tokens, max_length or stop id out of range, a tokenizer with ids
            that the model does not know, one without a chat template or whose template refuses the
            system message, or a system message that leaves no room for a question.
        TypeError: for an argument of the wrong kind.
    """

    def __init__(
        self,
        model: nn.Module,
        tokenizer: BPETokenizer,
        *,
        system: str | None = None,
        sampler: SamplerFunction | None = None,
        max_new_tokens: int = 256,
        stop_ids: Collection[int] | None = None,
        max_length: int | None = None,
    ):
        check_model(model)
        _check_tokenizer(tokenizer, model.config.vocab_size)
        check_functions(sampler)
        if stop_ids is None:
            stop_ids = {*model.config.eos_ids, tokenizer.eos_id} - {None}
        self.model = model
        self.tokenizer = tokenizer
        self.sampler = sampler
        self.max_new_tokens = read_size(max_new_tokens, "max_new_tokens")
        self.stop_ids = read_stop_ids(stop_ids, model.config.vocab_size)
        self._system = [] if system is None else [{"role": "system", "content": system}]
        self._turns: list[dict[str, str]] = []
        self._cache = StaticKVCache(
            model.config,
            batch_size=1,
            max_length=_read_length(max_length, model.config.max_positions),
            dtype=key_dtype(model),
            device=next(model.parameters()).device,
        )
        # The tokens of the latest turn; the cache holds the first `cache.length` of them.
        self._tokens: list[int] = []
        self._answering = False
        self._room_after(self._written([{"role": "user", "content": "?"}]))  # fail now, not later

    @property
    def messages(self) -> list[dict[str, str]]:
        """A copy of the conversation so far: the role and the content of each message."""
        return [dict(message) for message in self._system + self._turns]

    def reset(self) -> None:
        """Forget the conversation and empty the cache; the system message stays.

        Raises RuntimeError in the midst of an answer.
        """
        self._refuse_while_answering()
        self._turns = []
        self._cache.reset()

    def ask(self, text: str, *, on_text: Callable[[str], Any] | None = None) -> Reply:
        """Say `text`, get the model's answer, and remember both.

        `on_text` is called with each piece of the answer as it comes, whole characters only; the
        pieces together are `Reply.text`. A call that fails or is interrupted leaves the
        conversation as it was.

        Raises:
            TypeError, ValueError: for text that is no string, or empty.
            ConversationFull: a ValueError, where there is no room for an answer: call `reset()`.
            RuntimeError: in the midst of an answer, as from on_text.
        """
        self._refuse_while_answering()
        if not isinstance(text, str):
            raise TypeError(f"text must be a string, got {type(text).__name__}")
        if not text:
            raise ValueError("text is empty: ask something")
        check_functions(None, on_text=on_text)
        turns = [*self._turns, {"role": "user", "content": text}]
        ids = self._written(turns)
        room = self._room_after(ids)
        reused = self._cached_prefix(ids)
        self._cache.truncate(reused)
        self._tokens = list(ids)
        self._answering = True
        try:
            answer, generation = self._answer(ids[reused:], min(self.max_new_tokens, room), on_text)
        finally:
            self._answering = False
        self._turns = [*turns, {"role": "assistant", "content": answer}]
        return Reply(answer, len(ids), reused, len(ids) - reused, generation)

    def _refuse_while_answering(self) -> None:
        if self._answering:
            raise RuntimeError(
                "this conversation is in the midst of an answer: ask or reset when it has ended, "
                "or use a Chat of its own"
            )

    def _written(self, turns: list[dict[str, str]]) -> list[int]:
        """The tokens of a conversation, up to where the model's answer begins."""
        return self.tokenizer.apply_chat_template(self._system + turns, add_generation_prompt=True)

    def _room_after(self, ids: Sequence[int]) -> int:
        """How many tokens an answer may have."""
        room = self._cache.capacity - len(ids)
        if room < 1:
            raise ConversationFull(
                f"the conversation has {len(ids)} tokens, and there is room for "
                f"{self._cache.capacity} together with the answer: reset() starts afresh, a longer "
                "max_length or a shorter system message makes room"
            )
        return room

    def _cached_prefix(self, ids: Sequence[int]) -> int:
        """How many of `ids`, from the first, the cache holds. The last is fed for its logits."""
        cached = self._tokens[: self._cache.length]
        agreeing = 0
        for ours, theirs in zip(cached, ids[:-1], strict=False):
            if ours != theirs:
                break
            agreeing += 1
        return agreeing

    def _answer(
        self, new_ids: Sequence[int], max_new_tokens: int, on_text: Callable[[str], Any] | None
    ) -> tuple[str, Generation]:
        """Feed what is new and let the model answer; its text, piece by piece and as a whole."""
        detokenizer = ModelText(self.tokenizer, skip_special_tokens=True)
        pieces = []

        def show(piece: str) -> None:
            pieces.append(piece)
            if piece and on_text is not None:
                on_text(piece)

        def take(token: int) -> None:
            # Before anything can fail, as the next step puts this token into the cache.
            self._tokens.append(token)
            show(detokenizer.push(token))

        generation = generate(
            self.model,
            new_ids,
            max_new_tokens,
            cache=self._cache,
            sampler=self.sampler,
            stop_ids=self.stop_ids,
            on_token=take,
        )
        show(detokenizer.flush())
        return "".join(pieces), generation


def _check_tokenizer(tokenizer: BPETokenizer, vocab_size: int) -> None:
    if not isinstance(tokenizer, BPETokenizer):
        raise TypeError(
            "tokenizer must be a BPETokenizer, such as load_tokenizer() gives; "
            f"got {type(tokenizer).__name__}"
        )
    if tokenizer.config.chat_template is None:
        raise ValueError(
            "this tokenizer has no chat template, so this model was not made for conversations: "
            "load one whose tokenizer_config.json holds a chat_template, or let generate continue "
            "a text"
        )
    highest = max(tokenizer.vocabulary.values())
    if highest >= vocab_size:
        raise ValueError(
            f"the tokenizer has ids up to {highest} and the model knows those below {vocab_size}: "
            "use the tokenizer that belongs to this model"
        )


def _read_length(max_length: int | None, max_positions: int) -> int:
    """How many tokens a conversation may have."""
    if max_length is None:
        return min(max_positions, LONGEST_DEFAULT)
    length = read_whole_number(max_length, "max_length")
    if not 1 <= length <= max_positions:
        raise ValueError(
            f"max_length must be between 1 and the model's context of {max_positions} "
            f"tokens, got {length}"
        )
    return length
