"""Chat against the whole conversation computed afresh for every turn."""

import string

import pytest
import torch
from decoding_tools import fed_tokens, make_model, model_config
from hypothesis import given, settings
from hypothesis import strategies as st

from llmlab.decoding import Chat, Sampler, generate
from llmlab.tokenization import CHATML_TEMPLATE, BPETokenizer

CORPUS = [
    "the theory of the thing is that the other thing thinks",
    "遥遥领先",
    "user system assistant",
]
SPECIAL = ("<|im_start|>", "<|im_end|>")
# No control token between the messages: the end of one and the start of the next may merge.
SEAMLESS = "{% for message in messages %}{{ message['content'] }}{% endfor %}"


def make_tokenizer(vocab_size: int, template: str = CHATML_TEMPLATE) -> BPETokenizer:
    return BPETokenizer.train(
        CORPUS, vocab_size, SPECIAL, eos_token="<|im_end|>", chat_template=template
    )


MERGING = make_tokenizer(330)
BYTES = make_tokenizer(258)  # no merges at all
SEAMLESS_MERGING = make_tokenizer(330, SEAMLESS)


def make_chat_model(seed: int, tokenizer: BPETokenizer, max_positions: int = 512, **options):
    config = model_config(
        "llama", vocab_size=tokenizer.vocab_size, max_positions=max_positions, **options
    )
    return make_model(config, seed=seed)


def afresh(model, tokenizer, messages, count, *, stop_ids):
    """The answer to a conversation, computed from its first token on without a cache."""
    ids = tokenizer.apply_chat_template(messages, add_generation_prompt=True)
    return ids, generate(model, ids, count, cache=None, stop_ids=stop_ids)


def common_prefix(first, second):
    agreeing = [a == b for a, b in zip(first, second, strict=False)]
    return agreeing.index(False) if False in agreeing else len(agreeing)


words = st.lists(
    st.sampled_from(["the", "thing", " th", "e", "遥", "领先", "<|im_end|>", "\n", "é"]),
    min_size=1,
    max_size=5,
).map("".join)


@pytest.mark.parametrize("tokenizer", [MERGING, BYTES, SEAMLESS_MERGING])
@settings(max_examples=10, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 100),
    system=st.none() | words,
    questions=st.lists(words, min_size=1, max_size=4),
    count=st.integers(1, 8),
    often_stops=st.booleans(),
)
def test_every_answer_is_that_of_a_full_recomputation(
    tokenizer, seed, system, questions, count, often_stops
):
    model = make_chat_model(seed, tokenizer)
    stop_ids = set(range(0, tokenizer.vocab_size, 4)) if often_stops else {tokenizer.eos_id}
    chat = Chat(model, tokenizer, system=system, max_new_tokens=count, stop_ids=stop_ids)
    counts = fed_tokens(model)
    messages = [] if system is None else [{"role": "system", "content": system}]
    cached = []
    for question in questions:
        messages.append({"role": "user", "content": question})
        ids, expected = afresh(model, tokenizer, messages, count, stop_ids=stop_ids)
        counts.clear()
        pieces = []
        reply = chat.ask(question, on_text=pieces.append)
        assert reply.generation.ids == expected.ids
        assert reply.generation.finish_reason == expected.finish_reason
        assert reply.text == tokenizer.decode(expected.ids, skip_special_tokens=True)
        assert "".join(pieces) == reply.text
        assert reply.prompt_tokens == len(ids)
        assert reply.reused_tokens == common_prefix(cached, ids[:-1])
        assert reply.prefilled_tokens == len(ids) - reply.reused_tokens
        assert counts == [reply.prefilled_tokens] + [1] * (len(expected.steps) - 1)
        cached = (ids + expected.ids)[: len(ids) + len(expected.steps) - 1]
        messages.append({"role": "assistant", "content": reply.text})
        assert chat.messages == messages


def letters_only(logits):
    """Greedy among the letters, whose text becomes the same tokens again."""
    allowed = torch.tensor([BYTES.token_to_id(letter) for letter in string.ascii_letters])
    return allowed[logits[:, allowed].argmax(dim=-1)]


def test_a_turn_feeds_only_what_is_new():
    model = make_chat_model(0, BYTES)
    chat = Chat(model, BYTES, sampler=letters_only, max_new_tokens=6)
    first = chat.ask("How many people live in France?")
    assert first.reused_tokens == 0
    assert first.prefilled_tokens == first.prompt_tokens
    second = chat.ask("And in Germany?")
    # The cache holds the first prompt and its answer, except the answer's last token.
    assert second.reused_tokens == first.prompt_tokens + 5
    new = BYTES.encode("\nuser\nAnd in Germany?\nassistant\n")
    assert second.prefilled_tokens == 1 + len(new) + 4  # ... and the four control tokens
    assert second.generation.steps[0].input_length == second.prefilled_tokens


def test_an_answer_that_reads_differently_as_text():
    """Half characters become U+FFFD, which are other tokens: those are computed again."""
    model = make_chat_model(0, BYTES)
    half = BYTES.encode("遥")[0]
    chat = Chat(model, BYTES, sampler=lambda logits: torch.tensor([half]), max_new_tokens=5)
    first = chat.ask("hm?")
    assert first.text == "�" * 5
    chat.sampler = None
    second = chat.ask("what?")
    assert second.reused_tokens == first.prompt_tokens
    _, expected = afresh(model, BYTES, chat.messages[:-1], 5, stop_ids={BYTES.eos_id})
    assert second.generation.ids == expected.ids


def test_a_merge_across_the_seam():
    """The last token of the prompt and the first of the answer are one token as text."""
    tokenizer = SEAMLESS_MERGING
    th, e = tokenizer.encode("th"), tokenizer.encode("e")
    assert len(tokenizer.encode("the")) == 1  # the merge
    model = make_chat_model(1, tokenizer)
    chat = Chat(model, tokenizer, sampler=lambda logits: torch.tensor(e), max_new_tokens=1)
    first = chat.ask("th")
    assert (first.prompt_tokens, first.text) == (len(th), "e")
    chat.sampler = None
    second = chat.ask(" thing")
    assert second.reused_tokens == 0
    _, expected = afresh(model, tokenizer, chat.messages[:-1], 1, stop_ids={tokenizer.eos_id})
    assert second.generation.ids == expected.ids


def test_a_question_that_is_in_the_cache_already():
    """Asked again after an interruption: its last token is fed once more, for the logits."""
    model = make_chat_model(2, SEAMLESS_MERGING)
    chat = Chat(model, SEAMLESS_MERGING, max_new_tokens=1)

    def interrupt(piece):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        chat.ask("the thing", on_text=interrupt)
    reply = chat.ask("the thing")
    assert (reply.reused_tokens, reply.prefilled_tokens) == (reply.prompt_tokens - 1, 1)
    ids = SEAMLESS_MERGING.encode("the thing")
    assert reply.generation.ids == generate(model, ids, 1, cache=None).ids


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
@pytest.mark.parametrize("where", ["on_text", "forward"])
def test_a_failed_turn_changes_nothing(error, where):
    model = make_chat_model(3, MERGING)
    chat = Chat(model, MERGING, max_new_tokens=6)
    chat.ask("the thing")
    before = chat.messages

    def fail(*_):
        calls.append(1)
        if len(calls) == 3:
            raise error("enough")

    calls = []
    if where == "on_text":
        with pytest.raises(error, match="enough"):
            chat.ask("another thing", on_text=fail)
    else:
        handle = model.blocks[1].register_forward_pre_hook(fail)
        with pytest.raises(error, match="enough"):
            chat.ask("another thing")
        handle.remove()
    assert chat.messages == before
    reply = chat.ask("the other")
    _, expected = afresh(model, MERGING, chat.messages[:-1], 6, stop_ids={MERGING.eos_id})
    assert reply.generation.ids == expected.ids


def test_the_context_ends():
    model = make_chat_model(4, BYTES, max_positions=88)
    chat = Chat(model, BYTES, sampler=letters_only, max_new_tokens=10)
    prompt = len(BYTES.apply_chat_template([{"role": "user", "content": "x" * 50}]))
    assert prompt == 69
    first = chat.ask("x" * 50)
    assert len(first.generation.ids) == 10
    before = chat.messages
    with pytest.raises(ValueError, match=r"has 101 tokens.*room for 88.*reset\(\)"):
        chat.ask("y")
    assert chat.messages == before
    chat.reset()
    assert chat.messages == []
    # Room for four tokens of the ten: the answer is cut off, and says so.
    cut = chat.ask("x" * 65)
    assert (cut.prompt_tokens, len(cut.generation.ids)) == (84, 4)
    assert cut.generation.finish_reason == "length"
    chat.reset()
    with pytest.raises(ValueError, match="88 tokens"):
        chat.ask("x" * 69)
    assert chat.ask("x" * 50).text == first.text


def test_reset_keeps_the_system_message_only():
    model = make_chat_model(5, MERGING)
    chat = Chat(model, MERGING, system="the other", max_new_tokens=4)
    first = chat.ask("the thing")
    chat.ask("again")
    chat.reset()
    assert chat.messages == [{"role": "system", "content": "the other"}]
    again = chat.ask("the thing")
    assert (again.text, again.reused_tokens) == (first.text, 0)


def test_messages_are_a_copy():
    chat = Chat(make_chat_model(6, MERGING), MERGING, max_new_tokens=2)
    chat.ask("the thing")
    chat.messages[0]["content"] = "changed"
    chat.messages.clear()
    assert chat.messages[0] == {"role": "user", "content": "the thing"}


def test_stops_at_the_end_tokens_of_tokenizer_and_config():
    config = model_config("llama", vocab_size=MERGING.vocab_size, eos_ids=(7, 9))
    chat = Chat(make_model(config), MERGING)
    assert chat.stop_ids == {7, 9, MERGING.eos_id}
    assert Chat(chat.model, MERGING, stop_ids=()).stop_ids == frozenset()


def test_a_sampler_is_used():
    model = make_chat_model(7, MERGING)
    runs = [
        [Chat(model, MERGING, sampler=Sampler(seed=seed), max_new_tokens=8).ask("the").text]
        for seed in (1, 1, 2)
    ]
    assert runs[0] == runs[1] != runs[2]


def test_says_what_is_wrong():
    model = make_chat_model(8, MERGING, max_positions=64)
    for options, message in (
        ({"max_new_tokens": 0}, "at least 1"),
        ({"max_length": 65}, "between 1 and the model's context of 64"),
        ({"max_length": 0}, "between 1"),
    ):
        with pytest.raises(ValueError, match=message):
            Chat(model, MERGING, **options)
    with pytest.raises(ValueError, match="belongs to this model"):
        Chat(make_chat_model(8, BYTES), MERGING)
    chat = Chat(model, MERGING)
    with pytest.raises(ValueError, match="empty"):
        chat.ask("")
    with pytest.raises(TypeError):
        chat.ask(None)
    no_template = BPETokenizer.train(CORPUS, 300)
    with pytest.raises(ValueError, match="template"):
        Chat(model, no_template).ask("the")
    assert chat.messages == []
