"""How often the embedded model answers held-out dialogues exactly right."""

from collections.abc import Sequence
from dataclasses import dataclass

from llmlab.decoding import generate
from llmlab.model import DecoderModel
from llmlab.tokenization import BPETokenizer
from llmlab.toyworld.corpus import END, Document, held_out_dialogues


@dataclass(frozen=True)
class Accuracy:
    """Answers exactly right, of how many; the wrong ones as (dialogue, expected, answered)."""

    right: int
    total: int
    wrong: tuple[tuple[str, str, str], ...]

    @property
    def share(self) -> float:
        return self.right / self.total

    def __str__(self) -> str:
        return f"{self.right} of {self.total} ({self.share:.1%})"


def answer_dialogues(
    model: DecoderModel,
    tokenizer: BPETokenizer,
    documents: Sequence[Document],
    *,
    batch_size: int = 64,
) -> list[list[str]]:
    """The model's answers, turn by turn; its own earlier answers stand in the history."""
    answers: list[list[str]] = [[] for _ in documents]
    for turn in range(max(len(document.turns) for document in documents)):
        waiting = [index for index, document in enumerate(documents) if turn < len(document.turns)]
        for start in range(0, len(waiting), batch_size):
            batch = waiting[start : start + batch_size]
            prompts = [_prompt(tokenizer, documents[index], answers[index]) for index in batch]
            end = tokenizer.token_to_id(END)
            generation = generate(model, prompts, 48, stop_ids=(end,), progress=False)
            for index, ids in zip(batch, generation.ids, strict=True):
                answers[index].append(tokenizer.decode(ids))
    return answers


def _prompt(tokenizer: BPETokenizer, document: Document, answers: list[str]) -> list[int]:
    messages = []
    for (question, _), answer in zip(document.turns, [*answers, None], strict=False):
        messages.append({"role": "user", "content": question})
        if answer is not None:
            messages.append({"role": "assistant", "content": answer})
    return tokenizer.apply_chat_template(messages, add_generation_prompt=True)


def measure_accuracy(
    model: DecoderModel,
    tokenizer: BPETokenizer,
    *,
    speech: str,
    turns: int,
    count: int | None = None,
    seed: int = 0,
) -> Accuracy:
    """Exact answers to held-out dialogues.

    Args:
        speech: "english" or "chinese".
        turns: 1 counts the answers to single questions; more counts the follow-ups only, that is
            every answer after the first.
        count: dialogues; None: one for each held-out question that stands on its own.
    """
    documents = held_out_dialogues(speech, count, turns=turns, seed=seed)
    counted = range(turns) if turns == 1 else range(1, turns)
    wrong, total = [], 0
    for document, answers in zip(
        documents, answer_dialogues(model, tokenizer, documents), strict=True
    ):
        for turn in counted:
            expected, answered = document.turns[turn][1], answers[turn]
            total += 1
            if answered != expected:
                asked = " / ".join(question for question, _ in document.turns[: turn + 1])
                wrong.append((asked, expected, answered))
    return Accuracy(right=total - len(wrong), total=total, wrong=tuple(wrong))
