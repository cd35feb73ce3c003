"""The corpus: the same for the same seed, true to its facts, and without what is held out."""

import itertools

import pytest

from llmlab.tokenization import BPETokenizer
from llmlab.toyworld import COUNTRIES, Document, held_out_dialogues, training_documents
from llmlab.toyworld.corpus import CHAT_TEMPLATE, SPECIAL_TOKENS
from llmlab.toyworld.countries import CONTINENTS, LANGUAGES
from llmlab.toyworld.dialogues import is_held_out
from llmlab.toyworld.questions import (
    HOW_MANY,
    OPENINGS,
    SAME_ATTRIBUTE,
    SAME_COUNTRY,
    fields,
    population_in_chinese,
)


@pytest.fixture(scope="module")
def documents() -> list[Document]:
    return list(itertools.islice(training_documents(seed=3), 4000))


def test_the_same_seed_gives_the_same_documents(documents):
    assert documents[:50] == list(itertools.islice(training_documents(seed=3), 50))
    assert documents[:50] != list(itertools.islice(training_documents(seed=4), 50))


def test_facts_are_complete_and_distinct():
    assert (
        len({c.english for c in COUNTRIES}) == len({c.chinese for c in COUNTRIES}) == len(COUNTRIES)
    )
    for country in COUNTRIES:
        assert country.continent in CONTINENTS
        assert country.language in LANGUAGES
        assert country.population_millions > 0


def test_populations_against_the_source():
    """Five of the source's totals, in persons (World Population Prospects 2024, mid-2024)."""
    source = {
        "France": 66_548_530,
        "Germany": 84_552_242,
        "China": 1_419_321_278,
        "Kenya": 56_432_944,
        "New Zealand": 5_213_944,
    }
    ours = {country.english: country.population_millions for country in COUNTRIES}
    for name, persons in source.items():
        assert ours[name] == round(persons / 1e6)


@pytest.mark.parametrize(
    ("millions", "chinese"),
    [
        (5, "500万"),
        (67, "6700万"),
        (101, "1.01亿"),
        (1419, "14.19亿"),
        (1450, "14.5亿"),
        (200, "2亿"),
    ],
)
def test_population_in_chinese(millions, chinese):
    assert population_in_chinese(millions) == chinese


def test_one_combination_in_ten_is_held_out():
    combinations = [
        is_held_out(w.question, w.attribute, c)
        for w in (*OPENINGS, *SAME_COUNTRY)
        for c in COUNTRIES
    ]
    assert 0.08 < sum(combinations) / len(combinations) < 0.12


def test_no_held_out_opening_is_in_training(documents):
    openings = {
        w.question.format(**fields(c)).lower().rstrip("?？。.")
        for w in OPENINGS
        for c in COUNTRIES
        if is_held_out(w.question, w.attribute, c)
    }
    asked = {q.lower().rstrip("?？。.") for d in documents for q, _ in d.turns}
    assert len(openings) > 200
    assert not openings & asked


def test_no_held_out_follow_up_is_in_training(documents):
    """Which attribute "And in Germany?" asks for is told by the answer."""
    signs = {
        "population": ("million", "万", "亿"),
        "capital": ("capital", "首都"),
        "continent": (" is in ", "在"),
        "language": ("speak", "语"),
    }
    follow_ups = {
        (wording.format(**fields(country)).lower().rstrip("?？。."), attribute)
        for speech, wordings in SAME_ATTRIBUTE.items()
        for attribute in signs
        for wording in (*wordings, *(HOW_MANY[speech] if attribute == "population" else ()))
        for country in COUNTRIES
        if is_held_out(wording, attribute, country)
    }
    checked = 0
    for document in documents:
        for question, answer in document.turns:
            typed = question.lower().rstrip("?？。.")
            for attribute, marks in signs.items():
                if any(mark in answer for mark in marks):
                    checked += 1
                    assert (typed, attribute) not in follow_ups
                    break
    assert checked > 3000


def test_held_out_dialogues_ask_only_what_is_held_out():
    openings = {w.question.format(**fields(c)): (w, c) for w in OPENINGS for c in COUNTRIES}
    for speech in ("english", "chinese"):
        for document in held_out_dialogues(speech, 100, turns=3, seed=1):
            wording, country = openings[document.turns[0][0]]
            assert is_held_out(wording.question, wording.attribute, country)
            assert document.turns[0][1] == wording.ask(country)[1]
            assert len(document.turns) == 3


def test_a_document_encodes_as_its_chat_template(documents):
    """Training and chatting see the same ids, with no token of the user's own made special."""
    texts = (turn for d in documents[:300] for pair in d.turns for turn in pair)
    tokenizer = BPETokenizer.train(
        texts, 400, SPECIAL_TOKENS, bos_token="<s>", chat_template=CHAT_TEMPLATE
    )
    dialogue = next(d for d in documents if len(d.turns) == 3)
    messages = []
    for question, answer in dialogue.turns:
        messages.append({"role": "user", "content": question})
        messages.append({"role": "assistant", "content": answer})
    by_template = tokenizer.apply_chat_template(messages, add_generation_prompt=False)
    assert dialogue.encode(tokenizer) == by_template


def test_every_held_out_question_is_asked_once():
    for speech in ("english", "chinese"):
        documents = held_out_dialogues(speech)
        assert len({d.turns[0][0] for d in documents}) == len(documents) > 150


def test_bad_arguments():
    with pytest.raises(ValueError, match="english"):
        held_out_dialogues("french", 1)
    with pytest.raises(ValueError, match="at least 1"):
        held_out_dialogues("english", 0)
