"""Turns about no known country: greetings, counting, repeating, saying "I do not know"."""

import random

WORDS = (
    "red blue green gold small big old new moon sun star tree fish bird fox bear ball boat book "
    "bread river hill house door lamp cup key rope stone leaf rain snow wind road bridge garden "
    "song apple"
).split()
WORDS_CHINESE = tuple("红蓝绿金小大老新月日星树鱼鸟狐熊球船书河山门灯石叶雨雪风路桥歌花")

GREETINGS = {
    "english": (
        ("Hello!", "Hello! Ask me about a country."),
        ("Hi.", "Hello! Ask me about a country."),
        ("Good morning!", "Good morning! Ask me about a country."),
        ("Who are you?", "I am a small language model. I know a little about countries."),
        ("What are you?", "I am a small language model. I know a little about countries."),
        ("What can you do?", "I can tell you about countries, count, and repeat words."),
        ("What do you know?", "I can tell you about countries, count, and repeat words."),
    ),
    "chinese": (
        ("你好！", "你好！请问我关于国家的问题。"),
        ("你好。", "你好！请问我关于国家的问题。"),
        ("你是谁？", "我是一个小语言模型，知道一点国家的事。"),
        ("你会什么？", "我会说国家的事，会数数，也会重复。"),
    ),
}
THANKS = {
    "english": (("Thanks!", "You are welcome."), ("Thank you.", "You are welcome."),
                ("Great, thanks.", "You are welcome."), ("I see.", "Ask me more.")),
    "chinese": (("谢谢！", "不客气。"), ("谢谢你。", "不客气。"), ("明白了。", "请继续问。")),
}  # fmt: skip

OUT_OF_REACH = {
    "english": (
        "What is the weather like today?", "Who won the game?", "What time is it?", "Write a poem.",
        "What is the meaning of life?", "How old are you?", "Can you write code?",
        "Tell me a joke.",
        "What is for dinner?", "Who is the president?", "How do I bake bread?", "What is love?",
        "Explain gravity.", "Do you like music?", "What did I do yesterday?", "Where is my book?",
    ),
    "chinese": (
        "今天天气怎么样？", "现在几点？", "写一首诗。", "你几岁？", "讲个笑话。", "你喜欢什么歌？",
        "晚饭吃什么？", "谁赢了？", "什么是爱？", "你会写代码吗？", "我的书在哪里？",
    ),
}  # fmt: skip
DO_NOT_KNOW = {"english": "I do not know that.", "chinese": "这个我不知道。"}
NO_SUCH_COUNTRY = {"english": "I do not know that country.", "chinese": "我不知道这个国家。"}

_CONSONANTS, _VOWELS = (
    "b c d f g h k l m n p r s t v w z br dr gr kr pr st th".split(),
    "a e i o u".split(),
)
_ENDINGS = "land ia nia stan ria mark via tania os ora".split()
_CHARACTERS = "阿巴卡达尔法格拉利马纳奥帕斯塔瓦亚维林森兰尼萨罗莫多克德布"


def invented_country(rng: random.Random, speech: str) -> str:
    """A name that no country has, so that the model learns to say that it does not know."""
    if speech == "chinese":
        return "".join(rng.sample(_CHARACTERS, rng.randint(2, 4)))
    syllables = (rng.choice(_CONSONANTS) + rng.choice(_VOWELS) for _ in range(rng.randint(1, 2)))
    return (
        "".join(syllables) + rng.choice(["", "l", "n", "r"]) + rng.choice(_ENDINGS)
    ).capitalize()


def counting_turn(rng: random.Random, speech: str) -> tuple[str, str]:
    """Count up or down between two numbers below 100, at most twelve steps."""
    start, steps = rng.randint(0, 88), rng.randint(2, 11)
    if rng.random() < 0.3:
        start = 1
    stop = start + steps
    numbers = list(range(start, stop + 1))
    if rng.random() < 0.25:
        question = {
            "english": f"Count down from {stop} to {start}.",
            "chinese": f"从{stop}倒数到{start}。",
        }
        return question[speech], " ".join(map(str, reversed(numbers)))
    question = {
        "english": rng.choice(
            (f"Count from {start} to {stop}.", f"Please count from {start} to {stop}.")
        ),
        "chinese": rng.choice((f"从{start}数到{stop}。", f"请从{start}数到{stop}。")),
    }
    if start == 1 and rng.random() < 0.5:
        question = {"english": f"Count to {stop}.", "chinese": f"数到{stop}。"}
    return question[speech], " ".join(map(str, numbers))


def repeating_turn(rng: random.Random, speech: str) -> tuple[str, str]:
    """Say the same words again: a task that a copying head solves."""
    if speech == "chinese":
        text = "".join(rng.choices(WORDS_CHINESE, k=rng.randint(2, 8)))
        return rng.choice(("请重复：", "请跟我说：", "重复：")) + text, text
    text = " ".join(rng.choices(WORDS, k=rng.randint(2, 8)))
    return rng.choice(("Repeat: ", "Please repeat: ", "Say after me: ")) + text, text


def small_turn(rng: random.Random, speech: str) -> tuple[str, str]:
    """One turn that needs no country."""
    kind = rng.random()
    if kind < 0.40:
        return counting_turn(rng, speech)
    if kind < 0.75:
        return repeating_turn(rng, speech)
    if kind < 0.88:
        return rng.choice(GREETINGS[speech])
    return rng.choice(OUT_OF_REACH[speech]), DO_NOT_KNOW[speech]
