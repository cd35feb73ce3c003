"""Documents of the toy world, as text and as token ids."""

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass

from llmlab.toyworld.dialogues import (
    Turn,
    held_out_dialogue,
    held_out_openings,
    training_dialogue,
)
from llmlab.toyworld.plain_text import plain_text

BEGIN, END, USER, ASSISTANT, PADDING = "<s>", "<|end|>", "<|user|>", "<|assistant|>", "<|pad|>"
SPECIAL_TOKENS = (PADDING, BEGIN, END, USER, ASSISTANT)

#: The chat template of the embedded model, in the language of Hugging Face templates (Jinja).
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{% if message['role'] not in ['user', 'assistant'] %}"
    "{{ raise_exception('This model knows the roles user and assistant only.') }}"
    "{% endif %}"
    "{{ '<|' + message['role'] + '|>' + message['content'] + '<|end|>' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)


@dataclass(frozen=True)
class Document:
    """Either a plain text or a dialogue."""

    text: str = ""
    turns: tuple[Turn, ...] = ()

    def __str__(self) -> str:
        if not self.turns:
            return BEGIN + self.text + END
        return "".join(
            f"{USER}{asked}{END}{ASSISTANT}{answered}{END}" for asked, answered in self.turns
        )

    def encode(self, tokenizer) -> list[int]:
        """The token ids; exactly those that the chat template gives for the same dialogue."""
        return tokenizer.encode(str(self), allow_special=True)


def training_document(rng: random.Random) -> Document:
    """Two documents of three are dialogues."""
    if rng.random() < 2 / 3:
        return Document(turns=training_dialogue(rng))
    return Document(text=plain_text(rng))


def training_documents(seed: int = 0) -> Iterator[Document]:
    """An endless stream of training documents, the same for the same seed."""
    rng = random.Random(seed)
    while True:
        yield training_document(rng)


def held_out_dialogues(
    speech: str, count: int | None = None, *, turns: int = 1, seed: int = 0
) -> list[Document]:
    """Dialogues whose every combination of wording and country is absent from training.

    They begin with the held-out questions that stand on their own, in a random order; no opening
    comes a second time before all have had their turn.

    Args:
        speech: "english" or "chinese".
        count: how many; None: one for each opening.
        turns: questions in each; those after the first are follow-ups that need the earlier ones.
    """
    if speech not in ("english", "chinese"):
        raise ValueError(f"speech is 'english' or 'chinese', not {speech!r}")
    if turns < 1 or (count is not None and count < 1):
        raise ValueError(f"count and turns must be at least 1, not {count} and {turns}")
    rng = random.Random(seed)
    openings = held_out_openings(speech)
    rng.shuffle(openings)
    chosen = itertools.islice(itertools.cycle(openings), count or len(openings))
    return [Document(turns=held_out_dialogue(rng, speech, o, turns=turns)) for o in chosen]
