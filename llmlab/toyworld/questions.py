"""Questions about countries, their answers, and follow-ups that only earlier turns make clear.

A *wording* is one way to ask. The answer depends on the wording and the country alone, so that an
answer is either exactly right or not.
"""

from dataclasses import dataclass

from llmlab.toyworld.countries import CONTINENTS, LANGUAGES, Country

ATTRIBUTES = ("population", "capital", "continent", "language")


def population_in_chinese(millions: int) -> str:
    """67 -> 6700万, 1419 -> 14.19亿 (万 is ten thousand, 亿 a hundred million)."""
    if millions < 100:
        return f"{millions}00万"
    return f"{millions / 100:.2f}".rstrip("0").rstrip(".") + "亿"


def fields(country: Country) -> dict[str, str]:
    """What a wording or an answer may name, by placeholder."""
    return {
        "country": country.english,
        "Country": country.english[0].upper() + country.english[1:],
        "capital": country.capital_english,
        "continent": country.continent,
        "language": country.language,
        "millions": str(country.population_millions),
        "国家": country.chinese,
        "首都": country.capital_chinese,
        "大洲": CONTINENTS[country.continent],
        "语言": LANGUAGES[country.language],
        "人口": population_in_chinese(country.population_millions),
    }


@dataclass(frozen=True)
class Wording:
    """One way to ask for `attribute` in `speech` ("english" or "chinese"), and how to answer."""

    speech: str
    attribute: str
    question: str
    answer: str

    def ask(self, country: Country) -> tuple[str, str]:
        """The question and its right answer for one country."""
        values = fields(country)
        return self.question.format(**values), self.answer.format(**values)


LIVE = "Roughly {millions} million people live in {country}."
POPULATION = "The population of {country} is about {millions} million."
INHABITANTS = "{Country} has about {millions} million inhabitants."
CAPITAL = "The capital of {country} is {capital}."
CONTINENT = "{Country} is in {continent}."
LANGUAGE = "People in {country} speak {language}."
REVERSE = "{capital} is the capital of {country}."
POPULATION_CHINESE = "{国家}大约有{人口}人。"
CAPITAL_CHINESE = "{国家}的首都是{首都}。"
CONTINENT_CHINESE = "{国家}在{大洲}。"
LANGUAGE_CHINESE = "{国家}人说{语言}。"
REVERSE_CHINESE = "{首都}是{国家}的首都。"
REVERSED = (REVERSE, REVERSE_CHINESE)  # asked by the capital, not by the country


def _wordings(speech: str, attribute: str, answer: str, *questions: str) -> tuple[Wording, ...]:
    return tuple(Wording(speech, attribute, question, answer) for question in questions)


#: Questions that stand on their own: they name the country (or its capital).
OPENINGS: tuple[Wording, ...] = (
    *_wordings(
        "english", "population", LIVE,
        "How many people live in {country}?",
        "Tell me how many people live in {country}.",
        "Do you know how many people live in {country}?",
        "About how many people live in {country}?",
        "How many people are there in {country}?",
        "How many people does {country} have?",
    ),
    *_wordings(
        "english", "population", POPULATION,
        "What is the population of {country}?",
        "What's the population of {country}?",
        "How large is the population of {country}?",
        "Tell me the population of {country}.",
        "Population of {country}?",
    ),
    *_wordings(
        "english", "population", INHABITANTS,
        "How many inhabitants does {country} have?",
        "How many inhabitants are there in {country}?",
        "What is the number of inhabitants of {country}?",
    ),
    *_wordings(
        "english", "capital", CAPITAL,
        "What is the capital of {country}?",
        "What's the capital of {country}?",
        "Which city is the capital of {country}?",
        "Tell me the capital of {country}.",
        "Name the capital of {country}.",
        "Do you know the capital of {country}?",
        "Capital of {country}?",
        "What is the capital city of {country}?",
    ),
    *_wordings(
        "english", "continent", CONTINENT,
        "Which continent is {country} on?",
        "On which continent is {country}?",
        "Which continent is {country} in?",
        "What continent is {country} on?",
        "Where is {country}?",
        "In which part of the world is {country}?",
        "Tell me where {country} is.",
    ),
    *_wordings(
        "english", "language", LANGUAGE,
        "What language do people speak in {country}?",
        "Which language do people speak in {country}?",
        "Which language is spoken in {country}?",
        "What language is spoken in {country}?",
        "What do people speak in {country}?",
        "What is the language of {country}?",
        "Tell me the language of {country}.",
    ),
    *_wordings(
        "english", "capital", REVERSE,
        "{capital} is the capital of which country?",
        "Which country has the capital {capital}?",
        "Which country is {capital} the capital of?",
        "Where is {capital}?",
        "Which country is {capital} in?",
        "What country has the capital {capital}?",
        "{capital} is the capital of what country?",
        "Do you know which country has the capital {capital}?",
    ),
    *_wordings(
        "chinese", "population", POPULATION_CHINESE,
        "{国家}有多少人？",
        "{国家}有多少人口？",
        "{国家}的人口是多少？",
        "{国家}大约有多少人？",
        "请问{国家}有多少人？",
        "有多少人住在{国家}？",
        "{国家}人口多少？",
        "你知道{国家}有多少人吗？",
    ),
    *_wordings(
        "chinese", "capital", CAPITAL_CHINESE,
        "{国家}的首都是哪里？",
        "{国家}的首都是什么？",
        "{国家}的首都在哪里？",
        "{国家}首都是哪里？",
        "请问{国家}的首都是哪座城市？",
        "哪座城市是{国家}的首都？",
        "你知道{国家}的首都吗？",
        "告诉我{国家}的首都。",
    ),
    *_wordings(
        "chinese", "continent", CONTINENT_CHINESE,
        "{国家}在哪个洲？",
        "{国家}在哪里？",
        "{国家}属于哪个洲？",
        "{国家}位于哪个大洲？",
        "请问{国家}在哪个大洲？",
        "告诉我{国家}在哪个洲。",
    ),
    *_wordings(
        "chinese", "language", LANGUAGE_CHINESE,
        "{国家}人说什么语言？",
        "{国家}说什么语言？",
        "在{国家}人们说什么语言？",
        "{国家}的语言是什么？",
        "请问{国家}人说什么话？",
        "告诉我{国家}的语言。",
    ),
    *_wordings(
        "chinese", "capital", REVERSE_CHINESE,
        "{首都}是哪个国家的首都？",
        "哪个国家的首都是{首都}？",
        "{首都}在哪里？",
        "{首都}在哪个国家？",
        "{首都}是哪国的首都？",
        "{首都}是什么国家的首都？",
        "请问{首都}是哪个国家的首都？",
        "你知道{首都}是哪个国家的首都吗？",
    ),
)  # fmt: skip

#: "And in Germany?": a new country, the attribute of the turn before. Keyed by speech.
SAME_ATTRIBUTE: dict[str, tuple[str, ...]] = {
    "english": (
        "And in {country}?",
        "And {country}?",
        "What about {country}?",
        "How about {country}?",
        "And what about {country}?",
        "And for {country}?",
        "Now the same for {country}.",
    ),
    "chinese": ("那{国家}呢？", "{国家}呢？", "那么{国家}呢？", "{国家}又如何？", "再说说{国家}。"),
}

#: The form of the answer to a SAME_ATTRIBUTE follow-up.
FOLLOW_UP_ANSWER: dict[tuple[str, str], str] = {
    ("english", "population"): INHABITANTS,
    ("english", "capital"): CAPITAL,
    ("english", "continent"): CONTINENT,
    ("english", "language"): LANGUAGE,
    ("chinese", "population"): POPULATION_CHINESE,
    ("chinese", "capital"): CAPITAL_CHINESE,
    ("chinese", "continent"): CONTINENT_CHINESE,
    ("chinese", "language"): LANGUAGE_CHINESE,
}

#: "And how many are in Germany?": a new country; asked after a population only.
HOW_MANY: dict[str, tuple[str, ...]] = {
    "english": (
        "And how many are in {country}?",
        "And how many in {country}?",
        "How many are in {country}?",
        "And how many live in {country}?",
    ),
    "chinese": ("那{国家}有多少？", "{国家}又有多少？"),
}

#: "And its capital?": a new attribute, the country of the turn before.
SAME_COUNTRY: tuple[Wording, ...] = (
    *_wordings(
        "english", "population", INHABITANTS,
        "How many people live there?",
        "And how many people live there?",
        "What is its population?",
        "And its population?",
        "And the population?",
        "How many inhabitants does it have?",
    ),
    *_wordings(
        "english", "capital", CAPITAL,
        "What is its capital?",
        "And its capital?",
        "And the capital?",
        "What is the capital there?",
        "And what is the capital?",
    ),
    *_wordings(
        "english", "continent", CONTINENT,
        "Which continent is it on?",
        "And which continent is it on?",
        "Where is it?",
        "And the continent?",
    ),
    *_wordings(
        "english", "language", LANGUAGE,
        "What language do they speak there?",
        "What do people speak there?",
        "And which language do they speak?",
        "And the language?",
        "And its language?",
    ),
    *_wordings(
        "chinese", "population", POPULATION_CHINESE,
        "那里有多少人？", "它有多少人？", "人口呢？", "它的人口是多少？", "那人口呢？",
    ),
    *_wordings(
        "chinese", "capital", CAPITAL_CHINESE,
        "它的首都是哪里？", "首都呢？", "它的首都呢？", "那首都是哪里？", "那首都呢？",
    ),
    *_wordings(
        "chinese", "continent", CONTINENT_CHINESE,
        "它在哪个洲？", "它在哪里？", "那里是哪个洲？", "那大洲呢？",
    ),
    *_wordings(
        "chinese", "language", LANGUAGE_CHINESE,
        "那里的人说什么语言？", "那里说什么语言？", "语言呢？", "它的语言是什么？", "那语言呢？",
    ),
)  # fmt: skip
