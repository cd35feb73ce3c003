"""The embedded model: what it says, how often it is right, and that other software reads it too."""

import re
from importlib.resources import files

import pytest
import torch

from llmlab.decoding import Chat, generate
from llmlab.model import load_model
from llmlab.tokenization import load_tokenizer
from llmlab.toyworld.evaluate import measure_accuracy

FOLDER = files("llmlab") / "assets" / "toyworld"


@pytest.fixture(scope="module")
def model():
    return load_model()


@pytest.fixture(scope="module")
def tokenizer():
    return load_tokenizer()


def say(model, tokenizer, prompt: str) -> str:
    ids = tokenizer.encode(prompt, add_special_tokens=True)
    return tokenizer.decode(generate(model, ids, 20, stop_ids=model.config.eos_ids).ids)


def test_the_running_sentences(model, tokenizer):
    assert say(model, tokenizer, "time flies") == " like an arrow."
    assert say(model, tokenizer, "遥") == "遥领先"
    assert say(model, tokenizer, "") == "遥遥领先"


def test_the_characters_of_the_running_sentence_are_tokens(tokenizer):
    assert [tokenizer.decode([i]) for i in tokenizer.encode("遥遥领先")] == [*"遥遥领先"]


def test_the_conversation_of_the_book(model, tokenizer):
    chat = Chat(model, tokenizer)
    assert (
        chat.ask("How many people live in France?").text
        == "Roughly 67 million people live in France."
    )
    assert (
        chat.ask("And how many are in Germany?").text == "Germany has about 85 million inhabitants."
    )
    chat.reset()
    assert chat.ask("德国的首都是哪里？").text == "德国的首都是柏林。"
    assert chat.ask("那法国呢？").text == "法国的首都是巴黎。"


@pytest.mark.parametrize("speech", ["english", "chinese"])
@pytest.mark.parametrize(("turns", "count", "required"), [(1, None, 0.97), (3, 200, 0.95)])
def test_held_out_accuracy(model, tokenizer, speech, turns, count, required):
    """Every held-out question once; follow-ups from another draw than the card's."""
    accuracy = measure_accuracy(
        model, tokenizer, speech=speech, turns=turns, count=count, seed=2026
    )
    assert accuracy.share >= required, f"{accuracy}: {accuracy.wrong[:5]}"


def test_the_card_reports_at_least_what_is_promised():
    card = (FOLDER / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"\| (English|Chinese) \| (one question|follow-ups) \| (\d+) of (\d+) ", card)
    assert len(rows) == 4
    for _, asked, right, total in rows:
        assert int(total) >= (150 if asked == "one question" else 1000)
        assert int(right) / int(total) >= (0.97 if asked == "one question" else 0.95)


def test_it_is_small(model):
    assert model.num_parameters() <= 2.5e6
    assert sum(f.stat().st_size for f in FOLDER.iterdir()) <= 6e6


def test_heads_are_grouped(model):
    assert 1 < model.config.kv_heads < model.config.heads


def test_transformers_says_the_same(model, tokenizer):
    transformers = pytest.importorskip("transformers")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(str(FOLDER))
    their_tokenizer = transformers.AutoTokenizer.from_pretrained(str(FOLDER))
    messages = [{"role": "user", "content": "那里有多少人？ How many people live in Kenya?"}]
    ids = tokenizer.apply_chat_template(messages)
    their_ids = their_tokenizer.apply_chat_template(messages, add_generation_prompt=True)
    assert list(getattr(their_ids, "input_ids", their_ids)) == ids
    with torch.inference_mode():
        expected = theirs(torch.tensor([ids])).logits
        torch.testing.assert_close(model(torch.tensor([ids])), expected, atol=1e-4, rtol=0)
    new = theirs.generate(torch.tensor([ids]), max_new_tokens=20, do_sample=False)[0, len(ids) :]
    ours = generate(model, ids, 20, stop_ids=model.config.eos_ids).ids
    assert new.tolist()[: len(ours)] == ours


def test_what_it_does_not_know_it_says(model, tokenizer):
    chat = Chat(model, tokenizer)
    assert chat.ask("How many people live in Brindland?").text == "I do not know that country."
    assert chat.ask("What is the weather like today?").text == "I do not know that."
