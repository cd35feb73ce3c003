"""The finished model as a Hugging Face folder, with a card: how it was made, what it can do."""

import json
from dataclasses import asdict
from pathlib import Path

from llmlab.model import DecoderModel, save_model
from llmlab.tokenization import BPETokenizer
from llmlab.toyworld.corpus import BEGIN, END
from llmlab.toyworld.countries import COUNTRIES
from llmlab.toyworld.evaluate import Accuracy, measure_accuracy
from llmlab.toyworld.train import TrainingPlan

#: What the card reports: (speech, questions in each dialogue, dialogues). A single question: every
#: held-out one, once.
MEASUREMENTS = (
    ("english", 1, None),
    ("chinese", 1, None),
    ("english", 3, 500),
    ("chinese", 3, 500),
)


def export(
    model: DecoderModel, tokenizer: BPETokenizer, folder: Path, *, plan: TrainingPlan
) -> None:
    """Write weights, configuration, tokenizer, chat template and model card into `folder`."""
    save_model(model, folder, tokenizer=tokenizer)
    settings = {
        "bos_token_id": tokenizer.token_to_id(BEGIN),
        "eos_token_id": tokenizer.token_to_id(END),
        "do_sample": False,
    }
    (folder / "generation_config.json").write_text(json.dumps(settings, indent=2) + "\n")
    accuracies = [
        (speech, turns, measure_accuracy(model, tokenizer, speech=speech, turns=turns, count=count))
        for speech, turns, count in MEASUREMENTS
    ]
    (folder / "README.md").write_text(model_card(model, plan, accuracies), encoding="utf-8")


def model_card(
    model: DecoderModel, plan: TrainingPlan, accuracies: list[tuple[str, int, Accuracy]]
) -> str:
    """The card, in Markdown; every number in it comes from the arguments."""
    config = model.config
    rows = "\n".join(
        f"| {speech.capitalize()} | {'one question' if turns == 1 else 'follow-ups'} | {accuracy} |"
        for speech, turns, accuracy in accuracies
    )
    return CARD.format(
        millions=f"{model.num_parameters() / 1e6:.2f}",
        countries=len(COUNTRIES),
        config=config,
        accuracies=rows,
        tokens=f"{plan.steps * plan.tokens_per_step / 1e6:.1f}",
        plan="\n".join(f"| {k.replace('_', ' ')} | {v} |" for k, v in asdict(plan).items()),
    )


CARD = """\
---
language: [en, zh]
license: mit
---
# The embedded model of llmlab

A language model small enough to live inside a textbook: {millions} M parameters, a Llama with
{config.layers} layers of width {config.hidden_size}, {config.heads} query heads that share
{config.kv_heads} key and value heads, rotary positions, a context of {config.max_positions} tokens
and a vocabulary of {config.vocab_size}. It speaks English and Chinese, offline, on any CPU.

## What it can do
- Answer questions about {countries} countries (population, capital, continent, language), and
  follow-ups that only the earlier turns make clear: "And how many in Germany?", "那法国呢？".
- Continue the running sentences of the book: *time flies like an arrow*, 遥遥领先.
- Count, repeat words, greet, and say that it does not know.

## What it cannot do
Everything else. It has seen a toy world of generated sentences and nothing more: other topics,
other countries, free wordings, longer counts and arithmetic are beyond it, and it will answer
wrongly in good grammar. Populations are those of mid-2024, rounded to the million. Do not use it
for anything but learning how such models work.

## How often it is right
Answers to dialogues held out of training: one in ten combinations of a wording and a country never
occurs in it. Single questions: every held-out one, once. Follow-ups: those of dialogues of three
questions, each held out. The whole answer must be right; decoding is greedy.

| language | asked | exactly right |
|---|---|---|
{accuracies}

## How it was made
`make train` makes it again from nothing: the corpus (`llmlab/toyworld`) is generated from a seed,
the vocabulary is byte-level BPE trained on it, the weights are trained on {tokens} M tokens.
Another processor or number of threads adds in another order: the weights come out alike, not equal.

| plan | |
|---|---|
{plan}

Populations: United Nations, World Population Prospects 2024, total population, mid-2024, medium
variant.
"""
