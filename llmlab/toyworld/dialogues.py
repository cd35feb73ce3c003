"""Dialogues about countries, and which of their questions are held out of training.

A question is a combination of a wording and a country. One in ten, chosen by a hash, is *held out*:
it never occurs in a training document, so a right answer to it was not memorised.
"""

import random
import zlib
from dataclasses import dataclass

from llmlab.toyworld.countries import COUNTRIES, Country
from llmlab.toyworld.questions import (
    ATTRIBUTES,
    FOLLOW_UP_ANSWER,
    HOW_MANY,
    OPENINGS,
    REVERSED,
    SAME_ATTRIBUTE,
    SAME_COUNTRY,
    Wording,
    fields,
)
from llmlab.toyworld.small_talk import NO_SUCH_COUNTRY, THANKS, invented_country, small_turn

Turn = tuple[str, str]  # what the user says, what the assistant answers
SPEECHES = ("english", "chinese")
BY_CAPITAL = 0.25  # share of opening questions that name a capital: the hardest ones


def is_held_out(wording: str, attribute: str, country: Country) -> bool:
    """Whether this combination is kept for the test: one in ten, the same on every machine."""
    return zlib.crc32(f"{wording}|{attribute}|{country.english}".encode()) % 10 == 0


@dataclass
class Topic:
    """What a follow-up may refer to."""

    attribute: str | None = None
    country: Country | None = None


def _countries(wording: str, attribute: str, *, held_out: bool) -> list[Country]:
    """The countries for which this question is held out, or those for which it is not."""
    return [c for c in COUNTRIES if is_held_out(wording, attribute, c) is held_out]


def opening_turn(rng: random.Random, speech: str, topic: Topic) -> Turn:
    """A question of training that stands on its own."""
    while True:
        # The kind first: otherwise the one with the most wordings would be asked most.
        attribute = rng.choice(ATTRIBUTES)
        by_capital = rng.random() < BY_CAPITAL
        wordings = [
            w
            for w in OPENINGS
            if w.speech == speech
            and (w.answer in REVERSED if by_capital else w.attribute == attribute)
        ]
        wording = rng.choice(wordings)
        countries = _countries(wording.question, wording.attribute, held_out=False)
        if countries:
            topic.attribute, topic.country = wording.attribute, rng.choice(countries)
            return wording.ask(topic.country)


def held_out_openings(speech: str) -> list[tuple[Wording, Country]]:
    """Every held-out question that stands on its own, each once."""
    return [
        (wording, country)
        for wording in OPENINGS
        if wording.speech == speech
        for country in _countries(wording.question, wording.attribute, held_out=True)
    ]


def same_attribute_turn(
    rng: random.Random, speech: str, topic: Topic, *, held_out: bool
) -> Turn | None:
    """A new country, the attribute of the turn before; None where nothing fits."""
    wordings = list(SAME_ATTRIBUTE[speech])
    if topic.attribute == "population":
        wordings += HOW_MANY[speech]
    wording = rng.choice(wordings)
    countries = _countries(wording, topic.attribute, held_out=held_out)
    countries = [country for country in countries if country != topic.country]
    if not countries:
        return None
    topic.country = rng.choice(countries)
    values = fields(topic.country)
    return wording.format(**values), FOLLOW_UP_ANSWER[speech, topic.attribute].format(**values)


def same_country_turn(
    rng: random.Random, speech: str, topic: Topic, *, held_out: bool
) -> Turn | None:
    """A new attribute, the country of the turn before; None where nothing fits."""
    wordings = [
        w
        for w in SAME_COUNTRY
        if w.speech == speech
        and w.attribute != topic.attribute
        and is_held_out(w.question, w.attribute, topic.country) is held_out
    ]
    if not wordings:
        return None
    wording = rng.choice(wordings)
    topic.attribute = wording.attribute
    return wording.ask(topic.country)


def unknown_country_turn(rng: random.Random, speech: str, topic: Topic) -> Turn:
    """A question about a country that does not exist."""
    name = invented_country(rng, speech)
    values = {"country": name, "Country": name, "国家": name}
    about_country = [w for w in OPENINGS if w.speech == speech and w.answer not in REVERSED]
    if topic.attribute is not None and rng.random() < 0.5:
        question = rng.choice(SAME_ATTRIBUTE[speech])
    else:
        wording = rng.choice(about_country)
        question, topic.attribute = wording.question, wording.attribute
    topic.country = None
    return question.format(**values), NO_SUCH_COUNTRY[speech]


def follow_up_turn(
    rng: random.Random, speech: str, topic: Topic, *, held_out: bool = False
) -> Turn:
    """A question that only the earlier turns make clear."""
    while True:
        kinds = (
            [same_attribute_turn]
            if topic.country is None
            else [same_attribute_turn, same_country_turn]
        )
        turn = rng.choice(kinds)(rng, speech, topic, held_out=held_out)
        if turn is not None:
            return turn


def training_turn(rng: random.Random, speech: str, topic: Topic) -> Turn:
    """Any turn that may stand in a training dialogue at this point."""
    kind = rng.random()
    if topic.attribute is not None and kind < 0.55:
        return follow_up_turn(rng, speech, topic)
    if kind < 0.63:
        return small_turn(rng, speech)
    if kind < 0.69:
        return unknown_country_turn(rng, speech, topic)
    if topic.attribute is not None and kind < 0.75:
        return rng.choice(THANKS[speech])
    return opening_turn(rng, speech, topic)


def typed(question: str, rng: random.Random) -> str:
    """The question as typed in a hurry: now and then in lower case, or without its last mark."""
    if rng.random() < 0.12:
        question = question.lower()
    if question[-1] in "?？。." and rng.random() < 0.12:
        question = question[:-1]
    elif question[-1] == "？" and rng.random() < 0.1:
        question = question[:-1] + "?"
    return question


def training_dialogue(rng: random.Random) -> tuple[Turn, ...]:
    """One to eight turns in one language, now and then in both."""
    speech, mixed, topic = rng.choice(SPEECHES), rng.random() < 0.12, Topic()
    turns = []
    for _ in range(rng.choice((1, 1, 2, 2, 3, 3, 4, 5, 6, 8))):
        question, answer = training_turn(rng, rng.choice(SPEECHES) if mixed else speech, topic)
        turns.append((typed(question, rng), answer))
    return tuple(turns)


def held_out_dialogue(
    rng: random.Random, speech: str, opening: tuple[Wording, Country], *, turns: int
) -> tuple[Turn, ...]:
    """A dialogue of which every question is held out, beginning with a given one."""
    wording, country = opening
    topic = Topic(wording.attribute, country)
    dialogue = [wording.ask(country)]
    for _ in range(turns - 1):
        dialogue.append(follow_up_turn(rng, speech, topic, held_out=True))
    return tuple(dialogue)
