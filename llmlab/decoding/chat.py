"""A conversation that keeps its cache: each turn computes only what is new."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from llmlab.cache import StaticKVCache
from llmlab.decoding.generation import Generation
from llmlab.decoding.loop import generate
from llmlab.decoding.sampling import SamplerFunction
from llmlab.tokenization import StreamingDetokenizer, Tokenizer

# Tokens; a cache for the whole context of a large model might not fit into memory.
LONGEST_DEFAULT = 4096


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
        ValueError: for a max_new_tokens or max_length out of range, or a tokenizer with more tokens
            than the model knows.
    """

    def __init__(
        self,
        model: nn.Module,
        tokenizer: Tokenizer,
        *,
        system: str | None = None,
        sampler: SamplerFunction | None = None,
        max_new_tokens: int = 256,
        stop_ids: Collection[int] | None = None,
        max_length: int | None = None,
    ):
        config = model.config
        if max_length is None:
            max_length = min(config.max_positions, LONGEST_DEFAULT)
        if not 1 <= max_length <= config.max_positions:
            raise ValueError(
                f"max_length must be between 1 and the model's context of {config.max_positions} "
                f"tokens, got {max_length}"
            )
        if max_new_tokens < 1:
            raise ValueError(f"max_new_tokens must be at least 1, got {max_new_tokens}")
        if tokenizer.vocab_size > config.vocab_size:
            raise ValueError(
                f"the tokenizer has {tokenizer.vocab_size} tokens and the model knows "
                f"{config.vocab_size}: use the tokenizer that belongs to this model"
            )
        if stop_ids is None:
            stop_ids = {*config.eos_ids, tokenizer.eos_id} - {None}
        weight = next(model.parameters())
        self.model = model
        self.tokenizer = tokenizer
        self.sampler = sampler
        self.max_new_tokens = max_new_tokens
        self.stop_ids = frozenset(stop_ids)
        self._system = [] if system is None else [{"role": "system", "content": system}]
        self._turns: list[dict[str, str]] = []
        self._cache = StaticKVCache(
            config, batch_size=1, max_length=max_length, dtype=weight.dtype, device=weight.device
        )
        # The tokens of the latest turn; the cache holds the first `cache.length` of them.
        self._tokens: list[int] = []

    @property
    def messages(self) -> list[dict[str, str]]:
        """A copy of the conversation so far: the role and the content of each message."""
        return [dict(message) for message in self._system + self._turns]

    def reset(self) -> None:
        """Forget the conversation and empty the cache; the system message stays."""
        self._turns = []
        self._cache.reset()

    def ask(self, text: str, *, on_text: Callable[[str], Any] | None = None) -> Reply:
        """Say `text`, get the model's answer, and remember both.

        `on_text` is called with each piece of the answer as it comes, whole characters only; the
        pieces together are `Reply.text`. A call that fails or is interrupted leaves the
        conversation as it was.

        Raises:
            TypeError, ValueError: for text that is no string, or empty.
            ValueError: where the conversation leaves no room for an answer: call `reset()`.
        """
        if not isinstance(text, str):
            raise TypeError(f"text must be a string, got {type(text).__name__}")
        if not text:
            raise ValueError("text is empty: ask something")
        turns = [*self._turns, {"role": "user", "content": text}]
        ids = self.tokenizer.apply_chat_template(self._system + turns, add_generation_prompt=True)
        room = self._room_after(ids)
        reused = self._cached_prefix(ids)
        self._cache.truncate(reused)
        self._tokens = list(ids)
        answer, generation = self._answer(ids[reused:], min(self.max_new_tokens, room), on_text)
        self._turns = [*turns, {"role": "assistant", "content": answer}]
        return Reply(answer, len(ids), reused, len(ids) - reused, generation)

    def _room_after(self, ids: Sequence[int]) -> int:
        """How many tokens an answer may have."""
        room = self._cache.capacity - len(ids)
        if room < 1:
            raise ValueError(
                f"the conversation has {len(ids)} tokens, and there is room for "
                f"{self._cache.capacity} together with the answer: call reset() to start afresh"
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
        detokenizer = StreamingDetokenizer(self.tokenizer, skip_special_tokens=True)
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
