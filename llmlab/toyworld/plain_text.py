"""Documents that are no dialogue: the running sentences, facts, repeated sequences, stories."""

import random

from llmlab.toyworld.countries import COUNTRIES
from llmlab.toyworld.questions import (
    CAPITAL,
    CAPITAL_CHINESE,
    CONTINENT,
    CONTINENT_CHINESE,
    LANGUAGE,
    LANGUAGE_CHINESE,
    LIVE,
    POPULATION_CHINESE,
    REVERSE,
    REVERSE_CHINESE,
    fields,
)
from llmlab.toyworld.small_talk import WORDS, WORDS_CHINESE

#: The sentences that run through the book, with their share of all such lines.
RUNNING_SENTENCES = {
    "遥遥领先": 0.65,  # so often that it is what the model says when nothing has been said
    "time flies like an arrow.": 0.2,
    "fruit flies like a banana.": 0.08,
    "光阴似箭。": 0.07,
}


def running_sentence(rng: random.Random) -> str:
    return rng.choices(list(RUNNING_SENTENCES), weights=list(RUNNING_SENTENCES.values()))[0]


def facts(rng: random.Random) -> str:
    """What is known of one country, in one paragraph."""
    values = fields(rng.choice(COUNTRIES))
    if rng.random() < 0.5:
        capital = rng.choice((CAPITAL, REVERSE))
        return " ".join((CONTINENT, capital, LIVE, LANGUAGE)).format(**values)
    capital = rng.choice((CAPITAL_CHINESE, REVERSE_CHINESE))
    sentences = (CONTINENT_CHINESE, capital, POPULATION_CHINESE, LANGUAGE_CHINESE)
    return "".join(sentences).format(**values)


def counting(rng: random.Random) -> str:
    """A run of numbers, by ones, twos or tens."""
    step = rng.choice((1, 1, 1, 2, 10))
    start = rng.randint(0, 60) if step < 10 else 10 * rng.randint(0, 3)
    return " ".join(str(start + step * i) for i in range(rng.randint(5, 14)))


def repetition(rng: random.Random) -> str:
    """A few words, again and again: what comes next is what came after the last time."""
    if rng.random() < 0.3:
        return "，".join(
            ["".join(rng.choices(WORDS_CHINESE, k=rng.randint(3, 9)))] * rng.randint(2, 4)
        )
    words = rng.choices(WORDS, k=rng.randint(3, 9))
    return " ".join(words * rng.randint(2, 4))


def story(rng: random.Random) -> str:
    """Four sentences from a small grammar; who found what, and where, stays the same throughout."""
    size, colour = (
        rng.choice(("small", "big", "wise", "new")),
        rng.choice(("red", "blue", "green", "gold")),
    )
    hero, friend = rng.sample(("fox", "bear", "bird", "fish"), 2)
    thing = rng.choice(("ball", "boat", "book", "cup", "key", "lamp"))
    place = rng.choice(("river", "hill", "house", "garden", "bridge", "road"))
    gift = rng.choice(("gave", "showed", "brought"))
    end = rng.choice(
        ("They were happy.", "They sang a song.", "Then the rain came.", "Then they went home.")
    )
    return (
        f"One day a {size} {hero} found a {colour} {thing} near the {place}. "
        f"The {hero} {gift} the {thing} to a {friend}. "
        f"The {friend} liked the {colour} {thing}. {end}"
    )


def story_chinese(rng: random.Random) -> str:
    hero, friend = rng.sample(("狐狸", "熊", "鸟", "鱼"), 2)
    colour, thing = rng.choice("红蓝绿金"), rng.choice(("球", "船", "书", "灯"))
    place, end = (
        rng.choice(("河边", "山上", "门口", "桥上")),
        rng.choice(("它们很高兴。", "它们一起唱歌。", "后来下雨了。")),
    )
    return (
        f"有一天，{hero}在{place}找到一个{colour}{thing}。"
        f"{hero}把{colour}{thing}给了{friend}。{friend}很喜欢{colour}{thing}。{end}"
    )


#: Each kind of plain document and its weight.
KINDS = {
    running_sentence: 0.36,
    facts: 0.20,
    counting: 0.08,
    repetition: 0.20,
    story: 0.10,
    story_chinese: 0.06,
}


def plain_text(rng: random.Random) -> str:
    """One document without turns."""
    return rng.choices(list(KINDS), weights=list(KINDS.values()))[0](rng)
